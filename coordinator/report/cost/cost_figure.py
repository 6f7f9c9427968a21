"""The figure of the cost of a transaction: a panel for each number, over the rungs. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from proveout.coordinator.report.cost.cost_tables import currency_of, has_cost, label
from proveout.coordinator.report.figures.cases import Case, Cases, cases
from proveout.coordinator.report.figures.figure import Figure, slug
from proveout.coordinator.report.figures.panels import Point, described, panels, table, whiskers_of
from proveout.coordinator.report.tables import ladders
from proveout.coordinator.results.results import RunResults
from proveout.core.json_data import number_at
from proveout.core.numbers import safe
from proveout.dsl.metrics import COST

NAME = "transaction-cost"
_CAPTION = (
    "Per transaction that ended in the measure window: mean over the repeats, with {}. The notes below the tables of "
    "the cost name the source of each number: a whole host, or the processes of the servers alone. A "
    "number that was not captured, or is 0 at every rung, has no panel."
)


def transaction_cost(results: RunResults) -> Iterator[Figure]:
    """A figure for each matrix, and one for all ladders without one."""
    currency = currency_of(results)
    for found in cases(results, has_cost, ladders(results)):
        points = list(_points(found, currency))
        lines = found.place == "threads" and len({point.at for point in points}) > 1
        heads, rows = table(points, place=found.place, series="ladder")
        yield Figure(
            name=NAME,
            slug=slug(NAME, found.of) if found.of else NAME,
            title=f"Cost of a transaction{f': {safe(found.of)}' if found.of else ''}",
            caption=_CAPTION.format(whiskers_of(points)),
            spec=panels(points, place=found.place, mark="line" if lines else "bar"),
            heads=heads,
            rows=rows,
            alt=described(points),
        )


def _points(found: Cases, currency: str) -> Iterator[Point]:
    nothing = {name for name in COST if not any(_mean(case, name) for case in found.found)}
    for name in COST:
        for case in found.found:
            estimate = case.rung.tree["cost"].get(name)
            if estimate and name not in nothing:
                yield Point(panel=label(name, currency), metric=name, at=case.at, series=case.series, estimate=estimate)


def _mean(case: Case, name: str) -> float | None:
    return number_at(case.rung.tree, "cost", name, "mean")
