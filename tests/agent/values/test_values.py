"""The output of commands becomes rows (JSON, CSV, pairs, patterns), also output that is hostile or of another form; rows become
numbers: columns by name and number, rows by `where`, several rows by `take`, and cells that are not numbers."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from proveout.agent.capture.command_values import decoded, parse
from proveout.agent.capture.query_values import NoValue, ValueTable, number, read_values, same
from proveout.dsl.plan.commands import MeasuredValue, OutputRows

TABLE = ValueTable(
    columns=("NAME", "bytes", "Factor"),
    rows=(("LINEITEM", Decimal("247.27"), "1.67"), ("ORDERS", 54, " 2.0 "), ("EMPTY", None, "n/a")),
)


def read(table: ValueTable = TABLE, **value: Any) -> float:
    (found,) = read_values(table, [MeasuredValue(name="m", **value)])
    return found[1]


def of(name: str) -> tuple[tuple[str, str], ...]:
    return (("name", name),)


def table(text: str, **form: Any) -> ValueTable:
    return parse(text, OutputRows(**form))


def test_json_objects_and_lists_of_them() -> None:
    disks = (
        '{"hosts": [{"disks": [{"name": "a", "io": {"reads": 3}}, {"name": "b", "io": {"reads": 5}, "q": [7, 8]}]}]}'
    )
    found = table(disks, format="json", rows="hosts.0.disks")
    assert read(found, column="io.reads", where=of("b")) == 5.0
    assert read(found, column="q.1", where=of("b")) == 8.0
    assert read(found, column="io.reads", take="sum") == 8.0
    assert read(table('{"tps": 12.5}', format="json"), column="tps") == 12.5
    assert read(table("[1, 2, 3]", format="json"), column="value", take="max") == 3.0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a": NaN}', "NaN is not a number of JSON"),
        ("[" * 100_000, "nested too deeply|not JSON"),
        ('{"a":' * 200 + "1" + "}" * 200, "nested too deeply"),
        ("", "not JSON"),
        ("usage: tool [-x]", "begins with 'usage: tool"),
        ("1" * 5000, "not JSON"),
        pytest.param("[" + "1," * 100_000 + "1]", "more than 100,000 rows", id="rows"),
    ],
)
def test_what_is_not_json_is_refused(text: str, words: str) -> None:
    with pytest.raises(NoValue, match=words):
        table(text, format="json")


def test_a_path_that_is_missing_names_what_is_there() -> None:
    with pytest.raises(NoValue, match=r"nothing at `a\.x`") as caught:
        table('{"a": {"b": 1}}', format="json", rows="a.x")
    assert "b" in caught.value.way_out


def test_csv_with_and_without_a_header() -> None:
    found = table("time;reads;writes\n1;10;5\n2;20;5\n\n", format="csv", separator=";")
    assert read(found, column="READS", take="last") == 20.0
    assert read(found, column="writes", where=(("time", "2"),)) == 5.0
    assert read(table("1,2\n3,4\n", format="csv", header=False), column="2", take="sum") == 6.0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2,3\n", "row 2 of the output has 3 columns"),
        ('a\n"1', "not CSV"),
        pytest.param("a\n" + "1\n" * 100_001, "more than", id="rows"),
    ],
)
def test_what_is_not_csv_is_refused(text: str, words: str) -> None:
    with pytest.raises(NoValue, match=words):
        table(text, format="csv")


def test_pairs_with_their_units() -> None:
    found = table("MemTotal:  16 kB\nread bytes = 5\nload 0.25\n\nheading\nstate=up", format="pairs")
    assert read(found, column="MemTotal") == 16.0
    assert read(found, column="read bytes") == 5.0
    assert read(found, column="load") == 0.25
    assert read(found, column="load", where=(("state", "up"),)) == 0.25
    # A key that is there again begins a row.
    found = table("disk: a\nreads: 1\ndisk: b\nreads: 2\n", format="pairs")
    assert read(found, column="reads", where=(("disk", "b"),)) == 2.0
    with pytest.raises(NoValue, match="2 rows"):
        read(found, column="reads")


def test_a_pattern_is_matched_with_each_line() -> None:
    text = "sda 10 reads\nsdb 20 reads\ntotal\n"
    found = table(text, format="pattern", pattern=r"^(?P<disk>\w+) (?P<reads>\d+) reads")
    assert read(found, column="reads", where=(("disk", "sdb"),)) == 20.0
    with pytest.raises(NoValue, match="no line"):
        table(text, format="pattern", pattern=r"(?P<x>nothing)")


def test_hostile_lines_are_read_in_linear_time() -> None:
    """With backtracking, this test would take years."""
    megabyte = 1024 * 1024
    table(" " * megabyte, format="pairs")
    table("a " + "1" * megabyte, format="pairs")
    with pytest.raises(NoValue):
        table("a" * megabyte, format="pattern", pattern=r"^(?P<x>(?:a|a)*)*b$")


@pytest.mark.parametrize(("output", "words"), [(b"\xff\xfe", "not UTF-8"), (b"a\0b", "NUL")])
def test_binary_output_is_refused(output: bytes, words: str) -> None:
    with pytest.raises(NoValue, match=words):
        decoded(output)


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
        (9007199254740993, "9007199254740993", True),
        (9007199254740993, "9007199254740992", False),
        ("9007199254740993", "9007199254740992", False),
        (2.0**53, "9007199254740992", True),
    ],
)
def test_equality_is_of_numbers_or_of_texts(found: object, wanted: str, equal: bool) -> None:
    assert same(found, wanted) is equal
