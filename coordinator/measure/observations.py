"""The observations of one iteration that the validity checks read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from proveout.coordinator.measure.captures import Recording, Window
from proveout.core.data_classes import field, record
from proveout.core.json_data import number_at
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Ladder, Limits, Measuring, Search, Tool
from proveout.proto.events import IterationFinished, Metrics, TransactionSummary
from proveout.proto.wire.results import LoadResult, LoadSecond


@record
class Observed:
    """The inputs of the validity checks of one load; times as in `summarise.summarise`, `window` on the coordinator's
    clock.

    `name`: that of the load where there are several; `stage` has this load alone. `earlier`: the valid iterations of
    the same rung before this one. `tps_in_phases`: `tps_per_second` of each phase of the window.
    `disturbed`: the times of the measure window in which faults have an effect, seconds. `server_started_ms`: the start
    of the server that the iteration before has seen, 0 when it is not known.
    """

    plan: Plan
    stage: Measuring
    rate: float | None
    metrics: Metrics
    transactions: Sequence[TransactionSummary]
    tps_per_second: Sequence[float]
    loads: Mapping[str, LoadResult]
    seconds: Mapping[str, Sequence[LoadSecond]]
    recordings: Mapping[tuple[str, str], Recording]
    window: Window
    clocks: Mapping[str, tuple[int, int]]
    t0_ns: int
    lost: Mapping[tuple[str, str], int]
    boots: Mapping[str, str]
    silences: Mapping[str, float]
    clock_ends: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    earlier: Sequence[IterationFinished] = ()
    name: str = ""
    tps_in_phases: Mapping[str, Sequence[float]] = field(default_factory=dict)
    disturbed: Sequence[tuple[float, float]] = ()
    server_started_ms: int = 0

    @property
    def threads(self) -> int:
        """Terminals of the iteration, all clients."""
        return round(self.read("threads") or 0.0)

    @property
    def load(self) -> Ladder | Search:
        """The stage, which generates load itself."""
        assert not isinstance(self.stage, Tool)  # noqa: S101  # `judge` runs other checks for a tool
        return self.stage

    @property
    def of_part(self) -> str:
        """The part of the window that limits are judged by, in words."""
        return ", outside of the faults" if self.disturbed else ""

    @property
    def limits(self) -> Limits:
        return self.stage.limits

    @property
    def is_probe(self) -> bool:
        """Whether this belongs to a search."""
        return isinstance(self.stage, Search)

    def read(self, *path: str) -> float | None:
        """A number of the metrics tree; None when it is not there."""
        return number_at(self.metrics, *path)


def in_passes(stage: Measuring) -> int:
    """The passes in which a stage counts its measure window; 0 when it has a length."""
    return stage.windows.passes if isinstance(stage, Ladder) else 0
