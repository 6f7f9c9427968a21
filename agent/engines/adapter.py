"""The contract between proveout and an engine: the parts that an engine may have, and what they give.

Data flow: a task names an engine -> `table.adapter(name)` -> `adapter.stated.checkpoint`, whether it can ->
`adapter.checkpoint(endpoint)`, which imports the part. `dsl.engines` says what each engine can do, and where its parts
are.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

from proveout.agent.daemon.tasks import STOP_S, Resource
from proveout.agent.engines.driver_contract import Driver
from proveout.agent.errors import TaskFault
from proveout.core import errors
from proveout.core.data_classes import record
from proveout.dsl.engines import Engine

if TYPE_CHECKING:
    from proveout.agent.daemon.tasks import TaskContext
    from proveout.agent.engines.embedded.data_store import ServerRole
    from proveout.dsl.plan.topology import System
    from proveout.dsl.workloads.base import Population, Table
    from proveout.proto.wire.results import Compared, Reading
    from proveout.proto.wire.tasks import CompareSystems, Endpoint, LinkSystems


Settings: TypeAlias = tuple[tuple[str, str], ...]
"""(name, value) of a server, `version` among them, sorted by name."""

LOOK_EVERY_S = 0.1
"""Seconds between two looks of a capture that samples sessions or positions."""


# ---- what adapters give ----------------------------------------------------------------------------------------------


class ProvisionedSystem(Resource, Protocol):
    """A system that this agent has provisioned; a resource of the session."""

    @property
    def fresh(self) -> bool:
        """Whether its data was initialised by this start."""
        ...

    @property
    def death(self) -> str | None:
        """The way its server ended by itself; None while it runs, or when the agent has stopped it."""
        ...

    async def start(self) -> Endpoint:
        """Start it; return the address of one that runs already."""
        ...

    async def save_snapshot(self) -> None:
        """Save its data."""
        ...

    async def restore_snapshot(self) -> None:
        """Replace its data by the saved data; TaskFault `missing` when there is none."""
        ...


@runtime_checkable
class TakesRole(Protocol):
    """A provisioned system that others follow, or that follows another: all of them run on one machine."""

    def take_role(self, role: ServerRole, system: System) -> None:
        """Set the role, and the settings, that the next `start` gives it."""
        ...


class Loader(Protocol):
    """One connection that loads a population; methods block, and every failure is a TaskFault."""

    def prepare(self) -> None:
        """Drop the tables of an earlier load and create empty ones; refuse tables that proveout did not make."""
        ...

    def load(self, table: Table, first: int, count: int, progress: Callable[[int], None]) -> int:
        """Load the units `first` … `first + count - 1` in one transaction; return the number of rows."""
        ...

    def execute(self, statement: str) -> None:
        """Run one statement in its own transaction."""
        ...

    def count(self, table: str) -> int: ...

    def settle(self) -> None:
        """Wait until everything committed so far is on disk."""
        ...

    def undo(self) -> None:
        """Drop the tables."""
        ...

    def close(self) -> None: ...


@record
class RangeMark:
    """Statements that record a slice in the journal of its load: `claim` before its rows; `record`, with the number of
    `{rows}`, after them."""

    claim: str
    record: str


@record
class Tick:
    """One instant of a capture: its time (ns, monotonic), whether a sample is due, whether it is the last."""

    at_ns: int
    report: bool
    last: bool


class Observing(Protocol):
    """A connection that reads; all methods but `abort` block, and are called in one thread."""

    def abort(self) -> None:
        """Make a call that does not end fail; called from another thread. The session is of no use afterwards."""
        ...

    def close(self) -> None: ...


class Observer(Observing, Protocol):
    """One capture at work."""

    def look(self, tick: Tick) -> Sequence[Reading] | None:
        """Look; return the readings when `tick.report`, None when they cannot be had and the sample counts as lost."""
        ...


class Catalogue(Observing, Protocol):
    """One connection that reads the sizes of tables and indexes."""

    def parts(self) -> Iterable[Sequence[Any]] | None:
        """Return rows of (table, part, name of the part, bytes), part one of `table toast lob index`; None when they
        cannot be read."""
        ...


class QuerySession(Observing, Protocol):
    """One connection, in autocommit, for the queries of a plan."""

    def rows(self, query: str, most: int) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
        """Return the names of the columns, and at most `most` rows. TaskFault."""
        ...


def row_text(value: Any) -> str:
    """A text of a row of `QuerySession.rows`, which some clients give as bytes; "" for NULL."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str("" if value is None else value)


@record
class SnapshotMark:
    """A snapshot of a database's own statistics: its number there. Two with another `started` cannot be compared."""

    number: int
    started: tuple[str, ...] = ()


