"""The first answer of a run: headline numbers, claims of verdicts, short evidence, the end in a sentence, the answer in
words, with which every report begins. Pure.

The answer is first what a reader must know before the numbers (cautions, an end before the last stage), then a sentence
for each verdict that failed, is undecided or passed, then the rates that searches found, last the verdicts that only
warn; without verdicts the headline numbers. Of a verdict that passed it is its `answer`, where the plan has one for
any; otherwise its title with its number.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from proveout.coordinator.report.tables import climbing, ladders, titled
from proveout.coordinator.results.estimates import value_estimates
from proveout.coordinator.results.published import measured, reproductions
from proveout.coordinator.results.results import RungResult, RunResults, StageResult, environment, not_interleaved
from proveout.coordinator.verdict.checks import (
    NEEDED,
    PERHAPS_NEVER,
    POINTS,
    STATISTICS,
    compared_sides,
    is_constant,
    judge,
    lower_bound,
    reads_points,
    turned,
    value_of,
)
from proveout.core import statistics
from proveout.core.data_classes import record
from proveout.core.json_data import at_path, estimate_at, number_at
from proveout.core.numbers import (
    RATIO,
    SOUGHT,
    centre,
    count_of,
    half_width,
    is_estimate,
    level,
    notation,
    percent,
    pieces,
    quantity,
    ranged,
    rung_name,
    seconds,
)
from proveout.core.statistics import CONFIDENCE, ZERO_EVENTS
from proveout.dsl.expr.evaluation import (
    Bare,
    Comparison,
    ExpressionFault,
    by_mean,
    comparisons,
    leaves,
    metric_of,
)
from proveout.dsl.expr.syntax import Member, parse, ungroup
from proveout.dsl.metrics import FAULTS, load_paths
from proveout.dsl.plan.stages import Cell, of_stage
from proveout.proto.events import Claim, HeadlineNumber, Outcome, Tone, VerdictReached

TRANSACTIONS_MAX = 8
"""A comparison of more transactions shows some of them."""
EXTREMES = 3
"""Lowest factors, and as many of the highest, that it then shows."""


TONES: Mapping[Outcome, Tone] = {"PASS": "good", "FAIL": "bad", "INCONCLUSIVE": "warn"}


@record
class ComparisonRow:
    """One number of both ladders; the ending of `metric` is its unit.

    All three are estimates; `factor` has `mean` and, where known, `lower` and `upper`. `transaction`: whether it is of
    one transaction.
    """

    label: str
    metric: str
    base: Mapping[str, Any]
    other: Mapping[str, Any]
    factor: Mapping[str, Any]
    transaction: bool = False

    @property
    def tone(self) -> Tone:
        """Of the factor: good above 1 with its whole interval, bad below 1; of none that repeats lack."""
        if "missing" in self.factor:
            return ""
        if self.factor.get("lower", 0.0) > 1.0:
            return "good"
        return "bad" if self.factor.get("upper", 1.0) < 1.0 else ""

    @property
    def printed(self) -> tuple[str, str]:
        """Both numbers in one unit, each rounded by its own interval, different when they differ."""
        sides = [(side.get("mean"), half_width(side)) for side in (self.base, self.other)]
        same = notation(self.metric, *sides)
        return same.text(self.base.get("mean")), same.text(self.other.get("mean"))


@record
class LaddersCompared:
    """Ladder `other` against ladder `base` at `threads`; `finding`: that they were not interleaved, or ""."""

    base: str
    other: str
    threads: int
    rows: tuple[ComparisonRow, ...]
    finding: str = ""

    @property
    def shortened(self) -> tuple[ComparisonRow, ...]:
        """The rows without those of most transactions, where there are many: of the transactions the lowest and the
        highest factors stay."""
        ranked = sorted((row for row in self.rows if row.transaction), key=lambda row: row.factor.get("mean", 1.0))
        if len(ranked) <= TRANSACTIONS_MAX:
            return self.rows
        kept = [*ranked[:EXTREMES], *ranked[-EXTREMES:]]
        return tuple(row for row in self.rows if not row.transaction or row in kept)

    @property
    def level(self) -> str:
        """The confidence level of the factors' intervals: 95 %, or higher where repeats are added until verdicts are
        decided.
        """
        return level(self.rows[0].factor if self.rows else {})


def ladder_comparisons(results: RunResults) -> list[LaddersCompared]:
    """All comparisons of ladders of the run, at the largest rung that both have."""
    found = []
    for base, other in _pairs(results):
        shared = {rung.threads: rung for rung in base.rungs if rung.tree}
        common = [rung for rung in other.rungs if rung.tree and rung.threads in shared]
        if common:
            top = common[-1]
            found.append(
                LaddersCompared(
                    base=base.id,
                    other=other.id,
                    threads=top.threads,
                    rows=tuple(_compared_rows(shared[top.threads].tree, top.tree)),
                    finding=not_interleaved(results, (base.id, other.id)),
                )
            )
    return found


def _pairs(results: RunResults) -> Iterator[tuple[StageResult, StageResult]]:
    """Pair each ladder with the first earlier one on another target: of the same arrival, or else of any."""
    earlier: list[tuple[StageResult, Mapping[str, Any]]] = []
    for stage in ladders(results):
        plan = results.plan_stage(stage.id)
        others = [
            (base, of)
            for base, of in earlier
            if of.get("workload") == plan.get("workload")
            and of.get("target") != plan.get("target")
            and _neighbours(of_stage(of), of_stage(plan))
        ]
        alike = [base for base, of in others if arrival(of) == arrival(plan)]
        if others:
            yield (alike or [others[0][0]])[0], stage
        earlier.append((stage, plan))


def _neighbours(left: Cell | None, right: Cell | None) -> bool:
    """Whether two ladders can be compared: cells of one matrix only when they differ in one label, others always."""
    if left is None or right is None or left.of != right.of:
        return True
    return sum(a != b for a, b in zip(left.labels, right.labels, strict=True)) == 1


def arrival(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Closed with its think times, or open with its rate: a number, or the text of its expression."""
    arrival = dict(plan.get("arrival") or {})
    if isinstance(rate := arrival.get("rate"), Mapping):
        arrival["rate"] = rate.get("text")
    return arrival


