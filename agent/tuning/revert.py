"""Undoes and verifies the changes of the undo journal, one at a time, the last first.

Each change is first compared with the host: as before the change (never made, or undone already), as made (it is undone
now), or neither: another process has changed it since, which is reported and left alone. Undoing twice has the same
result as undoing once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Literal, TypeAlias, assert_never

from proveout.agent.errors import TaskFault
from proveout.agent.tuning import host as tuning_host
from proveout.agent.tuning.host import NONE, Host, Original, holds, must
from proveout.agent.tuning.machine import NET, network, network_is_gone
from proveout.agent.tuning.undo_journal import Entry, UndoJournal
from proveout.dsl.operations.change import (
    BusyCpus,
    Command,
    CopyData,
    KeepSpans,
    RemoveFile,
    ServerAction,
    SetText,
    Statement,
    TakeSpace,
    UnitAction,
    WriteFile,
    only_undoes,
)
from proveout.dsl.operations.disks import AMBIVALENT, NOTHING_FOUND
from proveout.dsl.operations.facts import FileFact, UnitFact
from proveout.proto.wire.results import TuningOutcome, TuningState

Found: TypeAlias = Literal["before", "made", "other", "unknown"]


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
    those that belong to no fault. Changes before one that is left out are left too where they share a place with it.

    Errors of the host are states, not exceptions.

    Several changes of one path, or statements that depend on each other, are undone in order: if one cannot be undone,
    the earlier ones are left too, because they would see its value as a foreign change. A change that only follows the
    undoing of others (a reload) waits for all of them.
    """
    done: list[tuple[Entry, TuningOutcome, str]] = []
    left: set[str | tuple[str, str]] = set()
    for entry in journal.outstanding(after=after):
        if fault is not None and entry.fault != fault and not (fault and entry.fault and entry.residue):
            left |= _places(entry)
            continue
        if (systems_only and not entry.system) or (tunings and entry.tuning not in tunings):
            continue
        places = _places(entry)
        outcome: TuningOutcome = "residue"
        if left & places:
            line = f"{_subject(entry)} could not be undone, because a later change of it could not be undone"
        elif (entry.run, entry.tuning) in left and only_undoes(entry.change):
            line = f"{_subject(entry)} could not be undone, because it follows a change that could not be undone"
        else:
            outcome, line = _undo(host, entry)
        if outcome == "residue":
            left |= {*places, (entry.run, entry.tuning)}
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
    """Paths, devices and places of statements that a change touches, to keep earlier changes there in order."""
    change = entry.change
    found = {getattr(change, name, "") for name in ("path", "device", "place")}
    return {*found, *getattr(change, "only_if", ())[:1]} - {""}


# ---- one change ----------------------------------------------------------------------------------------------------


def compare(host: Host, entry: Entry) -> Found:  # noqa: PLR0911 - one per kind of change
    """Compare the host with a change: as before it, as made by it, other, or unknown."""
    change = entry.change
    match change:
        case WriteFile():
            return _compare_file(host, entry, _made(change))
        case RemoveFile():
            return _compare_file(host, entry, FileFact(kind="absent"))
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


def _made(change: WriteFile) -> FileFact:
    return FileFact(kind="file", content=change.content, mode=change.mode, owner=change.owner, group=change.group)


def _compare_file(host: Host, entry: Entry, made: FileFact) -> Found:
    path = entry.change.path  # type: ignore[union-attr]  # a change of a file has one
    original = entry.original or NONE
    now = host.files.fact(path)
    if now == made:
        # It may also be as before: then only a time stamp may have to be restored.
        return "made"
    same = now.kind == "absent" if not original.exists else _same(host.files.original(path), original)
    return "before" if same else "other"


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


def _same(now: Original, original: Original) -> bool:
    return dataclasses.replace(now, mtime_ns=0) == dataclasses.replace(original, mtime_ns=0)


