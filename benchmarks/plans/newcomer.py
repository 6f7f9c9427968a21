"""The way of a new user from the source to a job in CI, step by step, each step timed.

    python benchmarks/plans/newcomer.py [--source REPOSITORY]

The steps of the README and of docs/guide, in folders that are removed at the end: clone and `make run`; a plan from
`proveout new database` on a PostgreSQL with a password, which this program starts, first with a wrong password; a bench
of it without a plan, and of a MariaDB, an SQLite and a DuckDB; the lines of docs/ci/github-workflow.yml in a repository
with that plan, where pip installs from the source. HOME is an empty folder, and of the shell's variables only those are
kept that pip and certificates need. Prints a table; ends with 1 when a step ends with another code than it should.
Needs git, make and the programs of a PostgreSQL server.
"""

from __future__ import annotations

import argparse
import os
import pwd
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
KEPT = re.compile(r"PATH|LANG|LC_.*|TMPDIR|PIP_.*|.*_PROXY|.*_proxy|SSL_CERT_.*|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE")
INSTALL = re.compile(r"pip install ")
PASSWORD = "of-the-newcomer"
LIMIT_S = 1800.0


@dataclass
class Way:
    """The steps so far."""

    rows: list[tuple[str, str, int, bool, float]] = field(default_factory=list)

    def step(
        self, what: str, command: str, folder: Path, environment: Mapping[str, str], *, expect: int = 0, end: str = ""
    ) -> None:
        """Run a shell line as the newcomer; shows its output when it ends with another code than `expect`, unless the
        last words of the output are `end`."""
        print(f"{what}: {command}", flush=True)
        began = time.monotonic()
        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", command],
            cwd=folder, env=environment, check=False, timeout=LIMIT_S,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        wrong = done.returncode != expect and not (end and done.stdout.rstrip().endswith(end))
        if wrong:
            print(done.stdout[-4000:])
        self.rows.append((what, command, done.returncode, wrong, time.monotonic() - began))

    def print(self) -> int:
        """The table; 1 when a step ended with a code that was not expected."""
        print("\n| step | command | exit code | time |\n|---|---|---|---|")
        for what, command, code, wrong, seconds in self.rows:
            print(f"| {what} | `{command}` | {code}{' (not expected)' if wrong else ''} | {seconds:.1f} s |")
        print(f"| all | | | {sum(row[-1] for row in self.rows):.0f} s |")
        return max(row[3] for row in self.rows)


@contextmanager
def server(folder: Path) -> Iterator[int]:
    """A PostgreSQL of the system on a free port of 127.0.0.1, with the role and database `app`; its port."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        sys.exit("the programs of a PostgreSQL server are missing (Debian: apt-get install postgresql)")
    programs = found[-1].parent
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    folder.mkdir(mode=0o755)
    user: dict[str, Any] = {}
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        user = {"user": nobody.pw_uid, "group": nobody.pw_gid}

    def run(*argv: str | Path) -> None:
        subprocess.run(argv, cwd=folder, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, **user)

    (folder / "password").write_text(f"{PASSWORD}\n")
    (folder / "password").chmod(0o644)
    data = folder / "data"
    run(programs / "initdb", "-D", data, "-U", "app", "-A", "scram-sha-256", f"--pwfile={folder / 'password'}", "-N")
    control = (programs / "pg_ctl", "-D", data, "-w", "-l", folder / "log")
    run(*control, "-o", f"-p {port} -k {folder} -h 127.0.0.1", "start")
    try:
        address = f"postgresql://app:{PASSWORD}@127.0.0.1:{port}/postgres"
        run(programs / "psql", "-q", "-c", "CREATE DATABASE app", address)
        yield port
    finally:
        run(*control, "-m", "immediate", "stop")


def recipe() -> list[str]:
    """The shell lines of the workflow in the guide that install, check and run."""
    job = yaml.safe_load((ROOT / "docs/ci/github-workflow.yml").read_text())["jobs"]["prove-out"]
    return [step["run"] for step in job["steps"] if "run" in step and "if" not in step]


def walk(way: Way, folder: Path, source: str) -> None:
    """All steps, below `folder`."""
    home = folder / "home"
    home.mkdir()
    bare = {name: value for name, value in os.environ.items() if KEPT.fullmatch(name)} | {"HOME": str(home)}
    way.step("the source", f"git clone --quiet {source} proveout", folder, bare)
    clone = folder / "proveout"
    # On a busy machine the verdicts of a run may be inconclusive, 3; make itself exits with 2 then.
    way.step("the main job", "make run", clone, bare, end="Error 3")
    bare["PATH"] = f"{clone / '.venv/bin'}:{bare['PATH']}"
    mine = folder / "mine"
    mine.mkdir()
    with server(folder / "server") as port:
        way.step("a plan", "mkdir plans && proveout new database plans/mine.yaml", mine, bare)
        way.step("its dsn", f"sed -i s/:5432/:{port}/ plans/mine.yaml", mine, bare)
        way.step("a look", "proveout explain plans/mine.yaml", mine, bare)
        connect = "proveout check plans/mine.yaml --connect"
        way.step("no password", connect, mine, bare, expect=4)
        way.step("a wrong password", connect, mine, bare | {"DB_PASSWORD": "guessed"}, expect=4)
        bare["DB_PASSWORD"] = PASSWORD
        way.step("the password", connect, mine, bare)
        way.step("the run", "proveout run plans/mine.yaml", mine, bare)
        way.step("the report", "proveout report latest", mine, bare)
        for dsn in (f"postgresql://app@127.0.0.1:{port}/app", "mariadb", "sqlite", "duckdb"):
            way.step("a bench", f"proveout bench {dsn} --time 1m --headless", mine, bare)

        job = folder / "checkout"
        shutil.copytree(mine / "plans", job / "plans")
        way.step("an environment", "python3 -m venv .venv", job, bare)
        bare["PATH"] = f"{job / '.venv/bin'}:{bare['PATH'].partition(':')[2]}"
        bare |= {"PROVEOUT": f"git+file://localhost{Path(source).resolve()}", "GITHUB_ACTIONS": "true"}
        for line in recipe():
            own = line.replace("plans/smoke.yaml", "plans/mine.yaml").replace("[embedded,", "[postgres,")
            way.step("CI: install" if INSTALL.match(own) else "CI: job", own, job, bare)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", default=str(ROOT), help="the Git repository to clone [default: this one]")
    source: str = parser.parse_args().source
    way = Way()
    with tempfile.TemporaryDirectory(prefix="newcomer-") as name:
        Path(name).chmod(0o755)
        walk(way, Path(name), source)
    return way.print()


if __name__ == "__main__":
    sys.exit(main())
