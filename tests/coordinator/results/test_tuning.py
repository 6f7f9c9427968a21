"""The outcomes of tunings in results, summaries and reports, derived from events of the journal."""

from __future__ import annotations

import io
import json

from rich.console import Console

from proveout.coordinator.report import markdown, terminal
from proveout.coordinator.report.json_documents import result_to_json
from proveout.coordinator.report.run_document import run_document
from proveout.coordinator.results.results import load_results
from proveout.proto.events import Event, TuningAct, TuningSeen
from proveout.proto.tuning_state import TunedHost, tuned
from proveout.proto.wire.results import TuningOutcome, TuningState


def seen(act: TuningAct, *states: tuple[str, TuningOutcome, tuple[str, ...]], host: str = "db1") -> TuningSeen:
    made = tuple(
        TuningState(name=name, operation="sysctl", outcome=outcome, lines=lines) for name, outcome, lines in states
    )
    return TuningSeen(host=host, act=act, states=made)


APPLIED: list[Event] = [
    seen(
        "apply", ("swap", "applied", ("vm.swappiness: 60 -> 10", "vm.dirty_ratio: 20 -> 5")), ("ports", "unchanged", ())
    ),
    seen("look", ("swap", "in_place", ())),
]


def state_after(*more: Event) -> tuple[TunedHost, ...]:
    return tuned(load_results([*APPLIED, *more]).tunings)


def told(*more: Event) -> list[tuple[str, str, str]]:
    return [(one.host, one.name, one.describe(ended=True)) for one in state_after(*more)]


def test_applied_and_reverted_tunings_and_one_without_an_event_for_its_end() -> None:
    ports = ("db1", "ports", "unchanged")
    assert told(seen("revert", ("swap", "reverted", ()))) == [("db1", "swap", "applied, reverted"), ports]
    assert told() == [("db1", "swap", "applied, its end is not known"), ports]


def test_the_worst_outcome_of_several_changes_counts() -> None:
    ends = seen("revert", ("swap", "residue", ("/x could not be undone",)), ("swap", "reverted", ()))
    (one, _) = state_after(ends)
    assert one.describe(ended=True) == "applied, NOT reverted"
    assert one.left == ("/x could not be undone",)


def test_drift_is_reported_once() -> None:
    drift = seen("look", ("swap", "drifted", ("vm.swappiness is 33",)))
    (one, _) = state_after(drift, drift, seen("revert", ("swap", "drifted", ("vm.swappiness is 33",))))
    assert one.drift == ("vm.swappiness is 33",)
    assert one.describe(ended=True) == "applied, left as changed from outside"


def test_every_report_has_the_tunings() -> None:
    results = load_results([*APPLIED, seen("revert", ("swap", "reverted", ()))])
    assert json.loads(result_to_json(results))["tuning"][0]["changes"] == [
        "vm.swappiness: 60 -> 10",
        "vm.dirty_ratio: 20 -> 5",
    ]
    assert "| db1 | swap (sysctl) | applied, reverted | vm.swappiness: 60 -\\> 10<br>" in markdown.render(
        run_document(results)
    )
    stream = io.StringIO()
    terminal.render(run_document(results), Console(file=stream, width=100))
    lines = [line.split() for line in stream.getvalue().splitlines()]
    assert ["db1", "swap", "(sysctl)", "applied,", "reverted", "vm.swappiness:", "60", "->", "10"] in lines
    assert ["vm.dirty_ratio:", "20", "->", "5"] in lines
