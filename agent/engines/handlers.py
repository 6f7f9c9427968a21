"""The tasks about systems: start, stop, inspect, save and restore, SQL, checkpoint, link, compare.

Flow: each handler takes `(context, spec)` as `agent.daemon.tasks` says. A provisioned system is the resource `system:<name>` of the
session; its close ends the server. Engines are imported when their first task comes: an agent needs the client of the engine
that it serves, and of no other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Protocol, cast

from proveout.agent.daemon.tasks import Resource, TaskContext, TaskFault
from proveout.agent.engines import data_store, driver_sql
from proveout.agent.engines.confinement import landlock_version
from proveout.agent.engines.table import is_built_in
from proveout.agent.engines.timesten import sql as timesten
from proveout.agent.sandbox import privileges
from proveout.dsl.plan.plan import System
from proveout.proto.wire.results import Compared, Done, SqlDone, SystemStarted
from proveout.proto.wire.tasks import (
    Checkpoint,
    CompareSystems,
    Endpoint,
    InspectSystem,
    LinkSystems,
    RunSql,
    SnapshotSystem,
    StartSystem,
    StopSystem,
)


class Embedded(Resource, Protocol):
    """A system that this agent has provisioned."""

    @property
    def fresh(self) -> bool:
        """Whether its data was initialised by this start."""
        ...

    @property
    def death(self) -> str | None:
        """How its server ended by itself; None while all is well."""
        ...

    async def start(self) -> Endpoint:
        """Start it, or say where it is."""
        ...

    async def save_snapshot(self) -> None:
        """Keep its data."""
        ...

    async def restore_snapshot(self) -> None:
        """Bring its kept data back."""
        ...


# ---- provisioned systems -------------------------------------------------------------------------------------------


async def start_system(context: TaskContext, spec: StartSystem) -> SystemStarted:
    """Start a system, initialising its data when there is none; one that runs already is answered as it is."""
    endpoint, fresh = await started(context, spec)
    return SystemStarted(endpoint=endpoint, settings=await _settings(endpoint), fresh=fresh)


async def started(context: TaskContext, spec: StartSystem) -> tuple[Endpoint, bool]:
    """`start_system` without asking it for its settings: where it is, and whether its data is new."""
    name = _resource_name(spec.system.name)
    embedded = _existing(context, spec.system.name) or _embedded(context, spec.system, Path(spec.data_root))
    # Registered before it starts, so that whatever ends the session now ends it as well.
    context.resources[name] = embedded
    try:
        endpoint = await embedded.start()
    except BaseException:
        context.resources.pop(name, None)
        raise
    return endpoint, embedded.fresh


async def stop_system(context: TaskContext, spec: StopSystem) -> Done:
    """Stop a system; with `remove` its data goes too, also when it was an earlier session that had started it."""
    began = time.monotonic()
    embedded = context.resources.pop(_resource_name(spec.system), None)
    if embedded is not None:
        await embedded.close(keep_data=not spec.remove)
    elif spec.remove:
        folder = await asyncio.to_thread(data_store.home, Path(spec.data_root), spec.system)
        await asyncio.to_thread(data_store.remove, folder)
    return Done(seconds=time.monotonic() - began)


async def snapshot_system(context: TaskContext, spec: SnapshotSystem) -> Done:
    """Save or restore the data of a system of this session; it answers at the same address afterwards."""
    began = time.monotonic()
    embedded = _existing(context, spec.system.name)
    if embedded is None:
        raise TaskFault("missing", f"system {spec.system.name!r} was not started here", way_out="start it first")
    with _explained(context, spec.system.name):
        await (embedded.save_snapshot() if spec.action == "save" else embedded.restore_snapshot())
    return Done(seconds=time.monotonic() - began)


def _resource_name(system: str) -> str:
    return f"system:{system}"


def _existing(context: TaskContext, system: str) -> Embedded | None:
    return cast("Embedded | None", context.resources.get(_resource_name(system)))


def _embedded(context: TaskContext, system: System, data_root: Path) -> Embedded:
    if system.engine == "sqlite":
        return _file_system(context, system, data_root)
    if system.engine not in {"postgres", "mysql"}:
        raise TaskFault(
            "missing", f"engine {system.engine!r} cannot be provisioned by this release", way_out="give it a dsn"
        )
    _check_user(context, system)
    loop = asyncio.get_running_loop()

    def on_death(text: str) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(context.log, "error", text)

    if system.engine == "mysql":
        _need_pymysql()
        from proveout.agent.engines.mysql.provision import EmbeddedMysql  # noqa: PLC0415 - see the module's head

        return EmbeddedMysql(system, data_root, on_death=on_death)
    _need_psycopg()
    from proveout.agent.engines.postgres.provision import EmbeddedPostgres  # noqa: PLC0415 - see the module's head

    return EmbeddedPostgres(system, data_root, on_death=on_death)


def _check_user(context: TaskContext, system: System) -> None:
    """Where nothing keeps a server from the files of the agent's user: TaskFault `refused`, or a warning if the policy allows it."""
    if privileges.account() is not None or landlock_version() > 0:
        return
    context.policy.allows_server_as_agent_user().require()
    text = f"the server of system {system.name!r} runs as the agent's own user, and this kernel has no Landlock:"
    context.log("warning", f"{text} SQL of the plan may reach that user's files")


