"""The topology of a compiled plan: hosts, secrets, systems under test, facts, captures; and values of every part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, Self, TypeAlias

from proveout.core.data_classes import field, record
from proveout.core.errors import NOWHERE, Where
from proveout.dsl import engines
from proveout.dsl.plan.captures import CAPTURES, CaptureDeclaration, CaptureKind
from proveout.dsl.plan.commands import NO_COMMAND, Command, MeasuredValue, Values
from proveout.dsl.plan.keys import OMITTED, Element, key, keys_of, made
from proveout.dsl.plan.scalars import (
    INSTANCES_MAX,
    METRIC_PATTERN,
    NAME_PATTERN,
    SCRAPES_MAX,
    SETTINGS_MAX,
    Every,
    Form,
    Id,
    Name,
    Roles,
    Selector,
    Settings,
    Text,
)

# `Where` fields hold the file, line and column of a part, for messages; the digest of a plan leaves them out, so that
# moving a plan to another folder or adding a comment does not change its digest.

Value: TypeAlias = "str | int | float | bool | tuple[Value, ...] | None"


@record
class Expression:
    """A CEL expression that waits for results; `needs` are the ids of the stages whose results it reads."""

    text: str
    needs: tuple[str, ...] = ()
    where: Where = NOWHERE


WrittenExpression: TypeAlias = Annotated[Expression, Form(written=Text, after=lambda text: Expression(text=text))]
"""An expression, whose place and needs the compiler adds."""


@record
class Workload:
    """A workload of a plan."""

    name: Name  # its name in the plan
    kind: str  # a kind of `dsl.workloads`
    parameters: tuple[tuple[str, Value], ...]  # validated, (name, value), sorted by name
    where: Where = NOWHERE  # its position in the plan


@record
class TextPosition:
    """Where a text begins that a database judges, such as a statement: its `path` in the plan.

    `literal`: the lines of the text are lines of the file.
    """

    path: str
    where: Where
    literal: bool = False


EquipmentKind: TypeAlias = Literal["storage", "switch", "network", "appliance", "server"]
"""Equipment of the topology on which no agent runs; `server` is a machine, such as one under a closed hypervisor."""

NodeKind: TypeAlias = Literal["host", "system", "storage", "switch", "network", "appliance", "server"]
"""The parts of a topology that facts are declared of."""

FactValue: TypeAlias = str | int | float | bool


@record
class Host(Element):
    """A host of the plan."""

    name: str
    roles: Roles = key((), text="Its roles; `role:client` selects hosts by them.")
    address: Text = key(text="`local`, or name:port of a running agent.")
    # in `currency`, the same in the whole plan; None where the plan gives no cost
    price_per_hour: float | None = field(default=None, metadata=OMITTED)
    currency: str = field(default="", metadata=OMITTED)
    where: Where = NOWHERE

    @property
    def is_local(self) -> bool:
        """Whether the coordinator starts this host's agent as its own child."""
        return self.address == "local"


@record
class Secret:
    """A reference to a secret; its value is read late, on the coordinator, and never stored.

    `to`: the hosts that it may be sent to, `db1.lab` or `db1.lab:5432`; empty where it may go to hosts of the topology,
    in a dsn.
    """

    name: str
    kind: Literal["env", "file"]
    reference: str
    to: tuple[str, ...] = ()
    where: Where = NOWHERE


EngineName: TypeAlias = Annotated[
    str,
    Form(
        pattern=NAME_PATTERN,
        schema={"anyOf": [{"enum": list(engines.ENGINES)}, {"type": "string", "pattern": NAME_PATTERN}]},
    ),
]

Provision: TypeAlias = Literal["embedded", "pgbouncer"]
"""A server that comes with an engine, or a PgBouncer in front of one."""


