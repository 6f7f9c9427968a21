"""The keys of stages as strict pydantic models: loads, sessions, commits, searches, phases, faults."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any, Literal, TypeAlias, cast

from pydantic import Discriminator, Field, Tag

from proveout.dsl.plan.commands import DEVICES_MAX, JOBS_MAX
from proveout.dsl.plan.keys import model_of
from proveout.dsl.plan.model_values import Strict
from proveout.dsl.plan.phases import PHASES_MAX
from proveout.dsl.plan.scalars import (
    THREADS_MAX,
    Duration,
    Form,
    Id,
    LevelRate,
    Name,
    Names,
    Percentage,
    Ramp,
    RampUp,
    Rate,
    Repeat,
    Repeats,
    Rungs,
    Selector,
    Size,
    Text,
    Threads,
    Tolerance,
    UpToSteady,
    Variation,
    custom,
)
from proveout.dsl.plan.stages import (
    FAULTS_MAX,
    KINDS,
    PASSES_MAX,
    VOID_FRACTION_MAX,
    Fault,
    Ladder,
    Search,
    Sessions,
    Tool,
)

SHARE_PATTERN = r"^(\d{1,4}/\d{1,4}|\d{1,3}(\.\d{1,9})?%)$"


def _share(value: object) -> object:
    """`1/2`, `50%` or the whole number 1, as a fraction."""
    if isinstance(value, Fraction):
        return value
    text = str(value)
    if isinstance(value, bool) or (text != "1" and not re.fullmatch(SHARE_PATTERN, text)):
        raise custom(f"expected a share such as 1/2 or 50%, not {text:.40}")
    top, _, bottom = text.partition("/")
    if bottom.strip("0") == "" and bottom:
        raise custom(f"{value} is out of bounds: a share is over 0 and at most 1")
    share = Fraction(text.removesuffix("%")) / 100 if text.endswith("%") else Fraction(int(top), int(bottom or 1))
    if not 0 < share <= 1:
        raise custom(f"{value} is out of bounds: a share is over 0 and at most 1")
    return share


_SHARE = {"anyOf": [{"type": "string", "pattern": SHARE_PATTERN}, {"const": 1}], "description": "1/2, 50%"}
Share: TypeAlias = Annotated[Fraction, Form(alone=_share, schema=_SHARE)]


class CommitsEntry(Strict):
    """Whether the commits of a load are tracked."""

    commits: Literal["tracked", "checked", "untracked"] | None = Field(
        None,
        description="tracked: each transaction that changes rows carries one more statement, which counts its commit "
        "in the database, so that lost commits, commits without an answer and duplicates are known. checked: and "
        "with `on_disconnect: retry` a transaction that had committed without an answer is not run again. By default "
        "untracked; of one of several loads that changes rows, that of the stage.",
    )


class SessionKeys(Strict):
    """The keys of a load, or of a stage for all of its loads."""

    on_disconnect: Literal["reconnect", "retry", "fail"] | None = Field(
        None,
        description="When a connection is lost: `reconnect` counts its transaction as an error and connects again; "
        "`retry` runs it again with the same inputs, and its response time counts from the first time it was due; "
        "`fail` ends the load. `reconnect` by default.",
    )
    access: Literal["any", "read-write", "read-only"] | None = Field(
        None,
        description="The member of the system to connect to, among the hosts of its dsn and its `instances`: the one "
        "that accepts changes, one that does not, or any; found again after each loss. By default the dsn decides.",
    )
    sessions: Sessions | None = Field(None, description="Sharing and renewal of connections.")


class SearchRange(Strict):
    """The range of a search."""

    from_: Rate = Field(alias="from", description="The lowest rate tried.")
    to: Rate = Field(description="The highest rate tried.")
    start: Rate | None = Field(
        None, description="The rate of the first probe, doubled from there, or halved when it is refused; `from`."
    )
    tolerance: Tolerance = Field(0.05, description="The relative distance at which the search ends.")


class ThreadRange(Strict):
    """The range of a search for threads."""

    from_: Threads = Field(1, alias="from", description="The fewest threads tried.")
    to: Threads = Field(description="The most threads tried.")
    start: Threads | None = Field(
        None, description="The threads of the first probe, doubled from there, or halved when refused; `from`."
    )
    tolerance: Tolerance = Field(0.05, description="The relative distance at which the search ends; at least 1 thread.")


def _mapping_or_value(value: object) -> str:
    return "[mapping]" if isinstance(value, dict | Strict) else "[value]"


SearchThreads: TypeAlias = Annotated[
    Annotated[Threads, Tag("[value]")] | Annotated[ThreadRange, Tag("[mapping]")], Discriminator(_mapping_or_value)
]


class Confirm(Strict):
    """The full-length iterations that find the answer."""

    ramp_up: Ramp = 2.0
    measure: Duration = 10.0
    times: int = Field(
        default=6,
        ge=1,
        le=20,
        description="The least number of them; at most four times as many, until the answer is known to within the "
        "tolerance. With less than 5 the answer has no lower end, and is above the true one more often.",
    )


class RateRamp(Strict):
    """A rate that goes in a straight line over the measure window."""

    from_: Rate = Field(alias="from", description="Rate at the window's start, which the ramp-up reaches.")
    to: Rate = Field(description="Rate at the window's end and during the ramp-down.")


LadderRate: TypeAlias = Annotated[
    Annotated[Rate, Tag("[value]")] | Annotated[RateRamp, Tag("[mapping]")], Discriminator(_mapping_or_value)
]

LevelThreads: TypeAlias = Annotated[float, Field(ge=0, le=THREADS_MAX, strict=True)]


class RateLine(Strict):
    """A rate that goes in a straight line over a phase."""

    from_: LevelRate = Field(alias="from", description="Rate at the phase's start.")
    to: LevelRate = Field(description="Rate at the phase's end.")


class RateWave(Strict):
    """A rate that follows a sine."""

    mean: LevelRate = Field(description="The rate around which it swings; it begins there, and rises.")
    amplitude: LevelRate = Field(description="The swing to each side.")
    period: Duration = Field(description="The time of one swing.")


class ThreadsLine(Strict):
    """Active threads that change in a straight line over a phase."""

    from_: LevelThreads = Field(alias="from", description="Active threads at the phase's start.")
    to: LevelThreads = Field(description="Active threads at the phase's end.")


class ThreadsWave(Strict):
    """Active threads that follow a sine."""

    mean: LevelThreads = Field(description="The threads around which it swings; it begins there, and rises.")
    amplitude: LevelThreads = Field(description="The swing to each side.")
    period: Duration = Field(description="The time of one swing.")


def _form(value: object) -> str:
    if not isinstance(value, dict):
        return "[rate]"
    return "[wave]" if {"mean", "amplitude", "period"} & value.keys() else "[ramp]"


PhaseRate: TypeAlias = Annotated[
    Annotated[LevelRate, Tag("[rate]")] | Annotated[RateLine, Tag("[ramp]")] | Annotated[RateWave, Tag("[wave]")],
    Discriminator(_form),
]
PhaseThreads: TypeAlias = Annotated[
    Annotated[LevelThreads, Tag("[rate]")]
    | Annotated[ThreadsLine, Tag("[ramp]")]
    | Annotated[ThreadsWave, Tag("[wave]")],
    Discriminator(_form),
]


class PhaseEntry(Strict):
    """A part of the measure window with a load of its own: a rate, active threads, or a table of one of them."""

    name: Id = Field(description="Its name in expressions, run.phase(\"spike\"), and reports.")  # fmt: skip
    for_: Duration | None = Field(None, alias="for", description="Its length; of a table the time of its last row.")
    rate: PhaseRate | None = Field(
        None,
        description="Open arrival: constant, in a straight line `{from, to}`, or a sine `{mean, amplitude, period}`.",
    )
    threads: PhaseThreads | None = Field(
        None, description="Closed arrival: the threads of the rung that are active; constant, `{from, to}` or a sine."
    )
    from_: str | None = Field(
        None,
        alias="from",
        min_length=1,
        max_length=200,
        description="A CSV file beside the plan, with the columns seconds,rate or seconds,threads.",
    )
    between: Literal["steps", "lines"] | None = Field(
        None, description="from: whether a row holds until the next one, or the level goes there in a straight line."
    )


Phases: TypeAlias = Annotated[list[PhaseEntry], Field(min_length=1, max_length=PHASES_MAX)]


class FaultKeys(Strict):
    """The keys of a fault beside those of its record: of its changes."""

    on: Selector | None = Field(
        None, description="The hosts: `all`, `role:…` or names. Left out where the operation is of a `system`."
    )
    destructive: bool = Field(False, description="Agree to the loss of data, where the operation can lose it.")
    tuning: list[Any] | None = Field(
        None,
        min_length=1,
        max_length=20,
        description="In place of one operation: several changes, made together, each as in `tuning:` of a plan.",
    )


FaultEntry = cast("type[FaultKeys]", model_of(Fault, more=FaultKeys))
AxisValue: TypeAlias = Annotated[Any, Form(schema={"type": ["string", "number", "boolean"]})]


class MatrixEntry(Strict):
    """Variants of a stage: a cell for each combination of the axes' values, which replace `${matrix.axis}`."""

    axes: dict[Id, Annotated[list[AxisValue], Form(min_length=1, or_one=True)]] = Field(
        min_length=1, max_length=8, description="Each axis with its values; the first one changes slowest."
    )
    combine: Literal["product", "zip"] = Field(
        "product", description="Every value with every other, or the first values together, the second ones, and so on."
    )


