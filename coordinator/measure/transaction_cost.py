"""The cost of a transaction in the measure window, as `dsl.metrics.COST`, and the source of each number. Pure.

Data flow: the recordings of os and waits captures, the window and the loads -> what the servers spent per second, over
the transactions per second of all loads together -> `Cost`. A number that was not captured is left out, and its source
says why; it never becomes 0.

What "the servers" are is decided for each host of `loads.servers`:

| scope | when | CPU | storage | context switches |
|---|---|---|---|---|
| `host` | no client on its machine | all of the host | the host's disks | all of the host |
| `processes` | else, where proveout started all its systems | the process tree of these servers, for all three | | |
| `rest` | else, where proveout started none | the host without proveout's own processes | - | - |

On one machine the whole host would count the client as a server. `rest` needs the os capture of every host on that
machine. The network is that of the server's host, but of a client in the same network namespace it is `lo`, which
carries other things too: then there is no number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

from proveout.coordinator.measure.captures import Recording
from proveout.coordinator.measure.load_merge import Observations, length_s
from proveout.coordinator.measure.outages import machine_of, same_machine
from proveout.core.data_classes import field, record
from proveout.dsl import engines
from proveout.dsl.plan.loads import servers
from proveout.dsl.plan.stages import Ladder, Search
from proveout.dsl.plan.topology import Host, System
from proveout.proto.events import Metrics
from proveout.proto.wire.results import LoadResult

Scope: TypeAlias = Literal["host", "processes", "rest"]
_MILLION, _HOUR_S = 1e6, 3600.0


_WORDS: Mapping[Scope, str] = {
    "host": "{words} of host {host}",
    "processes": "the processes of the servers on {host}",
    "rest": "the CPU of host {host} without proveout's own processes",
}


class _NotCapturedError(Exception):
    """The reason why a number is not there."""


@record
class Cost:
    """`metrics`: the known numbers of `metrics.COST`; `sources`: what each is of, or why it is not there."""

    metrics: Metrics = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)


def transaction_cost(seen: Observations, stage: Ladder | Search, loads: Iterable[LoadResult]) -> Cost:
    """The cost of a transaction of a stage; `loads` are the results of all of its loads on all clients."""
    found = [load for load in loads if length_s(load) > 0.0]
    tps = sum(load.ended_in_window / length_s(load) for load in found)
    if tps <= 0.0:
        return Cost(sources={"server_cpu_us": "not captured: no transaction ended in the measure window"})
    cpu_s = sum(load.client_cpu_s / length_s(load) for load in found)
    metrics: Metrics = {"client_cpu_us": cpu_s / tps * _MILLION}
    sources = {"client_cpu_us": "the load workers of all clients"}
    for name, (read, factor) in _Spent(seen, stage).readers.items():
        try:
            rate, source = read()
        except _NotCapturedError as reason:
            sources[name] = f"not captured: {reason}"
        else:
            metrics[name], sources[name] = rate / tps * factor, source
    return Cost(metrics=metrics, sources=sources)


class _Spent:
    """Resources that the servers of a stage spend per second: each reader returns (rate, source) or raises
    `_NotCapturedError`."""

    def __init__(self, seen: Observations, stage: Ladder | Search) -> None:
        self._seen, self._plan = seen, seen.plan
        self._systems = servers(seen.plan, stage)
        self._clients = [seen.plan.host(name) for name in stage.clients]
        self._hosts = [seen.plan.host(name) for name in dict.fromkeys(system.host for system in self._systems)]
        self.readers: dict[str, tuple[Callable[[], tuple[float, str]], float]] = {
            "server_cpu_us": (self._cpu, _MILLION),
            "reads": (self._reads, 1.0),
            "read_bytes": (lambda: self._storage("read"), 1.0),
            "written_bytes": (lambda: self._storage("written"), 1.0),
            "wal_bytes": (lambda: self._counter("wal.bytes_total", "write-ahead log of"), 1.0),
            "network_bytes": (self._network, 1.0),
            "context_switches": (self._switches, 1.0),
        }
        if any(host.price_per_hour is not None for host in self._hosts):
            self.readers["price_per_million"] = (self._price, _MILLION)

    # ---- scopes --------------------------------------------------------------------------------------------------

    def _scope(self, host: Host) -> Scope:
        self._refuse_in_files()
        if not any(self._same(host, client) for client in self._clients):
            return "host"
        started = {system.provision is not None for system in self._plan.systems if system.host == host.name}
        if len(started) > 1:
            raise _NotCapturedError(f"proveout started some of the systems on {host.name}, a client's machine, not all")
        return "processes" if True in started else "rest"

    def _refuse_in_files(self) -> None:
        """A database in files is opened by the load's own processes."""
        for system in self._systems:
            engine = engines.of(system.engine)
            if engine.in_files:
                raise _NotCapturedError(f"{engine.title} runs in the processes of the load: see client_cpu_us")

    def _same(self, one: Host, other: Host) -> bool:
        return same_machine(one, other, self._seen.boots)

    def _machines(self) -> list[tuple[Host, Scope]]:
        """The hosts of the servers with their scopes; of hosts that share a machine only one where the scope is all of
        it."""
        kept: list[tuple[Host, Scope]] = []
        for host in self._hosts:
            scope = self._scope(host)
            if scope == "processes" or not any(self._same(host, other) for other, of in kept if of == scope):
                kept.append((host, scope))
        return kept

    def _sum(self, words: str, **metrics: Sequence[str]) -> tuple[float, str]:
        """The rate of the metrics of each scope over the servers' machines; `words`: the source of those of a host."""
        total, sources = 0.0, []
        for host, scope in self._machines():
            if scope not in metrics:
                raise _NotCapturedError(f"{host.name} is a client's machine, and proveout did not start its servers")
            total += sum(self._rate(host.name, metric) for metric in metrics[scope])
            sources.append(_WORDS[scope].format(words=words, host=host.name))
        return total, "; ".join(sources)

    def _os_of(self, host: str) -> Recording:
        for _, captured, recording in self._seen.captured("os"):
            if captured == host:
                return recording
        raise _NotCapturedError(f"no os capture of host {host}")

    def _rate(self, host: str, metric: str) -> float:
        rate = self._os_of(host).sum_rate(metric, self._seen.on(host))
        if rate is None:
            raise _NotCapturedError(f"the os capture of host {host} has no {metric.removesuffix('_total')}")
        return rate

    # ---- readers -------------------------------------------------------------------------------------------------

    def _cpu(self) -> tuple[float, str]:
        whole = ("cpu.user_s_total", "cpu.system_s_total")
        rate, source = self._sum("all CPU", host=whole, processes=("ours.servers_cpu_s_total",), rest=whole)
        own = sum(self._own_cpu(host) for host, scope in self._machines() if scope == "rest")
        return max(rate - own, 0.0), source

    def _own_cpu(self, host: Host) -> float:
        """CPU of proveout on a machine, in cores: local agents are one process tree, which each of them reports."""
        here = [other for other in self._plan.hosts if self._same(host, other)]
        trees: dict[str, float] = {}
        for other in here:
            tree = machine_of(other, {}) if other.is_local else other.name
            trees[tree] = max(trees.get(tree, 0.0), self._rate(other.name, "ours.cpu_s_total"))
        return sum(trees.values())

    def _storage(self, what: str) -> tuple[float, str]:
        disk = "disk.read_bytes_total" if what == "read" else "disk.write_bytes_total"
        return self._sum("the disks", host=(disk,), processes=(f"ours.servers_{what}_bytes_total",))

    def _switches(self) -> tuple[float, str]:
        servers = ("ours.servers_context_switches_total",)
        return self._sum("all", host=("cpu.context_switches_total",), processes=servers)

    def _reads(self) -> tuple[float, str]:
        """The reads of the disks; on a client's machine those that the database counts, also from the page cache."""
        if all(scope == "host" for _, scope in self._machines()):
            return self._sum("the disks", host=("disk.reads_total",))
        return self._counter("io.reads_total", "reads that the database counts, also from the page cache:")

    def _counter(self, metric: str, words: str) -> tuple[float, str]:
        self._refuse_in_files()
        databases = [one for one in self._systems if one.in_front_of is None and one.standby_of is None]
        return sum(
            self._counted(one, metric) for one in databases
        ), f"{words} {' and '.join(one.name for one in databases)}"

    def _counted(self, system: System, metric: str) -> float:
        waits = self._seen.captured("waits")
        found = [(one, self._seen.on(host)) for capture, host, one in waits if capture.system == system.name]
        if not found:
            raise _NotCapturedError(f"no waits capture of system {system.name}")
        recording, window = found[0]
        rate = recording.sum_rate(metric, window)
        if rate is None:
            raise _NotCapturedError(f"the waits capture of system {system.name} has no {metric.removesuffix('_total')}")
        return rate

    def _network(self) -> tuple[float, str]:
        self._refuse_in_files()
        seen: set[tuple[str, float | None]] = set()
        total, names = 0.0, []
        for host in self._hosts:
            place = self._place(host)
            inside = [client.name for client in self._clients if self._same(host, client)]
            for client in inside:
                other = self._place(self._plan.host(client))
                if place[1] is None or other[1] is None or place[1] == other[1]:
                    raise _NotCapturedError(f"client {client} and host {host.name} reach each other by lo")
            if place not in seen:
                seen.add(place)
                metrics = ("network.received_bytes_total", "network.sent_bytes_total")
                total += sum(self._rate(host.name, metric) for metric in metrics)
                names.append(host.name)
        return total, f"received and sent by all interfaces of {' and '.join(names)} but lo"

    def _place(self, host: Host) -> tuple[str, float | None]:
        """The machine and the network namespace of a host."""
        inode = self._os_of(host.name).mean("network.namespace", self._seen.on(host.name))
        return self._seen.boots.get(host.name, host.address), inode

    def _price(self) -> tuple[float, str]:
        """The price per second of the servers' hosts."""
        without = [host.name for host in self._hosts if host.price_per_hour is None]
        if without:
            raise _NotCapturedError(f"host {without[0]} has no cost")
        total = sum(host.price_per_hour or 0.0 for host in self._hosts)
        currency, names = self._hosts[0].currency, " and ".join(host.name for host in self._hosts)
        return total / _HOUR_S, f"{currency}, by the price of {names}"
