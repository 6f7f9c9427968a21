"""A run of any plan without hosts: every stage of the compiled plan with invented numbers under the names it has.

Data flow: `Plan` -> `result_names` (the names that expressions can read) -> a number for each name and repeat ->
recorded events -> `RunResults`. Deterministic; numbers differ by stage, rung and repeat, and grow with the rung.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import records
from compiled_plans import compiled

from proveout.coordinator.report.figures.timeline import (
    FaultWindow,
    LatencyCell,
    Line,
    LoadPoint,
    LoadSeries,
    Span,
    Timeline,
    chosen,
    typical,
)
from proveout.coordinator.results.results import RunResults, load_results, stage_metrics
from proveout.dsl.compile import result_names
from proveout.dsl.expr.checking import Group
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import CommandRun, Ladder, Sql, Tool
from proveout.proto.events import Event, FaultMeasured, IterationFinished, SizeLine, ValuesTaken, WaitLine
from proveout.proto.wire import histogram

SCALES = {"_us": 900.0, "_fraction": 0.4, "fraction": 0.4, "_bytes": 3e8, "_per_s": 2e4, "tps": 4e3, "nopm": 3e4}
REPEATS = 3

Change = Callable[[str, int, str], float]
"""The factor of a metric's number: (stage, rung, path) -> factor."""


def synthetic_results(plan: Plan, change: Change = lambda _stage, _rung, _path: 1.0) -> RunResults:
    """The results of a run in which every ladder, tool and sql stage came to its end."""
    events: list[Event] = [records.run_started(plan)]
    for stage in plan.stages:
        events.append(records.begun(stage.id, stage.kind))
        match stage:
            case Ladder() | Tool():
                events += _iterations(plan, stage, change)
            case Sql() | CommandRun():
                names = ["elapsed_s", *(value.name for value in stage.values)]
                for repeat in range(1, stage.repeat + 1):
                    values = {name: number(stage.id, 0, repeat, name, change) for name in names}
                    events.append(ValuesTaken(stage=stage.id, repeat=repeat, values=values))
            case _:
                continue
        events.append(records.ended(stage.id, stage_metrics(stage, load_results(events), seconds=1.0)))
    return load_results(events)


@cache
def results_of(name: str) -> RunResults:
    """The results of `plans/NAME.yaml`, once in a process of tests; leave them as they are."""
    return synthetic_results(compiled(name))


def number(stage: str, rung: int, repeat: int, path: str, change: Change) -> float:
    """An invented number for a metric, within 3 % of its scale for the repeats of a rung."""
    name = path.rpartition(".")[2]
    scale = next((scale for ending, scale in SCALES.items() if name.endswith(ending)), 10.0)
    spread = zlib.crc32(f"{stage}/{rung}/{repeat}/{path}".encode()) / 2**32
    own = 1.0 + zlib.crc32(f"{stage}/{path}".encode()) / 2**32
    grown = 1.0 if name.endswith("fraction") else (rung or 1) ** 0.5
    value = scale * own * grown * (1.0 + 0.03 * spread) * change(stage, rung, path)
    return min(value, 1.0) if name.endswith("fraction") else value


def _iterations(plan: Plan, stage: Ladder | Tool, change: Change) -> Iterator[IterationFinished]:
    scope = result_names.run_scope(plan, [stage]).members[stage.id]
    assert isinstance(scope, Group)
    assert scope.rung is not None
    for repeat in range(1, REPEATS + 1):
        for rung in scope.rungs:
            metrics = _tree(scope.rung, "", lambda path, r=rung, n=repeat: number(stage.id, r, n, path, change))
            yield records.iteration(
                stage.id, rung, repeat, metrics, measure_s=60.0, started_unix_s=float(repeat),
                waits=_waits(scope.rung), sizes=_sizes(plan, stage, scope.rung),
            )  # fmt: skip


