"""The journal: events are read as they were written, none is lost or changed, one coordinator writes at a time; every changed
bit of a run directory is detected, and every verb that reads a run reports it without a traceback."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
import thorough
from compiled_plans import FOLDER, compiled
from hypothesis import given, settings
from hypothesis import strategies as st
from records import iteration, run_finished, run_started, verdict

from proveout.cli import execute
from proveout.coordinator.measure import samples
from proveout.coordinator.storage import journal as journal_module
from proveout.coordinator.storage import run_directory
from proveout.coordinator.storage.journal import (
    DEPTH_MAX,
    FILE,
    HEAD_FILE,
    LOCK,
    Journal,
    JournalDamaged,
    JournalFault,
    RunInUse,
    StorageFailed,
    decode,
    encode,
    is_driven,
    load_bounded,
    plan_data,
    read,
    recorded_plan,
    unchecked,
)
from proveout.core import linux
from proveout.proto import events as e
from proveout.proto.wire.messages import Sample
from proveout.proto.wire.results import (
    CaptureSample,
    Histogram,
    LoadSecond,
    Reading,
    TransactionCounts,
    TransactionLoad,
)

FINITE = st.floats(allow_nan=False, allow_infinity=False)
st.register_type_strategy(float, FINITE)  # NaN is not equal to itself
DATA = st.dictionaries(st.text(), st.none() | st.integers() | FINITE | st.text() | st.lists(FINITE), max_size=3)
LOST = e.AgentLost(host="h", reason="gone")
UP = e.AgentUp(host="h", agent_version="1", machine_id="m", cores=2, offset_ns=-5, uncertainty_ns=7, facts={"k": "v"})


@cache
def whole(kind: type) -> st.SearchStrategy[Any]:
    """Values of a class of data with all of its fields, those of the classes in them too."""
    hints = get_type_hints(kind)
    for hint in hints.values():
        _register(hint)
    return st.builds(kind, **{name: DATA if "Any" in str(hint) else ... for name, hint in hints.items()})


def _register(hint: Any) -> None:
    for part in get_args(hint):
        _register(part)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        st.register_type_strategy(hint, whole(hint))


@pytest.mark.parametrize("kind", get_args(e.Event))
@settings(max_examples=5)
@given(data=st.data())
def test_decoded_events_are_equal(kind: type[e.Event], data: st.DataObject) -> None:
    event = data.draw(whole(kind))
    assert decode(encode(event)) == event


def test_numpy_scalars_become_numbers() -> None:
    event = iteration("s", 4, 2, {"tps": np.float64(2.5), "ok": np.int64(3)})
    assert json.loads(encode(event))["metrics"] == {"tps": 2.5, "ok": 3}


@pytest.mark.parametrize(
    "change",
    [{"type": "Nonsense"}, {"cores": "two"}, {"surprise": 1}, {"host": None}],
    ids=str,
)
def test_unknown_data_is_refused(change: dict[str, Any]) -> None:
    data = json.loads(encode(UP))
    with pytest.raises(JournalFault):
        decode(json.dumps(data | change))
    del data["host"]
    with pytest.raises(JournalFault):
        decode(json.dumps(data))


def test_a_list_in_place_of_a_number_is_refused_and_does_not_end_the_list_around_it() -> None:
    line = e.LoadLine(name="a", tps=1.0, errors=0, p50_us=2.0, p95_us=None, p99_us=None)
    tick = e.TransactionsTick(id=iteration("s", 4, 2).id, window="measure", seconds=1.0, transactions=(line, line))
    data = json.loads(encode(tick))
    data["transactions"][1]["p50_us"] = [2.0]
    with pytest.raises(JournalFault):
        decode(json.dumps(data))


def test_a_decoded_plan_is_equal() -> None:
    for name in ("hlr-cache-embedded", "storage-forms-embedded", "failover-embedded"):
        plan = compiled(name)
        back = recorded_plan(json.loads(json.dumps(plan_data(plan))))
        assert back == plan
        assert back.digest == plan.digest


def test_appended_events_are_read_in_order_with_their_times(tmp_path: Path) -> None:
    times = iter(range(100, 200))
    events = (run_started({"a": [1, None]}), UP, LOST, run_finished())
    with Journal(tmp_path, clock=lambda: float(next(times))) as journal:
        for event in events:
            journal.append(event)
    stamped = read(tmp_path)
    assert tuple(s.event for s in stamped) == events
    assert [(s.sequence, s.unix_s) for s in stamped] == [(1, 100.0), (2, 101.0), (3, 102.0), (4, 103.0)]


def test_live_events_are_not_stored(tmp_path: Path) -> None:
    tick = e.HostTick(host="h", capture="os", readings={"cpu": 1.0})
    with Journal(tmp_path) as journal:
        with pytest.raises(TypeError):
            journal.append(tick)
        assert journal.live(tick).event == tick
    assert read(tmp_path) == ()


def test_one_coordinator_at_a_time(tmp_path: Path) -> None:
    with Journal(tmp_path):
        assert is_driven(tmp_path)
        with pytest.raises(RunInUse, match=str(os.getpid())):
            Journal(tmp_path)
    assert not is_driven(tmp_path)
    Journal(tmp_path).close()


def test_a_process_that_looks_whether_a_run_is_driven_does_not_keep_a_coordinator_from_it(tmp_path: Path) -> None:
    looking = os.open(tmp_path / LOCK, os.O_RDONLY | os.O_CREAT, 0o600)
    assert linux.lock(looking, shared=True)
    threading.Timer(0.01, os.close, [looking]).start()
    Journal(tmp_path).close()


def test_a_full_disk_raises_storage_failed_and_keeps_stored_events(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        journal.append(LOST)
        journal._database.execute("PRAGMA max_page_count=1")  # SQLite's own "disk is full"
        with pytest.raises(StorageFailed, match=r"the journal cannot be written: .*full") as caught:
            for _ in range(100):
                journal.append(e.Notice(level="info", host="", text="x" * 1000))
        journal._database.execute("PRAGMA max_page_count=1000")
        with pytest.raises(StorageFailed):
            journal.append(LOST)  # the end of a stage, without its last iteration
        journal.append(run_finished())
    assert caught.value.way_out.startswith("Free some space there")
    kept = read(tmp_path)
    assert kept[0].event == LOST
    assert {type(one.event) for one in kept[1:-1]} <= {e.Notice}
    assert kept[-1].event == run_finished()
    with Journal(tmp_path) as journal:
        assert journal.append(LOST).sequence == kept[-1].sequence + 1


def test_a_change_of_stored_events_is_refused(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        journal.append(LOST)
    database = sqlite3.connect(tmp_path / "journal.sqlite")
    for statement in ("UPDATE event SET body = ''", "DELETE FROM event"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            database.execute(statement)
    database.close()


FLIPS = int(os.environ.get("PROVEOUT_FLIPS", str(thorough.count(1500, 60))))
"""The number of bits of each file that are changed, one at a time; 0: all of them."""
NOTES = tuple(e.Notice(level="info", host="h", text=f"note {number}, 17 rows") for number in range(1, 6))


def flip(path: Path, bit: int) -> None:
    """Change one bit of a file in place."""
    with path.open("r+b") as stream:
        stream.seek(bit // 8)
        byte = stream.read(1)[0]
        stream.seek(bit // 8)
        stream.write(bytes([byte ^ (1 << bit % 8)]))


def change(directory: Path, *statements: str) -> None:
    """Remove the journal's triggers and execute statements on it."""
    database = sqlite3.connect(directory / FILE, isolation_level=None)
    for statement in ("DROP TRIGGER no_update", "DROP TRIGGER no_delete", *statements):
        database.execute(statement)
    database.close()


