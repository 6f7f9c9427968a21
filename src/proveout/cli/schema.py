"""`proveout schema`: the plan format for editors."""

from __future__ import annotations

import typer

EPILOG = """Examples:

  proveout schema > plans/plan.schema.json

A plan's first line points editors at it:

  # yaml-language-server: $schema=plan.schema.json
"""


def schema() -> None:
    """Print the JSON Schema of the plan format; editors use it to complete and check plans."""
    from proveout.dsl.jsonschema import schema_json

    typer.echo(schema_json(), nl=False)
