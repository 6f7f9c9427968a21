"""The stages of a compiled plan, with their arrivals, windows, limits, pools, faults and tunings."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterable, Mapping
from itertools import takewhile
from typing import Any, Literal, TypeAlias, get_args

from proveout.core.data_classes import dataclass, field
from proveout.core.errors import NOWHERE, Where
from proveout.dsl.plan.commands import NO_WAIT, OMITTED, Command, FioJob, MeasuredValue, WaitUntil
from proveout.dsl.plan.phases import RECOVERED_WITHIN, Level, mean_level
from proveout.dsl.plan.topology import Expression, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """A change to machines: an operation of `dsl.operations` with its validated parameters, sorted by name, on each of
    `hosts`.

    It is undone at the end of the run unless `keep`. `restart` names a unit that is restarted after it, and after it is
    undone. `system` is the one that it tunes, on that system's host. `destructive`: the plan agrees to the loss of
    data.
    """

    name: str
    operation: str
    hosts: tuple[str, ...]
    parameters: tuple[tuple[str, Value], ...]
    keep: bool = False
    restart: str = ""
    system: str = ""
    destructive: bool = False
    where: Where = NOWHERE


FAULTS_MAX = 20
"""The most faults of one stage."""
TIMES_MAX = 100
"""The most times that one fault begins in one iteration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A disturbance: `tunings` are applied, all together, and undone (healed) `for_s` seconds later; 0 for one that
    ends by itself (a restart, a promotion).

    It begins `times` times in each iteration: at `at_s` after the start of the measure window; or at instants drawn by
    `seed` within `between_s`, at least `apart_s` from the healing to the next; or, with `when`, each time that the
    condition on the numbers of the last second holds, at least `apart_s` after the last healing.
    """

    name: str
    tunings: tuple[Tuning, ...]
    for_s: float
    at_s: float | None = None
    between_s: tuple[float, float] | None = None
    when: Expression | None = field(default=None, metadata=OMITTED)
    times: int = 1
    seed: int = 1
    apart_s: float = 0.0
    where: Where = NOWHERE

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts that it changes, in the order of its tunings."""
        return tuple(dict.fromkeys(host for tuning in self.tunings for host in tuning.hosts))

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """`of` is the id that the plan gives the stage; `labels` are (axis, value) in the order of its axes."""

    of: str
    labels: tuple[tuple[str, Label], ...]

    def __str__(self) -> str:
        return label_text(self.labels)


