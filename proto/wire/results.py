"""Results and samples that agents send for tasks, as frozen data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from proveout.core.data_classes import field, record
from proveout.dsl.plan.stages import Window
from proveout.dsl.plan.topology import Value
from proveout.proto.wire.tasks import Endpoint


@record
class Histogram:
    """A log-linear histogram of nanoseconds, 3 significant digits, HdrHistogram's bucket layout, sparse.

    Merging is adding.
    """

    indices: tuple[int, ...] = ()  # buckets that are not empty, ascending
    counts: tuple[int, ...] = ()  # times in each of them
    sum_ns: int = 0  # sum of all times, exact; at most 2^63 - 1
    min_ns: int = 0  # shortest time, exact; 0 without times
    max_ns: int = 0  # longest time, exact; 0 without times


@record
class SessionResult:
    """The connections of a load in its measure window."""

    # times of the connects that began in it and succeeded, until the first statement could be prepared
    connect: Histogram = field(default_factory=Histogram)
    attempts: int = 0  # connects that began in it
    failed: int = 0  # those of them that failed
    # of each transaction due in it, the wait for a connection of the pool, also of those that found one at once
    pool_wait: Histogram = field(default_factory=Histogram)
    waited: int = 0  # transactions that found no free connection
    rerun: int = 0  # transactions run again after a connection was lost, when their commit was not known


@record
class CheckFinding:
    """Something that a preflight check found."""

    code: str  # one of `FINDINGS`
    subject: str  # its path in the plan
    message: str  # for people
    way_out: str = ""  # what to do about it
    line: int = 0  # line of a text, from 1; 0 where it is of none
    warns: bool = False  # a run goes on


PLAN_FINDINGS = frozenset({"statement", "setting", "connections"})
"""Findings of which the plan is the cause: a database refuses a part of it."""
FINDINGS = PLAN_FINDINGS | {
    "unreachable",
    "login",
    "rights",
    "table",
    "rows",
    "rate",
    "space",
    "capture",
    "missing",
    "tuning",
}


@record
class Checked:
    """The result of a preflight check."""

    findings: tuple[CheckFinding, ...]  # everything that is wrong
    seconds: float = 0.0  # duration, s


# Times named `*_ns` are nanoseconds on the CLOCK_MONOTONIC of the host that the message is about, unless stated
# otherwise.


@record
class SystemStarted:
    """A system is up."""

    endpoint: Endpoint  # how to reach it
    settings: tuple[tuple[str, str], ...] = ()  # those that travel with the results (name, value), sorted
    fresh: bool = True  # its data was initialised now
    superseded_by: str = ""  # the promoted standby that holds the group's data now; a primary starts after it stopped
    note: str = ""  # the effect of the start on the data of a member of a group, for people
    # objects of the database with their definitions, where they were asked for (`agent/engines/handlers.py`)
    schema: tuple[tuple[str, str], ...] = ()


@record
class TableCount:
    """Rows in a table after population, and the range that the specification gives."""

    table: str  # name of the table
    rows: int  # rows that it has
    expected_low: int  # the fewest that it should have
    expected_high: int  # the most


@record
class Populated:
    """A population: rows per table with what was expected, and the time that it took."""

    tables: tuple[TableCount, ...]  # empty unless the task has finished the population
    seconds: float  # wall time, s
    kept_rows: int = 0  # rows that were there already, from a load that was broken off

    @property
    def rows(self) -> int:
        return sum(table.rows for table in self.tables)


@record
class TableDifference:
    """One table compared: row counts and order-independent checksums on both sides."""

    table: str  # name of the table
    source_rows: int  # rows on the source
    sink_rows: int  # rows on the sink
    source_checksum: str  # checksum of the source, whatever the order of its rows
    sink_checksum: str  # the same of the sink

    @property
    def same(self) -> bool:
        """Whether the two sides hold the same rows."""
        return self.source_rows == self.sink_rows and self.source_checksum == self.sink_checksum


@record
class Compared:
    """Source and sink after the last change was applied."""

    tables: tuple[TableDifference, ...]  # all tables of the workload
    drained: bool  # False when the timeout came first
    drain_s: float  # the wait, s


@record
class InvariantCheck:
    """One invariant of a workload."""

    name: str  # name of the invariant
    holds: bool  # whether it holds
    evidence: str  # the two numbers that it compares, as a sentence for users


@record
class FactsRead:
    """A machine's part of the environment's fingerprint (see `agent/host_facts.py`)."""

    facts: tuple[tuple[str, Value], ...] = ()  # (name, value), sorted by name


@record
class InvariantsChecked:
    """All invariants of a workload, as one system has them."""

    checks: tuple[InvariantCheck, ...]  # the invariants
    seconds: float  # duration, s
    tallies: tuple[tuple[str, int], ...] = ()  # what it counts of transactions (`TransactionType.counted`), by name


@record
class PoolFormed:
    """A Ray node is up."""

    address: str  # `name:port` of the GCS of its cluster


@record
class SqlDone:
    """Statements were executed."""

    counts: tuple[int, ...]  # rows returned or affected, per statement
    elapsed_s: float = 0.0  # time of all statements, s
    wait_s: float = 0.0  # time of the wait, s
    values: tuple[tuple[str, float], ...] = ()  # numbers of the query by name


@record
class CommandDone:
    """A program has ended well."""

    elapsed_s: float  # its time, s
    values: tuple[tuple[str, float], ...]  # numbers of its output by name
    output: str = field(repr=False)  # what it has written


@record
class Done:
    """It is done; there is nothing to say about it but how long it took."""

    seconds: float = 0.0  # duration, s


@record
class TransactionCounts:
    """Outcomes of one transaction type."""

    name: str  # name of the transaction
    ok: int = 0  # committed
    logical_failures: int = 0  # answered, without the effect: no row, a duplicate key
    retried: int = 0  # attempts that were repeated
    missed: int = 0  # due in the window and never begun
    errors: tuple[tuple[str, int], ...] = ()  # by class (SQLSTATE or the engine's name for it)

    @property
    def error_count(self) -> int:
        return sum(count for _, count in self.errors)


@record
class TransactionLoad:
    """One transaction type in one window. Fields after the first four are only in the result of a load."""

    counts: TransactionCounts  # outcomes
    response: Histogram = field(default_factory=Histogram)  # ended - intended
    service: Histogram = field(default_factory=Histogram)  # ended - started
    schedule: Histogram = field(default_factory=Histogram)  # schedule lag: started - intended
    ended: int = 0  # ok + logical failures that ended inside the measure window, whenever they were due
    late: int = 0  # of those due in the window, ended after it, errors included
    # lower bounds of the response times of those due in the window without an answer within 1 s after the load
    response_at_least: Histogram = field(default_factory=Histogram)
    # the same of the service times of those of them that had begun
    service_at_least: Histogram = field(default_factory=Histogram)
    # the same of the schedule lag of those never begun (`counts.missed`)
    schedule_at_least: Histogram = field(default_factory=Histogram)


@record
class LoadSecond:
    """The transactions that ended in one second of the load, all workers of one agent merged; by end time, so it sums
    to throughput.

    What came over the wire has its transactions in columns (`proto.wire.messages`); equal all the same.
    """

    second: int  # counts from T0, from 0
    window: Window  # the one that its start lies in
    start_ns: int  # its start, agent's monotonic clock
    duration_s: float  # s; below 1 for a cut second
    transactions: Sequence[TransactionLoad]  # each transaction type
    bins: bytes = field(default=b"", repr=False)  # tenths of it (`proto.wire.histogram`), where the task requests them


@record
class Stall:
    """A time in which no transaction of a load ended, in ns after the start of its measure window (negative: before
    it)."""

    start_ns: int  # its start
    end_ns: int  # its end
    errors: int = 0  # transactions, and attempts to connect, that failed in it
    # by name, transactions that were under way for at least half of it and had no answer before its end
    waiting: tuple[tuple[str, int], ...] = ()


@record
class Hang:
    """A terminal that ended no transaction in the measure window: it waited for one answer."""

    worker: int  # number of the load worker on its agent
    transaction: str  # name of the transaction; "" when the terminal had no connection
    waited_ns: int  # until the answer, or until the end of the load
    answered: bool = False  # the answer came


@record
class Handling:
    """The lateness with which a load worker, or several together, handled answers in the measure window."""

    # sampled times from the arrival of an answer to its handling; empty for blocking drivers, which have no event loop
    late: Histogram = field(default_factory=Histogram)
    answers: int = 0  # all answers of the event loop, sampled or not
    # samples that are exact, by receive time stamps of the kernel; the others are times since epoll's return with an
    # estimate of what was before it
    stamped: int = 0
    # time for which the threads waited for a CPU, s, summed over all of them; None where the kernel does not count it
    runqueue_s: float | None = None
    runqueue_fraction: float | None = None  # the same of the thread that waited longest, over the window


@record
class PhaseLoad:
    """The transactions of one phase of the measure window, as LoadResult has those of all of it."""

    phase: str  # name of the phase
    start_ns: int  # its start, agent's monotonic clock
    end_ns: int  # its end
    ended: int  # transactions that ended in it
    transactions: tuple[TransactionLoad, ...]  # those due in it
    # transactions that were answered, each by the share of its time, from start to end, that lies in the phase
    done: float = 0.0


@record
class CommitReading:
    """Differences found by reading commits back, in ns after the start of the measure window."""

    since_ns: int  # the terminals' last answer before
    at_ns: int  # the reading
    lost: int = 0  # acknowledged, and not in the database
    unknown: int = 0  # without an answer
    unknown_committed: int = 0  # those of them that are there
    duplicates: int = 0  # there more often than once
    unread: int = 0  # terminals whose row could not be read


@record
class TrackedCommits:
    """The tracked commits of a load."""

    acknowledged: int | None = None  # commits that were acknowledged, ramps included; None: they are not tracked
    readings: tuple[CommitReading, ...] = ()  # the readings that differ


@record
class LoadResult:
    """An agent's whole load: the measure window merged, and what judges it.

    A transaction is due in the window by its intended time under open arrival, by its start under closed, so that a
    stall cannot drop its own victims.
    """

    transactions: tuple[TransactionLoad, ...]  # those due in the window
    ended_in_window: int  # ok + logical failures that ended inside the measure window: throughput
    measure_start_ns: int  # start of the measure window, agent's monotonic clock
    measure_end_ns: int  # its end
    client_cpu_fraction: float  # CPU of the busiest worker process over the window; 1.0 = a whole core
    client_cpu_s: float  # CPU time of all worker processes in the window, s
    start_skew_ns: int  # how late after T0 the load really began
    seconds_produced: int  # LoadSeconds sent before this
    samples_lost: int = 0  # transactions whose times a worker could not hand over
    first_errors: tuple[str, ...] = ()  # texts of the first errors, for people
    # what this host was measured to do at most with this driver (`proveout ceiling`), transactions a second, with the
    # server on the same machine; None when it was not measured
    ceiling_shared_per_s: float | None = None
    ceiling_apart_per_s: float | None = None  # the same with the server on another machine
    committed: tuple[tuple[str, int], ...] = ()  # by name, all that committed, in the ramps and after the end too
    # by name, those that may have: the connection was lost, or closed at the end, before the answer
    unknown: tuple[tuple[str, int], ...] = ()
    # the longest time in the measure window for which one of the worker processes did not run (stopped, starved, or on
    # a machine that was)
    pause_longest_ns: int = 0
    # the longest times without the end of a transaction that touch the measure window, in order of time
    stalls: tuple[Stall, ...] = ()
    hangs: tuple[Hang, ...] = ()  # those of the `hung` that waited longest
    hung: int = 0  # terminals that ended no transaction in the measure window
    # how late answers were handled, of each worker process (of a Ray pool: of all together); empty from an agent that
    # does not measure it
    handling: tuple[Handling, ...] = ()
    passes_s: tuple[float, ...] = ()  # time of each pass of each terminal, s, where the window is counted in passes
    output: str = field(default="", repr=False)  # the text that an outside program has written
    values: tuple[tuple[str, float], ...] = ()  # numbers of its output by name
    sessions: SessionResult = field(default_factory=SessionResult)  # the connections
    # those of the measure window, in order; where their histograms do not fit into a message, in wider buckets
    # (`histogram.widened`)
    phases: tuple[PhaseLoad, ...] = ()
    commits: TrackedCommits = field(default_factory=TrackedCommits)  # the tracked commits
    # Unix time of the server's start by its own clock, ms, as it reports before the load and after it
    server_starts_ms: tuple[int, ...] = ()
    # the longest times in it for which one of the worker processes did not run, of 0.2 s at least, in order of time
    pauses: tuple[Stall, ...] = ()


@record
class Reading:
    """One number of a capture."""

    metric: str  # in the field's terms with its unit last
    value: float  # in that unit
    label: str = ""  # tells instances apart; "" = the one


@record
class CaptureSample:
    """Readings of one capture at one instant. Counters are cumulative where their metric ends in `_total`.

    What came over the wire has its readings in columns (`proto.wire.messages`); equal all the same.
    """

    capture: str  # name of the capture
    at_ns: int  # the instant, agent's monotonic clock
    readings: Sequence[Reading]  # the numbers


@record
class CaptureResult:
    """A capture that ended."""

    capture: str  # name of the capture
    samples: int  # samples sent
    lost: int = 0  # samples that it lost
    cpu_s: float = 0.0  # CPU that it cost, s
    output: str = field(default="", repr=False)  # what its programs have written, or the report of the database
    notes: tuple[str, ...] = ()  # reasons why the output is missing or cut


TuningOutcome: TypeAlias = Literal[
    "would_change",
    "applied",
    "unchanged",
    "needs_restart",
    "refused",
    "failed",
    "in_place",
    "drifted",
    "reverted",
    "kept",
    "residue",
]
"""The outcome of a tuning operation on a host.

