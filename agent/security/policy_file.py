"""Reader of the policy file of a host: strict YAML; errors give the line.

Flow: `read(path)` opens the file once, refuses a file that another user can change (its owner must be root or the
agent's own user, and no other user may write it or a folder on the way to it), parses it with the bounded reader of
plans, checks the listed programs in the same way, and returns a `policy.Policy`. `proveout agent --check-policy FILE`
does the same and prints the result.

Folders, programs, validators and devices of udev rules that are not in `policy` are refused unless their entry has a
reason, `i_know: "why"`. The reasons are in `Policy.widened`; an agent writes them to its log and its audit log when it
starts.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, model_validator

from proveout.agent.security import policy
from proveout.agent.security.policy import Policy, Tool
from proveout.agent.security.protected_paths import PATHS_OF_THE_HOST, is_runner
from proveout.core import units
from proveout.core.errors import PlanError, ProveoutError
from proveout.core.linux import PROGRAM_SYSCTLS
from proveout.core.path_trust import exposure_above, exposure_of, names_of
from proveout.dsl.engines import EMBEDDED
from proveout.dsl.operations.multipath import FOLDERS_OF_UDEV
from proveout.dsl.operations.parameter_names import CONSENT, needs_consent
from proveout.dsl.plan.model_values import Strict
from proveout.dsl.plan.scalars import Name, custom
from proveout.dsl.schema.validation import validate
from proveout.dsl.source import loader
from proveout.dsl.source.nodes import Problems

BYTES_MAX = 1 << 20
DOCUMENT = loader.Document(name="policy", opening="policy: 1")

_RUNS_ANY = (
    "runs any program that it is given, so no entry may list it, with or without a reason: list the program that plans "
    "need, or a script of the host's owner that starts it"
)
REASON_LETTERS_MIN = 4
_FOLDER = re.compile(r"[a-z][a-z0-9_-]{0,39}")


class PolicyError(PlanError):
    """A policy that is not valid; carries every problem found."""

    def __str__(self) -> str:
        lines = (
            f"{found.where}: {found.message}" + (f" ({found.hint})" if found.hint else "") for found in self.problems
        )
        return "\n".join(("the policy is not valid", *lines))


def _must(be: Callable[[str], object], otherwise: str) -> AfterValidator:
    """Refuse a text for which `be` is false."""

    def checked(text: str) -> str:
        if not be(text):
            raise custom(f"`{text}` {otherwise}")
        return text

    return AfterValidator(checked)


def _root(path: str) -> str:
    if not policy.is_plain_path(path):
        raise custom(f"`{path}` is not an absolute path without `.`, `..` and doubled slashes")
    if (reason := policy.trusted_by_root(path)) is not None:
        raise custom(f"`{path}` cannot be allowed: {reason}")
    wide = [kept for kept in PATHS_OF_THE_HOST if policy.is_beneath(kept, path)]
    if path == "/" or wide:
        raise custom(
            f"`{path}` is too wide: it contains {wide[0] if wide else 'everything'}; list the folder that plans need"
        )
    return path


def _size(text: str) -> str:
    try:
        units.size_bytes(text)
    except ValueError as error:
        raise custom(str(error)) from None
    return text


def _program(path: str) -> str:
    if not policy.is_plain_path(path):
        raise custom(f"`{path}` is not the absolute path of a program")
    if is_runner(posixpath.basename(path)):
        raise custom(f"`{path}` {_RUNS_ANY}")
    return path


def _argument(text: str) -> str:
    if name := policy.unknown_form(text):
        forms = ", ".join(f"{{{one}}}" for one in policy.FORMS)
        raise custom(f"`{text}`: `{{{name}}}` is not a form of a value; the forms are {forms}")
    return text


def _reason(text: str) -> str:
    if sum(character.isalpha() for character in text) < REASON_LETTERS_MIN or not text.isprintable():
        raise custom(f"{text!r} is not a reason: write in one line why plans may do this; the audit log repeats it")
    return text


Word = Annotated[str, StringConstraints(min_length=1, max_length=400)]
Arguments = list[Annotated[Word, AfterValidator(_argument)]]
Program = Annotated[Word, AfterValidator(_program)]
Reason = Annotated[Word, AfterValidator(_reason)]
Folder = Annotated[Word, AfterValidator(_root)]
Sysctl = Annotated[
    Word,
    _must(
        lambda glob: glob not in PROGRAM_SYSCTLS and any(part.strip("*") for part in glob.split(".")),
        "cannot be allowed: it matches every setting, or one that holds a command of the kernel",
    ),
]
Unit = Annotated[
    Word, _must(lambda glob: glob.rpartition(".")[0].strip("*?"), "is not a unit such as multipathd.service")
]
Device = Annotated[
    Word,
    _must(
        policy.DEVICE_NAME.fullmatch,
        "is not a stable name of a device: write /dev/disk/by-id/NAME or serial:NUMBER",
    ),
]
LinkFolder = Annotated[
    Word,
    _must(
        lambda name: _FOLDER.fullmatch(name) and name not in FOLDERS_OF_UDEV,
        "is not a folder of /dev for links of plans, such as oraudev",
    ),
]
Parameter = Annotated[
    Word,
    _must(
        needs_consent,
        "is not a parameter of Oracle that needs consent: a hidden one (_high_priority_processes), "
        + ", ".join(sorted(CONSENT)),
    ),
]
Embedded = Annotated[
    Word, _must(EMBEDDED.__contains__, f"is not an engine that proveout can start: {', '.join(EMBEDDED)}")
]
Fault = Annotated[
    Word, _must(policy.FAULTS.__contains__, f"is not a fault that a policy lists: {', '.join(policy.FAULTS)}")
]


class _Widened(Strict):
    """An entry with an optional reason."""

    i_know: Reason | None = None


def _short(name: str) -> BeforeValidator:
    """An entry in short form: the value of `name` alone."""
    return BeforeValidator(lambda given: {name: given} if isinstance(given, (str, list)) else given)


class RebootEntry(Strict):
    """The permission to reboot the host, with its reason."""

    i_know: Reason


class PathEntry(_Widened):
    """A folder below which plans may write files."""

    path: Folder

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.i_know is None and not policy.is_known_folder(self.path):
            way_out = policy.folder_way_out(self.path)
            raise custom(f"`{self.path}` is not in the list of folders that tuning needs ({way_out})")
        return self


class ToolEntry(_Widened):
    """A program that may be started."""

    path: Program
    arguments: Arguments = Field(default_factory=list, max_length=200)

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.i_know is not None:
            return self
        pattern, way_out = policy.known_arguments(self.path), policy.program_way_out(self.path)
        if pattern is None:
            raise custom(f"`{self.path}` is not in the list of programs that tuning needs ({way_out})")
        for word in self.arguments:
            if policy.is_literal(word) and not policy.matches(pattern, word):
                raise custom(f"`{word}` is not in the list of arguments of {self.path} ({way_out})")
        return self


class CommandEntry(_Widened):
    """A program whose output plans may read, and which they may run as load, as the unprivileged user."""

    path: Program
    arguments: Arguments = Field(default_factory=list, max_length=200)
    privileged: bool = False

    @model_validator(mode="after")
    def _reasoned(self) -> Self:
        if self.i_know is None and (glob := next(filter(policy.has_wildcard, self.arguments), None)):
            what = f"`{glob}` of {self.path} is a glob, which may match options that run programs or write files"
            raise custom(f"{what} ({policy.argument_way_out(self.path)})")
        if self.privileged and self.i_know is None:
            line = f'{{path: {self.path}, arguments: […], privileged: true, i_know: "why it needs that"}}'
            raise custom(f"`{self.path}` would run as the agent's own user, which may be root; give a reason: {line}")
        return self


class ValidatorEntry(_Widened):
    """A program that validates a file before the agent installs it."""

    run: Annotated[list[Word], Field(min_length=2, max_length=50)]

    @model_validator(mode="after")
    def _known(self) -> Self:
        _program(self.run[0])
        if sum(word.count("{file}") for word in self.run[1:]) != 1:
            raise custom("a validator has exactly one argument with {file}")
        if self.i_know is None and not policy.is_known_validator(argv := tuple(self.run)):
            way_out = policy.validator_way_out(argv)
            raise custom(
                f"`{' '.join(argv)}` is not in the list of validators, which run nothing in the file ({way_out})"
            )
        return self


class RuleEntry(_Widened):
    """Devices that udev rules of plans may match."""

    match: Word

    @model_validator(mode="after")
    def _known(self) -> Self:
        if objection := policy.objection(self.match):
            raise custom(objection)
        if self.i_know is None and not policy.is_known(self.match):
            hint = (
                'if no disk of the host itself matches it, write {match: "'
                + self.match
                + '", i_know: "what it matches"}'
            )
            raise custom(f"`{self.match}` may match the system disk ({hint})")
        return self


class UdevEntry(Strict):
    """Devices that udev rules of plans may match, and folders for their links."""

    devices: list[Annotated[RuleEntry, _short("match")]] = Field(default_factory=list, max_length=1000)
    links: list[LinkFolder] = Field(default_factory=list, max_length=100)


class PolicyEntry(Strict):
    """The whole file."""

    policy: Literal[1]
    sysctl: list[Sysctl] = Field(default_factory=list, max_length=1000)
    units: list[Unit] = Field(default_factory=list, max_length=1000)
    paths: list[Annotated[PathEntry, _short("path")]] = Field(default_factory=list, max_length=1000)
    devices: list[Device] = Field(default_factory=list, max_length=1000)
    tools: list[ToolEntry] = Field(default_factory=list, max_length=200)
    commands: list[CommandEntry] = Field(default_factory=list, max_length=200)
    validators: dict[Name, Annotated[ValidatorEntry, _short("run")]] = Field(default_factory=dict)
    udev: UdevEntry = Field(default_factory=UdevEntry)
    destructive: bool = False
    reboot: RebootEntry | None = None
    oracle_parameters: list[Parameter] = Field(default_factory=list, max_length=200)
    provision: list[Embedded] = Field(default_factory=list, max_length=100)
    provision_as_agent_user: bool = False
    database_files: list[Folder] = Field(default_factory=list, max_length=1000)
    faults: list[Fault] = Field(default_factory=list, max_length=100)
    disk_left: Annotated[Word, AfterValidator(_size)] = "1GiB"

    def widened(self) -> tuple[tuple[str, str], ...]:
        """The entries with a reason, and their reasons."""
        entries: list[tuple[str, str | None]] = [
            *((one.path, one.i_know) for one in self.paths),
            *((_words(one), one.i_know) for one in self.tools),
            *((_words(one), one.i_know) for one in self.commands),
            *((" ".join(one.run), one.i_know) for one in self.validators.values()),
            *((one.match, one.i_know) for one in self.udev.devices),
            *(("reboot", one.i_know) for one in (self.reboot,) if one),
        ]
        return tuple((what, why) for what, why in entries if why)


LISTS = ("sysctl", "units", "devices", "oracle_parameters", "provision", "database_files", "faults")
"""The keys whose entries are texts; `Policy` has them under the same names."""


def read(path: Path) -> Policy:
    """Read a policy.

    ProveoutError if another user can change the file, PolicyError with every line that is not valid.
    """
    content = _read_trusted(path.absolute())
    problems = Problems()
    root = loader.loads(content, str(path), problems, DOCUMENT)
    entry = validate(PolicyEntry, root, "", problems) if root is not None else None
    if problems.found or entry is None:
        raise PolicyError(problems.error().problems)
    listed = [tool.path for tool in entry.tools] + [command.path for command in entry.commands]
    programs = [*map(Path, listed), *(Path(one.run[0]) for one in entry.validators.values())]
    for program in programs:
        _check_program(path, program)
    lists: dict[str, Any] = {name: tuple(getattr(entry, name)) for name in LISTS}
    return Policy(
        source=str(path.absolute()),
        paths=tuple(one.path for one in entry.paths),
        udev_devices=tuple(one.match for one in entry.udev.devices),
        udev_links=tuple(entry.udev.links),
        tools=tuple(map(_tool, entry.tools)),
        commands=tuple(
            Tool(path=one.path, arguments=tuple(one.arguments), privileged=one.privileged) for one in entry.commands
        ),
        validators=tuple((name, tuple(one.run)) for name, one in entry.validators.items()),
        widened=entry.widened(),
        destructive=entry.destructive,
        reboot=entry.reboot is not None,
        provision_as_agent_user=entry.provision_as_agent_user,
        disk_left_bytes=units.size_bytes(entry.disk_left),
        programs=names_of(*programs),
        **lists,
    )


def _tool(entry: ToolEntry) -> Tool:
    known = policy.known_arguments(entry.path) if entry.i_know is None else None
    return Tool(path=entry.path, arguments=tuple(entry.arguments), known=known)


def _read_trusted(path: Path) -> bytes:
    """The content of the file, if only root and the agent's own user can change or replace it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise _unusable(
            path, f"cannot read the policy: {error.strerror}", "Name a regular file, not a symbolic link."
        ) from error
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > BYTES_MAX:
            raise _unusable(path, f"the policy is not a regular file of at most {BYTES_MAX >> 20} MiB", "Name a file.")
        if found.st_uid not in (0, os.geteuid()) or found.st_mode & 0o022:
            raise _unusable(path, "other users can write the policy", f"chown root {path}; chmod 644 {path}")
        exposure = exposure_above(path)
        if exposure is not None:
            raise _unusable(path, f"other users can replace the policy: {exposure.what}", exposure.way_out)
        return os.read(descriptor, BYTES_MAX)
    finally:
        os.close(descriptor)


