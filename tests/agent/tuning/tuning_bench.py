"""A host in a folder, for the tests of tuning: kernel attributes are plain files, units are a table, programs are
recorded and have prepared outputs.

Not proven here: that the kernel accepts a value, or that systemd executes an action. Tests with network namespaces show
the former; the latter needs a host with systemd.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from proveout.agent.security.policy import Policy, Tool
from proveout.agent.tuning.host import Host, Systemd
from proveout.agent.tuning.programs import Processes
from proveout.dsl.operations.facts import Output, UnitFact
from proveout.dsl.operations.operation import Operation
from proveout.dsl.operations.table import FAULT_KEYS, OPERATIONS
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.stages import Tuning

POLICY = Policy(
    source="/etc/proveout/policy.yaml",
    sysctl=("vm.*", "net.*", "kernel.*"),
    units=("tuned.service", "irqbalance.service", "multipathd.service"),
    paths=("/etc/sysctl.d", "/etc/app", "/etc/security/limits.d", "/sys/devices", "/sys/kernel/mm"),
    tools=(Tool(path="/usr/bin/reload", arguments=("*",)),),
    validators=(("app-check", ("/usr/bin/app-check", "{file}")),),
)


def acted(unit: UnitFact, verb: str) -> UnitFact:
    """A unit after an action."""
    active = {"start": True, "stop": False}.get(verb, unit.active)
    enabled = {"enable": True, "disable": False}.get(verb, unit.enabled)
    return replace(unit, active=active, enabled=enabled)


class StubUnits(Systemd):
    """Units in a table, with a record of the actions on them."""

    def __init__(self, **units: UnitFact) -> None:
        self.units = {f"{name}.service": unit for name, unit in units.items()}
        self.done: list[str] = []

    def fact(self, unit: str) -> UnitFact | None:
        return self.units.get(unit)

    def act(self, unit: str, verb: str) -> None:
        self.done.append(f"{verb} {unit}")
        self.units[unit] = acted(self.units[unit], verb)


class StubTools(Processes):
    """Programs that record their arguments and return prepared outputs."""

    def __init__(self, **answers: Output) -> None:
        self.done: list[tuple[str, ...]] = []
        self.answers = answers

    def run(self, argv: Sequence[str], within_s: float = 60.0) -> Output:
        self.done.append(tuple(argv))
        return self.answers.get(Path(argv[0]).name.replace("-", "_"), Output(code=0, text=""))


def full(*_: object, **_named: object) -> None:
    """Fail like a write to a full disk."""
    raise OSError(28, "No space left on device")


def put(root: Path, path: str, text: str, mode: int = 0o644) -> Path:
    """Create a file of the host."""
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(mode)
    return file


def host_in(
    root: Path, *, policy: Policy = POLICY, units: StubUnits | None = None, tools: StubTools | None = None
) -> Host:
    """A host whose files lie beneath `root`."""
    scratch = root.parent / "scratch"
    scratch.mkdir(exist_ok=True)
    return Host(policy=policy, root=root, scratch=scratch, units=units or StubUnits(), tools=tools or StubTools())


def tuning(kind: str, name: str = "", *, keep: bool = False, restart: str = "", **fields: object) -> Tuning:
    """A compiled tuning; `fields` are the operation's."""
    model: type[Operation] = OPERATIONS[kind]
    parameters = to_values(model.model_validate(fields))
    return Tuning(name=name or kind, operation=kind, hosts=("h",), parameters=parameters, keep=keep, restart=restart)


def disturbance(key: str, **fields: object) -> Tuning:
    """A compiled tuning of a fault by its key in a plan; `fields` are the operation's."""
    operation = OPERATIONS[FAULT_KEYS[key]].model_validate(fields)
    return Tuning(
        name=key,
        operation=FAULT_KEYS[key],
        hosts=("local",),
        parameters=to_values(operation),
        system=operation.of_system or "",
        destructive=True,
    )


def picture(root: Path) -> dict[str, tuple[object, ...]]:
    """Everything beneath `root`: path -> (mode, owner, group, content, extended attributes, time of change). Of attributes
    of the kernel blanks and times do not count, of devices times."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(root.rglob("*")):
        status, top = path.lstat(), path.relative_to(root).parts[0]
        content = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
        shown = b" ".join(content.split()) if top in ("proc", "sys") else content
        xattrs = {name: os.getxattr(path, name) for name in os.listxattr(path)} if path.is_file() else {}
        mtime = status.st_mtime_ns if path.is_file() and top not in ("proc", "sys", "dev") else 0
        found[str(path.relative_to(root))] = (status.st_mode, status.st_uid, status.st_gid, shown, xattrs, mtime)
    return found
