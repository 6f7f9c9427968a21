"""The host capture: parsers over golden texts, the process tree, and a real run."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from eventually import eventually, eventually_async

from proveout.agent.capture import kinds
from proveout.agent.capture import os as capture_os
from proveout.agent.capture.kinds import Schedule
from proveout.agent.capture.os import ProcessTree, find_root
from proveout.core.child_process import LOAD_WORKER_NAME
from proveout.dsl.plan.topology import Capture
from proveout.proto.wire.results import CaptureResult, CaptureSample
from proveout.proto.wire.tasks import RunCapture

STAT = """cpu  1000 50 300 90000 400 7 13 25 0 0
cpu0 500 25 150 45000 200 3 7 12 0 0
cpu1 500 25 150 45000 200 4 6 13 0 0
intr 1
"""
MEMINFO = "MemTotal:  1000 kB\nMemFree:  100 kB\nMemAvailable:  400 kB\nBuffers: 1 kB\n"
DISKSTATS = """ 254       0 vda 100 5 2000 30 200 6 4000 70 0 90 100 0 0 0 0 9 1
 254       1 vda1 90 5 1900 30 190 6 3900 70 0 90 100 0 0 0 0 9 1
   7       0 loop0 1 0 2 0 0 0 0 0 0 0 0
"""
NET = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:     999       9    0    0    0     0          0         0      999       9    0    0    0     0       0          0
  eth0:    1234      10    0    0    0     0          0         0     5678      20    0    0    0     0       0          0
"""
PRESSURE = "some avg10=0.37 avg60=0.76 avg300=0.23 total=3906943\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5\n"


def table(readings: Any) -> dict[tuple[str, str], float]:
    return {(reading.metric, reading.label): reading.value for reading in readings}


def test_counters_of_the_kernel_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPU times are seconds of all cores; disks are whole disks; the network without lo; pressure from the some line."""
    monkeypatch.setattr(capture_os, "TICKS_PER_S", 100)
    assert table(capture_os.parse_cpu(STAT + "ctxt 4711\n")) == {
        ("cpu.cores", ""): 2,
        ("cpu.user_s_total", ""): pytest.approx(10.5),
        ("cpu.system_s_total", ""): pytest.approx(3.2),
        ("cpu.iowait_s_total", ""): 4.0,
        ("cpu.idle_s_total", ""): 900.0,
        ("cpu.steal_s_total", ""): 0.25,
        ("cpu.context_switches_total", ""): 4711,
    }
    assert table(capture_os.parse_memory(MEMINFO)) == {
        ("memory.total_bytes", ""): 1000 * 1024,
        ("memory.available_bytes", ""): 400 * 1024,
        ("memory.used_bytes", ""): 600 * 1024,
    }
    assert table(capture_os.parse_disks(DISKSTATS, frozenset({"vda"}))) == {
        ("disk.reads_total", "vda"): 100,
        ("disk.read_bytes_total", "vda"): 2000 * 512,
        ("disk.writes_total", "vda"): 200,
        ("disk.write_bytes_total", "vda"): 4000 * 512,
        ("disk.busy_s_total", "vda"): 0.09,
    }
    assert table(capture_os.parse_network(NET, frozenset({"lo"}))) == {
        ("network.received_bytes_total", "eth0"): 1234,
        ("network.received_packets_total", "eth0"): 10,
        ("network.sent_bytes_total", "eth0"): 5678,
        ("network.sent_packets_total", "eth0"): 20,
    }
    assert table(capture_os.parse_pressure(PRESSURE, "io")) == {("pressure.io_us_total", ""): 3906943}
    assert table(capture_os.parse_load_average("4.75 1.98 0.81 5/510 16157\n")) == {("load_average.1m", ""): 4.75}


def test_no_disk_and_no_interface_is_counted_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The paths of an NVMe disk instead of the disk, the disk below a cache; the ports of a bond instead of it and of the
    VLAN on it."""
    for name in ("nvme0n1", "nvme1n1", "nvme1c2n1", "nvme1c3n1", "cciss!c0d0", "dm-0", "bcache0/slaves/nvme0n1"):
        (tmp_path / "block" / name).mkdir(parents=True)
    for name in ("lo", "eth0", "bond0/lower_eth1", "bond0.102/lower_bond0", "eth1/upper_bond0"):
        (tmp_path / "net" / name).mkdir(parents=True)
    monkeypatch.setattr(capture_os, "BLOCK", tmp_path / "block")
    monkeypatch.setattr(capture_os, "INTERFACES", tmp_path / "net")
    assert capture_os.whole_disks() == {"nvme0n1", "nvme1c2n1", "nvme1c3n1", "cciss/c0d0"}
    assert capture_os.stacked_interfaces() == {"lo", "bond0", "bond0.102"}


