"""Rules of repeats: interleaved ladders can take turns, steps can be repeated, and `auto` repeats have a verdict to
decide.

Data flow: the compiled stages and verdicts -> problems. Called when every stage of the plan compiled. `once_only` says
which steps cannot run around every turn of a ladder.
"""

from __future__ import annotations

from collections.abc import Sequence

from proveout.dsl.plan.iteration_order import groups
from proveout.dsl.plan.plan import Check
from proveout.dsl.plan.stages import Ladder, Open, Pause, Reset, Sql, Stage
from proveout.dsl.plan.values import Expression
from proveout.dsl.source.nodes import Problems, did_you_mean
from proveout.dsl.workloads.sql.sql_text import reads, scan, writes

NOT_DISTINGUISHED = "drift is not distinguished from the difference"
"""The finding of a comparison of ladders that ran one after the other."""
MAINTENANCE = frozenset({"ANALYZE", "CHECKPOINT", "FLUSH", "OPTIMIZE", "PRAGMA", "REINDEX", "VACUUM"})
"""Statements that can run again at any time with the same effect."""
SETTINGS = frozenset(
    {("ALTER", "DATABASE"), ("ALTER", "ROLE"), ("ALTER", "SYSTEM"), ("SET", "GLOBAL"), ("SET", "PERSIST")}
)
"""Beginnings of statements that give a setting a value, the same one each time."""


def once_only(step: Stage) -> str:
    """The reason why a step cannot run before or after every turn of a ladder; "" when it can.

    A pause and a reset can. SQL can with `repeatable: true`, or when each statement reads only, is
    maintenance, or gives a setting a value. The effect of one cell's steps meets the other cells' turns: a step that
    creates or changes objects is repeatable only together with one that takes the change back, which its text does not
    show.
    """
    if isinstance(step, Pause | Reset):
        return ""
    if not isinstance(step, Sql):
        return f"{step.kind} runs once"
    if step.repeatable is not None:
        return "" if step.repeatable else "it has `repeatable: false`"
    found = next((text for text in step.statements if not _repeats_by_nature(text)), None)
    return "" if found is None else f"`{_beginning(found)}` may have another effect the second time"


def _repeats_by_nature(statement: str) -> bool:
    tokens = scan(statement)
    words = [token.upper for token in tokens if token.kind == "word"]
    if not words or "INTO" in words:
        return False
    setting = tuple(words[:2]) in SETTINGS and not {"SET", "RESET"}.isdisjoint(words)
    return words[0] in MAINTENANCE or setting or (reads(tokens) and not writes(tokens))


def _beginning(statement: str) -> str:
    text = " ".join(statement.split())
    return text if len(text) <= 40 else f"{text[:39]}…"


def check_repeats(problems: Problems, stages: Sequence[Stage], verdicts: Sequence[Check], *, whole: bool) -> None:
    """Add the problems of repeats and orders. `whole`: all verdicts compiled, so a verdict missing here is missing in
    the plan."""
    for members in groups(stages):
        first = members[0]
        if first.interleaved_with is not None:
            _no_partner(problems, first, stages)
        for ladder in members[1:]:
            _take_turns(problems, ladder, members)
    if whole:
        _decidable(problems, stages, verdicts)


def _no_partner(problems: Problems, ladder: Ladder, stages: Sequence[Stage]) -> None:
    ids = [stage.id for stage in stages if isinstance(stage, Ladder) and stage is not ladder]
    if ladder.interleaved_with not in ids:
        message, hint = (
            f"there is no other ladder `{ladder.interleaved_with}`",
            did_you_mean(str(ladder.interleaved_with), ids),
        )
    else:
        message = f"`{ladder.id}` cannot take turns with `{ladder.interleaved_with}`: they do not stand side by side"
        hint = f"put `{ladder.id}` directly behind `{ladder.interleaved_with}`"
    problems.add(ladder.where, message, key="stages", hint=hint)


def _take_turns(problems: Problems, ladder: Ladder, members: Sequence[Ladder]) -> None:
    first = members[0]
    if (ladder.repeat, ladder.repeat_min) != (first.repeat, first.repeat_min):
        message = f"`{ladder.id}` and `{first.id}` take turns, but are not repeated alike"
        problems.add(ladder.where, message, key="stages", hint=f"repeat: {_written(first)}")
    waits = ladder.arrival.rate if isinstance(ladder.arrival, Open) else None
    needed = set(waits.needs) if isinstance(waits, Expression) else set()
    for other in members:
        if other.id in needed:
            message = f"the rate of `{ladder.id}` waits for the end of `{other.id}`, with which it takes turns"
            problems.add(ladder.where, message, key="stages", hint="order: ladder")


def _written(ladder: Ladder) -> str:
    return str(ladder.repeat) if ladder.repeat_min is None else f"auto({ladder.repeat_min}..{ladder.repeat})"


def _decidable(problems: Problems, stages: Sequence[Stage], verdicts: Sequence[Check]) -> None:
    """An `auto` ladder needs a verdict that depends on it and on no later stage, which decides when to stop."""
    order = [stage.id for stage in stages]
    for members in groups(stages):
        known = set(order[: order.index(members[-1].id) + 1])
        for ladder in members:
            reading = [check for check in verdicts if ladder.id in check.check.needs]
            if ladder.repeat_min is None or any(set(check.check.needs) <= known for check in reading):
                continue
            if reading:
                message = (
                    f"`{ladder.id}` is repeated until its verdicts are decided, but they all wait for later stages"
                )
                hint = "order: interleaved on the later ladder, or a fixed `repeat` here"
            else:
                message = f"`{ladder.id}` is repeated until its verdicts are decided, but no verdict reads it"
                hint = f"repeat: {ladder.repeat}, or a verdict that reads `{ladder.id}`"
            problems.add(ladder.where, message, key="stages", hint=hint)