def _compared_rows(left: Mapping[str, Any], right: Mapping[str, Any]) -> Iterator[ComparisonRow]:
    """The numbers that the trees of both rungs have, of several loads those of each too."""
    for load in load_paths(left):
        paths: list[tuple[str, tuple[str, ...]]] = [("throughput", ("tps",)), ("time to solve", ("solve_s",))]
        paths += [(f"response {name}", ("response", f"{name}_us")) for name in ("avg", "p50", "p95", "p99")]
        for name in at_path(left, *load).get("transactions", {}):
            paths.append((f"{name} avg", ("transactions", name, "response", "avg_us")))
        for text, path in paths:
            base, other = (estimate_at(tree, *load, *path) for tree in (left, right))
            if base and other:
                yield ComparisonRow(
                    label=f"{load[1]}: {text}" if load else text,
                    metric=path[-1],
                    base=base,
                    other=other,
                    factor=statistics.ratio(other, base) if path[-1] == "tps" else statistics.ratio(base, other),
                    transaction=path[0] == "transactions",
                )


MOST = 5


def headline(results: RunResults, most: int = MOST) -> tuple[HeadlineNumber, ...]:
    """The headline numbers, most important first; none of a run without valid measurements."""
    found = [list(islice(candidates(results), limit)) for candidates, limit in _KINDS]
    ranked = [one for place in range(most) for kind in found for one in kind[place : place + 1]]
    chosen = {id(one) for one in ranked[:most]}
    return tuple(one for kind in found for one in kind if id(one) in chosen)


# ---- kinds -------------------------------------------------------------------------------------------------------


def _rates(results: RunResults) -> Iterator[HeadlineNumber]:
    for stage in results.stages.values():
        if (found := stage.search) is None:
            continue
        estimate = found.estimate
        value, interval = printed(estimate, found.over)
        yield HeadlineNumber(
            label=f"Highest {SOUGHT[found.over]} found",
            value=value if estimate else found.answer,
            interval=interval,
            about=f"search {stage.id}",
            tone="" if estimate else "warn",
            estimate=estimate,
        )


