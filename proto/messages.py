"""Tasks, results and samples: the vocabulary between coordinator and agents, as frozen data.

Times named `*_ns` are nanoseconds on the CLOCK_MONOTONIC of the host that the message speaks of, unless said otherwise.
A task has a key, `run/stage/rung/repeat/attempt/what/host`; an agent that gets a key again answers with what it knows of
that key and does nothing twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from proveout.dsl.plan import Capture, Scrape, System, Tuning, Value, Windows, Workload

PROTOCOL_VERSION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """How to reach a system: `dsn` is a libpq conninfo (postgres), a file path (sqlite), `user/password@target` (oracle).

    `instances` are those of a system with several, the first of them equal to `dsn`. May hold passwords: not logged.
    """

    system: str
    engine: str
    dsn: str = field(repr=False)
    version: str = ""
    provisioned: bool = False
    instances: tuple[str, ...] = field(default=(), repr=False)


# ---- tasks -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StartSystem:
    """Provision `system` (embedded): initialise if its data is not there yet, start, answer `SystemStarted`.

    `data_root` is a directory on that host under which the system keeps its data across a resume.
    """

    system: System
    data_root: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StopSystem:
    """Stop a provisioned system; with `remove`, delete its data."""

    system: str
    data_root: str
    remove: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectSystem:
    """Connect to a system that runs already: check that it answers; version and settings for the fingerprint."""

    endpoint: Endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotSystem:
    """Keep (`save`) or bring back (`restore`) the data of a provisioned system; it is stopped and started for it."""

    system: System
    data_root: str
    action: Literal["save", "restore"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PopulateSystem:
    """Create the schema of `workload` in `endpoint` and load it with `workers` processes; answer `Populated`."""

    workload: Workload
    endpoint: Endpoint
    workers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSystems:
    """Set up asynchronous propagation `source` -> `sink` of `workload`'s tables; await the initial sync.

    `copy_data` copies the rows that the source has (the sink's tables are empty); else both hold the same rows already.
    Idempotent: an existing link is renewed (its connection may have moved), never doubled.
    """

    source: Endpoint
    sink: Endpoint
    workload: Workload
    copy_data: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareSystems:
    """Await that all committed on `source` is applied on `sink` (at most `drain_timeout_s`), then compare every table."""

    source: Endpoint
    sink: Endpoint
    workload: Workload
    drain_timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFacts:
    """Tell what this machine is and how it is set; answer `FactsRead`. `directories`: (system, where its data lies)."""

    directories: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckInvariants:
    """Ask `endpoint` whether what `workload` must conserve is conserved; answer `InvariantsChecked`."""

    workload: Workload
    endpoint: Endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSql:
    """Statements, in order, each in its own transaction."""

    endpoint: Endpoint
    statements: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Ask the system to write out its dirty pages, so that the next iteration does not pay for the last one."""

    endpoint: Endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyTuning:
    """Make these changes to the host, all or none of them; answer `TuningDone`.

    With `check` nothing is written: the answer is what would be changed. `endpoints` are those of the systems that are tuned. What is
    applied stays until `RevertTuning`, or the end of the session whatever ends it; what says `keep` stays after it.
    """

    tunings: tuple[Tuning, ...]
    endpoints: tuple[Endpoint, ...] = ()
    check: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyTuning:
    """Look whether what was applied is still in place; answer `TuningDone`, changing nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RevertTuning:
    """Undo what was applied, the last change first; answer `TuningDone`. With `systems_only` only what tunes systems."""

    systems_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadShare:
    """This agent's part of the load: terminals `first` … `first + count - 1` of `total`, over all agents.

    With `rate` (transactions a second, all agents together) arrival is open: terminal k fires the schedule's arrivals
    k, k + total, k + 2 total … (constant), or its own Poisson process of rate/total. `rate_to` is what the rate has become by
    the end of the measure window, in a straight line. Without `rate`, arrival is closed; `think_s` is then the pause between
    two transactions, or its mean, in place of the workload's own think times.
    """

    first: int
    count: int
    total: int
    rate: float | None = None
    distribution: Literal["constant", "poisson"] = "constant"
    rate_to: float | None = None
    think_s: float | None = None
    think: Literal["constant", "exponential"] = "exponential"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSecrets:
    """What lets a process into a run's Ray cluster: a token, and the authority of its certificates (PEM). Not logged."""

    token: str = field(repr=False)
    authority: str
    authority_key: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FormPool:
    """Start a Ray node for `cpus` workers (0: the host's cores): the head of a cluster, or one that joins that `head` (`name:port`).

    `address` is what the other hosts know this one by; "" when it does not matter. Answer `PoolFormed`.
    """

    head: str
    address: str
    cpus: int
    secrets: ClusterSecrets


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPool:
    """Where an agent's load workers run: see `plan.Pool`. A `ray` pool without an address is one that the agent forms."""

    kind: Literal["local", "ray"] = "local"
    address: str = ""
    placement: Literal["spread", "pack"] = "spread"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLoad:
    """Arm a load: connect and prepare, report `armed`, wait for `Start(t0_ns)`, run the windows, answer `LoadResult`.

    `workers` is their number on this agent, of a Ray pool in all the cluster; 0 is one for each CPU there.
    """

    workload: Workload
    endpoint: Endpoint
    share: LoadShare
    windows: Windows
    workers: int
    seed: int
    label: str
    pool: LoadPool = field(default_factory=LoadPool)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCapture:
    """Start a capture now, stream `CaptureSample`s until it is stopped by `Finish`; answer `CaptureResult`."""

    capture: Capture
    endpoints: tuple[Endpoint, ...] = ()


def exported_name(scrape: Scrape) -> str:
    """The metric of the readings that a prometheus capture makes of a scrape; counters' end in `_total`, as all counters' here do."""
    ending = "_total" if scrape.kind == "counter" else ""
    return f"prometheus.{scrape.alias.removesuffix(ending)}{ending}"


TaskSpec: TypeAlias = (
    StartSystem
    | StopSystem
    | InspectSystem
    | SnapshotSystem
    | PopulateSystem
    | LinkSystems
    | CompareSystems
    | CheckInvariants
    | ReadFacts
    | RunSql
    | Checkpoint
    | ApplyTuning
    | VerifyTuning
    | RevertTuning
    | FormPool
    | RunLoad
    | RunCapture
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One piece of work for one agent; `deadline_s` counts from its arrival there.

    The last three are its signature (`proto.orders`), which the connection to the agent adds.
    """

    key: str
    spec: TaskSpec
    deadline_s: float
    sequence: int = 0
    expires_unix_s: int = 0
    signature: str = field(default="", repr=False)


# ---- results -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemStarted:
    """A system is up: how to reach it, and its settings that travel with the results (name -> value, sorted)."""

    endpoint: Endpoint
    settings: tuple[tuple[str, str], ...] = ()
    fresh: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCount:
    """Rows in a table after population, and the range that the specification gives."""

    table: str
    rows: int
    expected_low: int
    expected_high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Populated:
    """A population: rows per table with what was expected, wall time in seconds."""

    tables: tuple[TableCount, ...]
    seconds: float


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
    """One invariant of a workload: whether it holds, and the two numbers it stands on, as a sentence for people."""

    name: str
    holds: bool
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FactsRead:
    """A machine's part of the environment's fingerprint, sorted by name (see `agent/facts.py`)."""

    facts: tuple[tuple[str, Value], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InvariantsChecked:
    """All invariants of a workload, as one system has them; `tallies` are what it counts of transactions (`TransactionType.counted`)."""

    checks: tuple[InvariantCheck, ...]
    seconds: float
    tallies: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolFormed:
    """A Ray node is up in the cluster whose GCS is at `address` (`name:port`)."""

    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlDone:
    """Rows returned or affected, per statement."""

    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """It is done; there is nothing to say about it but how long it took."""

    seconds: float = 0.0


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
    """One transaction type in one window: outcomes; response (ended - intended), service (ended - started), schedule lag."""

    counts: TransactionCounts
    response: Histogram = field(default_factory=Histogram)
    service: Histogram = field(default_factory=Histogram)
    schedule: Histogram = field(default_factory=Histogram)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSecond:
    """What ended in one second of the load, all workers of one agent merged; by end time, so it sums to throughput.

    `second` counts from T0; `window` is the one that the second's start lies in. `duration_s` is < 1 for a cut second.
    """

    second: int
    window: Literal["ramp_up", "measure", "ramp_down"]
    start_ns: int
    duration_s: float
    transactions: tuple[TransactionLoad, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """An agent's whole load: the measure window merged, and what judges it.

    `ended_in_window` counts transactions (ok + logical failures) that ended inside the measure window: throughput.
    `transactions` classifies by intended time under open arrival (so that a stall cannot drop its own victims) and by
    end time under closed. `missed`: intended in the window and never finished. `client_cpu_fraction`: CPU of the busiest
    worker process over the window, 1.0 = a whole core. `start_skew_ns`: how late after T0 the load really began.
    `seconds_produced` counts the `LoadSecond`s sent before this. `ceiling_…_per_s` is what this host was measured to do at most with
    this driver (`proveout ceiling`), with the server on the same machine and on another; None when it was not measured.
    `committed` counts, by name, all transactions that committed, in the ramps and after the end too; `unknown` those that may have:
    the connection was lost, or closed at the end, before the answer.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One number of a capture: `metric` in the field's terms with its unit last, `label` tells instances apart ("" = the one)."""

    metric: str
    value: float
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureSample:
    """Readings of one capture at one instant of its host's clock. Counters are cumulative where their metric ends in `_total`."""

    capture: str
    at_ns: int
    readings: tuple[Reading, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureResult:
    """A capture that ended: samples sent, samples it knows it lost, CPU it cost in seconds."""

    capture: str
    samples: int
    lost: int = 0
    cpu_s: float = 0.0


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
"""What became of a tuning on a host.

Of applying: `would_change` (only asked), `applied` and verified, `unchanged` (was so already), `needs_restart` (stored, but not in effect),
`refused` (nothing was changed), `failed`. Of looking again: `in_place`, `drifted` (another hand changed it since). Of undoing: `reverted`,
`kept`, `drifted` (left as the other hand set it), `residue` (could not be undone).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningState:
    """A tuning and what became of it; `lines` tell people how: the diff, the reason, the missing step, what is left."""

    name: str
    operation: str
    outcome: TuningOutcome
    lines: tuple[str, ...] = ()
    keep: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningDone:
    """A tuning task's answer, one state for each tuning (of several outcomes, as drift in one of two files, one each)."""

    states: tuple[TuningState, ...]
    seconds: float = 0.0


TaskResult: TypeAlias = (
    SystemStarted
    | Populated
    | Compared
    | InvariantsChecked
    | FactsRead
    | PoolFormed
    | SqlDone
    | TuningDone
    | Done
    | LoadResult
    | CaptureResult
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskError:
    """Why a task failed: `code` for programs, `message` and `way_out` for people.

    `code`: `unreachable`, `refused`, `invalid`, `timeout`, `cancelled`, `lease_lost`, `disk_full`, `missing`, `fault`.
    """

    code: str
    message: str
    way_out: str = ""


# ---- the session -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """The coordinator opens: which run, which fencing epoch. An agent that has seen a higher epoch refuses.

    `signer` is the certificate (PEM) of who signs its tasks, `audit` the head of the run's audit log.
    """

    run_id: str
    epoch: int
    host: str
    beat_s: float = 2.0
    lease_s: float = 10.0
    protocol: int = PROTOCOL_VERSION
    version: str = ""
    signer: str = field(default="", repr=False)
    audit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """A heartbeat and clock probe: `sent_ns` on the coordinator's monotonic clock."""

    sequence: int
    sent_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Start the armed load of `key` at `t0_ns`."""

    key: str
    t0_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """End a capture gracefully: it answers its result."""

    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """Stop a task and undo what it holds; it ends `cancelled`."""

    key: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodbye:
    """The run is over: the agent ends all of the run's tasks and systems, forgets its state, and a child agent exits.

    `keep_data` leaves the data of provisioned systems in place for a resume.
    """

    keep_data: bool = False


CoordinatorMessage: TypeAlias = Hello | Beat | Task | Start | Finish | Cancel | Goodbye


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    """The agent's answer to Hello: what it is, and what its machine is (the fingerprint, name -> value).

    `session` names the agent's session: the same again after a reconnect means that its tasks have gone on meanwhile.
    `audit` is the head of the agent's audit log.
    """

    agent: str
    version: str
    protocol: int
    machine_id: str
    cores: int
    facts: tuple[tuple[str, Value], ...] = ()
    session: str = ""
    audit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The agent will not serve this session (stale epoch, other version); the stream ends after it."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BeatReply:
    """Answer to a Beat: its sequence and sent time echoed, the agent's monotonic time on arrival and on sending."""

    sequence: int
    sent_ns: int
    received_ns: int
    replied_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAccepted:
    """The agent has the task, and has noted its key."""

    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskArmed:
    """A load is ready to start."""

    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskProgress:
    """How far a task is, for people: `done` of `total` `unit`s (total 0 = not known)."""

    key: str
    done: float
    total: float
    unit: str
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDone:
    """A task's result."""

    key: str
    result: TaskResult


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFailed:
    """A task's failure. What it had started is stopped."""

    key: str
    error: TaskError


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A sample of a task; `sequence` counts from 1 per task, so a gap is seen."""

    key: str
    sequence: int
    sample: LoadSecond | CaptureSample


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """Something a person may want to know; `level` is debug, info, warning or error."""

    level: str
    text: str


AgentMessage: TypeAlias = (
    Welcome | Refused | BeatReply | TaskAccepted | TaskArmed | TaskProgress | TaskDone | TaskFailed | Sample | LogLine
)