A_NUMBER = "UPDATE event SET body = replace(body, '7', '8') WHERE sequence = 3"
STATEMENTS = (
    ((A_NUMBER,), "event 3"),
    (("UPDATE event SET unix_s = unix_s + 1 WHERE sequence = 2",), "event 2"),
    (("UPDATE event SET body = CAST(body AS BLOB) WHERE sequence = 2",), "event 2"),
    (("DELETE FROM event WHERE sequence = 1",), "event 1 is missing"),
    (("DELETE FROM event WHERE sequence = 3",), "event 3 is missing"),
    (("DELETE FROM event WHERE sequence = 5",), "event.* 5 .*missing at its end"),
    (
        tuple(f"UPDATE event SET sequence = {new} WHERE sequence = {old}" for new, old in ((-2, 2), (2, 3), (3, -2))),
        "event 2",
    ),
    (("DELETE FROM about",), "format are missing"),
    (("UPDATE about SET version = 1",), "format 1, this version reads format 2"),
    (("UPDATE about SET version = 3",), "format 3"),
    (("DROP TABLE event", "CREATE TABLE event (x)"), "damaged.*no such column"),
)
"""Statements that change a journal of five events, and a pattern of the error."""
FILES = (
    (HEAD_FILE, b"", "journal.head"),
    (HEAD_FILE, f"{5:>12} {1:>12} {'a' * 64}\n".encode(), "event 5"),
    (HEAD_FILE, f"{9:>12} {1:>12} {'a' * 64}\n".encode(), "events 6 to 9"),
    (FILE, b"", "."),
    (FILE, b"garbage" * 1000, "cannot be read"),
)
"""A file of it, its new content (b"": the first half of the old one), and a pattern of the error."""


