"""The tables of faults in reports, and their export as CSV."""

from __future__ import annotations

import csv
import io
from typing import Any

from records import begun, iteration

from proveout.coordinator.measure.faults import fault_bounds, fault_metrics
from proveout.coordinator.report import csv_export
from proveout.coordinator.report.document import Paragraph, Table
from proveout.coordinator.report.figures.fault_figures import fault_tables
from proveout.coordinator.results.results import RunResults, load_results
from proveout.proto.events import FaultMeasured, FaultOnLoad

RECOVERED: dict[str, Any] = {
    "detection_s": 0.02, "outage_s": 3.0, "outage_from_s": 10.0, "recovery_s": 4.5, "recovery_level": 0.95,
    "tps_before": 200.0, "failed": 12,
}  # fmt: skip
DOWN: dict[str, Any] = {
    "detection_s": 0.04, "outage_s": 9.0, "outage_from_s": 30.0, "outage_at_least": True, "recovery_at_least_s": 9.0,
    "recovery_level": 0.9, "tps_before": 200.0, "failed": 80,
}  # fmt: skip


def results(*, hosts: tuple[str, ...] = ("c1",)) -> RunResults:
    def one(number: int, fields: dict[str, Any], **more: Any) -> FaultMeasured:
        loads = tuple(FaultOnLoad(host=host, **fields) for host in hosts)
        return FaultMeasured(
            fault="crash", number=number, begins_s=20.0 * number, healed_s=30.0, loads=loads, **fields, **more
        )

    found = (one(1, RECOVERED, lost=0), one(2, DOWN, lost=3, residue=("the file /x",)))
    metrics = {"tps": 100.0, "faults": fault_metrics(found)}
    repeats = [iteration("run", 4, n, metrics, faults=found, at_least=fault_bounds(found)) for n in (1, 2)]
    return load_results([begun("run"), *repeats])


def test_every_occurrence_has_a_row_and_lower_bounds_are_marked() -> None:
    occurrences, summary, *notes = fault_tables(results().stages["run"])
    assert isinstance(occurrences, Table)
    rows = [dict(zip(occurrences.heads, row, strict=True)) for row in occurrences.rows]
    assert [(row["repeat"], row["fault"]) for row in rows] == [
        ("1", "crash 1"), ("1", "crash 2"), ("2", "crash 1"), ("2", "crash 2"),
    ]  # fmt: skip
    assert [row["outage"] for row in rows[:2]] == ["3 s", "≥ 9 s"]
    assert [row["recovery"] for row in rows[:2]] == ["4.5 s", "≥ 9 s"]
    assert [row["lost"] for row in rows[:2]] == ["0", "3"]
    assert isinstance(summary, Table)
    numbers = {row[2]: row for row in summary.rows}
    assert numbers["detection"][-1] == "4"
    assert str(numbers["recovery"][3]).startswith("≥ 6.75 s")
    assert numbers["recovery"][5] == "≥ 9 s"
    texts = [note.text for note in notes if isinstance(note, Paragraph)]
    assert "run/4/1/1: crash 2 was not undone: the file /x" in texts
    assert any("90 %" in text for text in texts)


def test_several_hosts_have_a_row_each_below_that_of_all() -> None:
    occurrences, *_ = fault_tables(results(hosts=("c1", "c2")).stages["run"])
    assert isinstance(occurrences, Table)
    assert [row[3] for row in occurrences.rows[:3]] == ["all loads", "c1", "c2"]


def test_the_export_has_every_occurrence_by_load_and_host() -> None:
    found = list(csv.DictReader(io.StringIO(csv_export.to_csv(results(), "faults"))))
    assert len(found) == 8
    assert [(row["host"], row["outage_s"], row["lost"]) for row in found[:4]] == [
        ("", "3.0", "0"), ("c1", "3.0", ""), ("", "9.0", "3"), ("c1", "9.0", ""),
    ]  # fmt: skip
