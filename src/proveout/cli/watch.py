"""`proveout watch`: show a run that is under way, or the result of one that has ended."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from proveout.cli.common import completion
from proveout.cli.common.options import RunsDir

if TYPE_CHECKING:
    from proveout.coordinator.storage.run_directory import RunDirectory
    from proveout.tui.run.event_source import Source

EPILOG = """Examples:

  proveout watch

  proveout watch smoke-20260114-101500-3f2a --speed 30
"""


def watch(
    run: Annotated[
        str, typer.Argument(help="A run's name or directory, or `latest`.", autocompletion=completion.runs)
    ] = "latest",
    *,
    speed: Annotated[float, typer.Option(min=0.1, max=1000.0, help="The initial speed of a replay.")] = 10.0,
    runs_dir: RunsDir = None,
) -> None:
    """Show a run full screen: live while its coordinator runs, else its result, with a replay on a key.

    Any number of screens can watch a run; leaving never disturbs it, and prints the summary of a run that has ended,
    with the path of its report. Exit code 0, or 2 when there is no such run or no
    terminal.
    """
    from proveout.cli.common import messages, with_screen
    from proveout.cli.common.run_services import LocalRun
    from proveout.coordinator.storage import run_directory

    with_screen.need_terminal()
    directory = run_directory.find(run_directory.runs_directory(runs_dir, os.environ), run)
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
