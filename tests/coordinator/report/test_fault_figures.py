"""The figures of faults, from samples around invented occurrences."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from records import begun, iteration, run_started

from proveout.coordinator.report.figures import fault_figures
from proveout.coordinator.report.figures import figure as pictures
from proveout.coordinator.report.figures.timeline import Timeline, read_timeline
from proveout.coordinator.results.results import RunResults, load_results
from proveout.proto.events import FaultMeasured

TPS, RAMP_S, MEASURE_S, BEGINS_S, DOWN_S, HEALED_S = 1_000, 2, 40, 15.0, 4.0, 3.0
T0_NS = 7_000_000_000


def outcome(number: int, begins_s: float = BEGINS_S) -> FaultMeasured:
    return FaultMeasured(
        fault="crash", number=number, begins_s=begins_s, in_place_s=begins_s + 0.01, healing_s=begins_s + 2.9,
        healed_s=begins_s + HEALED_S, detection_s=0.02, outage_s=DOWN_S, outage_from_s=begins_s, recovery_s=5.0,
        tps_before=1000.0, failed=12, lost=3,
    )  # fmt: skip


def results() -> RunResults:
    stage = {"id": "run", "kind": "ladder", "workload": "w", "threads": [4], "target": "db"}
    about: dict[str, Any] = {"measure_s": MEASURE_S, "faults": (outcome(1),)}
    repeats = [iteration("run", 4, n, {"tps": 900.0}, started_unix_s=float(n), **about) for n in (1, 2)]
    return load_results([run_started({"stages": [stage]}), begun("run"), *repeats])


def store(folder: Path, repeat: int) -> None:
    """Tenths of a second of a load of two hosts that has no answer for `DOWN_S` from `BEGINS_S`; errors meanwhile."""
    whole = RAMP_S + MEASURE_S + 1
    down = (RAMP_S + BEGINS_S, RAMP_S + BEGINS_S + DOWN_S)
    tenths, seconds = [], []
    for host in ("c1", "c2"):
        for bin in range(whole * 10):
            answers = not down[0] <= bin / 10 < down[1]
            row = dict.fromkeys(("first_ns", "last_ns", "oldest_ns", "slowest_ns", "error_ns", "error_oldest_ns"), 0)
            at_ns = T0_NS + bin * 100_000_000
            about = {"host": host, "load": "", "host_ns": at_ns, "coordinator_ns": at_ns}
            tenths.append(about | {"answered": TPS // 20 if answers else 0, "failed": 0 if answers else 2} | row)
        for second in range(whole):
            window = "ramp_up" if second < RAMP_S else "measure" if second < RAMP_S + MEASURE_S else "ramp_down"
            at_ns = T0_NS + second * 1_000_000_000
            answers = not down[0] <= second < down[1]
            seconds.append({
                "host": host, "second": second, "window": window, "host_ns": at_ns, "coordinator_ns": at_ns,
                "duration_s": 1.0, "transaction": "GET", "ok": 0, "logical_failures": 0, "retried": 0, "missed": 0,
                "errors": 0, "response_indices": [1024] if answers else [], "response_counts": [99] if answers else [],
                "response_sum_ns": 99_000, "response_min_ns": 1000, "response_max_ns": 1100,
            })  # fmt: skip
    stem = f"run-4-{repeat}-1"
    pq.write_table(pa.Table.from_pylist(tenths), folder / f"{stem}.bins.parquet")
    lists = pa.list_(pa.int64())
    schema = pa.Table.from_pylist(seconds).schema
    schema = schema.set(schema.get_field_index("response_indices"), pa.field("response_indices", lists))
    schema = schema.set(schema.get_field_index("response_counts"), pa.field("response_counts", lists))
    pq.write_table(pa.Table.from_pylist(seconds, schema=schema), folder / f"{stem}.load.parquet")


@pytest.fixture(scope="module")
def timeline(tmp_path_factory: pytest.TempPathFactory) -> Timeline:
    folder = tmp_path_factory.mktemp("samples")
    for repeat in (1, 2):
        store(folder, repeat)
    return read_timeline(results(), folder)


def test_throughput_of_all_hosts_around_a_fault_is_on_the_time_of_the_fault(timeline: Timeline) -> None:
    first, second = timeline.faults
    assert (first.iteration.id.repeat, second.iteration.id.repeat) == (1, 2)
    assert (first.outage, first.healed_s) == ((0.0, DOWN_S), HEALED_S)
    values = {round(at, 2): value for at, value in first.answered}
    assert values[-0.05] == pytest.approx(TPS), "both hosts"
    assert values[0.05] == 0.0
    assert values[3.95] == 0.0
    assert values[4.05] == pytest.approx(TPS)
    errors = {round(at, 2): value for at, value in first.failed}
    assert (errors[-0.05], errors[2.05]) == (0.0, 40.0)
    assert not [at for at, _ in first.p99_ms if 0.0 < at < DOWN_S], "no percentile of seconds without an answer"
    assert first.answered[0][0] >= -5.1, "as much before it as it lasts"


def test_a_fault_has_a_figure_of_one_occurrence_and_one_of_all(timeline: Timeline) -> None:
    found = results()
    (one,) = fault_figures.fault_timeline(found, timeline)
    (every,) = fault_figures.fault_occurrences(found, timeline)
    assert [panel["layer"][-1]["encoding"]["y"]["title"] for panel in one.spec["concat"]] == [
        "transactions/s", "errors/s", "p99, ms",
    ]  # fmt: skip
    assert "Outage 4 s, detection 20.0 ms, recovery 5 s." in one.caption
    assert len(every.spec["concat"]) == 2
    assert len(one.rows) == len(every.rows) == 2
    assert one.rows[0][0] == "4 threads, repeat 1, occurrence 1"
    for figure in (one, every):
        assert pictures.svg(figure).startswith("<svg")


def test_a_fault_that_was_not_recovered_from_is_a_bound(timeline: Timeline) -> None:
    lasting = dataclasses.replace(
        outcome(1), recovery_s=None, recovery_at_least_s=20.0, outage_at_least=True, healed_s=None
    )
    shown = dataclasses.replace(timeline.faults[0], fault=lasting)
    (one,) = fault_figures.fault_timeline(results(), Timeline(faults=(shown,)))
    assert "not recovered within 20" in one.caption.lower()
    assert one.rows[0][3].startswith("≥ 4")
    assert one.rows[0][4].startswith("≥ 20")
