"""The compiled plan: frozen, serialisable data that everything after the compiler works from.

Data flow: YAML -> `source` -> `schema` -> `compile` -> **Plan** -> explain, coordinator, agents; `subject`s lead
back to positions in the plan's files.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from proveout.core.data_classes import field, record
from proveout.core.errors import NOWHERE, Where
from proveout.core.numbers import threads
from proveout.dsl.plan.keys import OMITTED, Element, key, keys_of
from proveout.dsl.plan.scalars import Form, Name, OptionalText, Percentage, Text, Threads, Title
from proveout.dsl.plan.stages import Condition, Stage, Tune, Tuning
from proveout.dsl.plan.topology import (
    Capture,
    Declared,
    Expression,
    Host,
    Secret,
    System,
    TextPosition,
    Value,
    WrittenExpression,
)
from proveout.dsl.plan.topology import Workload as Workload  # noqa: PLC0414 - most modules import it from here

OnLoss: TypeAlias = Literal["rerun", "continue", "stop"]

FORMAT_VERSION = 1
POSITION: Mapping[str, bool] = {"position": True}
"""Of a field: it is recorded, and not a part of the digest, as every `where`."""


@record
class Parameter:
    """One of the plan's `params` with the value that this compilation used (durations in s, sizes in bytes, rates in
    1/s) and the highest that it allows."""

    name: str
    type: str
    value: Value
    help: str = ""
    most: float | None = field(default=None, metadata=POSITION)


@record
class Field:
    """A parameter that a form asks for, its values as the plan writes them. `default` is empty where every run must
    give a value; `low` and `high` are empty without a bound."""

    name: str
    type: str
    default: str = ""
    required: bool = False
    low: str = ""
    high: str = ""
    choices: tuple[str, ...] = ()
    help: str = ""


@record
class Check(Element):
    """A condition that must hold."""

    id: Name = key()
    title: Title = key("")
    check: WrittenExpression = key(text="A condition on the results of stages.")
    severity: Literal["fail", "warn"] = key("fail", text="A failed `warn` is shown but does not fail the run.")
    answer: Title = key(
        "",
        text="The sentence with which reports begin where it passed, `${…}` for a number of the results; where no "
        "verdict has one, the title with the value.",
        max_length=1000,
        omitted=True,
    )
    where: Where = NOWHERE


@record
class Published(Element):
    """A number of a publication, beside the number of this run."""

    id: Name = key()
    title: Title = key("")
    measured: WrittenExpression = key(text="A number of the results of stages.")
    value: float = key(text="The published number, in the unit of `measured`.", gt=0.0, allow_inf_nan=False)
    source: Title = key("", text="The publication: title, page, table or figure.")
    within: Percentage | None = key(  # with it, the plan has a check of the same id
        None,
        text="A verdict holds when `measured` is at most this far from `value`; without it, no verdict.",
    )
    where: Where = NOWHERE


@record
class RelativeTo(Element):
    """The divisor of the numbers of a chart; a text alone is its `of`."""

    of: OptionalText = key(
        "",
        text="A result, by whose own number each number is divided, or one number for all. Of several (a ladder, a "
        "matrix) that with the same rung and the same labels. Without it, the results of the chart themselves.",
    )
    transaction: OptionalText = key("", text="The one of the names for which `*` stands that all are divided by.")
    threads: Threads | None = key(None, text="The rung of the divisor.")
    up_is_better: bool = key(
        False,
        text="Of times, latencies and errors the divisor over the number, so that half the time is 200 %; in percent.",
    )

    @property
    def words(self) -> str:
        """`InsertCallForwarding of baseline with 2 threads`."""
        rung = "" if self.threads is None else f"with {threads(self.threads)}"
        of = f"of {self.of}" if self.transaction and self.of else self.of
        return " ".join(filter(None, (self.transaction, of, rung)))


@record
class ChartPoint:
    """A number of a chart: the heading of its panel, its place on the axis and its series ("" for a single one).

    The ending of `metric` is its unit.
    """

    panel: str
    metric: str
    at: str
    series: str
    number: Expression


Divisor: TypeAlias = Annotated[
    RelativeTo, Form(before=lambda value: {"of": value} if isinstance(value, str) else value, or_text=True)
]
ByLabel: TypeAlias = Annotated[Mapping[str, Text], Form(written=dict[str, Text], min_length=1)]


@record
class ChartNumbers(Element):
    """The numbers of a chart, as plans write them."""

    of: ByLabel = key(
        text="Results by their label: a rung (`ladder.at(8)`, `ladder.peak`), a ladder (all its rungs), a "
        "matrix (all its cells) or an sql stage.",
        max_length=32,
    )
    metrics: ByLabel = key(
        text="The path of a number in each result by the heading of its panel: `response.avg_us`; `*` stands "
        "for every name: `transactions.*.response.avg_us`.",
        max_length=6,
    )
    relative_to: RelativeTo | None = key(
        None,
        text="The divisor of all numbers; with the interval of the ratio. A text is its `of`.",
        form=Divisor,
        may_be_null=True,
    )


@record
class Chart(Element):
    """Numbers of results that the plan names, as bars beside each other, or as lines over the rungs of ladders."""

    # With `relative_to`, the divisor in words, all numbers are ratios; with `up_is_better` in the sense in which more
    # is better: of two times, the divisor's over the number's.

    id: Name = key()
    title: Title = key("")
    points: tuple[ChartPoint, ...] = keys_of(ChartNumbers)
    place: str = key("", text="The title of the axis.", max_length=60)
    lines: bool = False  # over rungs, else bars
    relative_to: str = ""
    up_is_better: bool = field(default=False, metadata=OMITTED)
    where: Where = NOWHERE


def relation(relative_to: str, *, up_is_better: bool) -> str:
    """How to read the ratios of a chart: `relative to base.at(2) = 1`; "" without a divisor."""
    if not relative_to:
        return ""
    sense = "100 % (half the time is 200 %; higher is better)" if up_is_better else "1"
    return f"relative to {relative_to} = {sense}"


@record
class Plan:
    """A whole study, compiled. Every name in it resolves, every value is typed; see the field types.

    `on_loss` is the reaction to the loss of a host's agent: `rerun` voids the iteration, waits for the host and runs it
    again; `continue` goes on without the host where nothing but load and captures ran on it; `stop` ends the run.
    """

    name: str
    title: str
    parameters: tuple[Parameter, ...]
    hosts: tuple[Host, ...]
    systems: tuple[System, ...]
    secrets: tuple[Secret, ...]
    workloads: tuple[Workload, ...]
    captures: tuple[Capture, ...]
    stages: tuple[Stage, ...]
    verdicts: tuple[Check, ...]
    figures: tuple[str, ...] = ()
    without_figures: tuple[str, ...] = field(default=(), metadata=OMITTED)
    brought_in: tuple[str, ...] = field(default=(), metadata=OMITTED)
    conditions: tuple[Condition, ...] = ()
    on_loss: OnLoss = "rerun"
    tunings: tuple[Tuning, ...] = ()
    published: tuple[Published, ...] = field(default=(), metadata=OMITTED)
    charts: tuple[Chart, ...] = field(default=(), metadata=OMITTED)
    declared: tuple[Declared, ...] = field(default=(), metadata=OMITTED)
    format: int = FORMAT_VERSION
    preflight: bool = field(default=True, metadata=OMITTED)
    positions: tuple[TextPosition, ...] = field(default=(), metadata=POSITION)

    def host(self, name: str) -> Host:
        """The host of that name; KeyError when there is none (the compiler made sure)."""
        return _named(self.hosts, name)

    def system(self, name: str) -> System:
        """The system of that name; KeyError when there is none."""
        return _named(self.systems, name)

    def standbys_of(self, primary: str) -> tuple[System, ...]:
        """The standbys of a system, in the order of the plan."""
        return tuple(one for one in self.systems if one.standby_of == primary)

    def followers_of(self, name: str) -> tuple[System, ...]:
        """The systems that are started after this one, and looked at again after a start of it."""
        return tuple(one for one in self.systems if one.follows == name)

    def group_of(self, name: str) -> tuple[System, ...]:
        """A primary with its standbys, by the name of any of them; () for a system without standbys."""
        primary = self.system(self.system(name).standby_of or name)
        standbys = self.standbys_of(primary.name)
        return (primary, *standbys) if standbys else ()

    def workload(self, name: str) -> Workload:
        """The workload of that name; KeyError when there is none."""
        return _named(self.workloads, name)

    def capture(self, name: str) -> Capture:
        """The capture of that name; KeyError when there is none."""
        return _named(self.captures, name)

    def stage(self, stage_id: str) -> Stage:
        """The stage of that id; KeyError when there is none."""
        for stage in self.stages:
            if stage.id == stage_id:
                return stage
        raise KeyError(stage_id)

    def condition(self, stage_id: str) -> Condition | None:
        """The condition of the stage; None when it always runs."""
        return next((one for one in self.conditions if one.stage == stage_id), None)

    @property
    def digest(self) -> str:
        """`sha256:<hex>` of the canonical form."""
        return "sha256:" + hashlib.sha256(canonical_json(self).encode()).hexdigest()


_Named = TypeVar("_Named", Host, System, Workload, Capture)


def _named(things: tuple[_Named, ...], name: str) -> _Named:
    for thing in things:
        if thing.name == name:
            return thing
    raise KeyError(name)


def to_data(value: Any, *, positions: bool = False) -> Any:
    """A plan (or any part) as plain lists, dicts and scalars; dataclass fields by name, positions only with
    `positions`.

    A field that came later has `omitted` in its metadata: it is left out at its default, so that the digest of a plan
    that does not use it stays the same.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            f.name: to_data(getattr(value, f.name), positions=positions)
            for f in dataclasses.fields(value)
            if (positions or not (f.name == "where" or "position" in f.metadata))
            and not ("omitted" in f.metadata and getattr(value, f.name) == f.default)
        }
    if isinstance(value, (tuple, list)):
        return [to_data(item, positions=positions) for item in value]
    return value


