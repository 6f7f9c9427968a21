"""A host as the interpreter sees it: answers to queries, the making of changes, each after the host's policy was asked.

Flow: `Host.facts(operation)` reads until the operation asks nothing new; `objections(changes)` are the policy's refusals; `make`
makes a change; `original` is what has to be kept before. Everything that touches the host is here or beneath.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import assert_never

from proveout.agent.daemon.tasks import TaskFault
from proveout.agent.security.policy import NOTHING, Decision, Policy
from proveout.agent.tuning import package_versions
from proveout.agent.tuning import partition_tables as devices
from proveout.agent.tuning.database_access import Databases
from proveout.agent.tuning.file_changes import Files, Original
from proveout.agent.tuning.programs import Processes, Tools, must
from proveout.agent.tuning.sysfs import Texts
from proveout.agent.tuning.systemd_units import Systemd, Units
from proveout.dsl.operations.change import (
    Change,
    Command,
    KeepSpans,
    RemoveFile,
    SetText,
    Statement,
    UnitAction,
    WriteFile,
)
from proveout.dsl.operations.facts import (
    BytesQuery,
    Fact,
    Facts,
    FileQuery,
    LinkQuery,
    OutputQuery,
    PackageQuery,
    PathsQuery,
    Query,
    RowsQuery,
    TextQuery,
    UnitQuery,
)
from proveout.dsl.operations.kernel.sysctl import name_of
from proveout.dsl.operations.operation import Operation

ROUNDS_MAX = 8
NAME_MAX = 200
_SYSCTL = "/proc/sys/"


def _units(tools: Tools) -> Units:
    return Systemd(tools)


@dataclass(slots=True, kw_only=True)
class Host:
    """This machine; tests give another root, another unit manager."""

    policy: Policy = NOTHING
    root: Path = Path("/")
    scratch: Path = Path("/tmp")  # noqa: S108 - an agent gives its own directory
    tools: Tools = field(default_factory=Processes)
    databases: Databases = field(default_factory=Databases)
    units: Units | None = None

    @property
    def files(self) -> Files:
        """Its files."""
        return Files(self.root)

    @property
    def texts(self) -> Texts:
        """Its kernel's attributes."""
        return Texts(self.root)

    @property
    def manager(self) -> Units:
        """Its unit manager."""
        return self.units or _units(self.tools)

    # ---- reading ---------------------------------------------------------------------------------------------------

    def facts(self, operation: Operation) -> Facts:
        """All that an operation asks, read now. TaskFault when it cannot be told."""
        known = Facts()
        for _ in range(ROUNDS_MAX):
            more = [query for query in dict.fromkeys(operation.queries(known)) if query not in known]
            if not more:
                return known
            known = known.with_({query: self.answer(query) for query in more})
        raise TaskFault("fault", f"{type(operation).__name__} asks without end")

    def answer(self, query: Query) -> Fact:  # noqa: PLR0911 - one per kind of query
        """One answer. A file is shown to whoever reads the diff, so only those the policy lets be changed are read."""
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
                return package_versions.version(self.tools, package)
            case RowsQuery(system=system, statement=statement):
                return self.databases.rows(system, statement)
            case OutputQuery(argv=argv):
                self.policy.allows_tool(argv).require()
                return self.tools.run(argv)
            case _:
                assert_never(query)

    # ---- permission ------------------------------------------------------------------------------------------------

    def objections(self, changes: Sequence[Change]) -> tuple[str, ...]:
        """Why the owner of this host does not allow these changes; none when all are allowed."""
        decisions = [decision for change in changes for decision in self._decisions(change)]
        denied = dict.fromkeys((d.reason, d.way_out) for d in decisions if not d)
        return tuple(f"{reason} ({way_out.rstrip('.')})" if way_out else reason for reason, way_out in denied)

    def _decisions(self, change: Change) -> list[Decision]:  # noqa: PLR0911 - one per kind of change
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
                return [*(policy.allows_tool(argv) for argv in (change.argv, change.undo) if argv), *device]
            case KeepSpans():
                return [policy.allows_device(change.device), policy.allows_tool(change.probe)]
            case Statement(destructive=True, devices=devices):
                return [policy.allows_destructive(), *(policy.allows_device_of(names) for names in devices)]
            case Statement():
                return []  # what the plan's user may do in a database is the database's to say
            case _:
                assert_never(change)

    # ---- changing --------------------------------------------------------------------------------------------------

    def original(self, change: Change) -> Original | None:
        """What must be kept to undo a change of a file, or of a disk's ends."""
        if isinstance(change, KeepSpans):
            return Original(exists=True, content=devices.kept(self.root, change.device, change.spans))
        if isinstance(change, (WriteFile, RemoveFile)):
            return self.files.original(change.path)
        return None

    def make(self, change: Change) -> None:
        """Make a change. TaskFault when it cannot be made."""
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
                    must(self.tools, argv)
            case KeepSpans():
                pass  # what is kept was read before
            case Statement(system=system, text=text):
                if text:
                    self.databases.run(system, text)
            case _:
                assert_never(change)

    def validate(self, change: Change) -> None:
        """Let the policy's validator look at the new content of a file before it is put in place. TaskFault when it does not accept it."""
        if not isinstance(change, WriteFile) or not change.validator:
            return
        trial = self.scratch / f"trial-{Path(change.path).name[-NAME_MAX:]}"
        try:
            trial.write_bytes(change.content)
            must(self.tools, self.policy.validator(change.validator, str(trial)))
        except OSError as error:
            raise TaskFault(
                "disk_full", f"{trial}, which {change.validator} was to look at: {error.strerror}"
            ) from error
        except TaskFault as fault:
            raise TaskFault("invalid", f"{change.path} is not accepted by {change.validator}: {fault.what}") from fault
        finally:
            trial.unlink(missing_ok=True)


def _denied(policy: Policy, validator: str) -> Decision:
    try:
        policy.validator(validator, "/")
    except TaskFault as fault:
        return Decision(allowed=False, reason=fault.what, way_out=fault.way_out)
    return Decision(allowed=True)
