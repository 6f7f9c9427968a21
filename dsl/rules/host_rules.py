"""Rules on what a plan may do to a host, and on facts that it declares; the compiler and agents check the same
rules.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from proveout.core import errors, units
from proveout.core.data_classes import dataclass, record
from proveout.core.errors import NOWHERE, PlanProblem, ProveoutError, Where
from proveout.core.numbers import size
from proveout.dsl import engines
from proveout.dsl.operations import parameter_names
from proveout.dsl.plan.captures import CAPTURES
from proveout.dsl.plan.commands import FioJob, is_plain_folder
from proveout.dsl.plan.plan import Check, Workload
from proveout.dsl.plan.scalars import INSTANCES_MAX, METRIC_PATTERN, NAME_HINT, NAME_PATTERN
from proveout.dsl.plan.stages import Stage, Tuning
from proveout.dsl.plan.topology import RARE_EVERY_S, Capture, Declared, Expectation, FactValue, Scrape, System
from proveout.dsl.rules import settings as rules_settings

if TYPE_CHECKING:
    from proveout.dsl.operations.operation import Operation


# Each rule gives nothing, or `Objection`s: the message, the way out, and the keys below the part that is wrong.

DIAGNOSTICS_PACK = "diagnostics_pack"
CONTAINERS = ("own", "root")
SQLITE_SETTINGS = frozenset({"auto_vacuum", "encoding", "page_size"})
"""Pragmas that an SQLite file keeps; those of a connection would be set on one that is closed again."""

PGBOUNCER = "pgbouncer"
POOLER_SETTINGS: Mapping[str, tuple[int, int]] = {
    "default_pool_size": (1, 10_000),
    "max_client_conn": (1, 100_000),
    "max_db_connections": (0, 10_000),
    "min_pool_size": (0, 10_000),
    "query_wait_timeout": (0, 86_400),
    "reserve_pool_size": (0, 10_000),
    "reserve_pool_timeout": (0, 3_600),
    "server_idle_timeout": (0, 86_400),
    "server_lifetime": (0, 86_400),
    "server_login_retry": (0, 3_600),
    "server_round_robin": (0, 1),
}
"""Settings of a PgBouncer that a plan may give: names and bounds. Source: pgbouncer.ini(5)."""

TUNING_NAME_MAX = 80
DSN_MAX = 65_536
"""Characters of a dsn with its passwords filled in."""

_NAME, _METRIC = re.compile(NAME_PATTERN), re.compile(METRIC_PATTERN)
_SETTING = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,62}")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_HOST_AND_PORT = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9.-]{0,252}|\[(?P<ipv6>[0-9A-Fa-f:.]+)\]):(?P<port>\d{1,5})")


@dataclass(frozen=True, slots=True)
class Objection:
    """The reason why something must not be done, and the way out. `at`: the keys from the part that was checked to the
    faulty value."""

    message: str
    way_out: str = ""
    at: tuple[str | int, ...] = ()

    def __str__(self) -> str:
        return self.message


def noted(message: str, of: Check | Stage, hint: str = "") -> PlanProblem:
    """A note on a valid part of a plan."""
    key = "verdicts" if isinstance(of, Check) else "stages"
    return PlanProblem(message=f"note: {message}", where=of.where, key=key, hint=hint)


# ---- words -----------------------------------------------------------------------------------------------------------


def is_host_and_port(text: str) -> bool:
    """Whether it is `name:port`, the name being one of DNS or an IP address."""
    match = _HOST_AND_PORT.fullmatch(text)
    if match is None or not 0 < int(match["port"]) < 65_536:
        return False
    with contextlib.suppress(ValueError):
        return match["ipv6"] is None or bool(ipaddress.IPv6Address(match["ipv6"]))
    return False


def is_cluster(address: str) -> bool:
    """Whether it is how a Ray cluster is named: `auto`, or name:port."""
    return address == "auto" or is_host_and_port(address)


# ---- systems ---------------------------------------------------------------------------------------------------------


def provision_problems(engine: str) -> Iterator[Objection]:
    """Refuse engines that cannot be started."""
    if engines.of(engine).embedded is None:
        yield Objection(f"proveout cannot start {engine}", "start it yourself and give its dsn", ("provision",))


def setting_problems(engine: str, name: str, value: str, provision: str | None = None) -> Iterator[Objection]:
    """A setting of a system that proveout starts: no program, no library, no file, no second line."""
    if provision == PGBOUNCER:
        yield from _pooler_setting(name, value)
        return
    if not _SETTING.fullmatch(name):
        yield Objection(f"`{name}` is not the name of a setting")
        return
    if any(ord(character) < 32 for character in value):
        yield Objection(f"the value of `{name}` is more than one line")
        return
    objection = _SETTINGS[engine](name, value) if engine in _SETTINGS else None
    if objection:
        yield Objection(objection, parameter_names.WAY_OUT if engines.of(engine).embedded == "server" else "")


def _pooler_setting(name: str, value: str) -> Iterator[Objection]:
    if name == "pool_mode":
        if value != "session":
            message = f"`pool_mode` is session, not {value[:80]}: a load prepares its statements on its connection"
            way_out = "pool_mode: session, with `sessions: {connect_every: transaction}` at the load"
            yield Objection(message, way_out)
        return
    if name not in POOLER_SETTINGS:
        able = ", ".join(("pool_mode", *POOLER_SETTINGS))
        yield Objection(f"`{name[:80]}` is not a setting of PgBouncer that a plan gives; these are: {able}")
        return
    low, high = POOLER_SETTINGS[name]
    if not re.fullmatch(r"\d{1,6}", value, re.ASCII) or not low <= int(value) <= high:
        yield Objection(f"the value of `{name}` is a whole number from {low} to {high}")


_SETTINGS: Mapping[str, Callable[[str, str], str | None]] = {
    "duckdb": rules_settings.duckdb_objection,
    "mysql": rules_settings.mysql_objection,
    "postgres": lambda name, _value: parameter_names.objection(name),
    "sqlite": lambda name, _value: (
        None
        if name in SQLITE_SETTINGS
        else f"`{name}` is not kept in an SQLite file; these are: {', '.join(sorted(SQLITE_SETTINGS))}"
    ),
}


def program_problems(system: System) -> Iterator[Objection]:
    """The programs of a system: those of its engine and version, of a standby, of a PgBouncer."""
    engine, embedded = engines.of(system.engine), system.provision == "embedded"
    if embedded:
        yield from provision_problems(system.engine)
    if system.version is not None and not (embedded and engine.versions):
        message = f"`version` is of a system of {engines.able(lambda one: one.versions)} with `provision: embedded`"
        yield Objection(message, "leave it away", ("version",))
    if system.standby_of is not None and not engine.standbys:
        message = f"proveout starts standbys of {engines.able(lambda one: one.standbys)}, not of {system.engine}"
        yield Objection(message, "give a replicated database of your own by its dsn", ("standby_of",))
    if system.provision != PGBOUNCER:
        if system.in_front_of is not None:
            yield Objection("`in_front_of` is for a PgBouncer", "provision: pgbouncer", ("in_front_of",))
        return
    if system.in_front_of is None:
        message = "a PgBouncer is in front of a PostgreSQL that proveout starts"
        yield Objection(message, "in_front_of: the name of that system", ("provision",))
    if system.engine != "postgres":
        message = f"a PgBouncer is in front of PostgreSQL, not of {system.engine}"
        yield Objection(message, "engine: postgres", ("provision",))


def system_problems(system: System) -> Iterator[Objection]:
    """A system that proveout is to start."""
    yield from program_problems(system)
    if system.provision is None or system.dsn is not None or system.instances:
        yield Objection(f"system {system.name} is not one to be started: it has a dsn, or no `provision`")
    if system.in_front_of is not None and (system.standby_of is not None or system.propagates_to is not None):
        yield Objection(f"system {system.name} is a PgBouncer: it has no data to replicate")
    for name, value in system.settings:
        yield from setting_problems(system.engine, name, value, system.provision)


def copied_problems(system: System) -> Iterator[Objection]:
    """A system of which an agent copies the data: one that it has started, or a file that the dsn names."""
    if not system.is_named_file:
        yield from system_problems(system)
        return
    if not system.can_be_restored or system.settings or system.instances or system.follows or system.propagates_to:
        yield Objection(f"system {system.name} is not a file that agents copy")
    yield from endpoint_problems(system.name, system.engine, str(system.dsn))


def dsn_problems(engine: str, dsn: str) -> Iterator[Objection]:
    """The form of a dsn; passwords may be filled in or be references."""
    for rule in engines.of(engine).dsn_rules:
        if not re.fullmatch(rule.pattern, dsn, re.DOTALL):
            yield Objection(rule.message, rule.example)


def without_dsn_problems(engine: str) -> Iterator[Objection]:
    """A system that no driver reaches."""
    if engine == engines.NO_DATABASE:
        message = "a system of engine none has no dsn: the program of its load knows where it is"
        yield Objection(message, "leave it away", at=("dsn",))


def instances_problems(engine: str, dsns: Sequence[str]) -> Iterator[Objection]:
    """Several dsns instead of one."""
    if not engines.of(engine).instances:
        able = engines.able(lambda one: one.instances)
        yield Objection(f"a system of several instances is one of {able}, not {engine}")
    if len(set(dsns)) != len(dsns):
        yield Objection("two instances have the same dsn")


def endpoint_problems(
    system: str,
    engine: str,
    dsn: str,
    *,
    instances: Sequence[str] = (),
    provisioned: bool = False,
    members: bool = False,
) -> Iterator[Objection]:
    """The endpoint of a system in a task. `members`: a load that chooses among them, such as servers of a group that
    agents start."""
    if not _NAME.fullmatch(system):  # it becomes the name of folders and of resources
        yield Objection(f"{system[:80]!r} is not the name of a system", NAME_HINT)
    if not _NAME.fullmatch(engine):
        yield Objection(f"{engine[:80]!r} is not the name of an engine")
    dsns = (dsn, *instances)
    if len(dsns) > INSTANCES_MAX + 1 or any(not one or len(one) > DSN_MAX or "\0" in one for one in dsns):
        message = f"a dsn of system {system} is empty, longer than {DSN_MAX} characters, or holds a NUL"
        yield Objection(message)
        return
    if instances:
        yield from instances_problems(engine, instances)
    if provisioned or engine != engines.NO_DATABASE:
        yield from provision_problems(engine) if provisioned else without_dsn_problems(engine)
    if instances and provisioned and not members:
        yield Objection(f"system {system}, which an agent starts, has one address")
    if engines.of(engine).dsn_form == "path":
        yield from _file_problems(engine, dsn, provisioned=provisioned)
    for one in dsns:
        yield from dsn_problems(engine, one)


def _file_problems(engine: str, dsn: str, *, provisioned: bool) -> Iterator[Objection]:
    path, settings = rules_settings.split_dsn(dsn) if engine == "duckdb" else (dsn, {})
    if settings and not provisioned:
        yield Objection("the dsn of a DuckDB file of a user has settings", "give them as `session:`")
    if not is_plain_folder(path):
        title = engines.of(engine).title
        yield Objection(f"the file of a system of {title} is an absolute path without `.` and `..`")
    for name, value in settings.items():
        if objection := rules_settings.duckdb_objection(name, value):
            yield Objection(objection)


# ---- captures --------------------------------------------------------------------------------------------------------


def captured_problems(kind: str, engine: str) -> Iterator[Objection]:
    """Captures that an engine does not support."""
    found, declared = engines.of(engine), CAPTURES[kind]
    if not found.is_captured(declared):
        able = engines.able(lambda one: one.is_captured(declared))
        instead = "kind: {engine.report}" if declared.able == "report" and found.report else declared.instead
        message, way_out = (text.format(engine=found, able=able) for text in (declared.refused, instead))
        yield Objection(message, way_out)


def licence_problems(kind: str, licence: str, container: str) -> Iterator[Objection]:
    """A capture that reads what Oracle licenses apart, and the container that it reads."""
    if "licence" not in CAPTURES[kind].keys:
        if licence or container:
            yield Objection(f"a capture of kind {kind} has no licence and no container")
        return
    if licence != DIAGNOSTICS_PACK:
        message = "AWR is a part of Oracle's Diagnostics Pack, which is licensed apart"
        way_out = (
            f"licence: {DIAGNOSTICS_PACK} where this database has the licence; without it, `kind: waits` reads v$ views"
        )
        yield Objection(message, way_out, at=("licence",))
    if container not in CONTAINERS:
        message = f"{container[:80]!r} is not a container of an AWR capture"
        yield Objection(message, f"one of {', '.join(CONTAINERS)}", at=("container",))


def exporter_problems(url: str) -> Iterator[Objection]:
    """The address of an exporter, with a word in the place of each secret, or with the secrets filled in."""
    fine = False
    with contextlib.suppress(ValueError):
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.fragment and parts.port != 0
    if not fine or re.search(r"[\s\x00-\x20\x7f]", url):
        yield Objection("not the address of an exporter", "http://127.0.0.1:9100/metrics")


def scrape_problems(scrape: Scrape) -> Iterator[Objection]:
    """The name, alias and labels of a metric that is kept of an exporter."""
    alias = scrape.alias
    if ":" in alias:
        yield Objection(f"`{alias}` is not a name in an expression", "give one: as: name")
    elif not _METRIC.fullmatch(alias):
        yield Objection(f"{alias[:200]!r} is not the name of a metric")
    bad = [label for label, _ in scrape.labels if not _LABEL.fullmatch(label)]
    if bad:
        yield Objection(f"`{bad[0]}` is not a name of a label", at=("labels",))


def capture_problems(capture: Capture) -> Iterator[Objection]:
    """A capture; how its systems are reached is looked at by themselves."""
    if capture.every_s == RARE_EVERY_S and not CAPTURES[capture.kind].rare:
        yield Objection(f"a sample every {capture.every_s} s is of captures of sizes")
    yield from licence_problems(capture.kind, capture.licence, capture.container)
    for scrape in capture.scrapes:
        yield from scrape_problems(scrape)


# ---- load and tools --------------------------------------------------------------------------------------------------


SECTOR = 512
_DEVICE = re.compile(r"/dev/disk/by-id/[A-Za-z0-9][A-Za-z0-9._:+-]*")


def fio_problems(job: FioJob) -> Iterator[Objection]:
    """The job of fio."""
    if job.block_bytes % SECTOR:
        yield Objection("an I/O is of whole sectors of 512 bytes", at=("block",), way_out="block: 8k")
    elif job.size_bytes < job.block_bytes:
        message = f"a job works on less than one I/O of {job.block_bytes} bytes"
        yield Objection(message, at=("size",), way_out="size: 5GB")
    if abs(job.read_fraction * 100 - round(job.read_fraction * 100)) > 1e-9:
        message = f"fio mixes reads and writes by whole percents, not {job.read_fraction * 100:g} %"
        yield Objection(message, at=("read",), way_out="read: 70%")
    if job.directory and job.devices:
        message = "a tool works in a directory or on devices"
        yield Objection(message, at=("target",), way_out="leave one of them out")
    elif job.directory and not is_plain_folder(job.directory):
        message = "a directory is an absolute path without `.` and `..`"
        yield Objection(message, at=("target", "directory"), way_out="/data/fio")
    for index, device in enumerate(job.devices):
        named = _DEVICE.fullmatch(device) is not None
        if named and device not in job.devices[:index]:
            continue
        message = "is there twice" if named else "does not name a device for good: /dev/disk/by-id/NAME"
        yield Objection(f"`{device}` {message}", at=("target", "devices", index))
        break
    if job.devices and job.writes and not job.destructive:
        way_out = "destructive: true; the agents' policies have to allow it too"
        message = "writing to devices destroys the data on them"
        yield Objection(message, at=("target", "devices"), way_out=way_out)
    elif job.destructive and not (job.devices and job.writes):
        message = "nothing is destroyed by this stage"
        yield Objection(message, at=("destructive",), way_out="leave `destructive` out")


# ---- parts with a model of their own ---------------------------------------------------------------------------------


def workload_problems(workload: Workload) -> Iterator[Objection]:
    """A workload: its kind's strict model with all bounds, and the kind's own checks, as in the compiler."""
    from proveout.dsl.source.nodes import Map, Problems  # noqa: PLC0415 - an agent without load does without the models
    from proveout.dsl.workloads.kinds import extension, of_workload  # noqa: PLC0415

    try:
        model = of_workload(workload)
    except ProveoutError as error:
        yield Objection(error.what, error.way_out)
        return
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        yield Objection(f"the parameters of workload {workload.name[:80]!r} are not valid: {_first(error)}")
        return
    kind = extension(workload.kind)
    if kind is not None:
        problems = Problems()
        kind.check(model, Map(entries=(), where=NOWHERE), workload.name, problems)
        yield from (Objection(found.message, found.hint) for found in problems.found)


def tuning_problems(tuning: Tuning) -> Iterator[Objection]:
    """A tuning: its operation's strict model, and the plan's consent."""
    from proveout.dsl.operations.table import OPERATIONS  # noqa: PLC0415 - an agent that tunes nothing does without

    if (model := OPERATIONS.get(tuning.operation)) is not None and model.of_fault:
        yield Objection(f"`{tuning.operation}` is a fault, not a tuning", "put it under `faults:`")
    elif (operation := (yield from change_problems(tuning))) is not None:
        yield from consent_problems(tuning.operation, operation, destructive=tuning.destructive, keep=tuning.keep)


def change_problems(tuning: Tuning) -> Generator[Objection, None, Operation | None]:
    """A change by a tuning or a fault: its operation's strict model. Returns the operation; None when it has none."""
    from proveout.dsl.operations.operation import no_control, unit_name  # noqa: PLC0415
    from proveout.dsl.operations.table import operation_of  # noqa: PLC0415 - an agent that tunes nothing does without

    try:
        operation = operation_of(tuning)
        no_control(tuning.name)
        restart = unit_name(tuning.restart) if tuning.restart else ""
    except ProveoutError as error:
        yield Objection(error.what, error.way_out)
        return None
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        yield Objection(f"tuning {tuning.name[:80]!r} is not valid: {_first(error)}")
        return None
    if restart != tuning.restart or not 0 < len(tuning.name) <= TUNING_NAME_MAX:
        yield Objection(f"tuning {tuning.name[:80]!r} has a name or a unit that the compiler does not make")
    if tuning.system != (operation.of_system or ""):
        yield Objection(f"tuning {tuning.name!r} is not of the system that its operation is of")
    return operation


