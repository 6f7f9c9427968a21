"""What else went on at the machines of an iteration: other load, stolen CPU, processes that had to wait. Pure; part of `validity`.

Data flow: the `hosts` trees of the os captures -> one finding per machine and question. All are warnings: running again does not make a
neighbour go away. Hosts are one machine when their agents are local, when their kernels tell the same boot id (network namespaces,
containers), and where that is not known when they have one address.

- `other-load`: CPU that is not ours, only where everything that should run there is ours (a server that runs already is no foreign load).
- `steal`: CPU that the hypervisor gave to others, on every machine.
- `pressure` (PSI, Documentation/accounting/psi.rst of Linux): memory stalls on every machine, since a database or a load that waits for
  memory measures the pager; stalls for CPU on machines that only make load, where they mean that the schedule could not be kept. A
  server's own stalls for CPU and I/O are its answer to the load and not judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from proveout.core.numbers import percent
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Measuring
from proveout.dsl.plan.topology import Host
from proveout.proto.events import ValidityFinding

if TYPE_CHECKING:
    from proveout.coordinator.measure.validity import Observed

LOCAL = "local"
OTHER_CPU_MAX = 0.10
STEAL_MAX = 0.05
MEMORY_STALL_MAX = 0.05
CLIENT_STALL_MAX = 0.20


def judge(seen: Observed) -> Iterator[ValidityFinding]:
    """The findings of every machine with an os capture; one that says so when there is none."""
    found = False
    for machine, hosts in of(seen.plan, seen.boots).items():
        trees = [(host, tree) for host in hosts if (tree := seen.metrics.get("hosts", {}).get(host))]
        if not trees:
            continue
        found = True
        name = LOCAL if machine == LOCAL else hosts[0]
        yield from _other_load(seen, machine, name, hosts, trees)
        yield from _steal(name, trees[0][1])
        yield from _pressure(seen, machine, name, trees[0][1])
    if not found:
        yield _warning("other-load", True, "not judged: no os capture")


def shared(plan: Plan, stage: Measuring, boots: Mapping[str, str]) -> bool:
    """Whether a client of the stage runs on the machine of its target. `boots`: the boot id of each host, where it is known."""
    target = plan.host(plan.target_host(stage))
    return any(_same(plan.host(client), target, boots) for client in stage.clients)


def _same(one: Host, other: Host, boots: Mapping[str, str]) -> bool:
    boot = boots.get(one.name)
    return machine_of(one, boots) == machine_of(other, boots) or (bool(boot) and boot == boots.get(other.name))


def machine_of(host: Host, boots: Mapping[str, str]) -> str:
    """What tells a host's machine from others."""
    return LOCAL if host.is_local else boots.get(host.name) or host.address.rpartition(":")[0]


def of(plan: Plan, boots: Mapping[str, str]) -> dict[str, list[str]]:
    """The plan's machines, each with its hosts."""
    machines: dict[str, list[str]] = {}
    for host in plan.hosts:
        machines.setdefault(machine_of(host, boots), []).append(host.name)
    return machines


def _warning(check: str, ok: bool, evidence: str) -> ValidityFinding:
    return ValidityFinding(check=check, ok=ok, evidence=evidence, voids=False)


def _other_load(
    seen: Observed, machine: str, name: str, hosts: list[str], trees: list[tuple[str, Mapping[str, Any]]]
) -> Iterator[ValidityFinding]:
    external = {
        machine_of(seen.plan.host(system.host), seen.boots) for system in seen.plan.systems if system.provision is None
    }
    complete = len(trees) == len(hosts) or machine == LOCAL
    if machine in external or not complete or "cpu" not in trees[0][1]:
        return
    cores = _cores(seen, trees[0][0])
    used = [float(tree.get("ours", {}).get("cpu_cores", 0.0)) for _, tree in trees]
    # Local agents are one process tree, which each of them reports whole.
    ours = max(used) if machine == LOCAL else sum(used)
    other = max(float(trees[0][1]["cpu"]["busy_fraction"]) - ours / cores, 0.0)
    text = f"{percent(other)} of the CPU used by others (limit {percent(OTHER_CPU_MAX)})"
    yield _warning(f"other-load:{name}", other <= OTHER_CPU_MAX, text)


def _steal(name: str, tree: Mapping[str, Any]) -> Iterator[ValidityFinding]:
    steal = tree.get("cpu", {}).get("steal_fraction")
    if steal is not None:
        text = f"{percent(steal)} of the CPU stolen by the hypervisor (limit {percent(STEAL_MAX)})"
        yield _warning(f"steal:{name}", steal <= STEAL_MAX, text)


def _pressure(seen: Observed, machine: str, name: str, tree: Mapping[str, Any]) -> Iterator[ValidityFinding]:
    """Share of the window in which some task waited for a resource that it should have had."""
    stalls = tree.get("pressure", {})
    serving = {machine_of(seen.plan.host(system.host), seen.boots) for system in seen.plan.systems}
    limits = {"memory": MEMORY_STALL_MAX} | ({} if machine in serving else {"cpu": CLIENT_STALL_MAX})
    known = {kind: float(stalls[f"{kind}_fraction"]) for kind in limits if f"{kind}_fraction" in stalls}
    if known:
        words = (f"{kind} {percent(share)} (limit {percent(limits[kind])})" for kind, share in known.items())
        fine = all(share <= limits[kind] for kind, share in known.items())
        yield _warning(f"pressure:{name}", fine, f"time in which some task waited: {', '.join(words)}")


def _cores(seen: Observed, host: str) -> float:
    window = seen.window.shifted(seen.clocks.get(host, (0, 0))[0])
    counted = [
        cores
        for (_, captured), recording in seen.recordings.items()
        if captured == host and (cores := recording.mean("cpu.cores", window)) is not None
    ]
    return max(counted, default=1.0)
