"""Statements of the program about its numbers, beside the truth: each row runs the program's own results, verdicts and
comparisons on seeded runs of systems whose true numbers are known.

Data flow: `rows` (a function of the number of trials for each) -> `Measured` (share of trials, with its Monte Carlo
error) -> the table of `benchmarks/statistics.py`, and the bounds of `test_stated_and_real.py`.
"""

from __future__ import annotations

import inspect
import itertools
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from records import ladder_metrics, samples
from simulated_load import T0, Database, Speed, exponential, run
from simulated_queues import Queue, answer, search
from simulated_rigs import (
    DRIFTS,
    MACHINES,
    RATIOS,
    TRUE_TPS,
    Bought,
    Floats,
    Rig,
    bimodal,
    bought,
    drifting,
    duet,
    iteration,
    ladder_run,
    lognormal,
    normal,
    one_bad_in_ten,
    random_walk,
    ratio,
    smoke_plan,
)

from proveout.coordinator import comparison
from proveout.coordinator.comparison import compare
from proveout.coordinator.history.metric_history import HORIZON, Point, detect, effect, point
from proveout.coordinator.history.power import foresee
from proveout.coordinator.history.runs import RunFolder, summarise
from proveout.coordinator.history.runs import earlier as earlier_runs
from proveout.coordinator.measure.captures import Recording, Window, measured_metrics
from proveout.coordinator.measure.load_merge import SecondRow
from proveout.coordinator.measure.phases import recovery as phase_recovery
from proveout.coordinator.report.summary import headline
from proveout.coordinator.results.results import following
from proveout.coordinator.schedule.rate_search import Answer
from proveout.coordinator.verdict.checks import judge
from proveout.core.numbers import CONFIDENCE, confirmed, ends
from proveout.core.statistics import block_slope, power, repeats_needed
from proveout.dsl.plan.commands import MeasuredValue
from proveout.dsl.plan.plan import Check
from proveout.dsl.plan.stages import Ladder, Windows
from proveout.dsl.plan.topology import Capture, Expression
from proveout.proto.events import FaultMeasured
from proveout.proto.wire.results import FaultInjected, FaultOccurrence
from proveout.proto.wire.tasks import wait_names

