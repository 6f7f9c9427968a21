"""The journal: events are read as they were written, none is lost or changed, one coordinator writes at a time."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from records import begun, ended, iteration, run_finished, run_started, summary

from proveout.coordinator.storage.event_codec import JournalFault, decode, encode, plan_data, recorded_plan
from proveout.coordinator.storage.journal import FILE, Journal, RunInUse, StorageFailed, is_driven, read
from proveout.dsl.compile.compiler import compile_plan
from proveout.proto import events as e
from proveout.proto.fault_events import FaultMeasured, FaultOnLoad
from proveout.proto.wire.results import InvariantCheck, Populated, TableCount, TableDifference, TuningState

PLANS = Path(__file__).parents[3] / "plans"
IDENTITY = e.IterationId(stage="s", rung=4, repeat=2, attempt=1)
FINISHED = iteration(
    "s",
    4,
    2,
    {"tps": 10.5, "response": {"p99_us": 3.0}, "hosts": {"db1": {"cpu": {"busy_fraction": 0.5}}}},
    findings=(e.ValidityFinding(check="errors", ok=True, evidence="0 of 10", voids=False),),
    transactions=(summary("GetAccessData", ok=10, logical_failures=1, errors={"40001": 2}, response={"avg_us": 5.0}),),
    waits=(e.WaitLine(event="WalSync", wait_class="IO", seconds=1.0, db_time_fraction=0.5),),
    series={"tps": (1.0, 2.0)},
    faults=(
        FaultMeasured(
            fault="crash",
            number=1,
            begins_s=20.0,
            outage_s=3.0,
            failed=7,
            residue=("a file",),
            loads=(FaultOnLoad(host="client1", outage_s=3.5),),
        ),
    ),
)
ONE_OF_EACH: tuple[e.Event, ...] = (
    run_started({"a": [1, None]}),
    e.AgentUp(host="h", agent_version="1", machine_id="m", cores=2, offset_ns=-5, uncertainty_ns=7, facts={"k": "v"}),
    e.AgentLost(host="h", reason="gone"),
    e.SystemUp(system="s", host="h", engine="postgres", version="18", provisioned=True, settings={"a": "b"}),
    begun("s"),
    e.StageProgress(stage="s", host="h", done=1.0, total=2.0, unit="rows"),
    e.PopulateFinished(
        stage="s",
        system="db",
        populated=Populated(tables=(TableCount(table="t", rows=1, expected_low=1, expected_high=2),), seconds=0.5),
    ),
    e.ValuesTaken(stage="s", repeat=1, values={"elapsed_s": 0.5, "max_iops": 12.0}),
    e.IterationStarted(id=IDENTITY, rate=500.0, starts_in_s=0.3, ramp_up_s=1.0, measure_s=3.0, ramp_down_s=1.0),
    e.LoadTick(id=IDENTITY, second=0, window="measure", tps=1.0, avg_us=1.0, p50_us=1.0, p99_us=1.0, errors=0),
    e.HostTick(host="h", capture="os", readings={"cpu": 1.0}),
    FINISHED,
    e.IterationVoided(id=IDENTITY, reason="lost", rerun=True),
    e.ProbeFinished(stage="s", probe=1, phase="bracket", rate=500.0, accepted=True, evidence="e"),
    e.SearchFinished(stage="s", rate=None, probes=3, reason="none"),
    e.LadderCut(stage="s", at_rung=4, skipped=(8, 16), evidence="e"),
    e.PropagationCompared(
        source="a",
        sink="b",
        drained=True,
        drain_s=0.1,
        tables=(TableDifference(table="t", source_rows=1, sink_rows=1, source_checksum="x", sink_checksum="x"),),
    ),
    e.FactsTaken(when="end", host="h", system="db", facts={"version": "18", "cpus": 2, "governor": None}),
    e.InvariantsSeen(
        stage="s",
        iteration="s/4/1/1",
        system="a",
        checks=(InvariantCheck(name="sum", holds=False, evidence="1 is not 2"),),
        seconds=0.1,
        tallies={"NewOrder": 30_010},
    ),
    e.FaultSeen(
        id=IDENTITY,
        host="h",
        fault="crash",
        number=1,
        step="failed",
        at_s=1.5,
        text="no",
        times=3,
        after_s=0.1,
    ),
    e.TuningSeen(
        host="h",
        act="apply",
        stage="s",
        states=(TuningState(name="swap", operation="sysctl", outcome="applied", lines=("10 -> 20",), keep=True),),
        seconds=0.1,
    ),
    ended("s", {"rungs": {"4": {"tps": {"mean": 1.0}}}}),
    e.VerdictForeseen(id="v", title="t", severity="warn", outcome="FAIL", evidence="e"),
    e.TransactionsTick(
        id=IDENTITY,
        window="measure",
        seconds=2.0,
        transactions=(
            e.TransactionLine(
                name="t", tps=1.0, ok=2, logical_failures=0, errors=1, p50_us=1.0, p95_us=2.0, p99_us=3.0
            ),
        ),
    ),
    e.WaitsTick(
        id=IDENTITY,
        host="h",
        capture="w",
        seconds=2.0,
        waits=(e.WaitLine(event="CPU", wait_class="CPU", seconds=1.0, db_time_fraction=1.0),),
    ),
    e.AgentsTick(
        lease_s=10.0, beat_s=2.0, agents=(e.AgentLine(host="h", offset_ns=1, uncertainty_ns=2, silent_s=0.5),)
    ),
    e.VerdictReached(
        id="v", title="t", severity="fail", outcome="PASS", check="c", evidence="ü ✓ \u0000", iterations=("s/4/1/1",)
    ),
    e.Notice(level="warning", host="", text="n"),
    run_finished(),
)
JOURNALLED = tuple(event for event in ONE_OF_EACH if not isinstance(event, e.LIVE_EVENTS))


def test_the_examples_contain_each_kind_of_event() -> None:
    assert {type(event) for event in ONE_OF_EACH} == set(get_args(e.Event))


@pytest.mark.parametrize("event", ONE_OF_EACH, ids=lambda event: type(event).__name__)
def test_decoded_events_are_equal(event: e.Event) -> None:
    assert decode(encode(event)) == event


def test_numpy_scalars_become_numbers() -> None:
    event = dataclasses.replace(FINISHED, metrics={"tps": np.float64(2.5), "ok": np.int64(3)})
    assert json.loads(encode(event))["metrics"] == {"tps": 2.5, "ok": 3}


@pytest.mark.parametrize(
    "change",
    [
        {"type": "Nonsense"},
        {"cores": "two"},
        {"surprise": 1},
        {"host": None},
        {"facts": []},
    ],
    ids=str,
)
def test_unknown_data_is_refused(change: dict[str, Any]) -> None:
    data = json.loads(encode(ONE_OF_EACH[1]))
    with pytest.raises(JournalFault):
        decode(json.dumps(data | change))
    del data["host"]
    with pytest.raises(JournalFault):
        decode(json.dumps(data))


def test_a_decoded_plan_is_equal() -> None:
    for path in ("hlr-cache-embedded", "storage-forms-embedded", "failover-embedded"):
        plan = compile_plan(PLANS / f"{path}.yaml")
        back = recorded_plan(json.loads(json.dumps(plan_data(plan))))
        assert back == plan
        assert back.digest == plan.digest


def test_appended_events_are_read_in_order_with_their_times(tmp_path: Path) -> None:
    times = iter(range(100, 200))
    with Journal(tmp_path, clock=lambda: float(next(times))) as journal:
        for event in JOURNALLED:
            journal.append(event)
    stamped = read(tmp_path)
    assert tuple(s.event for s in stamped) == JOURNALLED
    assert [s.sequence for s in stamped] == list(range(1, len(JOURNALLED) + 1))
    assert [s.unix_s for s in stamped] == [100.0 + n for n in range(len(JOURNALLED))]


def test_each_opening_has_a_higher_epoch_and_continues_the_numbers(tmp_path: Path) -> None:
    for epoch in (1, 2, 3):
        with Journal(tmp_path) as journal:
            assert journal.epoch == epoch
            assert journal.append(JOURNALLED[2]).sequence == epoch


def test_live_events_are_not_stored(tmp_path: Path) -> None:
    tick = next(event for event in ONE_OF_EACH if isinstance(event, e.LoadTick))
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


_APPEND_AND_DIE = """
import os, signal, sys
from pathlib import Path
from proveout.coordinator.storage.journal import Journal
from proveout.proto.events import AgentLost
Journal(Path(sys.argv[1])).append(AgentLost(host="h", reason="gone"))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_coordinator_leaves_its_events_and_no_lock(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", _APPEND_AND_DIE, str(tmp_path)], check=False, timeout=180)
    assert ended.returncode == -signal.SIGKILL
    assert [s.event for s in read(tmp_path)] == [JOURNALLED[2]]
    with Journal(tmp_path) as journal:
        assert journal.epoch == 2


def test_a_full_disk_raises_storage_failed_and_keeps_stored_events(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        journal.append(JOURNALLED[2])
        journal._database.execute("PRAGMA max_page_count=1")  # SQLite's own "disk is full"
        with pytest.raises(StorageFailed, match="full"):
            for _ in range(100):
                journal.append(e.Notice(level="info", host="", text="x" * 1000))
    kept = read(tmp_path)
    assert kept[0].event == JOURNALLED[2]
    with Journal(tmp_path) as journal:
        assert journal.append(JOURNALLED[2]).sequence == kept[-1].sequence + 1


def test_a_journal_of_another_version_and_a_change_of_stored_events_are_refused(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        journal.append(JOURNALLED[0])
    database = sqlite3.connect(tmp_path / "journal.sqlite")
    for statement in ("UPDATE event SET body = ''", "DELETE FROM event"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            database.execute(statement)
    database.execute("UPDATE about SET version = 99")
    database.commit()
    database.close()
    with pytest.raises(JournalFault, match="format 99"):
        read(tmp_path)
    with pytest.raises(JournalFault, match="format 99"):
        Journal(tmp_path)
    assert not is_driven(tmp_path)


def test_a_missing_and_an_unreadable_journal_have_different_errors(tmp_path: Path) -> None:
    with pytest.raises(JournalFault, match="no journal"):
        read(tmp_path)
    (tmp_path / "journal.sqlite").write_bytes(b"garbage" * 1000)
    with pytest.raises(JournalFault, match="cannot be read"):
        read(tmp_path)
    (tmp_path / FILE).write_bytes(b"")  # SQLite creates the file before the coordinator creates its tables
    assert read(tmp_path) == ()
