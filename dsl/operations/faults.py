"""Operations that only faults are made of: CPU pressure, full disks, network faults, and faults of a server."""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias, cast

from pydantic import AfterValidator, Field, field_validator, model_validator

from proveout.core import units
from proveout.dsl import engines
from proveout.dsl.operations.change import BusyCpus, Command, ServerAction, ServerVerb, TakeSpace
from proveout.dsl.operations.facts import (
    AddressQuery,
    BusyQuery,
    Facts,
    OutputQuery,
    PlaceQuery,
    QdiscQuery,
    ServerQuery,
    ServerState,
    SpaceQuery,
)
from proveout.dsl.operations.network import Interfaces
from proveout.dsl.operations.operation import AbsolutePath, Found, Misfit, Operation, matching
from proveout.dsl.plan.model_values import Strict
from proveout.dsl.plan.scalars import Name, Selector, custom
from proveout.dsl.plan.topology import Host, System
from proveout.dsl.rules import secrets as destinations

# They run at the same priority as other programs, each bound to a CPU, and end with the agent.

CPUS_MAX = 4096


Percent: TypeAlias = Annotated[
    str,
    matching(
        r"(?!0*(\.0*)?%)(0?[0-9]{1,2}(\.[0-9]{1,2})?|100(\.0{1,2})?)%",
        "`{value}` is not a share of the CPU time: above 0% and at most 100%, as 90%",
    ),
]


class CpuPressure(Operation):
    """Keep CPUs of a host busy: `{share: 100%, cpus: 4}`, with `on`. Load and servers there compete for them."""

    share: Percent = Field(
        "100%", description="The part of its time that each of the CPUs is kept busy, where nothing else wants it."
    )
    cpus: Annotated[int, Field(ge=1, le=CPUS_MAX)] | None = Field(
        None, description="The number of CPUs, of those that the agent may use; all of them when it is left out."
    )

    privileges = "processes of the agent's user"
    of_fault = True

    def targets(self) -> Mapping[str, str]:
        return {"CPUs kept busy": f"{self.cpus or 'all'} at {self.share}"}

    def wanted(self) -> tuple[str, ...]:
        many = "all CPUs" if self.cpus is None else f"{self.cpus} CPU{'s' if self.cpus > 1 else ''}"
        return (f"{many} of the agent busy for {self.share} of the time, by processes that end with it",)

    def steps(self, facts: Facts) -> Iterator[Found]:
        now, share = facts.ask(BusyQuery()), float(self.share[:-1]) / 100.0
        cpus = now.usable[: self.cpus or len(now.usable)]
        if self.cpus is not None and self.cpus > len(now.usable):
            yield f"the agent of this host may use {len(now.usable)} CPUs, fewer than {self.cpus}"
        elif (now.busy, now.share) != (cpus, share):
            yield "another fault keeps CPUs of this host busy" if now.busy else BusyCpus(cpus=cpus, share=share)


# The file is allocated, not written, so that it is there at once and costs no I/O; healing removes it. The policy of
# the host bounds how little may be left.

LEAST_BYTES = 64 << 10
"""Less than this is not worth a file."""


def _size(value: str) -> str:
    units.size_bytes(value)
    return value


Size = Annotated[str, AfterValidator(_size)]


