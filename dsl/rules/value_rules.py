"""Rules on measured values and commands: names, units, argv, bounds, and the form of the output."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence

from proveout.dsl.plan.bounds import (
    ARGUMENTS_MAX,
    COLUMNS_MAX,
    EVERY_MAX_S,
    EVERY_MIN_S,
    EXIT_CODES_MAX,
    ID_PATTERN,
    TEXT_MAX,
    VALUES_MAX,
    WEEK_S,
    WHERE_MAX,
)
from proveout.dsl.plan.commands import Command, MeasuredValue, OutputRows, WaitUntil
from proveout.dsl.rules.host_rules import Objection

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
    texts = [value.column, *(text for pair in value.where for text in pair)]
    if len(value.where) > WHERE_MAX or any(not 0 < len(text) <= TEXT_MAX or "\0" in text for text in texts):
        yield Objection(message=f"the column or the rows of `{value.name[:80]}` are not valid")


def query_problems(query: str, values: Sequence[MeasuredValue]) -> Iterator[Objection]:
    """A query and the values that are taken of it."""
    if len(query) > TEXT_MAX or "\0" in query:
        yield Objection(message=f"a query is longer than {TEXT_MAX} characters, or holds a NUL")
    if bool(query.strip()) != bool(values):
        yield Objection(message="a query and its metrics belong together", way_out="query: …, metrics: {name: {}}")
    yield from many_problems(values)


def many_problems(values: Sequence[MeasuredValue]) -> Iterator[Objection]:
    """Values of one stage or capture."""
    if len(values) > VALUES_MAX or len({value.name for value in values}) < len(values):
        yield Objection(message=f"more than {VALUES_MAX} metrics, or two of the same name")
    for value in values[:VALUES_MAX]:
        yield from value_problems(value)


def wait_problems(wait: WaitUntil) -> Iterator[Objection]:
    """A wait until a query gives a value."""
    if not 0 < len(wait.query) <= TEXT_MAX or "\0" in wait.query or len(wait.equals) > TEXT_MAX:
        yield Objection(message=f"the query of a wait is empty, longer than {TEXT_MAX} characters, or holds a NUL")
    if not EVERY_MIN_S <= wait.every_s <= EVERY_MAX_S:
        yield Objection(message=f"a query every {wait.every_s} s is not possible", way_out="every 100ms to every 1h")
    if not 0.0 < wait.within_s <= WEEK_S:
        yield Objection(message=f"a wait of {wait.within_s} s is not possible", way_out="at most 7d")


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
    if not 0.0 < command.within_s <= WEEK_S:
        yield Objection(message=f"a command of {command.within_s} s is not possible", way_out="at most 7d")
    codes = command.exit_codes
    if not 0 < len(codes) <= EXIT_CODES_MAX or not all(0 <= code <= 255 for code in codes):
        yield Objection(message="exit codes are one to twenty numbers from 0 to 255", at=("exit_codes",))
    yield from output_problems(command.output)


def output_problems(output: OutputRows) -> Iterator[Objection]:
    """The form of the output."""
    if len(output.separator) != 1 or output.separator in '"\r\n\0':
        yield Objection(message="a separator is one character, and not a quote", at=("output", "separator"))
    if len(output.rows) > TEXT_MAX:
        yield Objection(message=f"a path is longer than {TEXT_MAX} characters", at=("output", "rows"))
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
    import pyarrow as pa  # noqa: PLC0415 - 100 ms that only a pattern needs
    import pyarrow.compute as pc  # noqa: PLC0415

    way_out = r"RE2 syntax with named groups, such as (?P<reads>\d+) reads"
    try:
        groups = pc.extract_regex(pa.array([""]), pattern=pattern).type
    except pa.ArrowInvalid as error:
        yield Objection(message=f"not a regular expression of RE2: {error}", way_out=way_out, at=at)
        return
    if groups.num_fields == 0:
        yield Objection(message="the pattern has no named group", way_out=way_out, at=at)
