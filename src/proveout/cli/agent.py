"""`proveout agent`: the daemon on a host."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EPILOG = """Examples:

  proveout agent --listen 0.0.0.0:7443 --pki /etc/proveout/pki --name db1

  proveout agent --pki ~/pki --state-dir ~/agent-state
"""


def agent(
    pki: Annotated[Path, typer.Option(help="Directory with ca.pem, agent.pem and agent.key (0600).")],
    listen: Annotated[str, typer.Option(help="Address to listen at, name:port.")] = "0.0.0.0:7443",
    name: Annotated[str, typer.Option(help="This host's name in plans; another one is refused. Empty: any.")] = "",
    state_dir: Annotated[
        Path | None,
        typer.Option(help="Directory of the agent's own journal [default: /var/lib/proveout, or the user's state]."),
    ] = None,
) -> None:
    """Serve coordinators on this host until SIGTERM or Ctrl-C.

    Everybody must show a certificate of the authority in ca.pem, and only a coordinator's opens a session.
    """
    from proveout.agent.daemon import Options
    from proveout.agent.process import default_state_dir, run

    run(Options(listen=listen, pki=pki, state_dir=state_dir or default_state_dir(), name=name))
