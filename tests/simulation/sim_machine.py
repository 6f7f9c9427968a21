"""A simulated machine below the real tuning: files, kernel, units, programs, the undo journal's disk, its owner's other hand.

Data flow: the agent's `Tuner` -> the real transaction, undoing and undo journal -> `SimHostView` in place of `Host`, whose files are the real
ones over `SimOs`, whose kernel attributes, units and programs are tables here -> `Machine`. Each of them takes its time in `Threads.pause`.

A `Machine` also keeps book of what ought to be: `owned` is how it would be had no run been there, `kept` what a transaction that ended well has
promised to leave. `strange()` is what is neither.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import random
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sim_database import Settings, SimDatabases
from sim_disk import Data, Disk
from sim_threads import Killed, Threads, is_dead

from proveout.agent.policy import Policy
from proveout.agent.tasks import TaskFault
from proveout.agent.tuning.host import Host
from proveout.agent.tuning.records import change_of
from proveout.agent.tuning.texts import Texts
from proveout.agent.tuning.tools import TIMEOUT_S
from proveout.dsl.tuning.facts import Output, UnitFact

BOOT = {"/proc/sys/vm/swappiness": "60", "/proc/sys/vm/dirty_ratio": "20", "/proc/sys/net/core/somaxconn": "128"}
UNITS = {"tuned.service": UnitFact(active=True, enabled=True), "app.service": UnitFact(active=True, enabled=True)}
FILES = {
    "/etc/app/app.conf": Data(content=b"port = 1\n", mode=0o640, xattrs={"user.x": b"1"}, mtime_ns=10**18 + 7),
    "/etc/app/kept.conf": Data(content=b"old\n", mode=0o644, mtime_ns=10**18 + 8),
    "/etc/sysctl.d/10-other.conf": Data(content=b"kernel.panic = 1\n", mode=0o644, mtime_ns=10**18 + 9),
}
POLICY = Policy(
    source="/etc/proveout/policy.yaml",
    sysctl=("vm.*", "net.*"),
    units=("tuned.service", "app.service"),
    paths=("/etc/sysctl.d", "/etc/app"),
    validators=(("check", ("/usr/bin/check", "{file}")),),
)
TRIED_BY_HAND = ("/proc/sys/vm/swappiness", "/etc/app/app.conf", "/etc/app/kept.conf", "/etc/sysctl.d/90-app.conf")
PROGRAM_S = 0.15


@dataclass(eq=False)
class Machine:
    """One host. `tell(text)` is told of a broken rule; `note(text)` of what happens."""

    threads: Threads
    chance: random.Random
    tell: Callable[[str], None]
    note: Callable[[str], None]

    def __post_init__(self) -> None:
        self.disk = Disk(self.chance, ("/etc", "/etc/app", "/etc/sysctl.d"))
        for path, data in FILES.items():
            self.disk.put(path, replace(data))
        self.kernel, self.units = dict(BOOT), dict(UNITS)
        self.owned: dict[str, object] = self.state()
        self.kept: dict[str, object] = {}
        self.booted: dict[str, set[object]] = {}
        self.settings = Settings()
        self.serves = lambda: False
        self.journal: UndoDatabase | None = None
        self.descriptors: set[int] = set()
        self.hangs = False
        self.hung_until_s = 0.0
        self.fails = 0
        self.was_full = False
        self.interrupted = False
        self.hands = 0

    # ---- what is, and what ought to be -----------------------------------------------------------------------------

    def state(self) -> dict[str, object]:
        return {**self.kernel, **self.units, **self.disk.picture()}

    def strange(self) -> dict[str, tuple[object, object]]:
        """subject -> (what is, what ought to be) where they differ; a name that is not there is None."""
        now, wanted = self.state(), {**self.owned, **self.kept}
        subjects = sorted(now.keys() | wanted.keys())
        return {
            one: (now.get(one), wanted.get(one))
            for one in subjects
            if now.get(one) != wanted.get(one) and now.get(one) not in self.booted.get(one, ())
        }

    def hand(self) -> None:
        """Somebody else changes something that a run may have tuned, or may tune yet."""
        self.hands += 1
        subject = self.chance.choice(TRIED_BY_HAND)
        self.note(f"another hand changes {subject}")
        if subject.startswith("/proc"):
            self.kernel[subject] = str(7000 + self.hands)
        else:
            self.disk.put(subject, Data(content=b"# %d by hand\n" % self.hands, mode=0o600, mtime_ns=self.hands))
        self.owned[subject] = self.state()[subject]
        self.kept.pop(subject, None)
        self.booted.pop(subject, None)

    def lose_power(self) -> None:
        """Off, and on again: memory is gone, and of the disk what was not synced."""
        self.disk.lose_power()
        before = {path: {self.kernel[path], self.owned[path], self.kept.get(path)} for path in BOOT}
        self.kernel = {**BOOT, **self._configured(self.disk.picture())}
        owned = {path: data for path, data in self.owned.items() if isinstance(data, Data)}
        for path, value in {**BOOT, **self._configured(owned)}.items():
            self.booted[path] = before[path] | {value}
        self.units = {name: replace(unit, active=bool(unit.enabled)) for name, unit in self.units.items()}

    def _configured(self, files: dict[str, Any]) -> dict[str, str]:
        """What sysctl(8) makes of /etc/sysctl.d at boot."""
        lines = [
            line.partition("=")
            for path in sorted(files)
            if path.startswith("/etc/sysctl.d/") and path.endswith(".conf")
            for line in files[path].content.decode().splitlines()
        ]
        pairs = {f"/proc/sys/{name.strip().replace('.', '/')}": value.strip() for name, _, value in lines}
        return {path: value for path, value in pairs.items() if path in BOOT and value}

    # ---- the rule of the undo journal --------------------------------------------------------------------------------

    def wrote(self, subject: str) -> None:
        """Somebody is about to change something for a run: its original must be durable by now."""
        if is_dead():
            raise Killed
        if self.journal is None or not self.journal.covers(subject):
            self.tell(f"{subject} was changed, and no durable entry of the undo journal covers it")

    def promised(self, subject: str) -> None:
        """A transaction that keeps this has ended well."""
        self.kept[subject] = self.state().get(subject)

    def die(self) -> None:
        """The agent is gone: its files are closed, and what it had begun in its journal is rolled back."""
        if self.journal is not None:
            self.journal.die()
            self.journal = None
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors.clear()

    # ---- programs and units ------------------------------------------------------------------------------------------

    def program(self, name: str, now_s: float) -> None:
        """It takes its time, or hangs until somebody ends it, or fails. TaskFault."""
        if is_dead():
            raise Killed
        self.interrupted = False
        left_s = PROGRAM_S * self.chance.random() + 0.01
        if self.hangs:
            self.note(f"{name} hangs")
            self.hangs, left_s = False, TIMEOUT_S
            self.hung_until_s = now_s + TIMEOUT_S
        while left_s > 0.0 and not self.interrupted:
            self.threads.pause(min(left_s, 0.25))
            left_s -= 0.25
        if self.interrupted:
            self.hung_until_s = min(self.hung_until_s, now_s + TIMEOUT_S - left_s)
            raise TaskFault("fault", f"{name} failed with exit code -9: it said nothing")
        if self.hung_until_s > now_s:
            raise TaskFault("timeout", f"{name} did not end within {TIMEOUT_S:g} s")
        if self.fails:
            raise TaskFault("fault", f"{name} failed with exit code 1: it said nothing")


class SimTools:
    """Programs, in place of `tools.Processes`."""

    def __init__(self, machine: Machine, now_s: Callable[[], float]) -> None:
        self._machine, self._now_s = machine, now_s

    def interrupt(self) -> None:
        self._machine.interrupted = True

    def run(self, argv: Sequence[str]) -> Output:
        try:
            self._machine.program(argv[0], self._now_s())
        except TaskFault as fault:
            if fault.code != "fault":
                raise
            return Output(code=1, text="")
        return Output(code=0, text="")


class SimUnits:
    """Units, in place of `units.Systemd`."""

    def __init__(self, machine: Machine, now_s: Callable[[], float]) -> None:
        self._machine, self._now_s = machine, now_s

    def fact(self, unit: str) -> UnitFact | None:
        return self._machine.units.get(unit)

    def act(self, unit: str, verb: str) -> None:
        self._machine.program(f"systemctl {verb} {unit}", self._now_s())
        self._machine.wrote(unit)
        now = self._machine.units[unit]
        if verb in ("start", "stop", "restart"):
            now = replace(now, active=verb != "stop")
        if verb in ("enable", "disable"):
            now = replace(now, enabled=verb == "enable")
        self._machine.units[unit] = now


@dataclass(frozen=True, slots=True)
class SimTexts(Texts):
    """The kernel's attributes; a value that is written is there at once, or the process was killed before."""

    machine: Machine | None = None

    def octets(self, path: str) -> bytes | None:
        assert self.machine is not None
        found = self.machine.kernel.get(path)
        return None if found is None else f"{found}\n".encode()

    def write(self, path: str, text: str) -> None:
        assert self.machine is not None
        self.machine.threads.pause(0.001, short=True)
        self.machine.wrote(path)
        self.machine.kernel[path] = text


