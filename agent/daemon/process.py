"""The process of an agent: command line, log, `servicer.serve`, exit code.

A local agent reads its identity from standard input, writes `listening <address>` to standard output once, and then
redirects standard output to its log (standard error). The environment is reduced to the variables that child processes
get (`child_process`), so that code in this process and in children finds the same variables.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from proveout.agent.daemon.handlers import TABLE
from proveout.agent.daemon.servicer import ORPHAN_S, Options, serve
from proveout.agent.daemon.tasks import Handler
from proveout.agent.security.authz import Identity, received_identity
from proveout.agent.security.redaction import Formatter
from proveout.core import child_process
from proveout.core.errors import ProveoutError
from proveout.dsl import engines

LISTEN = "0.0.0.0:7443"  # coordinators dial agents; every client needs a certificate
BUG = 70  # EX_SOFTWARE of sysexits.h


def default_state_dir() -> Path:
    """State directory of a permanent agent: /var/lib/proveout for root, else below the user's state directory."""
    if os.geteuid() == 0:
        return Path("/var/lib/proveout")
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "proveout/agent"


def run(options: Options, table: Mapping[type, Handler] = TABLE, orphan_s: float = ORPHAN_S) -> NoReturn:
    """Run an agent and end the process with its exit code. An expected failure is one message on standard error.

    The process exits at once, so that a hanging thread or task of a handler cannot keep it.
    """
    log = logging.StreamHandler(sys.stderr)
    log.setFormatter(Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[log], level=logging.INFO)
    kept = (*child_process.RAY, *(name for engine in engines.ENGINES for name in child_process.of_engine(engine)))
    if names := child_process.left_out(*kept):
        logging.getLogger(__name__).info(child_process.left_out_message(names))
    child_process.keep_only(*kept)
    loop = asyncio.new_event_loop()
    code = BUG
    try:
        loop.run_until_complete(serve(options, _say_ready if options.local else _ignore, table, orphan_s))
        code = 0
    except ProveoutError as error:
        sys.stderr.write(f"{error}\n")
        code = error.exit_code
    except BaseException:  # os._exit would hide it
        logging.exception("the agent has failed; this is a bug in proveout")
    finally:
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main(arguments: Sequence[str], table: Mapping[type, Handler] = TABLE, orphan_s: float = ORPHAN_S) -> NoReturn:
    """`run` with the options of a command line. A ProveoutError is one message on standard error."""
    try:
        options = _options(arguments)
    except ProveoutError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)
    run(options, table, orphan_s)


def _options(arguments: Sequence[str]) -> Options:
    parser = argparse.ArgumentParser(prog="proveout agent")
    parser.add_argument("--listen", default=LISTEN)
    parser.add_argument("--pki", type=Path)
    parser.add_argument("--state-dir", type=Path)
    parser.add_argument("--name", default="")
    parser.add_argument("--local", action="store_true")
    parser.add_argument("--policy", type=Path)
    parser.add_argument("--undo-dir", type=Path)
    given = parser.parse_args(arguments)
    if given.pki is None and not given.local:
        parser.error("--pki is missing: name the directory with this agent's certificate")
    return Options(
        listen=given.listen,
        pki=given.pki or _read_identity(),
        state_dir=given.state_dir or default_state_dir(),
        name=given.name,
        local=given.local,
        policy=given.policy,
        undo_dir=given.undo_dir,
    )


def _read_identity() -> Identity:
    """Read the identity from standard input, then redirect standard input to /dev/null."""
    identity = received_identity(sys.stdin.buffer.read())
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - a device
        os.dup2(nothing.fileno(), 0)
    return identity


def _say_ready(address: str) -> None:
    """ProveoutError when the coordinator that started this agent has ended."""
    try:
        os.write(sys.stdout.fileno(), f"listening {address}\n".encode())
    except BrokenPipeError as error:
        what = "the coordinator that started this agent has ended"
        raise ProveoutError(what, way_out="Start the run again.") from error
    finally:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())


def _ignore(_address: str) -> None:
    return None
