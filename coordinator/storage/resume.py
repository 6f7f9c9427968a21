"""Find out whether a run can be resumed, and with which plan. Changes nothing.

Data flow: run directory -> journal, command -> the plan that the run recorded, compared with the plan's file ->
`Resumable`. A run that has finished, whose plan has changed, or whose journal does not verify is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from proveout.coordinator.schedule.state import run_progress
from proveout.coordinator.storage.journal import read, recorded_plan
from proveout.coordinator.storage.run_directory import Command, RunDirectory
from proveout.core.data_classes import dataclass
from proveout.core.errors import PlanError, ProveoutError
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.plan.iteration_order import noise_plan
from proveout.dsl.plan.plan import Plan
from proveout.proto.events import RunStarted, Stamped


class NotResumable(ProveoutError):
    """There is nothing to go on with, or not with this plan."""

    exit_code = 2


class Finished(NotResumable):
    """The run has finished; its last coordinator may have been killed before it had written the results and tidied
    up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumable:
    """A run that can go on. `crashed`: its last coordinator did not say goodbye, so its agents may still be leaving."""

    plan: Plan
    command: Command
    events: Sequence[Stamped]
    crashed: bool


def examine(directory: RunDirectory) -> Resumable:
    """The data of a run to resume. NotResumable, JournalFault."""
    events = read(directory.path)
    facts = run_progress(stamped.event for stamped in events)
    if facts.started is None:
        raise NotResumable("the run never began", where=str(directory.path), way_out="Start it with `proveout run`.")
    if facts.ended is not None and facts.ended.status == "finished":
        raise Finished(
            f"the run has finished: {facts.ended.reason}",
            where=directory.name,
            way_out="Start another one with `proveout run`.",
        )
    command = directory.command()
    plan = _recorded(directory, facts.started)
    _same_as_now(directory, facts.started, command)
    return Resumable(plan=plan, command=command, events=events, crashed=facts.ended is None)


def _recorded(directory: RunDirectory, started: RunStarted) -> Plan:
    plan = recorded_plan(started.plan)
    if plan.digest != started.digest:
        raise NotResumable(
            f"the recorded plan does not have the recorded digest {started.digest}",
            where=str(directory.path),
            way_out="The run's directory was changed; start another run.",
        )
    return plan


def _same_as_now(directory: RunDirectory, started: RunStarted, command: Command) -> None:
    """Refuse when the plan's file, with the parameters and inventory of the run, is another plan by now.

    A file that is gone says nothing: the run goes on with what it recorded.
    """
    path = Path(command.plan)
    inventory = Path(command.inventory) if command.inventory else None
    if not path.is_file() or (inventory is not None and not inventory.is_file()):
        return
    try:
        plan = compile_plan(path, overrides=command.overrides, inventory=inventory)
        digest = (plan if command.noise is None else noise_plan(plan, command.noise)).digest
    except PlanError as fault:
        digest = f"no plan: {fault.problems[0].message}"
    if digest != started.digest:
        raise NotResumable(
            "the plan has changed since the run began",
            where=str(path),
            way_out=f"Put it back (the run's copy is in {directory.path / 'plan'}), or start another run.\n"
            f"  then: {started.digest}\n  now:  {digest}",
        )
