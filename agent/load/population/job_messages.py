"""The messages between the populate handler and its worker processes: frozen data, one JSON line each.

Flow: handler -> `Opening` (where to load, holds the password, so it goes through a pipe and never through argv), then
jobs one at a time -> worker -> `Progress` as rows go in, one answer (`Finished` or `Failed`) per message.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any, TypeAlias, get_args

from proveout.core.data_classes import dataclass, field
from proveout.core.framing import json_line


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """Connect: engine, dsn, and the compiled workload (`kind`, `parameters` as in `plan.Workload`); the id of the load,
    "" for one that keeps no journal."""

    engine: str
    dsn: str = field(repr=False)
    kind: str
    parameters: Any
    load: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepare:
    """Remove the tables of an earlier load and create empty ones; refuse tables that proveout did not make. Those of
    this load stay, when it was broken off; answers the rows that are there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Load the rows of units `first` … `first + count - 1` into a table, in one transaction; answers rows loaded."""

    table: str
    first: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Execute:
    """Run one statement by itself; `step` is its name in the journal. One that has run already is left out."""

    statement: str
    step: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """Read the journal. The answer has the `ranges` (first, units, rows) of each table; None without a journal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Complete:
    """The population is complete: remove the journal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """Count the rows of a table; answers rows."""

    table: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Settle:
    """Make what was loaded durable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Undo:
    """Remove the tables again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """So many more rows have gone in."""

    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The job is done; `rows` loaded or counted, `ranges` committed."""

    rows: int = 0
    ranges: dict[str, list[tuple[int, int, int]]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The job failed as expected failures do; see `results.TaskError`. The worker ends after it."""

    code: str
    message: str
    way_out: str = ""


Job: TypeAlias = Opening | Prepare | Load | Execute | Count | Settle | Undo | Committed | Complete
Answer: TypeAlias = Progress | Finished | Failed
_TYPES = {t.__name__: t for union in (Job, Answer) for t in get_args(union)}


def to_line(message: Job | Answer) -> bytes:
    """The message as one line, newline and all."""
    return json_line([type(message).__name__, dataclasses.asdict(message)])


def from_line(line: bytes) -> Any:
    """Return the message of one line. ValueError, KeyError or TypeError when the line is malformed."""
    name, fields = json.loads(line)
    return _TYPES[name](**fields)