class ReportSession(Observing, Protocol):
    """One connection that takes snapshots of a database's own statistics and reads its report on two of them."""

    def take(self) -> SnapshotMark:
        """Take a snapshot. TaskFault."""
        ...

    def report(self, first: SnapshotMark, second: SnapshotMark) -> Iterable[str]:
        """Return the lines of the report. TaskFault, also while they are read."""
        ...


@record
class FileProblem:
    """A problem of a user's database file: `code` as in `results.FINDINGS`; with `warns` a run goes on."""

    code: Literal["unreachable", "rights"]
    message: str
    way_out: str = ""
    warns: bool = False


@record
class CopyState:
    """Whether the run works on a copy (`made`); why none can be made (`objections`); and what is copied, with its size,
    in words."""

    made: bool
    objections: tuple[str, ...] = ()
    text: str = ""


class DataCopy(Protocol):
    """The data of a system that runs already, of which a run has a copy. Methods block, may take long, and connect by
    themselves; every failure is a TaskFault.

    The data that was there before `save` must outlive a kill at any moment: `release` then restores it.
    """

    def state(self) -> CopyState: ...

    def save(self) -> None:
        """Keep the data as it is now. Called where `state` has no objections."""
        ...

    def restore(self) -> None:
        """Replace the data by the copy that `save` has made. TaskFault `missing` without a copy of this run."""
        ...

    def release(self) -> None:
        """Put the original data back, and remove what `save` and `restore` have made. Idempotent; also after a kill at
        any moment of the three."""
        ...


# A `StatementSession` is one connection that reads the counters at the edges
# of the measure window, and the texts and plans after the load. It changes nothing in the system: it creates no
# extension, sets no server setting and resets no counter; EXPLAIN executes no statement.


@record
class StatementCounts:
    """Cumulative counters of one statement: calls, seconds in the server, rows returned or changed."""

    calls: float
    seconds: float
    rows: float


@record
class PlanStep:
    """A step of a plan: `depth` from 0, the operation with its object and index, the rows expected (None: unknown)."""

    depth: int
    operation: str
    rows: float | None = None


class StatementSession(Observing, Protocol):
    """One connection for the statistics of statements."""

    @property
    def since(self) -> str:
        """The time from which the server counts; another value later means that the counters restarted."""
        ...

    def counts(self) -> Mapping[str, StatementCounts]:
        """Return the counters of the endpoint's database by the id of the statement. TaskFault."""
        ...

    def texts(self, ids: Iterable[str]) -> Mapping[str, str]:
        """Return the texts of statements, constants replaced by placeholders. TaskFault."""
        ...

    def plan(self, id: str, text: str) -> tuple[PlanStep, ...]:
        """Return the plan of a statement. TaskFault with the reason when there is none."""
        ...


# ---- the adapter -----------------------------------------------------------------------------------------------------


STOPPED = "the statements were stopped: {begun} of {count} had begun, and all run again when the stage goes on"

T = TypeVar("T")


class Part(Generic[T]):
    """A part of an engine, at the place that a field of `dsl.engines.Engine` names; imported when it is first used."""

    def __init__(self, field: str) -> None:
        self._field = field

    def __get__(self, adapter: Adapter, owner: type) -> T:
        part: T = adapter.part(self._field)
        return part


