"""The loader: values and positions for good files, and only collected problems for all others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import thorough
from hypothesis import given, settings
from hypothesis import strategies as st

from proveout.core.errors import PlanError
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.source.loader import NODES_MAX, load, loads
from proveout.dsl.source.nodes import Map, Problems, Scalar, Seq, plain

GOLDEN = Path(__file__).parents[2] / "golden"
PIECES = [
    "proveout: 1\n", "name: ", "stages:\n", "  - ladder: ", "{", "}", "[", "]", "&a ", "*a", "<<: ", "!!str ", "? ",
    ": ",
    "- ", "|\n", ">-\n  ", '"', "'", "\\u202e", "${params.x}", "#", "\n", "  ", "%YAML 1.1\n", "---\n", "...\n",
    "1_000",
    "no", "22:22", "é", "\u202e", "\t", "\x00", "threads: [1, 2]\n", "params: {x: {type: int, default: 1}}\n", "@", "`",
]  # fmt: skip


def read(text: str | bytes) -> tuple[Map | None, list[str]]:
    problems = Problems()
    content = text.encode() if isinstance(text, str) else text
    root = loads(content, "p.yaml", problems)
    return root, [f"{problem.where.line}:{problem.where.column} {problem.message}" for problem in problems.found]


def test_values_and_positions() -> None:
    root, problems = read('a: 20_000\nb: [1.5, true, "no", -3, x y]\non:\n  c: |\n    two\n    lines\nd:\n')
    assert problems == []
    assert root is not None
    assert plain(root) == {
        "a": 20_000, "b": [1.5, True, "no", -3, "x y"], "on": {"c": "two\nlines\n"}, "d": None,
    }  # fmt: skip
    items = root.get("b")
    assert isinstance(items, Seq)
    quoted = items.items[2]
    assert isinstance(quoted, Scalar)
    assert (quoted.where.line, quoted.where.column, quoted.at(1).column) == (2, 16, 18)


def test_windows_line_ends_and_aliases() -> None:
    assert read("a: 1\r\nb: 2\r\n")[1] == []
    assert read('"<<": 1\n"a:b":\n')[1] == [], "what is quoted is meant"
    root, problems = read("a: &x {b: [1]}\r\nc: *x\r\n")
    assert (root and plain(root), problems) == ({"a": {"b": [1]}, "c": {"b": [1]}}, [])


def test_a_file_that_is_too_large_is_not_parsed_and_a_pipe_does_not_block(tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(50 << 20)
    os.mkfifo(tmp_path / "pipe")
    found = {}
    for name in ("large", "pipe"):
        problems = Problems()
        assert load(tmp_path / name, name, problems) is None
        found[name] = [problem.message for problem in problems.found]
    assert found == {"large": ["the file is larger than 1 MiB"], "pipe": ["not a regular file"]}


def test_aliases_expand_up_to_the_limit() -> None:
    half = ", ".join(["1"] * (NODES_MAX // 2 - 100))
    assert read(f"a: &a [{half}]\nb: *a\n")[1] == []
    root, problems = read(f"a: &a [{half}]\nb: [*a, *a]\n")
    assert root is None
    assert len(problems) == 1
    assert "values once aliases are expanded" in problems[0]


@settings(max_examples=300, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=200),
        st.text(max_size=200).map(str.encode),
        st.lists(st.sampled_from(PIECES), max_size=25).map(lambda pieces: "".join(pieces).encode()),
    )
)
def test_any_bytes_end_in_a_mapping_or_in_problems(content: bytes) -> None:
    root, problems = read(content)
    assert root is not None or problems


@pytest.mark.thorough
@settings(max_examples=thorough.count(150, 30), deadline=None)
@given(st.data())
def test_a_damaged_plan_never_raises_anything_else(data: st.DataObject) -> None:
    """Remove pieces of a plan that uses all features, insert others, and compile the result."""
    text = (GOLDEN / "good" / "everything.yaml").read_text()
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(start + 40, len(text))))
    damaged = text[:start] + data.draw(st.sampled_from(["", *PIECES])) + text[end:]
    path = GOLDEN / "good" / f"damaged-{os.getpid()}.yaml"
    try:
        path.write_text(damaged)
        compile_plan(path)
    except PlanError as error:
        assert error.problems
    finally:
        path.unlink(missing_ok=True)
