"""The contract between proveout and an engine: small optional protocols, of which an engine's adapter implements those
it can.

Data flow: a task names an engine -> `table.adapter(name)` -> `isinstance(adapter, Checkpoints)` -> the call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, runtime_checkable

from proveout.agent.daemon.tasks import Resource
from proveout.agent.engines.driver_contract import Driver
from proveout.agent.errors import TaskFault
from proveout.core import errors
from proveout.core.data_classes import dataclass

if TYPE_CHECKING:
    from proveout.agent.daemon.tasks import TaskContext
    from proveout.agent.engines.embedded.data_store import Promotion, ServerRole
    from proveout.dsl.plan.topology import System
    from proveout.dsl.workloads.base import Population, Table
    from proveout.proto.wire.results import Compared, Reading
    from proveout.proto.wire.tasks import CompareSystems, Endpoint, LinkSystems


# | protocol | what an engine with it can do |
# |---|---|
# | `EngineAdapter` | all engines: drive sessions, report settings, run statements |
# | `Provisions`, `FindsServer` | start a system of its own; find the server's program for `doctor` |
# | `Populates` | load a population |
# | `Checkpoints` | write dirty pages to disk |
# | `OpensCursors` | give tuning operations a cursor |
# | `OpensQueries` | give plans the rows of their queries |
# | `DescribesSchema` | name its tables and indexes for the fingerprint |
# | `CapturesWaits`, `CapturesSizes`, `CapturesLag` | be observed by these captures |
# | `OpensNamedFiles` | check, copy and restore a database file of the user, which a dsn names |
# | `MakesReports` | take snapshots of its statistics, and report on two of them |
# | `Propagates` | replicate to a system of the same engine, and compare both |
# | `OwnsProcess` | share no process with another engine's client |
# | `RedactsDsn` | take the secrets out of a dsn |
#
# `dsl.engines` has the same as data for modules that must not import an adapter; a test compares both.

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


@runtime_checkable
class Replicates(TakesRole, Protocol):
    """A provisioned system that can be a primary or a standby."""

    @property
    def superseded_by(self) -> str:
        """The promoted standby that keeps this primary from starting; "" for none. Known after `start`."""
        ...

    @property
    def note(self) -> str:
        """The effect of the last `start` on the data, for people; "" for none."""
        ...

    @property
    def promotion(self) -> Promotion | None:
        """The last promotion, while the standby is promoted."""
        ...

    async def promote(self) -> Promotion:
        """Make a standby a primary that accepts writes. TaskFault."""
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

    def count(self, table: str) -> int:
        """Return the number of rows of a table."""
        ...

    def settle(self) -> None:
        """Wait until everything committed so far is on disk."""
        ...

    def undo(self) -> None:
        """Drop the tables."""
        ...

    def close(self) -> None:
        """Disconnect."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeMark:
    """Statements that record a slice in the journal of its load: `claim` before its rows; `record`, with the number of
    `{rows}`, after them."""

    claim: str
    record: str


@runtime_checkable
class ResumableLoader(Protocol):
    """A loader whose loads continue after a failure. `load` takes one more argument, the slice's mark, and executes its
    statements in the transaction of the rows. `whole_number`: the type of 64-bit whole numbers."""

    whole_number: str

    def load(
        self, table: Table, first: int, count: int, progress: Callable[[int], None], mark: RangeMark | None = None
    ) -> int:
        """Load one slice and its mark in one transaction; return the number of rows."""
        ...

    def execute(self, statement: str) -> None:
        """Run one statement in its own transaction."""
        ...

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        ...

    def table_exists(self, name: str) -> bool:
        """Whether the database has a table of this name, in lower case here, where the loader's tables are."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """One instant of a capture: its time (ns, monotonic), whether a sample is due, whether it is the last."""

    at_ns: int
    report: bool
    last: bool


class Observer(Protocol):
    """One capture at work. All methods but `abort` are called in the capture's thread."""

    def look(self, tick: Tick) -> Sequence[Reading] | None:
        """Look; return the readings when `tick.report`, None when they cannot be had and the sample counts as lost."""
        ...

    def abort(self) -> None:
        """Make a `look` that does not end fail; called from another thread."""
        ...

    def close(self) -> None:
        """Close what is open."""
        ...


