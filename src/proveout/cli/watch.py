"""`proveout watch` and `proveout tui`: a screen for one run, and a screen with all plans and runs of this folder."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from proveout.cli import options
from proveout.cli.options import RUNS, RunName, RunsDir
from proveout.core import errors, linux
from proveout.core.errors import ProveoutError
from proveout.core.numbers import safe_lines

if TYPE_CHECKING:
    from proveout.coordinator.storage.run_directory import RunDirectory
    from proveout.tui.services import Source


WATCH_EPILOG = """
  proveout watch
  proveout watch smoke-20260114-101500-3f2a --speed 30
  proveout watch --web --port 8080
"""


def watch(
    run: RunName = "latest",
    *,
    speed: Annotated[float, typer.Option(min=0.1, max=1000.0, help="The initial speed of a replay.")] = 10.0,
    web: Annotated[bool, typer.Option("--web", help="Serve the screen to browsers, read-only.")] = False,
    host: Annotated[str | None, typer.Option(help="With --web: the address to listen on [default: 127.0.0.1].")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="With --web: the port [default: 0, a free one].")
    ] = None,
    served: Annotated[bool, typer.Option("--served", hidden=True)] = False,
    runs_dir: RunsDir = RUNS,
) -> None:
    """Show a run full screen: live while its coordinator runs, else its result, with a replay on a key.

    Any number of screens can watch a run; leaving never disturbs it, and prints the summary of a run that has ended,
    with the path of its report. Exit code 0, or 2 when there is no such run or no
    terminal.

    With --web the screen is served to browsers on this machine, until Ctrl-C. The address that is printed has a secret
    token; a browser cannot stop or change the run.
    """
    from proveout.cli import run as cli_run
    from proveout.cli.screen_services import LocalRun
    from proveout.coordinator.storage import run_directory

    if not web:
        options.refuse("only together with --web", host=host, port=port)
    if not (web or served):
        cli_run.need_terminal()
    directory = run_directory.find(runs_dir, run)
    if web:
        serve(directory, speed, host or "127.0.0.1", port or 0)
        return
    if served:  # the process of a browser; its standard output is the screen
        linux.set_parent_death_signal()  # of a server that is killed nothing stays
        address = LocalRun(directory, speed, report_address="report.html")
        cli_run.show(source(directory, speed), address, read_only=True)
        return
    options.note_unchecked(directory.path)
    cli_run.show(source(directory, speed), LocalRun(directory, speed))
    cli_run.summary(directory.path)


def source(directory: RunDirectory, speed: float) -> Source:
    """The live events while a coordinator runs, else a replay that begins at its end."""
    from proveout.cli.screen_services import replay
    from proveout.coordinator.live.event_feed import Tail
    from proveout.coordinator.storage.journal import is_driven

    if is_driven(directory.path):
        return Tail(directory.path)
    return replay(directory, speed)


def serve(directory: RunDirectory, speed: float, host: str, port: int) -> None:
    """Serve the screen to browsers until Ctrl-C. ProveoutError when the packages are missing, or the address is not
    free."""
    try:
        from proveout.cli import web_screen
    except ModuleNotFoundError as error:
        command = errors.install_command("proveout[web]")
        raise options.Unusable(
            f"--web needs the package {error.name}", way_out=f"Install it with: {command}"
        ) from error

    def told(address: str) -> None:
        typer.echo(f"{directory.name} in a browser, read-only: {address}")
        if not web_screen.is_loopback(host):
            typer.echo("Other machines can reach it, without encryption: each person with the address sees the run.")
        typer.echo("Ctrl-C ends the server; the run continues.")

    web_screen.serve(directory, speed, host, port, told)


EPILOG = """
  proveout tui
  proveout tui ~/studies plans/smoke.yaml --runs-dir /var/lib/proveout/runs
"""

ERROR_MAX = 4000
SPEED = 10.0
"""Initial speed of a replay, as of `watch`."""


def tui(
    places: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="PLACE",
            help="Plan files, or folders with plans [default: here, ./plans and the starters of `proveout new`].",
            autocompletion=options.plan_files,
        ),
    ] = None,
    *,
    runs_dir: RunsDir = RUNS,
) -> None:
    """Show the plans found here and the runs so far; start, watch, resume and compare them.

    Exit code 0, or 2 when there is no terminal or a place that was named does not exist.
    """
    from proveout.cli import run
    from proveout.cli.screen_services import LocalServices
    from proveout.coordinator.storage import run_directory

    run.need_terminal()
    run_directory.all_runs(runs_dir)  # the error of a folder that cannot be read; later it has no runs
    from proveout.tui.home import HomeApp, HomeView

    for place in places or ():
        if not place.exists():
            raise typer.BadParameter(f"there is no file or folder {place}", param_hint="PLACE")
    chosen = places or [Path(), Path("plans"), options.STARTERS]
    services = LocalServices(chosen, runs_dir, ", ".join(map(str, places)) if places else str(Path.cwd()))
    view = HomeView()
    while (choice := run.answer(app := HomeApp(services, view))) is not None:
        notice = carried_out(choice, runs_dir)
        view = replace(app.view, notice=notice, pane=app.view.pane if notice else "runs")


def carried_out(words: list[str], runs: Path) -> str:
    """Execute the command, to its end or until its screen is left; the error, "" for none."""
    from proveout.cli import run
    from proveout.cli.screen_services import LocalRun
    from proveout.coordinator.storage.run_directory import RunDirectory

    try:
        if words[0] == "watch":
            directory = RunDirectory(Path(words[1]))
            run.show(source(directory, SPEED), LocalRun(directory, SPEED))
            return ""
        return _run([*words, "--runs-dir", str(runs)])
    except ProveoutError as fault:
        return str(fault)


def _run(arguments: list[str]) -> str:
    """Run it with its screen; the error when it did not start, else ""."""
    from proveout.cli import run

    with tempfile.TemporaryFile() as output:
        sys.stdout.write(f"proveout {safe_lines(' '.join(arguments[:2]))} …\n")
        sys.stdout.flush()
        code = run.run_with_screen(arguments, output)
        output.seek(0)
        return output.read(ERROR_MAX).decode(errors="replace").strip() if code else ""