def canonical_json(plan: Any) -> str:
    """The canonical form: JSON, keys sorted, no spaces, no positions. The digest is the hash of this text."""
    return json.dumps(to_data(plan), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


# A *subject* is a path in the plan: `stages.load.statements.0`, `stages.load.session.work_mem`, `captures.size.query`,
# `workloads.own.statements.pay.find` (the statement `pay.find` of a workload), `systems.db`, `hosts.a`, `tuning.mem`,
# `tuning.fast.sql.apply.0`.


def position(plan: Plan, subject: str, engine: str = "", line: int = 0) -> Where:
    """Where a subject is, of a text the `line` in it, from 1; where it has no place of its own, that of its stage,
    workload, capture, system, host or tuning."""
    section, _, rest = subject.partition(".")
    name, _, below = rest.partition(".statements.")
    path = subject
    if section == "workloads" and below:
        transaction, _, statement = below.partition(".")
        path = f"workloads.{name}.transactions.{transaction}.statements.{statement}"
    alone = path.removesuffix(".0")  # the only one of a list may stand without it
    forms = (f"{path}.sql.{engine}", f"{path}.{engine}", f"{path}.sql.any", f"{path}.any", f"{path}.sql", path, alone)
    for tried in forms:
        for found in plan.positions:
            if found.path == tried:
                lower = line - 1 if line > 1 and found.literal else 0
                return Where(file=found.where.file, line=found.where.line + lower, column=found.where.column)
    places = {stage.id: stage.where for stage in plan.stages} if section == "stages" else {}
    if section in ("workloads", "captures", "systems", "hosts", "tuning"):
        things = all_tunings(plan) if section == "tuning" else getattr(plan, section)
        places = {one.name: one.where for one in things}
    names = [name for name in places if rest == name or rest.startswith(f"{name}.")]
    return places[max(names, key=len)] if names else NOWHERE


def all_tunings(plan: Plan) -> Iterator[Tuning]:
    """The tunings of the run and of its `tune` stages."""
    yield from plan.tunings
    for stage in plan.stages:
        if isinstance(stage, Tune):
            yield from stage.tunings
