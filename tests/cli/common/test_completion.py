"""Completion of command lines: by the call that a shell's script makes, and in bash."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from proveout.cli import execute, options

ROOT = Path(__file__).parents[3]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PROVEOUT_RUNS_DIR", raising=False)
    (tmp_path / "plans").mkdir()
    shutil.copy(ROOT / "plans" / "starters" / "prepaid.yaml", tmp_path / "plans" / "prepaid.yaml")
    (tmp_path / "plans" / "notes.txt").write_text("")
    (tmp_path / ".hidden.yaml").write_text("")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "bad.yaml").write_text("proveout: [\n")
    for name in ("smoke-20260101-000000-aaaa", "smoke-20260102-000000-bbbb"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "journal.sqlite").write_bytes(b"")
    return tmp_path


def completed(line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The candidates for the last word of a line in bash."""
    monkeypatch.setenv("_PROVEOUT_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
    with pytest.raises(SystemExit) as left:
        execute([])
    assert left.value.code == 0
    return capsys.readouterr().out.split()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("proveout ru", ["run", "runs"]),
        ("proveout run ", ["plans/", "runs/"]),
        ("proveout run pl", ["plans/", "plans/prepaid.yaml"]),
        ("proveout check ./plans/p", ["./plans/prepaid.yaml"]),
        ("proveout run .h", [".hidden.yaml"]),
        ("proveout watch ", ["latest", "smoke-20260102-000000-bbbb", "smoke-20260101-000000-aaaa"]),
        ("proveout compare latest smoke-20260101", ["smoke-20260101-000000-aaaa"]),
        ("proveout watch --runs-dir elsewhere ", ["latest"]),
        ("proveout new tp", ["tptbm", "tprocc"]),
        ("proveout run plans/prepaid.yaml -p pro", ["profile=prepaid", "profile=banking"]),
        ("proveout run runs/bad.yaml -p ", []),
    ],
)
def test_candidates_of_words(
    line: str, words: list[str], here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert here.is_dir()
    assert completed(line, monkeypatch, capsys) == words


def test_folders_above_and_at_the_root_keep_what_was_typed(here: Path) -> None:
    assert "/tmp/" in options.plan_files("/tm")
    assert options.plan_files(f"{here}/plans/pre") == [f"{here}/plans/prepaid.yaml"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(
    shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_PROVEOUT_COMPLETE", f"source_{shell}")
    with pytest.raises(SystemExit):
        execute([])
    script = capsys.readouterr().out
    assert f"_PROVEOUT_COMPLETE=complete_{shell}" in script


def shell(name: str) -> str:
    """The path of a shell; skips the test without it."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"there is no {name} here")
    return found


@pytest.fixture
def outside(here: Path) -> dict[str, str]:
    """The environment of a shell with `proveout` in its PATH and without the user's settings."""
    folder = here / "bin"
    folder.mkdir()
    (folder / "proveout").write_text(f'#!/bin/sh\nexec {sys.executable} -m proveout "$@"\n')
    (folder / "proveout").chmod(0o755)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    own = {"HOME": str(here), "TERM": "xterm", "PATH": f"{folder}:{os.environ['PATH']}"}
    return {**inherited, **own}


def test_completion_in_bash(outside: dict[str, str]) -> None:
    script = """
eval "$(_PROVEOUT_COMPLETE=source_bash proveout)"
COMP_WORDS=(proveout check plans/p); COMP_CWORD=2
_proveout_completion proveout
printf '%s\\n' "${COMPREPLY[@]}"
"""
    argv = [shell("bash"), "--norc", "-c", script]
    done = subprocess.run(argv, capture_output=True, text=True, env=outside, timeout=180, check=True)
    assert done.stdout.split() == ["plans/prepaid.yaml"]