def _tree(group: Group, path: str, value: Callable[[str], float]) -> dict[str, Any]:
    return {
        name: _tree(below, f"{path}{name}.", value) if isinstance(below, Group) else value(f"{path}{name}")
        for name, below in group.members.items()
    }


def _waits(rung: Group) -> tuple[WaitLine, ...]:
    if "waits" not in rung.members:
        return ()
    shares: Mapping[str, float] = {"log file sync": 0.6, "DB CPU": 0.3, "db file scattered read": 0.1}
    return tuple(
        WaitLine(event=event, wait_class="", seconds=20.0 * share, db_time_fraction=share)
        for event, share in shares.items()
    )


def _sizes(plan: Plan, stage: Ladder | Tool, rung: Group) -> tuple[SizeLine, ...]:
    systems = [capture.system for capture in map(plan.capture, stage.captures) if capture.kind == "sizes"]
    if "sizes" not in rung.members or not systems:
        return ()
    return tuple(
        SizeLine(system=str(systems[0]), table=table, part="table", name=table, start_bytes=1e6,
        end_bytes=number(stage.id, 1, 1, f"{table}_bytes", lambda *_: 1.0))
        for table in ("orders", "lineitem")
    )  # fmt: skip


def synthetic_timeline(results: RunResults) -> Timeline:
    """CPU of a machine and lag in the window of each iteration, where the stage has such captures; the load of the
    rungs that a report shows over time."""
    items = [item for stage in results.stages.values() for item in stage.iterations]
    spans = [(item, 100.0 * at, 100.0 * at + 60.0) for at, item in enumerate(items)]
    lines = {
        name: tuple(
            Line(iteration=item, name="box", times=(start, start + 30.0, end), values=(0.2, 0.5, 0.3))
            for item, start, end in spans
            if name in item.metrics
        )
        for name in ("hosts", "lag")
    }
    windows = tuple(Span(iteration=item, start_s=start, end_s=end) for item, start, end in spans)
    faults = tuple(window for item in items for window in _fault_windows(results, item))
    loads = tuple(
        _load(stage.id, rung.threads, typical(rung))
        for stage, rung in chosen(results)
        if "response" in rung.iterations[0].metrics
    )
    return Timeline(cpu=lines["hosts"], lag=lines["lag"], windows=windows, faults=faults, loads=loads)


def _load(stage: str, rung: int, item: IterationFinished) -> LoadSeries:
    """Two halves of a window, with response times of 1 and 2 ms."""
    halves = ((0.0, 30.0), (30.0, 60.0))
    points = (LoadPoint(start_s=start, end_s=end, tps=100.0, errors=0.0, p50_ms=1.0, p99_ms=2.0)
              for start, end in halves)  # fmt: skip
    cells = (LatencyCell(start_s=start, end_s=end, lower_ms=1.0, upper_ms=2.0, count=9) for start, end in halves)
    responses = histogram.bin_ns([1_000_000] * 90 + [2_000_000] * 10)
    return LoadSeries(stage=stage, rung=rung, iteration=item, end_s=60.0, points=tuple(points), cells=tuple(cells),
                      responses=responses, repeats=REPEATS, waits={})  # fmt: skip


def _fault_windows(results: RunResults, item: IterationFinished) -> Iterator[FaultWindow]:
    """Two occurrences of each fault of the iteration's stage, with an outage of 1 s."""
    for fault in results.plan_stage(item.id.stage).get("faults") or ():
        for occurrence in (1, 2):
            yield FaultWindow(
                iteration=item,
                fault=FaultMeasured(
                    fault=fault["name"], number=occurrence, begins_s=5.0, healed_s=6.0, outage_s=1.0, outage_from_s=5.0
                ),
                answered=((-1.0, 100.0), (0.5, 0.0), (2.0, 100.0)),
                failed=((-1.0, 0.0), (0.5, 2.0), (2.0, 0.0)),
            )
