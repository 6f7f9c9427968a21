"""The use of a host by proveout itself: CPU and memory of its own process tree, and CPU of the groups in it.

The tree's root is the agent, or the coordinator when that started the agent as its child: then all local agents, their
load workers and their embedded servers are one tree, on what is one machine. A process that has ended is not forgotten:
its CPU time is its parent's `cutime`. So the sum over the living of own and children's time only grows, but when a
whole branch leaves (a server that ended, for the servers' part): growth is added up from sample to sample, and a fall
counts as none. Only the tree is walked, not all of /proc. Source: proc(5).

The groups, database servers and load workers, are those below this agent only: on one machine with several local agents
each reports its own host's server or load, and their sums stay within the tree's.

Of the database servers it also has the I/O that reached the storage (`/proc/PID/io`, which goes over to the parent when
a process has ended, as CPU time does) and the context switches of all threads (which do not: they are added up from
process to process, and those of a process since the last sample before its end are lost). Neither is there without a
server, nor where the kernel does not show it to this user.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from proveout.agent.capture.proc_counters import TICKS_PER_S
from proveout.core.child_process import LOAD_WORKER_NAME
from proveout.core.data_classes import dataclass, field
from proveout.dsl import engines
from proveout.proto.wire.results import Reading

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