def _factors(results: RunResults) -> Iterator[HeadlineNumber]:
    """Ladders compared with each other: their throughput, or the time to solve."""
    for pair in ladder_comparisons(results):
        rows = [row for row in pair.rows if not row.transaction and "mean" in row.factor]
        # at the same offered rate both have the same throughput
        one, other = (arrival(results.plan_stage(stage)) for stage in (pair.base, pair.other))
        offered = one.get("rate") is not None and one == other
        wanted = ("solve_s", "avg_us", "p50_us") if offered else ("solve_s", "tps")
        row = next((row for metric in wanted for row in rows if row.metric == metric), None)
        if row is None:
            continue
        label = f"{titled(results, pair.other)} against {titled(results, pair.base)}"
        yield _number(label, row.factor, f"{row.label}, {rung_name('ladder', pair.threads)}", row.tone, sign=" ×")


def _published(results: RunResults) -> Iterator[HeadlineNumber]:
    for one in reproductions(results):
        if one.factor:
            about = ", ".join(filter(None, (one.source, "" if one.within is None else f"within {percent(one.within)}")))
            tone = TONES[one.outcome] if one.outcome else ""
            yield _number(f"{one.title or one.id}, measured / published", one.factor, about, tone, sign=" ×")


def _peaks(results: RunResults) -> Iterator[HeadlineNumber]:
    """The highest mean throughput of each ladder, the highest of all first; of query sets there is none."""
    for stage, rung in _by_throughput(results):
        metric = "iops" if stage.kind == "tool" else "tps"
        found = _of_rung(results, stage, rung, "Peak throughput", rung.tree["tps"], metric=metric)
        failed = number_at(rung.tree, "logical", "fraction")
        yield replace(found, about=f"{found.about}, {percent(failed)} failed logically") if failed else found


def _by_throughput(results: RunResults) -> list[tuple[StageResult, RungResult]]:
    """Each ladder with its peak, the highest first; without sets of queries."""
    found = [(stage, rung) for stage in climbing(results) if (rung := stage.peak) and "solve_s" not in rung.tree]
    return sorted(found, key=lambda one: -float(one[1].tree["tps"]["mean"]))


def _latencies(results: RunResults) -> Iterator[HeadlineNumber]:
    """The 99th percentile of the response at the peak of each ladder, the ladder with the highest peak first."""
    for stage, rung in _by_throughput(results):
        if stage.kind == "ladder" and (estimate := estimate_at(rung.tree, "response", "p99_us")):
            yield _of_rung(results, stage, rung, "p99 at the peak", estimate, metric="p99_us")


def _outages(results: RunResults) -> Iterator[HeadlineNumber]:
    """The outage of each fault at the highest rung that has it."""
    for stage in results.stages.values():
        having = [rung for rung in stage.rungs if stage.kind == "ladder" and FAULTS in rung.tree]
        for name, tree in having[-1].tree[FAULTS].items() if having else ():
            if "outage_s" in tree:
                yield _of_rung(results, stage, having[-1], f"Outage by {name}", tree["outage_s"], metric="outage_s")


def _commits(results: RunResults) -> Iterator[HeadlineNumber]:
    """Acknowledged commits that are lost, where commits are tracked."""
    for stage in results.stages.values():
        tracked = [commits for item in stage.iterations for commits in item.commits]
        if not tracked:
            continue
        lost, apart = sum(one.lost for one in tracked), sum(one.lost_apart for one in tracked)
        acknowledged = sum(one.acknowledged for one in tracked)
        by_faults = f"{lost - apart:,} of them by faults, " if lost else ""
        yield HeadlineNumber(
            label="Lost commits",
            value=f"{lost:,}",
            about=f"{by_faults}of {acknowledged:,} acknowledged, {titled(results, stage.id)}",
            tone="bad" if apart else "warn" if lost else "good",
            estimate={"mean": float(lost)},
        )


def _solves(results: RunResults) -> Iterator[HeadlineNumber]:
    found = [(stage, rung) for stage in climbing(results) for rung in stage.rungs if "solve_s" in rung.tree]
    for stage, rung in sorted(found, key=lambda one: float(one[1].tree["solve_s"].get("mean", 0.0))):
        yield _of_rung(results, stage, rung, "Time to solve", rung.tree["solve_s"], metric="solve_s")


