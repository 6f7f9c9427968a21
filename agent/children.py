"""The last broom: processes that handlers of a session have left behind."""

from __future__ import annotations

import contextlib
import logging

import psutil

PATIENCE_S = 2.0

_log = logging.getLogger(__name__)


def end_children() -> None:
    """End every child of this process and their children, the polite way first. Blocks for at most a few seconds."""
    children = psutil.Process().children(recursive=True)
    for child in children:
        _log.warning("ending process %d, which was left behind", child.pid)
        with contextlib.suppress(psutil.NoSuchProcess):
            child.terminate()
    for child in psutil.wait_procs(children, timeout=PATIENCE_S)[1]:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
