"""The evidence of a verdict in a few lines, for the short form of a report. Pure.

Data flow: `VerdictReached.evidence` (pieces apart by semicolons, written by `coordinator.verdict`) -> what was compared
with its limit, what would decide it, and which checks of validity are flagged; the whole is in the other reports.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from proveout.core.numbers import pieces

_COMPARED = re.compile(r"(?P<of>.+?) = (?P<value>.+), limit (?P<sign><=|>=|<|>|==|!=) (?P<limit>.+?): (?P<why>.+)")
_FLAGGED = re.compile(r"note: (?P<check>[\w:.-]+) flagged in ")
_SIGNS = {"<=": "≤", ">=": "≥", "==": "=", "!=": "≠"}
_DECIDING = re.compile(r"reads |(about|more than) .+ would decide")
_ASIDE = ("note: ", "point estimates: ", "what to do: ")
OF_MAX = 48
"""Longer expressions are named by their outermost function."""


def brief_evidence(evidence: str, outcome: str) -> tuple[str, ...]:
    """Up to five lines: comparisons with their limits, what would decide an undecided verdict, flagged checks."""
    found = pieces(evidence)
    own = [piece for piece in found if not piece.startswith(_ASIDE) and not _DECIDING.match(piece)]
    lines = [_compared(piece) for piece in own[:3]]
    if len(own) > len(lines):
        lines[-1] += f" (and {len(own) - len(lines)} more)"
    if outcome == "INCONCLUSIVE" and (deciding := [piece for piece in found if _DECIDING.match(piece)]):
        lines.append("; ".join(reversed(deciding)))
    return (*lines, *flagged(found))


def without_notes(evidence: str) -> tuple[str, ...]:
    """The pieces of evidence, with one line for its notes: their texts are below "Validity", once for all verdicts."""
    found = pieces(evidence)
    own = tuple(piece for piece in found if not piece.startswith("note: "))
    return (*own, *(f"{line} (below, Validity)" for line in flagged(found)))


def _compared(piece: str) -> str:
    """`errors.fraction = 0 %, limit < 0.1 %: holds` as `errors.fraction 0 %, limit < 0.1 %`."""
    match = _COMPARED.fullmatch(piece)
    if match is None:
        return piece
    sign = _SIGNS.get(match["sign"], match["sign"])
    why = "" if match["why"] == "holds" else f": {match['why']}"
    return f"{_short(match['of'])} {match['value']}, limit {sign} {match['limit']}{why}"


def _short(expression: str) -> str:
    """The expression; a long call of a function without its arguments."""
    if len(expression) <= OF_MAX:
        return expression
    return re.sub(r"^(\w+)\(.*\)", r"\1(…)", expression)


def flagged(found: Sequence[str]) -> Iterator[str]:
    """The checks of validity that are flagged, in one line."""
    checks = dict.fromkeys(match["check"] for piece in found if (match := _FLAGGED.match(piece)))
    others = sum(piece.startswith("note: ") for piece in found) - len(checks)
    named = [*checks, *([f"{others} more"] if others and checks else [])]
    if named or others:
        count = len(checks) + others
        yield f"{count} note{'' if count == 1 else 's'}{': ' if named else ''}{', '.join(named)}"
