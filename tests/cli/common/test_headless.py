"""Events -> lines of a log or a terminal."""

from __future__ import annotations

import dataclasses
import io
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import histories
import pytest
from histories import tick

from proveout.cli import Stream, run_session
from proveout.cli.headless import HeadlessPrinter, LiveLinePrinter, QuietPrinter, wants_colour
from proveout.proto import events as e

PLAN = {"stages": [{"id": "base", "kind": "ladder", "threads": [4], "repeat": 3}]}
STARTED = (0.0, histories.started(PLAN, estimate_s=90.0))


def printed(printer: HeadlessPrinter | QuietPrinter, *events: histories.Timed) -> None:
    for stamped in histories.stamped(events):
        printer(stamped)


def lines(*events: tuple[float, e.Event], colour: bool = False) -> list[str]:
    stream = io.StringIO()
    printed(HeadlessPrinter(stream, colour=colour), *events)
    return stream.getvalue().splitlines()


def verdict(outcome: Any, evidence: str = "1 >= 2", name: str = "v") -> e.VerdictReached:
    return e.VerdictReached(id=name, title="", severity="fail", outcome=outcome, check="", evidence=evidence)


def test_a_load_line_has_the_rung_the_time_and_the_rate() -> None:
    line = lines(STARTED, (61.0, tick(3)))[-1]
    assert (
        line == "[ 1:01, 1:30 left]   base, 4 threads, repeat 1 of 3: measure 3 s, 9,400 TPS, avg 310 µs, p99 2.30 ms"
    )
    silent = histories.silent(tick(4), 12)
    assert lines(STARTED, (61.0, silent))[-1].endswith("repeat 1 of 3: measure 4 s, 0 TPS, 12 errors")


def test_progress_lines_come_at_most_once_a_second_and_only_after_changes() -> None:
    quick: list[tuple[float, e.LoadTick]] = [(10.0 + n / 10, tick(n)) for n in range(31)]
    assert len(lines(STARTED, *quick)) == 1 + 4
    same = [(10.0 + 2 * n, e.StageProgress(stage="base", host="c", done=5, total=9, unit="rows")) for n in range(5)]
    assert len(lines(STARTED, *same)) == 1 + 1


def test_single_events_are_always_printed() -> None:
    begun = dataclasses.replace(histories.begun(4, 1), rate=500.0)
    end = e.RunFinished(status="finished", exit_code=3, reason="not all could be judged", seconds=75.0)
    found = lines(
        STARTED,
        (0.1, histories.stage("base", iterations=3, estimate_s=30.0)),
        (0.2, begun),
        (0.3, tick(0)),
        (0.4, histories.ended(4, 1, 10.0, valid=False)),
        (0.5, e.VerdictForeseen(id="quick", title="T", severity="fail", outcome="FAIL", evidence="9 ms <= 5 ms")),
        (0.6, verdict("FAIL")),
        (75.0, end),
    )
    assert found[0].endswith("Scaling, about 1 min 30 s")
    assert found[1].endswith("stage base (ladder) begins, 3 iterations, about 30 s")
    assert found[2].endswith("base, 4 threads, repeat 1 of 3 at 500/s: ramp-up 3 s, measure 10 s, ramp-down 2 s")
    assert found[4].endswith(
        "10 TPS, avg 310 µs, p50 240 µs, p99 2.15 ms; INVALID: client: the client was at 97 % of its CPU"
    )
    assert found[5].endswith("provisional: FAIL quick: 9 ms <= 5 ms")
    assert found[6].endswith("FAIL v: 1 >= 2")
    assert found[7] == "[ 1:15] finished in 1 min 15 s: not all could be judged (exit code 3)"


def test_the_second_repeat_has_the_throughput_over_the_repeats_and_a_verdict_no_notes() -> None:
    repeats = [(float(n), histories.ended(4, n, 1000.0 + 10 * n)) for n in (1, 2)]
    foreseen = e.VerdictForeseen(
        id="quick", title="T", severity="fail", outcome="FAIL", evidence="9 ms <= 5 ms; note: the client was busy"
    )
    found = lines(STARTED, *repeats, (3.0, foreseen))
    assert "repeats" not in found[1]
    assert "; 2 repeats: 1,015 TPS (95 % CI 953 … 1,081)" in found[2]
    assert found[3].endswith("FAIL quick: 9 ms <= 5 ms")
    probes = [(float(n), histories.ended(4, n, 1000.0 * n, stage="cap")) for n in (1, 2)]
    void = (3.0, histories.ended(4, 3, 9.0, valid=False))
    wide = [(float(n), histories.ended(1, n, 12.5 if n == 1 else 12_345.0)) for n in (1, 2)]
    found = lines(STARTED, *probes, *repeats, void, *wide)
    assert not any("repeats" in found[place] for place in (2, 5))
    assert found[-1].endswith("; 2 repeats: 6,179 TPS")


