"""Labels of runs: on the command line, in the list, and in runs that were made before there were labels."""

from __future__ import annotations

from pathlib import Path

import pytest
from recorded_runs import record

from proveout.cli import execute
from proveout.coordinator.report.run_document import run_document
from proveout.coordinator.results.results import load_results
from proveout.coordinator.storage.journal import read


@pytest.mark.parametrize("words", [["commit"], ["a b=c"], ["a=1", "a=2"]])
def test_other_words_and_a_label_twice_are_refused_before_a_run_begins(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = [part for word in words for part in ("--label", word)]
    assert execute(["run", "plans/smoke.yaml", "--headless", *labels, "--runs-dir", str(tmp_path)]) == 2
    assert "--label" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_list_and_the_report_show_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = record(tmp_path, {1: [100.0, 101.0]})
    assert execute(["runs", "--runs-dir", str(tmp_path)]) == 0
    assert "LABELS" not in capsys.readouterr().out
    named = record(tmp_path, {1: [100.0, 101.0]}, day=1.0, labels={"commit": "1a2b", "x": "\x1b[31m"})
    assert execute(["runs", "--runs-dir", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("LABELS")
    assert lines[1].startswith(named)
    assert lines[1].endswith(r"commit=1a2b x=\x1b[31m")
    assert lines[2].startswith(plain)
    assert "commit=1a2b" in run_document(load_results(read(tmp_path / named))).about


def test_the_table_of_runs_as_parquet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import pyarrow.parquet as pq

    runs, file = tmp_path / "runs", tmp_path / "runs.parquet"
    record(runs, {1: [100.0, 101.0], 4: [300.0, 310.0]}, labels={"commit": "1a2b"})
    assert execute(["runs", "--runs-dir", str(runs), "--parquet", str(file)]) == 0
    assert "2 rows of 1 run" in capsys.readouterr().out
    assert pq.read_table(file).column("label.commit").to_pylist() == ["1a2b", "1a2b"]
    assert execute(["runs", "--runs-dir", str(runs), "--parquet", str(tmp_path / "no" / "x")]) == 2
