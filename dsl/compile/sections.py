"""`workloads:`, `captures:` and `pools:` -> the plan's, each validated by the model of its kind."""

from __future__ import annotations

from pydantic import BaseModel

from proveout.core.errors import ProveoutError
from proveout.dsl.compile.captured.statement_names import provisioned_problems
from proveout.dsl.compile.prometheus_captures import exporter, refuse_keys
from proveout.dsl.compile.symbols import Scope, where_of
from proveout.dsl.compile.value_sources import command_capture, query_capture
from proveout.dsl.extensions import WorkloadExtension
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.plan.stages import Pool
from proveout.dsl.plan.topology import REPORT_SUFFIXES, Capture
from proveout.dsl.rules.host_rules import (
    SIZES_EVERY_S,
    Objection,
    captured_problems,
    is_cluster,
    licence_problems,
)
from proveout.dsl.schema.models import CaptureEntry, PoolEntry
from proveout.dsl.schema.validation import validate
from proveout.dsl.source.nodes import Map, Node, Scalar, did_you_mean
from proveout.dsl.workloads.kinds import BUILT_IN, extension, names


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
        compiled = {"os": _os, "prometheus": exporter, "command": command_capture}.get(entry.kind, _database)
        capture = compiled(scope, key, node, entry, path)
        if capture is not None:
            scope.captures[key.text] = capture


def _os(scope: Scope, key: Scalar, node: Map, entry: CaptureEntry, path: str) -> Capture | None:
    if entry.system is not None:
        where = where_of(node, "system")
        scope.problems.add(where, "an os capture is of hosts, not of a system", key=f"{path}.system", hint="on: all")
    hosts = scope.select_hosts(entry.on or ["all"], where_of(node, "on"), f"{path}.on")
    if hosts is None:
        return None
    return Capture(name=key.text, kind="os", every_s=entry.every, hosts=hosts, where=key.where)


def _article(kind: str) -> str:
    return f"an {kind}" if kind in ("awr", "sql") else f"a {kind}"


def _database(scope: Scope, key: Scalar, node: Map, entry: CaptureEntry, path: str) -> Capture | None:
    """A capture of kind waits, lag, sizes, sql, awr, ttstats or statements."""
    if entry.on is not None:
        where = where_of(node, "on")
        scope.problems.add(where, f"{_article(entry.kind)} capture is of a `system`, not of hosts", key=f"{path}.on")
    if entry.system is None:
        hint = did_you_mean("", scope.declared.get("system", ()))
        scope.problems.add(
            key.where, f"{_article(entry.kind)} capture needs a `system`", key=f"{path}.system", hint=hint
        )
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
    if entry.kind == "lag" and system.propagates_to is None and system.standby_of is None:
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
    if entry.kind in REPORT_SUFFIXES:
        return _report(scope, key, node, entry, path)
    every_s = SIZES_EVERY_S if entry.kind == "sizes" and node.get("every") is None else entry.every
    return Capture(name=key.text, kind=entry.kind, every_s=every_s, system=entry.system, where=key.where)


def _report(scope: Scope, key: Scalar, node: Map, entry: CaptureEntry, path: str) -> Capture | None:
    """A capture of two snapshots and a report on them."""
    licence, container = (entry.licence or "", entry.container or "own") if entry.kind == "awr" else ("", "")
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
        if entry.address is not None and not is_cluster(entry.address):
            where = where_of(node, "address")
            hint = "`auto`, or name:port of the cluster's GCS; the agent's host is one of its nodes"
            message = f"`{entry.address}` is not the address of a Ray cluster"
            scope.problems.add(where, message, key=f"{path}.address", hint=hint)
            continue
        scope.pools[key.text] = Pool(
            name=key.text,
            kind=entry.kind,
            address=entry.address or "",
            placement=entry.placement,
            workers=entry.workers,
            where=key.where,
        )
    scope.declared["pool"] |= {pool.name for pool in OWN_POOLS}