def _propagations(results: RunResults) -> Iterator[HeadlineNumber]:
    """Tables that differ at the two ends of a propagation, after its drain."""
    for pair in results.propagations:
        different = sum(not table.same for table in pair.tables)
        whole = pair.drained and bool(pair.tables) and not different
        yield HeadlineNumber(
            label=f"{pair.source} → {pair.sink}",
            value="the same rows"
            if whole
            else f"{count_of(different, 'table')} with other rows"
            if pair.drained
            else "not drained",
            about=f"{count_of(len(pair.tables), 'table')}, {'drained in' if pair.drained else 'after'} "
            + quantity(pair.drain_s, "drain_s"),
            tone="good" if whole else "bad",
        )


def _values(results: RunResults) -> Iterator[HeadlineNumber]:
    for stage in results.stages.values():
        for name, found in value_estimates(stage.values).items():
            if name not in ("elapsed_s", "wait_s") and "mean" in found:
                yield _number(name, found, stage.id, metric=name)


_KINDS: tuple[tuple[Callable[[RunResults], Iterator[HeadlineNumber]], int], ...] = (
    (_rates, 2),
    (_factors, 3),
    (_published, 3),
    (_peaks, 2),
    (_outages, 3),
    (_commits, 2),
    (_solves, 2),
    (_latencies, 1),
    (_propagations, 2),
    (_values, 3),
)
"""The kinds by importance, which is also their order on the screen, and the most numbers of each."""


# ---- parts -------------------------------------------------------------------------------------------------------


def _of_rung(
    results: RunResults,
    stage: StageResult,
    rung: RungResult,
    label: str,
    estimate: Mapping[str, Any],
    *,
    metric: str,
) -> HeadlineNumber:
    about = f"{titled(results, stage.id)}, {rung_name(stage.kind, rung.threads)}"
    sign = " IOPS" if metric == "iops" else ""
    return _number(label, estimate, about, "warn" if stage.cautions else "", metric=metric, sign=sign)


def _number(
    label: str, estimate: Mapping[str, Any], about: str, tone: Tone = "", *, metric: str = "", sign: str = ""
) -> HeadlineNumber:
    value, interval = printed(estimate, metric)
    return HeadlineNumber(label=label, value=value + sign, interval=interval, about=about, tone=tone, estimate=estimate)


def printed(estimate: Mapping[str, Any], metric: str = "") -> tuple[str, str]:
    """The number and its interval, in one unit: `7,200/s` and `95 % CI 7,000/s … 7,400/s, n = 5`."""
    if "n" in estimate:
        value, _, interval = notation(metric, estimate).interval(estimate).partition(" (")
        return value, interval.removesuffix(")")
    same = notation(metric, estimate)
    ends = same.bounds(estimate.get("lower"), estimate.get("upper"))
    return same.text(estimate.get("mean"), half_width(estimate)), "" if ends == "-" else f"{level(estimate)} CI {ends}"


_SIGNS = {"<": "<", "<=": "≤", ">": ">", ">=": "≥", "==": "=", "!=": "≠"}
_NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


def claims(verdict: VerdictReached, results: RunResults) -> tuple[Claim, ...]:
    """The comparisons of a verdict's check, in its order; () for one without an expression."""
    try:
        tree = comparisons(verdict.check)
    except ExpressionFault:
        return ()
    scope = environment(results)
    return tuple(claim for leaf, holds in leaves(tree) if (claim := _claim(leaf, scope, holds=holds)))


def _wrong(check: str, scope: Mapping[str, Any]) -> float:
    """The share of runs, at most, in which a check is decided wrongly: of each of its comparisons that in which an end
    of the interval is on the wrong side of the true value."""
    found = [value for value, _ in judge(check, scope).deciding if value is not None]
    missed = ((1.0 - value.get("confidence", CONFIDENCE), value["method"]) for value in found)
    return sum(of if method == ZERO_EVENTS else of / 2.0 for of, method in missed) or (1.0 - CONFIDENCE) / 2.0


def method(results: RunResults) -> Iterator[str]:
    """The method of the intervals and what they hold for, and the level of the verdicts: a sentence each."""
    if not any(stage.climbs for stage in results.stages.values()):
        return
    yield (
        "Intervals: Student's t on the logarithms of a rung's repeats (of their pairs, where ladders took turns; wider "
        "for a peak or knee, for all rungs that could be it); the repeats share one start of the servers and one "
        "population, unless the plan restarts or resets in between, so no interval covers another start or other data."
    )
    judged = [one for one in results.verdicts if any(claim.interval for claim in claims(one, results))]
    scope = environment(results)
    bounds = [_wrong(one.check, scope) for one in judged if not reads_points(one.check)]
    points = len(judged) - len(bounds)
    parts = [f"one that reads a bound is wrong in at most {percent(max(bounds))} of runs"] if bounds else []
    parts += [f"one or more of {len(bounds)} in at most {percent(min(sum(bounds), 1.0))}"] if len(bounds) > 1 else []
    text = ", ".join(parts)
    if points:
        text += f"{'; ' if text else ''}one that reads a point estimate such as .mean ({points} here) has no level: "
        text += "at its limit it passes in half of all runs"
    if text:
        yield f"Verdicts: {text}."


