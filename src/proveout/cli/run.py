"""`proveout run` and `proveout resume`: run a plan or continue a run, with a screen or with progress lines.

With a screen, the run is a child process, and this process shows it as a watcher.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, TypeAlias

import typer

from proveout.cli import outputs as output_files
from proveout.cli.options import (
    RUNS,
    Access,
    AnnotationsOption,
    CodeQuality,
    GitlabMetrics,
    Headless,
    Instead,
    Inventory,
    Labels,
    MetricsAddress,
    Overrides,
    Pki,
    PlanFile,
    PolicyFile,
    Quiet,
    RunName,
    RunsDir,
    Unusable,
    file_option,
    note_unchecked,
    parse_labels,
    parse_overrides,
    typed,
    words,
)
from proveout.coordinator.live.event_feed import LOG, RunProcess, started
from proveout.core import errors
from proveout.core.errors import ProveoutError

if TYPE_CHECKING:
    from proveout.tui.services import RunServices, Source
    from proveout.tui.style import Left, ThemedApp


TellFd: TypeAlias = Annotated[int | None, typer.Option("--tell-fd", hidden=True)]
"""The option by which the run gets the pipe for the name of its directory."""


SCREEN = "the screen of a run"
"""Needs Textual."""


class RunKilled(ProveoutError):
    """The process of the run was killed while its screen was open."""

    exit_code = 4


def wanted(*, headless: bool) -> bool:
    """Whether to show a screen: there is a terminal, and no option or variable forbids it."""
    everywhere = all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))  # Textual draws on stderr
    if headless or not everywhere or os.environ.get("TERM", "dumb") == "dumb":
        return False
    try:
        errors.loaded("textual", SCREEN)
    except errors.NotInstalled as missing:
        sys.stderr.write(f"note: {errors.one_line(missing)}\n")
        return False
    return True


def need_terminal() -> None:
    """Raise Unusable when there is none, NotInstalled without Textual."""
    errors.loaded("textual", SCREEN)
    if not wanted(headless=False):
        raise Unusable(
            "there is no terminal to show a run on",
            way_out="`proveout runs` lists the runs; a run's journal and result.json are in its directory.",
        )


def answer(app: ThemedApp[Left]) -> Left | None:
    """Show an application to its end; its result. ProveoutError where it has failed, below its traceback."""
    left = app.run()
    if app.return_code:
        way_out = "No run depends on a screen: `proveout watch` shows one again. Please report the error."
        raise ProveoutError("the screen has failed", way_out=way_out)
    return left


def show(source: Source, services: RunServices, *, read_only: bool = False) -> str:
    """Show the screen until it is left; return how it was left: ended, detached. `read_only`: it cannot stop the
    run."""
    from proveout.tui.run_app import RunApp

    app = RunApp(source, services, read_only=read_only)
    left = answer(app)
    if app.fault is not None:
        raise app.fault
    return left or "detached"


def run_with_screen(arguments: Sequence[str], output: IO[bytes] | None = None) -> int:
    """Start the run, show it, and return its exit code; 0 when the screen is detached.

    Output of the run before it has a directory goes to `output`, the terminal by default: above all the error when it
    does not start.
    """
    with started(*arguments, output=output) as (child, _):
        directory = child.directory()
        return child.wait() if directory is None else _watched(child, directory)  # without one it has printed the error


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
    from proveout.cli.screen_services import LocalRun
    from proveout.coordinator.live.event_feed import Tail
    from proveout.coordinator.storage.run_directory import RunDirectory

    left = show(Tail(directory), LocalRun(RunDirectory(directory)))
    if left == "detached" and child.is_alive:
        sys.stdout.write(
            f"The run continues. `proveout watch {typed(directory)}` shows it; its output is in {directory / LOG}.\n"
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
    """Print the summary of a run; of one that is under way how to see it again."""
    from proveout.coordinator.report import terminal
    from proveout.coordinator.report.run_document import run_summary
    from proveout.coordinator.storage.journal import is_driven
    from proveout.coordinator.storage.run_directory import RunDirectory

    if is_driven(directory):
        sys.stdout.write(f"The run continues. `proveout watch {typed(directory)}` shows it.\n")
        return
    terminal.show(run_summary(RunDirectory(directory).results(), str(directory)), sys.stdout)


RUN_EPILOG = """
  proveout run plans/hlr-cache-embedded.yaml
  proveout run plans/smoke.yaml --headless --junit junit.xml --json result.json
  proveout run plans/hlr-cache-embedded.yaml -p threads=[1,2,4] -p measure=10s
  proveout run plans/smoke.yaml --headless --label commit=$(git rev-parse --short HEAD)
