"""`workloads:`, `captures:` and `pools:` -> the plan's, each validated by the model of its kind; the numbers that `sql`
and `command` stages read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from pydantic import BaseModel

from proveout.core.errors import ProveoutError
from proveout.dsl import engines
from proveout.dsl.compile.symbols import Entry, Scope, StageNames
from proveout.dsl.compile.topology import check_destinations
from proveout.dsl.plan.captures import CAPTURES
from proveout.dsl.plan.commands import Command, MeasuredValue
from proveout.dsl.plan.keys import made
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.plan.stages import CommandRun, Pool, Sql
from proveout.dsl.plan.topology import RARE_EVERY_S, Capture, Scrape, System
from proveout.dsl.rules.host_rules import (
    Objection,
    captured_problems,
    exporter_problems,
    is_cluster,
    licence_problems,
    pattern_groups,
    scrape_problems,
)
from proveout.dsl.rules.ladder_rules import STAGE_NUMBERS, command_problems, value_problems
from proveout.dsl.rules.secrets import REFERENCE, of_url
from proveout.dsl.schema.models import CaptureEntry, PoolEntry
from proveout.dsl.schema.validation import validate
from proveout.dsl.source.nodes import LITERAL_PASSWORD, Map, Node, Scalar, did_you_mean, is_given, locate
from proveout.dsl.workloads.kinds import BUILT_IN, extension, names

_OF_KINDS = tuple(dict.fromkeys(name for kind in CAPTURES.values() for name in kind.keys))
"""The keys that only captures of some kinds have."""
_FORM = "http://127.0.0.1:9100/metrics"


# ---- workloads and pools ---------------------------------------------------------------------------------------------


class _AnyKind(BaseModel, extra="allow"):
    """Any mapping: its `kind` decides the keys."""


def add_workloads(scope: Scope, section: Node | None) -> None:
    """Compile `workloads:` into `scope`; the parameters of each are its kind's model."""
    problems = scope.problems
    for one, _ in scope.entries(section, "workload", _AnyKind, "workloads"):
        kind = one.body.get("kind")
        if not isinstance(kind, Scalar):
            one.problem("`kind` is required", "kind", hint=did_you_mean("", BUILT_IN))
            continue
        try:
            described = extension(kind.text)
        except ProveoutError as error:
            one.problem(error.what, "kind", hint=error.way_out)
            continue
        if described is None:
            one.problem(f"there is no workload kind `{kind.text}`", "kind", hint=did_you_mean(kind.text, names()))
            continue
        rest = replace(one.body, entries=tuple(entry for entry in one.body.entries if entry[0].text != "kind"))
        model = validate(described.parameters, rest, one.path, problems)
        before = len(problems.found)
        if model is not None:
            described.check(model, rest, one.path, problems)
        if model is not None and len(problems.found) == before:
            scope.workloads[one.name] = Workload(
                name=one.name, kind=kind.text, parameters=to_values(model), where=one.start
            )


OWN_POOLS = {pool.name: pool for pool in (Pool(name="local"), Pool(name="ray", kind="ray"))}
"""The pools that every plan has."""


def add_pools(scope: Scope, section: Node | None) -> None:
    """Compile `pools:` into `scope`, beside those that every plan has."""
    scope.pools |= OWN_POOLS
    for one, entry in scope.entries(section, "pool", PoolEntry, "pools"):
        pool = made(Pool, entry, name=one.name, kind="ray", where=one.start)
        if one.name in OWN_POOLS:
            one.problem(f"every plan has a pool `{one.name}`", hint="choose another name")
        elif pool.address and not is_cluster(pool.address):
            hint = "`auto`, or name:port of the cluster's GCS; the agent's host is one of its nodes"
            one.problem(f"`{pool.address}` is not the address of a Ray cluster", "address", hint=hint)
        else:
            scope.pools[one.name] = pool
    scope.declared["pool"] |= set(OWN_POOLS)


# ---- captures --------------------------------------------------------------------------------------------------------


def add_captures(scope: Scope, section: Node | None) -> None:
    """Compile `captures:` into `scope`."""
    special = {"prometheus": _exporter, "command": _command}
    for one, entry in scope.entries(section, "capture", CaptureEntry, "captures"):
        written = made(Capture, entry, name=one.name, where=one.start)
        metrics: Sequence[object] = written.values
        if scrapes := tuple(one for one in metrics if isinstance(one, Scrape)):  # an exporter's numbers are a list
            written = replace(written, scrapes=scrapes, values=())
        kind = CAPTURES[written.kind]
        for name in _OF_KINDS:
            if name not in kind.keys and is_given(one.body, name):
                one.problem(f"a capture of kind {kind.name} has no `{name}`", name)
        capture = special.get(kind.name, _of_hosts if kind.of == "hosts" else _of_system)(one, written)
        if capture is not None:
            scope.captures[one.name] = capture


def _hosts(one: Entry, capture: Capture, instead: str, hint: str = "") -> tuple[str, ...] | None:
    """The hosts of a capture of hosts, whose selector the plan gives."""
    if capture.system is not None:
        one.problem(f"{CAPTURES[capture.kind].article} capture is of {instead}, not of a system", "system", hint=hint)
    return one.select_hosts(capture.hosts or ["all"], "on")