@dataclass(slots=True, kw_only=True)
class SimHostView(Host):
    """The real `Host`, with another kernel beneath."""

    machine: Machine | None = None

    @property
    def texts(self) -> Texts:
        return SimTexts(machine=self.machine)


def view(machine: Machine, host: Host, now_s: Callable[[], float]) -> Host:
    """What `Tuner(prepare=…)` takes."""
    units = SimUnits(machine, now_s)
    databases = SimDatabases(machine.settings, machine.serves, lambda: machine.threads.pause(0.002), machine.wrote)
    return SimHostView(
        policy=host.policy,
        scratch=host.scratch,
        tools=host.tools,
        databases=databases,
        units=units,
        machine=machine,
    )


class _Full(sqlite3.OperationalError):
    def __init__(self) -> None:
        super().__init__("database or disk is full")


class UndoDatabase:
    """The undo journal's connection, on a disk that can be full, of a process that can be killed before and after each commit."""

    def __init__(self, machine: Machine, path: Path) -> None:
        self._machine = machine
        self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._is_synchronous = False
        machine.journal = self

    def execute(self, query: str, arguments: Sequence[Any] = ()) -> sqlite3.Cursor:
        if query.startswith("PRAGMA synchronous"):
            self._is_synchronous = query.endswith("FULL")
        writes = query.startswith(("INSERT", "UPDATE", "DELETE"))
        self._before(writes=writes)
        cursor = self._database.execute(query, arguments)
        if query.startswith("UPDATE change SET done"):
            self._promise(*arguments)
        if writes and not self._database.in_transaction:
            self._machine.threads.pause(0.002)
        return cursor

    def executemany(self, query: str, rows: Sequence[Any]) -> None:
        self._before(writes=True)
        self._database.executemany(query, rows)

    def executescript(self, script: str) -> None:
        self._before(writes=True)
        self._database.executescript(script)

    def __enter__(self) -> UndoDatabase:
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        if is_dead() or not self._database.in_transaction:
            return
        if kind is not None:
            self._database.rollback()
            return
        self._machine.threads.pause(0.003)
        self._database.commit()
        self._machine.threads.pause(0.001)

    def close(self) -> None:
        if is_dead():
            raise Killed
        self._machine.journal = None
        self._database.close()

    def die(self) -> None:
        self._database.close()

    def _before(self, *, writes: bool) -> None:
        if is_dead():
            raise Killed
        if writes:
            self._machine.threads.pause(0.002)
            if self._machine.disk.full:
                raise _Full

    def covers(self, subject: str) -> bool:
        if self._database.in_transaction or not self._is_synchronous:
            return False
        return any(subject in _subjects(text) for (text,) in self._database.execute("SELECT change FROM change"))

    def _promise(self, after: int) -> None:
        for (text,) in self._database.execute("SELECT change FROM change WHERE id > ? AND keep = 1", (after,)):
            for subject in _subjects(text):
                self._machine.promised(subject)


