"""`proveout resume`: go on with a run that was interrupted, that failed, or whose coordinator was killed.

Of a run that has finished, it makes the result files that are missing.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from proveout.cli import complete
from proveout.cli.options import Annotations, AnnotationsOption, CodeQuality, GitlabMetrics, MetricsAddress
from proveout.cli.screened import TellFd

EPILOG = """Examples:

  proveout resume latest

  proveout resume smoke-20260114-101500-3f2a --headless
"""


def resume(
    run: Annotated[
        str,
        typer.Argument(
            help="A run's name or directory, or `latest`.", show_default=False, autocompletion=complete.runs
        ),
    ],
    *,
    headless: Annotated[bool, typer.Option("--headless", help="Plain lines, no screen.")] = False,
    runs_dir: Annotated[
        Path | None, typer.Option(help="Where run directories are [default: $PROVEOUT_RUNS_DIR, or ./runs].")
    ] = None,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Instead of the file that `run` named.")] = None,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Instead of the file that `run` named.")] = None,
    summary: Annotated[Path | None, typer.Option(metavar="FILE", help="Instead of the file that `run` named.")] = None,
    codequality: CodeQuality = None,
    gitlab_metrics: GitlabMetrics = None,
    annotations: AnnotationsOption = Annotations.auto,
    metrics: MetricsAddress = None,
    tell_fd: TellFd = None,
) -> None:
    """Go on with a run at its first unfinished iteration; finished ones are not run again.

    The plan must be the one that the run began with. Of a run that has finished, the result files that are missing are
    made. Exit codes as of `run`.
    """
    from proveout.cli import messages, screened, sitting
    from proveout.cli import outputs as files
    from proveout.coordinator import resume as resuming
    from proveout.coordinator import store
    from proveout.coordinator.dsn import external_endpoints
    from proveout.coordinator.exporter import server
    from proveout.coordinator.journal import Journal

    if screened.wanted(headless=headless or annotations is Annotations.github):
        named = {"runs_dir": runs_dir, "junit": junit, "json": json, "summary": summary}
        named |= {"codequality": codequality, "gitlab_metrics": gitlab_metrics}
        raise typer.Exit(screened.run(["resume", run, *screened.words(None, named, metrics=metrics)]))
    directory = store.find(store.runs_directory(runs_dir, os.environ), run)
    messages.note_unchecked(directory.path)
    with server.bound(metrics) as listening, Journal(directory.path) as journal:
        chosen = dict(zip(sitting.OUTPUTS, (junit, json, summary, codequality, gitlab_metrics), strict=True))
        try:
            found = resuming.examine(directory)
        except resuming.Finished:
            directory.tidy()  # a coordinator that was killed after the last event leaves the databases' files
            raise typer.Exit(files.complete(directory, sitting.check_outputs(chosen), annotations)) from None
        earlier = {name: Path(path) for name, path in found.command.outputs.items()}
        outputs = sitting.check_outputs({name: chosen[name] or earlier.get(name) for name in sitting.OUTPUTS})
        pki_dir = found.command.pki or os.environ.get(sitting.PKI_VARIABLE)
        external = external_endpoints(found.plan, os.environ)
        credentials = sitting.remote_credentials(found.plan, pki_dir)
        sitting.make_room(found.plan)
        arranged = sitting.arrange(found.plan, directory, found.command, external, credentials, crashed=found.crashed)
        screened.tell(tell_fd, directory.path)
        show = sitting.printer(headless=headless, earlier=found.events)
        exit_code = sitting.sit(arranged, journal, show, outputs, annotations, metrics=listening)
    raise typer.Exit(exit_code)
