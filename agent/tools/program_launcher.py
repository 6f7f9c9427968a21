"""Launcher of outside programs: `python -m proveout.agent.tools.program_launcher PARENT PRIVILEGES PROGRAM ARGUMENTS…`.

Flow: the agent starts the launcher in the work folder of the program -> the launcher drops its privileges, sets its
parent-death signal, and writes `ready` -> at the first line of standard input it executes the program; at the end of
standard input it exits. A start at an agreed instant therefore costs one exec, and no program outlives its agent.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from proveout.agent.sandbox.privileges import Privileges
from proveout.core import linux

READY = b"ready\n"
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C", "HOME": "/nonexistent"}
PASSED = ("MYSQL_PWD", "PGDATABASE", "PGHOST", "PGPASSWORD", "PGPORT", "PGUSER")
LOAD = "LOAD_"
"""Variables, and the prefix of others, that a program gets where its caller has set them: every user could read an
argument."""
CANNOT_START = 127


def main(arguments: Sequence[str]) -> int:
    """Execute the program. Returns an exit code only if that fails."""
    parent, privileges, program, *rest = arguments
    Privileges.from_argument(privileges).drop(keeps_root=True)
    # After `drop`: a change of the user resets the parent-death signal.
    linux.set_parent_death_signal()
    if os.getppid() != int(parent):
        return CANNOT_START
    os.write(1, READY)
    if not os.read(0, 1):
        return 0
    passed = {name: value for name, value in os.environ.items() if name in PASSED or name.startswith(LOAD)}
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    try:
        os.execve(program, [program, *rest], {**ENVIRONMENT, **passed})  # noqa: S606 - an absolute path, argv of our own
    except OSError as error:
        os.write(2, f"cannot start {program}: {error.strerror}\n".encode())
    return CANNOT_START


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