def written(value: Label) -> str:
    """A label as a plan writes it."""
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


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
    """
    found: list[str] = []
    for number, labels in enumerate(cells, 1):
        name = "__".join((of, *(_word(axis, value) for axis, value in labels)))
        found.append(f"{of}__c{number}" if len(name) > ID_MAX or name in found else name)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowDeclaration:
    """A window of an iteration: its key in plans, its name for people, and the word behind its length in `explain`.

    `optional`: texts leave it out where it is 0. `has_load`: whether transactions begin in it.
    """

    name: Window
    title: str
    stated: str
    optional: bool = False
    has_load: bool = True


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


def stated_s(windows: object) -> dict[WindowDeclaration, float]:
    """The lengths that texts state, s."""
    return {one: length_s for one, length_s in lengths_s(windows).items() if length_s or not one.optional}


def measured_from_s(windows: object) -> float:
    """The start of the measure window after T0, s."""
    return sum(length_s for _, length_s in takewhile(lambda item: item[0].name != MEASURE, lengths_s(windows).items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """The windows of an iteration (`WINDOWS`), seconds. Only the measure window counts.

    With `passes` above 0 the measure window ends when each terminal has run its transactions in order that many times;
    `measure_s` is then the time limit of the window, and both ramps are 0. `phases` divide the measure window: the name
    and the length of each, seconds.
    """

    ramp_up_s: float
    measure_s: float
    ramp_down_s: float
    passes: int = field(default=0, metadata=OMITTED)
    phases: tuple[tuple[str, float], ...] = field(default=(), metadata=OMITTED)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Think:
    """The pause of a terminal between two transactions: `mean_s`, always or as the mean of an exponential
    distribution."""

    mean_s: float
    distribution: Literal["constant", "exponential"] = "exponential"


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """Closed arrival: each thread fires again when its last transaction has ended, and its think time is over.

    `think` takes the place of the think times that the workload's transactions have of their own.
    """

    think: Think | None = None
    kind: Literal["closed"] = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """Open arrival: an absolute schedule at `rate` transactions a second in total, whatever the server does."""

    rate: float | Expression
    distribution: Literal["constant", "poisson"] = "constant"
    kind: Literal["open"] = "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class Phased:
    """Arrival that changes over the measure window: the `levels` follow each other in it.

    `of` the rate it is open arrival, transactions a second in total; `of` threads it is closed: thread k is active
    while k is below the level, with `think` as in `Closed`. The ramp-up reaches the first level, and the ramp-down
    stays at the last one.
    """

    levels: tuple[Level, ...]
    of: Literal["rate", "threads"] = "rate"
    distribution: Literal["constant", "poisson"] = "constant"
    think: Think | None = None
    kind: Literal["phased"] = "phased"

    @property
    def rate(self) -> float | None:
        """Transactions a second that are intended in the measure window, on average; None for threads."""
        return mean_level(self.levels) if self.of == "rate" else None


Arrival: TypeAlias = Closed | Open | Phased


VOID_FRACTION_MAX = 0.40


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of an iteration, see `coordinator.measure.validity`; and the share of void attempts at a rung above
    which no verdict on it is decided."""

    errors_fraction_max: float = 0.001
    start_skew_ms_max: float = 50.0
    client_cpu_fraction_max: float = 0.85
    client_handling_fraction_max: float = 0.1
    achieved_fraction_min: float = 0.99
    schedule_p99_ms_max: float = 5.0
    tps_slope_fraction_max: float = 0.10
    tps_cv_max: float = 0.30
    pause_s_max: float = 10.0
    void_fraction_max: float = VOID_FRACTION_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The place of load workers: `local`, processes of the client agents; `ray`, actors on a Ray cluster.

    A Ray pool without an `address` is formed on the client hosts for the run; with an address (`auto`, `name:port`) it
    is a running cluster that the first client host belongs to. `placement` distributes the workers over all nodes
    (`spread`) or fills one node after the other (`pack`). `workers` is their total number; None is one for each CPU.
    """

    name: str = "local"
    kind: Literal["local", "ray"] = "local"
    address: str = ""
    placement: Literal["spread", "pack"] = "spread"
    workers: int | None = None
    where: Where = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """The rules for the connections of a load: making, keeping and losing them.

    `on_disconnect`: the transaction under way is an error, and the terminal connects again (`reconnect`); it runs again
    with the same inputs (`retry`); or the load ends (`fail`). `access`: the member of the system to connect to, the one
    that accepts changes, one that does not, or any; "" is the one of the dsn, and of several instances each terminal's
    own. `pool`: connections in total, of which a transaction takes one that is free; 0 is one for each terminal.
    `connect_every`: the transactions after which a connection is closed and another one made; 0: it is kept.
    """

    on_disconnect: Literal["reconnect", "retry", "fail"] = "reconnect"
    access: Literal["", "any", "read_write", "read_only"] = ""
    pool: int = 0
    connect_every: int = 0

    @property
    def are_lent(self) -> bool:
        """Whether terminals have no connection of their own that they keep."""
        return self.pool > 0 or self.connect_every > 0


OWN_SESSIONS = Sessions()
"""Each terminal keeps a connection of its own, and makes another one when it is lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Populate:
    """Create the workload's schema in each system of `into` and load it, the same rows in each."""

    id: str
    workload: str
    into: tuple[str, ...]
    clients: tuple[str, ...]
    workers: int | None = None
    where: Where = NOWHERE
    kind: Literal["populate"] = "populate"


