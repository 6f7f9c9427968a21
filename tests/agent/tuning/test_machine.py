"""Several agents on one machine: locks between runs, undoing the changes of a killed agent, and messages; and trust in undo
journals: an agent ignores a journal that other users can write, and undoes the others."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from eventually import PATIENCE_S, eventually_async
from tuning_bench import full, host_in, put, tuning

from proveout.agent.daemon import servicer
from proveout.agent.errors import TaskFault
from proveout.agent.security.policy import NOTHING
from proveout.agent.tuning import machine as machines
from proveout.agent.tuning import transaction, undo_journal
from proveout.agent.tuning import tuner as tuners
from proveout.agent.tuning.machine import MACHINE, FileLock, Held, Hold, Holder, TurnTaken, claims_of, holder_of, public
from proveout.agent.tuning.tuner import Tuner
from proveout.agent.tuning.undo_journal import FILE, Machine, UndoJournal, places_in
from proveout.dsl.operations.change import Change, SetText, WriteFile
from proveout.dsl.operations.facts import Original
from proveout.dsl.plan.stages import Tuning
from proveout.proto.wire.tasks import Endpoint

SWAP, DIRTY = "proc/sys/vm/swappiness", "proc/sys/vm/dirty_ratio"
PORTS = "proc/sys/net/core/somaxconn"
PASSWORD = "kanarek/42?ż&p@ss'w%rd"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for path, value in ((SWAP, "60\n"), (DIRTY, "20"), (PORTS, "4096\n")):
        put(root, f"/{path}", value)
    return root


@pytest.fixture
def agent(tmp_path: Path, root: Path) -> Callable[[str], Tuner]:
    return lambda name: Tuner(tmp_path / "machine", prepare=lambda _: host_in(root), host=name)


def value(root: Path, path: str) -> str:
    return (root / path).read_text().strip()


def swap(value: str) -> Tuning:
    return tuning("sysctl", "swap", settings={"vm.swappiness": value})


def ports(value: str) -> Tuning:
    return tuning("sysctl", "ports", settings={"net.core.somaxconn": value})


async def apply(agent: Tuner, run: str, *tunings: Tuning, messages: list[str] | None = None) -> list[tuple[str, str]]:
    log = (lambda _text: None) if messages is None else messages.append
    states = await agent.apply(run, tunings, (), agent.directory.parent, epoch="1", notify=log)
    return [(state.name, state.outcome) for state in states]


async def test_a_run_with_another_host_name_waits_and_then_is_refused(
    agent: Callable[[str], Tuner], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, messages = agent("a"), agent("b"), list[str]()
    assert await apply(first, "run-1", swap("10")) == [("swap", "applied")]
    attempts, attempt = list[object](), Tuner._in_turn
    monkeypatch.setattr(Tuner, "_in_turn", lambda *of, **more: attempts.append(of) or attempt(*of, **more))
    applying = asyncio.ensure_future(apply(second, "run-2", swap("20"), messages=messages))
    await eventually_async(lambda: len(attempts) > 3, "it tries again")
    monkeypatch.setattr(tuners, "HELD_S", 0.0)
    with pytest.raises(
        TaskFault, match=rf"tuning this machine: run run-1 on host a \(process {os.getpid()}\)"
    ) as caught:
        await applying
    assert caught.value.code == "refused"
    assert caught.value.way_out
    (line,) = messages
    assert line.startswith("waiting to tune this machine, for 0 s so far, up to 30 s: another agent is tuning")
    assert value(root, SWAP) == "10"
    await second.close(keep_data=False)  # it has nothing to undo, and does not touch the changes of the other
    assert value(root, SWAP) == "10"
    await first.close(keep_data=False)
    assert value(root, SWAP) == "60"
    assert not first.directory.exists()


async def test_hosts_of_one_run_share_their_machine(agent: Callable[[str], Tuner], root: Path) -> None:
    first, second, third = agent("a"), agent("b"), agent("c")
    assert await apply(first, "run", swap("10")) == [("swap", "applied")]
    assert await apply(second, "run", swap("10")) == [("swap", "unchanged")]
    dirty = tuning("sysctl", "dirty", settings={"vm.dirty_ratio": "5"})
    assert await apply(third, "run", dirty) == [("dirty", "applied")]
    (failed,) = await second.apply("run", (swap("20"),), (), second.directory.parent, epoch="1")
    assert failed.outcome == "failed"
    assert "vm/swappiness was already changed on this machine: by run run on host a" in failed.lines[0]
    for one in (first, second, third):
        await one.close(keep_data=False)
    assert (value(root, SWAP), value(root, DIRTY)) == ("60", "20")
    assert not first.directory.exists()


@pytest.mark.parametrize(("run", "epoch"), [("run-2", "1"), ("run-1", "2")], ids=["another run", "another coordinator"])
async def test_tuning_waits_until_the_other_agent_has_reverted(
    run: str, epoch: str, agent: Callable[[str], Tuner], root: Path
) -> None:
    """Also for its own value: the other agent would revert it during a measurement. Of an earlier coordinator of
    the same run it reverts its changes at the end of its lease."""
    first, second, messages = agent("a"), agent("b"), list[str]()
    await apply(first, "run-1", swap("10"))
    waiting = second.apply(run, (swap("10"),), (), first.directory.parent, epoch=epoch, notify=messages.append)
    applying = asyncio.create_task(waiting)
    await eventually_async(lambda: messages, "it says that it waits")
    assert not applying.done()
    await first.close(keep_data=False)
    assert [state.outcome for state in await applying] == ["applied"]
    assert value(root, SWAP) == "10"
    await second.close(keep_data=False)
    assert value(root, SWAP) == "60"


async def test_changes_of_a_killed_agent_are_undone_before_another_one_tunes(
    agent: Callable[[str], Tuner], root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise the original of the second agent would be the value of the first. The second agent runs before the first
    is killed."""
    caplog.set_level(logging.WARNING)
    killed(tmp_path / "machine", root, SWAP, "60", "10")
    killed(tmp_path / "machine" / "beside-1", root, DIRTY, "20", "5")
    second = agent("b")
    assert await apply(second, "run-2", swap("20")) == [("swap", "applied")]
    assert value(root, DIRTY) == "20"
    assert "tuning 'x' of an earlier run: reverted" in caplog.text
    await second.close(keep_data=False)
    assert value(root, SWAP) == "60"
    assert not second.directory.exists()


