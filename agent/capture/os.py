"""Capture `os`: counters of the host's kernel from /proc, and the use of the host by proveout itself."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
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
NETWORK_NAMESPACE = Path("/proc/self/ns/net")
VIRTUAL_DISKS = ("loop", "ram", "zram", "dm-", "md", "sr", "fd", "nbd")


def parse_cpu(text: str) -> Iterator[Reading]:
    """The `cpu` line of /proc/stat, in seconds; the file may be cut after the per-core lines."""
    lines = text.splitlines()
    user, nice, system, idle, iowait, irq, softirq, steal = (int(word) / TICKS_PER_S for word in lines[0].split()[1:9])
    yield Reading(metric="cpu.cores", value=sum(line.startswith("cpu") for line in lines) - 1)
    yield Reading(metric="cpu.user_s_total", value=user + nice)
    yield Reading(metric="cpu.system_s_total", value=system + irq + softirq)
    yield Reading(metric="cpu.iowait_s_total", value=iowait)
    yield Reading(metric="cpu.idle_s_total", value=idle)
    yield Reading(metric="cpu.steal_s_total", value=steal)
    switches = next((line for line in lines if line.startswith("ctxt ")), "")
    if switches:
        yield Reading(metric="cpu.context_switches_total", value=int(switches.split()[1]))


def parse_memory(text: str) -> Iterator[Reading]:
    """MemTotal and MemAvailable of /proc/meminfo, in bytes."""
    kib = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in text.splitlines()[:8])}
    total, available = kib["MemTotal"] * 1024, kib["MemAvailable"] * 1024
    yield Reading(metric="memory.total_bytes", value=total)
    yield Reading(metric="memory.available_bytes", value=available)
    yield Reading(metric="memory.used_bytes", value=total - available)


def parse_load_average(text: str) -> Iterator[Reading]:
    """The first field of /proc/loadavg: tasks that ran or waited for a CPU or a disk, averaged over the last minute."""
    yield Reading(metric="load_average.1m", value=float(text.split(maxsplit=1)[0]))


def parse_disks(text: str, whole: frozenset[str]) -> Iterator[Reading]:
    """The lines of /proc/diskstats whose device is in `whole`."""
    for line in text.splitlines():
        fields = line.split()
        name = fields[2]
        if name not in whole:
            continue
        yield Reading(metric="disk.reads_total", value=int(fields[3]), label=name)
        yield Reading(metric="disk.read_bytes_total", value=int(fields[5]) * SECTOR_BYTES, label=name)
        yield Reading(metric="disk.writes_total", value=int(fields[7]), label=name)
        yield Reading(metric="disk.write_bytes_total", value=int(fields[9]) * SECTOR_BYTES, label=name)
        yield Reading(metric="disk.busy_s_total", value=int(fields[12]) / 1000, label=name)


def parse_network(text: str) -> Iterator[Reading]:
    """The lines of /proc/net/dev but lo."""
    for line in text.splitlines()[2:]:
        name, _, rest = line.partition(":")
        name, fields = name.strip(), rest.split()
        if name == "lo":
            continue
        yield Reading(metric="network.received_bytes_total", value=int(fields[0]), label=name)
        yield Reading(metric="network.received_packets_total", value=int(fields[1]), label=name)
        yield Reading(metric="network.sent_bytes_total", value=int(fields[8]), label=name)
        yield Reading(metric="network.sent_packets_total", value=int(fields[9]), label=name)


def network_namespace() -> Iterator[Reading]:
    """The inode of this process' network namespace: processes with the same one reach each other by `lo`."""
    try:
        yield Reading(metric="network.namespace", value=float(NETWORK_NAMESPACE.stat().st_ino))
    except OSError:
        return


def parse_pressure(text: str, resource: str) -> Iterator[Reading]:
    """The `some` line of a /proc/pressure file: its total, in µs."""
    first = text.partition("\n")[0]
    yield Reading(metric=f"pressure.{resource}_us_total", value=int(first.rpartition("total=")[2]))


