"""The tables of reports and the data beside them: time to solve and sizes, faults, phases, and the cost of a transaction,
each against the same arithmetic by hand."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from compiled_plans import compiled
from records import begun, iteration, run_started, samples, summary, whole_ladder
from synthetic_run import results_of, synthetic_results

from proveout.coordinator.measure.captures import Recording, sizes_metrics
from proveout.coordinator.measure.faults import fault_bounds, fault_metrics
from proveout.coordinator.measure.summarise import set_metrics
from proveout.coordinator.report import csv_export, markdown
from proveout.coordinator.report.document import Notes, Paragraph, Section, Table
from proveout.coordinator.report.figures.fault_figures import fault_tables
from proveout.coordinator.report.figures.stage_figures import time_to_solve
from proveout.coordinator.report.figures.system_figures import transaction_cost
from proveout.coordinator.report.json_documents import result_to_json
from proveout.coordinator.report.measurement_sections import cost_section, phase_tables
from proveout.coordinator.report.run_document import run_document
from proveout.coordinator.report.summary import ComparisonRow, LaddersCompared
from proveout.coordinator.report.tables import by_load_rows, size_rows, solve_rows
from proveout.coordinator.results.results import RunResults, load_results
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.plan.plan import Plan
from proveout.proto.events import Event, FaultMeasured, FaultOnLoad, IterationFinished, SizeLine
from proveout.proto.wire.histogram import bin_ns
from proveout.proto.wire.results import TransactionCounts, TransactionLoad


def exported(results: RunResults, what: Any = None) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(csv_export.to_csv(results, *([what] if what else [])))))


def as_dicts(table: Any) -> list[dict[str, Any]]:
    assert isinstance(table, Table)
    return [dict(zip(table.heads, row, strict=True)) for row in table.rows]


# ---- time to solve and sizes -------------------------------------------------------------------------------------

QUERIES = ("RevenueByStore", "FamiliesOfAMonth", "LettersByProduct", "StarsByProduct", "DearestDays")
MB = 1_000_000
TIMES = {("plain", 0): 1.0, ("plain", 2): 0.5, ("pglz", 0): 1.2, ("pglz", 2): 0.25}


@pytest.fixture(scope="module")
def plan() -> Plan:
    return compiled("storage-forms-embedded")


def loads(seconds: Mapping[str, float]) -> list[TransactionLoad]:
    return [
        TransactionLoad(counts=TransactionCounts(name=name), response=bin_ns([round(each * 1e9)] * 3 if each else []))
        for name, each in seconds.items()
    ]


def lines(mode: str, review_mb: float) -> tuple[SizeLine, ...]:
    parts = {("review", "table"): review_mb, ("review", "toast"): 1.0, ("sale", "table"): 6.0, ("sale", "index"): 2.0}
    return tuple(
        SizeLine(system=mode, table=table, part=part, name=table, start_bytes=0.0, end_bytes=size * MB)
        for (table, part), size in parts.items()
    )


def run(plan: Plan, solve_s: Mapping[tuple[str, int], float] = TIMES) -> RunResults:
    """Each cell with three repeats around a time to solve, and the sizes of its mode."""
    sizes = {"plain": lines("plain", 25.0), "pglz": lines("pglz", 2.0)}
    history: list[Event] = [run_started(plan)]
    for (mode, degree), mean in solve_s.items():
        stage = f"solve__{mode}__degree_{degree}"
        each = enumerate((mean * factor for factor in (0.99, 1.0, 1.01)), 1)
        history += whole_ladder(stage, [solved(stage, repeat, time, sizes[mode]) for repeat, time in each])
    return load_results(history)


def solved(stage: str, repeat: int, solve_s: float, sizes: tuple[SizeLine, ...]) -> IterationFinished:
    metrics: dict[str, Any] = {"tps": 5.0 / solve_s, "solve_s": solve_s, "geomean_s": solve_s / 10.0}
    metrics["response"] = {"avg_us": solve_s * 2e5}
    return iteration(stage, 1, repeat, metrics, sizes=sizes, started_unix_s=float(repeat))


def test_the_time_to_solve_is_the_sum_of_the_means_and_a_query_without_a_time_leaves_the_set_without_one(
    plan: Plan,
) -> None:
    seconds = dict(zip(QUERIES, (0.1, 0.2, 0.4, 0.8, 1.6), strict=True))
    found = set_metrics(plan.workload("queries"), loads(seconds))
    assert found.pop("geomean_rows_s") is None  # no query is known to have returned rows
    assert found == pytest.approx({"solve_s": 3.1, "geomean_s": math.prod(seconds.values()) ** 0.2})
    assert set_metrics(plan.workload("queries"), loads(seconds | {"DearestDays": 0.0})) == {}
    assert set_metrics(plan.workload("queries"), loads(seconds)[:-1]) == {}


def test_sizes_are_taken_at_both_ends_of_the_capture_and_by_table_in_lower_case() -> None:
    sale, gone, index = (
        f"size.bytes[{one}]" for one in ("Sale\ttable\tSale", "gone\ttable\tgone", "Sale\tindex\tby_day")
    )
    at: dict[float, dict[str, float]] = {1: {sale: 100.0, gone: 7.0}, 2: {sale: 900.0}, 3: {sale: 160.0, index: 40.0}}
    first, between, last = samples(at, "sizes")
    tree, found = sizes_metrics(Recording([last, first, between]), "db")
    assert tree["tables"]["sale"] == {
        "total_bytes": 200.0, "table_bytes": 160.0, "index_bytes": 40.0, "start_bytes": 100.0, "grown_bytes": 100.0,
    }  # fmt: skip
    assert (tree["total_bytes"], tree["start_bytes"], tree["grown_bytes"]) == (200.0, 107.0, 93.0)
    assert [(line.table, line.part, line.name) for line in found] == [
        ("Sale", "table", "Sale"), ("Sale", "index", "by_day"), ("gone", "table", "gone"),
    ]  # fmt: skip


def test_each_mode_is_held_against_the_first_with_the_same_degree(plan: Plan) -> None:
    (rows,) = solve_rows(run(plan)).values()
    assert [(row.at, row.mode) for row in rows] == [
        ("degree 0", "plain"), ("degree 0", "pglz"), ("degree 2", "plain"), ("degree 2", "pglz"),
    ]  # fmt: skip
    assert [row.relative["mean"] for row in rows] == pytest.approx([1.0, 1 / 1.2, 1.0, 2.0]), "half the time is 2"
    assert rows[1].relative["method"] == "paired", "the cells took turns"
    bounds = [rows[1].relative[name] for name in ("lower", "upper")]
    assert bounds == pytest.approx([1 / 1.2, 1 / 1.2]), "in each repeat the one takes 1.2 times as long as the other"
    assert "lower" not in rows[0].relative


def test_compression_is_the_first_modes_size_over_the_others(plan: Plan) -> None:
    (rows,) = size_rows(run(plan)).values()
    assert [(row.table, row.mode, row.total_bytes / MB) for row in rows] == [
        ("review", "plain", 26.0), ("review", "pglz", 3.0), ("sale", "plain", 8.0), ("sale", "pglz", 8.0),
        ("", "plain", 34.0), ("", "pglz", 11.0),
    ]  # fmt: skip
    assert [row.factor for row in rows] == pytest.approx([1.0, 26 / 3, 1.0, 1.0, 1.0, 34 / 11])
    assert rows[-1].index_bytes == 2.0 * MB
    assert [row.table_factor for row in rows[-2:]] == pytest.approx([1.0, 32 / 9]), "of the tables without indexes"


def test_reports_and_data_have_the_same_numbers(plan: Plan) -> None:
    found = run(plan)
    text = markdown.render(run_document(found))
    assert "| pglz | degree 2 | 0.2500 |" in text
    assert "| review | pglz | 3 | 8.667 × | 0 | 3 | 8.667 × |" in text
    document = json.loads(result_to_json(found))
    assert document["stages"][0]["iterations"][0]["sizes"][0]["end_bytes"] == 25.0 * MB
    read = exported(found)
    assert [(row["matrix.mode"], row["matrix.degree"], row["solve_s"]) for row in read if row["repeat"] == "2"] == [
        (mode, str(degree), str(time)) for (mode, degree), time in TIMES.items()
    ]
    assert csv_export.to_table(found).column("geomean_s").to_pylist() == [float(row["geomean_s"]) for row in read]
    sizes = exported(found, "sizes")
    assert len(sizes) == 4 * 3 * 4
    about = tuple(sizes[-1][name] for name in ("matrix.mode", "table", "part", "end_bytes"))
    assert about == ("pglz", "sale", "index", str(2.0 * MB))


def test_stages_that_took_the_same_sizes_are_compared(tmp_path: Path) -> None:
    stage = """
  - sql: {id: %s, system: db, query: SELECT 1 AS a, metrics: {wide_bytes: {column: a}, thin_bytes: {column: a}}}"""
    text = (
        "proveout: 1\nname: p\ntopology: {hosts: {h: {roles: [server], address: local}}, systems: "
        "{db: {engine: postgres, host: h, provision: embedded}}}\nstages:"
    )
    (tmp_path / "plan.yaml").write_text(text + stage % "plain" + stage % "packed")
    size = {("plain", "wide_bytes"): 8.0, ("plain", "thin_bytes"): 2.0, ("packed", "wide_bytes"): 2.0}
    made = synthetic_results(
        compile_plan(tmp_path / "plan.yaml"), lambda stage, _rung, path: size.get((stage, path), 1.0)
    )
    (rows,) = size_rows(made).values()
    assert [(row.table, row.mode) for row in rows] == [
        (table, mode) for table in ("wide", "thin", "") for mode in ("plain", "packed")
    ]
    total = {row.mode: row.total_bytes for row in rows if not row.table}
    assert total["plain"] == pytest.approx(sum(row.total_bytes for row in rows if row.mode == "plain" and row.table))
    assert rows[-1].factor == pytest.approx(total["plain"] / total["packed"])


def test_a_load_beside_the_others_has_no_share_of_their_throughput() -> None:
    tree = {"tps": 100.0, "loads": {"low": {"tps": 25.0}, "high": {"tps": 75.0}, "report": {"tps": 250.0}}}
    repeats = [iteration("mix", 4, repeat, tree, beside=("report",)) for repeat in (1, 2)]
    (rung,) = load_results([begun("mix"), *repeats]).stages["mix"].rungs
    assert {row.label: row.share for row in by_load_rows(rung)} == {"low": 0.25, "high": 0.75, "report": None}


def test_a_set_of_queries_that_is_one_of_several_loads_has_rows_and_a_figure() -> None:
    found = results_of("htap-embedded")
    (rows,) = solve_rows(found).values()
    both = [("together", "queries"), ("apart", "queries")]
    assert [(row.mode, row.at) for row in rows] == both
    assert rows[1].relative["lower"] < rows[1].relative["mean"] < rows[1].relative["upper"]
    assert [(row[0], row[1]) for figure in time_to_solve(found) for row in figure.rows] == both


@pytest.mark.parametrize(("transactions", "shown"), [(8, 8), (9, 6), (22, 6)])
def test_a_comparison_of_many_transactions_shows_the_lowest_and_the_highest_factors(
    transactions: int, shown: int
) -> None:
    numbers = {f"Q{number}": 1.0 + (number * 7 % transactions) / 100.0 for number in range(transactions)}
    rows = [ComparisonRow(label="throughput", metric="tps", base={}, other={}, factor={"mean": 9.0})]
    rows += [
        ComparisonRow(label=name, metric="avg_us", base={}, other={}, factor={"mean": mean}, transaction=True)
        for name, mean in numbers.items()
    ]
    whole, *kept = LaddersCompared(base="a", other="b", threads=1, rows=tuple(rows)).shortened
    assert whole is rows[0] and len(kept) == shown
    ranked = sorted(numbers, key=lambda name: numbers[name])
    chosen = set(ranked if shown == transactions else [*ranked[:3], *ranked[-3:]])
    assert [row.label for row in kept] == [name for name in numbers if name in chosen], "in the order of the plan"


# ---- faults ------------------------------------------------------------------------------------------------------

RECOVERED: dict[str, Any] = {
    "detection_s": 0.02, "outage_s": 3.0, "outage_from_s": 10.0, "recovery_s": 4.5, "recovery_level": 0.95,
    "tps_before": 200.0, "failed": 12,
}  # fmt: skip
DOWN: dict[str, Any] = {
    "detection_s": 0.04, "outage_s": 9.0, "outage_from_s": 30.0, "outage_at_least": True, "recovery_at_least_s": 9.0,
    "recovery_level": 0.9, "tps_before": 200.0, "failed": 80,
}  # fmt: skip


def faulted(*hosts: str) -> RunResults:
    def one(number: int, fields: dict[str, Any], **more: Any) -> FaultMeasured:
        loads = tuple(FaultOnLoad(host=host, **fields) for host in hosts)
        about: dict[str, Any] = {"begins_s": 20.0 * number, "healed_s": 30.0, "loads": loads}
        return FaultMeasured(fault="crash", number=number, **about, **fields, **more)

    found = (one(1, RECOVERED, lost=0), one(2, DOWN, lost=3, residue=("the file /x",)))
    metrics = {"tps": 100.0, "faults": fault_metrics(found)}
    repeats = [iteration("run", 4, n, metrics, faults=found, at_least=fault_bounds(found)) for n in (1, 2)]
    return load_results([begun("run"), *repeats])


def test_every_occurrence_has_a_row_and_lower_bounds_are_marked() -> None:
    occurrences, summary, *notes = fault_tables(faulted("c1").stages["run"])
    assert [tuple(row[name] for name in ("repeat", "fault", "outage", "recovery",
         "lost")) for row in as_dicts(occurrences)] == [
        ("1", "crash 1", "3 s", "4.5 s", "0"), ("1", "crash 2", "≥ 9 s", "≥ 9 s", "3"),
        ("2", "crash 1", "3 s", "4.5 s", "0"), ("2", "crash 2", "≥ 9 s", "≥ 9 s", "3"),
    ]  # fmt: skip
    assert isinstance(summary, Table)
    numbers = {row[2]: row for row in summary.rows}
    assert numbers["detection"][-1] == "4"
    assert str(numbers["recovery"][3]).startswith("≥ 6.75 s") and numbers["recovery"][5] == "≥ 9 s"
    texts = [note.text for note in notes if isinstance(note, Paragraph)]
    assert "run/4/1/1: crash 2 was not undone: the file /x" in texts
    assert any("90 %" in text for text in texts)


def test_several_hosts_have_a_row_each_below_that_of_all_also_in_the_export() -> None:
    occurrences, *_ = fault_tables(faulted("c1", "c2").stages["run"])
    assert isinstance(occurrences, Table)
    assert [row[3] for row in occurrences.rows[:3]] == ["all loads", "c1", "c2"]
    found = exported(faulted("c1"), "faults")
    assert len(found) == 8
    assert [(row["host"], row["outage_s"], row["lost"]) for row in found[:4]] == [
        ("", "3.0", "0"), ("c1", "3.0", ""), ("", "9.0", "3"), ("c1", "9.0", ""),
    ]  # fmt: skip


# ---- phases ------------------------------------------------------------------------------------------------------


def phase(tps: float, p99_us: float, **more: object) -> dict[str, object]:
    get = {"tps": tps, "ok": 100, "errors": 0, "response": {"p99_us": p99_us}}
    return {
        "tps": tps, "rate": 300.0, "begins_s": 10.0, "measure_s": 8.0, "errors": {"count": 0.0},
        "response": {"avg_us": 900.0, "p50_us": 800.0, "p99_us": p99_us}, "schedule": {"p99_us": 50.0},
        "missed": {"count": 2.0}, "transactions": {"GET": get}, **more,
    }  # fmt: skip


def phased(*trees: Mapping[str, object], at_least: dict[str, float] | None = None, **more: Any) -> RunResults:
    metrics = [{"tps": 300.0, "phases": tree} for tree in trees]
    more |= {"rate": 300.0, "at_least": at_least or {}}
    finished = [iteration("run", 8, n, one, **more) for n, one in enumerate(metrics, 1)]
    return load_results([run_started({"stages": []}), begun("run"), *finished])


def test_a_phase_is_a_row_with_its_estimates_and_a_recovery_that_is_a_lower_bound_is_marked() -> None:
    both = [{"spike": phase(tps, p99, recovery_s=s)} for tps, p99, s in ((300.0, 5000.0, 2.0), (310.0, 5200.0, 3.0))]
    (table,) = phase_tables(phased(*both).stages["run"])
    (row,) = as_dicts(table)
    known = {"phase": "spike", "for": "8 s", "rate": "300/s", "missed": "2", "p99": "5,100", "back": "2.50"}
    assert known.items() <= row.items() and row["TPS"].startswith("3")
    bounds = {"phases.spike.recovery_s": 15.97, "phases.spike.response.p99_us": 9e6}
    without = [{"spike": phase(tps, p99)} for tps, p99 in ((300.0, 5000.0), (310.0, 5200.0))]
    table, remark = phase_tables(phased(*without, at_least=bounds).stages["run"])
    (row,) = as_dicts(table)
    assert row["back"] == "≥ 15.9" and row["p99"].startswith("≥ 9")
    assert isinstance(remark, Paragraph)
    missed = phased(*without, at_least=bounds, not_given=("phases.spike.response.p99_us",))
    table, _ = phase_tables(missed.stages["run"])
    assert as_dicts(table)[0]["p99"] == "-", "of transactions that never began"


def test_a_phase_at_a_rate_of_0_is_not_closed() -> None:
    both = {"idle": phase(0.0, 0.0, rate=0.0), "spike": phase(300.0, 5000.0)}
    (table,) = phase_tables(phased(both).stages["run"])
    assert [row[table.heads.index("rate")] for row in table.rows] == ["0/s", "300/s"]
    (table,) = phase_tables(phased({"spike": phase(300.0, 5000.0, rate=0.0)}).stages["run"])
    assert table.rows[0][table.heads.index("rate")] == "closed"


def test_a_ladder_without_phases_has_no_table_and_no_column() -> None:
    assert not list(phase_tables(phased({}).stages["run"]))
    assert "phase" not in csv_export.columns(phased())


def test_the_data_has_a_row_for_each_phase_and_each_type_in_it() -> None:
    results = phased({"calm": phase(300.0, 5000.0), "spike": phase(900.0, 7000.0)})
    found = [(row["phase"], row["transaction"], row["tps"]) for row in csv_export.rows(results)]
    assert found == [
        ("", "(all)", 300.0), ("calm", "(all)", 300.0), ("calm", "GET", 300.0), ("spike", "(all)", 900.0),
        ("spike", "GET", 900.0),
    ]  # fmt: skip
    phases = [each for each, *_ in found]
    assert [row["phase"] for row in exported(results)] == phases
    assert csv_export.to_table(results).column("phase").to_pylist() == phases


def test_the_rows_of_a_load_have_its_own_rate() -> None:
    rates = {"one": 300.0, "two": 700.0, "rest": 0.0}  # the last one is closed
    loads = {name: {"tps": 9.0, "rate": rate} for name, rate in rates.items()}
    types = tuple(summary("GET", load=name) for name in loads)
    tree = {"tps": 18.0, "rate": 1_000.0, "loads": loads}
    item = iteration("run", 4, 1, tree, rate=1_000.0, transactions=types, beside=("rest",))
    found = csv_export.rows(load_results(whole_ladder("run", [item])))
    own = {row["transaction"]: row["rate_per_s"] for row in found if row["transaction"].endswith("(all)")}
    assert own == {"(all)": 1_000.0, "one.(all)": 300.0, "two.(all)": 700.0, "rest.(all)": None}


# ---- the cost of a transaction -----------------------------------------------------------------------------------


def costing(*costs: dict[str, float], sources: dict[str, str] | None = None) -> RunResults:
    """Repeats of 4 threads with these costs."""
    host = {"name": "db", "price_per_hour": 3.2, "currency": "EUR"}
    started = run_started({"hosts": [host], "stages": [{"id": "x", "kind": "ladder"}]})
    repeats = [
        iteration("x", 4, n, {"tps": 100.0, "cost": each}, cost=sources or {}) for n, each in enumerate(costs, 1)
    ]
    return load_results([started, begun("x"), *repeats])


def test_a_cell_is_the_mean_with_its_interval_and_what_is_missing_is_said() -> None:
    sources = {"server_cpu_us": "the processes of the servers on db", "network_bytes": "not captured: by lo"}
    both = [{"server_cpu_us": us, "client_cpu_us": 9.0, "price_per_million": 2.0} for us in (100.0, 102.0)]
    (ladder,) = cost_section(costing(*both, sources=sources)).blocks
    assert isinstance(ladder, Section)
    table, notes = ladder.blocks
    assert isinstance(table, Table) and isinstance(notes, Notes)
    assert table.heads == ("threads", "4")
    assert table.rows == (
        ("server CPU", ("101 µs", "89 µs … 115 µs")),  # t(0.975, 1) s / sqrt(2) = 12.7
        ("client CPU", "9.00 µs"),
        ("network", "not captured"),
        ("price per million, EUR", "2"),
    )
    assert notes.items == ("server CPU: the processes of the servers on db", "network: not captured: by lo")


def test_csv_has_the_cost_in_the_row_of_all_transactions() -> None:
    (row,) = csv_export.rows(costing({"server_cpu_us": 100.0}))
    assert (row["transaction"], row["cost.server_cpu_us"]) == (csv_export.ALL, 100.0)
    assert cost_section(costing({"client_cpu_us": 9.0})).blocks == (), "that of the clients alone"
    assert not [*transaction_cost(costing({"server_cpu_us": 0.0, "client_cpu_us": 0.0}))], "nothing to draw"
    assert "cost.reads" not in csv_export.columns(costing({"server_cpu_us": 100.0}))
