"""The plan, the evaluator and the checks of the tests that simulate whole runs with `run_simulator`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from records import ladder_stage, plan_of, search_stage
from run_simulator import Evaluator, Fault, Simulation, World, finished

from proveout.coordinator.results.results import stage_metrics
from proveout.coordinator.schedule import rate_search
from proveout.coordinator.schedule.state import (
    ConditionResult,
    RunProgress,
    SearchReplayed,
    Summarise,
    Undecided,
    Unresolved,
    run_progress,
)
from proveout.dsl.plan.plan import Check, OnLoss, Plan, Workload
from proveout.dsl.plan.stages import Ladder, Open, Pause, Populate, Reset, Search, Sql, Stage, Windows
from proveout.dsl.plan.topology import Capture, Expression, Host, System
from proveout.proto import events

HOSTS = ("db1", "cache1", "client1", "client2")
BACKEND = {"workload": "hlr", "target": "backend", "clients": ("client1", "client2")}
STAGES: tuple[Stage, ...] = (
    Populate(id="load", workload="hlr", into=("backend", "cache"), clients=("client1", "client2")),
    Sql(id="prepare", system="backend", statements=("analyze", "select 1")),
    ladder_stage(
        "baseline",
        **BACKEND,
        threads=(1, 2, 4, 8),
        repeat=2,
        captures=("os", "waits"),
        stop_when=Expression(text="rung.tps > 3.0"),
    ),
    Reset(id="back", systems=("backend", "cache")),
    Pause(id="breathe", duration_s=5.0),
    search_stage(
        "lag",
        workload="hlr",
        target="cache",
        clients=("client1",),
        rate_to=Expression(text="baseline.peak", needs=("baseline",)),
        confirm=Windows(ramp_up_s=1, measure_s=9, ramp_down_s=1),
        captures=("lag",),
    ),
    ladder_stage(
        "cached",
        **BACKEND | {"target": "cache"},
        arrival=Open(rate=Expression(text="cap.rate", needs=("cap",))),
        repeat=2,
        captures=("lag",),
    ),
)
PLAN = plan_of(
    *STAGES,
    hosts=tuple(Host(name=name, roles=("any",), address="local") for name in HOSTS),
    systems=(
        System(name="cache", engine="postgres", host="cache1", provision="embedded", propagates_to="backend"),
        System(name="backend", engine="postgres", host="db1", provision="embedded"),
    ),
    workloads=(Workload(name="hlr", kind="hlr", parameters=(("population", 1000), ("seed", 7))),),
    captures=(
        Capture(name="os", kind="os", every_s=1.0, hosts=HOSTS),
        Capture(name="waits", kind="waits", every_s=1.0, system="backend"),
        Capture(name="lag", kind="lag", every_s=0.5, system="cache"),
    ),
    verdicts=(Check(id="v", check=Expression(text="true")),),
)


class Model(Evaluator):
    """An evaluator and a model of the system under test: its capacity is 3000/s, iterations are valid except those in
    `invalid`, and a ladder with `stop_when` stops above 3 threads."""

    def __init__(
        self,
        capacity: float = 3000.0,
        invalid: frozenset[str] = frozenset(),
        decided_after: int = 1,
        chance: float = 1.0,
    ) -> None:
        super().__init__(PLAN)
        self.capacity, self.invalid, self.decided_after, self.chance = capacity, invalid, decided_after, chance

    def work(self, command: Summarise) -> events.IterationFinished:
        assert all(result is not None for result in command.loads.values())
        slot = f"{command.id.stage}/{command.id.rung}/{command.id.repeat}"
        rate = command.rate or 0.0
        metrics = {"tps": float(command.id.rung), "ok": rate <= self.capacity}
        return finished(command, metrics, valid=slot not in self.invalid)

    def number(self, value: float | Expression, progress: RunProgress) -> float | Unresolved:
        if isinstance(value, float):
            return value
        if value.text == "baseline.peak":
            return 10_000.0
        rate = progress.searches["cap"].rate
        return Unresolved(reason="cap found no rate") if rate is None else rate

    def condition(self, when: Expression, progress: RunProgress) -> ConditionResult | Unresolved:
        """Evaluate `yes`, `no`, or `<stage> ended`; other texts are unresolved."""
        if when.text in ("yes", "no"):
            return ConditionResult(holds=when.text == "yes", evidence=f"{when.text}, by the model")
        stage, _, rest = when.text.partition(" ")
        ended = progress.stages_finished.get(stage) if rest else None
        return ConditionResult(holds=ended.outcome == "ok", evidence="") if ended else Unresolved(reason="no data")

    def stops(self, stage: Ladder, iteration: events.IterationFinished) -> str | None:
        return "too many" if stage.stop_when and iteration.metrics["tps"] > 3.0 else None

    def undecided(self, ladders: tuple[Ladder, ...], progress: RunProgress, repeat: int) -> tuple[Undecided, ...]:
        """Return an undecided verdict until `decided_after` repeats; check that only complete repeats are passed."""
        for ladder in ladders:
            ended = {(i.id.rung, i.id.repeat) for i in progress.of_stage(ladder.id) if i.id.repeat <= repeat}
            assert len({number for _, number in ended}) == repeat, "a look comes after a whole repeat"
        return () if repeat >= self.decided_after else (Undecided(id="v", chance=self.chance, within=0.012),)

    def replay(
        self, stage: Search, rates: rate_search.Rates, probes: tuple[events.IterationFinished, ...]
    ) -> SearchReplayed:
        state = rate_search.begin(stage, rates)
        for probe in probes:
            state = rate_search.record(state, rate_search.Judgement(accepted=bool(probe.metrics["ok"]), evidence=""))
        reports = tuple(
            events.ProbeFinished(
                stage=stage.id,
                probe=t.probe.number,
                phase=t.probe.phase,
                rate=t.probe.rate,
                accepted=bool(t.accepted),
                evidence="",
            )
            for t in state.tried
        )
        due = rate_search.next_probe(state)
        if isinstance(due, rate_search.Probe):
            return SearchReplayed(reports=reports, next=due)
        end = events.SearchFinished(
            stage=stage.id, rate=due.rate, probes=due.probes, reason=due.reason, upper=due.upper
        )
        return SearchReplayed(reports=reports, next=end)

    def metrics(self, stage: Stage, progress: RunProgress, seconds: float) -> events.Metrics:
        found = stage_metrics(stage, progress.results, seconds=seconds) if isinstance(stage, Sql) else {}
        return {**found, "n": len(progress.of_stage(stage.id))}

    def provisional_verdicts(self, progress: RunProgress, stage: str) -> tuple[events.VerdictForeseen, ...]:
        """Return the opposite of `verdicts`, so that a use of provisional verdicts in results would be found."""
        evidence = f"{len(progress.stages_finished)} stages"
        return tuple(
            events.VerdictForeseen(id=c.id, title="", severity="fail", outcome="FAIL", evidence=evidence)
            for c in PLAN.verdicts
        )


def simulate(
    plan: Plan = PLAN,
    model: Model | None = None,
    *faults: Fault,
    world: World | None = None,
    epoch: int = 1,
    kind: type[Simulation] = Simulation,
) -> Simulation:
    model = model or Model()
    simulation = kind(plan, model, model.work, world=world, epoch=epoch, faults=faults)
    simulation.run()
    return simulation


def completed(plan: Plan = PLAN, model: Model | None = None, *faults: Fault, **more: Any) -> World:
    """The world of a run that has finished and has left nothing."""
    simulation = simulate(plan, model, *faults, **more)
    end = assert_ended(simulation)
    assert (end.status, end.exit_code) == ("finished", 0), end.reason
    return simulation.world


def assert_ended(simulation: Simulation) -> events.RunFinished:
    """Check that the run has ended and that no task, system or data is left; return its last event."""
    world = simulation.world
    last = world.events[-1]
    assert isinstance(last, events.RunFinished)
    assert not world.running
    assert not world.systems
    assert not world.hosts
    assert not world.wrongs
    assert not any(world.tuned.values())
    assert run_progress(world.events).open_iteration is None
    assert bool(world.data) <= (last.status != "finished")
    return last


OTHER = ladder_stage("other", **BACKEND, threads=(1, 2, 4), repeat=2, order="interleaved", interleaved_with="first")
FIRST = replace(OTHER, id="first", order="shuffled", interleaved_with=None, seed=2)


def of_ladders(*ladders: Ladder, on_loss: OnLoss = "rerun") -> Plan:
    return replace(PLAN, stages=(STAGES[0], *ladders), on_loss=on_loss)