def _claim(leaf: Comparison | Bare, scope: Mapping[str, Any], *, holds: bool) -> Claim | None:
    if isinstance(leaf, Bare):
        try:
            value = value_of(leaf.text, scope)
        except ExpressionFault:
            return None  # prose of a built-in verdict, or without data
        return Claim(of=leaf.text, value=str(value).lower()) if isinstance(value, bool) else None
    text, operator, limit = turned(leaf)
    operator = operator if holds else _NEGATED[operator]
    try:
        return _compared(text, operator, limit, scope)
    except ExpressionFault:
        return _bounded(text, operator, limit, scope)


def _compared(text: str, operator: str, limit: str, scope: Mapping[str, Any]) -> Claim:
    (value, statistic), against = _read(text, scope), value_of(limit, scope)
    metric, of = metric_of(text) or metric_of(limit), text
    if isinstance(value, dict) and isinstance(against, dict):
        if not (is_estimate(value) and is_estimate(against)):  # a ratio to 0
            return _bounded(text, operator, limit, scope)
        value, against = compared_sides(value, against)
        of, metric = f"{text} {'/' if against else '-'} {limit}", RATIO if against else metric
    bound: float | None = against.get("mean") if isinstance(against, dict) else against
    found: Mapping[str, Any] = value if isinstance(value, dict) else {"mean": value}
    mean = found.get(statistic, found.get("mean"))
    same = notation(metric, found, bound, exact=[bound] if bound is not None and is_constant(limit) else [])
    interval = "lower" in found or "upper" in found
    return Claim(
        of=of,
        value=same.text(mean),
        limit=f"{_SIGNS[operator]} {same.text(bound)}",
        operator=operator,
        mean=mean,
        lower=found.get("lower"),
        upper=found.get("upper"),
        bound=bound,
        interval=f"{level(found)} CI {same.bounds(found.get('lower'), found.get('upper'))}" if interval else "",
    )


def _read(text: str, scope: Mapping[str, Any]) -> tuple[Any, str]:
    """The value of a side, of a statistic of an estimate (`.lower`) the whole estimate; and the point that is shown:
    that which the check reads, else that which the bounds are of."""
    node, whole, read = ungroup(parse(text)), None, ""
    if isinstance(node, Member) and node.name in STATISTICS and node.name not in ("cv", "n"):
        whole, read = value_of(text[node.of.start : node.of.end], scope), node.name
    if not is_estimate(whole):
        whole, read = value_of(text, scope), ""
    if read in POINTS:
        return whole, read
    return whole, centre(whole) if isinstance(whole, dict) else "mean"


def _bounded(text: str, operator: str, limit: str, scope: Mapping[str, Any]) -> Claim:
    """A comparison whose value is missing: a lower bound of it where there is one."""
    bound = None
    if is_constant(limit):
        found = value_of(limit, scope)
        bound = float(found) if isinstance(found, int | float) else None
    least = lower_bound(text, scope)
    same = notation(metric_of(text), least.value if least else None, exact=[] if bound is None else [bound])
    sign = f"{_SIGNS[operator]} {same.text(bound)}" if bound is not None else ""
    claim = Claim(of=text, value="no data", limit=sign, operator=operator, bound=bound)
    if least is None:
        return claim
    return replace(claim, value=f"≥ {same.text(least.value)}", mean=least.value, lower=least.lower)


_COMPARED = re.compile(r"(?P<of>.+?) = (?P<value>.+), limit (?P<sign><=|>=|<|>|==|!=) (?P<limit>.+?): (?P<why>.+)")
_FLAGGED = re.compile(r"note: (?P<check>[\w:.-]+) flagged in ")
_DECIDING = re.compile(r"reads |(about|more than) .+ would decide")
_ASIDE = ("note: ", "point estimates: ", "what to do: ")
OF_MAX = 48
"""Longer expressions are named by their outermost function."""


