"""Find a program of a plan in the host's policy."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from proveout.agent.engines.postgres.installation import find_installation
from proveout.agent.errors import TaskFault
from proveout.agent.security.policy import Policy
from proveout.agent.tools.program_launcher import ENVIRONMENT


def listed_program(
    policy: Policy, argv: Sequence[str], patterns: Sequence[str] = (), *, in_forms: bool = False
) -> tuple[tuple[str, ...], bool]:
    """The argv with the path of its program, and whether it runs as the agent's own user. TaskFault `refused`, with the
    line for the policy, as `Policy.command`."""
    return policy.command(argv, "" if argv[0].startswith("/") else _place(argv[0]), patterns, in_forms=in_forms)


def _place(name: str) -> str:
    """The path of a program on this host: in PATH, or beside the embedded PostgreSQL; "" if there is none."""
    if found := shutil.which(name, path=ENVIRONMENT["PATH"]):
        return found
    try:
        beside = find_installation().programs / name
    except TaskFault:
        return ""
    return str(beside) if beside.is_file() else ""
