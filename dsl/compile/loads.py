"""The loads of a stage: workload and target, arrival, `phases:` and tables of levels; names, shares and ranges
checked.
"""

from __future__ import annotations

import csv
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

from proveout.core.errors import Where
from proveout.core.numbers import threads
from proveout.core.units import written_duration
from proveout.dsl import engines
from proveout.dsl.compile.symbols import StageNames
from proveout.dsl.compile.topology import plain_settings
from proveout.dsl.plan import slices
from proveout.dsl.plan.loads import highest, parts
from proveout.dsl.plan.phases import POINTS_MAX, SLICES_MAX, Level
from proveout.dsl.plan.scalars import RATE_MAX, WEEK_S, setting_text
from proveout.dsl.plan.stages import (
    OWN_SESSIONS,
    Access,
    Arrival,
    Closed,
    Distribution,
    Ladder,
    Load,
    Open,
    Phased,
    Search,
    Sessions,
    Think,
    Windows,
)
from proveout.dsl.plan.topology import Expression, System
from proveout.dsl.rules import session_settings
from proveout.dsl.rules.ladder_rules import level_problems, load_problems
from proveout.dsl.rules.repeat_rules import tracking_problems
from proveout.dsl.schema.stage_models import (
    LadderKeys,
    LoadEntry,
    Measured,
    PhaseEntry,
    RateLine,
    RateRamp,
    RateWave,
    SessionKeys,
    ThinkEntry,
    ThreadsLine,
    ThreadsWave,
)
from proveout.dsl.source.loader import read_regular
from proveout.dsl.source.nodes import Map, did_you_mean, locate
from proveout.dsl.workloads.kinds import has_own_arrival, is_in_order, with_range, writes

Of: TypeAlias = Literal["rate", "threads"]
NO_THINK = "a schedule of arrivals has no think times"
EXCLUDED_BY = {
    "phases": ("measure", "rate", "passes", "within"),
    "versus": ("phases", "passes", "faults", "interference"),
}
"""Keys of a ladder -> those that cannot stand beside them."""


def compile_loads(names: StageNames, entry: Measured) -> dict[str, Any] | None:
    """The load or loads of a stage, as the fields of `Ladder` and `Search`; None when a name does not resolve or a key
    is missing."""
    one = {"workload": entry.workload, "target": entry.target}
    if entry.loads is None:
        for key in (key for key, value in one.items() if value is None):
            names.problem(f"`{key}` is required", hint=f"{key}: a name, or `loads`")
        return _load(names, entry, entry, names.clients(entry.from_))
    for key in (key for key, value in one.items() if value is not None):
        hint = f"leave `{key}` out: each load has its own"
        names.problem(f"`{key}` and `loads` exclude each other", key, hint=hint)
    found = [_named_load(names, entry, name, load) for name, load in entry.loads.items()]
    if not _take_turns(entry):
        _check_shares(names, entry.loads)
    loads = tuple(load for load in found if load is not None)
    if len(loads) < len(found):
        return None
    hosts = {client for load in loads for client in load.clients}
    clients = tuple(host for host in names.scope.hosts if host in hosts)
    return {"workload": "", "target": "", "clients": clients, "loads": loads}


def _load(
    names: StageNames, stage: Measured, load: Measured | LoadEntry, clients: tuple[str, ...] | None
) -> dict[str, Any] | None:
    """The fields that a stage of one load, and one of several, have in common."""
    if load.workload is None or load.target is None:
        return None
    target, known = names.system(load.target, "target"), names.has_workload(load.workload)
    if target is None or clients is None or not known:
        return None
    names.reachable(target, clients, "from")
    workload, commits = names.scope.workloads[load.workload], load.commits
    sessions = _sessions(names, target, stage, load)
    if load is not stage and commits is None and writes(workload) and not has_own_arrival(workload):
        commits = stage.commits  # loads that change no rows have none to track
    tracked, checked = commits in ("tracked", "checked"), commits == "checked"
    if tracked:
        names.object_to(tracking_problems(workload, target.engine, sessions, checked=checked), "commits")
    return {
        "workload": load.workload,
        "target": target.name,
        "clients": clients,
        "session": _session(names, target, *([stage.session] if load is stage else [stage.session, load.session])),
        "sessions": sessions,
        "tracked": tracked,
        "checked": checked,
    }


