"""The models of a plan: which keys there are, of which type, within which bounds. Strict; unknown keys are refused.

Data flow: a `nodes.Node` -> `validate` -> a model (or problems with their positions). The compiler validates entry by
entry, so that one bad stage does not hide the next one's problems; `Document` puts the models together and is what
`schema_json` prints. Names are resolved and values compared with each other in the compiler, not here.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    WithJsonSchema,
)

from proveout.dsl.plan.fio_job import DEVICES_MAX, JOBS_MAX
from proveout.dsl.rules.host_rules import INSTANCES_MAX, SCRAPES_MAX, SETTINGS_MAX
from proveout.dsl.schema.matrix_model import MatrixAxes, MatrixEntry
from proveout.dsl.schema.scalar_types import (
    NAME_PATTERN,
    Duration,
    Every,
    Id,
    Name,
    Names,
    OrOne,
    Percentage,
    Ramp,
    Rate,
    Repeat,
    Repeats,
    Roles,
    Rungs,
    Selector,
    Size,
    Statements,
    Text,
    Threads,
    Tolerance,
    Variation,
    one_or_many,
)


class Strict(BaseModel):
    """No conversions, no unknown keys."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Param(Strict):
    """A parameter of the plan; `-p name=value` overrides its default."""

    type: Literal[
        "int", "float", "bool", "text", "duration", "size", "rate", "percentage",
        "list[int]", "list[float]", "list[text]", "list[duration]", "list[size]", "list[rate]", "list[percentage]",
    ]  # fmt: skip
    default: Any = Field(None, description="Without one, every run must give the parameter.")
    min: Any = Field(None, description="Smallest value allowed, written like a value.")
    max: Any = Field(None, description="Largest value allowed, written like a value.")
    choices: list[Any] | None = Field(None, min_length=1, description="The only values allowed.")
    help: str = Field("", max_length=400, description="What it is, for people.")


class HostEntry(Strict):
    """A machine that takes part."""

    roles: Roles = Field(default_factory=list, description="What it is there for; `role:client` selects by it.")
    address: Text = Field(description="`local`, or name:port of a running agent.")


ENGINES = ("postgres", "sqlite", "oracle", "timesten", "mysql", "duckdb")
EngineName: TypeAlias = Annotated[
    str,
    Field(pattern=NAME_PATTERN, description="One of the release's, or of an installed package's."),
    WithJsonSchema({"anyOf": [{"enum": list(ENGINES)}, {"type": "string", "pattern": NAME_PATTERN}]}),
]


class SystemEntry(Strict):
    """A database under test."""

    engine: EngineName
    host: Name = Field(description="The host it runs on.")
    provision: Literal["embedded"] | None = Field(None, description="proveout starts it on `host`.")
    dsn: Text | None = Field(None, description="It runs already; passwords as ${secrets.name}.")
    instances: list[Text] | None = Field(
        None,
        min_length=2,
        max_length=INSTANCES_MAX,
        description="Instead of `dsn`, one for each instance of a cluster: threads are dealt to them in turn, each to its own keys.",
    )
    settings: dict[str, str | int | float | bool] = Field(
        default_factory=dict, max_length=SETTINGS_MAX, description="Server settings, name to value."
    )
    session: dict[str, str | int | float | bool] = Field(
        default_factory=dict, max_length=50, description="Settings of every load's connections to it, name to value."
    )
    propagates_to: Name | None = Field(
        None, description="The system that its committed changes are replicated to, asynchronously."
    )


class Topology(Strict):
    """Hosts and the systems on them."""

    hosts: dict[Name, HostEntry] = Field(default_factory=dict)
    systems: dict[Name, SystemEntry] = Field(default_factory=dict)


