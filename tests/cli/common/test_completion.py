"""Completion of command lines: by the call that a shell's script makes, and in bash, fish and zsh."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from proveout.cli import execute
from proveout.cli.common import completion

ROOT = Path(__file__).parents[3]
DEADLINE_S = 60.0


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
def test_candidates_of_words(
    line: str, words: list[str], here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert here.is_dir()
    assert completed(line, monkeypatch, capsys) == words


def test_a_broken_plan_gives_no_candidates(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "bad.yaml").write_text("proveout: [\n")
    assert completed("proveout run bad.yaml -p ", monkeypatch, capsys) == []


def test_folders_above_and_at_the_root_keep_what_was_typed(here: Path) -> None:
    assert "/tmp/" in completion.plan_files("/tm")
    assert completion.plan_files(f"{here}/plans/pre") == [f"{here}/plans/prepaid.yaml"]


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
    (here / ".zshrc").write_text(ZSHRC)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    own = {"HOME": str(here), "ZDOTDIR": str(here), "TERM": "xterm", "PATH": f"{folder}:{os.environ['PATH']}"}
    return {**inherited, **own}


@pytest.mark.slow
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


@pytest.mark.slow
def test_completion_in_fish(outside: dict[str, str]) -> None:
    """fish lists one candidate per line: the word and, after a tab, its description."""
    script = """
_PROVEOUT_COMPLETE=source_fish proveout | source
for line in 'proveout check plans/' 'proveout run plans/prepaid.yaml -p profile=b'
    complete --do-complete $line
end
"""
    argv = [shell("fish"), "--no-config", "-c", script]
    done = subprocess.run(argv, capture_output=True, text=True, env=outside, timeout=180, check=True)
    words = [line.split("\t")[0] for line in done.stdout.splitlines()]
    assert words == ["plans/prepaid.yaml", "profile=banking"], done.stderr


ZSHRC = """
autoload -Uz compinit && compinit -D -u
setopt no_auto_menu
eval "$(_PROVEOUT_COMPLETE=source_zsh proveout)"
completes() { zle complete-word; print -rn -- "$BUFFER" > line.new; mv line.new line }
zle -N completes; bindkey '^T' completes
print -rn ready > line.new && mv line.new line
"""
"""`^T` completes the line and writes it to a file."""


class Zsh:
    """An interactive zsh on a pseudo-terminal."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._line = folder / "line"
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
        self._process = subprocess.Popen(
            [shell("zsh"), "-d", "-i"],
            cwd=folder, env=environment, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        self.drawn = b""

    def until(self, holds: Callable[[], object]) -> None:
        """Read the terminal's output until `holds()` is true."""
        deadline = time.monotonic() + DEADLINE_S
        while not holds():
            assert time.monotonic() < deadline, self.drawn
            assert self._process.poll() is None, self.drawn
            if select.select([self._master], [], [], 0.05)[0]:
                self.drawn += os.read(self._master, 65536)

    def line(self) -> str:
        """Wait for the file with the completed line; return the line."""
        self.until(self._line.exists)
        text = self._line.read_text()
        self._line.unlink()
        return text

    def completed(self, typed: str) -> str:
        self.drawn = b""
        os.write(self._master, b"\x15" + typed.encode() + b"\x14")
        return self.line()

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._master)


@pytest.mark.slow
def test_completion_in_zsh(here: Path, outside: dict[str, str]) -> None:
    shell("zsh")
    zsh = Zsh(here, outside)
    try:
        assert zsh.line() == "ready"
        # A folder does not end the word, a file does.
        assert zsh.completed("proveout run pl") == "proveout run plans/"
        assert zsh.completed("proveout run plans/") == "proveout run plans/prepaid.yaml "
        profile = "proveout run plans/prepaid.yaml -p profile="
        assert zsh.completed(f"{profile}b") == f"{profile}banking "
        # Several are listed.
        assert zsh.completed("proveout watch ") == "proveout watch "
        words = (b"latest", b"smoke-20260101-000000-aaaa", b"smoke-20260102-000000-bbbb")
        zsh.until(lambda: all(word in zsh.drawn for word in words))
    finally:
        zsh.close()