class FillDisk(Operation):
    """Fill a file system with one file: `{system: db, leave: 1MiB}`, or `{folder: /data/app, up_to: 10GiB}` with `on`.
    Healing removes the file."""

    system: Name | None = Field(None, description="A provisioned system: the file system of its data directory.")
    folder: AbsolutePath | None = Field(None, description="A folder below one of the policy's `paths`.")
    leave: Size | None = Field(None, description="The room that stays free for users other than root.")
    up_to: Size | None = Field(
        None, description="The size of the file; refused where that leaves less than `disk_left` of the policy."
    )

    privileges = "a file in the folder"
    of_fault = True
    destructive = True

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        if (self.system is None) == (self.folder is None):
            raise custom("either `system` or `folder`")
        if (self.leave is None) == (self.up_to is None):
            raise custom("either `leave`, what stays free, or `up_to`, the size of the file")
        return self

    def placed(self, groups: Sequence[Sequence[Host]], systems: Mapping[str, System]) -> Self | Misfit:
        """Only systems whose data directory proveout has made."""
        system = systems.get(self.system or "")
        if system is None or (system.provision and engines.of(system.engine).embedded == "server"):
            return self
        return Misfit(
            message=f"proveout does not know the disk of system `{system.name}`: it has not made its data directory",
            way_out="`folder`, with `on`, and the folder in `paths` of the host's policy",
        )

    def targets(self) -> Mapping[str, str]:
        return {f"free space of {self.system or self.folder}": self._room}

    @property
    def _room(self) -> str:
        return f"{self.leave} left" if self.leave is not None else f"less by {self.up_to}"

    def wanted(self) -> tuple[str, ...]:
        where = f"the disk of {self.system}'s data" if self.system else self.folder
        return (f"{where}: {self._room}, by one file, which healing removes",)

    def steps(self, facts: Facts) -> Iterator[Found]:
        folder = self.folder
        if self.system is not None:
            server = facts.ask(ServerQuery(self.system))
            if server is None:
                yield f"the agent has not started a server of {self.system}"
                return
            folder = server.data.rpartition("/")[0]
        digest = hashlib.sha256(repr((self.system, self.folder)).encode()).hexdigest()
        path = f"{folder}/.proveout-fill-{digest[:12]}"
        space = facts.ask(SpaceQuery(path))
        if space is None:
            yield f"{folder} is not a folder of this host"
        elif not space.taken_bytes:
            free = space.free_bytes
            wanted = units.size_bytes(self.up_to) if self.up_to else free - units.size_bytes(self.leave or "0")
            if wanted < LEAST_BYTES:
                yield f"{folder} has only {free} bytes free already"
            elif wanted > free:
                yield f"{folder} has {free / (1 << 20):,.0f} MiB free, less than `up_to: {self.up_to}`"
            else:
                yield TakeSpace(path=path, size_bytes=wanted, left_bytes=free - wanted, system=self.system or "")


# `partition` and `loss` drop packets between two groups of hosts with nftables, in a table of their own, which healing
# deletes. Each host of both groups drops what comes from the other group and what it sends there, so that a host's
# several networks are all cut: it has the addresses of the other hosts in the plan and those in the dsns of their
# systems. Packets from and to the ports of agents always pass: the coordinator must reach them to heal. Of a share each
# packet has one draw: as it arrives; as it leaves only from an address that is not in the plan, as of another network.
#
# Hosts on one machine (`local`) share its loopback, which has other uses, so only packets from and to the ports of
# systems are dropped there. Sources: nft(8); tc-netem(8).

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
PACKETS_PER_S = 10_000_000
"""A link of 100 Gbit/s sends 8.1 million packets of full size a second. netem drops what waits above its limit, which
is 1,000 packets by itself: a link of 10 Gbit/s sends those in 1.2 ms."""
_LOOPBACK_NAMES = re.compile(r"localhost|127\.0\.0\.\d+|::1")
_PORT = re.compile(r"\bport\s*=\s*'?(\d{1,5})")
HostName: TypeAlias = Annotated[
    str,
    matching(
        rf"(?=.{{1,{NAME_MAX}}}\Z)([A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?|[0-9A-Fa-f:.]+)",
        "`{value:.80}` is not the name or the address of a host",
    ),
]
Port: TypeAlias = Annotated[int, Field(ge=1, le=65535)]


