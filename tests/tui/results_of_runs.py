"""Invented results of finished runs for the tests of the pane "Result"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import histories

from proveout.core.errors import ProveoutError
from proveout.proto.events import Claim, HeadlineNumber, VerdictReached
from proveout.tui.services import ComparedPart, ComparedRow, Comparison, Judged, Ratio, Replay, Result

HOSTILE = histories.HOSTILE
HEADLINE = (
    HeadlineNumber(
        label="Highest rate found", value="4,000/s", interval="90 % CI 4,000/s … 4,400/s, confirmed 9 times",
        about="search cap",
    ),
    HeadlineNumber(
        label="cached against base", value="1.52 ×", interval="95 % CI 1.41 … 1.63, n = 5", about="throughput, 16 threads",
        tone="good",
    ),
    HeadlineNumber(
        label="Peak throughput", value="12,340/s", interval="95 % CI 11,900/s … 12,800/s, n = 5, best of 2",
        about="base, 16 threads",
    ),
    HeadlineNumber(label="Lost commits", value="3", about="of 120,000 acknowledged, base", tone="bad"),
    HeadlineNumber(label="p99 at the peak", value="2.15 ms", interval="95 % CI 2.08 ms … 2.22 ms, n = 5",
                   about="base, 16 threads"),
)  # fmt: skip


def judged(id: str, title: str, outcome: str, *claims: Claim, severity: str = "fail", **more: Any) -> Judged:
    found = {"severity": severity, "check": "", "evidence": "", **more}
    return VerdictReached(id=id, title=title, outcome=outcome, **found), claims


VERDICTS = (
    judged(
        "scales", "16 threads do four times the work of 1", "PASS",
        Claim(of="ratio(base.at(16).tps, base.at(1).tps)", value="5.1", limit="≥ 4", operator=">=", mean=5.1, lower=4.7,
              upper=5.5, bound=4.0, interval="95 % CI"),
        evidence="ratio(base.at(16).tps, base.at(1).tps) = 5.1 (95 % CI 4.7 … 5.5, n = 5) >= 4: holds",
        check="ratio(base.at(16).tps, base.at(1).tps) >= 4", file="plans/study.yaml", line=31,
    ),
    judged(
        "quick", "It answers within 2 ms at the 99th percentile", "FAIL",
        Claim(of="base.at(16).response.p99_us.mean", value="2.15 ms", limit="≤ 2.00 ms", operator="<=", mean=2150.0,
              lower=2080.0, upper=2220.0, bound=2000.0, interval="95 % CI"),
        evidence=f"base.at(16).response.p99_us.mean = 2.15 ms <= 2.00 ms: does not hold; note: {HOSTILE}",
    ),
    judged(
        "tail", "The slowest answer takes 5 ms", "FAIL",
        Claim(of="base.at(16).response.max_us.mean", value="90.0 ms", limit="≤ 5.00 ms", operator="<=", mean=90000.0,
              lower=50000.0, upper=130000.0, bound=5000.0, interval="95 % CI"),
        severity="warn",
    ),
    judged(
        "rate", "It holds 4,200 per second", "INCONCLUSIVE",
        Claim(of="cap.rate", value="4,000/s", limit="≥ 4,200/s", operator=">=", mean=4000.0, lower=4000.0, upper=None,
              bound=4200.0, interval="95 % CI"),
    ),
    judged(
        "both", f"Two conditions at once {HOSTILE}", "INCONCLUSIVE",
        Claim(of="cap.rate", value="no data", limit="≥ 200/s"),
        Claim(of="base.at(1).errors.count.mean", value="0", limit="= 0", operator="==", mean=0.0, bound=0.0),
    ),
    judged("invariants:db", "The invariants of the workload hold in db", "PASS",
           evidence="held each of 7 times that it was looked at"),
)  # fmt: skip
FINISHED = Result(
    outcome="finished in 9 min 12 s: 2 passed, 1 failed, 1 failed (a warning only: tail), 2 inconclusive (exit code 1)",
    tone="bad",
    headline=HEADLINE,
    verdicts=VERDICTS,
    notes=("base: client-handling flagged in 2 of 9 iterations, first in base/16/1/1: " + HOSTILE,),
)
COMPARISON = Comparison(
    reference="study-a",
    other="study-b",
    differences=("db: work_mem: 4MB -> 64MB",),
    notes=("2 repeats of a rung cannot show a small change: take 5 or more",),
    headline="Throughput of B is better at 1 of 2 rungs, by 1.31 ×; undecided with 1 thread, 1.02 × (0.95 … 1.10). "
    "The rate of cap is not judged (no interval), 1.5 ×. "
    "Of 5 main numbers: 1 better, 1 worse, 2 not distinguishable, 1 not judged.",
    level="Levels of the intervals: 98 % for the 4 main numbers, corrected over the numbers (Benjamini–Hochberg) and over "
    "the rungs (Bonferroni): two equal systems differ in none of them in 95 of 100 comparisons.",
    ratios=(
        Ratio(of="base, 1 thread", what="TPS", ratio=1.02, lower=0.95, upper=1.1, text="1.02 ×", interval="(0.95 … 1.10)",
              tone="none"),
        Ratio(of="base, 1 thread", what="response p99", ratio=1.6, lower=1.2, upper=2.2, text="1.6 ×",
              interval="(1.2 … 2.2)", tone="worse"),
        Ratio(of="base, 4 threads", what="TPS", ratio=1.31, lower=1.2, upper=1.42, text="1.31 ×", interval="(1.20 … 1.42)",
              tone="better"),
        Ratio(of="base, 4 threads", what="response avg", ratio=0.4, lower=0.01, upper=90.0, text="0.4 ×",
              interval="(← … →)", tone="none"),
        Ratio(of="search cap", what="rate", ratio=1.5, lower=None, upper=None, text="1.5 ×", interval="",
              tone="unknown"),
    ),
    heads=("", "A", "B", "B / A", "95 % CI", ""),
    parts=(
        ComparedPart(head="base, 4 threads, 5 and 5 repeats", rows=(
            ComparedRow(cells=("TPS", "3,000", "3,930", "1.31 ×", "(1.20 … 1.42)", "▲ better"), tone="better"),)),
        ComparedPart(head="base at 8 threads: no valid iteration in B", rows=()),
    ),
)  # fmt: skip


class FakeRun:
    """Services with a fixed result."""

    def __init__(self) -> None:
        self.address = "/r/study-1/report.html"

    def result(self) -> Result:
        return FINISHED

    def replay(self) -> Replay:
        return at_end()

    def report(self) -> str:
        return self.address

    def others(self) -> Sequence[tuple[str, str]]:
        return [("study-2", "/r/study-2"), (HOSTILE, "/r/evil")]

    def compare(self, reference: str, other: str, *, despite: bool) -> Comparison:
        if "evil" in reference:
            raise ProveoutError("it has not started", where=reference, way_out="Name another run.")
        return COMPARISON


def at_end() -> Replay:
    """A finished run as `watch` opens it."""
    return Replay(histories.stamped(histories.judged()), 5.0, step_s=0.05)
