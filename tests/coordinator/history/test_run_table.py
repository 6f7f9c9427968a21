"""The summaries of a folder of runs, their cache, and the table of all rungs."""

from __future__ import annotations

import dataclasses
import io
import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from recorded_runs import plan, record

from proveout.coordinator.history import runs as history_runs
from proveout.coordinator.history.runs import read_folder, study_digest, to_parquet, to_table
from proveout.coordinator.storage.journal import FILE
from proveout.core.json_data import to_plain


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "proveout" / "runs"


def test_a_row_for_each_rung_of_each_run(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    second = record(runs, {1: [200.0, 202.0, 204.0]}, day=1.0)
    first = record(runs, {1: [100.0, 101.0, 102.0], 4: [300.0, 303.0, 306.0]}, labels={"commit": "a1"})
    table = to_table(read_folder(runs).runs)
    rows = table.to_pylist()
    assert [(row["run"], row["stage"], row["threads"]) for row in rows] == [
        (first, "ladder", 1), (first, "ladder", 4), (second, "ladder", 1)
    ]  # fmt: skip
    assert rows[0]["started"] == datetime(2026, 1, 1, tzinfo=UTC)
    assert (rows[0]["plan"], rows[0]["status"], rows[0]["exit_code"], rows[0]["repeats"]) == ("smoke", "finished", 0, 3)
    assert [row["label.commit"] for row in rows] == ["a1", "a1", None]
    assert rows[1]["tps.mean"] == pytest.approx(303.0)
    assert rows[1]["tps.lower"] < 303.0 < rows[1]["tps.upper"]
    assert rows[1]["tps.cv"] == pytest.approx(0.0099, abs=1e-4)
    assert rows[2]["response.p99_us.mean"] is not None
    assert pq.read_table(io.BytesIO(to_parquet(read_folder(runs).runs))).to_pylist() == rows


def test_runs_that_have_ended_are_read_once(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = tmp_path / "runs"
    record(runs, {1: [100.0, 101.0]})
    record(runs, {1: [100.0, 101.0]}, day=1.0, ended=False)
    seen: list[tuple[int, int]] = []
    first = read_folder(runs, lambda done, total: seen.append((done, total)))
    assert seen == [(0, 2), (1, 2), (2, 2)]
    assert len(list(cache.iterdir())) == 1  # the other one may go on
    opened: list[Path] = []
    real = history_runs.journal.read
    monkeypatch.setattr(history_runs.journal, "read", lambda path: opened.append(path) or real(path))  # type: ignore[func-returns-value]
    assert read_folder(runs) == first
    assert len(opened) == 1
    for entry in cache.iterdir():
        entry.write_text('{"run": 1}')
    assert read_folder(runs) == first, "a damaged entry is not used"
    assert to_table(read_folder(tmp_path / "nothing").runs).num_rows == 0


def test_a_summary_that_an_earlier_release_cached_is_not_used(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Format 2 had the rate of a search as a plain number; it is an estimate now."""
    runs = tmp_path / "runs"
    record(runs, {1: [100.0, 101.0]})
    with monkeypatch.context() as earlier:
        earlier.setattr(history_runs, "FORMAT", 2)
        old = read_folder(runs).runs[0]
        (entry,) = cache.iterdir()
        plain = dataclasses.replace(old, rungs=(dataclasses.replace(old.rungs[0], numbers={"rate": {"mean": 900.0}}),))
        entry.write_text(json.dumps(to_plain(plain)))
        assert read_folder(runs).runs[0] == plain
    assert read_folder(runs).runs[0] == old


def test_a_journal_that_changes_after_it_was_cached_is_read_again(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    name = record(runs, {1: [100.0, 101.0]})
    read_folder(runs)
    (runs / name / FILE).write_bytes(b"not a journal")
    found = read_folder(runs)
    assert not found.runs
    assert [run for run, _ in found.unreadable] == [name]


def test_without_a_cache_it_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = tmp_path / "runs"
    record(runs, {1: [100.0, 101.0]})
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert len(read_folder(runs).runs) == 1


def test_a_user_without_a_home_has_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = tmp_path / "runs"
    record(runs, {1: [100.0, 101.0]})
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)  # it has no account
    with pytest.raises(RuntimeError):
        Path.home()
    assert len(read_folder(runs).runs) == 1


def test_repeats_do_not_change_the_study() -> None:
    assert study_digest(plan(2)) == study_digest(plan(5))
    assert study_digest(plan(2)) != study_digest(plan(2, "2s"))
