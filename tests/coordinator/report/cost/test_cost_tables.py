"""The section, the figure and the columns of the cost of a transaction, from recorded iterations."""

from __future__ import annotations

from typing import Any

from records import begun, iteration, run_started

from proveout.coordinator.report import csv_export
from proveout.coordinator.report.document import Notes, Section, Table
from proveout.coordinator.report.measurement_sections import cost_section
from proveout.coordinator.results.results import RunResults, load_results

PLAN = {"hosts": [{"name": "db", "price_per_hour": 3.2, "currency": "EUR"}], "stages": [{"id": "x", "kind": "ladder"}]}


def results(*costs: dict[str, float], sources: dict[str, str] | None = None) -> RunResults:
    """Repeats of 4 threads with these costs."""
    repeats = [
        iteration("x", 4, n, {"tps": 100.0, "cost": cost}, cost=sources or {}) for n, cost in enumerate(costs, start=1)
    ]
    return load_results([run_started(PLAN), begun("x"), *repeats])


def blocks(of: RunResults) -> list[Any]:
    (ladder,) = cost_section(of).blocks
    assert isinstance(ladder, Section)
    return list(ladder.blocks)


def test_a_cell_is_the_mean_with_its_interval_and_what_is_missing_is_said() -> None:
    sources = {"server_cpu_us": "the processes of the servers on db", "network_bytes": "not captured: by lo"}
    found = results(
        {"server_cpu_us": 100.0, "client_cpu_us": 9.0, "price_per_million": 2.0},
        {"server_cpu_us": 102.0, "client_cpu_us": 9.0, "price_per_million": 2.0},
        sources=sources,
    )
    table, notes = blocks(found)
    assert isinstance(table, Table) and isinstance(notes, Notes)
    assert table.heads == ("threads", "4")
    assert table.rows == (
        ("server CPU", ("101 µs", "89 µs … 115 µs")),  # t(0.975, 1) s / sqrt(2) = 12.7
        ("client CPU", "9.00 µs"),
        ("network", "not captured"),
        ("price per million, EUR", "2"),
    )
    assert notes.items == ("server CPU: the processes of the servers on db", "network: not captured: by lo")


def test_csv_has_the_numbers_in_the_row_of_all_transactions() -> None:
    (row,) = csv_export.rows(results({"server_cpu_us": 100.0}))
    assert row["transaction"] == csv_export.ALL
    assert row["cost.server_cpu_us"] == 100.0
    assert cost_section(results({"client_cpu_us": 9.0})).blocks == (), "that of the clients alone"
    assert "cost.reads" not in csv_export.columns(results({"server_cpu_us": 100.0}))
