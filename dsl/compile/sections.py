"""`workloads:`, `captures:`, `pools:` and `metrics:` -> the plan's, each validated by the model of its kind."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias
from urllib.parse import urlsplit

from pydantic import BaseModel

from proveout.core.errors import ProveoutError, Where
from proveout.dsl import engines
from proveout.dsl.compile.result_names import provisioned_problems
from proveout.dsl.compile.symbols import Scope, where_of
from proveout.dsl.compile.topology import refuse_destinations
from proveout.dsl.extensions import WorkloadExtension
from proveout.dsl.plan.captures import CAPTURES
from proveout.dsl.plan.commands import NO_WAIT, Command, MeasuredValue, OutputRows
from proveout.dsl.plan.keys import made
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.plan.stages import CommandRun, Pool, Sql
from proveout.dsl.plan.topology import Capture, Host, Scrape, System
from proveout.dsl.rules import value_rules
from proveout.dsl.rules.host_rules import (
    RARE_EVERY_S,
    Objection,
    captured_problems,
    exporter_problems,
    is_cluster,
    licence_problems,
    scrape_problems,
)
from proveout.dsl.rules.secrets import Unclear, of_url
from proveout.dsl.rules.value_rules import STAGE_NUMBERS, command_problems
from proveout.dsl.schema.models import CaptureEntry, OutputEntry, PoolEntry, ScrapeEntry, ValueEntry
from proveout.dsl.schema.stage_models import CommandEntry, SqlEntry
from proveout.dsl.schema.validation import validate
from proveout.dsl.source.nodes import Map, Node, Scalar, did_you_mean
from proveout.dsl.workloads.kinds import BUILT_IN, extension, names

COUNTERS = ("_total", "_count", "_sum", "_bucket")
"""The suffixes of the names of counters in Prometheus' conventions (the parts of a histogram are counters too)."""

_OF_KINDS = tuple(dict.fromkeys(name for kind in CAPTURES.values() for name in kind.keys))
"""The keys that only captures of some kinds have."""
_SECRET = re.compile(r"\$\{\s*secrets\.([^{}]*?)\s*\}")
_FORM = "http://127.0.0.1:9100/metrics"


def refuse_keys(scope: Scope, node: Map, entry: CaptureEntry, path: str) -> None:
    """Keys that only captures of other kinds have."""
    for name in _OF_KINDS:
        if name not in CAPTURES[entry.kind].keys and getattr(entry, name) is not None:
            where = where_of(node, name)
            scope.problems.add(where, f"a capture of kind {entry.kind} has no `{name}`", key=f"{path}.{name}")


def exporter(scope: Scope, key: Scalar, node: Map, entry: CaptureEntry, path: str) -> Capture | None:
    """A capture of kind prometheus."""
    if entry.system is not None:
        where = where_of(node, "system")
        scope.problems.add(where, "a prometheus capture is of an exporter, not of a system", key=f"{path}.system")
    for name in CAPTURES["prometheus"].keys:
        if getattr(entry, name) is None:
            hint = f"url: {_FORM}" if name == "url" else "metrics: [{name: node_load1}]"
            scope.problems.add(key.where, f"a prometheus capture needs `{name}`", key=f"{path}.{name}", hint=hint)
    host = one_host(scope, node, entry, path)
    if isinstance(entry.metrics, dict):
        hint = "metrics: [{name: node_load1}]"
        scope.problems.add(
            where_of(node, "metrics"), "an exporter's `metrics` are a list", key=f"{path}.metrics", hint=hint
        )
        return None
    if entry.url is None or entry.metrics is None or not _url(scope, where_of(node, "url"), entry.url, f"{path}.url"):
        return None
    scrapes = tuple(_scrapes(scope, node, entry.metrics, path))
    if host is None or len(scrapes) < len(entry.metrics):
        return None
    return Capture(
        name=key.text,
        kind="prometheus",
        every_s=entry.every,
        hosts=(host,),
        url=entry.url,
        scrapes=scrapes,
        where=key.where,
    )