def consent_problems(kind: str, operation: Operation, *, destructive: bool, keep: bool) -> Iterator[Objection]:
    """Consent that a plan must give in words."""
    if operation.destructive and not destructive:
        way_out = "destructive: true, beside `name`; the agent's policy has to allow it too"
        yield Objection(f"`{kind}` can destroy data", way_out, at=(kind,))
    elif operation.lasting and not keep:
        yield Objection(f"{operation.lasting} cannot be set back", "keep: true, beside `name`", at=(kind,))


def _first(error: Exception) -> str:
    """The first thing that is wrong with parameters, without their values."""
    errors = getattr(error, "errors", None)
    if errors is None:
        return type(error).__name__
    found = errors(include_url=False, include_context=False, include_input=False)[0]
    return f"{'.'.join(str(step)[:80] for step in found['loc'][:6])}: {found['msg'][:300]}"


# A name of a plan stands for the measured fact of that name; with `*` for every fact that it matches; otherwise for
# every fact whose last part it is: `mtu` for `net.eth0.mtu` and `net.bond0.mtu`. Measured facts take precedence over
# declared ones, and every fact that the name stands for has to meet an expectation.
#
# Values are equal as text without regard to spaces and letter case, as numbers, or as sizes (`768 GiB`, 824633720832);
# true and false are also on and off.

