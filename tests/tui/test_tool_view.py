"""A tool's stage on the screen and in the headless lines: I/O depths and IOPS, where a load has threads and TPS."""

from __future__ import annotations

import dataclasses

import histories
from histories import identity, view_of

from proveout.proto.events import IterationFinished
from proveout.tui.live_load import timeline
from proveout.tui.panes import ladder_text, lines

PLAN = {"stages": [{"id": "base", "kind": "tool", "iodepths": [2, 16], "repeat": 3}]}


def ended(repeat: int, iops: float) -> IterationFinished:
    whole = histories.ended(16, repeat, iops)
    return dataclasses.replace(whole, metrics={**whole.metrics, "iops": iops}, transactions=(), waits=())


EVENTS: tuple[histories.Timed, ...] = (
    histories.started(PLAN),
    histories.stage("base", "tool", 6),
    ended(1, 1000.0),
    ended(2, 1200.0),
    histories.begun(16, 3),
    (12.0, histories.tick(3, 16, 3)),
)


def test_the_tree_and_the_charts_have_depths_and_their_unit() -> None:
    view = view_of(*EVENTS)
    labels = {path: str(label) for path, label in lines(view)}
    assert labels["base",].startswith("▶ base tool")
    assert labels["base", "16"] == "▶ depth 16 1,100 (350 … 3,500)"
    assert labels["base", "16", "base/16/1/1"] == "✓ #1 1,000 p99 2.15 ms"
    assert labels["base", "16", str(identity(16, 3))] == "▶ #3 running"
    assert "mean IOPS" in ladder_text(view, 80).plain
    shown = timeline(view)
    assert shown is not None
    assert (shown.unit, shown.iterations[0].name) == ("IOPS", "depth 16 #3")