def one_host(scope: Scope, node: Map, entry: CaptureEntry, path: str) -> str | None:
    """The one host whose agent reads the exporter, or runs the command."""
    hosts = scope.select_hosts(entry.on or ["all"], where_of(node, "on"), f"{path}.on")
    if hosts is None:
        return None
    if len(hosts) > 1:
        does, what = ("run", "command") if entry.kind == "command" else ("read", "exporter")
        hint = f"name the one whose agent {does}s the {what}; each {what} has a capture of its own"
        scope.problems.add(where_of(node, "on"), f"{len(hosts)} hosts would {does} it", key=f"{path}.on", hint=hint)
        return None
    return hosts[0]


def _scrapes(scope: Scope, node: Map, entries: list[ScrapeEntry], path: str) -> Iterator[Scrape]:
    taken: set[str] = set()
    for number, entry in enumerate(entries):
        key = f"{path}.metrics.{number}"
        where = where_of(node, "metrics", number)
        alias = entry.as_ or entry.name
        wrong = next(scrape_problems(entry.name, alias, list(entry.labels)), None)
        if wrong is not None:
            scope.problems.add(where, wrong.message, key=".".join((key, *map(str, wrong.at))), hint=wrong.way_out)
            continue
        if alias in taken:
            hint = "give each a name of its own: as: name"
            scope.problems.add(where, f"two numbers are called `{alias}`", key=key, hint=hint)
            continue
        taken.add(alias)
        yield Scrape(
            alias=alias,
            metric=entry.name,
            labels=tuple(sorted(entry.labels.items())),
            kind=entry.type or ("counter" if entry.name.endswith(COUNTERS) else "gauge"),
            take=entry.take,
            optional=entry.optional,
        )


def _url(scope: Scope, where: Where, url: str, key: str) -> bool:
    """Whether an agent can read this address. Secrets are compared by name only."""
    before = len(scope.problems.found)
    for match in _SECRET.finditer(url):
        if match[1] not in scope.secrets and match[1] not in scope.declared.get("secret", set()):
            hint = did_you_mean(match[1], scope.declared.get("secret", set()))
            scope.problems.add(where, f"there is no secret `{match[1]}`", key=key, hint=hint)
    wrong = next(exporter_problems(_SECRET.sub("secret", url)), None)
    if wrong is not None:
        scope.problems.add(where, wrong.message, key=key, hint=wrong.way_out)
    elif _SECRET.search(_without_user(url)):
        hint = "https://user:${secrets.name}@host:port/path"
        scope.problems.add(where, "a secret can only be the password here", key=key, hint=hint)
    elif "@" in urlsplit(_SECRET.sub("secret", url)).netloc and not _SECRET.fullmatch(_password(url)):
        hint = "declare it under secrets: and write http://user:${secrets.name}@…"
        scope.problems.add(where, "a literal password in a url", key=key, hint=hint)
    if len(scope.problems.found) == before:
        _check_secrets(scope, where, url, key)
    return len(scope.problems.found) == before


def _check_secrets(scope: Scope, where: Where, url: str, key: str) -> None:
    try:
        uses = of_url(url)
    except Unclear as fault:
        scope.problems.add(where, f"the destination of a secret is not clear: {fault}", key=key, hint=_FORM)
        return
    refuse_destinations(scope, uses, where, key, exporter=True)


def _without_user(url: str) -> str:
    address = url.partition("://")[2]
    return address.rpartition("@")[2] if "@" in address else address


def _password(url: str) -> str:
    """The text between the user's colon and the last @ of the address."""
    user = url.partition("://")[2].rpartition("@")[0]
    return user.partition(":")[2]


Report: TypeAlias = Callable[..., None]
"""`problem(message, *path, hint=…)` at a key of the stage or the capture."""


def measured_values(
    entries: Mapping[str, ValueEntry], problem: Report, *, sampled: bool, taken: Sequence[str] = ()
) -> tuple[MeasuredValue, ...] | None:
    """The values of `metrics:`; None when one is wrong. `sampled`: of a capture; `taken`: names that are not free."""
    found = [_value(name, entry) for name, entry in entries.items()]
    wrong = False
    for value, entry in zip(found, entries.values(), strict=True):
        for objection in value_rules.value_problems(value, taken):
            problem(objection.message, "metrics", value.name, *objection.at, hint=objection.way_out)
            wrong = True
        if not sampled and "as_" in entry.model_fields_set:
            message = "`as` is of captures: a stage reads each number once a repeat"
            problem(message, "metrics", value.name, "as", hint="leave it away")
            wrong = True
    return None if wrong else tuple(found)


