"""The topology of a compiled plan: hosts, secrets, systems under test, facts, captures; and values of every part."""

from __future__ import annotations

from typing import Literal, TypeAlias

from proveout.core.data_classes import dataclass, field
from proveout.core.errors import NOWHERE, Where
from proveout.dsl import engines
from proveout.dsl.plan.captures import CAPTURES, CaptureKind
from proveout.dsl.plan.commands import NO_COMMAND, OMITTED, Command, MeasuredValue

# `Where` fields hold the file, line and column of a part, for messages; the digest of a plan leaves them out, so that
# moving a plan to another folder or adding a comment does not change its digest.

Value: TypeAlias = "str | int | float | bool | tuple[Value, ...] | None"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """A CEL expression that waits for results; `needs` are the ids of the stages whose results it reads."""

    text: str
    needs: tuple[str, ...] = ()
    where: Where = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A workload: a kind of `dsl.workloads` with its validated parameters, sorted by name."""

    name: str
    kind: str
    parameters: tuple[tuple[str, Value], ...]
    where: Where = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A machine. `address` is `local` (the coordinator starts the agent itself) or `name:port` of a running agent.

    `price_per_hour` is in `currency`, the same in the whole plan; None where the plan gives no cost.
    """

    name: str
    roles: tuple[str, ...]
    address: str
    price_per_hour: float | None = field(default=None, metadata=OMITTED)
    currency: str = field(default="", metadata=OMITTED)
    where: Where = NOWHERE

    @property
    def is_local(self) -> bool:
        """Whether the coordinator starts this host's agent as its own child."""
        return self.address == "local"


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """A database under test.

    Either `provision` (proveout starts it on `host`) or `dsn` (it runs already; may hold `${secrets.NAME}`, filled in
    late). `instances`: a dsn for each instance of a cluster, the first of them being `dsn`; empty where there is one.
    `propagates_to` names the system that this one's committed changes are replicated to, asynchronously. `standby_of`
    names the primary whose whole data a standby receives; it is read-only until it is promoted. `synchronous`: a commit
    of the primary waits until the standby has it on disk. `in_front_of` names the database that a PgBouncer keeps
    connections to. `restore`: how the data of one that runs already is copied, so that resets and the end of the run
    restore it; "" for not at all.
    """

    name: str
    engine: str
    host: str
    provision: Literal["embedded", "pgbouncer"] | None = None
    dsn: str | None = None
    settings: tuple[tuple[str, str], ...] = ()
    propagates_to: str | None = None
    instances: tuple[str, ...] = ()
    standby_of: str | None = field(default=None, metadata=OMITTED)
    synchronous: bool = field(default=False, metadata=OMITTED)
    in_front_of: str | None = field(default=None, metadata=OMITTED)
    restore: Literal["", "template"] = field(default="", metadata=OMITTED)
    where: Where = NOWHERE

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
        return self.provision is not None or (self.is_named_file and engines.of(self.engine).copies_file)

    @property
    def propagates_by_itself(self) -> bool:
        """Whether what carries its changes on is its own (a TimesTen's AWT cache groups): not set up, nor compared, by
        proveout."""
        return engines.of(self.engine).propagates_by_itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """A condition on the fact `fact`, which may have `*` in its name: one of the values, within bounds (in the fact's
    unit), matched by an RE2 `pattern`; all that are given hold."""

    fact: str
    one_of: tuple[FactValue, ...] = ()
    min: float | None = None
    max: float | None = None
    pattern: str = ""
    where: Where = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """Facts that the plan declares of a host, a system or a piece of equipment, and what it expects of facts.

    Equipment exists by its declaration alone; hosts and systems have one only where the plan declares or expects
    something. `connects`: hosts and equipment that the equipment is connected to.
    """

    name: str
    kind: NodeKind
    description: str = ""
    connects: tuple[str, ...] = ()
    facts: tuple[tuple[str, FactValue], ...] = ()
    expect: tuple[Expectation, ...] = ()
    where: Where = NOWHERE

    @property
    def is_equipment(self) -> bool:
        """Whether no agent can measure anything of it."""
        return self.kind not in ("host", "system")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrape:
    """A number of an exporter: the series of that metric with these labels (sorted), taken together by `take`.

    `optional`: no such series is 0 for a counter and no number for a gauge; otherwise the sample is lost.
    """

    alias: str
    metric: str
    labels: tuple[tuple[str, str], ...] = ()
    kind: Literal["gauge", "counter"] = "gauge"
    take: Literal["sum", "avg", "min", "max"] = "sum"
    optional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """An observation: `os` on `hosts`, `waits`, `lag` and `sizes` of `system`, `sql` (the `values` of a `query` in
    `system`), `command` (the `values` of the output of a `command` on one of `hosts`), `prometheus` (one host reads
    `scrapes` from `url`), `awr` and `ttstats` (two snapshots of `system`'s statistics, and its report on them),
    `statements` (the statements of `system` that took the most time, and their plans).

    One sample each `every_s` seconds. `url` may hold `${secrets.NAME}`, filled in as late as in a system's dsn.
    `licence`: the licensed pack that the plan's author allows to be used; `container`: where an `awr` takes its
    snapshots, `own` (the one that the dsn leads to) or `root` (CDB$ROOT).
    """

    name: str
    kind: CaptureKind
    every_s: float
    hosts: tuple[str, ...] = ()
    system: str | None = None
    url: str = ""
    scrapes: tuple[Scrape, ...] = ()
    query: str = field(default="", metadata=OMITTED)
    values: tuple[MeasuredValue, ...] = field(default=(), metadata=OMITTED)
    command: Command = field(default=NO_COMMAND, metadata=OMITTED)
    licence: str = field(default="", metadata=OMITTED)
    container: str = field(default="", metadata=OMITTED)
    where: Where = NOWHERE

    @property
    def makes_report(self) -> bool:
        """Whether it has no numbers, but a report of the database on the measure window."""
        return bool(CAPTURES[self.kind].report)
