"""`proveout check`: every problem of a plan at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from proveout.cli.common import completion
from proveout.cli.common.options import Inventory, Overrides, parse_overrides

EPILOG = """Examples:

  proveout check plans/hlr-cache-embedded.yaml

  proveout check plans/*.yaml

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
) -> int:
    """Validate plans: every problem at once, with its line and what was expected.

    A verdict that one repeat cannot decide has a note, and so have a stage that cannot be shown to be
    steady and a reset that removes what SQL has made. Nothing is started and nothing is written.
    Exit code 0 when all plans are fine, 2 otherwise.
    """
    from proveout.cli.common.messages import describe, show_error
    from proveout.core.errors import PlanError
    from proveout.dsl.compile.compiler import compile_with_notes
    from proveout.dsl.rules.load_rules import overlaps
    from proveout.dsl.rules.repeat_rules import hints
    from proveout.dsl.rules.resets import removed_ddl

    overrides = parse_overrides(parameters or [])
    code = 0
    for path in plans:
        try:
            plan, notes = compile_with_notes(path, overrides=overrides, inventory=inventory)
        except PlanError as error:
            show_error(error)
            code = error.exit_code
        else:
            counts = f"{_count(len(plan.stages), 'stage')}, {_count(len(plan.verdicts), 'verdict')}"
            for found in (*notes, *hints(plan), *overlaps(plan), *removed_ddl.notes(plan)):
                typer.echo(f"{describe(found)}\n", err=True)
            typer.echo(f"{path}: fine ({counts}, {plan.digest[:19]})")
    return code


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