class End(Strict):
    """One group of hosts: names in the plan, names or addresses on networks, the ports of their agents, and the ports
    of systems on the loopback of their machine."""

    hosts: list[str] = Field(max_length=1000, description="Names of hosts.")
    addresses: list[HostName] = Field(
        max_length=2000, description="Names or addresses of these hosts on their networks."
    )
    agents: list[Port] = Field(max_length=1000, description="Ports of their agents.")
    loopback: list[Port] = Field(max_length=1000, description="Ports of systems on the loopback of the machine.")


class NetworkPartition(Operation):
    """Drop all packets between two groups of hosts: `{between: [role:client, role:server]}`. Connections hang, as when
    a network fails. Hosts on one machine are cut at the ports of their systems."""

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
    of_fault = True
    kind: ClassVar[str] = "partition"
    drops_share: ClassVar[bool] = False

    @property
    def selectors(self) -> Sequence[Sequence[str]]:
        """Both groups: each of their hosts drops packets, but where the other group is known by no address, as hosts of
        this machine: these do it alone."""
        if self.ends is None or any(end.loopback for end in self.ends):
            return self.between
        return [group for group, other in zip(self.between, self.ends[::-1], strict=True) if other.addresses]

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
    def dropped(self) -> str:
        """The end of a rule that drops packets."""
        return "drop"

    @property
    def part(self) -> str:
        """The part of the packets, for people."""
        return "all packets"

    def targets(self) -> Mapping[str, str]:
        one, other = (" ".join(words) for words in self.between)
        return {f"packets between {one} and {other}": f"{self.kind} {self.part} {self.direction}"}

    def wanted(self) -> tuple[str, ...]:
        one, other = (", ".join(words) for words in self.between)
        ways = {"both": f"between {one} and {other}", "to": f"from {one} to {other}", "from": f"from {other} to {one}"}
        return (f"{self.part} {ways[self.direction]} dropped (nftables), but not those of agents",)

    def steps(self, facts: Facts) -> Iterator[Found]:
        shown = facts.ask(OutputQuery((NFT, "list", "table", "inet", self.table), fault=self.kind))
        if shown.code == 0:
            return
        if not any(text in shown.text for text in MISSING):  # as without the right to, which undoing would lack too
            yield f"nft cannot be used on this host: {(shown.text.strip().splitlines() or ['no message'])[-1]}"
            return
        rules = tuple(self._rules(facts))
        if not rules:
            here = facts.ask(PlaceQuery()).host
            yield f"{here} has no packets of this {self.kind}: no address of the others"
            return
        chains = (
            f"add chain inet {self.table} {hook} {{ type filter hook {hook} priority -300; }}"
            for hook in ("prerouting", "output")
        )
        made = "; ".join((f"add table inet {self.table}", *chains, *rules))
        undo = (NFT, f"delete table inet {self.table}")
        yield Command(argv=(NFT, made), undo=undo, already=MISSING, fault=self.kind)

    def _rules(self, facts: Facts) -> Iterator[str]:
        """The rules of this host: the ports of agents first, then what is dropped."""
        found = [*self._remote(facts), *self._local()]
        agents = {port for end in self.ends or () for port in end.agents} | ({facts.ask(PlaceQuery()).port} - {0})
        if found and agents:
            ports = _set(sorted(agents))
            for hook in ("prerouting", "output"):
                for way in ("dport", "sport"):
                    yield f"add rule inet {self.table} {hook} tcp {way} {ports} accept"
        yield from found

    def _groups(self) -> Iterator[tuple[End, End, str, str]]:
        """Each group with the other one, and the directions of the packets that it sends and gets."""
        if self.ends is not None:
            first, second = self.ends
            yield first, second, "to", "from"
            yield second, first, "from", "to"

    def _remote(self, facts: Facts) -> Iterator[str]:
        """Packets of the other group on networks: of the first group's host those `to` the second go out."""
        place = facts.ask(PlaceQuery())
        for own, other, out, back in self._groups():
            if place.host not in own.hosts:
                continue
            addresses = {one for name in other.addresses for one in facts.ask(AddressQuery(name))}
            peers = sorted(one for one in addresses - {*place.addresses} if not ipaddress.ip_address(one).is_loopback)
            named = own.addresses if self.drops_share else ()
            known = {one for name in named for one in facts.ask(AddressQuery(name))} & {*place.addresses}
            mine = dict(_families(sorted(known)))
            for hook, side, way in (("output", "daddr", out), ("prerouting", "saddr", back)):
                if self.direction in ("both", way):
                    for family, some in _families(peers):
                        rule = f"add rule inet {self.table} {hook} {family} {side} {_set(some)}"
                        if hook == "output" and family in mine:
                            yield f"{rule} {family} saddr {_set(mine[family])} accept"
                        yield f"{rule} {self.dropped}"

    def _local(self) -> Iterator[str]:
        """Packets from and to the ports of systems on the loopback, once for each, as they arrive."""
        for _, own, request, answer in self._groups():
            if own.loopback:
                for side, way in (("dport", request), ("sport", answer)):
                    if self.direction in ("both", way):
                        ports = _set(own.loopback)
                        yield f'add rule inet {self.table} prerouting iif "lo" tcp {side} {ports} {self.dropped}'