def whole_disks() -> frozenset[str]:
    """Block devices that are disks of their own: no partitions, no mappings of other devices, no memory."""
    if not BLOCK.is_dir():
        return frozenset()
    return frozenset(entry.name for entry in BLOCK.iterdir() if not entry.name.startswith(VIRTUAL_DISKS))


class Counters:
    """The open files with their parsers; a file that this kernel has not is left out."""

    def __init__(self) -> None:
        disks = whole_disks()
        parsers: list[tuple[str, Callable[[str], Iterable[Reading]]]] = [
            ("/proc/stat", parse_cpu),
            ("/proc/meminfo", parse_memory),
            ("/proc/loadavg", parse_load_average),
            ("/proc/diskstats", lambda text: parse_disks(text, disks)),
            ("/proc/net/dev", parse_network),
            ("/proc/pressure/cpu", lambda text: parse_pressure(text, "cpu")),
            ("/proc/pressure/io", lambda text: parse_pressure(text, "io")),
            ("/proc/pressure/memory", lambda text: parse_pressure(text, "memory")),
        ]
        self._files = [(descriptor, parse) for path, parse in parsers if (descriptor := _open(path)) is not None]
        self._namespace = list(network_namespace())

    def close(self) -> None:
        for descriptor, _ in self._files:
            os.close(descriptor)
        self._files = []

    def read(self) -> list[Reading]:
        """All readings now."""
        found = [
            reading
            for descriptor, parse in self._files
            for reading in parse(os.pread(descriptor, FILE_BYTES_MAX, 0).decode())
        ]
        return found + self._namespace


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


@dataclass(slots=True)
class _Use:
    cpu_ticks: int = 0
    server_ticks: int = 0
    load_ticks: int = 0
    private_pages: int = 0
    shared_pages: int = 0
    servers: int = 0
    storage: tuple[int, int] | None = (0, 0)
    switches: dict[int, int] = field(default_factory=dict)