def _of_hosts(one: Entry, capture: Capture) -> Capture | None:
    hosts = _hosts(one, capture, "hosts", "on: all")
    return None if hosts is None else replace(capture, hosts=hosts, system=None)


def _one_host(one: Entry, hosts: Sequence[str] | None, does: str, what: str) -> bool:
    """Whether it is the one host whose agent reads the exporter, or runs the command."""
    if hosts is not None and len(hosts) > 1:
        hint = f"name the one whose agent {does}s the {what}; each {what} has a capture of its own"
        one.problem(f"{len(hosts)} hosts would {does} it", "on", hint=hint)
    return hosts is not None and len(hosts) == 1


def _exporter(one: Entry, capture: Capture) -> Capture | None:
    hosts, form = _hosts(one, capture, "an exporter"), "metrics: [{name: node_load1}]"
    for name in CAPTURES["prometheus"].keys:
        if not is_given(one.body, name):
            one.problem(f"a prometheus capture needs `{name}`", name, hint=f"url: {_FORM}" if name == "url" else form)
    fine = _one_host(one, hosts, "read", "exporter")
    if capture.values:
        one.problem("an exporter's `metrics` are a list", "metrics", hint=form)
        return None
    fits = capture.url and _url_fits(one, capture.url) and capture.scrapes and _scrapes_fit(one, capture.scrapes)
    return replace(capture, hosts=hosts, system=None) if fine and fits and hosts else None


def _scrapes_fit(one: Entry, scrapes: Sequence[Scrape]) -> bool:
    """Whether each number of an exporter is possible, and has a name of its own."""
    before = len(one.scope.problems.found)
    for number, scrape in enumerate(scrapes):
        wrong = next(scrape_problems(scrape), None)
        if wrong is None and scrape.alias in [earlier.alias for earlier in scrapes[:number]]:
            message = f"two numbers are called `{scrape.alias}`"
            wrong = Objection(message, "give each a name of its own: as: name")
        one.object_to((wrong,) if wrong else (), "metrics", number)
    return len(one.scope.problems.found) == before


def _url_fits(one: Entry, url: str) -> bool:
    """Whether an agent can read this address. Secrets are compared by name only."""
    before = len(one.scope.problems.found)
    for name in REFERENCE.findall(url):
        one.resolve("secret", name, one.scope.secrets, "url")
    plain = REFERENCE.sub("secret", url)
    user, _, place = url.partition("://")[2].rpartition("@")
    if one.object_to(exporter_problems(plain), "url"):
        return False
    if REFERENCE.search(place):
        hint = "https://user:${secrets.name}@host:port/path"
        one.problem("a secret can only be the password here", "url", hint=hint)
    elif "@" in urlsplit(plain).netloc and not REFERENCE.fullmatch(user.partition(":")[2]):
        hint = "declare it under secrets: and write http://user:${secrets.name}@…"
        one.problem(f"{LITERAL_PASSWORD} in a url", "url", hint=hint)
    elif len(one.scope.problems.found) == before:
        check_destinations(one, "url", lambda: of_url(url), plain=_FORM, exporter=True)
    return len(one.scope.problems.found) == before


def _of_system(one: Entry, capture: Capture) -> Capture | None:
    kind = CAPTURES[capture.kind]
    if capture.hosts:
        one.problem(f"{kind.article} capture is of a `system`, not of hosts", "on")
    if capture.system is None:
        hint = did_you_mean("", one.scope.declared["system"])
        one.problem(f"{kind.article} capture needs a `system`", "system", hint=hint)
    system = one.system(capture.system, "system")
    if system is None:
        return None
    if one.object_to(_unseen(kind.name, system, unsettled=system.name in one.scope.unsettled), "system"):
        return None
    capture = replace(capture, hosts=())
    if kind.name == "sql":
        return _query(one, capture)
    if kind.report:
        return _report(one, capture)
    return replace(capture, every_s=RARE_EVERY_S) if kind.rare and one.body.get("every") is None else capture


def _unseen(kind: str, system: System, *, unsettled: bool) -> Iterator[Objection]:
    """The reasons why a system cannot have a capture; `unsettled`: a setting of it has a problem."""
    found = engines.of(system.engine)
    if system.in_front_of is not None:
        message = f"`{system.name}` is a PgBouncer, of which nothing is captured"
        yield Objection(message, f"system: {system.in_front_of}")
        return
    if CAPTURES[kind].endpoints == 2 and system.propagates_to is None and system.standby_of is None:
        hint = "the lag is captured at the system with `propagates_to`, or at a standby"
        yield Objection(f"`{system.name}` propagates to nothing", hint)
        return
    yield from captured_problems(kind, system.engine)
    if kind != "statements" or not found.statements or system.provision is None or unsettled:
        return
    if found.statement_setting is None:
        message = f"the {found.title} that proveout starts has no {found.statements}"
        yield Objection(message, "a system with a dsn, whose server has it")
    elif dict(system.settings).get(found.statement_setting[0], "").lower() not in ("on", "true", "1"):
        name, value = found.statement_setting
        message = f"{found.statements} of `{system.name}` is off"
        yield Objection(message, f'settings of the system: {{{name}: "{value}"}}')


