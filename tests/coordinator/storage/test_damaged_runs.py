"""Damaged run directories: every changed bit of a journal is detected, and every verb that reads a run reports it
without a traceback."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pytest
import thorough
from damage import DAMAGES, Damage, flip
from records import run_finished, run_started

from proveout.cli import execute
from proveout.coordinator.measure import samples
from proveout.coordinator.storage import run_directory
from proveout.coordinator.storage.event_chain import HEAD_FILE, JournalDamaged
from proveout.coordinator.storage.event_codec import DEPTH_MAX, JournalFault, load_bounded
from proveout.coordinator.storage.journal import FILE, Journal, StorageFailed, read, unchecked
from proveout.dsl.compile.compiler import compile_plan
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

PLANS = Path(__file__).parents[3] / "plans"
FLIPS = int(os.environ.get("PROVEOUT_FLIPS", str(thorough.count(1500, 400))))
"""The number of bits of each file that are changed, one at a time; 0: all of them."""
NOTES = tuple(e.Notice(level="info", host="h", text=f"note {number}, 17 rows") for number in range(1, 6))


def a_run(tmp_path: Path) -> Path:
    """Write a journal of five events into a directory without other files."""
    place = tmp_path / "journal"
    place.mkdir()
    with Journal(place) as journal:
        for note in NOTES:
            journal.append(note)
    return place


def a_finished_run(tmp_path: Path) -> run_directory.RunDirectory:
    plan = compile_plan(PLANS / "smoke.yaml")
    directory = run_directory.create(
        tmp_path / "runs", plan, run_directory.Command(plan=str(PLANS / "smoke.yaml")), datetime.now(UTC)
    )
    verdict = e.VerdictReached(id="v", title="", severity="fail", outcome="PASS", check="", evidence="", iterations=())
    ended = run_finished(reason="every verdict passed")
    with Journal(directory.path) as journal:
        for event in (run_started(plan, directory.name), *NOTES, verdict, ended):
            journal.append(event)
    return directory


def unharmed_or_refused(directory: Path, events: tuple[e.Stamped, ...]) -> bool:
    """Return whether the journal is refused; AssertionError when it is read with other events."""
    try:
        found = read(directory)
    except JournalFault:
        return True
    assert found == events
    return False


def bits(path: Path, seed: int) -> Iterable[int]:
    size = path.stat().st_size * 8
    return range(size) if not FLIPS or size <= FLIPS else random.Random(seed).sample(range(size), FLIPS)


def flip_all(place: Path, name: str, chosen: Iterable[int]) -> int:
    """Flip bits one at a time and return the number of refused journals; the others must have unchanged events."""
    events = read(place)
    kept = {path.name: path.read_bytes() for path in place.iterdir()}
    refused = 0
    for bit in chosen:
        flip(place / name, bit)
        try:
            refused += unharmed_or_refused(place, events)
        except AssertionError as fault:
            raise AssertionError(f"bit {bit} of {name}") from fault
        for path in place.iterdir():
            if path.name not in kept:
                path.unlink()
        for other, data in kept.items():
            (place / other).write_bytes(data)
    return refused


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)
def test_damage_is_named(tmp_path: Path, damage: Damage) -> None:
    place = a_run(tmp_path)
    damage.apply(place)
    with pytest.raises(JournalFault, match=damage.words) as caught:
        read(place)
    assert str(place) in str(caught.value)
    with pytest.raises((JournalFault, StorageFailed)):
        Journal(place)


@pytest.mark.thorough
@pytest.mark.parametrize("name", [FILE, HEAD_FILE])
def test_every_changed_bit_is_detected_or_has_no_effect(tmp_path: Path, name: str) -> None:
    place = a_run(tmp_path)
    chosen = list(bits(place / name, seed=53))
    refused = flip_all(place, name, chosen)
    if name == HEAD_FILE:
        assert refused >= len(chosen) - 12 * 8, "all but those of the epoch, which only a coordinator needs"


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
    DAMAGES[0].apply(directory.path)
    with pytest.raises(JournalDamaged, match="event 3"):
        read(directory.path)


def test_a_growing_journal_is_read_from_the_position_of_a_watcher(tmp_path: Path) -> None:
    place = a_run(tmp_path)
    assert [stamped.sequence for stamped in read(place, after=3)] == [4, 5]
    assert read(place, after=5) == ()
    database = sqlite3.connect(place / FILE, isolation_level=None)
    database.execute("DROP TRIGGER no_update")
    database.execute("UPDATE event SET body = '{}' WHERE sequence = 3")
    database.close()
    assert len(read(place, after=3)) == 2, "later events are checked against the stored hash"
    with pytest.raises(JournalDamaged, match="event 3"):
        read(place, after=2)


def as_version_1(place: Path) -> None:
    """Change the journal to the format of version 0.1."""
    database = sqlite3.connect(place / FILE, isolation_level=None)
    for statement in (
        "DROP TRIGGER no_update",
        "DROP TRIGGER no_delete",
        "ALTER TABLE event DROP COLUMN hash",
        "CREATE TRIGGER no_update BEFORE UPDATE ON event BEGIN SELECT RAISE(ABORT, 'append-only'); END",
        "CREATE TRIGGER no_delete BEFORE DELETE ON event BEGIN SELECT RAISE(ABORT, 'append-only'); END",
        "UPDATE about SET version = 1",
    ):
        database.execute(statement)
    database.close()
    (place / HEAD_FILE).unlink()


def test_a_journal_without_hashes_is_read_and_a_resume_adds_them(tmp_path: Path) -> None:
    place = a_run(tmp_path)
    events = read(place)
    as_version_1(place)
    assert read(place) == events
    assert read(place, after=3) == events[3:]
    assert "version 0.1" in unchecked(place)
    with Journal(place) as journal:
        assert journal.epoch == 2
        journal.append(NOTES[0])
    assert not unchecked(place)
    assert read(place)[:5] == events
    database = sqlite3.connect(place / FILE)
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        database.execute("UPDATE event SET body = ''")
    database.close()
    with Journal(place) as journal:
        assert journal.epoch == 3


@pytest.mark.parametrize("depth", [DEPTH_MAX + 1, 100_000])
def test_too_deeply_nested_json_is_an_error(depth: int) -> None:
    assert load_bounded("[" * DEPTH_MAX + "]" * DEPTH_MAX)
    with pytest.raises(ValueError, match="nested"):
        load_bounded('{"a":' * depth + "1" + "}" * depth)


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
    refused = 0
    for bit in bits(path, seed=55):
        flip(path, bit)
        try:
            assert samples.read_table(path).to_pylist() == rows, f"bit {bit}"
        except samples.SamplesUnreadable:
            refused += 1
        path.write_bytes(data)
    assert refused


VERBS = (
    ["report", "latest"],
    ["resume", "latest", "--headless"],
    ["compare", "latest", "latest"],
    ["runs", "--environment", "latest"],
)
GARBAGE = (
    b"",
    b'{"a":' * 100_000,
    b"[]",
    b'{"plan": "x", "outputs": {"junit": 5}}',
    b"\xff\xfe" * 100,
    b"SQLite format 3\x00" + b"\xff" * 5000,
)


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_a_verb_names_the_changed_event(tmp_path: Path, verb: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    directory = a_finished_run(tmp_path)
    DAMAGES[0].apply(directory.path)
    assert execute([*verb, "--runs-dir", str(tmp_path / "runs")]) == 4
    said = capsys.readouterr().err
    assert "journal.sqlite, event 3" in said
    assert "Restore the run's directory" in said
    assert execute(["runs", "--runs-dir", str(tmp_path / "runs")]) == 0
    assert "damaged: event 3" in capsys.readouterr().out


@pytest.mark.parametrize("data", GARBAGE, ids=lambda data: f"{len(data)}-{data[:12]!r}")
@pytest.mark.parametrize("name", [FILE, HEAD_FILE, "command.json", "result.json", "report.html", "audit.log", "lock"])
def test_garbage_in_a_run_directory_gives_an_error_message(
    tmp_path: Path, name: str, data: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = a_finished_run(tmp_path)
    (directory.path / name).write_bytes(data)
    for verb in (*VERBS, ["runs"]):
        assert execute([*verb, "--runs-dir", str(tmp_path / "runs")]) in {0, 2, 4}
        said = capsys.readouterr()
        assert "Traceback" not in said.out + said.err