def _value(name: str, entry: ValueEntry) -> MeasuredValue:
    return MeasuredValue(
        name=name,
        column=entry.column or name,
        where=tuple(sorted(entry.where.items())),
        kind=entry.as_,
        take=entry.take,
    )


def query_capture(
    scope: Scope, named: tuple[Scalar, Map], entry: CaptureEntry, path: str, system: str
) -> Capture | None:
    """A capture of kind sql of a system; `named` is its name and its body."""
    key, node = named

    def problem(message: str, *at: str | int, hint: str = "") -> None:
        where: Where = where_of(node, *at) if node.get(str(at[0])) is not None else key.where
        scope.problems.add(where, message, key=".".join([path, *map(str, at)]), hint=hint)

    if entry.query is None:
        problem("an sql capture needs a `query`", "query", hint="query: SELECT count(*) AS sessions FROM …")
    if not isinstance(entry.metrics, dict):
        problem("an sql capture needs `metrics`, by name", "metrics", hint="metrics: {sessions: {column: 1}}")
        return None
    values = measured_values(entry.metrics, problem, sampled=True)
    if values is None or entry.query is None:
        return None
    return Capture(
        name=key.text,
        kind="sql",
        every_s=entry.every,
        system=system,
        query=entry.query,
        values=values,
        where=key.where,
    )


def sql_stage(entry: SqlEntry, stage_id: str, body: Map, system: System | None, problem: Report) -> Sql | None:
    """The compiled stage; None when its system or its metrics do not compile."""
    if not (entry.statements or entry.wait_until or entry.query):
        problem("this sql stage does nothing", hint="give it `statements`, `wait_until`, or `query` and `metrics`")
    if (entry.query is None) != (entry.metrics is None):
        lacking = "metrics" if entry.metrics is None else "query"
        problem(
            f"`query` and `metrics` belong together; `{lacking}` is missing", hint="metrics: {max_iops: {column: 1}}"
        )
    if system is None:
        return None
    if system.engine == engines.NO_DATABASE:
        problem(
            f"`{system.name}` is not a database, so that it runs no SQL",
            "system",
            hint="a command stage, or another system",
        )
    if (entry.query or entry.wait_until) and not engines.of(system.engine).queries:
        able = engines.named(found for found in engines.ENGINES.values() if found.queries)
        problem(f"queries of {system.engine} are not read in this release", hint=f"systems of {able}")
    values = measured_values(entry.metrics or {}, problem, sampled=False, taken=STAGE_NUMBERS)
    if values is None:
        return None
    return Sql(
        id=stage_id,
        system=system.name,
        statements=tuple(entry.statements or ()),
        repeatable=entry.repeatable,
        wait_until=entry.wait_until or NO_WAIT,
        query=entry.query or "",
        values=values,
        repeat=entry.repeat,
        where=body.where,
    )


# ---- commands --------------------------------------------------------------------------------------------------------

SAMPLE_S = 5.0
"""The longest run of the program of a capture, where the plan gives none."""


def output_rows(entry: OutputEntry | None) -> OutputRows:
    """The form of an output."""
    if entry is None:
        return OutputRows()
    return OutputRows(
        format=entry.format or ("pattern" if entry.pattern else "pairs"),
        rows=entry.rows or "",
        separator=entry.separator,
        header=entry.header,
        pattern=entry.pattern or "",
    )


def checked_command(
    argv: Sequence[str],
    output: OutputEntry | None,
    within_s: float,
    exit_codes: Sequence[int],
    problem: Report,
) -> Command | None:
    """A command; None when an agent would refuse it."""
    command = Command(
        argv=tuple(argv), output=output_rows(output), within_s=within_s, exit_codes=tuple(dict.fromkeys(exit_codes))
    )
    objections = list(command_problems(command))
    for objection in objections:
        problem(objection.message, *objection.at, hint=objection.way_out)
    return None if objections else command


def command_stage(
    entry: CommandEntry, stage_id: str, body: Map, host: Host | None, problem: Report
) -> CommandRun | None:
    """The compiled stage; None when its host, its command or its metrics do not compile."""
    command = checked_command(entry.argv, entry.output, entry.within, entry.exit_codes, problem)
    values = measured_values(entry.metrics, problem, sampled=False, taken=STAGE_NUMBERS)
    if host is None or command is None or values is None:
        return None
    return CommandRun(
        id=stage_id, host=host.name, command=command, values=values, repeat=entry.repeat, where=body.where
    )


