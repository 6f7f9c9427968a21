"""The last broom: processes that handlers of a session have left behind."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path

import psutil

PATIENCE_S = 2.0

_log = logging.getLogger(__name__)


def end_children() -> None:
    """End every child of this process and their children, the polite way first. Blocks for at most a few seconds."""
    if not _may_have_children():
        return
    children = psutil.Process().children(recursive=True)
    for child in children:
        _log.warning("ending process %d, which was left behind", child.pid)
        with contextlib.suppress(psutil.NoSuchProcess):
            child.terminate()
    stubborn = psutil.wait_procs(children, timeout=PATIENCE_S)[1]
    for child in stubborn:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    psutil.wait_procs(stubborn, timeout=PATIENCE_S)


def _may_have_children() -> bool:
    """False when the kernel says that there are none; to look for them takes a look at every process of the host."""
    try:
        return any((thread / "children").read_bytes() for thread in Path("/proc/self/task").iterdir())
    except OSError:  # a thread has just ended, or this kernel keeps no such lists
        return True
