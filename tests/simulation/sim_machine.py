"""A simulated machine below the real tuning: files, kernel, units, programs, the undo journal's disk, and changes by
the machine's owner.

Data flow: the agent's `Tuner` -> the real transaction, revert and undo journal (`sim_undo`) -> `SimHostView` in place
of `Host`: its files are the real ones over `SimOs`; its kernel attributes, units, programs and databases are tables
(`SimTexts`, `sim_database`) -> `Machine`. Each access takes time in `Threads.pause`.

A `Machine` also records the expected state: `owned` is the state without any run, `kept` the changes with `keep` of
transactions that succeeded. `unexpected()` returns the differences from both.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from sim_database import Settings, SimDatabases
from sim_disk import Data, Disk
from sim_threads import Killed, Threads, is_dead

from proveout.agent.errors import TaskFault
from proveout.agent.security.policy import Policy, Tool
from proveout.agent.tuning import transaction
from proveout.agent.tuning.host import Attributes, Host, Systemd
from proveout.dsl.operations.change import WITHIN_S as TIMEOUT_S
from proveout.dsl.operations.facts import Output, UnitFact

if TYPE_CHECKING:
    from sim_undo import UndoDatabase

VOLUME = "/opt/lab/volume"
"""A program of the plan that makes and removes volumes."""
BOOT = {
    "/proc/sys/vm/swappiness": "60",
    "/proc/sys/vm/dirty_ratio": "20",
    "/proc/sys/vm/min_free_kbytes": "67584",
    "/proc/sys/vm/laptop_mode": "0",
    "/proc/sys/net/core/somaxconn": "128",
}
"""The writable attributes with their values after a boot."""
UNITS = {
    "tuned.service": UnitFact(active=True, enabled=True),
    "app.service": UnitFact(active=True, enabled=True),
}
FILES = {
    "/etc/app/app.conf": Data(content=b"port = 1\n", mode=0o640, xattrs={"user.x": b"1"}, mtime_ns=10**18 + 7),
    "/etc/app/kept.conf": Data(content=b"old\n", mode=0o644, mtime_ns=10**18 + 8),
    "/etc/sysctl.d/10-other.conf": Data(content=b"kernel.panic = 1\n", mode=0o644, mtime_ns=10**18 + 9),
}
FOLDERS = ("/etc", "/etc/app", "/etc/sysctl.d")
POLICY = Policy(
    source="/etc/proveout/policy.yaml",
    sysctl=("vm.*", "net.*"),
    units=("tuned.service", "app.service"),
    paths=FOLDERS[1:],
    tools=(Tool(path=VOLUME, arguments=("*",)),),
    destructive=True,
    validators=(("check", ("/usr/bin/check", "{file}")),),
)
TRIED_BY_HAND = ("/proc/sys/vm/swappiness", "/etc/app/app.conf", "/etc/app/kept.conf", "/etc/sysctl.d/90-app.conf")
PROGRAM_S = 0.15
STATEMENT_S = 0.002


@dataclass(eq=False)
class Machine:
    """One host. `tell(text)` reports a broken rule; `note(text)` records an event of the history."""

    threads: Threads
    chance: random.Random
    tell: Callable[[str], None]
    note: Callable[[str], None]

    def __post_init__(self) -> None:
        self.disk = Disk(self.chance, FOLDERS)
        for path, data in FILES.items():
            self.disk.put(path, replace(data))
        self.kernel, self.units = dict(BOOT), dict(UNITS)
        self.volumes: frozenset[str] = frozenset()
        self.owned: dict[str, object] = self.state()
        self.kept: dict[str, object] = {}
        self.booted: dict[str, set[object]] = {}
        self.settings = Settings()
        self.serves = lambda: False
        self.journal: UndoDatabase | None = None
        self.undo_commits = 0
        self.descriptors: set[int] = set()
        self.hangs = False
        self.hung_until_s = 0.0
        self.fails = 0
        self.was_full = False
        self.interrupted = False
        self.hands = 0
        self.at = ""

    # ---- the present and the expected state ------------------------------------------------------------------------

    def state(self) -> dict[str, object]:
        return {**self.kernel, **self.units, VOLUME: self.volumes, **self.disk.picture()}

    def unexpected(self) -> dict[str, tuple[object, object]]:
        """Return subject -> (present state, expected state) where they differ; None for a missing name."""
        now, wanted = self.state(), {**self.owned, **self.kept}
        return {
            one: (now.get(one), wanted.get(one))
            for one in sorted(now.keys() | wanted.keys())
            if now.get(one) != wanted.get(one) and now.get(one) not in self.booted.get(one, ())
        }

    def hand(self) -> None:
        """Change a subject as another process does; a run may have tuned it or may tune it later."""
        self.hands += 1
        subject = self.chance.choice(TRIED_BY_HAND)
        self.note(f"another process changes {subject}")
        if subject.startswith("/proc"):
            self.kernel[subject] = str(7000 + self.hands)
        else:
            self.disk.put(subject, Data(content=b"# %d by hand\n" % self.hands, mode=0o600, mtime_ns=self.hands))
        self.owned[subject] = self.state()[subject]
        self.kept.pop(subject, None)
        self.booted.pop(subject, None)

    def lose_power(self) -> None:
        """Switch the machine off and on: memory and unsynced data of the disk are lost."""
        self.disk.lose_power()
        before = {path: {self.kernel.get(path), self.owned[path], self.kept.get(path)} for path in BOOT}
        self.kernel = {**BOOT, **self._configured(self.disk.picture())}
        owned = {path: data for path, data in self.owned.items() if isinstance(data, Data)}
        for path, value in {**BOOT, **self._configured(owned)}.items():
            self.booted[path] = before[path] | {value}
        self.units = {name: replace(unit, active=bool(unit.enabled)) for name, unit in self.units.items()}

    def _configured(self, files: dict[str, Any]) -> dict[str, str]:
        """Return the attributes that sysctl(8) sets from /etc/sysctl.d at boot."""
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
        """Check, just before a run changes `subject`, that its original is durable in the undo journal."""
        if is_dead():
            raise Killed
        if self.journal is None or not self.journal.covers(subject):
            self.tell(f"{subject} was changed, and no durable entry of the undo journal covers it")

    def promised(self, subject: str) -> None:
        """Expect the present state of `subject` from now on: a transaction that keeps its change has succeeded."""
        self.kept[subject] = self.state().get(subject)

    def die(self) -> None:
        """Close the agent's files and roll back the open transaction of its undo journal: the agent was killed."""
        if self.journal is not None:
            self.journal.die()
            self.journal = None
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors.clear()

    # ---- the kernel and databases ----------------------------------------------------------------------------------

    def writes(self, path: str) -> None:
        """Take the time of a write to an attribute and check its undo entry."""
        self.threads.pause(0.001, short=True)
        self.wrote(path)

    def answers(self, act: Callable[[], None]) -> None:
        """Execute a statement, unless the host's fault `fail` prevents it. A statement whose client is killed meanwhile
        completes in half of the cases."""
        try:
            self.threads.pause(STATEMENT_S)
        except Killed:
            if self.chance.random() < 0.5:
                act()
            raise
        if self.fails:
            raise TaskFault("unreachable", "the connection was refused")
        act()

    # ---- programs and units ------------------------------------------------------------------------------------------

    def program(self, name: str, now_s: float) -> None:
        """Take the time of a program, or hang until `interrupt` or the timeout, or fail. TaskFault."""
        if is_dead():
            raise Killed
        self.interrupted = False
        left_s = PROGRAM_S * self.chance.random() + 0.01
        is_hung = self.hangs
        if is_hung:
            self.note(f"{name} hangs")
            self.hangs, left_s = False, TIMEOUT_S
            self.hung_until_s = now_s + TIMEOUT_S
        while left_s > 0.0 and not self.interrupted:
            self.threads.pause(min(left_s, 0.25))
            left_s -= 0.25
        if self.interrupted:
            self.hung_until_s = min(self.hung_until_s, now_s + TIMEOUT_S - left_s)
            raise TaskFault("fault", f"{name} failed with exit code -9 without output")
        if is_hung:
            raise TaskFault("timeout", f"{name} did not end within {TIMEOUT_S:g} s")
        if self.fails:
            raise TaskFault("fault", f"{name} failed with exit code 1 without output")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimTexts(Attributes):
    """`Attributes` of a table. A written value has its effect at once."""

    kernel: dict[str, str]
    wrote: Callable[[str], None]

    def octets(self, path: str) -> bytes | None:
        value = self.kernel.get(path)
        return None if value is None else f"{value}\n".encode()

    def write(self, path: str, text: str) -> None:
        self.wrote(path)
        self.kernel[path] = text

    def matching(self, pattern: str) -> tuple[str, ...]:
        return tuple(sorted(path for path in BOOT if fnmatchcase(path, pattern)))

    def link(self, path: str) -> str | None:
        return None


