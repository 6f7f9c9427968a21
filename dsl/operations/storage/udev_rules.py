"""`udev_rules`: a file of /etc/udev/rules.d, from pairs of device properties to match and values to assign. Source:
udev(7).

A rule is made of keys listed here, with quoted values that cannot end early: there is no way to RUN or IMPORT anything.
`program` is udev's PROGRAM, for devices that only their vendor's tool can tell apart; the policy of the host has to
list it with its arguments.

A rule that gives an owner, a mode, a link or a property names its devices by a pair of `match` that the policy of the
host lists (`WriteFile.governs`). Links lie in a folder of their own below /dev. Of udev's substitutions only the
kernel's own name and number of a device are taken: an environment variable or the output of a program can be empty or
hold `..`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from proveout.dsl.operations.change import Change, WriteFile, around
from proveout.dsl.operations.facts import Facts, FileQuery, Query
from proveout.dsl.operations.operation import Operation, Step, whole_file
from proveout.dsl.operations.types import AbsolutePath, Line
from proveout.dsl.schema.scalar_types import custom

UDEVADM = "/usr/bin/udevadm"
_FILE = re.compile(r"/etc/udev/rules\.d/[0-9]{2}-[A-Za-z0-9][A-Za-z0-9_.-]*\.rules")
_MATCH = re.compile(
    r"ACTION|DEVPATH|KERNELS?|SUBSYSTEMS?|DRIVERS?|RESULT|TAGS?|(ATTRS?|ENV)\{[A-Za-z0-9_][A-Za-z0-9_./-]*\}"
)
_QUEUES = "/sys/block/queue"
"""The path of the queues of all disks, for the check against a policy."""
_ASSIGN = re.compile(r"SYMLINK|OWNER|GROUP|MODE|ATTR\{queue/[a-z][a-z_]*\}|ENV\{(DM_UDEV|ID|UDISKS)_[A-Z0-9_]{1,60}\}")
_VALUE = re.compile(r"[ !#$%&'()*+,./0-9:;<=>?@A-Z\[\]^_a-z{|}~-]+")
_MODE = re.compile(r"0?[0-7]{3}")
_ACCOUNT = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_LINK = re.compile(r"[A-Za-z0-9%${}_.:+-]+(/[A-Za-z0-9%${}_.:+-]+)+")
_SUBSTITUTION = re.compile(r"%[kn]|\$(kernel|number|name)(?![a-z])")
"""The kernel's name of a device (`sdb1`), its number (`1`, or nothing) and its name in /dev."""
FOLDERS_OF_UDEV = frozenset(
    {
        "block", "bus", "char", "core", "cpu", "cpu_dma_latency", "disk", "dma_heap", "dri", "fd", "hugepages",
        "infiniband", "input",
        "log", "mapper", "md", "mqueue", "net", "nvme-fabrics", "pts", "raw", "serial", "shm", "snd", "usb", "v4l",
        "vfio", "vhost-net",
    }
)  # fmt: skip
"""Folders of /dev that hold names of udev, of the kernel or of the C library."""
_WORLD_WRITE = 0o002


def _file(path: str) -> str:
    if not _FILE.fullmatch(path):
        raise custom(f"`{path}` is not a file of /etc/udev/rules.d: /etc/udev/rules.d/66-NAME.rules")
    return path


def _match_key(key: str) -> str:
    if not _MATCH.fullmatch(key):
        raise custom(
            f"`{key}` is not a key that a device is matched by: KERNEL, SUBSYSTEM, ENV{{NAME}}, ATTRS{{name}}, RESULT …"
        )
    return key


def _assign_key(key: str) -> str:
    if key.startswith(("RUN", "IMPORT", "PROGRAM")):
        raise custom(f"`{key}` would have udev run something as root; no plan sets it")
    if not _ASSIGN.fullmatch(key):
        raise custom(
            f"`{key}` is nothing that a plan gives a device: SYMLINK, OWNER, GROUP, MODE, ATTR{{queue/…}}, ENV{{ID_…}}"
        )
    return key


