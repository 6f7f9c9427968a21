"""The end of a run in a sentence, its answers in a line each, and the command that continues it. Pure; reports and the
screen use the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from proveout.coordinator.report.summary.claims import claims
from proveout.coordinator.results.results import RunResults
from proveout.core.numbers import pieces, seconds
from proveout.proto.events import VerdictReached

PLAN_WRONG = 2
_TO_DO = "what to do: "
FIRST = "; the first: "
"""Before the first problem in the reason of a failed preflight."""


def end_sentence(results: RunResults, *, reason: bool = True) -> tuple[str, Literal["good", "bad", "warn"]]:
    """`finished in 2 min: 5 passed (exit code 0)`, and its tone; `reason`: with what follows the colon."""
    ended = results.ended
    if ended is None:
        return "not finished: no end of the run is recorded", "warn"
    why = f": {untold(ended.reason, [one.text for one in results.notices])}" if reason and ended.reason else ""
    text = f"{ended.status} in {seconds(ended.seconds)}{why} (exit code {ended.exit_code})"
    return text, end_tone(results)


def end_tone(results: RunResults) -> Literal["good", "bad", "warn"]:
    """The tone of a run's end; not good where a reader must know something before the numbers."""
    code = results.ended.exit_code if results.ended else 0
    return "bad" if code in (1, 4) else "warn" if code or results.cautions else "good"


def untold(reason: str, told: Iterable[str]) -> str:
    """The reason of a run's end without the problem that a notice has told already (`preflight.step`)."""
    return next((reason.removesuffix(end) for text in told if reason.endswith(end := f"{FIRST}{text}")), reason)


def began_nothing(results: RunResults) -> bool:
    """Whether the run failed before its first stage and its first system: there is nothing to show and to continue."""
    is_failed = results.ended is not None and results.ended.status == "failed"
    return is_failed and not (results.stages or results.systems or results.tunings)


def resume_command(results: RunResults, run_dir: str | Path) -> str:
    """The command that continues a run that was broken off; "" where it has finished, or its plan is wrong."""
    ended = results.ended
    if ended is not None and (ended.status == "finished" or ended.exit_code == PLAN_WRONG or began_nothing(results)):
        return ""
    return f"proveout resume {run_dir}"


def answers(results: RunResults) -> Iterator[tuple[str, Literal["good", "bad", "warn"]]]:
    """The cautions; then each verdict in a line: outcome, title, the numbers with their
    limits, and of an undecided one what to do."""
    yield from ((text, "warn") for text in results.cautions)
    for verdict in results.verdicts:
        tone: Literal["good", "bad", "warn"] = "good" if verdict.outcome == "PASS" else "warn"
        if verdict.outcome == "FAIL" and verdict.severity == "fail":
            tone = "bad"
        yield f"{verdict.outcome}  {verdict.title or verdict.id}: {_found(verdict, results)}", tone


def _found(verdict: VerdictReached, results: RunResults) -> str:
    said = pieces(verdict.evidence)
    numbers = [f"{one.value}, limit {one.limit}" if one.limit else one.value for one in claims(verdict, results)]
    text = "; ".join(numbers) or said[0]
    ways = [piece for piece in said if piece.startswith(_TO_DO)]
    return f"{text}; {ways[0]}" if ways and verdict.outcome == "INCONCLUSIVE" else text
