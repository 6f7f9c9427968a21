"""`proveout check`: every problem of a plan at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from proveout.cli.common import completion
from proveout.cli.common.options import (
    Annotations,
    AnnotationsOption,
    CodeQuality,
    Inventory,
    Overrides,
    Quiet,
    parse_overrides,
)

if TYPE_CHECKING:
    from proveout.core.errors import PlanProblem
    from proveout.dsl.plan.plan import Plan

EPILOG = """Examples:

  proveout check plans/hlr-cache-embedded.yaml

  proveout check plans/*.yaml

  proveout check plans/*.yaml --quiet --junit check.xml

  proveout check -p subscribers=200_000 -p measure=30s plans/hlr-cache-embedded.yaml

  proveout check -i inventories/lab.yaml plans/hlr-cache-lab.yaml
"""


def check(
    plans: Annotated[
        list[Path], typer.Argument(metavar="PLAN...", help="Plan files.", autocompletion=completion.plan_files)
    ],
    *,
    parameters: Overrides = None,
    inventory: Inventory = None,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a case for each plan, with its problems, as JUnit XML.")
    ] = None,
    codequality: CodeQuality = None,
    annotations: AnnotationsOption = Annotations.auto,
    quiet: Quiet = False,
) -> int:
    """Validate plans: every problem at once, with its line and what was expected.

    A verdict that one repeat cannot decide has a note, and so have a stage that cannot be shown to be
    steady, a reset that removes what SQL has made, and a name that nothing uses. Nothing is started,
    and nothing is written but the files that are named here. Exit code 0 when all plans are fine, 2 otherwise.
    """
    from proveout.cli.common import outputs as output_files
    from proveout.cli.common import plan_outputs
    from proveout.cli.common.messages import show_error
    from proveout.core.errors import PlanError
    from proveout.dsl.compile.compiler import compile_with_notes
    from proveout.dsl.rules.load_rules import overlaps
    from proveout.dsl.rules.repeat_rules import hints
    from proveout.dsl.rules.resets import removed_ddl

    overrides = parse_overrides(parameters or [])
    outputs = output_files.check_outputs({"junit": junit, "codequality": codequality})
    code = 0
    checked: list[plan_outputs.Checked] = []
    for path in plans:
        try:
            plan, unused = compile_with_notes(path, overrides=overrides, inventory=inventory)
        except PlanError as error:
            show_error(error)
            code = error.exit_code
            checked.append(plan_outputs.Checked(file=str(path), problems=error.problems))
        else:
            notes = (*unused, *hints(plan), *overlaps(plan), *removed_ddl.notes(plan))
            checked.append(plan_outputs.Checked(file=str(path), notes=notes))
            if not quiet:
                _tell(path, plan, notes)
    plan_outputs.publish(checked, outputs, annotations)
    return code


def _tell(path: Path, plan: Plan, notes: Sequence[PlanProblem]) -> None:
    """Print the notes on a plan that is fine, and its size."""
    from proveout.cli.common.messages import describe

    for found in notes:
        typer.echo(f"{describe(found)}\n", err=True)
    counts = f"{_count(len(plan.stages), 'stage')}, {_count(len(plan.verdicts), 'verdict')}"
    typer.echo(f"{path}: fine ({counts}, {plan.digest[:19]})")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
