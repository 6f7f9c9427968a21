"""A proxy before a real PostgreSQL that stands still for 3.000 s: the outage of loads of several rates, at once.

The proxy's own instants are the truth. A client that waits for a CPU reads the last answer before the outage, or the first
one after it, too late, and so makes the outage shorter or longer by as much. In one of three tries it must be neither shorter
than the truth less one intended interval, nor longer by more than one interval and the slowest usual response.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from stalling_proxy import Instants, StallingProxy

from proveout.agent.load.run_load import run_load
from proveout.coordinator.measure.faults.bin_series import BinSeries, series_of
from proveout.coordinator.measure.faults.effects import Effect, effect
from proveout.coordinator.measure.faults.occurrences import Occurrence
from proveout.proto.wire import bins
from proveout.proto.wire.results import LoadResult

from .conftest import LoadContext, Spec

pytestmark = [pytest.mark.slow]

STALL_S = 3.0
RATES = (25.0, 200.0, None)
WINDOWS = (0.5, 6.5, 0.5)
TRIES = 3


@pytest.fixture
def proxy(hlr_database: str) -> Iterator[StallingProxy]:
    parts = conninfo_to_dict(hlr_database)
    proxy = StallingProxy(lambda: f"{parts['host']}/.s.PGSQL.{parts.get('port', 5432)}")
    yield proxy
    proxy.close()


async def stalled(
    proxy: StallingProxy, dsn: str, spec: Spec, folder: Path
) -> tuple[Instants, list[tuple[LoadResult, BinSeries]]]:
    """Run a load of each rate through the proxy, which stands still after their third second."""
    contexts = [LoadContext(folder / str(number)) for number in range(len(RATES))]
    tasks = [
        dataclasses.replace(spec(dsn, terminals=4, rate=rate, windows=WINDOWS, workers=1), bins=True) for rate in RATES
    ]
    loads = [asyncio.create_task(run_load(context, task)) for context, task in zip(contexts, tasks, strict=True)]
    try:
        for _ in range(3):
            for context in contexts:
                context.first_second.clear()
            await asyncio.gather(*(context.first_second.wait() for context in contexts))
        instants = await asyncio.to_thread(proxy.stall, STALL_S)
        results = await asyncio.gather(*loads)
    finally:
        for context in contexts:
            for resource in context.resources.values():
                await resource.close(keep_data=False)
    found = [(load, series_of(load, context.seconds)) for load, context in zip(results, contexts, strict=True)]
    return instants, [(load, series) for load, series in found if series is not None]


def measured(instants: Instants, load: LoadResult, series: BinSeries) -> Effect:
    begins_ns, healed_ns = (at_ns - load.measure_start_ns for at_ns in instants)
    return effect(series, Occurrence(fault="f", number=1, begins_ns=begins_ns, healed_ns=healed_ns))


async def test_a_stall_of_3_s_is_an_outage_of_3_s_within_one_intended_interval(
    proxy: StallingProxy, hlr_database: str, spec: Spec, tmp_path: Path
) -> None:
    dsn = make_conninfo(hlr_database, host="127.0.0.1", port=proxy.port)
    off: list[float] = []
    for _ in range(TRIES):
        instants, found = await stalled(proxy, dsn, spec, tmp_path)
        stall_ns = instants[1] - instants[0]
        assert len(found) == len(RATES)
        gaps = []
        for rate, (load, series) in zip(RATES, found, strict=True):
            held = measured(instants, load, series)
            interval_ns = 1e9 / rate if rate else 0.0
            before = series.table[: series.index(instants[0] - load.measure_start_ns), bins.SLOWEST]
            assert held.outage_ns is not None
            assert not held.outage_at_least
            assert held.failed == 0
            assert held.detection_ns is not None
            assert held.detection_ns <= stall_ns
            gaps.append((held.outage_ns - stall_ns - interval_ns - int(before.max())) / 1e6)
            gaps.append((stall_ns - interval_ns - held.outage_ns) / 1e6)
        off.append(max(gaps))
        if off[-1] <= 0.0:
            break
    assert min(off) <= 0.0, f"ms outside of one interval and the slowest usual response: {off}"
