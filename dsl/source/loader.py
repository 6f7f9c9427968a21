"""Read YAML into nodes with positions, within limits of size and depth.

Data flow: text -> PyYAML's events -> scalars by the rules of YAML 1.2 -> nodes with line and column.
"""

from __future__ import annotations

import os
import re
import stat
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

from proveout.core.data_classes import dataclass, field, record
from proveout.core.errors import Where
from proveout.dsl.plan.topology import TextPosition
from proveout.dsl.source.nodes import Map, Node, Problems, Scalar, Seq, below, scalars
from proveout.dsl.source.syntax_errors import Repair, explain, missing_space

JUDGED = frozenset({"admin", "dsn", "query", "session", "settings", "sql", "statements"})
"""Keys of the language whose values, with all that is below them, are for a database."""
_BLOCK = re.compile(r"(?:&\S+ +)?([|>])")


def text_positions(path: str, node: Node, problems: Problems) -> Iterator[TextPosition]:
    """The positions of the texts below `node`, which is at `path`."""
    for steps, scalar in scalars(node):
        if not JUDGED.isdisjoint(steps):
            where, sign = scalar.at(0), _BLOCK.match(problems.line(scalar.where), scalar.where.column - 1)
            if sign is not None and not scalar.places:  # it has a template, which was filled in
                line = problems.line(first := replace(where, line=where.line + 1))
                where = replace(first, column=len(line) - len(line.lstrip()) + 1)
            literal = sign is not None and sign[1] == "|"
            yield TextPosition(path=".".join((path, *map(str, steps))), where=where, literal=literal)


def maps_below(node: Node | None) -> Iterator[Map]:
    """The mappings at and below a node."""
    if isinstance(node, Map):
        yield node
    for _, one in below(node) if node is not None else ():
        yield from maps_below(one)


# Only `true`, `false`, `null`, decimal ints (`20_000`) and decimal fractions are anything but text. What YAML 1.1 would
# turn into something else than it looks like (`no`, `22:22`, `0644`, `1e3`, a date …) is refused: quietly reading it as
# text would be as surprising as YAML's own reading.

DIGITS_MAX = 19
NULL = "null"
"""Drops an entry of a plan that is extended (`includes`); anywhere else it is a problem."""

_INT = re.compile(r"[-+]?(0|[1-9]\d*(_\d+)*)", re.ASCII)
_FLOAT = re.compile(r"[-+]?(0|[1-9]\d*(_\d+)*)\.\d+", re.ASCII)

_SURPRISES: tuple[tuple[re.Pattern[str], str, str], ...] = (
    (
        re.compile(r"yes|no|on|off", re.IGNORECASE),
        "`{0}` is a boolean in YAML 1.1 and a word elsewhere",
        'write true or false, or quote it: "{0}"',
    ),
    (re.compile(r"true|false", re.IGNORECASE), "`{0}` is not how a plan writes a boolean", "write true or false"),
    (re.compile(r"~|null", re.IGNORECASE), "`{0}` means null in YAML", 'leave the key out, or quote it: "{0}"'),
    (
        re.compile(r"[-+]?0[\d_]+"),
        "`{0}` has a leading zero, which YAML 1.1 reads as an octal number",
        'write it without the zero, or quote it: "{0}"',
    ),
    (
        re.compile(r"[-+]?\d[\d_]*(:[0-5]?\d)+(\.\d*)?"),
        "`{0}` is a number to the base 60 in YAML 1.1",
        'quote it: "{0}"; durations are written 1h30m',
    ),
    (
        re.compile(r"\d{4}-\d\d?-\d\d?([Tt ].*)?"),
        "`{0}` is a date in YAML 1.1",
        'quote it: "{0}"',
    ),
    (
        re.compile(r"[-+]?(\d[\d_]*\.?\d*|\.\d+)[eE][-+]?\d+"),
        "`{0}` is a number in some YAML readers and text in others",
        "write it out: 1_000 or 0.001",
    ),
    (re.compile(r"[-+]?\.(inf|nan)", re.IGNORECASE), "`{0}` is not a number that a plan can use", ""),
    (re.compile(r"[-+]?0[xXoObB][\da-fA-F_]+"), "`{0}` is not a decimal number", "write it in decimal"),
    (re.compile(r"[-+]?(\.\d+|\d[\d_]*\.)"), "`{0}` lacks a digit beside the point", "write 0.5 or 5.0"),
    (re.compile(r"[-+]?\d[\d_]*_|[-+]?\d+(_+\d+)*_*", re.ASCII), "`{0}` has stray underscores", "write 20_000"),
)

