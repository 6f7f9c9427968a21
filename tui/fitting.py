"""Parts of a line that are left out as wholes where they do not fit. Pure.

A number that is cut reads as another number: a line that is too wide loses its parts of the highest rank first.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.text import Text

Part = tuple[str, str, int]
"""A part of a line: text, style, rank. Parts of rank 0 stay."""


def kept(parts: Sequence[Part], width: int | None) -> list[Part]:
    """The parts that fit into `width` cells; at least one."""
    left = list(parts)
    while width is not None and len(left) > 1 and sum(cell_len(text) for text, _, _ in left) > width:
        worst = max(range(len(left)), key=lambda place: (left[place][2], place))
        if left[worst][2] == 0:
            break
        del left[worst]
    return left


def fitted(parts: Sequence[Part], width: int | None) -> Text:
    """The line of these parts in at most `width` cells; parts of rank 0 alone that are wider are shortened."""
    text = Text(no_wrap=True, end="")
    for part, style, _ in kept(parts, width):
        text.append(part, style=style)
    if width is not None and text.cell_len > width:
        text.truncate(max(width, 1), overflow="ellipsis")
    return text


def justified(left: Sequence[Part], right: Sequence[Part], width: int) -> Text:
    """Parts at the left, parts at the right end of a line of `width` cells; those of the highest rank go first."""
    gap = ("  ", "", 0)
    both = kept([*left, gap, *right], width)
    at_right = [part for part in both if any(part is one for one in right)]
    used = sum(cell_len(text) for text, _, _ in at_right)
    text = fitted([part for part in both if part is not gap and part not in at_right], max(width - used - 1, 1))
    text.append(" " * max(width - used - text.cell_len, 0))
    for part, style, _ in at_right:
        text.append(part, style=style)
    return text