def _query(one: Entry, capture: Capture) -> Capture | None:
    if not capture.query:
        one.problem("an sql capture needs a `query`", "query", hint="query: SELECT count(*) AS sessions FROM …")
    if not capture.values:
        one.problem("an sql capture needs `metrics`, by name", "metrics", hint="metrics: {sessions: {column: 1}}")
    fine = _measured_values(one, capture.values) and capture.query and capture.values
    return capture if fine else None


def _report(one: Entry, capture: Capture) -> Capture | None:
    """A capture of two snapshots and a report on them."""
    objections = []
    if "licence" in CAPTURES[capture.kind].keys:
        capture = replace(capture, container=capture.container or "own")
        objections = list(licence_problems(capture.kind, capture.licence, capture.container))
    if one.body.get("every") is not None:
        message = f"a capture of kind {capture.kind} has no `every`: it looks at the start and the end of the window"
        objections.append(Objection(message, "leave it away", at=("every",)))
    return None if one.object_to(objections) else capture


SAMPLE_S = 5.0
"""The longest run of the program of a capture, where the plan gives none."""


def _command(one: Entry, capture: Capture) -> Capture | None:
    hosts = _hosts(one, capture, "a host", "on: db1")
    fine = _one_host(one, hosts, "run", "command")
    if not capture.values:
        one.problem("a command capture needs `metrics`, by name", "metrics", hint="metrics: {queue: {column: 1}}")
        return None
    command = capture.command if is_given(one.body, "within") else replace(capture.command, within_s=SAMPLE_S)
    checked, fits = _checked_command(one, command, capture.values), _measured_values(one, capture.values)
    for value in capture.values if fits else ():
        if value.kind == "age":
            one.problem("`as: age` is of sql captures", "metrics", value.name, "as", hint="as: level")
    return replace(capture, hosts=hosts, system=None, command=checked) if fine and fits and checked and hosts else None


# ---- queries and commands, of stages too -----------------------------------------------------------------------------


def _measured_values(one: Entry, values: Sequence[MeasuredValue], *, of_stage: bool = False) -> bool:
    wrong = False
    for value in values:
        at = ("metrics", value.name)
        wrong |= one.object_to(value_problems(value, STAGE_NUMBERS if of_stage else ()), *at)
        body, _ = locate(one.body, at)
        if of_stage and isinstance(body, Map) and body.get("as") is not None:
            message = "`as` is of captures: a stage reads each number once a repeat"
            one.problem(message, *at, "as", hint="leave it away")
            wrong = True
    return not wrong


def _checked_command(one: Entry, command: Command, values: Sequence[MeasuredValue]) -> Command | None:
    """A command with each exit code once; None when an agent would refuse it, or its pattern does not give a value."""
    refused = one.object_to(command_problems(command))
    groups = pattern_groups(command.output.pattern) if command.output.pattern and not refused else ()
    for value in values if groups else ():
        for column in (value.column, *(name for name, _ in value.where)):
            numbered = column.isdecimal() and 1 <= int(column[:9]) <= len(groups)
            if not numbered and column.lower() not in map(str.lower, groups):
                hint, refused = did_you_mean(column, groups), True
                one.problem(f"the pattern has no group `{column}`", "metrics", value.name, hint=hint)
    return None if refused else replace(command, exit_codes=tuple(dict.fromkeys(command.exit_codes)))


def sql_stage(one: StageNames, stage: Sql) -> Sql | None:
    system = one.system(stage.system, "system")
    if not (stage.statements or stage.wait_until.query or stage.query):
        one.problem("this sql stage does nothing", hint="give it `statements`, `wait_until`, or `query` and `metrics`")
    if bool(stage.query) != bool(stage.values):
        lacking, hint = "query" if stage.values else "metrics", "metrics: {max_iops: {column: 1}}"
        one.problem(f"`query` and `metrics` belong together; `{lacking}` is missing", hint=hint)
    if system is None:
        return None
    if system.engine == engines.NO_DATABASE:
        hint = "a command stage, or another system"
        one.problem(f"`{system.name}` is not a database, so that it runs no SQL", "system", hint=hint)
    if (stage.query or stage.wait_until.query) and not engines.of(system.engine).queries:
        able = engines.able(lambda one: one.queries)
        one.problem(f"queries of {system.engine} are not read in this release", hint=f"systems of {able}")
    return stage if _measured_values(one, stage.values, of_stage=True) else None


def command_stage(one: StageNames, stage: CommandRun) -> CommandRun | None:
    host = one.resolve("host", stage.host, one.scope.hosts, "on")
    command = _checked_command(one, stage.command, stage.values)
    fine = _measured_values(one, stage.values, of_stage=True)
    return replace(stage, command=command) if fine and host is not None and command is not None else None
