"""Make the tasks of agents from a stage of the plan: task, host, share of the load, deadline. Pure.

Data flow: `decide`, `iteration` and others call this module for the tasks of a step -> each task gets a key -> the
agents. A key is `run/stage/rung/repeat/attempt/what/host` with the attempt `<epoch>.<number>`: the keys of a resumed
coordinator differ from those of its predecessor.
"""

from __future__ import annotations

import dataclasses
import hashlib
import zlib
from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping

from proveout.coordinator.measure.load_merge import Distribution, load_hosts, load_shares, present_hosts
from proveout.coordinator.schedule.state import State
from proveout.dsl import engines
from proveout.dsl.operations.table import operation_of
from proveout.dsl.plan import slices
from proveout.dsl.plan.captures import CAPTURES
from proveout.dsl.plan.loads import Part, declared, parts
from proveout.dsl.plan.plan import Plan, Workload, all_tunings
from proveout.dsl.plan.stages import (
    Arrival,
    Closed,
    CommandRun,
    Drop,
    Ladder,
    Phased,
    Populate,
    Reboot,
    Reset,
    Search,
    Think,
    Tool,
    Tuning,
    Windows,
    measured_from_s,
)
from proveout.dsl.plan.topology import Capture, System
from proveout.dsl.workloads.kinds import expected_rows
from proveout.proto.events import IterationId
from proveout.proto.wire.tasks import (
    ApplyTuning,
    Endpoint,
    InjectFault,
    LoadPool,
    LoadShare,
    PopulateSystem,
    RevertTuning,
    RunCapture,
    RunFio,
    RunLoad,
    TaskSpec,
)

DRAIN_TIMEOUT_S = 120.0
_ROWS_PER_S_MIN = 2_000.0


def propagations(plan: Plan) -> tuple[tuple[System, System], ...]:
    """Each (source, sink) of the plan that proveout sets up and compares."""
    sources = (s for s in plan.systems if not s.propagates_by_itself)
    return tuple((s, plan.system(s.propagates_to)) for s in sources if s.propagates_to is not None)


def start_order(plan: Plan) -> tuple[System, ...]:
    """The systems in start order: each sink before its source, each one that others follow before them."""
    ordered: list[System] = []

    def visit(system: System) -> None:
        if system in ordered:
            return
        if system.propagates_to is not None and system.propagates_to != system.name:
            visit(plan.system(system.propagates_to))
        if system.follows is not None:
            visit(plan.system(system.follows))
        ordered.append(system)

    for system in plan.systems:
        visit(system)
    return tuple(ordered)


def populate_stages_of(plan: Plan, system: str) -> tuple[Populate, ...]:
    """The stages that load a system, in order."""
    return tuple(s for s in plan.stages if isinstance(s, Populate) and system in s.into)


def links_after_populate(plan: Plan, stage: Populate) -> tuple[tuple[System, System, bool], ...]:
    """Propagations to set up after a populate: (source, sink, whether the sink gets its rows from the source)."""
    return tuple(
        (source, sink, sink.name not in stage.into) for source, sink in propagations(plan) if source.name in stage.into
    )


def snapshots_after_populate(plan: Plan, stage: Populate) -> tuple[System, ...]:
    """Systems that a populate filled and a later reset restores from a copy; sources before sinks."""
    later = plan.stages[plan.stages.index(stage) + 1 :]
    restored = {name for s in later if isinstance(s, Reset) and s.restore for name in s.systems}
    filled = set(stage.into) | {sink.name for _, sink, _ in links_after_populate(plan, stage)}
    return tuple(s for s in reversed(start_order(plan)) if s.name in restored & filled and s.can_be_restored)