def brief_evidence(evidence: str, outcome: str, *, told: bool = False) -> tuple[str, ...]:
    """Up to four lines: comparisons with their limits, unless a table has them (`told`), and what would decide an
    undecided verdict."""
    found = pieces(evidence)
    own = [piece for piece in found if not piece.startswith(_ASIDE) and not _DECIDING.match(piece)]
    own = [piece for piece in own if not (told and _COMPARED.fullmatch(piece))]
    lines = [_evidence_compared(piece) for piece in own[:3]]
    if len(own) > len(lines):
        lines[-1] += f" (and {len(own) - len(lines)} more)"
    if outcome == "INCONCLUSIVE" and (deciding := [piece for piece in found if _DECIDING.match(piece)]):
        lines.append("; ".join(reversed(deciding)))
    return tuple(lines)


def notes_of(verdicts: Sequence[VerdictReached]) -> str:
    """`Notes: client-handling (5 verdicts), schedule (faster), 2 more; see Validity.`, once for all verdicts; "" for
    none."""
    found: dict[str, list[str]] = {}
    others = set()
    for one in verdicts:
        for piece in pieces(one.evidence):
            if match := _FLAGGED.match(piece):
                found.setdefault(match["check"], []).append(one.id)
            elif piece.startswith("note: "):
                others.add(piece)
    named = [f"{check} ({ids[0] if len(ids) == 1 else count_of(len(ids), 'verdict')})" for check, ids in found.items()]
    named += [f"{len(others)} more" if named else count_of(len(others), "note")] if others else []
    return f"Notes: {', '.join(named)}; see Validity." if named else ""


def _evidence_compared(piece: str) -> str:
    """`errors.fraction = 0 %, limit < 0.1 %: holds` as `errors.fraction 0 %, limit < 0.1 %`."""
    match = _COMPARED.fullmatch(piece)
    if match is None:
        return piece
    why = "" if match["why"] == "holds" else f": {match['why']}"
    return f"{_short(match['of'])} {match['value']}, limit {_SIGNS[match['sign']]} {match['limit']}{why}"


def _short(expression: str) -> str:
    """The expression; a long call of a function without its arguments."""
    if len(expression) <= OF_MAX:
        return expression
    return re.sub(r"^(\w+)\(.*\)", r"\1(…)", expression)


PLAN_WRONG = 2
FIRST = "; the first: "
"""Before the first problem in the reason of a failed preflight."""


def end_sentence(results: RunResults, *, answered: bool = False) -> tuple[str, Tone]:
    """`finished in 2 min: 5 passed (exit code 0)`, and its tone; `answered`: without what the answer has told."""
    ended = results.ended
    if ended is None:
        return "not finished: no end of the run is recorded", "warn"
    reason = untold(ended.reason, [one.text for one in results.notices])
    if answered:
        told = "; ".join(results.cautions) + "; "
        reason = reason.removeprefix(told) if ended.status == "finished" else ""
    why = f": {reason}" if reason else ""
    since = " since it was resumed" if results.run and results.run.resumed else ""
    text = f"{ended.status} in {seconds(ended.seconds)}{since}{why} (exit code {ended.exit_code})"
    return text, end_tone(results)


def end_tone(results: RunResults) -> Tone:
    """The tone of a run's end; not good where a reader must know something before the numbers."""
    code = results.ended.exit_code if results.ended else 0
    return "bad" if code in (1, 4) else "warn" if code or results.cautions else "good"


def untold(reason: str, told: Iterable[str]) -> str:
    """The reason of a run's end without the problem that a notice has told already (`schedule.preflight`)."""
    return next((reason.removesuffix(end) for text in told if reason.endswith(end := f"{FIRST}{text}")), reason)


def began_nothing(results: RunResults) -> bool:
    """Whether the run failed before its first stage and its first system: there is nothing to show and to continue."""
    is_failed = results.ended is not None and results.ended.status == "failed"
    return is_failed and not (results.stages or results.systems or results.tunings)


def resume_command(results: RunResults, run_dir: str | Path) -> str:
    """The command that continues a run that was broken off; "" where it has finished, its plan is wrong, or what it has
    made is removed."""
    ended = results.ended
    over = ended is not None and (ended.status == "finished" or ended.exit_code == PLAN_WRONG or began_nothing(results))
    return "" if over or results.removes else f"proveout resume {shlex.quote(str(run_dir))}"


