"""Rules on measured values and commands: names, units, argv, bounds, and the form of the output."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence

from proveout.core import errors
from proveout.dsl.plan.bounds import (
    ARGUMENTS_MAX,
    COLUMNS_MAX,
    ID_PATTERN,
)
from proveout.dsl.plan.commands import Command, MeasuredValue, OutputRows
from proveout.dsl.rules.host_rules import PATTERNS, Objection

STAGE_NUMBERS = ("elapsed_s", "rows", "seconds", "wait_s")
"""The numbers that a stage has itself."""
_ID = re.compile(ID_PATTERN)
_RESERVED = ("_lower", "_upper", "_total")


def value_problems(value: MeasuredValue, taken: Sequence[str] = ()) -> Iterator[Objection]:
    """The name and the column of a value; `taken` are names that are not free."""
    if not _ID.fullmatch(value.name):
        yield Objection(message=f"{value.name[:80]!r} is not a name in an expression", way_out="such as max_iops")
    if value.name in taken:
        yield Objection(message=f"`{value.name}` is a number that the stage has itself", way_out="another name")
    if value.name.endswith(_RESERVED):
        message = f"`{value.name}` ends like the bound of an interval, or like a counter"
        yield Objection(message=message, way_out=f"a name that does not end in {', '.join(_RESERVED)}")
    if value.kind == "age" and not value.name.endswith("_s"):
        yield Objection(message=f"`{value.name}` is an age, in seconds", at=("as",), way_out="a name such as age_s")
    if value.column.isdecimal() and not 1 <= int(value.column[:9]) <= COLUMNS_MAX:
        yield Objection(message=f"columns are numbered from 1 to {COLUMNS_MAX}", at=("column",))
    if not value.column:
        yield Objection(message=f"`{value.name[:80]}` has no column")


def query_problems(query: str, values: Sequence[MeasuredValue]) -> Iterator[Objection]:
    """A query and the values that are taken of it."""
    if bool(query.strip()) != bool(values):
        yield Objection(message="a query and its metrics belong together", way_out="query: …, metrics: {name: {}}")
    yield from many_problems(values)


def many_problems(values: Sequence[MeasuredValue]) -> Iterator[Objection]:
    """Values of one stage or capture."""
    if len({value.name for value in values}) < len(values):
        yield Objection(message="two metrics of the same name")
    for value in values:
        yield from value_problems(value)


ARGUMENT_MAX = 4096
PATTERN_MAX = 2000
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]{0,99}")
_FORM = "argv: [/usr/bin/vmstat, -s], or the name of a program that the host's policy lists under `commands`"


def argv_problems(argv: tuple[str, ...]) -> Iterator[Objection]:
    """The program and its arguments."""
    if not argv:
        yield Objection(message="a command needs an `argv`", way_out=_FORM, at=("argv",))
        return
    if not (_NAME.fullmatch(argv[0]) or is_program_path(argv[0])):
        message = f"{argv[0][:200]!r} is neither the absolute path nor the name of a program"
        yield Objection(message=message, way_out=_FORM, at=("argv", 0))
    if len(argv) > ARGUMENTS_MAX or any(len(word) > ARGUMENT_MAX for word in argv):
        message = f"more than {ARGUMENTS_MAX} arguments, or one longer than {ARGUMENT_MAX} characters"
        yield Objection(message=message, at=("argv",))
    for index, word in enumerate(argv[:ARGUMENTS_MAX]):
        if any(ord(character) < 32 and character not in "\t\n" for character in word):
            yield Objection(message="an argument holds control characters", at=("argv", index))
        elif "${secrets." in word.replace(" ", ""):
            message = "a secret cannot be an argument: every user of a host can read the arguments of its programs"
            yield Objection(message=message, way_out="a file that only the program reads", at=("argv", index))


def is_program_path(path: str) -> bool:
    """Whether it is an absolute, normalized path without control characters."""
    plain = path.startswith("/") and not path.startswith("//") and posixpath.normpath(path) == path
    return plain and len(path) > 1 and all(ord(character) >= 32 for character in path)


def command_problems(command: Command) -> Iterator[Objection]:
    """A command with the form of its output."""
    yield from argv_problems(command.argv)
    if not all(0 <= code <= 255 for code in command.exit_codes):
        yield Objection(message="exit codes are one to twenty numbers from 0 to 255", at=("exit_codes",))
    yield from output_problems(command.output)


def output_problems(output: OutputRows) -> Iterator[Objection]:
    """The form of the output."""
    if output.separator in '"\r\n\0':
        yield Objection(message="a separator is one character, and not a quote", at=("output", "separator"))
    if bool(output.pattern) != (output.format == "pattern"):
        message = "a regular expression and the format `pattern` belong together"
        yield Objection(message=message, way_out="output: {pattern: '…'}", at=("output",))
    elif output.format == "pattern":
        yield from pattern_problems(output.pattern)


def pattern_problems(pattern: str) -> Iterator[Objection]:
    """A regular expression of RE2, whose time is bounded by the length of the text, with named groups."""
    at = ("output", "pattern")
    if len(pattern) > PATTERN_MAX or "\0" in pattern:
        yield Objection(message=f"a pattern is longer than {PATTERN_MAX} characters, or holds a NUL", at=at)
        return
    try:
        pa, pc = (errors.loaded(name, PATTERNS) for name in ("pyarrow", "pyarrow.compute"))
    except errors.NotInstalled as missing:
        yield Objection(message=missing.what, way_out=missing.way_out, at=at)
        return
    way_out = r"RE2 syntax with named groups, such as (?P<reads>\d+) reads"
    try:
        groups = pc.extract_regex(pa.array([""]), pattern=pattern).type
    except pa.ArrowInvalid as error:
        yield Objection(message=f"not a regular expression of RE2: {error}", way_out=way_out, at=at)
        return
    if groups.num_fields == 0:
        yield Objection(message="the pattern has no named group", way_out=way_out, at=at)
