"""Run a plan to its end for `run`, `resume` and `noise`.

Data flow: a plan, a run directory, its journal -> `coordinator.run` with printers -> result files -> exit code.
"""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from functools import partial
from pathlib import Path

from proveout import __version__
from proveout.cli import outputs as files
from proveout.cli.headless import HeadlessPrinter, LiveLinePrinter, QuietPrinter
from proveout.cli.options import PKI_VARIABLE, Access, Annotations, Unusable, not_utf_8, pki_folder
from proveout.coordinator import exporter
from proveout.coordinator.agents.endpoints import external_endpoints
from proveout.coordinator.certificates import Credentials
from proveout.coordinator.exporter import Listening
from proveout.coordinator.live import event_feed
from proveout.coordinator.report import brought_in
from proveout.coordinator.run import Listener, RunOptions, run
from proveout.coordinator.storage import run_directory
from proveout.coordinator.storage.journal import Journal, read
from proveout.coordinator.storage.run_directory import Command, RunDirectory
from proveout.core import linux
from proveout.dsl.explain.timetable import estimate_s
from proveout.dsl.plan.iteration_order import NoiseArms
from proveout.dsl.plan.plan import Plan
from proveout.proto.events import Stamped
from proveout.proto.signing import DENIED, Denied
from proveout.tui.run_view import reduce


def raise_file_limit(plan: Plan) -> None:
    """Let this process open as many files as the plan's agents need.

    Unusable when the shell's hard limit is below that.
    """
    needed = 256 + 4 * len(plan.hosts)  # a connection to each agent, a few more while connecting, and its own files
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


def remote_credentials(plan: Plan, named: Path | str | None) -> Credentials | None:
    """The coordinator's credentials when the plan has remote agents, else None. `named` as of `pki_folder`.

    PkiError, Unusable, ProveoutError.
    """
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
    moving = not headless and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    made = HeadlessPrinter(sys.stdout)
    if quiet:
        made = QuietPrinter(sys.stdout)
    elif moving:
        made = LiveLinePrinter(sys.stdout, size=shutil.get_terminal_size)
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
    removes: bool = False,
) -> RunOptions:
    """A new run of `plan`, compiled from `file`: credentials, directory, and the parameters of `coordinator.run`.

    Nothing is written before the command line has passed: PkiError, Unusable, ProveoutError.
    """
    pki = pki_folder(named.pki)
    for path in (file, inventory, named.runs_dir):
        if path is not None and not_utf_8(str(path.absolute())):
            raise Unusable(f"{path}: the path is not UTF-8", way_out="Rename the file, or the folder that it is in.")
    options, policy = _options(plan, pki), checked_policy(named.policy)
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
        preflight=preflight,
        removes=removes,
    )
    directory = run_directory.create(named.runs_dir, plan, command, datetime.now().astimezone())
    return options(directory=directory, policy=policy, labels=command.labels, preflight=preflight)


def checked_policy(path: Path | None) -> Path | None:
    """The absolute path of a policy that local agents accept. ProveoutError, before anything is started."""
    if path is None:
        return None
    from proveout.agent.security import policy_file

    policy_file.read(path)
    return path.absolute()


def again(plan: Plan, directory: RunDirectory, command: Command, *, crashed: bool) -> RunOptions:
    """As `begin`, for a run that has its directory and the command line that it was started with."""
    policy = Path(command.policy) if command.policy else None
    return _options(plan, command.pki)(
        directory=directory, policy=policy, labels=command.labels, crashed=crashed, preflight=command.preflight
    )


def _options(plan: Plan, pki: Path | str | None) -> partial[RunOptions]:
    """The parameters that do not depend on the directory of the run."""
    credentials = remote_credentials(plan, pki)
    raise_file_limit(plan)
    external = external_endpoints(plan, os.environ)
    estimates_s = {stage.id: estimate_s(stage, plan) for stage in plan.stages}
    return partial(
        RunOptions, plan=plan, version=__version__, external=external, credentials=credentials, estimates_s=estimates_s
    )


def execute(
    options: RunOptions,
    journal: Journal,
    show: HeadlessPrinter,
    outputs: Mapping[str, str],
    annotations: Annotations = "auto",
    *,
    metrics: Listening | None = None,
) -> int:
    """Run to the end, write the results, and return the exit code; serve metrics meanwhile."""
    exit_code = asyncio.run(_run(options, journal, show, metrics))
    files.report(options.directory, outputs, annotations, quiet=show.quiet)
    return exit_code


async def _run(options: RunOptions, journal: Journal, show: HeadlessPrinter, metrics: Listening | None) -> int:
    interrupts: asyncio.Queue[None] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    signals = linux.ending_signals()

    def interrupt() -> None:
        interrupts.put_nowait(None)
        show.leave()
        sys.stderr.write("\nproveout: stopping everything; a second interrupt stops at once\n")

    for number in signals:
        loop.add_signal_handler(number, interrupt)
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
