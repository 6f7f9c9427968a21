"""Results and samples that agents send for tasks, as frozen data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from proveout.core.data_classes import dataclass, field
from proveout.dsl.plan.stages import Window
from proveout.dsl.plan.topology import Value
from proveout.proto.wire.tasks import Endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """A log-linear histogram of nanoseconds, 3 significant digits, HdrHistogram's bucket layout, sparse.

    `indices` ascending, `counts` beside them; `sum_ns`, `min_ns`, `max_ns` exact. Merging is adding.
    """

    indices: tuple[int, ...] = ()
    counts: tuple[int, ...] = ()
    sum_ns: int = 0
    min_ns: int = 0
    max_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionResult:
    """The connections of a load in its measure window.

    `connect`: times of the connects that began in it and succeeded, until the first statement could be prepared;
    `attempts`, `failed`: of all. `pool_wait`: of each transaction due in it, the wait for a connection of the pool,
    also of those that found one at once; `waited` found none. `rerun`: transactions run again after a connection was
    lost, when it was not known whether they had committed.
    """

    connect: Histogram = field(default_factory=Histogram)
    attempts: int = 0
    failed: int = 0
    pool_wait: Histogram = field(default_factory=Histogram)
    waited: int = 0
    rerun: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFinding:
    """Something that a preflight check found: `subject` is its path in the plan, `line` that of a text, from 1, or 0.

    `code` is one of `FINDINGS`. With `warns` a run goes on.
    """

    code: str
    subject: str
    message: str
    way_out: str = ""
    line: int = 0
    warns: bool = False


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The result of a preflight check: everything that is wrong."""

    findings: tuple[CheckFinding, ...]
    seconds: float = 0.0


