"""`ini_section`: attributes of one section of an INI file, as the DSNs of TimesTen's sys.odbc.ini.

The file is edited, not replaced: every byte that is not the value of an attribute of that section stays, comments,
order, blanks and line ends too. Names of sections and attributes are compared without regard to case, as ODBC does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from proveout.core.data_classes import dataclass
from proveout.dsl.operations.change import WriteFile
from proveout.dsl.operations.facts import Facts, FileQuery, Query
from proveout.dsl.operations.operation import Operation, Step
from proveout.dsl.operations.types import OwnPath, no_control
from proveout.dsl.schema.scalar_types import custom

_SECTION = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _.:-]{0,79}")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,79}")
_LINE = re.compile(rb"[^\n]*\n|[^\n]+")
_HEAD = re.compile(rb"^\s*\[\s*([^\]\r\n]*?)\s*\]")
_PAIR = re.compile(rb"^([ \t]*)([^=;#\[\r\n][^=\r\n]*?)([ \t]*=[ \t]*)([^\r\n]*?)([ \t]*)(\r?\n?)$")


def _section(value: str) -> str:
    if not _SECTION.fullmatch(value) or value != value.strip():
        raise custom(f"`{value}` is not the name of a section")
    return value


def _key(value: str) -> str:
    if not _KEY.fullmatch(value):
        raise custom(f"`{value}` is not the name of an attribute, as PermSize")
    return value


def _value(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise custom(f"{value} is not a value of an attribute: a number or text")
    text = no_control(str(value))
    if text != text.strip() or len(text) > 500:
        raise custom(f"{text!r} is not a value of an attribute: no blanks around it, 500 characters at most")
    return text


def _once_each(given: dict[str, str]) -> dict[str, str]:
    names: dict[str, str] = {}
    for key in given:
        if (first := names.setdefault(key.lower(), key)) != key:
            raise custom(f"`{first}` and `{key}` are one attribute: their case does not count")
    return given


Name: TypeAlias = Annotated[str, AfterValidator(_key)]
Text: TypeAlias = Annotated[
    str, BeforeValidator(_value), WithJsonSchema({"anyOf": [{"type": "integer"}, {"type": "string"}]})
]


class IniSection(Operation):
    """Attributes of a section of an INI file: `{file: /opt/TimesTen/conf/sys.odbc.ini, section: hlrcache, set:
    {PermSize: 620000}}`."""

    file: OwnPath = Field(description="The file; it has to be there.")
    section: Annotated[str, AfterValidator(_section)] = Field(description="The section, without its brackets.")
    set: Annotated[
        dict[Name, Text],
        Field(min_length=1, max_length=200, description="Attribute to value; other attributes stay."),
        AfterValidator(_once_each),
    ]
    create: bool = Field(False, description="Add the section at the end of the file where there is none.")

    privileges = "may write the ini file"

    def targets(self) -> Mapping[str, str]:
        """Each attribute."""
        return {f"{self.file} [{self.section.lower()}] {key.lower()}": value for key, value in self.set.items()}

    def wanted(self) -> tuple[str, ...]:
        """Each attribute."""
        return (f"{self.file} [{self.section}]:", *(f"  {key}={value}" for key, value in self.set.items()))

    def queries(self, known: Facts) -> tuple[Query, ...]:
        """The file."""
        return (FileQuery(self.file),)

    def changes(self, facts: Facts) -> Step:
        """The file with the attributes; mode and owner stay."""
        before = facts.file(self.file)
        if before.kind != "file":
            what = "is not there" if before.kind == "absent" else f"is a {before.kind}, not a file"
            return Step(refusals=(f"{self.file} {what}",))
        edited = edit(before.content, self.section, self.set, create=self.create)
        if isinstance(edited, str):
            return Step(refusals=(f"{self.file} {edited}",))
        if edited == before.content:
            return Step()
        change = WriteFile(
            path=self.file, content=edited, mode=before.mode, owner=before.owner, group=before.group, before=before
        )
        return Step(changes=(change,))


@dataclass(frozen=True, slots=True)
class _Pair:
    line: int
    key: str
    head: bytes
    value: bytes
    tail: bytes


def edit(content: bytes, section: str, wanted: Mapping[str, str], *, create: bool) -> bytes | str:
    """`content` with the attributes of the section as wanted; or, as text, why that cannot be."""
    lines = _LINE.findall(content)
    heads = [(number, name) for number, line in enumerate(lines) if (name := _head(line)) is not None]
    found = [number for number, name in heads if name == section.lower()]
    if len(found) > 1:
        return f"has the section [{section}] {len(found)} times"
    if not found:
        return _with_section(content, section, wanted) if create else f"has no section [{section}]"
    end = next((number for number, _ in heads if number > found[0]), len(lines))
    return _edited(lines, found[0], end, wanted)


def _edited(lines: list[bytes], start: int, end: int, wanted: Mapping[str, str]) -> bytes | str:
    pairs = [pair for number in range(start + 1, end) if (pair := _pair(number, lines[number])) is not None]
    missing: list[tuple[str, str]] = []
    for key, value in wanted.items():
        same = [pair for pair in pairs if pair.key == key.lower()]
        if len(same) > 1:
            return f"has {key} twice, in lines {same[0].line + 1} and {same[1].line + 1}"
        if not same:
            missing.append((key, value))
        elif same[0].value != value.encode():
            lines[same[0].line] = same[0].head + value.encode() + same[0].tail
    return b"".join(_appended(lines, pairs[-1].line if pairs else start, missing))


def _appended(lines: list[bytes], after: int, missing: Sequence[tuple[str, str]]) -> list[bytes]:
    """The lines with new attributes after the last one of the section."""
    if not missing:
        return lines
    ended = lines[after] if lines[after].endswith(b"\n") else lines[0]
    ending = b"\r\n" if ended.endswith(b"\r\n") else b"\n"
    last = lines[after] if lines[after].endswith(b"\n") else lines[after] + ending
    new = [f"{key}={value}".encode() + ending for key, value in missing]
    return [*lines[:after], last, *new, *lines[after + 1 :]]


def _with_section(content: bytes, section: str, wanted: Mapping[str, str]) -> bytes:
    ending = b"\r\n" if b"\r\n" in content else b"\n"
    gap = b"" if not content else ending if content.endswith(b"\n") else ending * 2
    lines = [f"[{section}]", *(f"{key}={value}" for key, value in wanted.items())]
    return content + gap + b"".join(line.encode() + ending for line in lines)


def _head(line: bytes) -> str | None:
    found = _HEAD.match(line)
    return found[1].decode("utf-8", errors="replace").lower() if found else None


def _pair(number: int, line: bytes) -> _Pair | None:
    found = _PAIR.match(line)
    if found is None:
        return None
    indent, key, equals, value, blanks, ending = found.groups()
    name = key.decode("utf-8", errors="replace").strip().lower()
    return _Pair(number, name, indent + key + equals, value, blanks + ending)
