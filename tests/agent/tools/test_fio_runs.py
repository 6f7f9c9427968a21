"""The real fio, on small files and on a loop device; and programs that stand in for one that fails.

The stand-ins show how an agent handles output and exit codes; the tests with the real fio show that it writes such
output.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from eventually import PATIENCE_S, eventually_async
from fabric_bench import is_gone

from proveout.agent.errors import TaskFault
from proveout.agent.sandbox import privileges
from proveout.agent.security.policy import Policy
from proveout.agent.tools import fio
from proveout.agent.tools.fio import check_devices
from proveout.agent.tools.program import ToolFolder
from proveout.dsl.plan.commands import FioJob
from proveout.dsl.plan.stages import Windows
from proveout.proto.wire import histogram
from proveout.proto.wire.results import LoadResult, LoadSecond
from proveout.proto.wire.tasks import PrepareFio, RunFio

pytestmark = pytest.mark.server

MIB = 1024 * 1024
JOB = FioJob(random=True, block_bytes=4096, read_fraction=1.0, jobs=2, size_bytes=4 * MIB, direct=False)
SHORT = Windows(ramp_up_s=0.0, measure_s=0.2, ramp_down_s=0.0)
needs_fio = pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not on this host")


@pytest.fixture
def armed_context(task_context: Any) -> Any:
    """A context that starts as soon as the load is armed."""

    async def started() -> int:
        return time.monotonic_ns()

    task_context.is_armed = 0

    def armed() -> None:
        task_context.is_armed += 1

    task_context.armed, task_context.started = armed, started
    return task_context


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Put a shell script in fio's place; it creates no files and runs as the user that runs the tests."""
    monkeypatch.setattr(privileges, "account", lambda: None)
    folder = tmp_path / "bin"
    folder.mkdir()

    def put(body: str) -> None:
        script = folder / "fio"
        script.write_text(f'#!/bin/sh\ncase "$*" in *--create_only=1*) exit 0;; esac\n{body}\n')
        script.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    return put


def run(windows: Windows = SHORT, job: FioJob = JOB) -> RunFio:
    return RunFio(job=job, iodepth=2, windows=windows, label="a/2/1/1")


async def failure(context: Any, spec: RunFio) -> TaskFault:
    with pytest.raises(TaskFault) as caught:
        await fio.run_fio(context, spec)
    return caught.value


async def first_line(path: Path, task: asyncio.Task[Any]) -> str:
    """Wait until a stand-in has written a line; return it."""
    await eventually_async(lambda: task.done() or (path.exists() and path.read_text().endswith("\n")), "it has begun")
    assert not task.done()
    return path.read_text().strip()


# ---- the real fio --------------------------------------------------------------------------------------------------


@needs_fio
async def test_a_mix_on_files_from_arming_to_result(armed_context: Any) -> None:
    job = replace(JOB, read_fraction=0.5)
    await fio.prepare_fio(armed_context, PrepareFio(job=job))
    (grounds,) = armed_context.resources.values()
    assert isinstance(grounds, ToolFolder)
    files = sorted(grounds.path.iterdir())
    assert [(path.name, path.stat().st_size) for path in files] == [("job0.dat", 4 * MIB), ("job1.dat", 4 * MIB)]
    account = privileges.account()
    owner = os.geteuid() if account is None else account.uid
    assert {path.stat().st_uid for path in files} == {owner}, "fio gives its privileges up"
    before = [path.stat().st_mtime_ns for path in files]
    await fio.prepare_fio(armed_context, PrepareFio(job=replace(job, jobs=1)))
    assert [path.stat().st_mtime_ns for path in files] == before, "what is there is not made again"
    windows = Windows(ramp_up_s=0.1, measure_s=1.0, ramp_down_s=0.0)
    began_ns = time.monotonic_ns()
    result = await fio.run_fio(armed_context, run(windows, job))
    _check_result(result, windows, began_ns, armed_context)
    await armed_context.close()
    assert not grounds.path.exists()


def _check_result(result: LoadResult, windows: Windows, began_ns: int, context: Any) -> None:
    read, write = result.transactions
    assert (read.counts.name, write.counts.name) == ("read", "write")
    assert read.counts.ok > 0
    assert write.counts.ok > 0
    assert result.ended_in_window == read.counts.ok + write.counts.ok
    share = read.counts.ok / result.ended_in_window
    assert 0.3 < share < 0.7
    assert histogram.count(read.response) >= read.counts.ok, "bins hold every I/O"
    assert read.response.min_ns <= (histogram.mean_ns(read.response) or 0.0) <= read.response.max_ns
    length_s = (result.measure_end_ns - result.measure_start_ns) / 1e9
    assert length_s >= windows.measure_s * 0.99
    assert began_ns < result.measure_start_ns < result.measure_end_ns <= time.monotonic_ns()
    seconds = [item for item in context.samples if isinstance(item, LoadSecond)]
    assert len(seconds) == result.seconds_produced >= 1
    measured = [item for item in seconds if item.window == "measure"]
    counted = sum(part.counts.ok for item in measured for part in item.transactions)
    assert counted == pytest.approx(result.ended_in_window, rel=0.02)
    assert context.is_armed == 1


@needs_fio
async def test_reading_a_disk_needs_root_and_the_policy(disk: str, armed_context: Any) -> None:
    job = replace(JOB, devices=(disk,), direct=True)
    assert (await failure(armed_context, run(job=job))).code == "refused"
    armed_context.policy = Policy(devices=(disk,))
    result = await fio.run_fio(armed_context, run(job=job))
    assert result.ended_in_window > 0


