"""Whole runs against simulated agents: an end is always reached, nothing is left running, a resume changes no result."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from proveout.coordinator import invariants, search
from proveout.coordinator.exchange import Held, ProbeDue, SearchReplayed, Summarise, Unresolved
from proveout.coordinator.facts import Facts, of
from proveout.coordinator.simulator import Fault, FaultKind, Simulation, World, finished
from proveout.dsl.plan import (
    Capture,
    Check,
    Condition,
    Expression,
    Host,
    Ladder,
    OnLoss,
    Open,
    Pause,
    Plan,
    Populate,
    Reset,
    Search,
    Sql,
    Stage,
    System,
    Windows,
    Workload,
)
from proveout.dsl.workloads import parameters
from proveout.proto import events
from proveout.proto.messages import CheckInvariants, InvariantCheck, InvariantsChecked, RunLoad, Task, TaskResult

CAPACITY = 3000.0
WINDOWS = Windows(ramp_up_s=1, measure_s=3, ramp_down_s=1)
HOSTS = ("db1", "cache1", "client1", "client2")
STAGES: tuple[Stage, ...] = (
    Populate(id="load", workload="hlr", into=("backend", "cache"), clients=("client1", "client2")),
    Sql(id="prepare", system="backend", statements=("analyze", "select 1")),
    Ladder(
        id="baseline",
        workload="hlr",
        target="backend",
        clients=("client1", "client2"),
        threads=(1, 2, 4, 8),
        windows=WINDOWS,
        repeat=2,
        captures=("os", "waits"),
        stop_when=Expression(text="rung.tps > 3.0"),
    ),
    Reset(id="back", systems=("backend", "cache")),
    Pause(id="breathe", duration_s=5.0),
    Search(
        id="cap",
        workload="hlr",
        target="cache",
        clients=("client1",),
        threads=4,
        rate_from=500.0,
        rate_to=Expression(text="baseline.peak", needs=("baseline",)),
        accept=Expression(text="lag"),
        probe=WINDOWS,
        confirm=Windows(ramp_up_s=1, measure_s=9, ramp_down_s=1),
        captures=("lag",),
    ),
    Ladder(
        id="cached",
        workload="hlr",
        target="cache",
        clients=("client1", "client2"),
        threads=(4,),
        windows=WINDOWS,
        arrival=Open(rate=Expression(text="cap.rate", needs=("cap",))),
        repeat=2,
        captures=("lag",),
    ),
)
PLAN = Plan(
    name="p",
    title="t",
    parameters=(),
    hosts=tuple(Host(name=name, roles=("any",), address="local") for name in HOSTS),
    systems=(
        System(name="cache", engine="postgres", host="cache1", provision="embedded", propagates_to="backend"),
        System(name="backend", engine="postgres", host="db1", provision="embedded"),
    ),
    secrets=(),
    workloads=(Workload(name="hlr", kind="hlr", parameters=(("population", 1000), ("seed", 7))),),
    captures=(
        Capture(name="os", kind="os", every_s=1.0, hosts=HOSTS),
        Capture(name="waits", kind="waits", every_s=1.0, system="backend"),
        Capture(name="lag", kind="lag", every_s=0.5, system="cache"),
    ),
    stages=STAGES,
    verdicts=(Check(id="v", check=Expression(text="true")),),
)


class Model:
    """A judge and a system under test: capacity 3000/s; valid unless said otherwise; stops the ladder above 3 threads."""

    def __init__(
        self, capacity: float = CAPACITY, invalid: frozenset[str] = frozenset(), decided_after: int = 1
    ) -> None:
        self.capacity, self.invalid, self.decided_after = capacity, invalid, decided_after

    def work(self, command: Summarise) -> events.IterationFinished:
        assert all(result is not None for result in command.loads.values())
        slot = f"{command.id.stage}/{command.id.rung}/{command.id.repeat}"
        rate = command.rate or 0.0
        metrics = {"tps": float(command.id.rung), "ok": rate <= self.capacity}
        return finished(command, metrics, valid=slot not in self.invalid)

    def number(self, value: float | Expression, facts: Facts) -> float | Unresolved:
        if isinstance(value, float):
            return value
        if value.text == "baseline.peak":
            return 10_000.0
        rate = facts.searches["cap"].rate
        return Unresolved(reason="cap found no rate") if rate is None else rate

    def condition(self, when: Expression, facts: Facts) -> Held | Unresolved:
        """`yes`, `no`, or `<stage> ended`; anything else cannot be told."""
        if when.text in ("yes", "no"):
            return Held(holds=when.text == "yes", evidence=f"{when.text}, it says")
        stage, _, rest = when.text.partition(" ")
        ended = facts.stages_finished.get(stage) if rest else None
        return Held(holds=ended.outcome == "ok", evidence="") if ended else Unresolved(reason="no data")

    def stops(self, stage: Ladder, iteration: events.IterationFinished) -> str | None:
        return "too many" if stage.stop_when and iteration.metrics["tps"] > 3.0 else None

    def undecided(self, ladders: tuple[Ladder, ...], facts: Facts, repeat: int) -> tuple[str, ...]:
        """Undecided until `decided_after` repeats; counts only what the look may see."""
        for ladder in ladders:
            ended = {(i.id.rung, i.id.repeat) for i in facts.of_stage(ladder.id) if i.id.repeat <= repeat}
            assert len({number for _, number in ended}) == repeat, "a look comes after a whole repeat"
        return () if repeat >= self.decided_after else ("v",)

    def replay(
        self, stage: Search, rate_from: float, rate_to: float, probes: tuple[events.IterationFinished, ...]
    ) -> SearchReplayed:
        state = search.begin(stage, rate_from, rate_to)
        for probe in probes:
            state = search.record(state, bool(probe.metrics["ok"]), "")
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
        due = search.next_probe(state)
        if isinstance(due, search.Probe):
            return SearchReplayed(reports=reports, next=ProbeDue(number=due.number, phase=due.phase, rate=due.rate))
        end = events.SearchFinished(stage=stage.id, rate=due.rate, probes=due.probes, reason=due.reason)
        return SearchReplayed(reports=reports, next=end)

    def metrics(self, stage: Stage, facts: Facts, seconds: float, rows: int) -> events.Metrics:
        return {"rows": rows, "n": len(facts.of_stage(stage.id))}

    def foreseen(self, facts: Facts) -> tuple[events.VerdictForeseen, ...]:
        """The contrary of what `verdicts` comes to: nothing may stand on it."""
        evidence = f"{len(facts.stages_finished)} stages"
        return tuple(
            events.VerdictForeseen(id=c.id, title="", severity="fail", outcome="FAIL", evidence=evidence)
            for c in PLAN.verdicts
        )

    def verdicts(self, facts: Facts) -> tuple[events.VerdictReached, ...]:
        valid = [str(i.id) for i in facts.iterations if i.valid]
        return tuple(
            events.VerdictReached(
                id=c.id, title="", severity="fail", outcome="PASS", check="", evidence="", iterations=tuple(valid)
            )
            for c in PLAN.verdicts
        )

    def exit_code(self, verdicts: tuple[events.VerdictReached, ...]) -> int:
        return 0


def simulate(
    plan: Plan = PLAN, model: Model | None = None, *faults: Fault, world: World | None = None, epoch: int = 1
) -> Simulation:
    model = model or Model()
    simulation = Simulation(plan, model, model.work, world=world, epoch=epoch, faults=faults)
    simulation.run()
    return simulation


def results(world: World) -> dict[tuple[str, int, int], tuple[float | None, object]]:
    """What counts: the last valid numbers of every rung and repeat."""
    facts = of(world.events)
    return {(i.id.stage, i.id.rung, i.id.repeat): (i.rate, i.metrics["tps"]) for i in facts.iterations if i.valid}


def assert_ended(simulation: Simulation) -> events.RunFinished:
    """The run came to a definite end and left nothing behind."""
    world = simulation.world
    assert simulation.closed is not None
    last = world.events[-1]
    assert isinstance(last, events.RunFinished)
    assert last.exit_code == simulation.closed.exit_code
    assert not world.running
    assert not world.systems
    assert not world.hosts
    assert not world.wrongs
    assert of(world.events).open_iteration is None
    assert bool(world.data) <= (last.status != "finished")
    return last


def test_a_whole_run_in_order() -> None:
    simulation = simulate()
    end = assert_ended(simulation)
    assert (end.status, end.exit_code) == ("finished", 0)
    world = simulation.world
    assert [e.stage for e in world.events if isinstance(e, events.StageFinished)] == [s.id for s in STAGES]
    assert {k for k in results(world) if k[0] == "baseline"} == {("baseline", r, n) for r in (1, 2, 4) for n in (1, 2)}
    assert [e.at_rung for e in world.events if isinstance(e, events.LadderCut)] == [4]
    found = next(e for e in world.events if isinstance(e, events.SearchFinished))
    assert found.rate is not None
    assert 0.9 * CAPACITY <= found.rate <= CAPACITY
    assert results(world)["cached", 4, 1][0] == found.rate
    assert len([e for e in world.events if isinstance(e, events.ProbeFinished)]) == found.probes
    assert [(e.source, e.sink) for e in world.events if isinstance(e, events.PropagationCompared)] == [
        ("cache", "backend")
    ]
    systems = [e.system for e in world.events if isinstance(e, events.SystemUp)]
    assert systems == ["backend", "cache"], "the sink is up before its source"


def test_what_is_foreseen_is_said_when_stages_end_and_decides_nothing() -> None:
    world = simulate().world
    told = [event for event in world.events if isinstance(event, events.VerdictForeseen | events.StageFinished)]
    stages = [event for event in told if isinstance(event, events.StageFinished)]
    foreseen = [event for event in told if isinstance(event, events.VerdictForeseen)]
    assert [event.evidence for event in foreseen] == [
        f"{n} stages" for n in range(1, len(stages))
    ]  # not after the last
    assert told[::2] == stages, "each is said right after its stage"
    assert {event.outcome for event in foreseen} == {"FAIL"}
    reached = [event for event in world.events if isinstance(event, events.VerdictReached)]
    assert [event.outcome for event in reached] == ["PASS"]
    assert isinstance(world.events[-1], events.RunFinished)
    assert world.events[-1].exit_code == 0


def what_of(world: World) -> list[str]:
    return [key.split("/")[5] for key in world.keys]


def test_reset_takes_the_source_back_before_its_sink() -> None:
    what = what_of(simulate().world)
    first = what.index("restore:cache")
    assert what[first : first + 4] == ["restore:cache", "restore:backend", "link:cache", "checkpoint:backend"]
    taken = ["facts"] * len(HOSTS) + ["inspect:cache", "inspect:backend"]
    assert what[-9:] == ["compare:cache", *taken, "stop:cache", "stop:backend"]
    assert what[2:8] == taken, "before anything is loaded"
    assert what.index("link:cache") < what.index("save:cache") < what.index("save:backend")


def looked_at(world: World) -> list[tuple[str, str, str]]:
    return [(e.stage, e.iteration, e.system) for e in world.events if isinstance(e, events.InvariantsSeen)]


def test_invariants_are_looked_at_after_every_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(parameters.CHECKED_AFTER, "hlr", "iteration")  # type: ignore[arg-type]
    simulation = simulate(PLAN, Model(invalid=frozenset({"baseline/2/1"})))
    assert_ended(simulation)
    world = simulation.world
    ended = [i.id for i in of(world.events).iterations]
    expected = [("load", "", "backend"), ("load", "", "cache")]
    for one in ended:
        names = ("backend",) if one.stage == "baseline" else ("cache", "backend")
        expected += [(one.stage, str(one), name) for name in names]
    assert looked_at(world) == expected
    what = what_of(world)
    assert what.index("invariants:backend") < what.index("link:cache"), "a population is looked at before it is linked"


def test_invariants_of_rows_that_others_loaded_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they speak of the rows that a populate makes, and the plan has none; others are looked at all the same."""
    monkeypatch.setitem(parameters.CHECKED_AFTER, "hlr", "stage")  # type: ignore[arg-type]
    outside = System(name="backend", engine="postgres", host="db1", dsn="host=db1")
    plan = replace(PLAN, systems=(outside,), captures=PLAN.captures[:2], stages=(STAGES[2],))
    assert looked_at(simulate(plan, Model(), world=World(loaded={"backend"})).world) == [("baseline", "", "backend")]
    monkeypatch.setattr(invariants, "OF_OUR_ROWS", frozenset({"hlr"}))
    assert looked_at(simulate(plan).world) == []


