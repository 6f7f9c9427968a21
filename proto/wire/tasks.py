"""Tasks that the coordinator sends to agents, as frozen data.

A task has a key, `run/stage/rung/repeat/attempt/what/host`; an agent that receives a key again repeats its
answers for that key and runs no task twice. The outcomes are in `results`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from proveout.core.data_classes import record
from proveout.dsl.plan.commands import NO_WAIT, Command, FioJob, MeasuredValue, WaitUntil
from proveout.dsl.plan.phases import Level
from proveout.dsl.plan.plan import Workload
from proveout.dsl.plan.scalars import (
    RATE_MAX,
    STANDBYS_MAX,
    STATEMENTS_MAX,
    THREADS_MAX,
    VALUES_MAX,
    WEEK_S,
    Form,
    LevelRate,
    Line,
    Name,
    Text,
    Threads,
)
from proveout.dsl.plan.stages import OWN_SESSIONS, TIMES_MAX, Sessions, Tuning, Windows
from proveout.dsl.plan.topology import Capture, Scrape, System

# The bounds of a field are those that an agent checks before it begins (`agent.security.task_rules`).

WORKERS_MAX = 4096
SESSION_MAX = 100
DIRECTORIES_MAX = 1000
TUNINGS_MAX, FAULT_TUNINGS_MAX = 500, 20
CHECKS_MAX, CHECKED_TEXTS_MAX = 1000, 20_000
SLICES_MAX = 1_000_000
SEED_MAX = 2**63
PEM_MAX = 65_536
EDGES_MAX = 2
"""A measure window has a start and an end."""
Workers: TypeAlias = Annotated[int, Form(ge=0, le=WORKERS_MAX)]
Seconds: TypeAlias = Annotated[float, Form(ge=0.0, le=WEEK_S)]
Instant: TypeAlias = Annotated[float, Form(ge=0.0, le=2 * WEEK_S)]
Pem: TypeAlias = Annotated[str, Form(max_length=PEM_MAX)]
MeasuredValues: TypeAlias = Annotated[tuple[MeasuredValue, ...], Form(max_length=VALUES_MAX)]


@record
class Endpoint:
    """How to reach a system. May hold passwords: not logged."""

    system: str  # name of the system in the plan
    engine: str  # name of its engine: postgres, mysql, oracle, …
    # a libpq conninfo (postgres), a file path (sqlite), `user/password@target` (oracle)
    dsn: str = field(repr=False)
    version: str = ""  # version of the server; "" when it is not known yet
    provisioned: bool = False  # whether an agent has started it
    # those of a system with several instances, the first of them equal to `dsn`; empty where there is one
    instances: tuple[str, ...] = field(default=(), repr=False)

    def among(self, endpoints: Mapping[str, Endpoint], members: Iterable[str]) -> Endpoint:
        """The same with the dsns of the systems `members` as instances; its own ones where there are none."""
        dsns = tuple(endpoints[name].dsn for name in members if name in endpoints)
        return replace(self, instances=dsns) if dsns else self


HOUR_S = 3600.0
HEALING_S = 600.0
"""The longest time that undoing the changes of faults may take beyond the load."""
FILE_BYTES_PER_S_MIN = 20e6


class TaskKind:
    """A kind of task, beyond the fields of its record. Not a dataclass, so that those that inherit from it are cheap to
    define.

    `named`: the form of its subject. `limit_s`: the fixed part of its time limit, which is generous, because the lease
    detects a dead agent. `when_away`: what its agent does while a system of its own address does not answer: it fails,
    repeats the task, which is safe, or asks the system until it answers and begins then.
    """

    __slots__ = ()
    named: ClassVar[str]
    limit_s: ClassVar[float] = 180.0
    when_away: ClassVar[Literal["fail", "repeat", "ask"]] = "fail"

    @property
    def subject(self) -> str:
        """The `what` of its key: its verb and object."""
        return self.named.format(self)

    @property
    def more_s(self) -> float:
        """The time that its content adds to the limit, seconds."""
        return 0.0

    @property
    def rows_of(self) -> Workload | None:
        """The workload all of whose rows it reads or writes, for which it has more time."""
        return None

    @property
    def asked(self) -> tuple[Endpoint, ...]:
        """The systems that it connects to."""
        of: Any = self
        one = (getattr(of, name) for name in ("endpoint", "source", "sink") if hasattr(of, name))
        return (*getattr(of, "endpoints", ()), *one)


@record
class StartSystem(TaskKind):
    """Provision a system: initialise if its data is not there yet, start, answer SystemStarted."""

    system: System  # the system
    data_root: Line  # a directory on that host under which the system keeps its data across a resume
    primary: tuple[Endpoint, ...] = ()  # of a standby: the one that it follows; it is up when it has all of its data
    standbys: Annotated[tuple[Name, ...], Form(max_length=STANDBYS_MAX)] = ()  # of a primary: the names of its standbys
    synchronous: tuple[str, ...] = ()  # those of the standbys that the primary's commits wait for
    named = "start:{0.system.name}"


@record
class StopSystem(TaskKind):
    """Stop a provisioned system."""

    system: Name  # name of the system
    data_root: Line  # as in StartSystem
    remove: bool = False  # delete its data too
    named = "stop:{0.system}"


@record
class InspectSystem(TaskKind):
    """Connect to a system that runs already: check that it answers; version and settings for the fingerprint."""

    endpoint: Endpoint  # the system
    schema: bool = False  # its tables and indexes too
    named = "inspect:{0.endpoint.system}"
    limit_s = 90.0  # an agent waits for a system that restarts
    when_away = "repeat"


SnapshotAction: TypeAlias = Literal["save", "restore", "keep"]
"""Keep the data (`save`), bring it back (`restore`), or save it unless there is a copy (`keep`)."""


@record
class SnapshotSystem(TaskKind):
    """Keep or bring back the data of a provisioned system, which is stopped and started for it, or of a database file
    that the dsn of the system names."""

    system: System  # the system
    data_root: Line  # as in StartSystem
    action: SnapshotAction  # what to do
    named = "{0.action}:{0.system.name}"
    limit_s = 4 * HOUR_S


POPULATE_STEPS = ("prepare", "load", "finish")


@record
class PopulateSystem(TaskKind):
    """Create the schema of a workload and load it; answer Populated."""

    workload: Workload  # whose schema
    endpoint: Endpoint  # the system
    workers: Workers  # number of processes
    # those of prepare, load and finish to take: one task takes all, or several hosts take a `load` each, after one
    # `prepare` and before one `finish`. `drop` alone drops the tables of the workload again
    steps: tuple[str, ...] = POPULATE_STEPS
    # identifies the load: a later task with the same one continues behind the committed ranges. A load without one ("")
    # begins with empty tables, and removes them when it fails
    load: Annotated[str, Form(pattern=r"([0-9a-f]{32})?")] = ""
    share_from: int = 0  # the units to load are those from here …
    share_to: int = 1  # … to before here …
    shares: int = 1  # … of so many
    limit_s = 600.0
    when_away = "repeat"

    @property
    def subject(self) -> str:
        return f"{'drop' if self.steps == ('drop',) else 'populate'}:{self.endpoint.system}"

    @property
    def rows_of(self) -> Workload | None:
        return self.workload


@record
class LinkSystems(TaskKind):
    """Set up asynchronous propagation of a workload's tables; await the initial sync.

    Idempotent: an existing link is renewed (its connection may have moved), never doubled.
    """

    source: Endpoint  # where rows are changed
    sink: Endpoint  # where they arrive
    workload: Workload  # whose tables
    copy_data: bool  # copy the rows of the source (the sink's tables are empty); else both hold the same rows already
    # conninfo that the agent puts in for an embedded source (`agent.engines.postgres.roles`); a coordinator leaves it
    # empty, and what it sends there is not used
    source_key: str = field(default="", repr=False)
    sink_key: str = field(default="", repr=False)  # the same for an embedded sink
    named = "link:{0.source.system}"
    limit_s = 300.0
    when_away = "ask"

    @property
    def rows_of(self) -> Workload | None:
        return self.workload if self.copy_data else None


@record
class CompareSystems(TaskKind):
    """Await that all committed on the source is applied on the sink, then compare the tables; answer Compared."""

    source: Endpoint  # where rows are changed
    sink: Endpoint  # where they arrive
    workload: Workload  # whose tables
    drain_timeout_s: Seconds  # the longest wait, s
    named = "compare:{0.source.system}"
    limit_s = 600.0
    when_away = "repeat"

    @property
    def more_s(self) -> float:
        return self.drain_timeout_s

    @property
    def rows_of(self) -> Workload | None:
        return self.workload


@record
class ReadFacts(TaskKind):
    """Tell what this machine is and how it is set; answer FactsRead."""

    directories: Annotated[
        tuple[tuple[Name, Line], ...], Form(max_length=DIRECTORIES_MAX)
    ] = ()  # (system, where its data lies)
    tools: tuple[str, ...] = ()  # outside programs whose versions are asked for
    named = "facts"
    limit_s = 30.0


@record
class CheckedText:
    """A statement or a query of the plan to prepare."""

    subject: Line  # its path in the plan
    text: Text  # the statement
    # it will find the tables of now, so that all that it names must be there. Otherwise only its syntax is checked
    settled: bool = False


@record
class CheckedLoad:
    """A load to prepare: its statements on a connection with its settings."""

    subject: Line  # path of the stage in the plan
    workload: Workload  # whose statements
    session: Annotated[
        tuple[tuple[str, str], ...], Form(max_length=SESSION_MAX)
    ] = ()  # settings of every connection (name, value)
    settled: bool = False  # as in CheckedText
    # the tables of the workload must be there with their columns and rows, because no stage populates them
    expected: bool = False


USES = ("populate", "checkpoint", "propagate")
"""Uses of a system, beyond statements, that need rights of their own."""


@record
class CheckSystem(TaskKind):
    """Log in to a running system and check what a plan needs of it; answer Checked, with all that is wrong.

    Nothing is changed.
    """

    endpoint: Endpoint  # the system
    loads: Annotated[tuple[CheckedLoad, ...], Form(max_length=CHECKS_MAX)] = ()  # loads to prepare
    texts: Annotated[tuple[CheckedText, ...], Form(max_length=CHECKED_TEXTS_MAX)] = ()  # statements to prepare
    captures: Annotated[tuple[Capture, ...], Form(max_length=CHECKS_MAX)] = ()  # captures that must be possible
    uses: tuple[str, ...] = ()  # further uses of it: populate, checkpoint, propagate
    wait: bool = False  # a system that does not answer is waited for, as other tasks do
    # (path of a stage, the connections that its loads keep at a rung), of the stage with the most
    connections: tuple[tuple[str, int], ...] = ()
    named = "check:{0.endpoint.system}"
    when_away = "repeat"


@record
class OfferedRate:
    """The highest rate of loads with a driver from one host."""

    subject: Line  # path of a stage in the plan
    engine: Line  # name of the engine whose driver it is
    per_s: Annotated[float, Form(gt=0.0, le=RATE_MAX)]  # transactions, 1/s
    beside: bool = False  # the server is on the same host


@record
class CheckedCommand:
    """A program that a plan runs."""

    subject: Line  # its path in the plan
    argv: tuple[str, ...]  # program and arguments, with the form of each value that is not known yet


@record
class CheckHost(TaskKind):
    """Check what a run needs of this host; answer Checked. Nothing is changed."""

    systems: Annotated[
        tuple[System, ...], Form(max_length=CHECKS_MAX)
    ] = ()  # systems that the agent must be able to start
    data_root: Line = ""  # the directory of their data
    bytes_min: Annotated[int, Form(ge=0)] = 0  # free space there, bytes
    tools: tuple[str, ...] = ()  # programs that must be found
    rates: Annotated[
        tuple[OfferedRate, ...], Form(max_length=CHECKS_MAX)
    ] = ()  # rates that must be below the ceilings measured on this host
    commands: Annotated[
        tuple[CheckedCommand, ...], Form(max_length=CHECKS_MAX)
    ] = ()  # programs that the policy must list
    reboots: bool = False  # whether the run reboots it
    named = "check"
    limit_s = 30.0


@record
class CheckInvariants(TaskKind):
    """Ask a system whether what a workload must conserve is conserved; answer InvariantsChecked."""

    workload: Workload  # whose invariants
    endpoint: Endpoint  # the system
    named = "invariants:{0.endpoint.system}"
    limit_s = 600.0
    when_away = "repeat"

    @property
    def rows_of(self) -> Workload | None:
        return self.workload


@record
class RunSql(TaskKind):
    """Execute statements, wait, and read numbers; answer SqlDone."""

    endpoint: Endpoint  # the system
    statements: Annotated[
        tuple[Text, ...], Form(max_length=STATEMENTS_MAX)
    ]  # first these in order, each in its own transaction
    wait_until: WaitUntil = NO_WAIT  # then this wait
    query: Text = ""  # then this query; "" for none
    values: MeasuredValues = ()  # the numbers to read from its rows
    named = "sql:{0.endpoint.system}"
    limit_s = 12 * HOUR_S
    when_away = "ask"


@record
class RunCommand(TaskKind):
    """Run a program of the host's policy; answer CommandDone."""

    command: Command  # the program
    values: MeasuredValues  # the numbers to read from its output, at least one
    limit_s = 120.0

    @property
    def subject(self) -> str:
        return f"command:{self.command.argv[0].rpartition('/')[2]}"

    @property
    def more_s(self) -> float:
        return self.command.within_s