class Catalogue(Protocol):
    """One connection that reads the sizes of tables and indexes."""

    def parts(self) -> Iterable[Sequence[Any]] | None:
        """Return rows of (table, part, name of the part, bytes), part one of `table toast lob index`; None when they
        cannot be read."""
        ...

    def abort(self) -> None:
        """Cancel a query, from another thread."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class QuerySession(Protocol):
    """One connection, in autocommit, for the queries of a plan."""

    def rows(self, query: str, most: int) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
        """Return the names of the columns, and at most `most` rows. TaskFault."""
        ...

    def abort(self) -> None:
        """Make a query that does not end fail; called from another thread. The session is of no use afterwards."""
        ...

    def close(self) -> None:
        """Close the connection; idempotent."""
        ...


def row_text(value: Any) -> str:
    """A text of a row of `QuerySession.rows`, which some clients give as bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotMark:
    """A snapshot of a database's own statistics: its number there. Two with another `started` cannot be compared."""

    number: int
    started: tuple[str, ...] = ()


class ReportSession(Protocol):
    """One connection that takes snapshots of a database's own statistics and reads its report on two of them."""

    def take(self) -> SnapshotMark:
        """Take a snapshot. TaskFault."""
        ...

    def report(self, first: SnapshotMark, second: SnapshotMark) -> Iterable[str]:
        """Return the lines of the report. TaskFault, also while they are read."""
        ...

    def abort(self) -> None:
        """Make a call that does not end fail; called from another thread. The session is of no use afterwards."""
        ...

    def close(self) -> None:
        """Close the connection; idempotent."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FileProblem:
    """A problem of a user's database file: `code` as in `results.FINDINGS`; with `warns` a run goes on."""

    code: Literal["unreachable", "rights"]
    message: str
    way_out: str = ""
    warns: bool = False


# ---- the adapter -----------------------------------------------------------------------------------------------------


class EngineAdapter(Protocol):
    """The contract that every engine implements."""

    @property
    def requirement(self) -> str:
        """The requirement, for pip, that installs the engine's client."""
        ...

    @property
    def disk_full_codes(self) -> frozenset[str]:
        """Error codes of statements that mean that the database's disk is full."""
        ...

    @property
    def reports_effects(self) -> bool:
        """Whether `unreachable` from `run_sql` means that no statement has taken effect; the fault is `lost`
        otherwise."""
        ...

    def driver(self) -> Driver:
        """Return a driver. Raises ImportError when the client library is not installed."""
        ...

    async def settings(self, endpoint: Endpoint) -> Settings:
        """Return the settings of a running system for the fingerprint. TaskFault."""
        ...

    async def run_sql(self, context: TaskContext, endpoint: Endpoint, statements: tuple[str, ...]) -> tuple[int, ...]:
        """Run each statement in its own transaction; return the rows returned or affected, per statement. TaskFault."""
        ...


@runtime_checkable
class Provisions(Protocol):
    """An engine that proveout can start."""

    def provision(self, system: System, data_root: Path, on_death: Callable[[str], None]) -> ProvisionedSystem:
        """Return the system, not started yet. `on_death(text)` is called from another thread when its server ends by
        itself."""
        ...


@runtime_checkable
class FindsServer(Protocol):
    """An engine whose server proveout starts from a program of this host."""

    def server_program(self) -> Path:
        """Return the server's program; TaskFault `missing` when it is not installed."""
        ...


@runtime_checkable
class Populates(Protocol):
    """An engine that a population can be loaded into."""

    def loader(self, dsn: str, population: Population) -> Loader:
        """Connect. TaskFault."""
        ...


@runtime_checkable
class Checkpoints(Protocol):
    """An engine that can write its dirty pages to disk on request."""

    async def checkpoint(self, endpoint: Endpoint) -> None:
        """Write dirty pages to disk. TaskFault."""
        ...


@runtime_checkable
class OpensCursors(Protocol):
    """An engine whose databases can be tuned."""

    def cursor(self, endpoint: Endpoint) -> AbstractContextManager[Any]:
        """Return a DB-API cursor on a connection of its own, in autocommit; database errors inside the block become
        TaskFaults. Blocks."""
        ...


@runtime_checkable
class OpensQueries(Protocol):
    """An engine whose rows plans can read."""

    def query_session(self, endpoint: Endpoint) -> QuerySession:
        """Connect, with the rights of the plan's own role. TaskFault. Blocks."""
        ...


@runtime_checkable
class DescribesSchema(Protocol):
    """An engine whose tables and indexes are part of the fingerprint."""

    def schema_query(self) -> str:
        """Return the query of rows (kind, name, text), those of one object in order."""
        ...


@runtime_checkable
class CapturesWaits(Protocol):
    """An engine whose wait events can be captured."""

    @property
    def wait_look_every_s(self) -> float | None:
        """Seconds between two looks; None for one look per sample."""
        ...

    def wait_observer(self, endpoint: Endpoint) -> Observer:
        """Connect. TaskFault."""
        ...


