"""Tasks that were not made by the compiler: each breaks a rule that protects the host, and the agent calls no handler for
it."""

from __future__ import annotations

import typing
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from fabric_bench import HELLO, accept_all
from hostile_tasks import ATTEMPTS, HONEST

from proveout.agent.daemon.handlers import HANDLERS
from proveout.agent.daemon.session import Session
from proveout.agent.daemon.task_journal import AgentJournal
from proveout.agent.daemon.tasks import TaskContext
from proveout.agent.security import task_rules
from proveout.coordinator.agents.endpoints import external_endpoints
from proveout.coordinator.schedule.setup_stages import start_of
from proveout.coordinator.schedule.state import RunProgress, Setup, State
from proveout.coordinator.schedule.tasks import capture_tasks, load_tasks
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Ladder, Populate, Search, Sql, Tool, Tune, Windows
from proveout.proto.audit_log import AuditLog
from proveout.proto.events import IterationId
from proveout.proto.wire import tasks
from proveout.proto.wire.codec import task_bytes
from proveout.proto.wire.messages import TaskDone, TaskFailed
from proveout.proto.wire.results import Done
from proveout.proto.wire.tasks import Endpoint, SignedTask, Task, TaskSpec

pytestmark = pytest.mark.server

ROOT = Path(__file__).parents[2]
PLANS = sorted(ROOT.glob("tests/golden/good/*.yaml"))
SHIPPED = sorted([*ROOT.glob("plans/*.yaml"), *ROOT.glob("plans/starters/*.yaml")])
KINDS = typing.get_args(TaskSpec)


# ---- the table and the corpus ----------------------------------------------------------------------------------------


def test_every_kind_of_task_has_rules() -> None:
    """A new kind of task fails here until it has an entry, a hostile task and an honest one."""
    assert set(KINDS) == set(task_rules.RULES) == set(HANDLERS) == set(HONEST)
    without_values = {tasks.VerifyTuning, tasks.RevertTuning}
    assert {type(attempt.spec) for attempt in ATTEMPTS} == set(task_rules.RULES) - without_values
    assert len({attempt.name for attempt in ATTEMPTS}) == len(ATTEMPTS)


def test_a_kind_without_rules_is_refused() -> None:
    class Unknown:
        pass

    assert "has no rules for Unknown" in str(task_rules.objection(cast(Any, Unknown())))


# ---- in an agent -----------------------------------------------------------------------------------------------------


class Watched:
    """A session whose handlers record their calls."""

    def __init__(self, folder: Path) -> None:
        self.called: list[TaskSpec] = []
        self.session = Session(
            HELLO,
            folder / "work",
            AgentJournal(folder / "journal.sqlite"),
            dict.fromkeys(KINDS, self._handle),
            verifier=accept_all,
            audit=AuditLog(folder / "audit.log"),
        )
        self._outgoing = self.session.outgoing(self.session.attach())

    async def _handle(self, context: TaskContext, spec: TaskSpec) -> Done:
        self.called.append(spec)
        return Done()

    async def outcome(self, number: int, spec: TaskSpec) -> TaskDone | TaskFailed:
        task = Task(key=f"k{number}", spec=spec, deadline_s=60.0)
        self.session.receive(SignedTask(task=task_bytes(task), sequence=number))
        async for message in self._outgoing:
            if isinstance(message, TaskDone | TaskFailed):
                return message
        raise AssertionError("the session has ended")


@pytest.fixture
async def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Watched]:
    monkeypatch.setattr(
        "proveout.agent.daemon.session.end_children", lambda: None
    )  # the tests' servers are children as well
    one = Watched(tmp_path)
    yield one
    one.session.end("cancelled", "the test is over", keep_data=False)
    await one.session.ended.wait()


@pytest.mark.escape
async def test_no_handler_is_called_for_a_hostile_task(
    watched: Watched, record_property: Callable[[str, object], None]
) -> None:
    record_property("escapes", len(ATTEMPTS))
    for number, attempt in enumerate(ATTEMPTS, 1):
        outcome = await watched.outcome(number, attempt.spec)
        assert isinstance(outcome, TaskFailed), attempt
        assert (outcome.error.code, attempt.says in outcome.error.message) == ("invalid", True), (
            attempt,
            outcome.error,
        )
        assert type(attempt.spec).__name__ in outcome.error.message
        assert watched.called == [], attempt


