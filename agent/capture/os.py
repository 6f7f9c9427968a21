"""Capture `os`: counters of the host's kernel from /proc, and the use of the host by proveout itself."""

from __future__ import annotations

import itertools
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from proveout.agent.capture.kinds import observe
from proveout.agent.daemon.tasks import TaskContext
from proveout.agent.engines.adapter import Tick
from proveout.core.child_process import LOAD_WORKER_NAME
from proveout.core.data_classes import dataclass, field
from proveout.dsl import engines
from proveout.proto.wire.results import CaptureResult, Reading
from proveout.proto.wire.tasks import RunCapture

SECTOR_BYTES = 512
FILE_BYTES_MAX = 1 << 20
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
BLOCK = Path("/sys/block")
INTERFACES = Path("/sys/class/net")
NETWORK_NAMESPACE = Path("/proc/self/ns/net")
VIRTUAL_DISKS = ("loop", "ram", "zram", "dm-", "md", "sr", "fd", "nbd")
_NVME_PATH = re.compile(r"(nvme\d+)c\d+(n\d+)")


_DISK: Mapping[str, tuple[int, int, int]] = {
    "reads_total": (3, 1, 1),
    "read_bytes_total": (5, SECTOR_BYTES, 1),
    "writes_total": (7, 1, 1),
    "write_bytes_total": (9, SECTOR_BYTES, 1),
    "busy_s_total": (12, 1, 1000),
}
"""Reading -> column of /proc/diskstats, factor, divisor."""
_NETWORK = {"received_bytes_total": 0, "received_packets_total": 1, "sent_bytes_total": 8, "sent_packets_total": 9}
"""Reading -> column of /proc/net/dev."""


def _named(kind: str, values: Mapping[str, float], label: str = "") -> Iterator[Reading]:
    return (Reading(metric=f"{kind}.{name}", value=value, label=label) for name, value in values.items())


def parse_cpu(text: str) -> Iterator[Reading]:
    """The `cpu` line of /proc/stat, in seconds of all cores; the file may be cut after the per-core lines."""
    lines = text.splitlines()
    user, nice, system, idle, iowait, irq, softirq, steal = (int(word) / TICKS_PER_S for word in lines[0].split()[1:9])
    switches = next((line for line in lines if line.startswith("ctxt ")), "")
    values = {
        "cores": sum(line.startswith("cpu") for line in lines) - 1,
        "user_s_total": user + nice,
        "system_s_total": system + irq + softirq,
        "iowait_s_total": iowait,
        "idle_s_total": idle,
        "steal_s_total": steal,
    }
    if switches:
        values["context_switches_total"] = int(switches.split()[1])
    return _named("cpu", values)


def parse_memory(text: str) -> Iterator[Reading]:
    """MemTotal and MemAvailable of /proc/meminfo, in bytes."""
    kib = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in text.splitlines()[:8])}
    total, available = kib["MemTotal"] * 1024, kib["MemAvailable"] * 1024
    return _named("memory", {"total_bytes": total, "available_bytes": available, "used_bytes": total - available})


def parse_load_average(text: str) -> Iterator[Reading]:
    """The first field of /proc/loadavg: tasks that ran or waited for a CPU or a disk, averaged over the last minute."""
    return _named("load_average", {"1m": float(text.split(maxsplit=1)[0])})


def parse_disks(text: str, whole: frozenset[str]) -> Iterator[Reading]:
    """The lines of /proc/diskstats whose device is in `whole`."""
    for fields in map(str.split, text.splitlines()):
        if fields[2] in whole:
            values = {name: int(fields[at]) * times / over for name, (at, times, over) in _DISK.items()}
            yield from _named("disk", values, fields[2])


def parse_network(text: str, without: frozenset[str]) -> Iterator[Reading]:
    """The lines of /proc/net/dev but those of `without`."""
    for line in text.splitlines()[2:]:
        name, _, rest = line.partition(":")
        fields = rest.split()
        if name.strip() not in without:
            yield from _named("network", {metric: int(fields[at]) for metric, at in _NETWORK.items()}, name.strip())