MatrixAxes: TypeAlias = dict[Id, Annotated[list[AxisValue], Form(or_one=True)]]


When: TypeAlias = Annotated[
    Text,
    Form(  # `true` and `false` are expressions
        before=lambda value: str(value).lower() if isinstance(value, bool) else value,
        schema=lambda text: {"anyOf": [text, {"type": "boolean"}]},
    ),
]
Session: TypeAlias = dict[str, str | int | float | bool]
StageIds: TypeAlias = Annotated[list[Id], Form(min_length=1, max_length=100, or_one=True)]


class StageBase(Strict):
    """The keys of every stage."""

    id: Id | None = Field(None, description="Its name in expressions; the stage's kind when there is only one of it.")
    when: When | None = Field(
        None,
        description="Condition on params and on results of earlier stages; where it does not hold, the stage is left "
        "out.",
    )
    needs: StageIds | None = Field(
        None, description="Stages that run before this one, and without which it is left out."
    )


class ThinkEntry(Strict):
    """The pause of a thread between two transactions: exponential or constant."""

    exponential: Duration | None = Field(None, description="Drawn with this mean, at most ten times the mean.")
    constant: Duration | None = Field(None, description="Always of this length.")


class LoadEntry(SessionKeys, CommitsEntry):
    """One of several loads at the same time: with a share of the stage's threads and rate, or with its own."""

    workload: Name
    target: Name = Field(description="The system that gets this load.")
    from_: Selector | None = Field(None, alias="from", description="The hosts that make it; by default the stage's.")
    share: Share | None = Field(
        None, description="Its share of the threads and the rate of each rung; the shares of a stage sum to 1."
    )
    threads: Threads | None = Field(
        None, description="Threads of its own instead, the same at every rung and not counted in its numbers."
    )
    rate: Rate | None = Field(None, description="With `threads`: open arrival at this rate, closed arrival without.")
    arrival: Literal["closed", "constant", "poisson"] | None = Field(
        None, description="With `rate`: its distribution, `constant` by default."
    )
    think: ThinkEntry | None = Field(None, description="Closed arrival: the pause between transactions.")
    session: Session = Field(
        default_factory=dict, max_length=50, description="Settings of its connections, before those of the stage."
    )
    range: Annotated[list[int], Field(min_length=2, max_length=2)] | None = Field(
        None, description="First and last key that it touches, before the `range` of its workload."
    )