@record
class Checkpoint(TaskKind):
    """Ask the system to write out its dirty pages, so that the next iteration does not pay for the last one."""

    endpoint: Endpoint  # the system
    named = "checkpoint:{0.endpoint.system}"
    limit_s = 4 * HOUR_S
    when_away = "repeat"


@record
class RestoreCopy(TaskKind):
    """Make the data of a running system again from the copy that its tuning `database_copy` keeps."""

    endpoint: Endpoint  # the system
    named = "restore:{0.endpoint.system}"
    limit_s = 4 * HOUR_S
    when_away = "repeat"


@record
class ApplyTuning(TaskKind):
    """Make these changes to the host, all or none of them; answer TuningDone.

    Changes stay until RevertTuning, or every end of the session; those with `keep` stay after it.
    """

    tunings: Annotated[tuple[Tuning, ...], Form(max_length=TUNINGS_MAX)]  # the changes
    endpoints: Annotated[tuple[Endpoint, ...], Form(max_length=TUNINGS_MAX)] = ()  # the systems that are tuned
    check: bool = False  # write nothing: the answer is what would be changed
    limit_s = 600.0

    @property
    def subject(self) -> str:
        return "plan-tuning" if self.check else "tune"

    @property
    def more_s(self) -> float:
        return 60.0 * len(self.tunings)


