"""The stages of a compiled plan, with their arrivals, windows, limits, pools, faults and tunings."""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import count, takewhile
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, Protocol, TypeAlias, get_args

from proveout.core.data_classes import field, record
from proveout.core.errors import NOWHERE, Where
from proveout.core.numbers import Sought
from proveout.core.units import format_duration, length
from proveout.dsl.plan.commands import NO_WAIT, Command, FioJob, Values, WaitUntil
from proveout.dsl.plan.keys import OMITTED, Element, key, keys_of
from proveout.dsl.plan.phases import RECOVERED_WITHIN, Level, mean_level
from proveout.dsl.plan.scalars import (
    CONNECT_EVERY_MAX,
    THREADS_MAX,
    Duration,
    Form,
    Id,
    Milliseconds,
    Name,
    Names,
    Percentage,
    Ramp,
    Rungs,
    Selector,
    Settings,
    Shares,
    SliceLength,
    Statements,
    Text,
    Variation,
)
from proveout.dsl.plan.topology import Expression, System, Value, WrittenExpression


@record
class Tuning:
    """A change to machines, undone at the end of the run."""

    name: str  # its name in the plan
    operation: str  # an operation of `dsl.operations`
    hosts: tuple[str, ...]  # the machines
    parameters: tuple[tuple[str, Value], ...]  # validated parameters of the operation (name, value), sorted by name
    keep: bool = False  # it is not undone
    restart: str = ""  # a unit that is restarted after it, and after it is undone
    system: str = ""  # the system that it tunes, on that system's host
    destructive: bool = False  # the plan agrees to the loss of data
    where: Where = NOWHERE  # its position in the plan


TUNING_S = 0.5
"""Reading, changing and reading again."""


def hosts_of(tunings: Iterable[Tuning]) -> tuple[str, ...]:
    """The hosts that tunings are for, in the order they are named."""
    return tuple(dict.fromkeys(host for tuning in tunings for host in tuning.hosts))


def tunings_s(tunings: Iterable[Tuning]) -> float:
    """About how long it takes to apply them, seconds: hosts are tuned side by side."""
    counts = Counter(host for tuning in tunings for host in tuning.hosts)
    return TUNING_S * max(counts.values(), default=0)


FAULTS_MAX = 20
"""The most faults of one stage."""
TIMES_MAX = 100
"""The most times that one fault begins in one iteration."""


@record
class Between(Element):
    """A part of the measure window."""

    from_s: Ramp = key(name="from", text="Its start, after the start of the measure window.")
    to_s: Duration = key(name="to", text="Its end.")


BetweenInstants: TypeAlias = Annotated[
    tuple[float, float], Form(written=Between, after=lambda part: (part.from_s, part.to_s))
]


@record
class Fault(Element):
    """A change to hosts or systems that is in place for a time of the measure window of each iteration, and is undone
    (healed) then. It begins `at` an instant, at random instants `between` two, or `when` a condition holds."""

    name: Name = key(text='Its name in results: `run.fault("name")`.')
    at_s: Ramp | None = key(None, name="at", text="When it begins, after the start of the measure window.")
    between_s: BetweenInstants | None = key(
        None,
        name="between",
        text="In place of `at`: the part of the measure window in which it begins at random instants.",
    )
    when: WrittenExpression | None = key(
        None,
        text="In place of `at`: it begins each time that this condition on the numbers of the last second holds "
        "in the measure window: `live.tps > 1000`.",
        omitted=True,
    )
    times: int = key(
        1,
        text="between, when: the most times that it begins in each iteration; 1.",
        may_be_null=True,
        ge=1,
        le=TIMES_MAX,
    )
    seed: int = key(
        1,
        text="between: the seed of the random instants; 1. Repeats draw others.",
        may_be_null=True,
        ge=0,
        le=2**31 - 1,
    )
    apart_s: Ramp = key(
        0.0,
        name="apart",
        text="between, when: the least time from the end of one occurrence to the next; 0s.",
        may_be_null=True,
    )
    for_s: Duration = key(  # 0: it ends by itself (a restart, a promotion)
        0.0,
        name="for",
        text="The time from its begin to its healing. Left out where the operation ends by itself.",
        may_be_null=True,
    )
    tunings: tuple[Tuning, ...]  # applied together, and undone together
    where: Where = NOWHERE

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts that it changes, in the order of its tunings."""
        return hosts_of(self.tunings)

    def begins_s(self, slot: str) -> tuple[float, ...]:
        """The instants at which it begins, ascending, seconds after the start of the measure window; `slot` names the
        rung and repeat, so that repeats draw other instants. () with `when`.

        n instants with a least distance d between them are uniform: n sorted uniform draws in the interval without
        (n - 1) d, each shifted by the distances before it.
        """
        if self.when is not None:
            return ()
        if self.between_s is None:
            return (self.at_s or 0.0,)
        first_s, last_s = self.between_s
        apart_s = self.for_s + self.apart_s
        free_s = max(last_s - first_s - (self.times - 1) * apart_s, 0.0)
        drawn = random.Random(f"{self.seed}/{self.name}/{slot}")  # noqa: S311 - reproducible, not secret
        starts = sorted(drawn.uniform(0.0, free_s) for _ in range(self.times))
        return tuple(first_s + start + number * apart_s for number, start in enumerate(starts))


# `matrix` makes the cells, the compiled `Ladder` carries its own, and every view or store of results takes the labels
# from there.

Label: TypeAlias = "str | int | float | bool"

ID_MAX = 56
"""Characters of a cell's id, so that its steps' ids fit into a stage id too."""


@record
class Cell:
    """`of` is the id that the plan gives the stage; `labels` are (axis, value) in the order of its axes."""

    of: str
    labels: tuple[tuple[str, Label], ...]

    def __str__(self) -> str:
        return label_text(self.labels)


def written(value: Label) -> str:
    """A label as a plan writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value).removesuffix(".0" * isinstance(value, float))


