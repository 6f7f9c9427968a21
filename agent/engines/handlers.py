"""The handlers of tasks about systems: start, stop, inspect, save and restore, SQL, checkpoint, link, compare."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, cast

from proveout.agent.daemon.tasks import TaskContext
from proveout.agent.engines.adapter import DataCopy, ProvisionedSystem, Settings, TakesRole, row_text
from proveout.agent.engines.embedded import data_store
from proveout.agent.engines.embedded.account import choose_account
from proveout.agent.engines.embedded.confinement import landlock_version
from proveout.agent.engines.embedded.data_store import ServerRole
from proveout.agent.engines.statement_errors import text_of_plan
from proveout.agent.engines.table import adapter
from proveout.agent.errors import TaskFault
from proveout.core import json_data
from proveout.dsl import engines
from proveout.dsl.plan.topology import System
from proveout.proto.wire.results import Compared, Done, SqlDone, SystemStarted
from proveout.proto.wire.tasks import (
    Checkpoint,
    CompareSystems,
    Endpoint,
    InspectSystem,
    LinkSystems,
    RestoreCopy,
    RunSql,
    SnapshotSystem,
    StartSystem,
    StopSystem,
)

ROWS_MAX = 100_000
OBJECTS_MAX = 1_000
"""More objects are not listed; their digest stands for them."""
TEXT_MAX = 2_000
MORE = "further objects"
NOT_UTF8 = ("22021", "UnicodeDecodeError")
"""The codes for names that are not UTF-8, which PostgreSQL has with the encoding SQL_ASCII, and an SQLite file."""

Schema = tuple[tuple[str, str], ...]


def read_schema(endpoint: Endpoint) -> Schema:
    """The objects of a database with their definitions, sorted by name; () for an engine without such a query.
    TaskFault."""
    engine = adapter(endpoint.engine)
    if not engine.stated.schema:
        return ()
    session = engine.query_session(endpoint)
    try:
        return objects(session.rows(engine.schema_query, ROWS_MAX)[1])
    finally:
        session.close()


def objects(rows: Sequence[Sequence[Any]]) -> Schema:
    """The objects of the rows of a `schema_query`.

    >>> objects([("table", "t", "a integer"), ("table", "t", "b text"), ("index", "i on t", "btree (a)")])
    (('index i on t', 'btree (a)'), ('table t', 'a integer, b text'))
    """
    found: dict[str, list[str]] = {}
    for kind, name, text, *_ in rows:
        found.setdefault(f"{row_text(kind)} {row_text(name)}", []).append(" ".join(row_text(text).split()))
    listed = sorted((name, _bounded(", ".join(filter(None, parts)))) for name, parts in found.items())
    if len(listed) <= OBJECTS_MAX:
        return tuple(listed)
    left = listed[OBJECTS_MAX:]
    return (*listed[:OBJECTS_MAX], (MORE, f"{len(left)}, {json_data.digest(left)}"))


def _bounded(text: str) -> str:
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}… {json_data.digest(text)}"


def state(endpoint: Endpoint, statement: str) -> tuple[bool, Sequence[str], str]:
    """`CopyState` as JSON data; `statement` is the run, as in the functions below."""
    found = _copy(endpoint, statement).state()
    return found.made, found.objections, found.text


def save(endpoint: Endpoint, statement: str) -> None:
    """See `adapter.DataCopy`."""
    _copy(endpoint, statement).save()


def release(endpoint: Endpoint, statement: str) -> None:
    """See `adapter.DataCopy`."""
    _copy(endpoint, statement).release()


async def restore_copy(context: TaskContext, spec: RestoreCopy) -> Done:
    """Make the data of a system again from the copy of this run."""
    run = context.key.partition("/")[0]
    return await _timed(asyncio.to_thread(_copy(spec.endpoint, run).restore))


async def _timed(step: Awaitable[object]) -> Done:
    began = time.monotonic()
    await step
    return Done(seconds=time.monotonic() - began)


def _copy(endpoint: Endpoint, run: str) -> DataCopy:
    return adapter(endpoint.engine).data_copy(endpoint, run)


Provisioner: TypeAlias = Callable[[TaskContext, System, Path], ProvisionedSystem]


# ---- provisioned systems -------------------------------------------------------------------------------------------


def provision(context: TaskContext, system: System, data_root: Path) -> ProvisionedSystem:
    """Return a system of this agent, not started yet. TaskFault `missing` for an engine that cannot be provisioned."""
    make = adapter(system.engine).provision
    if engines.of(system.engine).embedded == "server":
        _check_user(context, system)
    loop = asyncio.get_running_loop()

    def on_death(text: str) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(context.log, "error", text)

    return make(system, data_root, on_death=on_death)


def _check_user(context: TaskContext, system: System) -> None:
    """Check who runs a server that nothing keeps from the agent's own files: TaskFault `refused`, or a warning if the
    policy allows it."""
    if choose_account() is not None or landlock_version() > 0:
        return
    context.policy.allows_server_as_agent_user().require()
    text = f"the server of system {system.name!r} runs as the agent's own user, and this kernel has no Landlock:"
    context.log("warning", f"{text} SQL of the plan may reach that user's files")


async def settings_of(endpoint: Endpoint) -> Settings:
    return await adapter(endpoint.engine).settings(endpoint)


async def start_system(
    context: TaskContext,
    spec: StartSystem,
    make: Provisioner = provision,
    read: Callable[[Endpoint], Awaitable[Settings]] = settings_of,
) -> SystemStarted:
    """Start a system, and initialise its data when there is none; a system that runs already stays as it is. `make`
    provisions it, and `read` reads its settings."""
    name = resource_name(spec.system.name)
    system = _existing(context, spec.system.name) or make(context, spec.system, Path(spec.data_root))
    # Registered before it starts, so that the end of the session ends it too.
    context.resources[name] = system
    if isinstance(system, TakesRole):
        primary = spec.primary[0] if spec.primary else None
        role = ServerRole(primary=primary, standbys=spec.standbys, synchronous=spec.synchronous)
        system.take_role(role, spec.system)
    try:
        endpoint = await system.start()
    except BaseException:
        context.resources.pop(name, None)
        raise
    if by := getattr(system, "superseded_by", ""):
        return SystemStarted(endpoint=endpoint, fresh=False, superseded_by=by)
    fresh, note = system.fresh, getattr(system, "note", "")
    return SystemStarted(endpoint=endpoint, settings=await read(endpoint), fresh=fresh, note=note)


async def stop_system(context: TaskContext, spec: StopSystem) -> Done:
    """Stop a system; with `remove` delete its data too, also when an earlier session has started it."""
    began = time.monotonic()
    system = context.resources.pop(resource_name(spec.system), None)
    if system is not None:
        await system.close(keep_data=not spec.remove)
    elif spec.remove:
        folder = await asyncio.to_thread(data_store.home, Path(spec.data_root), spec.system)
        await asyncio.to_thread(data_store.remove, folder)
    return Done(seconds=time.monotonic() - began)


async def snapshot_system(context: TaskContext, spec: SnapshotSystem) -> Done:
    """Save or restore the data of a system of this session; its address stays the same."""
    if spec.system.is_named_file:
        return await _timed(asyncio.to_thread(_copy_or_restore, spec))
    system = _existing(context, spec.system.name)
    if system is None:
        raise TaskFault("missing", f"system {spec.system.name!r} was not started here", way_out="start it first")
    with explain_death(context, [spec.system.name]):
        return await _timed(system.save_snapshot() if spec.action == "save" else system.restore_snapshot())


def _copy_or_restore(spec: SnapshotSystem) -> None:
    """Copy a user's database file into the data root, or restore it."""
    files = adapter(spec.system.engine).files
    dsn, copy = str(spec.system.dsn), Path(spec.data_root) / f"{spec.system.name}.copy"
    if spec.action == "restore":
        if not copy.exists():
            raise TaskFault(
                "missing", f"this run has not copied {dsn}, so it cannot be restored", way_out="begin a new run"
            )
        files.restore_file(Path(dsn), copy)
    elif spec.action == "save" or not copy.exists():
        files.copy_file(Path(dsn), copy)