@record
class VerifyTuning(TaskKind):
    """Look whether what was applied is still in place; answer `TuningDone`, changing nothing."""

    named = "verify-tuning"


@record
class RevertTuning(TaskKind):
    """Undo what was applied, the last change first; answer TuningDone."""

    systems_only: bool = False  # only what tunes systems
    tunings: tuple[str, ...] = ()  # only those of these names; empty: all
    named = "revert-tuning"
    limit_s = 600.0


@record
class RebootHost(TaskKind):
    """Reboot this host at the end of the session, which the coordinator ends after the answer; the changes of the run
    stay, for `hold_s` without it. Refused unless the agent is a service, and the policy permits it."""

    hold_s: Annotated[float, Form(gt=0.0, le=7 * 24 * HOUR_S)]  # seconds until the run is back at the latest
    named = "reboot"


Distribution: TypeAlias = Literal["constant", "poisson"]
"""Arrivals of an open load: equal times between them, or exponentially distributed ones."""
ThinkTime: TypeAlias = Literal["constant", "exponential"]
"""Think times under closed arrival: all alike, or exponentially distributed."""


@record
class LoadShare:
    """This agent's part of the load: `count` terminals from number `first` on, of the `total` over all agents.

    With `rate` arrival is open: terminal k fires the schedule's arrivals k, k + total, k + 2 total … (constant), or its
    own Poisson process of rate/total. Without, it is closed: a terminal begins when it has ended, and thought.
    """

    first: Annotated[int, Form(ge=0)]  # number of the first terminal, from 0
    count: Annotated[int, Form(ge=1)]  # number of terminals, at least 1
    total: Threads  # number of terminals of all agents
    rate: LevelRate | None = None  # transactions a second, of all agents together
    distribution: Distribution = "constant"  # arrivals of an open load
    # pause between two transactions under closed arrival, or its mean, s, in place of the workload's own think times
    think_s: Seconds | None = None
    think: ThinkTime = "exponential"  # the distribution of think_s
    # follow each other in the measure window: of the rate, which begins at `rate`, or under closed arrival of the
    # threads; terminal k is active while k is below the level
    levels: tuple[Level, ...] = ()