def a_run(tmp_path: Path) -> Path:
    """Write a journal of five events into a directory without other files."""
    place = tmp_path / "journal"
    place.mkdir()
    with Journal(place) as journal:
        for note in NOTES:
            journal.append(note)
    return place


def a_finished_run(tmp_path: Path) -> run_directory.RunDirectory:
    plan = compiled("smoke")
    directory = run_directory.create(
        tmp_path / "runs", plan, run_directory.Command(plan=str(FOLDER / "smoke.yaml")), datetime.now(UTC)
    )
    ended = run_finished(reason="every verdict passed")
    with Journal(directory.path) as journal:
        for event in (run_started(plan, directory.name), *NOTES, verdict("v"), ended):
            journal.append(event)
    return directory


def bits(path: Path, seed: int) -> Iterable[int]:
    size = path.stat().st_size * 8
    return range(size) if not FLIPS or size <= FLIPS else random.Random(seed).sample(range(size), FLIPS)


def flip_all(place: Path, name: str, chosen: Iterable[int]) -> int:
    """Flip bits one at a time and return the number of refused journals; the others must have unchanged events."""
    events = read(place)
    kept = {path.name: path.read_bytes() for path in place.iterdir()}
    count = 0
    for bit in chosen:
        flip(place / name, bit)
        try:
            assert read(place) == events, f"bit {bit} of {name}"
        except JournalFault:
            count += 1
        for path in place.iterdir():
            if path.name not in kept:
                path.unlink()
        for other, data in kept.items():
            (place / other).write_bytes(data)
    return count


@pytest.mark.parametrize(("statements", "words"), STATEMENTS)
def test_changed_events_are_named(tmp_path: Path, statements: Sequence[str], words: str) -> None:
    place = a_run(tmp_path)
    change(place, *statements)
    refused(place, words)


