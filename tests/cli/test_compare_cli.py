"""The command `proveout compare`: exit codes, files, refusals."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from recorded_runs import record

from proveout.cli import execute


def recorded(runs: Path, factor: float, *, day: float = 0.0, kernel: str = "6.1") -> str:
    """A finished run whose throughput is `factor` times 1,000."""
    return record(runs, of(factor), day=day, kernel=kernel)


def compare(runs: Path, *words: str) -> int:
    return execute(["compare", "--runs-dir", str(runs), *words])


def test_a_regression_fails_the_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = recorded(tmp_path, 1.0), recorded(tmp_path, 0.8, day=1.0)
    condition = ("--fail-if", "tps.change.upper < -5%")
    files = ("--json", str(tmp_path / "c.json"), "--markdown", str(tmp_path / "c.md"))
    assert compare(tmp_path, before, after, *condition, *files) == 1
    assert "FAILED  TPS fell by more than 5 %\n" in capsys.readouterr().out
    assert json.loads((tmp_path / "c.json").read_text())["exit_code"] == 1
    assert "0.8000 ×" in (tmp_path / "c.md").read_text()
    assert compare(tmp_path, after, before, *condition) == 0
    assert compare(tmp_path, after, before, recorded(tmp_path, 0.6, day=2.0), *condition) == 1
    assert compare(tmp_path, before, after, "--fail-if", "response.p95_us.change.lower > 0") == 3


def test_repeats_that_differ_by_a_factor_of_thousands_are_undecided(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = record(tmp_path, {4: [1.0, 900.0]}), record(tmp_path, {4: [800.0, 2.0]}, day=1)
    assert compare(tmp_path, before, after, "--quiet", "--fail-if", "tps.ratio.upper < 0.95") == 3
    assert "(no interval, n = 2): undecided, these repeats decide nothing" in unwrapped(capsys)


def test_the_short_form_names_the_command_that_prints_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = recorded(tmp_path, 1.0), recorded(tmp_path, 1.01, day=1.0)
    assert compare(tmp_path, before, after, "--band", "5%") == 0
    short = capsys.readouterr().out
    assert "≈ equal within 5 %" in short
    assert f"proveout compare {before} {after} --band 5% --runs-dir {tmp_path} --full" in short
    assert compare(tmp_path, before, after, "--full") == 0
    full = capsys.readouterr().out
    assert "ladder, 4 threads, 3 and 3 repeats" in full
    assert "--full" not in full
    monkeypatch.delenv("PROVEOUT_RUNS_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    Path("runs").symlink_to(tmp_path)
    assert execute(["compare", before, after]) == 0
    assert f"proveout compare {before} {after} --full" in capsys.readouterr().out
    assert compare(tmp_path, before, after, "--quiet", "--fail-if", "tps.ratio < 0.9") == 0
    legend, sentence = capsys.readouterr().out.splitlines()
    assert legend == f"A = {before}, B = {after}"
    assert sentence.startswith("passed: TPS is not shown to have fallen below 0.9 × (B, ladder at 4 threads: ")


def test_sides_of_several_runs_and_earlier_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The run is the unit: equal runs that differ by some percent are not called different, as single ones would be."""
    base = [
        record(tmp_path, of(factor), day=day, labels={"branch": "main"}) for day, factor in enumerate((1.0, 1.03, 0.98))
    ]
    fixed = [
        record(tmp_path, of(factor), day=day, labels={"branch": "fix"})
        for day, factor in enumerate((1.02, 0.97, 1.01), 3)
    ]
    condition = ("--fail-if", "tps.change.lower > 0 || tps.change.upper < 0")
    assert compare(tmp_path, base[0], fixed[1], *condition) == 1
    assert "how much runs differ is not in them (4 earlier runs here, 5 would show it)" in unwrapped(capsys)
    assert compare(tmp_path, *base, "--", *fixed, *condition) == 0
    said = unwrapped(capsys)
    assert "A 3 runs and B 3 runs: intervals are over runs" in said
    assert f"proveout compare {' '.join(base)} -- {' '.join(fixed)} --runs-dir" in said
    record(tmp_path, of(0.5), day=6, labels={"branch": "fix"}, ended=False)
    (tmp_path / fixed[0]).rename(tmp_path / "renamed")
    assert compare(tmp_path, "--label", "branch=main", "--", "--label=branch=fix", *condition) == 0
    assert f"{base[0]} +" in unwrapped(capsys)
    more = record(tmp_path, of(0.99), day=7)
    assert compare(tmp_path, base[0], fixed[1], *condition) == 0
    assert "runs of this plan differ by" in unwrapped(capsys)
    assert compare(tmp_path, *base, "--", base[0]) == 2 == compare(tmp_path, more, "--")
    assert compare(tmp_path, "--label", "branch=none", "--", more) == 2
    assert "no finished run in" in capsys.readouterr().err
    assert compare(tmp_path, "--label", "branch=main") == 2
    assert "name the runs of the other side behind `--`" in capsys.readouterr().err


def of(factor: float) -> dict[int, list[float]]:
    return {4: [factor * (1000.0 + repeat) for repeat in (1, 2, 3)]}


def unwrapped(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("band", ["100%", "5 percent"])
def test_a_wrong_band_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], band: str) -> None:
    recorded(tmp_path, 1.0)
    assert compare(tmp_path, "latest", "latest", f"--band={band}") == 2
    assert "is not between 0 % and 100 %; write 5% or 0.05" in " ".join(capsys.readouterr().err.split())


def test_runs_that_are_not_comparable_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = recorded(tmp_path, 1.0), recorded(tmp_path, 1.01, day=1.0, kernel="6.2")
    assert compare(tmp_path, before, after) == 2
    assert "db1: kernel: 6.1 -> 6.2" in capsys.readouterr().err
    assert compare(tmp_path, before, after, "--allow", "cpus,kernel") == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "db1: kernel 6.1 6.2" in printed
    assert "compared despite 1 difference" in printed
    assert compare(tmp_path, before, after, "--despite") == 0


def test_a_copy_of_a_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A gate that compares a run with itself is green for ever."""
    run = recorded(tmp_path, 1.0)
    shutil.copytree(tmp_path / run, tmp_path / "reference")
    assert compare(tmp_path, "reference", run, "--despite", "--fail-if", "tps.ratio.upper < 0.95") == 2
    assert f"both runs are {run}, or copies of it" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("latest",), ("latest", "nothing"), ("latest", "latest", "--fail-if", "tpss < 1")])
def test_a_wrong_command_line_is_an_error_without_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    recorded(tmp_path, 1.0)
    assert compare(tmp_path, *words) == 2
    captured = capsys.readouterr()
    assert captured.err
    assert "Traceback" not in captured.err
    assert not captured.out