class SimTools:
    """Programs; replaces `tools.Processes`."""

    def __init__(self, machine: Machine, now_s: Callable[[], float]) -> None:
        self._machine, self._now_s = machine, now_s

    def interrupt(self) -> None:
        self._machine.interrupted = True

    def run(self, argv: Sequence[str], within_s: float = 60.0) -> Output:
        machine = self._machine
        try:
            machine.program(argv[0], self._now_s())
        except TaskFault as fault:
            if fault.code != "fault":
                raise
            return Output(code=1, text="")
        except Killed:  # a program continues when the process that started it is killed
            if machine.chance.random() < 0.5:
                self._effect(argv)
            raise
        if argv[0] == VOLUME and argv[1] != "show":
            machine.wrote(argv[0])
        return Output(code=self._effect(argv), text="")

    def _effect(self, argv: Sequence[str]) -> int:
        """Apply the effect of a program; its exit code."""
        machine = self._machine
        match tuple(argv):
            case (program, "show", volume) if program == VOLUME:
                return int(volume not in machine.volumes)
            case (program, "create", volume) if program == VOLUME:
                machine.volumes |= {volume}
            case (program, "remove", volume) if program == VOLUME:
                machine.volumes -= {volume}
            case ("/usr/bin/check", *_):
                pass
            case _:
                raise AssertionError(f"the simulated machine has no {' '.join(argv)}")
        return 0