# Direction overrides, isolates, zero-width characters and tags: text that does not read as it compiles; and two code
# points that YAML refuses.
_INVISIBLE = frozenset("\u00ad\u061c\u180e\u200b\u200c\u200d\u200e\u200f\u2028\u2029\ufeff\ufffe\uffff") | {
    chr(code) for code in (*range(0x202A, 0x202F), *range(0x2060, 0x2070), *range(0xE0000, 0xE0080))
}
_NO_PATH = re.compile("[\\0\ud800-\udfff]")
"""Characters with which a path raises ValueError."""


def read_plain(text: str) -> tuple[str | int | float | bool | None, str, str]:
    """(value, problem, hint) of an unquoted scalar; problem is "" when there is none."""
    if text == "":
        return None, "", ""
    if text in ("true", "false"):
        return text == "true", "", ""
    if _INT.fullmatch(text) or _FLOAT.fullmatch(text):
        digits = text.replace("_", "")
        if sum(map(str.isdigit, text)) > DIGITS_MAX or abs(int(digits.partition(".")[0])) >= 2**63:
            return text, f"the number has more than {DIGITS_MAX} digits, or does not fit into 64 bits", ""
        return (float(digits) if "." in digits else int(digits)), "", ""
    for pattern, problem, hint in _SURPRISES:
        if pattern.fullmatch(text):
            return text, problem.format(text), hint.format(text)
    return text, "", ""


def hidden_character(text: str) -> tuple[int, str] | None:
    """(offset, name) of the first character that a reader could not see or that could mislead a terminal; None if
    fine."""
    for offset, character in enumerate(text):
        if character in "\n\r":
            continue
        if character in _INVISIBLE or unicodedata.category(character) in ("Cc", "Cs", "Co"):
            name = unicodedata.name(character, "control character")
            return offset, f"U+{ord(character):04X} ({name.lower()})"
    return None


BYTES_MAX = 1 << 20
DEPTH_MAX = 32
NODES_MAX = 20_000
ALIASES_MAX = 200
REPAIRS_MAX = 20
"""Mistakes of syntax per file; the last one ends the reading."""


@record
class Document:
    """The name of a file in messages, and the line that one begins with; `foreign`: one of another program, where tags
    and words that a plan refuses (`yes`, `null`) are legal."""

    name: str
    opening: str
    foreign: bool = False

    @property
    def one(self) -> str:
        """`a plan`, `an Ansible inventory`."""
        return f"{'an' if self.name[0] in 'AEIOU' else 'a'} {self.name}"


PLAN = Document(name="plan", opening="proveout: 1")


def _files_like(path: Path, name: str) -> str:
    """A hint for a file that is missing: files beside it with a similar name; for a folder, some of its files."""
    if re.match(r"[a-z][a-z0-9+]+:/", name):
        return "this is an address: `proveout bench DSN` measures a database without a plan"
    whole = os.path.isdir(path)  # noqa: PTH112 - Path.is_dir() raises for a name that is too long
    folder, shown = (path, Path(name)) if whole else (path.parent, Path(name).parent)
    files = sorted(one.name for suffix in ("*.yaml", "*.yml") for one in folder.glob(suffix))
    found = files if whole else get_close_matches(path.name, files)
    return f"did you mean {' or '.join(f'`{shown / one}`' for one in found[:3])}?" if found else ""