class Measured(StageBase, SessionKeys, CommitsEntry):
    """The keys that ladder and search share."""

    workload: Name | None = Field(None, description="The workload of the load.")
    target: Name | None = Field(None, description="The system that gets the load.")
    loads: dict[Id, LoadEntry] | None = Field(
        None,
        min_length=1,
        max_length=64,
        description="Several loads at the same time, by name, in place of `workload` and `target`.",
    )
    from_: Selector = Field(("role:client",), alias="from", description="The hosts that make the load.")
    capture: Names | None = Field(None, description="The captures that run beside it.")
    session: Session = Field(
        default_factory=dict,
        max_length=50,
        description="Settings of the load's connections, before those of the system's `session`.",
    )
    pool: Name = Field("local", description="The pool of the load processes: `local`, `ray`, or one of `pools`.")


class LadderKeys(Measured):
    """Run the workload with growing numbers of threads, each repeated."""

    matrix: MatrixEntry | MatrixAxes | None = Field(
        None, description="Axes with their values: the ladder is run once for each cell, ${matrix.axis} put in."
    )
    before: list[Any] | None = Field(
        None,
        min_length=1,
        max_length=20,
        description="sql, reset, pause, populate, restart and tune stages that run before the ladder, or before each "
        "turn of a cell. The changes by the last three are taken back after it.",
    )
    after: list[Any] | None = Field(
        None,
        min_length=1,
        max_length=20,
        description="sql, reset and pause stages that run after the ladder, or after each turn of a cell.",
    )

    reload: Literal["each_repeat"] | None = Field(
        None, description="Restore the copy that the last populate saved, of each target, before each repeat."
    )
    restart: Literal["each_repeat"] | None = Field(
        None, description="Restart the servers of the targets before each repeat, with their settings."
    )
    threads: Rungs | None = Field(None, description="The rungs: threads in total, over all clients.")
    processes: Rungs | None = Field(
        None,
        description="Rungs of processes instead, in total over all clients, each of one thread with its connection.",
    )
    ramp_up: UpToSteady = Field(
        RampUp(1.0),
        description="Load before the measure window; auto(5s..60s): 60s in the first repeat of each rung, then the "
        "shortest time from 5s on after which the repeats before were steady.",
    )
    measure: Duration | None = Field(None, description="The measured window; required without `phases` or `passes`.")
    phases: Phases | None = Field(
        None, description="In place of `measure` and `rate`: the parts of the measured window, each with its load."
    )
    passes: int | None = Field(
        None,
        ge=1,
        le=PASSES_MAX,
        description="In place of `measure`: each thread runs its set of queries so many times, to completion, without "
        "ramps. The measured window is from the start to the end of the last pass.",
    )
    within: Duration = Field(3600.0, gt=0, description="passes: the longest time for them.")
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
        description="Repeats of each rung, by default 3; auto(3..10): more until the verdicts on it are decided, or "
        "hardly can be.",
    )
    seed: int | None = Field(None, ge=0, le=2**31 - 1, description="order: shuffled: the seed of the orders; 1.")
    with_: Id | None = Field(None, alias="with", description="order: interleaved: the ladder to take turns with.")
    interference: bool = Field(
        default=False,
        description="With `loads`: run each of them alone too, in turns with all of them, for the ratio of its numbers "
        "together to those alone.",
    )
    faults: list[Any] = Field([], max_length=FAULTS_MAX, description="Faults that disturb each iteration.")


