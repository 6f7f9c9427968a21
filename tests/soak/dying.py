"""Processes that kill themselves (SIGKILL) at a chosen boundary, once: `python dying.py agents|coordinator ARGUMENTS of
proveout…`.

`DYING_AT` is the number of the boundary, from 1. `DYING_MARK` is a file that the process creates just before it kills
itself; when it exists, no process kills itself. An agent's boundaries are before and after each write to its journal,
the beginning and the end of each handler, and each message that it sends; a coordinator's are before and after each
event of its journal and each result file. With `DYING_AT=0` no process kills itself, and the mark contains the number
of boundaries.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

AT = int(os.environ.get("DYING_AT", "0"))
MARK = Path(os.environ.get("DYING_MARK", "/nowhere"))
WHERE: list[str] = []


def boundary(name: str) -> None:
    """Count a boundary, and kill the process when it is the chosen one."""
    WHERE.append(name)
    if len(WHERE) == AT and not MARK.exists():
        MARK.write_text(f"{AT} {name}")
        os.kill(os.getpid(), signal.SIGKILL)
    if AT == 0 and MARK.parent.is_dir():
        MARK.write_text(f"{len(WHERE)} {name}")


def around(owner: Any, name: str) -> None:
    """Wrap a method with a boundary before and after each call."""
    real: Callable[..., Any] = getattr(owner, name)

    def wrapped(*arguments: Any, **named: Any) -> Any:
        boundary(f"before {name}")
        result = real(*arguments, **named)
        boundary(f"after {name}")
        return result

    setattr(owner, name, wrapped)


def around_results(store: Any) -> None:
    """Wrap the writing of result files with a boundary before and after each file."""
    real = store.write_whole

    def wrapped(path: Path, text: str) -> None:
        if path.name not in {"command.json", "plan.json"}:
            boundary(f"before {path.name}")
        real(path, text)
        if path.name not in {"command.json", "plan.json"}:
            boundary(f"after {path.name}")

    store.write_whole = wrapped


def undoing(arguments: list[str]) -> list[str]:
    """Add the option for a folder of undo journals of this run, in place of the machine's, to an agent's arguments."""
    place = os.environ.get("DYING_UNDO", "")
    return [*arguments, "--undo-dir", place] if place and "--name" in arguments else arguments


def agent(arguments: list[str]) -> None:
    from proveout.agent.daemon import process
    from proveout.agent.daemon.session import Outbox
    from proveout.agent.daemon.task_journal import AgentJournal
    from proveout.agent.daemon.tasks import TaskRunner
    from proveout.agent.tuning.host import Host
    from proveout.agent.tuning.undo_journal import UndoJournal

    if "--name" in arguments and arguments[arguments.index("--name") + 1] == os.environ.get("DYING_HOST", "box"):
        for name in ("note_epoch", "accept", "finish", "blank", "forget"):
            around(AgentJournal, name)
        for name in ("start_at", "armed", "stop", "finish"):
            around(TaskRunner, name)
        around(Outbox, "put")
        for name in ("intend", "commit", "settle"):
            around(UndoJournal, name)
        around(Host, "make")
    process.main(undoing(arguments))


def plain_agent(arguments: list[str]) -> None:
    """Start an agent without boundaries."""
    from proveout.agent.daemon import process

    process.main(undoing(arguments))


def agents(arguments: list[str]) -> None:
    """Start a coordinator whose local agents have boundaries."""
    from proveout.cli import execute

    with_agents("agent")
    sys.exit(execute(arguments))


def with_agents(verb: str) -> None:
    import functools

    from proveout.coordinator import run
    from proveout.coordinator.agents.local_agents import LocalFabric

    command = (sys.executable, str(Path(__file__).absolute()), verb)
    run.LocalFabric = functools.partial(LocalFabric, command)  # type: ignore[misc, assignment]


def coordinator(arguments: list[str]) -> None:
    from proveout.cli import execute
    from proveout.coordinator.storage import run_directory as store
    from proveout.coordinator.storage.journal import Journal

    with_agents("plain_agent")
    around(Journal, "append")
    around_results(store)
    sys.exit(execute(arguments))


if __name__ == "__main__":
    {"agent": agent, "agents": agents, "plain_agent": plain_agent, "coordinator": coordinator}[sys.argv[1]](
        sys.argv[2:]
    )
