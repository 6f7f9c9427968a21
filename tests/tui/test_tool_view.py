"""A tool's stage on the screen and in the headless lines: I/O depths and IOPS, where a load has threads and TPS."""

from __future__ import annotations

import io
from functools import reduce as fold

from proveout.cli.common.headless import HeadlessPrinter
from proveout.proto.events import (
    Event,
    IterationFinished,
    IterationId,
    IterationStarted,
    LoadTick,
    RunStarted,
    StageStarted,
    Stamped,
)
from proveout.tui.load_timeline import timeline
from proveout.tui.run_view import RunView, reduce
from proveout.tui.widgets.charts import ladder_text, ladders
from proveout.tui.widgets.plan_tree import lines

PLAN = {
    "stages": [
        {"id": "base", "kind": "ladder", "threads": [1, 4], "repeat": 2},
        {"id": "reads", "kind": "tool", "iodepths": [2, 16], "repeat": 3},
    ]
}


def ended(repeat: int, iops: float) -> IterationFinished:
    return IterationFinished(
        id=IterationId(stage="reads", rung=16, repeat=repeat, attempt=1),
        rate=None,
        measure_s=5.0,
        valid=True,
        findings=(),
        metrics={"tps": iops, "iops": iops, "response": {"avg_us": 100.0, "p50_us": 90.0, "p99_us": 300.0}},
        transactions=(),
    )


NEXT = IterationId(stage="reads", rung=16, repeat=3, attempt=1)
EVENTS: tuple[Event, ...] = (
    RunStarted(run_id="r", epoch=1, name="study", title="T", digest="d", plan=PLAN, version="1", estimate_s=60.0),
    StageStarted(stage="reads", kind="tool", iterations=6, estimate_s=30.0),
    ended(1, 1000.0),
    ended(2, 1200.0),
    IterationStarted(id=NEXT, rate=None, starts_in_s=0.0, ramp_up_s=1.0, measure_s=5.0, ramp_down_s=0.0),
    LoadTick(id=NEXT, second=1, window="measure", tps=1100.0, avg_us=100.0, p50_us=90.0, p99_us=300.0, errors=0),
)


def stamped() -> list[Stamped]:
    return [Stamped(sequence=n, unix_s=1000.0 + n, event=event) for n, event in enumerate(EVENTS, 1)]


def test_the_tree_has_depths_with_their_results() -> None:
    view = fold(reduce, stamped(), RunView())
    stage = view.stage("reads")
    assert stage is not None
    assert (stage.iterations, stage.repeats) == (6, 3)
    labels = {path: str(label) for path, label in lines(view)}
    assert labels["reads",].startswith("▶ reads tool")
    assert labels["reads", "16"] == "▶ depth 16 1,100 (350 … 3,500)"
    assert labels["reads", "16", "reads/16/1/1"] == "✓ #1 1,000 p99 300 µs"
    assert labels["reads", "16", str(NEXT)] == "▶ #3 running"


def test_charts_have_a_unit() -> None:
    view = fold(reduce, stamped(), RunView())
    ((_, points),) = ladders(view)
    assert list(points) == [16]
    assert "mean IOPS" in ladder_text(view, 80).plain
    shown = timeline(view)
    assert shown is not None
    assert (shown.unit, shown.iterations[0].name) == ("IOPS", "depth 16 #3")


def test_lines_of_a_run_without_a_screen() -> None:
    stream = io.StringIO()
    printer = HeadlessPrinter(stream, colour=False)
    for item in stamped():
        printer(item)
    text = stream.getvalue()
    assert "reads, I/O depth 16, repeat 1 of 3: 1,000 IOPS, avg 100 µs, p50 90.0 µs, p99 300 µs" in text
    assert "reads, I/O depth 16, repeat 3 of 3: measure 1 s, 1,100 IOPS" in text
    assert "TPS" not in text
    assert "thread" not in text
