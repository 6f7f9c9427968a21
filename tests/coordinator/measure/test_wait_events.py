"""Wait events by name: seconds, shares, counts and means in the window, of one system and of several."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from records import iteration, samples

from proveout.coordinator.measure.captures import Recording, Window, events_read, unknown_events, waits_metrics
from proveout.coordinator.results.published import wait_rows, wait_systems
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.compile.result_names import run_scope
from proveout.dsl.expr.checking import check_expression
from proveout.dsl.plan.plan import Check
from proveout.dsl.plan.topology import Expression
from proveout.proto.events import WaitLine

ROOT = Path(__file__).parents[3]
WINDOW = Window(start_ns=0, end_ns=10 * 10**9)
SYNC, CPU, READ = "Commit:log file sync", "DB CPU", "User I/O:db file scattered read"


def recording(seconds: Mapping[str, float], counts: Mapping[str, float] | None = None) -> Recording:
    """Two samples, at both ends of the window; all counters begin at 0."""
    last = {f"wait.seconds_total[{label}]": value for label, value in seconds.items()}
    last |= {f"wait.count_total[{label}]": value for label, value in (counts or {}).items()}
    return Recording(samples({0: dict.fromkeys(last, 0.0), 10: last}))


def test_named_events_have_time_share_count_and_mean() -> None:
    counted = recording({SYNC: 6.0, CPU: 3.0, READ: 0.0}, {SYNC: 3_000.0, READ: 0.0})
    names = ("log file sync", "db file scattered read")
    metrics, lines = waits_metrics(counted, WINDOW, names)
    sync = metrics["events"]["log file sync"]
    assert sync == {
        "seconds": pytest.approx(6.0),
        "db_time_fraction": pytest.approx(2 / 3),
        "count": pytest.approx(3_000.0),
        "avg_us": pytest.approx(2_000.0),
    }
    assert metrics["events"]["db file scattered read"]["seconds"] == 0.0
    assert metrics["events"]["db file scattered read"]["avg_us"] is None
    assert (lines[0].event, lines[0].waits, lines[0].average_us) == ("log file sync", 3_000.0, pytest.approx(2_000.0))


def test_an_event_that_the_capture_does_not_know_has_no_numbers_but_a_finding() -> None:
    sampled = recording({"IO:WalSync": 6.0, "IO:WalWrite": 0.0})
    metrics, _ = waits_metrics(sampled, WINDOW, ("WalSinc", "WalWrite"))
    assert list(metrics["events"]) == ["WalWrite"]
    (finding,) = unknown_events(sampled, "db", ("WalSinc", "WalWrite"))
    assert (finding.check, finding.ok, finding.voids) == ("wait:WalSinc", False, False)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ('baseline.at(4).waits.event("WalSync").seconds <= 1', 'baseline.at(4).waits.events["WalSync"].seconds <= 1'),
        ('baseline.peak.waits.event("a b").count.mean > 0', 'baseline.peak.waits.events["a b"].count.mean > 0'),
    ],
)
def test_event_stands_for_an_index(text: str, read: str) -> None:
    plan = compile_plan(ROOT / "plans" / "hlr-cache-embedded.yaml", overrides={})
    checked = check_expression(text, run_scope(plan, plan.stages), "condition")
    assert (checked.faults, checked.text) == ((), read)
    check = Check(id="v", check=Expression(text=checked.text))
    assert events_read(replace(plan, verdicts=(check,), charts=())) == (text.split('"')[1],)


@pytest.mark.parametrize(
    "text", ["event()", 'baseline.at(4).cpu.event("x").count', 'baseline.at(4).waits.event("").count']
)
def test_other_uses_of_event_are_refused(text: str) -> None:
    plan = compile_plan(ROOT / "plans" / "hlr-cache-embedded.yaml", overrides={})
    (fault, *_) = check_expression(f"{text} > 0", run_scope(plan, plan.stages), "condition").faults
    assert "event" in fault.message


def test_a_table_for_each_captured_system() -> None:
    line = WaitLine(event="sync", wait_class="IO", seconds=2.0, db_time_fraction=0.5, waits=10.0)
    waits = {"db_time_s": 4.0, "systems": {"back": {"db_time_s": 8.0}}}
    done = iteration("s", 1, 1, {"waits": waits}, waits=(line, replace(line, seconds=4.0, system="back")))
    assert wait_systems([done]) == ("", "back")
    (first,), (second,) = wait_rows([done, done]), wait_rows([done, done], system="back")
    assert (first.seconds, first.db_time_fraction, first.waits, first.average_us) == (4.0, 0.5, 20.0, 200_000.0)
    assert (second.seconds, second.db_time_fraction) == (8.0, 0.5)
