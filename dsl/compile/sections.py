"""`workloads:`, `captures:`, `pools:` and `metrics:` -> the plan's, each validated by the model of its kind."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias
from urllib.parse import urlsplit

from pydantic import BaseModel

from proveout.core.data_classes import record
from proveout.core.errors import ProveoutError, Where
from proveout.dsl import engines
from proveout.dsl.compile.result_names import provisioned_problems
from proveout.dsl.compile.symbols import Scope, where_of
from proveout.dsl.compile.topology import refuse_destinations
from proveout.dsl.extensions import WorkloadExtension
from proveout.dsl.plan.captures import CAPTURES, CaptureDeclaration
from proveout.dsl.plan.commands import Command, MeasuredValue
from proveout.dsl.plan.keys import made
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.plan.stages import CommandRun, Pool, Sql
from proveout.dsl.plan.topology import RARE_EVERY_S, Capture, Host, Scrape, System
from proveout.dsl.rules import ladder_rules
from proveout.dsl.rules.host_rules import (
    Objection,
    captured_problems,
    exporter_problems,
    is_cluster,
    licence_problems,
    scrape_problems,
)
from proveout.dsl.rules.ladder_rules import STAGE_NUMBERS, command_problems
from proveout.dsl.rules.secrets import Unclear, of_url
from proveout.dsl.schema.models import CaptureEntry, PoolEntry
from proveout.dsl.schema.validation import validate
from proveout.dsl.source.nodes import Map, Node, Scalar, did_you_mean, is_given, locate
from proveout.dsl.workloads.kinds import BUILT_IN, extension, names

_OF_KINDS = tuple(dict.fromkeys(name for kind in CAPTURES.values() for name in kind.keys))
"""The keys that only captures of some kinds have."""
_SECRET = re.compile(r"\$\{\s*secrets\.([^{}]*?)\s*\}")
_FORM = "http://127.0.0.1:9100/metrics"


@record
class _Captured:
    """A capture as it is written: its hosts are words, and an exporter's numbers are those of its `metrics`."""

    scope: Scope
    key: Scalar
    node: Map
    path: str
    capture: Capture

    @property
    def kind(self) -> CaptureDeclaration:
        return CAPTURES[self.capture.kind]

    def problem(self, message: str, *at: str | int, hint: str = "") -> None:
        """Note a problem at a key, or at the capture where the key is not there."""
        there = at and self.node.get(str(at[0])) is not None
        where: Where = where_of(self.node, *at) if there else self.key.where
        self.scope.problems.add(where, message, key=".".join([self.path, *map(str, at)]), hint=hint)

    def object_to(self, objections: Iterable[Objection]) -> bool:
        """Note objections; whether there were any."""
        found = list(objections)
        for one in found:
            self.problem(one.message, *one.at, hint=one.way_out)
        return bool(found)

    def selected(self) -> tuple[str, ...] | None:
        return self.scope.select_hosts(self.capture.hosts or ["all"], where_of(self.node, "on"), f"{self.path}.on")

    def one_host(self) -> str | None:
        """The one host whose agent reads the exporter, or runs the command."""
        hosts = self.selected()
        if hosts is not None and len(hosts) > 1:
            does, what = ("run", "command") if self.capture.kind == "command" else ("read", "exporter")
            hint = f"name the one whose agent {does}s the {what}; each {what} has a capture of its own"
            where = where_of(self.node, "on")
            self.scope.problems.add(where, f"{len(hosts)} hosts would {does} it", key=f"{self.path}.on", hint=hint)
            return None
        return hosts[0] if hosts else None

    def refuse_others(self) -> None:
        """Keys that only captures of other kinds have."""
        for name in _OF_KINDS:
            if name not in self.kind.keys and is_given(self.node, name):
                self.problem(f"a capture of kind {self.capture.kind} has no `{name}`", name)