class Adapter:
    """An engine, as an agent uses it: `stated` is what it can do; a part may be used where it states the place.

    Parts take an `Endpoint`, or its dsn, block while they work, and raise TaskFault, `missing` without the client
    library.
    """

    def __init__(self, stated: Engine) -> None:
        self.stated = stated

    driver: Part[Callable[[], Driver]] = Part("driver")
    """Return a driver. Raises ImportError where it cannot load its client library."""
    provision: Part[Provision] = Part("provision")
    server_program: Part[Callable[[int | None], Path]] = Part("server_program")
    """Return the server's program; TaskFault `missing` when it is not installed."""
    loader: Part[Callable[[str, Population], Loader]] = Part("populate")
    """Connect to a dsn."""
    cursor: Part[Callable[[Endpoint], AbstractContextManager[Any]]] = Part("tune")
    """Return a DB-API cursor on a connection of its own, in autocommit; database errors inside the block become
    TaskFaults."""
    query_session: Part[Callable[[Endpoint], QuerySession]] = Part("queries")
    """Connect, with the rights of the plan's own role."""
    schema_query: Part[str] = Part("schema")
    """The query of rows (kind, name, text), those of one object in order."""
    wait_observer: Part[Callable[[Endpoint], Observer]] = Part("waits")
    size_catalogue: Part[Callable[[Endpoint], Catalogue]] = Part("sizes")
    lag_observer: Part[Callable[[Endpoint, Endpoint], Observer]] = Part("lag")
    """Connect to both ends, source and sink."""
    report_session: Part[Callable[[Endpoint, str], ReportSession]] = Part("report_session")
    """Connect to a container of the endpoint, see `topology.Capture`."""
    statement_session: Part[Callable[[Endpoint], StatementSession]] = Part("statement_session")
    """Connect; TaskFault `missing` where the server keeps no such statistics."""
    files: Part[Files] = Part("copies_file")
    data_copy: Part[Callable[[Endpoint, str], DataCopy]] = Part("data_copy")
    """The copy of a run's own, by its id; nothing is connected yet."""
    link_keys: Part[Callable[[LinkSystems], LinkSystems]] = Part("link_keys")
    """Add the passwords of roles that a plan does not get. Runs in the agent, whose user can read them."""
    propagation: Part[Propagation] = Part("propagation")

    async def settings(self, endpoint: Endpoint) -> Settings:
        """Return the settings of a running system for the fingerprint. TaskFault."""
        found: Settings = await _called(self.part("settings"), endpoint)
        return found

    async def run_sql(self, context: TaskContext, endpoint: Endpoint, statements: tuple[str, ...]) -> tuple[int, ...]:
        """Run each statement in its own transaction; return the rows returned or affected, per statement. A part that
        is a coroutine gets the context first; any other gets the statements one by one, and none after a cancellation,
        which waits up to `STOP_S` for the one that runs. TaskFault."""
        import asyncio  # noqa: PLC0415 - load workers start faster without it

        run, begun, stopped = self.part("run_sql"), 0, False
        if inspect.iscoroutinefunction(run):
            counts: tuple[int, ...] = await run(context, endpoint, statements)
            return counts

        def each() -> Iterator[str]:
            nonlocal begun
            while begun < len(statements) and not stopped:
                begun += 1
                yield statements[begun - 1]

        job = asyncio.ensure_future(asyncio.to_thread(run, endpoint, each()))
        try:
            return await asyncio.shield(job)
        except asyncio.CancelledError:
            stopped = True
            _, running = await asyncio.wait({job}, timeout=STOP_S - 1.0)  # the agent of a helper process waits `STOP_S`
            text = STOPPED.format(begun=begun, count=len(statements))
            context.log("warning", f"{text}; the last one of these still runs" if running else text)
            raise

    async def checkpoint(self, endpoint: Endpoint) -> None:
        """Write dirty pages to disk. TaskFault."""
        await _called(self.part("checkpoint"), endpoint)

    def part(self, field: str) -> Any:
        """Import what a field of `stated` names. TaskFault `missing` where it names nothing, and without the client
        library, which is not imported here: in an agent that has privileges only helper processes load clients. The
        program of a server needs none: the extra that brings a server brings its client too."""
        place = getattr(self.stated, field)
        if not place:
            what = f"this release cannot do that with systems of engine {self.stated.name!r} (`{field}`)"
            raise TaskFault("missing", what)
        client = None if field == "server_program" else self.stated.client
        if client is not None and find_spec(client[0]) is None:
            raise TaskFault(
                "missing",
                f"the {client[1]} is not installed on this host",
                way_out=f"install it with: {errors.install_command(self.stated.requirement)}",
            )
        module, _, name = place.partition(":")
        found = import_module(f"proveout.agent.engines.{module}")
        return getattr(found, name) if name else found


async def _called(part: Callable[..., Any], *arguments: Any) -> Any:
    """Await a coroutine; run any other function in a thread."""
    if inspect.iscoroutinefunction(part):
        return await part(*arguments)
    import asyncio  # noqa: PLC0415 - load workers start faster without it

    return await asyncio.to_thread(part, *arguments)


class Provision(Protocol):
    """Makes a system of this agent."""

    def __call__(self, system: System, data_root: Path, *, on_death: Callable[[str], None]) -> ProvisionedSystem:
        """Return the system, not started yet. `on_death(text)` is called from another thread when its server ends by
        itself."""
        ...


class Files(Protocol):
    """The functions of an engine whose databases are files, and that opens one of the user as it is: with its
    settings."""

    def problems(self, path: Path, *, changes: bool) -> Iterable[FileProblem]:
        """Return what keeps a run from using the file, or slows it; `changes`: the run writes."""
        ...

    def copy_file(self, path: Path, copy: Path) -> None:
        """Copy the database as it is at one instant to a new file."""
        ...

    def restore_file(self, path: Path, copy: Path) -> None:
        """Put the content of a copy into the file, all or nothing."""
        ...


class Propagation(Protocol):
    """The functions of an engine that proveout sets propagation up for, between two systems of it."""

    async def link(self, context: TaskContext, spec: LinkSystems) -> None:
        """Set propagation up, or renew it."""
        ...

    async def compare(self, context: TaskContext, spec: CompareSystems) -> Compared:
        """Wait until the sink has applied all changes, and compare every table."""
        ...
