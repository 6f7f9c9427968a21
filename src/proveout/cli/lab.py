"""`proveout deploy` and `proveout inventory`: agents on the hosts of an inventory, and inventories of other
programs.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from proveout.cli.options import Pki, Unusable, file_option, pki_folder, refuse, verb_group
from proveout.core import directories
from proveout.core.errors import INTERRUPTED
from proveout.core.numbers import safe_lines

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text

    from proveout.coordinator.certificates import Ledger
    from proveout.coordinator.deploy.deployment import Order, Outcome, Tell
    from proveout.coordinator.deploy.ssh_connection import Login, Target
    from proveout.coordinator.deploy.wheelhouse import Wheelhouse


DEPLOY_EPILOG = """
  proveout deploy -i lab.yaml --ca ~/lab-authority --authority lead.lab:7444 --dry-run
  proveout deploy -i lab.yaml --ca ~/lab-authority --authority lead.lab:7444 --policy client=client-policy.yaml
  proveout deploy -i lab.yaml --host db1 --ca ~/lab-authority --authority lead.lab:7444
  proveout deploy -i lab.yaml --remove --ca ~/lab-authority
"""

FAILED = 4
AT_ONCE = 16
"""Hosts that are worked on at a time."""
TEMPLATES_FOLDER = Path(__file__).parents[1] / "plans" / "policies"
TEMPLATES = {"server": "database-server", "storage": "storage-node", "client": "client"}
"""The template of a policy by role, in the package's `plans/policies`."""


def deploy(
    *,
    inventory: Annotated[
        Path,
        typer.Option("--inventory", "-i", metavar="FILE", help="The inventory with the hosts.", show_default=False),
    ],
    host: Annotated[list[str] | None, typer.Option(help="Only this host; may be repeated.")] = None,
    ca: Annotated[Path | None, file_option("The directory of the lab's authority.", "DIR")] = None,
    authority: Annotated[
        str, typer.Option(help="The address of `pki serve`, as reached from the hosts, name:port.")
    ] = "",
    pki: Pki = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]FILE", help="The policy of a host or of a role (of all without NAME); repeatable."
        ),
    ] = None,
    extra: Annotated[
        list[str] | None, typer.Option(help="An extra to install with it; may be repeated [default: postgres].")
    ] = None,
    wheelhouse: Annotated[
        Path | None, file_option("Wheels to install [default: pip gets those of this installation].", "DIR")
    ] = None,
    python: Annotated[
        list[str] | None, typer.Option(help="The hosts' Python, a name or a path; may be repeated.")
    ] = None,
    ssh_config: Annotated[Path | None, file_option("A configuration for ssh in place of ~/.ssh/config.")] = None,
    no_service: Annotated[
        bool, typer.Option("--no-service", help="Start a plain background process instead of a systemd unit.")
    ] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the agents and all that deploy has made.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the steps for each host, and change nothing.")
    ] = False,
) -> int:
    """Install, enrol and start the agents of an inventory's hosts over SSH, side by side.

    A host that is as wanted is left alone. A failure leaves a host as it was, and does not stop the others. Exit codes:
    0 all hosts are fine, 2 the command line or the inventory is wrong, 4 a host failed, 130 interrupted.
    """
    from proveout.coordinator.certificates import Ledger
    from proveout.coordinator.deploy import deployment, inventories
    from proveout.coordinator.deploy.deployment import Access

    if remove:
        no_meaning = {"policy": policy, "extra": extra, "wheelhouse": wheelhouse, "no_service": no_service}
        refuse("it has no meaning with --remove", authority=authority, **no_meaning)
    found = inventories.read(inventory, host or ())
    ledger = Ledger.open(ca) if ca is not None else None
    try:
        access = Access(login=_login(python, ssh_config), ledger=ledger, dry_run=dry_run)
        if remove:
            return _each(found, lambda target, tell: deployment.remove(target, access, tell), dry_run=dry_run)
        with directories.make("deploy") as made:
            house = partial(_house, extra, wheelhouse, made)
            policies = _policies(policy or (), found)
            order = _order(ledger, pki_folder(pki), authority, house, policies, service=not no_service)
            return _each(found, lambda target, tell: deployment.deploy(target, access, order, tell), dry_run=dry_run)
    finally:
        if ledger is not None:
            ledger.close()