# Times named `*_ns` are nanoseconds on the CLOCK_MONOTONIC of the host that the message is about, unless stated
# otherwise.


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemStarted:
    """A system is up: how to reach it, and its settings that travel with the results (name -> value, sorted).

    `superseded_by`: the promoted standby that holds the group's data now; a primary starts only after it has stopped.
    `note`: the effect of the start on the data of a member of a group, for people. `schema`: the objects of the
    database with their definitions, where they were asked for (`agent/engines/handlers.py`).
    """

    endpoint: Endpoint
    settings: tuple[tuple[str, str], ...] = ()
    fresh: bool = True
    superseded_by: str = ""
    note: str = ""
    schema: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCount:
    """Rows in a table after population, and the range that the specification gives."""

    table: str
    rows: int
    expected_low: int
    expected_high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Populated:
    """A population: rows per table with what was expected, wall time in seconds; `kept_rows` were there already, from
    a load that was broken off. `tables` is empty unless the task has finished the population.
    """

    tables: tuple[TableCount, ...]
    seconds: float
    kept_rows: int = 0

    @property
    def rows(self) -> int:
        """The rows of all tables."""
        return sum(table.rows for table in self.tables)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDifference:
    """One table compared: row counts and order-independent checksums on both sides."""

    table: str
    source_rows: int
    sink_rows: int
    source_checksum: str
    sink_checksum: str

    @property
    def same(self) -> bool:
        """Whether the two sides hold the same rows."""
        return self.source_rows == self.sink_rows and self.source_checksum == self.sink_checksum


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Source and sink after the last change was applied; `drained` False when the timeout came first."""

    tables: tuple[TableDifference, ...]
    drained: bool
    drain_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class InvariantCheck:
    """One invariant of a workload: whether it holds, and the two numbers that it compares, as a sentence for users."""

    name: str
    holds: bool
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FactsRead:
    """A machine's part of the environment's fingerprint, sorted by name (see `agent/host_facts.py`)."""

    facts: tuple[tuple[str, Value], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InvariantsChecked:
    """All invariants of a workload, as one system has them; `tallies` are what it counts of transactions
    (`TransactionType.counted`)."""

    checks: tuple[InvariantCheck, ...]
    seconds: float
    tallies: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolFormed:
    """A Ray node is up in the cluster whose GCS is at `address` (`name:port`)."""

    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlDone:
    """Rows returned or affected, per statement; the time of all statements and of the wait, s; and the numbers of the
    query by name."""

    counts: tuple[int, ...]
    elapsed_s: float = 0.0
    wait_s: float = 0.0
    values: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandDone:
    """A program has ended well: its time, s, the numbers of its output by name, and what it has written."""

    elapsed_s: float
    values: tuple[tuple[str, float], ...]
    output: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """It is done; there is nothing to say about it but how long it took."""

    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionCounts:
    """Outcomes of one transaction type: errors by class (SQLSTATE or the engine's name for it)."""

    name: str
    ok: int = 0
    logical_failures: int = 0
    retried: int = 0
    missed: int = 0
    errors: tuple[tuple[str, int], ...] = ()

    @property
    def error_count(self) -> int:
        """All errors, whatever their class."""
        return sum(count for _, count in self.errors)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionLoad:
    """One transaction type in one window: outcomes; response (ended - intended), service (ended - started), schedule
    lag.

    The other fields are only in the result of a load. `ended`: transactions (ok + logical failures) that ended inside
    the measure window, whenever they were due. `late`: of those due in the window, ended after it (errors included).
    `…_at_least`: lower bounds of the times of those due in the window that had no answer within 1 s after the load:
    response of all, service of those that had begun, schedule lag of those never begun (`counts.missed`).
    """

    counts: TransactionCounts
    response: Histogram = field(default_factory=Histogram)
    service: Histogram = field(default_factory=Histogram)
    schedule: Histogram = field(default_factory=Histogram)
    ended: int = 0
    late: int = 0
    response_at_least: Histogram = field(default_factory=Histogram)
    service_at_least: Histogram = field(default_factory=Histogram)
    schedule_at_least: Histogram = field(default_factory=Histogram)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSecond:
    """The transactions that ended in one second of the load, all workers of one agent merged; by end time, so it sums
    to throughput.

    `second` counts from T0; `window` is the one that the second's start lies in. `duration_s` is < 1 for a cut second.
    What came over the wire has its transactions in columns (`proto.wire.columns`); equal all the same. `bins`: tenths
    of it (`proto.wire.histogram`), where the task requests them.
    """

    second: int
    window: Window
    start_ns: int
    duration_s: float
    transactions: Sequence[TransactionLoad]
    bins: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """A time in which no transaction of a load ended, in ns after the start of its measure window (negative: before
    it).

    `waiting` counts, by name, the transactions that were under way for at least half of that time and had no answer
    before its end. `errors` counts the transactions, and the attempts to connect, that failed in it.
    """

    start_ns: int
    end_ns: int
    errors: int = 0
    waiting: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Hang:
    """A terminal that ended no transaction in the measure window: it waited for one answer.

    `worker`: number of the load worker on its agent. `transaction`: name of the transaction; "" when the terminal had
    no connection. `waited_ns`: until the answer, or (`answered` False) until the end of the load.
    """

    worker: int
    transaction: str
    waited_ns: int
    answered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Handling:
    """The lateness with which a load worker, or several together, handled answers in the measure window.

    `late`: sampled times from the arrival of an answer to its handling; empty for blocking drivers, which have no event
    loop. `answers`: all answers of the event loop, sampled or not. `stamped`: samples that are exact, by receive time
    stamps of the kernel; the others are times since epoll's return with an estimate of what was before it.
    `runqueue_s`: time for which the threads waited for a CPU, summed over all of them. `runqueue_fraction`: the same of
    the thread that waited longest, over the window. None where the kernel does not count it.
    """

    late: Histogram = field(default_factory=Histogram)
    answers: int = 0
    stamped: int = 0
    runqueue_s: float | None = None
    runqueue_fraction: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseLoad:
    """The transactions of one phase of the measure window, as `LoadResult` has those of all of it: `transactions` were
    due in the phase, `ended` counts those that ended in it."""

    phase: str
    start_ns: int
    end_ns: int
    ended: int
    transactions: tuple[TransactionLoad, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitReading:
    """Differences found by reading commits back, of terminals whose last answer before was at `since_ns` and that read
    at `at_ns`, in ns after the start of the measure window.

    `lost`: acknowledged, and not in the database. `unknown`: without an answer; `unknown_committed` of them are there.
    `duplicates`: there more often than once. `unread`: terminals whose row could not be read.
    """

    since_ns: int
    at_ns: int
    lost: int = 0
    unknown: int = 0
    unknown_committed: int = 0
    duplicates: int = 0
    unread: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedCommits:
    """The tracked commits of a load: how many were acknowledged, ramps included, and the readings that differ. None
    acknowledged (None): they are not tracked."""

    acknowledged: int | None = None
    readings: tuple[CommitReading, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """An agent's whole load: the measure window merged, and what judges it.

    `ended_in_window` counts transactions (ok + logical failures) that ended inside the measure window: throughput.
    `transactions` has those due in the window: by intended time under open arrival, by start under closed, so that a
    stall cannot drop its own victims. `missed`: due in the window and never begun. `client_cpu_fraction`: CPU of the
    busiest worker process over the window, 1.0 = a whole core. `start_skew_ns`: how late after T0 the load really
    began. `seconds_produced` counts the `LoadSecond`s sent before this. `ceiling_…_per_s` is what this host was
    measured to do at most with this driver (`proveout ceiling`), with the server on the same machine and on another;
    None when it was not measured. `committed` counts, by name, all transactions that committed, in the ramps and after
    the end too; `unknown` those that may have: the connection was lost, or closed at the end, before the answer.
    `pause_longest_ns`: the longest time in the measure window for which one of the worker processes did not run
    (stopped, starved, or on a machine that was). `stalls`: the longest times without the end of a transaction that
    touch the measure window, in order of time. `hung` counts the terminals that ended no transaction in the measure
    window; `hangs` has those that waited longest. `handling`: how late answers were handled, of each worker process (of
    a Ray pool: of all together); () from an agent that does not measure it. `passes_s`: the time of each pass of each
    terminal, where the window is counted in passes. `output`: the text that an
    outside program has written; `values`: numbers of its output by name. `phases`: those of the measure window, in
    order; where their histograms do not fit into a message, in wider buckets (`histogram.widened`).
    `server_starts_ms`: the Unix time of its start by the server's clock, as it reports before the load and after it.
    """

    transactions: tuple[TransactionLoad, ...]
    ended_in_window: int
    measure_start_ns: int
    measure_end_ns: int
    client_cpu_fraction: float
    client_cpu_s: float
    start_skew_ns: int
    seconds_produced: int
    samples_lost: int = 0
    first_errors: tuple[str, ...] = ()
    ceiling_shared_per_s: float | None = None
    ceiling_apart_per_s: float | None = None
    committed: tuple[tuple[str, int], ...] = ()
    unknown: tuple[tuple[str, int], ...] = ()
    pause_longest_ns: int = 0
    stalls: tuple[Stall, ...] = ()
    hangs: tuple[Hang, ...] = ()
    hung: int = 0
    handling: tuple[Handling, ...] = ()
    passes_s: tuple[float, ...] = ()
    output: str = field(default="", repr=False)
    values: tuple[tuple[str, float], ...] = ()
    sessions: SessionResult = field(default_factory=SessionResult)
    phases: tuple[PhaseLoad, ...] = ()
    commits: TrackedCommits = field(default_factory=TrackedCommits)
    server_starts_ms: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One number of a capture: `metric` in the field's terms with its unit last, `label` tells instances apart ("" =
    the one)."""

    metric: str
    value: float
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureSample:
    """Readings of one capture at one instant of its host's clock. Counters are cumulative where their metric ends in
    `_total`.

    What came over the wire has its readings in columns (`proto.wire.columns`); equal all the same.
    """

    capture: str
    at_ns: int
    readings: Sequence[Reading]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureResult:
    """A capture that ended: samples sent, samples that it lost, CPU it cost in seconds; what its programs have
    written, or the report of the database; the reasons why that is missing or cut."""

    capture: str
    samples: int
    lost: int = 0
    cpu_s: float = 0.0
    output: str = field(default="", repr=False)
    notes: tuple[str, ...] = ()


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


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningState:
    """A tuning and what became of it; `lines` tell people how: the diff, the reason, the missing step, what is left.
    `subject` and `line` as in `TaskError`, below the tuning: `sql.apply.0`."""

    name: str
    operation: str
    outcome: TuningOutcome
    lines: tuple[str, ...] = ()
    keep: bool = False
    subject: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningDone:
    """A tuning task's answer, one state for each tuning (of several outcomes, as drift in one of two files, one
    each)."""

    states: tuple[TuningState, ...]
    seconds: float = 0.0


FaultStepKind: TypeAlias = Literal["begins", "in_place", "healing", "healed", "failed"]
"""The steps of a fault on a host: its first change begins; all of them are made; undoing begins; all are undone; or a
change could not be made, or not be undone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultStep:
    """A step of the occurrence `number` (from 1) of a fault on a host, at the instant `at_ns`; `text` gives the reason
    of a failure."""

    fault: str
    number: int
    step: FaultStepKind
    at_ns: int
    text: str = ""


TaskSample: TypeAlias = LoadSecond | CaptureSample | FaultStep
"""The samples that a task streams while it runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultOccurrence:
    """One occurrence of a fault on a host: the instants of its steps, None for those that were not reached.

    `error`: why a change could not be made; `residue`: what could not be undone, and is left on the host.
    `staleness_s`: the age of the newest commit that a standby had when its promotion began.
    """

    number: int
    begins_ns: int
    in_place_ns: int | None = None
    healing_ns: int | None = None
    healed_ns: int | None = None
    error: str = ""
    residue: tuple[str, ...] = ()
    staleness_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultInjected:
    """A fault on a host: its occurrences, in order."""

    fault: str
    occurrences: tuple[FaultOccurrence, ...]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskError:
    """The reason why a task failed: `code` for programs, `message` and `way_out` for users.

    `code`: `unreachable`, `refused`, `invalid`, `timeout`, `cancelled`, `lease_lost`, `disk_full`, `missing`, `fault`,
    `lost` (the connection broke, and what was under way may or may not have taken effect). `subject`: the text of the
    plan that the database refused, below the stage, the workload or the capture of the task (`dsl.plan.plan`);
    `line`: the line in it, from 1, 0 where the database gives none. "" where the plan is not the cause.
    """

    code: str
    message: str
    way_out: str = ""
    subject: str = ""
    line: int = 0
