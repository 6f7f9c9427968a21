"""The run as a pure state machine: `advance(state, input) -> (state, commands)`. No I/O, no clock of its own.

Data flow: inputs (`state.Input`) carry events with their time; an input ends, fails or continues the step under way;
when no step is under way, `decide` begins the next one. Every wait has a deadline: `wake_s` returns the next one, at
which the loop sends a `Tick`. Every state leads to an end of the run, also when agents are lost.
"""

from __future__ import annotations

from dataclasses import replace

from proveout.coordinator.schedule import iteration, next_step, setup_stages
from proveout.coordinator.schedule.batches import batch_failed, receive_answer, receive_late
from proveout.coordinator.schedule.state import (
    AgentGone,
    AgentReady,
    Batch,
    CloseSessions,
    Cluster,
    Command,
    CoordinatorFailed,
    Dialling,
    Draining,
    FaultDue,
    FaultStepped,
    Input,
    Interrupted,
    Iterating,
    MessageReceived,
    ResultEvaluator,
    RunProgress,
    SendMessage,
    Setup,
    State,
    Summarised,
    Tick,
    Turn,
    Waiting,
)
from proveout.coordinator.schedule.tasks import is_dispensable
from proveout.core.units import format_duration
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Reboot
from proveout.proto.events import AgentLost, AgentUp
from proveout.proto.wire.messages import Cancel, TaskDone, TaskFailed
from proveout.proto.wire.results import FaultInjected, TaskError
from proveout.proto.wire.tasks import RebootHost


def start(
    plan: Plan, setup: Setup, progress: RunProgress, evaluator: ResultEvaluator, at_s: float
) -> tuple[State, tuple[Command, ...]]:
    """The state of a run that begins, or goes on after the events that `progress` is made of."""
    # a host that keeps data is dialled before the end as well; the data on this machine are removed by the coordinator
    with_data = (up.host for up in progress.folded.systems.values() if up.provisioned)
    left_changed = setup_stages.applied_before(progress).union(h for h in with_data if not plan.host(h).is_local)
    state = State(plan=plan, setup=setup, progress=progress, began_s=at_s, left_changed=left_changed)
    turn = Turn(state, at_s, evaluator)
    next_step.settle(turn)
    return turn.state, tuple(turn.commands)


def advance(state: State, event: Input, evaluator: ResultEvaluator) -> tuple[State, tuple[Command, ...]]:
    """The state after an input, and the commands that follow. After the end the state does not change."""
    if state.over:
        return state, ()
    turn = Turn(state, event.at_s, evaluator)
    _take(turn, event)
    next_step.settle(turn)
    return turn.state, tuple(turn.commands)


def wake_s(state: State) -> float | None:
    """The time of the next `Tick` at the latest; None when the run is over."""
    match state.step:
        case None:
            return None
        case Iterating(finish_s=finish_s, until_s=until_s, phase="running") if finish_s is not None:
            return min(finish_s, until_s)
        case step:
            return step.until_s


def _take(turn: Turn, event: Input) -> None:
    match event:
        case Tick():
            _tick(turn)
        case AgentReady(up=up):
            _agent_ready(turn, up)
        case AgentGone(host=host, reason=reason):
            _agent_gone(turn, host, reason)
        case MessageReceived():
            _receive(turn, event)
        case FaultStepped() | FaultDue():
            _of_fault(turn, event)
        case Summarised(finished=finished):
            step = turn.state.step
            if isinstance(step, Iterating) and step.phase == "summarising" and step.id == finished.id:
                turn.emit(finished)
                turn.set(step=None)
                iteration.recheck_if_spoilt(turn, step, finished)
        case CoordinatorFailed(reason=reason) if turn.state.ending is None:
            turn.end("failed", 4, reason)
        case Interrupted() if turn.state.ending is None:
            turn.end("interrupted", 130, "stopped on request")
        case Interrupted() if turn.state.ending is not None and turn.state.ending.hurried:
            pass  # a third one must not start to revert changes that are being reverted
        case CoordinatorFailed() | Interrupted():
            next_step.hurry(turn)