def command_capture(scope: Scope, key: Scalar, node: Map, entry: CaptureEntry, path: str) -> Capture | None:
    """A capture of kind command: the numbers of a program's output, each time it is run."""

    def problem(message: str, *at: str | int, hint: str = "") -> None:
        where: Where = where_of(node, *at) if at and node.get(str(at[0])) is not None else key.where
        scope.problems.add(where, message, key=".".join([path, *map(str, at)]), hint=hint)

    if entry.system is not None:
        problem("a command capture is of a host, not of a system", "system", hint="on: db1")
    host = one_host(scope, node, entry, path)
    if not isinstance(entry.metrics, dict):
        problem("a command capture needs `metrics`, by name", "metrics", hint="metrics: {queue: {column: 1}}")
        return None
    within_s = SAMPLE_S if entry.within is None else entry.within
    command = checked_command(entry.argv or (), entry.output, within_s, entry.exit_codes or (0,), problem)
    values = measured_values(entry.metrics, problem, sampled=True)
    for value in values or ():
        if value.kind == "age":
            problem("`as: age` is of sql captures", "metrics", value.name, "as", hint="as: level")
    if host is None or command is None or values is None:
        return None
    return Capture(
        name=key.text,
        kind="command",
        every_s=entry.every,
        hosts=(host,),
        values=values,
        command=command,
        where=key.where,
    )


def add_workloads(scope: Scope, section: Node | None) -> None:
    """Compile `workloads:` into `scope`; the parameters of each are its kind's model."""
    for key, node, _ in scope.entries(section, "workload", _AnyKind, "workloads"):
        path = f"workloads.{key.text}"
        kind = node.get("kind")
        if not isinstance(kind, Scalar):
            scope.problems.add(key.where, "`kind` is required", key=f"{path}.kind", hint=did_you_mean("", BUILT_IN))
            continue
        described = _extension(scope, kind, path)
        if described is None:
            continue
        rest = Map(entries=tuple(entry for entry in node.entries if entry[0].text != "kind"), where=node.where)
        model = validate(described.parameters, rest, path, scope.problems)
        if model is None:
            continue
        before = len(scope.problems.found)
        described.check(model, rest, path, scope.problems)
        if len(scope.problems.found) == before:
            scope.workloads[key.text] = Workload(
                name=key.text, kind=kind.text, parameters=to_values(model), where=key.where
            )


def _extension(scope: Scope, kind: Scalar, path: str) -> WorkloadExtension | None:
    """The description of a kind; None, and a problem noted, when there is none."""
    try:
        found = extension(kind.text)
    except ProveoutError as error:
        scope.problems.add(kind.where, error.what, key=f"{path}.kind", hint=error.way_out)
        return None
    if found is None:
        hint = did_you_mean(kind.text, names())
        scope.problems.add(kind.where, f"there is no workload kind `{kind.text}`", key=f"{path}.kind", hint=hint)
    return found


class _AnyKind(BaseModel, extra="allow"):
    """Any mapping: its `kind` decides the keys."""


def add_captures(scope: Scope, section: Node | None) -> None:
    """Compile `captures:` into `scope`."""
    for key, node, entry in scope.entries(section, "capture", CaptureEntry, "captures"):
        path = f"captures.{key.text}"
        refuse_keys(scope, node, entry, path)
        special = {"prometheus": exporter, "command": command_capture}
        default = _of_hosts if CAPTURES[entry.kind].of == "hosts" else _database
        capture = special.get(entry.kind, default)(scope, key, node, entry, path)
        if capture is not None:
            scope.captures[key.text] = capture


def _of_hosts(scope: Scope, key: Scalar, node: Map, entry: CaptureEntry, path: str) -> Capture | None:
    if entry.system is not None:
        where = where_of(node, "system")
        message = f"{CAPTURES[entry.kind].article} capture is of hosts, not of a system"
        scope.problems.add(where, message, key=f"{path}.system", hint="on: all")
    hosts = scope.select_hosts(entry.on or ["all"], where_of(node, "on"), f"{path}.on")
    if hosts is None:
        return None
    return Capture(name=key.text, kind=entry.kind, every_s=entry.every, hosts=hosts, where=key.where)


