"""Rules on repeats, windows and loads: statements that may run once only, passes over query sets, tracked commits,
loads that touch the same keys; the programs of a plan that policies of hosts must list.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations

from proveout.core.errors import PlanProblem
from proveout.core.numbers import count_of, number
from proveout.core.units import format_duration, written_duration
from proveout.dsl import engines, metrics
from proveout.dsl.expr.evaluation import comparisons, leaves
from proveout.dsl.expr.syntax import Call, ExpressionFault, Member, Name, Syntax, children, parse, ungroup, walk
from proveout.dsl.metrics import SLOPE_READINGS
from proveout.dsl.plan.iteration_order import groups
from proveout.dsl.plan.loads import Part, parts
from proveout.dsl.plan.plan import Check, Plan, Workload
from proveout.dsl.plan.scalars import EVERY_MIN_S
from proveout.dsl.plan.stages import (
    MEASURE,
    WINDOWS,
    CommandRun,
    Ladder,
    Measuring,
    Open,
    Phased,
    Search,
    Sessions,
    Sql,
    Stage,
    Tool,
)
from proveout.dsl.plan.topology import Capture, Expression
from proveout.dsl.rules.host_rules import Objection, noted
from proveout.dsl.source.nodes import Problems, did_you_mean
from proveout.dsl.workloads.kinds import has_own_arrival, has_tables, is_in_order, key_range, of_workload, same_rows
from proveout.dsl.workloads.kinds import writes as workload_writes
from proveout.dsl.workloads.program import Program, in_forms
from proveout.dsl.workloads.sql_text import reads, scan, writes

# A window in which a capture takes too few readings has no bounds of the slope (`lag.slope_…`); a search that accepts
# by such a bound would refuse every rate.

NOT_DISTINGUISHED = "drift is not distinguished from the difference"
"""The finding of a comparison of ladders that ran one after the other."""
MAINTENANCE = frozenset({"ANALYZE", "CHECKPOINT", "FLUSH", "OPTIMIZE", "PRAGMA", "REINDEX", "VACUUM"})
"""Statements that can run again at any time with the same effect."""
SETTINGS = frozenset(
    {("ALTER", "DATABASE"), ("ALTER", "ROLE"), ("ALTER", "SYSTEM"), ("SET", "GLOBAL"), ("SET", "PERSIST")}
)
"""Beginnings of statements that give a setting a value, the same one each time."""


def compared(text: str, ladders: Collection[str]) -> tuple[tuple[str, ...], ...]:
    """The ladders that one comparison of a check reads together, for each comparison that reads several.

    >>> compared("a.peak.tps.mean > 1 && ratio(a.at(1).tps, b.at(1).tps).lower > 1", {"a", "b"})
    (('a', 'b'),)
    """
    walked = (walk(parse(leaf.text)) for leaf, _ in leaves(comparisons(text)))
    read = ([one.name for one in leaf if isinstance(one, Name) and one.name in ladders] for leaf in walked)
    return tuple(names for names in dict.fromkeys(tuple(dict.fromkeys(one)) for one in read) if len(names) > 1)


def hints(plan: Plan) -> tuple[PlanProblem, ...]:
    """A hint for each verdict that compares ladders which run one after the other, that its repeats cannot decide, that
    reads a percentile of too few transactions, or the mean of a measured number; and for each stage that cannot be
    shown to be steady."""
    leader = {one.id: members[0].id for members in groups(plan.stages) for one in members}
    ladders = {stage.id: stage for stage in plan.stages if isinstance(stage, Ladder)}
    found: list[PlanProblem] = []
    for check in plan.verdicts:
        for names in compared(check.check.text, ladders):
            if len({leader[name] for name in names}) > 1:
                message = f"verdict `{check.id}` compares {' and '.join(names)}, not interleaved: {NOT_DISTINGUISHED}"
                hint = _way_out([ladder for name, ladder in ladders.items() if name in names])
                found.append(noted(message, check, hint))
    undecidable, too_short = _undecidable(plan.stages, plan.verdicts), _too_short(ladders, plan.verdicts)
    return (*found, *undecidable, *too_short, *_point_estimates(plan.verdicts), *_never_steady(plan))


def _way_out(ladders: Sequence[Ladder]) -> str:
    if len({None if one.cell is None else one.cell.of for one in ladders}) == 1 and ladders[0].apart:
        return f"the cells run one after the other: {ladders[0].apart}"
    first, second = ladders[:2]
    return f"put {second.id} directly behind {first.id}, with `order: interleaved` and `with: {first.id}`"


def once_only(step: Stage) -> str:
    """The reason why a step cannot run before or after every turn of a ladder; "" when it can.

    Steps that are taken back after the turn can, a pause and a reset too. SQL can with `repeatable: true`, or when each
    statement reads only, is maintenance, or gives a setting a value. The effect of one cell's SQL meets the other
    cells' turns: a step that creates or changes objects is repeatable only together with one that takes the change
    back, which its text does not show.
    """
    if not isinstance(step, Sql):
        return f"{step.kind} runs once" if step.around_turns == "never" else ""
    if step.repeat > 1:
        return "it has a `repeat` of its own; each turn of the ladder repeats it"
    if step.repeatable is not None:
        return "" if step.repeatable else "it has `repeatable: false`"
    queries = filter(None, (step.wait_until.query, step.query))
    found = next((text for text in (*step.statements, *queries) if not _repeats_by_nature(text)), None)
    if found is None:
        return ""
    text = " ".join(found.split())
    begin = text if len(text) <= 40 else f"{text[:39]}…"
    return f"`{begin}` may have another effect the second time"


def _repeats_by_nature(statement: str) -> bool:
    tokens = scan(statement)
    words = [token.upper for token in tokens if token.kind == "word"]
    if not words or "INTO" in words:
        return False
    setting = tuple(words[:2]) in SETTINGS and not {"SET", "RESET"}.isdisjoint(words)
    return words[0] in MAINTENANCE or setting or (reads(tokens) and not writes(tokens))


def check_repeats(problems: Problems, stages: Sequence[Stage], verdicts: Sequence[Check], *, whole: bool) -> None:
    """Add the problems of repeats and orders. `whole`: all verdicts compiled, so a verdict missing here is missing in
    the plan."""
    order, needs = [stage.id for stage in stages], [set(check.check.needs) for check in verdicts]
    for members in groups(stages):
        first = members[0]
        if first.interleaved_with is not None:
            ids = [stage.id for stage in stages if isinstance(stage, Ladder) and stage is not first]
            message = f"there is no other ladder `{first.interleaved_with}`"
            hint = did_you_mean(first.interleaved_with, ids)
            if first.interleaved_with in ids:
                partner = f"`{first.interleaved_with}`"
                message = f"`{first.id}` cannot take turns with {partner}: they do not stand side by side"
                hint = f"put `{first.id}` directly behind {partner}"
            problems.add(first.where, message, key="stages", hint=hint)
        for ladder in members[1:]:
            _take_turns(problems, ladder, members)
        # those that take turns are repeated together: a verdict that reads one of them, and no later stage, ends them
        reading = [one for one in needs if not one.isdisjoint(member.id for member in members)]
        known = set(order[: order.index(members[-1].id) + 1])
        if not whole or first.repeat_min is None or any(one <= known for one in reading):
            continue
        why, hint = "no verdict reads it", f"repeat: {first.repeat}, or a verdict that reads `{first.id}`"
        if reading:
            why = "they all wait for later stages"
            hint = "order: interleaved on the later ladder, or a fixed `repeat` here"
        message = f"`{first.id}` is repeated until its verdicts are decided, but {why}"
        problems.add(first.where, message, key="stages", hint=hint)


def _take_turns(problems: Problems, ladder: Ladder, members: Sequence[Ladder]) -> None:
    first = members[0]
    if (ladder.repeat, ladder.repeat_min) != (first.repeat, first.repeat_min):
        message = f"`{ladder.id}` and `{first.id}` take turns, but are not repeated alike"
        auto = first.repeat_min is not None
        written = f"auto({first.repeat_min}..{first.repeat})" if auto else str(first.repeat)
        problems.add(ladder.where, message, key="stages", hint=f"repeat: {written}")
    waits = ladder.arrival.rate if isinstance(ladder.arrival, Open) else None
    needed = set(waits.needs) if isinstance(waits, Expression) else set()
    for other in members:
        if other.id in needed:
            message = f"the rate of `{ladder.id}` waits for the end of `{other.id}`, with which it takes turns"
            problems.add(ladder.where, message, key="stages", hint="order: ladder")


# ---- verdicts on one repeat ---------------------------------------------------------------------------------------

EXTREME_REPEATS = 6
"""The repeats from which an extreme (`p999_us`, `max_us`) has an interval (ADR 61)."""
_SLACK = 1e-9
"""Windows and intervals are sums of decimal fractions: 1 s holds ten readings of 100 ms."""
_STATISTICS = ("mean", "median", "lower", "upper", "cv", "n")


def _undecidable(stages: Sequence[Stage], verdicts: Sequence[Check]) -> Iterator[PlanProblem]:
    """A hint for each verdict that reads a measured number of a stage that runs each rung once: one repeat decides
    nothing but what was counted."""
    once = {stage.id for stage in stages if isinstance(stage, Ladder | Tool) and stage.repeat == 1}
    sliced = {stage.id for stage in stages if isinstance(stage, Ladder) and stage.versus_s}
    steps = {name for stage in stages if isinstance(stage, Ladder) for name in (*stage.before, *stage.after)}
    single = {
        stage.id: {"elapsed_s", "wait_s", *(value.name for value in stage.values)}
        for stage in stages
        if isinstance(stage, Sql | CommandRun) and stage.repeat == 1 and stage.id not in steps
    }
    numbers = [(check, list(_paths(parse(check.check.text)))) for check in verdicts]
    for check, paths in numbers:
        read = {
            stage
            for stage, path in paths
            if path[0] in single.get(stage, ())
            or (_needs_repeats(path) and not (stage in sliced and {"tps_ratio", "avg_ratio"}.intersection(path)))
        }
        for stage in sorted((once | single.keys()) & read):
            message = f"verdict `{check.id}` cannot be decided by 1 repeat of `{stage}`"
            yield noted(message, check, "set `repeat: 3` or more")
    few = {stage.id: stage.repeat for stage in stages if isinstance(stage, Ladder | Tool)}
    for check, paths in numbers:
        for stage, path in paths:
            if 1 < few.get(stage, EXTREME_REPEATS) < EXTREME_REPEATS and _needs_interval_of_extreme(path):
                message = (
                    f"verdict `{check.id}` cannot be decided by {few[stage]} repeats of `{stage}`: "
                    f"an interval of `{path[-1] if path[-1] not in _STATISTICS else path[-2]}` takes {EXTREME_REPEATS}"
                )
                hint = f"set `repeat: {EXTREME_REPEATS}` or more"
                yield noted(message, check, hint)


def _needs_interval_of_extreme(path: Sequence[str]) -> bool:
    if path[-1] in ("mean", "median", "cv", "n"):
        return False
    names = [name for name in path if name not in _STATISTICS]
    return bool(names) and metrics.kind(names) == "extreme"


def _too_short(ladders: Mapping[str, Ladder], verdicts: Sequence[Check]) -> Iterator[PlanProblem]:
    """A hint for each verdict that reads a percentile beyond which, at the rate of the plan, its window holds less than
    one transaction."""
    for check in verdicts:
        for stage, path in dict.fromkeys(_paths(parse(check.check.text))):
            ladder, quantile = ladders.get(stage), next(filter(None, map(_quantile, path)), None)
            if ladder is None or quantile is None or not isinstance(ladder.arrival, Open):
                continue
            if isinstance(ladder.arrival.rate, Expression):
                continue
            number = ladder.arrival.rate * ladder.windows.measure_s
            if number * (1.0 - quantile) < 1.0 - _SLACK:
                least = written_duration(math.ceil(1.0 / (1.0 - quantile) / ladder.arrival.rate - _SLACK))
                message = (
                    f"verdict `{check.id}` reads p{100.0 * quantile:g} of `{stage}`, whose window holds "
                    f"{number:,.0f} transactions: less than one lies beyond it"
                )
                hint = f"measure: {least} or more, or a lower percentile"
                yield noted(message, check, hint)


def _point_estimates(verdicts: Sequence[Check]) -> Iterator[PlanProblem]:
    """A hint for each verdict of severity fail that reads the mean or the median of a measured number."""
    for check in verdicts:
        if check.severity != "fail":
            continue
        text = check.check.text
        points = [node for node in walk(parse(text)) if isinstance(node, Member) and node.name in ("mean", "median")]
        read = dict.fromkeys(
            (text[node.of.start : node.of.end], node.name)
            for node in points
            if not metrics.is_counted(_dotted(ungroup(node.of))[1], shares=True)  # which is exact
        )
        for number_read, statistic in read:
            message = (
                f"verdict `{check.id}` reads `.{statistic}` of the measured number `{number_read}`: at its limit "
                "it passes in half of all runs"
            )
            hint = f"leave `.{statistic}` away, also behind `ratio(…)`: the whole interval decides"
            yield noted(message, check, hint)


def _dotted(node: Syntax) -> tuple[Syntax, list[str]]:
    """(`base.at(4)`, `["tps", "lower"]`) of `base.at(4).tps.lower`."""
    names: list[str] = []
    while isinstance(node, Member):
        names.insert(0, node.name)
        node = ungroup(node.of)
    return node, names


STEADY_SECONDS = 5
"""The fewest whole seconds by which one window can be shown to be steady."""
DRIFT_SECONDS = 2
"""The fewest whole seconds of each window by which two repeats or more show it together."""


def _never_steady(plan: Plan) -> Iterator[PlanProblem]:
    """A hint for each stage whose windows and repeats can never show that it is steady (ADR 70)."""
    for stage in plan.stages:
        if not isinstance(stage, Ladder | Tool) or unsteady_by_plan(plan.workload, stage):
            continue
        if isinstance(stage, Ladder) and stage.alone:
            continue  # as the ladder of all loads, for which it is noted
        seconds, together = stage.windows.whole_seconds, stage.repeat > 1
        if seconds >= (DRIFT_SECONDS if together else STEADY_SECONDS):
            continue
        ramp_s = stage.windows.ramp_up_s
        least = {n: written_duration(math.ceil(ramp_s - _SLACK) - ramp_s + n) for n in (DRIFT_SECONDS, STEADY_SECONDS)}
        message = (
            f"`{stage.id}` cannot be shown to be steady: a measure window of "
            f"{format_duration(stage.windows.measure_s)} after {format_duration(ramp_s)} of ramp-up has "
            f"{count_of(seconds, 'whole second')}, {count_of(stage.repeat, 'time')}"
        )
        hint = f"measure: {least[DRIFT_SECONDS]} or more with `repeat: 2` or more, or measure: {least[STEADY_SECONDS]}"
        yield noted(message, stage, hint)


def unsteady_by_plan(workload: Callable[[str], Workload], stage: Measuring) -> str:
    """The reason for which the plan itself has the throughput change over the window; "" where it does not."""
    if isinstance(stage, Ladder) and isinstance(stage.arrival, Phased) and not stage.windows.phases:
        first, last = (number(level) for level in (stage.arrival.levels[0].first, stage.arrival.levels[-1].last))
        return f"the plan has the rate go from {first}/s to {last}/s"
    if isinstance(stage, Ladder) and stage.faults:
        return f"faults disturb it ({', '.join(fault.name for fault in stage.faults)})"
    if isinstance(stage, Ladder) and stage.versus_s:
        return "its loads take turns in slices"
    shares = () if isinstance(stage, Tool) else [part for part in parts(stage) if not part.beside]
    if shares and all(is_in_order(workload(part.stage.workload)) for part in shares):
        return "a set of queries in order is not the same from second to second"
    return ""


def no_end_of_ramp_up(workload: Callable[[str], Workload], stage: Ladder) -> str:
    """The reason for which the seconds of a ladder cannot show when its `ramp_up: auto(…)` may end; "" where they
    can."""
    if why := unsteady_by_plan(workload, stage):
        return why
    if stage.windows.phases:
        return "the load differs between its phases"
    if stage.windows.measure_s < STEADY_SECONDS:
        return f"a measure window below {STEADY_SECONDS}s does not show whether it is steady"
    return ""


def changing_phases(stage: Measuring) -> tuple[str, ...]:
    """The phases in which the plan itself has the load change."""
    if not isinstance(stage, Ladder) or not isinstance(stage.arrival, Phased):
        return ()
    levels = zip(stage.windows.phases, stage.arrival.levels, strict=False)
    return tuple(name for (name, _), level in levels if not level.is_constant)


def _quantile(name: str) -> float | None:
    """0.999 of `p999_us`; None when the name is not that of a percentile."""
    found = re.fullmatch(r"p(\d{2,})_(us|s)", name)
    return None if found is None else int(found[1]) / 10.0 ** len(found[1])


def _needs_repeats(path: Sequence[str]) -> bool:
    """Whether a number at a path of names is an estimate whose interval, or mean, decides."""
    if not path or path[-1] in ("n", "cv"):
        return False
    names = [name for name in path if name not in _STATISTICS]
    return not metrics.is_bound(names[-1]) and not metrics.is_counted(names, shares=True) if names else False


def _paths(node: Syntax) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(stage, names) of each number that is read: `("base", ("tps", "lower"))` of `base.at(4).tps.lower`."""
    inner, names = _dotted(node)
    if isinstance(inner, Call) and inner.function == "at" and names:
        inner = ungroup(inner.arguments[0])
    if isinstance(inner, Name) and names:
        yield inner.name, tuple(names)
        return
    for part in children(inner):
        yield from _paths(part)


