"""The keys of a plan as strict pydantic models: document, topology, declared facts, workloads, captures, verdicts."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self, TypeAlias, cast, get_args

from pydantic import Field, model_validator

from proveout.core import units
from proveout.dsl.plan.keys import model_of
from proveout.dsl.plan.model_values import Strict
from proveout.dsl.plan.plan import Chart, Check, Published
from proveout.dsl.plan.scalars import (
    EQUIPMENT_MAX,
    EXPECTED_FACT_PATTERN,
    FACT_PATTERN,
    FACT_TEXT_MAX,
    FACTS_MAX,
    Form,
    Id,
    Name,
    Price,
    Selector,
    Text,
    Title,
    custom,
)
from proveout.dsl.plan.stages import Pool
from proveout.dsl.plan.topology import Capture, Declared, FactValue, Host, System

SCALAR = {"type": ["string", "integer", "number", "boolean"]}


def _fact(value: object) -> object:
    if not isinstance(value, str | int | float):
        raise custom(
            f"a fact is text, a number, true or false, not {'nothing' if value is None else 'a list or a mapping'}"
        )
    if isinstance(value, str) and not 0 < len(value.strip()) <= FACT_TEXT_MAX:
        raise custom(f"a fact must not be empty, nor longer than {FACT_TEXT_MAX} characters")
    return value


def _named(pattern: str, more: str) -> Form:
    def check(name: str) -> str:
        if not re.match(pattern, name):
            raise custom(f"`{name}` is not the name of a fact, which has letters, digits, _ . : -{more}")
        return name

    return Form(after=check, schema={"type": "string", "pattern": pattern})


FactName: TypeAlias = Annotated[str, _named(FACT_PATTERN, "")]
ExpectedFact: TypeAlias = Annotated[str, _named(EXPECTED_FACT_PATTERN, " and * for any")]
FactScalar: TypeAlias = Annotated[FactValue, Form(alone=_fact, schema=SCALAR)]


def _bound(value: object) -> object:
    if isinstance(value, str):
        try:
            return float(units.size_bytes(value))
        except ValueError:
            raise custom(f"expected a number, or a size such as 512 GiB, not {value}") from None
    return value


FactBound: TypeAlias = Annotated[float, Form(before=_bound, schema={"type": ["number", "string"]})]


class ExpectationEntry(Strict):
    """A condition on a fact. A value, or a list of values, in short: `cpu_sockets: 2`, `cpu_smt: ["on", forceon]`."""

    one_of: list[FactScalar] | None = Field(
        None, min_length=1, max_length=100, description="The values of which it has one."
    )
    min: FactBound | None = Field(None, description="Its smallest value: a number, or a size such as 512 GiB.")
    max: FactBound | None = Field(None, description="Its largest value: a number, or a size such as 512 GiB.")
    pattern: Text | None = Field(None, description="A regular expression (RE2) that matches the whole fact.")

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.one_of is None and self.min is None and self.max is None and self.pattern is None:
            raise custom("an expectation is a value, a list of values, or has `min`, `max` or `pattern`")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise custom(f"`min` {self.min:.15g} is over `max` {self.max:.15g}")
        return self


def _condition(value: object) -> object:
    """An expectation in short: its value, or its values."""
    if isinstance(value, dict):
        return value
    return {"one_of": value if isinstance(value, list) else [value]}


ExpectedValue: TypeAlias = Annotated[
    ExpectationEntry,
    Form(
        before=_condition,
        schema={
            "anyOf": [
                SCALAR,
                {"type": "array", "items": SCALAR, "minItems": 1},
                ExpectationEntry.model_json_schema(),
            ]
        },
    ),
]
DeclaredFacts: TypeAlias = Annotated[
    dict[FactName, FactScalar],
    Field(max_length=FACTS_MAX, description="Facts that a person declares, name to value; they are in the report."),
]
Expected: TypeAlias = Annotated[
    dict[ExpectedFact, ExpectedValue],
    Field(max_length=FACTS_MAX, description="Conditions on measured or declared facts, checked before the run."),
]


class Param(Strict):
    """A parameter of the plan; `-p name=value` overrides its default."""

    type: Literal[
        "int", "float", "bool", "text", "duration", "size", "rate", "percentage",
        "list[int]", "list[float]", "list[text]", "list[duration]", "list[size]", "list[rate]", "list[percentage]",
    ]  # fmt: skip
    default: Any = Field(None, description="The default value; without one, every run must give the parameter.")
    min: Any = Field(None, description="Smallest value allowed, written like a value.")
    max: Any = Field(None, description="Largest value allowed, written like a value.")
    choices: list[Any] | None = Field(None, min_length=1, description="The only values allowed.")
    help: str = Field("", max_length=400, description="An explanation for people.")


SSH_PATTERN = r"^([\w.][\w.-]*@)?(\[[0-9A-Fa-f:.]+(%\w+)?\]|[\w.][\w.-]*)(:\d{1,5})?$"


class CostEntry(Strict):
    """The price of a host, for the price of its transactions."""

    per_hour: Price = Field(description="The price of an hour, with its currency: 3.20 EUR.")


class NodeKeys(Strict):
    """The keys of hosts, systems and equipment that their records have in another form."""

    facts: DeclaredFacts = Field(default_factory=dict)
    expect: Expected = Field(default_factory=dict)


class HostKeys(NodeKeys):
    """The keys of a host beside those of its record."""

    ssh: Annotated[str, Field(pattern=SSH_PATTERN)] | None = Field(
        None, description="The login of `proveout deploy`: `[user@]host[:port]` [default: the name in `address`]."
    )
    cost: CostEntry | None = Field(None, description="Its price, for the price of a million transactions.")


class SystemKeys(NodeKeys):
    """The keys of a system beside those of its record."""

    session: dict[str, str | int | float | bool] = Field(
        default_factory=dict, max_length=50, description="Settings of every load's connections to it, name to value."
    )


HostEntry = cast("type[HostKeys]", model_of(Host, more=HostKeys))
SystemEntry = cast("type[SystemKeys]", model_of(System, more=SystemKeys))


EquipmentEntry = cast("type[NodeKeys]", model_of(Declared, "EquipmentEntry", NodeKeys))


class Topology(Strict):
    """Hosts, the systems on them, and equipment without an agent."""

    hosts: dict[Name, HostEntry] = Field(default_factory=dict)  # type: ignore[valid-type]
    systems: dict[Name, SystemEntry] = Field(default_factory=dict)  # type: ignore[valid-type]
    equipment: dict[Name, EquipmentEntry] = Field(default_factory=dict, max_length=EQUIPMENT_MAX)  # type: ignore[valid-type]


class SecretEntry(Strict):
    """A reference to a secret, which is read when the run begins; never the secret itself."""

    env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = Field(
        None, description="Name of an environment variable of the coordinator."
    )
    file: Text | None = Field(None, description="Path of a file with mode 0600 on the coordinator.")
    to: Selector | None = Field(
        None,
        description="The only hosts of systems and exporters that it is sent to, `db1.lab` or `db1.lab:5432`. Without, "
        "hosts of the topology, in a dsn.",
    )


class PoolKeys(Strict):
    """The keys of a pool beside those of its record."""

    kind: Literal["ray"]


FigureName: TypeAlias = Literal[
    "matrix-overview",
    "search",
    "phases",
    "interference",
    "versus",
    "fault-timeline",
    "fault-occurrences",
    "time-to-solve",
    "sizes-compression",
    "update-time",
    "nopm-art",
    "iops-by-queue-depth",
    "scaling",
    "relative-tps-latency",
    "latency-by-transaction",
    "latency-by-threads",
    "latency-at-peak",
    "percentiles",
    "latency-heat-map",
    "rung-timeline",
    "wait-events",
    "transaction-cost",
    "lag",
    "host-cpu",
    "peak-cpu",
    "stage-values",
    "stage-times",
]
FIGURES: tuple[FigureName, ...] = get_args(FigureName)
"""All figures, in the order of a report that names none first: those of few plans, then those of most."""
OTHERS: Literal["others"] = "others"
"""In `without`: every figure that `figures` does not name."""


CaptureEntry = model_of(Capture)
PoolEntry = model_of(Pool, base=PoolKeys)


class PublishedKeys(Strict):
    """The keys of a published number that are those of its verdict."""

    severity: Literal["fail", "warn"] = Field("warn", description="A failed `warn` is shown but does not fail the run.")


VerdictEntry = model_of(Check, "VerdictEntry")
PublishedEntry = cast("type[PublishedKeys]", model_of(Published, "PublishedEntry", more=PublishedKeys))


ChartEntry = model_of(Chart)


def _beside(name: str) -> str:
    if name.startswith("/") or ".." in name.split("/"):
        raise custom(f"`{name}` is not a file in the folder of the plan")
    return name


BesidePlan: TypeAlias = Annotated[str, Form(min_length=1, max_length=200, after=_beside)]


class ReportEntry(Strict):
    """The contents of the report."""

    figures: list[FigureName] = Field(
        default_factory=list,
        max_length=40,
        description="The figures that come first, in this order, with the reason where one has no data. All others "
        "that have data follow.",
    )
    without: list[Literal[FigureName, "others"]] = Field(
        default_factory=list,
        max_length=40,
        description="Figures that the report leaves out; `others`: all that `figures` does not name.",
    )
    with_: list[BesidePlan] = Field(
        default_factory=list,
        alias="with",
        max_length=20,
        description="Reports of other programs, files in the folder of the plan: AWR (HTML), Statspack, ttStats or sar "
        "as text. Their tables are at the end of the report; no verdict reads them.",
    )
    charts: list[ChartEntry] = Field(  # type: ignore[valid-type]
        default_factory=list, max_length=20, description="Figures of numbers that the plan names, before all others."
    )


Version: TypeAlias = Annotated[Literal[1], Field(description="Version of the format.")]
OnLoss: TypeAlias = Annotated[
    Literal["rerun", "continue", "stop"],
    Field(
        description="The reaction to the loss of a host: wait for it and run the iteration again (the default), "
        "continue without it where it only made load, or stop the run."
    ),
]
Preflight: TypeAlias = Annotated[
    bool,
    Field(
        description="Whether a run checks everything that it needs of hosts and systems before it changes anything, "
        "and all statements before the first measurement."
    ),
]


class Document(Strict):
    """A plan, format version 1."""

    proveout: Version
    name: Name
    title: Title = ""
    params: dict[Id, Param] = Field(default_factory=dict)
    extends: Text | None = Field(None, description="The plan that this one extends: a path relative to this file.")
    include: list[Text] = Field(default_factory=list, max_length=50)
    topology: Topology = Field(default_factory=Topology)
    secrets: dict[Id, SecretEntry] = Field(default_factory=dict)
    workloads: dict[Name, Any] = Field(default_factory=dict)
    pools: dict[Name, PoolEntry] = Field(default_factory=dict)  # type: ignore[valid-type]
    captures: dict[Name, CaptureEntry] = Field(default_factory=dict)  # type: ignore[valid-type]
    tuning: list[Any] = Field(
        default_factory=list,
        max_length=500,
        description="Changes to hosts and systems: applied before the stages, verified, and undone at the end of the "
        "run.",
    )
    stages: list[Any] = Field(min_length=1, max_length=200)
    verdicts: list[VerdictEntry] = Field(default_factory=list, max_length=200)  # type: ignore[valid-type]
    published: list[PublishedEntry] = Field(  # type: ignore[valid-type]
        default_factory=list, max_length=200, description="Published numbers that the report shows beside the measured."
    )
    report: ReportEntry = Field(default_factory=ReportEntry)
    on_loss: OnLoss = "rerun"
    preflight: Preflight = True