@record
class ClusterSecrets:
    """The credentials of a run's Ray cluster. Not logged."""

    token: Line = field(repr=False)  # token that clients of the cluster show
    authority: Pem  # certificate (PEM) of the cluster's authority
    authority_key: Pem = field(repr=False)  # its key (PEM), with which each node makes its own certificate


@record
class FormPool(TaskKind):
    """Start a Ray node: the head of a cluster, or one that joins it; answer PoolFormed."""

    head: str  # `name:port` of the cluster to join; "" makes this node the head of a new one
    # the address that the other hosts know this one by; "": the one from which it reaches `head`, or else `towards`
    address: str
    cpus: Annotated[int, Form(ge=0, le=THREADS_MAX)]  # number of workers; 0: the host's cores
    secrets: ClusterSecrets  # credentials of the cluster
    towards: str = ""  # `name:port` of another host
    named = "pool"


PoolKind: TypeAlias = Literal["local", "ray"]
"""Processes of the agent, or actors of a Ray cluster."""
Placement: TypeAlias = Literal["spread", "pack"]
"""Ray's strategies of placement groups, both without a guarantee."""


@record
class LoadPool:
    """The place of an agent's load workers: see `plan.Pool`."""

    kind: PoolKind = "local"  # processes of the agent, or actors of a Ray cluster
    address: str = ""  # `name:port` of the cluster; "" for the one that the agent forms
    placement: Placement = "spread"  # of Ray actors: over many nodes, or on few


