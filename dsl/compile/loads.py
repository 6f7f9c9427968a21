"""The loads of a stage: workload and target, arrival, `phases:` and tables of levels; names, shares and ranges
checked.
"""

from __future__ import annotations

import csv
import dataclasses
import math
import os
import re
import stat
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, TypeAlias

from proveout.core.data_classes import dataclass, record
from proveout.core.errors import Where
from proveout.core.numbers import threads
from proveout.core.units import length
from proveout.dsl import engines
from proveout.dsl.compile.symbols import StageNames
from proveout.dsl.plan import slices
from proveout.dsl.plan.phases import POINTS_MAX, SLICES_MAX, Level
from proveout.dsl.plan.scalars import RATE_MAX, WEEK_S, setting_text
from proveout.dsl.plan.stages import OWN_SESSIONS, Arrival, Closed, Ladder, Load, Open, Phased, Sessions, Think, Windows
from proveout.dsl.plan.topology import Expression, System
from proveout.dsl.rules import session_settings
from proveout.dsl.rules.ladder_rules import level_problems, load_problems
from proveout.dsl.rules.repeat_rules import tracking_problems
from proveout.dsl.schema import stage_models
from proveout.dsl.schema.stage_models import (
    LadderKeys,
    PhaseEntry,
    RateLine,
    RateRamp,
    RateWave,
    SessionKeys,
    ThreadsLine,
    ThreadsWave,
)
from proveout.dsl.source.nodes import Map, Problems, did_you_mean, locate
from proveout.dsl.workloads.kinds import has_own_arrival, is_in_order, with_range, writes

_ACCESS: Mapping[str, Literal["", "any", "read_write", "read_only"]] = {
    "": "",
    "any": "any",
    "read-write": "read_write",
    "read-only": "read_only",
}
RANGE_HINT = "leave `range` out, or give keys that the workload has"


@dataclass(frozen=True, kw_only=True)
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
    if not _take_turns(entry):
        _check_shares(names, entries)
    loads = tuple(load for load in found if load is not None)
    if len(loads) < len(found):
        return None
    hosts = {client for load in loads for client in load.clients}
    return Loads(clients=tuple(host for host in names.scope.hosts if host in hosts), loads=loads)


