"""SQLite's adapter."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proveout.agent.daemon.tasks import TaskContext
from proveout.agent.engines.adapter import (
    CapturesSizes,
    Catalogue,
    Checkpoints,
    DescribesSchema,
    EngineAdapter,
    FileProblem,
    Loader,
    OpensCursors,
    OpensNamedFiles,
    OpensQueries,
    Populates,
    ProvisionedSystem,
    Provisions,
    QuerySession,
    RedactsDsn,
    Settings,
)
from proveout.dsl.plan.topology import System
from proveout.dsl.workloads.base import Population
from proveout.proto.wire.tasks import Endpoint

if TYPE_CHECKING:
    from proveout.agent.engines.sqlite.driver import SqliteDriver


class SqliteAdapter(
    EngineAdapter,
    Provisions,
    Populates,
    Checkpoints,
    OpensCursors,
    OpensQueries,
    DescribesSchema,
    CapturesSizes,
    OpensNamedFiles,
    RedactsDsn,
):
    """See `adapter` for the protocols. The engine runs in the process that opens the file, through apsw."""

    requirement = "apsw"
    disk_full_codes = frozenset({"SQLITE_FULL", "SQLITE_IOERR_SHMSIZE"})
    reports_effects = False

    def driver(self) -> SqliteDriver:
        from proveout.agent.engines.sqlite.driver import SqliteDriver

        return SqliteDriver()

    async def settings(self, endpoint: Endpoint) -> Settings:
        from proveout.agent.engines.sqlite.sql import file_settings

        return await asyncio.to_thread(file_settings, endpoint.dsn)

    async def run_sql(self, context: TaskContext, endpoint: Endpoint, statements: tuple[str, ...]) -> tuple[int, ...]:
        del context
        from proveout.agent.engines.sqlite.sql import run_statements

        return await asyncio.to_thread(run_statements, endpoint.dsn, statements)

    async def checkpoint(self, endpoint: Endpoint) -> None:
        from proveout.agent.engines.sqlite.sql import checkpoint_file

        await asyncio.to_thread(checkpoint_file, endpoint.dsn)

    def provision(self, system: System, data_root: Path, on_death: Callable[[str], None]) -> ProvisionedSystem:
        del on_death  # a file has no server
        from proveout.agent.engines.sqlite.sql import EmbeddedSqlite

        return EmbeddedSqlite(system, data_root)

    def loader(self, dsn: str, population: Population) -> Loader:
        from proveout.agent.engines.sqlite.populate import SqliteLoader

        return SqliteLoader(dsn, population)

    @contextmanager
    def cursor(self, endpoint: Endpoint) -> Iterator[Any]:
        from proveout.agent.engines.sqlite.sql import cursor

        with cursor(endpoint.dsn) as opened:
            yield opened

    def public_dsn(self, dsn: str) -> str:
        return dsn  # a path

    def file_problems(self, dsn: str, *, changes: bool) -> Iterable[FileProblem]:
        from proveout.agent.engines.sqlite.sql import problems

        return problems(Path(dsn), changes=changes)

    def copy_file(self, dsn: str, copy: Path) -> None:
        from proveout.agent.engines.sqlite.sql import copy_file

        copy_file(Path(dsn), copy)

    def restore_file(self, dsn: str, copy: Path) -> None:
        from proveout.agent.engines.sqlite.sql import restore_file

        restore_file(Path(dsn), copy)

    def query_session(self, endpoint: Endpoint) -> QuerySession:
        from proveout.agent.engines.sqlite.sql import SqliteQueries

        return SqliteQueries(endpoint)

    def schema_query(self) -> str:
        from proveout.agent.engines.sqlite.sql import SCHEMA

        return SCHEMA

    def size_catalogue(self, endpoint: Endpoint) -> Catalogue:
        from proveout.agent.engines.sqlite.sql import SizeCatalogue

        return SizeCatalogue(endpoint)
