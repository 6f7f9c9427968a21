"""The cost of a transaction: the `cost` of hosts, and the names `cost.…` that a stage has with the captures that it
takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from proveout.dsl import engines, metrics
from proveout.dsl.compile.symbols import Scope, where_of
from proveout.dsl.expr.name_types import Estimate, Group, Number
from proveout.dsl.plan.loads import servers
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Ladder, Search
from proveout.dsl.plan.topology import Capture, Host, System
from proveout.dsl.schema.models import HostEntry
from proveout.dsl.source.nodes import Map

HOST_NUMBERS = ("server_cpu_us", "read_bytes", "written_bytes", "network_bytes", "context_switches")
"""The numbers that need the os capture of the servers' hosts."""
_ADD = "add one to the `capture:` of the stage"


def with_cost(scope: Scope, host: Host, entry: HostEntry, node: Map) -> Host:
    """The host with its price; all prices have one currency."""
    if entry.cost is None:
        return host
    amount, currency = entry.cost.per_hour
    other = next((other for other in scope.hosts.values() if other.currency not in ("", currency)), None)
    if other is not None:
        message = f"the cost is in {currency}, that of host `{other.name}` in {other.currency}"
        hint = "write the costs of all hosts in one currency"
        scope.problems.add(where_of(node, "cost"), message, key=f"topology.hosts.{host.name}.cost", hint=hint)
    return replace(host, price_per_hour=amount, currency=currency)


def cost(plan: Plan, stage: Ladder | Search, leaf: Number | Estimate) -> Group:
    """The group `cost`; an absent name has the reason that can be known before the run."""
    absent = _absent(plan, stage)
    members = {name: leaf for name in metrics.COST if name not in absent}
    return Group(what="the cost of a transaction", members=members, absent=absent)


def _absent(plan: Plan, stage: Ladder | Search) -> dict[str, tuple[str, str]]:
    captures = [plan.capture(name) for name in stage.captures]
    systems = servers(plan, stage)
    hosts = tuple(dict.fromkeys(system.host for system in systems))
    found: dict[str, tuple[str, str]] = {}
    without = [name for name in hosts if name not in _captured(captures)]
    if without:
        why = f"no os capture of stage `{stage.id}` covers `{without[0]}`, where its servers run"
        found |= dict.fromkeys(HOST_NUMBERS, (why, _ADD))
    uncounted = _uncounted(systems, captures)
    if uncounted is not None:
        why = f"stage `{stage.id}` has no capture of kind waits of `{uncounted.name}`"
        found["wal_bytes"] = (why, _ADD)
        found |= {"reads": (f"{why}, nor an os capture of its host", _ADD)} if without else {}
    for engine in (engines.of(system.engine) for system in systems):
        if engine.in_files:
            inside = (f"{engine.title} runs in the processes of the load", "cost.client_cpu_us")
            found |= dict.fromkeys((*HOST_NUMBERS, "reads", "wal_bytes"), inside)
    unpriced = [name for name in hosts if plan.host(name).price_per_hour is None]
    if unpriced:
        way = f"topology: {{hosts: {{{unpriced[0]}: {{cost: {{per_hour: 3.20 EUR}}}}}}}}"
        found["price_per_million"] = (f"host `{unpriced[0]}` has no cost", way)
    return found


def _captured(captures: Sequence[Capture]) -> set[str]:
    return {host for capture in captures if capture.kind == "os" for host in capture.hosts}


def _uncounted(systems: Sequence[System], captures: Sequence[Capture]) -> System | None:
    """The first database whose own counters are not captured."""
    counted = {capture.system for capture in captures if capture.kind == "waits"}
    databases = (one for one in systems if one.in_front_of is None and one.standby_of is None)
    return next((one for one in databases if one.name not in counted), None)
