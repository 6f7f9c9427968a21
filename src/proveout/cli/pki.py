"""`proveout pki` and `proveout audit`: the certificates of a lab, and a check of audit logs for changes."""

from __future__ import annotations

import asyncio
import signal
import socket
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

from proveout.cli.options import columns, name_and_port, verb_group

PKI_EPILOG = """
  proveout pki init ~/lab-authority
  proveout pki issue ~/lab-authority lead --role coordinator --out ~/pki
  proveout pki serve ~/lab-authority --address authority.lab
  proveout pki invite ~/lab-authority db1 --address db1.lab --authority authority.lab:7444
  PROVEOUT_ENROL_TOKEN=TOKEN proveout pki enrol authority.lab:7444 --ca-hash sha256:HASH --pki /etc/proveout/pki
  proveout pki revoke ~/lab-authority db1
"""

HOURS_MAX, MINUTES_MAX = 24 * 400, 10

pki = verb_group(help="The certificates of a lab: an authority, its members, revoked certificates.")


Authority: TypeAlias = Annotated[
    Path, typer.Argument(metavar="DIR", help="The authority's directory.", show_default=False)
]
Name: TypeAlias = Annotated[str, typer.Argument(metavar="NAME", help="The member's name, db1.", show_default=False)]
RoleOption: TypeAlias = Annotated[
    Literal["agent", "coordinator", "operator"], typer.Option("--role", help="The member's role.")
]
Addresses: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--address", help="A name or IP address that an agent is dialled at; may be repeated."),
]


@pki.command()
def init(
    directory: Authority,
    days: Annotated[float, typer.Option(help="Days that the certificates of members are valid.")] = 7.0,
) -> None:
    """Create an authority. Its key stays in DIR: keep DIR where plans are started, and off the hosts under test."""
    from proveout.coordinator.certificates import Ledger

    if not 0 < days * 24 <= HOURS_MAX:
        raise typer.BadParameter(f"a certificate is valid for up to {HOURS_MAX // 24} days", param_hint="--days")
    with closing(Ledger.create(directory, timedelta(days=days))) as ledger:
        typer.echo(f"authority {ledger.fingerprint} in {directory}")


@pki.command()
def issue(
    directory: Authority,
    name: Name,
    out: Annotated[Path, typer.Option(metavar="PKI", help="Directory for keys and certificates.", show_default=False)],
    role: RoleOption = "agent",
    address: Addresses = None,
) -> None:
    """Create keys and certificates of a member here, to copy to its host by hand: without enrolment and renewal."""
    from proveout.coordinator.certificates import Ledger, Member, write_member

    with closing(Ledger.open(directory)) as ledger:
        names = write_member(ledger, Member(role=role, name=name, addresses=tuple(address or ())), out)
    typer.echo(f"{role} {name}: {', '.join(names)} in {out}")


@pki.command()
def invite(
    directory: Authority,
    name: Name,
    *,
    role: RoleOption = "agent",
    address: Addresses = None,
    authority: Annotated[
        str, typer.Option(help="Where hosts reach `pki serve`, name:port.", callback=name_and_port, show_default=False)
    ] = f"{socket.gethostname()}:7444",
    minutes: Annotated[float, typer.Option(help="Minutes that the token is valid; 10 at most.")] = 10.0,
) -> None:
    """Print the command that enrols one host, once, within ten minutes. The host creates its own key."""
    from proveout.coordinator.certificates import Ledger, Member

    if not 0 < minutes <= MINUTES_MAX:
        raise typer.BadParameter(f"a token is valid for up to {MINUTES_MAX} minutes", param_hint="--minutes")
    member = Member(role=role, name=name, addresses=tuple(address or ()))
    with closing(Ledger.open(directory)) as ledger:
        token, ca_hash = ledger.invite(member, timedelta(minutes=minutes)), ledger.fingerprint
    # Not as an option: every user of that host could read it there, and be let in first.
    command = f"proveout pki enrol {authority} --ca-hash {ca_hash} --pki /etc/proveout/pki"
    typer.echo(f"PROVEOUT_ENROL_TOKEN={token} {command}")


