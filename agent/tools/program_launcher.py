"""A process that becomes another program: `python -m proveout.agent.tools.program_launcher PARENT TOLD PROGRAM ARGUMENTS…`.

Flow: the agent starts it in the folder that the program works in -> it gives its privileges up (`privileges.drop(TOLD)`), asks to be
killed with its parent, says `ready` -> at the first line of standard input it becomes the program, at its end it ends. So starting
at an agreed instant costs one exec, and nothing that an agent has started outlives it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from proveout.agent.sandbox import privileges
from proveout.core import linux

READY = b"ready\n"
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C", "HOME": "/nonexistent"}
CANNOT_START = 127


def main(arguments: Sequence[str]) -> int:
    """Become the program; an exit code when that cannot be."""
    parent, told, program, *rest = arguments
    privileges.drop(told, keeps_root=True)
    # After the drop: the kernel forgets it when the user changes.
    linux.set_parent_death_signal()
    if os.getppid() != int(parent):
        return CANNOT_START
    os.write(1, READY)
    if not os.read(0, 1):
        return 0
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    try:
        os.execve(program, [program, *rest], ENVIRONMENT)  # noqa: S606 - an absolute path, argv of our own
    except OSError as error:
        os.write(2, f"{program} cannot be started: {error.strerror}\n".encode())
    return CANNOT_START


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
