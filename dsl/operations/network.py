"""Operations on network interfaces: `bond_present` and `mtu`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from proveout.dsl.operations.change import SetText
from proveout.dsl.operations.facts import Facts
from proveout.dsl.operations.operation import Found, Operation, matching
from proveout.dsl.plan.scalars import Form

# The kernel changes more than the interface itself: a bond gives its MTU to all its ports, an interface takes the VLANs
# on it down to its own MTU, and the IPv6 MTU of an interface follows. Ports that differ are set back as well; the rest
# is refused where undoing would not bring it back, with the order of `interfaces` that avoids it.

NET = "/sys/class/net"
DEVICES = "/proc/self/net/dev"
MTU_MIN, MTU_MAX = 1280, 65535
"""Below 1280 the kernel takes the IPv6 addresses off an interface (RFC 8200, 5), which undoing would not restore."""
Interface: TypeAlias = Annotated[
    str,
    matching(
        r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}",
        "`{value}` is not the name of a network interface, as bond0 or ens1f0.102",
    ),
]
"""At most 15 characters, that cannot leave the interface's folder in /sys."""
Interfaces: TypeAlias = Annotated[list[Interface], Form(min_length=1, max_length=64, or_one=True)]


def mtu_path(name: str) -> str:
    """The attribute of an interface."""
    return f"{NET}/{name}/mtu"


def _ports_path(name: str) -> str:
    return f"{NET}/{name}/bonding/slaves"


class Mtu(Operation):
    """The MTU of network interfaces until the next boot: `{interfaces: [bond0, bond0.102], mtu: 9000}`."""

    interfaces: Interfaces = Field(
        description="Their names, in the order in which they are set: to raise it a bond before the VLANs on it, to "
        "lower it the VLANs first."
    )
    mtu: Annotated[int, Field(ge=MTU_MIN, le=MTU_MAX)] = Field(description="Bytes of a packet; 9000 for jumbo frames.")

    privileges = "root: writes /sys/class/net"

    def targets(self) -> Mapping[str, str]:
        return {f"MTU of {name}": str(self.mtu) for name in self.interfaces}

    def wanted(self) -> tuple[str, ...]:
        return (f"MTU of {', '.join(self.interfaces)}: {self.mtu}, until the host starts again",)

    def steps(self, facts: Facts) -> Iterator[Found]:
        """The MTU of each interface that has another, after what undoing it must set back by itself."""
        if not _is_own_namespace(facts):
            yield f"{NET} shows the interfaces of another network namespace than this agent's: mount /sys in it"
            return
        for index, name in enumerate(self.interfaces):
            now = facts.text(mtu_path(name))
            if now is None:
                yield f"this host has no network interface {name}"
            elif now != str(self.mtu):
                yield from self._refused(name, int(now), set(self.interfaces[:index]), facts)
                yield from _followers(name, now, facts)
                yield SetText(path=mtu_path(name), before=now, after=str(self.mtu))

    def _refused(self, name: str, now: int, before: set[str], facts: Facts) -> Iterator[str]:
        """Reasons that concern the interfaces around this one; `before` are those that are set earlier."""
        if master := facts.paths(f"{NET}/{name}/master"):
            yield f"{name} is a port of another interface, whose MTU it has ({master[0]}): set that one's"
            return
        ipv6 = facts.text(f"/proc/sys/net/ipv6/conf/{name}/mtu")
        if ipv6 is not None and ipv6 != str(now):
            yield f"the IPv6 MTU of {name} is {ipv6}, not {now}: the kernel would change it, and nothing sets it back"
        for above in _named(facts.paths(f"{NET}/{name}/upper_*"), "upper_"):
            if above not in before and int(facts.text(mtu_path(above)) or 0) > self.mtu:
                yield f"the kernel would lower the MTU of {above}, which lies on {name}: put it before {name}"
        if facts.text(_ports_path(name)) is None:
            for below in _named(facts.paths(f"{NET}/{name}/lower_*"), "lower_"):
                if below not in before and int(facts.text(mtu_path(below)) or MTU_MAX) < self.mtu:
                    yield f"{name} lies on {below}, whose MTU is {facts.text(mtu_path(below))}: put it before {name}"


def _is_own_namespace(facts: Facts) -> bool:
    """Whether /sys has the interfaces of the agent's own network namespace."""
    lines = (facts.text(DEVICES) or "").splitlines()[2:]
    own = {line.partition(":")[0].strip() for line in lines}
    found = {path.rpartition("/")[2] for path in facts.paths(f"{NET}/*")} - {"bonding_masters"}
    return own == found


def _named(paths: tuple[str, ...], prefix: str) -> tuple[str, ...]:
    return tuple(path.rpartition("/")[2].removeprefix(prefix) for path in paths)


def _followers(name: str, now: str, facts: Facts) -> Iterator[SetText]:
    """The ports of a bond that have another MTU than the bond: it gives them its own, also when it is set back."""
    for port in (facts.text(_ports_path(name)) or "").split():
        has = facts.text(mtu_path(port))
        if has is not None and has != now:
            yield SetText(path=mtu_path(port), before=has, after="", part="undo", only_if=(mtu_path(name), now))


# A bond is made by the host's own network configuration; changing one cuts off the host. Source:
# Documentation/networking/bonding of Linux: /sys/class/net/*/bonding holds a name and its number (`802.3ad 4`).

SETTINGS = ("mode", "xmit_hash_policy", "lacp_rate", "miimon")


class BondPresent(Operation):
    """A bond that the host must have: `{bond: bond0, mode: 802.3ad, ports: [ens1f0, ens1f1]}`. Nothing is changed; the
    run ends where it differs, or a port has no link."""

    bond: Interface = Field(description="Its name.")
    mode: (
        Literal["balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb"]
        | None
    ) = Field(None, description="The way in which it divides packets over its ports.")
    ports: Annotated[list[Interface], Form(max_length=64, or_one=True)] = Field(
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
        return False

    def targets(self) -> Mapping[str, str]:
        return {f"{name} of {self.bond}": value for name, value in self._settings()}

    def wanted(self) -> tuple[str, ...]:
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

    def steps(self, facts: Facts) -> Iterator[Found]:
        made_of = facts.text(_ports_path(self.bond))
        if made_of is None:
            yield f"this host has no bond {self.bond} ({NET}/{self.bond}/bonding)"
            return
        for name in SETTINGS:
            value, words = getattr(self, name), (facts.text(f"{NET}/{self.bond}/bonding/{name}") or "").split()
            if value is not None and words[:1] != [str(value)]:
                yield f"{name} of {self.bond} is {words[0] if words else 'not there'}, not {value}"
        ports = sorted(made_of.split())
        if self.ports and set(ports) != set(self.ports):
            yield f"{self.bond} is made of {', '.join(ports) or 'nothing'}, not of {', '.join(sorted(self.ports))}"
        down = [port for port in ports if facts.text(f"{NET}/{port}/bonding_slave/mii_status") != "up"]
        least = len(ports) if self.ports_up_min is None else self.ports_up_min
        if not ports:
            yield f"{self.bond} has no ports"
        elif len(ports) - len(down) < least:
            links = f"{len(ports) - len(down)} of {len(ports)} ports"
            without = f", not on {', '.join(down)}" if down else f", and must have it on {least}"
            yield f"{self.bond} has a link on {links}{without}"
