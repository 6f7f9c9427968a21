"""`phases:` of a ladder -> the levels of its load, and the phases of its measure window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from proveout.core.data_classes import dataclass
from proveout.core.numbers import threads
from proveout.dsl.compile.phases.level_table import read_table
from proveout.dsl.compile.symbols import StageNames
from proveout.dsl.plan.phases import Level
from proveout.dsl.plan.stages import Windows
from proveout.dsl.rules.bounds import RATE_MAX, WEEK_S
from proveout.dsl.rules.phase_rules import level_problems, load_problems
from proveout.dsl.schema.phase_models import PhaseEntry, RateLine, RateWave, ThreadsLine, ThreadsWave
from proveout.dsl.schema.stage_models import LadderEntry

Of: TypeAlias = Literal["rate", "threads"]
Line: TypeAlias = RateLine | ThreadsLine
Wave: TypeAlias = RateWave | ThreadsWave
EXCLUDED = ("measure", "rate", "passes", "within")


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """The phases of a ladder: their levels, of one kind, and their names with their lengths."""

    of: Of
    levels: tuple[Level, ...]
    lengths: tuple[tuple[str, float], ...]

    @property
    def measure_s(self) -> float:
        """The length of all, seconds."""
        return sum(length for _, length in self.lengths)


def compile_phases(names: StageNames, entry: LadderEntry, rungs: Sequence[int]) -> Phases | None:
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
