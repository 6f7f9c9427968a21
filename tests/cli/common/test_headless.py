"""Events -> lines of a log or a terminal."""

from __future__ import annotations

import dataclasses
import io
from typing import Any

import pytest

from proveout.cli.common.headless import HeadlessPrinter, wants_colour
from proveout.proto.events import (
    AgentLost,
    Event,
    IterationFinished,
    IterationId,
    IterationStarted,
    LoadTick,
    Notice,
    RunFinished,
    RunStarted,
    StageProgress,
    StageStarted,
    Stamped,
    ValidityFinding,
    VerdictForeseen,
    VerdictReached,
)

ID = IterationId(stage="base", rung=4, repeat=2, attempt=1)
STARTED = RunStarted(
    run_id="r-1",
    epoch=1,
    name="study",
    title="T",
    digest="d",
    plan={"stages": [{"id": "base", "kind": "ladder", "threads": [4], "repeat": 3}]},
    version="1",
    estimate_s=90.0,
)


def tick(second: int, tps: float = 1234.0) -> LoadTick:
    return LoadTick(
        id=ID, second=second, window="measure", tps=tps, avg_us=456.0, p50_us=400.0, p99_us=2345.0, errors=0
    )


def lines(*events: tuple[float, Event], colour: bool = False) -> list[str]:
    stream = io.StringIO()
    printer = HeadlessPrinter(stream, colour=colour)
    for number, (unix_s, event) in enumerate(events, 1):
        printer(Stamped(sequence=number, unix_s=1e9 + unix_s, event=event))
    return stream.getvalue().splitlines()


def verdict(outcome: Any, evidence: str = "1 >= 2") -> VerdictReached:
    return VerdictReached(id="v", title="", severity="fail", outcome=outcome, check="", evidence=evidence)


def test_a_load_line_has_the_rung_the_time_and_the_rate() -> None:
    text = lines((0.0, STARTED), (61.0, tick(3)))[-1]
    assert (
        text == "[ 1:01, 1:30 left]   base, 4 threads, repeat 2 of 3: measure 3 s, 1,234 TPS, avg 456 µs, p99 2.35 ms"
    )


def test_a_second_without_answers_has_its_errors_and_no_time() -> None:
    silent = dataclasses.replace(tick(4, 0.0), avg_us=None, p50_us=None, p99_us=None, errors=12)
    text = lines((0.0, STARTED), (61.0, silent))[-1]
    assert text.endswith("repeat 2 of 3: measure 4 s, 0 TPS, 12 errors")


def test_progress_lines_come_at_most_once_a_second_and_only_after_changes() -> None:
    quick = [(10.0 + n / 10, tick(n, tps=float(n + 1))) for n in range(31)]
    assert len(lines((0.0, STARTED), *quick)) == 1 + 4
    same = [(10.0 + 2 * n, StageProgress(stage="base", host="c", done=5, total=9, unit="rows")) for n in range(5)]
    assert len(lines((0.0, STARTED), *same)) == 1 + 1


def test_single_events_are_always_printed() -> None:
    begun = IterationStarted(id=ID, rate=500.0, starts_in_s=0.1, ramp_up_s=1, measure_s=5, ramp_down_s=1)
    found = lines(
        (0.0, STARTED),
        (0.1, StageStarted(stage="base", kind="ladder", iterations=3, estimate_s=30.0)),
        (0.2, begun),
        (0.3, tick(0)),
        (0.4, verdict("FAIL")),
    )
    assert found[0].endswith("run r-1: T, about 1 min 30 s")
    assert found[1].endswith("stage base (ladder) begins, 3 iterations, about 30 s")
    assert found[2].endswith("base, 4 threads, repeat 2 of 3 at 500/s: ramp-up 1 s, measure 5 s, ramp-down 1 s")
    assert found[4].endswith("FAIL v: 1 >= 2")


def test_an_invalid_iteration_has_its_reason() -> None:
    finding = ValidityFinding(check="errors", ok=False, evidence="7 technical errors")
    ended = IterationFinished(
        id=ID, rate=None, measure_s=5.0, valid=False, findings=(finding,), metrics={"tps": 10.0}, transactions=()
    )
    assert lines((0.0, STARTED), (1.0, ended))[-1].endswith(
        "10 TPS, avg -, p50 -, p99 -; INVALID: errors: 7 technical errors"
    )


def test_hostile_text_is_escaped_in_one_line() -> None:
    hostile = "\x1b]0;owned\x07\x1b[2J\r\nnext [red]line[/red]\u202e"
    found = lines(
        (0.0, STARTED),
        (1.0, Notice(level="error", host=hostile, text=hostile)),
        (2.0, AgentLost(host="h", reason=hostile)),
        (3.0, verdict("PASS", hostile)),
    )
    assert len(found) == 4
    for text in found:
        assert not any(character in text for character in "\x1b\x07\r\u202e")
    assert "\\x1b]0;owned\\x07" in found[1]
    assert "[red]line[/red]" in found[1]


def test_only_outcomes_are_coloured_and_only_with_the_option() -> None:
    assert "\x1b" not in lines((0.0, STARTED), (1.0, verdict("FAIL")))[-1]
    assert "\x1b[31mFAIL\x1b[0m v" in lines((0.0, STARTED), (1.0, verdict("FAIL")), colour=True)[-1]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "environment", "expected"),
    [
        (Terminal(), {}, True),
        (Terminal(), {"NO_COLOR": "1"}, False),
        (Terminal(), {"NO_COLOR": ""}, True),
        (Terminal(), {"TERM": "dumb"}, False),
        (io.StringIO(), {}, False),
    ],
)
def test_colour_by_the_terminal(stream: io.StringIO, environment: dict[str, str], expected: bool) -> None:
    assert wants_colour(stream, environment) is expected


def test_a_closed_pipe_does_not_end_the_run() -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    printer = HeadlessPrinter(Closed(), colour=False)
    for number, event in enumerate((STARTED, verdict("PASS")), 1):
        printer(Stamped(sequence=number, unix_s=float(number), event=event))
    assert [item.outcome for item in printer.view.verdicts] == ["PASS"]


def test_the_last_line_has_the_outcome() -> None:
    end = RunFinished(status="finished", exit_code=3, reason="not all could be judged", seconds=75.0)
    assert (
        lines((0.0, STARTED), (75.0, end))[-1]
        == "[ 1:15] finished in 1 min 15 s: not all could be judged (exit code 3)"
    )


def test_a_provisional_verdict_is_marked_as_provisional() -> None:
    early = VerdictForeseen(id="quick", title="T", severity="fail", outcome="FAIL", evidence="9 ms <= 5 ms \x1b[31m")
    (line,) = lines((1.0, early), colour=True)
    assert line.split("] ", 1)[1] == "provisional: FAIL quick: 9 ms <= 5 ms \\x1b[31m"