def is_dispensable(plan: Plan, host: str, without: Collection[str], finished: Container[str]) -> bool:
    """Whether a run can continue without a host: no system is on it, no remaining stage runs a command on it or reboots
    it, and each keeps a client."""
    left = [stage for stage in plan.stages if stage.id not in finished]
    groups = [part.stage.clients for stage in left if isinstance(stage, Ladder | Search) for part in parts(stage)]
    groups += [stage.clients for stage in left if isinstance(stage, Populate | Drop | Tool)]
    groups += [(name,) for stage in left if isinstance(stage, Reboot) for name in stage.hosts]
    groups += [(stage.host,) for stage in left if isinstance(stage, CommandRun)]
    return all(s.host != host for s in plan.systems) and all(present_hosts(group, {*without, host}) for group in groups)


def task_key(run_id: str, slot: tuple[str, int, int, str], what: str, host: str) -> str:
    """The key of a task; `slot` is (stage, rung, repeat, attempt)."""
    stage, rung, repeat, attempt = slot
    return f"{run_id}/{stage or '-'}/{rung}/{repeat}/{attempt}/{what}/{host}"


def iteration_seed(workload: Workload, iteration: IterationId, load: str = "") -> int:
    """The random seed of a load in an iteration: the same in every run, and different for each iteration, attempt and
    load of a run.

    Attempts differ because a second attempt could not insert the same keys again; so do loads of the same time.
    """
    base = dict(workload.parameters).get("seed")
    return zlib.crc32(f"{base}/{iteration}{'/' if load else ''}{load}".encode())