def load(path: Path, name: str, problems: Problems, document: Document = PLAN) -> Map | None:
    """The root mapping of the file at `path`, called `name` in messages; None when it cannot be read."""
    start = Where(file=name, line=1, column=1)
    problems.sources.setdefault(name, ())
    try:
        content = read_regular(path, BYTES_MAX)
    except OSError as error:
        problems.add(Where(file=name), f"cannot read the file: {error.strerror or error}", hint=_files_like(path, name))
        return None
    if content is None:
        problems.add(start, "not a regular file")
        return None
    if len(content) > BYTES_MAX:
        problems.add(
            start, f"the file is larger than {BYTES_MAX >> 20} MiB", hint=f"{document.one} is text that people read"
        )
        return None
    return loads(content, name, problems, document)


def loads(content: bytes, name: str, problems: Problems, document: Document = PLAN) -> Map | None:
    """Like `load`, from bytes."""
    text = _decode(content, name, problems)
    if text is None:
        return None
    repairs: list[Repair] = []  # missing signs are noted and put in, so that the rest of the file is read
    while True:
        parser: Any = yaml.SafeLoader(text)
        seen = Problems(sources=problems.sources)  # of a text that is read again, only those of the last reading count
        composer = _Composer(parser=parser, name=name, problems=seen, kind=document, repairs=repairs)
        root: Node | None = None
        repair: Repair | None = None
        try:
            root = composer.document()
        except _Unreadable:
            pass  # the problem is noted
        except yaml.MarkedYAMLError as error:
            found = explain(error, text)
            where = moved_back(Where(file=name, line=found.line, column=found.column), repairs)
            problems.add(where, found.message, hint=found.hint)
            repair = found.repair if len(repairs) < REPAIRS_MAX else None
        except (yaml.YAMLError, ValueError, OverflowError) as error:
            problems.add(composer.where(parser.get_mark()), f"not valid YAML: {str(error).splitlines()[0]}")
        finally:
            parser.dispose()
        if repair is None:
            break
        repairs.append(repair)
        text = repair.applied(text)
    for one in seen.found:
        problems.add(one.where, one.message, hint=one.hint, key=one.key)
    if isinstance(root, Map):
        return root
    if root is not None:
        problems.add(root.where, f"{document.one} is a mapping", hint=f"it begins with `{document.opening}`")
    return None


