"""What `run` and `resume` have in common: outputs checked before, progress while it runs, reports after, an exit code.

Data flow: a plan, a run directory, its journal -> `coordinator.run` with printers as listeners -> the journal's events ->
result files and a summary on the terminal.
"""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from proveout.cli.common.options import Annotations
from proveout.core.errors import ProveoutError
from proveout.proto.events import Stamped

if TYPE_CHECKING:
    from proveout.cli.common.headless import HeadlessPrinter
    from proveout.coordinator.exporter.server import Listening
    from proveout.coordinator.pki.certificates import Credentials
    from proveout.coordinator.results.results import RunResults
    from proveout.coordinator.run import Listener, RunOptions
    from proveout.coordinator.storage.journal import Journal
    from proveout.coordinator.storage.run_directory import Command, RunDirectory
    from proveout.dsl.plan.plan import Plan
    from proveout.proto.wire.tasks import Endpoint

PKI_VARIABLE = "PROVEOUT_PKI"
OUTPUTS = ("junit", "json", "summary", "codequality", "gitlab-metrics")


class UnusableOutput(ProveoutError):
    """A result file that could not be written; found before the run begins."""

    exit_code = 2


class CertificatesMissing(ProveoutError):
    """The plan has agents that run already, and the command line does not say where the certificates are."""

    exit_code = 2


class TooManyAgents(ProveoutError):
    """More agents than this process may have connections."""

    exit_code = 2


