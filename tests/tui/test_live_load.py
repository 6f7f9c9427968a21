"""The load of the newest seconds: the large digits of the header, and the timeline."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import histories
import pytest
from histories import view_of

from proveout.proto.events import Event, FaultSeen, HostTick, ProbeFinished
from proveout.tui import charts, live_load
from proveout.tui.charts import NOT_KNOWN, ROWS, Bar, Figure, draw_numbers
from proveout.tui.header import headline, verdict_counts
from proveout.tui.live_load import timeline
from proveout.tui.run_view import RunView, Throughput
from proveout.tui.style import BAD, CAUTION

PLAN = {
    "hosts": [{"name": "db1", "roles": ["server"]}],
    "stages": [
        {
            "id": "base", "kind": "ladder", "threads": [4], "repeat": 2,
            "windows": {"phases": [["calm", 4.0], ["spike", 6.0]]},
            "arrival": {
                "kind": "phased", "of": "rate",
                "levels": [{"for_s": 4.0, "values": [200.0], "at_s": [0.0]}, {"for_s": 6.0, "values": [800.0], "at_s": [0.0]}],
            },
        },
    ],
}  # fmt: skip


def going(*ticks: Event, plan: object = PLAN) -> RunView:
    begun = dataclasses.replace(histories.begun(4, 1), starts_in_s=0.0)
    return view_of(histories.started(plan), histories.stage("base", iterations=2, estimate_s=40.0), begun, *ticks)


def at(view: RunView, second: float) -> RunView:
    """The view that many seconds after T0."""
    return dataclasses.replace(view, now_unix_s=view.iteration_began_unix_s + second)


def lines(view: RunView, width: int = 100, height: int = 30) -> list[str]:
    shown = timeline(view)
    assert shown is not None
    return live_load.draw(shown, width, height).plain.split("\n")


def test_the_timeline_goes_over_iterations_and_has_two_minutes() -> None:
    first = at(going(*histories.ticks(4, 1, 15)), 15.0)
    again = dataclasses.replace(histories.begun(4, 2), starts_in_s=0.0)
    both = view_of((first.now_unix_s + 10.0 - histories.START_S, again), view=first)
    shown = timeline(dataclasses.replace(both, now_unix_s=both.now_unix_s + 3.0))
    assert shown is not None
    assert shown.ends_s - shown.begins_s == 30.0
    assert [span.name for span in shown.iterations] == ["4 thr #1", "4 thr #2"]
    assert len(shown.seconds) == 15
    assert timeline(dataclasses.replace(both, now_unix_s=both.now_unix_s + 300.0)) is None
    assert timeline(at(first, -5.0)) is None, "all of its seconds are yet to come"


def test_a_picture_has_exactly_its_size_and_the_names_outside_of_the_plot() -> None:
    view = at(going(*histories.ticks(4, 1, 13)), 13.0)
    for width, height in ((52, 17), (120, 40)):
        rows = lines(view, width, height)
        assert len(rows) == height
        assert max(map(len, rows)) <= width
    text = "\n".join(lines(view))
    assert all(re.search(rf"[⠀-⣿▁-█ ] {name} \d", text) for name in ("p50", "p95", "p99"))
    assert lines(at(going(*histories.ticks(4, 1, 4)), 4.0)), "before the second phase, which begins beyond the edge"
    assert "target 800" in text
    assert "calm" in text and "spike" in text
    assert text.splitlines()[-1].rstrip().endswith("now")


def test_seconds_without_answers_are_a_gap_and_errors_are_marked() -> None:
    ticks = [histories.silent(one, 3) if 5 <= one.second < 9 else one for one in histories.ticks(4, 1, 13)]
    rows = lines(at(going(*ticks), 13.0), 110, 30)
    plot = slice(9, 110 - 15)
    errors = next(row for row in rows if "×" in row)[plot]
    columns = [place for place, sign in enumerate(errors) if sign == "×"]
    assert len(columns) == 4
    between = range(columns[0] + 1, columns[-1])
    below = rows[rows.index(next(row for row in rows if "├─" in row)) + 1 : -1]
    drawn = {row[plot][column] for row in below for column in between}
    assert drawn <= {" ", "┊"}, drawn


def test_iterations_that_are_narrower_than_their_names_are_named_where_there_is_room() -> None:
    shown = timeline(at(going(*histories.ticks(4, 1, 15)), 15.0))
    assert shown is not None
    first_s, length_s = shown.begins_s, (shown.ends_s - shown.begins_s) / 12
    spans = tuple(
        live_load.Span(begins_s=first_s + n * length_s, ends_s=first_s + (n + 1) * length_s, name=f"8 thr #{n}")
        for n in range(12)
    )
    for width, wanted in ((100, ["0", "2"]), (220, ["0", "1"])):
        named = live_load.draw(dataclasses.replace(shown, iterations=spans), width, 30).plain.split("\n")[0]
        assert re.findall(r"8 thr #(\d+)", named)[:2] == wanted, named


def test_faults_are_named_on_the_timeline() -> None:
    fault = FaultSeen(id=histories.identity(4, 1), host="db1", fault="crash", number=1, step="begins", at_s=4.0)
    view = at(going(*histories.ticks(4, 1, 13), fault, dataclasses.replace(fault, step="healed", at_s=8.0)), 13.0)
    row = next(row for row in lines(view, 160) if "▼" in row)
    assert "▼crash" in row and "▲" in row
    narrow = next(row for row in lines(view, 52) if "▼" in row)
    assert "c" not in narrow, "a name that does not fit is left out whole"


@pytest.mark.parametrize("width", [60, 118])
def test_the_counts_of_verdicts_are_never_left_out(width: int) -> None:
    view = view_of(*histories.judged())
    warned = tuple(
        dataclasses.replace(verdict, severity="warn") if verdict.outcome == "FAIL" else verdict
        for verdict in view.verdicts
    )
    view = dataclasses.replace(view, verdicts=warned, title="A long title of the plan " * 4)
    assert "".join(text for text, _, _ in verdict_counts(view)) == " ✓1 ✗1(warn) ?1"
    line = headline(view, "replay × 10", width)
    assert line.plain.endswith("✓1 ✗1(warn) ?1")
    assert line.cell_len == width


@pytest.mark.parametrize(("height", "tps"), [(9, 9_800.0), (17, 21_870.0)])
def test_ticks_of_the_load_are_equally_far_apart_and_at_their_values(height: int, tps: float) -> None:
    ticks = [dataclasses.replace(tick, tps=tps) for tick in histories.ticks(4, 1, 13)]
    rows = lines(at(going(*ticks, plan={"stages": []}), 13.0), 100, height)
    zero = next(place for place, row in enumerate(rows) if "├─" in row)
    marks = {float(row.split("┤")[0].replace(",", "")): zero - at for at, row in enumerate(rows[:zero]) if "┤" in row}
    of_row = next(value / above for value, above in marks.items())
    assert [value / above for value, above in marks.items()] == pytest.approx([of_row] * len(marks))
    drawn = "".join(row[75] for row in reversed(rows[:zero])).strip()
    blocks = 8 * (len(drawn) - 1) + " ▁▂▃▄▅▆▇█".index(drawn[-1])
    assert blocks / 8 + 0.5 == pytest.approx(tps / of_row, abs=1 / 8), "the zero line is half a row below the plot"


def test_an_interval_of_two_repeats_does_not_stretch_the_axis() -> None:
    two = Throughput(mean=8600.0, n=2, lower=-15_000.0, upper=32_000.0)
    three = Throughput(mean=5000.0, n=3, lower=4800.0, upper=5200.0)
    assert charts.axis([two, three], 4).high == 10_000.0
    rows = [
        str(row) for row in charts.draw_intervals([Bar(name="1 thr", found=three), Bar(name="4 thr", found=two)], 80)
    ]
    assert "├" in rows[0] and "┤" in rows[0]
    assert "◂" in rows[1] and rows[1].rstrip().endswith("▸")
    assert rows[0].index("5,000") == rows[1].index("8,600"), "numbers are right-aligned"
    assert rows[2].rstrip().endswith("10,000")
    assert all(len(row) <= 80 for row in rows)


def probe(number: int, rate: float, *, accepted: bool, phase: Any = "bracket") -> ProbeFinished:
    return ProbeFinished(stage="cap", probe=number, phase=phase, rate=rate, accepted=accepted, evidence="e")


def test_the_bracket_of_a_search() -> None:
    probes = [probe(1, 100.0, accepted=True), probe(2, 200.0, accepted=True), probe(3, 400.0, accepted=False)]
    assert charts.bracket(probes) == (200.0, 400.0)
    assert charts.bracket([*probes, probe(4, 200.0, accepted=False, phase="confirm")]) == (100.0, 200.0)
    assert charts.bracket([]) == (None, None)
    text = "\n".join(str(row) for row in charts.draw_search(probes, (4, 300.0), 60, 12))
    assert (text.count("●"), text.count("×"), text.count("▶")) == (2, 1, 1)
    assert "best 200" in text and "refused 400" in text
    near = [probe(1, 5.0, accepted=True), probe(2, 100_000.0, accepted=True), probe(3, 105_000.0, accepted=False)]
    assert "100,000 … 105,000" in "".join(str(row) for row in charts.draw_search(near, None, 60, 12))
    assert "refused 105,000" in "".join(str(row) for row in charts.draw_search(near[2:], None, 60, 12))


FIVE = [
    Figure(value="1,234,567", label="TPS of 2,000,000", digits="00,000"),
    Figure(value="240", unit="µs", label="response p50", digits="0.00"),
    Figure(value="2.45", unit="ms", label="response p99", digits="0.00"),
    Figure(value="14", unit="/s", label="errors", style=BAD),
    Figure(value=NOT_KNOWN, label="lag"),
]


def shown(*events: Event, later_s: float = 0.0) -> RunView:
    view = histories.view_of(*events)
    return dataclasses.replace(view, now_unix_s=view.now_unix_s + later_s)


def values(view: RunView) -> dict[str, str]:
    return {figure.label: f"{figure.value} {figure.unit}".strip() for figure in live_load.figures(view)}


@pytest.mark.parametrize("width", [34, 61, 118])
def test_numbers_are_left_out_whole_from_the_right(width: int) -> None:
    rows, everything = draw_numbers(FIVE, width), draw_numbers(FIVE, 500)
    assert len(rows) == ROWS
    assert {row.cell_len for row in rows} == {rows[0].cell_len} and rows[0].cell_len <= width
    labels = rows[3].plain.split("  ")
    assert [label.strip() for label in labels if label.strip()] == [one.label for one in FIVE][
        : sum(one.label in rows[3].plain for one in FIVE)
    ]
    assert all(whole.plain.startswith(row.plain) for row, whole in zip(rows, everything, strict=True))


def test_what_is_not_known_is_a_gap_and_never_zero() -> None:
    broken = values(shown(*histories.broken()))
    assert broken["TPS"] == "0", "a second in which no transaction ended"
    assert (broken["response p50"], broken["response p99"], broken["errors"]) == (NOT_KNOWN, NOT_KNOWN, "14 /s")
    silent = values(shown(*histories.climbing(), later_s=20.0))
    assert set(silent.values()) == {NOT_KNOWN, f"{NOT_KNOWN} /s"}
    assert "TPS, no numbers for 20 s" in silent
    assert values(shown(histories.started())) == {"no load yet": NOT_KNOWN}


def test_errors_a_short_rate_and_a_lag_that_grows_stand_out() -> None:
    def styles(view: RunView) -> dict[str, str]:
        return {figure.label: figure.style for figure in live_load.figures(view)}

    fine = styles(shown(*histories.climbing()))
    assert set(fine.values()) == {"bold"}
    late = HostTick(host="db1", capture="lag", readings={"lag.seconds": 4.1})
    bad = styles(shown(*histories.climbing(), late, dataclasses.replace(histories.tick(9, 16), errors=3)))
    assert (bad["errors"], bad["lag, which grows"]) == (BAD, CAUTION)
    assert styles(shown(*histories.with_loads()))["TPS of 12,000"] == CAUTION
