"""`proveout new`: write a starter plan to edit.

Data flow: plans/starters/KIND.yaml of the package, or the catalogue of a database (`own_workload`) -> a new file, with
the plan named after it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from proveout.cli.options import STARTERS, Unusable, refuse, typed
from proveout.cli.plan_writer import SCHEMA, plan_name, write, write_schema

EPILOG = """
  proveout new
  proveout new ladder
  proveout new cache studies/checkout.yaml
  proveout new own --from postgresql://bench@localhost/shop shop.yaml
"""

KINDS: Mapping[str, tuple[str, str]] = {
    "ladder": ("a thread ladder on one PostgreSQL: the place to begin", "the extra `embedded`"),
    "database": ("your own statements on a PostgreSQL of yours, with a password", "the extra `postgres`, a database"),
    "cache": ("a cache tier in front of a durable database, with asynchronous propagation", "the extra `embedded`"),
    "tptbm": ("TPTBM: one table by key, over processes", "the extra `embedded`"),
    "prepaid": ("prepaid accounts or banking, held against their history to the cent", "the extra `embedded`"),
    "tprocc": ("TPROC-C: orders by more and more users, NOPM at a response time", "the extra `embedded`"),
    "sql": ("your own tables and transactions in SQL", "the extra `embedded`"),
    "sqlite": ("HLR on SQLite in the client's own process", "nothing more"),
    "mysql": ("a thread ladder on MySQL or MariaDB", "the extra `mysql`, the server's programs"),
    "oracle": ("a thread ladder on an Oracle Database of yours", "the extra `oracle`, a database"),
    "analytics": ("a set of analytic queries by setting and degree of parallelism, and sizes", "the extra `embedded`"),
    "storage": ("IOPS and response time of the storage of a host, by I/O depth", "fio"),
    "lab": ("a PostgreSQL server under load from two client machines", "agents on three hosts, a database"),
}
"""Description of each starter, and the needs of a run."""

OWN = ("own", "the tables, keys and top statements of a database of yours", "--from DSN")
"""The kind that is written from a database, its description and needs."""

_SCHEMA = re.compile(r"\A# yaml-language-server: .*\n")
_NAME = re.compile(r"^name: .*$", re.MULTILINE)


def _complete(incomplete: str) -> list[tuple[str, str]]:
    return [(kind, title) for kind, (title, _) in KINDS.items() if kind.startswith(incomplete)]


def new(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND", help="The kind of study; without one, the kinds are listed.", autocompletion=_complete
        ),
    ] = "",
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="The file to write [default: KIND.yaml, here].")
    ] = None,
    *,
    dsn: Annotated[
        str | None, typer.Option("--from", metavar="DSN", help="Of `own`: the database, as `proveout bench` takes it.")
    ] = None,
    changes: Annotated[
        bool, typer.Option("--write", help="Of `own`: its statements that change rows too, not reads alone.")
    ] = False,
) -> None:
    """Write a commented starter plan that runs or compiles unchanged; never over an existing file.

    `own` reads a database: its statements that run most often (pg_stat_statements, performance_schema,
    v$sqlarea), weights by calls, else reads by key, with binds drawn from the ranges of the columns. Values
    that are not known are listed in a comment.

    Beside it goes the schema of the plan format, plan.schema.json, where there is none: editors
    complete and check the plan with it. Without a KIND the kinds are listed. Exit code 0, or 2 when
    nothing was written.
    """
    if not kind:
        width = max(map(len, KINDS))
        for name, (what, needs) in {**KINDS, OWN[0]: OWN[1:]}.items():
            typer.echo(f"{name:<{width}}  {what}\n{'':<{width}}  needs {needs}")
        return
    if kind not in (*KINDS, OWN[0]):
        raise Unusable(f"there is no starter {kind!r}", way_out=f"One of {', '.join((*KINDS, OWN[0]))}.")
    if (dsn is None) == (kind == OWN[0]):
        raise Unusable("`own` is read --from DSN, and no other starter is", way_out="proveout new own --from DSN")
    if dsn is None:
        refuse("only together with `own`", write=changes)
    path = file or Path(f"{kind}.yaml")
    what, needs = KINDS.get(kind, OWN[1:])
    if dsn is None:
        text = starter(kind, path.stem)
    else:
        from proveout.cli.bench import plan_from

        text = plan_from(dsn, plan_name(path.stem) or "own", writes=changes)
    write(path, text)
    typer.echo(f"wrote {path}: {what}; a run needs {needs if dsn is None else 'the database'}")
    write_schema(path.with_name(SCHEMA))
    typer.echo(f"  proveout explain {typed(path)}    shows its stages and how long they take")
    typer.echo(f"  proveout run {typed(path)}")


def starter(kind: str, stem: str) -> str:
    first = f"# yaml-language-server: $schema={SCHEMA}\n"
    text = _SCHEMA.sub(first, (STARTERS / f"{kind}.yaml").read_text(encoding="utf-8"))
    name = plan_name(stem)
    return _NAME.sub(f"name: {name}", text, count=1) if name else text
