"""`proveout noise`: measure the noise of one rung against itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from proveout.cli.common.options import Inventory, Overrides, Pki, PlanFile, PolicyFile, RunsDir, parse_overrides

EPILOG = """Examples:

  proveout noise plans/smoke.yaml

  proveout noise plans/hlr-cache-embedded.yaml --stage cached --threads 8 --repeats 20

  proveout noise plans/smoke.yaml -p measure=10s --json noise.json
"""


def noise(
    plan: PlanFile,
    *,
    parameters: Overrides = None,
    inventory: Inventory = None,
    stage: Annotated[str | None, typer.Option(metavar="ID", help="The ladder [default: the plan's first].")] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, max=100_000, help="The rung [default: the ladder's most threads].")
    ] = None,
    repeats: Annotated[
        int, typer.Option(min=3, max=1000, help="Repeats; each has one iteration of each of the two arms.")
    ] = 10,
    headless: Annotated[bool, typer.Option("--headless", help="Plain lines, none that is rewritten.")] = False,
    runs_dir: RunsDir = None,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the record as JSON too.")] = None,
    pki: Pki = None,
    policy: PolicyFile = None,
) -> None:
    """Run one rung of a plan against itself (A/A), and show which changes repeats on this rig can show.

    Two equal ladders take turns. The variance of their numbers is split into that between repeats, between iterations
    and between seconds. The record is stored in the run's directory as noise.json; from then on `explain` shows what
    the plan's repeats can show. Populate, sql, reset, pause and tune stages before the ladder run as in the plan;
    verdicts and all other stages are left out. Exit codes: 0 measured, 2 the plan or the command line is wrong, 3 too
    few valid pairs, 4 the infrastructure failed, 130 interrupted.
    """
    from proveout.cli.common import outputs as output_files
    from proveout.cli.common import run_session
    from proveout.coordinator.storage.journal import Journal
    from proveout.dsl.compile.compiler import compile_plan
    from proveout.dsl.plan.noise_arms import choose, noise_plan

    overrides = parse_overrides(parameters)
    compiled = compile_plan(plan, overrides=overrides, inventory=inventory)
    arms = choose(compiled, stage, threads, repeats)
    derived = noise_plan(compiled, arms)
    checked = output_files.check_outputs({output_files.NOISE: json})
    named = run_session.Files(plan=plan, inventory=inventory, pki=pki, policy=policy, runs_dir=runs_dir)
    options = run_session.begin(derived, named, overrides=overrides, outputs=checked, noise=arms)
    with Journal(options.directory.path) as journal:
        show = run_session.printer(headless=headless)
        exit_code = run_session.execute(options, journal, show, checked)
    raise typer.Exit(exit_code)
