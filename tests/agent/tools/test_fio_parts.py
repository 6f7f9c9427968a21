"""fio's argv and its output as data: the arguments, and the results parsed from the output. No process is started here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proveout.agent.errors import TaskFault
from proveout.agent.security.policy import Policy
from proveout.agent.tools.fio import Documents, FioRun, check_devices, lay_out_argv, run_argv, snapshot
from proveout.agent.tools.program import PREFIX, ToolFolder
from proveout.dsl.plan.commands import FioJob
from proveout.dsl.plan.stages import Windows
from proveout.proto.wire import histogram
from proveout.proto.wire.tasks import RunFio

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
        (Policy(devices=(DEVICE,)), True, False, "destructive: true"),
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