def parse_pressure(text: str, resource: str) -> Iterator[Reading]:
    """The `some` line of a /proc/pressure file: its total, in µs; none where the kernel has no PSI."""
    first = text.partition("\n")[0]
    return _named("pressure", {f"{resource}_us_total": int(first.rpartition("total=")[2])})


def whole_disks() -> frozenset[str]:
    """Block devices that are disks of their own: no partitions, no mappings of other devices, no memory. Of an NVMe
    disk with several paths the paths (nvme0c1n1), which every kernel counts; some count the disk (nvme0n1) as well."""
    if not BLOCK.is_dir():
        return frozenset()
    own = (one.name for one in BLOCK.iterdir() if not (one.name.startswith(VIRTUAL_DISKS) or any(one.glob("slaves/*"))))
    names = {name.replace("!", "/") for name in own}  # as /proc/diskstats has them: cciss/c0d0
    return frozenset(names - {"".join(path.groups()) for name in names if (path := _NVME_PATH.fullmatch(name))})


def stacked_interfaces() -> frozenset[str]:
    """lo, and interfaces on others (bonds, VLANs, bridges), whose packets are counted there."""
    return frozenset({"lo", *(lower.parent.name for lower in INTERFACES.glob("*/lower_*"))})


class Counters:
    """The open files with their parsers; a file that this kernel has not is left out."""

    def __init__(self) -> None:
        disks, stacked = whole_disks(), stacked_interfaces()
        parsers: list[tuple[str, Callable[[str], Iterable[Reading]]]] = [
            ("/proc/stat", parse_cpu),
            ("/proc/meminfo", parse_memory),
            ("/proc/loadavg", parse_load_average),
            ("/proc/diskstats", lambda text: parse_disks(text, disks)),
            ("/proc/net/dev", lambda text: parse_network(text, stacked)),
            *((f"/proc/pressure/{name}", partial(parse_pressure, resource=name)) for name in ("cpu", "io", "memory")),
        ]
        self._files = [(descriptor, parse) for path, parse in parsers if (descriptor := _open(path)) is not None]
        self._namespace: list[Reading] = []  # its inode: processes with the same one reach each other by `lo`
        with suppress(OSError):
            self._namespace = [Reading(metric="network.namespace", value=float(NETWORK_NAMESPACE.stat().st_ino))]

    def close(self) -> None:
        for descriptor, _ in self._files:
            os.close(descriptor)
        self._files = []

    def read(self) -> list[Reading]:
        """All readings now."""
        found = [reading for descriptor, parse in self._files for reading in parse(_whole(descriptor).decode())]
        return found + self._namespace


def _whole(descriptor: int) -> bytes:
    """An open /proc file from its beginning: the kernel gives a page (4 KiB) of a list of records at a time."""
    found = b""
    while part := os.pread(descriptor, FILE_BYTES_MAX, len(found)):
        found += part
    return found


def _open(path: str) -> int | None:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        os.pread(descriptor, 1, 0)
    except OSError:  # a kernel with PSI compiled in and switched off opens the file, and refuses to read it
        os.close(descriptor)
        return None
    return descriptor


# The tree's root is the agent, or the coordinator when that started the agent as its child: then all local agents,
# their load workers and their embedded servers are one tree, on what is one machine. A process that has ended is not
# forgotten: its CPU time is its parent's `cutime`. So the sum over the living of own and children's time only grows,
# but when a whole branch leaves (a server that ended, for the servers' part): growth is added up from sample to sample,
# and a fall counts as none. Only the tree is walked, not all of /proc. Source: proc(5).
#
# The groups, database servers and load workers, are those below this agent only: on one machine with several local
# agents each reports its own host's server or load, and their sums stay within the tree's.
#
# Of the database servers it also has the I/O that reached the storage (`/proc/PID/io`, which goes over to the parent
# when a process has ended, as CPU time does) and the context switches of all threads (which do not: they are added up
# from process to process, and those of a process since the last sample before its end are lost). Neither is there
# without a server, nor where the kernel does not show it to this user.

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
SERVER_COMMANDS = frozenset(name.encode() for engine in engines.ENGINES.values() for name in engine.commands)
LOAD_COMMAND = LOAD_WORKER_NAME.encode()
TREE_MAX = 20_000
READS_MAX = 3


