"""A host, for the interpreter of tuning: answers queries and makes changes, each after a check of the policy.

Flow: `Host.facts(operation)` answers queries until the operation has no new ones; `objections(changes)` are the
refusals of the policy; `original` is the state to store before a change; `make` makes the change. All access to the
host is here or in modules below.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol, TypeAlias, assert_never

from proveout.agent.errors import TaskFault
from proveout.agent.security.policy import NOTHING, Decision, Policy
from proveout.agent.tuning import partition_tables
from proveout.agent.tuning.file_changes import Files, Original
from proveout.agent.tuning.programs import Processes, Tools, must
from proveout.agent.tuning.sql_access import Databases
from proveout.agent.tuning.sysfs import Attributes
from proveout.core.data_classes import dataclass, field
from proveout.dsl.operations.change import (
    BusyCpus,
    Change,
    Command,
    CopyData,
    KeepSpans,
    RemoveFile,
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
    CopyQuery,
    Fact,
    Facts,
    FileQuery,
    LinkQuery,
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
from proveout.dsl.operations.kernel.sysctl import name_of
from proveout.dsl.operations.operation import Operation

Disturbance: TypeAlias = ServerAction | TakeSpace | BusyCpus
DisturbanceQuery: TypeAlias = ServerQuery | AddressQuery | PlaceQuery | QdiscQuery | SpaceQuery | BusyQuery

ROUNDS_MAX = 8
NAME_MAX = 200
_SYSCTL = "/proc/sys/"
SYSTEMCTL = "systemctl"
_ENABLED = {"enabled": True, "enabled-runtime": True, "disabled": False}
_PACKAGE_QUERIES = (
    ("rpm", ("-q", "--queryformat", "installed %{VERSION}-%{RELEASE}", "--")),
    ("dpkg-query", ("--show", "--showformat=${db:Status-Status} ${Version}", "--")),
)


class Units(Protocol):
    """The systemd units of a host. A protocol, because the hosts of tests have no systemd."""

    def fact(self, unit: str) -> UnitFact | None:
        """The state of a unit; None if it does not exist."""
        ...

    def act(self, unit: str, verb: str) -> None:
        """start, stop, restart, reload, enable or disable a unit. TaskFault if that fails."""
        ...


class Disturbances(Protocol):
    """The servers of a session, the room of a disk, the CPUs and the network of the agent, as faults use them."""

    def answer(self, query: DisturbanceQuery) -> Fact:
        """Answer a query. TaskFault if that is not possible."""
        ...

    def make(self, change: Disturbance) -> None:
        """Make a change. TaskFault if that fails."""
        ...

    def undo(self, change: Disturbance) -> None:
        """Undo a change. TaskFault if that fails."""
        ...

    def compare(self, change: Disturbance) -> Literal["before", "made", "other"]:
        """Compare the host with a change."""
        ...


class Systemd:
    """The units of a host with systemd. Source: systemctl(1), `show`: LoadState, ActiveState, UnitFileState."""

    def __init__(self, tools: Tools) -> None:
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


def package_version(tools: Tools, package: str) -> str | None:
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
    tools: Tools = field(default_factory=Processes)
    databases: Databases = field(default_factory=Databases)
    units: Units | None = None
    disturbances: Disturbances | None = None
    """The parts that only faults change; None where no fault is injected."""

    @property
    def files(self) -> Files:
        """The files of the host."""
        return Files(self.root)

    @property
    def texts(self) -> Attributes:
        """The kernel attributes of the host."""
        return Attributes(self.root)

    @property
    def disturbed(self) -> Disturbances:
        """The parts of the host that only faults change. TaskFault `missing` outside a fault."""
        if self.disturbances is None:
            raise TaskFault("missing", "this agent injects no faults")
        return self.disturbances

    @property
    def manager(self) -> Units:
        """The unit manager of the host."""
        return self.units or Systemd(self.tools)

    # ---- reading ---------------------------------------------------------------------------------------------------

    def facts(self, operation: Operation) -> Facts:
        """Answers to all queries of an operation. TaskFault if one cannot be answered."""
        known = Facts()
        for _ in range(ROUNDS_MAX):
            more = [query for query in dict.fromkeys(operation.queries(known)) if query not in known]
            if not more:
                return known
            known = known.with_({query: self.answer(query) for query in more})
        raise TaskFault(
            "fault", f"{type(operation).__name__} has new queries after {ROUNDS_MAX} rounds; this is a bug in proveout"
        )

    def answer(self, query: Query) -> Fact:  # noqa: PLR0911 - one per kind of query
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
                known = not change.validator or change.validator in dict(policy.validators)
                missing = [] if known else [_denied(policy, change.validator)]
                caused = [*map(policy.allows_tool, change.runs), *map(policy.allows_sysctl, change.sysctls)]
                caused += [*map(policy.allows_rule, change.governs), *map(policy.allows_link, change.links)]
                return [*map(policy.allows_path, (change.path, *change.writes)), *missing, *caused]
            case RemoveFile():
                return [policy.allows_path(change.path)]
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
            return Original(exists=True, content=partition_tables.kept(self.root, change.device, change.spans))
        if isinstance(change, (WriteFile, RemoveFile)):
            return self.files.original(change.path)
        return None

    def make(self, change: Change) -> None:  # noqa: PLR0912 - one per kind of change
        """Make a change. TaskFault if that fails."""
        match change:
            case WriteFile():
                self.files.write(change.path, change.content, change.mode, change.owner, change.group)
            case RemoveFile(path=path):
                self.files.put(path, Original(exists=False))
            case SetText(path=path, after=after):
                if change.part != "undo":
                    self.texts.write(path, after)
            case UnitAction(unit=unit, verb=verb):
                if verb:
                    self.manager.act(unit, verb)
            case Command(argv=argv):
                if argv:
                    must(self.tools, argv, within_s=change.within_s, already=change.already)
            case KeepSpans():
                pass  # `original` has read the bytes
            case Statement(system=system, text=text):
                if text:
                    self.databases.run(system, text)
            case CopyData(system=system):
                self.databases.save_copy(system)
            case ServerAction() | TakeSpace() | BusyCpus():
                self.disturbed.make(change)
            case _:
                assert_never(change)

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


def _denied(policy: Policy, validator: str) -> Decision:
    try:
        policy.validator(validator, "/")
    except TaskFault as fault:
        return Decision(allowed=False, reason=fault.what, way_out=fault.way_out)
    return Decision(allowed=True)
