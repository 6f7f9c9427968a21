"""`workload` and `target` of a stage that measures, or its `loads`: names resolved, shares and key ranges checked."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any, Literal

from proveout.core.data_classes import dataclass
from proveout.core.numbers import threads
from proveout.dsl import engines
from proveout.dsl.compile.symbols import StageNames
from proveout.dsl.compile.topology import setting_text
from proveout.dsl.plan.plan import Workload
from proveout.dsl.plan.stages import OWN_SESSIONS, Load, Sessions, Think
from proveout.dsl.plan.topology import System
from proveout.dsl.rules import session_settings
from proveout.dsl.rules.commit_rules import tracking_problems
from proveout.dsl.schema import stage_models
from proveout.dsl.schema.session_models import USUAL_SESSIONS, SessionKeys
from proveout.dsl.source.nodes import Map, locate
from proveout.dsl.workloads.kinds import has_own_arrival, with_range, writes

_ACCESS: Mapping[str, Literal["", "any", "read_write", "read_only"]] = {
    "": "",
    "any": "any",
    "read-write": "read_write",
    "read-only": "read_only",
}
RANGE_HINT = "leave `range` out, or give keys that the workload has"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loads:
    """The load of a stage, or its `loads`, as the fields of `Ladder` and `Search`."""

    clients: tuple[str, ...]
    workload: str = ""
    target: str = ""
    session: tuple[tuple[str, str], ...] = ()
    sessions: Sessions = OWN_SESSIONS
    tracked: bool = False
    checked: bool = False
    loads: tuple[Load, ...] = ()

    @property
    def targets(self) -> list[str]:
        """The target of each load."""
        return [load.target for load in self.loads] or [self.target]


def compile_loads(names: StageNames, entry: stage_models.Measured) -> Loads | None:
    """The load or loads of a stage; None when a name does not resolve or a key is missing."""
    if entry.loads is not None:
        return _several(names, entry, entry.loads)
    for key, value in (("workload", entry.workload), ("target", entry.target)):
        if value is None:
            names.problem(f"`{key}` is required", hint=f"{key}: a name, or `loads`")
    if entry.workload is None or entry.target is None:
        return None
    target, clients = names.system(entry.target, "target"), names.clients(entry.from_)
    known = names.has_workload(entry.workload)
    if target is not None and known and clients is not None:
        names.reachable(target, clients, "from")
    if target is None or not known or clients is None:
        return None
    sessions = _sessions(names, target, entry, entry)
    return Loads(
        clients=clients,
        workload=entry.workload,
        target=target.name,
        session=_session(names, target, entry.session),
        sessions=sessions,
        **_commits(names, target, entry.workload, entry.commits, sessions),
    )


def _several(
    names: StageNames, entry: stage_models.Measured, entries: dict[str, stage_models.LoadEntry]
) -> Loads | None:
    for key in ("workload", "target"):
        if getattr(entry, key) is not None:
            names.problem(
                f"`{key}` and `loads` exclude each other", key, hint=f"leave `{key}` out: each load has its own"
            )
    found = [_load(names, entry, name, load) for name, load in entries.items()]
    _check_shares(names, entries)
    loads = tuple(load for load in found if load is not None)
    if len(loads) < len(found):
        return None
    hosts = {client for load in loads for client in load.clients}
    return Loads(clients=tuple(host for host in names.scope.hosts if host in hosts), loads=loads)


def _check_shares(names: StageNames, entries: dict[str, stage_models.LoadEntry]) -> None:
    """Each load has a share or threads of its own, and the shares are a whole."""
    for name, load in entries.items():
        if load.share is None and load.threads is None:
            names.problem(
                f"load `{name}` has neither a `share` nor `threads`", "loads", name, hint="share: 1/2, or threads: 4"
            )
        if load.share is not None and load.threads is not None:
            names.problem(
                "a load has a `share` or `threads` of its own", "loads", name, "threads", hint="leave one out"
            )
        if load.share is not None and load.rate is not None:
            names.problem(
                "a load with a `share` has that share of the stage's rate", "loads", name, "rate",
                hint="leave `rate` out, or `threads` in place of `share`",
            )  # fmt: skip
    shares = [load.share for load in entries.values() if load.share is not None]
    undecided = any(load.share is None and load.threads is None for load in entries.values())
    if not shares and not undecided:
        names.problem("no load has a share of the stage's threads", "loads", hint="share: 1 on the one that grows")
    elif shares and not undecided and sum(shares, Fraction(0)) != 1:
        total = sum(shares, Fraction(0))
        names.problem(f"the shares sum to {total}, not to 1", "loads", hint="share: 1/2 and share: 1/2")


def _load(names: StageNames, entry: stage_models.Measured, name: str, load: stage_models.LoadEntry) -> Load | None:
    body, _ = locate(names.body, ("loads", name))
    if not isinstance(body, Map):
        return None
    path = f"{names.path}.loads.{name}"
    here = StageNames(scope=names.scope, body=body, path=path, id=names.id, partial=names.partial)
    target = here.system(load.target, "target")
    clients = names.clients(entry.from_) if load.from_ is None else here.clients(load.from_)
    known = here.has_workload(load.workload)
    if target is None or clients is None or not known:
        return None
    here.reachable(target, clients, "from")
    rate, distribution = _rate(here, load)
    think = think_time(here, load.think)
    if think is not None and (rate is not None or (load.share is not None and _is_open(entry))):
        here.problem("a schedule of arrivals has no think times", "think", hint="leave `think` or the rate away")
    sessions = _sessions(here, target, entry, load)
    commits = load.commits or _of_stage(names, load.workload, entry.commits)
    return Load(
        name=name,
        workload=_ranged(here, name, load),
        target=target.name,
        clients=clients,
        share=None if load.share is None else (load.share.numerator, load.share.denominator),
        threads=load.threads,
        rate=rate,
        distribution=distribution,
        think=think,
        session=_session(here, target, {**entry.session, **load.session}),
        sessions=sessions,
        **_commits(here, target, load.workload, commits, sessions),
        where=body.where,
    )


def _is_open(entry: stage_models.Measured) -> bool:
    phases = getattr(entry, "phases", None) or ()
    return getattr(entry, "rate", None) is not None or any(phase.threads is None for phase in phases)


def _rate(names: StageNames, load: stage_models.LoadEntry) -> tuple[float | None, Literal["constant", "poisson"]]:
    """The rate of a load with threads of its own, and its distribution."""
    distribution: Literal["constant", "poisson"] = "poisson" if load.arrival == "poisson" else "constant"
    if load.rate is None and load.arrival in ("constant", "poisson"):
        names.problem(f"arrival {load.arrival} needs a `rate`", "arrival", hint="rate: 5/s")
    if load.rate is not None and load.arrival == "closed":
        names.problem("closed arrival has no rate", "rate", hint="leave `arrival` or `rate` away")
    if isinstance(load.rate, str):
        names.problem("the rate of a load of its own cannot be an expression", "rate", hint="rate: 5/s")
        return None, distribution
    return load.rate, distribution


def _ranged(names: StageNames, name: str, load: stage_models.LoadEntry) -> str:
    """The name of the load's workload: with a `range`, that of a variant which is added to the plan's workloads."""
    if load.range is None:
        return load.workload
    first, last = load.range
    try:
        variant = with_range(names.scope.workloads[load.workload], first, last)
    except ValueError as error:
        names.problem(str(error), "range", hint=RANGE_HINT)
        return load.workload
    return _added(names, variant, f"{load.workload}-{names.id}-{name}"[:60])


def _added(names: StageNames, variant: Workload, wanted: str) -> str:
    taken = names.scope.declared.get("workload", set()) | set(names.scope.workloads)
    free = next(text for number in range(len(taken) + 1) if (text := f"{wanted}{number or ''}") not in taken)
    names.scope.workloads[free] = replace(variant, name=free)
    return free


def think_time(names: StageNames, entry: stage_models.ThinkEntry | None) -> Think | None:
    """The pauses of closed arrival."""
    if entry is None:
        return None
    match entry.constant, entry.exponential:
        case float(mean_s), None:
            return Think(mean_s=mean_s, distribution="constant")
        case None, float(mean_s):
            return Think(mean_s=mean_s, distribution="exponential")
    names.problem("a think time is either constant or exponential", "think", hint="think: {exponential: 200ms}")
    return None


def _session(names: StageNames, target: System, given: stage_models.Session) -> tuple[tuple[str, str], ...]:
    """Settings of a load's connections: the system's, and over them its own."""
    for name, value in given.items():
        objection = session_settings.objection(target.engine, name, setting_text(value))
        if objection:
            names.problem(objection, "session", name)
    own = {name: setting_text(value) for name, value in given.items()}
    own = session_settings.expanded(target.engine, own)
    return tuple(sorted({**names.scope.sessions.get(target.name, {}), **own}.items()))


def _sessions(names: StageNames, target: System, stage: stage_models.Measured, load: SessionKeys) -> Sessions:
    """The rules for a load's connections: its own keys before those of the stage."""
    of_stage, own = stage.sessions or USUAL_SESSIONS, load.sessions or USUAL_SESSIONS
    access = load.access or stage.access or ""
    sessions = Sessions(
        on_disconnect=load.on_disconnect or stage.on_disconnect or "reconnect",
        access=_ACCESS[access],
        pool=own.pool or of_stage.pool or 0,
        connect_every=own.connect_every or of_stage.connect_every or 0,
    )
    for found in session_settings.session_problems(target.engine, sessions, len(target.instances)):
        names.problem(found.message, *found.at, hint=found.way_out)
    pool = names.scope.pools.get(stage.pool)
    if pool is not None and pool.kind == "ray" and sessions.are_lent:
        names.problem("a Ray pool does not share or renew connections", "sessions", hint="pool: local")
    return sessions


