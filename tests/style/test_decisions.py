"""The decisions in docs/adr: each has a title, four sections and a row in the index."""

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "adr"
FILES = sorted(FOLDER.glob("0*.md"))
SECTIONS = ["Context", "Decision", "Alternatives", "Consequences"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_decision_has_a_title_and_four_sections(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert text.startswith(f"# {int(file.name[:4])}. ")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == SECTIONS


def test_the_index_lists_each_decision_with_its_title() -> None:
    rows = re.findall(
        r"^\| \d{4} \| \[([^]]*)\]\(([^)]*)\) \|", (FOLDER / "README.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    titles = [(re.sub(r"^# \d+\. ", "", file.read_text(encoding="utf-8").splitlines()[0]), file.name) for file in FILES]
    assert rows == titles


def test_the_index_is_in_the_order_of_the_numbers() -> None:
    """A number may be missing: a branch that has not landed has taken it."""
    numbers = re.findall(r"^\| (\d{4}) \|", (FOLDER / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert numbers == sorted(set(numbers))
