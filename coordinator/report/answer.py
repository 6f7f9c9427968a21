"""The answer of a run in words, with which every report begins. Pure.

First what a reader must know before the numbers (cautions, an end before the last stage), then a sentence for each
verdict that failed, is undecided or passed, then the rates that searches found, last the verdicts that only warn;
without verdicts the headline numbers.
Of a verdict that passed it is its `answer`, where the plan has one for any; otherwise its title with its number.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from proveout.coordinator.report.summary import TONES, claims, end_tone, headline, printed
from proveout.coordinator.results.published import measured
from proveout.coordinator.results.results import RunResults, environment
from proveout.coordinator.verdict.checks import NEEDED, PERHAPS_NEVER, reads_points
from proveout.core.json_data import at_path
from proveout.core.numbers import SOUGHT, count_of, pieces, ranged
from proveout.dsl.expr.evaluation import by_mean, metric_of
from proveout.proto.events import Claim, Tone, VerdictReached

TOLD_MAX = 5
"""Sentences for verdicts of one outcome."""
NUMBERS_MAX = 3
"""Headline numbers of a run without verdicts."""
TO_DO = "what to do: "
_TEMPLATE = re.compile(r"\$\{([^{}]*)\}")
_REPEATS = re.compile(rf"(\d[\d,]*) {NEEDED}")


def answer(results: RunResults) -> tuple[str, Tone] | None:
    """The answer and its tone; None of a run that has not ended, and of one without verdicts and numbers."""
    if results.ended is None:
        return None
    told = [*_verdicts(results)] if results.verdicts else [*_numbers(results)]
    if not told and not results.cautions:
        return None
    first = [] if results.ended.status == "finished" else [results.ended.reason]
    return " ".join(map(_sentence, (*first, *results.cautions, *told))), end_tone(results)


def _sentence(text: str) -> str:
    ending = "" if text.endswith((".", "!", "?")) else "."
    return f"{text[:1].upper()}{text[1:]}{ending}"


def _numbers(results: RunResults) -> Iterator[str]:
    for one in headline(results, NUMBERS_MAX):
        yield f"{', '.join(filter(None, (one.label, one.about)))}: {ranged(one.value, one.interval)}"


def _verdicts(results: RunResults) -> Iterator[str]:
    counting = [one for one in results.verdicts if one.severity == "fail"]
    warning = [one for one in results.verdicts if one.severity != "fail"]
    yield from _open(counting, results)
    written = _written(results)
    passed = [one for one in results.verdicts if one.outcome == "PASS"]
    if any(one.get("answer") for one in written.values()):
        passed = [one for one in passed if one.id not in written or written[one.id].get("answer")]
    yield from (_passed(one, results, written.get(one.id, {}).get("answer", "")) for one in passed[:TOLD_MAX])
    if len(passed) > TOLD_MAX:
        yield f"{count_of(len(passed) - TOLD_MAX, 'more verdict')} passed"
    said = [str(one.get("answer", "")) for one in written.values()]
    for stage in results.stages.values():
        if (found := stage.search) is not None and not any(f"{stage.id}.{found.over}" in text for text in said):
            value = "none was accepted"
            if found.rate is not None:
                estimate = at_path(environment(results), stage.id, found.over) or {"mean": found.rate}
                value = ranged(*printed(estimate, found.over))
            yield f"highest {SOUGHT[found.over]} found by {stage.id}: {value}"
    yield from _open(warning, results, ", a warning only")


def _open(verdicts: Sequence[VerdictReached], results: RunResults, remark: str = "") -> Iterator[str]:
    """A sentence for each that failed, then for each that is undecided."""
    for outcome, word in (("FAIL", "Failed"), ("INCONCLUSIVE", "Undecided")):
        found = [one for one in verdicts if one.outcome == outcome]
        yield from (f"{word}{remark}: {one.title or one.id}: {told(one, results)}" for one in found[:TOLD_MAX])
        if len(found) > TOLD_MAX:
            yield f"{word}{remark}: {len(found) - TOLD_MAX} more"


def _written(results: RunResults) -> Mapping[str, Mapping[str, Any]]:
    """The verdicts of the plan by id, as plain data."""
    return {one["id"]: one for one in results.plan.get("verdicts", ())}


def _passed(verdict: VerdictReached, results: RunResults, template: str) -> str:
    if template:
        tree = environment(results)
        return _TEMPLATE.sub(lambda match: _value(match[1], tree), template)
    title = verdict.title or verdict.id
    return f"{title}: {told(verdict, results)}" if len(claims(verdict, results)) == 1 else title


def _value(text: str, tree: Mapping[str, Any]) -> str:
    """The number of an expression in words; `-` where it has no data."""
    found, _ = measured(text, tree)
    if found is None:
        found, _ = measured(by_mean(text, tree), tree)
    return "-" if found is None else ranged(*printed(found, metric_of(text)))


def told(verdict: VerdictReached, results: RunResults) -> str:
    """The numbers with their limits; of an undecided verdict what would decide it. A verdict of the run's own has no
    claims, and its check is not an expression."""
    claimed = claims(verdict, results)
    mark = ", point estimate" if claimed and reads_points(verdict.check) else ""
    text = "; ".join(f"{_claim(one)}{mark}" for one in claimed) or pieces(verdict.evidence)[0]
    way = _deciding(verdict, results) if verdict.outcome == "INCONCLUSIVE" else ""
    return f"{text}; {way}" if way else text


def _claim(claim: Claim) -> str:
    """`107 ms (71 to 161), limit 100 ms`."""
    limit = claim.limit.lstrip("<>≤≥= ")
    return ranged(claim.value, claim.interval) + (f", limit {limit}" if limit else "")


# ---- what decides an undecided verdict ---------------------------------------------------------------------------


def _deciding(verdict: VerdictReached, results: RunResults) -> str:
    """The command that decides it, with the time that it takes, where the number of repeats is known and a parameter of
    the plan sets it; otherwise what its evidence says, "" where that says nothing."""
    needed = None if PERHAPS_NEVER in verdict.evidence else _REPEATS.search(verdict.evidence)
    command = "" if needed is None else _command(verdict, results, int(needed[1].replace(",", "")))
    if command or verdict.severity == "warn":
        return command and f"to decide it: {command}"
    return next((one for one in pieces(verdict.evidence) if one.startswith(TO_DO)), "")


def _command(verdict: VerdictReached, results: RunResults, repeats: int) -> str:
    """`proveout run plans/a.yaml -p repeats=9 (about 4 min)`; "" where no parameter is the `repeat` of the stages that
    the verdict reads, or where it allows fewer."""
    read = _written(results).get(verdict.id, {}).get("check", {}).get("needs", ())
    climbing = {stage.id: results.plan_stage(stage.id) for stage in results.stages.values() if stage.climbs}
    counts = {climbing[one].get("repeat") for one in read if one in climbing}
    named = [one for one in results.plan.get("parameters", ()) if one["name"] in ("repeat", "repeats")]
    if results.ended is None or not verdict.file or len(counts) != 1 or [one["value"] for one in named] != [*counts]:
        return ""
    if repeats > (named[0].get("most") or repeats):
        return ""
    count, name = named[0]["value"], named[0]["name"]
    again = (one for one, plan in climbing.items() if plan.get("repeat") == count and plan.get("repeat_min") is None)
    ends = (results.stages[stage].finished for stage in again)
    took = results.ended.seconds + (repeats / count - 1.0) * sum(end.seconds for end in ends if end)
    values = {**results.overrides, name: str(repeats)}
    words = ["proveout", "run", verdict.file, *(word for item in values.items() for word in ("-p", "=".join(item)))]
    return f"`{shlex.join(words)}` (about {max(round(took / 60.0), 1)} min)"


# ---- each verdict in a line --------------------------------------------------------------------------------------


def lines(results: RunResults) -> Iterator[tuple[str, Tone]]:
    """The cautions; then each verdict in a line: outcome, title, the numbers with their limits, and of an undecided one
    what to do."""
    yield from ((text, "warn") for text in results.cautions)
    for one in results.verdicts:
        tone: Tone = "warn" if one.outcome == "FAIL" and one.severity == "warn" else TONES[one.outcome]
        yield f"{one.outcome}  {one.title or one.id}: {told(one, results)}", tone