def _exporter(one: _Captured) -> Capture | None:
    """A capture of kind prometheus."""
    capture, form = one.capture, "metrics: [{name: node_load1}]"
    if capture.system is not None:
        one.problem("a prometheus capture is of an exporter, not of a system", "system")
    for name in one.kind.keys:
        if not is_given(one.node, name):
            one.problem(f"a prometheus capture needs `{name}`", name, hint=f"url: {_FORM}" if name == "url" else form)
    host = one.one_host()
    if capture.values:
        one.problem("an exporter's `metrics` are a list", "metrics", hint=form)
        return None
    fine = capture.url and _url(one.scope, where_of(one.node, "url"), capture.url, f"{one.path}.url")
    if not fine or not capture.scrapes or not _scrapes_fit(one) or host is None:
        return None
    return replace(capture, hosts=(host,), system=None)


def _scrapes_fit(one: _Captured) -> bool:
    """Whether each number of an exporter is possible, and has a name of its own."""
    before = len(one.scope.problems.found)
    taken: set[str] = set()
    for number, scrape in enumerate(one.capture.scrapes):
        wrong = next(scrape_problems(scrape), None)
        where, path = where_of(one.node, "metrics", number), (one.path, "metrics", str(number))
        if wrong is not None:
            key = ".".join((*path, *map(str, wrong.at)))
            one.scope.problems.add(where, wrong.message, key=key, hint=wrong.way_out)
        elif scrape.alias in taken:
            one.problem(
                f"two numbers are called `{scrape.alias}`",
                "metrics",
                number,
                hint="give each a name of its own: as: name",
            )
        taken.add(scrape.alias)
    return len(one.scope.problems.found) == before


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
    values: tuple[MeasuredValue, ...], node: Map, problem: Report, *, sampled: bool, taken: Sequence[str] = ()
) -> bool:
    """Whether the values of `metrics:` are possible. `sampled`: of a capture; `taken`: names that are not free."""
    wrong = False
    for value in values:
        for objection in ladder_rules.value_problems(value, taken):
            problem(objection.message, "metrics", value.name, *objection.at, hint=objection.way_out)
            wrong = True
        body, _ = locate(node, ("metrics", value.name))
        if not sampled and isinstance(body, Map) and body.get("as") is not None:
            message = "`as` is of captures: a stage reads each number once a repeat"
            problem(message, "metrics", value.name, "as", hint="leave it away")
            wrong = True
    return not wrong


def _query(one: _Captured) -> Capture | None:
    """A capture of kind sql of a system that supports it."""
    if not one.capture.query:
        one.problem("an sql capture needs a `query`", "query", hint="query: SELECT count(*) AS sessions FROM …")
    if not one.capture.values:
        one.problem("an sql capture needs `metrics`, by name", "metrics", hint="metrics: {sessions: {column: 1}}")
        return None
    fine = measured_values(one.capture.values, one.node, one.problem, sampled=True)
    return one.capture if fine and one.capture.query else None


def sql_stage(stage: Sql, body: Map, system: System | None, problem: Report) -> Sql | None:
    if not (stage.statements or stage.wait_until.query or stage.query):
        problem("this sql stage does nothing", hint="give it `statements`, `wait_until`, or `query` and `metrics`")
    if bool(stage.query) != bool(stage.values):
        lacking = "query" if stage.values else "metrics"
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
    if (stage.query or stage.wait_until.query) and not engines.of(system.engine).queries:
        able = engines.named(found for found in engines.ENGINES.values() if found.queries)
        problem(f"queries of {system.engine} are not read in this release", hint=f"systems of {able}")
    return stage if measured_values(stage.values, body, problem, sampled=False, taken=STAGE_NUMBERS) else None


# ---- commands --------------------------------------------------------------------------------------------------------

SAMPLE_S = 5.0
"""The longest run of the program of a capture, where the plan gives none."""


def checked_command(command: Command, problem: Report) -> Command | None:
    """A command with each exit code once; None when an agent would refuse it."""
    objections = list(command_problems(command))
    for objection in objections:
        problem(objection.message, *objection.at, hint=objection.way_out)
    return None if objections else replace(command, exit_codes=tuple(dict.fromkeys(command.exit_codes)))


def command_stage(stage: CommandRun, body: Map, host: Host | None, problem: Report) -> CommandRun | None:
    command = checked_command(stage.command, problem)
    fine = measured_values(stage.values, body, problem, sampled=False, taken=STAGE_NUMBERS)
    return replace(stage, command=command) if fine and host is not None and command is not None else None


