"""The host capture: parsers over golden texts, the process tree, and a real run."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from proveout.agent.capture import kinds, proc_counters
from proveout.agent.capture.own_processes import ProcessTree, find_root
from proveout.agent.capture.schedule import Control, Schedule
from proveout.agent.errors import TaskFault
from proveout.dsl.plan.topology import Capture
from proveout.proto.wire.results import CaptureResult, CaptureSample, Reading
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


def test_cpu_times_are_seconds_of_all_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proc_counters, "TICKS_PER_S", 100)
    assert table(proc_counters.parse_cpu(STAT)) == {
        ("cpu.cores", ""): 2,
        ("cpu.user_s_total", ""): pytest.approx(10.5),
        ("cpu.system_s_total", ""): pytest.approx(3.2),
        ("cpu.iowait_s_total", ""): 4.0,
        ("cpu.idle_s_total", ""): 900.0,
        ("cpu.steal_s_total", ""): 0.25,
    }


def test_memory_is_bytes() -> None:
    assert table(proc_counters.parse_memory(MEMINFO)) == {
        ("memory.total_bytes", ""): 1000 * 1024,
        ("memory.available_bytes", ""): 400 * 1024,
        ("memory.used_bytes", ""): 600 * 1024,
    }


def test_disks_are_whole_disks_in_bytes_and_seconds() -> None:
    assert table(proc_counters.parse_disks(DISKSTATS, frozenset({"vda"}))) == {
        ("disk.reads_total", "vda"): 100,
        ("disk.read_bytes_total", "vda"): 2000 * 512,
        ("disk.writes_total", "vda"): 200,
        ("disk.write_bytes_total", "vda"): 4000 * 512,
        ("disk.busy_s_total", "vda"): 0.09,
    }


def test_network_leaves_lo_out() -> None:
    assert table(proc_counters.parse_network(NET)) == {
        ("network.received_bytes_total", "eth0"): 1234,
        ("network.received_packets_total", "eth0"): 10,
        ("network.sent_bytes_total", "eth0"): 5678,
        ("network.sent_packets_total", "eth0"): 20,
    }


def test_pressure_is_read_from_the_some_line() -> None:
    assert list(proc_counters.parse_pressure(PRESSURE, "io")) == [Reading(metric="pressure.io_us_total", value=3906943)]


def test_the_load_average_is_that_of_one_minute() -> None:
    found = list(proc_counters.parse_load_average("4.75 1.98 0.81 5/510 16157\n"))
    assert found == [Reading(metric="load_average.1m", value=4.75)]


def test_the_open_files_agree_with_psutil() -> None:
    counters = proc_counters.Counters()
    before = psutil.cpu_times()
    readings = table(counters.read())
    after = psutil.cpu_times()
    counters.close()
    assert before.user + before.nice - 0.02 <= readings["cpu.user_s_total", ""] <= after.user + after.nice + 0.02
    assert before.idle - 0.02 <= readings["cpu.idle_s_total", ""] <= after.idle + 0.02
    assert readings["memory.total_bytes", ""] == psutil.virtual_memory().total
    assert readings["cpu.cores", ""] == psutil.cpu_count()


def burn(seconds: float) -> subprocess.Popen[str]:
    code = f"import time\nwhile time.process_time() < {seconds}: pass\nprint('burnt', flush=True)\ninput()"
    return subprocess.Popen(
        [sys.executable, "-S", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_the_process_tree_counts_children_also_after_their_end() -> None:
    tree = ProcessTree(os.getpid())
    before = table(tree.read())
    with burn(0.3) as child:
        assert child.stdout is not None and child.stdin is not None
        assert child.stdout.readline() == "burnt\n"
        during = table(tree.read())
        child.stdin.write("\n")
        child.stdin.close()
        child.wait()
    after = table(tree.read())
    key = ("ours.cpu_s_total", "")
    assert during[key] - before[key] >= 0.28
    assert after[key] >= during[key]
    assert during["ours.rss_bytes", ""] > before["ours.rss_bytes", ""]
    servers = ("ours.servers_cpu_s_total", "")
    assert during[servers] - before[servers] < 0.28  # this process also has real child servers, which are seldom idle


NAMES_OF_CPU = ("cpu_s_total", "load_cpu_s_total", "servers_cpu_s_total")


@pytest.mark.parametrize("agent", ["this", "another"])
def test_load_workers_are_a_group_of_the_agent_that_started_them(agent: str) -> None:
    code = (
        "import os, time\n"
        "from proveout.core.child_process import LOAD_WORKER_NAME\n"
        "from proveout.core.linux import die_with_parent\n"
        "die_with_parent(os.getppid(), LOAD_WORKER_NAME)\n"
        "while time.process_time() < 0.5: pass\n"
        "print('burnt', flush=True)\ninput()"
    )
    tree = ProcessTree(os.getpid())
    if agent == "another":
        tree._agent = 1
    before = table(tree.read())  # other tests of this process may have had servers
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"burnt\n"
        during = table(tree.read())
    burnt = {name: during[f"ours.{name}", ""] - before.get((f"ours.{name}", ""), 0.0) for name in NAMES_OF_CPU}
    assert burnt["cpu_s_total"] >= 0.45
    assert (burnt["load_cpu_s_total"] >= 0.45) == (agent == "this")
    assert burnt["servers_cpu_s_total"] < 0.45  # the tests' own servers, which are seldom idle


def test_the_process_tree_is_the_same_without_the_children_files_of_proc() -> None:
    with burn(0.0) as child:
        assert child.stdout is not None and child.stdin is not None
        child.stdout.readline()
        quick, slow = ProcessTree(os.getpid()), ProcessTree(os.getpid())
        slow._has_children_files = False
        before = after = scanned = []
        for _ in range(100):  # the tests' servers start and end processes at any time
            before, scanned, after = (sorted(tree._members()) for tree in (quick, slow, quick))
            if before == after:
                break
        assert before == scanned == after
        assert (child.pid, True) in scanned
        child.stdin.close()


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


async def until(condition: Callable[[], bool], limit_s: float = 60.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass in time"
        await asyncio.sleep(0.01)


async def test_a_run_samples_at_once_at_each_instant_and_at_the_end(task_context: Any) -> None:
    capture = Capture(name="host", kind="os", every_s=0.1, hosts=("local",))
    began_ns = time.monotonic_ns()
    running = asyncio.ensure_future(kinds.capture(task_context, RunCapture(capture=capture)))
    await until(lambda: len(task_context.samples) >= 4)
    task_context.end()
    result = await running
    ended_ns = time.monotonic_ns()
    samples: list[CaptureSample] = task_context.samples
    assert isinstance(result, CaptureResult)
    assert result.samples == len(samples) >= 5
    assert result.cpu_s > 0
    times = [sample.at_ns for sample in samples]
    assert began_ns <= times[0] and times[-1] <= ended_ns
    assert times == sorted(times)
    # Absolute instants: sample k is due at start + k × 100 ms, and never comes before that.
    assert all(at - began_ns >= index * 100_000_000 for index, at in enumerate(times[:-1]))
    metrics = {reading.metric for reading in samples[0].readings}
    assert {"cpu.user_s_total", "memory.used_bytes", "ours.cpu_s_total"} <= metrics


async def test_a_cancelled_run_ends_its_thread(task_context: Any) -> None:
    capture = Capture(name="host", kind="os", every_s=0.05, hosts=("local",))
    running = asyncio.ensure_future(kinds.capture(task_context, RunCapture(capture=capture)))
    await until(lambda: bool(task_context.samples))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    seen = len(task_context.samples)
    await asyncio.sleep(0.2)
    assert len(task_context.samples) <= seen + 1


async def test_an_unknown_kind_is_named(task_context: Any) -> None:
    capture = Capture(name="x", kind="statspack", every_s=1.0)  # type: ignore[arg-type]
    with pytest.raises(TaskFault, match="statspack"):
        await kinds.capture(task_context, RunCapture(capture=capture))


SPIN = """import sys, time
start_ns, end_ns = int(sys.argv[1]), int(sys.argv[2])
time.sleep(max(0.0, (start_ns - time.monotonic_ns()) / 1e9))
before = time.process_time()
while time.monotonic_ns() < end_ns: pass
print(time.process_time() - before)
"""
"""Spins from the start to the end of the window and prints the CPU time that it used."""


async def test_samples_at_the_edges_of_the_window_cover_all_cpu_time_of_a_spinning_process(task_context: Any) -> None:
    """One sample a minute, and the edges of a window of 1 s. The process measures its own CPU time, so other load on the
    machine has no effect; the tolerance of 30 ms covers two ticks of the kernel's counters and the process's lateness."""
    capture = Capture(name="host", kind="os", every_s=60.0, hosts=("local",))
    t0_ns = task_context.t0_ns = time.monotonic_ns() + 500_000_000
    edges_ns = (t0_ns, t0_ns + 1_000_000_000)
    running = asyncio.ensure_future(kinds.capture(task_context, RunCapture(capture=capture, edges_s=(0.0, 1.0))))
    argv = (sys.executable, "-c", SPIN, *map(str, edges_ns))
    child = await asyncio.create_subprocess_exec(*argv, stdout=subprocess.PIPE)
    spun_s = float((await child.communicate())[0])
    await until(lambda: len(task_context.samples) >= 3)
    task_context.end()
    assert (await running).samples == 4
    _, start, end, _ = task_context.samples
    assert (start.at_ns >= edges_ns[0], end.at_ns >= edges_ns[1]) == (True, True)
    late_s = (start.at_ns - edges_ns[0]) / 1e9
    assert busy_s(end) - busy_s(start) >= spun_s - late_s - 0.03


def busy_s(sample: CaptureSample) -> float:
    found = {reading.metric: reading.value for reading in sample.readings}
    return found["cpu.user_s_total"] + found["cpu.system_s_total"]


async def test_without_a_start_there_are_no_samples_at_edges(task_context: Any) -> None:
    capture = Capture(name="host", kind="os", every_s=60.0, hosts=("local",))
    running = asyncio.ensure_future(kinds.capture(task_context, RunCapture(capture=capture)))
    await until(lambda: bool(task_context.samples))
    task_context.end()
    assert (await running).samples == 2


def test_extra_samples_do_not_shift_the_regular_ones() -> None:
    control = Control()
    schedule = Schedule(control, every_s=0.2, poll_s=0.2)
    began_ns = time.monotonic_ns()
    control.look_at([began_ns + 50_000_000, began_ns + 90_000_000])
    ticks = [schedule.tick() for _ in range(4)]
    control.finish()
    assert schedule.tick().last
    assert all(tick.report for tick in ticks)
    due_ns = [0, 50_000_000, 90_000_000, 200_000_000]
    assert all(tick.at_ns - began_ns - due >= -1_000_000 for tick, due in zip(ticks, due_ns, strict=True))
    assert schedule.lost == 0


SERVER_PIECES = """
import os, sys, time
from pathlib import Path
Path("/proc/self/comm").write_text("postgres")
print("ready", flush=True); input()
while time.process_time() < 0.5: pass
file = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)
os.write(file, bytes(8 << 20)); os.fsync(file)
for _ in range(300): time.sleep(0.0001)
print("done", flush=True); input()
"""


def spent_by_a_server(tmp_path: Any, tree: ProcessTree) -> dict[str, float]:
    """The growth of the servers' counters over a server of known use: 0.5 s CPU, 8 MiB to the disk, 300 sleeps."""
    argv = [sys.executable, "-S", "-c", SERVER_PIECES, str(tmp_path / "data")]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None and server.stdin is not None
        assert server.stdout.readline() == "ready\n"
        before = table(tree.read())
        server.stdin.write("\n")
        server.stdin.flush()
        assert server.stdout.readline() == "done\n"
        after = table(tree.read())
        server.stdin.close()
    return {
        name: after[f"ours.servers_{name}_total", ""] - before.get((f"ours.servers_{name}_total", ""), 0.0)
        for name in ("cpu_s", "read_bytes", "written_bytes", "context_switches")
    }


