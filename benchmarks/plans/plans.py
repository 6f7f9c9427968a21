"""Run every plan that needs only this machine, one after the other: exit code, duration and verdicts of each.

    python benchmarks/plans/plans.py [PLAN …] [-p NAME=VALUE …] [--limit SECONDS] [--runs-dir DIR] [--json FILE]

Without names: all plans of plans/ with embedded systems, and `hlr-oracle-wire` with a TNS server that is started for
it. Each is run with `proveout run PLAN --headless`, with the plan's own parameters unless `-p` changes them. A plan
meets its target when it ends with verdicts (exit code 0, 1 or 3: passed, failed, inconclusive) within the limit of
four minutes; the exit code of this program is 1 when one does not. No other program should run on the machine: it
would change the verdicts on rates and the times. The output of a run is printed when it ended without verdicts.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PLANS = ROOT / "plans"
TNS_SERVER = ROOT / "tests" / "wire" / "tns_server.py"
OWN_SYSTEMS = (
    "smoke",
    "hlr-sqlite",
    "custom-sql",
    "hlr-cache-embedded",
    "commit-modes-embedded",
    "tptbm-embedded",
    "prepaid-embedded",
    "tpcb-embedded",
    "tprocc-embedded",
    "analytics-embedded",
    "storage-embedded",
    "hlr-mysql",
    "hlr-oracle-wire",
)
NEEDS = {"hlr-mysql": "mariadbd", "storage-embedded": "fio"}
JUDGED = {0: "passed", 1: "failed", 3: "inconclusive"}
LIMIT_S = 240.0
PATIENCE = 3
"""A run is interrupted after this multiple of the limit."""
LAST_LINES = 30

INVENTORY = """
topology:
  hosts:
    db1:     {{roles: [server], address: local}}
    client1: {{roles: [client], address: local}}
  systems:
    db: {{engine: oracle, host: db1, dsn: "hlr/${{secrets.oracle}}@//{address}"}}
"""


@dataclass(frozen=True)
class Ran:
    """A plan's run: exit code (None when it was not run; `note` is the reason), seconds, verdicts by outcome."""

    plan: str
    exit_code: int | None
    seconds: float
    verdicts: dict[str, int]
    judged: bool = False
    note: str = ""

    def meets(self, limit_s: float) -> bool:
        """Whether it ended with verdicts in time, or was left out because a program is not installed."""
        return self.exit_code is None or (self.judged and self.seconds <= limit_s)


@contextmanager
def tns_server() -> Iterator[str]:
    """Start the tests' TNS server in front of a PostgreSQL; yield its dsn. The password is `hlr`."""
    argv = [sys.executable, str(TNS_SERVER)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None and server.stdout is not None
        try:
            line = server.stdout.readline()
            if not line.startswith("dsn "):
                sys.exit("the TNS server did not come up; its words are above")
            yield line.removeprefix("dsn ").strip()
        finally:
            server.stdin.close()


@contextmanager
def oracle_wire(folder: Path) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Options and environment of a run against a TNS server."""
    with tns_server() as dsn:
        inventory = folder / "inventory.yaml"
        inventory.write_text(INVENTORY.format(address=dsn.partition("//")[2]))
        yield ["-i", str(inventory)], {"PROVEOUT_ORACLE_PASSWORD": "hlr"}


def run(name: str, parameters: list[str], runs_dir: Path, limit_s: float) -> Ran:
    """Run one plan, with the servers that it needs."""
    program = NEEDS.get(name)
    if program and not (shutil.which(program) or Path("/usr/sbin", program).exists()):
        return Ran(name, None, 0.0, {}, note=f"not run: {program} is not installed")
    with tempfile.TemporaryDirectory(prefix="proveout-bench-") as folder:
        if name != "hlr-oracle-wire":
            return _run(name, parameters, {}, runs_dir, Path(folder), limit_s)
        with oracle_wire(Path(folder)) as (options, environment):
            return _run(name, [*parameters, *options], environment, runs_dir, Path(folder), limit_s)


def _run(
    name: str, options: list[str], environment: dict[str, str], runs_dir: Path, folder: Path, limit_s: float
) -> Ran:
    figures, log = folder / "result.json", folder / "log"
    argv = [sys.executable, "-m", "proveout", "run", str(PLANS / f"{name}.yaml"), "--headless", *options]
    argv += ["--runs-dir", str(runs_dir), "--json", str(figures)]
    began = time.monotonic()
    with log.open("wb") as out:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=os.environ | environment)
        try:
            code = process.wait(PATIENCE * limit_s)
        except subprocess.TimeoutExpired:
            process.terminate()
            code = process.wait()
    took_s = time.monotonic() - began
    judged = code in JUDGED and figures.exists()  # a crash also has exit code 1
    if not judged:
        print("\n".join(log.read_text(errors="replace").splitlines()[-LAST_LINES:]))
    return Ran(name, code, took_s, outcomes(figures), judged)


def outcomes(figures: Path) -> dict[str, int]:
    """Return the number of verdicts by outcome."""
    if not figures.exists():
        return {}
    result: dict[str, Any] = json.loads(figures.read_text())
    return dict(Counter(str(verdict["outcome"]) for verdict in result["verdicts"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plans", nargs="*", default=OWN_SYSTEMS, help="names in plans/, without .yaml")
    parser.add_argument("-p", action="append", default=[], metavar="NAME=VALUE", help="for every plan")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds that a plan may take")
    parser.add_argument("--runs-dir", type=Path, help="keep the runs here")
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    options = parser.parse_args()
    parameters = [word for given in options.p for word in ("-p", given)]
    ran: list[Ran] = []
    print(f"{'plan':24}{'exit':>6}  {'verdict':14}{'seconds':>9}  verdicts", flush=True)
    with tempfile.TemporaryDirectory(prefix="proveout-bench-") as folder:
        for name in options.plans:
            one = run(name, parameters, options.runs_dir or Path(folder), options.limit)
            ran.append(one)
            code = "-" if one.exit_code is None else str(one.exit_code)
            how = one.note or (JUDGED[one.exit_code or 0] if one.judged else "no judgement")
            late = "" if one.meets(options.limit) else "   MISSED"
            counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(one.verdicts.items()))
            print(f"{name:24}{code:>6}  {how:14}{one.seconds:9.1f}  {counts}{late}", flush=True)
    met = sum(one.meets(options.limit) for one in ran)
    print(f"{met} of {len(ran)} ended with a judgement within {options.limit:g} s, or were not run")
    if options.json:
        options.json.write_text(
            json.dumps([asdict(one) | {"met": one.meets(options.limit)} for one in ran], indent=1) + "\n"
        )
    sys.exit(0 if met == len(ran) else 1)


if __name__ == "__main__":
    main()