def _of_stage(names: StageNames, name: str, commits: str | None) -> str | None:
    """The stage's `commits` for one of its loads: those that change no rows have none to track."""
    workload = names.scope.workloads[name]
    return commits if writes(workload) and not has_own_arrival(workload) else None


def _commits(names: StageNames, target: System, name: str, commits: str | None, sessions: Sessions) -> dict[str, Any]:
    """`tracked` and `checked` of a load; problems where its commits cannot be tracked."""
    tracked, checked = commits in ("tracked", "checked"), commits == "checked"
    if tracked:
        for problem in tracking_problems(names.scope.workloads[name], target.engine, sessions, checked=checked):
            names.problem(problem.message, "commits", hint=problem.way_out)
    return {"tracked": tracked, "checked": checked}


def check_loads(names: StageNames, loads: Loads, lowest: int, key: str, *, processes: int) -> None:
    """Each share has a thread at the lowest rung, and engines of one process have one load process."""
    shares = [Fraction(*load.share) for load in loads.loads if load.share is not None]
    if shares and sum(shares, Fraction(0)) == 1 and (idle := _idle(loads, lowest)):
        least = next(rung for rung in range(lowest, math.ceil(1 / min(shares)) + 1) if not _idle(loads, rung))
        message = f"a rung of {threads(lowest)} has none for load `{idle}`"
        names.problem(message, key, hint=f"{key} from {least} on")
    single = {name for name in loads.targets if engines.of(names.scope.systems[name].engine).one_process}
    if single and processes > 1:
        engine = names.scope.systems[min(single)].engine
        message = f"a load on {engine} is one process, with a thread for each terminal"
        names.problem(message, "workers" if key == "threads" else key, hint="threads: [1, 2, 4]")
    for name in sorted(single):
        if Counter(loads.targets)[name] > 1:
            engine = names.scope.systems[name].engine
            message = f"several loads on `{name}` are several processes, and one at a time can use {engine}"
            names.problem(message, "loads", hint="one load on it, with the transactions of all of them")


def check_interference(names: StageNames, loads: Loads) -> None:
    """There are several loads to compare, together and alone."""
    if len(loads.loads) > 1:
        return
    message = "one load" if loads.loads else "a stage without `loads`"
    hint = "loads: two or more, or leave `interference` out"
    names.problem(f"{message} has no interference with others", "interference", hint=hint)


def _idle(loads: Loads, lowest: int) -> str:
    """The first load with a share that has no thread at a rung; "" when each has one."""
    before = Fraction(0)
    for load in loads.loads:
        if load.share is None:
            continue
        after = before + Fraction(*load.share)
        if math.ceil(lowest * after) == math.ceil(lowest * before):
            return load.name
        before = after
    return ""
