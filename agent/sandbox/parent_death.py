"""How a worker process names itself, and sees to it that it does not outlive the agent that started it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
ORPHANED = 3
WORKER_NAME = "proveout-load"
"""What `ps` and `top` show, and what the `os` capture tells the load's CPU by; the kernel keeps 15 characters."""


def die_with_parent(parent: int, name: str = WORKER_NAME) -> None:
    """Take a name (15 characters at most), and have the kernel kill this process when the process `parent` that started it ends; exit at once if it is gone already.

    The signal is about the parent *thread*, so a parent must start workers from a thread that lasts as long as it does.
    """
    if sys.platform == "linux":
        prctl = ctypes.CDLL(None, use_errno=True).prctl
        prctl(PR_SET_NAME, name.encode(), 0, 0, 0)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(ORPHANED)
