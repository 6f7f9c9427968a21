"""The adapter of MySQL and MariaDB."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from proveout.agent.daemon.tasks import TaskContext
from proveout.agent.engines.adapter import (
    CapturesLag,
    CapturesSizes,
    Catalogue,
    Checkpoints,
    EngineAdapter,
    FindsServer,
    Loader,
    Observer,
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
    from proveout.agent.engines.mysql.driver import MysqlDriver


class MysqlAdapter(
    EngineAdapter, Provisions, FindsServer, Populates, Checkpoints, OpensQueries, CapturesSizes, CapturesLag
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

    def query_session(self, endpoint: Endpoint) -> QuerySession:
        _require_client()
        from proveout.agent.engines.mysql.sql import MysqlQueries

        return MysqlQueries(endpoint)

    def size_catalogue(self, endpoint: Endpoint) -> Catalogue:
        _require_client()
        from proveout.agent.engines.mysql.sql import SizeCatalogue

        return SizeCatalogue(endpoint)

    def lag_observer(self, source: Endpoint, sink: Endpoint) -> Observer:
        _require_client()
        from proveout.agent.engines.mysql.lag import LagObserver

        return LagObserver(source, sink)


def _require_client() -> None:
    require_client("pymysql", "MySQL client PyMySQL", "mysql")