def label_text(labels: Iterable[tuple[str, Label]]) -> str:
    """Labels for people: `mode lz4, degree 2`."""
    return ", ".join(f"{axis} {written(value)}" for axis, value in labels)


def same(one: Label, other: Label) -> bool:
    """Whether two labels are one: numbers by value, and neither a number nor a text is a boolean.

    >>> same(2, 2.0), same(1, True), same("2", 2)
    (True, False, False)
    """
    return (
        isinstance(one, bool) == isinstance(other, bool)
        and isinstance(one, str) == isinstance(other, str)
        and one == other
    )


def ids(of: str, cells: Iterable[tuple[tuple[str, Label], ...]]) -> tuple[str, ...]:
    """An id for each cell, all different: `solve__lz4__degree_2`; counted where labels give too long or the same ones.

    >>> ids("solve", [(("mode", "query low"), ("degree", 2)), (("mode", "query-low"), ("degree", 2))])
    ('solve__query_low__degree_2', 'solve__c2')
    >>> ids("solve", [(("mode", one),) for one in ("c3", "low", "low-")])
    ('solve__c3', 'solve__low', 'solve__c4')
    """
    found: list[str] = []
    for number, labels in enumerate(cells, 1):
        name = "__".join((of, *(_word(axis, value) for axis, value in labels)))
        counted = (f"{of}__c{other}" for other in count(number))
        fits = len(name) <= ID_MAX and name not in found
        found.append(name if fits else next(one for one in counted if one not in found))
    return tuple(found)


def _word(axis: str, value: Label) -> str:
    word = re.sub(r"[^A-Za-z0-9]+", "_", written(value)).strip("_")
    return word if isinstance(value, str) and word[:1].isalpha() else f"{axis}_{word}"


def of_stage(stage: Mapping[str, Any]) -> Cell | None:
    """The cell of a stage as a recorded plan has it; None for a stage without a matrix."""
    cell = stage.get("cell")
    if not isinstance(cell, Mapping):
        return None
    return Cell(of=str(cell["of"]), labels=tuple((str(axis), value) for axis, value in cell["labels"]))


# Units stand last in names (`measure_s`, `tolerance_fraction`). A value that depends on the results of an earlier stage
# is an `Expression`; every other value is resolved.

Order: TypeAlias = Literal["ladder", "shuffled", "interleaved"]
_SECOND_SLACK = 1e-3
PASSES_MAX = 1_000


Window: TypeAlias = Literal["ramp_up", "measure", "ramp_down"]
"""The windows of an iteration, in their order."""
MEASURE: Window = "measure"
"""The window that counts."""


@record
class WindowDeclaration:
    """A window of an iteration: its key in plans, its name for people, and the word behind its length in `explain`."""

    name: Window
    title: str
    stated: str


WINDOWS = (
    WindowDeclaration(name="ramp_up", title="ramp-up", stated="ramp-up"),
    WindowDeclaration(name=MEASURE, title="measure", stated="measured"),
    WindowDeclaration(name="ramp_down", title="ramp-down", stated="ramp-down"),
)
AFTER_MEASURE: tuple[Window, ...] = get_args(Window)[get_args(Window).index(MEASURE) + 1 :]
"""The windows after it."""


def lengths_s(windows: object) -> dict[WindowDeclaration, float]:
    """The lengths of the windows in their order, s: of `Windows`, or of an event with fields of the same names."""
    return {one: getattr(windows, f"{one.name}_s") for one in WINDOWS}


def measured_from_s(windows: object) -> float:
    """The start of the measure window after T0, s."""
    return sum(length_s for _, length_s in takewhile(lambda item: item[0].name != MEASURE, lengths_s(windows).items()))