@dataclass(slots=True)
class _Use:
    ticks: Counter[str] = field(default_factory=Counter)
    private_pages: int = 0
    shared_pages: int = 0
    servers: int = 0
    storage: Counter[str] | None = field(default_factory=Counter)
    switches: Counter[int] = field(default_factory=Counter)


class ProcessTree:
    """The processes below `root` (default: found as described above) and their use so far."""

    def __init__(self, root: int | None = None) -> None:
        self._root = find_root() if root is None else root
        self._agent = os.getpid()
        self._has_children_files = Path("/proc/self/task", str(os.getpid()), "children").exists()
        self._before = _Use()
        self._ticks, self._storage = Counter[str](), Counter[str]()
        self._switches = 0
        self._had_server = False

    def read(self) -> tuple[Reading, ...]:
        """CPU (s, cumulative) and memory (bytes) of the tree now."""
        use, _ = self._grown()
        values = {
            "cpu_s_total": self._ticks["cpu"] / TICKS_PER_S,
            "servers_cpu_s_total": self._ticks["servers"] / TICKS_PER_S,
            "load_cpu_s_total": self._ticks["load"] / TICKS_PER_S,
            "rss_bytes": (use.private_pages + use.shared_pages) * PAGE_BYTES,
            **self._of_servers(use),
        }
        self._before = use
        return tuple(_named("ours", values))

    def cpu_and_threads(self) -> tuple[float, int]:
        """CPU time of the tree so far, s, and the threads of its processes without children: those that do the work."""
        self._before, members = self._grown()
        threads = sum(len(_threads(pid)) for pid, _ in members if not _children_of(pid))
        return self._ticks["cpu"] / TICKS_PER_S, max(threads, 1)

    def _grown(self) -> tuple[_Use, list[tuple[int, bool]]]:
        """Add up what has grown; the use of the tree now, and its processes. After a fall it is read again: a process
        that ends between the looks at its parent and at itself is in neither, and would count once more in the next
        sample."""
        for _ in range(READS_MAX):
            use, members = _Use(), self._members()
            for pid, below_agent in members:
                _add(use, pid, below_agent=below_agent)
            if not self._before.ticks - use.ticks:  # of counters, which leaves what has fallen
                break
        self._ticks += use.ticks - self._before.ticks
        return use, members

    def _of_servers(self, use: _Use) -> dict[str, float]:
        """Storage I/O and context switches of the servers since the first sample with one."""
        before = self._before
        if self._had_server:
            self._switches += (use.switches - before.switches).total()
            if use.storage is not None and before.storage is not None:
                self._storage += use.storage - before.storage
        self._had_server = self._had_server or use.servers > 0
        if not self._had_server:
            return {}
        known = () if use.storage is None else ("read", "written")
        storage = {f"servers_{name}_bytes_total": self._storage[name] for name in known}
        return {**storage, "servers_context_switches_total": self._switches}

    def _members(self) -> list[tuple[int, bool]]:
        """The tree's processes, each with whether it is this agent or below it."""
        below = _children_of if self._has_children_files else _children_by_scan()
        members: list[tuple[int, bool]] = []
        waiting = [(self._root, False)]
        while waiting and len(members) < TREE_MAX:
            pid, below_agent = waiting.pop()
            below_agent = below_agent or pid == self._agent
            members.append((pid, below_agent))
            waiting.extend((child, below_agent) for child in below(pid))
        return members


def find_root(pid: int | None = None) -> int:
    """The topmost ancestor that is proveout itself, from this process (or `pid`) up."""
    root = os.getpid() if pid is None else pid
    while (parent := _parent(root)) > 1 and _is_proveout(parent):
        root = parent
    return root


def _is_proveout(pid: int) -> bool:
    arguments = _read(f"/proc/{pid}/cmdline").decode(errors="replace").split("\0")[:6]
    as_module = any(
        flag == "-m" and (name == "proveout" or name.startswith("proveout."))
        for flag, name in itertools.pairwise(arguments)
    )
    return as_module or any(Path(argument).name == "proveout" for argument in arguments[:2])


