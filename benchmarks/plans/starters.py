"""Do the starter plans run as they are written? Each that needs no server of one's own, one after the other.

    python benchmarks/plans/starters.py [KIND]...

Writes each with `proveout new` into a folder of its own, runs it, and prints its exit code (0 no verdict failed, 1
one failed, 3 not all could be judged, as on a machine that is busy) and how long it took. Exits with 1 when a run ended
in any other way.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from proveout.cli.new import KINDS

EXTERNAL = ("oracle", "lab", "database")
JUDGED = (0, 1, 3)
LIMIT_S = 1200.0


def run(kind: str, folder: Path) -> int:
    """Write and run a starter; the run's exit code."""
    command = [sys.executable, "-m", "proveout"]
    subprocess.run([*command, "new", kind], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    done = subprocess.run(
        [*command, "run", f"{kind}.yaml", "--headless"],
        cwd=folder, check=False, timeout=LIMIT_S, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    if done.returncode not in JUDGED:
        print(done.stdout[-4000:])
    return done.returncode


def main(kinds: list[str]) -> int:
    """Run them; 1 when one did not come to its end."""
    worst = 0
    for kind in kinds or [kind for kind in KINDS if kind not in EXTERNAL]:
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            code = run(kind, Path(folder))
        worst = max(worst, code not in JUDGED)
        print(f"{kind:<8} exit {code}  {time.monotonic() - began:5.0f} s", flush=True)
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