Of applying: `would_change` (only asked), `applied` and verified, `unchanged` (was so already), `needs_restart` (stored,
but not in effect), `refused` (nothing was changed), `failed`. Of looking again: `in_place`, `drifted` (changed by
another process since). Of undoing: `reverted`, `kept`, `drifted` (left as the other process set it), `residue` (could
not be undone).
"""


@record
class TuningState:
    """A tuning and what became of it."""

    name: str  # name of the tuning
    operation: str  # its operation
    outcome: TuningOutcome  # what became of it
    lines: tuple[str, ...] = ()  # how, for people: the diff, the reason, the missing step, what is left
    keep: bool = False  # it stays after the run
    subject: str = ""  # as in TaskError, below the tuning: `sql.apply.0`
    line: int = 0  # as in TaskError


@record
class TuningDone:
    """A tuning task's answer."""

    states: tuple[TuningState, ...]  # one for each tuning (of several outcomes, as drift in one of two files, one each)
    seconds: float = 0.0  # duration, s


FaultStepKind: TypeAlias = Literal["begins", "in_place", "healing", "healed", "failed"]
"""The steps of a fault on a host: its first change begins; all of them are made; undoing begins; all are undone; or a
change could not be made, or not be undone."""


@record
class FaultStep:
    """A step of an occurrence of a fault on a host, sent at that instant."""

    fault: str  # name of the fault
    number: int  # number of the occurrence, from 1
    step: FaultStepKind  # the step
    at_ns: int  # its instant, agent's monotonic clock
    text: str = ""  # the reason of a failure