def _file_system(context: TaskContext, system: System, data_root: Path) -> Embedded:
    if privileges.account() is not None:
        from proveout.agent.sandbox.sqlite_files import FileSystem  # noqa: PLC0415 - see the module's head

        return FileSystem(context, system, data_root)
    from proveout.agent.engines.sqlite.provision import EmbeddedSqlite  # noqa: PLC0415 - see the module's head

    return EmbeddedSqlite(system, data_root)


def _need_psycopg() -> None:
    """TaskFault when it is not there. It is not imported: where the agent has privileges, only its aides load a client."""
    if find_spec("psycopg") is None:
        raise TaskFault(
            "missing",
            "the PostgreSQL client psycopg is not installed on this host",
            way_out="install it with: pip install 'proveout[postgres]'",
        )


def _oracle() -> ModuleType:
    """The module of Oracle's statements; TaskFault where its client is not installed."""
    try:
        return import_module("proveout.agent.engines.oracle.sql")
    except ImportError:
        raise TaskFault(
            "missing",
            "the Oracle client python-oracledb is not installed on this host",
            way_out="install it with: pip install 'proveout[oracle]'",
        ) from None


def _need_pymysql() -> None:
    """As `_need_psycopg`."""
    if find_spec("pymysql") is None:
        raise TaskFault(
            "missing",
            "the MySQL client PyMySQL is not installed on this host",
            way_out="install it with: pip install 'proveout[mysql]'",
        )


@contextmanager
def _explained(context: TaskContext, *systems: str) -> Iterator[None]:
    """A fault of a task on a server that has died says so."""
    try:
        yield
    except TaskFault as fault:
        for system in systems:
            death = getattr(context.resources.get(_resource_name(system)), "death", None)
            if death:
                raise TaskFault(
                    "unreachable",
                    f"the server of system {system!r} is gone: {death}",
                    way_out="look at its server.log and at the host's memory (the kernel may have killed it)",
                ) from fault
        raise


# ---- any system ----------------------------------------------------------------------------------------------------


async def inspect_system(context: TaskContext, spec: InspectSystem) -> SystemStarted:
    """Connect to a system that runs already; its version and settings."""
    with _explained(context, spec.endpoint.system):
        settings = await _settings(spec.endpoint)
    version = dict(settings)["version"]
    endpoint = Endpoint(
        system=spec.endpoint.system, engine=spec.endpoint.engine, dsn=spec.endpoint.dsn, version=version
    )
    return SystemStarted(endpoint=endpoint, settings=settings, fresh=False)


async def _settings(endpoint: Endpoint) -> tuple[tuple[str, str], ...]:
    if endpoint.engine == "sqlite":
        from proveout.agent.engines.sqlite.provision import file_settings  # noqa: PLC0415 - see the module's head

        return await asyncio.to_thread(file_settings, endpoint.dsn)
    if endpoint.engine == "mysql":
        _need_pymysql()
        from proveout.agent.engines.mysql import sql as mysql_statements  # noqa: PLC0415 - see the module's head

        return await asyncio.to_thread(mysql_statements.server_settings, endpoint)
    if endpoint.engine == "oracle":
        return await asyncio.to_thread(_oracle().settings, endpoint)
    if endpoint.engine == "timesten":
        return await timesten.settings(endpoint)
    if not is_built_in(endpoint.engine):
        return await asyncio.to_thread(driver_sql.settings, endpoint)
    _need_psycopg()
    from proveout.agent.engines.postgres.sql import server_settings  # noqa: PLC0415

    return await server_settings(endpoint)