def _of_fault(turn: Turn, event: FaultStepped | FaultDue) -> None:
    step = turn.state.step
    if not isinstance(step, Iterating) or step.phase != "running":
        return
    if isinstance(event, FaultDue):
        iteration.trigger(turn, step, event.fault)
    elif event.key in turn.state.tasks:
        iteration.fault_stepped(turn, step, event.key, event.seen)


def _receive(turn: Turn, event: MessageReceived) -> None:
    message = event.message
    key = getattr(message, "key", None)
    if key is None or turn.state.tasks.get(key) != event.host:
        return  # of a cancelled task, or without effect on the state
    if isinstance(message, (TaskDone, TaskFailed)):
        turn.set(tasks={k: h for k, h in turn.state.tasks.items() if k != key})
    if isinstance(message, TaskDone) and isinstance(message.result, FaultInjected):
        iteration.end_if_left(turn, key, message.result)
    if isinstance(message, TaskDone) and key.split("/")[-2] == RebootHost.named:
        _reboots(turn, event.host, key.split("/")[1])
    step = turn.state.step
    if isinstance(message, TaskDone) and not (isinstance(step, Batch) and key in step.pending):
        receive_late(turn, key, message.result)
    if isinstance(step, Iterating):
        iteration.receive(turn, step, message)
    elif isinstance(step, Batch):
        receive_answer(turn, step, message)
    elif isinstance(step, Draining) and not turn.state.tasks:
        turn.set(step=None)


def _reboots(turn: Turn, host: str, stage: str) -> None:
    """Give up an agent that has agreed to reboot its host, also where its answer has crossed a cancellation: the end
    of its session begins the reboot."""
    if turn.state.ending is not None:
        turn.notice("warning", "reboots at the end of its session: its agent had agreed before the run ended", host)
        return
    reboot = turn.state.plan.stage(stage)
    assert isinstance(reboot, Reboot)  # noqa: S101 - only such a stage sends the task
    turn.notice("info", f"reboots: its agent has {format_duration(reboot.within_s)} to be back", host)
    turn.commands.append(CloseSessions(hosts=(host,), keep_data=True))
    turn.set(rebooting={**turn.state.rebooting, host: reboot.within_s})
    _forget_agent(turn, host, abandoned=False)


def _agent_ready(turn: Turn, up: AgentUp) -> None:
    turn.emit(up)
    turn.set(rebooting={host: left for host, left in turn.state.rebooting.items() if host != up.host})
    turn.set(up=turn.state.up | {up.host}, left_changed=turn.state.left_changed - {up.host})
    _cancel_given_up(turn, up.host)
    step = turn.state.step
    if isinstance(step, Dialling):
        _dialled(turn, step, up.host)


def _cancel_given_up(turn: Turn, host: str) -> None:
    """Cancel the tasks that were given up when the agent was lost, and wait for their ends: its session may have gone
    on with them, and two iterations must not run beside each other."""
    tasks = {key: where for key, where in turn.state.given_up.items() if where == host}
    for key in tasks:
        turn.commands.append(SendMessage(host=host, message=Cancel(key=key, reason="the agent was lost")))
    left = {key: where for key, where in turn.state.given_up.items() if where != host}
    turn.set(given_up=left, tasks={**turn.state.tasks, **tasks})


def _dialled(turn: Turn, step: Dialling, host: str) -> None:
    """Note that an agent has answered or was given up; after the last one, wait for the ends of cancelled tasks."""
    if waiting := step.waiting - {host}:
        turn.set(step=replace(step, waiting=waiting))
        return
    until_s = turn.at_s + turn.state.setup.timing.drain_s
    turn.set(step=Draining(until_s=until_s) if turn.state.tasks else None)


def _agent_gone(turn: Turn, host: str, reason: str) -> None:
    """Handle a lost agent: its tasks are void, its systems are down; it is dialled again, a bounded number of times."""
    state = turn.state
    dialled = isinstance(state.step, Dialling) and host in state.step.waiting
    if host not in state.up and not dialled:
        return
    abandoned = host in state.up and _may_continue_without(state, host)
    turn.emit(AgentLost(host=host, reason=reason, abandoned=abandoned))
    turn.set(losses=state.losses + (not abandoned))
    _forget_agent(turn, host, abandoned=abandoned)
    if state.ending is not None:
        _end_step_without_tasks(turn)
        return
    if abandoned:
        turn.notice("warning", f"the run continues without {host} (on_loss: continue)")
    too_often = turn.state.losses > state.setup.timing.losses_max
    if dialled and (not state.losses or host in state.rebooting):
        turn.end("failed", 4, f"agent {host} cannot be reached: {reason}")
    elif too_often:
        turn.end("failed", 4, f"agent {host} was lost: {reason}")
    elif state.plan.on_loss == "stop":
        turn.end("failed", 4, f"agent {host} was lost: {reason} (on_loss: stop)")
    else:
        _give_up_tasks(turn, host, reason)


