"""Trust in undo journals: an agent ignores a journal that other users can write, and undoes the others."""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from eventually import PATIENCE_S
from tuning_bench import tuning

from proveout.agent.daemon import servicer
from proveout.agent.errors import TaskFault
from proveout.agent.security.policy import NOTHING
from proveout.agent.tuning.machine import TurnTaken
from proveout.agent.tuning.tuner import Tuner
from proveout.agent.tuning.undo_journal import FILE, UndoJournal, places_in
from proveout.dsl.operations.change import WriteFile
from proveout.dsl.operations.facts import ABSENT, Original

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
THEIRS = 12345


def leave_journal_of_a_killed_agent(folder: Path, target: Path) -> None:
    """Create a journal with the entry: `target` was "before"."""
    target.write_text("now\n")
    target.chmod(0o644)
    journal = UndoJournal(folder)
    original = Original(exists=True, content=b"before\n", mode=0o644, uid=0, gid=0)
    change = WriteFile(path=str(target), content=b"now\n", mode=0o644, owner="root", group="root", before=ABSENT)
    journal.intend("r", tuning("file", "t", path="/x", content=""), [(change, original)])
    assert journal._db is not None
    assert journal._lock is not None
    journal._db.close()
    journal._lock.release(remove=False)


def test_a_change_of_a_newer_version_is_named_and_keeps_its_place(tmp_path: Path) -> None:
    leave_journal_of_a_killed_agent(tmp_path / "journal", tmp_path / "one")
    with closing(sqlite3.connect(tmp_path / "journal" / FILE)) as db, db:
        db.execute("UPDATE change SET change = json_set(change, '$.kind', 'invented_later')")
    with pytest.raises(TaskFault, match="a change of kind 'invented_later', which this version"):
        UndoJournal(tmp_path / "journal").outstanding()
    assert places_in(tmp_path / "journal") == {str(tmp_path / "one")}


def test_a_look_waits_for_the_transaction_of_another_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other agent does not know the passwords of this one's systems, so it cannot undo what a killed one has
    left."""
    monkeypatch.setattr("proveout.agent.tuning.tuner.HELD_POLL_S", 0.001)
    undone: list[Path] = []
    tuner, others = Tuner(tmp_path, NOTHING), iter([True, True, False])

    class Machine:
        @contextmanager
        def turn(self, *, needed: bool) -> Iterator[None]:
            if next(others):
                raise TurnTaken("refused", "another agent of this machine is applying its tunings")
            yield

        def directories(self) -> list[Path]:
            undone.append(tmp_path)
            return []

    machine: Any = Machine()
    tuner._undo_abandoned(machine, systems_only=True, until_s=time.monotonic() + PATIENCE_S)
    assert undone == [tmp_path]
    others = iter([True])
    tuner._undo_abandoned(machine, systems_only=True)
    assert undone == [tmp_path], "without a time it leaves the turn to the other agent"


async def test_a_journal_of_another_user_is_ignored_and_the_next_is_undone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    theirs, killed = tmp_path / "undo" / "beside-1", tmp_path / "undo" / "beside-2"
    leave_journal_of_a_killed_agent(theirs, tmp_path / "one")
    leave_journal_of_a_killed_agent(killed, tmp_path / "two")
    for path in (theirs, *theirs.iterdir()):
        os.chown(path, THEIRS, THEIRS)
    options = servicer.Options(listen="", pki=tmp_path, state_dir=tmp_path, local=True, undo_dir=tmp_path / "undo")
    await servicer._recover(Tuner(options.undo, NOTHING), options)
    assert (tmp_path / "one").read_text() == "now\n"
    assert (tmp_path / "two").read_text() == "before\n"
    warning = f"cannot undo the tuning in {theirs}, so it is left: {theirs}: the folder of the undo journal belongs to another user (Move it away. "
    assert any(warning in record.getMessage() for record in caplog.records if record.levelno == logging.WARNING)


def test_no_change_is_made_when_other_users_could_write_the_undo_journal(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    journal = UndoJournal(tmp_path / "undo" / "h")
    with pytest.raises(TaskFault, match=f"other users can replace .*other users can write {tmp_path}") as caught:
        journal.intend("r", tuning("file", "t", path="/x", content=""), [])
    assert caught.value.code == "refused"
    assert not (tmp_path / "undo").exists()
    tmp_path.chmod(0o700)
    journal.intend("r", tuning("file", "t", path="/x", content=""), [])
    journal.close()
