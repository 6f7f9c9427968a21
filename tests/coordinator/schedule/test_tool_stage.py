"""`tool` stages on the coordinator: simulated runs of one, and the source of its numbers. fio itself is not started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from records import begun, load_result, run_started
from run_simulator import Fault, World
from simulated import PLAN, completed

from proveout.coordinator.measure import summarise
from proveout.coordinator.measure.load_merge import Observations
from proveout.coordinator.report.figures import figure as pictures
from proveout.coordinator.report.figures.stage_figures import iops_by_queue_depth
from proveout.coordinator.report.tables import io_columns, node_trees
from proveout.coordinator.results.results import load_results
from proveout.dsl import metrics
from proveout.dsl.compile import result_names
from proveout.dsl.expr import checking
from proveout.dsl.plan.commands import FioJob
from proveout.dsl.plan.plan import Plan, to_data
from proveout.dsl.plan.stages import Limits, Tool, Windows
from proveout.dsl.plan.topology import Host
from proveout.proto import events
from proveout.proto.events import IterationFinished, IterationId
from proveout.proto.wire import histogram
from proveout.proto.wire.results import LoadResult, LoadSecond, TransactionCounts, TransactionLoad
from proveout.proto.wire.tasks import PrepareFio, ReadFacts, RunFio

S = 1_000_000_000
JOB = FioJob(random=True, block_bytes=8192, read_fraction=0.7, jobs=4, size_bytes=1 << 20)
WINDOWS = Windows(ramp_up_s=1.0, measure_s=2.0, ramp_down_s=0.0)
STAGE = Tool(
    id="mixed",
    clients=("client1", "client2"),
    pattern="mixed-8k-70-30",
    job=JOB,
    iodepths=(2, 4),
    windows=WINDOWS,
    repeat=2,
    captures=("os",),
    limits=Limits(errors_fraction_max=0.0, start_skew_ms_max=2000.0),
)
TOOLED = replace(
    PLAN,
    hosts=tuple(Host(name=host.name, roles=host.roles, address="local") for host in PLAN.hosts),
    systems=(),
    workloads=(),
    captures=tuple(capture for capture in PLAN.captures if capture.kind == "os"),
    stages=(STAGE,),
)


def fio_keys(world: World) -> list[str]:
    return [key for key in world.keys if "/fio" in key]


def test_files_are_created_once_and_every_repeat_runs_all_depths() -> None:
    world = completed(TOOLED)
    keys = fio_keys(world)
    assert [key.rpartition("/")[2] for key in keys if "fio-files" in key] == ["client1", "client2"]
    ran = [tuple(key.split("/")[1:4]) for key in keys if "fio-files" not in key]
    order = [("mixed", str(depth), str(repeat)) for repeat in (1, 2) for depth in (2, 4)]
    assert ran == [slot for slot in order for _ in STAGE.clients]
    (started,) = world.all(events.StageStarted)
    assert (started.kind, started.iterations) == ("tool", 4)


@pytest.mark.parametrize("at", [6, 15, 27, 39])
def test_a_lost_host_creates_its_files_again(at: int) -> None:
    world = completed(TOOLED, None, Fault(kind="lose", host="client1", at=at))
    keys = fio_keys(world)
    assert len(world.results()) == 4
    assert world.all(events.AgentLost)
    last_run = max(index for index, key in enumerate(keys) if "fio-files" not in key)
    made = [index for index, key in enumerate(keys) if "fio-files" in key and key.endswith("client1")]
    assert 1 <= len(made) <= 2
    assert made[-1] < last_run


def test_each_host_has_its_own_slices_of_devices_and_facts_name_the_program() -> None:
    devices = ("/dev/disk/by-id/a", "/dev/disk/by-id/b", "/dev/disk/by-id/c")
    stage = replace(STAGE, job=replace(JOB, devices=devices, destructive=True), iodepths=(2,), repeat=1)
    given = [(host, task.spec) for host, task in completed(replace(TOOLED, stages=(stage,))).sent]
    slices = {host: spec.first_slice for host, spec in given if isinstance(spec, RunFio)}
    assert slices == {"client1": 0, "client2": 2}
    assert [spec.job for _, spec in given if isinstance(spec, PrepareFio)] == [stage.job, stage.job]
    asked = {host: spec.tools for host, spec in given if isinstance(spec, ReadFacts)}
    assert (asked["client1"], asked["db1"]) == (("fio",), ())


def load(reads: Mapping[int, int], writes: Mapping[int, int], *, errors: int = 0) -> LoadResult:
    def part(name: str, values: Mapping[int, int]) -> TransactionLoad:
        raw = np.repeat(np.asarray(list(values), dtype=np.int64), list(values.values()))
        failed = (("Input/output error", errors),) if errors and name == "read" else ()
        response = histogram.bin_ns(raw)
        counts = TransactionCounts(name=name, ok=len(raw), errors=failed)
        return TransactionLoad(counts=counts, response=response, service=response)

    return load_result(
        transactions=(part("read", reads), part("write", writes)),
        ended_in_window=sum(reads.values()) + sum(writes.values()),
        measure_start_ns=11 * S,
        measure_end_ns=13 * S,
        start_skew_ns=300_000_000,
        seconds_produced=0,
        first_errors=("Input/output error",) if errors else (),
    )


def summarised(
    loads: Mapping[str, LoadResult], depth: int = 2, repeat: int = 1, plan: Plan = TOOLED
) -> IterationFinished:
    no_seconds: dict[str, list[LoadSecond]] = {host: [] for host in loads}
    return summarise.summarise(
        Observations(
            id=IterationId(stage="mixed", rung=depth, repeat=repeat, attempt=1),
            stage=STAGE,
            plan=plan,
            rate=None,
            loads=loads,
            seconds=no_seconds,
            clocks=dict.fromkeys(loads, (0, 1000)),
            t0_ns=10 * S,
            started_unix_s=1.0,
        )
    )


FAST, SLOW = {100_000: 990, 200_000: 10}, {10_000_000: 10}


def test_hosts_are_merged_before_percentiles_are_taken() -> None:
    ended = summarised({"client1": load(FAST, {}), "client2": load(SLOW, {})})
    tree = ended.metrics
    assert ended.valid, ended.findings
    assert tree["iops"] == tree["tps"] == pytest.approx(1010 / 2.0)
    assert tree["mb_per_s"] == pytest.approx(505 * 8192 / 1e6)
    assert tree["nodes"]["client1"]["iops"] == pytest.approx(500.0)
    assert tree["nodes"]["client2"]["response"]["p99_us"] == pytest.approx(10_000.0, rel=0.001)
    # Of 1010 I/Os 10 take 10 ms: rank 1000 of 1010 has 0.2 ms. The mean of two percentiles would be 5.1 ms.
    assert tree["response"]["p99_us"] == pytest.approx(200.0, rel=0.001)
    assert tree["response"]["max_us"] == pytest.approx(10_000.0, rel=0.001)
    assert tree["iodepth"] == 2


def test_reads_and_writes_have_separate_and_common_numbers() -> None:
    tree = summarised({"client1": load({100_000: 140}, {300_000: 60}), "client2": load({}, {})}).metrics
    assert (tree["read"]["iops"], tree["write"]["iops"], tree["iops"]) == (70.0, 30.0, 100.0)
    assert tree["write"]["response"]["avg_us"] == 300.0
    assert "response" not in tree["nodes"]["client2"], "nothing ended there: no percentile, and no zero"


def test_failed_ios_are_a_breach_unless_the_plan_allows_them() -> None:
    ended = summarised({"client1": load(FAST, FAST, errors=5), "client2": load(FAST, FAST)})
    assert ended.metrics["errors"]["count"] == 5
    (broken,) = [finding for finding in ended.findings if not finding.ok and finding.breach]
    assert ended.valid
    assert broken.check == "errors"
    assert "Input/output error" in broken.evidence


def test_expressions_have_exactly_the_measured_numbers() -> None:
    ended = summarised({host: load(FAST, SLOW) for host in STAGE.clients})
    (shape,) = result_names.run_scope(TOOLED, TOOLED.stages).members.values()
    assert isinstance(shape, checking.Group)
    assert shape.rung is not None
    known = shape.rung.members

    def names(tree: Mapping[str, Any]) -> set[str]:
        inner = ((name, names(value)) for name, value in tree.items() if isinstance(value, Mapping))
        return set(tree) | {f"{name}.{below}" for name, found in inner for below in found}

    def offered(group: Mapping[str, Any]) -> set[str]:
        inner = ((name, offered(value.members)) for name, value in group.items() if isinstance(value, checking.Group))
        return set(group) | {f"{name}.{below}" for name, found in inner for below in found}

    captured = {name for name in offered(known) if name.split(".")[0] in ("hosts", "cpu", "prometheus")}
    assert names(ended.metrics) == offered(known) - captured
    assert set(metrics.TOOL) <= set(known)


def finished_run() -> list[events.Event]:
    found: list[events.Event] = [
        run_started(to_data(TOOLED, positions=True)),
        begun("mixed", "tool"),
    ]
    for repeat in (1, 2):
        for depth in STAGE.iodepths:
            loads = {host: load({100_000 * depth: 100 * depth}, {90_000: 10 * repeat}) for host in STAGE.clients}
            found.append(summarised(loads, depth, repeat))
    return found


def test_a_rung_has_its_interval_and_a_figure_its_table() -> None:
    run = load_results(finished_run())
    stage = run.stages["mixed"]
    columns = {head: cells for head, _, cells in io_columns(stage)}
    assert columns["I/O depth"] == ["2", "4"]
    assert columns["IOPS"][0] == "215"
    assert " … " in columns["95 % CI"][0]
    assert columns["read MB/s"][1] == "3.277"
    assert list(node_trees(stage)) == ["client1", "client2"]
    (figure,) = iops_by_queue_depth(run)
    assert figure.slug == "iops-by-queue-depth-mixed"
    assert "IOPS" in figure.title
    panels = figure.spec["concat"]
    assert [[value["at"] for value in panel["data"]["values"]] for panel in panels] == [["2", "4"]] * 3
    assert [row[0] for row in figure.rows] == ["2", "4"]
    picture = pictures.svg(figure)
    assert "I/O depth of each job" in picture
    assert "response p99" in picture