@record
class Windows:
    """The windows of an iteration. Only the measure window counts."""

    ramp_up_s: Ramp  # s before the measure window; 0 with `passes`
    measure_s: Duration  # length of the measure window, s; with `passes` its time limit
    ramp_down_s: Ramp  # s after the measure window; 0 with `passes`
    # the measure window ends when each terminal has run its transactions in order that many times; 0: after measure_s
    passes: Annotated[int, Form(ge=0, le=PASSES_MAX)] = field(default=0, metadata=OMITTED)
    # divide the measure window: the name and the length of each, s
    phases: tuple[tuple[str, float], ...] = field(default=(), metadata=OMITTED)
    # `ramp_up: auto(a..b)`: a, and ramp_up_s is b or, of a repeat after the first, what the ones before needed
    ramp_up_least_s: Ramp | None = field(default=None, metadata=OMITTED)

    @property
    def starts_within_s(self) -> float:
        """The time after T0 in which the load starts, s: half of the (shortest) ramp-up."""
        return (self.ramp_up_s if self.ramp_up_least_s is None else self.ramp_up_least_s) / 2

    @property
    def total_s(self) -> float:
        """Length of the whole iteration, seconds."""
        return sum(lengths_s(self).values())

    @property
    def measured_to_s(self) -> float:
        """The end of the measure window after T0, seconds."""
        return measured_from_s(self) + self.measure_s

    @property
    def whole_seconds(self) -> int:
        """The seconds that lie inside the measure window as a whole; seconds count from the start of the ramp-up."""
        begins, ends = measured_from_s(self), self.measured_to_s
        return max(math.floor(ends + _SECOND_SLACK) - math.ceil(begins - _SECOND_SLACK), 0)


@record
class Think:
    """The pause of a terminal between two transactions: `mean_s`, always or as the mean of an exponential
    distribution."""

    mean_s: float
    distribution: Literal["constant", "exponential"] = "exponential"


@record
class Closed:
    """Closed arrival: each thread fires again when its last transaction has ended, and its think time is over.

    `think` takes the place of the think times that the workload's transactions have of their own.
    """

    think: Think | None = None
    kind: Literal["closed"] = "closed"


Distribution: TypeAlias = Literal["constant", "poisson"]
"""The distribution of the arrivals of an open load."""


@record
class Open:
    """Open arrival: an absolute schedule at `rate` transactions a second in total, whatever the server does."""

    rate: float | Expression
    distribution: Distribution = "constant"
    kind: Literal["open"] = "open"


@record
class Phased:
    """Arrival that changes over the measure window: the `levels` follow each other in it.

    `of` the rate it is open arrival, transactions a second in total; `of` threads it is closed: thread k is active
    while k is below the level, with `think` as in `Closed`. The ramp-up reaches the first level, and the ramp-down
    stays at the last one.
    """

    levels: tuple[Level, ...]
    of: Literal["rate", "threads"] = "rate"
    distribution: Distribution = "constant"
    think: Think | None = None
    kind: Literal["phased"] = "phased"

    @property
    def rate(self) -> float | None:
        """Transactions a second that are intended in the measure window, on average; None for threads."""
        return mean_level(self.levels) if self.of == "rate" else None


Arrival: TypeAlias = Closed | Open | Phased


VOID_FRACTION_MAX = 0.40


@record
class Limits(Element):
    """The limits of an iteration. Those of the client and the measurement (`start_skew`, `client_cpu`, a load process's
    `pause`) void it, and it runs again. Those of the system (`errors`, `achieved`, `pause`) mark it: it counts, and no
    verdict passes on it. The others warn."""

    # `coordinator.measure.validity` judges by them.

    errors_fraction_max: Percentage = key(
        0.001, name="errors", text="Technical errors over all transactions that ended."
    )
    start_skew_ms_max: Milliseconds = key(
        50.0, name="start_skew", text="Latest start of the load after the agreed instant."
    )
    client_cpu_fraction_max: Percentage = key(
        0.85, name="client_cpu", text="CPU of the busiest load process, of one core."
    )
    client_handling_fraction_max: Percentage = key(
        0.1,
        name="client_handling",
        text="Time that answers waited for the client, of the service time of a transaction.",
    )
    achieved_fraction_min: Percentage = key(0.99, name="achieved", text="Achieved over intended rate, open arrival.")
    schedule_p99_ms_max: Milliseconds = key(
        5.0, name="schedule_p99", text="Lateness of transactions' starts, 99th percentile, open arrival."
    )
    tps_slope_fraction_max: Variation = key(
        0.10, name="tps_slope", text="Drift of the throughput over the measure window, below which it is steady."
    )
    tps_cv_max: Variation = key(
        0.30, name="tps_cv", text="Coefficient of variation of the throughput, second by second."
    )
    pause_s_max: Duration = key(
        10.0,
        name="pause",
        text="Longest time that the system or a load process may stall in the measure window. Of a shorter window, a "
        "third is too long for the system.",
        gt=0,
    )
    void_fraction_max: Percentage = key(
        VOID_FRACTION_MAX,
        name="void",
        text="Share of void attempts at a rung above which a verdict on it is INCONCLUSIVE.",
    )