@runtime_checkable
class CapturesSizes(Protocol):
    """An engine whose tables and indexes can be measured."""

    def size_catalogue(self, endpoint: Endpoint) -> Catalogue:
        """Connect. TaskFault."""
        ...


@runtime_checkable
class OpensNamedFiles(Protocol):
    """An engine whose databases are files, and that opens one of the user as it is: with its settings."""

    def file_problems(self, dsn: str, *, changes: bool) -> Iterable[FileProblem]:
        """Return what keeps a run from using the file, or slows it; `changes`: the run writes. Blocks."""
        ...

    def copy_file(self, dsn: str, copy: Path) -> None:
        """Copy the database as it is at one instant to a new file. TaskFault. Blocks."""
        ...

    def restore_file(self, dsn: str, copy: Path) -> None:
        """Put the content of a copy into the file, all or nothing. TaskFault. Blocks."""
        ...


@runtime_checkable
class MakesReports(Protocol):
    """An engine that makes reports on its own statistics."""

    def report_session(self, endpoint: Endpoint, container: str) -> ReportSession:
        """Connect; `container`: see `topology.Capture`. TaskFault. Blocks."""
        ...


@runtime_checkable
class CapturesLag(Protocol):
    """An engine that is the source of a propagation whose lag can be captured."""

    def lag_observer(self, source: Endpoint, sink: Endpoint) -> Observer:
        """Connect to both ends. TaskFault."""
        ...


@runtime_checkable
class Propagates(Protocol):
    """An engine that proveout sets propagation up for, between two systems of it."""

    def with_keys(self, spec: LinkSystems) -> LinkSystems:
        """Add the passwords of roles that a plan does not get. Blocks; runs in the agent, whose user can read them.
        TaskFault."""
        ...

    async def link(self, context: TaskContext, spec: LinkSystems) -> None:
        """Set propagation up, or renew it. TaskFault."""
        ...

    async def compare(self, context: TaskContext, spec: CompareSystems) -> Compared:
        """Wait until the sink has applied all changes, and compare every table. TaskFault."""
        ...


@runtime_checkable
class OwnsProcess(Protocol):
    """An engine whose client library needs a process that loads no other engine's client."""

    def claim_process(self) -> None:
        """Use the client in this process, which serves no other engine, rather than in a process per task."""
        ...


@runtime_checkable
class RedactsDsn(Protocol):
    """An engine whose dsn can be taken apart without its client library."""

    def public_dsn(self, dsn: str) -> str:
        """Return the dsn without what may be secret; "" when it cannot be taken apart."""
        ...


# ---- helpers ---------------------------------------------------------------------------------------------------------


def require_client(module: str, client: str, extra: str) -> None:
    """Raise TaskFault `missing` when a client library is not installed.

    Does not import it: in an agent that has privileges only helper processes load clients.
    """
    if find_spec(module) is None:
        raise TaskFault(
            "missing",
            f"the {client} is not installed on this host",
            way_out=f"install it with: {errors.install_command(f'proveout[{extra}]')}",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
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

    def state(self) -> CopyState:
        """Look, and change nothing."""
        ...

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


@runtime_checkable
class CopiesData(Protocol):
    """An engine that can copy the data of a system that runs already, for a plan with `restore`."""

    def data_copy(self, endpoint: Endpoint, run: str) -> DataCopy:
        """Return the copy of a run's own; nothing is connected yet."""
        ...


# An adapter with `CapturesStatements` gives a `StatementSession`: one connection that reads the counters at the edges
# of the measure window, and the texts and plans after the load. It changes nothing in the system: it creates no
# extension, sets no server setting and resets no counter; EXPLAIN executes no statement.


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementCounts:
    """Cumulative counters of one statement: calls, seconds in the server, rows returned or changed."""

    calls: float
    seconds: float
    rows: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStep:
    """A step of a plan: `depth` from 0, the operation with its object and index, the rows expected (None: unknown)."""

    depth: int
    operation: str
    rows: float | None = None


class StatementSession(Protocol):
    """One connection for the statistics of statements; methods block."""

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

    def abort(self) -> None:
        """Make a call that does not end fail; called from another thread. The session is of no use afterwards."""
        ...

    def close(self) -> None:
        """Close the connection; idempotent."""
        ...


@runtime_checkable
class CapturesStatements(Protocol):
    """An engine that keeps statistics of its statements."""

    def statement_session(self, endpoint: Endpoint) -> StatementSession:
        """Connect. TaskFault, `missing` where the server keeps no such statistics."""
        ...
