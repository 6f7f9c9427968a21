"""`proveout runs` with its labels and its table, and `proveout trend`."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from recorded_runs import SMOKE, plan, record

from proveout.cli import execute
from proveout.cli.history import EPILOG
from proveout.coordinator.history.metric_history import FILE
from proveout.coordinator.report.run_document import run_document
from proveout.coordinator.results.results import load_results
from proveout.coordinator.storage.journal import read


@pytest.fixture(scope="module")
def steady(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _folder(tmp_path_factory.mktemp("steady"), 14, at=99)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _folder(tmp_path_factory.mktemp("stepped"), 16, at=12)


@pytest.fixture
def stepped(kept: Path, tmp_path: Path) -> Path:
    return shutil.copytree(kept, tmp_path / "runs")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def _folder(runs: Path, count: int, *, at: int, factor: float = 0.9) -> Path:
    generator = np.random.default_rng(1)
    for day in range(count):
        level = 1000.0 * (factor if day >= at else 1.0) * float(np.exp(generator.normal(0.0, 0.005)))
        tps = [float(level * np.exp(generator.normal(0.0, 0.005))) for _ in range(3)]
        record(runs, {1: tps}, day=day, labels={"commit": f"c{day}"})
    return runs


def trend(runs: Path, *words: str) -> int:
    return execute(["trend", "--runs-dir", str(runs), *words])


def test_equal_runs_have_no_change(steady: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert trend(steady, str(SMOKE), "--fail-if", "change") == 0
    shown = capsys.readouterr().out
    assert "None is shown." in shown
    assert "ladder, 1 thread: tps" in shown


def test_a_change_fails_the_job_until_it_is_acknowledged(stepped: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = stepped / "trend.json"
    assert trend(stepped) == 0
    assert trend(stepped, "smoke", "--fail-if", "change", "--by", "commit", "--json", str(file)) == 1
    shown = capsys.readouterr().out
    assert "FAILED change is found" in " ".join(shown.split())
    assert "(c12)" in shown
    found = json.loads(file.read_text())
    tps = next(one for one in found["histories"] if one["metric"] == "tps")
    assert "threads" not in [one["metric"] for one in found["histories"]], "those of a ladder are its rungs"
    (change,) = tps["changes"]
    assert (found["format"], found["exit_code"], change["direction"]) == ("proveout.trend/1", 1, "worse")
    assert change["change_when_shown"] == pytest.approx(-0.1, abs=0.02)
    assert change["effect"] is None, "no run after the one that showed it"
    assert tps["runs"][12]["status"] == "change"
    assert tps["runs"][12]["labels"] == {"commit": "c12"}
    (stepped / change["run"]).rename(stepped / "renamed")
    acknowledge = ("--acknowledge", "renamed", "--note", "checksums", "--fail-if", "change")
    assert trend(stepped, *acknowledge, "--metric", "tps") == 0
    assert trend(stepped, "--fail-if", "change") == 1, "of the other metrics"
    assert trend(stepped, *acknowledge) == 0
    assert "acknowledged:" in capsys.readouterr().out
    assert trend(stepped, "--fail-if", "worse") == 0


def test_a_change_for_the_better_is_not_worse(tmp_path: Path) -> None:
    runs = _folder(tmp_path, 13, at=10, factor=1.2)
    assert trend(runs, "--fail-if", "worse") == 0
    assert trend(runs, "--fail-if", "change") == 1


def test_too_few_runs_are_undecidable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for day in range(5):
        record(tmp_path, {1: [1000.0, 1001.0, 1002.0]}, day=day)
    assert trend(tmp_path) == 0
    assert trend(tmp_path, "--fail-if", "change") == 3
    assert "5 runs; a change can be shown from 10 on" in capsys.readouterr().out
    record(tmp_path, {4: [1000.0, 1001.0, 1002.0]}, day=5)
    assert trend(tmp_path, "--metric", "tps") == 0
    shown = capsys.readouterr().out
    assert "Not in the newest run: ladder, 1 thread: tps;" in shown
    assert re.search(r"1 thread: tps +5 +1,001/s +- ", shown), "the last run of a history is not the newest one"
    assert "Fewer than 10 runs (1)" in shown
    for day in range(6, 11):
        record(tmp_path, {1: [1000.0, 1001.0, 1002.0]}, day=day)
    assert trend(tmp_path, "--metric", "tps") == 0
    assert "Fewer than 10 runs of 1 of 2 metrics (1): a change cannot be shown in them" in capsys.readouterr().out


def test_a_number_that_the_newest_run_lacks_is_undecidable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for day in range(14):
        tps = [1000.0 + day % 3, 1001.0, 1002.0]
        record(tmp_path, {1: tps, 4: tps} if day < 13 else {1: tps}, day=day)
    assert trend(tmp_path, "--metric", "tps") == 0
    assert trend(tmp_path, "--metric", "tps", "--fail-if", "worse") == 3
    assert "ladder, 4 threads: the newest run lacks tps" in " ".join(capsys.readouterr().out.split())


def test_runs_that_differ_are_excluded_with_the_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tps = {1: [1000.0, 1001.0, 1002.0]}
    (tmp_path / record(tmp_path, tps, kernel="5.15")).rename(tmp_path / "renamed")
    record(tmp_path, tps, of=plan(3, "2s"), day=1.0)
    record(tmp_path, tps, day=2.0, ended=False)
    record(tmp_path, {1: [1000.0, 1001.0]}, day=3.0)  # fewer repeats are the same study
    record(tmp_path, tps, day=4.0)
    file = tmp_path / "trend.json"
    assert trend(tmp_path, "--json", str(file)) == 0
    shown = capsys.readouterr().out
    assert "it differs in kernel" in shown
    assert "it is unfinished" in shown
    found = json.loads(file.read_text())
    assert len(found["histories"][0]["runs"]) == 2
    assert any("measure_s" in one["reason"] for one in found["left_out"])
    assert trend(tmp_path, "--allow", "kernel,plan.*", "--json", str(file)) == 0
    assert len(json.loads(file.read_text())["histories"][0]["runs"]) == 4


def test_another_schema_or_setting_is_a_named_boundary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Seen before: a trigger that sleeps was taken for the same series, without a word."""
    tps = {1: [1000.0, 1001.0, 1002.0]}
    plain = {"table t": "id integer", "fsync": "on"}
    slow = {**plain, "trigger wait on t": "sleeps"}
    for day, schema in enumerate((plain, plain, slow, {**slow, "fsync": "off"})):
        record(tmp_path, tps, day=float(day), schema=schema)
    file = tmp_path / "trend.json"
    assert trend(tmp_path, "--json", str(file)) == 0
    found = json.loads(file.read_text())
    assert [len(history["runs"]) for history in found["histories"]] == [1, 1, 1]
    assert [one["reason"] for one in found["left_out"]] == [
        "it differs in trigger wait on t, fsync",
        "it differs in trigger wait on t, fsync",
        "it differs in fsync",
    ]
    names = [[one["name"] for one in boundary["differences"]] for boundary in found["boundaries"]]
    assert names == [["trigger wait on t"], ["fsync"]]
    assert trend(tmp_path, "--allow", "fsync,trigger *", "--json", str(file)) == 0
    table = capsys.readouterr().out.partition("Boundaries")[2].partition("From these runs on")[0]
    assert table.count("fsync") == 1 and "fsync: on -> off" in " ".join(table.split()), table
    assert len(json.loads(file.read_text())["histories"][0]["runs"]) == 4


