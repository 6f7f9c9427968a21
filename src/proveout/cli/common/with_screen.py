"""Run with a screen: the run in a child process, the screen in this one as a watcher.

Data flow: `run` or `resume` on a terminal -> `RunProcess`, a child with the same command line -> its run directory ->
the screen (`Tail`) -> the child's exit code. A screen that is killed, or a terminal that is closed, takes nothing with
it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, TypeAlias

import typer

from proveout.coordinator.live.run_process import LOG, RunProcess
from proveout.core.errors import ProveoutError

if TYPE_CHECKING:
    from proveout.tui.result.model import RunServices
    from proveout.tui.run.event_source import Source

TellFd: TypeAlias = Annotated[int | None, typer.Option("--tell-fd", hidden=True)]
"""The option by which the run gets the pipe for the name of its directory."""


class NoTerminal(ProveoutError):
    """A screen was requested without a terminal."""

    exit_code = 2


class RunKilled(ProveoutError):
    """The process of the run was killed while its screen was open."""

    exit_code = 4


def wanted(*, headless: bool) -> bool:
    """Whether to show a screen: there is a terminal, and no option or variable forbids it."""
    everywhere = all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))  # Textual draws on stderr
    return not headless and everywhere and os.environ.get("TERM", "dumb") != "dumb"


def need_terminal() -> None:
    """Raise NoTerminal when there is none."""
    if not wanted(headless=False):
        raise NoTerminal(
            "there is no terminal to show a run on",
            way_out="`proveout runs` lists the runs; a run's journal and result.json are in its directory.",
        )


def show(source: Source, services: RunServices | None = None, *, read_only: bool = False) -> str:
    """Show the screen until it is left; return how it was left: ended, detached. `read_only`: it cannot stop the
    run."""
    from proveout.tui.run.app import RunApp

    app = RunApp(source, services, read_only=read_only)
    left = app.run()
    if app.fault:
        raise ProveoutError(app.fault)
    return left or "detached"


def words(
    parameters: Sequence[str] | None, options: Mapping[str, Path | None], *, metrics: str | None = None
) -> list[str]:
    """The options as words of a command line, paths absolute: `words(["a=1"], {"runs_dir": …})` -> `-p a=1 --runs-dir
    …`.
    """
    found = [word for parameter in parameters or () for word in ("-p", parameter)]
    for name, path in options.items():
        if path is not None:
            found += [f"--{name.replace('_', '-')}", str(path.absolute())]
    return found if metrics is None else [*found, f"--metrics={metrics}"]


def run(arguments: Sequence[str], output: IO[bytes] | None = None) -> int:
    """Start the run, show it, and return its exit code; 0 when the screen is detached.

    Output of the run before it has a directory goes to `output`, the terminal by default: above all the error when it
    does not start.
    """
    child = RunProcess(*arguments, output=output)
    before = {number: signal.signal(number, lambda *_: child.stop()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        directory = child.directory()
        if directory is None:  # it has printed the error
            return child.wait()
        return _watched(child, directory)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def tell(fd: int | None, directory: Path) -> None:
    """In the child: send the name of the run's directory, and write output there from now on."""
    if fd is None:
        return
    log = os.open(directory / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(log, stream.fileno())
    os.close(log)
    with suppress(OSError):  # the screen is gone already; the run is not
        os.write(fd, os.fsencode(directory) + b"\n")
    os.close(fd)


def _watched(child: RunProcess, directory: Path) -> int:
    from proveout.cli.common.run_services import LocalRun
    from proveout.coordinator.live.follow import Tail
    from proveout.coordinator.storage.run_directory import RunDirectory

    left = show(Tail(directory), LocalRun(RunDirectory(directory)))
    if left == "detached" and child.is_alive:
        sys.stdout.write(
            f"The run continues. `proveout watch {directory}` shows it; its output is in {directory / LOG}.\n"
        )
        return 0
    exit_code = child.wait()
    if exit_code < 0:
        raise RunKilled(
            f"the run's process was ended by signal {-exit_code}",
            where=str(directory),
            way_out="`proveout resume` continues it.",
        )
    summary(directory)
    return exit_code


def summary(directory: Path) -> None:
    """Print the summary of a run, and the path of its report; of one that is under way how to see it again."""
    from proveout.cli.common.run_services import report_path
    from proveout.coordinator.report import terminal
    from proveout.coordinator.report.run_document import run_summary
    from proveout.coordinator.results.results import load_results
    from proveout.coordinator.storage.journal import is_driven, read
    from proveout.coordinator.storage.run_directory import RunDirectory

    if is_driven(directory):
        sys.stdout.write(f"The run continues. `proveout watch {directory}` shows it.\n")
        return
    terminal.show(run_summary(load_results(read(directory)), str(directory)), sys.stdout)
    if (report := report_path(RunDirectory(directory))).is_file():
        sys.stdout.write(f"Report: {report}\n")
