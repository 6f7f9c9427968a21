"""The outcome of a run as a sentence, and sections that are folded on a page. Pure."""

from __future__ import annotations

from dataclasses import replace

from proveout.coordinator.report.document import Details, Paragraph, Section
from proveout.coordinator.report.summary.run_end import end_tone
from proveout.coordinator.results.results import RunResults

TITLES_MAX = 2
"""Verdicts that the outcome sentence names."""
OPEN_MAX = 2
"""Inner sections that a page shows open."""


def answer(results: RunResults) -> Paragraph | None:
    """The counts of the verdicts, and the titles of those that are not passed: `1 failed: The cache is faster.`"""
    ended = results.ended
    if ended is None or not (results.verdicts or results.cautions):
        return None
    parts = [f"{ended.reason[:1].upper()}{ended.reason[1:]}."]
    for outcome, word in (("FAIL", "Failed"), ("INCONCLUSIVE", "Inconclusive")):
        titles = [one.title or one.id for one in results.verdicts if one.outcome == outcome]
        more = f" and {len(titles) - TITLES_MAX} more" if len(titles) > TITLES_MAX else ""
        parts += [f"{word}: {'; '.join(titles[:TITLES_MAX])}{more}."] if titles else []
    return Paragraph(" ".join(parts), end_tone(results))


def folded(section: Section, *, is_page: bool) -> Section:
    """The section with its inner sections folded, where a page has more than `OPEN_MAX` of them."""
    inner = [block for block in section.blocks if isinstance(block, Section)]
    if not is_page or len(inner) <= OPEN_MAX:
        return section
    blocks = tuple(
        Details(title=block.title, blocks=block.blocks) if isinstance(block, Section) else block
        for block in section.blocks
    )
    return replace(section, blocks=blocks)
