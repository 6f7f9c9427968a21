"""Programs whose output is read: an argv, and how rows are read from what it writes.

Data flow: `argv:` and `output:` of a stage or a capture -> `Command` -> the agent checks its policy and runs it ->
rows -> the `MeasuredValue`s of the stage or the capture.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from proveout.core.data_classes import dataclass, field

OutputFormat: TypeAlias = Literal["json", "csv", "pairs", "pattern"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputRows:
    """The rows, with named columns, that standard output has.

    `json`: an object or a list of them, at the path `rows`; columns of nested values have dotted names. `csv`: columns
    separated by `separator`, named by the first line where there is a `header`. `pairs`: a key and its value in each
    line; a key that is there again begins a new row. `pattern`: a row for each line that the regular expression (RE2)
    matches; its named groups are the columns.
    """

    format: OutputFormat = "pairs"
    rows: str = ""
    separator: str = ","
    header: bool = True
    pattern: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A program with its arguments, without a shell. It ends within `within_s`, with one of `exit_codes`.

    The first word is an absolute path, or the name of a program that the host's policy lists.
    """

    argv: tuple[str, ...] = ()
    output: OutputRows = field(default_factory=OutputRows)
    within_s: float = 60.0
    exit_codes: tuple[int, ...] = (0,)


NO_COMMAND = Command()
