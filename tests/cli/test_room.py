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
from proveout.cli.run_session import Unusable, raise_file_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 2000))
try:
    raise_file_limit(SimpleNamespace(name="p", hosts=[None] * int(sys.argv[1])))
except Unusable as error:
    print(error)
print(resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(
    ("agents", "told", "limits"),
    [
        (300, "", "(1456, 2000)"),
        (1000, "1000 agents need 4256 open files, and this shell allows 2000", "(1024, 2000)"),
    ],
)
def test_the_soft_limit_is_raised_where_the_hard_one_allows_it(agents: int, told: str, limits: str) -> None:
    done = subprocess.run([sys.executable, "-c", CODE, str(agents)], capture_output=True, text=True, check=True)
    assert told in done.stdout
    assert ("ulimit -Hn" in done.stdout) is bool(told), "the remedy"
    assert done.stdout.strip().endswith(limits)
