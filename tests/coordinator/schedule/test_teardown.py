"""The sentence at the end of a run."""

from __future__ import annotations

from typing import Literal

import pytest

from proveout.coordinator.schedule.next_step import outcome_text
from proveout.proto.events import Outcome, VerdictReached


def verdict(id: str, outcome: Outcome, severity: Literal["fail", "warn"] = "fail") -> VerdictReached:
    return VerdictReached(id=id, title=id, severity=severity, outcome=outcome, check="", evidence="")


@pytest.mark.parametrize(
    ("verdicts", "text"),
    [
        ([], "there was nothing to judge"),
        ([verdict("a", "PASS"), verdict("b", "PASS", "warn")], "2 passed"),
        ([verdict("a", "PASS"), verdict("p99", "FAIL", "warn")], "1 passed, 1 failed (a warning only: p99)"),
        ([verdict("a", "FAIL"), verdict("b", "FAIL", "warn")], "1 failed, 1 failed (a warning only: b)"),
        (
            [verdict("a", "PASS"), *(verdict(f"w{n}", "INCONCLUSIVE", "warn") for n in range(5))],
            "1 passed, 5 inconclusive (warnings only: w0, w1, w2 and 2 more)",
        ),
    ],
)
def test_the_end_of_a_run_counts_every_verdict(verdicts: list[VerdictReached], text: str) -> None:
    assert outcome_text(verdicts) == text
    assert outcome_text(verdicts, ["the load of a was not the workload"]) == (
        f"the load of a was not the workload; {text}"
    )