def check_slopes(
    problems: Problems, stages: Sequence[Stage], verdicts: Sequence[Check], captures: Sequence[Capture]
) -> None:
    """Add a problem for each condition that reads a slope's bound which its windows cannot have."""
    lags = {capture.name: capture for capture in captures if capture.kind == "lag"}
    for stage in stages:
        if isinstance(stage, Search) and any(_slopes(stage.accept)):
            for key, window_s in (("measure", stage.probe.measure_s), ("confirm.measure", stage.confirm.measure_s)):
                _refuse(problems, stage.accept, stage, (key, window_s), lags)
        if isinstance(stage, Ladder) and stage.stop_when is not None and any(_slopes(stage.stop_when)):
            _refuse(problems, stage.stop_when, stage, ("measure", stage.windows.measure_s), lags)
    for check in verdicts:
        for root in dict.fromkeys(_slopes(check.check)):
            for stage in stages:
                if isinstance(stage, Ladder) and root in (stage.id, stage.cell.of if stage.cell else None):
                    _refuse(problems, check.check, stage, ("measure", stage.windows.measure_s), lags)


def _slopes(expression: Expression) -> Iterator[str]:
    """The root name of each bound of a slope that an expression reads."""
    with contextlib.suppress(ExpressionFault):  # reported by the checks of expressions
        for node in walk(parse(expression.text)):
            if isinstance(node, Member) and node.name in ("slope_lower", "slope_upper"):
                yield next((one.name for one in walk(node.of) if isinstance(one, Name)), "")


