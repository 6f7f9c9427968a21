"""A host, for the interpreter of tuning: answers queries and makes changes, each after a check of the policy."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from proveout.agent.errors import TaskFault
from proveout.agent.security.policy import NOTHING, Decision, Policy
from proveout.agent.tuning.files import SIZE_MAX_BYTES, Files
from proveout.agent.tuning.programs import Processes, must
from proveout.agent.tuning.sql_access import Databases
from proveout.core.data_classes import dataclass, field
from proveout.dsl.operations.change import (
    BusyCpus,
    Change,
    Command,
    CopyData,
    KeepSpans,
    ServerAction,
    SetText,
    Statement,
    TakeSpace,
    UnitAction,
    WriteFile,
)
from proveout.dsl.operations.facts import (
    AddressQuery,
    BusyQuery,
    BytesQuery,
    ClaimQuery,
    CopyQuery,
    Fact,
    Facts,
    FileQuery,
    LinkQuery,
    Original,
    OutputQuery,
    PackageQuery,
    PathsQuery,
    PlaceQuery,
    QdiscQuery,
    Query,
    RowsQuery,
    ServerQuery,
    SpaceQuery,
    TextQuery,
    UnitFact,
    UnitQuery,
)
from proveout.dsl.operations.kernel import name_of

if TYPE_CHECKING:
    from proveout.agent.tuning.fault_host import HostDisturbances

# Symbolic links are followed here, unlike elsewhere (/sys/block consists of links): the kernel makes them, and their
# targets must lie below /proc or /sys.

READ_BYTES = 64 * 1024
KERNEL = ("proc", "sys")


@dataclass(frozen=True, slots=True)
class Attributes:
    """The attributes beneath `root`, which is `/` except in tests. Raises TaskFault."""

    root: Path = Path("/")

    def read(self, path: str) -> str | None:
        """The stripped text, or None where the attribute does not exist."""
        found = self.octets(path)
        return None if found is None else found.decode("utf-8", errors="replace").strip()

    def octets(self, path: str) -> bytes | None:
        """The bytes, or None where the attribute does not exist."""
        found = b""
        try:
            with Path(self._real(path)).open("rb", buffering=0) as stream:  # /proc/sys refuses a read of MiBs
                while len(found) <= SIZE_MAX_BYTES and (part := stream.read(READ_BYTES)):
                    found += part
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except OSError as error:
            raise TaskFault("refused", f"cannot read {path}: {error.strerror}") from error
        if len(found) > SIZE_MAX_BYTES:  # a part of the list of mounts would not show whether a disk is mounted
            raise TaskFault("refused", f"{path} is larger than {SIZE_MAX_BYTES >> 20} MiB")
        return found

    def write(self, path: str, text: str) -> None:
        """Write the text in one call, as the kernel requires."""
        try:
            descriptor = os.open(self._real(path), os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_TRUNC)
            with os.fdopen(descriptor, "wb", buffering=0) as stream:
                stream.write(f"{text}\n".encode())
        except OSError as error:
            way_out = "run the agent as root" if isinstance(error, PermissionError) else ""
            raise TaskFault("refused", f"cannot set {path} to {text!r}: {error.strerror}", way_out=way_out) from error

    def matching(self, pattern: str) -> tuple[str, ...]:
        """The paths that match a pattern, as in a plan; sorted."""
        return tuple(sorted(f"/{path.relative_to(self.root)}" for path in self.root.glob(pattern.lstrip("/"))))

    def link(self, path: str) -> str | None:
        """The target of a path with all links followed; None if it does not exist."""
        real = (self.root / path.lstrip("/")).resolve()
        return f"/{real.relative_to(self.root.resolve())}" if real.exists() else None

    def _real(self, path: str) -> str:
        root = os.path.realpath(self.root)
        real = os.path.realpath(self.root / path.lstrip("/"))
        if not any(real.startswith(f"{root.rstrip('/')}/{folder}/") for folder in KERNEL):
            raise TaskFault("refused", f"{path} is not below /proc or /sys")
        return real


def holds(now: str | None, wanted: str) -> bool:
    """Whether an attribute has a value: the same words, or the choice in brackets."""
    if now is None:
        return False
    return " ".join(now.split()) == wanted or f"[{wanted}]" in now.split()


# Blocking; TaskFault.

Spans = Sequence[tuple[int, int]]
"""(offset, length), bytes."""
TABLE_BYTES_MAX = 1024 * 1024
CLAIM_PAUSES_S = (0.0, 0.02, 0.05)


def kept(root: Path, device: str, spans: Spans) -> bytes:
    """The bytes of the spans, one after the other."""
    if sum(length for _, length in spans) > TABLE_BYTES_MAX:
        raise TaskFault(
            "refused",
            f"the change overwrites more than {TABLE_BYTES_MAX >> 10} KiB of {device}, the limit of the undo journal",
        )
    try:
        with Path(_real(root, device)).open("rb", buffering=0) as stream:
            found = [os.pread(stream.fileno(), length, offset) for offset, length in spans]
    except OSError as error:
        raise TaskFault("refused", f"cannot read {device}: {error.strerror}") from error
    if [len(one) for one in found] != [length for _, length in spans]:
        raise TaskFault("refused", f"{device} is shorter than its reported size")
    return b"".join(found)


def unclaimable(root: Path, device: str) -> str:
    """Return why the kernel does not let a device be claimed; "" where it does. Source: open(2), O_EXCL.

    A refusal is asked for again, as the question claims the device too: another agent of this host may have asked.
    """
    why = ""
    for pause_s in CLAIM_PAUSES_S:
        time.sleep(pause_s)
        try:
            os.close(os.open(_real(root, device), os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
        except OSError as error:
            why = error.strerror or str(error)
        else:
            return ""
    return why


def put_back(root: Path, device: str, spans: Spans, content: bytes) -> None:
    """Write the bytes from `kept` back; durable on return."""
    try:
        descriptor = os.open(_real(root, device), os.O_WRONLY | os.O_EXCL | os.O_CLOEXEC)
        with os.fdopen(descriptor, "wb", buffering=0):
            at = 0
            for offset, length in spans:
                os.pwrite(descriptor, content[at : at + length], offset)
                at += length
            os.fsync(descriptor)
    except OSError as error:
        raise TaskFault("refused", f"cannot write {device}: {error.strerror}") from error


def _real(root: Path, device: str) -> str:
    real, folder = os.path.realpath(root / device.lstrip("/")), os.path.realpath(root / "dev")
    if not real.startswith(f"{folder}/"):
        raise TaskFault("refused", f"{device} is not a link to a device in /dev")
    return real


NAME_MAX = 200
_SYSCTL = "/proc/sys/"
SYSTEMCTL = "systemctl"
_ENABLED = {"enabled": True, "enabled-runtime": True, "disabled": False}
_PACKAGE_QUERIES = (
    ("rpm", ("-q", "--queryformat", "installed %{VERSION}-%{RELEASE}", "--")),
    ("dpkg-query", ("--show", "--showformat=${db:Status-Status} ${Version}", "--")),
)


class Systemd:
    """The units of a host with systemd. Source: systemctl(1), `show`: LoadState, ActiveState, UnitFileState."""

    def __init__(self, tools: Processes) -> None:
        self._tools = tools

    def fact(self, unit: str) -> UnitFact | None:
        """The state of a unit; None if it does not exist."""
        output = must(self._tools, (SYSTEMCTL, "show", "--property=LoadState,ActiveState,UnitFileState", "--", unit))
        values = dict(line.partition("=")[::2] for line in output.splitlines())
        if values.get("LoadState") == "not-found":
            return None
        if "ActiveState" not in values:
            raise TaskFault("fault", f"systemctl show gave no state of {unit}")
        active = values["ActiveState"] in ("active", "activating", "reloading")
        enabled = values.get("UnitFileState", "")
        return UnitFact(active=active, enabled=_ENABLED.get(enabled), state=enabled)

    def act(self, unit: str, verb: str) -> None:
        """Run systemctl and wait for it."""
        must(self._tools, (SYSTEMCTL, verb, "--", unit))


def package_version(tools: Processes, package: str) -> str | None:
    """The installed version of a package; None if it is not installed. TaskFault on a host without rpm and dpkg."""
    for program, arguments in _PACKAGE_QUERIES:
        found = shutil.which(program, path="/usr/bin:/bin:/usr/sbin:/sbin")
        if found is not None:
            done = tools.run((found, *arguments, package))
            status, _, number = done.text.strip().partition(" ")
            return number.strip() or None if done.code == 0 and status == "installed" else None
    raise TaskFault("missing", "the version of a package cannot be read: this host has neither rpm nor dpkg")


@dataclass(slots=True, kw_only=True)
class Host:
    """This machine. Tests set another root and another unit manager."""

    policy: Policy = NOTHING
    root: Path = Path("/")
    scratch: Path = Path("/tmp")  # noqa: S108 - an agent passes its own directory
    tools: Processes = field(default_factory=Processes)
    databases: Databases = field(default_factory=Databases)
    units: Systemd | None = None
    disturbances: HostDisturbances | None = None
    """The parts that only faults change; None where no fault is injected."""

    @property
    def files(self) -> Files:
        return Files(self.root)

    @property
    def texts(self) -> Attributes:
        """The kernel attributes of the host."""
        return Attributes(self.root)

    @property
    def disturbed(self) -> HostDisturbances:
        """The parts of the host that only faults change. TaskFault `missing` outside a fault."""
        if self.disturbances is None:
            raise TaskFault("missing", "this agent injects no faults")
        return self.disturbances

    @property
    def manager(self) -> Systemd:
        return self.units or Systemd(self.tools)

    # ---- reading ---------------------------------------------------------------------------------------------------

    def facts(self) -> Facts:
        """The host as it is now: each query is answered when it is first asked. TaskFault if that is not possible."""
        return Facts(read=self.answer)

    def answer(self, query: Query) -> Fact:  # noqa: PLR0911, PLR0912 - one per kind of query
        """Answer one query. Files appear in diffs, so only files that the policy allows to change are read."""
        match query:
            case FileQuery(path=path):
                self.policy.allows_path(path).require()
                return self.files.fact(path)
            case TextQuery(path=path):
                return self.texts.read(path)
            case BytesQuery(path=path):
                return self.texts.octets(path)
            case PathsQuery(pattern=pattern):
                return self.texts.matching(pattern)
            case LinkQuery(path=path):
                return self.texts.link(path)
            case ClaimQuery(device=device):
                return unclaimable(self.root, device)
            case UnitQuery(unit=unit):
                return self.manager.fact(unit)
            case PackageQuery(package=package):
                return package_version(self.tools, package)
            case RowsQuery(system=system, statement=statement):
                return self.databases.rows(system, statement)
            case CopyQuery(system=system):
                return self.databases.copy_state(system)
            case OutputQuery(argv=argv, of_plan=of_plan, within_s=within_s, fault=fault):
                self._allows_program(argv, fault, of_plan=of_plan).require()
                return self.tools.run(argv, within_s)
            case ServerQuery() | AddressQuery() | PlaceQuery() | QdiscQuery() | SpaceQuery() | BusyQuery():
                return self.disturbed.answer(query)
            case _:
                assert_never(query)

    # ---- permission ------------------------------------------------------------------------------------------------

    def objections(self, changes: Sequence[Change]) -> tuple[str, ...]:
        """The policy's reasons against these changes; empty if it allows all."""
        decisions = [decision for change in changes for decision in self._decisions(change)]
        denied = dict.fromkeys((d.reason, d.way_out) for d in decisions if not d)
        return tuple(f"{reason} ({way_out.rstrip('.')})" if way_out else reason for reason, way_out in denied)

    def _decisions(self, change: Change) -> list[Decision]:  # noqa: PLR0911, PLR0912 - one per kind of change
        policy = self.policy
        match change:
            case WriteFile():
                checked = [policy.allows_validator(change.validator)] if change.validator else []
                caused = [*map(policy.allows_tool, change.runs), *map(policy.allows_sysctl, change.sysctls)]
                caused += [*map(policy.allows_rule, change.governs), *map(policy.allows_link, change.links)]
                return [*map(policy.allows_path, (change.path, *change.writes)), *checked, *caused]
            case SetText(path=path) if path.startswith(_SYSCTL):
                return [policy.allows_sysctl(name_of(path))]
            case SetText(path=path):
                return [policy.allows_path(path)]
            case UnitAction():
                return [policy.allows_unit(change.unit)]
            case Command():
                device = [policy.allows_destructive(), policy.allows_device(change.device)] if change.device else []
                argvs = (argv for argv in (change.argv, change.undo) if argv)
                return [*(self._allows_program(argv, change.fault, of_plan=change.of_plan) for argv in argvs), *device]
            case KeepSpans():
                return [policy.allows_device(change.device), policy.allows_tool(change.probe)]
            case Statement(destructive=True, devices=devices):
                return [policy.allows_destructive(), *(policy.allows_device_of(names) for names in devices)]
            case Statement(consents=consents):  # the database checks the permissions of the plan's user
                return [*map(policy.allows_oracle_parameter, consents)]
            case CopyData():  # likewise
                return []
            case ServerAction():  # only a server that the agent has started, by another entry of the policy
                return []
            case TakeSpace():
                of_folder = [] if change.system else [policy.allows_path(change.path)]
                return [
                    policy.allows_fault("fill_disk"),
                    policy.allows_rest(change.path, change.left_bytes),
                    *of_folder,
                ]
            case BusyCpus():
                return [policy.allows_fault("cpu_pressure")]
            case _:
                assert_never(change)

    def _allows_program(self, argv: Sequence[str], fault: str, *, of_plan: bool) -> Decision:
        """A program of a fault is allowed with that fault: its arguments are made here, not by the plan."""
        return self.policy.allows_fault(fault) if fault else self.policy.allows_tool(argv, of_plan=of_plan)

    # ---- changing --------------------------------------------------------------------------------------------------

    def original(self, change: Change) -> Original | None:
        """The state to store before a change of a file, or of the ends of a disk."""
        if isinstance(change, KeepSpans):
            return Original(exists=True, content=kept(self.root, change.device, change.spans))
        if isinstance(change, WriteFile):
            return self.files.original(change.path)
        return None

    def make(self, change: Change, back_to: Original | None = None, run: str = "") -> None:  # noqa: PLR0912 - one per kind of change
        """Make a change; or, with the state before it, undo it, as a change of this run."""
        databases = self.databases if back_to is None else self.databases.of(run)
        match change:
            case WriteFile(path=path):
                if back_to:
                    self.files.put(path, back_to)
                else:
                    self.files.write(path, change.content, change.mode, change.owner, change.group)
            case SetText() if back_to is None:
                self._set(change)
            case SetText(path=path):
                if change.part != "make":
                    self.texts.write(path, change.before)
            case UnitAction(unit=unit):
                if verb := change.undo if back_to else change.verb:
                    self.manager.act(unit, verb)
            case Command():
                if argv := change.undo if back_to else change.argv:
                    must(self.tools, argv, within_s=change.within_s, already=change.already)
            case KeepSpans():
                if back_to:  # it changes nothing: `original` has read the bytes
                    put_back(self.root, change.device, change.spans, back_to.content)
            case Statement(system=system):
                if text := change.undo if back_to else change.text:
                    databases.run(system, text)
            case CopyData(system=system):
                (databases.release_copy if back_to else databases.save_copy)(system)
            case ServerAction() | TakeSpace() | BusyCpus():
                (self.disturbed.undo if back_to else self.disturbed.make)(change)
            case _:
                assert_never(change)

    def _set(self, change: SetText) -> None:
        """Set an attribute. TaskFault where the kernel makes another value of it (a rounded time, one of three
        numbers): it is set back at once, as it would later be taken for the change of another process."""
        if change.part == "undo":
            return
        self.texts.write(change.path, change.after)
        now = " ".join((self.texts.read(change.path) or "").split())
        if change.part == "" and not holds(now, change.after) and not holds(now, change.before):
            self.texts.write(change.path, change.before)
            what = f"{change.path} was {now or 'empty'} after it was set to {change.after}, so it was set back"
            raise TaskFault("refused", what, way_out="give a value that the kernel keeps as it is")

    def validate(self, change: Change) -> None:
        """Run the policy's validator on the new content of a file before the file is replaced.

        TaskFault if it fails.
        """
        if not isinstance(change, WriteFile) or not change.validator:
            return
        trial = self.scratch / f"trial-{Path(change.path).name[-NAME_MAX:]}"
        try:
            trial.write_bytes(change.content)
            must(self.tools, self.policy.validator(change.validator, str(trial)))
        except OSError as error:
            raise TaskFault(
                "disk_full", f"cannot write {trial} for the validator {change.validator}: {error.strerror}"
            ) from error
        except TaskFault as fault:
            raise TaskFault(
                "invalid", f"the validator {change.validator} does not accept {change.path}: {fault.what}"
            ) from fault
        finally:
            trial.unlink(missing_ok=True)
