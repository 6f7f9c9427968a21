"""`proveout watch`: show a run that is under way, or the result of one that has ended."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from proveout.cli.common import completion
from proveout.cli.common.options import RunsDir
from proveout.core import extras
from proveout.core.errors import ProveoutError

if TYPE_CHECKING:
    from proveout.coordinator.storage.run_directory import RunDirectory
    from proveout.tui.run.event_source import Source

EPILOG = """Examples:

  proveout watch

  proveout watch smoke-20260114-101500-3f2a --speed 30

  proveout watch --web --port 8080
"""


class MissingPackages(ProveoutError):
    """The packages of the extra `web` are not installed."""

    exit_code = 2


def watch(
    run: Annotated[
        str, typer.Argument(help="A run's name or directory, or `latest`.", autocompletion=completion.runs)
    ] = "latest",
    *,
    speed: Annotated[float, typer.Option(min=0.1, max=1000.0, help="The initial speed of a replay.")] = 10.0,
    web: Annotated[bool, typer.Option("--web", help="Serve the screen to browsers, read-only.")] = False,
    host: Annotated[str, typer.Option(help="With --web: the address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="With --web: the port; 0 for a free one.")] = 0,
    served: Annotated[bool, typer.Option("--served", hidden=True)] = False,
    runs_dir: RunsDir = None,
) -> None:
    """Show a run full screen: live while its coordinator runs, else its result, with a replay on a key.

    Any number of screens can watch a run; leaving never disturbs it, and prints the summary of a run that has ended,
    with the path of its report. Exit code 0, or 2 when there is no such run or no
    terminal.

    With --web the screen is served to browsers on this machine, until Ctrl-C. The address that is printed has a secret
    token; a browser cannot stop or change the run.
    """
    from proveout.cli.common import messages, with_screen
    from proveout.cli.common.run_services import LocalRun
    from proveout.coordinator.storage import run_directory

    if not (web or served):
        with_screen.need_terminal()
    directory = run_directory.find(run_directory.runs_directory(runs_dir, os.environ), run)
    if web:
        serve(directory, speed, host, port)
        return
    if served:  # the process of a browser; its standard output is the screen
        address = LocalRun(directory, speed, report_address="report.html")
        with_screen.show(source(directory, speed), address, read_only=True)
        return
    messages.note_unchecked(directory.path)
    with_screen.show(source(directory, speed), LocalRun(directory, speed))
    with_screen.summary(directory.path)


def source(directory: RunDirectory, speed: float) -> Source:
    """The live events while a coordinator runs, else a replay that begins at its end."""
    from proveout.cli.common.run_services import replay
    from proveout.coordinator.live.follow import Tail
    from proveout.coordinator.storage.journal import is_driven

    if is_driven(directory.path):
        return Tail(directory.path)
    return replay(directory, speed, at_end=True)


def serve(directory: RunDirectory, speed: float, host: str, port: int) -> None:
    """Serve the screen to browsers until Ctrl-C. ProveoutError when the packages are missing, or the address is not
    free."""
    try:
        from proveout.cli.common import web_screen
    except ModuleNotFoundError as error:
        command = extras.install_command("proveout[web]")
        raise MissingPackages(f"--web needs the package {error.name}", way_out=f"Install it with: {command}") from error

    def told(address: str) -> None:
        typer.echo(f"{directory.name} in a browser, read-only: {address}")
        if not web_screen.is_loopback(host):
            typer.echo("Other machines can reach it, without encryption: each person with the address sees the run.")
        typer.echo("Ctrl-C ends the server; the run continues.")

    web_screen.serve(directory, speed, host, port, told)