@pytest.mark.parametrize(("name", "data", "words"), FILES, ids=lambda value: f"{value[:12]!r}")
def test_a_changed_file_is_named(tmp_path: Path, name: str, data: bytes, words: str) -> None:
    path = a_run(tmp_path) / name
    path.write_bytes(data or path.read_bytes()[: path.stat().st_size // 2])
    refused(path.parent, words)


def refused(place: Path, words: str) -> None:
    with pytest.raises(JournalFault, match=words) as caught:
        read(place)
    assert str(place) in str(caught.value)
    with pytest.raises((JournalFault, StorageFailed)):
        Journal(place)


def test_the_journal_of_another_user_is_not_called_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = a_run(tmp_path)

    def refused(_: Path) -> bytes:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "read_bytes", refused)
    with pytest.raises(
        JournalFault, match=r"^\S+: journal.head cannot be read: Permission denied\n  Name it"
    ) as raised:
        read(place)
    assert not isinstance(raised.value, JournalDamaged)


@pytest.mark.thorough
@pytest.mark.parametrize("name", [FILE, HEAD_FILE])
def test_every_changed_bit_is_detected_or_has_no_effect(tmp_path: Path, name: str) -> None:
    place = a_run(tmp_path)
    chosen = list(bits(place / name, seed=53))
    count = flip_all(place, name, chosen)
    if name == HEAD_FILE:
        assert count > len(chosen) / 2, "all but those of the epoch, which only a coordinator needs"


_APPEND_AND_DIE = """
import os, signal, sys
from pathlib import Path
from proveout.coordinator.storage.journal import Journal
from proveout.proto.events import Notice
journal = Journal(Path(sys.argv[1]))
for number in range(1, 6):
    journal.append(Notice(level="info", host="h", text=f"note {number}, 17 rows"))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.thorough
def test_every_changed_bit_of_the_write_ahead_log_is_detected_or_has_no_effect(tmp_path: Path) -> None:
    """A killed coordinator leaves its last events in this log, and SQLite ignores the part of a log after a wrong
    checksum."""
    place = tmp_path / "journal"
    place.mkdir()
    ended = subprocess.run([sys.executable, "-c", _APPEND_AND_DIE, str(place)], check=False, timeout=180)
    assert ended.returncode == -signal.SIGKILL
    wal = place / f"{FILE}-wal"
    assert wal.stat().st_size > 0
    (place / f"{FILE}-shm").unlink()
    assert len(read(place)) == 5
    chosen = list(bits(wal, seed=54))
    assert flip_all(place, wal.name, chosen) > len(chosen) / 2
    with Journal(place) as journal:
        assert journal.epoch == 2, "it has left no lock"


def test_a_missing_journal_is_an_error_and_an_empty_one_is_not(tmp_path: Path) -> None:
    with pytest.raises(JournalFault, match="no journal"):
        read(tmp_path)
    (tmp_path / FILE).write_bytes(b"")  # SQLite creates the file before the coordinator creates its tables
    assert read(tmp_path) == ()


def test_a_crash_between_commit_and_head_does_not_count_as_damage(tmp_path: Path) -> None:
    place = a_run(tmp_path)
    earlier = (place / HEAD_FILE).read_bytes()
    with Journal(place) as journal:
        journal.append(NOTES[0])
    (place / HEAD_FILE).write_bytes(earlier)
    assert len(read(place)) == 6
    with Journal(place) as journal:
        assert journal.append(NOTES[1]).sequence == 7
    assert len(read(place)) == 7


def test_coordinators_that_cannot_write_the_head_do_not_damage_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    place = a_run(tmp_path)
    monkeypatch.setattr(journal_module, "write_head", full)
    for has_head in (True, True, False):
        if not has_head:
            (place / HEAD_FILE).unlink()
        with pytest.raises(StorageFailed):
            Journal(place)
    monkeypatch.setattr(os, "pwrite", full)  # into the lock
    with pytest.raises(StorageFailed, match="the run directory cannot be used"):
        Journal(place)
    monkeypatch.undo()
    assert len(read(place)) == 5
    with Journal(place) as journal:
        assert journal.append(NOTES[0]).sequence == 6


def test_a_full_disk_that_keeps_a_journal_from_being_read_is_a_fault_of_that_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        fault = sqlite3.OperationalError("database or disk is full")
        fault.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise fault

    place = a_run(tmp_path)
    monkeypatch.setattr(journal_module, "_connect", full)
    with pytest.raises(JournalFault, match=r"cannot be read: .*full"):
        read(place)


def test_a_journal_that_was_copied_alone_is_read_and_its_end_is_not_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = a_finished_run(tmp_path)
    events = read(directory.path)
    (directory.path / HEAD_FILE).unlink()
    assert read(directory.path) == events
    assert execute(["compare", "latest", "latest", "--runs-dir", str(tmp_path / "runs")]) == 2, "one run is no pair"
    assert "journal.head" in capsys.readouterr().err
    with Journal(directory.path) as journal:
        assert journal.epoch == 2
    assert not unchecked(directory.path), "a resume writes it again"
    (directory.path / HEAD_FILE).unlink()
    change(directory.path, A_NUMBER)
    with pytest.raises(JournalDamaged, match="event 3"):
        read(directory.path)


def test_a_growing_journal_is_read_from_the_position_of_a_watcher(tmp_path: Path) -> None:
    place = a_run(tmp_path)
    assert [stamped.sequence for stamped in read(place, after=3)] == [4, 5]
    assert read(place, after=5) == ()
    change(place, "UPDATE event SET body = '{}' WHERE sequence = 3")
    assert len(read(place, after=3)) == 2, "later events are checked against the stored hash"
    with pytest.raises(JournalDamaged, match="event 3"):
        read(place, after=2)


def test_too_deeply_nested_json_is_an_error() -> None:
    assert load_bounded("[" * DEPTH_MAX + "]" * DEPTH_MAX)
    with pytest.raises(ValueError, match="nested"):
        load_bounded("[" * (DEPTH_MAX + 1) + "]" * (DEPTH_MAX + 1))


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["load", "captures"])
def test_every_changed_bit_of_samples_is_detected_or_has_no_effect(tmp_path: Path, kind: str) -> None:
    identity = e.IterationId(stage="s", rung=4, repeat=2, attempt=1)
    gathering = samples.Gathering(id=identity, hosts={"l": "h", "c": "h"}, names={"c": "os"})
    counts = TransactionCounts(name="t", ok=3)
    load = TransactionLoad(counts=counts, response=Histogram(indices=(1, 5), counts=(2, 1), sum_ns=9))
    for number in range(1, 4):
        second = LoadSecond(second=number, window="measure", start_ns=number, duration_s=1.0, transactions=(load,))
        gathering.add(Sample(key="l", sequence=number, sample=second))
        readings = (Reading(metric="cpu.idle_s_total", value=number * 1.5), Reading(metric="m", value=2.0, label="x"))
        sample = CaptureSample(capture="os", at_ns=number, readings=readings)
        gathering.add(Sample(key="c", sequence=number, sample=sample))
    samples.write(gathering, tmp_path)
    path = tmp_path / f"s-4-2-1.{kind}.parquet"
    rows, data = samples.read_table(path).to_pylist(), path.read_bytes()
    assert len(rows) == (3 if kind == "load" else 6)
    count = 0
    for bit in bits(path, seed=55):
        flip(path, bit)
        try:
            assert samples.read_table(path).to_pylist() == rows, f"bit {bit}"
        except samples.SamplesUnreadable:
            count += 1
        path.write_bytes(data)
    assert count


VERBS = (
    ["report", "latest"],
    ["resume", "latest", "--headless"],
    ["compare", "latest", "latest"],
    ["runs", "--environment", "latest"],
)
NESTED, HEADER, BYTES = b'{"a":' * 100_000, b"SQLite format 3\x00" + b"\xff" * 5000, b"\xff\xfe" * 100
GARBAGE = (
    *((FILE, data) for data in (b"", HEADER)),
    *((HEAD_FILE, data) for data in (b"[]", BYTES)),
    *(("command.json", data) for data in (NESTED, b"[]", b'{"plan": "x", "outputs": {"junit": 5}}', BYTES)),
    *((name, BYTES) for name in ("result.json", "lock")),
)


def test_a_verb_names_the_changed_event(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = a_finished_run(tmp_path)
    change(directory.path, A_NUMBER)
    for verb in VERBS:
        assert execute([*verb, "--runs-dir", str(tmp_path / "runs")]) == 4
        said = capsys.readouterr().err
        assert "journal.sqlite, event 3" in said
        assert "Restore the run's directory" in said
    assert execute(["runs", "--runs-dir", str(tmp_path / "runs")]) == 0
    assert "damaged: event 3" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "data"), GARBAGE, ids=lambda value: f"{value[:12]!r}")
def test_garbage_in_a_run_directory_gives_an_error_message(
    tmp_path: Path, name: str, data: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = a_finished_run(tmp_path)
    (directory.path / name).write_bytes(data)
    for verb in (*VERBS, ["runs"]):
        assert execute([*verb, "--runs-dir", str(tmp_path / "runs")]) in {0, 2, 4}
        said = capsys.readouterr()
        assert "Traceback" not in said.out + said.err
