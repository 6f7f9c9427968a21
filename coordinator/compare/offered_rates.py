"""The rates that two runs offered at a rung of open arrival: whether they differ, and where they came from. Pure.

Data flow: the iterations of a rung in both runs, the stage of the recorded plan -> `OfferedRates` -> `comparison`,
which judges no throughput where the rates differ, since throughput follows the rate that is offered, and compares
response times only where the rates agree within `TOLERANCE`. A rate differs between two runs of one plan where it is
an expression over results, such as the answer of a search (`rate: ${cap.rate * 0.8}`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from proveout.core.data_classes import dataclass
from proveout.core.numbers import notation, percent
from proveout.proto.events import IterationFinished

TOLERANCE = 0.02
"""The relative difference of two offered rates up to which response times are compared."""
SAME = 1e-9
THROUGHPUT = ("tps", "nopm", "tpm", "rate", "iops", "mb_per_s")
"""The names of numbers that follow the offered rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedRates:
    """The mean offered rates of a rung (1/s) in the reference and in the other run. `origin`: the expression of the
    plan that they came from; "" where the plan has a number."""

    base: float
    other: float
    origin: str = ""

    @property
    def agree(self) -> bool:
        """Whether response times at these rates are compared."""
        return abs(self.other / self.base - 1.0) <= TOLERANCE

    def compares(self, metric: str) -> bool:
        """Whether a change of the metric is a change of the system, and not of the rate that was offered to it."""
        return self.agree and metric not in THROUGHPUT

    def __str__(self) -> str:
        """`800 and 720 a second, from ${cap.rate * 0.8}`."""
        same = notation("", self.base, self.other)
        origin = f", from ${{{self.origin}}}" if self.origin else ""
        return f"{same.text(self.base)} and {same.text(self.other)} a second{origin}"


def offered(
    base: Sequence[IterationFinished], other: Sequence[IterationFinished], plan_stage: Mapping[str, Any]
) -> OfferedRates | None:
    """The rates of a rung where they differ; None where they are the same, or arrival is closed in one of the runs."""
    before, after = _mean(base), _mean(other)
    if not before or not after or abs(after / before - 1.0) <= SAME:
        return None
    rate = (plan_stage.get("arrival") or {}).get("rate")
    origin = str(rate.get("text", "")) if isinstance(rate, Mapping) else ""
    return OfferedRates(base=before, other=after, origin=origin)


def note(stage: str, found: Sequence[OfferedRates]) -> str:
    """The sentence about the rungs of a stage whose offered rates differ."""
    apart = [one for one in found if not one.agree]
    shown = (apart or list(found))[0]
    responses = (
        f"response times are not compared where the rates are more than {percent(TOLERANCE)} apart"
        if apart
        else f"response times are compared, since the rates agree within {percent(TOLERANCE)}"
    )
    return f"{stage}: the offered rates differ ({shown}): throughput follows them and is not judged; {responses}"


def _mean(iterations: Sequence[IterationFinished]) -> float | None:
    rates = [one.rate for one in iterations]
    known = [rate for rate in rates if rate is not None]
    return sum(known) / len(known) if known and len(known) == len(rates) else None