PATTERNS = "a regular expression"
SHOWN_MAX = 4
_WORDS = {"true": "on", "yes": "on", "false": "off", "no": "off"}


@record
class Unmet:
    """An expectation that does not hold: the value that was found, "" where there is none, and the wanted one."""

    name: str
    fact: str
    found: str
    wanted: str
    where: Where

    def __str__(self) -> str:
        if not self.found:
            return f"{self.name}: {self.fact} is neither measured nor declared; expected {self.wanted}"
        return f"{self.name}: {self.fact} is {self.found}; expected {self.wanted}"


def measured(name: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The measured facts that a name of a plan stands for, by their own names."""
    if name in facts:
        return {name: facts[name]}
    if "*" in name:
        return {fact: value for fact, value in facts.items() if fnmatchcase(fact, name)}
    return {fact: value for fact, value in facts.items() if "." in fact and fact.rpartition(".")[2] == name}


def differing(name: str, value: FactValue, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The measured facts that a declared fact stands for and whose value is another one."""
    return {fact: found for fact, found in measured(name, facts).items() if not equal(value, found)}


def equal(one: Any, other: Any) -> bool:
    """Whether two values are the same: as text, as a number, or as a size."""
    if _word(one) == _word(other):
        return True
    first, second = amount(one), amount(other)
    return first is not None and first == second


def amount(value: Any) -> float | None:
    """A number, or the bytes of a size; None for other values."""
    for read in () if isinstance(value, bool) else (float, units.size_bytes):
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            return float(read(value))
    return None


def _word(value: Any) -> str:
    text = " ".join(str(value).split()).casefold()
    return _WORDS.get(text, text)


def wanted(expectation: Expectation) -> str:
    """The condition in words: `2`, `8 or 16`, `at least 16`, `text like 19[.].*`."""
    parts = [" or ".join(map(shown, expectation.one_of))] if expectation.one_of else []
    bounds = (("at least", expectation.min), ("at most", expectation.max))
    parts += [f"{word} {_number(expectation.fact, bound)}" for word, bound in bounds if bound is not None]
    if expectation.pattern:
        parts.append(f"text like {expectation.pattern}")
    return ", ".join(parts)


def shown(value: Any) -> str:
    """A fact's value as a plan writes it."""
    return ("true" if value else "false") if isinstance(value, bool) else " ".join(str(value).split())


def shown_as(fact: str, value: Any) -> str:
    """A fact's value, bytes with their unit."""
    in_bytes = fact.endswith("_bytes") and isinstance(value, int) and not isinstance(value, bool)
    return size(value) if in_bytes else shown(value)


def _number(fact: str, bound: float) -> str:
    return size(bound) if fact.endswith("_bytes") else f"{bound:.15g}"


def holds(expectation: Expectation, value: Any) -> bool:
    """Whether a value of a fact meets an expectation."""
    if expectation.one_of and not any(equal(one, value) for one in expectation.one_of):
        return False
    if expectation.pattern and not _finds(f"^(?:{expectation.pattern})$", shown(value)):
        return False
    low, high, found = expectation.min, expectation.max, amount(value)
    if found is None:
        return low is None and high is None
    return (low is None or found >= low) and (high is None or found <= high)


def unmet(declared: Declared, facts: Mapping[str, Any]) -> Iterator[Unmet]:
    """The expectations of a host, system or piece of equipment that its facts do not meet."""
    own = dict(declared.facts)
    for one in declared.expect:
        found = measured(one.fact, facts) or measured(one.fact, own)
        wrong = {fact: value for fact, value in found.items() if not holds(one, value)}
        if wrong or not found:
            values = listed(one.fact, wrong)
            if wrong and not measured(one.fact, facts):
                values += " (declared)"
            yield Unmet(name=declared.name, fact=one.fact, found=values, wanted=wanted(one), where=one.where)


def listed(name: str, facts: Mapping[str, Any]) -> str:
    """The values of the facts that a name stands for: `1500`, `1500 (net.eth0.mtu), 9000 (net.eth1.mtu)`."""
    texts = [
        shown_as(fact, value) if fact == name else f"{shown_as(fact, value)} ({fact})" for fact, value in facts.items()
    ]
    more = f" and {len(texts) - SHOWN_MAX} more" if len(texts) > SHOWN_MAX else ""
    return ", ".join(texts[:SHOWN_MAX]) + more


def pattern_problems(
    pattern: str, way_out: str = r"RE2 syntax, such as 19\.[0-9]+.*", *, groups: bool = False
) -> Iterator[Objection]:
    """A pattern that RE2 refuses; `groups`: or that has no named group, of which it takes values."""
    if not pattern:
        return
    try:
        if not groups:
            _finds(pattern, "")
        elif not pattern_groups(pattern):
            yield Objection("the pattern has no named group", way_out)
    except errors.NotInstalled as missing:
        yield Objection(missing.what, missing.way_out)
    except ValueError as error:
        yield Objection(f"not a regular expression of RE2: {error}", way_out)


def pattern_groups(pattern: str) -> tuple[str, ...]:
    """The names of its groups. ValueError for a pattern that RE2 refuses, NotInstalled."""
    pa, pc = re2()
    found = pc.extract_regex(pa.array([""]), pattern=pattern).type
    return tuple(found.field(at).name for at in range(found.num_fields))


def _finds(pattern: str, text: str) -> bool:
    pa, pc = re2()
    return bool(pc.match_substring_regex(pa.array([text]), pattern=pattern)[0].as_py())


def re2() -> tuple[Any, Any]:
    """pyarrow and its functions, which have RE2. NotInstalled."""
    return errors.loaded("pyarrow", PATTERNS), errors.loaded("pyarrow.compute", PATTERNS)