def _check_program(source: Path, program: Path) -> None:
    """ProveoutError if other users can change or replace a listed program.

    A missing program is reported when it is needed. A link to a program that runs others is refused; BusyBox and
    Toybox run the program of the link's name.
    """
    target = os.path.realpath(program)
    if is_runner(name := posixpath.basename(target)) and name not in ("busybox", "toybox"):
        raise _unusable(source, f"{program}, which it lists, is a link to {target}, which {_RUNS_ANY}", "Take it out.")
    exposure = exposure_above(program)
    if exposure is not None:
        raise _unusable(source, f"other users can replace {program}, which it lists: {exposure.what}", exposure.way_out)
    with contextlib.suppress(OSError):
        exposure = exposure_of(program)
    if exposure is not None:
        raise _unusable(source, f"other users can change {program}, which it lists: {exposure.what}", exposure.way_out)


def _unusable(path: Path, what: str, way_out: str) -> ProveoutError:
    error = ProveoutError(what, where=str(path), way_out=way_out)
    error.exit_code = 2
    return error


def describe(found: Policy) -> str:
    """A policy as text: a line for each kind of entry, `nothing` for a kind without entries, and what follows from each
    entry with a reason."""
    rows = [
        ("kernel settings", found.sysctl),
        ("units", found.units),
        ("files in", found.paths),
        ("devices", found.devices),
        ("programs", [*map(_words, found.tools)]),
        ("commands", [*map(_words, found.commands)]),
        ("validators", [f"{name} ({' '.join(argv)})" for name, argv in found.validators]),
        ("udev rules for", [*found.udev_devices, *(f"links in /dev/{folder}" for folder in found.udev_links)]),
        ("destroying data", ["yes"] if found.destructive else []),
        ("reboots", ["yes"] if found.reboot else []),
        ("oracle settings", found.oracle_parameters),
        ("servers", found.provision),
        ("servers as agent", ["yes"] if found.provision_as_agent_user else []),
        ("database files", found.database_files),
        ("faults", _faults(found)),
    ]
    kept = [own for own in found.own_folders if any(policy.is_beneath(own, listed) for listed in found.paths)]
    rows += [("but not in", kept)] if kept else []
    lines = [f"{name + ':':<17} {', '.join(values) if values else 'nothing'}" for name, values in rows]
    if found.widened:
        lines += [
            "",
            "At the risk of the host's owner (i_know): proveout does not know what these start, load or write.",
        ]
        lines += [f"  {what} ({why}): {_consequence(what, found)}" for what, why in found.widened]
    return "\n".join(lines)


def _words(program: Tool | ToolEntry | CommandEntry) -> str:
    return " ".join((program.path, *program.arguments))


def _consequence(what: str, found: Policy) -> str:
    """The permission that an entry with a reason gives to plans."""
    tool = next((one for one in (*found.tools, *found.commands) if _words(one) == what), None)
    if tool is not None:
        user = "the agent's own" if tool.privileged or tool in found.tools else "the unprivileged"
        given = "any arguments that match these" if tool.arguments else "no arguments"
        return f"plans start it as {user} user, with {given}"
    if what in found.paths:
        return "plans write files of any name and content below it, for every program that reads them"
    if what == "reboot":
        return "plans reboot this host, and whatever runs on it ends"
    if what in found.udev_devices:
        return "udev rules of plans give these devices owners, modes and links"
    return "it reads files of plans as the agent's own user"


def _faults(found: Policy) -> list[str]:
    left = f" (leaves {units.format_size(found.disk_left_bytes)})"
    return [f"{name}{left if name == 'fill_disk' else ''}" for name in found.faults]
