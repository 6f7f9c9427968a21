"""`python -m proveout.agent`: the agent process without the command line package; local agents start this way."""

from __future__ import annotations

import sys

from proveout.agent.daemon.process import main

if __name__ == "__main__":
    main(sys.argv[1:])
