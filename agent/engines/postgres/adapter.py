"""PostgreSQL's adapter."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proveout.agent.daemon.tasks import TaskContext
from proveout.agent.engines.adapter import (
    LOOK_EVERY_S,
    CapturesLag,
    CapturesSizes,
    CapturesWaits,
    Catalogue,
    Checkpoints,
    EngineAdapter,
    Loader,
    Observer,
    OpensCursors,
    Populates,
    Propagates,
    ProvisionedSystem,
    Provisions,
    RedactsDsn,
    Settings,
    require_client,
)
from proveout.agent.engines.postgres.public_dsn import public_dsn
from proveout.dsl.plan.topology import System
from proveout.dsl.workloads.base import Population
from proveout.proto.wire.results import Compared
from proveout.proto.wire.tasks import CompareSystems, Endpoint, LinkSystems

if TYPE_CHECKING:
    from proveout.agent.engines.postgres.driver import PostgresDriver


class PostgresAdapter(
    EngineAdapter,
    Provisions,
    Populates,
    Checkpoints,
    OpensCursors,
    CapturesWaits,
    CapturesSizes,
    CapturesLag,
    Propagates,
    RedactsDsn,
):
    """See `adapter` for the protocols. All work but provisioning goes through psycopg."""

    requirement = "proveout[postgres]"
    disk_full_codes = frozenset({"53100"})
    reports_effects = True
    wait_look_every_s = LOOK_EVERY_S

    def driver(self) -> PostgresDriver:
        from proveout.agent.engines.postgres.driver import PostgresDriver

        return PostgresDriver()

    async def settings(self, endpoint: Endpoint) -> Settings:
        _require_client()
        from proveout.agent.engines.postgres.sql import server_settings

        return await server_settings(endpoint)

    async def run_sql(self, context: TaskContext, endpoint: Endpoint, statements: tuple[str, ...]) -> tuple[int, ...]:
        _require_client()
        from proveout.agent.engines.postgres.sql import run_all

        return await run_all(context, endpoint, statements)

    async def checkpoint(self, endpoint: Endpoint) -> None:
        _require_client()
        from proveout.agent.engines.postgres.sql import write_out

        await write_out(endpoint)

    def provision(self, system: System, data_root: Path, on_death: Callable[[str], None]) -> ProvisionedSystem:
        _require_client()
        from proveout.agent.engines.postgres.provision import EmbeddedPostgres

        return EmbeddedPostgres(system, data_root, on_death=on_death)

    def loader(self, dsn: str, population: Population) -> Loader:
        from proveout.agent.engines.postgres.populate import PostgresLoader

        return PostgresLoader(dsn, population)

    @contextmanager
    def cursor(self, endpoint: Endpoint) -> Iterator[Any]:
        _require_client()
        from proveout.agent.engines.postgres.connection import cursor

        with cursor(endpoint, "tuning") as opened:
            yield opened

    def wait_observer(self, endpoint: Endpoint) -> Observer:
        _require_client()
        from proveout.agent.engines.postgres.waits import WaitObserver

        return WaitObserver(endpoint)

    def size_catalogue(self, endpoint: Endpoint) -> Catalogue:
        _require_client()
        from proveout.agent.engines.postgres.sql import SizeCatalogue

        return SizeCatalogue(endpoint)

    def lag_observer(self, source: Endpoint, sink: Endpoint) -> Observer:
        _require_client()
        from proveout.agent.engines.postgres.lag import LagObserver

        return LagObserver(source, sink)

    def with_keys(self, spec: LinkSystems) -> LinkSystems:
        from proveout.agent.engines.postgres.roles import with_keys

        return with_keys(spec)

    async def link(self, context: TaskContext, spec: LinkSystems) -> None:
        """Where an end is not provisioned by the run, the link is removed when the session ends."""
        _require_client()
        from proveout.agent.engines.postgres.propagation import Link, link, tables_of

        if not (spec.source.provisioned and spec.sink.provisioned):
            context.resources[f"link:{spec.source.system}:{spec.sink.system}"] = Link(spec)
        await link(context, spec, await asyncio.to_thread(tables_of, spec.workload))

    async def compare(self, context: TaskContext, spec: CompareSystems) -> Compared:
        _require_client()
        from proveout.agent.engines.postgres.comparison import compare
        from proveout.agent.engines.postgres.propagation import tables_of

        tables = await asyncio.to_thread(tables_of, spec.workload)
        return await compare(context, spec.source, spec.sink, tables, spec.drain_timeout_s)

    def public_dsn(self, dsn: str) -> str:
        return public_dsn(dsn)


def _require_client() -> None:
    require_client("psycopg", "PostgreSQL client psycopg", "postgres")
