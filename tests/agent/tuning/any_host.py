"""Any host to which an operation may be applied: the common part of the strategies for `test_every_operation`.

Data flow: a strategy of `any_files`, `any_kernel`, `any_units`, `any_oracle`, `any_postgres` -> a `Case`: arguments
that the schema permits, and the state of a host before them -> `Case.make(folder)` -> a `World`: that host, created
each time, and its comparison with an earlier state.

Kernels, unit managers and Oracle are models of their documentation, as real ones cannot be put into any state here. The
models do not show that the real ones behave so (real kernels: test_tuning_kernel, test_tuning_disks; PostgreSQL and
partition tables are real here).
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
from proveout.agent.tuning.host import Attributes, Host, Systemd
from proveout.agent.tuning.programs import Processes
from proveout.agent.tuning.sql_access import Databases
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
            "/usr/sbin/mkfs.ext4", "/usr/bin/dd", "/usr/bin/cmp", "/opt/lab/volume", "/u01/app/oracle/bin/srvctl",
        )
    ),
    validators=(("app-check", ("/usr/bin/app-check", "{file}")),),
    destructive=True,
    oracle_parameters=("dispatchers", "_high_priority_processes", "_max_outstanding_log_writes"),
)  # fmt: skip
"""A policy that permits everything that is tested here."""

React = Callable[[Path, str, str], str]
"""(root, path, text written) -> the text of the attribute afterwards; OSError where the kernel refuses the text. May set
other attributes."""


@dataclass(frozen=True, slots=True)
class KernelTexts(Attributes):
    """Attributes below /proc and /sys with the reactions of a model kernel to writes."""

    react: React = lambda _root, _path, text: text

    def write(self, path: str, text: str) -> None:
        """Write like `Attributes`, with the kernel's reaction in place of the text."""
        if self.read(path) is None:
            raise TaskFault("refused", f"{path} cannot be set to {text!r}: there is none")
        try:
            shown = self.react(self.root, path, text)
        except OSError as error:
            raise TaskFault("refused", f"{path} cannot be set to {text!r}: {error.strerror}") from error
        Attributes(self.root).write(path, shown)


@dataclass(slots=True, kw_only=True)
class AnyHost(Host):
    """A host beneath a folder, with a model kernel."""

    react: React = lambda _root, _path, text: text

    @property
    def texts(self) -> Attributes:
        return KernelTexts(self.root, self.react)


@dataclass(slots=True, kw_only=True)
class World:
    """A host in some state; `seen` returns the state beside its files that a revert must restore."""

    host: AnyHost
    seen: Callable[[], object] = lambda: None

    def picture(self) -> object:
        """The complete observable state."""
        return picture(self.host.root), self.seen()


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An operation with arguments, and the state of the host. `outcomes`: the correct ones here; `failed` where the host
    may refuse the change."""

    tuning: Tuning
    state: object
    make: Callable[[Path], World] = field(repr=False)
    outcomes: frozenset[str] = GOOD
    undone: frozenset[str] = frozenset({"reverted"})
    """The correct outcomes of a revert: `kept` where nothing undoes the change."""


def world(
    folder: Path,
    *,
    react: React = lambda _root, _path, text: text,
    units: Systemd | None = None,
    tools: Processes | None = None,
    databases: Databases | None = None,
    seen: Callable[[], object] = lambda: None,
) -> World:
    """A host beneath the empty folder `folder`/root."""
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


def valid_tuning(kind: str, **fields: object) -> Tuning:
    """A tuning; arguments that the schema refuses are discarded."""
    try:
        return tuning(kind, **fields)
    except ValidationError:
        assume(False)
        raise


def words(pattern: str, size: int = 12) -> st.SearchStrategy[str]:
    """Texts of a pattern, of limited length."""
    return st.from_regex(pattern, fullmatch=True).filter(lambda text: len(text) <= size)


def some(choices: Mapping[str, st.SearchStrategy[object]]) -> st.SearchStrategy[dict[str, object]]:
    """Some of the fields, at least one."""
    return st.fixed_dictionaries({}, optional=choices).filter(bool)