@pytest.mark.screen
@pytest.mark.screen
def test_runs_of_one_label_have_a_place_each_in_the_order_of_time(tmp_path: Path) -> None:
    page = tmp_path / "t.html"
    for day, branch in enumerate(("main", "fix", "main")):
        record(tmp_path / "runs", {1: [1000.0, 1001.0]}, day=day, labels={"branch": branch})
    assert trend(tmp_path / "runs", "--by", "branch", "--metric", "tps", "--html", str(page)) == 0
    assert re.findall(r'"at": "([^"]*)"', page.read_text()) == ["main", "fix", "main (2)"]


def test_pages(stepped: Path, tmp_path: Path) -> None:
    page, text = tmp_path / "t.html", tmp_path / "t.md"
    assert trend(stepped, "--metric", "tps", "--html", str(page), "--markdown", str(text)) == 0
    assert "<svg" in page.read_text()
    assert "Change points" in text.read_text()


@pytest.mark.parametrize(
    "words",
    [
        ["other"],
        ["--note", "x"],
        ["--acknowledge", "latest"],
        ["--acknowledge", "latest", "--note", "no change begins there"],
        ["-p", "repeats=3"],
        ["--metric", "tps", "--metric", "p99"],
    ],
)
def test_wrong_command_lines(steady: Path, words: list[str]) -> None:
    assert trend(steady, *words) == 2


def test_a_damaged_list_of_acknowledgements_is_an_error(stepped: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (stepped / FILE).write_text("{")
    assert trend(stepped) == 4
    assert "acknowledged changes cannot be read" in capsys.readouterr().err


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
    assert shlex.split(EPILOG)[-1] == "SELECT run, threads, \"tps.mean\" FROM 'runs.parquet'"  # as --help says
    assert "tps.mean" in pq.read_schema(file).names
    assert "2 rows of 1 run" in capsys.readouterr().out
    assert pq.read_table(file).column("label.commit").to_pylist() == ["1a2b", "1a2b"]
    assert execute(["runs", "--runs-dir", str(runs), "--parquet", str(tmp_path / "no" / "x")]) == 2