SEED = 20261122
AUTO = Rig(cv=0.03)
RUNGS = (1, 2, 4, 8, 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The number of trials in which something is true, out of `trials`; `left_out` trials state nothing."""

    hits: int
    trials: int
    left_out: int = 0

    @property
    def share(self) -> float:
        """The share of the trials that count, NaN when none does."""
        return self.hits / self.trials if self.trials else math.nan

    def error(self, expected: float) -> float:
        """The standard deviation of the share where the expected one is true."""
        return math.sqrt(expected * (1.0 - expected) / self.trials) if self.trials else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A statement of the program: `stated` is the promised share, as a lower bound (`at_least`) or an upper.

    `bound` is what this project accepts; `weight` scales the number of trials, since some are slower than others.
    """

    name: str
    stated: float
    bound: float
    at_least: bool
    measure: Callable[[int], Measured]
    weight: float = 1.0

    def holds(self, found: Measured, sigmas: float = 4.0) -> bool:
        """Whether the share keeps the bound, allowing for the error of the simulation; true when nothing is stated."""
        if not found.trials:
            return True
        slack = sigmas * found.error(self.bound)
        return found.share >= self.bound - slack if self.at_least else found.share <= self.bound + slack


def _generators(trials: int, *names: object) -> Iterator[np.random.Generator]:
    """A generator for each trial, of a seed of the row's own."""
    own = [SEED, *(sum(map(ord, str(name))) for name in names)]
    for trial in range(trials):
        yield np.random.default_rng([*own, trial])


def counted(trials: int, one: Callable[[np.random.Generator], bool | None], *names: object) -> Measured:
    """Count the seeded trials in which something is true; None states nothing."""
    outcomes = [one(generator) for generator in _generators(trials, *names)]
    stated = [outcome for outcome in outcomes if outcome is not None]
    return Measured(hits=sum(stated), trials=len(stated), left_out=len(outcomes) - len(stated))


def seeded(label: str, *arguments: str) -> Callable[[Callable[..., bool | None]], Callable[..., Measured]]:
    """Make a measure of the trials in which a function is true. Its seed is of the label and of these arguments of the
    function; another word stands for itself."""

    def of(one: Callable[..., bool | None]) -> Callable[..., Measured]:
        def measure(trials: int, **about: Any) -> Measured:
            bound = inspect.signature(one).bind(None, **about)
            bound.apply_defaults()
            names = (part for name in arguments for part in _parts(bound.arguments.get(name, name)))
            return counted(trials, partial(one, **about), *([label] if label else []), *names)

        return measure

    return of


def _parts(value: object) -> tuple[object, ...]:
    if isinstance(value, Rig):
        return value.shape.__name__, value.window_s, value.correlation
    return (*value[:, 0], float(value.sum())) if isinstance(value, np.ndarray) else (value,)


# ---- faults: transactions of a simulated database -> aggregator -> bins -> effects ---------------------------------

WINDOWS = Windows(ramp_up_s=4.0, measure_s=30.0, ramp_down_s=2.0)
CLOSED = Database(services=((1, exponential(0.02)),), terminals=4)


def _with_fault(
    database: Database,
    generator: np.random.Generator,
    begin_s: float,
    length_s: float,
    *slow: tuple[float, float, float],
) -> FaultMeasured:
    """A fault of that time in the measure window of a load; `slow`: spans of the window (from, to, speed)."""
    ramp_s = WINDOWS.ramp_up_s
    begins_ns, healed_ns = (T0 + round((ramp_s + at_s) * 1e9) for at_s in (begin_s, begin_s + length_s))
    occurrence = FaultOccurrence(
        number=1, begins_ns=begins_ns, in_place_ns=begins_ns, healing_ns=healed_ns, healed_ns=healed_ns
    )
    (found,) = run(
        database,
        WINDOWS,
        speed=Speed(spans=tuple((ramp_s + first, ramp_s + last, speed) for first, last, speed in slow)),
        seed=int(generator.integers(1 << 32)),
        injected={("f", "s1"): FaultInjected(fault="f", occurrences=(occurrence,))},
    ).faults
    return found


def after_a_stall(generator: np.random.Generator) -> bool:
    begin_s = float(generator.uniform(8.0, 15.0))
    found = _with_fault(CLOSED, generator, begin_s, 1.0, (3.0, 4.0, 0.0), (begin_s, begin_s + 1.0, 0.0))
    return abs((found.outage_s or 0.0) - 1.0) <= 0.1 and (found.outage_usual_s or 0.0) >= 1.9


def trickle(generator: np.random.Generator) -> bool:
    begin_s = float(generator.uniform(8.0, 15.0))
    found = _with_fault(CLOSED, generator, begin_s, 3.0, (begin_s, begin_s + 3.0, 0.01))
    return abs((found.outage_s or 0.0) - 3.0) <= 0.3


def late_without_effect(rate: float, generator: np.random.Generator) -> bool | None:
    """None where no time is stated: the rate does not support one."""
    database = Database(services=((1, exponential(0.01)),), rate=rate, terminals=4)
    found = _with_fault(database, generator, float(generator.uniform(8.0, 15.0)), 1.0)
    return None if found.recovery_level is None else bool(found.recovery_s or found.recovery_at_least_s)


def late_after_phase(rate: float, generator: np.random.Generator) -> bool | None:
    """Phases of 20 s at one level, independent arrivals and exponential responses, without anything to recover from."""
    counts = generator.poisson(rate, 40)
    seconds = [
        SecondRow(float(at), count=int(n), response_ns=round(generator.exponential(1e7, n).sum()))
        for at, n in enumerate(counts)
    ]
    found = phase_recovery(seconds[:20], seconds[20:], 20.0, 0.2)
    return None if found is None else found.seconds != 0.0


# ---- intervals ---------------------------------------------------------------------------------------------------


@seeded("coverage", "rig", "repeats")
def coverage(generator: np.random.Generator, rig: Rig, repeats: int) -> bool | None:
    """Count the intervals of a rung's throughput that contain the true one; a rung without an interval states nothing."""
    tree = ladder_metrics(rig.measured(generator, "ladder", 4, repeats))
    found = tree["rungs"]["4"]["tps"]
    return None if "lower" not in found else bool(found["lower"] <= rig.tps <= found["upper"])


@seeded("peak", "repeats", "rungs")
def peak_above(generator: np.random.Generator, repeats: int, rungs: int = 7) -> bool | None:
    """Count the lower bounds of the peak of equal rungs that are above the true throughput."""
    rig = Rig(tps=TRUE_TPS)
    iterations = [item for rung in range(1, rungs + 1) for item in rig.measured(generator, "ladder", rung, repeats)]
    peak = ladder_metrics(iterations)["peak"]["tps"]
    return None if "lower" not in peak else bool(peak["lower"] > rig.tps)


@seeded("peak p99", "repeats", "rungs")
def peak_p99_below(generator: np.random.Generator, repeats: int, rungs: int = 7) -> bool | None:
    """Count the intervals of `p99 at the peak` on the first screen, of equal rungs, that end below the true p99 of the
    rung: the rung with the highest throughput has the shortest times."""
    rig = Rig(tps=TRUE_TPS)
    iterations = [item for rung in range(1, rungs + 1) for item in rig.measured(generator, "ladder", rung, repeats)]
    found = ladder_run(iterations)
    peak = found.stages["ladder"].peak
    shown = next(number.estimate for number in headline(found) if number.label == "p99 at the peak")
    true = rig.p99_us(peak.threads if peak else 0)
    return None if "upper" not in shown else bool(shown["upper"] < true)


# ---- numbers of the same iterations ------------------------------------------------------------------------------


@seeded("transactions", "repeats", "gain", "want")
def two_transactions(generator: np.random.Generator, repeats: int, gain: float, want: str) -> bool | None:
    """Count the verdicts on two transactions of one rung, of which `b` takes longer by `gain`, with the outcome `want`.

    The repeats differ by 20 %, which both share, and by 2.8 % of their own.
    """
    text = "ratio(l.at(4).transactions.b.response.avg_us, l.at(4).transactions.a.response.avg_us).lower > 1"
    if want == "different":
        text = f"{text} || {text.replace('lower > 1', 'upper < 1')}"
    both = 0.2 * generator.standard_normal(repeats)
    own = 0.028 * generator.standard_normal((2, repeats))
    times = 1000.0 * np.exp(both + own) * np.array([[1.0], [1.0 + gain]])
    made = [
        iteration("l", 4, repeat, np.full(10, TRUE_TPS), transactions=_transactions(a, b))
        for repeat, (a, b) in enumerate(times.T.tolist(), 1)
    ]
    return judge(text, {"l": ladder_metrics(made, run="one")}).outcome == "PASS"


def _transactions(a: float, b: float) -> dict[str, Any]:
    return {name: {"response": {"avg_us": time}} for name, time in (("a", a), ("b", b))}


# ---- repeats that would decide -----------------------------------------------------------------------------------


@cache
def _distance(needed: int) -> float:
    """The distance from a limit, in deviations of a repeat, that `needed` repeats decide with 80 %."""
    low, high = 0.0, 10.0
    for _ in range(50):
        middle = (low + high) / 2.0
        low, high = (low, middle) if (repeats_needed(middle, 1.0) or math.inf) <= needed else (middle, high)
    return high


@seeded("repeats", "repeats", "needed", "of")
def repeats_stated(generator: np.random.Generator, repeats: int, needed: int, of: str) -> bool | None:
    """Of undecided verdicts on a value that `needed` repeats decide (0: the value is the limit), count those whose range
    of repeats holds that number (`of` "holds") or has an upper end ("named")."""
    cv = 0.03
    rig = Rig(tps=TRUE_TPS * (1.0 + cv * _distance(needed)) if needed else TRUE_TPS, cv=cv)
    tree = ladder_metrics(rig.measured(generator, "ladder", 4, repeats))
    judged = judge(f"l.at(4).tps >= {TRUE_TPS}", {"l": tree})
    if judged.outcome != "INCONCLUSIVE":
        return None
    found = re.search(r"(?:about ([\d,]+) to ([\d,]+)|more than ([\d,]+)) repeats would decide it", judged.evidence)
    assert found, judged.evidence
    fewest, most = (int((part or "0").replace(",", "")) for part in (found[1] or found[3], found[2]))
    return most > 0 if of == "named" else fewest <= (needed or math.inf) <= (most or math.inf)


def repeats_bought(
    trials: int, what: str, away: float, *, least: int = 3, verdicts: int = 1, rig: Rig = AUTO, equal: bool = False
) -> Measured:
    """Of ladders with `auto(least..10)`, whose verdicts have their value `away` deviations of a repeat above the limit,
    count `what`: those of which all verdicts are "decided", the "repeats" of 10 each that have run, or, of those that
    ended as futile, the ones that "all" repeats would have decided. Several verdicts are on ladders in turns; `equal`:
    one on the ratio of two equal ones."""
    names = "ab" if equal else "abc"[:verdicts]
    texts = (
        ["ratio(a.at(4).tps, b.at(4).tps) >= 1"]
        if equal
        else [f"{name}.at(4).tps >= {TRUE_TPS * (1.0 - away * rig.cv)}" for name in names]
    )

    def one(generator: np.random.Generator) -> Bought:
        made = [rig.measured(generator, name, 4, 10) for name in names]
        return bought(list(zip(*made, strict=True)), least, *texts)

    ladders = [one(generator) for generator in _generators(trials, "bought", away, least, names, rig.shape.__name__)]
    if what == "repeats":
        return Measured(hits=sum(ladder.ran for ladder in ladders), trials=10 * trials)
    if what == "all":
        futile = [ladder for ladder in ladders if ladder.futile]
        hits = sum("INCONCLUSIVE" not in ladder.after_all for ladder in futile)
        return Measured(hits=hits, trials=len(futile), left_out=trials - len(futile))
    return Measured(hits=sum("INCONCLUSIVE" not in ladder.outcomes for ladder in ladders), trials=trials)


# ---- what earlier runs say about the next one --------------------------------------------------------------------


@seeded("foreseen", "runs", "of", "away")
def foreseen(generator: np.random.Generator, runs: int, of: str, away: float = 1.5) -> bool | None:
    """Count the records of `runs` earlier runs whose statement about 5 repeats is not too high: the "chance" that a
    verdict is decided whose value is `away` deviations from its limit, or the smallest "change" that is shown."""
    check = Check(id="v", check=Expression(text=f"ladder.at(4).tps >= {TRUE_TPS}", needs=("ladder",)))
    plan = smoke_plan()[0]
    stages = tuple(
        replace(stage, threads=(4,), repeat=5) if isinstance(stage, Ladder) else stage for stage in plan.stages
    )
    plan, rig = replace(plan, stages=stages, verdicts=(check,)), Rig(tps=TRUE_TPS * (1.0 + 0.03 * away), cv=0.03)
    earlier = [ladder_run(rig.measured(generator, "ladder", 4, 5)) for _ in range(runs)]
    found = foresee(plan, earlier)
    if of == "chance":
        return None if not found.verdicts else found.verdicts[0].chance <= power(away, 1.0, 5)
    least, _ = found.ladders[0].changes["throughput"]
    return power(math.log1p(least), 0.03 / (1.0 + 0.03 * away), 5, arms=2) >= 0.8


# ---- iterations in the order of time -----------------------------------------------------------------------------


@seeded("following", "rungs_run", "repeats", "machine")
def following_reported(generator: np.random.Generator, rungs_run: int, repeats: int, machine: str) -> bool | None:
    """Count the ladders whose iterations are reported to follow each other. `machine`: its speed from iteration to
    iteration."""
    count = rungs_run * repeats
    noise = generator.standard_normal(count)
    if machine == CORRELATED:
        for time in range(1, count):
            noise[time] = 0.5 * noise[time - 1] + math.sqrt(0.75) * noise[time]
    warm = -0.28 * np.exp(-3.0 * np.arange(count) / count) if machine == WARM_UP else np.zeros(count)
    levels = TRUE_TPS * (1.0 + 0.03 * noise + warm)
    made = [
        replace(
            iteration("ladder", 1 + time % rungs_run, 1 + time // rungs_run, np.full(10, level)),
            started_unix_s=float(time),
        )
        for time, level in enumerate(levels)
    ]
    return bool(following(ladder_run(sorted(made, key=lambda item: item.id.rung)), "ladder"))


# ---- ages of data ------------------------------------------------------------------------------------------------


@seeded("age", "name", "answers")
def age_close(generator: np.random.Generator, name: str, answers: str) -> bool | None:
    """Count the ages of a window of 10 s whose `name` (avg, max) is within a tenth of the true one, while a reader that
    asks every 100 ms has no answer for 1 to 4 s: the query waits, or queries fail (`answers`)."""
    every = 0.1
    began = float(generator.uniform(1.0, 5.0))
    over = began + float(generator.uniform(1.0, 4.0))
    usual = 0.007
    numbers: dict[float, dict[str, float]] = {}
    busy, first = -math.inf, math.inf
    for tick in (np.arange(-1.0, 11.0, every) + generator.uniform(0.0, every)).tolist():
        if tick < busy:
            continue
        stalled, first = began <= tick < over, min(first, tick)
        if stalled and answers == "fail":
            continue
        busy = over if stalled else tick + 0.001
        values = (usual * generator.uniform(0.5, 1.5), tick - first, busy - tick)
        numbers[tick + 2.0] = dict(zip(("sql.age_s", *wait_names("sql.age_s")), values, strict=True))
        first = math.inf
    value = MeasuredValue(name="age_s", column="1", kind="age")
    capture = Capture(name="c", kind="sql", every_s=every, system="db", query="q", values=(value,))
    window = Window(start_ns=2 * 10**9, end_ns=12 * 10**9)
    measured = measured_metrics(Recording(samples(numbers)), window, capture)["age_s"][name]
    stall = over - began
    true = usual + (stall if name == "max" else stall**2 / 2.0 / 10.0)
    return abs(measured - true) <= 0.1 * true


# ---- two ladders -------------------------------------------------------------------------------------------------


@seeded("", "text", "repeats", "gain", "drift", "shared", "interleaved", "want")
def two_ladders(
    generator: np.random.Generator,
    text: str,
    repeats: int,
    *,
    gain: float = 0.0,
    drift: float = 0.0,
    shared: float = 0.0,
    interleaved: bool = False,
    cv: float = 0.03,
    want: str = "PASS",
) -> bool | None:
    """Count the verdicts over ladders `a` and `b` (whose system is `gain` faster) that have the outcome `want`.

    The machine's speed changes by a random walk from each iteration to the next, whose steps have the size `drift`, and
    from repeat to repeat by a factor that both ladders share, whose coefficient of variation is `shared`. `cv` is that
    of the repeats of each ladder besides.
    """
    base = Rig(cv=cv, second_cv=0.003)
    other = replace(base, tps=TRUE_TPS * (1.0 + gain))
    walk = np.exp(random_walk(generator, 2 * repeats, drift))
    first, second = (walk[0::2], walk[1::2]) if interleaved else (walk[:repeats], walk[repeats:])
    both = 1.0 + shared * generator.standard_normal(repeats)
    block = "one" if interleaved else ""
    a = ladder_metrics(base.measured(generator, "a", 4, repeats, factors=first * both), block=block)
    b = ladder_metrics(other.measured(generator, "b", 4, repeats, factors=second * both), block=block)
    return judge(text, {"a": a, "b": b}).outcome == want


@seeded("interference", "repeats", "drift")
def interference_holds(generator: np.random.Generator, repeats: int, drift: str) -> bool | None:
    """Count the intervals of the ratio of a load, together over alone, that contain the true one."""
    found = ratio(generator, repeats, drift, cv=0.03)
    return None if "lower" not in found else bool(found["lower"] <= RATIOS["one"] <= found["upper"])


@seeded("versus", "repeats", "measure_s", "machine")
def versus_holds(generator: np.random.Generator, repeats: int, measure_s: int, machine: str) -> bool | None:
    """Count the intervals of the ratio of two equal loads in turns that contain 1."""
    found = duet(generator, repeats, measure_s, machine)
    return None if "lower" not in found else bool(found["lower"] <= 1.0 <= found["upper"])


@seeded("versus", "repeats", "measure_s", "machine", "gain")
def versus_shown(generator: np.random.Generator, repeats: int, measure_s: int, machine: str) -> bool | None:
    """Count the runs that show a load in turns to be faster that is by 5 %."""
    return bool(duet(generator, repeats, measure_s, machine, gain=0.05).get("lower", 0.0) > 1.0)


# ---- comparison of runs ------------------------------------------------------------------------------------------


@seeded("compare", "repeats", "rungs")
def compared_equal(generator: np.random.Generator, repeats: int, rungs: tuple[int, ...] = (1, 4)) -> bool | None:
    """Count the comparisons of two equal systems that call the throughput of a rung better or worse."""
    rig = Rig()
    found = compare(_run(generator, rig, rungs, repeats, "one"), _run(generator, rig, rungs, repeats, "two"))
    rows = [row for rung in found.stages[0].rungs for row in rung.rows if row.path == ("tps",)]
    return any(row.direction in ("better", "worse") for row in rows)


@seeded("compare table", "repeats", "rungs", "of", "gains")
def compared_tables(
    generator: np.random.Generator, repeats: int, gains: Floats, of: str, rungs: tuple[int, ...] = RUNGS
) -> bool | None:
    """Count the comparisons of which something is true. The runs have the 26 numbers a rung of a load of 7
    transactions; those of the second are `gains` times as high, of shape (rungs, 26).

    `of`: "any" number of the table is called different, "all rungs" whose throughput has a gain are called better, the
    "throughput" of any rung is called different.
    """
    found = compare(*(_table_run(generator, rungs, repeats, factors) for factors in (np.ones_like(gains), gains)))
    table = [{row.path: row.direction for row in rung.rows} for rung in found.stages[0].rungs]
    assert {len(rows) for rows in table} == {26}
    if of == "any":
        return any(direction in ("better", "worse", "changed") for rows in table for direction in rows.values())
    if of == "throughput":
        return any(rows["tps",] in ("better", "worse") for rows in table)
    return all(rows["tps",] == "better" for rows, gain in zip(table, gains[:, 0], strict=True) if gain > 1.0)


@seeded("compare runs", "runs", "apart", "earlier", "gain")
def compared_runs(
    generator: np.random.Generator, runs: int, apart: float, earlier: int, gain: float = 0.0
) -> bool | None:
    """Count the comparisons of `runs` runs a side that call the throughput of a rung different; runs of one system have
    means that are `apart` (coefficient of variation), and so have as many `earlier` ones. `gain`: of the second side,
    which is then to be called better at every rung."""
    rig, rungs = Rig(cv=0.02), (1, 4)

    def side(count: int, name: str, factor: float = 1.0) -> list[Any]:
        levels = factor * np.exp(apart * generator.standard_normal(count))
        return [
            _run(generator, replace(rig, tps=rig.tps * float(level)), rungs, 5, f"{name}{at}")
            for at, level in enumerate(levels)
        ]

    ran = tuple(summarise(each, "") for each in side(earlier, "e"))
    before = RunFolder(path=Path(), runs=ran, unreadable=(), directories={})
    (reference, *further), (other, *more) = side(runs, "a"), side(runs, "b", 1.0 + gain)
    known = earlier_runs(before, summarise(reference, ""), set())
    found = compare(reference, other, more=(further, more), known=known)
    told = [row.direction for rung in found.stages[0].rungs for row in rung.rows if row.path == ("tps",)]
    return all(each == "better" for each in told) if gain else any(each in ("better", "worse") for each in told)


def _table_run(generator: np.random.Generator, rungs: tuple[int, ...], repeats: int, factors: Floats) -> Any:
    """A run whose 26 numbers a rung vary by 3 % from repeat to repeat together, and by 3 % each."""
    made = []
    for rung, own in zip(rungs, factors, strict=True):
        for repeat in range(1, repeats + 1):
            both, each = 0.03 * generator.standard_normal(), 0.03 * generator.standard_normal(26)
            tps, *numbers = (TRUE_TPS * own * np.exp(both + each)).tolist()
            response, transactions = numbers[:4], np.reshape(numbers[4:], (7, 3)).tolist()
            metrics = {
                "tps": tps,
                "response": dict(zip(("avg_us", "p50_us", "p95_us", "p99_us"), response, strict=True)),
                "transactions": {
                    f"t{at}": {"tps": rate, "response": {"avg_us": avg, "p99_us": p99}}
                    for at, (rate, avg, p99) in enumerate(transactions)
                },
            }
            made.append(iteration("ladder", rung, repeat, np.full(10, tps), **metrics))
    return ladder_run(made, f"run {generator.integers(2**32)}")


@seeded("gate", "repeats")
def gated_equal(generator: np.random.Generator, repeats: int) -> bool | None:
    """Count the comparisons of two equal systems that `--fail-if 'tps.change.upper < 0'` fails."""
    rig = Rig()
    condition = comparison.check("tps.change.upper < 0", smoke_plan()[0])
    found = compare(_run(generator, rig, (4,), repeats, "one"), _run(generator, rig, (4,), repeats, "two"))
    return comparison.judge(condition, found).holds


def _run(generator: np.random.Generator, rig: Rig, rungs: tuple[int, ...], repeats: int, name: str) -> Any:
    iterations = [item for rung in rungs for item in rig.measured(generator, "ladder", rung, repeats)]
    return ladder_run(iterations, name)


# ---- slopes and searches -----------------------------------------------------------------------------------------


@seeded("slope", "readings")
def slope_missed(generator: np.random.Generator, readings: int) -> bool | None:
    """Count the upper bounds of a lag's slope that are below its true growth: a random walk at 5 % overload."""
    lag = 0.05 * np.arange(readings) + random_walk(generator, readings, 0.1)
    found = block_slope(range(readings), [float(value) for value in lag])
    return None if found is None or found.upper is None else found.upper < 0.05


def search_outcomes(trials: int, accept: str, true_rate: float, wrong: Callable[[float], bool]) -> Measured:
    """Count the searches of an M/M/1 queue of 1,000/s whose rate, as a share of the true one, is `wrong`."""
    answers = _answers(accept, trials)
    stated = [found.rate for found in answers if found.rate is not None]
    hits = sum(wrong(rate / true_rate) for rate in stated)
    return Measured(hits=hits, trials=len(stated), left_out=len(answers) - len(stated))


def search_coverage(trials: int, accept: str, true_rate: float) -> Measured:
    """Count the intervals of the rates of these searches that contain the true rate."""
    answers = _answers(accept, trials)
    estimates = (confirmed(one.rate, one.upper, one.confirmations, lower=one.lower) for one in answers if one.rate)
    found = [ends(estimate) for estimate in estimates]
    stated = [interval for interval in found if interval is not None]
    hits = sum(low <= true_rate <= high for low, high in stated)
    return Measured(hits=hits, trials=len(stated), left_out=len(answers) - len(stated))


def search_fluctuates(trials: int, fluctuation: float, what: str) -> Measured:
    """Of searches of a queue whose capacity differs from probe to probe: the rates that are "above" the one that half of
    the windows accept, their "share" of it in thousandths, the upper ends "below" it, the "undecided" ones, the "moved"
    capacities, or the probes "used" of 60."""
    answers = _answers("errors.fraction < 0.001", trials, fluctuation)
    rates = [one.rate for one in answers if one.rate is not None]
    if what == "share":
        return Measured(hits=round(sum(1000.0 * min(rate / HALF, 1.0) for rate in rates)), trials=1000 * len(rates))
    if what == "used":
        return Measured(hits=sum(one.probes for one in answers), trials=60 * trials)
    if what == "above":
        hits = sum(rate > HALF for rate in rates)
        return Measured(hits=hits, trials=len(rates), left_out=trials - len(rates))
    if what == "below":
        hits = sum(one.upper is not None and one.upper < HALF for one in answers)
        return Measured(hits=hits, trials=len(rates), left_out=trials - len(rates))
    of = {"undecided": lambda one: one.outcome == "undecided", "moved": lambda one: "has moved" in one.reason}
    return Measured(hits=sum(map(of[what], answers)), trials=trials)


HALF = 970.0
"""The rate that half of the windows of 10 s accept of a queue of 1,000/s, by the bounds of a search alone."""


@cache
def _answers(accept: str, trials: int, fluctuation: float = 0.0) -> tuple[Answer, ...]:
    """The answers of searches, for all statements about them: a search takes a tenth of a second."""
    stage = search(accept)
    seeds = [int(generator.integers(2**40)) for generator in _generators(trials, "search", accept)]
    return tuple(answer(Queue(fluctuation=fluctuation), stage, seed) for seed in seeds)


# ---- histories ---------------------------------------------------------------------------------------------------


@seeded("change", "step", "cv", "later")
def change_size(generator: np.random.Generator, step: float, cv: float, later: int) -> bool | None:
    """Count the intervals of a shown change that hold the true step, when `later` runs followed the one that showed it.

    Runs differ by 1 % beyond 3 repeats of this cv; the level changes at run 30. A history without a change that is
    shown near its place states nothing.
    """
    place, near = 30, 10
    runs = np.arange(place + HORIZON + later)
    level = generator.normal(0.0, 0.01, runs.size) + np.where(runs >= place, math.log1p(step), 0.0)
    measured = np.exp(level[:, None] + cv * generator.standard_normal((runs.size, 3)))
    points = [found for row in measured.tolist() if (found := point(row)) is not None]
    changes = detect(points).changes
    for number, change in enumerate(changes):
        if abs(change.index - place) <= near:
            until = change.decided + 1 + later
            known = [other for other in changes if other.decided < until]
            size = effect(points[:until], known, number)
            return None if size is None else size.lower <= step <= size.upper
    return None


@seeded("level", "runs", "at", "sigmas", "odd", "spread")
def level_changes(
    generator: np.random.Generator, runs: int, at: int, sigmas: float, *, odd: bool = False, spread: float = 1.0
) -> bool:
    """Count the histories with a change of level: near `at` for a step or an `odd` run of so many standard deviations,
    else anywhere; from `at` on runs have `spread` times the standard deviation."""
    changes = detect(_runs(generator, runs, at, sigmas, odd=odd, spread=spread)).changes
    return any(not sigmas or abs(change.index - at) <= 5 for change in changes)


@seeded("spread", "runs", "at", "spread")
def spread_changes(generator: np.random.Generator, runs: int, at: int, spread: float) -> bool:
    """Count the histories with a change of spread where the standard deviation is `spread` times as large from `at`
    on."""
    return bool(detect(_runs(generator, runs, at, 0.0, spread=spread)).spread_changes)


def _runs(
    generator: np.random.Generator, runs: int, at: int, sigmas: float, *, odd: bool = False, spread: float = 1.0
) -> list[Point]:
    """Runs of one repeat with a standard deviation of 1 %."""
    order = np.arange(runs)
    deviation = generator.standard_normal(runs) * np.where(order >= at, spread, 1.0)
    moved = deviation + np.where(order == at if odd else order >= at, sigmas, 0.0)
    return [Point(0.01 * float(value), None, 1) for value in moved]


# ---- the table ---------------------------------------------------------------------------------------------------


def _at_least(name: str, stated: float, bound: float, measure: Callable[[int], Measured], weight: float = 1.0) -> Row:
    return Row(name=name, stated=stated, bound=bound, at_least=True, measure=measure, weight=weight)


def _at_most(name: str, stated: float, bound: float, measure: Callable[[int], Measured], weight: float = 1.0) -> Row:
    return replace(_at_least(name, stated, bound, measure, weight), at_least=False)


def _of(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number > 1)}"


SHAPES: tuple[tuple[str, Rig, float], ...] = (
    ("normal", Rig(shape=normal), 0.93),
    ("normal, seconds correlated 0.8", Rig(correlation=0.8), 0.93),
    ("drifting", Rig(shape=drifting), 0.93),
    ("lognormal", Rig(shape=lognormal, cv=0.5), 0.90),
    ("one bad repeat in ten", Rig(shape=one_bad_in_ten), 0.90),
    ("bimodal", Rig(shape=bimodal), 0.93),
)
UNSEEN = {("bimodal", 3): 0.75}
"""Bounds where repeats cannot show all that there is: 3 repeats are of one mode of two in a quarter of the runs."""


def interval_rows() -> Iterator[Row]:
    """Coverage of the intervals of means."""
    for repeats, window_s in itertools.product((1, 2), (10, 60)):
        name = f"interval holds the truth, {_of(repeats, 'repeat')} of {window_s} s"
        yield _at_least(name, 0.95, 0.93, partial(coverage, rig=Rig(window_s=window_s), repeats=repeats))
    for (name, rig, bound), repeats in itertools.product(SHAPES, (3, 5, 10)):
        text, least = f"interval holds the truth, {repeats} repeats, {name}", UNSEEN.get((name, repeats), bound)
        yield _at_least(text, 0.95, least, partial(coverage, rig=rig, repeats=repeats))
    for repeats in (3, 5, 10):
        text = f"`peak.tps` lower bound above the truth, 7 equal rungs, {repeats} repeats"
        yield _at_most(text, 0.025, 0.025, partial(peak_above, repeats=repeats), 0.5)
    for repeats in (3, 5):
        text = f"`p99 at the peak` of the first screen ends below the truth, 7 equal rungs, {repeats} repeats"
        yield _at_most(text, 0.025, 0.025, partial(peak_p99_below, repeats=repeats), 0.5)


def same_iterations_rows() -> Iterator[Row]:
    """Two numbers of the same iterations: in pairs."""
    for repeats, shown in ((3, 0.45), (5, 0.93)):
        text = f"equal transactions of one rung whose repeats differ by 20 %, {repeats} repeats: shown different"
        yield _at_most(text, 0.05, 0.05, partial(two_transactions, repeats=repeats, gain=0.0, want="different"))
        text = f"true +10 % of one of them shown, {repeats} repeats"
        yield _at_least(text, shown, shown, partial(two_transactions, repeats=repeats, gain=0.1, want="longer"))


def repeats_rows() -> Iterator[Row]:
    """Numbers of repeats that would decide an undecided verdict."""
    for repeats in (3, 5):
        for needed in (8, 21, 0):
            what = f"the true {needed}" if needed else "that there is none, at the limit"
            text = f"range of the repeats that would decide it holds {what}, {repeats} repeats"
            yield _at_least(text, 0.80, 0.75, partial(repeats_stated, repeats=repeats, needed=needed, of="holds"), 0.25)
        text = f"a largest number of repeats is named where the value is the limit, {repeats} repeats"
        yield _at_most(text, 0.20, 0.20, partial(repeats_stated, repeats=repeats, needed=0, of="named"), 0.25)


def bought_rows() -> Iterator[Row]:
    """Ladders with `repeat: auto(3..10)`: errors, decisions beside 10 repeats, repeats, and ends as futile."""
    limit = "verdict on a value at its limit decided"
    yield _at_most(f"{limit}, auto(3..10)", 0.05, 0.05, partial(repeats_bought, what="decided", away=0.0), 0.5)
    skewed = partial(repeats_bought, what="decided", away=0.0, rig=Rig(shape=lognormal, cv=0.5))
    yield _at_most(f"{limit}, auto(3..10), lognormal", 0.05, 0.08, skewed, 0.25)
    equal = partial(repeats_bought, what="decided", away=0.0, equal=True)
    yield _at_most("`ratio` of equal ladders in turns decided, auto(3..10)", 0.05, 0.05, equal, 0.25)
    decided = ((0.5, 0.24, 0.18), (1.0, 0.78, 0.60), (2.0, 0.99, 0.98))
    for away, fixed, least in decided:
        text = f"verdict decided, {away:g} deviations from the limit"
        one = partial(repeats_bought, what="decided", away=away)
        yield _at_least(f"{text}, 10 repeats", fixed, fixed, partial(one, least=10), 0.25)
        yield _at_least(f"{text}, auto(3..10)", least, least, one, 0.25)
    for verdicts, shares in ((1, (0.61, 0.71, 0.76, 0.57, 0.40)), (3, (0.74, 0.88, 0.94, 0.74, 0.45))):
        for away, share in zip((0.0, 0.5, 1.0, 2.0, 5.0), shares, strict=True):
            text = f"repeats of 10 that auto(3..10) takes for {_of(verdicts, 'verdict')} {away:g} deviations away"
            measure = partial(repeats_bought, what="repeats", away=away, verdicts=verdicts)
            yield _at_most(text, share, share, measure, 0.25 / verdicts)
    for away, share in ((0.0, 0.1), (0.5, 0.1)):
        text = f"ended as futile, {away:g} deviations from the limit: 10 repeats would have decided it"
        yield _at_most(text, 0.1, share, partial(repeats_bought, what="all", away=away), 0.25)


def foreseen_rows() -> Iterator[Row]:
    """Statements of `explain` and `check` by earlier runs: nine in ten are too low rather than too high."""
    for runs in (1, 3):
        by = f"by {_of(runs, 'earlier run')} of 5 repeats"
        for away in (0.5, 1.5, 3.0):
            text = f"chance that a verdict {away:g} deviations away is decided, {by}: not above the true one"
            yield _at_least(text, 0.9, 0.88, partial(foreseen, runs=runs, of="chance", away=away), 0.25)
        text = f"smallest change that 5 repeats show, {by}: shown with 80 %"
        yield _at_least(text, 0.9, 0.88, partial(foreseen, runs=runs, of="change"), 0.25)


INDEPENDENT = "independent iterations"
CORRELATED = "iterations with a correlation of 0.5"
WARM_UP = "a warm-up of 27 % over the ladder"


def following_rows() -> Iterator[Row]:
    """Iterations that follow each other in time."""
    for rungs, repeats in ((1, 5), (1, 10), (3, 3), (5, 5)):
        measure = partial(following_reported, rungs_run=rungs, repeats=repeats, machine=INDEPENDENT)
        text = f"{INDEPENDENT} reported to follow each other, {_of(rungs, 'rung')}, {repeats} repeats"
        yield _at_most(text, 0.05, 0.05, measure, 0.25)
    correlated, warm = ((1, 10, 0.30), (5, 5, 0.60)), ((1, 5, 0.55), (3, 3, 0.75), (3, 5, 0.97))
    for machine, shares in ((CORRELATED, correlated), (WARM_UP, warm)):
        for rungs, repeats, least in shares:
            measure = partial(following_reported, rungs_run=rungs, repeats=repeats, machine=machine)
            yield _at_least(f"{machine} reported, {_of(rungs, 'rung')}, {repeats} repeats", least, least, measure, 0.25)


def age_rows() -> Iterator[Row]:
    """Ages of data while a reader has no answer."""
    for (answers, what), name in itertools.product(
        (("wait", "a query waits"), ("fail", "queries fail")), ("avg", "max")
    ):
        text = f"`age_s.{name}` within a tenth of the truth, {what} for 1 to 4 of 10 s"
        yield _at_least(text, 0.95, 0.90, partial(age_close, name=name, answers=answers), 0.25)


def fault_rows() -> Iterator[Row]:
    """Outages by faults, and recoveries from faults and phases that have changed nothing."""
    for text, one in (
        ("outage by a fault of 1 s, after an unrelated stall of 1 s, within 0.1 s", after_a_stall),
        ("outage by a fault that leaves 1 % of the throughput for 3 s, within 0.3 s", trickle),
    ):
        yield _at_least(text, 0.95, 0.95, partial(counted, one=one), 0.1)
    for rate in (100.0, 200.0):
        text, one = f"a fault without effect has a time to recover, {rate:.0f}/s", partial(late_without_effect, rate)
        yield _at_most(text, 0.01, 0.02, partial(counted, one=one), 0.1)
    for rate in (20.0, 200.0):
        text, one = f"a phase without effect has a time to recover, {rate:.0f}/s", partial(late_after_phase, rate)
        yield _at_most(text, 0.02, 0.02, partial(counted, one=one), 0.5)


def ladder_rows() -> Iterator[Row]:
    """Verdicts on two ladders of a run."""
    differs = "ratio(b.at(4).tps, a.at(4).tps).lower > 1.0 || ratio(b.at(4).tps, a.at(4).tps).upper < 1.0"
    faster = "ratio(b.at(4).tps, a.at(4).tps).lower > 1.0"
    turns = partial(two_ladders, interleaved=True, cv=0.01)
    for repeats in (3, 5, 10):
        text = f"`ratio` of equal systems, interleaved under drift, {repeats} repeats: shown different"
        yield _at_most(text, 0.05, 0.05, partial(turns, text=differs, repeats=repeats, drift=0.02))
    text = "true +3 % shown by interleaved ladders that share a drift of 3 %, 5 repeats"
    yield _at_least(text, 0.90, 0.90, partial(turns, text=faster, repeats=5, gain=0.03, shared=0.03))
    for check, name in (("b.at(4).tps > a.at(4).tps", "`>`"), (faster, "`ratio`")):
        measure = partial(two_ladders, text=check, repeats=5)
        yield _at_most(f"equal systems, 5 repeats: {name} passes", 0.025, 0.025, measure)
        yield _at_least(f"true +5 % shown by {name}, 5 repeats", 0.59, 0.55, partial(measure, gain=0.05))


def interference_rows() -> Iterator[Row]:
    """Ratios of a load together with another one over the load alone, in turns."""
    for repeats, drift in itertools.product((3, 5, 10), DRIFTS):
        text = f"interference of a load: interval holds the ratio, {drift}, {repeats} repeats"
        yield _at_least(text, 0.95, 0.95, partial(interference_holds, repeats=repeats, drift=drift), 0.5)


def versus_rows() -> Iterator[Row]:
    """Ratios of two loads in turns, in slices of 0.5 s."""
    for (repeats, measure_s), machine in itertools.product(((1, 10), (1, 30), (1, 120), (3, 30), (5, 30)), MACHINES):
        text = (
            f"`versus`: interval holds the ratio of equal loads, {machine}, {_of(repeats, 'repeat')} of {measure_s} s"
        )
        measure = partial(versus_holds, repeats=repeats, measure_s=measure_s, machine=machine)
        yield _at_least(text, 0.95, 0.95, measure, 0.5)
    for machine in MACHINES:
        text = f"`versus`: true +5 % shown, {machine}, 1 repeat of 30 s"
        yield _at_least(text, 0.5, 0.5, partial(versus_shown, repeats=1, measure_s=30, machine=machine), 0.5)


def comparison_rows() -> Iterator[Row]:
    """Comparisons of two runs of equal systems."""
    equal = np.ones((5, 26))
    for repeats in (1, 2, 3, 5, 10):
        name = _of(repeats, "repeat")
        text = f"`compare` of two equal systems, 2 rungs: throughput flagged, {name}"
        yield _at_most(text, 0.05, 0.05, partial(compared_equal, repeats=repeats), 0.5)
        text = f"`compare` of two equal systems, 5 rungs: any of 130 numbers flagged, {name}"
        yield _at_most(text, 0.05, 0.05, partial(compared_tables, repeats=repeats, gains=equal, of="any"), 0.1)
        text = f"`--fail-if 'tps.change.upper < 0'`, equal systems, {name}"
        yield _at_most(text, 0.025, 0.025, partial(gated_equal, repeats=repeats), 0.5)
    for earlier, runs, apart in itertools.product((0, 12), (1, 2, 3, 5), (0.0, 0.005, 0.01, 0.02, 0.03)):
        if runs > 1 or earlier:
            text = f"`compare` of {_of(runs, 'run')} a side that differ by {apart:.1%}, {earlier} earlier ones: flagged"
            measure = partial(compared_runs, runs=runs, apart=apart, earlier=earlier)
            yield _at_most(text, 0.05, 0.05, measure, 0.1)
    for earlier, runs in ((0, 5), (12, 3)):
        text = f"`compare` of {runs} runs a side that differ by 1 %, {earlier} earlier ones: 5 % better shown"
        measure = partial(compared_runs, runs=runs, apart=0.01, earlier=earlier, gain=0.05)
        yield _at_least(text, 0.8, 0.8, measure, 0.1)
    others = np.full((5, 26), 1.3)
    others[:, 0] = 1.0
    text = "`compare`, all numbers but throughput 30 % higher, 5 rungs: throughput flagged, 5 repeats"
    yield _at_most(text, 0.05, 0.05, partial(compared_tables, repeats=5, gains=others, of="throughput"), 0.1)
    for name, (rungs, numbers) in (
        ("all numbers at 4 of 5 rungs", (4, 26)),
        ("5 of 26 numbers at 1 of 5 rungs", (1, 5)),
    ):
        gains = equal.copy()
        gains[:rungs, :numbers] = 1.2
        text = f"`compare`, {name} 20 % higher: throughput called better there, 5 repeats"
        yield _at_least(text, 0.7, 0.7, partial(compared_tables, repeats=5, gains=gains, of="all rungs"), 0.1)


def search_rows() -> Iterator[Row]:
    """Growth of a lag, and rates that searches find."""
    for readings in (10, 20, 60):
        text = f"`lag.slope_upper` below the true growth at 5 % overload, {readings} readings"
        yield _at_most(text, 0.025, 0.025, partial(slope_missed, readings=readings))
    for limit_ms in (20, 50):
        # Of an M/M/1 queue, P(response > t) = exp(-(capacity - rate) t).
        true = {
            "accept": f"response.p99_us <= ms({limit_ms})",
            "true_rate": 1000.0 - math.log(100.0) / (limit_ms / 1000.0),
        }
        for what, wrong in (("above the true one", _above), ("below 90 % of the true one", _far_below)):
            text = f"rate that a search finds {what}, p99 <= {limit_ms} ms"
            yield _at_most(text, 0.05, 0.05, partial(search_outcomes, wrong=wrong, **true), 0.25)
        text = f"interval of the rate of a search holds the true one, p99 <= {limit_ms} ms"
        yield _at_least(text, CONFIDENCE, CONFIDENCE, partial(search_coverage, **true), 0.25)
    # Nine equal confirmations found 0.96 of the rate with 34 probes where nothing fluctuates, and 0.92 with 45 at 5 %.
    for fluctuation, share, used in ((0.0, 0.95, 0.30), (0.1, 0.92, 0.48), (0.2, 0.89, 0.52)):
        measure = partial(search_fluctuates, fluctuation=fluctuation)
        text = f"capacity fluctuates by {fluctuation:.0%}: rate that a search finds"
        yield _at_most(f"{text} above the true one", 0.05, 0.05, partial(measure, what="above"), 0.1)
        yield _at_most(f"{text}, upper end below the true one", 0.05, 0.05, partial(measure, what="below"), 0.1)
        yield _at_least(f"{text} as a share of the true one", share, share, partial(measure, what="share"), 0.1)
        yield _at_most(f"{text}, probes of 60", used, used, partial(measure, what="used"), 0.1)
        yield _at_most(f"{text}, undecided", 0.2, 0.2, partial(measure, what="undecided"), 0.1)
        yield _at_most(f"{text}, called moved", 0.05, 0.05, partial(measure, what="moved"), 0.1)


def _above(share: float) -> bool:
    return share > 1.0


def _far_below(share: float) -> bool:
    return share < 0.9


def history_rows() -> Iterator[Row]:
    """Changes in the history of a metric, and their sizes, given that the change is shown."""
    for runs, share in ((20, 0.03), (100, 0.05)):
        text = f"`trend` of {runs} equal runs shows a change of level"
        yield _at_most(text, 0.05, share, partial(level_changes, runs=runs, at=0, sigmas=0.0), 0.25)
    text = "`trend` of 100 equal runs shows a change of spread"
    yield _at_most(text, 0.05, 0.05, partial(spread_changes, runs=100, at=50, spread=1.0), 0.25)
    for sigmas in (7, 10, 20):
        text = f"`trend` takes one odd run of {sigmas} sigma, 30 of 60, for a change of level"
        yield _at_most(text, 0.02, 0.02, partial(level_changes, runs=60, at=30, sigmas=sigmas, odd=True), 0.25)
    for at, share in ((10, 0.79), (15, 0.60)):
        text = f"`trend` finds a step of 2 sigma at {at} of 20 runs"
        yield _at_least(text, share, share, partial(level_changes, runs=20, at=at, sigmas=2.0), 0.25)
    for spread, level, found in ((2, 0.15, 0.45), (4, 0.15, 0.95)):
        text = f"`trend` takes a spread x{spread}, 30 of 60, for a change of level"
        yield _at_most(text, level, level, partial(level_changes, runs=60, at=30, sigmas=0.0, spread=spread), 0.25)
        text = f"`trend` finds a spread x{spread}, 30 of 60"
        yield _at_least(text, found, found, partial(spread_changes, runs=60, at=30, spread=spread), 0.25)
    # A small change is shown where the level before it is off as well: that part is chosen too.
    sizes = ((0.01, 0.01, 0.90), (0.02, 0.01, 0.93), (0.05, 0.03, 0.93))
    for (step, cv, least), later in itertools.product(sizes, (3, 10)):
        text = f"interval of a shown change of {step:.0%} holds it, cv {cv:.0%}, {later} later runs"
        yield _at_least(text, 0.95, least, partial(change_size, step=step, cv=cv, later=later), 0.25)


def rows() -> tuple[Row, ...]:
    """All rows of the table, in its order."""
    pairs = (*ladder_rows(), *same_iterations_rows(), *interference_rows(), *versus_rows(), *comparison_rows())
    stated = (*repeats_rows(), *bought_rows(), *foreseen_rows(), *following_rows(), *age_rows(), *fault_rows())
    return (*interval_rows(), *pairs, *stated, *search_rows(), *history_rows())