class SecretEntry(Strict):
    """Where a secret is found when the run begins; never the secret itself."""

    env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = Field(
        None, description="Name of an environment variable of the coordinator."
    )
    file: Text | None = Field(None, description="Path of a file with mode 0600 on the coordinator.")
    to: Selector | None = Field(
        None,
        description="The only hosts of systems and exporters that it is sent to, `db1.lab` or `db1.lab:5432`. Without, hosts of the topology, in a dsn.",
    )


class ScrapeEntry(Strict):
    """A number of an exporter: the series of a metric, perhaps only those with some labels, as one."""

    name: Annotated[str, Field(pattern=r"^[a-zA-Z_:][a-zA-Z0-9_:]{0,199}$")] = Field(
        description="The metric, as the exporter writes it: node_load1, node_disk_reads_completed_total."
    )
    labels: dict[str, str] = Field(default_factory=dict, description="Only series with exactly these values.")
    as_: Id | None = Field(None, alias="as", description="Its name in expressions; the metric's own by default.")
    type: Literal["gauge", "counter"] | None = Field(
        None, description="By default a counter when the name ends in _total, _count, _sum or _bucket."
    )
    take: Literal["sum", "avg", "min", "max"] = Field("sum", description="What several series come to.")
    optional: bool = Field(
        False, description="That there is no such series is fine: 0 for a counter, no number for a gauge."
    )


class CaptureEntry(Strict):
    """What is observed while a load runs."""

    kind: Literal["os", "waits", "lag", "prometheus", "sizes"]
    on: Selector | None = Field(
        None, description="os: `all`, `role:…` or host names. prometheus: the one host whose agent asks."
    )
    system: Name | None = Field(None, description="waits, lag, sizes: the system observed.")
    every: Every = Field(1.0, description="One sample each. sizes: at the start and the end only, unless it says so.")
    url: Text | None = Field(
        None, description="prometheus: http://host:port/path of the exporter; may hold user:${secrets.name}@."
    )
    metrics: Annotated[list[ScrapeEntry], Field(min_length=1, max_length=SCRAPES_MAX)] | None = Field(
        None, description="prometheus: what is kept of it."
    )


class PoolEntry(Strict):
    """Where load workers run, other than as processes of the client agents."""

    kind: Literal["ray"]
    address: Text | None = Field(
        None, description="A cluster that runs already: `auto` or name:port. Without, the client hosts form one."
    )
    workers: int | None = Field(None, ge=1, le=10_000, description="Workers in total; by default one for each CPU.")
    placement: Literal["spread", "pack"] = Field(
        "spread", description="Deal the workers round the nodes, or fill node after node."
    )


class LimitsEntry(Strict):
    """What an iteration may show and still be valid."""

    errors: Percentage = Field(0.001, description="Technical errors over all that ended.")
    start_skew: Duration = Field(0.05, description="Latest start of the load after the agreed instant.")
    client_cpu: Percentage = Field(0.85, description="CPU of the busiest load process, of one core.")
    achieved: Percentage = Field(0.99, description="Achieved over intended rate, open arrival.")
    schedule_p99: Duration = Field(
        0.005, description="How late transactions start at the 99th percentile, open arrival."
    )
    tps_slope: Variation = Field(0.10, description="Drift of the throughput over the measure window.")
    tps_cv: Variation = Field(0.30, description="Coefficient of variation of the throughput, second by second.")
    pause: Duration = Field(
        10.0,
        gt=0,
        description="Longest time that the system or a load process may stand still in the measure window. Of a shorter window, a third is too long for the system.",
    )


def _usual_limits() -> LimitsEntry:
    return LimitsEntry.model_validate({})


def _said(value: object) -> object:
    """`true` and `false` as the expressions that they are."""
    return str(value).lower() if isinstance(value, bool) else value


When: TypeAlias = Annotated[Text, BeforeValidator(_said)]
StageIds: TypeAlias = Annotated[list[Id], Field(min_length=1, max_length=100), BeforeValidator(one_or_many), OrOne()]


