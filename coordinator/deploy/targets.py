"""The hosts of an inventory that `proveout deploy` works on.

Flow: `read(path)` -> `topology.hosts` of the file, as a plan or an inventory has it -> `Target` for each host with the
address of an agent. Hosts with `address: local` have no agent of their own.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from proveout.coordinator.deploy.ssh_connection import Target
from proveout.core.errors import PlanError, PlanProblem, Where
from proveout.dsl.rules.host_rules import is_host_and_port
from proveout.dsl.schema.models import HostEntry
from proveout.dsl.schema.validation import validate
from proveout.dsl.source.loader import load
from proveout.dsl.source.nodes import Map, Problems, Scalar, did_you_mean

LOCAL = "local"


def read(path: Path, only: Collection[str] = ()) -> tuple[Target, ...]:
    """The targets of a file; `only` those of these names. PlanError with all problems and their lines."""
    problems = Problems()
    root = load(path, str(path), problems)
    topology = root.get("topology") if root is not None else None
    hosts = topology.get("hosts") if isinstance(topology, Map) else None
    if root is not None and not isinstance(hosts, Map):
        problems.add(root.where, "has no hosts", key="topology.hosts", hint="topology: {hosts: {db1: {…}}}")
    entries = hosts.entries if isinstance(hosts, Map) else ()
    found: list[Target] = []
    for key, node in entries:
        if (target := _target(key, node, problems)) is not None:
            same = next((one.name for one in found if one.address == target.address != LOCAL), "")
            if same:
                problems.add(key.where, f"host `{same}` has the same address", key=f"topology.hosts.{key.text}")
            found.append(target)
    names = [key.text for key, _ in entries]
    for name in sorted(set(only) - set(names)):
        hint = did_you_mean(name, names)
        problems.add(Where(file=str(path)), f"the inventory has no host `{name}`", key="--host", hint=hint)
    if problems.found:
        raise problems.error()
    chosen = [target for target in found if target.address != LOCAL and (not only or target.name in only)]
    if not chosen:
        what = "no host has the address of an agent (name:port); `address: local` needs none"
        raise PlanError((PlanProblem(message=what, where=Where(file=str(path))),))
    return tuple(chosen)


def _target(key: Scalar, node: object, problems: Problems) -> Target | None:
    """The target of an entry; None with problems noted."""
    if not isinstance(node, Map):
        problems.add(key.where, f"`{key.text}` must be a mapping", hint="{roles: [server], address: 'db1.lab:7443'}")
        return None
    entry = validate(HostEntry, node, f"topology.hosts.{key.text}", problems)
    if entry is None:
        return None
    if entry.address != LOCAL and not is_host_and_port(entry.address):
        hint = "`local`, or name:port of the agent"
        problems.add(key.where, f"`{entry.address}` is not an address", key=f"topology.hosts.{key.text}", hint=hint)
        return None
    ssh = entry.ssh or entry.address.rpartition(":")[0].strip("[]")
    return Target(name=key.text, roles=tuple(entry.roles), address=entry.address, ssh=ssh)
