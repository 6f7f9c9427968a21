"""Undoing, and looking whether what was made is still so: one change of the undo journal at a time, the last first.

A change is compared with the host before anything is done: as it was before (never made, or undone already), as it was made (undone now),
or neither: another hand has changed it since, which is told and left alone. Undoing twice does what undoing once does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Literal, TypeAlias, assert_never

from proveout.agent.tasks import TaskFault
from proveout.agent.tuning.files import NONE, Original
from proveout.agent.tuning.host import Host
from proveout.agent.tuning.texts import holds
from proveout.agent.tuning.tools import must
from proveout.agent.tuning.undo import Entry, UndoJournal
from proveout.dsl.tuning.change import Command, RemoveFile, SetText, Statement, UnitAction, WriteFile
from proveout.dsl.tuning.facts import FileFact, UnitFact
from proveout.proto.results import TuningOutcome, TuningState

Found: TypeAlias = Literal["before", "made", "other", "unknown"]


def end(host: Host, journal: UndoJournal, *, systems_only: bool = False) -> tuple[TuningState, ...]:
    """Let go of what is kept, and undo the rest."""
    return (*kept(journal, systems_only=systems_only), *revert(host, journal, systems_only=systems_only))


def revert(host: Host, journal: UndoJournal, *, after: int = 0, systems_only: bool = False) -> tuple[TuningState, ...]:
    """Undo what is outstanding, the last change first; one state for each tuning and outcome. Never raises for what the host does."""
    done: list[tuple[Entry, TuningOutcome, str]] = []
    for entry in journal.outstanding(after=after):
        if systems_only and not entry.system:
            continue
        outcome, line = _undo(host, entry)
        if outcome == "residue":
            journal.leave(entry, line)
        else:
            journal.settle(entry)
        done.append((entry, outcome, line))
    return _states(done)


def look(host: Host, journal: UndoJournal) -> tuple[TuningState, ...]:
    """Whether what was made is still so: `in_place` or `drifted` for each tuning. Changes nothing.

    What a later tuning of the run has changed again (a `tune` stage may) is looked at as that one has made it.
    """
    found: list[tuple[Entry, TuningOutcome, str]] = []
    latest = {_subject(entry): entry for entry in reversed(journal.outstanding())}
    for entry in reversed(journal.outstanding()):
        if latest[_subject(entry)].tuning != entry.tuning:
            found.append((entry, "in_place", ""))
            continue
        try:
            drifted = compare(host, entry) in ("before", "other")
            found.append((entry, "drifted" if drifted else "in_place", _drift(host, entry) if drifted else ""))
        except TaskFault as fault:
            found.append((entry, "drifted", f"it cannot be looked at: {fault.what}"))
    return _states(found)


def kept(journal: UndoJournal, *, systems_only: bool = False) -> tuple[TuningState, ...]:
    """Let go of what says `keep`: it stays on the host."""
    found = [entry for entry in journal.outstanding() if entry.keep and entry.done and not entry.residue]
    entries = [entry for entry in found if entry.system or not systems_only]
    for entry in entries:
        journal.settle(entry)
    return _states([(entry, "kept", "") for entry in reversed(entries)])


def _states(found: Iterable[tuple[Entry, TuningOutcome, str]]) -> tuple[TuningState, ...]:
    """One state for each tuning and outcome; a tuning that is in place but for one change is not in place."""
    lines: dict[tuple[str, str, bool, TuningOutcome], list[str]] = {}
    for entry, outcome, line in found:
        lines.setdefault((entry.tuning, entry.operation, entry.keep, outcome), []).extend([line] if line else [])
    drifted = {name for name, _, _, outcome in lines if outcome == "drifted"}
    return tuple(
        TuningState(name=name, operation=operation, outcome=outcome, lines=tuple(said), keep=keep)
        for (name, operation, keep, outcome), said in lines.items()
        if not (outcome == "in_place" and name in drifted)
    )


# ---- one change ----------------------------------------------------------------------------------------------------


def compare(host: Host, entry: Entry) -> Found:
    """How the host stands to a change: as before it, as made by it, otherwise, or of a kind that nothing shows."""
    change = entry.change
    match change:
        case WriteFile():
            return _compare_file(host, entry, _made(host, change))
        case RemoveFile():
            return _compare_file(host, entry, FileFact(kind="absent"))
        case SetText():
            now = host.texts.read(change.path)
            return "made" if holds(now, change.after) else "before" if holds(now, change.before) else "other"
        case UnitAction():
            return _compare_unit(host, change)
        case Command() | Statement():
            return "unknown"
        case _:
            assert_never(change)


def _made(host: Host, change: WriteFile) -> FileFact:
    return FileFact(kind="file", content=change.content, mode=change.mode, owner=change.owner, group=change.group)


def _compare_file(host: Host, entry: Entry, made: FileFact) -> Found:
    path = entry.change.path  # type: ignore[union-attr]  # a change of a file has one
    original = entry.original or NONE
    now = host.files.fact(path)
    if now == made:
        # What is as made may be as before as well: then there is nothing to undo but perhaps an owner's time stamp.
        return "made"
    same = now.kind == "absent" if not original.exists else _same(host.files.original(path), original)
    return "before" if same else "other"


def _same(now: Original, original: Original) -> bool:
    return dataclasses.replace(now, mtime_ns=0) == dataclasses.replace(original, mtime_ns=0)


def _compare_unit(host: Host, change: UnitAction) -> Found:
    unit = host.manager.fact(change.unit)
    wanted = {"start": "active", "stop": "inactive", "enable": "enabled", "disable": "disabled"}
    if unit is None or change.verb not in wanted or change.undo not in wanted:
        return "unknown"
    return "made" if wanted[change.verb] in _words(unit) else "before"


def _words(unit: UnitFact) -> set[str]:
    return {"active" if unit.active else "inactive", "enabled" if unit.enabled else "disabled"}


def _undo(host: Host, entry: Entry) -> tuple[TuningOutcome, str]:  # noqa: PLR0911 - one per way it can go
    """(outcome, what to tell) of undoing a change."""
    try:
        if isinstance(entry.change, (WriteFile, RemoveFile)):
            host.files.sweep(entry.change.path)
        found = compare(host, entry)
        if found == "before":
            return "reverted", ""
        if found == "other":
            return "drifted", _drift(host, entry)
        _undone(host, entry)
        after = compare(host, entry)
    except TaskFault as fault:
        if fault.code == "unreachable" and host.databases.is_of_the_run(entry.system):
            return "reverted", f"{entry.system} is down, and what was set in it goes with the run's data"
        return "residue", f"{_subject(entry)} could not be undone: {fault.what}"
    except Exception as error:  # noqa: BLE001 - the others must be undone whatever is wrong with this one
        return "residue", f"{_subject(entry)} could not be undone: {type(error).__name__}: {error}"
    if after == "other" or (after == "made" and not _as_before(host, entry)):
        return "residue", f"{_subject(entry)} is not as it was before, although it was set back"
    return "reverted", ""


def _as_before(host: Host, entry: Entry) -> bool:
    """Whether a change that still looks made has nothing to undo: what it made is what there was."""
    change = entry.change
    if isinstance(change, (WriteFile, RemoveFile)):
        return _same(host.files.original(change.path), entry.original or NONE)
    return isinstance(change, SetText) and holds(host.texts.read(change.path), change.before)


def _undone(host: Host, entry: Entry) -> None:
    change = entry.change
    match change:
        case WriteFile() | RemoveFile():
            host.files.put(change.path, entry.original or NONE)
        case SetText():
            host.texts.write(change.path, change.before)
        case UnitAction():
            if change.undo:
                host.manager.act(change.unit, change.undo)
        case Command():
            if change.undo:
                must(host.tools, change.undo)
        case Statement():
            if change.undo:
                host.databases.run(change.system, change.undo)
        case _:
            assert_never(change)


def _drift(host: Host, entry: Entry) -> str:
    """What another hand has made of a change."""
    change = entry.change
    match change:
        case SetText():
            now = " ".join((host.texts.read(change.path) or "nothing").split())
            return f"{change.path} is {now}, neither {change.after} as the plan set it nor {change.before} as it was before"
        case WriteFile() | RemoveFile():
            return f"{change.path} was changed by another hand since"
        case _:
            return f"{_subject(entry)} was changed by another hand since"


def _subject(entry: Entry) -> str:
    change = entry.change
    match change:
        case WriteFile() | RemoveFile() | SetText():
            return change.path
        case UnitAction():
            return change.unit
        case Command():
            return " ".join(change.undo or change.argv)
        case Statement():
            return f"{change.system}: {change.undo or change.text}"
        case _:
            assert_never(change)
