"""The metrics of stages whose events have them: values, populations, comparisons of propagation. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from proveout.core import statistics
from proveout.dsl import metrics
from proveout.proto.events import Metrics, PopulateFinished, PropagationCompared, ValuesTaken


def value_estimates(taken: Sequence[ValuesTaken]) -> Metrics:
    """Each number of a stage as an estimate over its repeats."""
    numbers: dict[str, list[float]] = {}
    for repeat in taken:
        for name, value in repeat.values.items():
            numbers.setdefault(name, []).append(value)
    return {
        name: statistics.estimate(values, kind=metrics.kind((name,)))
        | {"repeats": list(range(1, len(values) + 1))}
        | ({"missing": len(taken) - len(values)} if len(values) < len(taken) else {})
        for name, values in numbers.items()
    }


def populate_metrics(populated: Iterable[PopulateFinished]) -> Metrics:
    """Rows and seconds of all systems together; systems are loaded one after the other."""
    latest = {event.system: event.populated for event in populated}
    rows = sum(item.rows for item in latest.values())
    loaded = rows - sum(item.kept_rows for item in latest.values())
    seconds = sum(item.seconds for item in latest.values())
    return {"rows": rows, "seconds": seconds} | ({"rows_per_s": loaded / seconds} if seconds > 0.0 else {})


def propagation_metrics(compared: PropagationCompared) -> Metrics:
    """The metrics of `propagation.<source>`; the drain time only when it did drain."""
    different = sum(not table.same for table in compared.tables)
    return {"different_tables": different} | ({"drain_s": compared.drain_s} if compared.drained else {})
