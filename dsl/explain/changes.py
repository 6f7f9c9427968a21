"""The changes that a plan makes, for `proveout explain`: tunings of hosts, faults, and databases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from proveout.core.data_classes import record
from proveout.core.units import format_duration, length
from proveout.dsl import engines
from proveout.dsl.operations.sql import copies_after
from proveout.dsl.operations.table import fault_key, operation_of
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Fault, Ladder, Populate, Revert, Stage, Tune, Tuning
from proveout.dsl.plan.topology import System


def origin(system: System) -> str:
    """The origin of a system: `runs already: <dsn>`."""
    if system.standby_of:
        kind = "synchronous" if system.synchronous else "asynchronous"
        return f"{kind} standby of {system.standby_of}, started by proveout, removed afterwards"
    if system.in_front_of:
        return f"PgBouncer in front of {system.in_front_of}, started by proveout, removed afterwards"
    if system.version:
        return f"version {system.version}, started by proveout, removed afterwards"
    if system.provision:
        return "started by proveout, removed afterwards"
    if system.engine == engines.NO_DATABASE:
        return "runs already, without a connection"
    where = f"runs already: {', '.join(system.instances or (str(system.dsn),))}"
    if system.admin:
        where += f", tuned as {system.admin}"
    return f"{where}; the run works on a copy of its database, and puts the original back" if system.restore else where


def onward(system: System) -> str | None:
    """Where its changes go, and what is set up for it: `backend (by a publication …)`."""
    if system.propagates_to is None:
        return None
    if system.propagates_by_itself:
        return f"{system.propagates_to} (by its own cache groups; not compared)"
    if system.provision:
        return system.propagates_to
    return f"{system.propagates_to} (a publication and a slot here, a subscription there, both removed afterwards)"


@record
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


@record
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
    every = [*(tuning for _, tuning in _all(plan)), *(one for stage in plan.stages for one in stage.changes)]
    found = (operation_of(tuning).privileges for tuning in every if host in tuning.hosts)
    restarts = ("root: restarts units" for tuning in every if host in tuning.hosts and tuning.restart)
    return tuple(dict.fromkeys((*found, *restarts)))


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


SAFETY = "or as soon as the iteration, the agent's lease or the agent ends"


def fault_lines(stage: Ladder) -> tuple[str, ...]:
    return tuple(line for fault in stage.faults for line in _lines(fault))


def _lines(fault: Fault) -> Iterator[str]:
    yield f"fault {fault.name}: {begins(fault)}"
    for tuning in fault.tunings:
        operation = operation_of(tuning)
        data = ", CAN LOSE DATA" if tuning.destructive and operation.destructive else ""
        system = f" of system {tuning.system}" if tuning.system else ""
        restart = f", restarts {tuning.restart}" if tuning.restart else ""
        hosts = ", ".join(tuning.hosts)
        yield f"  {fault_key(tuning.operation)}{system} on {hosts} (privileges: {operation.privileges}){restart}{data}"
        yield from (f"    {line}" for line in operation.wanted())
    if fault.for_s > 0.0:
        yield f"  healed: undone after {format_duration(fault.for_s)}, {SAFETY}"
    elif not all(operation_of(tuning).outlasts for tuning in fault.tunings):
        yield "  healed: it ends by itself"


def begins(fault: Fault) -> str:
    apart = f", at least {format_duration(fault.apart_s)} apart" if fault.apart_s else ""
    times = "once" if fault.times == 1 else f"{fault.times} times"
    if fault.when is not None:
        most = "the first time" if fault.times == 1 else f"the first {fault.times} times"
        return f"{most} that {fault.when.text} holds in the measure window{apart}"
    if fault.between_s is not None:
        first, last = map(length, fault.between_s)
        drawn = f"{times} at random between {first} and {last} of the measure window (seed {fault.seed})"
        return f"{drawn}{apart}, at other instants in each repeat"
    return f"{length(fault.at_s or 0.0)} after the start of the measure window"