def _session(
    names: StageNames, target: System, *given: Mapping[str, str | float | bool]
) -> tuple[tuple[str, str], ...]:
    """Settings of a load's connections: the system's, over them the stage's, and over them its own."""
    whole = dict(names.scope.sessions.get(target.name, {}))
    for one in given:
        own = {name: setting_text(value) for name, value in one.items()}
        for name, value in own.items():
            if objection := session_settings.objection(target.engine, name, value):
                names.problem(objection, "session", name)
        plain = plain_settings(names, target.engine, own.items(), "session")
        whole |= session_settings.expanded(target.engine, plain)
    return tuple(sorted(whole.items()))


def _sessions(names: StageNames, target: System, stage: Measured, load: SessionKeys) -> Sessions:
    """The rules for a load's connections: its own keys before those of the stage."""
    of_stage, own = stage.sessions or OWN_SESSIONS, load.sessions or OWN_SESSIONS
    sessions = Sessions(
        on_disconnect=load.on_disconnect or stage.on_disconnect or "reconnect",
        access=cast("Access", (load.access or stage.access or "").replace("-", "_")),
        pool=own.pool or of_stage.pool,
        connect_every=own.connect_every or of_stage.connect_every,
    )
    names.object_to(session_settings.session_problems(target.engine, sessions, len(target.instances)))
    pool = names.scope.pools.get(stage.pool)
    if pool is not None and pool.kind == "ray" and sessions.are_lent:
        names.problem("a Ray pool does not share or renew connections", "sessions", hint="pool: local")
    return sessions


def _take_turns(entry: Measured) -> bool:
    """Whether the loads of a stage take turns in slices, each with all threads."""
    return bool(getattr(entry, "versus_s", None))


def _check_shares(names: StageNames, entries: Mapping[str, LoadEntry]) -> None:
    """Each load has a share or threads of its own, and the shares are a whole."""
    undecided = False
    for name, load in entries.items():
        at = ("loads", name)
        if load.share is None and load.threads is None:
            undecided, hint = True, "share: 1/2, or threads: 4"
            names.problem(f"load `{name}` has neither a `share` nor `threads`", *at, hint=hint)
        if load.share is not None and load.threads is not None:
            names.problem("a load has a `share` or `threads` of its own", *at, "threads", hint="leave one out")
        if load.share is not None and load.rate is not None:
            hint = "leave `rate` out, or `threads` in place of `share`"
            names.problem("a load with a `share` has that share of the stage's rate", *at, "rate", hint=hint)
    shares = [load.share for load in entries.values() if load.share is not None]
    if not shares and not undecided:
        names.problem("no load has a share of the stage's threads", "loads", hint="share: 1 on the one that grows")
    elif not undecided and (total := sum(shares, Fraction(0))) != 1:
        names.problem(f"the shares sum to {total}, not to 1", "loads", hint="share: 1/2 and share: 1/2")


