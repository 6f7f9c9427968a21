"""`run`, `watch` and `tui` on a pseudo-terminal: the run continues after the end of its screen."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from eventually import eventually
from recorded_runs import record
from terminals import Terminal

from proveout.cli import execute, options, run
from proveout.coordinator.live import event_feed
from proveout.coordinator.live.event_feed import LOG
from proveout.coordinator.storage.journal import is_driven, read
from proveout.core.errors import ProveoutError
from proveout.proto.events import RunFinished

pytestmark = pytest.mark.server

ROOT = Path(__file__).parents[3]
PLAN = """proveout: 1
name: pausing
topology: {hosts: {box: {roles: [client], address: local}}}
stages: [{pause: {duration: 10m}}]
"""


def proveout(*words: str, folder: Path) -> Terminal:
    argv = [sys.executable, "-m", "proveout", *words]
    return Terminal(argv, folder, {**os.environ, "TERM": "xterm-256color"})


def pausing(folder: Path) -> tuple[Terminal, Path]:
    """A run that pauses, on its screen, and its directory."""
    (folder / "plan.yaml").write_text(PLAN)
    terminal = proveout("run", "plan.yaml", "--runs-dir", "runs", folder=folder)
    terminal.until_drawn("running")
    (directory,) = (path for path in (folder / "runs").glob("*/") if (path / LOG).exists())
    return terminal, directory


def outcome(directory: Path) -> RunFinished | None:
    return next((s.event for s in read(directory) if isinstance(s.event, RunFinished)), None)


def test_a_run_continues_after_its_screen_is_killed_and_is_stopped_from_another_one(tmp_path: Path) -> None:
    first, directory = pausing(tmp_path)
    with first, proveout("watch", str(directory), folder=tmp_path) as second:
        second.until_drawn("running")
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
        assert is_driven(directory)
        second.press("qs")
        second.until(lambda: outcome(directory) is not None)
        second.until_drawn("interrupted")
        second.press("q")
        assert second.ended() == 0
        eventually(lambda: not is_driven(directory), "the coordinator ends")
    ended = outcome(directory)
    assert ended is not None
    assert ended.status == "interrupted"
    assert f": {ended.reason} (exit code {ended.exit_code})" in (directory / LOG).read_text()


@pytest.mark.soak
def test_a_killed_run_is_reported_with_the_command_to_resume(tmp_path: Path) -> None:
    terminal, directory = pausing(tmp_path)
    with terminal:
        os.kill(int((directory / "lock").read_text()), signal.SIGKILL)
        terminal.until_drawn("no coordinator runs")
        terminal.press("q")
        assert terminal.ended() == 4
        terminal.until_drawn("proveout resume")


@pytest.mark.parametrize(
    ("left", "ended", "code", "told"),
    [
        ("ended", 130, 130, "Report: "),
        ("detached", None, 0, "The run continues. `proveout watch "),
        ("ended", -signal.SIGKILL, 4, "`proveout resume` continues it."),
    ],
)
def test_the_exit_code_is_that_of_the_run(
    left: str,
    ended: int | None,
    code: int,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The screen and the process of the run are replaced."""
    directory = tmp_path / record(tmp_path, {1: [100.0, 101.0]})
    (directory / "report.html").touch()
    child = SimpleNamespace(directory=lambda: directory, wait=lambda: ended, is_alive=ended is None)
    monkeypatch.setattr(event_feed, "RunProcess", lambda *_, **__: child)
    monkeypatch.setattr(run, "show", lambda *_, **__: left)
    try:
        assert run.run_with_screen(["run", "plan.yaml"]) == code
    except ProveoutError as error:
        assert (error.exit_code, error.way_out) == (code, told)
    else:
        assert capsys.readouterr().out.count(told) == 1


def test_an_interrupt_while_the_run_is_started_reaches_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[str] = []
    child = SimpleNamespace(directory=lambda: None, wait=lambda: 130, stop=lambda: stopped.append("once"))

    def start(*_: object, **__: object) -> SimpleNamespace:
        os.kill(os.getpid(), signal.SIGINT)
        return child

    monkeypatch.setattr(event_feed, "RunProcess", start)
    assert (run.run_with_screen(["run", "plan.yaml"]), stopped) == (130, ["once"])


@pytest.mark.parametrize("number", ["SIGTERM", "SIGHUP"])
def test_a_signal_that_asks_for_the_end_ends_a_command_as_ctrl_c_does(number: str) -> None:
    code = f"""if True:
        import signal
        from proveout import __main__, cli
        cli.execute = lambda _: signal.raise_signal(signal.{number})
        __main__.main()"""
    ended = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=60.0)
    assert (ended.returncode, ended.stderr) == (130, "interrupted\n"), "with what it undoes, not by the signal"


def test_errors_of_a_plan_are_printed_as_without_a_screen(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("proveout: 1\nnam: x\n")
    with proveout("run", "bad.yaml", "--runs-dir", "runs", folder=tmp_path) as terminal:
        assert terminal.ended() == 2
        terminal.until_drawn("unknown key")


@pytest.mark.parametrize("verb", ["watch", "tui"])
def test_a_screen_needs_a_terminal(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute([verb]) == 2
    assert "there is no terminal" in capsys.readouterr().err


@pytest.mark.parametrize(("verb", "screen"), [("watch", "run_app.RunApp"), ("tui", "home.HomeApp")])
def test_a_screen_that_fails_is_an_error(
    verb: str, screen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record(tmp_path, {1: [100.0, 101.0]})
    monkeypatch.setattr(run, "need_terminal", lambda: None)
    monkeypatch.setattr(f"proveout.tui.{screen}.run", lambda app: app.exit(return_code=1))
    assert execute([verb, "--runs-dir", str(tmp_path)]) == 4
    assert "the screen has failed" in capsys.readouterr().err


def test_without_a_terminal_and_a_verb_the_help_begins_with_bench_and_new(capsys: pytest.CaptureFixture[str]) -> None:
    execute([])
    said = "".join(capsys.readouterr())
    verbs = [line.split()[0] for line in said.partition("Commands:")[2].splitlines() if line.strip()]
    assert verbs[:2] == ["bench", "new"]


def test_a_command_line_is_repeated_with_absolute_paths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    found = options.words(["a=1", "b=[1, 2]"], {"runs_dir": Path("r"), "junit": None})
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
    with proveout(folder=tmp_path) as terminal:  # as `proveout tui`
        kept = os.open(terminal.name, os.O_RDWR | os.O_NOCTTY)  # the modes are lost when the last descriptor is closed
        try:
            terminal.until_drawn("✓ of-mine", "✗ broken", "starter")
            assert termios.tcgetattr(kept) != terminal.modes
            assert with_a_folder(tmp_path.resolve())
            terminal.press("q")
            assert terminal.ended() == 0
            assert termios.tcgetattr(kept) == terminal.modes
            # At the end: the previous screen, the cursor, no mouse reports.
            for back, away in ((b"?1049l", b"?1049h"), (b"?25h", b"?25l"), (b"?1000l", b"?1000h")):
                assert away in terminal.drawn
                terminal.until(lambda back=back, away=away: terminal.drawn.rfind(back) > terminal.drawn.rfind(away))  # type: ignore[misc]
            eventually(lambda: not with_a_folder(tmp_path.resolve()), "its processes end")
        finally:
            os.close(kept)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken.yaml", "of-mine.yaml"]
