"""`python leased.py LEASE_S ARGUMENTS of proveout…`: run proveout with this lease instead of 10 s, and a fifth of it
between beats.

Tests of the lease then take less time; `make soak` tests the lease of 10 s. `LEASED_AGENTS` is a command (JSON, an
argv) that starts local agents below another program, or in another environment than the coordinator's. `LEASED_UNDO`
is a folder for their undo journals, in place of the machine's.
"""

from __future__ import annotations

import functools
import json
import os
import sys


def main() -> None:
    from proveout.cli import execute
    from proveout.coordinator import run
    from proveout.coordinator.agents.local_agents import COMMAND, LocalFabric

    lease_s = float(sys.argv[1])
    run.RunOptions = functools.partial(run.RunOptions, lease_s=lease_s, beat_s=lease_s / 5)  # type: ignore[misc, assignment]
    before = json.loads(os.environ.pop("LEASED_AGENTS", "[]"))
    undo = os.environ.pop("LEASED_UNDO", "")
    after = ("--undo-dir", undo) if undo else ()
    run.LocalFabric = functools.partial(LocalFabric, (*before, *COMMAND, *after))  # type: ignore[misc, assignment]
    sys.exit(execute(sys.argv[2:]))


if __name__ == "__main__":
    main()