@dataclass(frozen=True, slots=True)
class Outstanding:
    """An entry of an undo journal: of which run, what it changes, and why it could not be undone so far."""

    run: str
    subject: str
    residue: str


def outstanding_in(path: Path) -> list[Outstanding]:
    """What an undo journal holds, whoever has it open."""
    if not path.exists():
        return []
    with contextlib.closing(sqlite3.connect(path)) as database:
        try:
            rows = database.execute("SELECT run, change, residue FROM change").fetchall()
        except sqlite3.OperationalError:  # it was being made when its agent was killed
            return []
    return [Outstanding(run, subject, residue) for run, text, residue in rows for subject in _subjects(text)]


@functools.cache
def _subjects(text: str) -> tuple[str, ...]:
    change = change_of(text)
    return tuple(getattr(change, name) for name in ("path", "unit", "system") if hasattr(change, name))


def sqlite_of(machine: Callable[[], Machine]) -> SimpleNamespace:
    """In place of the module `sqlite3` in `agent.tuning.undo`."""
    return SimpleNamespace(connect=lambda path, **_more: UndoDatabase(machine(), path), Error=sqlite3.Error)


def os_of(machine: Callable[[], Machine]) -> SimpleNamespace:
    """In place of `os` in `agent.tuning.undo`: descriptors that end with their process."""

    def opened(path: Path, flags: int, mode: int = 0o777) -> int:
        if is_dead():
            raise Killed
        if machine().disk.full and not path.exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        descriptor = os.open(path, flags, mode)
        machine().descriptors.add(descriptor)
        return descriptor

    def close(descriptor: int) -> None:
        if is_dead():
            raise Killed
        machine().descriptors.discard(descriptor)
        os.close(descriptor)

    return SimpleNamespace(
        open=opened,
        close=close,
        fsync=os.fsync,
        **{name: getattr(os, name) for name in dir(os) if name.startswith("O_")},
    )