class ProcessTree:
    """The processes below `root` (default: found as described above) and their use so far."""

    def __init__(self, root: int | None = None) -> None:
        self._root = find_root() if root is None else root
        self._agent = os.getpid()
        self._has_children_files = Path("/proc/self/task", str(os.getpid()), "children").exists()
        self._before = _Use()
        self._cpu_ticks = 0
        self._server_ticks = 0
        self._load_ticks = 0
        self._storage = [0, 0]
        self._switches = 0
        self._had_server = False

    def read(self) -> tuple[Reading, ...]:
        """CPU (s, cumulative) and memory (bytes) of the tree now."""
        use = _Use()
        for pid, below_agent in self._members():
            _add(use, pid, below_agent=below_agent)
        self._cpu_ticks += max(0, use.cpu_ticks - self._before.cpu_ticks)
        self._server_ticks += max(0, use.server_ticks - self._before.server_ticks)
        self._load_ticks += max(0, use.load_ticks - self._before.load_ticks)
        own = tuple(self._of_servers(use))
        self._before = use
        rss = (use.private_pages + use.shared_pages) * PAGE_BYTES
        return (
            Reading(metric="ours.cpu_s_total", value=self._cpu_ticks / TICKS_PER_S),
            Reading(metric="ours.servers_cpu_s_total", value=self._server_ticks / TICKS_PER_S),
            Reading(metric="ours.load_cpu_s_total", value=self._load_ticks / TICKS_PER_S),
            Reading(metric="ours.rss_bytes", value=rss),
            *own,
        )

    def _of_servers(self, use: _Use) -> Iterator[Reading]:
        """Storage I/O and context switches of the servers since the first sample with one."""
        before = self._before
        if self._had_server:
            grown = {pid: count - before.switches.get(pid, 0) for pid, count in use.switches.items()}
            self._switches += sum(max(0, count) for count in grown.values())
            for index, (now, then) in enumerate(zip(use.storage or (), before.storage or (), strict=False)):
                self._storage[index] += max(0, now - then)
        self._had_server = self._had_server or use.servers > 0
        if self._had_server and use.storage is not None:
            yield Reading(metric="ours.servers_read_bytes_total", value=self._storage[0])
            yield Reading(metric="ours.servers_written_bytes_total", value=self._storage[1])
        if self._had_server:
            yield Reading(metric="ours.servers_context_switches_total", value=self._switches)

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
    found: list[int] = []
    for thread in _threads(pid):
        found.extend(map(int, _read(f"/proc/{pid}/task/{thread}/children").split()))
    return found


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
    use.cpu_ticks += ticks
    command = head.partition(b"(")[2]
    if below_agent and command in SERVER_COMMANDS:
        use.server_ticks += ticks
        _add_server(use, pid)
    elif below_agent and command == LOAD_COMMAND:
        use.load_ticks += ticks
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
        use.storage = use.storage[0] + int(io[b"read_bytes"]), use.storage[1] + int(io[b"write_bytes"])
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
    """A small /proc file, empty when its process is gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.read(descriptor, 65_536)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


# Readings of each sample (label "" unless stated; `_total` = cumulative since boot or since the process began, never
# reset):
#
# | metric | unit, label | from |
# |---|---|---|
# | `cpu.cores` | online cores | /proc/stat |
# | `cpu.user_s_total` | s, all cores, with nice | /proc/stat |
# | `cpu.system_s_total` | s, all cores, with irq and softirq | /proc/stat |
# | `cpu.iowait_s_total`, `cpu.idle_s_total`, `cpu.steal_s_total` | s, all cores | /proc/stat |
# | `cpu.context_switches_total` | switches of all cores | /proc/stat |
# | `memory.total_bytes`, `memory.available_bytes` | bytes | /proc/meminfo |
# | `memory.used_bytes` | bytes; total - available | /proc/meminfo |
# | `load_average.1m` | tasks that ran or waited for a CPU or a disk, over the last minute | /proc/loadavg |
# | `disk.read_bytes_total`, `disk.write_bytes_total` | bytes; label = device (see below) | /proc/diskstats |
# | `disk.reads_total`, `disk.writes_total` | operations; label = device | /proc/diskstats |
# | `disk.busy_s_total` | s with at least one request under way; label = device | /proc/diskstats |
# | `network.received_bytes_total`, `network.sent_bytes_total` | bytes; label = interface, all but lo | /proc/net/dev |
# | `network.received_packets_total`, `network.sent_packets_total` | packets; label = interface | /proc/net/dev |
# | `network.namespace` | its inode: hosts of one machine with the same one reach each other by lo | /proc/self/ns/net |
# | `pressure.cpu_us_total`, `pressure.io_us_total` | µs in which some task waited ("some") | /proc/pressure |
# | `pressure.memory_us_total` | µs, likewise | /proc/pressure |
# | `ours.cpu_s_total` | s, user and system, of proveout's own process tree on this host | /proc/PID |
# | `ours.servers_cpu_s_total` | s, the embedded database servers of this agent | /proc/PID |
# | `ours.servers_read_bytes_total` | bytes that these servers have read from storage | /proc/PID/io |
# | `ours.servers_written_bytes_total` | bytes that they have made to be written to storage | /proc/PID/io |
# | `ours.servers_context_switches_total` | of all threads of these servers | /proc/PID/task/TID/status |
# | `ours.load_cpu_s_total` | s, the load and populate workers of this agent | /proc/PID |
# | `ours.rss_bytes` | bytes: private memory of each process of that tree, and the largest shared part once | /proc/PID
#
# Disks are whole disks: no partitions, loop, ram, dm or md devices. Interfaces are all but lo. proveout's own process
# tree is agents, load workers and embedded servers.
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
        """All readings of the module's table; the tick's time plays no part."""
        return (*self._counters.read(), *self._tree.read())

    def abort(self) -> None:
        """Nothing to do: /proc does not block."""

    def close(self) -> None:
        self._counters.close()


async def run(context: TaskContext, spec: RunCapture) -> CaptureResult:
    """Sample until finished. `cpu_s` is the CPU that the sampling itself has used."""
    return await observe(context, spec, HostObserver)