def _forget_agent(turn: Turn, host: str, *, abandoned: bool) -> None:
    """Drop what was known of an agent: its tasks are given up, its systems are down."""
    state = turn.state
    on_host = {s.name for s in state.plan.systems if s.host == host}
    touched = {s.name for s in state.plan.systems if s.name in on_host or s.propagates_to in on_host}
    inspected = on_host | {s.name for name in on_host for s in state.plan.group_of(name)}
    left_changed = state.left_changed | (
        {host} if setup_stages.leaves_changes(state, host) and not abandoned else set()
    )
    turn.set(
        left_changed=left_changed,
        up=state.up - {host},
        tasks={k: h for k, h in state.tasks.items() if h != host},
        given_up={**state.given_up, **{k: h for k, h in state.tasks.items() if h == host}},
        endpoints={name: e for name, e in state.endpoints.items() if name not in inspected},
        linked=state.linked - touched,
        parts_done=frozenset(),
        cluster=Cluster() if host in state.cluster.hosts else state.cluster,
        started=state.started - on_host,
        pristine=state.pristine - on_host,
    )
    setup_stages.forget_host(turn, host)


def _may_continue_without(state: State, host: str) -> bool:
    """Whether the plan allows the run to continue without a host, and no remaining stage needs it."""
    if state.plan.on_loss != "continue" or state.ending is not None:
        return False
    return is_dispensable(state.plan, host, state.progress.without, state.progress.stages_finished)


def _give_up_tasks(turn: Turn, host: str, reason: str) -> None:
    """Give up the tasks that need the lost agent; `decide` dials it again, unless the run continues without it."""
    match turn.state.step:
        case Dialling() as step:
            _dialled(turn, step, host)
        case Iterating(phase="summarising"):
            pass  # all its results have arrived
        case Iterating() as step:
            iteration.void(turn, step, f"agent {host} was lost: {reason}", rerun=True)
        case Draining():
            _end_step_without_tasks(turn)
        case _:
            turn.drain(f"agent {host} was lost")


def _end_step_without_tasks(turn: Turn) -> None:
    """Wait for no task of a lost agent any more; end a step that has no other."""
    step = turn.state.step
    if isinstance(step, Draining) and not turn.state.tasks:
        turn.set(step=None)
    elif isinstance(step, Batch):
        pending = step.pending & set(turn.state.tasks)
        turn.set(step=replace(step, pending=pending) if pending else None)


def _tick(turn: Turn) -> None:
    step = turn.state.step
    if isinstance(step, Iterating):
        iteration.finish_phase(turn)
        step = turn.state.step
    if step is None or turn.at_s < step.until_s:
        return
    match step:
        case Waiting():
            turn.set(parts_done=turn.state.parts_done | {step.name}, step=None)
        case Dialling():
            for host in sorted(step.waiting):
                _agent_gone(turn, host, "it did not answer in time")
        case Iterating():
            iteration.time_out(turn, step)
        case Draining():
            _drop_agents(turn)
        case Batch(purpose="stop"):
            next_step.cut_short(turn)
        case Batch():
            key = min(step.pending & set(turn.state.tasks))
            batch_failed(turn, step, key, TaskError(code="timeout", message="no answer by its deadline"))


def _drop_agents(turn: Turn) -> None:
    """Treat agents that do not end cancelled tasks as lost."""
    hosts = sorted(set(turn.state.tasks.values()))
    if turn.state.ending is not None:
        next_step.cut_short(turn)
        return
    turn.commands.append(CloseSessions(hosts=tuple(hosts), keep_data=True))
    for host in hosts:
        _agent_gone(turn, host, "it did not end a cancelled task in time")
