"""A coordinator of many agents needs more open files than the default limit of a shell; tested in a separate process,
whose limits it changes.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import resource, sys
from types import SimpleNamespace
from proveout.cli.common.run_session import TooManyAgents, raise_file_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 2000))
try:
    raise_file_limit(SimpleNamespace(name="p", hosts=[None] * int(sys.argv[1])))
except TooManyAgents as error:
    print(error)
print(resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def output_with(agents: int) -> str:
    return subprocess.run([sys.executable, "-c", CODE, str(agents)], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(("agents", "limits"), [(5, "(1024, 2000)"), (300, "(1456, 2000)")])
def test_the_soft_limit_is_raised_when_it_is_too_low(agents: int, limits: str) -> None:
    assert output_with(agents).strip() == limits


def test_the_error_for_a_low_hard_limit_has_the_remedy() -> None:
    text = output_with(1000)
    assert "1000 agents need 4256 open files, and this shell allows 2000" in text
    assert "ulimit -Hn" in text
    assert text.strip().endswith("(1024, 2000)")
