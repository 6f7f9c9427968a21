"""The hosts of the guide without docs/lab/lab.py: lead, db1, client1 and client2, each with its own address, names,
/etc, /var/lib and home.

Data flow: `docs/lab/network` makes the namespaces -> `Lab.run` and `Lab.start` run a line of shell on a host, in a
mount namespace whose /etc and /var/lib are the host's own folders -> `Lab.down` ends the processes in the namespaces
and removes them. Exported variables of a line remain for later lines of that host, as in a terminal.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from eventually import eventually
from network import Host, Network

PATIENCE_S = 120.0
LEAD = Host(name="lead", address="10.77.0.1", role="control")
DB1 = Host(name="db1", address="10.77.0.11", role="server", ahead_s=3_600_000)
CLIENT1 = Host(name="client1", address="10.77.0.21", role="client", ahead_s=7_777_777)
CLIENT2 = Host(name="client2", address="10.77.0.22", role="client")
HOSTS = (LEAD, DB1, CLIENT1, CLIENT2)
GUARD = Path(__file__).parents[2] / "docs" / "lab" / "lab.py"
MARK = ".proveout-lab"
MOUNTS = 'mount --bind "$1/etc" /etc && mount --bind "$1/var-lib" /var/lib && cd "$1/home" && exec bash -c "$2"'


def objection() -> str:
    """Return the reason for which this machine cannot have a lab; "" when it can."""
    if os.geteuid() != 0:
        return "needs root"
    if missing := [tool for tool in ("ip", "unshare", "mount") if shutil.which(tool) is None]:
        return f"needs {', '.join(missing)}"
    name = f"pv{secrets.token_hex(4)}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode:
        return f"network namespaces cannot be made here: {made.stderr.strip()}"
    peer = ["ip", "-n", name, "link", "add", "veth0", "type", "veth", "peer", "name", "veth1"]
    bridge = ["ip", "-n", name, "link", "add", "bridge0", "type", "bridge"]
    made_all = [subprocess.run(argv, capture_output=True, text=True, check=False) for argv in (peer, bridge)]
    subprocess.run(["ip", "netns", "delete", name], check=True)
    return next((f"no veth or bridge here: {made.stderr.strip()}" for made in made_all if made.returncode), "")


OBJECTION = objection()


def faketime() -> str:
    """Return a prefix for a command that shifts its wall clock by `{}` (such as +1h) and leaves its monotonic clock; ""
    without libfaketime."""
    found = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
    return f"LD_PRELOAD={found} FAKETIME_DONT_FAKE_MONOTONIC=1 FAKETIME={{}}" if found else ""


FAKETIME = faketime()


class Lab:
    """Four hosts. `folder` contains a folder for each host; `network` connects them."""

    def __init__(self) -> None:
        self.prefix = f"pv{secrets.token_hex(4)}"
        # Not below /var/lib, which hosts replace, and in a place that the server's user can access.
        self.folder = Path("/var/tmp") / f"proveout-{self.prefix}"
        self.stays: list[subprocess.Popen[bytes]] = []
        self.guard: subprocess.Popen[bytes]
        self.network = Network(self.prefix, HOSTS)
        self._hosts = {host.name: host for host in HOSTS}

    def up(self) -> None:
        """Create the hosts, with the names of all of them in each /etc/hosts."""
        self.folder.mkdir(mode=0o755)
        (self.folder / MARK).touch()
        where = ["--prefix", self.prefix, "--directory", str(self.folder)]
        self.guard = subprocess.Popen(
            [sys.executable, str(GUARD), "guard", *where], stdin=subprocess.PIPE, start_new_session=True
        )
        self.network.up()
        names = "".join(f"{host.address} {host.name}.lab {host.name}\n" for host in HOSTS)
        for host in HOSTS:
            own = self.folder / host.name
            shutil.copytree("/etc", own / "etc", symlinks=True)
            (own / "etc" / "hosts").unlink(missing_ok=True)
            (own / "etc" / "hosts").write_text(f"127.0.0.1 localhost\n{names}")
            (own / "var-lib").mkdir()
            (own / "home").mkdir()
            (own / "exports").touch()

    def argv(self, host: str, line: str) -> list[str]:
        """Return the argv that runs a line of shell on a host."""
        own = self.folder / host
        whole = f". {shlex.quote(str(own / 'exports'))}; {line}"
        mounted = ["unshare", "--mount", "--", "sh", "-c", MOUNTS, "sh", str(own), whole]
        return self.network.command(self._hosts[host], *mounted)

    def _environment(self, host: str) -> Mapping[str, str]:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        kept = {name: os.environ[name] for name in ("LANG", "LC_ALL") if name in os.environ}
        return {**kept, "PATH": path, "HOME": str(self.folder / host / "home"), "PYTHONUNBUFFERED": "1"}

    def run(self, host: str, line: str, *, code: int | None = 0) -> str:
        """Run a line to its end and return its output; its exit code must be `code` (None: any)."""
        if line.startswith("export "):
            with (self.folder / host / "exports").open("a") as exports:
                exports.write(line + "\n")
            return ""
        done = subprocess.run(
            self.argv(host, line),
            env=self._environment(host),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert code is None or done.returncode == code, f"{host}: {line}\n{done.stdout[-4000:]}"
        return done.stdout

    def start(self, host: str, line: str, log: str) -> subprocess.Popen[bytes]:
        """Start a process that keeps running, with a log of this name."""
        with self.log(host, log).open("wb") as stream:
            started = subprocess.Popen(
                self.argv(host, line),
                env=self._environment(host),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
            )
        self.stays.append(started)
        return started

    def log(self, host: str, name: str) -> Path:
        return self.folder / host / f"{name}.log"

    def until_logged(self, host: str, name: str, pattern: str) -> str:
        """Wait until a log matches the pattern; return the log."""
        eventually(lambda: re.search(pattern, self.read(host, name)), lambda: f"{pattern}\n{self.read(host, name)}")
        return self.read(host, name)

    def read(self, host: str, name: str) -> str:
        return self.log(host, name).read_text(errors="replace")

    def down(self) -> None:
        """End all processes on the hosts and remove them, by closing the guard's stdin as when the tests are killed."""
        with self.guard:
            assert self.guard.stdin is not None
            self.guard.stdin.close()
        for started in self.stays:
            started.wait(PATIENCE_S)
        shutil.rmtree(self.folder, ignore_errors=True)
        assert not self.network.left()