@pki.command()
def enrol(
    authority: Annotated[str, typer.Argument(help="Where `pki serve` listens, name:port.", show_default=False)],
    ca_hash: Annotated[str, typer.Option(help="The authority's hash, sha256:….", show_default=False)],
    out: Annotated[
        Path, typer.Option("--pki", metavar="PKI", help="Directory for keys and certificates.", show_default=False)
    ],
    token: Annotated[
        str,
        typer.Option(
            envvar="PROVEOUT_ENROL_TOKEN",
            help="The token of the invitation; better by its variable, as other users see the options of a command.",
            show_default=False,
        ),
    ],
) -> None:
    """Enrol this host with the token of an invitation. Keys are created here and stay here."""
    from proveout.proto.enrolment import enrol as ask

    role = asyncio.run(ask(authority, ca_hash, token, out))
    typer.echo(f"enrolled as {role}; keys and certificates are in {out}")


@pki.command()
def renew(
    out: Annotated[Path, typer.Argument(metavar="PKI", help="A member's directory.", show_default=False)],
) -> None:
    """Renew a member's certificates when two thirds of their lifetime are over. Running agents do it by themselves."""
    from proveout.proto.enrolment import ROLES, authority_of
    from proveout.proto.enrolment import renew as ask

    role = next((role for role in ROLES if (out / f"{role}.pem").exists()), None)
    if role is None or authority_of(out) is None:
        raise typer.BadParameter("there is nothing of an enrolled member in it", param_hint="PKI")
    typer.echo("renewed" if asyncio.run(ask(out, role)) else "not due yet")


@pki.command()
def revoke(
    directory: Authority,
    who: Annotated[str, typer.Argument(metavar="NAME", help="A name, or a serial number.", show_default=False)],
) -> None:
    """Revoke the certificates of a member, at once where `pki serve` runs: enrolled hosts poll it every few seconds.

    Elsewhere copy DIR/denied into each member's directory of certificates; it is read whenever it changes.
    """
    from proveout.coordinator.certificates import Ledger, rows

    with closing(Ledger.open(directory)) as ledger:
        for row in rows(ledger.revoke(who)):
            typer.echo(f"revoked {row[0]} {row[1]} {row[3]}")
    typer.echo(f"{directory / 'denied'} is written")


@pki.command("list")
def list_(directory: Authority) -> None:
    """List the certificates of an authority: role, name, addresses, serial number, how it was issued, time left."""
    from proveout.coordinator.certificates import Ledger, rows

    with closing(Ledger.open(directory)) as ledger:
        for line in columns(rows(ledger.issued())):
            typer.echo(line)


@pki.command()
def serve(
    directory: Authority,
    listen: Annotated[
        str, typer.Option(help="Address to listen at, name:port.", callback=name_and_port)
    ] = "0.0.0.0:7444",
    address: Annotated[
        list[str] | None,
        typer.Option("--address", help="A name or IP address that hosts reach it at [default: this host's name]."),
    ] = None,
) -> None:
    """Enrol hosts, renew certificates and publish revocations until SIGTERM or Ctrl-C."""
    import logging

    from proveout.coordinator.certificates import serve as run

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")

    async def until_told() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        names = address or [socket.gethostname(), "localhost", "127.0.0.1"]
        await run(directory, listen, names, lambda where: typer.echo(f"listening {where}"), stop)

    asyncio.run(until_told())


EPILOG = """
  proveout audit verify /var/lib/proveout/audit.log
  proveout audit verify db1-audit.log --against runs/smoke-20260114-101500-3f2a/audit.log
"""

audit = verb_group(help="Logs that show when they were changed.")


@audit.callback()
def _group() -> None:
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
    from proveout.core.numbers import count_of
    from proveout.proto.audit_log import verify as check

    found = check(log, against or ())
    typer.echo(f"{log}: {count_of(found.head.number, 'line')}, each follows from the one before")
    if not against:
        typer.echo(
            "this log alone cannot show whether lines are missing at its end: name the other side's log with --against"
        )
    else:
        typer.echo(
            f"{count_of(found.seen_by_others, 'time')} another log has seen it, the last time at line "
            f"{found.last_seen}: all agree"
        )
        typer.echo(f"lines after {found.last_seen} are in this log only")
