"""The contract of a tuning operation, and the checked types of its texts.

Data flow: the YAML block is the model's fields; `wanted` is a pure function of them, `changes` of them and of facts.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Self, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from proveout.core.data_classes import record
from proveout.core.linux import UNIT_KINDS
from proveout.dsl.operations.change import Change, SetText, WriteFile
from proveout.dsl.operations.facts import Facts, FileFact
from proveout.dsl.plan.model_values import Strict
from proveout.dsl.plan.scalars import custom
from proveout.dsl.plan.topology import Host, System
from proveout.dsl.source.nodes import Map, Node, Scalar, Steps, rewritten

# No value of a tuning goes through a shell, but values in files and argvs are read by other programs. So no value can
# contain a line break, begin like an option, or lead out of its folder.

PATH_MAX = 1024
_PATH = re.compile(r"/[A-Za-z0-9._+@:=,%/-]*[A-Za-z0-9_+@=%-]")
_OF_OPERATIONS = {
    "/etc/fstab": "mount",
    "/etc/multipath": "multipath",
    "/etc/multipath.conf": "multipath",
    "/etc/security/limits.conf": "limits",
    "/etc/security/limits.d": "limits",
    "/etc/sysctl.conf": "sysctl",
    "/etc/sysctl.d": "sysctl",
    "/etc/udev": "udev_rules",
}
"""Configuration files that can make root run a program, and the one operation that may write each of them."""
_UNIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9:_.@\\-]{0,200}")
_OWN_UNITS = re.compile(
    r"(ssh|sshd|dbus|dbus-broker|NetworkManager|network|networking|init|systemd-[a-z-]+|proveout[a-z-]*)(@.*)?\.[a-z]+"
    r"|(reboot|soft-reboot|poweroff|halt|kexec|exit|shutdown|final|umount|emergency|rescue|ctrl-alt-del|runlevel[0-9]"
    r"|suspend|hibernate|hybrid-sleep|suspend-then-hibernate|sysinit|basic|local-fs|multi-user|graphical|default)\.target"
)
ACCOUNT = r"[a-z_][a-z0-9_-]{0,31}"
CONF_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.-]*\.conf"
OCTAL = re.compile(r"0?[0-7]{3}")


def matching(pattern: str, complaint: str) -> AfterValidator:
    """A text that the whole of a regular expression matches; of another one `complaint` says what it is not, with the
    text as `{value}`."""

    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise custom(complaint.format(value=value))
        return value

    return AfterValidator(check)


def in_folder(folder: str, pattern: str, example: str = "NAME.conf") -> AfterValidator:
    """The path of a file in a folder of configuration files, by the pattern of its name."""
    return matching(f"{re.escape(folder)}/{pattern}", f"`{{value}}` is not a file of {folder}: {folder}/{example}")


_NOT_PLAIN = re.compile(r"[\0-\x1f\x7f-\x9f\u2028\u2029\ufeff\u202a-\u202e\u2066-\u2069]")
"""Control characters, separators of lines and paragraphs, and marks of direction."""


def no_control(value: str) -> str:
    """Text on one line."""
    if found := _NOT_PLAIN.search(value):
        raise custom(f"{found[0]!r} cannot stand here: one line of plain text")
    return value


def _path(value: str) -> str:
    if not value.startswith("/"):
        raise custom(f"`{value}` is not an absolute path")
    parts = value.split("/")[1:]
    if ".." in parts or "." in parts or "" in parts:
        raise custom(f"`{value}` is not a plain path: no `..`, `.`, `//` or `/` at the end")
    if not _PATH.fullmatch(value) or any(part.startswith("-") for part in parts):
        raise custom(f"`{value}` is not a path that can be used here: ASCII letters, digits and . _ + @ : = , % -")
    return value


def _path_of_no_operation(value: str) -> str:
    for place, operation in _OF_OPERATIONS.items():
        if value == place or value.startswith(f"{place}/"):
            raise custom(f"`{value}` can only be written by `{operation}`, which checks its contents")
    return value


def unit_name(value: str) -> str:
    """A unit with its kind, `tuned` being `tuned.service`; those that the host cannot be reached without are
    refused."""
    if not _UNIT.fullmatch(value):
        raise custom(f"`{value}` is not the name of a systemd unit")
    whole = value if value.rpartition(".")[2] in UNIT_KINDS else f"{value}.service"
    if _OWN_UNITS.fullmatch(whole):
        raise custom(f"`{whole}` is left alone: the host, or its agent, could not be reached without it")
    return whole


def _mode(value: object) -> object:
    """Permission bits, written "0644": YAML's own numbers are decimal."""
    if isinstance(value, str) and OCTAL.fullmatch(value):
        return int(value, 8)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 0o777:
        return value  # from the compiled plan
    raise custom(f'{value} is not a mode: write it as "0644", in quotes')