def _named_load(names: StageNames, entry: Measured, name: str, load: LoadEntry) -> Load | None:
    body, _ = locate(names.body, ("loads", name))
    if not isinstance(body, Map):
        return None
    here = replace(names, body=body, path=f"{names.path}.loads.{name}", start=body.where)
    clients = names.clients(entry.from_) if load.from_ is None else here.clients(load.from_)
    made = _load(here, entry, load, clients)
    if made is None:
        return None
    if load.rate is None and load.arrival in ("constant", "poisson"):
        here.problem(f"arrival {load.arrival} needs a `rate`", "arrival", hint="rate: 5/s")
    if load.rate is not None and load.arrival == "closed":
        here.problem("closed arrival has no rate", "rate", hint="leave `arrival` or `rate` away")
    rate = None if isinstance(load.rate, str) else load.rate
    if isinstance(load.rate, str):
        here.problem("the rate of a load of its own cannot be an expression", "rate", hint="rate: 5/s")
    share, think = Fraction(1) if _take_turns(entry) else load.share, think_time(here, load.think)
    phases = getattr(entry, "phases", None) or ()
    is_open = getattr(entry, "rate", None) is not None or any(phase.threads is None for phase in phases)
    if think is not None and (rate is not None or (load.share is not None and is_open)):
        here.problem(NO_THINK, "think", hint="leave `think` or the rate away")
    return Load(
        name=name,
        share=None if share is None else (share.numerator, share.denominator),
        threads=load.threads,
        rate=rate,
        distribution=_distribution(load.arrival),
        think=think,
        where=body.where,
        **(made | {"workload": _ranged(here, name, load)}),
    )


def _distribution(arrival: str | None) -> Distribution:
    return "poisson" if arrival == "poisson" else "constant"


def _ranged(names: StageNames, name: str, load: LoadEntry) -> str:
    """The name of the load's workload: with a `range`, that of a variant which is added to the plan's workloads."""
    if load.range is None:
        return load.workload
    workloads = names.scope.workloads
    try:
        variant = with_range(workloads[load.workload], *load.range)
    except ValueError as error:
        names.problem(str(error), "range", hint="leave `range` out, or give keys that the workload has")
        return load.workload
    wanted = f"{load.workload}-{names.name}-{name}"[:60]
    taken = names.scope.declared["workload"] | set(workloads)
    free = next(text for number in range(len(taken) + 1) if (text := f"{wanted}{number or ''}") not in taken)
    workloads[free] = replace(variant, name=free)
    return free


def think_time(names: StageNames, entry: ThinkEntry | None) -> Think | None:
    """The pauses of closed arrival."""
    match entry and (entry.constant, entry.exponential):
        case float(mean_s), None:
            return Think(mean_s=mean_s, distribution="constant")
        case None, float(mean_s):
            return Think(mean_s=mean_s, distribution="exponential")
        case (_, _):
            names.problem("a think time is either constant or exponential", "think", hint="think: {exponential: 200ms}")
    return None


# ---- several loads ---------------------------------------------------------------------------------------------------


def check_loads(names: StageNames, stage: Ladder | Search, lowest: int, key: str, *, processes: int) -> None:
    """Each share has a thread at every rung, also of a ladder around an answer, and engines of one process have one
    load process."""
    every = parts(stage)

    def idle(rung: int) -> str:
        """The first load that has no thread at a rung; "" when each has one."""
        return next((part.name for part in every if not part.threads(rung)), "")

    fewest = min(1.0, *stage.around.threads) if isinstance(stage, Search) and stage.around else 1.0
    shares = [part.share for part in every if not part.own]
    # sums of shares are rounded up: a load in the middle may have a thread at a rung, and none at a higher one
    enough = math.ceil(1 / min(shares)) if sum(shares) == 1 else 0
    rungs = stage.threads if isinstance(stage, Ladder) else range(max(1, round(lowest * fewest)), highest(stage) + 1)
    if (rung := next((count for count in rungs if count < enough and idle(count)), 0)) > 0:
        least = 1 + next(count for count in range(enough, 0, -1) if idle(count))
        message = f"a rung of {threads(rung)} has none for load `{idle(rung)}`"
        names.problem(message, key, hint=f"{key} from {math.ceil(least / fewest)} on")
    targets = [part.stage.target for part in every]
    used = {name: names.scope.systems[name].engine for name in targets}
    single = {name: engine for name, engine in sorted(used.items()) if engines.of(engine).one_process}
    if single and processes > 1:
        message = f"a load on {single[min(single)]} is one process, with a thread for each terminal"
        at, hint = ("workers", "leave `workers` out") if key == "threads" else (key, "threads: [1, 2, 4]")
        names.problem(message, at, hint=hint)
    for name, engine in single.items():
        if targets.count(name) > 1:
            message = f"several loads on `{name}` are several processes, and one at a time can use {engine}"
            names.problem(message, "loads", hint="one load on it, with the transactions of all of them")