class SearchKeys(Measured):
    """Find the highest rate, or the most threads, at which `accept` holds."""

    threads: SearchThreads = Field(
        description="Threads in total, over all clients; without `rate` the range in which the most are sought, with "
        "closed arrival."
    )
    rate: SearchRange | None = Field(None, description="The range in which the highest rate is sought.")
    settle: Ramp = Field(1.0, description="Load before each probe's measure window.")
    measure: Duration = Field(10.0, description="The measure window of a probe.")
    confirm: Confirm = Field(
        default_factory=lambda: Confirm.model_validate({}),
        description="The full-length iterations that confirm the answer.",
    )


class TuneEntry(StageBase):
    """Change hosts in the middle of the plan; the changes are undone at the end of the run, except those with
    `keep`."""

    tuning: list[Any] = Field(min_length=1, max_length=500, description="Tunings, as in the plan's own `tuning`.")


class ToolLimitsEntry(Strict):
    """The limits of an iteration of a tool."""

    errors: Percentage = Field(0.0, description="I/Os that failed, over all.")
    start_skew: Duration = Field(2.0, description="Latest start of the program after the agreed instant.")
    iops_slope: Variation = Field(
        0.10, description="Drift of the IOPS over the measure window, below which they are steady."
    )
    iops_cv: Variation = Field(0.30, description="Coefficient of variation of the IOPS, second by second.")
    pause: Duration = Field(10.0, gt=0, description="Longest time that no I/O may end in the measure window.")
    void: Percentage = Field(
        VOID_FRACTION_MAX,
        description="Share of void attempts at a rung above which a verdict on it is INCONCLUSIVE.",
    )


