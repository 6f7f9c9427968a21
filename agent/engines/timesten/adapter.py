"""TimesTen's adapter."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from proveout.agent.daemon.tasks import TaskContext
from proveout.agent.engines.adapter import (
    CapturesLag,
    Checkpoints,
    EngineAdapter,
    Loader,
    MakesReports,
    Observer,
    OpensCursors,
    OpensQueries,
    OwnsProcess,
    Populates,
    QuerySession,
    RedactsDsn,
    ReportSession,
    Settings,
)
from proveout.agent.engines.oracle.adapter import public_dsn
from proveout.agent.engines.timesten import sql
from proveout.dsl.workloads.base import Population
from proveout.proto.wire.tasks import Endpoint

if TYPE_CHECKING:
    from proveout.agent.engines.timesten.driver import TimesTenDriver


class TimesTenAdapter(
    EngineAdapter,
    Checkpoints,
    OpensCursors,
    OpensQueries,
    CapturesLag,
    MakesReports,
    OwnsProcess,
    Populates,
    RedactsDsn,
):
    """See `adapter` for the protocols. Settings and statements go through a process of its own (`timesten.sql`)."""

    requirement = "proveout[oracle]"
    disk_full_codes: frozenset[str] = frozenset()
    reports_effects = False

    def driver(self) -> TimesTenDriver:
        from proveout.agent.engines.timesten.driver import TimesTenDriver

        return TimesTenDriver()

    async def settings(self, endpoint: Endpoint) -> Settings:
        return await sql.settings(endpoint)

    async def run_sql(self, context: TaskContext, endpoint: Endpoint, statements: tuple[str, ...]) -> tuple[int, ...]:
        del context
        return await sql.run_statements(endpoint, statements)

    async def checkpoint(self, endpoint: Endpoint) -> None:
        await sql.run_statements(endpoint, ("CALL ttCkpt",))

    @contextmanager
    def cursor(self, endpoint: Endpoint) -> Iterator[Any]:
        from proveout.agent.engines.oracle.sql import connected
        from proveout.agent.engines.timesten.driver import open_thick

        with connected(endpoint, "tuning", open_thick) as connection, connection.cursor() as cursor:
            yield cursor

    def query_session(self, endpoint: Endpoint) -> QuerySession:
        from proveout.agent.engines.oracle.sql import OracleQueries
        from proveout.agent.engines.timesten.driver import open_thick

        return OracleQueries(endpoint, open_thick)

    def report_session(self, endpoint: Endpoint, container: str) -> ReportSession:
        del container
        from proveout.agent.engines.timesten.captures import StatsSession

        return StatsSession(endpoint)

    def lag_observer(self, source: Endpoint, sink: Endpoint) -> Observer:
        from proveout.agent.engines.timesten.captures import observer

        return observer(source, sink)

    def claim_process(self) -> None:
        sql.speak_here()

    def loader(self, dsn: str, population: Population) -> Loader:
        from proveout.agent.engines.timesten.driver import TimesTenLoader

        return TimesTenLoader(dsn, population)

    def public_dsn(self, dsn: str) -> str:
        return public_dsn(dsn)