def _refuse(
    problems: Problems,
    expression: Expression,
    stage: Ladder | Search,
    window: tuple[str, float],
    lags: dict[str, Capture],
) -> None:
    key, window_s = window
    for capture in (lags[name] for name in stage.captures if name in lags):
        readings = math.floor(window_s / capture.every_s + _SLACK)
        if readings >= SLOPE_READINGS:
            continue
        message = (
            f"the slope of `{capture.name}` has no bounds in stage `{stage.id}`: its {key} of "
            f"{format_duration(window_s)} holds {count_of(readings, 'reading')}, one each "
            f"{format_duration(capture.every_s)}; {SLOPE_READINGS} are needed"
        )
        hint, closer_s = f"{key}: {written_duration(SLOPE_READINGS * capture.every_s)} there", window_s / SLOPE_READINGS
        if closer_s >= EVERY_MIN_S - _SLACK:
            hint += f", or every: {written_duration(closer_s)} in the capture `{capture.name}`"
        problems.add(expression.where, message, key="stages", hint=hint)


WITHOUT = (MEASURE, *(one.name for one in WINDOWS if one.name != MEASURE), "rate")


def pass_problems(
    given: Collection[str], pool: str, workloads: Iterable[Workload], *, paced: bool
) -> Iterator[Objection]:
    """The objections to the windows of a ladder, each `at` its key; `given` are the ladder's keys in the plan, `paced`
    tells whether one of its loads has a rate."""
    if "passes" not in given:
        if "within" in given:
            way_out = "passes: 1, or leave `within` out"
            yield Objection("`within` is the limit of `passes`", at=("within",), way_out=way_out)
        if "measure" not in given and "phases" not in given:
            way_out = "measure: 10s, or phases, or passes: 1 for a set of queries"
            yield Objection("`measure` is required", way_out)
        return
    for key in WITHOUT:
        if key in given:
            message, way_out = f"`passes` run to completion, without `{key}`", f"leave `{key}` or `passes` out"
            yield Objection(message, at=(key,), way_out=way_out)
    if pool != "local":
        message, way_out = "`passes` run in the local pool only", "leave `pool` out, or give `measure`"
        yield Objection(message, at=("pool",), way_out=way_out)
    if paced:
        message, way_out = "`passes` run to completion, without a `rate` of a load", "leave `rate` or `passes` out"
        yield Objection(message, at=("loads",), way_out=way_out)
    for workload in workloads:
        if is_in_order(workload):
            continue
        message = f"`{workload.name}` is a mix, which has no passes: it runs for the length of a window"
        way_out = "measure: 10s, or a set of queries (kind: tproch, or kind: sql with in_order)"
        yield Objection(message, at=("passes",), way_out=way_out)


