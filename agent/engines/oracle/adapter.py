"""Oracle Database's adapter."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from proveout.agent.daemon.tasks import TaskContext
from proveout.agent.engines.adapter import (
    CapturesSizes,
    CapturesStatements,
    CapturesWaits,
    Catalogue,
    Checkpoints,
    DescribesSchema,
    EngineAdapter,
    Loader,
    MakesReports,
    Observer,
    OpensCursors,
    OpensQueries,
    Populates,
    QuerySession,
    RedactsDsn,
    ReportSession,
    Settings,
    StatementSession,
    require_client,
)
from proveout.dsl.workloads.base import Population
from proveout.proto.wire.tasks import Endpoint

if TYPE_CHECKING:
    from proveout.agent.engines.oracle.driver import OracleDriver


class OracleAdapter(
    EngineAdapter,
    Populates,
    Checkpoints,
    OpensCursors,
    CapturesWaits,
    OpensQueries,
    DescribesSchema,
    CapturesSizes,
    MakesReports,
    RedactsDsn,
    CapturesStatements,
):
    """See `adapter` for the protocols. All work goes through python-oracledb in thin mode."""

    requirement = "proveout[oracle]"
    disk_full_codes = frozenset(
        {"ORA-00257", "ORA-01652", "ORA-01653", "ORA-01654", "ORA-01691", "ORA-19809", "ORA-30036"}
    )
    reports_effects = False
    wait_look_every_s = None

    def driver(self) -> OracleDriver:
        from proveout.agent.engines.oracle.driver import OracleDriver

        return OracleDriver()

    async def settings(self, endpoint: Endpoint) -> Settings:
        _require_client()
        from proveout.agent.engines.oracle.sql import settings

        return await asyncio.to_thread(settings, endpoint)

    async def run_sql(self, context: TaskContext, endpoint: Endpoint, statements: tuple[str, ...]) -> tuple[int, ...]:
        del context
        _require_client()
        from proveout.agent.engines.oracle.sql import run_statements

        return await asyncio.to_thread(run_statements, endpoint, statements)

    async def checkpoint(self, endpoint: Endpoint) -> None:
        _require_client()
        from proveout.agent.engines.oracle.sql import checkpoint

        await asyncio.to_thread(checkpoint, endpoint)

    def loader(self, dsn: str, population: Population) -> Loader:
        from proveout.agent.engines.oracle.populate import OracleLoader

        return OracleLoader(dsn, population)

    @contextmanager
    def cursor(self, endpoint: Endpoint) -> Iterator[Any]:
        _require_client()
        from proveout.agent.engines.oracle.sql import connected

        with connected(endpoint, "tuning") as connection, connection.cursor() as cursor:
            yield cursor

    def query_session(self, endpoint: Endpoint) -> QuerySession:
        _require_client()
        from proveout.agent.engines.oracle.sql import OracleQueries

        return OracleQueries(endpoint)

    def wait_observer(self, endpoint: Endpoint) -> Observer:
        _require_client()
        from proveout.agent.engines.oracle.captures import OracleObserver

        return OracleObserver(endpoint)

    def schema_query(self) -> str:
        from proveout.agent.engines.oracle.sql import SCHEMA

        return SCHEMA

    def size_catalogue(self, endpoint: Endpoint) -> Catalogue:
        _require_client()
        from proveout.agent.engines.oracle.captures import SizeCatalogue

        return SizeCatalogue(endpoint)

    def report_session(self, endpoint: Endpoint, container: str) -> ReportSession:
        _require_client()
        from proveout.agent.engines.oracle.captures import AwrSession

        return AwrSession(endpoint, container)

    def statement_session(self, endpoint: Endpoint) -> StatementSession:
        _require_client()
        from proveout.agent.engines.oracle.captures import OracleStatements

        return OracleStatements(endpoint)

    def public_dsn(self, dsn: str) -> str:
        return public_dsn(dsn)


def _require_client() -> None:
    require_client("oracledb", "Oracle client python-oracledb", "oracle")


def public_dsn(dsn: str) -> str:
    """Return `user@target` of `user/password@target`, which is divided at the first `/` and the last `@`; "" for
    another form."""
    user, slash, rest = dsn.partition("/")
    _, at, target = rest.rpartition("@")
    return f"{user}@{target}" if slash and at and "@" not in user else ""
