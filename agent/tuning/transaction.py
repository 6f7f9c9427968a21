"""Applies a list of tunings as one transaction, and undoes the changes of the undo journal.

Flow: look (the changes of each operation from the facts, and the policy's decisions) -> then for each tuning: read,
compute, store the originals (fsynced), make the changes, read again: no change may be left. After any failure, all
changes of this transaction are undone, the last first. `watch` is called before each step; it may raise to stop the
transaction, as a cancelled task does.

Before a change is undone it is compared with the host: as before the change (never made, or undone already), as made
(it is undone now), or neither: another process has changed it since, which is reported and left alone. Undoing twice
has the same result as undoing once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias, assert_never

from proveout.agent.errors import TaskFault
from proveout.agent.tuning.host import Host, holds
from proveout.agent.tuning.machine import NET, network, network_is_gone
from proveout.agent.tuning.undo_journal import Entry, UndoJournal
from proveout.core.data_classes import record
from proveout.core.errors import ProveoutError
from proveout.dsl.operations.change import (
    BusyCpus,
    Change,
    Command,
    CopyData,
    KeepSpans,
    ServerAction,
    SetText,
    Statement,
    TakeSpace,
    UnitAction,
    WriteFile,
    around,
    diff,
    only_undoes,
)
from proveout.dsl.operations.disks import AMBIVALENT, NOTHING_FOUND
from proveout.dsl.operations.facts import NONE, Original
from proveout.dsl.operations.operation import Operation, Step
from proveout.dsl.operations.table import operation_of
from proveout.dsl.plan.stages import Tuning
from proveout.proto.wire.results import TuningOutcome, TuningState

Found: TypeAlias = Literal["before", "made", "other", "unknown"]
STAYS = "stays until a later change of it is undone"


def end(
    host: Host, journal: UndoJournal, *, systems_only: bool = False, fault: str | None = None
) -> tuple[TuningState, ...]:
    """Release the changes with `keep`, and undo the rest; `fault` as in `revert`."""
    released = kept(journal, systems_only=systems_only)
    return (*released, *revert(host, journal, systems_only=systems_only, fault=fault))


def revert(
    host: Host,
    journal: UndoJournal,
    *,
    after: int = 0,
    systems_only: bool = False,
    tunings: frozenset[str] = frozenset(),
    fault: str | None = None,
) -> tuple[TuningState, ...]:
    """Undo outstanding changes (of systems, of some tunings), the last first; one state for each tuning and outcome.

    `fault`: only those of this fault, and those of other faults that could not be undone at their end; "" for only
    those that belong to no fault. Changes before one that is left out are left too where they share a place with it:
    those of `tunings` are `in_place` then, and undone as soon as the later one is.

    Errors of the host are states, not exceptions.

    Several changes of one path, or statements that depend on each other, are undone in order: if one cannot be undone,
    the earlier ones are left too, because they would see its value as a foreign change. A change that only follows the
    undoing of others (a reload) waits for all of them.
    """
    done: list[tuple[Entry, TuningOutcome, str]] = []
    left: set[str | tuple[str, str]] = set()
    stay: set[str | tuple[str, str]] = set()
    undone: set[tuple[str, str]] = set()
    for entry in journal.outstanding(after=after):
        places, of = _places(entry), (entry.run, entry.tuning)
        if fault is not None and entry.fault != fault and not (fault and entry.fault and entry.residue):
            left |= places
            continue
        asked = not tunings or entry.tuning in tunings or entry.residue.endswith(STAYS)
        if (systems_only and not entry.system) or not asked:
            stay |= places
            continue
        outcome: TuningOutcome = "residue"
        if left & places:
            line = f"{_subject(entry)} could not be undone, because a later change of it could not be undone"
        elif of in left and only_undoes(entry.change):
            line = f"{_subject(entry)} could not be undone, because it follows a change that could not be undone"
        elif stay & places:
            outcome, line = "in_place", f"{_subject(entry)} {STAYS}"
        else:
            follows = of in stay and only_undoes(entry.change)
            outcome, line = ("reverted", "") if follows and of not in undone else _undo(host, entry)
            if outcome == "reverted" and follows:
                outcome, line = "in_place", f"{_subject(entry)} follows a change that {STAYS}"
            elif getattr(entry.change, "undo", True):
                undone.add(of)
        if outcome in ("residue", "in_place"):
            (left if outcome == "residue" else stay).update({*places, of})
            journal.leave(entry, line)
        else:
            journal.settle(entry)
        done.append((entry, outcome, line))
    return _states(done)


def adopt(host: Host, journal: UndoJournal) -> tuple[TuningState, ...]:
    """Take over the changes of this run after a reboot: those of a kernel that has ended are settled, and `drifted` are
    those to files, devices and databases that have not survived it."""
    lost: list[tuple[Entry, TuningOutcome, str]] = []
    for entry in journal.outstanding():
        try:
            found = compare(host, entry)
        except TaskFault:
            found = "unknown"
        if found in ("made", "unknown"):
            if entry.net:
                journal.renew(entry)
        elif isinstance(entry.change, SetText | UnitAction | ServerAction | BusyCpus):
            journal.settle(entry)
        else:
            lost.append((entry, "drifted", f"{_subject(entry)} has not survived the reboot, and is made again"))
    return _states(lost)


def look(host: Host, journal: UndoJournal) -> tuple[TuningState, ...]:
    """Verify that the run's changes are still in place: `in_place` or `drifted` for each tuning. Changes nothing.

    If a later tuning of the run (in a `tune` stage) has changed the same place again, only the later change is
    compared.
    """
    found: list[tuple[Entry, TuningOutcome, str]] = []
    entries = [entry for entry in reversed(journal.outstanding()) if not entry.fault]
    latest = {_subject(entry): entry for entry in entries}
    for entry in entries:
        if only_undoes(entry.change) or latest[_subject(entry)].tuning != entry.tuning:
            found.append((entry, "in_place", ""))
            continue
        try:
            drifted = compare(host, entry) in ("before", "other")
            found.append((entry, "drifted" if drifted else "in_place", _drift(host, entry) if drifted else ""))
        except TaskFault as fault:
            found.append((entry, "drifted", f"it cannot be verified: {fault.what}"))
    return _states(found)


def kept(journal: UndoJournal, *, systems_only: bool = False) -> tuple[TuningState, ...]:
    """Release the changes with `keep`: they stay on the host."""
    found = [entry for entry in journal.outstanding() if entry.keep and entry.done and not entry.residue]
    entries = [entry for entry in found if entry.system or not systems_only]
    for entry in entries:
        journal.settle(entry)
    return _states([(entry, "kept", "") for entry in reversed(entries)])


def _states(found: Iterable[tuple[Entry, TuningOutcome, str]]) -> tuple[TuningState, ...]:
    """One state for each tuning and outcome. A tuning with one drifted change is drifted."""
    lines: dict[tuple[str, str, bool, TuningOutcome], list[str]] = {}
    for entry, outcome, line in found:
        lines.setdefault((entry.tuning, entry.operation, entry.keep, outcome), []).extend([line] if line else [])
    drifted = {name for name, _, _, outcome in lines if outcome == "drifted"}
    return tuple(
        TuningState(name=name, operation=operation, outcome=outcome, lines=tuple(texts), keep=keep)
        for (name, operation, keep, outcome), texts in lines.items()
        if not (outcome == "in_place" and name in drifted)
    )


def _places(entry: Entry) -> set[str]:
    """Paths, devices, units and places of statements that a change touches, to keep earlier changes there in order."""
    change = entry.change
    found = {getattr(change, name, "") for name in ("path", "device", "place")}
    if isinstance(change, UnitAction) and change.verb and change.undo:
        found.add(f"{change.unit} {'active' if change.verb in ('start', 'stop') else 'enabled'}")
    return {*found, *getattr(change, "only_if", ())[:1]} - {""}


# ---- one change ----------------------------------------------------------------------------------------------------


def compare(host: Host, entry: Entry) -> Found:  # noqa: PLR0911 - one per kind of change
    """Compare the host with a change: as before it, as made by it, other, or unknown."""
    change = entry.change
    match change:
        case WriteFile():
            return _compare_file(host, entry, change)
        case SetText(part="undo"):
            return _compare_follower(host, change)
        case SetText():
            return _compare_text(host, entry, change)
        case UnitAction():
            return _compare_unit(host, change)
        case KeepSpans():
            return _compare_spans(host, entry, change)
        case Command() | Statement() | CopyData():
            return "unknown"
        case ServerAction() | TakeSpace() | BusyCpus():
            return host.disturbed.compare(change)
        case _:
            assert_never(change)


def _compare_file(host: Host, entry: Entry, change: WriteFile) -> Found:
    now = host.files.fact(change.path)
    if now == change.made:
        # It may also be as before: then only a time stamp may have to be restored.
        return "made"
    exists = (entry.original or NONE).exists
    same = _is_original(host, entry, change.path) if exists else now.kind == "absent"
    return "before" if same else "other"


def _is_original(host: Host, entry: Entry, path: str) -> bool:
    """Whether a file is as before the change, but for its time stamp."""
    return replace(host.files.original(path), mtime_ns=0) == replace(entry.original or NONE, mtime_ns=0)


def _compare_text(host: Host, entry: Entry, change: SetText) -> Found:
    now = host.texts.read(change.path)
    if holds(now, change.after):
        return "made"
    if holds(now, change.before):
        return "before"
    ours = change.part == "make" or (change.adjusted and _is_between(now, change.before, change.after))
    return "made" if ours and not entry.done else "other"


def _is_between(now: str | None, before: str, after: str) -> bool:
    """Whether a number lies between two others: the kernel may stop on the way. A number beyond is a foreign change."""
    try:
        here, one, other = int(now or ""), int(before), int(after)
    except ValueError:
        return False
    return min(one, other) <= here <= max(one, other)


def _compare_spans(host: Host, entry: Entry, change: KeepSpans) -> Found:
    if host.original(change) == entry.original:
        return "before"
    probe = host.tools.run(change.probe)
    if probe.code not in (0, NOTHING_FOUND, AMBIVALENT):
        raise TaskFault(
            "fault",
            f"{change.probe[0]} failed with exit code {probe.code}, so the content of {change.device} is unknown",
        )
    return "made" if probe.code == NOTHING_FOUND else "other"


def _compare_follower(host: Host, change: SetText) -> Found:
    """Compare an attribute that the kernel changes together with another: it counts as made while the other has its
    value.
    """
    if holds(host.texts.read(change.path), change.before):
        return "before"
    path, text = change.only_if or ("", "")
    return "made" if not path or holds(host.texts.read(path), text) else "other"


def _compare_unit(host: Host, change: UnitAction) -> Found:
    unit = host.manager.fact(change.unit)
    wanted = {"start": "active", "stop": "inactive", "enable": "enabled", "disable": "disabled"}
    if unit is None and change.undo in ("stop", "disable"):
        return "before"  # systemd has not loaded the unit, or has unloaded it: nothing runs
    if unit is None or change.verb not in wanted or change.undo not in wanted:
        return "unknown"
    now = ("active" if unit.active else "inactive", "enabled" if unit.enabled else "disabled")
    return "made" if wanted[change.verb] in now else "before"


def _undo(host: Host, entry: Entry) -> tuple[TuningOutcome, str]:  # noqa: PLR0911 - one per way it can go
    """Undo a change; (outcome, text for the log)."""
    if isinstance(entry.change, Command) and entry.change.device and not entry.change.undo:
        written = entry.change.argv[0].rpartition("/")[2]
        return "kept", f"the former data of {entry.change.device} cannot be restored: {written} has overwritten it"
    if isinstance(entry.change, Command) and entry.change.lasting:
        return "kept", f"what {_subject(entry)} has done stays: the plan has no program that undoes it"
    databases = host.databases.of(entry.run)
    try:
        if elsewhere := _of_another_network(host, entry):
            return elsewhere
        if isinstance(entry.change, WriteFile):
            host.files.sweep(entry.change.path)
        found = compare(host, entry)
        if found == "before":
            return "reverted", ""
        if found == "other":
            return "drifted", _drift(host, entry)
        host.make(entry.change, entry.original or NONE, entry.run)
        after = compare(host, entry)
    except TaskFault as fault:
        if fault.code == "unreachable" and databases.is_of_the_run(entry.system):
            return "reverted", f"{entry.system} is down, and its settings are removed with the data of the run"
        way_out = databases.way_out(entry.system) if entry.system else ""
        return "residue", f"{_subject(entry)} could not be undone: {fault.what}{f' ({way_out})' if way_out else ''}"
    except Exception as error:  # noqa: BLE001 - one failure must not keep the other changes from being undone
        return "residue", f"{_subject(entry)} could not be undone: {type(error).__name__}: {error}"
    if after == "other" or (after == "made" and not _as_before(host, entry)):
        return "residue", f"{_subject(entry)} differs from its original after it was set back"
    return "reverted", ""


def _of_another_network(host: Host, entry: Entry) -> tuple[TuningOutcome, str] | None:
    """Outcome for a parameter of another network namespace; None for all other changes, and for one that the same
    namespace of this boot has again, from a file of /etc/sysctl.d."""
    if not (isinstance(entry.change, SetText) and entry.change.path.startswith(NET)) or entry.net == network():
        return None
    if network_is_gone(entry.net):
        same = entry.net.partition(":")[2] == network().partition(":")[2]
        if same and holds(host.texts.read(entry.change.path), entry.change.after):
            return None
        return "reverted", f"{entry.change.path} no longer exists: its network namespace has ended"
    return "residue", f"{entry.change.path} belongs to another network namespace: an agent in it must undo the change"


def _as_before(host: Host, entry: Entry) -> bool:
    """Whether a change that still looks made equals the original, so that nothing is left to undo."""
    change = entry.change
    if isinstance(change, WriteFile):
        return _is_original(host, entry, change.path)
    return isinstance(change, SetText) and (change.part == "make" or holds(host.texts.read(change.path), change.before))


def _drift(host: Host, entry: Entry) -> str:
    """Describe how another process has altered a change."""
    change = entry.change
    match change:
        case SetText(part="undo", only_if=(path, _)):
            now = " ".join((host.texts.read(change.path) or "nothing").split())
            return (
                f"{change.path} is {now}, not {change.before} as before, because another process has "
                f"changed {path} since"
            )
        case SetText():
            now = " ".join((host.texts.read(change.path) or "nothing").split())
            return (
                f"{change.path} is {now}, neither {change.after} as the plan set it nor "
                f"{change.before} as it was before"
            )
        case WriteFile():
            return f"{change.path} was changed by another process since"
        case KeepSpans():
            return f"another process has written to {change.device}, so it is left as it is"
        case _:
            return f"{_subject(entry)} was changed by another process since"


def _subject(entry: Entry) -> str:  # noqa: PLR0911 - one per kind of change
    change = entry.change
    match change:
        case WriteFile() | SetText() | TakeSpace():
            return change.path
        case ServerAction():
            return f"the server of {change.system}"
        case CopyData():
            return f"the copy of {change.system}"
        case BusyCpus():
            return "the processes that keep CPUs busy"
        case UnitAction():
            return change.unit
        case KeepSpans():
            return f"the ends of {change.device}"
        case Command():
            return " ".join(change.undo or change.argv)
        case Statement():
            return f"{change.system}: {change.undo or change.text}"
        case _:
            assert_never(change)


Watch = Callable[[str], None]
Moment: TypeAlias = Literal["begins", "in_place"]
"""Just before the first change of a tuning is made; just after its last one."""


class Stopped(Exception):
    """Raised by `watch`: stop the transaction and undo it."""


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
        return tuple(self._look(tuning)[0] for tuning in tunings)

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
                    return (done[-1], *revert(self.host, self.journal, after=mark))
            self.watch("end")  # a cancellation during the last look is one before the end
            if self.journal.is_there:
                self.journal.commit(after=mark)
        except BaseException:
            revert(self.host, self.journal, after=mark)
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
            state, denied = self._look(tuning)
            if state.outcome == "refused" and (denied or not changing):
                refused.append(state)
            changing = changing or state.outcome == "would_change"
        return tuple(refused)

    def _look(self, tuning: Tuning) -> tuple[TuningState, bool]:
        """The expected outcome; whether it is refused by the policy, not because of the state of the host."""
        operation: Operation | None = None
        try:
            operation = operation_of(tuning)
            step = self._step(tuning, operation)
            denied = self.host.objections(step.changes)
        except ProveoutError as fault:
            owner = isinstance(fault, TaskFault) and fault.code == "refused"
            return _refused_by(tuning, "refused", operation, fault), owner
        if step.refusals or denied:
            return _state(tuning, "refused", (*step.refusals, *denied)), bool(denied)
        if step.changes:
            return _state(tuning, "would_change", (*_diff(step.changes), *step.notes, *step.restarts)), False
        outcome: TuningOutcome = "needs_restart" if step.restarts else "unchanged"
        return _state(tuning, outcome, step.restarts), False

    def _step(self, tuning: Tuning, operation: Operation) -> Step:
        if operation.destructive and not tuning.destructive:
            return Step(
                refusals=(f"{tuning.operation} can destroy data, and the plan has no `destructive: true` for it",)
            )
        step = operation.changes(self.host.facts())
        if tuning.restart and (step.changes or step.restarts) and not step.refusals:
            unit = self.host.manager.fact(tuning.restart)
            if unit is None:  # else undoing would fail as well
                return Step(refusals=(f"this host has no unit {tuning.restart}, which would be restarted",))
            undo = UnitAction(unit=tuning.restart, verb="", undo="try-restart")
            made = UnitAction(unit=tuning.restart, verb="try-restart")
            notes = () if unit.active else (f"  {tuning.restart} does not run, so it is not restarted",)
            return Step(changes=around(step.changes, undo, made) or (made,), notes=notes)
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
                case WriteFile(path=path):
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
            head = "the changes were written, but the host still differs from the plan:"
            return _state(tuning, "failed", (head, *left))
        if again.restarts:
            return _state(tuning, "needs_restart", (*_diff(step.changes), *again.restarts))
        return _state(tuning, "applied", (*_diff(step.changes), *step.notes))


def _diff(changes: Sequence[Change]) -> tuple[str, ...]:
    return tuple(line for change in changes for line in diff(change))


def _state(tuning: Tuning, outcome: TuningOutcome, lines: tuple[str, ...] = ()) -> TuningState:
    return TuningState(name=tuning.name, operation=tuning.operation, outcome=outcome, lines=lines, keep=tuning.keep)


def _refused_by(
    tuning: Tuning, outcome: TuningOutcome, operation: Operation | None, fault: ProveoutError
) -> TuningState:
    """The state after a fault; with the place of the plan's text where a database refused that."""
    way_out = f" ({fault.way_out})" if fault.way_out else ""
    where = f"{fault.where}: " if fault.where and not isinstance(fault, TaskFault) else ""
    state = _state(tuning, outcome, (f"{where}{fault.what}{way_out}",))
    if operation is None or not isinstance(fault, TaskFault) or not fault.subject:
        return state
    subject = operation.subject_of(fault.subject)
    return replace(state, subject=subject, line=fault.line) if subject else state