def _exclude(names: StageNames, key: str) -> None:
    for other in EXCLUDED_BY[key]:
        if names.body.get(other) is not None:
            hint = f"leave `{other}` or `{key}` out"
            names.problem(f"`{key}` and `{other}` exclude each other", other, hint=hint)


def check_versus(names: StageNames, entry: LadderKeys, ladder: Ladder) -> None:
    """Loads can take turns in slices: several, closed or at one rate, in a window of enough blocks."""
    _exclude(names, "versus")
    if isinstance(entry.rate, RateRamp):
        names.problem("`versus` and a ramp of the rate exclude each other", "rate", hint="rate: 500/s")
    if len(ladder.loads) < 2:
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
    blocks, of = slices.blocks(ladder), len(ladder.loads)
    least_s = slices.BLOCKS_MIN * ladder.versus_s * of
    if ladder.windows.measure_s < least_s:
        message = f"{blocks} blocks of {of} slices tell little"
        names.problem(message, "measure", hint=f"measure: {written_duration(least_s)} or more")
    elif blocks * of > SLICES_MAX:
        names.problem(f"more than {SLICES_MAX:,} slices", "measure", hint="a shorter `measure`, and more repeats")


# ---- tables ----------------------------------------------------------------------------------------------------------
#
# The file is read when the plan is compiled; its numbers are in the plan and so in its digest. Each problem has the
# file and the line of its row.

BYTES_MAX = 8 << 20
PROBLEMS_MAX = 10
COLUMNS: Mapping[str, Of] = {"seconds,rate": "rate", "seconds,threads": "threads"}
"""The first line of a table -> what its levels are of."""


def _table(names: StageNames, text: str, *at: str | int) -> tuple[Of, list[tuple[float, float]]] | None:
    """The kind of level of a table, and its rows: seconds, ascending from 0, and the level; None when it cannot be
    read, and each problem noted.

    It is relative to the file that names it and stays in the plan's own folder, symlinks resolved.
    """
    name = str(Path(names.where(*at).file).parent / text)
    target = Path(os.path.realpath(name))
    objection, hint = _objection(text, target, names.scope.folder)
    content = "" if objection else _content(target)
    if content is None:
        objection, hint = f"`{text}` cannot be read as a table", f"a text of at most {BYTES_MAX >> 20} MiB in UTF-8"
    if objection:
        names.note(objection, *at, hint=hint)
        return None
    lines, rows = (content or "").splitlines(), list[tuple[float, float]]()
    names.scope.problems.sources.setdefault(name, lines)
    head = ",".join(part.strip() for part in lines[0].split(",")) if lines else ""
    try:
        faults = list(islice(_faults(lines, head, rows), PROBLEMS_MAX))  # the first few of a table are enough
    except csv.Error as error:
        faults = [(1, f"not a table: {error}", "two numbers a row, as `60,500`")]
    if not faults and (not rows or rows[-1][0] <= 0.0):
        faults = [(len(lines), "the table has no length", "a row for its start, `0,500`, and one for its end")]
    key = ".".join((names.path, *map(str, at)))
    for line, message, way_out in faults:
        names.scope.problems.add(Where(file=name, line=line, column=1), message, key=key, hint=way_out)
    return None if faults else (COLUMNS[head], rows)