def tracking_problems(workload: Workload, engine: str, sessions: Sessions, *, checked: bool) -> Iterator[Objection]:
    """The reasons for which commits of this workload cannot be tracked in a database of this engine."""
    if not engines.of(engine).tracks_commits:
        known = engines.able(lambda one: one.tracks_commits)
        yield Objection(f"commits cannot be tracked in {engine}", f"engines: {known}")
    if has_own_arrival(workload):
        message = f"workload `{workload.name}` is an outside program, whose commits cannot be tracked"
        yield Objection(message, "leave `commits` out")
    elif not workload_writes(workload):
        yield Objection(
            f"workload `{workload.name}` changes no rows, so it has no commits to track",
            way_out="leave `commits` out",
        )
    elif engines.of(engine).dialect == "oracle" and dict(workload.parameters).get("procedures") is True:
        message = f"the procedures of workload `{workload.name}` commit by themselves on {engine}"
        yield Objection(message, "procedures: false, or leave `commits` out")
    if sessions.are_lent:
        message = "commits are read back by the connection of a thread, which `pool` and `connect_every` do not keep"
        yield Objection(message, "leave `commits` or `sessions` out")
    if checked and sessions.on_disconnect != "retry":
        message = "`checked` is about transactions that are run again after a lost connection"
        yield Objection(message, "on_disconnect: retry, or commits: tracked")