def _login(python: list[str] | None, config: Path | None) -> Login:
    from proveout.coordinator.deploy.ssh_connection import Login

    own = f"python{sys.version_info.major}.{sys.version_info.minor}"
    if config is not None and not config.is_file():
        raise Unusable("there is no such file", where=str(config))
    return Login(config=config, pythons=tuple(python or (own, "python3")))


def _house(extra: list[str] | None, wheelhouse: Path | None, made: Path) -> Wheelhouse:
    from proveout.coordinator.deploy import wheelhouse as wheels

    if wheelhouse is None:
        typer.echo("getting the wheels of this installation", err=True)
        return wheels.collect(extra or ["postgres"], made)
    if extra:
        raise typer.BadParameter("a wheelhouse is installed as it is", param_hint="--extra")
    return wheels.read(wheelhouse)


def _order(
    ledger: Ledger | None,
    pki: Path | None,
    authority: str,
    house: Callable[[], Wheelhouse],
    policies: Mapping[str, str],
    *,
    service: bool,
) -> Order:
    from proveout.coordinator.certificates import Credentials
    from proveout.coordinator.deploy.deployment import Order
    from proveout.dsl.rules.host_rules import is_host_and_port

    if ledger is None or pki is None:
        missing = "--ca" if ledger is None else "--pki"
        raise Unusable(
            f"{missing} is missing",
            way_out="`proveout pki init` and `pki issue` make an authority and the coordinator's certificate.",
        )
    if not is_host_and_port(authority):
        raise Unusable(
            f"--authority {authority or 'is missing'}: the address that hosts enrol at",
            way_out="Where `proveout pki serve` runs, as hosts reach it: --authority lead.lab:7444.",
        )
    credentials = Credentials.read(pki)
    if ledger.authority.pem.strip() != credentials.ca.strip():
        raise Unusable("the coordinator's certificate is of another authority than --ca")
    return Order(
        policies=policies,
        wheelhouse=house(),  # last: it downloads
        ledger=ledger,
        authority=authority,
        credentials=credentials,
        service=service,
        examples={role: (TEMPLATES_FOLDER / f"{name}.yaml").read_text() for role, name in TEMPLATES.items()},
    )


def _policies(words: Sequence[str], targets: Sequence[Target]) -> dict[str, str]:
    """The texts of `[NAME=]FILE` words by name; each must be a valid policy. "" is the name of all hosts."""
    from proveout.agent.security.policy_file import read

    names = {target.name for target in targets} | {role for target in targets for role in target.roles}
    found: dict[str, str] = {}
    for word in words:
        name, equals, file = word.partition("=")
        name, file = (name, file) if equals else ("", word)
        if name and name not in names:
            raise typer.BadParameter(f"{name!r} is neither a host nor a role of the inventory", param_hint="--policy")
        if name in found:
            raise typer.BadParameter(f"{word!r} is a second policy for the same", param_hint="--policy")
        read(Path(file))
        found[name] = Path(file).read_text(encoding="utf-8")
    return found


# ---- all hosts side by side ----------------------------------------------------------------------------------------


def _each(
    targets: Sequence[Target], do: Callable[[Target, Tell], Coroutine[Any, Any, Outcome]], *, dry_run: bool
) -> int:
    """Do it on all hosts at once, with a line for each; the exit code."""
    outcomes = asyncio.run(_together(targets, do))
    for outcome in outcomes:
        for step in outcome.steps if dry_run else ():
            typer.echo(f"{safe_lines(outcome.host)}: {safe_lines(step)}")
    bad = [outcome for outcome in outcomes if not outcome.is_fine]
    counts = Counter(outcome.state for outcome in outcomes)
    typer.echo(", ".join(f"{count} {state}" for state, count in counts.items()))
    if bad:
        typer.echo(f"not done: {', '.join(outcome.host for outcome in bad)}", err=True)
    if any(outcome.state == "interrupted" for outcome in bad):
        return INTERRUPTED
    return FAILED if bad else 0


async def _together(
    targets: Sequence[Target], do: Callable[[Target, Tell], Coroutine[Any, Any, Outcome]]
) -> list[Outcome]:
    """The outcomes in the order of the targets. SIGINT and SIGTERM cancel all hosts; a second one ends the wait."""
    board = _Board([target.name for target in targets])
    loop, limit = asyncio.get_running_loop(), asyncio.Semaphore(AT_ONCE)

    async def one(target: Target) -> Outcome:
        async with limit:
            outcome = await do(target, partial(board.tell, target.name))
        board.end(outcome)
        return outcome

    tasks = [asyncio.create_task(one(target)) for target in targets]

    def cancel() -> None:
        for task in tasks:
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, cancel)
    with board:
        results = await asyncio.gather(*tasks, return_exceptions=True)
    return [_outcome(target, result) for target, result in zip(targets, results, strict=True)]


