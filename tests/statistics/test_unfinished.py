"""Seeded simulations of transactions without an answer: arrivals with known true times -> records as workers make them ->
real `LoadAggregator` and `load_merge.times_of` -> the printed percentiles beside the true ones.

Bounds are at 4 standard errors of the simulation and more, or exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from records import iteration
from simulated_load import aggregated

from proveout.agent.load.pacing import Timeline
from proveout.agent.load.worker_messages import Ages
from proveout.coordinator.measure.load_merge import Latency, latency, summed, times_of
from proveout.coordinator.results.results import rung_tree
from proveout.coordinator.verdict.checks import judge
from proveout.dsl.plan.stages import Windows
from proveout.proto.wire import histogram
from proveout.proto.wire.results import LoadResult

S = 1_000_000_000
DRAIN_S = 1.0
RESOLUTION = 0.001
Floats = npt.NDArray[np.float64]
TERMINALS = 64


@dataclass(frozen=True, slots=True)
class Arrivals:
    """All transactions of a load: intended, started and truly ended, s after T0, shape (n,)."""

    intended: Floats
    started: Floats
    ended: Floats


def open_load(seed: int, *, rate: float, total_s: float, stall: tuple[float, float], terminals: int) -> Arrivals:
    """Poisson arrivals dealt to terminals in turn, exponential service of 0.5 ms, and a stall in which nothing ends."""
    random = np.random.default_rng(seed)
    due = np.cumsum(random.exponential(1.0 / rate, int(rate * total_s * 1.2)))
    service = random.exponential(0.0005, due.size)
    started, ended = np.empty_like(due), np.empty_like(due)
    free = np.zeros(terminals)
    for index in range(due.size):
        at = index % terminals
        begins = max(due[index], free[at])
        if stall[0] <= begins < stall[1]:
            ends = stall[1] + service[index]
        else:
            ends = begins + service[index] + (stall[1] - stall[0] if begins < stall[0] < begins + service[index] else 0)
        started[index], ended[index], free[at] = begins, ends, ends
    return Arrivals(due, started, ended)


def closed_load(seed: int, *, mean_s: float, total_s: float, stall: tuple[float, float], terminals: int) -> Arrivals:
    """Terminals that begin again when a transaction ends, exponential service, and a stall in which nothing ends."""
    random = np.random.default_rng(seed)
    work = np.cumsum(random.exponential(mean_s, (terminals, int(total_s / mean_s * 1.5) + 50)), axis=1)
    ended = np.where(work <= stall[0], work, work + stall[1] - stall[0])
    started = np.concatenate((np.zeros((terminals, 1)), ended[:, :-1]), axis=1)
    return Arrivals(started.ravel(), started.ravel(), ended.ravel())


def measured(made: Arrivals, windows: Windows, *, is_open: bool) -> LoadResult:
    """The result of a load: nothing begins after its windows; running transactions have `DRAIN_S` more to end."""
    timeline = Timeline.of(windows, 0)
    seen_s = windows.total_s + DRAIN_S
    begun = made.started < windows.total_s
    over = begun & (made.ended < seen_s)
    rows = np.column_stack((made.intended, made.started, made.ended))
    late = np.rint(rows[begun & ~over] * 1e9).astype(np.int64)
    first_s, last_s = windows.ramp_up_s, windows.ramp_up_s + windows.measure_s
    never = ~begun & (made.intended >= first_s) & (made.intended < last_s)
    missed: Ages = ()
    if is_open and never.any():
        held = histogram.bin_ns(np.rint((seen_s - made.intended[never]) * 1e9))
        missed = ((0, held.indices, held.counts, held.sum_ns, held.min_ns, held.max_ns),)
    unfinished = tuple((0, int(intended), int(started)) for intended, started, _ in late)
    at_end = {"missed": missed, "unfinished": unfinished, "seen_ns": round(seen_s * S)}
    return aggregated(["t"], timeline, {0: np.rint(rows[over] * 1e9)}, is_open=is_open, **at_end)[1]


def truth_us(made: Arrivals, windows: Windows, percentile: float) -> float:
    """The true percentile of all transactions due in the window, as if every answer had been waited for, µs."""
    first_s, last_s = windows.ramp_up_s, windows.ramp_up_s + windows.measure_s
    due = (made.intended >= first_s) & (made.intended < last_s)
    times = np.sort(made.ended[due] - made.intended[due])
    return float(times[histogram.rank(percentile, times.size) - 1]) * 1e6


def response(result: LoadResult) -> Latency:
    return times_of(summed(result.transactions))["response"]


def windows(ramp_down_s: float) -> Windows:
    return Windows(ramp_up_s=1.0, measure_s=10.0, ramp_down_s=ramp_down_s)


STALL = (11.0 - 0.09, 16.0 - 0.09)
KINDS = ("open", "closed")


def load_of(kind: str, seed: int, total_s: float) -> Arrivals:
    if kind == "open":
        return open_load(seed, rate=1000.0, total_s=total_s, stall=STALL, terminals=TERMINALS)
    return closed_load(seed, mean_s=0.05, total_s=total_s, stall=STALL, terminals=TERMINALS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_stall_at_the_end_of_the_window_is_in_the_percentiles(kind: str, seed: int = 1) -> None:
    """5 s, from 0.09 s before the end of the window on; the load lasts until all has its answer."""
    made = load_of(kind, seed, 18.0)
    result = measured(made, windows(6.0), is_open=kind == "open")
    found = response(result)
    assert truth_us(made, windows(6.0), 99.9) > 4_900_000
    assert not found.at_least
    for name, percentile in (("p50_us", 50.0), ("p99_us", 99.0), ("p999_us", 99.9), ("max_us", 100.0)):
        assert found.known[name] == pytest.approx(truth_us(made, windows(6.0), percentile), rel=RESOLUTION)
    assert result.hung == 0
    assert sum(t.late for t in result.transactions) >= (60 if kind == "open" else TERMINALS)


@pytest.mark.parametrize("ramp_down_s", [0.0, 3.0])
@pytest.mark.parametrize("kind", KINDS)
def test_what_has_no_answer_when_the_load_ends_is_a_lower_bound(kind: str, ramp_down_s: float) -> None:
    """The same stall outlasts the load: no number is stated that is below the true one, and every bound is true."""
    for seed in range(2):
        made = load_of(kind, seed, 18.0)
        found = response(measured(made, windows(ramp_down_s), is_open=kind == "open"))
        assert "p999_us" in found.at_least
        assert found.at_least["p999_us"] >= (ramp_down_s + DRAIN_S) * 1e6 * (1 - RESOLUTION)
        for name, percentile in (("p50_us", 50.0), ("p90_us", 90.0), ("p99_us", 99.0), ("p999_us", 99.9)):
            true_us = truth_us(made, windows(ramp_down_s), percentile)
            if name in found.known:
                assert found.known[name] == pytest.approx(true_us, rel=0.02)
            else:
                assert found.at_least[name] <= true_us


def test_percentiles_above_the_share_of_those_that_began_are_not_given() -> None:
    """A system at half of the rate: 55 of 100 arrivals never begin (of 5,500 transactions, 1,000 were due before), and no percentile above is given."""
    random = np.random.default_rng(3)
    due = np.cumsum(random.exponential(0.001, 14_000))
    started = np.maximum(due, np.arange(due.size) * 0.002)
    made = Arrivals(due, started, started + 0.002)
    result = measured(made, windows(0.0), is_open=True)
    (load,) = result.transactions
    found = response(result)
    total = load.counts.ok + load.counts.missed + histogram.count(load.service_at_least)
    assert load.counts.missed / total == pytest.approx(0.55, abs=0.03)
    assert set(found.not_given) == {"p50_us", "p90_us", "p95_us", "p99_us", "p999_us", "max_us"}
    assert not set(found.not_given) & set(found.known)
    for name, percentile in (("p90_us", 90.0), ("p99_us", 99.0)):
        assert found.at_least[name] <= truth_us(made, windows(0.0), percentile)


def test_a_percentile_is_known_up_to_the_last_transaction_that_ended() -> None:
    """99 ended and one has no answer: rank 99 of 100 is the last known one."""
    found = latency(histogram.bin_ns(np.arange(1, 100) * 1_000), histogram.bin_ns([500_000]), 0)
    assert found.known["p99_us"] == pytest.approx(99.0, rel=RESOLUTION)
    assert found.at_least["p999_us"] == pytest.approx(500.0, rel=RESOLUTION)


def test_a_terminal_that_hangs_through_the_window_is_recorded() -> None:
    """One of 64 gets no answer from 0.5 s before the window until after the load."""
    made = closed_load(1, mean_s=0.05, total_s=14.0, stall=(99.0, 99.0), terminals=TERMINALS)
    started = made.started.reshape(TERMINALS, -1)
    ended = made.ended.reshape(TERMINALS, -1).copy()
    at = int(np.argmax(ended[0] > 0.5))
    ended[0, at:], started[0, at + 1 :] = 99.0, 99.0
    result = measured(Arrivals(started.ravel(), started.ravel(), ended.ravel()), windows(1.0), is_open=False)
    assert result.hung == 1
    (hang,) = result.hangs
    assert (hang.transaction, hang.answered) == ("t", False)
    assert 12.0 < hang.waited_ns / S < 13.0


def two_rungs(of: str, behind: tuple[float, ...], censored: int) -> dict[str, Any]:
    """Two ladders in turns with these mean response times; of one repeat of the ladder `of` only a bound is known."""
    trees = {}
    for name, times in (("slow", behind), ("fast", tuple(1.0 + time / 100.0 for time in range(len(behind))))):
        items = []
        for repeat, time in enumerate(times, 1):
            bound = {"response.avg_us": time} if (name, repeat) == (of, censored) else {}
            known = {} if bound else {"response": {"avg_us": time}}
            items.append(iteration(name, 1, repeat, {"tps": 1.0} | known, at_least=bound))
        trees[name] = rung_tree(items, block="run/slow")
    return trees


@pytest.mark.parametrize(
    ("text", "of", "outcome"),
    [
        ("ratio(slow.response.avg_us, fast.response.avg_us).lower > 1.2", "slow", "PASS"),
        ("ratio(slow.response.avg_us, fast.response.avg_us).upper < 1.2", "slow", "FAIL"),
        ("slow.response.avg_us > fast.response.avg_us", "slow", "PASS"),
        ("fast.response.avg_us >= slow.response.avg_us", "slow", "FAIL"),
        ("ratio(slow.response.avg_us, fast.response.avg_us).upper < 2", "slow", "INCONCLUSIVE"),
        ("ratio(slow.response.avg_us, fast.response.avg_us).lower > 1.2", "fast", "INCONCLUSIVE"),
        ("ratio(slow.response.avg_us, fast.response.avg_us).lower > 2", "fast", "FAIL"),
        ("slow.response.avg_us.mean - fast.response.avg_us.mean > 0", "slow", "INCONCLUSIVE"),
    ],
)
def test_a_comparison_with_a_lower_bound_is_decided_where_longer_times_do_not_change_it(
    text: str, of: str, outcome: str
) -> None:
    """One of ten repeats has a transaction without an answer: its mean lies between a number and anything above."""
    times = tuple(1.5 * (1.0 + repeat % 3 / 50.0) for repeat in range(10))
    found = judge(text, two_rungs(of, times, censored=4))
    assert found.outcome == outcome, found.evidence
    if outcome != "INCONCLUSIVE":
        assert f"{of}.response.avg_us at the least, as transactions had no answer within 1 s" in found.evidence
