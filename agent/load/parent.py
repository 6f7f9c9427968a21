"""How a worker process sees to it that it does not outlive the agent that started it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
ORPHANED = 3


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the process `parent` that started it ends; exit at once if it is gone already.

    The signal is about the parent *thread*, so a parent must start workers from a thread that lasts as long as it does.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(ORPHANED)
