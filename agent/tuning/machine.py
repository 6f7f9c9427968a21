"""The machine that agents tune: the folder of its undo journals, claims on its parts, and the lock of a journal."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import pwd
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from proveout.agent import host_facts
from proveout.agent.engines.public_dsn import public_dsn
from proveout.agent.errors import TaskFault
from proveout.agent.host_facts import machine_id
from proveout.core import linux
from proveout.core.data_classes import record
from proveout.dsl.plan.stages import Tuning
from proveout.proto.wire.tasks import Endpoint


def public(endpoint: Endpoint) -> str:
    """Return the dsn without what may be secret; "" when it cannot be taken apart."""
    return public_dsn(endpoint.engine, endpoint.dsn)


# All agents of a user on a machine share one folder (`machine_dir`), for any host name, run or state directory. The
# folder's name contains the machine id, so that machines with a shared file system use different folders.
# `undo_journal` keeps one undo journal for each agent with outstanding changes. An agent locks its journal, and the
# lock file contains its claims (`Holder`).
#
# Claims: `machine` for everything that exists once in the kernel or file system; `net:<namespace>` for parameters of a
# network namespace; `system:<digest>` for an external database. Agents of different hosts of one run share the machine
# if they serve the same coordinator of that run (`epoch`): an agent of an earlier coordinator will undo its changes.
#
# The kernel has no lock across mount namespaces: containers that do not share the folder do not see each other's
# claims.

ROOT = Path("/var/lib/proveout")
FOLDER = "tuned"
BESIDE = "beside-"
LOCK = "lock"
MACHINE = "machine"
NET = ("/proc/sys/net/", "/sys/class/net/")
"""Attributes of the network namespace, not of the machine."""
HOLDER_BYTES_MAX = 65536
_NETNS_COOKIE = 71  # SO_NETNS_COOKIE of Linux 5.14: unique until reboot, unlike inode numbers


@functools.cache
def machine_dir() -> Path:
    """The folder of this machine: below /var/lib/proveout for root, else below the home directory in the user
    database.
    """
    user = os.geteuid()
    if user == 0:
        return ROOT / FOLDER / machine_id()
    try:
        home = Path(pwd.getpwuid(user).pw_dir)
    except KeyError:
        home = Path("/nonexistent")
    base = home / ".local/state/proveout" if home.is_dir() else Path(f"/var/tmp/proveout-{user}")  # noqa: S108 - checked like all folders
    return base / FOLDER / machine_id()


@functools.cache
def network() -> str:
    """The network namespace of this process: boot id, and number within the boot.

    The namespace of process 1 is not a special case: its link may be hidden even from root, and then every namespace
    would equal it.
    """
    with suppress(OSError):
        return f"{boot()}:{_cookie() or Path('/proc/self/ns/net').readlink()}"
    return ""


def network_is_gone(other: str) -> bool:
    """Whether a namespace belongs to an earlier boot."""
    return bool(other) and not other.startswith(f"{boot()}:")


def boot() -> str:
    try:
        return Path(host_facts.BOOT_ID).read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"


def _cookie() -> str:
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        return str(int.from_bytes(probe.getsockopt(socket.SOL_SOCKET, _NETNS_COOKIE, 8), "little"))
    return ""


def claims_of(tunings: Sequence[Tuning], endpoints: Sequence[Endpoint]) -> frozenset[str]:
    """The parts of the machine that no other run may tune while these tunings are in place."""
    reached = {one.system: one for one in endpoints}
    found: set[str] = set()
    for tuning in tunings:
        if tuning.system:
            endpoint = reached.get(tuning.system)
            if endpoint is not None and not endpoint.provisioned:  # the run has started the others
                differs = f"{endpoint.engine} {public(endpoint) or endpoint.system}"  # and has no secrets
                found.add(f"system:{hashlib.sha256(differs.encode()).hexdigest()[:32]}")
            found |= {MACHINE} if tuning.restart else set()
            continue
        names = _names(tuning)
        if any(name.startswith("net.") for name in names):
            found.add(f"net:{network()}")
        if not names or tuning.restart or not all(name.startswith("net.") for name in names):
            found.add(MACHINE)
    return frozenset(found)


def _names(tuning: Tuning) -> tuple[str, ...]:
    """The kernel parameters of a tuning that sets only these, of `mtu` its interfaces; empty for any other tuning."""
    values: Mapping[str, Any] = dict(tuning.parameters)
    if tuning.operation == "mtu":
        return tuple(f"net.{name}" for name in values.get("interfaces") or ())
    if tuning.operation != "sysctl" or values.get("file") is not None:
        return ()
    return tuple(str(name) for name, _ in values.get("settings") or ())


@record
class Holder:
    """The holder of a journal: run, epoch of its coordinator, host, process of the agent, and claims."""

    run: str = ""
    epoch: str = ""
    host: str = ""
    pid: int = 0
    claims: tuple[str, ...] = ()

    @property
    def description(self) -> str:
        """The holder as text."""
        run = f"run {self.run}" if self.run else "an agent that undoes changes of an earlier run"
        return f"{run}{f' on host {self.host}' if self.host else ''} (process {self.pid})"

    def shares(self, other: Holder) -> bool:
        """Whether both serve the same coordinator of the same run, on different hosts."""
        return bool(self.run) and (self.run, self.epoch) == (other.run, other.epoch) and self.host != other.host


class Held(TaskFault):
    """Another agent holds the journal, and may still undo its changes."""


class TurnTaken(Held):
    """Another agent is in a transaction."""


class FileLock:
    """An exclusive lock on a file that its holder may remove. OSError if the file cannot be opened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1

    def take(self) -> bool:
        """Take the lock; False while another process, or another lock of this one, holds it."""
        while True:
            try:
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                descriptor = os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            except FileNotFoundError:  # the folder was removed in between
                continue
            if not linux.lock(descriptor):
                os.close(descriptor)
                return False
            if self._is_at_path(descriptor):
                self._descriptor = descriptor
                return True
            os.close(descriptor)  # its last holder has removed it: the path now has another file

    def _is_at_path(self, descriptor: int) -> bool:
        try:
            there, here = os.stat(self.path), os.fstat(descriptor)  # noqa: PTH116 - one module for descriptors and paths
        except FileNotFoundError:
            return False
        return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)

    def write(self, holder: Holder) -> None:
        data = json.dumps(asdict(holder)).encode()
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, data, 0)

    def release(self, *, remove: bool) -> None:
        """Release the lock; with `remove`, remove the file too."""
        if self._descriptor < 0:
            return
        if remove:
            with suppress(FileNotFoundError):
                os.unlink(self.path)  # noqa: PTH108 - as above
        os.close(self._descriptor)
        self._descriptor = -1


