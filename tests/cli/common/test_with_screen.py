"""`run`, `watch` and `tui` on a pseudo-terminal: the run continues after the end of its screen."""

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

import live_run
import psutil
import pytest

from proveout.cli import execute
from proveout.cli.common import with_screen
from proveout.coordinator.live.run_process import LOG
from proveout.coordinator.storage.journal import is_driven, read
from proveout.proto.events import RunFinished

ROOT = Path(__file__).parents[3]
DEADLINE_S = 90.0


class Terminal:
    """A command on a pseudo-terminal of 80 × 24, with its output."""

    def __init__(self, *arguments: str, folder: Path = ROOT) -> None:
        self.master, slave = pty.openpty()
        self.name, self.modes = os.ttyname(slave), termios.tcgetattr(slave)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        argv = [sys.executable, "-m", "proveout", *arguments]
        env = {**os.environ, "TERM": "xterm-256color"}
        self.process = subprocess.Popen(
            argv, cwd=folder, stdin=slave, stdout=slave, stderr=slave, env=env, start_new_session=True
        )
        os.close(slave)
        self.drawn = b""

    def until(self, holds: Callable[[], object]) -> None:
        """Read the output until `holds()` is true."""
        deadline = time.monotonic() + DEADLINE_S
        while not holds():
            assert time.monotonic() < deadline, self.drawn[-2000:]
            if select.select([self.master], [], [], 0.1)[0]:
                try:
                    self.drawn += os.read(self.master, 65536)
                except OSError:  # the last process with the terminal has ended or is ending
                    self.process.wait(DEADLINE_S)
                    assert holds(), self.drawn[-2000:]
                    return

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)


def the_run(runs: Path) -> Path | None:
    return next((path for path in runs.glob("*/") if (path / LOG).exists()), None) if runs.is_dir() else None


def outcome(directory: Path) -> RunFinished | None:
    return next((s.event for s in read(directory) if isinstance(s.event, RunFinished)), None)


@pytest.mark.slow
def test_a_run_continues_after_its_screen_is_killed_and_watch_shows_its_end(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(live_run.plan(measure_s=3.0))
    first = Terminal("run", str(tmp_path / "small.yaml"), "--runs-dir", str(tmp_path / "runs"))
    try:
        first.until(lambda: b"running" in first.drawn)
        directory = the_run(tmp_path / "runs")
        assert directory is not None
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
        assert is_driven(directory)
        second = Terminal("watch", str(directory))
        try:
            second.until(lambda: outcome(directory) is not None)
            second.until(lambda: b"finished" in second.drawn)
            second.press("q")
            second.until(lambda: second.process.poll() is not None)
            assert second.process.returncode == 0
        finally:
            second.close()
    finally:
        first.close()
    ended = outcome(directory)
    assert ended is not None
    assert ended.status == "finished"
    first.drawn = b""
    deadline = time.monotonic() + DEADLINE_S
    while is_driven(directory):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert f": {ended.reason} (exit code {ended.exit_code})" in (directory / LOG).read_text()


@pytest.mark.slow
def test_stopping_from_the_screen_ends_the_run_with_its_exit_code(tmp_path: Path) -> None:
    terminal = Terminal("run", "plans/smoke.yaml", "--runs-dir", str(tmp_path / "runs"))
    try:
        terminal.until(lambda: b"db1" in terminal.drawn or b"populate" in terminal.drawn)
        terminal.press("qs")
        directory = the_run(tmp_path / "runs")
        assert directory is not None
        terminal.until(lambda: outcome(directory) is not None)
        terminal.until(lambda: b"interrupted" in terminal.drawn)
        terminal.press("q")
        terminal.until(lambda: terminal.process.poll() is not None)
        assert terminal.process.returncode == 130
    finally:
        terminal.close()


@pytest.mark.slow
def test_a_killed_run_is_reported_with_the_command_to_resume(tmp_path: Path) -> None:
    terminal = Terminal("run", "plans/smoke.yaml", "--runs-dir", str(tmp_path / "runs"))
    try:
        terminal.until(lambda: b"populate" in terminal.drawn)
        directory = the_run(tmp_path / "runs")
        assert directory is not None
        os.kill(int((directory / "lock").read_text()), signal.SIGKILL)
        terminal.until(lambda: b"no coordinator runs" in terminal.drawn)
        terminal.press("q")
        terminal.until(lambda: terminal.process.poll() is not None and b"proveout resume" in terminal.drawn)
        assert terminal.process.returncode == 4
    finally:
        terminal.close()


def test_errors_of_a_plan_are_printed_as_without_a_screen(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("proveout: 1\nnam: x\n")
    terminal = Terminal("run", str(bad), "--runs-dir", str(tmp_path / "runs"))
    try:
        terminal.until(lambda: terminal.process.poll() is not None and b"unknown key" in terminal.drawn)
        assert terminal.process.returncode == 2
    finally:
        terminal.close()


def test_watching_needs_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["watch"]) == 2
    assert "there is no terminal" in capsys.readouterr().err


def test_a_command_line_is_repeated_with_absolute_paths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    found = with_screen.words(["a=1", "b=[1, 2]"], {"runs_dir": Path("r"), "junit": None})
    assert found == ["-p", "a=1", "-p", "b=[1, 2]", "--runs-dir", str(tmp_path / "r")]


def with_a_folder(folder: Path) -> list[psutil.Process]:
    """Processes with this working directory."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE and Path(process.cwd()) == folder:
                found.append(process)
    return found


def test_the_home_screen_shows_the_plans_and_leaves_the_terminal_as_it_was(tmp_path: Path) -> None:
    shutil.copy(ROOT / "plans" / "starters" / "prepaid.yaml", tmp_path / "of-mine.yaml")
    (tmp_path / "broken.yaml").write_text("proveout: 1\nname: broken\nstagse: []\n")
    terminal = Terminal("tui", folder=tmp_path)
    kept = os.open(terminal.name, os.O_RDWR | os.O_NOCTTY)  # the modes are lost when the last descriptor is closed
    try:
        for shown in ("✓ of-mine.yaml", "✗ broken.yaml"):
            terminal.until(lambda shown=shown: shown.encode() in terminal.drawn)  # type: ignore[misc]
        assert termios.tcgetattr(kept) != terminal.modes
        assert with_a_folder(tmp_path.resolve())
        terminal.press("q")
        terminal.until(lambda: terminal.process.poll() is not None)
        assert terminal.process.returncode == 0
        assert termios.tcgetattr(kept) == terminal.modes
        # At the end: the previous screen, the cursor, no mouse reports.
        for back, away in ((b"?1049l", b"?1049h"), (b"?25h", b"?25l"), (b"?1000l", b"?1000h")):
            assert away in terminal.drawn
            terminal.until(lambda back=back, away=away: terminal.drawn.rfind(back) > terminal.drawn.rfind(away))  # type: ignore[misc]
        terminal.until(lambda: not with_a_folder(tmp_path.resolve()))
    finally:
        os.close(kept)
        terminal.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken.yaml", "of-mine.yaml"]
