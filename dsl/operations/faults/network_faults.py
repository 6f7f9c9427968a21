"""`partition`, `loss` and `delay`: faults of the network of a host.

`partition` and `loss` drop packets between two groups of hosts with nftables, in a table of their own, which healing
deletes. Each host of both groups drops what comes from the other group and what it sends there, so that a host's
several networks are all cut: it has the addresses of the other hosts in the plan and those in the dsns of their
systems. Packets from and to the ports of agents always pass: the coordinator must reach them to heal.

Hosts on one machine (`local`) share its loopback, which has other uses, so only packets from and to the ports of
systems are dropped there. Sources: nft(8); tc-netem(8).
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, field_validator

from proveout.core import units
from proveout.dsl.operations.change import Command
from proveout.dsl.operations.facts import AddressQuery, Facts, OutputQuery, PlaceQuery, QdiscQuery, Query
from proveout.dsl.operations.network.mtu import Interface, Interfaces
from proveout.dsl.operations.operation import Misfit, Operation, Step
from proveout.dsl.plan.topology import Host, System
from proveout.dsl.rules import secret_destinations as destinations
from proveout.dsl.schema.scalar_types import Selector, custom

NFT, TC = "nft", "tc"
MISSING = ("No such file or directory",)
"""The message of nft for a table that is not there."""
AGENT_PORT = 7443
PORTS: Mapping[str, int] = {"postgres": 5432, "mysql": 3306, "oracle": 1521, "timesten": 6625}
"""The port of an engine where a dsn has none. Sources: the manuals of the engines."""
NAME_MAX = 253
HANDLE = "5050:"
"""The handle of our queueing discipline, by which it is known from those of others."""
DELAY_MAX_S = 1.0
"""A longer delay would end the agent's own lease."""
_LOOPBACK_NAMES = re.compile(r"localhost|127\.0\.0\.\d+|::1")
_PORT = re.compile(r"\bport\s*=\s*'?(\d{1,5})")
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?|[0-9A-Fa-f:.]+")


def _host_name(name: str) -> str:
    if not _NAME.fullmatch(name) or len(name) > NAME_MAX:
        raise custom(f"`{name[:80]}` is not the name or the address of a host")
    return name


Port: TypeAlias = Annotated[int, Field(ge=1, le=65535)]