@record
class RunLoad(TaskKind):
    """Arm a load: connect and prepare, report TaskArmed, wait for Start, run the windows, answer LoadResult.

    A LoadSecond is sent for each second of it.
    """

    workload: Workload  # whose transactions
    endpoint: Endpoint  # the system
    share: LoadShare  # this agent's part
    windows: Windows  # the windows of the iteration
    workers: Workers  # their number on this agent, of a Ray pool in all the cluster; 0 is one for each CPU there
    seed: Annotated[int, Form(ge=0, lt=SEED_MAX)]  # of the random streams of all terminals
    label: Line  # name of the iteration, for messages
    pool: LoadPool = field(default_factory=LoadPool)  # where the workers are
    session: Annotated[
        tuple[tuple[str, str], ...], Form(max_length=SESSION_MAX)
    ] = ()  # settings of every connection (name, value)
    load: str = ""  # its name among the loads of a stage that has several
    bins: bool = False  # its seconds have tenths (LoadSecond.bins), as loads with faults have
    # count the commits of each terminal in the database too, in the table of `dsl.workloads.commits`. Beside faults the
    # count is made only at Finish, when all of them are over: one may be in place longer than the windows
    tracked: bool = False
    checked: bool = False  # tracked, and a transaction that had committed is not run again
    sessions: Sessions = OWN_SESSIONS  # the rules for its connections
    limit_s = 240.0
    when_away = "repeat"

    @property
    def subject(self) -> str:
        return f"load:{self.load}" if self.load else "load"

    @property
    def more_s(self) -> float:
        return self.windows.total_s + (HEALING_S if self.awaits_finish else 0.0)

    @property
    def awaits_finish(self) -> bool:
        """Whether it has tracked commits beside faults: the tenths are of loads with faults."""
        return self.tracked and self.bins


@record
class InjectFault(TaskKind):
    """Arm a fault, report TaskArmed, wait for Start; apply the tunings of this host at each time, and undo them; answer
    FaultInjected. A FaultStep is sent for each step."""

    fault: Name  # name of the fault in the plan
    tunings: Annotated[tuple[Tuning, ...], Form(min_length=1, max_length=FAULT_TUNINGS_MAX)]  # its changes to this host
    for_s: Seconds  # they are undone so long after they were applied, s; 0: the changes end by themselves
    # instants at which it begins, s after T0. Of a fault with a condition it is empty: each Trigger begins it, until
    # Finish
    begins_s: Annotated[tuple[Instant, ...], Form(max_length=TIMES_MAX)]
    windows: Windows  # the windows of the iteration
    label: Line  # name of the iteration, for messages
    endpoints: Annotated[tuple[Endpoint, ...], Form(max_length=TUNINGS_MAX)] = ()  # the systems that the tunings change
    systems: Annotated[tuple[System, ...], Form(max_length=TUNINGS_MAX)] = ()  # those of them that are provisioned
    data_root: Line = ""  # the directory of their data
    named = "fault:{0.fault}"
    limit_s = HEALING_S

    @property
    def more_s(self) -> float:
        return self.windows.total_s + 60.0 * len(self.tunings)