def _take_turns(entry: stage_models.Measured) -> bool:
    """Whether the loads of a stage take turns in slices, each with all threads."""
    return bool(getattr(entry, "versus_s", None))


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
    share = Fraction(1) if _take_turns(entry) else load.share
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
        share=None if share is None else (share.numerator, share.denominator),
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
    wanted = f"{load.workload}-{names.id}-{name}"[:60]
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
    of_stage, own = stage.sessions or OWN_SESSIONS, load.sessions or OWN_SESSIONS
    keys = [one.name for one in dataclasses.fields(Sessions)]
    sessions = replace(
        Sessions(**{name: getattr(own, name) or getattr(of_stage, name) for name in keys}),
        on_disconnect=load.on_disconnect or stage.on_disconnect or "reconnect",
        access=_ACCESS[load.access or stage.access or ""],
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


EXCLUDED_BY_VERSUS = ("phases", "passes", "faults", "interference")


def check_versus(names: StageNames, entry: LadderKeys, loads: Loads, ladder: Ladder) -> None:
    """Loads can take turns in slices: several, closed or at one rate, in a window of enough blocks."""
    for key in EXCLUDED_BY_VERSUS:
        if names.body.get(key) is not None:
            names.problem(f"`versus` and `{key}` exclude each other", key, hint=f"leave `{key}` or `versus` out")
    if isinstance(entry.rate, RateRamp):
        names.problem("`versus` and a ramp of the rate exclude each other", "rate", hint="rate: 500/s")
    if len(loads.loads) < 2:
        message, hint = "`versus` needs two `loads` or more", "list them under `loads`, or leave `versus` out"
        names.problem(message, "versus", hint=hint)
        return
    for name, load in (entry.loads or {}).items():
        for key in ("share", "threads", "rate"):
            if getattr(load, key) is not None:
                message = f"`{key}` of a load that takes turns: each has all threads and the rate of the rung"
                names.problem(message, "loads", name, key, hint=f"leave `{key}` out")
        workload = names.scope.workloads[load.workload]
        if has_own_arrival(workload) or is_in_order(workload):
            what = "a program has its own schedule" if has_own_arrival(workload) else "a pass of a set has no slices"
            message = f"`{load.workload}` cannot take turns in slices: {what}"
            names.problem(message, "loads", name, "workload", hint="order: interleaved, with a ladder for each")
    least_s, count = slices.BLOCKS_MIN * ladder.versus_s * len(loads.loads), slices.blocks(ladder) * len(loads.loads)
    if ladder.windows.measure_s < least_s:
        message = f"{slices.blocks(ladder)} blocks of {len(loads.loads)} slices tell little"
        names.problem(message, "measure", hint=f"measure: {length(least_s)} or more")
    elif count > SLICES_MAX:
        names.problem(f"more than {SLICES_MAX:,} slices", "measure", hint="a shorter `measure`, and more repeats")


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


# The file is read when the plan is compiled; its numbers are in the plan and so in its digest. Each problem has the
# file and the line of its row.

BYTES_MAX = 8 << 20
PROBLEMS_MAX = 10
COLUMNS = ("seconds,rate", "seconds,threads")


@record
class LevelTable:
    """The rows of a table: seconds, ascending from 0, and the level there."""

    of: Literal["rate", "threads"]
    at_s: tuple[float, ...]
    values: tuple[float, ...]


def read_table(text: str, where: Where, folder: Path, problems: Problems, key: str) -> LevelTable | None:
    """The table that a plan names at `where`; None when it cannot be read, and each problem noted.

    It is relative to the file that names it and stays in the plan's own `folder`, symlinks resolved.
    """
    name = str(Path(where.file).parent / text)
    target = Path(name).resolve()
    objection, hint = _objection(text, target, folder)
    if objection:
        problems.add(where, objection, key=key, hint=hint)
        return None
    content = _content(target)
    if content is None:
        limit = f"a text of at most {BYTES_MAX >> 20} MiB in UTF-8"
        problems.add(where, f"`{text}` cannot be read as a table", key=key, hint=limit)
        return None
    lines = content.splitlines()
    problems.sources.setdefault(name, lines)
    return _Reader(name=name, problems=problems, key=key).table(lines)


def _objection(text: str, target: Path, folder: Path) -> tuple[str, str]:
    if "://" in text or text.startswith(("/", "~")) or "\\" in text:
        return "a table is a path relative to the file that names it", "from: rates.csv"
    if not target.is_relative_to(folder):
        return f"`{text}` leads out of the plan's folder", ""
    if not target.is_file():
        found = target.parent.glob("*.csv") if target.parent.is_dir() else ()
        return f"the file `{text}` does not exist", did_you_mean(Path(text).name, (file.name for file in found))
    return "", ""


def _content(target: Path) -> str | None:
    try:
        descriptor = os.open(target, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            content = file.read(BYTES_MAX + 1)
        return None if len(content) > BYTES_MAX else content.decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None


@dataclass(slots=True, kw_only=True)
class _Reader:
    name: str
    problems: Problems
    key: str
    faults: int = 0

    def fault(self, line: int, message: str, hint: str) -> None:
        """Note a problem of a row; the first few of a table are enough."""
        self.faults += 1
        if self.faults <= PROBLEMS_MAX:
            where = Where(file=self.name, line=line, column=1)
            self.problems.add(where, message, key=self.key, hint=hint)

    def table(self, lines: list[str]) -> LevelTable | None:
        head = ",".join(part.strip() for part in lines[0].split(",")) if lines else ""
        if head not in COLUMNS:
            self.fault(1, f"the columns are `{head}`", f"a first line `{COLUMNS[0]}` or `{COLUMNS[1]}`")
            return None
        rows: list[tuple[float, float]] = []
        for line, fields in enumerate(csv.reader(lines[1:]), 2):
            if fields and (row := self.row(line, fields, rows[-1][0] if rows else None)) is not None:
                rows.append(row)
        if len(rows) > POINTS_MAX:
            self.fault(POINTS_MAX + 2, f"the table has {len(rows):,} rows", f"at most {POINTS_MAX:,}")
        if not self.faults and (not rows or rows[-1][0] <= 0.0):
            self.fault(len(lines), "the table has no length", "a row for its start, `0,500`, and one for its end")
        if self.faults:
            return None
        at_s, values = zip(*rows, strict=True)
        return LevelTable(of="threads" if head == COLUMNS[1] else "rate", at_s=at_s, values=values)

    def row(self, line: int, fields: list[str], before_s: float | None) -> tuple[float, float] | None:
        """The (seconds, level) of a row."""
        if len(fields) != 2:
            self.fault(line, f"a row of {len(fields)} values", "two numbers, as `60,500`")
            return None
        numbers = [_number(field) for field in fields]
        for text, value in zip(fields, numbers, strict=True):
            if value is None:
                self.fault(line, f"`{text.strip()[:40]}` is not a number of 0 or more", "a plain number without a unit")
        seconds, level = numbers
        if seconds is None or level is None:
            return None
        if before_s is None and seconds != 0.0:
            self.fault(line, f"the table begins at {seconds:g} s", "a first row `0,…`")
        elif before_s is not None and seconds <= before_s:
            self.fault(line, f"{seconds:g} s is not after {before_s:g} s", "rows in order of their time")
        return seconds, level


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0.0 and "_" not in text else None


Of: TypeAlias = Literal["rate", "threads"]
Line: TypeAlias = RateLine | ThreadsLine
Wave: TypeAlias = RateWave | ThreadsWave
EXCLUDED = ("measure", "rate", "passes", "within")


@record
class Phases:
    """The phases of a ladder: their levels, of one kind, and their names with their lengths."""

    of: Of
    levels: tuple[Level, ...]
    lengths: tuple[tuple[str, float], ...]

    @property
    def measure_s(self) -> float:
        """The length of all, seconds."""
        return sum(length for _, length in self.lengths)


def compile_phases(names: StageNames, entry: LadderKeys, rungs: Sequence[int]) -> Phases | None:
    """The phases of a ladder that has some; None when one of them is not possible."""
    for key in EXCLUDED:
        if names.body.get(key) is not None:
            names.problem(f"`phases` and `{key}` exclude each other", key, hint=f"leave `{key}` or `phases` out")
    if names.body.get("pool") is not None and entry.pool != "local":
        names.problem("phases are measured in the local pool only", "pool", hint="leave `pool` out")
    found = [_phase(names, phase, number) for number, phase in enumerate(entry.phases or ())]
    made = [one for one in found if one is not None]
    if len(made) < len(found):
        return None
    kinds = [of for of, _ in made]
    for number, of in enumerate(kinds):
        if of != kinds[0]:
            hint = "phases of rates, or phases of threads; two ladders for both"
            names.problem(f"a phase of {of} after phases of {kinds[0]}", "phases", number, hint=hint)
            return None
    labels = [phase.name for phase in entry.phases or ()]
    for number, label in enumerate(labels):
        if label in labels[:number]:
            names.problem(f"another phase has the name `{label}`", "phases", number, "name")
            return None
    lengths = tuple((label, level.for_s) for label, (_, level) in zip(labels, made, strict=True))
    phases = Phases(of=kinds[0], levels=tuple(level for _, level in made), lengths=lengths)
    return phases if _checked(names, phases, min(rungs)) else None


def _checked(names: StageNames, phases: Phases, rung: int) -> bool:
    """Whether the levels are possible: rates below the highest one, threads within the lowest rung."""
    highest, fine = RATE_MAX if phases.of == "rate" else float(rung), True
    for number, level in enumerate(phases.levels):
        for one in level_problems(level, highest):
            fine = False
            if phases.of == "threads" and level.highest > highest:
                message = f"the phase has up to {level.highest:g} threads, but the lowest rung {threads(rung)}"
                names.problem(message, "phases", number, hint="fewer active threads, or higher rungs")
            else:
                names.problem(one.message, "phases", number, hint=one.way_out)
    if phases.measure_s > WEEK_S:
        names.problem("the phases are longer than 7d together", "phases", hint="shorter phases")
        fine = False
    if fine:
        windows = Windows(ramp_up_s=0.0, measure_s=phases.measure_s, ramp_down_s=0.0, phases=phases.lengths)
        for one in load_problems(phases.levels, windows, highest):
            fine = False
            names.problem(one.message, "phases", hint=one.way_out)
    return fine


def _phase(names: StageNames, phase: PhaseEntry, number: int) -> tuple[Of, Level] | None:
    given = {"rate": phase.rate, "threads": phase.threads, "from": phase.from_}
    there = [key for key, value in given.items() if value is not None]
    if len(there) != 1:
        what = " and ".join(f"`{key}`" for key in there) or "no level"
        hint = "one of rate: 500/s, threads: 4, from: rates.csv"
        names.problem(f"the phase `{phase.name}` has {what}", "phases", number, hint=hint)
        return None
    if phase.from_ is not None:
        return _from_table(names, phase, phase.from_, number)
    if phase.between is not None:
        names.problem("`between` is for the rows of a table", "phases", number, "between", hint="from: rates.csv")
    if phase.for_ is None:
        names.problem(f"the phase `{phase.name}` has no length", "phases", number, hint="for: 10s")
        return None
    if phase.rate is not None:
        return "rate", _level(phase.for_, phase.rate)
    return None if phase.threads is None else ("threads", _level(phase.for_, phase.threads))


def _level(for_s: float, level: float | Line | Wave) -> Level:
    match level:
        case RateLine() | ThreadsLine():
            return Level(for_s=for_s, at_s=(0.0, for_s), values=(level.from_, level.to))
        case RateWave() | ThreadsWave():
            return Level(for_s=for_s, values=(level.mean,), amplitude=level.amplitude, period_s=level.period)
        case _:
            return Level(for_s=for_s, values=(float(level),))


def _from_table(names: StageNames, phase: PhaseEntry, file: str, number: int) -> tuple[Of, Level] | None:
    where, key = names.where("phases", number, "from"), f"{names.path}.phases.{number}.from"
    folder = names.scope.folder
    if folder is None:
        return None
    table = read_table(file, where, folder, names.scope.problems, key)
    if table is None:
        return None
    last_s = table.at_s[-1]
    if phase.for_ is not None and phase.for_ < last_s:
        message = f"the table goes on until {last_s:g} s, behind the end of the phase"
        names.problem(message, "phases", number, "for", hint="leave `for` out, or give at least that time")
        return None
    level = Level(for_s=phase.for_ or last_s, at_s=table.at_s, values=table.values, steps=phase.between != "lines")
    return table.of, level


Distribution: TypeAlias = Literal["constant", "poisson"]
_TEMPLATE = re.compile(r"\$\{(.*)\}", re.DOTALL)


def compile_arrival(names: StageNames, entry: LadderKeys, phases: Phases | None) -> Arrival | None:
    """The arrival of a ladder, whose `phases` are compiled; None when it is not possible."""
    if entry.phases is not None:
        return None if phases is None else _phased(names, entry, phases)
    if entry.rate is None:
        if entry.arrival in ("constant", "poisson"):
            names.problem(f"arrival {entry.arrival} needs a `rate`", "arrival", hint="rate: 500/s")
        return Closed(think=think_time(names, entry.think))
    if entry.arrival == "closed":
        names.problem("closed arrival has no rate", "rate", hint="leave `arrival` or `rate` away")
    if entry.think is not None:
        names.problem("a schedule of arrivals has no think times", "think", hint="leave `think` or `rate` away")
    distribution: Distribution = "poisson" if entry.arrival == "poisson" else "constant"
    if isinstance(entry.rate, RateRamp):
        return _ramp(names, entry.rate, distribution, entry.measure or 1.0)
    rate = compile_rate(names, entry.rate, "rate")
    return None if rate is None else Open(rate=rate, distribution=distribution)


def _phased(names: StageNames, entry: LadderKeys, phases: Phases) -> Phased:
    """The arrival of phases: of a rate it is open, of threads closed."""
    is_open = phases.of == "rate"
    if entry.arrival is not None and is_open == (entry.arrival == "closed"):
        kind, hint = ("rates", "arrival: poisson") if is_open else ("threads", "arrival: closed")
        names.problem(f"phases of {kind} have no {entry.arrival} arrival", "arrival", hint=f"{hint}, or none")
    if is_open and entry.think is not None:
        names.problem("a schedule of arrivals has no think times", "think", hint="leave `think` away")
    distribution: Distribution = "poisson" if entry.arrival == "poisson" else "constant"
    return Phased(levels=phases.levels, of=phases.of, distribution=distribution, think=think_time(names, entry.think))


def _ramp(names: StageNames, entry: RateRamp, distribution: Distribution, measure_s: float) -> Phased | None:
    """A rate that changes in the measure window; its ends are known when the plan is compiled."""
    ends: list[float] = []
    for value, path in ((entry.from_, "from"), (entry.to, "to")):
        if isinstance(value, str):
            hint = "a rate that stays may be one: rate: ${cap.rate}"
            names.problem("the ends of a ramp cannot be expressions", "rate", path, hint=hint)
        else:
            ends.append(value)
    if len(ends) < 2:
        return None
    level = Level(for_s=measure_s, at_s=(0.0, measure_s), values=tuple(ends))
    return Phased(levels=(level,), distribution=distribution)


def compile_rate(names: StageNames, value: float | str, *path: str) -> float | Expression | None:
    """A rate that is known, or an expression that waits for a result."""
    if not isinstance(value, str):
        return float(value)
    match = _TEMPLATE.fullmatch(value)
    if match is not None:
        return Expression(text=match[1].strip(), where=names.where(*path))
    names.problem("a rate is either 500/s or one ${…}", *path)
    return None
