"""The rules over prose: refused words (`vocabulary`), references that lead nowhere (`references`), and the decisions in
docs/adr. Each rule lists all that it finds in the sources and pages; its examples show that it finds what it should.
(`make check` runs the vocabulary over the sources.)
"""

from __future__ import annotations

import re
from typing import Any

import pytest
import vocabulary
import yaml
from references import read_tree, stale_references

ROOT = vocabulary.ROOT
ENTRIES: list[dict[str, Any]] = yaml.safe_load(vocabulary.RULES.read_text(encoding="utf-8"))["patterns"]
RULES, _ = vocabulary.read_rules()
ADR = ROOT / "docs" / "adr"
SECTIONS = ["Context", "Decision", "Alternatives", "Consequences"]


# ---- words


def test_each_pattern_matches_its_bad_examples_and_no_pattern_a_good_one() -> None:
    missed = [
        text
        for entry in ENTRIES
        for text in entry["bad"]
        if not list(vocabulary.find_matches([vocabulary.compile_rule(entry)], vocabulary.Block(text, 1)))
    ]
    assert missed == []
    good = [text for entry in ENTRIES for text in entry["good"]]
    assert [text for text in good if list(vocabulary.find_matches(RULES, vocabulary.Block(text, 1)))] == []
    assert [entry["pattern"] for entry in ENTRIES if not entry["bad"] or not entry["good"]] == []


PYTHON = '''"""Wait for whoever
holds it."""

# of no use to
# anybody
NOBODY = "nobody"


def wait() -> None:
    """Raise when no
    one answers, see `whoever`."""
    raise ValueError(
        f"{NOBODY} is no "
        "lock", "somebody", "ask somebody",
    )
'''
OF_TEST = 'def test_nobody_answers() -> None:\n    """Wait."""\n    assert "nobody is here"  # whoever\n'
PAGE = "# Page\n\nRun it as\nnobody.\n\n```\nnobody\n```\n- What it writes\n- How to write\n"


@pytest.mark.parametrize(
    ("path", "text", "found"),
    [
        ("dsl/m.py", PYTHON, [(1, "whoever"), (5, "anybody"), (10, "no one"), (13, "is no lock"), (14, "somebody")]),
        ("tests/test_m.py", OF_TEST, [(1, "nobody"), (3, "whoever")]),
        ("docs/page.md", PAGE, [(4, "nobody"), (9, "What it writes")]),
        ("plans/a.yaml", "a: nobody  # whoever\n", [(1, "whoever")]),
        ("proto/a.proto", "int32 nobody = 1;  // whoever\n", [(1, "whoever")]),
        ("a.pyx", "nobody = 1  # whoever\n", [(1, "whoever")]),
    ],
)
def test_words_are_found_in_the_prose_of_each_kind_of_file(path: str, text: str, found: list[tuple[int, str]]) -> None:
    assert [(one.line, one.found) for one in vocabulary.check_text(path, text, RULES)] == found


# ---- references


STALE = [
    ("dsl/a.py", '"""See `agent.gone_module`."""'),
    ("dsl/a.py", '"""See `proveout.dsl.gone_module.compile`."""'),
    ("dsl/a.py", '"""Read by `tests/gone_file.py`."""'),
    ("dsl/a.py", "# the words of `gone_file.py`"),
    ("dsl/a.py", '"""Made by `gone_function_name`."""'),
    ("dsl/a.py", '"""Why: ADR 9999."""'),
    ("docs/a.md", "The module `agent/gone_file.py` does it."),
    ("docs/a.md", "Shown by `test_of_a_thing_that_is_gone`."),
    ("docs/a.md", "The table `GONE_FROM_HERE` has them."),
    ("docs/a.md", "A case of `_gone_from_here` in `dsl/explain/text.py`."),
    ("docs/a.md", "See [there](gone.md)."),
    ("docs/a.md", "See [there](security.md#gone-heading)."),
]
SOUND = [
    ("dsl/a.py", '"""See `core.statistics.ratio`, `proveout.dsl`, `tests/style/`, `pyproject.toml` and ADR 3."""'),
    ("dsl/a.py", '"""A metric: `memory.used_bytes`; a file of a run: `samples/a.parquet`."""'),
    ("docs/a.md", "`agent/db1` is a role, `test_prose.py` a file, [security](security.md) a page."),
    ("docs/a.md", "`_lines` of `dsl/explain/text.py` has `FUNCTION_LINES_MAX`, with `PROVEOUT_UPDATE_GOLDEN=1`."),
    ("docs/a.md", "```\nsee [there](gone.md)\n```"),
]


def test_references_that_lead_nowhere_are_found_and_no_others() -> None:
    tree = read_tree()
    assert [case for case in STALE if len(list(stale_references(tree, case[0], case[1] + "\n"))) != 1] == []
    assert [found for path, text in SOUND for found in stale_references(tree, path, text + "\n")] == []


def test_no_reference_of_sources_and_pages_leads_nowhere() -> None:
    paths = [path for path in vocabulary.select_files([]) if path.endswith(vocabulary.PROSE_SUFFIXES)]
    tree, texts = read_tree(), ((path, (ROOT / path).read_text(encoding="utf-8")) for path in paths)
    stale = [found for path, text in texts for found in stale_references(tree, path, text)]
    assert stale == [], "\n".join(stale)


# ---- decisions


def test_each_decision_has_a_title_four_sections_and_a_row_in_the_index() -> None:
    """A number may be missing in the index: a branch that has not landed has taken it."""
    texts = {file.name: file.read_text(encoding="utf-8") for file in sorted(ADR.glob("0*.md"))}
    heads = {name: re.match(rf"# {int(name[:4])}\. (.*)\n", text) for name, text in texts.items()}
    assert [name for name, head in heads.items() if head is None] == []
    assert [name for name, text in texts.items() if re.findall(r"^## (.*)$", text, re.MULTILINE) != SECTIONS] == []
    index = (ADR / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \d{4} \| \[([^]]*)\]\(([^)]*)\) \|", index, re.MULTILINE)
    assert rows == [(head[1], name) for name, head in heads.items() if head is not None]
    numbers = re.findall(r"^\| (\d{4}) \|", index, re.MULTILINE)
    assert numbers == sorted(set(numbers))
