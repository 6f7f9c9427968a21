"""`proveout explain`: what a plan would do, without doing any of it."""

from __future__ import annotations

from typing import Annotated

import typer

from proveout.cli.options import Inventory, Overrides, PlanFile, parse_overrides

EPILOG = """Examples:

  proveout explain plans/hlr-cache-embedded.yaml

  proveout explain -p threads=1,2,4,8,16,32 plans/hlr-cache-embedded.yaml

  proveout explain --json plans/smoke.yaml | jq .seconds
"""


def explain(
    plan: PlanFile,
    *,
    parameters: Overrides = None,
    inventory: Inventory = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Show what would run: stages, rungs, repeats and hosts, tasks and privileges, settings, estimated time, digest.

    Nothing is started, nothing is connected to and nothing is written.
    """
    import json

    from proveout.cli.messages import readable
    from proveout.dsl.compiler import compile_plan
    from proveout.dsl.describe import timetable
    from proveout.dsl.explain import render
    from proveout.dsl.plan import to_data

    compiled = compile_plan(plan, overrides=parse_overrides(parameters or []), inventory=inventory)
    table = timetable(compiled)
    typer.echo(json.dumps(to_data(table), indent=2, ensure_ascii=False) if as_json else readable(render(table)))
