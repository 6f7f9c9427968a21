"""`bond_present`: a bond of network interfaces that must be there with its settings and working ports. It only checks.

A bond is made by the host's own network configuration; changing one cuts off the host. Source:
Documentation/networking/bonding of Linux: /sys/class/net/*/bonding holds a name and its number (`802.3ad 4`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from proveout.dsl.operations.facts import Facts, Query, TextQuery
from proveout.dsl.operations.network.mtu import NET, Interface
from proveout.dsl.operations.operation import Operation, Step
from proveout.dsl.schema.scalar_types import OrOne, one_or_many

SETTINGS = ("mode", "xmit_hash_policy", "lacp_rate", "miimon")


class BondPresent(Operation):
    """A bond that the host must have: `{bond: bond0, mode: 802.3ad, ports: [ens1f0, ens1f1]}`. Nothing is changed; the
    run ends where it differs, or a port has no link."""

    bond: Interface = Field(description="Its name.")
    mode: (
        Literal["balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb"]
        | None
    ) = Field(None, description="The way in which it divides packets over its ports.")
    ports: Annotated[list[Interface], Field(max_length=64), BeforeValidator(one_or_many), OrOne()] = Field(
        [], description="Exactly the interfaces that it is made of."
    )
    ports_up_min: Annotated[int, Field(ge=1, le=64)] | None = Field(
        None, description="The number of ports that must have a link; by default all must."
    )
    xmit_hash_policy: Literal["layer2", "layer3+4", "layer2+3", "encap2+3", "encap3+4", "vlan+srcmac"] | None = Field(
        None, description="The rule that chooses the port of a packet."
    )
    lacp_rate: Literal["slow", "fast"] | None = Field(None, description="The rate of LACP packets, in mode 802.3ad.")
    miimon: Annotated[int, Field(ge=0, le=60_000)] | None = Field(
        None, description="The time between looks at the links, milliseconds."
    )

    privileges = "reads /sys/class/net"

    @property
    def changing(self) -> bool:
        """It only checks."""
        return False

    def targets(self) -> Mapping[str, str]:
        """Each setting of the bond."""
        return {f"{name} of {self.bond}": value for name, value in self._settings()}

    def wanted(self) -> tuple[str, ...]:
        """The settings."""
        settings = ", ".join(f"{name} {value}" for name, value in self._settings())
        return (f"must be there, or the run ends: bond {self.bond}, {settings}",)

    def _settings(self) -> Iterator[tuple[str, str]]:
        for name in SETTINGS:
            value = getattr(self, name)
            if value is not None:
                yield name, str(value)
        if self.ports:
            yield "ports", ", ".join(sorted(self.ports))
        yield "ports with a link", "all" if self.ports_up_min is None else f"at least {self.ports_up_min}"

    def _path(self, name: str) -> str:
        return f"{NET}/{self.bond}/bonding/{name}"

    def queries(self, known: Facts) -> tuple[Query, ...]:
        """The settings of the bond, then the links of its ports."""
        first = tuple(TextQuery(self._path(name)) for name in ("slaves", "mii_status", *SETTINGS))
        if any(query not in known for query in first):
            return first
        return (*first, *(TextQuery(_link_path(port)) for port in self._ports(known)))

    def _ports(self, facts: Facts) -> tuple[str, ...]:
        return tuple(sorted((facts.text(self._path("slaves")) or "").split()))

    def changes(self, facts: Facts) -> Step:
        """Never any."""
        if facts.text(self._path("slaves")) is None:
            return Step(refusals=(f"this host has no bond {self.bond} ({NET}/{self.bond}/bonding)",))
        return Step(refusals=tuple(self._differences(facts)))

    def _differences(self, facts: Facts) -> Iterator[str]:
        for name in SETTINGS:
            value, words = getattr(self, name), (facts.text(self._path(name)) or "").split()
            if value is not None and words[:1] != [str(value)]:
                yield f"{name} of {self.bond} is {words[0] if words else 'not there'}, not {value}"
        ports = self._ports(facts)
        if self.ports and set(ports) != set(self.ports):
            yield f"{self.bond} is made of {', '.join(ports) or 'nothing'}, not of {', '.join(sorted(self.ports))}"
        down = [port for port in ports if facts.text(_link_path(port)) != "up"]
        least = len(ports) if self.ports_up_min is None else self.ports_up_min
        if not ports:
            yield f"{self.bond} has no ports"
        elif len(ports) - len(down) < least:
            links = f"{len(ports) - len(down)} of {len(ports)} ports"
            without = f", not on {', '.join(down)}" if down else f", and must have it on {least}"
            yield f"{self.bond} has a link on {links}{without}"


def _link_path(port: str) -> str:
    return f"{NET}/{port}/bonding_slave/mii_status"