class StageBase(Strict):
    """What every stage has."""

    id: Id | None = Field(None, description="Its name in expressions; the stage's kind when there is only one of it.")
    when: When | None = Field(
        None,
        description="Condition on params and on results of earlier stages; where it does not hold, the stage is left out.",
    )
    needs: StageIds | None = Field(
        None, description="Stages that run before this one, and without which it is left out."
    )


class PopulateEntry(StageBase):
    """Create the workload's schema in each system and load it, the same rows in each."""

    workload: Name
    into: Names = Field(description="The systems to load.")
    from_: Selector = Field(["role:client"], alias="from", description="The hosts that load.")
    workers: int | None = Field(None, ge=1, le=1000, description="Processes that load; by default the host's cores.")


class Measured(StageBase):
    """What ladder and search share."""

    workload: Name
    target: Name = Field(description="The system that gets the load.")
    from_: Selector = Field(["role:client"], alias="from", description="The hosts that make the load.")
    capture: Names | None = Field(None, description="The captures that run beside it.")
    session: dict[str, str | int | float | bool] = Field(
        default_factory=dict,
        max_length=50,
        description="Settings of the load's connections, before those of the system's `session`.",
    )
    retries: int = Field(1, ge=0, le=10, description="How often an invalid iteration is run again.")
    workers: int | None = Field(
        None, ge=1, le=1000, description="Load processes per host, by default its cores; of a Ray pool in total."
    )
    pool: Name = Field("local", description="Where the load processes run: `local`, `ray`, or one of `pools`.")
    limits: LimitsEntry = Field(default_factory=_usual_limits, description="What an iteration may show.")


class RateRamp(Strict):
    """A rate that goes in a straight line over the measure window."""

    from_: Rate = Field(alias="from", description="At the window's start; also the rate that the ramp-up comes to.")
    to: Rate = Field(description="At the window's end; also the rate of the ramp-down.")


def _rate_or_ramp(value: object) -> str:
    return "ramp" if isinstance(value, dict | RateRamp) else "rate"


LadderRate: TypeAlias = Annotated[
    Annotated[Rate, Tag("rate")] | Annotated[RateRamp, Tag("ramp")], Discriminator(_rate_or_ramp)
]


class ThinkEntry(Strict):
    """The pause of a thread between two transactions: one of the two."""

    exponential: Duration | None = Field(None, description="Drawn with this mean; none is over ten times that.")
    constant: Duration | None = Field(None, description="Always this long.")


class LadderEntry(Measured):
    """Run the workload with growing numbers of threads, each repeated."""

    matrix: MatrixEntry | MatrixAxes | None = Field(
        None, description="Axes with their values: the ladder is run once for each cell, ${matrix.axis} put in."
    )
    before: list[Any] | None = Field(
        None,
        min_length=1,
        max_length=20,
        description="sql, reset and pause stages that run before the ladder, or each cell.",
    )
    after: list[Any] | None = Field(None, min_length=1, max_length=20, description="The same after it.")

    threads: Rungs | None = Field(None, description="The rungs: threads in total, over all clients.")
    processes: Rungs | None = Field(
        None,
        description="Rungs of processes instead, in total over all clients, each of one thread with its connection.",
    )
    ramp_up: Ramp = Field(1.0, description="Load before the measure window.")
    measure: Duration = Field(description="The window that counts.")
    ramp_down: Ramp = Field(1.0, description="Load after the measure window.")
    rate: LadderRate | None = Field(
        None, description="Open arrival at this rate in total, or from one to another; closed arrival without."
    )
    think: ThinkEntry | None = Field(
        None, description="Closed arrival: the pause between transactions, in place of the workload's own think times."
    )
    arrival: Literal["closed", "constant", "poisson"] | None = Field(
        None, description="`closed` without a rate, `constant` with one."
    )
    repeat: Repeat = Field(
        Repeats(most=3),
        description="How often each rung is run; auto(3..10) buys repeats until the verdicts on this ladder are decided.",
    )
    order: Literal["ladder", "shuffled", "interleaved"] = Field(
        "ladder",
        description="Of the rungs in each repeat: as listed, drawn by `seed`, or in turns with the ladder before (`with`).",
    )
    seed: int | None = Field(None, ge=0, le=2**31 - 1, description="order: shuffled: what the orders are drawn by; 1.")
    with_: Id | None = Field(None, alias="with", description="order: interleaved: the ladder to take turns with.")
    stop_when: Text | None = Field(None, description="Condition on `rung`; when it holds, higher rungs are left out.")