@dataclass(frozen=True, slots=True, kw_only=True)
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
    distribution: Literal["constant", "poisson"] = "constant"
    think: Think | None = None
    session: tuple[tuple[str, str], ...] = ()
    sessions: Sessions = field(default=OWN_SESSIONS, metadata=OMITTED)
    tracked: bool = field(default=False, metadata=OMITTED)
    checked: bool = field(default=False, metadata=OMITTED)
    where: Where = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """Rungs of `threads`, each run `repeat` times; every repeat runs the whole ladder, so that drift affects all rungs.

    With `repeat_min` (`repeat: auto(3..10)`), repeats are added from that number until every verdict that reads the
    ladder is decided, up to `repeat`. `order` is that of the rungs within a repeat, see `dsl.plan.iteration_order`:
    `shuffled` draws it by `seed`; `interleaved` alternates with the ladder `interleaved_with`, which precedes this one.
    `before` and `after` are the ids of the sql, reset and pause stages that run before and after each of its turns.
    `cell`: its cell of a matrix; `apart`: the reason for which the cells of that matrix run one after the other, ""
    when they are interleaved. With several `loads`, `clients` are all of theirs, and `workload`, `target` and `session`
    are empty: `loads.parts` takes the stage apart. `alone`: the only one of the loads that runs, for the interference
    of all of them, which the ladder `interleaved_with` runs. `faults`
    begin in the measure window of each iteration. `recovered_within`: see `coordinator.measure.phases`.
    """

    id: str
    workload: str
    target: str
    clients: tuple[str, ...]
    threads: tuple[int, ...]
    windows: Windows
    arrival: Arrival = field(default_factory=Closed)
    repeat: int = 3
    repeat_min: int | None = None
    order: Order = "ladder"
    seed: int | None = None
    interleaved_with: str | None = None
    before: tuple[str, ...] = field(default=(), metadata=OMITTED)
    after: tuple[str, ...] = field(default=(), metadata=OMITTED)
    captures: tuple[str, ...] = ()
    stop_when: Expression | None = None
    retries: int = 1
    workers: int | None = None
    pool: Pool = field(default_factory=Pool)
    limits: Limits = field(default_factory=Limits)
    session: tuple[tuple[str, str], ...] = ()
    sessions: Sessions = field(default=OWN_SESSIONS, metadata=OMITTED)
    tracked: bool = field(default=False, metadata=OMITTED)
    checked: bool = field(default=False, metadata=OMITTED)
    cell: Cell | None = None
    apart: str = field(default="", metadata=OMITTED)
    loads: tuple[Load, ...] = field(default=(), metadata=OMITTED)
    alone: str = field(default="", metadata=OMITTED)
    faults: tuple[Fault, ...] = field(default=(), metadata=OMITTED)
    recovered_within: float = field(default=RECOVERED_WITHIN, metadata=OMITTED)
    where: Where = NOWHERE
    kind: Literal["ladder"] = "ladder"

    @property
    def looks(self) -> int:
        """The number of times that verdicts are evaluated to decide on more repeats: once after each repeat from
        `repeat_min` on; 1 for a fixed number of repeats."""
        return 1 if self.repeat_min is None else self.repeat - self.repeat_min + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchBounds:
    """The bounds that a probe of a search must keep in addition to `accept`; see `coordinator.verdict.verdicts`.

    `lateness_…` is that of starts; `lateness_growth_max` in seconds per second.
    """

    missed_fraction_max: float = 0.01
    lateness_p99_ms_max: float = 100.0
    lateness_growth_max: float = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """The highest rate in [`rate_from`, `rate_to`] at which `accept` holds; each probe is drain + ramp-up (settle) +
    measure.

    `rate_start`: the rate of the first probe, None for `rate_from`. `upper_end`: show a rate that is too high.
    `confirmations`: the full-length iterations in which the answer must hold. `drain_s`: the longest wait before a
    probe for the sink of a captured lag to catch up. `loads` as in `Ladder`.
    """

    id: str
    workload: str
    target: str
    clients: tuple[str, ...]
    threads: int
    rate_from: float | Expression
    rate_to: float | Expression
    accept: Expression
    probe: Windows
    confirm: Windows
    rate_start: float | Expression | None = field(default=None, metadata=OMITTED)
    upper_end: bool = field(default=True, metadata=OMITTED)
    tolerance_fraction: float = 0.05
    probes_max: int = 60
    confirmations: int = 9
    drain_s: float = 60.0
    bounds: SearchBounds = field(default_factory=SearchBounds)
    distribution: Literal["constant", "poisson"] = "constant"
    captures: tuple[str, ...] = ()
    retries: int = 1
    workers: int | None = None
    pool: Pool = field(default_factory=Pool)
    limits: Limits = field(default_factory=Limits)
    session: tuple[tuple[str, str], ...] = ()
    sessions: Sessions = field(default=OWN_SESSIONS, metadata=OMITTED)
    tracked: bool = field(default=False, metadata=OMITTED)
    checked: bool = field(default=False, metadata=OMITTED)
    loads: tuple[Load, ...] = field(default=(), metadata=OMITTED)
    where: Where = NOWHERE
    kind: Literal["search"] = "search"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sql:
    """Statements run once each, in order, in `system`; each commits by itself. Then `wait_until`, then `query`, whose
    columns are the `values`. All of it `repeat` times.

    `repeatable`: whether they may run before or after every turn of a cell; None leaves it to their text
    (`dsl.rules.repeat_rules`).
    """

    id: str
    system: str
    statements: tuple[str, ...]
    repeatable: bool | None = field(default=None, metadata=OMITTED)
    wait_until: WaitUntil = field(default=NO_WAIT, metadata=OMITTED)
    query: str = field(default="", metadata=OMITTED)
    values: tuple[MeasuredValue, ...] = field(default=(), metadata=OMITTED)
    repeat: int = field(default=1, metadata=OMITTED)
    where: Where = NOWHERE
    kind: Literal["sql"] = "sql"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRun:
    """A program of `host` that is run `repeat` times; the `values` are read from its output."""

    id: str
    host: str
    command: Command
    values: tuple[MeasuredValue, ...]
    repeat: int = 1
    where: Where = NOWHERE
    kind: Literal["command"] = "command"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """Bring `systems` to a known state: `restore` the copy that the last populate saved, execute the DDL of the sql
    stages since then again (`keep`, see `dsl.rules.resets`), `checkpoint`."""

    id: str
    systems: tuple[str, ...]
    restore: bool = True
    checkpoint: bool = True
    keep: Literal["", "ddl"] = field(default="", metadata=OMITTED)
    where: Where = NOWHERE
    kind: Literal["reset"] = "reset"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Do nothing for `duration_s`."""

    id: str
    duration_s: float
    where: Where = NOWHERE
    kind: Literal["pause"] = "pause"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tune:
    """Change machines in the middle of the plan."""

    id: str
    tunings: tuple[Tuning, ...]
    where: Where = NOWHERE
    kind: Literal["tune"] = "tune"


@dataclass(frozen=True, slots=True, kw_only=True)
class Revert:
    """Undo the changes of the `tune` stage `tune` before the end of the run."""

    id: str
    tune: str
    where: Where = NOWHERE
    kind: Literal["revert"] = "revert"


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """Stop a provisioned `system` and start it on its data, with `settings` over those of the plan.

    They stay until the next restart of it.
    """

    id: str
    system: str
    settings: tuple[tuple[str, str], ...] = ()
    where: Where = NOWHERE
    kind: Literal["restart"] = "restart"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """Drop the tables of `workload` from `systems`; the first of `clients` does it."""

    id: str
    workload: str
    systems: tuple[str, ...]
    clients: tuple[str, ...]
    where: Where = NOWHERE
    kind: Literal["drop"] = "drop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """Rungs of `iodepths` that an outside program, fio, runs on `clients`, each `repeat` times; every repeat runs all
    of them.

    An I/O depth is that of one job. There is no system under test: the hosts themselves are.
    """

    id: str
    clients: tuple[str, ...]
    pattern: str
    job: FioJob
    iodepths: tuple[int, ...]
    windows: Windows
    repeat: int = 3
    captures: tuple[str, ...] = ()
    retries: int = 1
    limits: Limits = field(default_factory=Limits)
    program: Literal["fio"] = "fio"
    where: Where = NOWHERE
    kind: Literal["tool"] = "tool"


Stage: TypeAlias = Populate | Ladder | Search | Sql | CommandRun | Reset | Pause | Tune | Revert | Restart | Drop | Tool
Measuring: TypeAlias = Ladder | Search | Tool
"""The stages that have iterations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """The condition of a stage: it runs when the stages that it `needs` have ended well and `when` holds, else it is
    left out."""

    stage: str
    needs: tuple[str, ...] = ()
    when: Expression | None = None
