"""Run a plan to its end for `run` and `resume`, and serve the screen of a run with its result, replay and report.

Data flow: a plan, a run directory, its journal -> `coordinator.run` with printers -> result files -> exit code.
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
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from proveout.cli import outputs as files
from proveout.cli.options import PKI_VARIABLE, Access, Annotations, Unusable, pki_folder
from proveout.proto.events import Stamped
from proveout.tui import services as shown
from proveout.tui.services import Pace, Replay

if TYPE_CHECKING:
    from proveout.cli.headless import HeadlessPrinter
    from proveout.coordinator.certificates import Credentials
    from proveout.coordinator.exporter import Listening
    from proveout.coordinator.results.results import RunResults
    from proveout.coordinator.run import Listener, RunOptions
    from proveout.coordinator.storage.journal import Journal
    from proveout.coordinator.storage.run_directory import Command, RunDirectory
    from proveout.dsl.plan.iteration_order import NoiseArms
    from proveout.dsl.plan.plan import Plan
    from proveout.proto.wire.tasks import Endpoint
    from proveout.tui.services import Comparison


def raise_file_limit(plan: Plan) -> None:
    """Let this process open as many files as the plan's agents need.

    Unusable when the shell's hard limit is below that.
    """
    needed = files_needed(len(plan.hosts))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY in {soft, hard} or needed <= soft:
        return
    if needed > hard:
        raise Unusable(
            f"{len(plan.hosts)} agents need {needed} open files, and this shell allows {hard}",
            where=plan.name,
            way_out="Raise the limit: ulimit -Hn as root, LimitNOFILE= of a systemd unit.",
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def files_needed(agents: int) -> int:
    """Open files of a coordinator: a connection to each agent, a few more while connecting, and its own files."""
    return 256 + 4 * agents


def remote_credentials(plan: Plan, named: Path | str | None) -> Credentials | None:
    """The coordinator's credentials when the plan has remote agents, else None. `named` as of `pki_folder`.

    PkiError, Unusable, ProveoutError.
    """
    from proveout.coordinator.certificates import Credentials
    from proveout.proto.signing import DENIED, Denied

    remote = [host for host in plan.hosts if not host.is_local]
    if not remote:
        return None
    pki = pki_folder(named)
    if pki is None:
        raise Unusable(
            f"host {remote[0].name} has a remote agent ({remote[0].address}), which requires certificates",
            where=str(remote[0].where),
            way_out=f"Name the directory with the coordinator's certificate: --pki DIR or ${PKI_VARIABLE}.",
        )
    Denied(pki / DENIED).check()
    return Credentials.read(pki)


def printer(*, headless: bool, quiet: bool = False, earlier: Sequence[Stamped] = ()) -> HeadlessPrinter:
    """Progress on standard output: lines, on a terminal with a table and a line that are rewritten; `quiet` has errors
    and the end. `earlier` are the events of earlier sessions.
    """
    from proveout.cli.headless import HeadlessPrinter, LiveLinePrinter, QuietPrinter
    from proveout.tui.run_view import reduce

    moving = not headless and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    made = HeadlessPrinter(sys.stdout)
    if quiet:
        made = QuietPrinter(sys.stdout)
    elif moving:
        made = LiveLinePrinter(sys.stdout, size=shutil.get_terminal_size())
    for stamped in earlier:
        made.view = reduce(made.view, stamped)
    return made


def begin(
    plan: Plan,
    file: Path,
    inventory: Path | None,
    named: Access,
    *,
    overrides: dict[str, str],
    outputs: dict[str, str],
    labels: dict[str, str] | None = None,
    noise: NoiseArms | None = None,
    preflight: bool = True,
) -> RunOptions:
    """A new run of `plan`, compiled from `file`: credentials, directory, and the parameters of `coordinator.run`.

    Nothing is written before the command line has passed: PkiError, Unusable, ProveoutError.
    """
    from proveout.coordinator.report import brought_in
    from proveout.coordinator.storage import run_directory

    pki = pki_folder(named.pki)
    found, policy = _access(plan, pki), checked_policy(named.policy)
    brought_in.section([file.parent / name for name in plan.brought_in])
    command = run_directory.Command(
        plan=str(file.absolute()),
        overrides=overrides,
        inventory=str(inventory.absolute()) if inventory else None,
        pki=str(pki.absolute()) if pki else None,
        policy=str(policy) if policy else None,
        outputs=outputs,
        labels=labels or {},
        noise=noise,
    )
    directory = run_directory.create(named.runs_dir, plan, command, datetime.now().astimezone())
    return _options(plan, directory, command, found, preflight=preflight)


def checked_policy(path: Path | None) -> Path | None:
    """The absolute path of a policy that local agents accept. ProveoutError, before anything is started."""
    if path is None:
        return None
    from proveout.agent.security import policy_file

    policy_file.read(path)
    return path.absolute()


def again(plan: Plan, directory: RunDirectory, command: Command, *, crashed: bool) -> RunOptions:
    """As `begin`, for a run that has its directory and the command line that it was started with."""
    found = _access(plan, command.pki)
    return _options(plan, directory, command, found, crashed=crashed)


def _access(plan: Plan, pki: Path | str | None) -> tuple[Mapping[str, Endpoint], Credentials | None]:
    from proveout.coordinator.agents.endpoints import external_endpoints

    credentials = remote_credentials(plan, pki)
    raise_file_limit(plan)
    return external_endpoints(plan, os.environ), credentials


def _options(
    plan: Plan,
    directory: RunDirectory,
    command: Command,
    access: tuple[Mapping[str, Endpoint], Credentials | None],
    *,
    crashed: bool = False,
    preflight: bool = True,
) -> RunOptions:
    from proveout import __version__
    from proveout.coordinator.run import RunOptions
    from proveout.dsl.explain.timetable import estimate_s

    external, credentials = access
    return RunOptions(
        plan=plan,
        directory=directory,
        version=__version__,
        external=external,
        credentials=credentials,
        estimates_s={stage.id: estimate_s(stage, plan) for stage in plan.stages},
        crashed=crashed,
        policy=Path(command.policy) if command.policy else None,
        labels=command.labels,
        preflight=preflight,
    )


def execute(
    options: RunOptions,
    journal: Journal,
    show: HeadlessPrinter,
    outputs: Mapping[str, str],
    annotations: Annotations = Annotations.auto,
    *,
    metrics: Listening | None = None,
) -> int:
    """Run to the end, write the results, and return the exit code; serve metrics meanwhile."""
    exit_code = asyncio.run(_run(options, journal, show, metrics))
    files.report(options.directory, outputs, annotations, quiet=show.quiet)
    return exit_code


async def _run(options: RunOptions, journal: Journal, show: HeadlessPrinter, metrics: Listening | None) -> int:
    from proveout.coordinator import exporter
    from proveout.coordinator.live import event_feed
    from proveout.coordinator.run import run
    from proveout.coordinator.storage.journal import read

    interrupts: asyncio.Queue[None] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in signals:
        loop.add_signal_handler(number, _interrupt, interrupts, show)
    try:
        async with AsyncExitStack() as around:
            listeners: list[Listener] = [show]
            listeners.append(await around.enter_async_context(event_feed.serving(options.directory.path, interrupts)))
            if metrics is not None:
                if not show.quiet:
                    sys.stdout.write(f"metrics are at {metrics.shown}\n")
                earlier = read(options.directory.path)
                listeners.append(await around.enter_async_context(exporter.serving(metrics, earlier)))
            ended = await run(options, journal, listeners, interrupts=interrupts)
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
    return ended.exit_code


def _interrupt(interrupts: asyncio.Queue[None], show: HeadlessPrinter) -> None:
    interrupts.put_nowait(None)
    show.leave()
    sys.stderr.write("\nproveout: stopping everything; a second interrupt stops at once\n")


NOTES_MAX = 20


class LocalRun:
    """The services of a run in a directory of this machine; `speed` is that of its replay. `report_address`: where a
    browser finds the report, "" for its path."""

    def __init__(self, directory: RunDirectory, speed: float = 10.0, *, report_address: str = "") -> None:
        self._directory, self._speed, self._report_address = directory, speed, report_address

    def result(self) -> shown.Result:
        """The result as it is recorded now. JournalFault."""
        return run_result(self._directory.results(), self._directory)

    def replay(self) -> Replay:
        """A replay from the beginning. JournalFault."""
        return replay(self._directory, self._speed)

    def report(self) -> str:
        """The path or address of the HTML report, "" while there is none."""
        path = report_path(self._directory)
        return (self._report_address or str(path)) if path.is_file() else ""

    def others(self) -> Sequence[tuple[str, str]]:
        """The other runs beside this one, newest first."""
        from proveout.coordinator.storage import run_directory

        try:
            found = run_directory.all_runs(self._directory.path.parent)
        except OSError:
            return ()
        return [(one.name, str(one.path)) for one in found if one.path != self._directory.path]

    def compare(self, reference: str, other: str, *, despite: bool) -> Comparison:
        """Two runs side by side; "" is this run. JournalFault, or ProveoutError when one has not begun."""
        from proveout.cli.home_services import compared

        here = str(self._directory.path)
        return compared(reference or here, other or here, despite=despite)


def report_path(directory: RunDirectory) -> Path:
    return directory.path / "report.html"


def replay(directory: RunDirectory, speed: float, *, at_end: bool = False) -> Replay:
    """A replay of the run's journal and samples, from its beginning, or paused at its end. JournalFault."""
    from proveout.coordinator.live.ticks import Moved
    from proveout.coordinator.storage.journal import read

    events = read(directory.path)
    return Replay(events, Pace(speed=speed), moving=Moved(events, directory.samples), at_end=at_end)


def run_result(results: RunResults, directory: RunDirectory) -> shown.Result:
    """The result of a run, finished or broken off, from its events."""
    from proveout.coordinator.report.summary import answer, claims, end_sentence, headline, resume_command
    from proveout.coordinator.report.tables import notices, validity_notes

    told = answer(results)
    outcome, tone = end_sentence(results, answered=told is not None)
    notes = [*validity_notes(results), *notices(results)]
    more = [f"and {len(notes) - NOTES_MAX} more in the report"] if len(notes) > NOTES_MAX else []
    return shown.Result(
        outcome=outcome,
        tone=tone,
        answer=told[0] if told else "",
        headline=headline(results),
        verdicts=tuple((one, claims(one, results)) for one in results.verdicts),
        notes=(*notes[:NOTES_MAX], *more),
        next_step=resume_command(results, directory.path),
    )
