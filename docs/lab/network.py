"""The hosts of the lab: network namespaces on one bridge, each with an address, a cable, and a monotonic clock of its
own.

Data flow: `Network.up()` -> namespaces `<prefix>-<host>`, each with `eth0` on the bridge of `<prefix>-switch` ->
`command()` gives the command line that starts a program on a host -> `cut()` and `mend()` disconnect and reconnect a
cable -> `down()` ends all processes in the namespaces and removes them. The machine's own network is unchanged: its
addresses, routes and firewall rules stay, and no packet leaves the lab.

A time namespace gives a host a monotonic clock of its own, as the boot times of real hosts do. Where the kernel lacks
it (CONFIG_TIME_NS), all hosts have the same clock.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

NAMESPACES = Path("/run/netns")
SWITCH = "switch"
BRIDGE = "lab"
END_S = 30.0
POLL_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A host of the lab: its name, its address in 10.77.0.0/24, its role, and the offset of its monotonic clock in
    seconds."""

    name: str
    address: str
    role: str
    ahead_s: int = 0


CONTROL = Host(name="control", address="10.77.0.1", role="control")
HOSTS = (
    Host(name="db1", address="10.77.0.11", role="server", ahead_s=86_400),
    Host(name="cache1", address="10.77.0.12", role="server", ahead_s=3_600_000),
    Host(name="storage1", address="10.77.0.13", role="storage", ahead_s=1_000),
    Host(name="client1", address="10.77.0.21", role="client", ahead_s=7_777_777),
    Host(name="client2", address="10.77.0.22", role="client", ahead_s=42),
)


class LabError(Exception):
    """The lab cannot be made or used; the message is for the user."""


def run(*argv: str, told: str | None = None, environment: Mapping[str, str] = MappingProxyType({})) -> str:
    """Print a command, run it with `told` on its standard input, and return its output. Raises LabError when it fails.

    `environment`: additional variables, whose values are not printed.
    """
    say("+ " + " ".join([*(f"{name}=…" for name in environment), *argv]))
    told_more = {**os.environ, **environment}
    done = subprocess.run(argv, input=told or "", text=True, capture_output=True, check=False, env=told_more)
    if done.returncode:
        raise LabError(f"{' '.join(argv)}\n  failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def say(line: str) -> None:
    """Print a line for the user on standard error."""
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - it is a program


class Network:
    """The namespaces of one lab; `prefix` separates two labs on a machine."""

    def __init__(self, prefix: str, hosts: Sequence[Host] = (CONTROL, *HOSTS)) -> None:
        self._prefix, self._hosts = prefix, hosts

    def namespace(self, name: str) -> str:
        """Return the name of a host's namespace."""
        return f"{self._prefix}-{name}"

    def up(self) -> None:
        """Make all hosts, their cables and the switch."""
        switch = self.namespace(SWITCH)
        run("ip", "netns", "add", switch)
        run("ip", "-n", switch, "link", "add", BRIDGE, "type", "bridge")
        run("ip", "-n", switch, "link", "set", BRIDGE, "up")
        for host in self._hosts:
            own = self.namespace(host.name)
            run("ip", "netns", "add", own)
            run("ip", "link", "add", "eth0", "netns", own, "type", "veth", "peer", "name", host.name, "netns", switch)
            run("ip", "-n", switch, "link", "set", host.name, "master", BRIDGE, "up")
            run("ip", "-n", own, "address", "add", f"{host.address}/24", "dev", "eth0")
            run("ip", "-n", own, "link", "set", "lo", "up")
            run("ip", "-n", own, "link", "set", "eth0", "up")

    def command(self, host: Host, *argv: str) -> list[str]:
        """Return the command line that starts a program on a host."""
        ahead = ["--monotonic", str(host.ahead_s), "--boottime", str(host.ahead_s)]
        clock = ["unshare", "--time", *ahead, "--"] if host.ahead_s and _has_time_namespaces() else []
        return ["ip", "netns", "exec", self.namespace(host.name), *clock, *argv]

    def cut(self, host: str) -> None:
        """Disconnect a host from the switch."""
        run("ip", "-n", self.namespace(SWITCH), "link", "set", host, "down")

    def mend(self, host: str) -> None:
        """Reconnect a host to the switch."""
        run("ip", "-n", self.namespace(SWITCH), "link", "set", host, "up")

    def pids(self, name: str) -> list[int]:
        """Return the numbers of the processes on a host."""
        listed = subprocess.run(
            ["ip", "netns", "pids", self.namespace(name)], text=True, capture_output=True, check=False
        )
        return [int(line) for line in listed.stdout.split()]

    def down(self) -> None:
        """End all processes on the hosts, with SIGTERM first, and remove the hosts; do nothing where none exist."""
        names = self.left()
        self._end(names)
        for name in names:
            subprocess.run(["ip", "netns", "delete", self.namespace(name)], capture_output=True, check=False)

    def left(self) -> list[str]:
        """Return the hosts that have a namespace, including those of an earlier lab."""
        found = sorted(NAMESPACES.glob(f"{self._prefix}-*")) if NAMESPACES.is_dir() else []
        return [path.name.removeprefix(f"{self._prefix}-") for path in found]

    def _end(self, names: Sequence[str]) -> None:
        """Send SIGTERM to all processes in the namespaces, and SIGKILL to those that are left after `END_S`."""
        for number, patience_s in ((signal.SIGTERM, END_S), (signal.SIGKILL, END_S)):
            until_s = time.monotonic() + patience_s
            for pid in self._all(names):
                _kill(pid, number)
            while self._all(names) and time.monotonic() < until_s:
                time.sleep(POLL_S)

    def _all(self, names: Sequence[str]) -> list[int]:
        return [pid for name in names for pid in self.pids(name) if pid != os.getpid()]


def _kill(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _has_time_namespaces() -> bool:
    return Path("/proc/self/ns/time").exists()
