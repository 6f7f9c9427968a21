"""`proveout audit`: check audit logs for changes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EPILOG = """Examples:

  proveout audit verify /var/lib/proveout/audit.log

  proveout audit verify db1-audit.log --against runs/smoke-20260114-101500-3f2a/audit.log
"""

audit = typer.Typer(help="Logs that show when they were changed.", no_args_is_help=True, rich_markup_mode=None)


@audit.callback()
def group() -> None:
    """Tamper-evident logs of an agent, of a run, of the authority."""


@audit.command()
def verify(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="An audit.log.", show_default=False)],
    against: Annotated[
        list[Path] | None, typer.Option("--against", metavar="LOG", help="The log of another side; may be repeated.")
    ] = None,
) -> None:
    """Check that no line was changed, removed, added or moved. Exit code 1, with the first wrong line, otherwise.

    Lines cut off the end show only against the log of another side, which notes how far this one was at each session;
    so does a log that was removed and restarted: the other side has never seen it.
    """
    from proveout.proto.trust.audit_log import verify as check

    found = check(log, against or ())
    typer.echo(f"{log}: {found.head.number} lines, each follows from the one before")
    if not against:
        typer.echo(
            "this log alone cannot show whether lines are missing at its end: name the other side's log with --against"
        )
    else:
        typer.echo(
            f"{found.seen_by_others} times another log has seen it, the last time at line {found.last_seen}: all agree"
        )
        typer.echo(f"lines after {found.last_seen} are in this log only")