def _value(value: str) -> str:
    if not _VALUE.fullmatch(value):
        raise custom(f'{value!r} cannot stand in a rule: printable ASCII without ", \\ and `')
    return value


def _word(value: str) -> str:
    if " " in _value(value):
        raise custom(f"{value!r} holds a blank, which udev would take for the end of an argument")
    return _substituted(value)


def _substituted(value: str) -> str:
    """The value, if its substitutions are known and it does not lead out of a folder whatever they stand for."""
    plain, empty = _SUBSTITUTION.sub("x", value), _SUBSTITUTION.sub("", value)
    if "%" in plain or "$" in plain:
        raise custom(
            f"`{value}` holds a substitution other than %k, %n, $kernel, $number, $name: it could stand for `..`"
        )
    if any(".." in re.split(r"[/=:,]", word) for word in (plain, empty)):
        raise custom(f"`{value}` leads out of its folder by `..`")
    return value


def _program(words: list[str]) -> list[str]:
    if words and (not words[0].startswith("/") or _SUBSTITUTION.search(words[0])):
        raise custom(f"`{words[0]}` is not the absolute path of a program")
    return words


def _link(link: str) -> None:
    """A link below /dev that cannot take the place of another name of a device."""
    folder = link.split("/", maxsplit=1)[0]
    if not _LINK.fullmatch(link):
        raise custom(f"`{link}` is not a name in a folder below /dev, as oraudev/disks/DATA1")
    if folder == "oracleasm":
        raise custom("/dev/oracleasm is ASMLib's own file system; name another folder, as oraudev/disks")
    if folder in FOLDERS_OF_UDEV or _SUBSTITUTION.search(folder):
        raise custom(f"`{link}` could hide another name of a device; name a folder of its own, as oraudev/disks")
    if {"", "."} & set(_SUBSTITUTION.sub("", _substituted(link)).split("/")):
        raise custom(f"`{link}` is not a plain name")


def _checked(key: str, value: str) -> None:
    """A value to assign, checked by the rules of its key."""
    if key == "MODE" and (not _MODE.fullmatch(value) or int(value, 8) & _WORLD_WRITE):
        raise custom(f'MODE {value} is not a mode, as "0660", or makes the device writable for all users')
    if key in ("OWNER", "GROUP") and not _ACCOUNT.fullmatch(value):
        raise custom(f"`{value}` is not the name of a user or group")
    if key == "SYMLINK":
        for link in value.split(" "):
            _link(link)


def _assigned(given: dict[str, str]) -> dict[str, str]:
    for key, value in given.items():
        _checked(key, value)
    return given


Value: TypeAlias = Annotated[Line, AfterValidator(_value)]
Matches: TypeAlias = dict[Annotated[str, AfterValidator(_match_key)], Value]
Assigns: TypeAlias = Annotated[
    dict[Annotated[str, AfterValidator(_assign_key)], Value], Field(min_length=1), AfterValidator(_assigned)
]