Line: TypeAlias = Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(no_control)]
AbsolutePath: TypeAlias = Annotated[str, Field(min_length=2, max_length=PATH_MAX), AfterValidator(_path)]
OwnPath: TypeAlias = Annotated[AbsolutePath, AfterValidator(_path_of_no_operation)]
"""The path of a file that no other operation is there for."""
UnitName: TypeAlias = Annotated[str, Field(min_length=1, max_length=210), AfterValidator(unit_name)]
Account: TypeAlias = Annotated[str, matching(ACCOUNT, "`{value}` is not the name of a user or group")]
Mode: TypeAlias = Annotated[
    int, BeforeValidator(_mode), WithJsonSchema({"type": "string", "pattern": "^0?[0-7]{3}$", "description": '"0644"'})
]


@record
class Waiting:
    """A setting that is stored but not in effect: its name, and the missing step."""

    text: str


Found: TypeAlias = Change | Waiting | str
"""A change to make; a setting that waits; as a text, the reason why the operation must not be done here."""


@record
class Step:
    """The result of an operation on the facts of a host.

    `refusals`: why it must not be done here; then nothing is changed. `restarts`: settings that are stored but not in
    effect, each with the missing step. No changes, no refusals, no restarts: the host is as wanted. `notes`: remarks on
    the changes, for people.
    """

    changes: tuple[Change, ...] = ()
    refusals: tuple[str, ...] = ()
    restarts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@record
class Misfit:
    """The reason that an operation cannot be used in a plan, and the way out."""

    message: str
    way_out: str = ""


class Operation(Strict, ABC):
    """A tuning operation. Subclasses are listed in `table.OPERATIONS`; their docstring and field descriptions are the
    reference."""

    privileges: ClassVar[str]
    """The privileges that the agent needs, for `explain`: "root: writes /proc/sys"; several are separated by `; `."""
    destructive: ClassVar[bool] = False
    """Whether it can destroy data: the tuning then needs `destructive: true`."""
    of_fault: ClassVar[bool] = False
    """Whether it is only for `faults:`."""
    implied: ClassVar[bool] = False
    """Whether only the compiler adds it, for another key of a plan."""
    ends_by_itself: ClassVar[bool] = False
    """Whether, as a fault, it is over as soon as it is done (a restart): such a fault has no `for`."""
    outlasts: ClassVar[bool] = False
    """Whether, as a fault, it stays in place until the load has ended, and the run then restores the roles."""

    @classmethod
    def reshape(cls, block: Map) -> Map:
        """The block as the fields have it, where a plan writes it shorter; positions are kept."""
        return block

    @property
    def changing(self) -> bool:
        """Whether it changes anything; False for an operation that only checks, and refuses the run where a host is not
        as wanted."""
        return True

    @property
    def longest_s(self) -> float:
        """The time limit of its own programs together where they may take long, seconds, for the deadline of a task."""
        return 0.0

    @property
    def of_system(self) -> str | None:
        """The system of the plan that it tunes, which must run then; None when it tunes the host."""
        return getattr(self, "system", None)

    @property
    def selectors(self) -> Sequence[Sequence[str]]:
        """Selectors of hosts among its own keys, where these choose the hosts that it changes, and not `on`."""
        return ()

    def placed(self, groups: Sequence[Sequence[Host]], systems: Mapping[str, System]) -> Self | Misfit:
        """The operation with what it needs of the plan: the hosts of each of its `selectors`, and the systems by
        name."""
        del groups, systems
        return self

    @property
    def lasting(self) -> str:
        """Effects that stay on the host after undo: such a tuning needs `keep: true`. "" when there are none."""
        return ""

    def subject_of(self, statement: str) -> str:
        """The path of a statement below the tuning, `sql.apply.0`, where it is the plan's own text; else ""."""
        del statement
        return ""

    @abstractmethod
    def targets(self) -> Mapping[str, str]:
        """Target -> value, in words: two tunings of one machine that set a target differently are in conflict."""

    @abstractmethod
    def wanted(self) -> tuple[str, ...]:
        """The state of a host afterwards, in lines, as far as it can be predicted without looking at the host."""

    @abstractmethod
    def steps(self, facts: Facts) -> Iterable[Found]:
        """The changes to make, in order, by the facts that it looks at. Pure; none when the host is as wanted."""

    def changes(self, facts: Facts) -> Step:
        """All that `steps` finds, by kind."""
        found = tuple(self.steps(facts))
        return Step(
            changes=tuple(one for one in found if not isinstance(one, str | Waiting)),
            refusals=tuple(one for one in found if isinstance(one, str)),
            restarts=tuple(one.text for one in found if isinstance(one, Waiting)),
        )


