"""View models of a stage and of its iterations, parts of `RunView`. Pure."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from proveout.core.power import CONFIDENCE
from proveout.core.statistics import estimate
from proveout.proto.events import (
    IterationFinished,
    IterationId,
    LadderCut,
    PopulateFinished,
    ProbeFinished,
    SearchFinished,
)
from proveout.tui.event_log import broken

StageState: TypeAlias = Literal["waiting", "running", "ok", "failed", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Progress of a host in its task of the stage; `total` is 0 when unknown."""

    done: float
    total: float
    unit: str
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationView:
    """One iteration that has ended: throughput per second, response times in µs; None where nothing was measured.

    `p99_at_least_us`: a lower bound of the 99th percentile, where transactions had no answer.
    """

    id: IterationId
    rate: float | None
    valid: bool
    tps: float | None
    avg_us: float | None
    p99_us: float | None
    why: str = ""
    p99_at_least_us: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """Mean throughput over repeats with its confidence interval; no interval from one repeat."""

    mean: float
    lower: float | None
    upper: float | None

    @property
    def half(self) -> float | None:
        """Half the width of the interval."""
        return None if self.lower is None or self.upper is None else (self.upper - self.lower) / 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StageView:
    """A stage of the plan; `cell` is its cell of a matrix.

    `iterations` is their largest number; times are Unix seconds, 0 before the start.
    """

    id: str
    kind: str
    cell: str = ""
    state: StageState = "waiting"
    iterations: int = 0
    repeats: int = 0
    confidence: float = CONFIDENCE
    estimate_s: float = 0.0
    began_unix_s: float = 0.0
    ended_unix_s: float = 0.0
    finished: tuple[IterationView, ...] = ()
    voided: int = 0
    probes: tuple[ProbeFinished, ...] = ()
    search: SearchFinished | None = None
    cut: LadderCut | None = None
    progress: Mapping[str, Progress] = field(default_factory=dict)
    populated: tuple[PopulateFinished, ...] = ()

    @property
    def rungs(self) -> dict[int, tuple[IterationView, ...]]:
        """The valid iterations by rung, fewest threads first."""
        valid = [item for item in self.finished if item.valid]
        threads = sorted({item.id.rung for item in valid})
        return {rung: tuple(item for item in valid if item.id.rung == rung) for rung in threads}

    @property
    def throughput(self) -> dict[int, Throughput]:
        """The throughput of each rung that has a valid iteration, with the interval of the report."""
        found: dict[int, Throughput] = {}
        for rung, items in self.rungs.items():
            by_repeat = {item.id.repeat: item for item in items if item.tps is not None}
            kept = [by_repeat[repeat] for repeat in sorted(by_repeat)]
            if kept:
                values = tuple(float(item.tps or 0.0) for item in kept)
                found[rung] = _throughput(values, self.confidence)
        return found


@functools.lru_cache(maxsize=1024)
def _throughput(values: tuple[float, ...], confidence: float) -> Throughput:
    found = estimate(values, confidence=confidence)
    return Throughput(mean=found["mean"], lower=found.get("lower"), upper=found.get("upper"))


def share_done(stage: StageView, now_unix_s: float) -> float:
    """The finished share of a running stage, 0 … 1: by time, within the bounds of its finished iterations."""
    by_time = (now_unix_s - stage.began_unix_s) / stage.estimate_s if stage.estimate_s > 0.0 else 1.0
    if not stage.iterations or stage.kind == "search":
        return min(max(by_time, 0.0), 1.0)
    # An invalid repeat is run again, or, when its retries are used up, left: then another one has followed it.
    slots = [(item.id.rung, item.id.repeat) for item in stage.finished]
    valid = {slot for slot, item in zip(slots, stage.finished, strict=True) if item.valid}
    ended = len(valid | {slot for slot in slots if slot != slots[-1]})
    return min(max(by_time, ended / stage.iterations, 0.0), (ended + 1) / stage.iterations, 1.0)


def ended_view(event: IterationFinished) -> IterationView:
    """The view of an iteration that has ended."""
    response = event.metrics.get("response", {})
    return IterationView(
        id=event.id,
        rate=event.rate,
        valid=event.valid,
        tps=event.metrics.get("tps"),
        avg_us=response.get("avg_us"),
        p99_us=response.get("p99_us"),
        why=broken(event),
        p99_at_least_us=at_least_us(event, "response.p99_us"),
    )


def at_least_us(event: IterationFinished, path: str) -> float | None:
    """The lower bound of a response time that is not known, where it is given."""
    return None if path in event.not_given else event.at_least.get(path)
