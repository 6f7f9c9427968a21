"""The newest value of every series, and their text.

Data flow: events -> `instruments` writes here -> `Board.text()` on a scrape. Bounded: a family has at most `SERIES_MAX`
series, what would go beyond is counted in `proveout_series_dropped_total` and left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from proveout.coordinator.exporter.metric_families import DROPPED, FAMILIES, Family
from proveout.core.numbers import safe

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

SERIES_MAX = 2_000
LABEL_MAX = 200
CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class Board:
    """Series by family and label values. A value is a number, or for a stateset the name of a state."""

    def __init__(self) -> None:
        self._series: dict[str, dict[tuple[str, ...], float | str]] = {family.name: {} for family in FAMILIES}
        self._series[DROPPED.name][()] = 0.0

    def put(self, family: Family, value: float | str, *labels: object) -> None:
        """The series with these label values (in the family's order) is `value` now."""
        series = self._series[family.name]
        key = tuple(_label(label) for label in labels)
        assert len(key) == len(family.labels), family  # noqa: S101  # a slip of the caller
        if key in series or len(series) < SERIES_MAX:
            series[key] = value
        else:
            self.add(DROPPED, 1.0)

    def add(self, family: Family, amount: float, *labels: object) -> None:
        """Count on."""
        before = self._series[family.name].get(tuple(_label(label) for label in labels), 0.0)
        self.put(family, float(before) + amount, *labels)

    def clear(self, *families: Family, first: str | None = None) -> None:
        """Remove the families' series, or only those whose first label is `first`."""
        for family in families:
            kept = (
                {} if first is None else {k: v for k, v in self._series[family.name].items() if k[0] != _label(first)}
            )
            self._series[family.name] = kept

    def text(self) -> bytes:
        """All series as OpenMetrics 1.0 text."""
        from prometheus_client.openmetrics.exposition import generate_latest  # noqa: PLC0415  # only when it is scraped

        made: bytes = generate_latest(self)  # type: ignore[no-untyped-call]  # wants something with `collect`
        return made

    def collect(self) -> Iterator[Metric]:
        """As prometheus_client's collectors give them; empty families are left out."""
        from prometheus_client.metrics_core import Metric  # noqa: PLC0415

        for family in FAMILIES:
            series = self._series[family.name]
            if not series:
                continue
            metric = Metric(family.name, family.about, family.kind, family.unit)
            for key, value in series.items():
                labels = dict(zip(family.labels, key, strict=True))
                for more, number in _points(family, value):
                    metric.add_sample(family.sample, labels | more, number)
            yield metric


def _points(family: Family, value: float | str) -> Iterator[tuple[dict[str, str], float]]:
    if isinstance(value, str):
        for state in family.states:
            yield {family.name: state}, float(state == value)
    else:
        yield {}, value


def _label(value: object) -> str:
    return safe(str(value))[:LABEL_MAX]
