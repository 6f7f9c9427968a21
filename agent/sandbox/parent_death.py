"""Name of a worker process, and its end with the agent that started it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
ORPHANED = 3
WORKER_NAME = "proveout-load"
"""Name in `ps` and `top`; the `os` capture finds CPU of the load by it. The kernel keeps 15 characters."""


def die_with_parent(parent: int, name: str = WORKER_NAME) -> None:
    """Set the process name (at most 15 characters) and have the kernel kill this process when its parent process
    `parent` ends.

    Exits at once if the parent has ended already. The kernel watches the parent *thread*, so a parent must start
    workers from a thread that lives as long as the process.
    """
    if sys.platform == "linux":
        prctl = ctypes.CDLL(None, use_errno=True).prctl
        prctl(PR_SET_NAME, name.encode(), 0, 0, 0)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(ORPHANED)
