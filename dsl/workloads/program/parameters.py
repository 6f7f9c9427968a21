"""Parameters of `kind: program`: the argv of a load generator, as a template, and its built-in parser."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from proveout.dsl.rules.command_rules import argv_problems
from proveout.dsl.schema.scalar_types import custom

ENGINES = ("postgres",)
TRANSACTION = "transaction"
"""The name of the only transaction: programs do not report more."""
FIELDS = ("threads", "total_threads", "seconds", "seed", "host", "port", "user", "database")
_FIELD = re.compile(r"\{([^{}]*)\}")


def _template(argv: list[str]) -> list[str]:
    unknown = [name for word in argv for name in _FIELD.findall(word) if name not in FIELDS]
    if unknown:
        raise custom(f"unknown field {{{unknown[0]}}}; the fields are {', '.join(f'{{{name}}}' for name in FIELDS)}")
    missing = [name for name in ("threads", "seconds") if not any(f"{{{name}}}" in word for word in argv)]
    if missing:
        raise custom(
            f"no argument has {{{missing[0]}}}, so the program does not follow the rungs and windows of a stage"
        )
    if objection := next(argv_problems(tuple(argv)), None):
        raise custom(f"{objection.message} ({objection.way_out})")
    return argv


class Program(BaseModel):
    """Parameters of `kind: program`: another load generator, which the host's policy lists under `commands`."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    argv: Annotated[list[str], Field(min_length=1, max_length=200), AfterValidator(_template)] = Field(
        description="The program and its arguments, without a shell. {threads}: this host's threads of the rung; "
        "{total_threads}: those of all hosts; {seconds}: how long it runs; {seed}; {host}, {port}, {user}, {database}: "
        "of the target. PGHOST, PGPORT, PGUSER, PGDATABASE and PGPASSWORD are set in its environment."
    )
    output: Literal["pgbench", "sysbench"] = Field(
        description="The parser of its output. pgbench: with --log; each transaction is counted in the window that it "
        "ended in. sysbench: with --report-interval=1 and --histogram=on; the ramp-up is a run of its own."
    )
    writes: bool = Field(True, description="Whether it changes data.")


def words(argv: list[str], values: Mapping[str, str]) -> tuple[str, ...]:
    """The arguments with the fields filled in."""
    return tuple(_FIELD.sub(lambda match: values[match[1]], word) for word in argv)
