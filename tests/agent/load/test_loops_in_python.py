"""The tests on sessions in memory once more, with the hot loop in Python in place of the compiled one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from proveout.agent.engines.driver_contract import PURE_PYTHON

pytest.importorskip(
    "proveout.agent.load.loop.transaction_loop_native", reason="the hot path was not compiled: the others ran in Python"
)

FILES = ("disconnects", "retries", "unanswered")


@pytest.mark.server
def test_the_loops_in_python_do_the_same() -> None:
    folder = Path(__file__).parent
    argv = [str(folder / f"test_{name}.py") for name in FILES]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "--noconftest", "-p", "no:cacheprovider", *argv],
        cwd=folder.parents[2],
        env={**os.environ, PURE_PYTHON: "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
