"""`proveout resume`: continue a run that was interrupted, that failed, or whose coordinator was killed.

Of a run that has finished, it makes the result files that are missing.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from proveout.cli.common import completion
from proveout.cli.common.options import (
    Annotations,
    AnnotationsOption,
    CodeQuality,
    GitlabMetrics,
    MetricsAddress,
    Quiet,
    RunsDir,
)
from proveout.cli.common.with_screen import TellFd

EPILOG = """Examples:

  proveout resume latest

  proveout resume smoke-20260114-101500-3f2a --headless
"""


def resume(
    run: Annotated[
        str,
        typer.Argument(
            help="A run's name or directory, or `latest`.", show_default=False, autocompletion=completion.runs
        ),
    ],
    *,
    headless: Annotated[bool, typer.Option("--headless", help="Plain lines, no screen.")] = False,
    runs_dir: RunsDir = None,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Instead of the file that `run` named.")] = None,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Instead of the file that `run` named.")] = None,
    summary: Annotated[Path | None, typer.Option(metavar="FILE", help="Instead of the file that `run` named.")] = None,
    codequality: CodeQuality = None,
    gitlab_metrics: GitlabMetrics = None,
    annotations: AnnotationsOption = Annotations.auto,
    quiet: Quiet = False,
    metrics: MetricsAddress = None,
    tell_fd: TellFd = None,
) -> None:
    """Continue a run at its first unfinished iteration; finished ones are not run again.

    The plan must be the one of the run. For a run that has finished, missing result files are
    written. Exit codes as of `run`.
    """
    from proveout.cli.common import messages, run_session, with_screen
    from proveout.cli.common import outputs as output_files
    from proveout.coordinator.exporter import http_server
    from proveout.coordinator.storage import resume as resuming
    from proveout.coordinator.storage import run_directory
    from proveout.coordinator.storage.journal import Journal

    if with_screen.wanted(headless=headless or quiet or annotations is Annotations.github):
        named = {"runs_dir": runs_dir, "junit": junit, "json": json, "summary": summary}
        named |= {"codequality": codequality, "gitlab_metrics": gitlab_metrics}
        raise typer.Exit(with_screen.run(["resume", run, *with_screen.words(None, named, metrics=metrics)]))
    directory = run_directory.find(run_directory.runs_directory(runs_dir, os.environ), run)
    messages.note_unchecked(directory.path)
    with http_server.bound(metrics) as listening, Journal(directory.path) as journal:
        chosen = dict(zip(output_files.OUTPUTS, (junit, json, summary, codequality, gitlab_metrics), strict=True))
        try:
            found = resuming.examine(directory)
        except resuming.Finished:
            directory.tidy()  # a coordinator that was killed after the last event leaves the databases' files
            raise typer.Exit(
                output_files.complete(directory, output_files.check_outputs(chosen), annotations, quiet=quiet)
            ) from None
        earlier = {name: Path(path) for name, path in found.command.outputs.items()}
        outputs = output_files.check_outputs({name: chosen[name] or earlier.get(name) for name in output_files.OUTPUTS})
        options = run_session.again(found.plan, directory, found.command, crashed=found.crashed)
        with_screen.tell(tell_fd, directory.path)
        show = run_session.printer(headless=headless, quiet=quiet, earlier=found.events)
        exit_code = run_session.execute(options, journal, show, outputs, annotations, metrics=listening)
    raise typer.Exit(exit_code)
