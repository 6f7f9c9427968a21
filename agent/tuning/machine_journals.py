"""The undo journals of a machine: one for each agent with outstanding changes, in the folder of the machine.

The first agent uses the folder itself, further agents use `beside-N`. Flow: `Machine.turn()`, held by one agent for one
transaction -> `Machine.open(holder)`: Held while an agent of another run has one of the claims; journals of ended
agents are merged into the opened one -> the agent undoes the changes in it. `Machine.changed_by_others` finds places
that other agents have changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from proveout.agent.errors import TaskFault
from proveout.agent.tuning.machine import BESIDE, FOLDER, FileLock, Held, Holder, TurnTaken, holder_of, refuse
from proveout.agent.tuning.undo_journal import FILE, UndoJournal, check_directory, places_in
from proveout.core.data_classes import dataclass

TURN = "turn"


@dataclass(frozen=True, slots=True)
class Machine:
    """The journals in the folder `place`."""

    place: Path

    def directories(self) -> tuple[Path, ...]:
        """The folders with journals: `place` and those beside it, in order."""
        beside = sorted(self.place.glob(f"{BESIDE}*"), key=_number)
        return tuple(path for path in (self.place, *beside) if (path / FILE).exists())

    @contextmanager
    def turn(self, *, needed: bool = True) -> Iterator[None]:
        """Hold the turn: only one agent of the machine at a time opens journals and applies.

        TurnTaken, `disk_full` (if `needed`).
        """
        check_directory(self.place)
        lock = FileLock(self.place / TURN)
        try:
            if not lock.take():
                raise TurnTaken("refused", "another agent of this machine is applying its tunings")
        except OSError as error:
            if needed:
                self._remove_if_empty()
                raise TaskFault("disk_full", f"cannot lock {self.place}: {error}") from error
        try:
            yield
        finally:
            lock.release(remove=True)
            self._remove_if_empty()

    def _remove_if_empty(self) -> None:
        with suppress(OSError):
            self.place.rmdir()
            if self.place.parent.name == FOLDER:
                self.place.parent.rmdir()

    def open(self, holder: Holder) -> UndoJournal:
        """Open a journal for this holder, merged with the journals of ended agents.

        Held while another run has one of the claims.

        Call it within `turn`.
        """
        free: list[UndoJournal] = []
        try:
            for directory in self.directories():
                journal = UndoJournal(directory, holder)
                try:
                    journal.open()
                    free.append(journal)
                except Held:
                    refuse(directory, holder)
            mine = free.pop(0) if free else UndoJournal(self._new(), holder)
            mine.open()
            while free:
                mine.absorb(free.pop(0))
        except BaseException:
            for journal in free:
                journal.close()
            raise
        return mine

    def widen(self, journal: UndoJournal, holder: Holder) -> None:
        """Add claims to an open journal. Held while another run has one of them. Call it within `turn`."""
        for directory in self.directories():
            if directory != journal.directory:
                refuse(directory, holder)
        journal.claim(holder)

    def _new(self) -> Path:
        """A folder without a journal."""
        taken = self.directories()
        numbers = (self.place / f"{BESIDE}{number}" for number in range(1, len(taken) + 2))
        return next(path for path in (self.place, *numbers) if path not in taken)

    def changed_by_others(self, journal: UndoJournal) -> dict[str, Holder]:
        """Outstanding changes of other journals: place (path, device) -> the holder that has changed it."""
        found: dict[str, Holder] = {}
        for directory in self.directories():
            if directory != journal.directory:
                holder = holder_of(directory)
                found |= dict.fromkeys(places_in(directory), holder)
        return found


def _number(path: Path) -> int:
    digits = path.name.removeprefix(BESIDE)
    return int(digits) if digits.isdecimal() else 0