def read_regular(path: Path, most: int) -> bytes | None:
    """A file, at most one byte more than allowed; None for anything but a regular one (a FIFO would block for ever)."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        return file.read(most + 1) if stat.S_ISREG(os.fstat(descriptor).st_mode) else None


def _decode(content: bytes, name: str, problems: Problems) -> str | None:
    start = Where(file=name, line=1, column=1)
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        problems.add(start, "the file is UTF-16", hint="save it as UTF-8")
        return None
    if content.startswith(b"\xef\xbb\xbf"):
        problems.add(start, "the file begins with a byte order mark", hint="save it as UTF-8 without BOM")
        return None
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        before = content[content.rfind(b"\n", 0, error.start) + 1 : error.start]
        column = len(before.decode()) + 1
        problems.add(Where(file=name, line=line, column=column), "not valid UTF-8", hint="save it as UTF-8")
        return None
    text = text.replace("\r\n", "\n")
    problems.sources[name] = text.split("\n")
    clean = True  # every line shows what it holds
    for number, shown in enumerate(problems.sources[name], 1):
        tab = shown.find("\t")
        if tab >= 0:
            problems.add(Where(file=name, line=number, column=tab + 1), "a tab", hint="indent with spaces")
            clean = False
            continue
        hidden = hidden_character(shown) if "\r" not in shown else (shown.index("\r"), "U+000D (carriage return)")
        if hidden is not None:
            where = Where(file=name, line=number, column=hidden[0] + 1)
            problems.add(where, f"a hidden character: {hidden[1]}", hint="remove it")
            clean = False
    return text if clean else None


class _Unreadable(Exception):
    """The problem is noted and reading on makes no sense."""


@dataclass(slots=True)
class _Composer:
    """Events -> nodes. `sizes` counts what an anchored node expands to, so that a bomb is seen without expanding it."""

    parser: Any  # yaml.SafeLoader; its stubs leave the event methods untyped
    name: str
    problems: Problems
    kind: Document
    repairs: list[Repair] = field(default_factory=list)
    anchors: dict[str, Node | None] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    aliases: int = 0
    nodes: int = 0
    depth: int = 0

    def document(self) -> Node:
        self.parser.get_event()
        if self.parser.check_event(yaml.StreamEndEvent):
            hint = f"{self.kind.one} begins with `{self.kind.opening}`"
            raise self.stop(Where(file=self.name, line=1, column=1), "the file is empty", hint)
        begin = self.parser.get_event()
        if begin.version or begin.tags:
            where = self.where(begin.start_mark)
            self.problems.add(where, f"YAML directives are not part of the {self.kind.name} language")
        root = self.node()
        self.parser.get_event()
        if not self.parser.check_event(yaml.StreamEndEvent):
            where = self.where(self.parser.peek_event().start_mark)
            self.problems.add(where, "a second document", hint=f"{self.kind.one} file holds one document")
        return root

    def stop(self, where: Where, message: str, hint: str = "") -> _Unreadable:
        self.problems.add(where, message, hint=hint)
        return _Unreadable()

    def node(self, *, key: bool = False) -> Node:
        event: Any = self.parser.get_event()
        where = self.where(event.start_mark)
        if isinstance(event, yaml.AliasEvent):
            return self.alias(str(event.anchor), where)
        self.count(1, where)
        before = self.nodes
        if event.tag is not None and not self.kind.foreign:
            self.problems.add(
                where,
                f"the tag {event.tag} is not part of the {self.kind.name} language",
                hint="write the value plainly",
            )
        if event.anchor is not None:
            self.anchors[event.anchor] = None
        node = self.content(event, where, key)
        if event.anchor is not None:
            self.anchors[event.anchor] = node
            self.sizes[event.anchor] = 1 + self.nodes - before
        return node

    def content(self, event: Any, where: Where, key: bool) -> Node:
        if isinstance(event, yaml.ScalarEvent):
            return self.scalar(event, where, key)
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise self.stop(where, f"nested deeper than {DEPTH_MAX} levels")
        node = self.mapping(where) if isinstance(event, yaml.MappingStartEvent) else self.sequence(where)
        self.depth -= 1
        return node

    def count(self, more: int, where: Where) -> None:
        self.nodes += more
        if self.nodes > NODES_MAX:
            raise self.stop(where, f"more than {NODES_MAX} values once aliases are expanded")

    def alias(self, anchor: str, where: Where) -> Node:
        self.aliases += 1
        if self.aliases > ALIASES_MAX:
            raise self.stop(where, f"more than {ALIASES_MAX} aliases")
        if anchor not in self.anchors:
            raise self.stop(where, f"no anchor is called &{anchor}")
        node = self.anchors[anchor]
        if node is None:
            raise self.stop(where, f"the alias *{anchor} stands inside the node that it refers to")
        self.count(self.sizes[anchor], where)
        return node

    def sequence(self, where: Where) -> Seq:
        items: list[Node] = []
        while not self.parser.check_event(yaml.SequenceEndEvent):
            items.append(self.node())
        self.parser.get_event()
        return Seq(items=tuple(items), where=where)

    def mapping(self, where: Where) -> Map:
        entries: list[tuple[Scalar, Node]] = []
        seen: dict[str, Where] = {}
        while not self.parser.check_event(yaml.MappingEndEvent):
            key = self.key()
            value = self.node()
            key, value = self.spaced(key, value)
            if key.text in seen:
                hint = f"it is in line {seen[key.text].line} already"
                self.problems.add(key.where, f"the key `{key.text}` is there twice", key=key.text, hint=hint)
            elif key.text == "<<" and not key.quoted:
                hint = "use include: or params:" if self.kind is PLAN else "write the keys out"
                self.problems.add(key.where, f"`<<` is not part of the {self.kind.name} language", hint=hint)
            else:
                seen[key.text] = key.where
                entries.append((key, value))
        self.parser.get_event()
        return Map(entries=tuple(entries), where=where)

    def spaced(self, key: Scalar, value: Node) -> tuple[Scalar, Node]:
        """The key and the value of `kind:hlr`, noted as a problem; other entries as they are."""
        empty = isinstance(value, Scalar) and value.text == "" and not value.quoted
        split = missing_space(key.text) if empty and not key.quoted else None
        if split is None:
            return key, value
        name, text = split
        where = key.at(len(name) + 1)
        self.problems.add(where, f"a space is missing after `{name}:`", key=name, hint=f"{name}: {text}")
        read, problem, _ = read_plain(text)
        places = key.places and ((0, where.line, where.column),)
        inner = Scalar(value=read, text=text, where=where, places=places, faulty=bool(problem))
        return replace(key, value=name, text=name), inner

    def key(self) -> Scalar:
        where = self.where(self.parser.peek_event().start_mark)
        node = self.node(key=True)
        if isinstance(node, Scalar):
            return node
        raise self.stop(where, "a key is a plain word, not a list or a mapping")

    def scalar(self, event: Any, where: Where, key: bool) -> Scalar:
        """A scalar; keys are always text (`on:` is a fine key)."""
        text: str = event.value
        quoted = event.style is not None
        value, problem, hint = (text, "", "") if key or quoted else read_plain(text)
        if problem and self.kind.foreign:
            value, problem = None if text.lower() in (NULL, "~") else text, ""
        if hidden := hidden_character(text):
            problem, hint = f"a hidden character: {hidden[1]}", "remove it"
            value = text = _NO_PATH.sub("\ufffd", text)
        if problem and not (self.kind is PLAN and text == NULL):  # which may drop something: see `includes`
            self.problems.add(where, problem, hint=hint)
        begin = (where.line + 1, 1) if event.style in ("|", ">") else (where.line, where.column + quoted)
        places = _places(text, self.problems.sources[self.name], *begin)
        return Scalar(value=value, text=text, where=where, quoted=quoted, places=places, faulty=bool(problem))

    def where(self, mark: yaml.Mark | None) -> Where:
        """The position of a mark in the file as it is written."""
        if mark is None:
            return Where(file=self.name)
        return moved_back(Where(file=self.name, line=mark.line + 1, column=mark.column + 1), self.repairs)


def _places(text: str, lines: Sequence[str], line: int, column: int) -> tuple[tuple[int, int, int], ...]:
    """`Scalar.places` of a text that begins in `line` at `column`, or behind blanks there."""
    if line <= len(lines) and lines[line - 1].startswith(text, column - 1):  # most are in one line
        return ((0, line, column),)
    found: list[tuple[int, int, int]] = []
    at, size = 0, len(text.rstrip())
    while at < size and line <= len(lines):
        shown = lines[line - 1][column - 1 :]
        part = shown.strip()
        while part and text[at].isspace():
            at += 1
        found.append((at, line, column + len(shown) - len(shown.lstrip())))
        if not (text.startswith(part, at) or part.startswith(text[at:size])):
            return ()
        at, line, column = at + len(part), line + 1, 1
    return tuple(found)


def moved_back(where: Where, repairs: Sequence[Repair]) -> Where:
    """A position in a repaired text, as it is in the file."""
    column = where.column
    for repair in reversed(repairs):
        if repair.line + 1 == where.line and repair.column + 1 < column:
            column = max(repair.column + 1, column - len(repair.text))
    return Where(file=where.file, line=where.line, column=column)