def _compare_unit(host: Host, change: UnitAction) -> Found:
    unit = host.manager.fact(change.unit)
    wanted = {"start": "active", "stop": "inactive", "enable": "enabled", "disable": "disabled"}
    if unit is None and change.undo in ("stop", "disable"):
        return "before"  # systemd has not loaded the unit, or has unloaded it: nothing runs
    if unit is None or change.verb not in wanted or change.undo not in wanted:
        return "unknown"
    return "made" if wanted[change.verb] in _words(unit) else "before"


def _words(unit: UnitFact) -> set[str]:
    return {"active" if unit.active else "inactive", "enabled" if unit.enabled else "disabled"}


def _undo(host: Host, entry: Entry) -> tuple[TuningOutcome, str]:  # noqa: PLR0911 - one per way it can go
    """Undo a change; (outcome, text for the log)."""
    if elsewhere := _of_another_network(entry):
        return elsewhere
    if isinstance(entry.change, Command) and entry.change.device and not entry.change.undo:
        written = entry.change.argv[0].rpartition("/")[2]
        return "kept", f"the former data of {entry.change.device} cannot be restored: {written} has overwritten it"
    databases = host.databases.of(entry.run)
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
        if fault.code == "unreachable" and databases.is_of_the_run(entry.system):
            return "reverted", f"{entry.system} is down, and its settings are removed with the data of the run"
        way_out = databases.way_out(entry.system) if entry.system else ""
        return "residue", f"{_subject(entry)} could not be undone: {fault.what}{f' ({way_out})' if way_out else ''}"
    except Exception as error:  # noqa: BLE001 - one failure must not keep the other changes from being undone
        return "residue", f"{_subject(entry)} could not be undone: {type(error).__name__}: {error}"
    if after == "other" or (after == "made" and not _as_before(host, entry)):
        return "residue", f"{_subject(entry)} differs from its original after it was set back"
    return "reverted", ""


def _of_another_network(entry: Entry) -> tuple[TuningOutcome, str] | None:
    """Outcome for a parameter of another network namespace; None for all other changes."""
    if not (isinstance(entry.change, SetText) and entry.change.path.startswith(NET)) or entry.net == network():
        return None
    if network_is_gone(entry.net):
        return "reverted", f"{entry.change.path} no longer exists: its network namespace has ended"
    return "residue", f"{entry.change.path} belongs to another network namespace: an agent in it must undo the change"


def _as_before(host: Host, entry: Entry) -> bool:
    """Whether a change that still looks made equals the original, so that nothing is left to undo."""
    change = entry.change
    if isinstance(change, KeepSpans):
        return False
    if isinstance(change, (WriteFile, RemoveFile)):
        return _same(host.files.original(change.path), entry.original or NONE)
    if not isinstance(change, SetText):
        return False
    return change.part == "make" or holds(host.texts.read(change.path), change.before)


def _undone(host: Host, entry: Entry) -> None:  # noqa: PLR0912 - one per kind of change
    change = entry.change
    match change:
        case WriteFile() | RemoveFile():
            host.files.put(change.path, entry.original or NONE)
        case SetText():
            if change.part != "make":
                host.texts.write(change.path, change.before)
        case UnitAction():
            if change.undo:
                host.manager.act(change.unit, change.undo)
        case KeepSpans():
            tuning_host.put_back(host.root, change.device, change.spans, (entry.original or NONE).content)
        case Command():
            if change.undo:
                must(host.tools, change.undo, within_s=change.within_s, already=change.already)
        case Statement():
            if change.undo:
                host.databases.of(entry.run).run(change.system, change.undo)
        case CopyData():
            host.databases.of(entry.run).release_copy(change.system)
        case ServerAction() | TakeSpace() | BusyCpus():
            host.disturbed.undo(change)
        case _:
            assert_never(change)


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
        case WriteFile() | RemoveFile():
            return f"{change.path} was changed by another process since"
        case KeepSpans():
            return f"another process has written to {change.device}, so it is left as it is"
        case _:
            return f"{_subject(entry)} was changed by another process since"


def _subject(entry: Entry) -> str:  # noqa: PLR0911 - one per kind of change
    change = entry.change
    match change:
        case WriteFile() | RemoveFile() | SetText() | TakeSpace():
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