def test_the_use_of_a_server_is_the_known_one(tmp_path: Any) -> None:
    """Above the truth only by what the tests' own servers do meanwhile, which are seldom idle."""
    found = spent_by_a_server(tmp_path, ProcessTree(os.getpid()))
    assert 0.45 <= found["cpu_s"] <= 0.9
    assert 8 << 20 <= found["written_bytes"] <= 20 << 20
    assert 300 <= found["context_switches"] <= 3_000


def test_without_a_server_its_use_is_not_there() -> None:
    tree = ProcessTree(os.getpid())
    tree._agent = 1
    assert ("ours.servers_written_bytes_total", "") not in table(tree.read())


def test_io_that_cannot_be_read_is_unknown(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    from proveout.agent.capture import own_processes

    real = own_processes._read
    monkeypatch.setattr(own_processes, "_read", lambda path: b"" if path.endswith("/io") else real(path))
    tree = ProcessTree(os.getpid())
    with pytest.raises(KeyError, match=r"written_bytes|read_bytes"):
        spent_by_a_server(tmp_path, tree)


def test_the_switches_of_the_host_are_read_where_the_kernel_shows_them() -> None:
    found = table(proc_counters.parse_cpu(STAT + "ctxt 4711\n"))
    assert found["cpu.context_switches_total", ""] == 4711


RECEIVER = """
import json, socket, sys
from proveout.agent.capture.proc_counters import Counters
counters = Counters()
listening = socket.create_server(("10.77.9.2", 9))
def total(): return {r.metric: r.value for r in counters.read() if r.metric.startswith("network.")}
before, left = total(), int(sys.argv[1])
print("ready", flush=True)
connection = listening.accept()[0]
while left: left -= len(connection.recv(1 << 20))
print(json.dumps([before, total()]), flush=True)
"""


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
def test_network_bytes_are_those_of_a_known_payload() -> None:
    """10 MB over TCP between two network namespaces: the payload, and at most 8 % of headers."""
    import json
    import shutil

    if shutil.which("ip") is None:
        pytest.skip("no iproute2")
    one, other, payload = f"pv{os.getpid()}a", f"pv{os.getpid()}b", 10_000_000
    inside = ["ip", "netns", "exec"]
    try:
        for name in (one, other):
            subprocess.run(["ip", "netns", "add", name], check=True)
        subprocess.run(
            ["ip", "link", "add", "eth0", "netns", one, "type", "veth", "peer", "eth0", "netns", other], check=True
        )
        for name, address in ((one, "10.77.9.1/24"), (other, "10.77.9.2/24")):
            subprocess.run(["ip", "-n", name, "addr", "add", address, "dev", "eth0"], check=True)
            subprocess.run(["ip", "-n", name, "link", "set", "eth0", "up"], check=True)
        argv = [*inside, other, sys.executable, "-c", RECEIVER, str(payload)]
        sender = (
            f"import socket; s = socket.create_connection(('10.77.9.2', 9)); s.sendall(bytes({payload})); s.recv(1)"
        )
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as receiver:
            assert receiver.stdout is not None
            assert receiver.stdout.readline() == "ready\n"
            subprocess.run([*inside, one, sys.executable, "-S", "-c", sender], check=True, timeout=60)
            before, after = json.loads(receiver.stdout.readline())
    finally:
        for name in (one, other):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
    assert payload <= after["network.received_bytes_total"] - before["network.received_bytes_total"] <= 1.08 * payload
    assert before["network.namespace"] != table(proc_counters.network_namespace())["network.namespace", ""]
