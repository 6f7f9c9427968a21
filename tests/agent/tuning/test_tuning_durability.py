"""After a kill during a write, on a full disk, and with concurrent changes of other processes: no leftovers, and no
change of another process is overwritten."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest
from tuning_bench import host_in, picture, put, tuning

from proveout.agent.tuning import transaction
from proveout.agent.tuning.transaction import Transaction
from proveout.agent.tuning.tuner import Tuner
from proveout.agent.tuning.undo_journal import UndoJournal

FILE = tuning("file", path="/etc/app/a.conf", content="new\n")
KEPT = tuning("file", "kept", keep=True, path="/etc/app/a.conf", content="new\n")
SYSCTL = tuning("sysctl", settings={"vm.swappiness": "10"})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    put(root, "/etc/app/a.conf", "old\n")
    put(root, "/proc/sys/vm/swappiness", "60\n")
    return root


def test_the_temporary_file_of_a_killed_agent_is_removed(root: Path, journal: UndoJournal) -> None:
    put(root, "/etc/app/.a.conf.mine", "somebody else's")
    put(root, "/etc/app/.a.conf.proveout-old", "somebody else's too")
    before = picture(root)
    host = host_in(root)
    Transaction(host=host, journal=journal, run="r").apply([FILE])
    put(root, "/etc/app/.a.conf.proveout-0123456789ab", "ne", mode=0o600)
    assert [state.outcome for state in transaction.revert(host, journal)] == ["reverted"]
    assert picture(root) == before


def forbid(journal: UndoJournal, *, action: int | None) -> None:
    """Make statements of a kind fail, as on a full disk."""

    def judge(kind: int, *_: object) -> int:
        return sqlite3.SQLITE_DENY if kind == action else sqlite3.SQLITE_OK

    journal._open().set_authorizer(judge)


def test_a_kept_tuning_stays_when_the_journal_cannot_be_written(root: Path, journal: UndoJournal) -> None:
    host = host_in(root)
    Transaction(host=host, journal=journal, run="r").apply([KEPT])
    forbid(journal, action=sqlite3.SQLITE_DELETE)
    assert [state.outcome for state in transaction.end(host, journal)] == ["kept"]
    assert (root / "etc/app/a.conf").read_text() == "new\n"
    assert journal.outstanding() == ()
    assert not journal.is_written
    forbid(journal, action=None)
    assert journal.is_written


@pytest.mark.parametrize(
    ("wanted", "path", "text"),
    [(FILE, "etc/app/a.conf", "by hand\n"), (SYSCTL, "proc/sys/vm/swappiness", "33\n")],
    ids=["file", "sysctl"],
)
def test_a_concurrent_change_by_another_process_is_not_overwritten(
    wanted: object, path: str, text: str, root: Path, journal: UndoJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    intend = UndoJournal.intend

    def slow(self: UndoJournal, *arguments: object) -> None:
        intend(self, *arguments)  # type: ignore[arg-type]
        (root / path).write_text(text)

    monkeypatch.setattr(UndoJournal, "intend", slow)
    failed, *undone = Transaction(host=host_in(root), journal=journal, run="r").apply([wanted])  # type: ignore[list-item]
    assert failed.outcome == "failed"
    assert f"/{path} was changed by another process just now" in failed.lines[0]
    assert (root / path).read_text() == text
    assert [state.outcome for state in undone] == ["drifted"]
    assert journal.outstanding() == ()


@pytest.mark.parametrize("kept_by", ["file", "text"])
def test_two_changes_of_one_path_are_both_undone_or_none(
    kept_by: str, root: Path, journal: UndoJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the second step cannot be undone, its value must not count as another process's drift of the first, which
    would then be dropped."""
    before, host = picture(root), host_in(root)
    twice = (
        (FILE, tuning("file", "again", path="/etc/app/a.conf", content="newer\n"))
        if kept_by == "file"
        else (SYSCTL, tuning("sysctl", "again", settings={"vm.swappiness": "1"}))
    )
    for one in twice:
        Transaction(host=host, journal=journal, run="r").apply([one])

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(type(host.files), "put", full)
        patch.setattr(type(host.texts), "write", full)
        assert {state.outcome for state in transaction.revert(host, journal)} == {"residue"}
    assert len(journal.outstanding()) == 2
    assert {state.outcome for state in transaction.revert(host, journal)} == {"reverted"}
    assert picture(root) == before


async def test_a_queued_transaction_does_not_block_the_next(root: Path, tmp_path: Path) -> None:
    """The first call has nothing to undo, so its journal is closed; the second, which waited, makes a change; the revert
    finds it."""
    before = picture(root)
    tuner = Tuner(tmp_path / "undo", prepare=lambda _: host_in(root))
    missing = tuning("sysctl", "missing", settings={"vm.no_such_thing": "1"})
    first, second = await asyncio.gather(
        tuner.apply("r", [SYSCTL, missing], (), tmp_path), tuner.apply("r", [FILE], (), tmp_path)
    )
    assert first[0].outcome == "refused"
    assert [state.outcome for state in second] == ["applied"]
    assert [state.outcome for state in await tuner.revert()] == ["reverted"]
    assert picture(root) == before
    assert tuner.is_idle