# ---- the answer in words -----------------------------------------------------------------------------------------

TOLD_MAX = 5
"""Sentences for verdicts of one outcome."""
NUMBERS_MAX = 3
"""Headline numbers of a run without verdicts."""
TO_DO = "what to do: "
_TEMPLATE = re.compile(r"\$\{([^{}]*)\}")
_PLACE = re.compile(r"\S+:\d+:\d+: ")
"""A line of a plan at the start of a reason, whose file keeps its name."""
_REPEATS = re.compile(rf"(\d[\d,]*) {NEEDED}")


def answer(results: RunResults) -> tuple[str, Tone] | None:
    """The answer and its tone; None of a run that has not ended, and of one without verdicts and numbers."""
    if results.ended is None:
        return None
    if results.verdicts:
        told = [*_verdicts(results)]
    else:
        told = [
            f"{', '.join(filter(None, (one.label, one.about)))}: {ranged(one.value, one.interval)}"
            for one in headline(results, NUMBERS_MAX)
        ]
    if not told and not results.cautions:
        return None
    first = [] if results.ended.status == "finished" else [results.ended.reason]
    texts = (*first, *results.cautions, *told)
    begun = (text if _PLACE.match(text) else f"{text[:1].upper()}{text[1:]}" for text in texts)
    sentences = (f"{text}{'' if text.endswith(('.', '!', '?')) else '.'}" for text in begun)
    return " ".join(sentences), end_tone(results)


def _verdicts(results: RunResults) -> Iterator[str]:
    counting = [one for one in results.verdicts if one.severity == "fail"]
    warning = [one for one in results.verdicts if one.severity != "fail"]
    yield from _open(counting, results)
    written = _written(results)
    passed = [one for one in results.verdicts if one.outcome == "PASS"]
    if any(one.get("answer") for one in written.values()):
        passed = [one for one in passed if one.id not in written or written[one.id].get("answer")]
    templates = [str(written.get(one.id, {}).get("answer", "")) for one in passed[:TOLD_MAX]]
    yield from (_passed(one, results, template) for one, template in zip(passed, templates, strict=False))
    if len(passed) > TOLD_MAX:
        yield f"{count_of(len(passed) - TOLD_MAX, 'more verdict')} passed"
    for stage in results.stages.values():
        if (found := stage.search) is not None and not re.search(rf"\b{stage.id}\.{found.over}\b", " ".join(templates)):
            value = "none was accepted"
            if found.rate is not None:
                estimate = at_path(environment(results), stage.id, found.over) or {"mean": found.rate}
                value = ranged(*printed(estimate, found.over))
            yield f"highest {SOUGHT[found.over]} found by {stage.id}: {value}"
    yield from _open(warning, results, ", a warning only")


def _open(verdicts: Sequence[VerdictReached], results: RunResults, remark: str = "") -> Iterator[str]:
    """A sentence for each that failed, then for each that is undecided."""
    for outcome, word in (("FAIL", "Failed"), ("INCONCLUSIVE", "Undecided")):
        found = [one for one in verdicts if one.outcome == outcome]
        yield from (f"{word}{remark}: {one.title or one.id}: {told(one, results)}" for one in found[:TOLD_MAX])
        if len(found) > TOLD_MAX:
            yield f"{word}{remark}: {len(found) - TOLD_MAX} more"


def _written(results: RunResults) -> Mapping[str, Mapping[str, Any]]:
    """The verdicts of the plan by id, as plain data."""
    return {one["id"]: one for one in results.plan.get("verdicts", ())}


def _passed(verdict: VerdictReached, results: RunResults, template: str) -> str:
    if template:
        tree = environment(results)
        return _TEMPLATE.sub(lambda match: _value(match[1], tree), template)
    title = verdict.title or verdict.id
    return f"{title}: {told(verdict, results)}" if len(claims(verdict, results)) == 1 else title


def _value(text: str, tree: Mapping[str, Any]) -> str:
    """The number of an expression in words; `-` where it has no data."""
    found, _ = measured(text, tree)
    if found is None:
        found, _ = measured(by_mean(text, tree), tree)
    return "-" if found is None else ranged(*printed(found, metric_of(text)))