def make_room(plan: Plan) -> None:
    """Let this process open as many files as the plan's agents need. TooManyAgents when the shell's hard limit is below that."""
    needed = files_needed(len(plan.hosts))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY in {soft, hard} or needed <= soft:
        return
    if needed > hard:
        raise TooManyAgents(
            f"{len(plan.hosts)} agents need {needed} open files, and this shell allows {hard}",
            where=plan.name,
            way_out="Raise the limit: ulimit -Hn as root, LimitNOFILE= of a systemd unit.",
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def files_needed(agents: int) -> int:
    """Open files of a coordinator: a connection to each agent, a few while it is dialled, and its own."""
    return 256 + 4 * agents


def check_outputs(outputs: Mapping[str, Path | None]) -> dict[str, str]:
    """The files that were asked for, absolute. UnusableOutput for one that cannot be written."""
    wanted = {name: path.absolute() for name, path in outputs.items() if path is not None}
    for name, path in wanted.items():
        if path.is_dir():
            raise UnusableOutput(f"--{name} {path} is a directory", way_out="Name a file.")
        if not path.parent.is_dir():
            raise UnusableOutput(f"--{name} {path}: there is no directory {path.parent}", way_out="Create it first.")
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise UnusableOutput(f"--{name} {path} cannot be written", way_out="Name a file in a place of yours.")
    return {name: str(path) for name, path in wanted.items()}


def wants_github(annotations: Annotations, environment: Mapping[str, str]) -> bool:
    """Whether the log is to have GitHub's workflow commands: when asked for, or by itself in a GitHub job."""
    asked = annotations is Annotations.github
    return asked or (annotations is Annotations.auto and environment.get("GITHUB_ACTIONS") == "true")


def checkout(environment: Mapping[str, str]) -> Path:
    """The directory that a CI job's file names are relative to; here when this is no job."""
    return Path(environment.get("GITHUB_WORKSPACE") or environment.get("CI_PROJECT_DIR") or Path.cwd())


def remote_credentials(plan: Plan, pki: str | None) -> Credentials | None:
    """The coordinator's credentials, when the plan has agents that run already. PkiError, CertificatesMissing, ProveoutError."""
    from proveout.coordinator.pki.certificates import Credentials
    from proveout.proto.trust.identities import DENIED, Denied

    remote = [host for host in plan.hosts if not host.is_local]
    if not remote:
        return None
    if pki is None:
        raise CertificatesMissing(
            f"host {remote[0].name} has an agent of its own ({remote[0].address}), which wants to see certificates",
            where=str(remote[0].where),
            way_out=f"Name the directory with the coordinator's certificate: --pki DIR or ${PKI_VARIABLE}.",
        )
    Denied(Path(pki) / DENIED).check()
    return Credentials.read(Path(pki))


def printer(*, headless: bool, earlier: Sequence[Stamped] = ()) -> HeadlessPrinter:
    """Progress on standard output: lines, or on a terminal lines with one that moves. `earlier` has been seen before."""
    from proveout.cli.common.headless import HeadlessPrinter
    from proveout.cli.common.progress_line import LiveLinePrinter
    from proveout.tui.run.model import reduce

    moving = not headless and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    made = (
        LiveLinePrinter(sys.stdout, width=shutil.get_terminal_size().columns) if moving else HeadlessPrinter(sys.stdout)
    )
    for stamped in earlier:
        made.view = reduce(made.view, stamped)
    return made


def arrange(
    plan: Plan,
    directory: RunDirectory,
    command: Command,
    external: Mapping[str, Endpoint],
    credentials: Credentials | None,
    *,
    crashed: bool = False,
) -> RunOptions:
    """All that one coordinator needs; `crashed` as in `coordinator.run`."""
    from proveout import __version__
    from proveout.coordinator.run import RunOptions
    from proveout.dsl.explain.timetable import estimate_s

    return RunOptions(
        plan=plan,
        directory=directory,
        version=__version__,
        external=external,
        credentials=credentials,
        estimates_s={stage.id: estimate_s(stage, plan) for stage in plan.stages},
        crashed=crashed,
        policy=Path(command.policy) if command.policy else None,
    )


def sit(
    sitting: RunOptions,
    journal: Journal,
    show: HeadlessPrinter,
    outputs: Mapping[str, str],
    annotations: Annotations = Annotations.auto,
    *,
    metrics: Listening | None = None,
) -> int:
    """Run to the end, write the results, and give the exit code; scrapers are served meanwhile."""
    exit_code = asyncio.run(_run(sitting, journal, show, metrics))
    report(sitting.directory, outputs, annotations)
    return exit_code


async def _run(sitting: RunOptions, journal: Journal, show: HeadlessPrinter, metrics: Listening | None) -> int:
    from proveout.coordinator.exporter import server
    from proveout.coordinator.live import event_feed
    from proveout.coordinator.run import run
    from proveout.coordinator.storage.journal import read

    interrupts: asyncio.Queue[None] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in signals:
        loop.add_signal_handler(number, _interrupt, interrupts)
    try:
        async with AsyncExitStack() as around:
            listeners: list[Listener] = [show]
            listeners.append(await around.enter_async_context(event_feed.serving(sitting.directory.path, interrupts)))
            if metrics is not None:
                sys.stdout.write(f"metrics are at {metrics.shown}\n")
                earlier = read(sitting.directory.path)
                listeners.append(await around.enter_async_context(server.serving(metrics, earlier)))
            ended = await run(sitting, journal, listeners, interrupts=interrupts)
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
    return ended.exit_code


def _interrupt(interrupts: asyncio.Queue[None]) -> None:
    interrupts.put_nowait(None)
    sys.stderr.write("\nproveout: stopping everything; once more hurries\n")


def report(directory: RunDirectory, outputs: Mapping[str, str], notes: Annotations) -> None:
    """Write result.json, report.html and what was asked for, then a summary for people."""
    from proveout.cli.common import outputs as files
    from proveout.coordinator.results.results import load_results
    from proveout.coordinator.storage.journal import read

    results = load_results(read(directory.path))
    fault = files.write(results, directory, {**files.kept(directory), **outputs})
    show_results(results, directory, notes)
    if fault is not None:
        raise fault


def show_results(results: RunResults, directory: RunDirectory, notes: Annotations) -> None:
    """The summary on standard output, with a CI job's annotations where these are wanted."""
    from proveout.coordinator.report import annotations, terminal

    terminal.show(results, directory.path, sys.stdout)
    if wants_github(notes, os.environ):
        sys.stdout.write(annotations.to_github(annotations.remarks(results), checkout(os.environ)))