@record
class System(Element):
    """A database under test."""

    name: Name  # its name in the plan
    engine: EngineName = key(text="An engine of this release, or of an installed package.")
    host: Name = key(text="The host it runs on.")
    provision: Provision | None = key(
        None, text="proveout starts it on `host`: a database, or a PgBouncer `in_front_of` one."
    )
    dsn: Text | None = key(  # compiled: that of the first of several instances
        None,
        text="The address of a system that runs already; passwords as ${secrets.name}. Of SQLite and DuckDB: the "
        "absolute path of a file on `host`, which must be there.",
    )
    instances: Annotated[tuple[Text, ...], Form(min_length=2, max_length=INSTANCES_MAX)] = key(
        (),
        text="Instead of `dsn`, one for each instance of a cluster or member of a grid: threads are dealt to them in "
        "turn, each to its own keys.",
        may_be_null=True,
    )
    admin: Text | None = key(
        None,
        text="Of a `dsn` or `instances`: the dsn of the account that tunes the system and injects faults into it; "
        "loads, captures and `sql` stages do not get it.",
        omitted=True,
    )
    settings: Settings = key((), text="Server settings, name to value.", max_length=SETTINGS_MAX)
    version: int | None = key(
        None,
        text="Of an embedded PostgreSQL: the major version, of the wheel (16, 18) or of a package of the system; by "
        "default 18.",
        ge=15,
        le=99,
        omitted=True,
    )
    propagates_to: Name | None = key(
        None, text="The system that its committed changes are replicated to, asynchronously."
    )
    standby_of: Name | None = key(
        None,
        text="The primary whose standby it is: read-only, with all of its data, until it is promoted.",
        omitted=True,
    )
    synchronous: bool = key(
        False,
        text="Of a standby: a commit of the primary waits until the standby has it on disk (MariaDB: has received it).",
        omitted=True,
    )
    in_front_of: Name | None = key(
        None,
        text="Of a PgBouncer: the PostgreSQL that it keeps connections to, started by proveout too.",
        omitted=True,
    )
    restore: Literal["", "template"] = key(
        "",
        text="Of a `dsn`: the run works on a copy of its database, which a reset makes again; the original is put back "
        "at the end. `template`: CREATE DATABASE … TEMPLATE (PostgreSQL).",
        form=Literal["template"],
        may_be_null=True,
        omitted=True,
    )
    where: Where = NOWHERE  # its position in the plan

    @property
    def follows(self) -> str | None:
        """The system that is started before it: the primary of a standby, the database behind a PgBouncer."""
        return self.standby_of or self.in_front_of

    @property
    def is_named_file(self) -> bool:
        """Whether it is a database file of the user, which the dsn names."""
        return self.provision is None and self.dsn is not None and engines.of(self.engine).in_files

    @property
    def can_be_restored(self) -> bool:
        """Whether a reset can restore it: proveout starts it, or an agent copies the file that its dsn names."""
        return self.provision is not None or (self.is_named_file and engines.of(self.engine).copies_file != "")

    @property
    def propagates_by_itself(self) -> bool:
        """Whether what carries its changes on is its own (a TimesTen's AWT cache groups): not set up, nor compared, by
        proveout."""
        return engines.of(self.engine).propagates_by_itself


@record
class Expectation:
    """A condition on the fact `fact`, which may have `*` in its name: one of the values, within bounds (in the fact's
    unit), matched by an RE2 `pattern`; all that are given hold."""

    fact: str
    one_of: tuple[FactValue, ...] = ()
    min: float | None = None
    max: float | None = None
    pattern: str = ""
    where: Where = NOWHERE


@record
class Declared(Element):
    """Equipment on which no agent can run: an array, a switch, a network, a closed appliance or server."""

    # Also the facts that the plan declares of a host or a system, and what it expects of them; hosts and systems have
    # one only where there are any.

    name: str
    kind: NodeKind = key(form=EquipmentKind)
    description: str = key("", text="The equipment in words: maker and model.", max_length=200)
    connects: Selector = key(
        (),
        text="The hosts (`all`, `role:…` or names) and equipment that it is connected to.",
        may_be_null=True,
    )
    facts: tuple[tuple[str, FactValue], ...] = ()
    expect: tuple[Expectation, ...] = ()
    where: Where = NOWHERE

    @property
    def is_equipment(self) -> bool:
        """Whether no agent can measure anything of it."""
        return self.kind not in ("host", "system")


ScrapeKind: TypeAlias = Literal["gauge", "counter"]
"""A number that is read as it is, or one that only grows."""
ScrapeTake: TypeAlias = Literal["sum", "avg", "min", "max"]
"""The number that several series give."""


RARE_EVERY_S = 24 * 3600.0
"""The default interval of a capture of sizes: longer than a run, so it samples only at its start and its end."""
COUNTERS = ("_total", "_count", "_sum", "_bucket")
"""The suffixes of the names of counters in Prometheus' conventions (the parts of a histogram are counters too)."""
Labels: TypeAlias = Annotated[
    tuple[tuple[str, str], ...], Form(written=dict[str, str], after=lambda labels: tuple(sorted(labels.items())))
]


