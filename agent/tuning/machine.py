"""The machine that agents tune: where its undo journals lie, and who may tune it at the same time.

All agents of a user on a machine share one folder (`machine_dir`), whatever their hosts' names, runs and state directories are. It is named by the
machine id, so that machines which share a file system do not share it. In it lies one undo journal for each agent that has changes outstanding:
the folder itself for the first agent, `beside-N` for further ones. The agent locks its journal, and the lock file says what it claims (`Holder`).

Flow: `claims_of(tunings)` -> `Machine.turn()`, held by one agent for one transaction -> `Machine.open(holder)`: refused with `Held` while an
agent of another run claims the same; journals of agents that have ended are merged into the opened one -> the agent undoes what it found there.

Claims: `machine` for everything that the kernel or the file system has once; `net:<namespace>` for parameters of a network namespace; `system:<digest>` for
an external database. Agents of different hosts of one run share the machine, as long as they serve the same coordinator of that run (`epoch`): an
agent of an earlier one is about to undo what it has made. `Machine.changed_by_others` finds where one agent would change what another one has changed.

The kernel is not asked who else is there (no lock spans mount namespaces): containers that do not share the folder do not see each other.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import pwd
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proveout.agent.daemon.tasks import TaskFault
from proveout.agent.host_facts import machine_id
from proveout.agent.tuning.public_dsn import identity
from proveout.core import linux
from proveout.dsl.plan.stages import Tuning
from proveout.proto.wire.tasks import Endpoint

if TYPE_CHECKING:
    from proveout.agent.tuning.undo_journal import UndoJournal

ROOT = Path("/var/lib/proveout")
FOLDER = "tuned"
BESIDE = "beside-"
LOCK = "lock"
TURN = "turn"
MACHINE = "machine"
NET = "/proc/sys/net/"
HOLDER_BYTES_MAX = 65536
_NETNS_COOKIE = 71  # SO_NETNS_COOKIE of Linux 5.14: unique as long as the machine is up, which inode numbers are not


@functools.cache
def machine_dir() -> Path:
    """The folder of this machine: below /var/lib/proveout for root, else below the home that the user database names."""
    user = os.geteuid()
    if user == 0:
        return ROOT / FOLDER / machine_id()
    try:
        home = Path(pwd.getpwuid(user).pw_dir)
    except KeyError:
        home = Path("/nonexistent")
    base = home / ".local/state/proveout" if home.is_dir() else Path(f"/var/tmp/proveout-{user}")  # noqa: S108 - checked as all are
    return base / FOLDER / machine_id()


@functools.cache
def network() -> str:
    """The network namespace of this process, by the boot and by its number within the boot.

    The namespace of process 1 is not treated apart: its link can be hidden even from root, and then every namespace would look like it.
    """
    with suppress(OSError):
        return f"{_boot()}:{_cookie() or Path('/proc/self/ns/net').readlink()}"
    return ""


def network_is_gone(other: str) -> bool:
    """Whether a namespace is of a boot that is over."""
    return bool(other) and not other.startswith(f"{_boot()}:")


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"


def _cookie() -> str:
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        return str(int.from_bytes(asking.getsockopt(socket.SOL_SOCKET, _NETNS_COOKIE, 8), "little"))
    return ""


def claims_of(tunings: Sequence[Tuning], endpoints: Sequence[Endpoint]) -> frozenset[str]:
    """What nobody else may tune while these tunings are in place."""
    reached = {one.system: one for one in endpoints}
    found: set[str] = set()
    for tuning in tunings:
        if tuning.system:
            found |= _system_claim(reached.get(tuning.system))
            found |= {MACHINE} if tuning.restart else set()
            continue
        names = _names(tuning)
        if any(name.startswith("net.") for name in names):
            found.add(f"net:{network()}")
        if not names or tuning.restart or not all(name.startswith("net.") for name in names):
            found.add(MACHINE)
    return frozenset(found)


def _names(tuning: Tuning) -> tuple[str, ...]:
    """The kernel parameters of a tuning that sets nothing else; none for any other tuning."""
    values: Mapping[str, Any] = dict(tuning.parameters)
    if tuning.operation != "sysctl" or values.get("file") is not None:
        return ()
    return tuple(str(name) for name, _ in values.get("settings") or ())


def _system_claim(endpoint: Endpoint | None) -> set[str]:
    """Of a system that the run did not start; one that it did is the run's own."""
    if endpoint is None or endpoint.provisioned:
        return set()
    return {f"system:{hashlib.sha256(identity(endpoint).encode()).hexdigest()[:32]}"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who has a journal: the run and which coordinator of it, its host, the agent's process, and what it claims."""

    run: str = ""
    epoch: str = ""
    host: str = ""
    pid: int = 0
    claims: tuple[str, ...] = ()

    @property
    def named(self) -> str:
        """In words."""
        run = f"run {self.run}" if self.run else "an agent that undoes what an earlier run has left"
        return f"{run}{f' on host {self.host}' if self.host else ''} (process {self.pid})"

    def shares(self, other: Holder) -> bool:
        """Whether both are of one coordinator of one run, which knows of both."""
        return bool(self.run) and (self.run, self.epoch) == (other.run, other.epoch) and self.host != other.host


class Held(TaskFault):
    """Another agent has the journal, and may still undo what is in it."""


class TurnTaken(Held):
    """Another agent is in the middle of a transaction."""


class FileLock:
    """An exclusive lock on a file, which its holder may remove. OSError when the file cannot be used."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1

    def take(self) -> bool:
        """Whether it is held now; False while another process (or another lock of this one) holds it."""
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
            os.close(descriptor)  # its last holder removed it: what is at the path now is another file

    def _is_at_path(self, descriptor: int) -> bool:
        try:
            there, here = os.stat(self.path), os.fstat(descriptor)  # noqa: PTH116 - one module for descriptors and paths
        except FileNotFoundError:
            return False
        return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)

    def write(self, holder: Holder) -> None:
        """Say in the file who holds it."""
        data = json.dumps(asdict(holder)).encode()
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, data, 0)

    def release(self, *, remove: bool) -> None:
        """Let it go; the file goes as well with `remove`."""
        if self._descriptor < 0:
            return
        if remove:
            with suppress(FileNotFoundError):
                os.unlink(self.path)  # noqa: PTH108 - as above
        os.close(self._descriptor)
        self._descriptor = -1


def holder_of(directory: Path) -> Holder:
    """What the lock file of a journal says; an empty holder when it says nothing."""
    try:
        with (directory / LOCK).open("rb") as stream:
            told = json.loads(stream.read(HOLDER_BYTES_MAX))
        words = {name: str(told[name]) for name in ("run", "epoch", "host")}
        return Holder(**words, pid=int(told["pid"]), claims=tuple(map(str, told["claims"])))
    except (OSError, ValueError, KeyError, TypeError):
        return Holder()


@dataclass(frozen=True, slots=True)
class Machine:
    """The journals in `place`."""

    place: Path

    def directories(self) -> tuple[Path, ...]:
        """Where there are journals: the place itself and those beside it, in order."""
        from proveout.agent.tuning.undo_journal import FILE  # noqa: PLC0415 - it needs this module

        beside = sorted(self.place.glob(f"{BESIDE}*"), key=_number)
        return tuple(path for path in (self.place, *beside) if (path / FILE).exists())

    @contextmanager
    def turn(self, *, needed: bool = True) -> Iterator[None]:
        """Hold the turn: one agent of the machine at a time opens journals and applies. TurnTaken, `disk_full` (unless it is not `needed`)."""
        from proveout.agent.tuning.undo_journal import checked  # noqa: PLC0415 - it needs this module

        checked(self.place)
        lock = FileLock(self.place / TURN)
        try:
            if not lock.take():
                raise TurnTaken("refused", "another agent of this machine is applying its tunings")
        except OSError as error:
            if needed:
                raise TaskFault("disk_full", f"{self.place} cannot be used: {error}") from error
        try:
            yield
        finally:
            lock.release(remove=True)
            with suppress(OSError):
                self.place.rmdir()
                if self.place.parent.name == FOLDER:
                    self.place.parent.rmdir()

    def open(self, holder: Holder) -> UndoJournal:
        """A journal for this holder, with what agents that have ended left in any other. Held while another run claims the same.

        Call it within `turn`.
        """
        from proveout.agent.tuning.undo_journal import UndoJournal  # noqa: PLC0415 - it needs this module

        free: list[UndoJournal] = []
        try:
            for directory in self.directories():
                journal = UndoJournal(directory, holder)
                try:
                    journal.open()
                    free.append(journal)
                except Held:
                    refuse(directory, holder)
            mine = free.pop(0) if free else UndoJournal(self._new(), holder)
            mine.open()
            while free:
                mine.absorb(free.pop(0))
        except BaseException:
            for journal in free:
                journal.close()
            raise
        return mine

    def widen(self, journal: UndoJournal, holder: Holder) -> None:
        """Let the holder of an open journal claim more. Held while another run claims the same. Call it within `turn`."""
        for directory in self.directories():
            if directory != journal.directory:
                refuse(directory, holder)
        journal.claim(holder)

    def _new(self) -> Path:
        """A directory without a journal."""
        taken = self.directories()
        numbers = (self.place / f"{BESIDE}{number}" for number in range(1, len(taken) + 2))
        return next(path for path in (self.place, *numbers) if path not in taken)

    def changed_by_others(self, journal: UndoJournal) -> dict[str, Holder]:
        """What further journals of the machine have outstanding: place (path, device) -> who has changed it."""
        from proveout.agent.tuning.undo_journal import places_in  # noqa: PLC0415 - it needs this module

        found: dict[str, Holder] = {}
        for directory in self.directories():
            if directory != journal.directory:
                holder = holder_of(directory)
                found |= dict.fromkeys(places_in(directory), holder)
        return found


def refuse(directory: Path, holder: Holder) -> None:
    """Held when the agent that has a journal claims what this holder claims, and does not share it."""
    other = holder_of(directory)
    both = set(other.claims) & set(holder.claims)
    if not other.shares(holder) and (both or not other.claims):
        raise held(directory, other)


def held(directory: Path, other: Holder) -> Held:
    """What to say of a journal that another agent has."""
    return Held(
        "refused",
        f"another agent is tuning this machine: {other.named}; it holds {directory}",
        way_out="wait until that run has ended, or end it: it sets the machine back",
    )


def _number(path: Path) -> int:
    digits = path.name.removeprefix(BESIDE)
    return int(digits) if digits.isdecimal() else 0