async def test_changes_are_not_held_longer_after_a_reboot_that_has_set_the_clock_back(
    agent: Callable[[str], Tuner], root: Path, tmp_path: Path
) -> None:
    killed(tmp_path / "machine", root, SWAP, "60", "10")
    Hold(run="run-1", boot="before", from_unix_s=time.time() + 1e9, hold_s=0.01).store(tmp_path / "machine")
    await agent("b").recover()
    await eventually_async(lambda: value(root, SWAP) == "60", "it is undone")


async def test_a_host_whose_disk_is_full_is_not_rebooted_and_set_back(
    agent: Callable[[str], Tuner], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The changes that stay over the reboot cannot be noted: the agent of the next boot would undo them."""
    tuner = agent("a")
    assert await apply(tuner, "run-1", swap("20")) == [("swap", "applied")]
    tuner.reboot_at_end("run-1", 600.0)
    monkeypatch.setattr(Hold, "store", full)
    await tuner.close(keep_data=True)
    assert (value(root, SWAP), tuner.reboots) == ("60", False)
    assert not tuner.directory.exists()


def killed(folder: Path, root: Path, path: str, before: str, after: str, *, net: str = "") -> None:
    """Create the state that an agent killed after a change leaves."""
    holder = Holder(run="run-1", host="a", pid=1, claims=(MACHINE,))
    change = SetText(path=f"/{path}", before=before, after=after)
    leave(folder, replace(swap(after), name="x"), change, holder=holder, net=net)
    put(root, f"/{path}", after)


def leave(
    folder: Path,
    one: Tuning,
    change: Change,
    original: Original | None = None,
    *,
    holder: Holder = Holder(),  # noqa: B008 - frozen
    net: str = "",
) -> None:
    """Leave a journal like an agent that was killed after a change."""
    journal = UndoJournal(folder, holder)
    journal.intend("run-1", one, [(change, original)])
    db = journal.open()
    if net:
        db.execute("UPDATE change SET net = ?", (net,))
    db.close()
    assert journal._lock is not None
    journal._lock.release(remove=False)


async def test_an_outstanding_change_does_not_lock_the_machine(
    agent: Callable[[str], Tuner], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change stays in the journal; the next run tunes on top of it and reverts both."""
    first, second = agent("a"), agent("b")
    await apply(first, "run-1", swap("10"))
    with monkeypatch.context() as patch:
        patch.setattr(type(host_in(root).texts), "write", full)
        await first.close(keep_data=False)
    assert value(root, SWAP) == "10"
    assert await apply(second, "run-2", tuning("sysctl", "dirty", settings={"vm.dirty_ratio": "5"})) == [
        ("dirty", "applied")
    ]
    await second.close(keep_data=False)
    assert (value(root, SWAP), value(root, DIRTY)) == ("60", "20")
    assert not first.directory.exists()


async def test_network_namespaces_of_one_machine_are_tuned_concurrently(
    agent: Callable[[str], Tuner], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuners, "HELD_S", 0.0)
    first, second = agent("a"), agent("b")
    for module in (machines, undo_journal):
        monkeypatch.setattr(module, "network", lambda: "here")
    await apply(first, "run-1", ports("8192"))
    with pytest.raises(Held):
        await apply(second, "run-2", ports("16384"))
    for module in (machines, undo_journal):
        monkeypatch.setattr(module, "network", lambda: "there")
    assert await apply(second, "run-2", ports("16384")) == [("ports", "applied")]
    with pytest.raises(Held):
        await apply(agent("c"), "run-3", ports("1"))
    assert await apply(agent("d"), "run-4", swap("10")) == [("swap", "applied")]


@pytest.mark.parametrize(
    ("of", "outcome", "now"),
    [
        ("boot:here", "reverted", "4096"),
        ("boot:there", "residue", "8192"),
        ("another boot:there", "reverted", "8192"),
        ("another boot:here", "reverted", "4096"),  # set again at the start of the host, by the file of the tuning
    ],
)
async def test_a_parameter_of_a_network_namespace_is_undone_in_that_namespace(
    of: str,
    outcome: str,
    now: str,
    agent: Callable[[str], Tuner],
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transaction, "network", lambda: "boot:here")
    monkeypatch.setattr(machines, "boot", lambda: "boot")
    killed(tmp_path / "machine", root, PORTS, "4096", "8192", net=of)
    (state,) = await agent("a").recover()
    assert state.outcome == outcome
    assert value(root, PORTS) == now
    assert (tmp_path / "machine").exists() is (outcome == "residue")


async def test_a_run_that_changes_only_its_own_systems_does_not_keep_others_waiting(
    agent: Callable[[str], Tuner], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, messages = agent("a"), agent("b"), list[str]()
    with monkeypatch.context() as patch:
        patch.setattr("proveout.agent.tuning.tuner.claims_of", lambda *_: frozenset())
        assert await apply(first, "run-1", ports("1")) == [("ports", "applied")]
    assert holder_of(first.directory).claims == ("run:run-1",)
    assert await apply(second, "run-2", swap("20"), messages=messages) == [("swap", "applied")]
    assert messages == []
    for tuner in (second, first):
        await tuner.revert()
    assert (value(root, SWAP), value(root, PORTS)) == ("60", "4096")


async def test_a_fault_does_not_wait_for_another_run(
    agent: Callable[[str], Tuner], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuners, "FAULT_HELD_S", 0.0)
    first, second = agent("a"), agent("b")
    await apply(first, "run-1", swap("10"))
    with pytest.raises(TaskFault, match="another agent is tuning this machine: run run-1"):
        await second.apply("run-2", [swap("20")], (), second.directory.parent, epoch="1", fault="f")
    assert value(root, SWAP) == "10"
    await first.revert()


def test_claims() -> None:
    here = f"net:{machines.network()}"
    mixed = tuning("sysctl", settings={"vm.swappiness": "1", "net.core.somaxconn": "1"})
    stored = tuning("sysctl", settings={"net.core.somaxconn": "1"}, file="/etc/sysctl.d/x.conf")
    assert claims_of([ports("1")], ()) == {here}
    assert claims_of([swap("1")], ()) == {MACHINE}
    assert claims_of([mixed], ()) == {MACHINE, here}
    assert MACHINE in claims_of([stored], ())
    of_system = replace(swap("1"), system="db")
    secret = [Endpoint(system="db", engine="postgres", dsn=f"host=h user=u password={word}") for word in "ab"]
    assert claims_of([of_system], secret[:1]) == claims_of([of_system], secret[1:])
    assert claims_of([of_system], [replace(secret[0], provisioned=True)]) == frozenset()


def test_a_lock_file_that_its_holder_removes_is_not_locked_twice(tmp_path: Path) -> None:
    first, second, third = (FileLock(tmp_path / "lock") for _ in range(3))
    assert first.take()
    assert not second.take()
    first.release(remove=True)
    assert third.take()
    assert not second.take()
    third.release(remove=False)
    assert second.take()
    second.release(remove=False)
    for text in ("", "{}", "[1]", '{"run": "r", "epoch": "1", "host": "h", "pid": "x", "claims": []}'):
        (tmp_path / "lock").write_text(text)
        assert holder_of(tmp_path) == Holder(), "no valid content, no holder"
        with pytest.raises(Held):
            machines.refuse(tmp_path, Holder(claims=(MACHINE,)))


def test_one_transaction_at_a_time(tmp_path: Path) -> None:
    place = Machine(tmp_path / "machine")
    with place.turn(), pytest.raises(TurnTaken), place.turn():
        raise AssertionError("two have the turn")
    assert not place.place.exists()


def test_journals_that_a_full_disk_keeps_from_being_merged_are_not_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same agent opens them again when the disk has space."""
    place = Machine(tmp_path / "machine")
    journals = [place.open(Holder(run=name, host=name, pid=1, claims=(name,))) for name in ("a", "b")]
    for journal, path in zip(journals, (SWAP, DIRTY), strict=True):
        journal.intend("r", swap("10"), [(SetText(path=f"/{path}", before="60", after="10"), None)])
        journal.close()
    mine = Holder(run="c", host="c", pid=1, claims=("c",))
    with monkeypatch.context() as patch:
        patch.setattr(UndoJournal, "_written", full)
        with pytest.raises(OSError, match="No space left"):
            place.open(mine)
    merged = place.open(mine)
    assert len(merged.outstanding()) == 2
    merged.close()


@pytest.mark.parametrize(
    ("engine", "dsn", "kept"),
    [
        ("postgres", "host=h port=1 user=u dbname=d password={quoted}", "host=h port=1 dbname=d user=u"),
        ("postgres", "postgresql://u:{url}@h:1,g:2/d?sslmode=require&password={url}&sslpassword=x", "postgresql://u@h:1,g:2/d?sslmode=require"),
        ("postgres", "postgresql://u:{raw}@h/d", ""),
        ("postgres", "{raw}", ""),
        ("oracle", "u/{raw}@//h:1521/s", "u@//h:1521/s"),
        ("oracle", "sys as sysasm/{raw}@//h/+ASM", "sys as sysasm@//h/+ASM"),
        ("timesten", "u/{raw}@dsn", "u@dsn"),
        ("mysql", "mysql://u:{url}@h/d", "mysql://u@h/d"),
        ("mysql", "mysql://u:{url}@[::1]:3307/d", "mysql://u@[::1]:3307/d"),
    ],
)  # fmt: skip
def test_the_stored_part_of_a_dsn_contains_no_secret(engine: str, dsn: str, kept: str) -> None:
    escaped = PASSWORD.replace("\\", "\\\\").replace("'", "\\'")
    filled = dsn.format(raw=PASSWORD, quoted=f"'{escaped}'", url=quote(PASSWORD, safe=""))
    found = public(Endpoint(system="db", engine=engine, dsn=filled))
    assert found == kept
    assert "kanarek" not in found


def test_a_journal_of_an_earlier_release_is_read_and_its_passwords_are_removed(tmp_path: Path) -> None:
    journal = UndoJournal(tmp_path / "undo")
    db = journal.open()
    db.executescript(
        "DROP TABLE change; DROP TABLE reached;"
        "CREATE TABLE change (id INTEGER PRIMARY KEY AUTOINCREMENT, run TEXT NOT NULL, tuning TEXT NOT NULL, operation TEXT NOT NULL,"
        " keep INTEGER NOT NULL, system TEXT NOT NULL, change TEXT NOT NULL, original TEXT NOT NULL, residue TEXT NOT NULL DEFAULT '',"
        " done INTEGER NOT NULL DEFAULT 0);"
        "CREATE TABLE endpoint (system TEXT PRIMARY KEY, engine TEXT, dsn TEXT, provisioned INTEGER);"
        "INSERT INTO endpoint VALUES ('db', 'postgres', 'password=hunter2', 0);"
    )
    change = undo_journal.change_text(SetText(path="/x", before="1", after="2"))
    db.execute(
        "INSERT INTO change (run, tuning, operation, keep, system, change, original) VALUES ('r', 't', 'sysctl', 0, '', ?, 'null')",
        (change,),
    )
    db.close()
    assert journal._lock is not None
    journal._lock.release(remove=False)
    again = UndoJournal(tmp_path / "undo")
    (entry,) = again.outstanding()
    assert (entry.run, entry.net) == ("r", "")
    again.close()
    assert not any(b"hunter2" in file.read_bytes() for file in (tmp_path / "undo").iterdir())


# ---- trust ---------------------------------------------------------------------------------------------------------------

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
THEIRS = 12345


def leave_journal_of_a_killed_agent(folder: Path, target: Path) -> None:
    """Create a journal with the entry: `target` was "before"."""
    target.write_text("now\n")
    target.chmod(0o644)
    original = Original(exists=True, content=b"before\n", mode=0o644, uid=0, gid=0)
    leave(folder, tuning("file", "t", path="/x", content=""), WriteFile(path=str(target), content=b"now\n"), original)


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

    class Busy:
        @contextmanager
        def turn(self, *, needed: bool) -> Iterator[None]:
            if next(others):
                raise TurnTaken("refused", "another agent of this machine is applying its tunings")
            yield

        def directories(self) -> list[Path]:
            undone.append(tmp_path)
            return []

    machine: Any = Busy()
    tuner._undo_abandoned(machine, systems_only=True, until_s=time.monotonic() + PATIENCE_S)
    assert undone == [tmp_path]
    others = iter([True])
    tuner._undo_abandoned(machine, systems_only=True)
    assert undone == [tmp_path], "without a time it leaves the turn to the other agent"


@as_root
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


async def test_a_damaged_journal_is_left_and_the_next_is_undone(
    agent: Callable[[str], Tuner], root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "machine"
    killed(folder, root, SWAP, "60", "10")
    killed(folder / "beside-1", root, DIRTY, "20", "5")
    damaged = folder / "beside-1" / FILE
    head = damaged.read_bytes()[:4096]
    damaged.write_bytes(head + b"x" * (damaged.stat().st_size - len(head)))
    one = agent("b")
    for _ in range(2):  # it is not locked by the first try
        await one.recover()
    assert (value(root, SWAP), value(root, DIRTY)) == ("60", "5")
    assert caplog.text.count(f"the undo journal in {damaged.parent} cannot be read") == 2
    with pytest.raises(TaskFault, match=f"{damaged.parent} cannot be read"):
        await apply(one, "run-2", swap("20"))


@as_root
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