def load_tasks(
    plan: Plan,
    stage: Ladder | Search,
    *,
    iteration: IterationId,
    rate: float | None,
    windows: Windows,
    endpoints: Mapping[str, Endpoint],
    cores: Mapping[str, int],
    without: Collection[str] = (),
) -> tuple[tuple[str, RunLoad], ...]:
    """The loads of an iteration: of each load one task for each client host with a share. The remaining hosts share the
    load of lost ones; the loads of a host share its cores. A load that runs alone has the workers that it has among the
    others."""
    loads, pool = parts(stage), stage.pool
    crowd = Counter(host for part in declared(stage) for host in load_hosts(part.stage, without))
    if in_turns := isinstance(stage, Ladder) and stage.versus_s > 0.0:
        windows, crowd = slices.windows(stage, windows), Counter(crowd.keys())
    return tuple(
        (
            host,
            RunLoad(
                workload=plan.workload(part.stage.workload),
                endpoint=endpoints[part.stage.target].among(endpoints, part.members(plan)),
                share=_in_slices(stage, iteration.slot, part, share) if in_turns else _arriving(part.arrival, share),
                windows=windows,
                workers=_workers(stage, share, max(cores.get(host, 1) // crowd[host], 1)),
                seed=iteration_seed(plan.workload(part.stage.workload), iteration, part.name),
                label=f"{iteration}/{part.name}" if part.name else str(iteration),
                pool=LoadPool(kind=pool.kind, address=pool.address, placement=pool.placement),
                session=part.stage.session,
                sessions=part.stage.sessions,
                load=part.name,
                tracked=part.stage.tracked,
                checked=part.stage.checked,
                bins=isinstance(stage, Ladder) and bool(stage.faults),
            ),
        )
        for part in loads
        for host, share in _hosts_shares(part, iteration.rung, rate, without).items()
    )


def populate_tasks(state: State, stage: Populate, system: str) -> tuple[tuple[tuple[str, PopulateSystem], ...], ...]:
    """The waves of tasks that load a system: one task where one host loads; else the first host prepares the tables,
    each loads a share of the keys in proportion to its workers, and the first one finishes.

    An engine with a limited number of workers is loaded by the first host. The load has the same id when the run
    resumes with the same release, which makes the same rows.
    """
    progress, endpoint = state.progress, state.endpoints[system]
    hosts = present_hosts(stage.clients, progress.without)
    workers = {host: stage.workers or progress.cores.get(host, 1) for host in hosts}
    version = progress.started.version if progress.started else ""
    load = hashlib.sha256(f"{version}/{state.setup.run_id}/{stage.id}/{system}".encode()).hexdigest()[:32]
    whole = PopulateSystem(
        workload=state.plan.workload(stage.workload), endpoint=endpoint, workers=workers[hosts[0]], load=load
    )
    if len(hosts) == 1 or engines.of(endpoint.engine).populate_workers_max is not None:
        return (((hosts[0], whole),),)
    shares, begin, total = [], 0, sum(workers.values())
    for host, count in workers.items():
        share = dataclasses.replace(whole, workers=count, share_from=begin, share_to=begin + count, shares=total)
        shares.append((host, dataclasses.replace(share, steps=("load",))))
        begin += count
    prepare = dataclasses.replace(whole, steps=("prepare",), workers=1)
    finish = dataclasses.replace(whole, steps=("finish",))
    return ((hosts[0], prepare),), tuple(shares), ((hosts[0], finish),)


def _hosts_shares(part: Part, rung: int, rate: float | None, without: Collection[str]) -> dict[str, LoadShare]:
    distribution: Distribution = "constant" if isinstance(part.arrival, Closed) else part.arrival.distribution
    return load_shares(load_hosts(part.stage, without), part.threads(rung), part.rate(rate), distribution)


def _workers(stage: Ladder | Search, share: LoadShare, cores: int) -> int:
    """The number of worker processes of a share; 0 for a Ray pool that uses all CPUs of its cluster."""
    if stage.pool.kind == "local":
        return min(share.count, stage.workers or cores)
    return min(share.count, stage.pool.workers or stage.workers or 0)


def _arriving(arrival: Arrival, share: LoadShare) -> LoadShare:
    """A share with the load's levels and think time."""
    if isinstance(arrival, Phased):
        rate = None if arrival.of == "threads" else arrival.levels[0].first
        share = dataclasses.replace(share, rate=rate, levels=arrival.levels)
    match arrival:
        case Closed(think=Think() as think) | Phased(think=Think() as think):
            return dataclasses.replace(share, think_s=think.mean_s, think=think.distribution)
    return share


def _in_slices(stage: Ladder | Search, slot: str, part: Part, share: LoadShare) -> LoadShare:
    """A share of a load that takes turns with the others in slices."""
    assert isinstance(stage, Ladder)  # noqa: S101 - others have no `versus`
    level = slices.level(stage, slot, part.name, share.total if share.rate is None else share.rate)
    if share.rate is not None:
        return _arriving(Phased(levels=(level,), distribution=share.distribution), share)
    think = part.arrival.think if isinstance(part.arrival, Closed) else None
    return _arriving(Phased(levels=(level,), of="threads", think=think), share)


def fault_tasks(state: State, stage: Ladder, iteration: IterationId) -> tuple[tuple[str, InjectFault], ...]:
    """The faults of an iteration: of each fault one task for each host that it changes. All hosts begin a fault at the
    same instants, and so does another attempt."""
    plan = state.plan
    return tuple(
        (
            host,
            InjectFault(
                fault=fault.name,
                tunings=mine,
                for_s=fault.for_s,
                begins_s=tuple(measured_from_s(stage.windows) + begin_s for begin_s in fault.begins_s(iteration.slot)),
                windows=stage.windows,
                label=str(iteration),
                endpoints=tuning_endpoints(systems, state.ends),
                systems=tuple(plan.system(name) for name in systems if plan.system(name).provision is not None),
                data_root=state.setup.data_root,
            ),
        )
        for fault in stage.faults
        for host in present_hosts(fault.hosts, state.progress.without)
        if (mine := tuple(tuning for tuning in fault.tunings if host in tuning.hosts))
        for systems in (tuple(dict.fromkeys(tuning.system for tuning in mine if tuning.system)),)
    )


def tool_tasks(state: State, stage: Tool, iteration: IterationId) -> tuple[tuple[str, RunFio], ...]:
    """The fio run of each host for a rung; every host works on its own slices of the devices."""
    slices = -(-stage.job.jobs // len(stage.job.devices)) if stage.job.devices else 0
    return tuple(
        (
            host,
            RunFio(
                job=stage.job,
                iodepth=iteration.rung,
                windows=stage.windows,
                label=str(iteration),
                data_root=tool_data_root(state, host),
                first_slice=stage.clients.index(host) * slices,
            ),
        )
        for host in present_hosts(stage.clients, state.progress.without)
    )


def tool_data_root(state: State, host: str) -> str:
    """The folder of a host's files: on this machine the run directory, because /tmp may be in memory; "" elsewhere."""
    return state.setup.data_root if state.plan.host(host).is_local else ""


def tools_on(plan: Plan, host: str) -> tuple[str, ...]:
    """The outside programs that a host needs for the plan."""
    found = (s.program for s in plan.stages if isinstance(s, Tool) and host in s.clients)
    return tuple(dict.fromkeys(found))


def capture_tasks(state: State, names: Iterable[str], windows: Windows) -> tuple[tuple[str, RunCapture], ...]:
    """The capture tasks by host: os and prometheus on their hosts, waits on its system's host, lag on the source's,
    with both endpoints.

    Captures of kind os sample at the edges of the measure window too, and those that make a report take their snapshots
    there. Those of lag never do: points that are not evenly spaced would disturb its slope.
    """
    # in a window of passes, captures are finished when the loads have ended
    edges_s = (measured_from_s(windows), *(() if windows.passes else (windows.measured_to_s,)))
    found = (item for name in names for item in _capture(state.plan, state.plan.capture(name), state.ends))
    return tuple(
        (host, dataclasses.replace(spec, edges_s=edges_s) if CAPTURES[spec.capture.kind].at_edges else spec)
        for host, spec in found
        if host not in state.progress.without
    )


def _capture(plan: Plan, capture: Capture, endpoints: Mapping[str, Endpoint]) -> tuple[tuple[str, RunCapture], ...]:
    if capture.system is None:
        ends = [endpoints[exporter_name(capture)]] if CAPTURES[capture.kind].of == "exporter" else []
        # Each host receives only its own name: a thousand hosts with a list of a thousand are six megabytes.
        alone = ((host, dataclasses.replace(capture, hosts=(host,))) for host in capture.hosts)
        return tuple((host, RunCapture(capture=mine, endpoints=tuple(ends))) for host, mine in alone)
    system = plan.system(capture.system)
    ends = [endpoints[system.name]]
    has_sink = CAPTURES[capture.kind].endpoints == 2
    if has_sink and system.propagates_to is not None:
        ends.append(endpoints[system.propagates_to])
    elif has_sink and system.standby_of is not None:
        ends.insert(0, endpoints[system.standby_of])
    return ((system.host, RunCapture(capture=capture, endpoints=tuple(ends))),)


def exporter_name(capture: Capture) -> str:
    """The name of a prometheus capture's endpoint, distinct from those of systems, which have no colon."""
    return f"capture:{capture.name}"


def admin_name(system: str) -> str:
    return f"admin:{system}"


def tuning_endpoints(names: Iterable[str], endpoints: Mapping[str, Endpoint]) -> tuple[Endpoint, ...]:
    """How to reach systems to change them: by `admin` where they have one."""
    return tuple(endpoints.get(admin_name(name)) or endpoints[name] for name in names if name in endpoints)


def task_deadline_s(spec: TaskSpec, plan: Plan | None = None) -> float:
    """The time limit of a task in seconds; reports of progress move it (`deadline_after_progress_s`). Reverts have the
    time that the tunings of the `plan` may take."""
    changed: Iterable[Tuning] = spec.tunings if isinstance(spec, ApplyTuning | InjectFault) else ()
    if isinstance(spec, RevertTuning) and plan is not None:
        changed = all_tunings(plan)
    rows = 0.0 if spec.rows_of is None else expected_rows(spec.rows_of)
    longest_s = sum(operation_of(tuning).longest_s for tuning in changed)
    return spec.limit_s + spec.more_s + rows / _ROWS_PER_S_MIN + longest_s
