"""`proveout prove`: test everything that proveout asks of an engine on a server of one's own, and record the
conversation."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from proveout.cli.options import columns, refuse
from proveout.cli.outputs import check_outputs, write_document
from proveout.core.numbers import safe
from proveout.dsl import engines

if TYPE_CHECKING:
    from proveout.agent.engine_proof import Result
    from proveout.agent.engines.recording import Conversation

EPILOG = """
  proveout prove oracle 'hlr/${HLR_PASSWORD}@//localhost:1521/FREEPDB1'
  proveout prove oracle 'hlr/${HLR_PASSWORD}@//localhost:1521/FREEPDB1' --write --to oracle-free.json
  proveout prove postgres 'host=db1 dbname=test user=me' --write --workload hlr --yes
  proveout prove timesten 'hlr/${HLR_PASSWORD}@localhost/sampledb:timesten_direct'
"""

DIFFERS, UNREACHABLE = 1, 4
"""Exit codes: an answer that differs or is refused; no connection."""
_VARIABLE = re.compile(r"\$\{(\w+)\}")


def prove(
    engine: Annotated[str, typer.Argument(metavar="ENGINE", help=f"One of {', '.join(engines.WITH_DRIVER)}.")],
    dsn: Annotated[
        str, typer.Argument(metavar="DSN", help="As in a plan; ${NAME} is that variable of the environment.")
    ],
    *,
    write: Annotated[
        bool, typer.Option("--write", help="The workloads too: each makes and drops its tables in the user's schema.")
    ] = False,
    workload: Annotated[
        list[str] | None, typer.Option(metavar="KIND", help="With --write: this workload, repeatable [default: all].")
    ] = None,
    licence: Annotated[
        list[str] | None, typer.Option(help="A licence that you have, for AWR: diagnostics_pack.")
    ] = None,
    sink: Annotated[
        str, typer.Option(metavar="DSN", help="For the lag, with --write: a standby, or the Oracle behind a TimesTen.")
    ] = "",
    to: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The recorded conversation [default: ENGINE-VERSION.json].")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Write the file without showing it and asking.")] = False,
) -> int:
    """Test everything that proveout asks of an engine, and record the conversation with the server.

    It reads only, unless --write is given. The recorded file has statements, types, names of columns, numbers of rows,
    errors and times; no data, no password, no address, no name but proveout's own. It is shown before it is written.
    Exit code 0: everything works; 1: something differs or is refused; 4: no connection.
    """
    from proveout.agent.engine_proof import SCALES, Prover, behind
    from proveout.agent.engine_proof import prove as ask
    from proveout.agent.engines.recording import Conversation
    from proveout.dsl.rules.host_rules import dsn_problems
    from proveout.proto.wire.tasks import Endpoint

    if engine not in engines.WITH_DRIVER:
        raise typer.BadParameter(f"{engine!r} is none of {', '.join(engines.WITH_DRIVER)}", param_hint="ENGINE")
    if unknown := sorted(set(workload or ()) - set(SCALES)):
        raise typer.BadParameter(f"{unknown[0]!r} is none of {', '.join(SCALES)}", param_hint="--workload")
    if not write:
        refuse("only together with --write", workload=workload, sink=sink)
    check_outputs({"to": to})
    filled = _VARIABLE.sub(_value, dsn)
    if objection := next(dsn_problems(engine, filled), None):
        raise typer.BadParameter(f"{objection.message}; as {objection.way_out}", param_hint="DSN")
    beyond = _VARIABLE.sub(_value, sink)
    conversation = Conversation(engine=engine, hidden=_words(filled) | _words(beyond))
    prover = Prover(
        Endpoint(system="target", engine=engine, dsn=filled),
        conversation,
        writes=write,
        licences=tuple(licence or ()),
        sink=Endpoint(system="sink", engine=behind(engine), dsn=beyond) if beyond else None,
        workloads=tuple(workload or SCALES),
    )
    found = ask(prover, _begin, _end)
    typer.echo("")
    _show(found)
    if len(found) == 1:
        return UNREACHABLE
    _keep(conversation, to, yes=yes)
    return DIFFERS if any(one.answer in ("differs", "refused") for one in found) else 0


def _value(match: re.Match[str]) -> str:
    value = os.environ.get(match[1])
    if not value:
        raise typer.BadParameter(f"the environment has no {match[1]}", param_hint="DSN")
    return value


def _words(dsn: str) -> frozenset[str]:
    """The words of a dsn, and of this host and user, that a server may repeat in a message."""
    import getpass
    import socket

    words = {*re.findall(r"[^\s/@:?&=;,()']{3,}", dsn), dsn, socket.gethostname()}
    with suppress(KeyError, OSError):  # a user without an account, as in containers
        words.add(getpass.getuser())
    return frozenset(word for word in words if word not in _COMMON)


_COMMON = frozenset(
    {"host", "port", "user", "password", "dbname", "postgresql", "postgres", "mysql", "timesten_direct"}
)
"""Words of the forms of dsns."""


def _begin(name: str) -> None:
    if sys.stderr.isatty():
        typer.echo(f"\r\033[K{name} …", err=True, nl=False)


def _end(result: Result) -> None:
    if sys.stderr.isatty():
        typer.echo("\r\033[K", err=True, nl=False)
    typer.echo(f"{result.answer:<9} {result.name}  ({result.seconds:.1f} s)")


def _show(found: list[Result]) -> None:
    """The table, and what to do about what is refused."""
    rows = [("question", "answer", "the server's words, or what was found")]
    rows += [(one.name, one.answer, safe(one.words)) for one in found]
    for line in columns(rows):
        typer.echo(line.rstrip())
    for way_out in dict.fromkeys(one.way_out for one in found if one.way_out):
        typer.echo(f"  {', '.join(one.name for one in found if one.way_out == way_out)}: {way_out}")


def _keep(conversation: Conversation, to: Path | None, *, yes: bool) -> None:
    version = re.sub(r"[^\w.-]", "_", conversation.facts.get("version", "").split(" ")[0])
    path = to or Path(f"{conversation.engine}-{version or 'unknown'}.json")
    text = conversation.to_text()
    if not yes:
        typer.echo(f"\nThe recorded conversation, {len(text.splitlines())} lines:\n")
        typer.echo(text)
        if not sys.stdin.isatty() or not typer.confirm(f"Write it to {path}?"):
            typer.echo(f"not written (--yes writes {path} without a question)")
            return
    write_document(path, text)
    typer.echo(f"written: {path}. It replays in proveout's tests: add it to an issue or to tests/replay/.")
