"""Applies a list of tunings as one transaction: all are applied and verified, or the host is set back.

Flow: look (the changes of each operation from the facts, and the policy's decisions) -> then for each tuning: read,
compute, store the originals (fsynced), make the changes, read again: no change may be left. After any failure, all
changes of this transaction are undone, the last first. `watch` is called before each step; it may raise to stop the
transaction, as a cancelled task does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from proveout.agent.errors import TaskFault
from proveout.agent.tuning import revert
from proveout.agent.tuning.host import Host, Original, holds
from proveout.agent.tuning.undo_journal import UndoJournal
from proveout.core.data_classes import record
from proveout.core.errors import ProveoutError
from proveout.dsl.operations.change import Change, RemoveFile, SetText, UnitAction, WriteFile, diff
from proveout.dsl.operations.operation import Operation, Step
from proveout.dsl.operations.table import operation_of
from proveout.dsl.plan.stages import Tuning
from proveout.proto.wire.results import TuningOutcome, TuningState

Watch = Callable[[str], None]
Moment: TypeAlias = Literal["begins", "in_place"]
"""Just before the first change of a tuning is made; just after its last one."""


class Stopped(Exception):
    """Raised by `watch`: stop the transaction and undo it."""


@record
class _Look:
    """The expected outcome of a tuning. `denied`: refused by the policy, not because of the state of the host."""

    state: TuningState
    denied: bool = False


@record
class Transaction:
    """The transaction of a run on a host.

    It undoes only its own changes; the journal may have those of other transactions. `fault`: the fault that it begins;
    "" for tunings of the run. `notice` is called at the moments of each tuning that changes anything.
    """

    host: Host
    journal: UndoJournal
    run: str
    watch: Watch = lambda _step: None
    fault: str = ""
    notice: Callable[[Moment], None] = lambda _moment: None

    def plan(self, tunings: Sequence[Tuning]) -> tuple[TuningState, ...]:
        """The changes and refusals to expect. Writes nothing."""
        return tuple(self._look(tuning).state for tuning in tunings)

    def apply(self, tunings: Sequence[Tuning]) -> tuple[TuningState, ...]:
        """Apply and verify all tunings.

        If a state is `refused` or `failed`, the host is set back; states name the exceptions.
        """
        if refused := self._refused(tunings):
            return refused
        mark = self.journal.mark()
        done: list[TuningState] = []
        try:
            for tuning in tunings:
                done.append(self._apply(tuning))
                if done[-1].outcome in ("failed", "refused"):
                    return (done[-1], *revert.revert(self.host, self.journal, after=mark))
            if self.journal.is_there:
                self.journal.commit(after=mark)
        except BaseException:
            revert.revert(self.host, self.journal, after=mark)
            raise
        return tuple(done)

    def _refused(self, tunings: Sequence[Tuning]) -> tuple[TuningState, ...]:
        """The tunings that are refused independently of the tunings before them.

        A tuning may depend on an earlier one (a file, a partition), so after the first expected change only the policy
        can refuse a tuning in advance.
        """
        refused: list[TuningState] = []
        changing = False
        for tuning in tunings:
            look = self._look(tuning)
            if look.state.outcome == "refused" and (look.denied or not changing):
                refused.append(look.state)
            changing = changing or look.state.outcome == "would_change"
        return tuple(refused)

    def _look(self, tuning: Tuning) -> _Look:
        operation: Operation | None = None
        try:
            operation = operation_of(tuning)
            step = self._step(tuning, operation)
            denied = self.host.objections(step.changes)
        except ProveoutError as fault:
            owner = isinstance(fault, TaskFault) and fault.code == "refused"
            return _Look(state=_refused_by(tuning, "refused", operation, fault), denied=owner)
        if step.refusals or denied:
            return _Look(state=_state(tuning, "refused", (*step.refusals, *denied)), denied=bool(denied))
        if step.changes:
            return _Look(state=_state(tuning, "would_change", (*_diff(step.changes), *step.restarts)))
        outcome: TuningOutcome = "needs_restart" if step.restarts else "unchanged"
        return _Look(state=_state(tuning, outcome, step.restarts))

    def _step(self, tuning: Tuning, operation: Operation) -> Step:
        if operation.destructive and not tuning.destructive:
            return Step(
                refusals=(f"{tuning.operation} can destroy data, and the plan has no `destructive: true` for it",)
            )
        step = operation.changes(self.host.facts())
        if tuning.restart and (step.changes or step.restarts) and not step.refusals:
            before: tuple[Change, ...] = (UnitAction(unit=tuning.restart, verb="", undo="restart"),)
            after = UnitAction(unit=tuning.restart, verb="restart")
            return Step(changes=(*(before if step.changes else ()), *step.changes, after))
        return step

    def _apply(self, tuning: Tuning) -> TuningState:
        operation: Operation | None = None
        try:
            operation = operation_of(tuning)
            step = self._step(tuning, operation)
            if refusals := (*step.refusals, *self.host.objections(step.changes)):
                return _state(tuning, "refused", refusals)
            self._make(tuning, step.changes)
            return self._verified(tuning, operation, step)
        except ProveoutError as fault:
            return _refused_by(tuning, "failed", operation, fault)

    def _make(self, tuning: Tuning, changes: Sequence[Change]) -> None:
        if not changes:
            return
        originals = [(change, self.host.original(change)) for change in changes]
        self.watch(f"{tuning.name}: keep the originals")
        self.journal.intend(self.run, tuning, originals, self.fault)
        self._check_unchanged(originals)
        self.notice("begins")
        for change, original in originals:
            self.watch(f"{tuning.name}: {'; '.join(diff(change)[:1])}")
            self.host.validate(change)
            if original is not None:
                self._check_unchanged([(change, original)])
            self.host.make(change)
        self.notice("in_place")

    def _check_unchanged(self, originals: Sequence[tuple[Change, Original | None]]) -> None:
        """TaskFault if another process has changed a file or attribute since its original was read: its change would be
        lost.

        All kernel attributes are checked before the first one is set: setting one may change another.
        """
        seen: set[str] = set()
        for change, original in originals:
            match change:
                case WriteFile(path=path) | RemoveFile(path=path):
                    changed = path not in seen and self.host.files.original(path) != original
                case SetText(path=path):
                    changed = path not in seen and not holds(self.host.texts.read(path), change.before)
                case _:
                    continue
            seen.add(path)
            if changed:
                raise TaskFault(
                    "refused", f"{path} was changed by another process just now", way_out="run the plan again"
                )

    def _verified(self, tuning: Tuning, operation: Operation, step: Step) -> TuningState:
        """Read all facts again: an operation that still has changes was not applied."""
        if not step.changes and not step.restarts:
            return _state(tuning, "unchanged")
        self.watch(f"{tuning.name}: verify")
        again = operation.changes(self.host.facts())
        if again.changes or again.refusals:
            left = (*again.refusals, *_diff(again.changes))
            return _state(
                tuning, "failed", ("the changes were written, but the host still differs from the plan:", *left)
            )
        if again.restarts:
            return _state(tuning, "needs_restart", (*_diff(step.changes), *again.restarts))
        return _state(tuning, "applied", _diff(step.changes))


def _diff(changes: Sequence[Change]) -> tuple[str, ...]:
    return tuple(line for change in changes for line in diff(change))


def _state(tuning: Tuning, outcome: TuningOutcome, lines: tuple[str, ...] = ()) -> TuningState:
    return TuningState(name=tuning.name, operation=tuning.operation, outcome=outcome, lines=lines, keep=tuning.keep)


def _refused_by(
    tuning: Tuning, outcome: TuningOutcome, operation: Operation | None, fault: ProveoutError
) -> TuningState:
    """The state after a fault; with the place of the plan's text where a database refused that."""
    state = _state(tuning, outcome, (_text(fault),))
    if operation is None or not isinstance(fault, TaskFault) or not fault.subject:
        return state
    subject = operation.subject_of(fault.subject)
    return replace(state, subject=subject, line=fault.line) if subject else state


def _text(fault: ProveoutError) -> str:
    way_out = f" ({fault.way_out})" if fault.way_out else ""
    where = f"{fault.where}: " if fault.where and not isinstance(fault, TaskFault) else ""
    return f"{where}{fault.what}{way_out}"