class SimUnits(Systemd):
    """Units without systemd."""

    def __init__(self, machine: Machine, now_s: Callable[[], float]) -> None:
        self._machine, self._now_s = machine, now_s

    def fact(self, unit: str) -> UnitFact | None:
        return self._machine.units.get(unit)

    def act(self, unit: str, verb: str) -> None:
        machine = self._machine
        machine.program(f"systemctl {verb} {unit}", self._now_s())
        now = self.fact(unit)
        if now is None:
            raise TaskFault("fault", f"systemctl {verb} {unit} failed with exit code 5: Unit {unit} not loaded.")
        machine.wrote(unit)
        if verb in ("start", "stop"):
            now = replace(now, active=verb != "stop")
        if verb in ("enable", "disable"):
            now = replace(now, enabled=verb == "enable")
        machine.units[unit] = now


@dataclass(slots=True, kw_only=True)
class SimHostView(Host):
    """The real `Host` with the simulated kernel."""

    machine: Machine | None = None

    @property
    def texts(self) -> Attributes:
        machine = self.machine
        assert machine is not None
        return SimTexts(kernel=machine.kernel, wrote=machine.writes)


def operations(here: Callable[[], Machine]) -> list[tuple[Any, str, Any]]:
    """Return the replacements of functions of tuning, as (module, name, function), that set the present operation of
    the calling process's machine: a fault can strike at its steps."""

    @contextlib.contextmanager
    def at(operation: str) -> Iterator[None]:
        machine = here()
        before, machine.at = machine.at, operation
        try:
            yield
        finally:
            machine.at = before

    apply, undo = transaction.Transaction._apply, transaction._undo

    def applied(self: Any, tuning: Any) -> Any:
        with at(tuning.operation):
            return apply(self, tuning)

    def undone(host: Any, entry: Any) -> Any:
        with at(entry.operation):
            return undo(host, entry)

    return [(transaction.Transaction, "_apply", applied), (transaction, "_undo", undone)]


def view(machine: Machine, host: Host, now_s: Callable[[], float]) -> Host:
    """Return the host for `Tuner(prepare=…)`."""
    units = SimUnits(machine, now_s)
    databases = SimDatabases(machine.settings, machine.serves, machine.answers, machine.wrote)
    return SimHostView(
        policy=host.policy,
        scratch=host.scratch,
        tools=host.tools,
        databases=databases,
        units=units,
        machine=machine,
    )