@record
class Pool(Element):
    """Where load workers run, other than as processes of the client agents."""

    name: str = "local"
    kind: Literal["local", "ray"] = "local"
    address: Text = key(
        "",
        text="A cluster that runs already: `auto` or name:port. Without, the client hosts form one.",
        may_be_null=True,
    )
    workers: int | None = key(None, text="Workers in total; by default one for each CPU.", ge=1, le=10_000)
    placement: Literal["spread", "pack"] = key(
        "spread", text="Deal the workers round the nodes, or fill node after node."
    )
    where: Where = NOWHERE


ConnectEvery: TypeAlias = Annotated[
    int,
    Form(
        before=lambda value: 1 if value == "transaction" else value,
        schema={"anyOf": [{"const": "transaction"}, {"type": "integer", "minimum": 1, "maximum": CONNECT_EVERY_MAX}]},
        ge=1,
        le=CONNECT_EVERY_MAX,
    ),
]


Access: TypeAlias = Literal["", "any", "read_write", "read_only"]
OnDisconnect: TypeAlias = Literal["reconnect", "retry", "fail"]
"""Rules for the loss of a connection: the transaction under way is an error, and the terminal connects again
(`reconnect`); it runs again with the same inputs (`retry`); or the load ends (`fail`)."""


@record
class Sessions(Element):
    """The connections of a load; by default each thread keeps one of its own."""

    on_disconnect: OnDisconnect = "reconnect"  # the rule for a lost one
    # The member of the system to connect to; "" is that of the dsn, of several instances each terminal's own.
    access: Access = ""
    pool: int = key(  # 0: one for each terminal
        0,
        text="Connections in total, over all clients: a transaction waits for a free one, first come, first served. "
        "The wait is part of its response time, and `pool_wait` in expressions.",
        form=int,
        may_be_null=True,
        ge=1,
        le=THREADS_MAX,
    )
    connect_every: ConnectEvery = key(  # 0: a connection is kept
        0,
        text="Close a connection after so many transactions, or after each `transaction`, and make another. The "
        "connect is part of the response time, and `connect` in expressions.",
        may_be_null=True,
    )

    @property
    def are_lent(self) -> bool:
        """Whether terminals have no connection of their own that they keep."""
        return self.pool > 0 or self.connect_every > 0


_RETRIES = "The most times that an invalid iteration is run again."
_WORKERS = "Load processes per host, by default its cores; of a Ray pool in total."
CLIENTS = ("role:client",)
"""The hosts that make load, where a stage names none."""

OWN_SESSIONS = Sessions()
"""Each terminal keeps a connection of its own, and makes another one when it is lost."""


@record
class Outline:
    """A stage in the words of `proveout explain`: about `seconds` each time that it runs; `work`: (host, action), those
    of a host in order."""

    title: str
    seconds: float
    detail: tuple[str, ...] = ()
    work: tuple[tuple[str, str], ...] = ()


class Named(Protocol):
    """A plan, as its stages see it: the things that they name."""

    def system(self, name: str) -> System: ...

    def stage(self, stage_id: str) -> Stage: ...


class StageKind(Element):
    """A kind of stage, beyond the fields of its record, with the answers of most kinds. Not a dataclass, so that those
    that inherit from it are cheap to define.

    `around_turns`: whether it can run around each turn of a ladder: as often as the turns, or before them and taken
    back after them, or as what takes another one back. `is_timed`: whether `explain` can tell how long it takes.
    """

    __slots__ = ()
    around_turns: ClassVar[Literal["never", "repeated", "taken back", "takes back"]] = "never"
    is_timed: ClassVar[bool] = True

    @property
    def iterations(self) -> int:
        """The most iterations that it runs, reruns of invalid ones not counted; 0 when it measures nothing."""
        return 0

    @property
    def rewrites(self) -> tuple[str, ...]:
        """The systems whose tables it changes without counting."""
        return ()

    @property
    def changes(self) -> tuple[Tuning, ...]:
        """Its changes to machines, those of its faults too."""
        return ()

    def outline(self, plan: Named) -> Outline:
        """The stage for `explain`; that of kinds that need more than the plan is in `dsl.explain.outlines`."""
        raise NotImplementedError(type(self).__name__)


@record
class Populate(StageKind):
    """Create the workload's schema in each system and load it, the same rows in each."""

    id: str
    workload: Name = key(of="workload")
    into: Names = key(text="The systems to load.", of="systems")
    clients: Selector = key(CLIENTS, name="from", text="The hosts that load.", of="hosts")
    workers: int | None = key(None, text="Processes that load; by default the host's cores.", ge=1, le=1000)
    where: Where = NOWHERE
    kind: Literal["populate"] = "populate"
    around_turns = "taken back"

    @property
    def rewrites(self) -> tuple[str, ...]:
        return self.into


