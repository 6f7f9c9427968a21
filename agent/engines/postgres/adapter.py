"""PostgreSQL's adapter."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from proveout.agent.daemon.tasks import TaskContext
from proveout.agent.engines.adapter import (
    LOOK_EVERY_S,
    CapturesLag,
    CapturesSizes,
    CapturesStatements,
    CapturesWaits,
    Catalogue,
    Checkpoints,
    CopiesData,
    DataCopy,
    DescribesSchema,
    EngineAdapter,
    FindsServer,
    Loader,
    Observer,
    OpensCursors,
    OpensQueries,
    Populates,
    Propagates,
    ProvisionedSystem,
    Provisions,
    QuerySession,
    RedactsDsn,
    Settings,
    StatementSession,
    require_client,
)

if TYPE_CHECKING:  # populate workers import this module, and start faster without these
    from proveout.agent.engines.postgres.driver import PostgresDriver
    from proveout.dsl.plan.topology import System
    from proveout.dsl.workloads.base import Population
    from proveout.proto.wire.results import Compared
    from proveout.proto.wire.tasks import CompareSystems, Endpoint, LinkSystems

DSN_KEPT = (
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "service",
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "passfile",
)
_WORD = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*=\s*('(?:[^'\\]|\\.)*'|(?:[^\s'\\]|\\.)*)(?=\s|$)\s*", re.DOTALL)


class PostgresAdapter(
    EngineAdapter,
    Provisions,
    FindsServer,
    Populates,
    Checkpoints,
    CopiesData,
    OpensCursors,
    CapturesWaits,
    OpensQueries,
    DescribesSchema,
    CapturesSizes,
    CapturesLag,
    Propagates,
    RedactsDsn,
    CapturesStatements,
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

    def data_copy(self, endpoint: Endpoint, run: str) -> DataCopy:
        _require_client()
        from proveout.agent.engines.postgres.copies import TemplateCopy

        return TemplateCopy(endpoint, run)

    def provision(self, system: System, data_root: Path, on_death: Callable[[str], None]) -> ProvisionedSystem:
        _require_client()
        if system.in_front_of is not None:
            from proveout.agent.engines.pgbouncer import EmbeddedPooler

            return EmbeddedPooler(system, data_root, on_death=on_death)
        from proveout.agent.engines.postgres.provision import EmbeddedPostgres

        return EmbeddedPostgres(system, data_root, on_death=on_death)

    def server_program(self) -> Path:
        from proveout.agent.engines.postgres.installation import find_installation

        return find_installation().programs / "postgres"

    def loader(self, dsn: str, population: Population) -> Loader:
        from proveout.agent.engines.postgres.populate import PostgresLoader

        return PostgresLoader(dsn, population)

    @contextmanager
    def cursor(self, endpoint: Endpoint) -> Iterator[Any]:
        _require_client()
        from proveout.agent.engines.postgres.sql import cursor

        with cursor(endpoint, "tuning") as opened:
            yield opened

    def query_session(self, endpoint: Endpoint) -> QuerySession:
        _require_client()
        from proveout.agent.engines.postgres.sql import PostgresQueries

        return PostgresQueries(endpoint)

    def wait_observer(self, endpoint: Endpoint) -> Observer:
        _require_client()
        from proveout.agent.engines.postgres.captures import WaitObserver

        return WaitObserver(endpoint)

    def schema_query(self) -> str:
        from proveout.agent.engines.postgres.sql import SCHEMA

        return SCHEMA

    def size_catalogue(self, endpoint: Endpoint) -> Catalogue:
        _require_client()
        from proveout.agent.engines.postgres.sql import SizeCatalogue

        return SizeCatalogue(endpoint)

    def lag_observer(self, source: Endpoint, sink: Endpoint) -> Observer:
        _require_client()
        from proveout.agent.engines.postgres.captures import LagObserver

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
        from proveout.agent.engines.postgres.propagation import compare, tables_of

        tables = await asyncio.to_thread(tables_of, spec.workload)
        return await compare(context, spec.source, spec.sink, tables, spec.drain_timeout_s)

    def statement_session(self, endpoint: Endpoint) -> StatementSession:
        _require_client()
        from proveout.agent.engines.postgres.captures import PostgresStatements

        return PostgresStatements(endpoint)

    def public_dsn(self, dsn: str) -> str:
        return public_dsn(dsn)


def _require_client() -> None:
    require_client("psycopg", "PostgreSQL client psycopg", "postgres")


def public_dsn(dsn: str) -> str:
    """Return a dsn without its secrets; "" when it cannot be taken apart.

    Forms: `postgresql://user:password@host:port/db?…` and libpq's `host=… password=…` (PostgreSQL manual, "Connection
    Strings").
    """
    return _uri(dsn) if dsn.startswith(("postgres://", "postgresql://")) else _words(dsn)


def _uri(dsn: str) -> str:
    try:
        parts = urlsplit(dsn)
        given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        return ""
    before, at, hosts = parts.netloc.rpartition("@")
    user = before.partition(":")[0]
    if "@" in user or parts.fragment:  # a password with characters that had to be quoted: where it ends is not known
        return ""
    query = urlencode([(name, value) for name, value in given if name in DSN_KEPT], quote_via=quote)
    return f"{parts.scheme}://{user}{at}{hosts}{parts.path}{'?' if query else ''}{query}"


def _words(dsn: str) -> str:
    found = dict(_pairs(dsn))
    return " ".join(f"{name}={found[name]}" for name in DSN_KEPT if name in found)


def _pairs(dsn: str) -> Iterator[tuple[str, str]]:
    """Name and value as it is written; nothing for what is not made of such words."""
    position, found = 0, []
    while position < len(dsn.rstrip()):
        match = _WORD.match(dsn, position)
        if match is None:
            return
        found.append((match[1], match[2]))
        position = match.end()
    yield from found