def _faults(lines: Sequence[str], head: str, rows: list[tuple[float, float]]) -> Iterator[tuple[int, str, str]]:
    """(line, what is wrong, way out); the rows are added to `rows`."""
    if head not in COLUMNS:
        yield 1, f"the columns are `{head}`", f"a first line {' or '.join(f'`{one}`' for one in COLUMNS)}"
        return
    for line, fields in enumerate(csv.reader(lines[1:]), 2):
        if fields and len(fields) != 2:
            yield line, f"a row of {len(fields)} values", "two numbers, as `60,500`"
        if len(fields) != 2:
            continue
        seconds, level = map(_number, fields)
        for text, value in zip(fields, (seconds, level), strict=True):
            if value is None:
                yield line, f"`{text.strip()[:40]}` is not a number of 0 or more", "a plain number without a unit"
        if seconds is None or level is None:
            continue
        if not rows and seconds != 0.0:
            yield line, f"the table begins at {seconds:g} s", "a first row `0,…`"
        elif rows and seconds <= rows[-1][0]:
            yield line, f"{seconds:g} s is not after {rows[-1][0]:g} s", "rows in order of their time"
        rows.append((seconds, level))
    if len(rows) > POINTS_MAX:
        yield POINTS_MAX + 2, f"the table has {len(rows):,} rows", f"at most {POINTS_MAX:,}"


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
        content = read_regular(target, BYTES_MAX)
        return None if content is None or len(content) > BYTES_MAX else content.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return None


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0.0 and "_" not in text else None


# ---- phases and arrival ----------------------------------------------------------------------------------------------


Lengths: TypeAlias = tuple[tuple[str, float], ...]
"""The names and the lengths of phases, s."""


def compile_phases(names: StageNames, entry: LadderKeys, rungs: Sequence[int]) -> tuple[Phased, Lengths] | None:
    """The phases of a ladder that has some: of rates arrival is open, of threads closed. None when one of them is not
    possible."""
    _exclude(names, "phases")
    if names.body.get("pool") is not None and entry.pool != "local":
        names.problem("phases are measured in the local pool only", "pool", hint="leave `pool` out")
    entries = entry.phases or ()
    found = [_phase(names, phase, number) for number, phase in enumerate(entries)]
    made = [one for one in found if one is not None]
    if len(made) < len(found):
        return None
    kinds, labels = [of for of, _ in made], [phase.name for phase in entries]
    for number, of in enumerate(kinds):
        if of != kinds[0]:
            hint = "phases of rates, or phases of threads; two ladders for both"
            names.problem(f"a phase of {of} after phases of {kinds[0]}", "phases", number, hint=hint)
            return None
    for number, label in enumerate(labels):
        if label in labels[:number]:
            names.problem(f"another phase has the name `{label}`", "phases", number, "name")
            return None
    levels = tuple(level for _, level in made)
    lengths = tuple((label, level.for_s) for label, level in zip(labels, levels, strict=True))
    if not _are_possible(names, kinds[0], levels, lengths, min(rungs)):
        return None
    is_open = kinds[0] == "rate"
    if entry.arrival is not None and is_open == (entry.arrival == "closed"):
        kind, hint = ("rates", "arrival: poisson") if is_open else ("threads", "arrival: closed")
        names.problem(f"phases of {kind} have no {entry.arrival} arrival", "arrival", hint=f"{hint}, or none")
    if is_open and entry.think is not None:
        names.problem(NO_THINK, "think", hint="leave `think` away")
    think = think_time(names, entry.think)
    return Phased(levels=levels, of=kinds[0], distribution=_distribution(entry.arrival), think=think), lengths


def _are_possible(names: StageNames, of: Of, levels: Sequence[Level], lengths: Lengths, rung: int) -> bool:
    """Whether the rates of the levels are below the highest one, their threads within the lowest rung."""
    highest = RATE_MAX if of == "rate" else float(rung)
    fine = True
    for number, level in enumerate(levels):
        for one in level_problems(level, highest):
            message, hint, fine = one.message, one.way_out, False
            if of == "threads" and level.highest > highest:
                message = f"the phase has up to {level.highest:g} threads, but the lowest rung {threads(rung)}"
                hint = "fewer active threads, or higher rungs"
            names.problem(message, "phases", number, hint=hint)
    measure_s = sum(length_s for _, length_s in lengths)
    if measure_s > WEEK_S:
        names.problem("the phases are longer than 7d together", "phases", hint="shorter phases")
        fine = False
    windows = Windows(ramp_up_s=0.0, measure_s=measure_s, ramp_down_s=0.0, phases=lengths)
    return fine and not names.object_to(load_problems(levels, windows, highest), "phases")


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


