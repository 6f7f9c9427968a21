"""Local agents as child processes: how they start, and the clean-up after each kind of end."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from eventually import eventually_async
from fabric_bench import FAKE_AGENT, Bench, is_gone, lines, task

from proveout.coordinator.agents.local_agents import LocalAgentError, LocalFabric
from proveout.proto.wire.messages import TaskDone

pytestmark = pytest.mark.server


async def test_goodbye_closes_resources_in_reverse_order_and_removes_all_files(bench: Bench, tmp_path: Path) -> None:
    address = await bench.start()
    directory = bench.fabric.directory
    assert directory is not None
    files = [path for path in directory.rglob("*") if path.is_file()]
    assert {"journal.sqlite", "audit.jsonl"} & {path.name for path in files}, "the agent's state is there"
    assert not [path for path in files if b"PRIVATE KEY" in path.read_bytes() or b"CERTIFICATE" in path.read_bytes()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in (directory, directory / "agent-db1-1")} == {0o700}
    line, file = await bench.connect(address), tmp_path / "f"
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
    pids = (*bench.fabric.pids, int(lines(tmp_path / "pid")[0]))
    await eventually_async(lambda: all(is_gone(pid) for pid in pids), "agent and its child are gone")
    await eventually_async(lambda: not directory.exists(), "the private directory is gone")
    assert [event for event in line.rest() if type(event).__name__ == "Lost"] == []


async def test_an_agent_without_a_connection_exits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_ORPHAN_S", "0.3")
    monkeypatch.setenv("PROVEOUT_PASS_ENV", "FAKE_ORPHAN_S")
    fabric = LocalFabric(FAKE_AGENT)
    try:
        await fabric.start(["db1"], tmp_path)
        directory = fabric.directory
        assert directory is not None
        await eventually_async(lambda: all(is_gone(pid) for pid in fabric.pids), "the agent is gone")
        assert not directory.exists()
    finally:
        await fabric.close()


async def test_a_signal_stops_the_tasks_and_closes_resources(bench: Bench, tmp_path: Path) -> None:
    line = await bench.line()
    line.session.send(task("r", f"resource a {tmp_path}/f"))
    await line.outcome("r")
    line.session.send(task("k", f"sleep 600 {tmp_path}/f"))
    await line.accepted("k")
    os.kill(bench.fabric.pids[0], signal.SIGTERM)
    assert await line.failure("k") == ("cancelled", "the agent is shutting down")
    await line.lost()
    await eventually_async(lambda: is_gone(bench.fabric.pids[0]), "the agent is gone")
    assert lines(tmp_path / "f") == ["stopped", "closed a keep_data=True"]


async def test_a_killed_agent_is_lost_at_once_and_can_be_started_again(bench: Bench, tmp_path: Path) -> None:
    line = await bench.line()
    line.session.send(task("k", f"spawn {tmp_path}/pid", "sleep 600"))
    (child,) = await eventually_async(lambda: lines(tmp_path / "pid"), "the child runs")
    os.kill(bench.fabric.pids[0], signal.SIGKILL)
    assert "nothing listens there" in await line.lost(), "only the broken stream shows it: its lease is long"
    line.session.send(task("unheard", "sleep 0"))
    await line.session.close()
    assert line.events.empty(), "no event follows Lost"
    again = await bench.line()
    again.session.send(task("k", "sleep 0"))
    assert isinstance(await again.outcome("k"), TaskDone)
    await again.session.close()
    await bench.fabric.close()
    await eventually_async(lambda: is_gone(int(child)), "the child of the killed one is gone")


COORDINATOR = """
import asyncio, sys
from pathlib import Path
sys.path[:0] = [{tests!r}, {above!r}]
from fabric_bench import Bench, FAKE_AGENT, task
from proveout.coordinator.agents.local_agents import LocalFabric

async def main():
    bench = Bench(LocalFabric(FAKE_AGENT), Path({logs!r}))
    for host in ("db1", "db2"):
        line = await bench.connect(await bench.start(host), host=host, lease_s=2.0)
        line.session.send(task("k", f"where {files}/pids", f"spawn {files}/pids", f"sleep 600 {files}/stopped"))
        await line.accepted("k")
    print(bench.fabric.directory, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_a_killed_coordinator_leaves_no_agent_no_child_and_no_directory(tmp_path: Path) -> None:
    folder = Path(__file__).parent
    script = COORDINATOR.format(tests=str(folder), above=str(folder.parent), logs=f"{tmp_path}/logs", files=tmp_path)
    coordinator = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        assert coordinator.stdout is not None
        directory = Path((await asyncio.to_thread(coordinator.stdout.readline)).strip())
        assert directory.is_dir()
        await eventually_async(lambda: len(lines(tmp_path / "pids")) == 4, "agents and their children run")
    finally:
        coordinator.kill()
        coordinator.wait()
        assert coordinator.stdout is not None
        coordinator.stdout.close()
    await eventually_async(lambda: all(is_gone(int(pid)) for pid in lines(tmp_path / "pids")), "all processes are gone")
    await eventually_async(lambda: not directory.exists(), "the private directory is gone")
    assert lines(tmp_path / "stopped") == ["stopped", "stopped"]


async def test_the_error_of_an_agent_that_does_not_start_has_what_where_and_the_way_out(tmp_path: Path) -> None:
    """Of its stderr, and not the last line alone, which is the way out."""
    fault = "/p/policy.yaml: other users can write the policy\\n  chown root /p/policy.yaml\\n"
    record = "2026-11-24 20:37:38,079 INFO proveout: the policy of this host is /p/policy.yaml\\n"
    fabric = LocalFabric([sys.executable, "-c", f"import sys; sys.stderr.write('{record}{fault}'); sys.exit(2)"])
    try:
        with pytest.raises(LocalAgentError) as caught:
            await fabric.start(["db1"], tmp_path)
        assert caught.value.what.endswith("did not start: /p/policy.yaml: other users can write the policy")
        assert caught.value.way_out.startswith(f"chown root /p/policy.yaml. Its log is {tmp_path}/agent-db1.log")
    finally:
        await fabric.close()


async def test_close_accepts_an_agent_that_has_exited_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the wait ends before the exit of the process is noticed
    monkeypatch.setattr("proveout.coordinator.agents.local_agents.LEAVE_S", 0.0)
    fabric = LocalFabric([sys.executable, "-c", "print('listening 127.0.0.1:1')"])
    try:
        await fabric.start(["db1"], tmp_path)
        await eventually_async(lambda: is_gone(fabric.pids[0]), "the process has exited")
    finally:
        await fabric.close()
    assert fabric.pids == ()
