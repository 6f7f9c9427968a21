"""`proveout agent`: run the agent of a host."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from proveout.cli.options import file_option, name_and_port, refuse

if TYPE_CHECKING:
    from proveout.agent.daemon.servicer import Options

EPILOG = """
  proveout agent --listen 0.0.0.0:7443 --pki /etc/proveout/pki --name db1
  proveout agent --pki ~/pki --state-dir ~/agent-state --policy ~/policy.yaml
  proveout agent --check-policy /etc/proveout/policy.yaml
  proveout agent --pki /etc/proveout/pki --name db1 --print-unit > /etc/systemd/system/proveout-agent.service
"""


def agent(
    *,
    pki: Annotated[
        Path | None, typer.Option(help="Directory with ca.pem, agent.pem and agent.key (0600).", show_default=False)
    ] = None,
    listen: Annotated[
        str, typer.Option(help="Address to listen at, name:port.", callback=name_and_port)
    ] = "0.0.0.0:7443",
    name: Annotated[str, typer.Option(help="This host's name in plans; another one is refused. Empty: any.")] = "",
    state_dir: Annotated[
        Path | None,
        typer.Option(help="Directory of the agent's own journal [default: /var/lib/proveout, or the user's state]."),
    ] = None,
    policy: Annotated[
        Path | None,
        file_option("The permitted changes of this host [default: /etc/proveout/policy.yaml; without one nothing]."),
    ] = None,
    check_policy: Annotated[Path | None, file_option("Check a policy, print its rules, and exit.")] = None,
    print_unit: Annotated[
        bool, typer.Option("--print-unit", help="Print a systemd unit for an agent with these options, and leave.")
    ] = False,
) -> None:
    """Serve coordinators on this host until SIGTERM or Ctrl-C.

    Every client must show a certificate of the authority in ca.pem, and only a coordinator's opens a session.
    """
    if check_policy is not None:
        refuse("not together with --check-policy", name=name, policy=policy, print_unit=print_unit)
        _check_policy(check_policy, [folder for folder in (pki, state_dir) if folder is not None])
        return
    if pki is None:
        raise typer.BadParameter("name the directory with this agent's certificate", param_hint="--pki")
    from proveout.agent.daemon.process import default_state_dir, run
    from proveout.agent.daemon.servicer import Options

    options = Options(listen=listen, pki=pki, state_dir=state_dir or default_state_dir(), name=name, policy=policy)
    if print_unit:
        _print_unit(options, pki.absolute())
    else:
        run(options)


def _check_policy(file: Path, own: list[Path]) -> None:
    from proveout.agent.security.policy_file import describe, read
    from proveout.core.path_trust import names_of

    typer.echo(describe(replace(read(file), own_folders=names_of(*own))))


def _print_unit(options: Options, pki: Path) -> None:
    from proveout.agent.daemon.process import STATE, unit
    from proveout.agent.daemon.servicer import read_policy

    state_dir = options.state_dir if os.geteuid() == 0 else Path(STATE)
    found = read_policy(options)
    words = {"--listen": options.listen, "--pki": pki, "--state-dir": state_dir, "--name": options.name}
    words["--policy"] = found.source
    arguments = ["agent", *(str(part) for word, value in words.items() if str(value) for part in (word, value))]
    program = shutil.which("proveout") or sys.argv[0]
    typer.echo(unit(str(Path(program).absolute()), arguments, pki=pki, state_dir=state_dir, policy=found), nl=False)