def resource_name(system: str) -> str:
    """Return the name of a provisioned system among the session's resources."""
    return f"system:{system}"


def _existing(context: TaskContext, system: str) -> ProvisionedSystem | None:
    return cast("ProvisionedSystem | None", context.resources.get(resource_name(system)))


@contextmanager
def explain_death(context: TaskContext, systems: Iterable[str]) -> Iterator[None]:
    """Replace a TaskFault of a task on a server that has died by one that reports its death."""
    try:
        yield
    except TaskFault as fault:
        for system in systems:
            death = getattr(context.resources.get(resource_name(system)), "death", None)
            if death:
                raise TaskFault(
                    "unreachable",
                    f"the server of system {system!r} is gone: {death}",
                    way_out="look at its server.log and at the host's memory (the kernel may have killed it)",
                ) from fault
        raise


# ---- any system ----------------------------------------------------------------------------------------------------


async def inspect_system(context: TaskContext, spec: InspectSystem) -> SystemStarted:
    """Connect to a running system; return its version and settings."""

    schema: tuple[tuple[str, str], ...] = ()
    with explain_death(context, [spec.endpoint.system]):
        settings = await settings_of(spec.endpoint)
        if spec.schema:
            try:
                schema = await asyncio.to_thread(read_schema, spec.endpoint)
            except TaskFault as fault:
                if fault.refusal not in NOT_UTF8:
                    raise
                context.log("warning", f"{fault.what}: no tables and indexes of it in the fingerprint")
    version = dict(settings)["version"]
    endpoint = Endpoint(
        system=spec.endpoint.system, engine=spec.endpoint.engine, dsn=spec.endpoint.dsn, version=version
    )
    return SystemStarted(endpoint=endpoint, settings=settings, fresh=False, schema=schema)