def _database(scope: Scope, key: Scalar, node: Map, entry: CaptureEntry, path: str) -> Capture | None:
    """A capture of a system."""
    kind = CAPTURES[entry.kind]
    if entry.on is not None:
        where = where_of(node, "on")
        scope.problems.add(where, f"{kind.article} capture is of a `system`, not of hosts", key=f"{path}.on")
    if entry.system is None:
        hint = did_you_mean("", scope.declared.get("system", ()))
        scope.problems.add(key.where, f"{kind.article} capture needs a `system`", key=f"{path}.system", hint=hint)
        return None
    where = where_of(node, "system")
    system = scope.resolve("system", entry.system, scope.systems, where, f"{path}.system")
    if system is None:
        return None
    if system.in_front_of is not None:
        hint = f"system: {system.in_front_of}"
        message = f"`{system.name}` is a PgBouncer, of which nothing is captured"
        scope.problems.add(where, message, key=f"{path}.system", hint=hint)
        return None
    if kind.endpoints == 2 and system.propagates_to is None and system.standby_of is None:
        hint = "the lag is captured at the system with `propagates_to`, or at a standby"
        scope.problems.add(where, f"`{system.name}` propagates to nothing", key=f"{path}.system", hint=hint)
        return None
    unseen = list(captured_problems(entry.kind, system.engine))
    unseen += list(provisioned_problems(entry.kind, system))
    for objection in unseen:
        scope.problems.add(where, objection.message, key=f"{path}.system", hint=objection.way_out)
    return None if unseen else _of_system(scope, key, node, entry, path)


def _of_system(scope: Scope, key: Scalar, node: Map, entry: CaptureEntry, path: str) -> Capture | None:
    """A capture of a system that supports it."""
    if entry.kind == "sql":
        return query_capture(scope, (key, node), entry, path, entry.system or "")
    if CAPTURES[entry.kind].report:
        return _report(scope, key, node, entry, path)
    every_s = RARE_EVERY_S if CAPTURES[entry.kind].rare and node.get("every") is None else entry.every
    return Capture(name=key.text, kind=entry.kind, every_s=every_s, system=entry.system, where=key.where)


def _report(scope: Scope, key: Scalar, node: Map, entry: CaptureEntry, path: str) -> Capture | None:
    """A capture of two snapshots and a report on them."""
    is_licensed = "licence" in CAPTURES[entry.kind].keys
    licence, container = (entry.licence or "", entry.container or "own") if is_licensed else ("", "")
    objections = list(licence_problems(entry.kind, licence, container))
    if node.get("every") is not None:
        message = f"a capture of kind {entry.kind} has no `every`: it looks at the start and the end of the window"
        objections.append(Objection(message=message, way_out="leave it away", at=("every",)))
    for objection in objections:
        where = where_of(node, *objection.at) if node.get(str(objection.at[0])) is not None else key.where
        at = ".".join([path, *map(str, objection.at)])
        scope.problems.add(where, objection.message, key=at, hint=objection.way_out)
    if objections:
        return None
    return Capture(
        name=key.text,
        kind=entry.kind,
        every_s=entry.every,
        system=entry.system,
        licence=licence,
        container=container,
        where=key.where,
    )


OWN_POOLS = (Pool(name="local"), Pool(name="ray", kind="ray"))
"""The pools that every plan has."""


def add_pools(scope: Scope, section: Node | None) -> None:
    """Compile `pools:` into `scope`, beside those that every plan has."""
    scope.pools |= {pool.name: pool for pool in OWN_POOLS}
    for key, node, entry in scope.entries(section, "pool", PoolEntry, "pools"):
        path = f"pools.{key.text}"
        if key.text in {pool.name for pool in OWN_POOLS}:
            scope.problems.add(key.where, f"every plan has a pool `{key.text}`", key=path, hint="choose another name")
            continue
        pool = made(Pool, entry, name=key.text, kind="ray", where=key.where)
        if pool.address and not is_cluster(pool.address):
            where = where_of(node, "address")
            hint = "`auto`, or name:port of the cluster's GCS; the agent's host is one of its nodes"
            message = f"`{pool.address}` is not the address of a Ray cluster"
            scope.problems.add(where, message, key=f"{path}.address", hint=hint)
            continue
        scope.pools[key.text] = pool
    scope.declared["pool"] |= {pool.name for pool in OWN_POOLS}
