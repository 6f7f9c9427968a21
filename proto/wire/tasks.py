"""Tasks that the coordinator sends to agents, as frozen data.

A task has a key, `run/stage/rung/repeat/attempt/what/host`; an agent that receives a key again repeats its
answers for that key and runs no task twice. The outcomes are in `results`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import Literal, TypeAlias

from proveout.core.data_classes import dataclass
from proveout.dsl.plan.commands import NO_WAIT, Command, FioJob, MeasuredValue, WaitUntil
from proveout.dsl.plan.phases import Level
from proveout.dsl.plan.plan import Workload
from proveout.dsl.plan.stages import OWN_SESSIONS, Sessions, Tuning, Windows
from proveout.dsl.plan.topology import Capture, Scrape, System


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """How to reach a system: `dsn` is a libpq conninfo (postgres), a file path (sqlite), `user/password@target`
    (oracle).

    `instances` are those of a system with several, the first of them equal to `dsn`. May hold passwords: not logged.
    """

    system: str
    engine: str
    dsn: str = field(repr=False)
    version: str = ""
    provisioned: bool = False
    instances: tuple[str, ...] = field(default=(), repr=False)

    def among(self, endpoints: Mapping[str, Endpoint], members: Iterable[str]) -> Endpoint:
        """The same with the dsns of the systems `members` as instances; its own ones where there are none."""
        dsns = tuple(endpoints[name].dsn for name in members if name in endpoints)
        return replace(self, instances=dsns) if dsns else self


@dataclass(frozen=True, slots=True, kw_only=True)
class StartSystem:
    """Provision `system`: initialise if its data is not there yet, start, answer `SystemStarted`.

    `data_root` is a directory on that host under which the system keeps its data across a resume. A standby has one
    `primary` that it follows, and is up when it has all of its data. A primary has `standbys`; its commits wait for the
    `synchronous` ones of them.
    """

    system: System
    data_root: str
    primary: tuple[Endpoint, ...] = ()
    standbys: tuple[str, ...] = ()
    synchronous: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StopSystem:
    """Stop a provisioned system; with `remove`, delete its data."""

    system: str
    data_root: str
    remove: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectSystem:
    """Connect to a system that runs already: check that it answers; version and settings for the fingerprint, and with
    `schema` its tables and indexes."""

    endpoint: Endpoint
    schema: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotSystem:
    """Keep (`save`) or bring back (`restore`) the data of a provisioned system, which is stopped and started for it, or
    of a database file that the dsn of the system names. `keep`: save it unless there is a copy."""

    system: System
    data_root: str
    action: Literal["save", "restore", "keep"]


POPULATE_STEPS = ("prepare", "load", "finish")


@dataclass(frozen=True, slots=True, kw_only=True)
class PopulateSystem:
    """Create the schema of `workload` in `endpoint` and load it with `workers` processes; answer `Populated`.

    `steps` are those of `POPULATE_STEPS` to take: one task takes all, or several hosts take a `load` each, after one
    `prepare` and before one `finish`. `("drop",)` alone drops the tables of the workload again. The units to load are
    those between `share_from` and `share_to` of `shares`. `load` identifies the load: a later task with the same one
    continues behind the committed ranges. A load without one begins with empty tables, and removes them when it fails.
    """

    workload: Workload
    endpoint: Endpoint
    workers: int
    steps: tuple[str, ...] = POPULATE_STEPS
    load: str = ""
    share_from: int = 0
    share_to: int = 1
    shares: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSystems:
    """Set up asynchronous propagation `source` -> `sink` of `workload`'s tables; await the initial sync.

    `copy_data` copies the rows that the source has (the sink's tables are empty); else both hold the same rows already.
    Idempotent: an existing link is renewed (its connection may have moved), never doubled. `source_key` and `sink_key`
    are conninfos that the agent puts in for embedded ends, see `agent.engines.postgres.roles`; a coordinator leaves
    them empty, and what it sends there is not used.
    """

    source: Endpoint
    sink: Endpoint
    workload: Workload
    copy_data: bool
    source_key: str = field(default="", repr=False)
    sink_key: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareSystems:
    """Await that all committed on `source` is applied on `sink`, for `drain_timeout_s`, then compare the tables."""

    source: Endpoint
    sink: Endpoint
    workload: Workload
    drain_timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFacts:
    """Tell what this machine is and how it is set; answer `FactsRead`.

    `directories`: (system, where its data lies). `tools`: outside programs whose versions are asked for.
    """

    directories: tuple[tuple[str, str], ...] = ()
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedText:
    """A statement or a query of the plan to prepare; `subject` is its path in the plan.

    `settled`: it will find the tables of now, so that all that it names must be there. Otherwise only
    its syntax is checked.
    """

    subject: str
    text: str
    settled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedLoad:
    """A load to prepare: the statements of `workload` on a connection with these `session` settings.

    `subject`: the path of the stage in the plan. `settled` as in `CheckedText`; `expected`: the tables of the workload
    must be there with their columns and rows, because no stage populates them.
    """

    subject: str
    workload: Workload
    session: tuple[tuple[str, str], ...] = ()
    settled: bool = False
    expected: bool = False


USES = ("populate", "checkpoint", "propagate")
"""Uses of a system, beyond statements, that need rights of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSystem:
    """Log in to a running system and check what a plan needs of it; answer `Checked`, with all that is wrong.

    Nothing is changed. `uses` are of `USES`. With `wait` a system that does not answer is waited for, as other tasks
    do. `connections`: (path of a stage, the connections that its loads keep at a rung), of the stage with the most.
    """

    endpoint: Endpoint
    loads: tuple[CheckedLoad, ...] = ()
    texts: tuple[CheckedText, ...] = ()
    captures: tuple[Capture, ...] = ()
    uses: tuple[str, ...] = ()
    wait: bool = False
    connections: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedRate:
    """The highest rate, 1/s, of loads with a driver from one host, by the path of a stage; `beside` their server."""

    subject: str
    engine: str
    per_s: float
    beside: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedCommand:
    """A program, its arguments with the form of each value that is not known yet, and its path in the plan."""

    subject: str
    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckHost:
    """Check what a run needs of this host; answer `Checked`. Nothing is changed.

    The agent can start `systems`, whose data would be below `data_root`, with `bytes_min` of free space there, and find
    the `tools`; the policy lists the `commands`. The ceilings measured on this host are above the `rates`.
    """

    systems: tuple[System, ...] = ()
    data_root: str = ""
    bytes_min: int = 0
    tools: tuple[str, ...] = ()
    rates: tuple[OfferedRate, ...] = ()
    commands: tuple[CheckedCommand, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckInvariants:
    """Ask `endpoint` whether what `workload` must conserve is conserved; answer `InvariantsChecked`."""

    workload: Workload
    endpoint: Endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSql:
    """Statements, in order, each in its own transaction; then `wait_until`; then the `values` of `query`. Answer
    `SqlDone`."""

    endpoint: Endpoint
    statements: tuple[str, ...]
    wait_until: WaitUntil = NO_WAIT
    query: str = ""
    values: tuple[MeasuredValue, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCommand:
    """Run a program of the host's policy, and read the `values` from its output; answer `CommandDone`."""

    command: Command
    values: tuple[MeasuredValue, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Ask the system to write out its dirty pages, so that the next iteration does not pay for the last one."""

    endpoint: Endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreCopy:
    """Make the data of a running system again from the copy that its tuning `database_copy` keeps."""

    endpoint: Endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyTuning:
    """Make these changes to the host, all or none of them; answer `TuningDone`.

    With `check` nothing is written: the answer is what would be changed. `endpoints` are those of the systems that are
    tuned. Changes stay until `RevertTuning`, or every end of the session; those with `keep`
    stay after it.
    """

    tunings: tuple[Tuning, ...]
    endpoints: tuple[Endpoint, ...] = ()
    check: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyTuning:
    """Look whether what was applied is still in place; answer `TuningDone`, changing nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RevertTuning:
    """Undo what was applied, the last change first; answer `TuningDone`. With `systems_only` only what tunes
    systems; with `tunings` only those of these names."""

    systems_only: bool = False
    tunings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadShare:
    """This agent's part of the load: terminals `first` … `first + count - 1` of `total`, over all agents.

    With `rate` (transactions a second, all agents together) arrival is open: terminal k fires the schedule's arrivals
    k, k + total, k + 2 total … (constant), or its own Poisson process of rate/total. Without `rate`, arrival is closed;
    `think_s` is then the pause between two transactions, or its mean, in place of the workload's own think times.
    `levels` follow each other in the measure window: of the rate, which begins at `rate`, or under closed arrival of
    the threads; terminal k is active while k is below the level.
    """

    first: int
    count: int
    total: int
    rate: float | None = None
    distribution: Literal["constant", "poisson"] = "constant"
    think_s: float | None = None
    think: Literal["constant", "exponential"] = "exponential"
    levels: tuple[Level, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSecrets:
    """The credentials of a run's Ray cluster: a token, and the authority of its certificates (PEM). Not logged."""

    token: str = field(repr=False)
    authority: str
    authority_key: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FormPool:
    """Start a Ray node for `cpus` workers (0: the host's cores): the head of a cluster, or one that joins that `head`
    (`name:port`).

    Other nodes reach it at the address by which they know its host, `address`, or when that is "" the one from which it
    reaches another of them, the `head` or else `towards` (`name:port`). Answer `PoolFormed`.
    """

    head: str
    address: str
    cpus: int
    secrets: ClusterSecrets
    towards: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPool:
    """The place of an agent's load workers: see `plan.Pool`. A `ray` pool without an address is one that the agent
    forms."""

    kind: Literal["local", "ray"] = "local"
    address: str = ""
    placement: Literal["spread", "pack"] = "spread"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLoad:
    """Arm a load: connect and prepare, report `armed`, wait for `Start(t0_ns)`, run the windows, answer `LoadResult`.

    `workers` is their number on this agent, of a Ray pool in all the cluster; 0 is one for each CPU there. `session`:
    settings, (name, value), of every connection. `load`: its name among the loads of a stage that has several. `bins`:
    its seconds have tenths (`LoadSecond.bins`). `tracked`: count the commits of each terminal in the database too, in
    the table of `dsl.workloads.commits`; `checked`: and do not run a transaction again that had committed. Beside
    faults the count is made only at `Finish`, when all of them are over: one may be in place longer than the windows.
    """

    workload: Workload
    endpoint: Endpoint
    share: LoadShare
    windows: Windows
    workers: int
    seed: int
    label: str
    pool: LoadPool = field(default_factory=LoadPool)
    session: tuple[tuple[str, str], ...] = ()
    load: str = ""
    bins: bool = False
    tracked: bool = False
    checked: bool = False
    sessions: Sessions = OWN_SESSIONS

    @property
    def awaits_finish(self) -> bool:
        """Whether it has tracked commits beside faults: the tenths are of loads with faults."""
        return self.tracked and self.bins


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectFault:
    """Arm the fault `fault`, report `armed`, wait for `Start(t0_ns)`; at each of `begins_s` (seconds after T0) apply
    the `tunings` of this host, undo them `for_s` later (0: the changes end by themselves); answer `FaultInjected`.

    Each step is streamed as a `FaultStep`. Of a fault with a condition `begins_s` is empty: each `Trigger` begins it,
    until `Finish`. `endpoints` and `systems` are those that the tunings change; `systems` only the provisioned ones,
    whose data lies below `data_root`. `label` is the iteration.
    """

    fault: str
    tunings: tuple[Tuning, ...]
    for_s: float
    begins_s: tuple[float, ...]
    windows: Windows
    label: str
    endpoints: tuple[Endpoint, ...] = ()
    systems: tuple[System, ...] = ()
    data_root: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareFio:
    """Make the files that `job` works on, as large as they must be, or look whether its devices may be used; answer
    `Done`.

    `data_root`: a directory on that host for the files of a job that names none; "" is one of the agent's own.
    """

    job: FioJob
    data_root: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFio:
    """Arm fio, report `armed`, wait for `Start(t0_ns)`, run it through ramp-up and measure window, answer `LoadResult`.

    Its transactions are `read` and `write`. Slices of devices are counted over all hosts: this one's begin with
    `first_slice`.
    """

    job: FioJob
    iodepth: int
    windows: Windows
    label: str
    data_root: str = ""
    first_slice: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCapture:
    """Start a capture now, stream `CaptureSample`s until it is stopped by `Finish`; answer `CaptureResult`.

    `edges_s`: the edges of the measure window, s after the `t0_ns` of `Start`, at which it takes two more samples.
    Without them it needs no `Start`.
    """

    capture: Capture
    endpoints: tuple[Endpoint, ...] = ()
    edges_s: tuple[float, ...] = ()


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
    | FormPool
    | RunLoad
    | InjectFault
    | PrepareFio
    | RunFio
    | RunCapture
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One piece of work for one agent; `deadline_s` counts from its arrival there.

    The last three are its signature (`proto.signing`), which the connection to the agent adds.
    """

    key: str
    spec: TaskSpec
    deadline_s: float
    sequence: int = 0
    expires_unix_s: int = 0
    signature: str = field(default="", repr=False)
