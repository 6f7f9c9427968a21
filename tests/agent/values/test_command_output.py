"""The output of commands becomes rows: JSON, CSV, pairs and patterns, and output that is hostile or of another form."""

from __future__ import annotations

from typing import Any

import pytest

from proveout.agent.capture.command_values import decoded, parse
from proveout.agent.capture.query_values import NoValue, ValueTable, read_values
from proveout.dsl.plan.commands import MeasuredValue, OutputRows


def table(text: str, **form: Any) -> ValueTable:
    return parse(text, OutputRows(**form))


def one(found: ValueTable, column: str, **more: Any) -> float:
    return dict(read_values(found, [MeasuredValue(name="a", column=column, **more)]))["a"]


def test_json_objects_and_lists_of_them() -> None:
    disks = (
        '{"hosts": [{"disks": [{"name": "a", "io": {"reads": 3}}, {"name": "b", "io": {"reads": 5}, "q": [7, 8]}]}]}'
    )
    found = table(disks, format="json", rows="hosts.0.disks")
    assert one(found, "io.reads", where=(("name", "b"),)) == 5.0
    assert one(found, "q.1", where=(("name", "b"),)) == 8.0
    assert one(found, "io.reads", take="sum") == 8.0
    assert one(table('{"tps": 12.5}', format="json"), "tps") == 12.5
    assert one(table("[1, 2, 3]", format="json"), "value", take="max") == 3.0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a": NaN}', "NaN is not a number of JSON"),
        ("[" * 100_000, "nested too deeply|not JSON"),
        ('{"a":' * 200 + "1" + "}" * 200, "nested too deeply"),
        ("", "not JSON"),
        ("usage: tool [-x]", "begins with 'usage: tool"),
        ("1" * 5000, "not JSON"),
        ("[" + "1," * 20_000 + "1]", "more than 10,000 rows"),
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
    assert one(found, "READS", take="last") == 20.0
    assert one(found, "writes", where=(("time", "2"),)) == 5.0
    assert one(table("1,2\n3,4\n", format="csv", header=False), "2", take="sum") == 6.0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2,3\n", "row 2 of the output has 3 columns"),
        ('a\n"1', "not CSV"),
        ("a\n" + "1\n" * 10_001, "more than"),
    ],
)
def test_what_is_not_csv_is_refused(text: str, words: str) -> None:
    with pytest.raises(NoValue, match=words):
        table(text, format="csv")


def test_pairs_with_their_units() -> None:
    found = table("MemTotal:  16 kB\nread bytes = 5\nload 0.25\n\nheading\nstate=up", format="pairs")
    assert one(found, "MemTotal") == 16.0
    assert one(found, "read bytes") == 5.0
    assert one(found, "load") == 0.25
    assert one(found, "load", where=(("state", "up"),)) == 0.25
    # A key that is there again begins a row.
    found = table("disk: a\nreads: 1\ndisk: b\nreads: 2\n", format="pairs")
    assert one(found, "reads", where=(("disk", "b"),)) == 2.0
    with pytest.raises(NoValue, match="2 rows"):
        one(found, "reads")


def test_a_pattern_is_matched_with_each_line() -> None:
    text = "sda 10 reads\nsdb 20 reads\ntotal\n"
    found = table(text, format="pattern", pattern=r"^(?P<disk>\w+) (?P<reads>\d+) reads")
    assert one(found, "reads", where=(("disk", "sdb"),)) == 20.0
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