# ---- loads at the same time, and the programs of loads ---------------------------------------------------------------

NAMED = 4
"""Loads that a note names one by one."""
_OWN_RANGES = "a `range` for each, unless they are to wait for each other"


def overlaps(plan: Plan) -> Iterator[PlanProblem]:
    """A note for the loads of a stage of which two or more change or read the same keys.

    Loads on two systems can meet only where proveout provisions neither: they may be instances of one database.
    """
    for stage in plan.stages:
        if not isinstance(stage, Ladder | Search) or (isinstance(stage, Ladder) and stage.versus_s):
            continue
        meeting: dict[str, dict[str, None]] = {}
        for one, other in combinations(parts(stage), 2):
            if _meet(plan, one, other) and (common := _common(plan, one, other)):
                meeting.setdefault(common, {}).update({one.name: None, other.name: None})
        for common, names in meeting.items():
            yield noted(f"loads {_listed(list(names))} of `{stage.id}` touch {common}", stage, _OWN_RANGES)


def _listed(names: Sequence[str]) -> str:
    """Two or more names: `a` and `b`; of many the first three."""
    if len(names) > NAMED:
        return f"{', '.join(f'`{name}`' for name in names[: NAMED - 1])} and {len(names) - NAMED + 1} more"
    return f"{', '.join(f'`{name}`' for name in names[:-1])} and `{names[-1]}`"