def test_the_open_files_agree_with_psutil() -> None:
    counters = capture_os.Counters()
    before = psutil.cpu_times()
    readings = table(counters.read())
    after = psutil.cpu_times()
    counters.close()
    assert before.user + before.nice - 0.02 <= readings["cpu.user_s_total", ""] <= after.user + after.nice + 0.02
    assert before.idle - 0.02 <= readings["cpu.idle_s_total", ""] <= after.idle + 0.02
    assert readings["memory.total_bytes", ""] == psutil.virtual_memory().total
    assert readings["cpu.cores", ""] == psutil.cpu_count()
    assert readings["network.namespace", ""] == Path("/proc/self/ns/net").stat().st_ino


def test_a_list_of_the_kernel_is_read_beyond_its_first_page() -> None:
    """As /proc/diskstats, /proc/net/dev and `children` are with some dozens of disks or interfaces, or 600 connections."""
    assert len(capture_os._read("/proc/self/smaps")) > 2 * capture_os.PAGE_BYTES


PIECES = """
import os, sys, time
from pathlib import Path
Path("/proc/self/comm").write_text(sys.argv[1])
print("ready", flush=True); input()
while time.process_time() < 0.1: pass
file = os.open(sys.argv[2], os.O_CREAT | os.O_WRONLY)
os.write(file, bytes(8 << 20)); os.fsync(file)
for _ in range(300): time.sleep(0.0001)
print("done", flush=True); input()
"""
"""A process of a name, of known use: 0.1 s CPU, 8 MiB to the disk, 300 sleeps."""


