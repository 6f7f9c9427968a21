"""Numbers from tables: columns by name and number, rows by `where`, several rows by `take`, and cells that are not numbers."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from proveout.agent.capture.query_values import NoValue, ValueTable, number, read_values, same
from proveout.dsl.plan.commands import MeasuredValue

TABLE = ValueTable(
    columns=("NAME", "bytes", "Factor"),
    rows=(("LINEITEM", Decimal("247.27"), "1.67"), ("ORDERS", 54, " 2.0 "), ("EMPTY", None, "n/a")),
)


def read(table: ValueTable = TABLE, **value: Any) -> float:
    (found,) = read_values(table, [MeasuredValue(name="m", **value)])
    return found[1]


def of(name: str) -> tuple[tuple[str, str], ...]:
    return (("name", name),)


def test_a_column_is_found_by_its_name_without_case_or_by_its_number() -> None:
    assert read(column="BYTES", where=of("LINEITEM")) == 247.27
    assert read(column="2", where=of("ORDERS")) == 54.0
    assert read(column="factor", where=of("ORDERS")) == 2.0
    table = ValueTable(columns=("7", "2"), rows=((1, 5),))
    assert read(table, column="2") == 5.0
    assert read(table, column="1") == 1.0


@pytest.mark.parametrize(
    ("take", "result"), [("last", 54.0), ("sum", 301.27), ("avg", 150.635), ("min", 54.0), ("max", 247.27)]
)
def test_several_rows_are_taken_together(take: str, result: float) -> None:
    two = ValueTable(columns=TABLE.columns, rows=TABLE.rows[:2])
    assert read(two, column="bytes", take=take) == pytest.approx(result)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"column": "gbytes"}, "the result has no column 'gbytes'"),
        ({"column": "4"}, "the result has no column '4'"),
        ({"column": "bytes", "where": (("kind", "x"),)}, "the result has no column 'kind'"),
        ({"column": "bytes", "where": of("NATION")}, "none of the 3 rows has name = NATION"),
        ({"column": "bytes", "where": of("EMPTY")}, "it is empty (NULL)"),
        ({"column": "factor", "where": of("EMPTY")}, "'n/a' is not a number"),
        ({"column": "bytes"}, "it is empty (NULL)"),
    ],
)
def test_what_is_missing_is_named(value: dict[str, Any], words: str) -> None:
    with pytest.raises(NoValue) as fault:
        read(**value)
    assert words in fault.value.what
    assert fault.value.what.startswith("metric `m`: ")


def test_one_number_of_several_rows_needs_a_choice() -> None:
    two = ValueTable(columns=TABLE.columns, rows=TABLE.rows[:2])
    with pytest.raises(NoValue, match="2 rows, and a metric is one number") as fault:
        read(two, column="bytes")
    assert "`take`" in fault.value.way_out
    with pytest.raises(NoValue, match="the result has no rows"):
        read(ValueTable(columns=("a",), rows=()), column="a")


def test_only_finite_numbers_count() -> None:
    for found in (float("nan"), float("inf"), "inf", "1e999", "", None, b"1", object(), "1,5"):
        with pytest.raises(NoValue):
            number(found)
    assert number(timedelta(minutes=2)) == 120.0
    assert number(True) == 1.0


@pytest.mark.parametrize(
    ("found", "wanted", "equal"),
    [
        (Decimal("0.0"), "0", True),
        (0, "0.0", True),
        (True, "true", True),
        (True, "1", True),
        (False, "true", False),
        ("COMPLETED", "COMPLETED", True),
        ("COMPLETED ", "COMPLETED", True),
        ("completed", "COMPLETED", False),
        (None, "0", False),
        (None, "None", False),
        ("12", "12.0", True),
        ("", "0", False),
    ],
)
def test_equality_is_of_numbers_or_of_texts(found: object, wanted: str, equal: bool) -> None:
    assert same(found, wanted) is equal
