"""The tunings of a plan, host by host, for `proveout explain`: the wanted state of each host, and the changes and
privileges that it needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from proveout.core.data_classes import dataclass
from proveout.dsl.operations.database.database_copy import copies_after
from proveout.dsl.operations.table import operation_of
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Ladder, Populate, Revert, Stage, Tune
from proveout.dsl.plan.tuning_step import Tuning

TUNING_S = 0.5
"""Reading, changing and reading again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningLine:
    """A tuning on a host. `words`: its special properties; `stage` is the one that applies it, "" for the plan's
    own."""

    host: str
    name: str
    operation: str
    wanted: tuple[str, ...]
    words: tuple[str, ...] = ()
    stage: str = ""
    keep: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningSum:
    """The numbers of tunings of a host: looked at only, set back when the run ends, kept after it; of these, how many
    destroy data."""

    host: str
    looked_at: int
    set_back: int
    kept: int
    destructive: int


def tuning_sums(plan: Plan) -> tuple[TuningSum, ...]:
    """A sum for each host of a plan that tunes any, those of which nothing is changed too."""
    every = [tuning for _, tuning in _all(plan)]
    return tuple(_sum(host.name, [t for t in every if host.name in t.hosts]) for host in plan.hosts) if every else ()


def _sum(host: str, tunings: Sequence[Tuning]) -> TuningSum:
    changing = [tuning for tuning in tunings if operation_of(tuning).changing]
    kept = sum(tuning.keep for tuning in changing)
    return TuningSum(
        host=host,
        looked_at=len(tunings) - len(changing),
        set_back=len(changing) - kept,
        kept=kept,
        destructive=sum(tuning.destructive for tuning in changing),
    )


def tuning_lines(plan: Plan) -> tuple[TuningLine, ...]:
    """Every tuning on every host: hosts in the plan's order, then the order in which they are applied.

    That is: those of the plan, then those of each stage; of either, those of the host before those of systems on it.
    """
    batches = [("", plan.tunings), *((stage.id, _of_stage(plan, stage)) for stage in plan.stages)]
    ordered = [(stage, t) for stage, tunings in batches for t in sorted(tunings, key=lambda t: bool(t.system))]
    reverted = {one.tune: one.id for one in plan.stages if isinstance(one, Revert)}
    local = [host.name for host in plan.hosts if host.is_local]
    machine = f"on the one machine of hosts {', '.join(local)}" if len(local) > 1 else ""
    return tuple(
        _line(t, host.name, stage, machine if host.is_local and not t.system else "", reverted.get(stage, ""))
        for host in plan.hosts
        for stage, t in ordered
        if host.name in t.hosts
    )


def privileges_of(plan: Plan, host: str) -> tuple[str, ...]:
    """The privileges that the agent of a host needs for the tunings and faults there, without repeats."""
    faults = (fault for stage in plan.stages if isinstance(stage, Ladder) for fault in stage.faults)
    every = [*(tuning for _, tuning in _all(plan)), *(tuning for fault in faults for tuning in fault.tunings)]
    found = (operation_of(tuning).privileges for tuning in every if host in tuning.hosts)
    restarts = ("root: restarts units" for tuning in every if host in tuning.hosts and tuning.restart)
    return tuple(dict.fromkeys((*found, *restarts)))


def hosts_of(tunings: Sequence[Tuning]) -> tuple[str, ...]:
    """The hosts that tunings are for, in the order they are named."""
    return tuple(dict.fromkeys(host for tuning in tunings for host in tuning.hosts))


def tunings_of(plan: Plan, stage: Revert) -> tuple[Tuning, ...]:
    """The tunings that a `revert` stage sets back."""
    tune = plan.stage(stage.tune)
    return tune.tunings if isinstance(tune, Tune) else ()


def estimate_tunings_s(tunings: Sequence[Tuning]) -> float:
    """About how long it takes to apply them, seconds: hosts are tuned side by side."""
    return max((TUNING_S * sum(host in t.hosts for t in tunings) for host in hosts_of(tunings)), default=0.0)


def _all(plan: Plan) -> Iterator[tuple[str, Tuning]]:
    """(stage or "", tuning) of the whole plan."""
    for tuning in plan.tunings:
        yield "", tuning
    for stage in plan.stages:
        for tuning in _of_stage(plan, stage):
            yield stage.id, tuning


def _of_stage(plan: Plan, stage: Stage) -> tuple[Tuning, ...]:
    """The tunings that a stage applies: its own, or the copies of the systems that it has populated."""
    if isinstance(stage, Tune):
        return stage.tunings
    return copies_after(plan, stage) if isinstance(stage, Populate) else ()


def _line(tuning: Tuning, host: str, stage: str, machine: str, reverted: str) -> TuningLine:
    return TuningLine(
        host=host,
        name=tuning.name,
        operation=tuning.operation,
        wanted=operation_of(tuning).wanted(),
        words=(*((machine,) if machine else ()), *_words(tuning, stage, reverted)),
        stage=stage,
        keep=tuning.keep,
    )


def _words(tuning: Tuning, stage: str, reverted: str) -> Iterator[str]:
    if stage:
        yield f"by stage {stage}"
    if tuning.system:
        yield f"of system {tuning.system}"
    if tuning.destructive:
        yield "destroys data"
    if tuning.restart:
        yield f"restarts {tuning.restart}"
    if operation_of(tuning).changing:
        back = f"set back by stage {reverted}" if reverted else "set back after the run"
        yield "kept after the run" if tuning.keep else back
    else:
        yield "looked at only"