@record
class PrepareFio(TaskKind):
    """Make the files that a job works on, as large as they must be, or look whether its devices may be used; answer
    Done."""

    job: FioJob  # the job
    data_root: Line = ""  # a directory for the files of a job that names none; "" is one of the agent's own
    named = "fio-files"
    limit_s = 300.0

    @property
    def more_s(self) -> float:
        return self.job.jobs * self.job.size_bytes / FILE_BYTES_PER_S_MIN


@record
class RunFio(TaskKind):
    """Arm fio, report TaskArmed, wait for Start, run it through ramp-up and measure window, answer LoadResult.

    Its transactions are `read` and `write`.
    """

    job: FioJob  # the job
    iodepth: Threads  # I/Os under way in each of its jobs, at least 1
    windows: Windows  # the windows of the iteration
    label: Line  # name of the iteration, for messages
    data_root: Line = ""  # as in PrepareFio
    first_slice: Annotated[int, Form(ge=0, le=SLICES_MAX)] = (
        0  # slices of devices are counted over all hosts: this one's begin here
    )
    named = "fio"
    limit_s = 240.0

    @property
    def more_s(self) -> float:
        return self.windows.total_s


@record
class RunCapture(TaskKind):
    """Start a capture now, stream a CaptureSample at a time until Finish; answer CaptureResult."""

    capture: Capture  # the capture
    endpoints: tuple[Endpoint, ...] = ()  # the systems that it reads
    # edges of the measure window, s after T0, at which it takes two more samples. Without them it needs no Start
    edges_s: Annotated[tuple[Instant, ...], Form(max_length=EDGES_MAX)] = ()
    named = "capture:{0.capture.name}"
    limit_s = 8 * 24 * HOUR_S
    when_away = "repeat"


def exported_name(scrape: Scrape) -> str:
    """The metric of the readings that a prometheus capture makes of a scrape; counters' end in `_total`, as all
    counters' here do."""
    ending = "_total" if scrape.kind == "counter" else ""
    return f"prometheus.{scrape.alias.removesuffix(ending)}{ending}"


def measured_name(kind: str, value: MeasuredValue) -> str:
    """The metric of the readings that a capture of a kind makes of a value; a rate is that of a counter."""
    return f"{kind}.{value.name}{'_total' if value.kind == 'rate' else ''}"


def wait_names(metric: str) -> tuple[str, str]:
    """The metrics of the waits that come with the age `metric`, s: from the first query without an answer to the
    sample's own query, and from there to its answer."""
    return f"{metric}.unanswered_s", f"{metric}.answer_s"


TaskSpec: TypeAlias = (
    StartSystem
    | StopSystem
    | InspectSystem
    | SnapshotSystem
    | PopulateSystem
    | LinkSystems
    | CompareSystems
    | CheckInvariants
    | CheckSystem
    | CheckHost
    | ReadFacts
    | RunSql
    | RunCommand
    | Checkpoint
    | RestoreCopy
    | ApplyTuning
    | VerifyTuning
    | RevertTuning
    | RebootHost
    | FormPool
    | RunLoad
    | InjectFault
    | PrepareFio
    | RunFio
    | RunCapture
)


@record
class Task:
    """One piece of work for one agent."""

    key: str  # `run/stage/rung/repeat/attempt/what/host`, at most 2,000 characters; runs once, however often it is sent
    spec: TaskSpec  # what to do
    deadline_s: float  # counts from its arrival, s; above 0 and at most 30 days; TaskProgress moves it


@record
class SignedTask:
    """A task with the signature of the run's coordinator, which covers the bytes that are sent.

    It is an Ed25519 signature (RFC 8032) with the key of the certificate in Hello.signer, over these seven parts in
    this order: the text `proveout task`; the agent's role, `agent/db1`, as in the URI `proveout://agent/db1` of its
    certificate; Hello.run_id; Hello.epoch; `sequence`; `expires_unix_s`; `task`. Texts are in UTF-8 and numbers in
    decimal; before each part is its length in bytes as 8 bytes, big-endian.

    Between the processes of one agent a task has no signature.
    """

    task: bytes = field(repr=False)  # a serialised Task
    sequence: int = 0  # above that of all tasks that this agent has accepted from the run in this epoch
    expires_unix_s: int = 0  # end of the signature's validity, Unix time, s
    signature: bytes = field(default=b"", repr=False)  # 64 bytes