def started(code: str, *arguments: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-S", "-c", code, *arguments]
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def used(tmp_path: Path, name: str, *, of_agent: bool = True) -> dict[str, float]:
    """The growth of each counter of a tree of one process, below the agent or not."""
    with started(PIECES, name, str(tmp_path / "data")) as process:
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == "ready\n"
        tree = ProcessTree(process.pid)
        tree._agent = process.pid if of_agent else 1
        before = table(tree.read())
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "done\n"
        after = table(tree.read())
        process.stdin.close()
    return {
        metric.removeprefix("ours."): value - before.get((metric, ""), 0.0)
        for (metric, _), value in after.items()
        if metric.endswith("_total")
    }


def test_the_use_of_a_server_a_load_worker_and_another_agents_server_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = used(tmp_path, "postgres")
    assert server["cpu_s_total"] == server["servers_cpu_s_total"] >= 0.08
    assert server["load_cpu_s_total"] == 0.0
    assert 8 << 20 <= server["servers_written_bytes_total"] <= 20 << 20
    assert server["servers_context_switches_total"] >= 300
    worker = used(tmp_path, LOAD_WORKER_NAME)
    assert worker["load_cpu_s_total"] >= 0.08
    assert (worker["servers_cpu_s_total"], "servers_written_bytes_total" in worker) == (0.0, False)
    other = used(tmp_path, "postgres", of_agent=False)
    assert other["cpu_s_total"] >= 0.08
    assert (other["servers_cpu_s_total"], "servers_written_bytes_total" in other) == (0.0, False)
    real = capture_os._read
    monkeypatch.setattr(capture_os, "_read", lambda path: b"" if path.endswith("/io") else real(path))
    assert "servers_written_bytes_total" not in used(tmp_path, "postgres"), "I/O that cannot be read is unknown"


def test_the_process_tree_counts_children_also_after_their_end_and_without_the_children_files_of_proc() -> None:
    tree, key = ProcessTree(os.getpid()), ("ours.cpu_s_total", "")
    before = table(tree.read())
    code = "import time\nwhile time.process_time() < 0.1: pass\nprint('burnt', flush=True)\ninput()"
    with started(code) as child:
        assert child.stdout is not None and child.stdin is not None
        assert child.stdout.readline() == "burnt\n"
        during = table(tree.read())
        slow = ProcessTree(os.getpid())
        slow._has_children_files = False

        def same() -> bool:  # the tests' servers start and end processes at any time
            first, scanned, second = (sorted(one._members()) for one in (tree, slow, tree))
            return first == scanned == second

        eventually(same, "the same tree by both ways")
        assert (child.pid, True) in slow._members()
        child.stdin.write("\n")
        child.stdin.close()
        child.wait()
    after = table(tree.read())
    assert during[key] - before[key] >= 0.08
    assert after[key] >= during[key]


def test_the_use_of_a_script_is_that_of_the_program_that_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where one look misses the program, as it does one that ends just then."""
    code = "import time\nwhile time.process_time() < 0.1: pass\nprint('burnt', flush=True)\ninput()"
    argv = ["/bin/sh", "-c", '"$0" -S -c "$1"; :', sys.executable, code]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as script:
        assert script.stdout is not None and script.stdin is not None
        assert script.stdout.readline() == "burnt\n"
        tree, real = ProcessTree(script.pid), capture_os._read
        cpu_s, threads = tree.cpu_and_threads()
        missed = [f"/proc/{child}/stat" for child in capture_os._children_of(script.pid)]

        def once_missed(path: str) -> bytes:
            return b"" if missed and missed[0] == path and missed.pop() else real(path)

        monkeypatch.setattr(capture_os, "_read", once_missed)
        tree.cpu_and_threads()
        later_s, _ = tree.cpu_and_threads()
        script.stdin.write("\n")
        script.stdin.close()
    assert cpu_s >= 0.08 and threads == 1
    assert not missed
    assert later_s < 1.5 * cpu_s


def test_the_root_is_the_topmost_proveout() -> None:
    code = "import os, sys; print(os.getpid(), flush=True); sys.stdin.read()"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', {code!r}])"
    # The outer process looks like `proveout …`: the second word of its command line is that name.
    with subprocess.Popen(
        ["proveout", "-S", "-c", outer],
        executable=sys.executable,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONEXECUTABLE": sys.executable},
    ) as parent:
        assert parent.stdout is not None and parent.stdin is not None
        line = parent.stdout.readline()
        assert find_root(int(line)) == parent.pid
        parent.stdin.close()


HOST = Capture(name="host", kind="os", every_s=0.05, hosts=("local",))


async def test_a_cancelled_run_ends_its_thread(task_context: Any) -> None:
    running = asyncio.ensure_future(kinds.capture(task_context, RunCapture(capture=HOST)))
    await eventually_async(lambda: task_context.samples, "a sample")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    eventually(lambda: not any("capture-host" in one.name for one in threading.enumerate()), "the end of the thread")


async def test_a_run_samples_at_once_at_the_edges_of_the_window_and_at_the_end(task_context: Any) -> None:
    seldom = replace(HOST, every_s=60.0)
    t0_ns = task_context.t0_ns = time.monotonic_ns() + 50_000_000
    running = asyncio.ensure_future(kinds.capture(task_context, RunCapture(capture=seldom, edges_s=(0.0, 0.1))))
    await eventually_async(lambda: len(task_context.samples) >= 3, "the edges")
    task_context.end()
    result = await running
    assert isinstance(result, CaptureResult)
    assert result.samples == 4
    assert result.cpu_s > 0
    samples: list[CaptureSample] = task_context.samples
    first, start, end, _ = samples
    assert start.at_ns >= t0_ns
    assert end.at_ns >= t0_ns + 100_000_000
    metrics = {reading.metric for reading in first.readings}
    assert {"cpu.user_s_total", "memory.used_bytes", "ours.cpu_s_total"} <= metrics
    task_context.samples.clear()
    await kinds.capture(task_context, RunCapture(capture=seldom))
    assert len(task_context.samples) <= 2


class Clock:
    """A monotonic clock, and the condition of a `Schedule`, whose waits end at once."""

    def __init__(self) -> None:
        self.now_ns = 0

    def monotonic_ns(self) -> int:
        return self.now_ns

    def wait(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)

    def notify(self) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def test_looks_are_at_absolute_instants_and_late_ones_skip_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks at the edges of a window do not shift the others."""
    clock, schedule = Clock(), Schedule(every_s=0.2, poll_s=0.1)
    monkeypatch.setattr("proveout.agent.capture.kinds.time", clock)
    monkeypatch.setattr(schedule, "_changed", clock)
    schedule.begin()
    schedule.look_at([50_000_000, 90_000_000, 300_000_000])
    ticks = [schedule.tick() for _ in range(6)]
    assert [tick.at_ns // 1_000_000 for tick in ticks] == [0, 50, 90, 100, 200, 300]
    assert [tick.report for tick in ticks] == [True, True, True, False, True, True]
    clock.now_ns = 850_000_000
    assert (schedule.tick().at_ns, schedule.lost) == (850_000_000, 2), "those at 400 and 600 ms"
    assert (schedule.tick().at_ns, schedule.tick().at_ns) == (900_000_000, 1_000_000_000)
    schedule.finish()
    assert (schedule.tick().last, schedule.lost) == (True, 2)
