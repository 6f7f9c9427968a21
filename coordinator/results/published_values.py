"""The published numbers of a plan beside the measured ones. Pure.

Data flow: `published:` of the recorded plan, the environment of the run's results -> `Reproduction`s -> reports.
Whether a number is reproduced is the verdict of the same id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from proveout.coordinator.results.results import FUNCTIONS, RunResults, environment
from proveout.core.data_classes import dataclass
from proveout.dsl.expr.evaluation import ExpressionFault, evaluate, metric_of
from proveout.proto.events import Outcome

_ENDS = ("mean", "lower", "upper")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduction:
    """A published number and its measured counterpart, both in the unit of `metric` ("" for anything computed).

    `measured` is an estimate; of a number without an interval it has the mean alone. Where it is None, `missing` has
    the reason. `outcome` is that of the verdict "measured is within `within` of published"; None where `within` is None
    or the verdict was not reached.
    """

    id: str
    title: str
    source: str
    metric: str
    published: float
    within: float | None
    measured: Mapping[str, Any] | None
    missing: str
    outcome: Outcome | None

    @property
    def factor(self) -> Mapping[str, Any]:
        """The measured number over the published one, with its ends where it has any; empty where it is missing."""
        found = self.measured or {}
        return {name: found[name] / self.published for name in _ENDS if found.get(name) is not None}


def reproductions(results: RunResults) -> Iterator[Reproduction]:
    """One for each published number of the plan, in its order."""
    if results.run is None:
        return
    tree = environment(results)
    outcomes = {verdict.id: verdict.outcome for verdict in results.verdicts}
    for one in results.run.plan.get("published", ()):
        text, within = one["measured"]["text"], one["within"]
        measured, missing = _measured(text, tree)
        yield Reproduction(
            id=one["id"],
            title=one["title"],
            source=one["source"],
            metric=metric_of(text),
            published=one["value"],
            within=within,
            measured=measured,
            missing=missing,
            outcome=None if within is None else outcomes.get(one["id"]),
        )


def _measured(text: str, tree: Mapping[str, Any]) -> tuple[Mapping[str, Any] | None, str]:
    """The estimate, or None and the reason."""
    try:
        found = evaluate(text, tree, functions=FUNCTIONS)
    except ExpressionFault as fault:
        return None, fault.what
    if isinstance(found, Mapping):
        return found, ""
    if isinstance(found, str | bool):
        return None, f"`{text}` is not a number"
    return {"mean": float(found)}, ""
