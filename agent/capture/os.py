"""Capture `os`: counters of the host's kernel, read straight from /proc once each `every_s`, at the edges of the
measure window, and once more at the end.

Readings of each sample (label "" unless stated; `_total` = cumulative since boot or since the process began, never
reset):

| metric | unit, label | from |
|---|---|---|
| `cpu.cores` | online cores | /proc/stat |
| `cpu.user_s_total` | s, all cores, with nice | /proc/stat |
| `cpu.system_s_total` | s, all cores, with irq and softirq | /proc/stat |
| `cpu.iowait_s_total`, `cpu.idle_s_total`, `cpu.steal_s_total` | s, all cores | /proc/stat |
| `cpu.context_switches_total` | switches of all cores | /proc/stat |
| `memory.total_bytes`, `memory.available_bytes` | bytes | /proc/meminfo |
| `memory.used_bytes` | bytes; total - available | /proc/meminfo |
| `load_average.1m` | tasks that ran or waited for a CPU or a disk, over the last minute | /proc/loadavg |
| `disk.read_bytes_total`, `disk.write_bytes_total` | bytes; label = device (see below) | /proc/diskstats |
| `disk.reads_total`, `disk.writes_total` | operations; label = device | /proc/diskstats |
| `disk.busy_s_total` | s with at least one request under way; label = device | /proc/diskstats |
| `network.received_bytes_total`, `network.sent_bytes_total` | bytes; label = interface, all but lo | /proc/net/dev |
| `network.received_packets_total`, `network.sent_packets_total` | packets; label = interface | /proc/net/dev |
| `network.namespace` | its inode: hosts of one machine with the same one reach each other by lo | /proc/self/ns/net |
| `pressure.cpu_us_total`, `pressure.io_us_total` | µs in which some task waited ("some") | /proc/pressure |
| `pressure.memory_us_total` | µs, likewise | /proc/pressure |
| `ours.cpu_s_total` | s, user and system, of proveout's own process tree on this host | /proc/PID |
| `ours.servers_cpu_s_total` | s, the embedded database servers of this agent | /proc/PID |
| `ours.servers_read_bytes_total` | bytes that these servers have read from storage | /proc/PID/io |
| `ours.servers_written_bytes_total` | bytes that they have made to be written to storage | /proc/PID/io |
| `ours.servers_context_switches_total` | of all threads of these servers | /proc/PID/task/TID/status |
| `ours.load_cpu_s_total` | s, the load and populate workers of this agent | /proc/PID |
| `ours.rss_bytes` | bytes: private memory of each process of that tree, and the largest shared part once | /proc/PID |

Disks are whole disks: no partitions, loop, ram, dm or md devices. Interfaces are all but lo. proveout's own process
tree is agents, load workers and embedded servers.

user + system + iowait + idle + steal is all CPU time there is. The pressure metrics are absent where the kernel has no
PSI. The first sample is taken when the capture starts, before the load is armed, and the last when it is finished,
after the load: any window of the load is bracketed. Source: proc(5), Documentation/accounting/psi.rst.
"""

from __future__ import annotations

from collections.abc import Sequence

from proveout.agent.capture.own_processes import ProcessTree
from proveout.agent.capture.proc_counters import Counters
from proveout.agent.capture.schedule import observe
from proveout.agent.daemon.tasks import TaskContext
from proveout.agent.engines.adapter import Tick
from proveout.proto.wire.results import CaptureResult, Reading
from proveout.proto.wire.tasks import RunCapture


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
        """Close the files."""
        self._counters.close()


async def run(context: TaskContext, spec: RunCapture) -> CaptureResult:
    """Sample until finished. `cpu_s` is the CPU that the sampling itself has used."""
    return await observe(context, spec, HostObserver)