def _parent(pid: int) -> int:
    fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return int(fields[1]) if fields else 0


def _children_of(pid: int) -> list[int]:
    lists = [_read(f"/proc/{pid}/task/{thread}/children").split() for thread in _threads(pid)]
    return [*dict.fromkeys(map(int, itertools.chain(*lists)))]  # once: those of a thread that ends go to another


def _children_by_scan() -> Callable[[int], list[int]]:
    """For kernels without the `children` files: one pass over /proc."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208 - a hot path
        if entry.isdigit():
            children.setdefault(_parent(int(entry)), []).append(int(entry))
    return lambda pid: children.get(pid, [])


def _add(use: _Use, pid: int, *, below_agent: bool) -> None:
    stat = _read(f"/proc/{pid}/stat")
    if not stat:
        return
    head, _, rest = stat.rpartition(b")")
    fields = rest.split()
    ticks = sum(map(int, fields[11:15]))
    use.ticks["cpu"] += ticks
    command = head.partition(b"(")[2]
    if below_agent and command in SERVER_COMMANDS:
        use.ticks["servers"] += ticks
        _add_server(use, pid)
    elif below_agent and command == LOAD_COMMAND:
        use.ticks["load"] += ticks
    memory = _read(f"/proc/{pid}/statm").split()
    if memory:
        resident, shared = int(memory[1]), int(memory[2])
        use.private_pages += resident - shared
        use.shared_pages = max(use.shared_pages, shared)


def _add_server(use: _Use, pid: int) -> None:
    """Storage I/O and context switches of a database server's process. One whose I/O cannot be read makes the sum
    unknown."""
    use.servers += 1
    io = dict(line.split(b": ") for line in _read(f"/proc/{pid}/io").splitlines())
    if use.storage is not None and io:
        use.storage += Counter(read=int(io[b"read_bytes"]), written=int(io[b"write_bytes"]))
    elif Path(f"/proc/{pid}/stat").exists():
        use.storage = None
    use.switches[pid] = sum(_switches(f"/proc/{pid}/task/{thread}/status") for thread in _threads(pid))


def _switches(path: str) -> int:
    lines = _read(path).splitlines()
    return sum(int(line.rpartition(b"\t")[2]) for line in lines if b"voluntary_ctxt_switches:" in line)


def _threads(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - a hot path
    except OSError:
        return []


def _read(path: str) -> bytes:
    """A /proc file, empty when its process is gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return _whole(descriptor)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


# Readings of each sample: `_total` is cumulative since boot or since the process began, and never reset; units are in
# the names. `ours.rss_bytes` is the private memory of each process of the tree, and the largest shared part once.
# `ours.servers_…` are those of the embedded database servers of this agent, `ours.load_…` those of its load and
# populate workers.
#
# Disks are whole disks: no partitions, loop, ram, dm or md devices. Interfaces are all but lo and those on others.
# proveout's own process tree is agents, load workers and embedded servers.
#
# user + system + iowait + idle + steal is all CPU time there is. The pressure metrics are absent where the kernel has
# no PSI. The first sample is taken when the capture starts, before the load is armed, and the last when it is finished,
# after the load: any window of the load is bracketed. Source: proc(5), Documentation/accounting/psi.rst.


class HostObserver:
    """The open files and the process tree; see `adapter.Observer`."""

    def __init__(self) -> None:
        self._counters = Counters()
        self._tree = ProcessTree()

    def look(self, tick: Tick) -> Sequence[Reading]:
        """All readings; the tick's time plays no part."""
        return (*self._counters.read(), *self._tree.read())

    def abort(self) -> None:
        """Nothing to do: /proc does not block."""

    def close(self) -> None:
        self._counters.close()


async def run(context: TaskContext, spec: RunCapture) -> CaptureResult:
    """Sample until finished. `cpu_s` is the CPU that the sampling itself has used."""
    return await observe(context, spec, HostObserver)