TaskSample: TypeAlias = LoadSecond | CaptureSample | FaultStep
"""The samples that a task streams while it runs."""


@record
class FaultOccurrence:
    """One occurrence of a fault on a host: the instants of its steps, agent's monotonic clock."""

    number: int  # from 1
    begins_ns: int  # its first change begins
    in_place_ns: int | None = None  # all changes are made; None, as below: not reached
    healing_ns: int | None = None  # undoing begins
    healed_ns: int | None = None  # all are undone
    error: str = ""  # why a change could not be made
    residue: tuple[str, ...] = ()  # what could not be undone, and is left on the host
    staleness_s: float | None = None  # age of the newest commit that a standby had when its promotion began, s


@record
class FaultInjected:
    """A fault on a host."""

    fault: str  # name of the fault
    occurrences: tuple[FaultOccurrence, ...]  # in order


TaskResult: TypeAlias = (
    SystemStarted
    | Populated
    | Compared
    | InvariantsChecked
    | Checked
    | FactsRead
    | PoolFormed
    | SqlDone
    | CommandDone
    | TuningDone
    | Done
    | LoadResult
    | CaptureResult
    | FaultInjected
)


@record
class TaskError:
    """The reason why a task failed."""

    # for programs: `unreachable`, `refused`, `invalid`, `timeout`, `cancelled`, `lease_lost`, `disk_full`, `missing`,
    # `fault`, `lost` (the connection broke, and what was under way may or may not have taken effect)
    code: str
    message: str  # for users
    way_out: str = ""  # for users: what to do about it
    # the text of the plan that the database refused, below the stage, the workload or the capture of the task
    # (`dsl.plan.plan`); "" where the plan is not the cause
    subject: str = ""
    line: int = 0  # the line in that text, from 1; 0 where the database gives none