async def test_the_handler_of_an_honest_task_is_called(watched: Watched) -> None:
    for number, spec in enumerate(HONEST.values(), 1):
        assert isinstance(await watched.outcome(number, spec), TaskDone)
        assert watched.called[-1] == spec


# ---- tasks of compiled plans are accepted ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", [*PLANS, *(pytest.param(path, marks=pytest.mark.soak) for path in SHIPPED)], ids=lambda path: path.stem
)
def test_no_task_of_a_plan_that_compiles_breaks_a_rule(path: Path) -> None:
    plan = compile_plan(path)
    specs = list(tasks_of(plan))
    assert specs
    for spec in specs:
        assert task_rules.objection(spec) is None, spec


def tasks_of(plan: Plan) -> Iterator[TaskSpec]:
    """The tasks that the coordinator would send, each kind once for each part of the plan."""
    ends = _endpoints(plan)
    setup = Setup(run_id="x", epoch=1, data_root="/runs/x/systems")
    state = State(plan=plan, setup=setup, progress=RunProgress(), began_s=0.0, endpoints=ends)
    yield tasks.ReadFacts(
        directories=tuple((system.name, "/runs/x/systems") for system in plan.systems), tools=("fio",)
    )
    for system in plan.systems:
        if system.provision:
            yield start_of(state, system)
            yield tasks.StopSystem(system=system.name, data_root="/runs/x/systems")
        else:
            yield tasks.InspectSystem(endpoint=ends[system.name])
    if plan.tunings:
        yield tasks.ApplyTuning(tunings=plan.tunings, endpoints=tuple(ends.values())[:1] if plan.systems else ())
    windows = Windows(ramp_up_s=1.0, measure_s=1.0, ramp_down_s=0.0)
    for _, spec in capture_tasks(state, [capture.name for capture in plan.captures], windows):
        yield spec
    for stage in plan.stages:
        yield from _of_stage(plan, stage, ends)


def _of_stage(plan: Plan, stage: Any, ends: dict[str, Endpoint]) -> Iterator[TaskSpec]:
    match stage:
        case Populate():
            for name in stage.into:
                workload = plan.workload(stage.workload)
                yield tasks.PopulateSystem(workload=workload, endpoint=ends[name], workers=stage.workers or 4)
                yield tasks.CheckInvariants(workload=workload, endpoint=ends[name])
        case Ladder():
            for rung in stage.threads:
                yield from _loads(plan, stage, rung, stage.windows, ends)
        case Search():
            yield from _loads(plan, stage, stage.threads, stage.probe, ends)
            yield from _loads(plan, stage, stage.threads, stage.confirm, ends)
        case Sql():
            yield tasks.RunSql(endpoint=ends[stage.system], statements=stage.statements)
        case Tool():
            yield tasks.PrepareFio(job=stage.job)
            for depth in stage.iodepths:
                yield tasks.RunFio(job=stage.job, iodepth=depth, windows=stage.windows, label=stage.id)
        case Tune():
            yield tasks.ApplyTuning(tunings=stage.tunings)


def _loads(plan: Plan, stage: Any, rung: int, windows: Any, ends: dict[str, Endpoint]) -> Iterator[TaskSpec]:
    one = IterationId(stage=stage.id, rung=rung, repeat=1, attempt=1)
    given = load_tasks(plan, stage, iteration=one, rate=100.0, windows=windows, endpoints=ends, cores={})
    yield from (spec for _, spec in given)


class _Secrets(dict[str, str]):
    """An environment in which every variable is a password with characters that a dsn must escape."""

    def get(self, key: str, default: Any = None) -> Any:
        return "p@ss/wörd'\"\\ %&"


def _endpoints(plan: Plan) -> dict[str, Endpoint]:
    ends = external_endpoints(plan, _Secrets())
    for system in plan.systems:
        if system.provision:
            dsn = {
                "sqlite": "/runs/x/db.sqlite",
                "duckdb": "/runs/x/db.duckdb",
                "mysql": f"mysql://u:p@localhost/d?unix_socket=/{system.name}",
            }
            made = dsn.get(system.engine, f"host=/{system.name} port=5432")
            ends[system.name] = Endpoint(system=system.name, engine=system.engine, dsn=made, provisioned=True)
    return ends
