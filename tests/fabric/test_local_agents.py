"""Real agents as child processes: tasks, results, and the clean-up after each kind of end of a session."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from fabric_bench import FAKE_AGENT, Bench, eventually, is_gone, lines, task

from proveout.coordinator.agents.local_agents import LocalAgentError, LocalFabric
from proveout.dsl.plan.plan import Workload
from proveout.dsl.plan.stages import Windows
from proveout.dsl.plan.topology import Capture
from proveout.proto.wire.messages import Cancel, Finish, LogLine, Sample, Start, TaskArmed, TaskDone, TaskFailed
from proveout.proto.wire.results import CaptureResult, LoadResult, SqlDone
from proveout.proto.wire.tasks import Checkpoint, Endpoint, LoadShare, RunCapture, RunLoad, StopSystem, Task

pytestmark = pytest.mark.server

ENDPOINT = Endpoint(system="s", engine="postgres", dsn="host=x")


async def test_a_task_and_its_result(bench: Bench) -> None:
    line = await bench.line()
    line.session.send(task("k", "sleep 0"))
    assert await line.outcome("k") == TaskDone(key="k", result=SqlDone(counts=(0,)))
    welcome = line.session.welcome
    assert (welcome.agent, welcome.cores) == ("db1", len(os.sched_getaffinity(0)))
    assert {"kernel", "memory_bytes", "boot_id"} <= dict(welcome.facts).keys()


async def test_the_clock_offset_on_the_same_machine_is_0_within_its_error_bound(bench: Bench) -> None:
    line = await bench.line()
    clock = line.session.clock  # parent and child read the same CLOCK_MONOTONIC: the true offset is 0
    assert abs(clock.offset_ns) <= clock.uncertainty_ns
    assert line.session.to_agent_ns(10**12) == pytest.approx(10**12, abs=clock.uncertainty_ns + 10**6)


async def test_a_load_is_armed_and_starts_at_t0(bench: Bench) -> None:
    line = await bench.line()
    spec = RunLoad(
        workload=Workload(name="w", kind="hlr", parameters=()),
        endpoint=ENDPOINT,
        share=LoadShare(first=0, count=4, total=4),
        windows=Windows(ramp_up_s=0, measure_s=1, ramp_down_s=0),
        workers=1,
        seed=1,
        label="l",
    )
    line.session.send(Task(key="load", spec=spec, deadline_s=20))
    await line.message(TaskArmed, "load")
    line.session.send(Start(key="load", t0_ns=12345))
    done = await line.outcome("load")
    assert isinstance(done, TaskDone) and isinstance(done.result, LoadResult)
    assert (done.result.measure_start_ns, done.result.ended_in_window) == (12345, 4)


async def test_a_capture_runs_until_it_is_finished_and_numbers_its_samples(bench: Bench) -> None:
    line = await bench.line()
    capture = Capture(name="c", kind="os", every_s=0.5)
    line.session.send(Task(key="capture", spec=RunCapture(capture=capture), deadline_s=20))
    for _ in range(5):
        await line.message(Sample, "capture")
    line.session.send(Finish(key="capture"))
    done = await line.outcome("capture")
    sequences = [message.sequence for message in line.messages() if isinstance(message, Sample)]
    assert sequences == list(range(1, len(sequences) + 1))
    assert isinstance(done, TaskDone) and done.result == CaptureResult(capture="c", samples=len(sequences))


async def test_task_faults_arrive_with_code_and_message(bench: Bench) -> None:
    line = await bench.line()
    line.session.send(task("k", "fault"))
    outcome = await line.outcome("k")
    assert isinstance(outcome, TaskFailed)
    assert (outcome.error.code, outcome.error.message) == ("unreachable", "the server does not answer")
    assert outcome.error.way_out == "Start it."


async def test_of_an_unexpected_exception_only_the_class_name_is_sent(bench: Bench) -> None:
    line = await bench.line()
    line.session.send(task("k", "bug"))
    code, message = await line.failure("k")
    assert (code, message) == ("fault", "ValueError: cannot connect with host=x password=*** user=y")
    log = bench.log()
    assert "Traceback" in log and "fake_agent.py" in log
    assert "hunter2" not in log


async def test_a_handler_result_of_a_wrong_type_is_a_fault(bench: Bench) -> None:
    line = await bench.line()
    line.session.send(Task(key="k", spec=StopSystem(system="s", data_root="/x"), deadline_s=5))
    code, message = await line.failure("k")
    assert code == "fault" and "str has no place in TaskDone" in message


async def test_a_task_without_a_handler_fails(bench: Bench) -> None:
    line = await bench.line()
    line.session.send(Task(key="k", spec=Checkpoint(endpoint=ENDPOINT), deadline_s=5))
    assert await line.failure("k") == ("missing", "this agent has no handler for Checkpoint")


@pytest.mark.parametrize("deadline_s", [0.0, -1.0, float("nan"), float("inf"), 1e9])
async def test_an_invalid_deadline_is_refused(bench: Bench, deadline_s: float) -> None:
    line = await bench.line()
    line.session.send(task("k", "sleep 0", deadline_s=deadline_s))
    assert (await line.failure("k"))[0] == "invalid"


async def test_a_deadline_ends_a_task(bench: Bench, tmp_path: Path) -> None:
    line = await bench.line()
    line.session.send(task("k", f"sleep 600 {tmp_path}/f", deadline_s=0.1))
    assert await line.failure("k") == ("timeout", "the task did not end within its deadline of 0.1 s")
    assert lines(tmp_path / "f") == ["stopped"]


async def test_cancel_ends_a_task_and_no_other(bench: Bench, tmp_path: Path) -> None:
    line = await bench.line()
    line.session.send(task("one", f"sleep 600 {tmp_path}/one"))
    line.session.send(task("two", f"await {tmp_path}/go"))
    await line.accepted("two")
    line.session.send(Cancel(key="one", reason="enough"))
    line.session.send(Cancel(key="never", reason="there is no such task"))
    assert await line.failures("one", "never") == {
        "one": ("cancelled", "enough"),
        "never": ("cancelled", "the task does not run here"),
    }
    assert lines(tmp_path / "one") == ["stopped"]
    (tmp_path / "go").touch()
    assert isinstance(await line.outcome("two"), TaskDone)


async def test_a_flood_of_samples_is_read_in_order_without_gaps(bench: Bench) -> None:
    line = await bench.line()
    line.session.send(task("k", "samples 900"))
    await line.outcome("k")
    sequences = [message.sequence for message in line.messages() if isinstance(message, Sample)]
    assert sequences == list(range(1, 901))


async def test_samples_that_do_not_fit_are_dropped_and_counted(bench: Bench) -> None:
    line = await bench.line()
    line.session.send(task("k", "samples 5000"))  # at once, without a chance to send in between
    await line.outcome("k")
    notice = await line.message(LogLine)
    sequences = [message.sequence for message in line.messages() if isinstance(message, Sample)]
    assert sequences == sorted(set(sequences))
    dropped = 5001 - len(sequences)  # the samples and the log line behind them
    assert isinstance(notice, LogLine) and notice.text.startswith(f"{dropped} messages of this agent")


# ---- the end of a session --------------------------------------------------------------------------------------------


async def test_goodbye_closes_resources_in_reverse_order_and_removes_all_files(bench: Bench, tmp_path: Path) -> None:
    line = await bench.line()
    file = tmp_path / "f"
    line.session.send(
        task("k", f"resource a {file}", f"resource b {file}", f"work-dir {tmp_path}/dir", f"spawn {tmp_path}/pid")
    )
    await line.outcome("k")
    line.session.send(task("long", f"sleep 600 {file}"))
    await line.accepted("long")
    work_dir = Path(lines(tmp_path / "dir")[0])
    assert stat.S_IMODE(work_dir.stat().st_mode) == 0o700
    await line.session.close(keep_data=True)
    assert lines(file) == ["stopped", "closed b keep_data=True", "closed a keep_data=True"]
    assert not work_dir.exists()
    child = int(lines(tmp_path / "pid")[0])
    directory = bench.fabric.directory
    assert directory is not None
    await eventually(lambda: all(is_gone(pid) for pid in (*bench.fabric.pids, child)), "agent and its child are gone")
    await eventually(lambda: not directory.exists(), "the private directory is gone")
    assert [event for event in line.rest() if type(event).__name__ == "Lost"] == []


async def test_the_private_directory_is_private_and_holds_no_key(bench: Bench) -> None:
    await bench.start()
    directory = bench.fabric.directory
    assert directory is not None
    found = sorted(directory.rglob("*"))
    files = [path for path in found if path.is_file()]
    assert {"journal.sqlite", "audit.jsonl"} & {path.name for path in files}, "the agent's state is there"
    assert not [path for path in files if b"PRIVATE KEY" in path.read_bytes() or b"CERTIFICATE" in path.read_bytes()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in (directory, directory / "agent-db1-1")} == {0o700}


async def test_an_agent_without_a_connection_exits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_ORPHAN_S", "0.3")
    monkeypatch.setenv("PROVEOUT_PASS_ENV", "FAKE_ORPHAN_S")
    fabric = LocalFabric(FAKE_AGENT)
    try:
        await fabric.start(["db1"], tmp_path)
        directory = fabric.directory
        assert directory is not None
        await eventually(lambda: all(is_gone(pid) for pid in fabric.pids), "the agent is gone")
        assert not directory.exists()
    finally:
        await fabric.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_stops_the_tasks_and_closes_resources(
    bench: Bench, tmp_path: Path, number: signal.Signals
) -> None:
    line = await bench.line()
    line.session.send(task("r", f"resource a {tmp_path}/f"))
    await line.outcome("r")
    line.session.send(task("k", f"sleep 600 {tmp_path}/f"))
    await line.accepted("k")
    os.kill(bench.fabric.pids[0], number)
    assert await line.failure("k") == ("cancelled", "the agent is shutting down")
    await line.lost()
    await eventually(lambda: is_gone(bench.fabric.pids[0]), "the agent is gone")
    assert lines(tmp_path / "f") == ["stopped", "closed a keep_data=True"]


async def test_a_killed_agent_is_lost_at_once_and_its_children_are_ended(bench: Bench, tmp_path: Path) -> None:
    line = await bench.line(beat_s=2.0, lease_s=600.0)  # so long that only the broken stream shows the loss
    line.session.send(task("k", f"spawn {tmp_path}/pid", "sleep 600"))
    await eventually(lambda: lines(tmp_path / "pid") != [], "the child runs")
    os.kill(bench.fabric.pids[0], signal.SIGKILL)
    assert "nothing listens there" in await line.lost()
    await bench.fabric.close()
    await eventually(lambda: is_gone(int(lines(tmp_path / "pid")[0])), "its child is gone")


async def test_a_lost_agent_can_be_started_again(bench: Bench) -> None:
    line = await bench.line()
    os.kill(bench.fabric.pids[0], signal.SIGKILL)
    await line.lost()
    again = await bench.line()
    again.session.send(task("k", "sleep 0"))
    assert isinstance(await again.outcome("k"), TaskDone)


async def test_an_agent_that_is_stopped_is_lost_and_ends_itself_when_it_wakes(bench: Bench, tmp_path: Path) -> None:
    line = await bench.line(lease_s=8.0)
    line.session.send(task("k", f"sleep 600 {tmp_path}/f"))
    await line.accepted("k")
    os.kill(bench.fabric.pids[0], signal.SIGSTOP)
    assert (await line.lost()).startswith("no answer for")
    os.kill(bench.fabric.pids[0], signal.SIGCONT)
    await eventually(lambda: is_gone(bench.fabric.pids[0]), "the agent is gone")
    assert lines(tmp_path / "f") == ["stopped"]


COORDINATOR = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from fabric_bench import Bench, FAKE_AGENT, task
from proveout.coordinator.agents.local_agents import LocalFabric

async def main():
    bench = Bench(LocalFabric(FAKE_AGENT), Path({logs!r}))
    for host in ("db1", "db2"):
        line = await bench.connect(await bench.start(host), host=host)
        line.session.send(task("k", f"where {files}/pids", f"spawn {files}/pids", f"sleep 600 {files}/stopped"))
        await line.accepted("k")
    print(bench.fabric.directory, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_a_killed_coordinator_leaves_no_agent_no_child_and_no_directory(tmp_path: Path) -> None:
    script = COORDINATOR.format(tests=str(Path(__file__).parent), logs=str(tmp_path / "logs"), files=str(tmp_path))
    coordinator = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        assert coordinator.stdout is not None
        directory = Path((await asyncio.to_thread(coordinator.stdout.readline)).strip())
        assert directory.is_dir()
        await eventually(lambda: len(lines(tmp_path / "pids")) == 4, "agents and their children run")
    finally:
        coordinator.kill()
        coordinator.wait()
        assert coordinator.stdout is not None
        coordinator.stdout.close()
    await eventually(lambda: all(is_gone(int(pid)) for pid in lines(tmp_path / "pids")), "all processes are gone")
    await eventually(lambda: not directory.exists(), "the private directory is gone")
    assert lines(tmp_path / "stopped") == ["stopped", "stopped"]


async def test_the_error_of_an_agent_that_does_not_start_quotes_its_stderr(tmp_path: Path) -> None:
    code = "import sys; sys.stderr.write('cannot bear it\\n'); sys.exit(3)"
    fabric = LocalFabric([sys.executable, "-c", code])
    try:
        with pytest.raises(LocalAgentError, match="did not start: cannot bear it") as caught:
            await fabric.start(["db1"], tmp_path)
        assert f"Its log is {tmp_path}/agent-db1.log" in str(caught.value)
    finally:
        await fabric.close()


async def test_the_error_of_an_agent_has_what_where_and_the_way_out(tmp_path: Path) -> None:
    """Not the last line alone, which is the way out."""
    fault = "/p/policy.yaml: other users can write the policy\\n  chown root /p/policy.yaml\\n"
    record = "2026-11-24 20:37:38,079 INFO proveout: the policy of this host is /p/policy.yaml\\n"
    fabric = LocalFabric([sys.executable, "-c", f"import sys; sys.stderr.write('{record}{fault}'); sys.exit(2)"])
    try:
        with pytest.raises(LocalAgentError) as caught:
            await fabric.start(["db1"], tmp_path)
        assert caught.value.what.endswith("did not start: /p/policy.yaml: other users can write the policy")
        assert caught.value.way_out.startswith("chown root /p/policy.yaml. Its log is ")
    finally:
        await fabric.close()


async def test_close_accepts_an_agent_that_has_exited_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "proveout.coordinator.agents.local_agents.LEAVE_S", 0.0
    )  # the wait ends before the exit of the process is noticed
    fabric = LocalFabric([sys.executable, "-c", "print('listening 127.0.0.1:1')"])
    try:
        await fabric.start(["db1"], tmp_path)
        await eventually(lambda: is_gone(fabric.pids[0]), "the process has exited")
    finally:
        await fabric.close()
    assert fabric.pids == ()


async def test_several_agents_share_the_directory_and_nothing_else(bench: Bench) -> None:
    addresses = await bench.fabric.start(["a", "b", "c"], bench.log_dir)
    assert list(addresses) == ["a", "b", "c"] and len(set(addresses.values())) == 3
    sessions = [await bench.connect(addresses[host], host=host) for host in addresses]
    directory = bench.fabric.directory
    assert directory is not None
    await sessions[0].session.close()
    await eventually(lambda: len(list(directory.iterdir())) == 2, "the first has removed its own directory")
    for line in sessions[1:]:
        line.session.send(task("k", "sleep 0"))
        assert isinstance(await line.outcome("k"), TaskDone)