def told(verdict: VerdictReached, results: RunResults) -> str:
    """The numbers with their limits; of an undecided verdict what is against them, and what would decide it. A verdict
    of the run's own has no claims, and its check is not an expression."""
    claimed = claims(verdict, results)
    mark = ", point estimate" if claimed and reads_points(verdict.check) else ""
    found = pieces(verdict.evidence)
    texts = [f"{claim_in_words(one)}{mark}" for one in claimed] or [found[0]]
    if verdict.outcome == "INCONCLUSIVE":
        texts += [piece.partition(" (")[0] for piece in found[1:] if piece.startswith("but ")]
        texts += filter(None, [_deciding(verdict, results)])
    return "; ".join(texts)


def claim_in_words(claim: Claim) -> str:
    """`107 ms (71 to 161), limit 100 ms`."""
    limit = claim.limit.lstrip("<>≤≥= ")
    return ranged(claim.value, claim.interval) + (f", limit {limit}" if limit else "")


# ---- what decides an undecided verdict ---------------------------------------------------------------------------


def _deciding(verdict: VerdictReached, results: RunResults) -> str:
    """The command that decides it, with the time that it takes, where the number of repeats is known and a parameter of
    the plan sets it; otherwise what its evidence says, "" where that says nothing."""
    needed = None if PERHAPS_NEVER in verdict.evidence else _REPEATS.search(verdict.evidence)
    command = "" if needed is None else _command(verdict, results, int(needed[1].replace(",", "")))
    if command or verdict.severity == "warn":
        return command and f"to decide it: {command}"
    return next((one for one in pieces(verdict.evidence) if one.startswith(TO_DO)), "")


def _command(verdict: VerdictReached, results: RunResults, repeats: int) -> str:
    """`proveout run plans/a.yaml -p repeats=9` (about 4 min); of a resumed run, whose end has the seconds since then
    alone, without the minutes; "" where no parameter is the `repeat` of the stages that the verdict reads, or where it
    allows fewer."""
    read = _written(results).get(verdict.id, {}).get("check", {}).get("needs", ())
    climbing = {stage.id: results.plan_stage(stage.id) for stage in results.stages.values() if stage.climbs}
    counts = {climbing[one].get("repeat") for one in read if one in climbing}
    named = [one for one in results.plan.get("parameters", ()) if one["name"] in ("repeat", "repeats")]
    if results.ended is None or not verdict.file or len(counts) != 1 or [one["value"] for one in named] != [*counts]:
        return ""
    if repeats > (named[0].get("most") or repeats):
        return ""
    count, name = named[0]["value"], named[0]["name"]
    again = [one for one, plan in climbing.items() if plan.get("repeat") == count and plan.get("repeat_min") is None]
    # each of several ladders that took turns has the seconds of all
    ends = {results.stages[one].block or one: results.stages[one].finished for one in again}.values()
    took = results.ended.seconds + (repeats / count - 1.0) * sum(end.seconds for end in ends if end)
    minutes = "" if results.run and results.run.resumed else f" (about {max(round(took / 60.0), 1)} min)"
    values, (plan, files) = {**results.overrides, name: str(repeats)}, _files(results, verdict.file)
    words = ["proveout", "run", plan, *(word for item in values.items() for word in ("-p", "=".join(item)))]
    words += [word for option, path in files.items() for word in (f"--{option}", path)]
    return f"`{shlex.join(words)}`{minutes}"


def _files(results: RunResults, written: str) -> tuple[str, Mapping[str, str]]:
    """The plan of the run, as it was typed where the verdict is `written` in it and not in one that it extends; and the
    other files of its command."""
    files = dict(results.files)
    plan = files.pop("plan", written)
    return written if Path(plan).match(written) else plan, files


# ---- each verdict in a line --------------------------------------------------------------------------------------


def lines(results: RunResults) -> Iterator[tuple[str, Tone]]:
    """The cautions; then each verdict in a line: outcome, title, the numbers with their limits, and of an undecided one
    what to do."""
    yield from ((text, "warn") for text in results.cautions)
    for one in results.verdicts:
        tone: Tone = "warn" if one.outcome == "FAIL" and one.severity == "warn" else TONES[one.outcome]
        yield f"{one.outcome}  {one.title or one.id}: {told(one, results)}", tone
