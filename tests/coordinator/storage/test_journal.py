"""The journal: events are read as they were written, none is lost or changed, one coordinator writes at a time."""

from __future__ import annotations

import dataclasses
import json
import os
import sqlite3
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
from compiled_plans import compiled
from hypothesis import given, settings
from hypothesis import strategies as st
from records import iteration, run_finished, run_started

from proveout.coordinator.storage.journal import (
    Journal,
    JournalFault,
    RunInUse,
    StorageFailed,
    decode,
    encode,
    is_driven,
    plan_data,
    read,
    recorded_plan,
)
from proveout.proto import events as e

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


def test_a_full_disk_raises_storage_failed_and_keeps_stored_events(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        journal.append(LOST)
        journal._database.execute("PRAGMA max_page_count=1")  # SQLite's own "disk is full"
        with pytest.raises(StorageFailed, match="full"):
            for _ in range(100):
                journal.append(e.Notice(level="info", host="", text="x" * 1000))
    kept = read(tmp_path)
    assert kept[0].event == LOST
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