@record
class Load:
    """One of several loads that a stage runs at the same time: `workload` on `target`, generated by `clients`.

    It has a `share` (numerator, denominator) of the threads and the rate of each rung; or, without one, `threads` of
    its own that are the same at every rung, at `rate` transactions a second in total, or closed without it. `tracked`:
    its commits are counted in the database too; `checked`: a transaction that had
    committed without an answer is not run again.
    """

    name: str
    workload: str
    target: str
    clients: tuple[str, ...]
    share: tuple[int, int] | None = None
    threads: int | None = None
    rate: float | None = None
    distribution: Distribution = "constant"
    think: Think | None = None
    session: tuple[tuple[str, str], ...] = ()
    sessions: Sessions = field(default=OWN_SESSIONS, metadata=OMITTED)
    tracked: bool = field(default=False, metadata=OMITTED)
    checked: bool = field(default=False, metadata=OMITTED)
    where: Where = NOWHERE


@record
class Ladder(StageKind):
    """Run the workload with growing numbers of threads, each repeated."""

    # Every repeat runs the whole ladder, so that drift affects all rungs.
    #
    # With `repeat_min` (`repeat: auto(3..10)`), repeats are added from that number until every verdict that reads the
    # ladder is decided, up to `repeat`. `order` is that of the rungs within a repeat, see `dsl.plan.iteration_order`:
    # `shuffled` draws it by `seed`; `interleaved` alternates with the ladder `interleaved_with`, which precedes it.
    # `before` and `after` are the ids of the sql, reset and pause stages that run before and after each of its turns.
    # `cell`: its cell of a matrix; `apart`: the reason for which the cells of that matrix run one after the other, ""
    # when they are interleaved. With several `loads`, `clients` are all of theirs, and `workload`, `target` and
    # `session` are empty: `loads.parts` takes the stage apart. `alone`: the only one of the loads that runs, for the
    # interference of all of them, which the ladder `interleaved_with` runs. `versus_s`: see `dsl.plan.slices`. `faults`
    # begin in the measure window of each iteration. `recovered_within`: see `coordinator.measure.phases`.

    id: str
    workload: str
    target: str
    clients: tuple[str, ...]
    threads: tuple[int, ...]
    windows: Windows
    arrival: Arrival = field(default_factory=Closed)
    repeat: int = 3
    repeat_min: int | None = None
    order: Order = key(
        "ladder",
        text="Of the rungs in each repeat: as listed, drawn by `seed`, or in turns with the ladder before (`with`). "
        "The cells of a matrix take turns; `order: ladder` runs one cell after the other.",
    )
    seed: int | None = None
    interleaved_with: str | None = None
    before: tuple[str, ...] = field(default=(), metadata=OMITTED)
    after: tuple[str, ...] = field(default=(), metadata=OMITTED)
    captures: tuple[str, ...] = ()
    stop_when: WrittenExpression | None = key(
        None, text="Condition on `rung`; when it holds, higher rungs are left out."
    )
    retries: int = key(1, text=_RETRIES, ge=0, le=10)
    workers: int | None = key(None, text=_WORKERS, ge=1, le=1000)
    by_processes: bool = field(default=False, metadata=OMITTED)  # the rungs are processes of one thread each
    pool: Pool = field(default_factory=Pool)
    limits: Limits = key(Limits(), text="The limits of an iteration, and of void attempts.")
    session: tuple[tuple[str, str], ...] = ()
    sessions: Sessions = field(default=OWN_SESSIONS, metadata=OMITTED)
    tracked: bool = field(default=False, metadata=OMITTED)
    checked: bool = field(default=False, metadata=OMITTED)
    cell: Cell | None = None
    apart: str = field(default="", metadata=OMITTED)
    loads: tuple[Load, ...] = field(default=(), metadata=OMITTED)
    alone: str = field(default="", metadata=OMITTED)
    versus_s: SliceLength = key(
        0.0,
        name="versus",
        text="With `loads`: they take turns in slices of this length, 500ms to 2s, each with all threads and the "
        "rate of the rung, for the ratio of each to the first one, block by block.",
        may_be_null=True,
        omitted=True,
    )
    faults: tuple[Fault, ...] = field(default=(), metadata=OMITTED)
    recovered_within: Percentage = key(
        RECOVERED_WITHIN,
        text="phases: how far throughput and response may be from those of the phase before to count as "
        "recovered; 20%.",
        may_be_null=True,
        omitted=True,
    )
    where: Where = NOWHERE
    kind: Literal["ladder"] = "ladder"

    @property
    def iterations(self) -> int:
        return len(self.threads) * self.repeat

    @property
    def changes(self) -> tuple[Tuning, ...]:
        return tuple(tuning for fault in self.faults for tuning in fault.tunings)

    @property
    def looks(self) -> int:
        """The number of times that verdicts are evaluated to decide on more repeats: once after each repeat from
        `repeat_min` on; 1 for a fixed number of repeats."""
        return 1 if self.repeat_min is None else self.repeat - self.repeat_min + 1


