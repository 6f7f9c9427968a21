"""`proveout run`: run a plan."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from proveout.cli.common.options import (
    Annotations,
    AnnotationsOption,
    CodeQuality,
    GitlabMetrics,
    Inventory,
    Labels,
    MetricsAddress,
    Overrides,
    Pki,
    PlanFile,
    PolicyFile,
    Quiet,
    RunsDir,
    parse_labels,
    parse_overrides,
)
from proveout.cli.common.with_screen import TellFd

EPILOG = """Examples:

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
    headless: Annotated[bool, typer.Option("--headless", help="Plain lines, no screen.")] = False,
    labels: Labels = None,
    runs_dir: RunsDir = None,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the verdicts, or the problems of the plan, as JUnit XML.")
    ] = None,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write all results as JSON.")] = None,
    summary: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a summary in Markdown.")] = None,
    codequality: CodeQuality = None,
    gitlab_metrics: GitlabMetrics = None,
    annotations: AnnotationsOption = Annotations.auto,
    quiet: Quiet = False,
    metrics: MetricsAddress = None,
    pki: Pki = None,
    policy: PolicyFile = None,
    no_preflight: Annotated[
        bool, typer.Option("--no-preflight", help="Begin without checking first what the plan needs.")
    ] = False,
    tell_fd: TellFd = None,
) -> None:
    """Run a plan and judge it; on a terminal with a screen, on which the run does not depend.

    Exit codes: 0 no verdict failed or is inconclusive (those of severity `warn` do not count), 1 a verdict failed, 2
    the plan or command line is wrong, 3 inconclusive, 4 the infrastructure failed, 130 interrupted.
    """
    from proveout.cli.common import outputs as output_files
    from proveout.cli.common import plan_outputs, run_session, with_screen
    from proveout.coordinator.exporter import http_server
    from proveout.coordinator.storage.journal import Journal
    from proveout.dsl.compile.compiler import compile_plan

    outputs = dict(zip(output_files.OUTPUTS, (junit, json, summary, codequality, gitlab_metrics), strict=True))
    if with_screen.wanted(headless=headless or quiet or annotations is Annotations.github):
        files = {"inventory": inventory, "runs_dir": runs_dir, "pki": pki, "policy": policy, **outputs}
        words = with_screen.words(parameters, files, metrics=metrics)
        words += [word for label in labels or () for word in ("--label", label)]
        words += ["--no-preflight"] if no_preflight else []
        raise typer.Exit(with_screen.run(["run", str(plan), *words]))
    overrides, labelled = parse_overrides(parameters), parse_labels(labels)
    checked = output_files.check_outputs(outputs)
    with plan_outputs.of_problems(plan, checked, annotations):
        compiled = compile_plan(plan, overrides=overrides, inventory=inventory)
    named = run_session.Files(plan=plan, inventory=inventory, pki=pki, policy=policy, runs_dir=runs_dir)
    with http_server.bound(metrics) as listening:
        options = run_session.begin(
            compiled, named, overrides=overrides, outputs=checked, labels=labelled, preflight=not no_preflight
        )
        with Journal(options.directory.path) as journal:
            with_screen.tell(tell_fd, options.directory.path)  # a watcher opens the journal
            show = run_session.printer(headless=headless, quiet=quiet)
            exit_code = run_session.execute(options, journal, show, checked, annotations, metrics=listening)
    raise typer.Exit(exit_code)