def test_a_broken_invariant_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(parameters.CHECKED_AFTER, "hlr", "iteration")  # type: ignore[arg-type]

    class Broken(Simulation):
        def _effect(self, spec: object) -> TaskResult:
            if isinstance(spec, CheckInvariants):
                broken = InvariantCheck(name="sum", holds=False, evidence="3 is not 4")
                return InvariantsChecked(checks=(broken,), seconds=0.1)
            return super()._effect(spec)

    model = Model()
    simulation = Broken(PLAN, model, model.work)
    simulation.run()
    assert assert_ended(simulation).status == "finished", "the run goes on; the verdict fails it"
    told = [e.text for e in simulation.world.events if isinstance(e, events.Notice) and e.level == "error"]
    assert "backend after baseline/1/1/1: sum: 3 is not 4" in told


def test_invariants_that_cost_much_are_looked_at_at_the_end_of_a_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(parameters.CHECKED_AFTER, "hlr", "stage")  # type: ignore[arg-type]
    world = simulate().world
    after = [("baseline", "", "backend")]
    after += [(stage, "", system) for stage in ("cap", "cached") for system in ("cache", "backend")]
    assert looked_at(world) == [("load", "", "backend"), ("load", "", "cache"), *after]


@pytest.mark.parametrize("kind", ["lose", "fail", "silent"])
@pytest.mark.parametrize("occasion", ["iteration", "stage"])
def test_a_fault_at_any_point_leaves_nothing_unlooked_at(
    kind: FaultKind, occasion: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(parameters.CHECKED_AFTER, "hlr", occasion)  # type: ignore[arg-type]
    whole = simulate()
    for at in range(0, whole.inputs, 5):
        simulation = simulate(PLAN, None, Fault(at=at, kind=kind, host=HOSTS[at % 4]))
        if assert_ended(simulation).status == "finished":
            seen = {(stage, system) for stage, _, system in looked_at(simulation.world)}
            assert seen == {(stage, system) for stage, _, system in looked_at(whole.world)}, f"{kind} before {at}"


def test_terminals_are_shared_out_and_seeds_differ() -> None:
    seen: dict[str, list[RunLoad]] = {}

    class Watched(Simulation):
        def _task(self, host: str, task: Task) -> None:
            if isinstance(task.spec, RunLoad):
                seen.setdefault(task.spec.label, []).append(task.spec)
            super()._task(host, task)

    model = Model()
    Watched(PLAN, model, model.work).run()
    for label, loads in seen.items():
        rung = int(label.split("/")[1])
        taken = [n for load in loads for n in range(load.share.first, load.share.first + load.share.count)]
        assert sorted(taken) == list(range(rung)), label
    seeds = {label: {load.seed for load in loads} for label, loads in seen.items()}
    assert all(len(of_label) == 1 for of_label in seeds.values()), "one schedule for all clients"
    assert len(set.union(*seeds.values())) == len(seeds)


@pytest.mark.parametrize("kind", ["lose", "fail", "silent", "lose_for_good", "interrupt"])
def test_a_fault_at_every_point_ends_definitely(kind: FaultKind) -> None:
    whole = simulate()
    wanted = results(whole.world)
    for at in range(whole.inputs):
        for host in (HOSTS[at % 4], HOSTS[(at + 2) % 4]) if kind == "lose" else (HOSTS[at % 4],):
            simulation = simulate(PLAN, None, Fault(at=at, kind=kind, host=host))
            end = assert_ended(simulation)
            context = f"{kind} {host} before input {at}: {end.reason}"
            if end.status == "finished":
                assert results(simulation.world) == wanted, context
            else:
                assert end.exit_code == (130 if kind == "interrupt" else 4), context
            if kind == "lose" and at > len(HOSTS):
                assert end.status == "finished", context


def test_faults_by_seed() -> None:
    kinds: tuple[FaultKind, ...] = ("lose", "fail", "silent", "lose_for_good", "interrupt")
    inputs = simulate().inputs
    for seed in range(100):
        rng = random.Random(seed)
        faults = [
            Fault(at=rng.randrange(inputs), kind=rng.choice(kinds), host=rng.choice(HOSTS))
            for _ in range(rng.randint(1, 5))
        ]
        try:
            assert_ended(simulate(PLAN, None, *faults))
        except AssertionError as fault:
            raise AssertionError(f"seed {seed}: {faults}") from fault


def test_killed_before_every_input_and_resumed_gives_the_same() -> None:
    whole = simulate()
    wanted = results(whole.world)
    for at in range(whole.inputs):
        first = simulate(PLAN, None, Fault(at=at, kind="kill"))
        finished_before = [str(e.id) for e in first.world.events if isinstance(e, events.IterationFinished)]
        second = simulate(world=first.world, epoch=2)
        end = assert_ended(second)
        assert (end.status, end.exit_code) == ("finished", 0), at
        assert results(second.world) == wanted, at
        started = [str(e.id) for e in second.world.events if isinstance(e, events.IterationStarted)]
        assert len(started) == len(set(started)), "no iteration is run under the same name twice"
        assert all(started.count(name) == 1 for name in finished_before)


def test_killed_after_every_event_and_resumed_gives_the_same() -> None:
    """The journal may end at any event, also between two of one turn; the databases are where the crash left them."""
    whole = simulate()
    wanted, journal = results(whole.world), list(whole.world.events)
    for length in range(len(journal)):
        world = World(events=journal[:length])
        facts = of(world.events)
        started = any(isinstance(e, events.SystemUp) for e in world.events)
        world.data = {"backend", "cache"} if started else set()
        world.loaded = {system for _, system in facts.populated}
        second = simulate(world=world, epoch=2)
        assert assert_ended(second).status == "finished", length
        assert results(world) == wanted, length
        again = [str(e.id) for e in world.events[length:] if isinstance(e, events.IterationStarted)]
        assert not {str(i.id) for i in facts.iterations} & set(again), length


def test_data_that_is_gone_is_made_again() -> None:
    whole = simulate()
    at = whole.inputs * 3 // 4
    first = simulate(PLAN, None, Fault(at=at, kind="kill"))
    first.world.data.discard("cache")
    before = len(first.world.keys)
    second = simulate(world=first.world, epoch=2)
    assert assert_ended(second).status == "finished"
    what = what_of(first.world)[before:]
    assert what.index("stop:backend") < what.index("populate:backend") < what.index("link:cache"), what
    assert what.index("populate:cache") < what.index("link:cache")
    assert results(second.world) == results(whole.world)


def test_invalid_iterations_are_rerun_then_kept() -> None:
    simulation = simulate(PLAN, Model(invalid=frozenset({"baseline/2/1"})))
    assert assert_ended(simulation).status == "finished"
    tries = [i.id.attempt for i in of(simulation.world.events).iterations if (i.id.rung, i.id.repeat) == (2, 1)]
    assert tries == [1, 2]


def test_a_search_without_an_answer_skips_what_needs_it() -> None:
    simulation = simulate(PLAN, Model(capacity=1.0))
    assert assert_ended(simulation).status == "finished"
    facts = of(simulation.world.events)
    assert facts.searches["cap"].rate is None
    assert facts.stages_finished["cached"].outcome == "failed"
    assert not facts.of_stage("cached")


def test_an_agent_lost_three_times_ends_the_run() -> None:
    inputs = simulate().inputs
    faults = [Fault(at=inputs * n // 5, kind="lose", host="db1") for n in (1, 2, 3)]
    end = assert_ended(simulate(PLAN, None, *faults))
    assert (end.status, end.exit_code) == ("failed", 4)
    assert "db1" in end.reason


def test_a_plan_without_reset_keeps_no_copies() -> None:
    plan = replace(PLAN, stages=tuple(s for s in STAGES if not isinstance(s, Reset)))
    simulation = simulate(plan)
    assert assert_ended(simulation).status == "finished"
    assert not [w for w in what_of(simulation.world) if w.startswith(("save", "restore"))]


# ---- orders, bought repeats, losses -----------------------------------------------------------------------------------

OTHER = Ladder(
    id="other",
    workload="hlr",
    target="backend",
    clients=("client1", "client2"),
    threads=(1, 2, 4),
    windows=WINDOWS,
    repeat=2,
    order="interleaved",
    interleaved_with="first",
)
FIRST = replace(OTHER, id="first", order="shuffled", interleaved_with=None, seed=2)


def climbing(*ladders: Ladder, on_loss: OnLoss = "rerun") -> Plan:
    return replace(PLAN, stages=(STAGES[0], *ladders), captures=PLAN.captures, on_loss=on_loss)


def ran(world: World) -> list[tuple[str, int, int]]:
    return [(i.id.stage, i.id.rung, i.id.repeat) for i in of(world.events).iterations if i.valid]


def test_ladders_take_turns_and_equal_rungs_stand_side_by_side() -> None:
    simulation = simulate(climbing(FIRST, OTHER))
    assert assert_ended(simulation).status == "finished"
    order = ran(simulation.world)
    assert len(order) == 12
    pairs = list(zip(order[::2], order[1::2], strict=True))
    assert all((a[0], b[0]) == ("first", "other") and a[1:] == b[1:] for a, b in pairs)
    by_repeat = [[a[1] for a, _ in pairs if a[2] == repeat] for repeat in (1, 2)]
    assert by_repeat[0] != by_repeat[1], "each repeat has an order of its own"
    stages = [e for e in simulation.world.events if isinstance(e, events.StageStarted | events.StageFinished)][2:]
    assert [type(e).__name__ for e in stages] == ["StageStarted", "StageStarted", "StageFinished", "StageFinished"]
    seconds = [e.seconds for e in stages if isinstance(e, events.StageFinished)]
    assert min(seconds) > 60.0, "each of them took as long as both"


def test_the_order_is_the_same_after_a_resume_at_any_input() -> None:
    plan = climbing(replace(FIRST, repeat=5, repeat_min=3), replace(OTHER, repeat=5, repeat_min=3))
    whole = simulate(plan, Model(decided_after=4))
    wanted = ran(whole.world)
    assert len(wanted) == 3 * 4 * 2
    for at in range(0, whole.inputs, 3):
        first = simulate(plan, Model(decided_after=4), Fault(at=at, kind="kill"))
        second = simulate(plan, Model(decided_after=4), world=first.world, epoch=2)
        assert assert_ended(second).status == "finished", at
        assert ran(second.world) == wanted, at


def test_ladders_that_take_turns_bear_faults_like_any_other() -> None:
    plan = climbing(replace(FIRST, repeat=4, repeat_min=3), replace(OTHER, repeat=4, repeat_min=3))
    whole = simulate(plan)
    wanted = sorted(set(ran(whole.world)))
    for at in range(len(HOSTS) + 1, whole.inputs, 11):
        for kind in ("lose", "fail", "silent"):
            simulation = simulate(plan, None, Fault(at=at, kind=kind, host=HOSTS[at % 4]))  # type: ignore[arg-type]
            end = assert_ended(simulation)
            if end.status == "finished":
                assert sorted(set(ran(simulation.world))) == wanted, f"{kind} before input {at}"
            else:
                assert kind == "fail", f"{kind} before input {at}: {end.reason}"


@pytest.mark.parametrize(("decided_after", "repeats"), [(1, 3), (4, 4), (99, 6)])
def test_repeats_are_bought_until_the_verdicts_are_decided(decided_after: int, repeats: int) -> None:
    plan = climbing(replace(FIRST, repeat=6, repeat_min=3))
    simulation = simulate(plan, Model(decided_after=decided_after))
    assert assert_ended(simulation).status == "finished"
    assert max(repeat for _, _, repeat in ran(simulation.world)) == repeats
    said = [e for e in simulation.world.events if isinstance(e, events.Notice) and "repeats" in e.text]
    assert [e.level for e in said] == ["warning" if decided_after > repeats else "info"]
    assert said[0].text.startswith(f"first: {repeats} of at most 6 repeats")


def test_a_repeat_without_a_valid_iteration_does_not_stop_the_looks() -> None:
    plan = climbing(replace(FIRST, repeat=5, repeat_min=3))
    simulation = simulate(plan, Model(decided_after=4, invalid=frozenset({"first/2/1"})))
    assert assert_ended(simulation).status == "finished"
    assert max(repeat for _, _, repeat in ran(simulation.world)) == 4


def losses_at_every_input(on_loss: OnLoss, host: str) -> list[Simulation]:
    plan = climbing(FIRST, on_loss=on_loss)
    whole = simulate(plan)
    up = len(HOSTS) + 1
    return [simulate(plan, None, Fault(at=at, kind="lose_for_good", host=host)) for at in range(up, whole.inputs, 5)]


def test_continue_goes_on_without_a_client() -> None:
    seen_without = 0
    for simulation in losses_at_every_input("continue", "client2"):
        end = assert_ended(simulation)
        facts = of(simulation.world.events)
        assert end.status == "finished", end.reason
        assert sorted(ran(simulation.world)) == sorted(("first", r, n) for r in (1, 2, 4) for n in (1, 2))
        lost = [n for n, e in enumerate(facts.history) if isinstance(e, events.AgentLost) and e.abandoned]
        later = [e.id for e in facts.history[lost[0] :] if isinstance(e, events.IterationStarted)] if lost else []
        for i in later:
            loads = [k for k in simulation.world.keys if f"/{i.stage}/{i.rung}/{i.repeat}/1.{i.attempt}/load/" in k]
            assert [load.rpartition("/")[2] for load in loads] == ["client1"]
        seen_without += bool(later)
    assert seen_without > 5


def test_continue_has_a_host_with_a_system_back() -> None:
    plan = climbing(FIRST, on_loss="continue")
    simulation = simulate(plan, None, Fault(at=simulate(plan).inputs // 2, kind="lose", host="db1"))
    assert assert_ended(simulation).status == "finished"
    assert not of(simulation.world.events).without


def test_the_last_client_is_not_done_without() -> None:
    plan = climbing(replace(FIRST, clients=("client2",)), on_loss="continue")
    at = simulate(plan).inputs // 2
    simulation = simulate(plan, None, Fault(at=at, kind="lose_for_good", host="client2"))
    assert assert_ended(simulation).status == "failed"


def test_a_resume_dials_a_host_again_that_the_last_sitting_went_without() -> None:
    plan = climbing(FIRST, on_loss="continue")
    inputs = simulate(plan).inputs
    faults = [Fault(at=inputs // 2, kind="lose", host="client2"), Fault(at=inputs - 5, kind="kill")]
    first = simulate(plan, None, *faults)
    assert of(first.world.events).without == {"client2"}
    first.world.events.append(
        events.RunStarted(run_id="run", epoch=2, name="p", title="", digest="", plan={}, version="1", estimate_s=0.0)
    )
    second = simulate(plan, world=first.world, epoch=2)
    assert assert_ended(second).status == "finished"
    assert not of(second.world.events).without


def test_stop_ends_the_run_at_the_first_loss() -> None:
    for simulation in losses_at_every_input("stop", "client2"):
        end = assert_ended(simulation)
        if end.status == "finished":
            continue  # it was lost when all work was done
        assert end.exit_code == 4
        assert "client2" in end.reason
        assert [e.host for e in simulation.world.events if isinstance(e, events.AgentUp)].count("client2") == 1


def outcomes(world: World) -> dict[str, str]:
    return {e.stage: e.outcome for e in world.events if isinstance(e, events.StageFinished)}


def conditional(*conditions: Condition, plan: Plan = PLAN) -> Plan:
    return replace(plan, conditions=conditions)


def test_a_stage_whose_condition_does_not_hold_is_left_out() -> None:
    plan = conditional(
        Condition(stage="prepare", when=Expression(text="no")),
        Condition(stage="breathe", when=Expression(text="yes")),
        Condition(stage="cap", when=Expression(text="baseline ended", needs=("baseline",))),
    )
    world = simulate(plan).world
    assert outcomes(world) == {s.id: "skipped" if s.id == "prepare" else "ok" for s in STAGES}
    assert "prepare" not in {e.stage for e in world.events if isinstance(e, events.StageStarted)}
    assert [(n.level, n.text) for n in world.events if isinstance(n, events.Notice)] == [
        ("info", "stage prepare is left out: no, it says")
    ]
    assert "sql:backend" not in what_of(world)


def test_what_needs_a_stage_that_is_left_out_is_left_out_too() -> None:
    plan = conditional(
        Condition(stage="cap", when=Expression(text="nobody knows")),
        Condition(stage="cached", needs=("baseline", "cap")),
    )
    world = simulate(plan).world
    end = assert_ended(simulate(plan))
    assert (end.status, end.exit_code) == ("finished", 0)
    assert {name: how for name, how in outcomes(world).items() if how != "ok"} == {
        "cap": "skipped",
        "cached": "skipped",
    }
    told = {n.text: n.level for n in world.events if isinstance(n, events.Notice)}
    assert told["stage cap is left out: its condition cannot be told: no data"] == "warning"
    assert told["stage cached is left out: it needs cap, which was skipped"] == "info"
    assert not [k for k in results(world) if k[0] == "cached"]


def test_what_needs_a_stage_that_failed_is_left_out() -> None:
    """The search finds no rate, so the ladder at that rate is given up; the pause after it asked for it."""
    stages = (*STAGES, Pause(id="after", duration_s=1.0))
    plan = conditional(Condition(stage="after", needs=("cached",)), plan=replace(PLAN, stages=stages))
    world = simulate(plan, Model(capacity=10.0)).world
    assert (outcomes(world)["cached"], outcomes(world)["after"]) == ("failed", "skipped")


def test_a_resume_stands_by_what_was_left_out() -> None:
    """Killed after any of its inputs: the second sitting leaves the same stage out, and says so once."""
    plan = conditional(
        Condition(stage="breathe", when=Expression(text="no")), Condition(stage="cap", needs=("baseline",))
    )
    whole = simulate(plan)
    for at in range(1, whole.inputs, 7):
        first = simulate(plan, None, Fault(at=at, kind="kill"))
        again = simulate(plan, world=first.world, epoch=2)
        assert_ended(again)
        assert outcomes(again.world) == outcomes(whole.world)
        skipped = [e for e in again.world.events if isinstance(e, events.StageFinished) and e.outcome == "skipped"]
        assert len(skipped) == 1