@record
class SearchBounds(Element):
    """The bounds that a probe must keep in addition to `accept`."""

    missed_fraction_max: Percentage = key(
        0.01,
        name="missed",
        text="Arrivals due in the window that had no answer within 1 s after the load, over all due.",
    )
    lateness_p99_ms_max: Milliseconds = key(100.0, name="lateness", text="Lateness of starts at the 99th percentile.")
    lateness_growth_max: Percentage = key(
        0.02,
        name="growth",
        text="Growth of the lateness in the window, seconds per second, at the upper end of its interval.",
    )


@record
class Around(Element):
    """A ladder around the answer of a search, which is a rung of it too."""

    threads: Shares = key((0.5, 0.75, 1.25, 1.5), text="Threads over those of the answer: 120%.")
    repeat: int = key(3, text="Repeats of each rung.", ge=1, le=100)


FULL_LENGTH_MAX = 4
"""Full-length iterations of a search, at most, for each of its `confirmations`."""


@record
class Search(StageKind):
    """Find the highest rate, or the most threads, at which `accept` holds."""

    # It is within [`rate_from`, `rate_to`]; each probe is drain + ramp-up (settle) + measure. `rate_start`: the rate of
    # the first probe, None for `rate_from`. `over` threads: the three are numbers of threads, arrival is closed, and
    # `threads` is the most of them. `around`: threads of a ladder around the answer, over it. `loads` as in `Ladder`.

    id: str
    workload: str
    target: str
    clients: tuple[str, ...]
    threads: int
    rate_from: float | Expression
    rate_to: float | Expression
    accept: WrittenExpression = key(text="Condition on an iteration's numbers.")
    probe: Windows
    confirm: Windows
    rate_start: float | Expression | None = field(default=None, metadata=OMITTED)
    upper_end: bool = key(
        True,
        text="Say which rate is too high; without, the interval is open above.",
        omitted=True,
    )
    tolerance_fraction: float = 0.05
    probes_max: int = key(
        60, text="The most probes before the search gives up, those that confirm included.", ge=2, le=500
    )
    confirmations: int = 6
    drain_s: Ramp = key(
        60.0,
        name="drain",
        text="Longest wait before each probe until a captured `lag` is down to 100 ms, so that the backlog of one "
        "probe is not measured in the next.",
    )
    bounds: SearchBounds = key(SearchBounds(), text="Bounds that a probe must keep in addition to `accept`.")
    distribution: Distribution = key("constant", name="arrival")
    captures: tuple[str, ...] = ()
    retries: int = key(1, text=_RETRIES, ge=0, le=10)
    workers: int | None = key(None, text=_WORKERS, ge=1, le=1000)
    pool: Pool = field(default_factory=Pool)
    limits: Limits = key(Limits(), text="The limits of an iteration, and of void attempts.")
    session: tuple[tuple[str, str], ...] = ()
    sessions: Sessions = field(default=OWN_SESSIONS, metadata=OMITTED)
    tracked: bool = field(default=False, metadata=OMITTED)
    checked: bool = field(default=False, metadata=OMITTED)
    loads: tuple[Load, ...] = field(default=(), metadata=OMITTED)
    over: Sought = field(default="rate", metadata=OMITTED)
    around: Around | None = key(
        None,
        name="then",
        text="Of a search for threads: a ladder around the answer, with the windows of `confirm`.",
        omitted=True,
    )
    where: Where = NOWHERE
    kind: Literal["search"] = "search"

    @property
    def iterations(self) -> int:
        return self.probes_max + (len(self.around.threads) * self.around.repeat if self.around else 0)


