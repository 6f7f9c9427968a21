"""`proveout schema`: the plan format for editors, the result format for programs."""

from __future__ import annotations

from typing import Annotated

import typer

EPILOG = """Examples:

  proveout schema > plans/plan.schema.json

  proveout schema --result > result.schema.json

  proveout schema --compare > compare.schema.json

A plan's first line points editors at it:

  # yaml-language-server: $schema=plan.schema.json
"""


def schema(
    *,
    result: Annotated[
        bool, typer.Option("--result", help="The schema of `--json` files (proveout.result/1) instead.")
    ] = False,
    compare: Annotated[
        bool, typer.Option("--compare", help="The schema of `compare --json` files (proveout.compare/1) instead.")
    ] = False,
) -> None:
    """Print the JSON Schema of the plan format; editors use it to complete and check plans."""
    if result and compare:
        raise typer.BadParameter("one schema at a time: --result or --compare")
    if compare:
        from proveout.coordinator.report.compare import comparison_json

        typer.echo(comparison_json.schema_json(), nl=False)
        return
    if result:
        from proveout.coordinator.report import result_schema

        typer.echo(result_schema.schema_json(), nl=False)
        return
    from proveout.dsl.compile.json_schema import schema_json

    typer.echo(schema_json(), nl=False)
