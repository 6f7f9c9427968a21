"""HammerDB's numbers of one iteration of TPROC-C: NOPM from the client, TPM from the database. Pure.

**NOPM**: New Orders that ended in the measure window and were committed, per minute. **TPM**: all commits and rollbacks of
the database per minute, between the window's ends, by its own counters (PostgreSQL's pg_stat_database; a capture of kind
`waits` brings them). TPM counts every statement outside a transaction too, those of captures among them. The third number,
ART, is every workload's `response.avg_us`.
"""

from __future__ import annotations

from collections.abc import Iterable

from proveout.coordinator.measure.timeseries import Recording, Window
from proveout.proto.events import Metrics, TransactionSummary

NEW_ORDER = "NewOrder"
MINUTE_S = 60.0
COUNTERS = ("database.commits_total", "database.rollbacks_total")


def nopm(summaries: Iterable[TransactionSummary]) -> float | None:
    """Committed New Orders a minute; None when none ended."""
    found = next((item for item in summaries if item.name == NEW_ORDER), None)
    if found is None or not (ended := found.ok + found.logical_failures):
        return None
    return found.tps * MINUTE_S * found.ok / ended


def tpm(recording: Recording, window: Window) -> float | None:
    """Commits and rollbacks a minute; None when a counter was not captured."""
    rates = [recording.rate(counter, window) for counter in COUNTERS]
    known = [rate for rate in rates if rate is not None]
    return sum(known) * MINUTE_S if len(known) == len(COUNTERS) else None


def order_metrics(
    kind: str, summaries: Iterable[TransactionSummary], captured: tuple[Recording, Window] | None
) -> Metrics:
    """The numbers that only a workload of this kind has (see `metrics.ORDERS`), with None for what is not known."""
    if kind != "tprocc":
        return {}
    return {"nopm": nopm(summaries), "tpm": tpm(*captured) if captured else None}
