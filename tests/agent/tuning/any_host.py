"""Any host that an operation may meet, for the tests that hold every operation to its promises: what all of them share.

Data flow: a strategy of `any_files`, `any_kernel`, `any_units`, `any_oracle`, `any_postgres` -> a `Case`: arguments
that the schema permits, and the state of a host before them -> `Case.make(folder)` -> a `World`: that host, made anew
each time, and how it is compared with itself.

Kernels, unit managers and Oracle are models of what their documentation says, as they cannot be had here in any state
one likes: that the real ones do so is not shown by them (real kernels: test_tuning_kernel, test_tuning_queue; real
PostgreSQL and real partition tables are in use here).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import assume
from hypothesis import strategies as st
from pydantic import ValidationError
from tuning_bench import StubTools, StubUnits, picture, tuning

from proveout.agent.errors import TaskFault
from proveout.agent.security.policy import Policy, Tool
from proveout.agent.tuning.host import Host, Units
from proveout.agent.tuning.programs import Tools
from proveout.agent.tuning.sql_access import Databases
from proveout.agent.tuning.sysfs import Attributes
from proveout.dsl.plan.stages import Tuning

GOOD = frozenset({"applied", "unchanged", "refused"})
OPEN = Policy(
    source="/etc/proveout/policy.yaml",
    sysctl=("*",),
    units=("*",),
    paths=("/etc/sysctl.d", "/etc/app", "/etc/security/limits.d", "/etc/udev/rules.d", "/etc/multipath/conf.d", "/etc/fstab", "/sys"),
    devices=("/dev/disk/by-id/disk", *(f"/dev/disk/by-id/asm{number}" for number in range(4))),
    udev_devices=("ENV{DM_UUID}==data*",),
    tools=tuple(
        Tool(path=path, arguments=("*",))
        for path in (
            "/usr/bin/udevadm", "/usr/bin/systemctl", "/usr/sbin/parted", "/usr/sbin/partprobe", "/usr/sbin/wipefs", "/usr/sbin/blkid",
        )
    ),
    validators=(("app-check", ("/usr/bin/app-check", "{file}")),),
    destructive=True,
)  # fmt: skip
"""An owner who allows all that is tested here."""

React = Callable[[Path, str, str], str]
"""(root, path, text written) -> the text that the attribute then has; OSError where the kernel does not take it. May
set other attributes."""


@dataclass(frozen=True, slots=True)
class KernelTexts(Attributes):
    """Attributes below /proc and /sys that do something when they are written."""

    react: React = lambda _root, _path, text: text

    def write(self, path: str, text: str) -> None:
        """As the real one, with the kernel's answer in the place of the text."""
        if self.read(path) is None:
            raise TaskFault("refused", f"{path} cannot be set to {text!r}: there is none")
        try:
            shown = self.react(self.root, path, text)
        except OSError as error:
            raise TaskFault("refused", f"{path} cannot be set to {text!r}: {error.strerror}") from error
        Attributes(self.root).write(path, shown)


@dataclass(slots=True, kw_only=True)
class AnyHost(Host):
    """A host beneath a folder, with a kernel that reacts."""

    react: React = lambda _root, _path, text: text

    @property
    def texts(self) -> Attributes:
        """Its kernel's attributes."""
        return KernelTexts(self.root, self.react)


@dataclass(slots=True, kw_only=True)
class World:
    """A host in some state; `seen` is what of it has to come back, beside its files."""

    host: AnyHost
    seen: Callable[[], object] = lambda: None

    def picture(self) -> object:
        """All that a person could find to be otherwise."""
        return picture(self.host.root), self.seen()


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An operation with arguments, and what it meets. `outcomes`: those that are right here; `failed` where the host
    may not do as it is told."""

    tuning: Tuning
    state: object
    make: Callable[[Path], World] = field(repr=False)
    outcomes: frozenset[str] = GOOD
    excuse: str = ""
    """With this in what is said, `failed` is right too: the database has refused a value that only it can judge."""


def world(
    folder: Path,
    *,
    react: React = lambda _root, _path, text: text,
    units: Units | None = None,
    tools: Tools | None = None,
    databases: Databases | None = None,
    seen: Callable[[], object] = lambda: None,
) -> World:
    """A host beneath `folder`/root, which nothing is in so far."""
    root, scratch = folder / "root", folder / "scratch"
    root.mkdir(parents=True)
    scratch.mkdir()
    host = AnyHost(
        policy=OPEN,
        root=root,
        scratch=scratch,
        react=react,
        units=units or StubUnits(),
        tools=tools or StubTools(),
        databases=databases or Databases(),
    )
    return World(host=host, seen=seen)


def asked(kind: str, **fields: object) -> Tuning:
    """The tuning; arguments that the schema does not permit are not tried."""
    try:
        return tuning(kind, **fields)
    except ValidationError:
        assume(False)
        raise


def words(pattern: str, size: int = 12) -> st.SearchStrategy[str]:
    """Texts of a pattern, not too long to read."""
    return st.from_regex(pattern, fullmatch=True).filter(lambda text: len(text) <= size)


def some(choices: Mapping[str, st.SearchStrategy[object]]) -> st.SearchStrategy[dict[str, object]]:
    """Some of the fields, one at least."""
    return st.fixed_dictionaries({}, optional=choices).filter(bool)