def _command(one: _Captured) -> Capture | None:
    """A capture of kind command: the numbers of a program's output, each time it is run."""
    capture = one.capture
    if capture.system is not None:
        one.problem("a command capture is of a host, not of a system", "system", hint="on: db1")
    host = one.one_host()
    if not capture.values:
        one.problem("a command capture needs `metrics`, by name", "metrics", hint="metrics: {queue: {column: 1}}")
        return None
    command = capture.command if is_given(one.node, "within") else replace(capture.command, within_s=SAMPLE_S)
    checked = checked_command(command, one.problem)
    fine = measured_values(capture.values, one.node, one.problem, sampled=True)
    for value in capture.values if fine else ():
        if value.kind == "age":
            one.problem("`as: age` is of sql captures", "metrics", value.name, "as", hint="as: level")
    if host is None or checked is None or not fine:
        return None
    return replace(capture, hosts=(host,), system=None, command=checked)


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
    special = {"prometheus": _exporter, "command": _command}
    for key, node, entry in scope.entries(section, "capture", CaptureEntry, "captures"):
        written = made(Capture, entry, name=key.text, where=key.where)
        metrics: Sequence[object] = written.values
        if scrapes := tuple(one for one in metrics if isinstance(one, Scrape)):
            written = replace(written, scrapes=scrapes, values=())
        one = _Captured(scope=scope, key=key, node=node, path=f"captures.{key.text}", capture=written)
        one.refuse_others()
        default = _of_hosts if one.kind.of == "hosts" else _database
        capture = special.get(written.kind, default)(one)
        if capture is not None:
            scope.captures[key.text] = capture


def _of_hosts(one: _Captured) -> Capture | None:
    if one.capture.system is not None:
        one.problem(f"{one.kind.article} capture is of hosts, not of a system", "system", hint="on: all")
    hosts = one.selected()
    return None if hosts is None else replace(one.capture, hosts=hosts, system=None)


def _database(one: _Captured) -> Capture | None:
    """A capture of a system."""
    scope, name = one.scope, one.capture.system
    if one.capture.hosts:
        one.problem(f"{one.kind.article} capture is of a `system`, not of hosts", "on")
    if name is None:
        hint = did_you_mean("", scope.declared.get("system", ()))
        one.problem(f"{one.kind.article} capture needs a `system`", "system", hint=hint)
        return None
    system = scope.resolve("system", name, scope.systems, where_of(one.node, "system"), f"{one.path}.system")
    if system is None:
        return None
    if system.in_front_of is not None:
        hint = f"system: {system.in_front_of}"
        one.problem(f"`{system.name}` is a PgBouncer, of which nothing is captured", "system", hint=hint)
        return None
    if one.kind.endpoints == 2 and system.propagates_to is None and system.standby_of is None:
        hint = "the lag is captured at the system with `propagates_to`, or at a standby"
        one.problem(f"`{system.name}` propagates to nothing", "system", hint=hint)
        return None
    unseen = (*captured_problems(one.capture.kind, system.engine), *provisioned_problems(one.capture.kind, system))
    for objection in unseen:
        one.problem(objection.message, "system", hint=objection.way_out)
    return None if unseen else _of_system(replace(one, capture=replace(one.capture, hosts=())))


def _of_system(one: _Captured) -> Capture | None:
    """A capture of a system that supports it."""
    if one.capture.kind == "sql":
        return _query(one)
    if one.kind.report:
        return _report(one)
    rare = one.kind.rare and one.node.get("every") is None
    return replace(one.capture, every_s=RARE_EVERY_S) if rare else one.capture


def _report(one: _Captured) -> Capture | None:
    """A capture of two snapshots and a report on them."""
    capture = one.capture
    objections = []
    if "licence" in one.kind.keys:
        capture = replace(capture, container=capture.container or "own")
        objections = list(licence_problems(capture.kind, capture.licence, capture.container))
    if one.node.get("every") is not None:
        message = f"a capture of kind {capture.kind} has no `every`: it looks at the start and the end of the window"
        objections.append(Objection(message=message, way_out="leave it away", at=("every",)))
    return None if one.object_to(objections) else capture


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