"""


def run(
    plan: PlanFile,
    *,
    parameters: Overrides = None,
    inventory: Inventory = None,
    headless: Headless = False,
    labels: Labels = None,
    runs_dir: RunsDir = RUNS,
    junit: Annotated[Path | None, file_option("Write the verdicts, or the problems of the plan, as JUnit XML.")] = None,
    json: Annotated[Path | None, file_option("Write all results as JSON.")] = None,
    summary: Annotated[Path | None, file_option("Write a summary in Markdown.")] = None,
    codequality: CodeQuality = None,
    gitlab_metrics: GitlabMetrics = None,
    annotations: AnnotationsOption = "auto",
    quiet: Quiet = False,
    metrics: MetricsAddress = None,
    pki: Pki = None,
    policy: PolicyFile = None,
    no_preflight: Annotated[
        bool, typer.Option("--no-preflight", help="Begin without checking first what the plan needs.")
    ] = False,
    removes: Annotated[bool, typer.Option("--removes", hidden=True)] = False,
    tell_fd: TellFd = None,
) -> None:
    """Run a plan and judge it; on a terminal with a screen, on which the run does not depend.

    Exit codes: 0 no verdict failed or is inconclusive (those of severity `warn` do not count), 1 a verdict failed, 2
    the plan or command line is wrong, 3 inconclusive, 4 the infrastructure failed, 130 interrupted.
    """
    outputs = dict(zip(output_files.OUTPUTS, (junit, json, summary, codequality, gitlab_metrics), strict=True))
    if wanted(headless=headless or quiet or annotations == "github"):
        files = {"inventory": inventory, "runs_dir": runs_dir, "pki": pki, "policy": policy, **outputs}
        arguments = words(parameters, files, labels)
        arguments += [] if metrics is None else [f"--metrics={metrics}"]
        arguments += [*["--no-preflight"] * no_preflight, *["--removes"] * removes]
        raise typer.Exit(run_with_screen(["run", *arguments, "--", str(plan)]))
    from proveout.dsl.compile.compiler import compile_plan

    overrides, labelled = parse_overrides(parameters), parse_labels(labels)
    checked = output_files.check_outputs(outputs)
    with output_files.of_problems(plan, checked, annotations):
        compiled = compile_plan(plan, overrides=overrides, inventory=inventory)
    from proveout.cli import run_session  # not for a screen, which runs beside the run, nor for a wrong plan
    from proveout.coordinator import exporter
    from proveout.coordinator.storage.journal import Journal

    named = Access(pki=pki, policy=policy, runs_dir=runs_dir)
    with exporter.bound(metrics) as listening:
        options = run_session.begin(
            compiled,
            plan,
            inventory,
            named,
            overrides=overrides,
            outputs=checked,
            labels=labelled,
            preflight=not no_preflight,
            removes=removes,
        )
        with Journal(options.directory.path) as journal:
            tell(tell_fd, options.directory.path)  # a watcher opens the journal
            show = run_session.printer(headless=headless, quiet=quiet)
            exit_code = run_session.execute(options, journal, show, checked, annotations, metrics=listening)
    raise typer.Exit(exit_code)


# Of a run that has finished, it makes the result files that are missing.

EPILOG = """
  proveout resume latest
  proveout resume smoke-20260114-101500-3f2a --headless
"""


def resume(
    run: RunName,
    *,
    headless: Headless = False,
    runs_dir: RunsDir = RUNS,
    junit: Instead = None,
    json: Instead = None,
    summary: Instead = None,
    codequality: CodeQuality = None,
    gitlab_metrics: GitlabMetrics = None,
    annotations: AnnotationsOption = "auto",
    quiet: Quiet = False,
    metrics: MetricsAddress = None,
    tell_fd: TellFd = None,
) -> None:
    """Continue a run at its first unfinished iteration; finished ones are not run again.

    The plan must be the one of the run. For a run that has finished, missing result files are
    written. Exit codes as of `run`.
    """
    chosen = dict(zip(output_files.OUTPUTS, (junit, json, summary, codequality, gitlab_metrics), strict=True))
    if wanted(headless=headless or quiet or annotations == "github"):
        arguments = words((), {"runs_dir": runs_dir, **chosen})
        arguments += [] if metrics is None else [f"--metrics={metrics}"]
        raise typer.Exit(run_with_screen(["resume", *arguments, "--", run]))
    from proveout.cli import run_session  # not for a screen
    from proveout.coordinator import exporter
    from proveout.coordinator.storage import run_directory
    from proveout.coordinator.storage.journal import Journal

    directory = run_directory.find(runs_dir, run)
    note_unchecked(directory.path)
    with exporter.bound(metrics) as listening, Journal(directory.path) as journal:
        try:
            found = run_directory.examine(directory)
        except run_directory.Finished:
            directory.tidy()  # a coordinator that was killed after the last event leaves the databases' files
            raise typer.Exit(
                output_files.complete(directory, output_files.check_outputs(chosen), annotations, quiet=quiet)
            ) from None
        earlier = {name: Path(path) for name, path in found.command.outputs.items()}
        outputs = output_files.check_outputs({name: chosen[name] or earlier.get(name) for name in output_files.OUTPUTS})
        options = run_session.again(found.plan, directory, found.command, crashed=found.crashed)
        tell(tell_fd, directory.path)
        show = run_session.printer(headless=headless, quiet=quiet, earlier=found.events)
        exit_code = run_session.execute(options, journal, show, outputs, annotations, metrics=listening)
    raise typer.Exit(exit_code)
