"""`proveout inventory`: inventories of other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from proveout.core.errors import ProveoutError

EPILOG = """Examples:

  proveout inventory import hosts.ini --role loadgenerators=client --role databases=server > lab.yaml

  proveout inventory import inventory.yml --out lab.yaml
"""

PORT = 7443

inventory = typer.Typer(
    help="Inventories: the hosts of a lab.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


class NotImported(ProveoutError):
    """Nothing was written."""

    exit_code = 2


@inventory.callback()
def _group() -> None:
    """Inventories: the hosts of a lab."""


@inventory.command("import")
def import_(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="An Ansible inventory, INI or YAML.", show_default=False)
    ],
    *,
    role: Annotated[
        list[str] | None,
        typer.Option(metavar="GROUP=ROLE", help="The role of a group [default: its name]; repeatable."),
    ] = None,
    agent_port: Annotated[int, typer.Option(min=1, max=65_535, help="The port of the agents.")] = PORT,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a new file instead of printing.")] = None,
) -> int:
    """Convert an Ansible inventory: groups become roles; ansible_host, _port and _user become addresses and logins.

    Everything else is listed on standard error, with its line. Exit code 0, or 2 when nothing was written.
    """
    from proveout.coordinator.deploy.ansible_import import convert
    from proveout.core.numbers import safe_lines
    from proveout.dsl.source.ansible_inventory import hosts, read
    from proveout.dsl.source.nodes import Problems, did_you_mean

    problems = Problems()
    groups = read(file, problems)
    found = hosts(groups, problems) if not problems.found else ()
    if problems.found:
        raise problems.error()
    if not found:
        raise NotImported("there are no hosts in it", where=str(file))
    roles = _roles(role or ())
    for group in roles.keys() - groups.keys():
        hint = did_you_mean(group, groups)
        raise typer.BadParameter(f"the inventory has no group {group!r}; {hint}", param_hint="--role")
    made = convert(found, file.name, port=agent_port, roles=roles)
    if out is None:
        typer.echo(made.text, nl=False)
    else:
        _write(out, made.text)
    beside = [name for name in ("group_vars", "host_vars") if (file.parent / name).is_dir()]
    for note in (*made.notes, *(f"{name}/ beside it is not read" for name in beside)):
        typer.echo(f"note: {safe_lines(note)}", err=True)
    return 0


def _roles(words: list[str] | tuple[str, ...]) -> dict[str, str]:
    """`GROUP=ROLE` words as a mapping."""
    import re

    from proveout.dsl.rules.bounds import NAME_PATTERN

    found: dict[str, str] = {}
    for word in words:
        group, equals, role = word.partition("=")
        if not equals or not group or not re.match(NAME_PATTERN, role):
            raise typer.BadParameter(f"{word!r} is not GROUP=ROLE", param_hint="--role")
        found[group] = role
    return found


def _write(path: Path, text: str) -> None:
    """Write a new file. NotImported when it exists."""
    try:
        with path.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        raise NotImported("it exists already", where=str(path), way_out="Name another file with --out.") from None
    except OSError as error:
        raise NotImported(f"it cannot be written: {error.strerror}", where=str(path)) from error
    typer.echo(f"wrote {path}", err=True)
