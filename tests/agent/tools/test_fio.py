"""fio: its argv and its output as data; the real fio, on small files and on a loop device; and programs that stand in for one
that fails.

The stand-ins show how an agent handles output and exit codes; the tests with the real fio show that it writes such output."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from eventually import PATIENCE_S, eventually_async
from fabric_bench import is_gone

from proveout.agent.errors import TaskFault
from proveout.agent.sandbox import privileges
from proveout.agent.sandbox.privileges import INHERITED
from proveout.agent.security.policy import Policy
from proveout.agent.tools import fio
from proveout.agent.tools.fio import Documents, FioRun, check_devices, lay_out_argv, run_argv, snapshot
from proveout.agent.tools.program import PREFIX, Program, ToolFolder
from proveout.agent.tuning import host as tuning_host
from proveout.dsl.plan.commands import FioJob
from proveout.dsl.plan.stages import Windows
from proveout.proto.wire import histogram
from proveout.proto.wire.results import LoadResult, LoadSecond
from proveout.proto.wire.tasks import PrepareFio, RunFio

MIB = 1024 * 1024
READS = FioJob(random=True, block_bytes=4096, read_fraction=1.0, jobs=3, size_bytes=MIB)
MIXED = FioJob(random=True, block_bytes=8192, read_fraction=0.7, jobs=2, size_bytes=MIB)
WINDOWS = Windows(ramp_up_s=2.0, measure_s=3.0, ramp_down_s=0.0)
S = 1_000_000_000


def spec(job: FioJob, *, first_slice: int = 0) -> RunFio:
    return RunFio(job=job, iodepth=16, windows=WINDOWS, label="a/16/1/1", first_slice=first_slice)


def side(ios: int, bins: dict[int, int], runtime_ms: int) -> dict[str, Any]:
    latency: dict[str, Any] = {"N": sum(bins.values()), "min": 0, "max": 0, "mean": 0.0}
    if bins:
        mean = sum(value * count for value, count in bins.items()) / sum(bins.values())
        latency = {"N": sum(bins.values()), "min": min(bins), "max": max(bins), "mean": mean, "percentile": {}}
        latency["bins"] = {str(value): count for value, count in bins.items()}
    return {"total_ios": ios, "runtime": runtime_ms, "lat_ns": latency}


def document(read: dict[str, Any], write: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    nothing = side(0, {}, 0)
    job = {"read": read, "write": write or nothing, "usr_cpu": 5.0, "sys_cpu": 20.0, "job_runtime": 6000, **more}
    return {"fio version": "fio-3.33", "jobs": [job]}


# ---- argv ----------------------------------------------------------------------------------------------------------


def test_one_file_per_job_and_a_read_only_job_has_the_readonly_option() -> None:
    argv = run_argv("/usr/bin/fio", spec(READS))
    assert argv[0] == "/usr/bin/fio"
    common = {"--ioengine=libaio", "--direct=1", "--thread=1", "--time_based=1", "--randrepeat=0", "--norandommap=1",
              "--group_reporting=1", "--lat_percentiles=1", "--blockalign=4096", "--output-format=json+"}  # fmt: skip
    assert common <= set(argv)
    windows = {"--ramp_time=2000000us", "--runtime=3000000us", "--iodepth=16", "--rw=randread", "--bs=4096"}
    assert windows | {"--readonly"} <= set(argv)
    names = [word for word in argv if word.startswith("--filename")]
    assert names == ["--filename=job0.dat", "--filename=job1.dat", "--filename=job2.dat"]
    assert not any(word.startswith(("--offset", "--server", "--client")) for word in argv)
    argv = run_argv("fio", spec(MIXED))
    assert {"--rw=randrw", "--rwmixread=70", "--overwrite=1"} <= set(argv)
    assert "--readonly" not in argv
    assert {"--create_only=1", "--rw=read", f"--size={MIB}"} <= set(lay_out_argv("fio", MIXED))
    for random, reads, mode in (
        (True, 0.0, "randwrite"),
        (False, 1.0, "read"),
        (False, 0.0, "write"),
        (False, 0.5, "rw"),
    ):
        job = FioJob(random=random, block_bytes=MIB, read_fraction=reads, jobs=1, size_bytes=MIB)
        assert f"--rw={mode}" in run_argv("fio", spec(job))


def test_slices_of_devices_are_disjoint_between_jobs_and_hosts() -> None:
    devices = ("/dev/disk/by-id/wwn-1", "/dev/disk/by-id/scsi-36:0")
    job = FioJob(random=False, block_bytes=MIB, read_fraction=1.0, jobs=4, size_bytes=5 * MIB, devices=devices)
    taken = []
    for first in (0, 2):  # two jobs on each device of either host
        argv = run_argv("fio", spec(job, first_slice=first))
        names = [word for word in argv if word.startswith("--filename=")]
        offsets = [int(word.partition("=")[2]) for word in argv if word.startswith("--offset=")]
        assert names[1] == "--filename=/dev/disk/by-id/scsi-36\\:0", "a colon would end the name"
        taken += list(zip(names, offsets, strict=True))
    assert len(set(taken)) == 8
    assert {offset for _, offset in taken} == {0, 5 * MIB, 10 * MIB, 15 * MIB}
    odd = replace(job, size_bytes=5_000_000_000)  # 5GB: no whole number of 4 KiB
    argv = run_argv("fio", spec(odd, first_slice=3))
    assert next(word for word in argv if word.startswith("--offset=")) == f"--offset={3 * 5_000_003_584}"


# ---- output --------------------------------------------------------------------------------------------------------


def test_text_before_the_json_object_is_kept_as_messages() -> None:
    documents = Documents()
    text = "fio: this platform does not support process shared mutexes\n" + json.dumps({"a": {"b": 1}}, indent=2) + "\n"
    found = [documents.take(line) for line in text.splitlines()]
    assert [item for item in found if item is not None] == [{"a": {"b": 1}}]
    assert list(documents.words) == ["fio: this platform does not support process shared mutexes"]
    assert [documents.take(line) for line in ("{", '"a": nonsense')] == [None, None]
    with pytest.raises(TaskFault, match="cannot parse the output of fio"):
        documents.take("}")


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"jobs": []},
        {"jobs": [{}]},
        {"jobs": [{**document(side(1, {9: 1}, 1))["jobs"][0], "usr_cpu": "NaN"}]},
        document({**side(1, {9: 1}, 1), "total_ios": -1}),
        document({**side(1, {9: 1}, 1), "runtime": float("nan")}),
        document({**side(1, {9: 1}, 1), "total_ios": 10**400}),
        document(side(1, {10**19: 1}, 1)),
        document({"total_ios": 1, "runtime": 1, "lat_ns": {"N": 1, "bins": {"x": 1}}}),
    ],
)
def test_a_document_without_its_numbers_is_a_fault(broken: dict[str, Any]) -> None:
    with pytest.raises(TaskFault) as caught:
        snapshot(broken, ["read"])
    assert caught.value.code == "fault"


def test_bins_become_our_histogram_with_the_exact_mean_and_extremes() -> None:
    now = snapshot(document(side(4, {1000: 1, 50_176: 2, 9_000_000: 1}, 1000)), ["read"])
    response = now.sides["read"].response
    assert histogram.count(response) == 4
    assert histogram.mean_ns(response) == pytest.approx((1000 + 2 * 50_176 + 9_000_000) / 4)
    assert (response.min_ns, response.max_ns) == (1000, 9_000_000)
    assert histogram.percentile_ns(response, 50.0) == pytest.approx(50_176, rel=0.001)
    none = snapshot(document(side(0, {}, 1000)), ["read"])
    assert (none.ios, histogram.percentiles_ns(none.sides["read"].response, (50.0,))) == (0, ())
    failed = snapshot(document(side(2, {1000: 2}, 1000), total_err=3, first_error=5), ["read"])
    assert (failed.errors, failed.first_error) == (3, "Input/output error")


@pytest.mark.parametrize(("counts", "errors", "succeeded"), [({1000: 7}, 3, 7), ({}, 10, 0), ({}, 0, 10)])
def test_failed_operations_are_not_counted_as_done(counts: dict[int, int], errors: int, succeeded: int) -> None:
    """fio has them in `total_ios`; in its ramp there are no latencies."""
    assert snapshot(document(side(10, counts, 1000), total_err=errors), ["read"]).ios == succeeded


def test_a_second_has_the_new_operations_and_counts_restart_with_the_window() -> None:
    it = FioRun(WINDOWS, t0_ns=100 * S)
    ramp = it.take(snapshot(document(side(5, {}, 700)), ["read"]), 101 * S + S // 5)
    first = it.take(snapshot(document(side(10, {2048: 10}, 1000)), ["read"]), 103 * S + S // 5)  # more than in the ramp
    second = it.take(snapshot(document(side(40, {2048: 15, 4096: 25}, 2000)), ["read"]), 104 * S + S // 5)
    assert ramp and first and second
    assert (ramp.window, first.window, second.window) == ("ramp_up", "measure", "measure")
    assert [item.transactions[0].counts.ok for item in (ramp, first, second)] == [5, 10, 30]
    assert [item.second for item in (ramp, first, second)] == [0, 2, 3]
    assert second.duration_s == 1.0
    response = second.transactions[0].response
    indices = histogram.indices_of(np.asarray([2048, 4096], dtype=np.int64)).tolist()
    assert dict(zip(response.indices, response.counts, strict=True)) == dict(zip(indices, (5, 25), strict=True))
    assert response.sum_ns == 5 * 2048 + 25 * 4096
    reset = it.take(snapshot(document(side(4, {2048: 4}, 500)), ["read"]), 104 * S + S * 7 // 10)
    assert reset and reset.transactions[0].counts.ok == 4


def test_the_result_is_the_last_snapshot_with_the_lateness_of_fio() -> None:
    it = FioRun(WINDOWS, t0_ns=100 * S)
    last = snapshot(document(side(70, {2048: 70}, 3000), side(30, {4096: 30}, 3000)), ["read", "write"])
    it.take(last, 105 * S + S // 2)
    assert it.take(last, 105 * S + S // 2) is None, "fio says its last word twice"
    result = it.result()
    assert [(item.counts.name, item.counts.ok) for item in result.transactions] == [("read", 70), ("write", 30)]
    assert result.ended_in_window == 100
    assert result.measure_end_ns - result.measure_start_ns == 3 * S
    assert result.start_skew_ns == S // 2
    assert result.client_cpu_fraction == 0.25
    assert result.client_cpu_s == pytest.approx(1.5)
    assert result.seconds_produced == 1


def test_a_second_without_completed_operations_is_sent_and_a_repeated_report_is_not() -> None:
    it = FioRun(WINDOWS, t0_ns=100 * S)
    it.take(snapshot(document(side(10, {2048: 10}, 1000)), ["read"]), 103 * S)
    still = it.take(snapshot(document(side(10, {2048: 10}, 2000)), ["read"]), 104 * S)
    assert still is not None
    assert (still.transactions[0].counts.ok, still.transactions[0].response.counts) == (0, ())
    assert it.take(snapshot(document(side(10, {2048: 10}, 2001)), ["read"]), 104 * S) is None
    with pytest.raises(TaskFault, match=r"measured only 2 s of 3 s"):
        it.result()


# ---- folders and devices -------------------------------------------------------------------------------------------


def test_a_folder_that_cannot_be_given_to_its_user_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "fchown", refuse)
    with pytest.raises(TaskFault, match="Operation not permitted"):
        ToolFolder.enter(tmp_path, 60_001)
    assert list(tmp_path.iterdir()) == []


def test_an_unlocked_folder_is_removed_and_a_locked_one_stays(tmp_path: Path) -> None:
    left = tmp_path / f"{PREFIX}left"
    left.mkdir()
    (left / "job0.dat").write_bytes(b"x")
    other = tmp_path / "another"
    other.mkdir()
    held = ToolFolder.enter(tmp_path, None)
    again = ToolFolder.enter(tmp_path, None)
    assert not left.exists()
    assert held.path.is_dir()
    assert other.is_dir()
    again.leave()
    held.leave()
    held.leave()
    assert list(tmp_path.iterdir()) == [other]
    with pytest.raises(TaskFault, match="cannot create a folder") as caught:
        ToolFolder.enter(tmp_path / "nowhere", None)
    assert caught.value.code == "invalid"
    base = tmp_path / "of-a-run"
    base.mkdir()
    one, two = (ToolFolder.enter(base, None, is_last=True) for _ in range(2))
    one.leave()
    assert base.is_dir()
    two.leave()
    assert not base.exists(), "the last one removes the folder of the run"


DEVICE = "/dev/disk/by-id/proveout-none"


@pytest.mark.parametrize(
    ("policy", "writes", "destructive", "words"),
    [
        (Policy(), False, False, "is not allowed"),
        (Policy(devices=(DEVICE,)), True, False, "writing to devices needs `destructive: true`"),
        (Policy(devices=(DEVICE,)), True, True, "destroy data are not allowed"),
        (Policy(destructive=True), True, True, "is not allowed"),
        (Policy(devices=(DEVICE,), destructive=True), True, True, "cannot open"),
    ],
)
def test_a_device_needs_the_plan_and_the_host_to_agree(
    policy: Policy, writes: bool, destructive: bool, words: str
) -> None:
    job = FioJob(
        random=True,
        block_bytes=4096,
        read_fraction=0.0 if writes else 1.0,
        jobs=1,
        size_bytes=MIB,
        devices=(DEVICE,),
        destructive=destructive,
    )
    with pytest.raises(TaskFault, match=words) as caught:
        check_devices(job, policy)
    assert caught.value.code == "refused"


# ---- programs --------------------------------------------------------------------------------------------------------

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


@pytest.mark.server
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


@pytest.mark.server
@needs_fio
async def test_reading_a_disk_needs_root_and_the_policy(disk: str, armed_context: Any) -> None:
    job = replace(JOB, devices=(disk,), direct=True)
    assert (await failure(armed_context, run(job=job))).code == "refused"
    armed_context.policy = Policy(devices=(disk,))
    result = await fio.run_fio(armed_context, run(job=job))
    assert result.ended_in_window > 0


@pytest.mark.server
@needs_fio
async def test_an_empty_disk_is_written_and_one_with_a_signature_is_refused(
    disk: str, armed_context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    armed_context.policy = Policy(devices=(disk,), destructive=True)
    job = replace(JOB, devices=(disk,), read_fraction=0.0, destructive=True, direct=True)
    await fio.prepare_fio(armed_context, PrepareFio(job=job))
    result = await fio.run_fio(armed_context, run(job=job))
    assert result.transactions[0].counts.name == "write"
    assert result.ended_in_window > 0
    other_agent = os.open(disk, os.O_RDONLY | os.O_EXCL)  # whose question claims the disk for an instant

    def pauses_s() -> Iterator[float]:
        yield 0.0
        os.close(other_agent)
        yield 0.0

    monkeypatch.setattr(tuning_host, "CLAIM_PAUSES_S", pauses_s())
    check_devices(job, armed_context.policy)
    monkeypatch.undo()
    too_much = replace(job, size_bytes=64 * MIB)
    with pytest.raises(TaskFault, match="slices of its jobs end"):
        check_devices(too_much, armed_context.policy)
    subprocess.run(["mkswap", disk], check=True, capture_output=True, timeout=PATIENCE_S)
    before = Path(os.path.realpath(disk)).read_bytes()
    fault = await failure(armed_context, run(job=job))
    assert fault.code == "refused"
    assert "not empty" in fault.what
    assert Path(os.path.realpath(disk)).read_bytes() == before


# ---- faults --------------------------------------------------------------------------------------------------------


@pytest.mark.server
async def test_the_error_without_fio_names_the_package(
    armed_context: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    fault = await failure(armed_context, run())
    assert fault.code == "missing"
    assert "apt install fio" in fault.way_out
    assert fio.version() == ""
    (tmp_path / "fio").write_text("#!/bin/sh\necho 'error while loading shared libraries: libaio.so.1' >&2\nexit 127\n")
    (tmp_path / "fio").chmod(0o755)
    assert fio.version() == "", "it does not report one"


GOOD = """cat <<'EOF'
fio: a warning first
{
 "jobs": [{"read": {"total_ios": 5, "runtime": 200, "lat_ns": {"N": 5, "min": 900, "max": 1100, "mean": 1000.0,
 "bins": {"1000": 5}}}, "usr_cpu": 1.0, "sys_cpu": 2.0, "job_runtime": 400}]
}
EOF"""


@pytest.mark.server
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


@pytest.mark.server
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


@pytest.mark.server
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
    (place / "link").symlink_to(tmp_path)
    fault = await failure(armed_context, run(job=replace(job, directory=str(place / "link"))))
    assert fault.code == "refused" and f"a link leads to {place}/link" in fault.what
    (place / "link").unlink()
    await armed_context.close()
    assert list(place.iterdir()) == []


@pytest.mark.server
async def test_files_that_do_not_fit_are_not_created(armed_context: Any, stand_in: Callable[[str], None]) -> None:
    stand_in("exit 9")
    fault = await failure(armed_context, run(job=replace(JOB, size_bytes=2**50)))
    assert fault.code == "disk_full"
    assert not armed_context.is_armed


@pytest.mark.server
@pytest.mark.parametrize(("to", "ends"), [("2", "ok"), ("1", "longer than 100 bytes")])
async def test_a_program_that_writes_without_end_is_read_and_killed(to: str, ends: str, tmp_path: Path) -> None:
    """A pipe without a reader would keep it, and asyncio does not see its end before that of its output."""
    script = tmp_path / "script"
    script.write_text(f"#!/bin/sh\nhead -c 8000000 /dev/zero | tr '\\0' x >&{to}\necho ok\n")
    script.chmod(0o755)
    program = await Program.arm((str(script),), tmp_path, INHERITED)
    async with asyncio.timeout(PATIENCE_S):
        await program.go()
        try:
            found = (await program.output(100)).decode()
        except TaskFault as fault:
            found = fault.what
            await eventually_async(lambda: program._stdout._paused, "its pipe is full")  # type: ignore[attr-defined]
        await program.kill()
    assert ends in found


@pytest.mark.server
async def test_a_child_that_a_program_leaves_running_ends_with_it(tmp_path: Path) -> None:
    """As one that a script has started beside its load; it holds the standard error."""
    script = "tail -f /dev/null >/dev/null & echo $!; exit 3"
    program = await Program.arm(("/bin/sh", "-c", script), tmp_path, INHERITED)
    async with asyncio.timeout(PATIENCE_S):
        await program.go()
        child = int(await program.output(100))
        assert await program.ended() == 3
        await eventually_async(lambda: is_gone(child), "the end of the child")


@pytest.mark.server
async def test_the_number_of_an_ended_program_is_not_used_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It may be that of a program of the host by then, as of the one for the ramp-up after a long window."""
    program = await Program.arm(("/bin/true",), tmp_path, INHERITED)
    await program.go()
    assert await program.ended() == 0
    with monkeypatch.context() as patch:
        patch.setattr(os, "killpg", lambda *_: pytest.fail("a signal to another program"))
        await program.kill()


AGENT = """
import asyncio, sys
from pathlib import Path
from proveout.agent.sandbox.privileges import INHERITED
from proveout.agent.tools.program import Program

async def main():
    program = await Program.arm((sys.argv[1],), Path("/"), INHERITED)
    await program.go()
    print(program.pid, await anext(program.lines()), flush=True)
    await asyncio.sleep(1000)

asyncio.run(main())
"""


@pytest.mark.server
async def test_a_program_ends_with_its_children_when_its_agent_is_killed(tmp_path: Path) -> None:
    """As a load generator that a script starts."""
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\nsleep 1000 &\necho $!\nwait\n")
    script.chmod(0o755)
    argv = [sys.executable, "-P", "-c", AGENT, str(script)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout is not None
        pids = [int(word) for word in agent.stdout.readline().split()]
        assert all(map(psutil.pid_exists, pids))
        agent.kill()
    for pid in pids:
        await eventually_async(lambda pid=pid: is_gone(pid), "it is gone")
