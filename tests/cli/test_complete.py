"""What a shell gets to complete: through the very call that its script makes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from proveout.cli import complete, execute

ROOT = Path(__file__).parents[2]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PROVEOUT_RUNS_DIR", raising=False)
    (tmp_path / "plans").mkdir()
    shutil.copy(ROOT / "plans" / "starters" / "prepaid.yaml", tmp_path / "plans" / "prepaid.yaml")
    (tmp_path / "plans" / "notes.txt").write_text("")
    (tmp_path / ".hidden.yaml").write_text("")
    for name in ("smoke-20260101-000000-aaaa", "smoke-20260102-000000-bbbb"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "journal.sqlite").write_bytes(b"")
    return tmp_path


def completed(line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The words that bash is offered for the last word of a line."""
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
        ("proveout check plans/", ["plans/prepaid.yaml"]),
        ("proveout check ./plans/p", ["./plans/prepaid.yaml"]),
        ("proveout run .h", [".hidden.yaml"]),
        ("proveout run nowhere/", []),
        ("proveout watch ", ["latest", "smoke-20260102-000000-bbbb", "smoke-20260101-000000-aaaa"]),
        ("proveout compare latest smoke-20260101", ["smoke-20260101-000000-aaaa"]),
        ("proveout watch --runs-dir elsewhere ", ["latest"]),
        ("proveout new tp", ["tptbm", "tprocc"]),
        ("proveout run plans/prepaid.yaml -p pro", ["profile=prepaid", "profile=banking"]),
        ("proveout run plans/prepaid.yaml -p t", ["threads=1,2,4,8"]),
        ("proveout run plans/notes.txt -p ", []),
        ("proveout run -p ", []),
    ],
)
def test_words_are_offered(
    line: str, words: list[str], here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert here.is_dir()
    assert completed(line, monkeypatch, capsys) == words


def test_a_plan_that_is_broken_completes_nothing(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "bad.yaml").write_text("proveout: [\n")
    assert completed("proveout run bad.yaml -p ", monkeypatch, capsys) == []


def test_folders_above_and_at_the_root_keep_what_was_typed(here: Path) -> None:
    assert "/tmp/" in complete.plan_files("/tm")
    assert complete.plan_files(f"{here}/plans/pre") == [f"{here}/plans/prepaid.yaml"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(
    shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_PROVEOUT_COMPLETE", f"source_{shell}")
    with pytest.raises(SystemExit):
        execute([])
    script = capsys.readouterr().out
    assert f"_PROVEOUT_COMPLETE=complete_{shell}" in script


def test_bash_itself_completes(here: Path) -> None:
    """The script in a real bash. It does not show zsh and fish, which are not everywhere."""
    bash = shutil.which("bash")
    assert bash is not None
    folder = here / "bin"
    folder.mkdir()
    (folder / "proveout").write_text(f'#!/bin/sh\nexec {sys.executable} -m proveout "$@"\n')
    (folder / "proveout").chmod(0o755)
    script = """
eval "$(_PROVEOUT_COMPLETE=source_bash proveout)"
COMP_WORDS=(proveout check plans/p); COMP_CWORD=2
_proveout_completion proveout
printf '%s\\n' "${COMPREPLY[@]}"
"""
    env = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    done = subprocess.run(
        [bash, "--norc", "-c", script], capture_output=True, text=True, env=env, timeout=180, check=True
    )
    assert done.stdout.split() == ["plans/prepaid.yaml"]