def _meet(plan: Plan, one: Part, other: Part) -> bool:
    ends = [plan.system(part.stage.target) for part in (one, other)]
    apart = ends[0] is not ends[1] and (any(end.provision for end in ends) or ends[0].engine != ends[1].engine)
    first, second = (plan.workload(part.stage.workload) for part in (one, other))
    alike = has_tables(first) and has_tables(second) and same_rows(first, second)
    return not apart and alike and (workload_writes(first) or workload_writes(second))


def _common(plan: Plan, one: Part, other: Part) -> str:
    """The keys of both, in words; "" when there are none."""
    first, second = (key_range(plan.workload(part.stage.workload)) for part in (one, other))
    if first is None or second is None:
        return "the same rows"
    low, high = max(first[0], second[0]), min(first[1], second[1])
    return f"the same keys {low} to {high}" if low <= high else ""


def programs(plan: Plan) -> Iterator[tuple[tuple[str, ...], str, tuple[str, ...]]]:
    """The programs of loads, command stages and captures: (hosts, path in the plan, argv with the forms of values that
    are not known before the load)."""
    for stage in plan.stages:
        if isinstance(stage, CommandRun):
            yield (stage.host,), f"stages.{stage.id}", stage.command.argv
        for part in parts(stage) if isinstance(stage, Ladder | Search) else ():
            workload = plan.workload(part.stage.workload)
            if workload.kind == "program":
                model = of_workload(workload)
                assert isinstance(model, Program)  # noqa: S101 - the kind of the workload
                argv = in_forms(model.argv, plan.system(part.stage.target).engine)
                yield part.stage.clients, f"workloads.{workload.name}", argv
    for capture in plan.captures:
        if capture.kind == "command":
            yield capture.hosts, f"captures.{capture.name}", capture.command.argv