class End(BaseModel):
    """One group of hosts: names in the plan, names or addresses on networks, the ports of their agents, and the ports
    of systems on the loopback of their machine."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)

    hosts: list[str] = Field(max_length=1000, description="Names of hosts.")
    addresses: list[str] = Field(max_length=2000, description="Names or addresses of these hosts on their networks.")
    agents: list[Port] = Field(max_length=1000, description="Ports of their agents.")
    loopback: list[Port] = Field(max_length=1000, description="Ports of systems on the loopback of the machine.")

    @field_validator("addresses")
    @classmethod
    def _plain(cls, names: list[str]) -> list[str]:
        return [_host_name(name) for name in names]


class BetweenHosts(Operation):
    """Packets between two groups of hosts."""

    between: Annotated[list[Selector], Field(min_length=2, max_length=2)] = Field(
        description="The two groups of hosts, each `role:…`, a name or a list of them: `[role:client, role:server]`."
    )
    direction: Literal["both", "to", "from"] = Field(
        "both",
        description="The packets: those from the first group `to` the second, those that it gets `from` it, or both.",
    )
    ends: list[End] | None = Field(
        None, max_length=2, description="The addresses of the two groups; filled in by the compiler."
    )

    privileges = "root: a table of its own in nftables"
    of_fault: ClassVar[bool] = True
    kind: ClassVar[str]

    @property
    def selectors(self) -> Sequence[Sequence[str]]:
        """Both groups: each of their hosts drops packets."""
        return self.between

    def placed(self, groups: Sequence[Sequence[Host]], systems: Mapping[str, System]) -> Self | Misfit:
        """With the addresses of both groups."""
        if self.ends is not None:
            return Misfit(message="`ends` is filled in by the compiler", way_out="leave it out")
        one, other = groups
        if shared := sorted({host.name for host in one} & {host.name for host in other}):
            return Misfit(message=f"`{shared[0]}` is in both groups", way_out="two groups without a common host")
        ends = [_end(group, systems.values()) for group in groups]
        local = [host.name for host in (*one, *other) if host.is_local]
        if len(local) == len(one) + len(other) and not any(end.loopback for end in ends):
            return Misfit(
                message=f"nothing can be cut between {_named(one)} and {_named(other)}: both are this machine, and no "
                "system of theirs has a port on its loopback (a provisioned one has a unix socket)",
                way_out="a system with a dsn to localhost and a port, or hosts in network namespaces (netns-lab.yaml)",
            )
        return self.model_copy(update={"ends": ends})

    # ---- the table ------------------------------------------------------------------------------------------------

    @property
    def table(self) -> str:
        """The name of its table; another fault has another one."""
        digest = hashlib.sha256(repr((self.between, self.direction, self.dropped)).encode()).hexdigest()
        return f"proveout_{self.kind}_{digest[:12]}"

    @property
    @abstractmethod
    def dropped(self) -> str:
        """The end of a rule that drops packets."""

    @property
    @abstractmethod
    def part(self) -> str:
        """The part of the packets, for people."""

    def targets(self) -> Mapping[str, str]:
        """The packets between the two groups."""
        one, other = (" ".join(words) for words in self.between)
        return {f"packets between {one} and {other}": f"{self.kind} {self.part} {self.direction}"}

    def wanted(self) -> tuple[str, ...]:
        """The packets that are dropped."""
        one, other = (", ".join(words) for words in self.between)
        ways = {"both": f"between {one} and {other}", "to": f"from {one} to {other}", "from": f"from {other} to {one}"}
        return (f"{self.part} {ways[self.direction]} dropped (nftables), but not those of agents",)

    def queries(self, known: Facts) -> tuple[Query, ...]:
        """The table, the agent's place, and the addresses of both groups."""
        names = (name for end in self.ends or () for name in end.addresses)
        return (self._listed, PlaceQuery(), *map(AddressQuery, names))

    @property
    def _listed(self) -> OutputQuery:
        return OutputQuery((NFT, "list", "table", "inet", self.table), fault=self.kind)

    def changes(self, facts: Facts) -> Step:
        """The table, unless it is there."""
        if facts.answer(self._listed).code == 0:
            return Step()
        rules = tuple(self._rules(facts))
        if not rules:
            return Step(refusals=(f"{facts.place.host} has no packets of this {self.kind}: no address of the others",))
        made = "; ".join((f"add table inet {self.table}", *self._chains(), *rules))
        undo = (NFT, f"delete table inet {self.table}")
        return Step(changes=(Command(argv=(NFT, made), undo=undo, already=MISSING, fault=self.kind),))

    def _chains(self) -> Iterator[str]:
        for hook in ("input", "output"):
            yield f"add chain inet {self.table} {hook} {{ type filter hook {hook} priority -300; }}"

    def _rules(self, facts: Facts) -> Iterator[str]:
        """The rules of this host: the ports of agents first, then what is dropped."""
        found = [*self._remote(facts), *self._local(facts)]
        agents = {port for end in self.ends or () for port in end.agents} | ({facts.place.port} - {0})
        if found and agents:
            ports = _set(sorted(agents))
            for hook in ("input", "output"):
                for way in ("dport", "sport"):
                    yield f"add rule inet {self.table} {hook} tcp {way} {ports} accept"
        yield from found

    def _remote(self, facts: Facts) -> Iterator[str]:
        """Packets of the other group on networks: of the first group's host those `to` the second go out."""
        first, second = self.ends or ((), ())
        for own, other, out, back in ((first, second, "to", "from"), (second, first, "from", "to")):
            if not isinstance(own, End) or not isinstance(other, End) or facts.place.host not in own.hosts:
                continue
            addresses = {one for name in other.addresses for one in facts.addresses(name)}
            peers = sorted(one for one in addresses - {*facts.place.addresses} if not _is_loopback(one))
            for hook, side, way in (("output", "daddr", out), ("input", "saddr", back)):
                if self.direction in ("both", way):
                    for family, some in _families(peers):
                        yield f"add rule inet {self.table} {hook} {family} {side} {_set(some)} {self.dropped}"

    def _local(self, facts: Facts) -> Iterator[str]:
        """Packets from and to the ports of systems on the loopback, once for each, as they arrive."""
        first, second = self.ends or ((), ())
        for own, request, answer in ((second, "to", "from"), (first, "from", "to")):
            if isinstance(own, End) and own.loopback:
                for side, way in (("dport", request), ("sport", answer)):
                    if self.direction in ("both", way):
                        ports = _set(own.loopback)
                        yield f'add rule inet {self.table} input iif "lo" tcp {side} {ports} {self.dropped}'


class NetworkPartition(BetweenHosts):
    """Drop all packets between two groups of hosts: `{between: [role:client, role:server]}`. Connections hang, as when
    a network fails. Hosts on one machine are cut at the ports of their systems."""

    kind: ClassVar[str] = "partition"

    @property
    def dropped(self) -> str:
        """All."""
        return "drop"

    @property
    def part(self) -> str:
        """All."""
        return "all packets"


class Loss(BetweenHosts):
    """Drop a random share of the packets between two groups of hosts: `{between: [role:client, role:server], share:
    2%}`."""

    share: str = Field(description="The part of the packets that is dropped, as `2%` or `0.5%`.")

    kind: ClassVar[str] = "loss"

    @field_validator("share")
    @classmethod
    def _percent(cls, value: str) -> str:
        if not re.fullmatch(r"\d{1,2}(\.\d{1,2})?%", value) or not float(value[:-1]):
            raise custom(f"`{value}` is not a share of packets: above 0% and below 100%, as 2% or 0.5%")
        return value

    @property
    def dropped(self) -> str:
        """Of 10,000 packets so many, each by a draw of its own."""
        return f"numgen random mod 10000 < {round(float(self.share[:-1]) * 100)} drop"

    @property
    def part(self) -> str:
        """The share."""
        return f"{self.share} of the packets"