def test_on_a_terminal_a_table_of_the_ladder_stands_for_the_lines_of_its_iterations() -> None:
    stream = io.StringIO()
    sizes = [(80, 24)]
    printer = LiveLinePrinter(stream, size=lambda: sizes[-1], colour=False)
    stage = histories.stage("base", iterations=6)
    repeats = [(float(n), histories.ended(rung, n, 1000.0 * rung)) for n in (1, 2) for rung in (1, 4)]
    printed(printer, STARTED, (0.1, stage), *repeats, (9.0, tick(5)))
    rows = [line.split() for line in stream.getvalue().rpartition("\x1b[J")[2].split("\n")]
    assert rows[0] == ["base", "threads", "TPS", "95", "%", "p50", "p99", "repeats"]
    assert [row[1:3] for row in rows[1:3]] == [["1", "1,000"], ["4", "4,000"]]
    assert rows[2][-3:] == ["2", "of", "3"]
    assert len(rows) == 4
    assert "measure 5 s" in " ".join(rows[3])
    sizes.append((30, 24))
    printed(printer, (9.5, tick(6)), (11.0, tick(7)))
    assert max(map(len, stream.getvalue().rpartition("\x1b[J")[2].split("\n"))) == 29, "the terminal is narrower now"
    printed(printer, (10.0, histories.done("base")))
    kept = stream.getvalue().split("\n")[-6:]
    assert [line.split()[-3:] for line in kept[1:4]] == [["p50", "p99", "repeats"], *[["2", "of", "3"]] * 2]
    assert stream.getvalue().endswith("stage base is done after 1 s\n\r\x1b[J")


def test_hostile_text_is_escaped_in_one_line() -> None:
    hostile = "\x1b]0;owned\x07\x1b[2J\r\nnext [red]line[/red]\u202e"
    found = lines(
        STARTED,
        (1.0, e.Notice(level="error", host=hostile, text=hostile)),
        (2.0, e.AgentLost(host="h", reason=hostile)),
        (3.0, verdict("PASS", hostile)),
        (4.0, e.VerdictForeseen(id="quick", title="T", severity="fail", outcome="PASS", evidence=hostile)),
    )
    assert len(found) == 5
    assert not any(character in text for text in found for character in "\x1b\x07\r\u202e")
    assert "\\x1b]0;owned\\x07" in found[1]
    assert "[red]line[/red]" in found[1]


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
def test_colour_by_the_terminal(
    stream: io.StringIO, environment: dict[str, str], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.environ", environment)
    assert wants_colour(stream) is expected


async def test_a_run_under_nohup_takes_no_hangup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[bool] = []

    async def run(*_: object, **__: object) -> e.RunFinished:
        taken.append(signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN)
        return e.RunFinished(status="finished", exit_code=0, reason="", seconds=0.0)

    monkeypatch.setattr(run_session, "run", run)
    options = cast(Any, SimpleNamespace(directory=SimpleNamespace(path=tmp_path)))
    before = signal.getsignal(signal.SIGHUP)
    try:
        for handler in (signal.SIG_DFL, signal.SIG_IGN):
            signal.signal(signal.SIGHUP, handler)
            await run_session._run(options, cast(Any, None), HeadlessPrinter(io.StringIO()), None)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert taken == [True, False]


def test_quiet_prints_errors_and_the_sentence() -> None:
    stream = io.StringIO()
    printed(
        QuietPrinter(stream, colour=False),
        STARTED,
        e.Notice(level="warning", text="a warning", host=""),
        e.Notice(level="error", text="disk full", host="h"),
        e.AgentLost(host="h", reason="gone"),
        verdict("PASS", name="fine"),
        verdict("FAIL", "why", name="slow"),
        e.RunFinished(status="finished", exit_code=1, reason="1 passed, 1 failed", seconds=3.0),
    )
    assert stream.getvalue().splitlines() == [
        "error on h: disk full",
        "error: agent h is lost: gone",
        "FAIL slow: why",
        "finished in 3 s: 1 passed, 1 failed (exit code 1)",
    ]


def test_only_outcomes_are_coloured_and_only_with_the_option() -> None:
    assert "\x1b" not in lines(STARTED, (1.0, verdict("FAIL")))[-1]
    assert "\x1b[31mFAIL\x1b[0m v" in lines(STARTED, (1.0, verdict("FAIL")), colour=True)[-1]


@pytest.mark.parametrize("unbuffered", [True, False])
def test_a_line_is_written_at_once_where_python_has_no_buffers(tmp_path: Path, *, unbuffered: bool) -> None:
    with (tmp_path / "log").open("wb", buffering=0) as file:
        before = io.TextIOWrapper(cast("Any", file), write_through=unbuffered)
        output, text = Stream.in_place_of(before, file.fileno())
        print("a line", file=text)
        assert (tmp_path / "log").read_text() == ("a line\n" if unbuffered else "")
        assert (output.fault, text.close()) == (None, None)