async def run_sql(context: TaskContext, spec: RunSql) -> SqlDone:
    """Run statements, each in its own transaction; wait; read the values of the query."""
    from proveout.agent.capture import query_values  # noqa: PLC0415 - it imports the table of engines, as this module does

    end = spec.endpoint
    with explain_death(context, [end.system]):
        began_s = time.monotonic()
        counts: tuple[int, ...] = ()
        if spec.statements:
            counts = await adapter(end.engine).run_sql(context, end, spec.statements)
        elapsed_s = time.monotonic() - began_s
        wait_s = 0.0
        if spec.wait_until.query:
            with text_of_plan(end.engine, "wait_until.query"):
                wait_s = await query_values.cancellable(partial(query_values.wait_until, end, spec.wait_until))
        values: tuple[tuple[str, float], ...] = ()
        if spec.query:
            with text_of_plan(end.engine, "query"):
                values = await query_values.cancellable(partial(query_values.values_of, end, spec.query, spec.values))
    return SqlDone(counts=counts, elapsed_s=elapsed_s, wait_s=wait_s, values=values)


async def checkpoint(context: TaskContext, spec: Checkpoint) -> Done:
    """Write dirty pages to disk; does nothing for an engine without checkpoints."""
    engine = adapter(spec.endpoint.engine)
    if not engine.stated.checkpoint:
        return Done(seconds=0.0)
    with explain_death(context, [spec.endpoint.system]):
        return await _timed(engine.checkpoint(spec.endpoint))


# ---- two systems ---------------------------------------------------------------------------------------------------


async def link_systems(context: TaskContext, spec: LinkSystems) -> Done:
    """Set propagation up, or renew it. Where an end is not provisioned, the link is removed when the session ends."""
    with explain_death(context, [spec.source.system, spec.sink.system]):
        return await _timed(adapter(spec.source.engine).propagation.link(context, spec))


async def compare_systems(context: TaskContext, spec: CompareSystems) -> Compared:
    """Wait until all changes are applied, and compare every table."""
    with explain_death(context, [spec.source.system, spec.sink.system]):
        return await adapter(spec.source.engine).propagation.compare(context, spec)
