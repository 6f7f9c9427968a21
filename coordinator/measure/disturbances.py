"""Disturbances on the machines of an iteration: other load, stolen CPU, memory pressure, paused processes. Pure; part
of `validity`.

Data flow: the `hosts` trees of the os captures -> one finding per machine and check. All are warnings: another attempt
would meet the same neighbours. Hosts share a machine when their agents are local, when their kernels have the same boot
id (network namespaces, containers), or, without a boot id, when they have the same address.

- `other-load`: CPU used by other processes, only on machines without a server that proveout does not provision.
- `steal`: CPU that the hypervisor gave to other guests, on every machine.
- `pressure` (PSI, Documentation/accounting/psi.rst of Linux): memory stalls on every machine, because a database or a
  load that waits for memory measures the pager; CPU stalls on machines that only generate load, where they delay the
  schedule. A server's own stalls for CPU and I/O are its response to the load and are not judged.
- `pause`: the time for which a load process or an agent did not run (a stopped process, a virtual machine that is
  migrated, no free CPU). A pause of at least `TOLD_S` is a warning. From the stage's limit `pause` on (10 s by default,
  the length of a lease) a pause of a load process voids the iteration, also that of a search's probe. The silence of an
  agent is a warning, as a silence of a whole lease loses the agent, and pauses of load processes are measured by these
  processes. Pauses of the system under test: `outages`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from proveout.coordinator.measure.observed import Observed
from proveout.coordinator.measure.outages import TOLD_S
from proveout.core.numbers import quantity, together
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Measuring
from proveout.dsl.plan.topology import Host
from proveout.proto.events import ValidityFinding

LOCAL = "local"
OTHER_CPU_MAX = 0.10
STEAL_MAX = 0.05
MEMORY_STALL_MAX = 0.05
CLIENT_STALL_MAX = 0.20
SILENCE_TOLD_S = 4.5
"""Two beats and what a busy machine may add: without any pause an answer comes every 2 s."""


def judge_machines(seen: Observed) -> Iterator[ValidityFinding]:
    """The findings of every machine with an os capture, or one finding for the absence of any."""
    found = False
    for machine, hosts in hosts_by_machine(seen.plan, seen.boots).items():
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


def shares_machine(plan: Plan, stage: Measuring, boots: Mapping[str, str]) -> bool:
    """Whether a client of the stage runs on the machine of its target. `boots`: the boot id of each host, where it is
    known."""
    target = plan.host(plan.target_host(stage))
    return any(same_machine(plan.host(client), target, boots) for client in stage.clients)


def same_machine(one: Host, other: Host, boots: Mapping[str, str]) -> bool:
    """Whether two hosts are on one machine."""
    boot = boots.get(one.name)
    return machine_of(one, boots) == machine_of(other, boots) or (bool(boot) and boot == boots.get(other.name))


def machine_of(host: Host, boots: Mapping[str, str]) -> str:
    """The identity of a host's machine."""
    return LOCAL if host.is_local else boots.get(host.name) or host.address.rpartition(":")[0]


def hosts_by_machine(plan: Plan, boots: Mapping[str, str]) -> dict[str, list[str]]:
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
    share, limit = together("fraction", other, OTHER_CPU_MAX)
    text = f"{share} of the CPU used by others (limit {limit})"
    yield _warning(f"other-load:{name}", other <= OTHER_CPU_MAX, text)


def _steal(name: str, tree: Mapping[str, Any]) -> Iterator[ValidityFinding]:
    steal = tree.get("cpu", {}).get("steal_fraction")
    if steal is not None:
        share, limit = together("fraction", steal, STEAL_MAX)
        text = f"{share} of the CPU stolen by the hypervisor (limit {limit})"
        yield _warning(f"steal:{name}", steal <= STEAL_MAX, text)


def _pressure(seen: Observed, machine: str, name: str, tree: Mapping[str, Any]) -> Iterator[ValidityFinding]:
    """Share of the window in which some task waited for a resource that it should have had."""
    stalls = tree.get("pressure", {})
    serving = {machine_of(seen.plan.host(system.host), seen.boots) for system in seen.plan.systems}
    limits = {"memory": MEMORY_STALL_MAX} | ({} if machine in serving else {"cpu": CLIENT_STALL_MAX})
    known = {kind: float(stalls[f"{kind}_fraction"]) for kind in limits if f"{kind}_fraction" in stalls}
    if known:
        pairs = ((kind, together("fraction", share, limits[kind])) for kind, share in known.items())
        words = (f"{kind} {share} (limit {limit})" for kind, (share, limit) in pairs)
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


def judge_pauses(seen: Observed) -> Iterator[ValidityFinding]:
    """A finding for each pause that exceeds its limit."""
    limit_s = seen.limits.pause_s_max
    for host, load in seen.loads.items():
        paused_s = load.pause_longest_ns / 1e9
        if paused_s >= min(TOLD_S, limit_s):
            paused, limit = together("pause_s", paused_s, limit_s)
            text = f"a load process of {host} did not run for {paused} (limit {limit})"
            yield ValidityFinding(check=f"pause:load@{host}", ok=False, evidence=text, voids=paused_s >= limit_s)
    yield from judge_silences(seen)


def judge_silences(seen: Observed) -> Iterator[ValidityFinding]:
    """A finding for each agent that did not answer for longer than usual."""
    for host, silent_s in seen.silences.items():
        if silent_s >= SILENCE_TOLD_S:
            silent = quantity(silent_s, "silent_s")
            text = f"no answer from {host} for {silent}: its agent, the network or this coordinator stood still"
            yield ValidityFinding(check=f"pause:agent@{host}", ok=False, evidence=text, voids=False)
