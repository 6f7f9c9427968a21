"""The adapter of MySQL and MariaDB."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from proveout.agent.daemon.tasks import TaskContext
from proveout.agent.engines.adapter import (
    CapturesLag,
    CapturesSizes,
    CapturesStatements,
    Catalogue,
    Checkpoints,
    DescribesSchema,
    EngineAdapter,
    FindsServer,
    Loader,
    Observer,
    OpensCursors,
    OpensQueries,
    Populates,
    ProvisionedSystem,
    Provisions,
    QuerySession,
    RedactsDsn,
    Settings,
    StatementSession,
    require_client,
)
from proveout.dsl.plan.topology import System
from proveout.dsl.workloads.base import Population
from proveout.proto.wire.tasks import Endpoint

if TYPE_CHECKING:
    from proveout.agent.engines.mysql.driver import MysqlDriver


class MysqlAdapter(
    EngineAdapter,
    Provisions,
    FindsServer,
    Populates,
    Checkpoints,
    OpensCursors,
    OpensQueries,
    DescribesSchema,
    CapturesSizes,
    CapturesLag,
    RedactsDsn,
    CapturesStatements,
):
    """See `adapter` for the protocols. Provisioning starts the host's own MariaDB; all other work goes through
    PyMySQL."""

    requirement = "proveout[mysql]"
    disk_full_codes = frozenset({"3", "28", "1021", "1114"})
    reports_effects = False

    def driver(self) -> MysqlDriver:
        from proveout.agent.engines.mysql.driver import MysqlDriver

        return MysqlDriver()

    async def settings(self, endpoint: Endpoint) -> Settings:
        _require_client()
        from proveout.agent.engines.mysql.sql import server_settings

        return await asyncio.to_thread(server_settings, endpoint)

    async def run_sql(self, context: TaskContext, endpoint: Endpoint, statements: tuple[str, ...]) -> tuple[int, ...]:
        del context
        _require_client()
        from proveout.agent.engines.mysql.sql import run_all

        return await asyncio.to_thread(run_all, endpoint, statements)

    async def checkpoint(self, endpoint: Endpoint) -> None:
        _require_client()
        from proveout.agent.engines.mysql.sql import write_out

        await asyncio.to_thread(write_out, endpoint)

    def provision(self, system: System, data_root: Path, on_death: Callable[[str], None]) -> ProvisionedSystem:
        _require_client()
        from proveout.agent.engines.mysql.provision import EmbeddedMysql

        return EmbeddedMysql(system, data_root, on_death=on_death)

    def server_program(self) -> Path:
        from proveout.agent.engines.mysql.provision import find_programs

        return find_programs().server

    def loader(self, dsn: str, population: Population) -> Loader:
        from proveout.agent.engines.mysql.populate import MysqlLoader

        return MysqlLoader(dsn, population)

    @contextmanager
    def cursor(self, endpoint: Endpoint) -> Iterator[Any]:
        _require_client()
        from proveout.agent.engines.mysql.sql import connected

        with connected(endpoint) as connection, connection.cursor() as cursor:
            yield cursor

    def statement_session(self, endpoint: Endpoint) -> StatementSession:
        _require_client()
        from proveout.agent.engines.mysql.captures import MysqlStatements

        return MysqlStatements(endpoint)

    def public_dsn(self, dsn: str) -> str:
        return public_dsn(dsn)

    def query_session(self, endpoint: Endpoint) -> QuerySession:
        _require_client()
        from proveout.agent.engines.mysql.sql import MysqlQueries

        return MysqlQueries(endpoint)

    def schema_query(self) -> str:
        from proveout.agent.engines.mysql.sql import SCHEMA

        return SCHEMA

    def size_catalogue(self, endpoint: Endpoint) -> Catalogue:
        _require_client()
        from proveout.agent.engines.mysql.sql import SizeCatalogue

        return SizeCatalogue(endpoint)

    def lag_observer(self, source: Endpoint, sink: Endpoint) -> Observer:
        _require_client()
        from proveout.agent.engines.mysql.captures import LagObserver

        return LagObserver(source, sink)


def _require_client() -> None:
    require_client("pymysql", "MySQL client PyMySQL", "mysql")


def public_dsn(dsn: str) -> str:
    """Return a dsn without its password and options; "" when it cannot be taken apart."""
    try:
        parts = urlsplit(dsn)
        port = "" if parts.port is None else f":{parts.port}"
        socket = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query))).get("unix_socket", "")
    except ValueError:
        return ""
    if not parts.scheme or not parts.username:
        return ""
    options = f"?{urlencode({'unix_socket': socket})}" if socket else ""
    return f"{parts.scheme}://{parts.username}@{parts.hostname or ''}{port}{parts.path}{options}"