def holder_of(directory: Path) -> Holder:
    """The holder in the lock file of a journal; an empty one if the file is missing or not valid."""
    try:
        with (directory / LOCK).open("rb") as stream:
            fields = json.loads(stream.read(HOLDER_BYTES_MAX))
        texts = {name: str(fields[name]) for name in ("run", "epoch", "host")}
        return Holder(**texts, pid=int(fields["pid"]), claims=tuple(map(str, fields["claims"])))
    except (OSError, ValueError, KeyError, TypeError):
        return Holder()


def refuse(directory: Path, holder: Holder) -> None:
    """Raise Held if the holder of a journal has a claim of `holder` and does not share it."""
    other = holder_of(directory)
    both = set(other.claims) & set(holder.claims)
    if not other.shares(holder) and (both or not other.claims):
        raise held(directory, other)


def held(directory: Path, other: Holder) -> Held:
    """The fault for a journal that another agent holds."""
    return Held(
        "refused",
        f"another agent is tuning this machine: {other.description}; it holds {directory}",
        way_out="wait until that run has ended, or end it: its agent then undoes its changes",
    )


HOLD = "reboot.json"


@record
class Hold:
    """Changes of a run stay over a reboot: the boot that made them, from when (Unix seconds), and how long (s)."""

    run: str
    boot: str
    from_unix_s: float
    hold_s: float

    @property
    def left_s(self) -> float:
        """The rest, s; at most all of it, as the clock may have been set back by the reboot."""
        return min(self.from_unix_s + self.hold_s - time.time(), self.hold_s)

    def store(self, directory: Path) -> None:
        """Store it beside the journals of the machine."""
        path = directory / HOLD
        path.touch(mode=0o600)
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")


def read_hold(directory: Path) -> Hold | None:
    """The hold of an earlier boot; None without one, and where the machine has not rebooted since."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        found = json.loads((directory / HOLD).read_text(encoding="utf-8"))
        times = {name: float(found[name]) for name in ("from_unix_s", "hold_s")}
        hold = Hold(run=str(found["run"]), boot=str(found["boot"]), **times)
        return hold if hold.boot != boot() else None
    return None


def forget_hold(directory: Path) -> None:
    (directory / HOLD).unlink(missing_ok=True)
