"""Numbers of captures in a measure window whose load is known: edges, peaks, waits, statements, and the cost of a
transaction on every kind of topology."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from records import begun, iteration, ladder_stage, load_result, observations, plan_of, run_started, samples

from proveout.coordinator.measure.captures import (
    PIECES_MAX,
    Recording,
    Window,
    names_read,
    os_metrics,
    unknown_events,
    waits_metrics,
    with_statements,
)
from proveout.coordinator.measure.transaction_cost import Cost, transaction_cost
from proveout.coordinator.report.document import Details, Notes, Preformatted, Section, Table
from proveout.coordinator.report.measurement_sections import statement_section, top_statements
from proveout.coordinator.results.published import wait_rows, wait_systems
from proveout.coordinator.results.results import load_results
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.compile.result_names import run_scope
from proveout.dsl.expr.checking import check_expression
from proveout.dsl.plan.plan import Check, Plan, Workload
from proveout.dsl.plan.topology import Capture, Expression, Host, System
from proveout.proto.events import IterationFinished, WaitLine
from proveout.proto.wire.results import CaptureResult

S = 1_000_000_000
BEGUN_S = 1000.0
WINDOW = Window(start_ns=0, end_ns=10 * S)


def window(seconds: float) -> Window:
    return Window(start_ns=round(BEGUN_S * S), end_ns=round((BEGUN_S + seconds) * S))


def recording(readings: Callable[[float], Mapping[str, float]], at_s: Iterable[float]) -> Recording:
    """Samples at these seconds of a window."""
    return Recording(samples({BEGUN_S + float(at): readings(float(at)) for at in at_s}))


def around(until_s: float, every_s: float = 1.0) -> Iterable[float]:
    """From 2 s before a window to 2 s after it."""
    return map(float, np.arange(-2.0, until_s + 2.0 + every_s / 2, every_s))


# ---- counters at the edges of a window ---------------------------------------------------------------------------

MEASURE_S, MARGIN_S, BUSY = 3.0, 0.2, 0.8


def ramped(phase_s: float, ramp_s: float, ramp_busy: float, edges: Iterable[float] = ()) -> Recording:
    """Samples of every second from `phase_s` on, at the capture's end, and at `edges`, of a core that is in use for
    `ramp_busy` of the ramps before and after the window, and for `BUSY` of it."""

    def readings(at_s: float) -> dict[str, float]:
        ramps = min(max(at_s + ramp_s, 0.0), ramp_s) + min(max(at_s - MEASURE_S, 0.0), ramp_s)
        spent = ramp_busy * ramps + BUSY * min(max(at_s, 0.0), MEASURE_S)
        return {"cpu.user_s_total": 50 + spent, "cpu.idle_s_total": 500 + at_s - spent, "ours.cpu_s_total": spent}

    times = [*np.arange(phase_s - 3.0, MEASURE_S + MARGIN_S, 1.0), MEASURE_S + MARGIN_S, *edges]
    return recording(readings, sorted(times))


@pytest.mark.parametrize(("ramp_s", "ramp_busy"), [(0.0, 0.0), (1.0, 0.0), (1.0, 0.4), (1.0, BUSY)])
def test_edge_samples_give_the_true_mean_at_any_phase(ramp_s: float, ramp_busy: float) -> None:
    """No ramps, idle ramps, ramps at half of the load, and a constant load. Edge samples are up to 5 ms late."""
    late = np.random.default_rng(71).uniform(0.0, 0.005, (20, 2))
    for phase_s, (start_late_s, end_late_s) in zip(np.linspace(0.0, 1.0, 20), late, strict=True):
        edges = (start_late_s, MEASURE_S + end_late_s)
        metrics = os_metrics(ramped(float(phase_s), ramp_s, ramp_busy, edges), window(MEASURE_S))
        assert metrics["cpu"]["busy_fraction"] == pytest.approx(BUSY, rel=0.01)
        assert metrics["ours"]["cpu_cores"] == pytest.approx(BUSY, rel=0.01)


def test_the_distance_of_an_edge_is_the_larger_one() -> None:
    of = window(MEASURE_S)
    assert ramped(0.5, 0.0, 0.0).edge_distance_s(of) == pytest.approx(0.5)
    assert ramped(0.5, 0.0, 0.0, (0.001, MEASURE_S + 0.004)).edge_distance_s(of) == pytest.approx(0.004)
    assert Recording([]).edge_distance_s(of) == MEASURE_S


# ---- peaks: the busiest second of a window -----------------------------------------------------------------------


def cpu(at_s: float) -> dict[str, float]:
    """A core that is 20 % busy, 90 % from second 4 to second 6, and 100 % outside of a window of 10 s."""
    busy_s = float(np.interp(at_s, [-2.0, 0.0, 4.0, 6.0, 10.0, 12.0], [0.0, 2.0, 2.8, 4.6, 5.4, 7.4]))
    return {"cpu.user_s_total": busy_s, "cpu.idle_s_total": at_s + 2.0 - busy_s}


@pytest.mark.parametrize("every_s", [0.5, 1.0, 2.0])
def test_the_peak_is_that_of_the_busiest_second_inside_the_window(every_s: float) -> None:
    found = os_metrics(recording(cpu, around(10.0, every_s)), window(10.0))["cpu"]
    assert found["busy_fraction"] == pytest.approx(0.34)
    assert found["peak"]["busy_fraction"] == pytest.approx(0.9)
    assert found["peak"]["idle_fraction"] == pytest.approx(0.8)


def test_a_window_shorter_than_a_second_has_its_mean_as_peak() -> None:
    found = os_metrics(recording(cpu, around(10.0, 0.25)), window(0.5))["cpu"]
    assert found["peak"]["busy_fraction"] == pytest.approx(found["busy_fraction"]) == pytest.approx(0.2)


def test_peaks_are_those_of_all_devices_together_and_of_levels_by_sample() -> None:
    def readings(at_s: float) -> dict[str, float]:
        used = 30.0 if 3.0 <= at_s <= 4.0 else 10.0
        levels = {"ours.rss_bytes": used, "memory.total_bytes": 100.0, "memory.available_bytes": 100.0 - used}
        return levels | {"disk.reads_total[sda]": 10 * at_s, "disk.reads_total[sdb]": 100 * max(at_s - 5, 0)}

    found = os_metrics(recording(readings, range(11)), window(10.0))
    assert found["ours"]["peak"] == {"rss_bytes": 30.0}
    assert found["memory"]["peak"] == {"used_fraction": pytest.approx(0.3), "used_bytes": 30.0}
    assert found["disk"]["peak"]["reads_per_s"] == pytest.approx(110.0)


def test_a_long_window_takes_a_bounded_number_of_pieces() -> None:
    found = recording(cpu, around(3600.0))
    starts, ends = found.pieces(window(3600.0), 1.0, PIECES_MAX)
    assert len(starts) <= PIECES_MAX
    assert np.all(starts[1:] <= ends[:-1])  # no second is left out
    assert os_metrics(found, window(3600.0))["cpu"]["peak"]["busy_fraction"] >= 0.3


def test_a_window_shorter_than_a_piece_is_one_piece_at_any_length() -> None:
    """`end - (end - start)` is not always `start`: a rounding error left out the only piece of some windows."""
    found, begun_ms = recording(cpu, around(1.0, 0.2)), round((BEGUN_S - 2.0) * 1000)
    for start_ms in range(200, 1900, 7):
        end_ms = start_ms + 1 + start_ms * 7 % 990
        part = Window(start_ns=(begun_ms + start_ms) * 10**6, end_ns=(begun_ms + end_ms) * 10**6)
        starts, ends = found.pieces(part, 1.0, PIECES_MAX)
        assert len(starts) >= 1, part
        assert np.allclose(starts, start_ms / 1e3)
        assert np.allclose(ends, end_ms / 1e3)


def test_a_sum_over_devices_is_not_known_where_one_of_them_was_reset() -> None:
    def received(at_s: float) -> dict[str, float]:
        name = "network.received_bytes_total"
        return {f"{name}[eth0]": 100.0 * at_s + 500.0, f"{name}[eth1]": 1_000.0 * (at_s % 5.0 + 3.0)}

    assert "network" not in os_metrics(recording(received, around(10.0)), window(10.0))
    assert os_metrics(recording(received, around(4.0)), window(4.0))["network"]["received_bytes_per_s"] == 1_100.0


# ---- wait events by name -----------------------------------------------------------------------------------------

SYNC, DB_CPU, READ = "Commit:log file sync", "DB CPU", "User I/O:db file scattered read"


def waited(seconds: Mapping[str, float], counts: Mapping[str, float] | None = None) -> Recording:
    """Two samples, at both ends of the window; all counters begin at 0."""
    last = {f"wait.seconds_total[{label}]": value for label, value in seconds.items()}
    last |= {f"wait.count_total[{label}]": value for label, value in (counts or {}).items()}
    return Recording(samples({0: dict.fromkeys(last, 0.0), 10: last}))


def test_named_events_have_time_share_count_and_mean() -> None:
    counted = waited({SYNC: 6.0, DB_CPU: 3.0, READ: 0.0}, {SYNC: 3_000.0, READ: 0.0})
    metrics, lines = waits_metrics(counted, WINDOW, ("log file sync", "db file scattered read"))
    sync = {"seconds": 6.0, "db_time_fraction": 2 / 3, "count": 3_000.0, "avg_us": 2_000.0}
    assert metrics["events"]["log file sync"] == pytest.approx(sync)
    read = metrics["events"]["db file scattered read"]
    assert (read["seconds"], read["avg_us"]) == (0.0, None)
    assert (lines[0].event, lines[0].waits) == ("log file sync", 3_000.0)
    assert lines[0].average_us == pytest.approx(2_000.0)


@pytest.mark.parametrize("seconds", [{0: 5.0, 3: 8.0}, {0: 5.0, 5: 9.0, 6: 0.1, 10: 4.0}], ids=["covered", "reset"])
def test_waits_that_are_not_known_are_not_0(seconds: Mapping[int, float]) -> None:
    """Too few samples, or a server that was started again, said that the database had nothing to do."""
    found = Recording(samples({at: {f"wait.seconds_total[{SYNC}]": value} for at, value in seconds.items()}))
    assert waits_metrics(found, WINDOW, ("log file sync",)) == ({}, ())


def test_an_event_whose_counter_was_reset_has_no_numbers_and_the_others_have_theirs() -> None:
    spent = {0: (5.0, 1.0, 8.0), 5: (9.0, 2.0, 13.0), 6: (0.1, 3.0, 14.0), 10: (4.0, 4.0, 18.0)}
    names = (f"wait.seconds_total[{SYNC}]", f"wait.seconds_total[{READ}]", "wait.db_time_s_total")
    found = Recording(samples({at: dict(zip(names, values, strict=True)) for at, values in spent.items()}))
    metrics, lines = waits_metrics(found, WINDOW, ("log file sync", "db file scattered read"))
    assert (metrics["db_time_s"], list(metrics["events"])) == (10.0, ["db file scattered read"])
    assert [(line.event, line.seconds) for line in lines] == [("db file scattered read", 3.0)]


def test_an_event_that_the_capture_does_not_know_has_no_numbers_but_a_finding() -> None:
    sampled = waited({"IO:WalSync": 6.0, "IO:WalWrite": 0.0})
    metrics, _ = waits_metrics(sampled, WINDOW, ("WalSinc", "WalWrite"))
    assert list(metrics["events"]) == ["WalWrite"]
    (finding,) = unknown_events(sampled, "db", ("WalSinc", "WalWrite"))
    assert (finding.check, finding.ok, finding.voids) == ("wait:WalSinc", False, False)


@pytest.fixture(scope="module")
def cache_plan() -> Plan:
    return compile_plan(Path(__file__).parents[3] / "plans" / "hlr-cache-embedded.yaml", overrides={})


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ('baseline.at(4).waits.event("WalSync").seconds <= 1', 'baseline.at(4).waits.events["WalSync"].seconds <= 1'),
        ('baseline.peak.waits.event("a b").count.mean > 0', 'baseline.peak.waits.events["a b"].count.mean > 0'),
    ],
)
def test_event_stands_for_an_index(cache_plan: Plan, text: str, read: str) -> None:
    checked = check_expression(text, run_scope(cache_plan, cache_plan.stages), "condition")
    assert (checked.faults, checked.text) == ((), read)
    check = Check(id="v", check=Expression(text=checked.text))
    assert names_read(replace(cache_plan, verdicts=(check,), charts=()), "events") == (text.split('"')[1],)


@pytest.mark.parametrize(
    "text", ["event()", 'baseline.at(4).cpu.event("x").count', 'baseline.at(4).waits.event("").count']
)
def test_other_uses_of_event_are_refused(cache_plan: Plan, text: str) -> None:
    scope = run_scope(cache_plan, cache_plan.stages)
    (fault, *_) = check_expression(f"{text} > 0", scope, "condition").faults
    assert "event" in fault.message


def test_a_table_for_each_captured_system() -> None:
    line = WaitLine(event="sync", wait_class="IO", seconds=2.0, db_time_fraction=0.5, waits=10.0)
    waits = {"db_time_s": 4.0, "systems": {"back": {"db_time_s": 8.0}}}
    done = iteration("s", 1, 1, {"waits": waits}, waits=(line, replace(line, seconds=4.0, system="back")))
    assert wait_systems([done]) == ("", "back")
    (first,), (other,) = wait_rows([done, done]), wait_rows([done, done], system="back")
    assert (first.seconds, first.db_time_fraction, first.waits, first.average_us) == (4.0, 0.5, 20.0, 200_000.0)
    assert (other.seconds, other.db_time_fraction) == (8.0, 0.5)


def test_a_wait_that_is_not_among_the_ten_longest_of_a_repeat_counts_in_the_table_of_all() -> None:
    def repeat(number: int, read_s: float) -> IterationFinished:
        spent = {f"IO:event {place}": 10.0 + place for place in range(10)} | {READ: read_s}
        _, lines = waits_metrics(waited(spent), WINDOW)
        return iteration("s", 1, number, {"waits": {"db_time_s": sum(spent.values())}}, waits=lines)

    rows = wait_rows([repeat(1, 50.0), repeat(2, 5.0)])
    assert (len(rows), rows[0].event, rows[0].seconds) == (10, "db file scattered read", 55.0)


# ---- the statements of an iteration, from documents of agents ----------------------------------------------------

INDEX = [[0, "Nested Loop", 5.0], [1, "Index Scan using a_pkey on a", 1.0], [1, "Seq Scan on b", 5.0], [0, "X", None]]
SCAN = [[0, "Seq Scan on a", 100.0]]


def item(id: str, text: str, calls: float, seconds: float, steps: list[Any] = INDEX) -> dict[str, Any]:
    return {"id": id, "text": text, "calls": calls, "seconds": seconds, "rows": 7, "plan": steps, "no_plan": ""}


def update(steps: list[Any] = INDEX, calls: float = 4.0, seconds: float = 3.0) -> dict[str, Any]:
    return item("1", "UPDATE t SET a = ?", calls, seconds, steps)


COMMIT = item("2", "COMMIT", 1.0, 1.0, [])


def stated(
    *items: dict[str, Any], repeat: int = 1, before: IterationFinished | None = None, output: str = ""
) -> IterationFinished:
    total = {"count": len(items), "calls": 10.0, "seconds": sum(one["seconds"] for one in items), "rows": 7.0}
    output = output or json.dumps({"total": total, "statements": items})
    check = Expression(text='x.at(4).statements["UPDATE t"].avg_us.mean < 5')
    plan = plan_of(
        captures=(Capture(name="top", kind="statements", every_s=1.0, system="db"),),
        verdicts=(Check(id="v", title="", check=check, severity="fail"),),
    )
    reports = {("top", "h"): CaptureResult(capture="top", samples=3, output=output)}
    return with_statements(iteration("x", 4, repeat, {"tps": 10.0}), plan, reports, before)


def test_lines_and_numbers_are_those_of_the_document() -> None:
    one = stated(item("1", "UPDATE `t` SET a = ?", 4.0, 3.0), item("2", "UPDATE t SET b = ?", 6.0, 1.0))
    first, tree = one.statements[0], one.metrics["statements"]
    assert (first.system, first.avg_us, first.time_fraction) == ("db", 750_000.0, 0.75)
    assert first.shape == "Nested Loop (Index Scan using a_pkey on a, Seq Scan on b), X"
    assert first.plan.startswith("Nested Loop (5 rows expected)\n  Index Scan using a_pkey on a (1 rows expected)\n")
    assert tree["total"] == {"count": 2.0, "calls": 10.0, "seconds": 4.0, "rows": 7.0}
    assert tree["1"]["avg_us"] == 750_000.0
    both = tree["UPDATE t"]
    assert (both["calls"], both["avg_us"]) == (10.0, 400_000.0), "the plan reads those that begin so, together"


def test_a_plan_that_changed_is_a_finding_with_both_shapes() -> None:
    before = stated(update(), COMMIT)
    (held,) = stated(update(), repeat=2, before=before).findings
    assert (held.check, held.ok, held.evidence) == ("plans", True, "the plans of 1 statement are those of x/4/1/1")
    (finding,) = stated(update(SCAN), repeat=2, before=before).findings
    assert (finding.check, finding.ok, finding.voids) == ("plan:db:1", False, False)
    assert finding.evidence == (
        "the plan of `UPDATE t SET a = ?` changed since x/4/1/1: "
        "Nested Loop (Index Scan using a_pkey on a, Seq Scan on b), X -> Seq Scan on a"
    )
    other = item("3", "SELECT 1", 4.0, 3.0, SCAN)
    assert stated(other, COMMIT, before=before).findings == (), "neither another statement nor one without a plan"


@pytest.mark.parametrize(
    "output",
    [
        "not json",
        '{"total": {"count": 1, "calls": -1, "seconds": 0, "rows": 0}, "statements": []}',
        '{"total": {"count": 1, "calls": 1, "seconds": 1, "rows": 0}, "statements": [3]}',
        '{"total": {"count": 1, "calls": 1, "seconds": 1, "rows": 0}, "statements": [{"id": "1", "text": "X", "calls": 1, '
        '"seconds": 1, "rows": 0, "no_plan": "", "plan": [[1e999, "Scan", 1]]}]}',
        pytest.param("[" * 100_000, id="deep"),
    ],
)
def test_a_damaged_document_is_a_finding(output: str) -> None:
    one = stated(output=output)
    (finding,) = one.findings
    assert finding.check == "statements:top@h" and "cannot be read" in finding.evidence
    (line,) = stated(item("1", "X", 1.0, 1.0, [[0, "Sort", None], [-(10**15), "Scan", None]])).statements
    assert line.shape == "Sort, Scan", "no step is above the first"
    assert one.statements == ()


def test_the_report_adds_repeats_up_and_folds_the_plans() -> None:
    first = stated(update(), COMMIT)
    second = stated(update(SCAN, 6.0, 1.0), repeat=2, before=first)
    (ladder,) = statement_section(load_results([run_started({}), begun("x"), first, second])).blocks
    assert isinstance(ladder, Section)
    table, notes, details = ladder.blocks
    assert isinstance(table, Table) and isinstance(notes, Notes) and isinstance(details, Details)
    assert table.rows[0] == ("UPDATE t SET a = ?", "4 s", "80 %", "10", "0.400 s", "14", "1")
    assert notes.items[0].startswith("x/4/2/1: the plan of `UPDATE t SET a = ?` changed")
    (shown, *_) = details.blocks
    assert isinstance(shown, Preformatted) and "Seq Scan on a" in shown.text
    total = {"count": 99, "calls": 99.0, "seconds": 12.0, "rows": 7.0}
    many = stated(output=json.dumps({"total": total, "statements": [update(), COMMIT]}))
    (rung,) = load_results([begun(many.id.stage), many]).stages[many.id.stage].rungs
    lines = top_statements(rung, "db")
    assert [line.time_fraction for line in lines] == [0.25, 1.0 / 12.0], "of all statements, not of the listed ones"


# ---- the cost of a transaction, from counters that grow by known amounts -----------------------------------------

LOAD = load_result(ended_in_window=5_000, client_cpu_s=0.5)
"""500 transactions a second, for 100 µs of client CPU each."""
GROWTH = {
    "cpu.user_s_total": 0.75,
    "cpu.system_s_total": 0.25,
    "cpu.idle_s_total": 3.0,
    "cpu.context_switches_total": 5_000.0,
    "disk.reads_total[vda]": 50.0,
    "disk.read_bytes_total[vda]": 409_600.0,
    "disk.write_bytes_total[vda]": 819_200.0,
    "network.received_bytes_total": 100_000.0,
    "network.sent_bytes_total": 400_000.0,
    "ours.cpu_s_total": 0.6,
    "ours.servers_cpu_s_total": 0.4,
    "ours.servers_read_bytes_total": 4_096.0,
    "ours.servers_written_bytes_total": 8_192.0,
    "ours.servers_context_switches_total": 1_000.0,
}
"""Of a counter, per second."""


def grown(growth: Mapping[str, float], **levels: float) -> Recording:
    fixed = {f"network.{name}": value for name, value in levels.items()}
    return Recording(
        samples({s: {name: 100.0 + each * s for name, each in growth.items()} | fixed for s in (0, 5, 10)})
    )


BOTH = {
    ("host", "db"): grown(GROWTH),
    ("host", "client"): grown(GROWTH),
    ("waits", "db"): grown({"wal.bytes_total": 128_000.0, "io.reads_total": 25.0}),
}


def cost(
    recordings: Mapping[tuple[str, str], Recording] = BOTH,
    *,
    local: bool = False,
    engine: str = "postgres",
    boots: Mapping[str, str] | None = None,
    loads: int = 1,
    **system: Any,
) -> Cost:
    stage = ladder_stage("x", workload="hlr", target="cache", clients=("client",), captures=("host", "waits"))
    at = dict.fromkeys(("db", "client"), "local") if local else {"db": "db:7700", "client": "client:7700"}
    of = plan_of(
        stage,
        hosts=(
            Host(name="db", roles=("server",), address=at["db"], price_per_hour=3.6, currency="EUR"),
            Host(name="client", roles=("client",), address=at["client"]),
        ),
        systems=(System(name="cache", engine=engine, host="db", **(system or {"provision": "embedded"})),),
        workloads=(Workload(name="hlr", kind="hlr", parameters=()),),
        captures=(
            Capture(name="host", kind="os", every_s=1.0, hosts=("db", "client")),
            Capture(name="waits", kind="waits", every_s=1.0, system="cache"),
        ),
    )
    seen = observations(stage, plan=of, recordings=recordings, boots=boots or {}, window=WINDOW)
    return transaction_cost(seen, stage, [LOAD] * loads)


def test_a_server_with_a_machine_of_its_own_costs_all_of_it() -> None:
    found = cost()
    assert found.metrics == pytest.approx(
        {
            "server_cpu_us": 2_000.0,
            "client_cpu_us": 100.0,
            "reads": 0.1,
            "read_bytes": 819.2,
            "written_bytes": 1_638.4,
            "wal_bytes": 256.0,
            "network_bytes": 1_000.0,
            "context_switches": 10.0,
            "price_per_million": 2.0,  # 3.6 EUR an hour are 0.001 EUR a second, for 500 transactions
        }
    )
    assert found.sources["server_cpu_us"] == "all CPU of host db"
    assert found.sources["price_per_million"] == "EUR, by the price of db"


def test_on_one_machine_with_the_client_only_the_servers_processes_count() -> None:
    found = cost(local=True)
    shares = {"server_cpu_us": 800.0, "read_bytes": 8.192, "written_bytes": 16.384, "context_switches": 2.0}
    shares["reads"] = 0.05
    assert {name: found.metrics[name] for name in shares} == pytest.approx(shares)
    assert found.sources["server_cpu_us"] == "the processes of the servers on db"
    assert found.sources["reads"] == "reads that the database counts, also from the page cache: cache"


@pytest.mark.parametrize("same", [True, False])
def test_the_network_is_that_between_namespaces(same: bool) -> None:
    inodes = {"db": 7.0, "client": 7.0 if same else 8.0}
    recordings = {("host", host): grown(GROWTH, namespace=inode) for host, inode in inodes.items()}
    found = cost(recordings, boots={"db": "boot", "client": "boot"})
    assert found.metrics.get("network_bytes") == (None if same else pytest.approx(1_000.0))
    assert ("reach each other by lo" in found.sources["network_bytes"]) == same
    assert found.sources["server_cpu_us"] == "the processes of the servers on db", "one kernel, one boot id"


def test_what_is_not_captured_or_has_no_server_of_its_own_is_not_zero() -> None:
    found = cost({})
    assert found.metrics.keys() == {"client_cpu_us", "price_per_million"}
    assert found.sources["server_cpu_us"] == "not captured: no os capture of host db"
    assert found.sources["wal_bytes"] == "not captured: no waits capture of system cache"
    in_files = cost(local=True, engine="sqlite")
    assert in_files.metrics.keys() == {"client_cpu_us", "price_per_million"}
    assert "runs in the processes of the load" in in_files.sources["server_cpu_us"]
    assert not cost(loads=0).metrics, "no transaction has no cost"


def test_a_server_with_a_dsn_on_the_clients_machine_is_the_host_without_proveout() -> None:
    found = cost(local=True, dsn="host=/tmp dbname=x")
    assert found.metrics["server_cpu_us"] == pytest.approx((1.0 - 0.6) / 500 * 1e6), "local agents are one process tree"
    assert "without proveout's own" in found.sources["server_cpu_us"]
    assert "written_bytes" not in found.metrics and "context_switches" not in found.metrics