class SearchRange(Strict):
    """Where the search looks."""

    from_: Rate = Field(alias="from", description="The lowest rate tried.")
    to: Rate = Field(description="The highest rate tried.")
    tolerance: Tolerance = Field(0.05, description="How close to the limit it must come.")


class Confirm(Strict):
    """The full-length iteration that confirms the answer."""

    ramp_up: Ramp = 2.0
    measure: Duration = 10.0


class SearchEntry(Measured):
    """Find the highest rate at which `accept` holds."""

    threads: Threads = Field(description="Threads in total, over all clients.")
    rate: SearchRange
    accept: Text = Field(description="Condition on an iteration's numbers.")
    settle: Ramp = Field(1.0, description="Load before each probe's measure window.")
    measure: Duration = Field(3.0, description="The measure window of a probe.")
    confirm: Confirm = Field(default_factory=Confirm)
    probes_max: int = Field(20, ge=2, le=200, description="The search gives up after so many probes.")
    arrival: Literal["constant", "poisson"] = "constant"


class SqlEntry(StageBase):
    """Run statements once each, in order; each commits by itself."""

    system: Name
    statements: Statements


class ResetEntry(StageBase):
    """Bring systems to a known state."""

    systems: Names
    restore: bool = Field(True, description="Bring back the rows as the last populate left them.")
    checkpoint: bool = Field(
        True, description="Write out dirty pages, so that the next iteration does not pay for them."
    )


class PauseEntry(StageBase):
    """Do nothing for a while."""

    duration: Duration


class TuneEntry(StageBase):
    """Change hosts in the middle of the plan; what is changed is undone at the end of the run, unless it says `keep`."""

    tuning: list[Any] = Field(min_length=1, max_length=500, description="As the plan's own `tuning`.")


class ToolLimitsEntry(Strict):
    """What an iteration of a tool may show and still be valid."""

    errors: Percentage = Field(0.0, description="I/Os that failed, over all.")
    start_skew: Duration = Field(2.0, description="Latest start of the program after the agreed instant.")
    iops_slope: Variation = Field(0.10, description="Drift of the IOPS over the measure window.")
    iops_cv: Variation = Field(0.30, description="Coefficient of variation of the IOPS, second by second.")
    pause: Duration = Field(10.0, gt=0, description="Longest time that no I/O may end in the measure window.")


class ToolTarget(Strict):
    """What a tool works on: one of the two. Without, files in a folder that the agent makes and removes."""

    directory: Text | None = Field(
        None,
        description="A folder on each host, which its agent's policy must list; files are made below it and removed.",
    )
    devices: list[Text] | None = Field(
        None,
        min_length=1,
        max_length=DEVICES_MAX,
        description="Block devices by /dev/disk/by-id; jobs are dealt to them in turn, each to a slice of its own.",
    )