class ToolTarget(Strict):
    """The target of a tool: one of the two. Without, files in a folder that the agent makes and removes."""

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


class ToolKeys(StageBase):
    """Run an outside program, fio, on hosts with growing I/O depths, each repeated."""

    run: Literal["fio"] = Field(description="The program.")
    from_: Selector = Field(alias="from", description="The hosts that it runs on, at the same time.")
    pattern: Literal["random-read-4k", "mixed-8k-70-30", "sequential-read-1m", "sequential-write-1m"] = Field(
        description="One of the four Iometer patterns; `random`, `block` and `read` override parts of it."
    )
    random: bool | None = Field(None, description="Random addresses, or one after the other; by the pattern.")
    block: Size | None = Field(None, description="Bytes of an I/O; by the pattern.")
    read: Percentage | None = Field(None, description="Share of reads, the rest being writes; by the pattern.")
    jobs: int = Field(8, ge=1, le=JOBS_MAX, description="Jobs on each host at once.")
    size: Size = Field(description="Bytes of each job: the size of its file, or of its slice of a device.")
    target: ToolTarget | None = Field(None, description="The folder of the files, or the devices.")
    direct: bool = Field(True, description="Bypass the page cache (O_DIRECT).")
    destructive: bool = Field(
        False, description="Agree to the loss of the data on the devices, when it writes to them."
    )
    ramp_up: Ramp = Field(10.0, description="Load before the measure window.")
    measure: Duration = Field(description="The measured window.")
    capture: Names | None = Field(None, description="The captures that run beside it.")
    limits: ToolLimitsEntry = Field(
        default_factory=lambda: ToolLimitsEntry.model_validate({}),
        description="The limits of an iteration, and of void attempts.",
    )


LadderEntry = cast("type[LadderKeys]", model_of(Ladder, "LadderEntry", LadderKeys))
SearchEntry = cast("type[SearchKeys]", model_of(Search, "SearchEntry", SearchKeys))
ToolEntry = cast("type[ToolKeys]", model_of(Tool, "ToolEntry", ToolKeys))

OF_THEIR_OWN: Mapping[str, type[StageBase]] = {
    "ladder": LadderEntry,
    "search": SearchEntry,
    "tune": TuneEntry,
    "tool": ToolEntry,
}
"""The models of kinds that have keys beside those of their records."""


def _model(kind: str) -> type[StageBase]:
    return OF_THEIR_OWN.get(kind) or cast(
        "type[StageBase]", model_of(KINDS[kind], f"{kind.capitalize()}Entry", StageBase)
    )


STAGES: dict[str, type[StageBase]] = {kind: _model(kind) for kind in KINDS}
