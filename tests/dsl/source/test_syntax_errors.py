"""Files that are not YAML: the place of the mistake, and the rest of the file read where the mistake is clear. (Other
mistakes: tests/golden/bad.)"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proveout.dsl.source.loader import loads
from proveout.dsl.source.nodes import Map, Problems, plain


def read(text: str) -> tuple[Map | None, list[str]]:
    problems = Problems()
    root = loads(text.encode(), "p.yaml", problems)
    found = problems.error().problems if problems.found else ()
    return root, [f"{one.where.line}:{one.where.column} {one.message}" for one in found]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('a: {b: "x, c: 2}\nd: {e: "y"}\n', "1:8 a quote opens here and closes only in line 2"),
        ("a: [b, c\nd: 1\n", "1:4 `[` opens here and is not closed"),
        ("a: {b: 1 c: 2}\n", "1:10 a comma is missing before `c`"),
        ("a: {b: 1}}\n", "1:10 this `}` closes nothing"),
        ('a: "\\d"\n', '1:5 `\\d` is not an escape in "…"'),
        ("a:\n  - b\n  c: 1\n", "3:3 a key, where an item of the list should be"),
    ],
)
def test_the_place_of_the_mistake(text: str, message: str) -> None:
    assert read(text)[1] == [message]


def test_the_rest_of_the_file_is_read() -> None:
    root, problems = read('name t\ntitle: "half\nlist: [1, 2\nkind:hlr\nno: yes\nlast\n')
    assert root is not None
    assert plain(root) == {"name": "t", "title": "half", "list": [1, 2], "kind": "hlr", "no": "yes", "last": None}
    assert problems == [
        "1:5 a `:` is missing after `name`",
        "2:8 a quote opens here and is not closed",
        "3:7 `[` opens here and is not closed",
        "4:6 a space is missing after `kind:`",
        "5:5 `yes` is a boolean in YAML 1.1 and a word elsewhere",
        "6:5 a `:` is missing after `last`",
    ]


@given(
    st.lists(st.sampled_from(["a: ", "b", "\n", "  ", "- ", "{", "}", "[", "]", '"', "'", ":", "c:d", ", ", "|", "&"]))
)
def test_every_place_is_in_the_file(words: list[str]) -> None:
    text = "".join(words)
    problems = Problems()
    loads(text.encode(), "p.yaml", problems)
    lines = text.split("\n")
    for one in problems.found:
        assert 1 <= one.where.line <= len(lines) + 1
        assert one.where.column <= max(map(len, lines)) + 2
