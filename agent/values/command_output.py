"""The output of a command -> `ValueTable`. Pure; the output may be hostile, so each form is bounded and strict.

JSON is that of RFC 8259: no NaN, no infinity. Regular expressions are matched by RE2, in time linear in the text.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from proveout.agent.values.value_table import ROWS_MAX, NoValue, ValueTable, shown
from proveout.dsl.plan.commands import OutputFormat, OutputRows

DEPTH_MAX = 50
CELLS_MAX = 100_000
KEY_MAX, NUMBER_MAX = 200, 80
_MARK = re.compile(r"[=:]")
_NUMBER_AND_UNIT = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*[A-Za-zµ%/]+")


def decoded(output: bytes) -> str:
    """The output as text. NoValue where it is not UTF-8 text."""
    try:
        text = output.decode()
    except UnicodeDecodeError as error:
        raise NoValue(f"the output is not UTF-8 text (byte {error.start + 1})", "an option that prints text") from None
    if "\0" in text:
        raise NoValue("the output is not text: it holds NUL bytes", "an option that prints text")
    return text


def parse(text: str, form: OutputRows) -> ValueTable:
    """The rows of an output. NoValue where it has another form."""
    return _FORMS[form.format](text, form)


def _table(rows: Sequence[Mapping[str, Any]]) -> ValueTable:
    """The table of rows that may each lack some columns."""
    columns = tuple(dict.fromkeys(name for row in rows for name in row))
    if len(rows) > ROWS_MAX or len(columns) * len(rows) > CELLS_MAX:
        raise NoValue(f"the output has more than {ROWS_MAX:,} rows or {CELLS_MAX:,} values")
    return ValueTable(columns=columns, rows=[[row.get(name) for name in columns] for row in rows])


# ---- json ------------------------------------------------------------------------------------------------------------


def _json(text: str, form: OutputRows) -> ValueTable:
    try:
        found = json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise NoValue("the output is JSON that is nested too deeply") from None
    except ValueError as error:
        raise NoValue(f"the output is not JSON: {error}; it begins with {shown(text)}") from None
    at = ""
    for step in filter(None, form.rows.split(".")):
        at = f"{at}.{step}" if at else step
        found = _below(found, step, at)
    items = found if isinstance(found, list) else [found]
    if len(items) > ROWS_MAX:
        raise NoValue(f"the output has more than {ROWS_MAX:,} rows")
    return _table([dict(_flat(item, "", 0)) if isinstance(item, dict | list) else {"value": item} for item in items])


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a number of JSON")


def _below(found: Any, step: str, at: str) -> Any:
    if isinstance(found, dict) and step in found:
        return found[step]
    if isinstance(found, list) and step.isdecimal() and int(step[:9]) < len(found):
        return found[int(step[:9])]
    names = ", ".join(list(found)[:8]) if isinstance(found, dict) else f"a {type(found).__name__}"
    raise NoValue(f"the output has nothing at `{at}`", f"there is {names[:400]}")


def _flat(item: Any, name: str, depth: int) -> Iterator[tuple[str, Any]]:
    """The values of nested data with dotted names; elements of lists are counted from 0."""
    if depth > DEPTH_MAX:
        raise NoValue("the output is JSON that is nested too deeply")
    parts = item.items() if isinstance(item, dict) else enumerate(item)
    for key, value in parts:
        path = f"{name}.{key}" if name else str(key)
        if isinstance(value, dict | list):
            yield from _flat(value, path, depth + 1)
        else:
            yield path, value


# ---- lines -----------------------------------------------------------------------------------------------------------


def _csv(text: str, form: OutputRows) -> ValueTable:
    rows: list[list[str]] = []
    try:
        for row in csv.reader(io.StringIO(text), delimiter=form.separator, strict=True):
            if len(rows) > ROWS_MAX:
                raise NoValue(f"the output has more than {ROWS_MAX:,} rows")
            rows += [[cell.strip() for cell in row]] if row else []
    except csv.Error as error:
        raise NoValue(f"the output is not CSV: {error}") from None
    if form.header:
        names, *rows = rows or [[]]
    else:
        names = [str(number) for number in range(1, max(map(len, rows), default=0) + 1)]
    for number, row in enumerate(rows, 2 if form.header else 1):
        if len(row) > len(names):
            raise NoValue(f"row {number} of the output has {len(row)} columns, and the first one {len(names)}")
    return ValueTable(columns=tuple(names), rows=[row + [None] * (len(names) - len(row)) for row in rows])


def _pairs(text: str, _: OutputRows) -> ValueTable:
    rows: list[dict[str, Any]] = []
    for line in map(str.strip, text.splitlines()):
        mark = _MARK.search(line, 1, KEY_MAX)
        words = (line[: mark.start()], line[mark.end() :]) if mark else line.split(maxsplit=1)
        if len(words) < 2:
            continue
        key, value = (word.strip() for word in words)
        if not rows or key in rows[-1]:
            rows.append({})
        unit = _NUMBER_AND_UNIT.fullmatch(value) if len(value) <= NUMBER_MAX else None
        rows[-1][key] = unit[1] if unit else value
    return _table(rows)


def _pattern(text: str, form: OutputRows) -> ValueTable:
    import pyarrow as pa  # noqa: PLC0415 - 100 ms that only a pattern needs
    import pyarrow.compute as pc  # noqa: PLC0415

    found = pc.extract_regex(pa.array(text.splitlines(), pa.string()), pattern=form.pattern).drop_null()
    if not len(found):
        raise NoValue(f"no line of the output matches the pattern; it begins with {shown(text)}")
    return _table(found.to_pylist())


_FORMS: Mapping[OutputFormat, Callable[[str, OutputRows], ValueTable]] = {
    "json": _json,
    "csv": _csv,
    "pairs": _pairs,
    "pattern": _pattern,
}