@record
class Scrape(Element):
    """A number of an exporter: the series of a metric, perhaps only those with some labels, as one."""

    metric: Annotated[str, Form(pattern=METRIC_PATTERN)] = key(
        name="name", text="The metric, as the exporter writes it: node_load1, node_disk_reads_completed_total."
    )
    labels: Labels = key((), text="Only series with exactly these values.")
    alias: str = key(
        "", name="as", text="Its name in expressions; the metric's own by default.", form=Id, may_be_null=True
    )
    kind: ScrapeKind = key(
        "gauge",
        name="type",
        text="By default a counter when the name ends in _total, _count, _sum or _bucket.",
        may_be_null=True,
    )
    take: ScrapeTake = key("sum", text="The function that combines several series.")
    optional: bool = key(False, text="The series may be missing: 0 for a counter, no number for a gauge.")

    @classmethod
    def of_written(cls, model: Any) -> Self:
        """The metric's name is its own, and says whether it is a counter."""
        kind = model.kind or ("counter" if model.metric.endswith(COUNTERS) else "gauge")
        return made(cls, model, alias=model.alias or model.metric, kind=kind)


Scrapes: TypeAlias = Annotated[tuple[Scrape, ...], Form(min_length=1, max_length=SCRAPES_MAX)]
ScrapesOrValues: TypeAlias = Annotated[
    dict[Id, MeasuredValue] | tuple[Scrape, ...],
    Form(
        written={"[scrapes]": Scrapes, "[values]": Values},
        which=lambda value: "[values]" if isinstance(value, dict) else "[scrapes]",
    ),
]


def _kinds(chosen: Callable[[CaptureDeclaration], bool]) -> str:
    return ", ".join(kind.name for kind in CAPTURES.values() if chosen(kind))


@record
class Capture(Element):
    """An observation while a load runs."""

    name: Name  # its name in the plan
    kind: CaptureKind = key()  # what it observes
    hosts: Selector = key(  # compiled: their names
        (),
        name="on",
        text="os: `all`, `role:…` or host names. prometheus: the one host whose agent reads the exporter. command: the "
        "one host that runs the program.",
        may_be_null=True,
        of="hosts",
    )
    system: Name | None = key(None, text=f"{_kinds(lambda kind: kind.of == 'system')}: the system observed.")
    every_s: Every = key(  # s
        1.0,
        name="every",
        beyond=(RARE_EVERY_S,),
        text=f"One sample each. {_kinds(lambda kind: kind.rare)}: by default only at the start and at the end. "
        f"{_kinds(lambda kind: bool(kind.report))}: always at the start and the end of the measure window.",
    )
    url: Text = key(
        "",
        text="prometheus: http://host:port/path of the exporter; may hold user:${secrets.name}@.",
        may_be_null=True,
    )  # a secret is filled in as late as in a system's dsn
    scrapes: Scrapes = ()  # the numbers of an exporter
    query: Text = key("", text="sql: the query that is run each time.", may_be_null=True, omitted=True)
    command: Command = keys_of(  # the program of a `command`
        Command,
        NO_COMMAND,
        omitted=True,
        argv="command: the program, which the host's policy lists, and its arguments; without a shell.",
        output="command: the form of its output; `pairs` by default.",
        within_s="command: the longest time of one run, by default 5s.",
        exit_codes="command: the exit codes of success, by default [0].",
    )
    licence: str = key(
        "",
        text="awr: the licensed pack of Oracle Database that it uses, as a statement that it is licensed.",
        form=Literal["diagnostics_pack"],
        may_be_null=True,
        omitted=True,
    )
    container: str = key(
        "",
        text="awr: the container of its snapshots, the one of the dsn (by default) or CDB$ROOT, for a common user.",
        form=Literal["own", "root"],
        may_be_null=True,
        omitted=True,
    )
    values: Values = key(  # of an exporter's list, the compiler makes `scrapes`
        (),
        name="metrics",
        text="prometheus: the list of metrics to keep. sql, command: the numbers by name.",
        form=ScrapesOrValues,
        may_be_null=True,
        omitted=True,
    )
    where: Where = NOWHERE  # its position in the plan

    @property
    def makes_report(self) -> bool:
        """Whether it has no numbers, but a report of the database on the measure window."""
        return bool(CAPTURES[self.kind].report)