class Loss(NetworkPartition):
    """Drop a random share of the packets between two groups of hosts: `{between: [role:client, role:server], share:
    2%}`."""

    share: Annotated[
        str,
        matching(
            r"(?!0*(\.0*)?%)[0-9]{1,2}(\.[0-9]{1,2})?%",
            "`{value}` is not a share of packets: above 0% and below 100%, as 2% or 0.5%",
        ),
    ] = Field(description="The part of the packets that is dropped, as `2%` or `0.5%`.")

    kind = "loss"
    drops_share = True

    @property
    def dropped(self) -> str:
        """Of 10,000 packets so many, each by a draw of its own."""
        return f"numgen random mod 10000 < {round(float(self.share[:-1]) * 100)} drop"

    @property
    def part(self) -> str:
        return f"{self.share} of the packets"


class Delay(Operation):
    """Delay all packets that leave by network interfaces: `{interfaces: [eth1], time: 20ms}`, with `on`."""

    interfaces: Interfaces = Field(description="Their names; the packets of agents are delayed too.")
    time: str = Field(description="The delay of each packet, at most 1s.")
    jitter: str = Field("0ms", description="The random part of the delay: up to that much more or less.")

    privileges = "root: a queueing discipline of the interface (tc netem)"
    of_fault = True

    @field_validator("time", "jitter")
    @classmethod
    def _bounded(cls, value: str) -> str:
        if not 0.0 <= units.duration_s(value) <= DELAY_MAX_S:
            raise custom(f"{value} is out of bounds: a delay is at most 1s, or the agent loses its coordinator")
        return value

    def targets(self) -> Mapping[str, str]:
        return {f"queueing discipline of {name}": f"delay {self.time} {self.jitter}" for name in self.interfaces}

    def wanted(self) -> tuple[str, ...]:
        jitter = f" ± {self.jitter}" if units.duration_s(self.jitter) else ""
        return (f"packets leave {', '.join(self.interfaces)} {self.time}{jitter} later (tc netem)",)

    def steps(self, facts: Facts) -> Iterable[Found]:
        """A discipline for each interface that has the kernel's own."""
        found: list[Found] = []
        for name in self.interfaces:
            now = facts.ask(OutputQuery((TC, "qdisc", "show", "dev", name), fault="delay"))
            root = next((line.split() for line in now.text.splitlines() if " root " in f"{line} "), [])
            handle = root[2] if len(root) > 2 else "0:"
            if now.code != 0:
                found.append(f"this host has no network interface {name}")
            elif handle not in ("0:", HANDLE):
                found.append(f"{name} has a queueing discipline of its own already: {' '.join(root[:3])}")
            elif handle == "0:":
                found.append(self._command(name))
        makes = any(isinstance(one, Command) for one in found)
        if makes and (reason := facts.ask(QdiscQuery("netem"))) != "yes":
            found.append(f"this host cannot delay packets by netem: {reason}")
        return found

    def _command(self, name: str) -> Command:
        times_s = [units.duration_s(value) for value in (self.time, self.jitter)]
        limit = str(1_000 + round(sum(times_s) * PACKETS_PER_S))
        netem = ("netem", "limit", limit, "delay", *(f"{round(time_s * 1e6)}us" for time_s in times_s))
        return Command(
            argv=(TC, "qdisc", "add", "dev", name, "root", "handle", HANDLE, *netem),
            undo=(TC, "qdisc", "del", "dev", name, "root", "handle", HANDLE),
            already=("Invalid handle", "No such file or directory", "handle of zero", "Cannot find device"),
            fault="delay",
        )


