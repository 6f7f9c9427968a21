"""`stages:` -> the plan's stages: names resolved, defaults filled in, rates typed, fio jobs of `tool` stages.

Expressions come later (`compiler`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from proveout.core.data_classes import dataclass
from proveout.core.numbers import Sought
from proveout.dsl import engines
from proveout.dsl.compile.loads import (
    Lengths,
    check_loads,
    check_versus,
    compile_arrival,
    compile_loads,
    compile_phases,
    compile_rate,
)
from proveout.dsl.compile.matrix import Place
from proveout.dsl.compile.sections import command_stage, sql_stage
from proveout.dsl.compile.symbols import Draft, Scope, StageNames, not_deeper, settings_as_text
from proveout.dsl.compile.topology import plain_settings
from proveout.dsl.compile.tuning import check_faults, compile_faults, compile_tunings
from proveout.dsl.plan.commands import FioJob
from proveout.dsl.plan.keys import made
from proveout.dsl.plan.loads import highest
from proveout.dsl.plan.scalars import THREADS_MAX, WEEK_S
from proveout.dsl.plan.stages import (
    KINDS,
    Cell,
    Closed,
    CommandRun,
    Ladder,
    Limits,
    Pool,
    Populate,
    Reboot,
    Reset,
    Restart,
    Search,
    Sql,
    Stage,
    Tool,
    Tune,
    Windows,
)
from proveout.dsl.plan.topology import Host
from proveout.dsl.rules.host_rules import fio_problems
from proveout.dsl.rules.repeat_rules import pass_problems
from proveout.dsl.rules.session_settings import setting_objections
from proveout.dsl.schema import stage_models
from proveout.dsl.schema.validation import fields, salvage, validate
from proveout.dsl.source.nodes import Map, Node, Scalar, Seq, did_you_mean

# Source of the patterns: the four Iometer patterns of the storage study (4k random read; 8k random, 70 % read; 1 MiB
# sequential read; 1 MiB sequential write).

_MIB = 1024 * 1024
PATTERNS = {
    "random-read-4k": (True, 4096, 1.0),
    "mixed-8k-70-30": (True, 8192, 0.7),
    "sequential-read-1m": (False, _MIB, 1.0),
    "sequential-write-1m": (False, _MIB, 0.0),
}
"""Pattern -> (random, bytes of an I/O, share of reads)."""
SERVING_ROLES = frozenset({"server", "storage"})
SPOILED = {
    "search": (
        "probes of a search judge rates, which a fault would spoil",
        "a ladder with `faults` at the rate that the search finds: rate: ${…}",
    ),
    "tool": ("a tool has no system", "a ladder with `faults`"),
}
"""Kinds of stages that cannot have faults: why, and the way out."""


def compile_stages(scope: Scope, section: Node | None, root: Map, places: Sequence[Place]) -> list[Draft]:
    """All stages in order, the broken ones without a `stage`; one that is not even a stage has no id either.

    `places` are those of the section's entries, from `matrix.expand`.
    """
    if not isinstance(section, Seq) or not section.items:
        where = section.where if section is not None else root.where
        scope.problems.add(where, "a plan needs a list of stages", key="stages", hint="- ladder: {…}")
        return []
    entries = [
        (place, None if place.broken else _body(scope, item, place.index))
        for item, place in zip(section.items, places, strict=True)
    ]
    kinds = Counter(body[0] for place, body in entries if body is not None and not (place.step_of or place.alone))
    drafts: list[Draft] = []
    for place, body in entries:
        if body is None:
            drafts.append(Draft(id="", body=root, stage=None, index=place.index))
            continue
        kind, node = body
        named = node.get("id")
        stage_id = named.text if isinstance(named, Scalar) else kind
        if place.alone:
            alone = _alone(stage_id, place, drafts)
            if any(draft.id == stage_id for draft in drafts):
                message = f"another stage has the id `{stage_id}`, which a load that runs alone has"
                scope.problems.add(node.where, message, key=f"stages.{place.index}.{kind}", hint="another id for it")
                alone = None
            drafts.append(Draft(id=stage_id, body=node, stage=alone, index=place.index))
            continue
        path = f"stages.{place.index}.{kind}"
        maker = _Stages(scope=scope, kind=kind, body=node, path=path, name=stage_id, start=node.where, cell=place.cell)
        drafts.append(maker.draft(place, drafts, kinds[kind]))
    return drafts


def _body(scope: Scope, item: Node, index: int) -> tuple[str, Map] | None:
    """(kind, body) of `- kind: {…}`."""
    first, *others = item.keys() if isinstance(item, Map) and item.entries else ("",)
    if isinstance(item, Map) and first in stage_models.STAGES and others:
        whole = set(others).isdisjoint(fields(stage_models.STAGES[first]))
        if not whole and not_deeper(item.entries, others, scope.problems):
            return None
    key = item.entries[0][0] if isinstance(item, Map) and len(item.entries) == 1 else None
    if not isinstance(item, Map) or key is None:
        where, message = item.where, "a stage is one kind with its settings"
        hint = f"- kind: {{…}}, kind one of {', '.join(stage_models.STAGES)}"
    elif key.text not in stage_models.STAGES:
        where, message = key.where, f"unknown stage `{key.text}`"
        hint = did_you_mean(key.text, stage_models.STAGES)
    elif isinstance(body := settings_as_text(item.entries[0][1]), Map):
        return key.text, body
    else:
        where, message, hint = key.where, f"`{key.text}` needs its settings", f"- {key.text}: {{…}}"
    scope.problems.add(where, message, key=f"stages.{index}", hint=hint)
    return None


def _alone(stage_id: str, place: Place, before: Sequence[Draft]) -> Ladder | None:
    """The ladder that runs one load of another ladder, which precedes it, alone and in turns with it."""
    whole = next((draft.stage for draft in before if draft.id == place.alone_of), None)
    if not isinstance(whole, Ladder):
        return None
    load = next(load for load in whole.loads if load.name == place.alone)
    return replace(
        whole,
        id=stage_id,
        clients=load.clients,
        order="interleaved",
        seed=None,
        interleaved_with=whole.id,
        stop_when=None,
        cell=None,
        alone=load.name,
    )


@dataclass(slots=True, kw_only=True)
class _Stages(StageNames):
    """Makes one stage of its model; None when a name in it does not resolve."""

    kind: str
    cell: Cell | None = None

    def draft(self, place: Place, before: Sequence[Draft], of_kind: int) -> Draft:
        """The stage at its place; there are `of_kind` of its kind."""
        model, named, node = stage_models.STAGES[self.kind], self.body.get("id"), self.body
        if self.kind in SPOILED and (faults := node.entry("faults")) is not None:
            why, hint = SPOILED[self.kind]
            self.note(f"faults are of a ladder: {why}", "faults", hint=hint, where=faults[0].where)
            node = replace(node, entries=tuple(entry for entry in node.entries if entry is not faults))
        entry = validate(model, node, self.path, self.scope.problems)
        broken = entry is None or node is not self.body
        unnamed = named is None and of_kind > 1
        # a matrix has its own id in expressions, beside those of its cells
        names = (self.name,) if self.cell is None else (self.name, self.cell.of)
        taken = {draft.id for draft in before}
        taken |= {draft.cell.of for draft in before if draft.cell is not None and self.cell is None}
        doubled = "" if unnamed else next((name for name in names if name in taken), "")
        if unnamed:
            hint = f"there are {of_kind} {self.kind} stages; expressions tell them apart by id"
            self.note(f"this {self.kind} stage needs an `id`", hint=hint)
        elif doubled:
            self.note(f"another stage has the id `{doubled}`", "id")
        self.partial = broken
        if entry is None:
            entry = salvage(model, node)
        stage = None if entry is None else self.of(entry)
        return Draft(
            id=self.name,
            body=self.body,
            stage=None if broken or unnamed or doubled else stage,
            index=place.index,
            cell=self.cell,
            step_of=place.step_of,
            side=place.side,
        )

    def of(self, entry: stage_models.StageBase) -> Stage | None:
        match entry:
            case stage_models.LadderKeys():
                return self.ladder(entry)
            case stage_models.SearchKeys():
                return self.search(entry)
            case stage_models.TuneEntry():
                return self.tune(entry)
            case stage_models.ToolKeys():
                return self.tool(entry)
        return self.plain(cast("Stage", made(KINDS[self.kind], entry, id=self.name, where=self.start)))

    def plain(self, written: Stage) -> Stage | None:
        """A stage whose keys are those of its record; None when a name in it is not there."""
        stage = self.resolved(written)
        match stage:
            case Populate():
                for name in stage.into:
                    self.reachable(self.scope.systems[name], stage.clients, "into")
            case Reset():
                if not (stage.restore or stage.checkpoint):
                    self.problem("this reset does nothing", hint="leave `restore` or `checkpoint` true")
                if stage.keep and not stage.restore:
                    self.problem("nothing is restored, so that all is kept", "keep", hint="leave `keep` out")
            case Restart():
                return self.restart(stage)
            case Reboot():
                for name in (name for name in stage.hosts if self.scope.hosts[name].is_local):
                    what = f"the agent of `{name}` is started by the run, and nothing starts it after a reboot"
                    hint = "an `address:` with an agent that is a service (`proveout agent --unit`)"
                    self.problem(what, "on", hint=hint)
            case Sql():
                return sql_stage(self, stage)
            case CommandRun():
                return command_stage(self, stage)
        return stage

    # ---- kinds ----

    def tune(self, entry: stage_models.TuneEntry) -> Tune | None:
        tunings = compile_tunings(self.scope, self.body.get("tuning"), f"{self.path}.tuning")
        whole = len(tunings) == len(entry.tuning)
        return Tune(id=self.name, tunings=tunings, where=self.start) if whole else None

    def tool(self, entry: stage_models.ToolKeys) -> Tool | None:
        clients, captures = self.clients(entry.from_), self.captures(entry.capture)
        random, block, reads = PATTERNS[entry.pattern]
        target, limits = entry.target or stage_models.ToolTarget.model_validate({}), entry.limits
        job = FioJob(
            random=random if entry.random is None else entry.random,
            block_bytes=block if entry.block is None else entry.block,
            read_fraction=reads if entry.read is None else entry.read,
            jobs=entry.jobs,
            size_bytes=entry.size,
            direct=entry.direct,
            directory=target.directory or "",
            devices=tuple(target.devices or ()),
            destructive=entry.destructive,
        )
        if self.object_to(fio_problems(job)) or clients is None or captures is None:
            return None
        is_whole = (job.random, job.block_bytes, job.read_fraction) == PATTERNS[entry.pattern]
        stage = made(
            Tool,
            entry,
            id=self.name,
            clients=clients,
            pattern=entry.pattern if is_whole else job.io,
            job=job,
            windows=Windows(ramp_up_s=entry.ramp_up, measure_s=entry.measure, ramp_down_s=0.0),
            captures=captures,
            limits=Limits(  # those of a load's threads do not concern a tool
                errors_fraction_max=limits.errors,
                start_skew_ms_max=limits.start_skew * 1e3,
                tps_slope_fraction_max=limits.iops_slope,
                tps_cv_max=limits.iops_cv,
                pause_s_max=limits.pause,
                void_fraction_max=limits.void,
            ),
            where=self.start,
        )
        self.rise(stage.iodepths, "iodepth")
        return stage

    def restart(self, stage: Restart) -> Restart | None:
        system = self.scope.systems[stage.system]
        if system.provision is None or engines.of(system.engine).embedded != "server":
            what, hint = "has no server", "session: {…}"
            if system.provision is None:
                what, hint = "runs already", "a tuning of its host with `restart: UNIT`"
            self.problem(f"`{system.name}` {what}, so proveout cannot restart it", "system", hint=hint)
            return None
        for name, value in stage.settings:
            self.object_to(setting_objections(system.engine, name, value, system.provision), "settings", name)
        settings = plain_settings(self, system.engine, stage.settings, "settings")
        return replace(stage, settings=tuple(sorted(settings.items())))

    def ladder(self, entry: stage_models.LadderKeys) -> Ladder | None:
        loads, captures = compile_loads(self, entry), self.captures(entry.capture)
        pool = self.pool(entry, loads)
        rungs = self.rungs(entry)
        phases = compile_phases(self, entry, rungs or (THREADS_MAX,)) if entry.phases is not None else None
        arrival = compile_arrival(self, entry, phases)
        windows = self.windows(entry, None if phases is None else phases[1])
        longest = replace(windows, measure_s=WEEK_S) if self.partial else windows
        faults = compile_faults(self, longest)
        if loads is None or rungs is None or pool is None or captures is None:
            return None
        if faults:
            check_faults(self, entry, faults, windows)
        stage = made(
            Ladder,
            entry,
            id=self.name,
            threads=rungs,
            windows=windows,
            arrival=arrival or Closed(),
            repeat=entry.repeat.most,
            repeat_min=entry.repeat.least,
            captures=captures,
            by_processes=entry.processes is not None,
            pool=pool,
            cell=self.cell,
            faults=faults or (),
            where=self.start,
            **loads,
        )
        if stage.stop_when is not None:
            stage = replace(stage, stop_when=replace(stage.stop_when, where=self.where("stop_when")))
        if entry.interference and len(stage.loads) < 2:
            message = f"{'one load' if stage.loads else 'a stage without `loads`'} has no interference with others"
            self.problem(message, "interference", hint="loads: two or more, or leave `interference` out")
        if stage.versus_s:
            check_versus(self, entry, stage)
        workers = max(rungs) if entry.processes is not None else stage.workers
        key = "threads" if entry.processes is None else "processes"
        check_loads(self, stage, min(rungs), key, processes=workers or 1)
        partner = self.partner(entry.with_, stage.order)
        whole = replace(stage, workers=workers, seed=self.seed(entry.seed, stage.order), interleaved_with=partner)
        return None if faults is None else whole

    def windows(self, entry: stage_models.LadderKeys, phases: Lengths | None) -> Windows:
        """Three lengths, the middle one perhaps in phases, or passes over a set of queries."""
        given = [key.text for key, _ in self.body.entries]
        loads = list((entry.loads or {}).values())
        names = dict.fromkeys([entry.workload, *(load.workload for load in loads)])
        known = [self.scope.workloads[name] for name in names if name in self.scope.workloads]
        paced = any(load.rate is not None for load in loads)
        self.object_to(pass_problems(given, entry.pool, known, paced=paced))
        if entry.passes is not None:
            return Windows(ramp_up_s=0.0, measure_s=entry.within, ramp_down_s=0.0, passes=entry.passes)
        if phases is None and self.body.get("recovered_within") is not None:
            self.problem("`recovered_within` is for phases", "recovered_within", hint="phases: […]")
        measure_s = entry.measure or 1.0 if phases is None else sum(length_s for _, length_s in phases)
        return Windows(
            ramp_up_s=entry.ramp_up.most_s,
            ramp_up_least_s=entry.ramp_up.least_s,
            measure_s=measure_s,
            ramp_down_s=entry.ramp_down,
            phases=phases or (),
        )

    def rungs(self, entry: stage_models.LadderKeys) -> tuple[int, ...] | None:
        """The rungs, in `threads` or in `processes`; a process that has one thread is a worker of its own."""
        key, given = ("threads", entry.threads) if entry.processes is None else ("processes", entry.processes)
        if given is None:
            self.problem("`threads` is required", hint="threads: [1, 2, 4], or processes: [1, 2, 4]")
            return None
        if entry.processes is not None and entry.threads is not None:
            self.problem("the rungs are either `threads` or `processes`", "processes", hint="leave one of them out")
        if entry.processes is not None and self.body.get("workers") is not None:
            self.problem("`processes` is the number of load processes", "workers", hint="leave `workers` out")
        self.rise(given, key)
        return tuple(given)

    def rise(self, rungs: Sequence[int], key: str) -> None:
        twice = next((rung for rung in rungs if rungs.count(rung) > 1), None)
        if list(rungs) != sorted(set(rungs)):
            what = "the rungs of a ladder go up" if twice is None else f"{twice} stands twice"
            self.problem(f"{key}: {what}", key, hint=f"each rung once, rising: {sorted(set(rungs))}")

    def seed(self, given: int | None, order: str) -> int | None:
        if given is not None and order != "shuffled":
            self.problem("nothing is drawn by this seed", "seed", hint="order: shuffled")
        return (1 if given is None else given) if order == "shuffled" else None

    def partner(self, partner: str | None, order: str) -> str | None:
        """The ladder that an interleaved one takes turns with; `repeat_rules` checks whether it can. The cells of a
        matrix take turns with each other (`matrix`)."""
        if self.cell is not None:
            if partner is not None:
                self.problem("the cells of a matrix take turns with each other", "with", hint="leave `with` out")
            return None
        if partner is not None and order != "interleaved":
            self.problem("`with` is for an interleaved ladder", "with", hint="order: interleaved")
        if partner is None and order == "interleaved":
            self.problem("an interleaved ladder takes turns with another one", "order", hint="with: its id")
        return partner if order == "interleaved" else None

    def search(self, entry: stage_models.SearchKeys) -> Search | None:
        loads, captures = compile_loads(self, entry), self.captures(entry.capture)
        pool = self.pool(entry, loads)
        sought: stage_models.SearchRange | stage_models.ThreadRange | None = entry.rate
        over: Sought = "rate"
        if isinstance(entry.threads, stage_models.ThreadRange):
            over, sought = "threads", entry.threads
            if entry.rate is not None:
                self.problem(
                    "a search is for a rate or for threads", "rate", hint="leave it out, or give one number of threads"
                )
        if sought is None:
            self.problem(
                "the search has no range", "threads", hint="rate: {from: …, to: …}, or threads: {from: …, to: …}"
            )
            return None
        low, high = compile_rate(self, sought.from_, over, "from"), compile_rate(self, sought.to, over, "to")
        start = None if sought.start is None else compile_rate(self, sought.start, over, "start")
        if isinstance(low, float) and isinstance(high, float) and low >= high:
            self.problem("the search has no range: `from` is not below `to`", over, "from")
        below = isinstance(start, float) and isinstance(low, float) and start < low
        if below or (isinstance(start, float) and isinstance(high, float) and start > high):
            self.problem("the search starts outside its range", over, "start", hint="between `from` and `to`")
        if loads is None or pool is None or captures is None or low is None or high is None:
            return None
        stage = made(
            Search,
            entry,
            id=self.name,
            rate_from=low,
            rate_to=high,
            rate_start=start,
            probe=Windows(ramp_up_s=entry.settle, measure_s=entry.measure, ramp_down_s=0.0),
            confirm=Windows(ramp_up_s=entry.confirm.ramp_up, measure_s=entry.confirm.measure, ramp_down_s=0.0),
            tolerance_fraction=sought.tolerance,
            over=over,
            threads=entry.threads if isinstance(entry.threads, int) else entry.threads.to,
            confirmations=entry.confirm.times,
            captures=captures,
            pool=pool,
            where=self.start,
            **loads,
        )
        if stage.around is not None and over == "rate":
            hint = "threads: {from: …, to: …}, and no `rate`"
            self.problem("the ladder around an answer is one of threads", "then", hint=hint)
        elif (most := highest(stage)) > THREADS_MAX:
            message = f"the ladder around an answer would have up to {most:,} threads; at most {THREADS_MAX:,} may be"
            self.problem(message, "then", hint="a lower `to`, or lower shares")
        if over == "threads" and self.body.get("arrival") is not None:
            hint = "leave `arrival` out, or rate: {from: …, to: …}"
            self.problem("a search for threads has closed arrival", "arrival", hint=hint)
        if stage.probes_max <= stage.confirmations:
            message = f"{stage.probes_max} probes leave none to search with: {stage.confirmations} confirm the answer"
            self.problem(message, "probes_max", hint="a higher `probes_max`, or fewer `confirm.times`")
        lowest = sought.from_ if isinstance(sought, stage_models.ThreadRange) else stage.threads
        check_loads(self, stage, lowest, "threads", processes=stage.workers or 1)
        return replace(stage, accept=replace(stage.accept, where=self.where("accept")))

    def pool(self, entry: stage_models.Measured, loads: Mapping[str, Any] | None) -> Pool | None:
        """The pool of a stage that measures. Ray runs code of every client that connects, so never beside a database or
        storage."""
        pool = self.resolve("pool", entry.pool, self.scope.pools, "pool")
        if pool is None or pool.kind != "ray" or loads is None:
            return pool
        if loads.get("loads"):
            self.problem("a Ray pool has one load at a time", "pool", hint="pool: local, or a stage for each load")
        for name in () if pool.address else loads["clients"]:
            host = self.scope.hosts[name]
            if not host.is_local and (neighbour := self._beside(host)):
                message = f"Ray would run on `{name}`, {neighbour}"
                self.problem(message, "pool", hint="make the load from other hosts, or use `pool: local`")
        return pool

    def _beside(self, host: Host) -> str:
        """The reason to keep Ray away from a host: a database of the plan, or the role that it has; "" when nothing
        does."""
        for system in self.scope.systems.values():
            if system.host == host.name:
                return f"beside the database `{system.name}`"
        serving = [role for role in host.roles if role in SERVING_ROLES]
        return f"whose role is `{serving[0]}`" if serving else ""
