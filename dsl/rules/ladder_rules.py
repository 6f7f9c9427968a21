"""Rules on phases and faults of a load, and on measured values and commands (names, units, argv, bounds, the form of
the output), for the compiler and for agents.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from proveout.core.numbers import number
from proveout.core.units import format_duration, length
from proveout.dsl.plan.commands import Command, MeasuredValue, OutputRows, is_plain_folder
from proveout.dsl.plan.phases import PERIODS_MAX, PHASES_MAX, POINTS_MAX, SLICES_MAX, Level
from proveout.dsl.plan.scalars import ARGUMENTS_MAX, COLUMNS_MAX, ID_PATTERN
from proveout.dsl.plan.stages import Fault, Tuning, Windows
from proveout.dsl.rules import host_rules
from proveout.dsl.rules.host_rules import Objection

if TYPE_CHECKING:
    from proveout.dsl.operations.operation import Operation


STAGE_NUMBERS = ("elapsed_s", "rows", "seconds", "wait_s")
"""The numbers that a stage has itself."""
_ID = re.compile(ID_PATTERN)
_RESERVED = ("_lower", "_upper", "_total")


def value_problems(value: MeasuredValue, taken: Sequence[str] = ()) -> Iterator[Objection]:
    """The name and the column of a value; `taken` are names that are not free."""
    if not _ID.fullmatch(value.name):
        yield Objection(f"{value.name[:80]!r} is not a name in an expression", "such as max_iops")
    if value.name in taken:
        yield Objection(f"`{value.name}` is a number that the stage has itself", "another name")
    if value.name.endswith(_RESERVED):
        message = f"`{value.name}` ends like the bound of an interval, or like a counter"
        yield Objection(message, f"a name that does not end in {', '.join(_RESERVED)}")
    if value.kind == "age" and not value.name.endswith("_s"):
        yield Objection(f"`{value.name}` is an age, in seconds", at=("as",), way_out="a name such as age_s")
    if value.column.isdecimal() and not 1 <= int(value.column[:9]) <= COLUMNS_MAX:
        yield Objection(f"columns are numbered from 1 to {COLUMNS_MAX}", at=("column",))
    if not value.column:
        yield Objection(f"`{value.name[:80]}` has no column")


def query_problems(query: str, values: Sequence[MeasuredValue]) -> Iterator[Objection]:
    """A query and the values that are taken of it."""
    if bool(query.strip()) != bool(values):
        yield Objection("a query and its metrics belong together", "query: …, metrics: {name: {}}")
    yield from many_problems(values)


def many_problems(values: Sequence[MeasuredValue]) -> Iterator[Objection]:
    """Values of one stage or capture."""
    if len({value.name for value in values}) < len(values):
        yield Objection("two metrics of the same name")
    for value in values:
        yield from value_problems(value)


ARGUMENT_MAX = 4096
PATTERN_MAX = 2000
_PROGRAM = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]{0,99}")
_FORM = "argv: [/usr/bin/vmstat, -s], or the name of a program that the host's policy lists under `commands`"


def argv_problems(argv: tuple[str, ...]) -> Iterator[Objection]:
    """The program and its arguments."""
    if not argv:
        yield Objection("a command needs an `argv`", _FORM, at=("argv",))
        return
    if not _PROGRAM.fullmatch(argv[0]) and (argv[0] == "/" or not is_plain_folder(argv[0])):
        message = f"{argv[0][:200]!r} is neither the absolute path nor the name of a program"
        yield Objection(message, _FORM, at=("argv", 0))
    if len(argv) > ARGUMENTS_MAX or any(len(word) > ARGUMENT_MAX for word in argv):
        message = f"more than {ARGUMENTS_MAX} arguments, or one longer than {ARGUMENT_MAX} characters"
        yield Objection(message, at=("argv",))
    for index, word in enumerate(argv[:ARGUMENTS_MAX]):
        if any(ord(character) < 32 and character not in "\t\n" for character in word):
            yield Objection("an argument holds control characters", at=("argv", index))
        elif "${secrets." in word.replace(" ", ""):
            message = "a secret cannot be an argument: every user of a host can read the arguments of its programs"
            yield Objection(message, "a file that only the program reads", at=("argv", index))


def command_problems(command: Command) -> Iterator[Objection]:
    """A command with the form of its output."""
    yield from argv_problems(command.argv)
    if not all(0 <= code <= 255 for code in command.exit_codes):
        yield Objection("exit codes are one to twenty numbers from 0 to 255", at=("exit_codes",))
    yield from output_problems(command.output)


def output_problems(output: OutputRows) -> Iterator[Objection]:
    """The form of the output."""
    if output.separator in '"\r\n\0':
        yield Objection("a separator is one character, and not a quote", at=("output", "separator"))
    if bool(output.pattern) != (output.format == "pattern"):
        message = "a regular expression and the format `pattern` belong together"
        yield Objection(message, "output: {pattern: '…'}", at=("output",))
    elif output.format == "pattern":
        yield from pattern_problems(output.pattern)


def pattern_problems(pattern: str) -> Iterator[Objection]:
    """A regular expression of RE2, whose time is bounded by the length of the text, with named groups."""
    at = ("output", "pattern")
    if len(pattern) > PATTERN_MAX or "\0" in pattern:
        yield Objection(f"a pattern is longer than {PATTERN_MAX} characters, or holds a NUL", at=at)
        return
    way_out = r"RE2 syntax with named groups, such as (?P<reads>\d+) reads"
    for one in host_rules.pattern_problems(pattern, way_out, groups=True):
        yield replace(one, at=at)


LENGTH_SLACK_S = 1e-6


def level_problems(level: Level, highest: float) -> Iterator[Objection]:
    """Objections to one level, which may be as high as `highest`."""
    if not (math.isfinite(level.for_s) and level.for_s > 0.0):
        yield Objection(f"a level of {level.for_s} s has no length")
    numbers = (*level.values, *level.at_s, level.amplitude, level.period_s)
    if not level.values or len(level.values) != len(level.at_s) or not all(map(math.isfinite, numbers)):
        yield Objection("a level has no points, or points that are not numbers")
        return
    ascending = all(earlier < later for earlier, later in pairwise(level.at_s))
    if level.at_s[0] != 0.0 or not ascending or level.at_s[-1] > level.for_s + LENGTH_SLACK_S:
        yield Objection("the points of a level do not go up from 0 s to its end")
    if level.amplitude and (len(level.values) > 1 or level.amplitude < 0.0 or level.period_s <= 0.0):
        yield Objection("a sine has one mean, an amplitude and a period")
    elif level.amplitude and level.for_s / level.period_s > PERIODS_MAX:
        yield Objection(f"a phase has more than {PERIODS_MAX:,} periods", "a longer `period`")
    if level.lowest < 0.0:
        message = f"the level goes down to {number(level.lowest)}"
        yield Objection(message, "an `amplitude` of at most the mean")
    if level.highest > highest:
        message = f"the level goes up to {number(level.highest)}, above {number(highest)}"
        yield Objection(message, f"at most {number(highest)}")


def load_problems(levels: Sequence[Level], windows: Windows, highest: float) -> Iterator[Objection]:
    """Objections to the levels of a load and to the phases of its window."""
    for level in levels:
        yield from level_problems(level, highest)
    for count, most, what in ((len(levels), PHASES_MAX, "phases"), (len(windows.phases), SLICES_MAX, "slices")):
        if count > most:
            yield Objection(f"more than {most:,} {what}", f"at most {most:,}")
    if sum(len(level.values) for level in levels) > POINTS_MAX:
        yield Objection(f"more than {POINTS_MAX:,} points", f"at most {POINTS_MAX:,} rows")
    if levels and not any(level.highest > 0.0 for level in levels):
        yield Objection("no phase has any load", "a rate or threads above 0")
    for lengths in ([level.for_s for level in levels], [phase_s for _, phase_s in windows.phases]):
        if lengths and not abs(math.fsum(lengths) - windows.measure_s) <= LENGTH_SLACK_S * len(lengths):
            yield Objection(f"the phases do not add up to the measure window of {windows.measure_s} s")
    names = [name for name, _ in windows.phases]
    if len(set(names)) < len(names) or not all(_ID.fullmatch(name) for name in names):
        yield Objection("the names of the phases are not valid, or not each its own")
    if not all(length > 0.0 for _, length in windows.phases):
        yield Objection("a phase without length is not possible")


# The compiler reports their objections at the lines of a plan; an agent checks the operations of a task by the same
# rules.


def operation_problems(kind: str, operation: Operation, *, for_s: float, destructive: bool) -> Iterator[Objection]:
    """The obstacles to an operation as a fault that is in place for `for_s` seconds (0: until it ends by itself)."""
    if operation.destructive and not destructive:
        way_out = "destructive: true, in the fault"
        yield Objection(f"`{kind}` can lose data", way_out, at=(kind,))
    if not operation.changing:
        yield Objection(f"this `{kind}` only checks, so the fault changes nothing", at=(kind,))
    elif operation.lasting:
        message = f"{operation.lasting} cannot be set back, so the fault could not be healed"
        way_out = "`revert` with the programs that undo it" if kind == "command" else "another operation"
        yield Objection(message, way_out, at=(kind,))
    elif operation.outlasts:
        return
    elif operation.ends_by_itself and for_s > 0.0:
        message = f"`{kind}` ends by itself, so there is nothing to heal after a time"
        yield Objection(message, "leave `for` out", at=("for",))
    elif not operation.ends_by_itself and for_s <= 0.0:
        yield Objection(f"`{kind}` does not end by itself", "for: 5s, after which it is healed")


def change_problems(tuning: Tuning, for_s: float) -> Iterator[Objection]:
    """A change by a fault that is in place for `for_s` seconds: its operation, and what keeps that from being one."""
    if (operation := (yield from host_rules.change_problems(tuning))) is not None:
        yield from operation_problems(tuning.operation, operation, for_s=for_s, destructive=tuning.destructive)
    if tuning.keep:
        yield Objection(f"{tuning.name[:80]!r} is part of a fault, which is always undone", "no `keep`")


def window_problems(fault: Fault, measure_s: float) -> Iterator[Objection]:
    """The obstacles to all occurrences of a fault, each with its healing, within the measure window."""
    if fault.between_s is not None and fault.between_s[0] >= fault.between_s[1]:
        first, last = map(length, fault.between_s)
        message = f"there is no time between {first} and {last}"
        yield Objection(message, "`from` before `to`", at=("between", "to"))
        return
    room = f"the measure window of {format_duration(measure_s)}"
    if fault.when is not None:
        needed_s = fault.times * fault.for_s + (fault.times - 1) * fault.apart_s
        if needed_s >= measure_s:
            way_out = "a longer `measure`, or a shorter `for`" + (", or fewer `times`" if fault.times > 1 else "")
            message = f"`{fault.name}` takes {format_duration(needed_s)} with its healing, as long as {room}"
            yield Objection(message, way_out, at=("for",))
        return
    first_s, last_s = fault.between_s or ((fault.at_s or 0.0),) * 2
    needed_s = (fault.times - 1) * (fault.for_s + fault.apart_s)
    if needed_s > last_s - first_s:
        message = (
            f"{fault.times} times {length(fault.for_s)}, {length(fault.apart_s)} apart, do not fit between "
            f"{length(first_s)} and {length(last_s)}: the last one would begin {length(needed_s)} after the first"
        )
        yield Objection(message, "fewer `times`, or more time between", at=("times",))
    end_s = last_s + fault.for_s
    if end_s >= measure_s:
        last = f"`{fault.name}` would be healed at {length(end_s)}" if fault.for_s else f"it begins at {length(end_s)}"
        message = f"{last}, and {room} ends before" if end_s > measure_s else f"{last}, when {room} ends"
        at = ("at",) if fault.between_s is None else ("between", "to")
        yield Objection(message, "begin it earlier, or a longer `measure`", at=at)


def spans_s(fault: Fault, measure_s: float) -> tuple[float, float]:
    """From when to when in the measure window the fault may be in place, seconds."""
    if fault.when is not None:
        return 0.0, measure_s
    first_s, last_s = fault.between_s or ((fault.at_s or 0.0),) * 2
    return first_s, last_s + fault.for_s
