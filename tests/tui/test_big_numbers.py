"""The large digits of the header: whole numbers only, what is not known as a gap, and what stands out."""

from __future__ import annotations

import dataclasses

import histories
import pytest

from proveout.proto.events import Event, HostTick
from proveout.tui import live_load
from proveout.tui.charts import NOT_KNOWN, ROWS, Figure, draw_numbers
from proveout.tui.run_view import RunView
from proveout.tui.style import BAD, CAUTION

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
