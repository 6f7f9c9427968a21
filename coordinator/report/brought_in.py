"""Reports of others beside a run, from files: AWR (HTML), Statspack and ttStats (text), sar (text).

Data flow: text of a file -> `parsed` -> the tables that say what a run's own captures say (load profile, top foreground
events, CPU) -> `section` of the run's document, which states that they were brought in. Nothing of it is in verdicts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path

from proveout.coordinator.report.document import Block, Paragraph, Section, Table
from proveout.core.errors import ProveoutError
from proveout.core.numbers import safe, size

BYTES_MAX = 32 * 1024 * 1024
ROWS_MAX, TABLES_MAX, COLUMNS_MAX = 20, 12, 12
_WANTED = re.compile(
    r"load profile|top \d+|foreground|timed events|host cpu|instance cpu|cpu usage|system load|instance information"
    r"|snapshot information|wait class",
    re.IGNORECASE,
)
_RULE = re.compile(r"[-~=]{2,}")
_CLOCK = re.compile(r"\d\d:\d\d:\d\d(?: [AP]M)?")
_TITLE_LINES = 4


class NotReadable(ProveoutError):
    """A file is not a report of a known form."""

    exit_code = 2


def section(paths: Sequence[Path]) -> Section:
    """The tables of the files. NotReadable for one without a known table."""
    blocks: list[Block] = []
    for path in paths:
        try:
            large = path.stat().st_size > BYTES_MAX
            text = "" if large else path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise NotReadable(f"{path}: {error.strerror}", way_out="Name a file that you can read.") from None
        if large:
            raise NotReadable(f"{path} is larger than {size(BYTES_MAX)}", way_out="Name a report of one interval.")
        kind, tables = parsed(text)
        if not tables:
            known = "an AWR report in HTML, or Statspack, ttStats or sar as text"
            raise NotReadable(f"{path} has no table that proveout knows", way_out=f"Give {known}.")
        cut = f", the first {TABLES_MAX} of {len(tables)} tables" if len(tables) > TABLES_MAX else ""
        about = Paragraph(f"Brought in, not measured by proveout: {kind} {safe(path.name)}{cut}")
        blocks += [about, *tables[:TABLES_MAX]]
    return Section(title="Brought in", blocks=tuple(blocks), anchor="brought-in")


def parsed(text: str) -> tuple[str, list[Table]]:
    """(what it is, its tables); no tables for a text of another form."""
    if re.search(r"<table", text, re.IGNORECASE):
        reader = _Html()
        reader.feed(text)
        return "AWR report", [_table(title, rows) for title, rows in reader.tables if len(rows) > 1 and any(rows)]
    if re.search(r"^Average:", text, re.MULTILINE):
        return "sar", list(_sar(text.splitlines()))
    found = list(_ruled(text.splitlines()))
    wanted = [one for one in found if _WANTED.search(one.title)]
    return ("Statspack report", wanted) if wanted else ("ttStats report", found)


def _table(title: str, rows: Sequence[Sequence[str]]) -> Table:
    """The first row has the heads; the title says how much of a large table is there."""
    parts = (("rows", len(rows) - 1, ROWS_MAX), ("columns", max(map(len, rows)), COLUMNS_MAX))
    cut = " and ".join(f"{most} of {count} {name}" for name, count, most in parts if count > most)
    width = min(max(map(len, rows)), COLUMNS_MAX)
    heads, *others = [tuple(safe(cell) for cell in [*row, *[""] * width][:width]) for row in rows[: ROWS_MAX + 1]]
    return Table(title=safe(title) + f", the first {cut}" * bool(cut), heads=heads, rows=tuple(others))


class _Html(HTMLParser):
    """The wanted tables of a page: each with its summary, or the heading before it."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: list[tuple[str, list[list[str]]]] = []
        self._heading = ""
        self._into: list[str] | None = None  # the text of the cell or heading that is open
        self._rows: list[list[str]] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            title = dict(attrs).get("summary") or self._heading
            self._rows = []
            if _WANTED.search(f"{title} {self._heading}"):
                self.tables.append((self._heading or title, self._rows))
        elif tag == "tr" and self._rows is not None:
            self._rows.append([])
        elif tag in ("td", "th", "h1", "h2", "h3"):
            self._into = []

    def handle_data(self, data: str) -> None:
        if self._into is not None:
            self._into.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag == "table":
            self._rows, self._heading = None, ""
        elif tag in ("td", "th", "h1", "h2", "h3") and self._into is not None:
            text = " ".join("".join(self._into).split())
            if tag in ("td", "th") and self._rows:
                self._rows[-1].append(text)
            elif tag.startswith("h"):
                self._heading = text
            self._into = None


def _ruled(lines: Sequence[str]) -> Iterator[Table]:
    """The tables whose columns a line of dashes marks; the title is the wanted line above it, or the last one."""
    for at, line in enumerate(lines):
        spans = [one.span() for one in _RULE.finditer(line)]
        if at == 0 or len(spans) < 2 or line.strip("-~= \t"):
            continue
        above = [one.strip() for one in lines[max(at - _TITLE_LINES, 0) : at] if one.strip("-~= \t")]
        title = next((one for one in above if _WANTED.search(one)), above[0] if above else "")
        ends = [*(begin for begin, _ in spans[1:]), None]
        rows = [_cells(lines[at - 1], spans, ends)]
        for row in lines[at + 1 :]:
            if not row.strip() or not row.strip("-~= \t"):
                break
            rows.append(_cells(row, spans, ends))
        if len(rows) > 1:
            yield _table(re.split(r"\s{2,}", title)[0], rows)


def _cells(line: str, spans: Sequence[tuple[int, int]], ends: Sequence[int | None]) -> list[str]:
    return [
        line[begin if at else 0 : end].strip() for at, ((begin, _), end) in enumerate(zip(spans, ends, strict=True))
    ]


def _sar(lines: Sequence[str]) -> Iterator[Table]:
    """The averages of each activity, with the heads of its columns."""
    found: dict[tuple[str, ...], list[list[str]]] = {}
    heads: tuple[str, ...] = ()
    for line in lines:
        clock = _CLOCK.match(line)
        rest = tuple(line[clock.end() :].split()) if clock else ()
        if rest and not any(re.fullmatch(r"[\d.,]+", one) for one in rest):
            heads = rest
        elif line.startswith("Average:") and heads:
            cells = line.split()[1:]
            if len(cells) == len(heads) and cells != list(heads):
                found.setdefault(heads, []).append(cells)
    for heads, rows in found.items():
        yield _table("averages", [heads, *rows])