# ---- from the plan ---------------------------------------------------------------------------------------------------


def _end(hosts: Sequence[Host], systems: Iterable[System]) -> End:
    names = {host.name for host in hosts}
    places = [destinations.place(host.address) for host in hosts if not host.is_local]
    addresses, agents = {place.host for place in places}, {place.port or AGENT_PORT for place in places}
    loopback: set[int] = set()
    for system in (one for one in systems if one.host in names):
        for dsn in filter(None, (system.dsn, *system.instances)):
            try:
                reached = destinations.of_dsn(system.engine, dsn)
            except destinations.Unclear:  # an alias of the host's own configuration, for example
                continue
            addresses |= {place.host for place in reached if place.host != destinations.HERE}
            ports = [place.port for place in reached if place.host == destinations.HERE]
            if ports and _LOOPBACK_NAMES.search(dsn):
                written = _PORT.search(dsn)
                usual = int(written[1]) if written else PORTS.get(system.engine, 1)
                loopback.add(next(filter(None, ports), usual))
    return End(hosts=sorted(names), addresses=sorted(addresses), agents=sorted(agents), loopback=sorted(loopback))


def _named(hosts: Sequence[Host]) -> str:
    return ", ".join(host.name for host in hosts)


def _families(addresses: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    for family, version in (("ip", 4), ("ip6", 6)):
        if some := [one for one in addresses if ipaddress.ip_address(one).version == version]:
            yield family, some


def _set(items: Iterable[Any]) -> str:
    return f"{{ {', '.join(map(str, items))} }}"


# The server keeps its data and its address, so that clients find it again once it is healed. Proveout does not start a
# system with a dsn: its faults are programs of its host that a policy lists (`command`), or statements (`sql`).

START_S = 180.0
"""The time that a server may need to recover when it is started again, for the deadline of a task."""


class ServerFault(Operation):
    """A fault of the server of a provisioned system."""

    system: Name = Field(description="The system, which the run has provisioned.")

    privileges = "signals to a server that the agent has started"
    of_fault = True
    verb: ClassVar[str]
    """The action, for people."""
    state: ClassVar[ServerState] = "down"
    """The state of the server while the fault is in place."""

    @property
    def longest_s(self) -> float:
        """The start of the server, at its healing."""
        return START_S

    @property
    def action(self) -> ServerVerb:
        """The action on the server."""
        return cast("ServerVerb", self.verb)

    def placed(self, groups: Sequence[Sequence[Host]], systems: Mapping[str, System]) -> Self | Misfit:
        """Only servers that proveout starts; files have none."""
        system = systems.get(self.system)
        if system is None or (system.provision and engines.of(system.engine).embedded == "server"):
            return self
        if system.provision:
            return Misfit(
                message=f"system `{self.system}` ({system.engine}) is a file, without a server to {self.verb}",
                way_out="a system whose engine has a server, as postgres or mysql",
            )
        return Misfit(
            message=f"system `{self.system}` has a dsn: proveout has not started its server, and cannot {self.verb} it",
            way_out="`command` with the programs of its host (systemctl, srvctl …), which the policy lists; or `sql`",
        )

    def targets(self) -> Mapping[str, str]:
        return {f"the server of {self.system}": self.verb}

    def steps(self, facts: Facts) -> Iterable[Found]:
        server = facts.ask(ServerQuery(self.system))
        if server is None:
            yield f"the agent has not started a server of {self.system}"
        elif server.state in ("runs", "promoted") and server.state != self.state:
            yield ServerAction(system=self.system, verb=self.action)
        elif server.state != self.state:
            yield f"the server of {self.system} is {server.state} already"


class Kill(ServerFault):
    """Kill a server at once, all its processes, as if its host had lost power (SIGKILL): `{system: db}`. It is healed
    by starting it on its data, where it recovers."""

    verb = "kill"
    destructive = True

    def wanted(self) -> tuple[str, ...]:
        return (f"all processes of {self.system} are killed (SIGKILL); healed by its start, with recovery",)


class Stop(ServerFault):
    """Stop all processes of a server for a time, as if its host hung (SIGSTOP): `{system: db}`. Connections stay open
    without an answer; it is healed by continuing them (SIGCONT)."""

    verb = "stop"
    state = "stopped"

    def wanted(self) -> tuple[str, ...]:
        return (f"all processes of {self.system} are stopped (SIGSTOP); healed by SIGCONT",)


class ServerRestart(ServerFault):
    """Restart a server: `{system: db}`. It ends by itself: the server is shut down and started again at once."""

    mode: Literal["fast", "immediate"] = Field(
        "fast",
        description="The kind of its shutdown: `fast` disconnects the clients and writes a checkpoint; `immediate` "
        "ends it at once, and it recovers at its start.",
    )

    verb = "restart"
    ends_by_itself = True

    def placed(self, groups: Sequence[Sequence[Host]], systems: Mapping[str, System]) -> Self | Misfit:
        """`immediate` only where the server has such a shutdown."""
        system = systems.get(self.system)
        if system is not None and system.engine != "postgres" and self.mode == "immediate":
            message = f"a server of {system.engine} has no immediate shutdown"
            return Misfit(message=message, way_out="`kill` with `for: 1s`, or `mode: fast`")
        return super().placed(groups, systems)

    @property
    def action(self) -> ServerVerb:
        return "shut_down" if self.mode == "fast" else "abort"

    def wanted(self) -> tuple[str, ...]:
        return (f"{self.system} is shut down ({self.mode}) and started again",)


# It is not undone by the fault: the old primary takes the data of the promoted standby, and roles are as declared
# again, between the end of the iteration and the next load.

PROMOTE_S = 120.0
"""The time in which a standby applies what it has received and accepts writes."""


class Promote(ServerFault):
    """Promote a standby of a provisioned system: `{system: standby}`. It is in place when the standby accepts writes;
    it stays so until the load has ended, and then the roles are as declared again, with the promoted standby's data."""

    verb = "promote"
    state = "promoted"
    destructive = True
    outlasts = True

    @property
    def longest_s(self) -> float:
        return PROMOTE_S

    def placed(self, groups: Sequence[Sequence[Host]], systems: Mapping[str, System]) -> Self | Misfit:
        system = systems.get(self.system)
        if system is None or system.standby_of is not None:
            return self
        if system.provision is None:
            return super().placed(groups, systems)
        standbys = [one.name for one in systems.values() if one.standby_of == self.system]
        hint = f"promote: {{system: {standbys[0]}}}" if standbys else "a system with `standby_of`"
        return Misfit(message=f"`{self.system}` is not a standby", way_out=hint)

    def steps(self, facts: Facts) -> Iterable[Found]:
        server = facts.ask(ServerQuery(self.system))
        if server is not None and server.state == "runs" and not server.is_standby:
            return (f"{self.system} is not a standby",)
        return super().steps(facts)

    def wanted(self) -> tuple[str, ...]:
        line = f"{self.system} is promoted to primary; after the load its primary takes its data, and it follows again"
        return (line,)