def choices(text: str) -> tuple[str, ...]:
    """All choices of an attribute that lists them: `always [madvise] never`."""
    return tuple(re.findall(r"[^\s\[\]]+", text))


def chosen(text: str) -> str:
    """The value of an attribute; of several choices the one in brackets."""
    found = re.search(r"\[([^\]]*)\]", text)
    return found[1] if found else text


def differing(path: str, text: str, value: str, *, adjusted: bool = False) -> Iterator[SetText]:
    """The change of an attribute with this text to a value; none where it has it."""
    if chosen(text) != value:
        yield SetText(path=path, before=chosen(text), after=value, adjusted=adjusted)


def whole_file(facts: Facts, path: str, content: bytes, **more: Any) -> Iterator[WriteFile | str]:
    """The change that gives a file this content, and the fields of `WriteFile` in `more`; a refusal where something
    other than a file is there."""
    before = facts.file(path)
    change = WriteFile(path=path, content=content, before=before, **more)
    if before.kind not in ("absent", "file"):
        yield f"{path} is a {before.kind}, not a file"
    elif before != change.made:
        yield change


def edited_file(path: str, before: FileFact, content: bytes) -> Iterator[WriteFile]:
    """The change of a part of a file, which keeps its mode and owner; none where the content is the same."""
    if content != before.content:
        yield WriteFile(
            path=path, content=content, mode=before.mode, owner=before.owner, group=before.group, before=before
        )


def numbers_as_text(block: Map, key: str = "") -> Map:
    """The block with its numbers, or those below a key of it, as texts: as the plan writes them, 19.10 and not 19.1."""

    def as_text(one: Scalar, _: Steps) -> Node:
        return one.written(one.in_text) if type(one.value) in (int, float) else one

    entries = ((name, rewritten(node, as_text) if key in ("", name.text) else node) for name, node in block.entries)
    return Map(entries=tuple(entries), where=block.where)


def gathered(block: Map, is_setting: Callable[[str], bool]) -> Map:
    """The block with its settings beneath `settings`: `{system: db, work_mem: 64MB}` -> `{system: db, settings:
    {…}}`."""
    settings = tuple(entry for entry in block.entries if is_setting(entry[0].text))
    rest = tuple(entry for entry in block.entries if not is_setting(entry[0].text))
    key = Scalar(value="settings", text="settings", where=block.where)
    return Map(entries=((key, Map(entries=settings, where=block.where)), *rest), where=block.where)


def as_written(pattern: str, value: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
    """Rewrite the JSON Schema of an operation whose settings stand in the block itself."""

    def rewrite(schema: dict[str, Any]) -> None:
        schema["properties"].pop("settings", None)
        required = [name for name in schema.pop("required", []) if name != "settings"]
        schema |= {"required": required} if required else {}
        schema["patternProperties"] = {pattern: value}

    return rewrite
