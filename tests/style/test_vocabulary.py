"""The vocabulary check: each pattern matches its bad examples and none of its good ones; texts are found where they are
in a file."""

from pathlib import Path
from typing import Any

import pytest
import vocabulary
import yaml

HERE = Path(__file__).parent
ENTRIES: list[dict[str, Any]] = yaml.safe_load((HERE / "vocabulary.yaml").read_text(encoding="utf-8"))["patterns"]
RULES, _ = vocabulary.read_rules()


def _cases(kind: str) -> list[Any]:
    return [pytest.param(entry, text, id=text) for entry in ENTRIES for text in entry[kind]]


@pytest.mark.parametrize(("entry", "text"), _cases("bad"))
def test_a_pattern_matches_its_bad_example(entry: dict[str, Any], text: str) -> None:
    rule = vocabulary.compile_rule(entry)
    assert list(vocabulary.find_matches([rule], vocabulary.Block(text, 1)))


@pytest.mark.parametrize(("entry", "text"), _cases("good"))
def test_no_pattern_matches_a_good_example(entry: dict[str, Any], text: str) -> None:
    assert not list(vocabulary.find_matches(RULES, vocabulary.Block(text, 1)))


def test_every_pattern_has_examples() -> None:
    assert [entry["pattern"] for entry in ENTRIES if not entry["bad"] or not entry["good"]] == []


def _found(path: str, text: str) -> list[tuple[int, str]]:
    return [(finding.line, finding.found) for finding in vocabulary.check_text(path, text, RULES)]


PYTHON = '''"""Wait for whoever
holds it."""

# of no use to
# anybody
NOBODY = "nobody"


def wait() -> None:
    """Raise when no
    one answers."""
    raise ValueError(
        f"{NOBODY} is no "
        "lock", "somebody", "ask somebody",
    )
'''


def test_python_docstrings_comments_and_messages_are_checked() -> None:
    assert _found("dsl/module.py", PYTHON) == [
        (1, "whoever"),
        (5, "anybody"),
        (10, "no one"),
        (13, "is no lock"),
        (14, "somebody"),
    ]


def test_of_tests_the_names_are_checked_and_the_strings_are_not() -> None:
    text = 'def test_nobody_answers() -> None:\n    """Wait."""\n    assert "nobody is here"  # whoever\n'
    assert _found("tests/test_module.py", text) == [(1, "nobody"), (3, "whoever")]


def test_code_between_backquotes_is_not_checked() -> None:
    assert _found("dsl/module.py", '"""Run as `nobody`, see `aide`\n`whoever`."""\n') == []


def test_markdown_is_checked_outside_code_blocks() -> None:
    text = "# Page\n\nRun it as\nnobody.\n\n```\nnobody\n```\n- What it writes\n- How to write\n"
    assert _found("docs/page.md", text) == [(4, "nobody"), (9, "What it writes")]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("plans/a.yaml", "a: nobody  # whoever\n"),
        ("proto/a.proto", "int32 nobody = 1;  // whoever\n"),
        ("a.pyx", "nobody = 1  # whoever\n"),
    ],
)
def test_other_files_have_their_comments_checked(path: str, text: str) -> None:
    assert _found(path, text) == [(1, "whoever")]


def test_an_allowed_line_has_no_findings() -> None:
    allowed = [vocabulary.Allowed("docs/*", "user nobody")]
    text = "The user nobody runs it.\n\nThen nobody does.\n"
    assert [finding.line for finding in vocabulary.check_text("docs/page.md", text, RULES, allowed)] == [3]
    assert len(vocabulary.check_text("README.md", text, RULES, allowed)) == 2


def test_findings_are_printed_and_fail_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    findings = {"docs/page.md": vocabulary.check_text("docs/page.md", "Nobody is here.\n", RULES)}
    assert vocabulary.report({"docs/page.md": []}) == 0
    assert vocabulary.report(findings) == 1
    assert 'docs/page.md:1: "Nobody": name the subject' in capsys.readouterr().out


def test_the_selection_has_sources_and_pages_but_no_generated_files() -> None:
    selected = set(vocabulary.select_files([]))
    assert {"README.md", "CHANGELOG.md", "Makefile", "pyproject.toml", "docs/security.md"} <= selected
    assert not [
        path
        for path in selected
        if "_pb2" in path or path.startswith(("docs/reference/", "tests/golden/", "src/proveout/dsl/"))
    ]