class Delay(Operation):
    """Delay all packets that leave by network interfaces: `{interfaces: [eth1], time: 20ms}`, with `on`."""

    interfaces: Interfaces = Field(description="Their names; the packets of agents are delayed too.")
    time: str = Field(description="The delay of each packet, at most 1s.")
    jitter: str = Field("0ms", description="The random part of the delay: up to that much more or less.")

    privileges = "root: a queueing discipline of the interface (tc netem)"
    of_fault: ClassVar[bool] = True

    @field_validator("time", "jitter")
    @classmethod
    def _bounded(cls, value: str) -> str:
        try:
            seconds = units.duration_s(value)
        except ValueError as error:
            raise custom(str(error)) from None
        if not 0.0 <= seconds <= DELAY_MAX_S:
            raise custom(f"{value} is out of bounds: a delay is at most 1s, or the agent loses its coordinator")
        return value

    def targets(self) -> Mapping[str, str]:
        """The queueing discipline of each interface."""
        return {f"queueing discipline of {name}": f"delay {self.time} {self.jitter}" for name in self.interfaces}

    def wanted(self) -> tuple[str, ...]:
        """The delay."""
        jitter = f" ± {self.jitter}" if units.duration_s(self.jitter) else ""
        return (f"packets leave {', '.join(self.interfaces)} {self.time}{jitter} later (tc netem)",)

    def queries(self, known: Facts) -> tuple[Query, ...]:
        """The kernel's netem, and the disciplines of the interfaces."""
        return (QdiscQuery("netem"), *map(_shown, self.interfaces))

    def changes(self, facts: Facts) -> Step:
        """A discipline for each interface that has the kernel's own."""
        changes: list[Command] = []
        refusals: list[str] = []
        for name in self.interfaces:
            now = facts.answer(_shown(name))
            root = next((line.split() for line in now.text.splitlines() if " root " in f"{line} "), [])
            handle = root[2] if len(root) > 2 else "0:"
            if now.code != 0:
                refusals.append(f"this host has no network interface {name}")
            elif handle not in ("0:", HANDLE):
                refusals.append(f"{name} has a queueing discipline of its own already: {' '.join(root[:3])}")
            elif handle == "0:":
                changes.append(self._command(name))
        if changes and (reason := facts.qdisc("netem")) != "yes":
            refusals.append(f"the kernel of this host cannot delay packets, as it has no netem: {reason}")
        return Step(changes=() if refusals else tuple(changes), refusals=tuple(refusals))

    def _command(self, name: str) -> Command:
        times = [f"{round(units.duration_s(value) * 1e6)}us" for value in (self.time, self.jitter)]
        return Command(
            argv=(TC, "qdisc", "add", "dev", name, "root", "handle", HANDLE, "netem", "delay", *times),
            undo=(TC, "qdisc", "del", "dev", name, "root", "handle", HANDLE),
            already=("Invalid handle", "No such file or directory", "handle of zero", "Cannot find device"),
            fault="delay",
        )


def _shown(name: Interface) -> OutputQuery:
    return OutputQuery((TC, "qdisc", "show", "dev", name), fault="delay")


# ---- from the plan ---------------------------------------------------------------------------------------------------


def _end(hosts: Sequence[Host], systems: Iterable[System]) -> End:
    names = {host.name for host in hosts}
    remote = [host.address for host in hosts if not host.is_local]
    addresses = {destinations.place(address).host for address in remote}
    agents = {destinations.place(address).port or AGENT_PORT for address in remote}
    loopback: set[int] = set()
    for system in (one for one in systems if one.host in names):
        for dsn in dict.fromkeys(dsn for dsn in (system.dsn, *system.instances) if dsn):
            reached = _places(system.engine, dsn)
            addresses |= {place.host for place in reached if place.host != destinations.HERE}
            if any(place.host == destinations.HERE for place in reached) and _LOOPBACK_NAMES.search(dsn):
                loopback.add(_port(system.engine, dsn, reached))
    return End(hosts=sorted(names), addresses=sorted(addresses), agents=sorted(agents), loopback=sorted(loopback))


def _places(engine: str, dsn: str) -> Sequence[destinations.Place]:
    try:
        return destinations.of_dsn(engine, dsn)
    except destinations.Unclear:  # an alias of the host's own configuration, for example
        return ()


def _port(engine: str, dsn: str, reached: Sequence[destinations.Place]) -> int:
    written = [place.port for place in reached if place.host == destinations.HERE and place.port]
    found = _PORT.search(dsn)
    return written[0] if written else int(found[1]) if found else PORTS.get(engine, 1)


def _named(hosts: Sequence[Host]) -> str:
    return ", ".join(host.name for host in hosts)


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback


def _families(addresses: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    for family, version in (("ip", 4), ("ip6", 6)):
        if some := [one for one in addresses if ipaddress.ip_address(one).version == version]:
            yield family, some


def _set(items: Iterable[Any]) -> str:
    return f"{{ {', '.join(map(str, items))} }}"
