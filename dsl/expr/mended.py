"""An expression with notations of other languages replaced, so that the rest of it is checked too.

Data flow: text -> `parse` -> its first mistake (`other_notations`) -> the text with what was meant in its place ->
again, until it parses or the next fault has no certain replacement.
"""

from __future__ import annotations

from proveout.core.data_classes import dataclass
from proveout.dsl.expr.other_notations import Mistake
from proveout.dsl.expr.syntax import ExpressionFault, Syntax, parse

MISTAKES_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Mended:
    """The faults, with offsets into the text as written, and the tree of `text`; None where it cannot be parsed."""

    text: str
    tree: Syntax | None
    faults: tuple[ExpressionFault, ...] = ()
    mistakes: tuple[Mistake, ...] = ()

    def written(self, offset: int) -> int:
        """The place in the text as written of a place in `text`."""
        return _written(offset, self.mistakes)


def mend(text: str) -> Mended:
    """The tree of an expression, past what can be replaced."""
    faults: list[ExpressionFault] = []
    mistakes: list[Mistake] = []
    while True:
        try:
            tree = parse(text)
        except ExpressionFault as fault:
            mistake = fault.mistake
            found = ExpressionFault(fault.what, text=fault.text, way_out=fault.way_out)
            found.offset = _written(fault.offset, mistakes)
            faults.append(found)
            if mistake is None or mistake.meant is None or len(mistakes) == MISTAKES_MAX:
                return Mended(text=text, tree=None, faults=tuple(faults), mistakes=tuple(mistakes))
            mistakes.append(mistake)
            text = f"{text[: mistake.start]}{mistake.meant}{text[mistake.end :]}"
        else:
            return Mended(text=text, tree=tree, faults=tuple(faults), mistakes=tuple(mistakes))


def _written(offset: int, mistakes: list[Mistake] | tuple[Mistake, ...]) -> int:
    for mistake in reversed(mistakes):
        grown = len(mistake.meant or "") - (mistake.end - mistake.start)
        if offset >= mistake.end + grown:
            offset -= grown
        elif offset > mistake.start:
            offset = mistake.start
    return offset