async def run_sql(context: TaskContext, spec: RunSql) -> SqlDone:
    """Run statements, each in its own transaction; rows returned or affected, per statement."""
    if spec.endpoint.engine == "sqlite":
        from proveout.agent.engines.sqlite.provision import run_statements  # noqa: PLC0415 - see the module's head

        return SqlDone(counts=await asyncio.to_thread(run_statements, spec.endpoint.dsn, spec.statements))
    if spec.endpoint.engine == "mysql":
        _need_pymysql()
        from proveout.agent.engines.mysql import sql as mysql_statements  # noqa: PLC0415 - see the module's head

        with _explained(context, spec.endpoint.system):
            return SqlDone(counts=await asyncio.to_thread(mysql_statements.run_all, spec.endpoint, spec.statements))
    if spec.endpoint.engine == "oracle":
        return SqlDone(counts=await asyncio.to_thread(_oracle().run_statements, spec.endpoint, spec.statements))
    if spec.endpoint.engine == "timesten":
        return SqlDone(counts=await timesten.run_statements(spec.endpoint, spec.statements))
    if not is_built_in(spec.endpoint.engine):
        return SqlDone(counts=await asyncio.to_thread(driver_sql.run_statements, spec.endpoint, spec.statements))
    _need_psycopg()
    from proveout.agent.engines.postgres.sql import run_all  # noqa: PLC0415

    with _explained(context, spec.endpoint.system):
        return SqlDone(counts=await run_all(context, spec.endpoint, spec.statements))


async def checkpoint(context: TaskContext, spec: Checkpoint) -> Done:
    """Have dirty pages written out."""
    began = time.monotonic()
    if spec.endpoint.engine == "sqlite":
        from proveout.agent.engines.sqlite.provision import checkpoint_file  # noqa: PLC0415 - see the module's head

        await asyncio.to_thread(checkpoint_file, spec.endpoint.dsn)
    elif spec.endpoint.engine == "mysql":
        _need_pymysql()
        from proveout.agent.engines.mysql import sql as mysql_statements  # noqa: PLC0415 - see the module's head

        with _explained(context, spec.endpoint.system):
            await asyncio.to_thread(mysql_statements.write_out, spec.endpoint)
    elif spec.endpoint.engine == "oracle":
        await asyncio.to_thread(_oracle().checkpoint, spec.endpoint)
    elif spec.endpoint.engine == "timesten":
        await timesten.run_statements(spec.endpoint, ("CALL ttCkpt",))
    elif is_built_in(spec.endpoint.engine):  # of other engines nothing is known that would write pages out
        _need_psycopg()
        from proveout.agent.engines.postgres.sql import write_out  # noqa: PLC0415

        with _explained(context, spec.endpoint.system):
            await write_out(spec.endpoint)
    return Done(seconds=time.monotonic() - began)


# ---- two systems ---------------------------------------------------------------------------------------------------


async def link_systems(context: TaskContext, spec: LinkSystems) -> Done:
    """Set up or renew propagation. Where an end is not ours, the link is taken away when the session ends."""
    began = time.monotonic()
    _need_two_postgres(spec.source, spec.sink)
    from proveout.agent.engines.postgres.propagation import Link, link, tables_of  # noqa: PLC0415 - see the module's head

    if not (spec.source.provisioned and spec.sink.provisioned):
        context.resources[f"link:{spec.source.system}:{spec.sink.system}"] = Link(spec)
    tables = await asyncio.to_thread(tables_of, spec.workload)
    with _explained(context, spec.source.system, spec.sink.system):
        await link(context, spec, tables)
    return Done(seconds=time.monotonic() - began)


async def compare_systems(context: TaskContext, spec: CompareSystems) -> Compared:
    """Await that all is applied, and compare every table."""
    _need_two_postgres(spec.source, spec.sink)
    from proveout.agent.engines.postgres.propagation import tables_of  # noqa: PLC0415
    from proveout.agent.engines.table_comparison import compare  # noqa: PLC0415 - see the module's head

    tables = await asyncio.to_thread(tables_of, spec.workload)
    with _explained(context, spec.source.system, spec.sink.system):
        return await compare(context, spec.source, spec.sink, tables, spec.drain_timeout_s)


def _need_two_postgres(source: Endpoint, sink: Endpoint) -> None:
    for end in (source, sink):
        if end.engine != "postgres":
            raise TaskFault("invalid", f"propagation is between two postgres systems; {end.system!r} is {end.engine}")
    _need_psycopg()