@record
class Sql(StageKind):
    """Run statements once each, in order; each commits by itself. Then wait until a query gives a value, then take
    numbers from a query."""

    id: str
    system: Name = key()
    statements: Statements = key(
        (),
        text="The statements, which are run first. All run again where a stop or a lost agent cuts them off.",
        may_be_null=True,
    )
    wait_until: WaitUntil = key(
        NO_WAIT, text="Wait until a query gives a value, after the statements.", may_be_null=True, omitted=True
    )
    query: Text = key("", text="The query whose columns are the `metrics`, run last.", may_be_null=True, omitted=True)
    values: Values = key(
        (), name="metrics", text="The numbers that the query gives, by name.", may_be_null=True, omitted=True
    )
    repeat: int = key(
        1, text="Repeats of all of it; each number is an estimate over the repeats.", omitted=True, ge=1, le=100
    )
    repeatable: bool | None = key(  # None leaves it to their text (`dsl.rules.repeat_rules`)
        None,
        text="As a step of a cell: whether the statements may run before or after each turn of it. Without, "
        "queries, maintenance (ANALYZE, VACUUM, CHECKPOINT …) and settings count as repeatable.",
        omitted=True,
    )
    where: Where = NOWHERE
    kind: Literal["sql"] = "sql"
    around_turns = "repeated"
    is_timed = False

    @property
    def rewrites(self) -> tuple[str, ...]:
        return (self.system,) if self.statements else ()

    def outline(self, plan: Named) -> Outline:
        count, system = len(self.statements), plan.system(self.system)
        what = f"{count} statement{'' if count == 1 else 's'}" if count else "a wait" if not self.query else "a query"
        detail = [f"{self.repeat} times"] if self.repeat > 1 else []
        if self.statements:
            detail.append(f"how long {'it takes' if count == 1 else 'they take'} is not known before the run")
            kept = "is not set back after the run" if system.provision is None else "is removed with the system"
            kept = "is gone when the original is put back" if system.restore else kept
            detail.append(f"what they change {kept}")
        detail += [f"{number}) {' '.join(text.split())}" for number, text in enumerate(self.statements, 1)]
        if (wait := self.wait_until).query:
            limits = f"asks every {format_duration(wait.every_s)}, for at most {format_duration(wait.within_s)}"
            detail.append(f"waits until {' '.join(wait.query.split())} gives {wait.equals}; {limits}")
        if self.query:
            names = ", ".join(value.name for value in self.values)
            detail.append(f"metrics {names} from {' '.join(self.query.split())}")
        return Outline(
            title=f"{what} in {self.system}",
            seconds=self.repeat * 1.0,
            detail=tuple(detail),
            work=((system.host, "run the statements" if self.statements else "read from the system"),),
        )


@record
class CommandRun(StageKind):
    """Run a program that the host's policy lists, and take numbers from its output."""

    id: str
    host: Name = key(name="on", text="The host that runs it.")
    command: Command = keys_of(Command)
    values: Values = key(name="metrics", text="The numbers of its output, by name.")
    repeat: int = key(1, text="Repeats; each number is an estimate over them.", ge=1, le=100)
    where: Where = NOWHERE
    kind: Literal["command"] = "command"
    is_timed = False

    def outline(self, plan: Named) -> Outline:
        command, names = self.command, ", ".join(value.name for value in self.values)
        within = format_duration(command.within_s)
        detail = (
            *((f"{self.repeat} times",) if self.repeat > 1 else ()),
            " ".join(command.argv),
            f"at most {within}; as the unprivileged user, if the host's policy lists it",
            f"metrics {names} from its output ({command.output.format})",
        )
        does = f"run {command.argv[0]}"
        title = f"{does} on {self.host}"
        return Outline(title=title, seconds=self.repeat * 1.0, detail=detail, work=((self.host, does),))


@record
class Reset(StageKind):
    """Bring systems to a known state."""

    id: str
    systems: Names = key(of="systems")
    restore: bool = key(
        True,
        text="Restore the copy that the last populate saved: rows, and tables and indexes too. Of a user's SQLite file "
        "without a populate, the copy of the beginning of the run.",
    )
    keep: Literal["", "ddl"] = key(
        "",
        text="`ddl`: after the restore, the DDL of the sql stages since the copy is executed again. Without it the "
        "tables and indexes that they have made are gone.",
        form=Literal["ddl"],
        may_be_null=True,
        omitted=True,
    )
    checkpoint: bool = key(True, text="Write out dirty pages, so that the next iteration does not pay for them.")
    where: Where = NOWHERE
    kind: Literal["reset"] = "reset"
    around_turns = "repeated"

    @property
    def rewrites(self) -> tuple[str, ...]:
        return self.systems


@record
class Pause(StageKind):
    """Do nothing for a while."""

    id: str
    duration_s: Duration = key(name="duration")
    where: Where = NOWHERE
    kind: Literal["pause"] = "pause"
    around_turns = "repeated"

    def outline(self, plan: Named) -> Outline:
        return Outline(title=f"wait {length(self.duration_s)}", seconds=self.duration_s)


@record
class Tune(StageKind):
    """Change machines in the middle of the plan."""

    id: str
    tunings: tuple[Tuning, ...]
    where: Where = NOWHERE
    kind: Literal["tune"] = "tune"
    around_turns = "taken back"

    @property
    def changes(self) -> tuple[Tuning, ...]:
        return self.tunings

    def outline(self, plan: Named) -> Outline:
        hosts, names = hosts_of(self.tunings), ", ".join(tuning.name for tuning in self.tunings)
        work = tuple((host, "tune") for host in hosts)
        return Outline(title=f"tune {', '.join(hosts)}: {names}", seconds=tunings_s(self.tunings), work=work)