def _level(for_s: float, level: float | RateLine | RateWave | ThreadsLine | ThreadsWave) -> Level:
    match level:
        case RateLine() | ThreadsLine():
            return Level(for_s=for_s, at_s=(0.0, for_s), values=(level.from_, level.to))
        case RateWave() | ThreadsWave():
            return Level(for_s=for_s, values=(level.mean,), amplitude=level.amplitude, period_s=level.period)
        case _:
            return Level(for_s=for_s, values=(float(level),))


def _from_table(names: StageNames, phase: PhaseEntry, file: str, number: int) -> tuple[Of, Level] | None:
    table = _table(names, file, "phases", number, "from")
    if table is None:
        return None
    of, rows = table
    at_s, values = zip(*rows, strict=True)
    if phase.for_ is not None and phase.for_ < at_s[-1]:
        message = f"the table goes on until {at_s[-1]:g} s, behind the end of the phase"
        names.problem(message, "phases", number, "for", hint="leave `for` out, or give at least that time")
        return None
    return of, Level(for_s=phase.for_ or at_s[-1], at_s=at_s, values=values, steps=phase.between != "lines")


_TEMPLATE = re.compile(r"\$\{(.*)\}", re.DOTALL)


def compile_arrival(names: StageNames, entry: LadderKeys, phases: tuple[Phased, Lengths] | None) -> Arrival | None:
    """The arrival of a ladder, whose `phases` are compiled; None when it is not possible."""
    if entry.phases is not None:
        return None if phases is None else phases[0]
    if entry.rate is None:
        if entry.arrival in ("constant", "poisson"):
            names.problem(f"arrival {entry.arrival} needs a `rate`", "arrival", hint="rate: 500/s")
        return Closed(think=think_time(names, entry.think))
    if entry.arrival == "closed":
        names.problem("closed arrival has no rate", "rate", hint="leave `arrival` or `rate` away")
    if entry.think is not None:
        names.problem(NO_THINK, "think", hint="leave `think` or `rate` away")
    distribution = _distribution(entry.arrival)
    if isinstance(entry.rate, RateRamp):
        return _ramp(names, entry.rate, distribution, entry.measure or 1.0)
    rate = compile_rate(names, entry.rate, "rate")
    return None if rate is None else Open(rate=rate, distribution=distribution)


def _ramp(names: StageNames, entry: RateRamp, distribution: Distribution, measure_s: float) -> Phased | None:
    """A rate that changes in the measure window; its ends are known when the plan is compiled."""
    ends = {"from": entry.from_, "to": entry.to}
    for path in (path for path, value in ends.items() if isinstance(value, str)):
        hint = "a rate that stays may be one: rate: ${cap.rate}"
        names.problem("the ends of a ramp cannot be expressions", "rate", path, hint=hint)
    values = tuple(value for value in ends.values() if not isinstance(value, str))
    if len(values) < len(ends):
        return None
    return Phased(levels=(Level(for_s=measure_s, at_s=(0.0, measure_s), values=values),), distribution=distribution)


def compile_rate(names: StageNames, value: float | str, *path: str) -> float | Expression | None:
    """A rate that is known, or an expression that waits for a result."""
    if not isinstance(value, str):
        return float(value)
    match = _TEMPLATE.fullmatch(value)
    if match is not None:
        return Expression(text=match[1].strip(), where=names.where(*path))
    names.problem("a rate is either 500/s or one ${…}", *path)
    return None