class Rule(BaseModel):
    """One rule: a device with all of `match` and none of `unless` gets the values of `assign`."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)

    match: Matches = Field(min_length=1, max_length=50, description='Keys of udev(7) and patterns: {KERNEL: "sd*"}.')
    unless: Matches = Field({}, max_length=50, description="Keys and patterns that must not match.")
    program: Annotated[list[Annotated[Line, AfterValidator(_word)]], AfterValidator(_program)] = Field(
        [],
        max_length=20,
        description="A program that udev starts to tell devices apart, and its arguments; `RESULT` in `match` is its "
        "expected output.",
    )
    assign: Assigns = Field(description='Assignments: {OWNER: grid, MODE: "0660"}; SYMLINK is added.')

    @property
    def gives(self) -> bool:
        """Whether it gives devices an owner, a mode, a link or a property, and not only settings of their queues."""
        return any(not key.startswith("ATTR{queue/") for key in self.assign)

    @property
    def links(self) -> tuple[str, ...]:
        """The links that it makes, below /dev."""
        return tuple(self.assign["SYMLINK"].split(" ")) if "SYMLINK" in self.assign else ()

    def line(self) -> str:
        """The rule as udev reads it; PROGRAM precedes the RESULT that it gives."""
        return ", ".join(self._parts())

    def _parts(self) -> Iterator[str]:
        result = {key: value for key, value in self.match.items() if key == "RESULT"}
        yield from (f'{key}=="{value}"' for key, value in self.match.items() if key not in result)
        yield from (f'{key}!="{value}"' for key, value in self.unless.items())
        if self.program:
            yield f'PROGRAM=="{" ".join(self.program)}"'
        yield from (f'{key}=="{value}"' for key, value in result.items())
        for key, value in self.assign.items():
            yield f'{key}{"+=" if key == "SYMLINK" else "="}"{value}"'


class UdevRules(Operation):
    """Rules for devices, in a file of their own: `{file: /etc/udev/rules.d/66-x.rules, rules: [{match: …, assign:
    …}]}`."""

    file: Annotated[AbsolutePath, AfterValidator(_file)] = Field(
        description="The file of /etc/udev/rules.d that holds them, whole and alone."
    )
    rules: list[Rule] = Field(min_length=1, max_length=500, description="The rules, in order.")
    subsystem: Annotated[str, Field(pattern=r"^[a-z0-9_]{1,40}$")] = Field(
        "block", description="The devices that udev looks at again afterwards."
    )
    validator: Annotated[str, Field(max_length=80)] = Field(
        "", description="A check of the host's policy that has to accept the file first."
    )

    privileges = "root: writes /etc/udev/rules.d, runs udevadm"

    @property
    def lasting(self) -> str:
        """Attributes that udev writes: it restores none when the rule is removed; `block_queue` does."""
        attributes = [key for rule in self.rules for key in rule.assign if key.startswith("ATTR{")]
        return f"what udev writes to {attributes[0]}" if attributes else ""

    def targets(self) -> Mapping[str, str]:
        """The file."""
        return {f"file {self.file}": self._content().decode()}

    def wanted(self) -> tuple[str, ...]:
        """The rules, and when they take effect."""
        after = f"udev reads them at once and looks at all {self.subsystem} devices again"
        return (f"{self.file}:", *(f"  {rule.line()}" for rule in self.rules), after)

    def queries(self, known: Facts) -> tuple[Query, ...]:
        """The file."""
        return (FileQuery(self.file),)

    def changes(self, facts: Facts) -> Step:
        """The file; udev reads it and evaluates the devices again, also on undo."""
        step = whole_file(facts, self.file, self._content(), validator=self.validator)
        runs = tuple(tuple(rule.program) for rule in self.rules if rule.program)
        writes = (_QUEUES,) if self.lasting else ()
        governs = tuple(tuple(rule.match.items()) for rule in self.rules if rule.gives)
        links = tuple(link for rule in self.rules for link in rule.links)
        changes: tuple[Change, ...] = tuple(
            dataclasses.replace(change, runs=runs, writes=writes, governs=governs, links=links)
            if isinstance(change, WriteFile)
            else change
            for change in step.changes
        )
        for argv in self._after():
            changes = around(changes, argv)
        return Step(changes=changes, refusals=step.refusals)

    def _after(self) -> Iterator[tuple[str, ...]]:
        yield (UDEVADM, "control", "--reload")
        yield (UDEVADM, "trigger", "--action=change", f"--subsystem-match={self.subsystem}")
        yield (UDEVADM, "settle", "--timeout=30")

    def _content(self) -> bytes:
        return "".join(f"{rule.line()}\n" for rule in self.rules).encode()
