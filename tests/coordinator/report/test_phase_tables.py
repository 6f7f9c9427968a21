"""The phases of a ladder in reports and in the data of a run."""

from __future__ import annotations

import csv
import io

from records import begun, iteration, run_started

from proveout.coordinator.report.csv_export import columns, rows, to_csv, to_table
from proveout.coordinator.report.document import Paragraph, Table
from proveout.coordinator.report.measurement_sections import phase_tables
from proveout.coordinator.results.results import load_results
from proveout.proto.events import Event


def phase(tps: float, p99_us: float, **more: object) -> dict[str, object]:
    return {
        "tps": tps,
        "rate": 300.0,
        "begins_s": 10.0,
        "measure_s": 8.0,
        "response": {"avg_us": 900.0, "p50_us": 800.0, "p99_us": p99_us},
        "schedule": {"p99_us": 50.0},
        "errors": {"count": 0.0},
        "missed": {"count": 2.0},
        "transactions": {"GET": {"tps": tps, "ok": 100, "errors": 0, "response": {"p99_us": p99_us}}},
        **more,
    }


def run_of(*trees: dict[str, object], at_least: dict[str, float] | None = None) -> list[Event]:
    metrics = [{"tps": 300.0, "phases": tree} for tree in trees]
    finished = [iteration("run", 8, n, one, rate=300.0, at_least=at_least or {}) for n, one in enumerate(metrics, 1)]
    return [run_started({"stages": []}), begun("run"), *finished]


def test_a_phase_is_a_row_with_its_estimates() -> None:
    events = run_of({"spike": phase(300.0, 5000.0, recovery_s=2.0)}, {"spike": phase(310.0, 5200.0, recovery_s=3.0)})
    (table,) = phase_tables(load_results(events).stages["run"])
    assert isinstance(table, Table)
    row = dict(zip(table.heads, table.rows[0], strict=True))
    assert (row["phase"], row["for"], row["rate"]) == ("spike", "8 s", "300/s")
    assert row["TPS"].startswith("3")
    assert row["missed"] == "2"
    assert (row["p99"], row["back"]) == ("5,100", "2.50")


def test_a_recovery_that_is_a_lower_bound_is_marked() -> None:
    bounds = {"phases.spike.recovery_s": 16.0, "phases.spike.response.p99_us": 9e6}
    events = run_of({"spike": phase(300.0, 5000.0)}, {"spike": phase(310.0, 5200.0)}, at_least=bounds)
    table, remark = phase_tables(load_results(events).stages["run"])
    assert isinstance(table, Table)
    row = dict(zip(table.heads, table.rows[0], strict=True))
    assert row["back"] == "≥ 16.0"
    assert row["p99"].startswith("≥ 9")
    assert isinstance(remark, Paragraph)


def test_a_ladder_without_phases_has_no_table_and_no_column() -> None:
    results = load_results(run_of({}))
    assert not list(phase_tables(results.stages["run"]))
    assert "phase" not in columns(load_results(run_of()))


def test_the_data_has_a_row_for_each_phase_and_each_type_in_it() -> None:
    results = load_results(run_of({"calm": phase(300.0, 5000.0), "spike": phase(900.0, 7000.0)}))
    found = [(row["phase"], row["transaction"], row["tps"]) for row in rows(results)]
    assert found == [
        ("", "(all)", 300.0),
        ("calm", "(all)", 300.0),
        ("calm", "GET", 300.0),
        ("spike", "(all)", 900.0),
        ("spike", "GET", 900.0),
    ]
    read = list(csv.DictReader(io.StringIO(to_csv(results))))
    assert [row["phase"] for row in read] == ["", "calm", "calm", "spike", "spike"]
    assert to_table(results).column("phase").to_pylist() == ["", "calm", "calm", "spike", "spike"]