@record
class Revert(StageKind):
    """Undo the changes of a `tune` stage before the end of the run."""

    id: str
    tune: Id = key(text="The stage; of those that are in place, the last one.")
    where: Where = NOWHERE
    kind: Literal["revert"] = "revert"
    around_turns = "takes back"

    def outline(self, plan: Named) -> Outline:
        tune = plan.stage(self.tune)
        tunings = tune.tunings if isinstance(tune, Tune) else ()
        title = f"set back what {self.tune} has changed: {', '.join(tuning.name for tuning in tunings)}"
        work = tuple((host, "set back") for host in hosts_of(tunings))
        return Outline(title=title, seconds=tunings_s(tunings), work=work)


@record
class Restart(StageKind):
    """Stop a system that proveout has started, and start it on its data."""

    id: str
    system: Name = key(of="system")
    settings: Settings = key(
        (), text="Settings over those of the topology, until the next restart of the system.", max_length=100
    )
    where: Where = NOWHERE
    kind: Literal["restart"] = "restart"
    around_turns = "taken back"

    def outline(self, plan: Named) -> Outline:
        wanted = ", ".join(f"{name} = {value}" for name, value in self.settings)
        title = f"restart {self.system} with {wanted or 'the settings of the plan'}"
        return Outline(title=title, seconds=3.0, work=((plan.system(self.system).host, f"restart {self.system}"),))


@record
class Reboot(StageKind):
    """Reboot hosts, wait for their agents, and check that the changes of the run that are to last have survived."""

    id: str
    hosts: Selector = key(
        name="on", text="The hosts. Their agents are services; those of `local` are none.", of="hosts"
    )
    within_s: Duration = key(
        900.0, name="within", text="The longest time until the agent is back; the changes of the run stay that long."
    )
    where: Where = NOWHERE
    kind: Literal["reboot"] = "reboot"
    is_timed = False

    def outline(self, plan: Named) -> Outline:
        detail = (
            f"waits for the agents for at most {format_duration(self.within_s)}",
            "changes of the run stay in place; those that the kernel has lost are made again",
        )
        work = tuple((host, "reboot") for host in self.hosts)
        return Outline(title=f"reboot {', '.join(self.hosts)}", seconds=120.0, detail=detail, work=work)


@record
class Drop(StageKind):
    """Drop the tables that a populate has made."""

    id: str
    workload: Name = key(of="workload")
    systems: Names = key(text="The systems that it was loaded into.", of="systems")
    clients: Selector = key(CLIENTS, name="from", text="The hosts; the first of them does it.", of="hosts")
    where: Where = NOWHERE
    kind: Literal["drop"] = "drop"
    around_turns = "takes back"

    @property
    def rewrites(self) -> tuple[str, ...]:
        return self.systems

    def outline(self, plan: Named) -> Outline:
        names = ", ".join(self.systems)
        title = f"drop the tables of {self.workload} from {names}"
        work = ((self.clients[0], f"drop tables in {names}"),)
        return Outline(title=title, seconds=1.0 * len(self.systems), work=work)


@record
class Tool(StageKind):
    """Run an outside program, fio, on hosts with growing I/O depths, each repeated."""

    # Every repeat runs all depths. The hosts themselves are under test, and no system.

    id: str
    clients: tuple[str, ...]
    pattern: str  # its name; of an I/O that differs from it, that in words
    job: FioJob
    iodepths: Rungs = key((2, 4, 8, 16), name="iodepth", text="The rungs: I/Os that each job keeps under way.")
    windows: Windows
    repeat: int = key(3, text="Repeats of each rung.", ge=1, le=100)
    captures: tuple[str, ...] = ()
    retries: int = key(1, text=_RETRIES, ge=0, le=10)
    limits: Limits = field(default_factory=Limits)
    program: Literal["fio"] = "fio"
    where: Where = NOWHERE
    kind: Literal["tool"] = "tool"

    @property
    def iterations(self) -> int:
        return len(self.iodepths) * self.repeat


Stage: TypeAlias = (
    Populate | Ladder | Search | Sql | CommandRun | Reset | Pause | Tune | Revert | Restart | Reboot | Drop | Tool
)
KINDS: Mapping[str, type[StageKind]] = MappingProxyType(
    {one.__dataclass_fields__["kind"].default: one for one in get_args(Stage)}
)
"""The records of the kinds of stages, by kind."""
Measuring: TypeAlias = Ladder | Search | Tool
"""The stages that have iterations."""


@record
class Condition:
    """The condition of a stage: it runs when the stages that it `needs` have ended well and `when` holds, else it is
    left out."""

    stage: str
    needs: tuple[str, ...] = ()
    when: Expression | None = None