class ToolEntry(StageBase):
    """Run an outside program, fio, on hosts with growing I/O depths, each repeated."""

    run: Literal["fio"] = Field(description="The program.")
    from_: Selector = Field(alias="from", description="The hosts that it runs on, at the same time.")
    pattern: Literal["random-read-4k", "mixed-8k-70-30", "sequential-read-1m", "sequential-write-1m"] = Field(
        description="What it does: one of the four Iometer patterns; `random`, `block` and `read` override parts of it."
    )
    random: bool | None = Field(None, description="Random addresses, or one after the other; by the pattern.")
    block: Size | None = Field(None, description="Bytes of an I/O; by the pattern.")
    read: Percentage | None = Field(None, description="Share of reads, the rest being writes; by the pattern.")
    iodepth: Rungs = Field([2, 4, 8, 16], description="The rungs: I/Os that each job keeps under way.")
    jobs: int = Field(8, ge=1, le=JOBS_MAX, description="Jobs on each host at once.")
    size: Size = Field(description="What each job works on: a file so large, or as much of a device.")
    target: ToolTarget | None = Field(None, description="Where the files are made, or the devices.")
    direct: bool = Field(True, description="Past the page cache (O_DIRECT).")
    destructive: bool = Field(False, description="Agree to the loss of what the devices hold, where it writes to them.")
    ramp_up: Ramp = Field(10.0, description="Load before the measure window.")
    measure: Duration = Field(description="The window that counts.")
    repeat: int = Field(3, ge=1, le=100, description="How often each rung is run.")
    capture: Names | None = Field(None, description="The captures that run beside it.")
    retries: int = Field(1, ge=0, le=10, description="How often an invalid iteration is run again.")
    limits: ToolLimitsEntry = Field(
        default_factory=lambda: ToolLimitsEntry.model_validate({}), description="What an iteration may show."
    )


STAGES: dict[str, type[StageBase]] = {
    "populate": PopulateEntry,
    "ladder": LadderEntry,
    "search": SearchEntry,
    "sql": SqlEntry,
    "reset": ResetEntry,
    "pause": PauseEntry,
    "tune": TuneEntry,
    "tool": ToolEntry,
}

FigureName: TypeAlias = Literal[
    "relative-tps-latency",
    "scaling",
    "latency-by-transaction",
    "nopm-art",
    "time-to-solve",
    "sizes-compression",
    "host-cpu",
    "wait-events",
    "lag",
    "iops-by-queue-depth",
]
FIGURES: tuple[FigureName, ...] = get_args(FigureName)


class VerdictEntry(Strict):
    """What must hold."""

    id: Name
    title: str = Field("", max_length=200)
    check: Text = Field(description="A condition on the results of stages.")
    severity: Literal["fail", "warn"] = Field("fail", description="A failed `warn` is shown but does not fail the run.")


class ReportEntry(Strict):
    """What the report shows."""

    figures: list[FigureName] = Field(
        default_factory=list,
        max_length=20,
        description="The figures of the report, in this order; without it, all that there are numbers for.",
    )


Version: TypeAlias = Annotated[Literal[1], Field(description="Version of the format.")]
OnLoss: TypeAlias = Annotated[
    Literal["rerun", "continue", "stop"],
    Field(
        description="What the loss of a host means: have it back and run the iteration again (the default), "
        "go on without it where it only made load, or stop the run."
    ),
]
Title: TypeAlias = Annotated[str, Field(max_length=200)]


class Document(Strict):
    """A plan, format version 1."""

    proveout: Version
    name: Name
    title: Title = ""
    params: dict[Id, Param] = Field(default_factory=dict)
    extends: Text | None = Field(None, description="A plan that this one is laid over: a path relative to this file.")
    include: list[Text] = Field(default_factory=list, max_length=50)
    topology: Topology = Field(default_factory=Topology)
    secrets: dict[Id, SecretEntry] = Field(default_factory=dict)
    workloads: dict[Name, Any] = Field(default_factory=dict)
    pools: dict[Name, PoolEntry] = Field(default_factory=dict)
    captures: dict[Name, CaptureEntry] = Field(default_factory=dict)
    tuning: list[Any] = Field(
        default_factory=list,
        max_length=500,
        description="Changes to hosts and systems: applied before the stages, verified, and undone at the end of the run.",
    )
    stages: list[Any] = Field(min_length=1, max_length=200)
    verdicts: list[VerdictEntry] = Field(default_factory=list, max_length=200)
    report: ReportEntry = Field(default_factory=ReportEntry)
    on_loss: OnLoss = "rerun"