@needs_fio
async def test_an_empty_disk_is_written_and_one_with_a_signature_is_refused(disk: str, armed_context: Any) -> None:
    armed_context.policy = Policy(devices=(disk,), destructive=True)
    job = replace(JOB, devices=(disk,), read_fraction=0.0, destructive=True, direct=True)
    await fio.prepare_fio(armed_context, PrepareFio(job=job))
    result = await fio.run_fio(armed_context, run(job=job))
    assert result.transactions[0].counts.name == "write"
    assert result.ended_in_window > 0
    too_much = replace(job, size_bytes=64 * MIB)
    with pytest.raises(TaskFault, match="slices of its jobs end"):
        check_devices(too_much, armed_context.policy)
    subprocess.run(["mkswap", disk], check=True, capture_output=True, timeout=PATIENCE_S)
    before = Path(os.path.realpath(disk)).read_bytes()
    fault = await failure(armed_context, run(job=job))
    assert fault.code == "refused"
    assert "not empty" in fault.what
    assert Path(os.path.realpath(disk)).read_bytes() == before


@needs_fio
def test_the_version_is_that_of_fio() -> None:
    assert fio.version().startswith("fio-")


# ---- faults --------------------------------------------------------------------------------------------------------


async def test_the_error_without_fio_names_the_package(
    armed_context: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    fault = await failure(armed_context, run())
    assert fault.code == "missing"
    assert "apt install fio" in fault.way_out
    assert fio.version() == ""


GOOD = """cat <<'EOF'
fio: a warning first
{
 "jobs": [{"read": {"total_ios": 5, "runtime": 200, "lat_ns": {"N": 5, "min": 900, "max": 1100, "mean": 1000.0,
 "bins": {"1000": 5}}}, "usr_cpu": 1.0, "sys_cpu": 2.0, "job_runtime": 400}]
}
EOF"""


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        (f"{GOOD}\necho boom >&2\nexit 1", "fault", "exit code 1: boom"),
        ("exit 0", "fault", "it wrote no message"),
        ("echo '{'", "fault", "cannot parse the output of fio"),
        ("echo 'fio: No space left on device' >&2; exit 1", "disk_full", "No space left"),
        ("echo 'destination does not support O_DIRECT' >&2; exit 1", "invalid", "O_DIRECT"),
        ("kill -9 $$", "fault", "signal 9"),
        ("head -c 2000000 /dev/zero | tr '\\0' x", "fault", "longer than"),
    ],
)
async def test_the_fault_of_a_failed_program_quotes_its_output(
    armed_context: Any, stand_in: Callable[[str], None], body: str, code: str, words: str
) -> None:
    stand_in(body)
    fault = await failure(armed_context, run())
    assert fault.code == code
    assert words in fault.what


@pytest.mark.parametrize("cancelled", [False, True], ids=["it hangs", "its task is cancelled"])
async def test_a_program_is_killed_with_its_children(
    cancelled: bool,
    armed_context: Any,
    stand_in: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    hangs = f"echo $$ > {tmp_path}/own; echo $! > {tmp_path}/child; sleep 1000"
    if cancelled:
        stand_in(f"sleep 1000 & {hangs}")
        task = asyncio.create_task(fio.run_fio(armed_context, run(replace(SHORT, measure_s=900.0))))
        pids = [int(await first_line(tmp_path / name, task)) for name in ("own", "child")]
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        monkeypatch.setattr(fio, "OVERTIME_S", 0.0)
        stand_in(f"sleep 1000 & {hangs}")
        assert (await failure(armed_context, run())).code == "timeout"
        written = (path.read_text() for path in (tmp_path / "own", tmp_path / "child") if path.exists())
        pids = [int(text) for text in written if text.endswith("\n")]
    for pid in pids:
        await eventually_async(lambda pid=pid: is_gone(pid), "it is gone")


async def test_a_folder_of_the_plan_needs_the_policy(
    armed_context: Any, stand_in: Callable[[str], None], tmp_path: Path
) -> None:
    stand_in(GOOD)
    place = tmp_path / "data"
    place.mkdir()
    job = replace(JOB, directory=str(place))
    fault = await failure(armed_context, run(job=job))
    assert fault.code == "refused"
    armed_context.policy = Policy(paths=(str(place),))
    assert (await fio.run_fio(armed_context, run(job=job))).ended_in_window == 5
    assert len(list(place.iterdir())) == 1
    await armed_context.close()
    assert list(place.iterdir()) == []


async def test_files_that_do_not_fit_are_not_created(armed_context: Any, stand_in: Callable[[str], None]) -> None:
    stand_in("exit 9")
    fault = await failure(armed_context, run(job=replace(JOB, size_bytes=2**50)))
    assert fault.code == "disk_full"
    assert not armed_context.is_armed


AGENT = """
import asyncio, sys
from pathlib import Path
from proveout.agent.sandbox.privileges import INHERITED
from proveout.agent.tools.program import Program

async def main():
    program = await Program.arm(("/bin/sleep", "1000"), Path("/"), INHERITED)
    await program.go()
    print(program._process.pid, flush=True)
    await asyncio.sleep(1000)

asyncio.run(main())
"""


async def test_fio_ends_when_its_agent_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-P", "-c", AGENT], stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout is not None
        pid = int(agent.stdout.readline())
        assert psutil.pid_exists(pid)
        agent.kill()
    await eventually_async(lambda: is_gone(pid), "it is gone")
