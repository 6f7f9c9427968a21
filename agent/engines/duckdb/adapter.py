"""DuckDB's adapter."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from proveout.agent.daemon.tasks import TaskContext
from proveout.agent.engines.adapter import (
    CapturesSizes,
    Catalogue,
    Checkpoints,
    DescribesSchema,
    EngineAdapter,
    Loader,
    OpensQueries,
    Populates,
    ProvisionedSystem,
    Provisions,
    QuerySession,
    Settings,
    require_client,
)
from proveout.dsl.plan.topology import System
from proveout.dsl.workloads.base import Population
from proveout.proto.wire.tasks import Endpoint

if TYPE_CHECKING:
    from proveout.agent.engines.duckdb.driver import DuckdbDriver


class DuckdbAdapter(EngineAdapter, Provisions, Populates, Checkpoints, OpensQueries, DescribesSchema, CapturesSizes):
    """See `adapter` for the protocols. The engine runs in the process that opens the file."""

    requirement = "proveout[olap]"
    disk_full_codes = frozenset({"DUCKDB_FULL"})
    reports_effects = False

    def driver(self) -> DuckdbDriver:
        from proveout.agent.engines.duckdb.driver import DuckdbDriver

        return DuckdbDriver()

    async def settings(self, endpoint: Endpoint) -> Settings:
        _require()
        from proveout.agent.engines.duckdb.sql import file_settings

        return await asyncio.to_thread(file_settings, endpoint.dsn)

    async def run_sql(self, context: TaskContext, endpoint: Endpoint, statements: tuple[str, ...]) -> tuple[int, ...]:
        del context
        _require()
        from proveout.agent.engines.duckdb.sql import run_statements

        return await asyncio.to_thread(run_statements, endpoint.dsn, statements)

    async def checkpoint(self, endpoint: Endpoint) -> None:
        _require()
        from proveout.agent.engines.duckdb.sql import checkpoint_file

        await asyncio.to_thread(checkpoint_file, endpoint.dsn)

    def provision(self, system: System, data_root: Path, on_death: Callable[[str], None]) -> ProvisionedSystem:
        del on_death  # a file has no server
        _require()
        from proveout.agent.engines.duckdb.sql import EmbeddedDuckdb

        return EmbeddedDuckdb(system, data_root)

    def loader(self, dsn: str, population: Population) -> Loader:
        _require()
        from proveout.agent.engines.duckdb.populate import DuckdbLoader

        return DuckdbLoader(dsn, population)

    def query_session(self, endpoint: Endpoint) -> QuerySession:
        _require()
        from proveout.agent.engines.duckdb.sql import DuckdbQueries

        return DuckdbQueries(endpoint)

    def schema_query(self) -> str:
        from proveout.agent.engines.duckdb.sql import SCHEMA

        return SCHEMA

    def size_catalogue(self, endpoint: Endpoint) -> Catalogue:
        _require()
        from proveout.agent.engines.duckdb.sql import SizeCatalogue

        return SizeCatalogue(endpoint)


def _require() -> None:
    """TaskFault `missing` without the client library, which is an extra of proveout."""
    require_client("duckdb", "DuckDB library", "olap")