def _outcome(target: Target, result: Outcome | BaseException) -> Outcome:
    from proveout.coordinator.deploy.deployment import Outcome

    if isinstance(result, asyncio.CancelledError):
        return Outcome(host=target.name, state="interrupted", text="unchanged")
    if isinstance(result, BaseException):
        raise result
    return result


class _Board:
    """A line for each host: in place on a terminal, else one for each step."""

    def __init__(self, names: Sequence[str]) -> None:
        self._lines = dict.fromkeys(names, "waiting")
        self._width = max(map(len, names))
        self._said: dict[str, str] = {}
        self._live: Live | None = None

    def __enter__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        console = Console(stderr=True)
        if console.is_terminal and not console.is_dumb_terminal:
            self._live = Live(console=console, refresh_per_second=8, get_renderable=self._text)
            self._live.start()

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def tell(self, host: str, text: str) -> None:
        """Show the step that a host is at. In a log the numbers of a step are left out."""
        self._lines[host] = text
        step = text.partition(" ")[0]
        if self._live is None and self._said.get(host) != step:
            self._said[host] = step
            typer.echo(self._line(host, text if not any(map(str.isdigit, text)) else step), err=True)

    def end(self, outcome: Outcome) -> None:
        text = f"{outcome.state}: {outcome.text}" if outcome.text else outcome.state
        self._lines[outcome.host] = text
        if self._live is None:
            typer.echo(self._line(outcome.host, text), err=True)

    def _line(self, host: str, text: str) -> str:
        return f"{safe_lines(host):<{self._width}}  {safe_lines(text)}"

    def _text(self) -> Text:
        from rich.text import Text

        return Text("\n".join(self._line(host, text) for host, text in self._lines.items()))


EPILOG = """
  proveout inventory import hosts.ini --role loadgenerators=client --role databases=server > lab.yaml
  proveout inventory import inventory.yml --out lab.yaml
"""

PORT = 7443

inventory = verb_group(help="Inventories: the hosts of a lab.")


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
    out: Annotated[Path | None, file_option("Write a new file instead of printing.")] = None,
) -> int:
    """Convert an Ansible inventory: groups become roles; ansible_host, _port and _user become addresses and logins.

    Everything else is listed on standard error, with its line. Exit code 0, or 2 when nothing was written.
    """
    from proveout.cli.plan_writer import write
    from proveout.coordinator.deploy.inventories import convert
    from proveout.dsl.source.ansible_inventory import hosts, read
    from proveout.dsl.source.nodes import Problems, did_you_mean

    problems = Problems()
    groups = read(file, problems)
    found = hosts(groups, problems) if not problems.found else ()
    if problems.found:
        raise problems.error()
    if not found:
        raise Unusable("there are no hosts in it", where=str(file))
    roles = _roles(role or ())
    for group in roles.keys() - groups.keys():
        hint = did_you_mean(group, groups)
        raise typer.BadParameter(f"the inventory has no group {group!r}; {hint}", param_hint="--role")
    made = convert(found, file.name, port=agent_port, roles=roles)
    if out is None:
        typer.echo(made.text, nl=False)
    else:
        write(out, made.text, "Name another file with --out.")
        typer.echo(f"wrote {out}", err=True)
    beside = [name for name in ("group_vars", "host_vars") if (file.parent / name).is_dir()]
    for note in (*made.notes, *(f"{name}/ beside it is not read" for name in beside)):
        typer.echo(f"note: {safe_lines(note)}", err=True)
    return 0


def _roles(words: list[str] | tuple[str, ...]) -> dict[str, str]:
    import re

    from proveout.dsl.plan.scalars import NAME_PATTERN

    found: dict[str, str] = {}
    for word in words:
        group, equals, role = word.partition("=")
        if not equals or not group or not re.match(NAME_PATTERN, role):
            raise typer.BadParameter(f"{word!r} is not GROUP=ROLE", param_hint="--role")
        found[group] = role
    return found
