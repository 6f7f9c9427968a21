"""The headline numbers of invented runs, and what verdicts compare with what."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import records
import verdict_histories as made
from records import begun, ended, run_started

from proveout.coordinator.report.document import Paragraph, Section, Table
from proveout.coordinator.report.figures import load_figures
from proveout.coordinator.report.run_document import run_document
from proveout.coordinator.report.summary import answer, claims, headline
from proveout.coordinator.results.results import RunResults, load_results, search_metrics
from proveout.core.numbers import with_interval
from proveout.proto.events import CommitsMeasured, Event, SearchFinished

LADDERS = {
    "stages": [
        {"id": name, "kind": "ladder", "workload": "hlr", "target": target, "threads": [1, 4], "repeat": 3}
        for name, target in (("base", "backend"), ("fast", "cache"))
    ]
}


def run(*events: Event) -> RunResults:
    return load_results([run_started(LADDERS), *events])


def search(rate: float | None, upper: float | None = None, confirmations: int = 9) -> list[Event]:
    answer = SearchFinished(
        stage="cap", rate=rate, probes=9, reason="within 10 %", outcome="none" if rate is None else "found",
        upper=upper, confirmations=confirmations,
    )  # fmt: skip
    searching: list[Event] = [begun("cap", "search"), answer]
    return [*searching, ended("cap", search_metrics(load_results(searching).stages["cap"]))]


BASE = made.ladder("base", {1: (990, 1000, 1010), 4: (3900, 4000, 4100)})
FAST = made.ladder("fast", {1: (1990, 2000, 2010), 4: (7900, 8000, 8100)})


def test_the_answer_of_a_search_comes_first_then_factor_and_peaks() -> None:
    found = headline(run(*BASE, *FAST, *search(4000.0, 4400.0)))
    assert [(one.label, one.value, one.about) for one in found] == [
        ("Highest rate found", "4,000/s", "search cap"),
        ("fast against base", "2.00 ×", "throughput, 4 threads"),
        ("Peak throughput", "8,000/s", "fast, 4 threads"),
        ("Peak throughput", "4,000/s", "base, 4 threads"),
    ]
    assert found[0].interval == "90 % CI 4,000/s … 4,400/s, confirmed 9 times"
    assert found[1].tone == "good"
    assert found[2].interval == "95 % CI 7,760/s … 8,250/s, n = 3"
    assert found[2].estimate["lower"] < 7900 < found[2].estimate["upper"]


def test_ladders_at_the_same_rate_are_compared_by_their_response_times() -> None:
    results = run(*BASE, *FAST)
    assert results.run is not None
    plan = {"stages": [stage | {"arrival": {"rate": 900.0}} for stage in LADDERS["stages"]]}
    factor, *_ = headline(replace(results, run=replace(results.run, plan=plan)))
    assert (factor.label, factor.about) == ("fast against base", "response avg, 4 threads")


def test_a_search_without_an_answer_and_a_slower_ladder_are_shown() -> None:
    slower = made.ladder("fast", {4: (1990, 2000, 2010)})
    rate, factor, *_ = headline(run(*BASE, *slower, *search(None)))
    assert (rate.value, rate.interval, rate.tone) == ("no rate", "", "warn")
    assert (factor.label, factor.tone) == ("fast against base", "bad")


def test_the_numbers_of_the_peak_are_those_of_results_and_of_no_other_source() -> None:
    """Rungs 4 and 8 overlap: either may be the peak, so its intervals are wider than those of its rung."""
    rungs = {1: (990, 1000, 1010), 4: (3800, 4000, 4100), 8: (3900, 4010, 4200)}
    history: list[Event] = [begun("base")]
    for rung, values in rungs.items():
        for repeat, tps in enumerate(values, 1):
            response = {"avg_us": 1e6 * rung / tps, "p99_us": 9e6 * rung / tps}
            history.append(made.iteration("base", rung, repeat, tps, response=response))
    found = run(*made.finish("base", history))
    stage = found.stages["base"]
    assert stage.finished is not None
    peak, row = stage.finished.metrics["peak"], stage.rungs[-1].tree
    tiles = {one.label: one for one in headline(found)}
    assert tiles["Peak throughput"].estimate == peak["tps"]
    assert tiles["p99 at the peak"].estimate == peak["response"]["p99_us"]
    assert peak["response"]["p99_us"]["upper"] > row["response"]["p99_us"]["upper"]
    assert tiles["p99 at the peak"].interval.endswith("n = 3, wider as 2 rungs could be it")
    page = run_document(found)
    (ladder,) = next(section for section in page.sections if section.title == "Ladders").blocks
    assert isinstance(ladder, Section)
    texts = [block.text for block in ladder.blocks if isinstance(block, Paragraph)]
    ends = with_interval(peak["tps"], "tps")[1]
    assert tiles["Peak throughput"].interval == f"95 % CI {ends}, n = 3, wider as 2 rungs could be it"
    why = "wider than in its row, because 2 rungs could be the peak and it holds for all of them."
    assert f"Peak at 8 threads, 95 % CI {ends}: {why}" in texts
    (figure,) = load_figures.relative_tps_latency(found)
    table = next(block for block in ladder.blocks if isinstance(block, Table))
    assert [row[2] for row in table.rows] == [row[3] for row in figure.rows], (
        "one interval of a rung in table and figure"
    )
    assert table.rows[-1][1:3] == with_interval(row["tps"])


@pytest.mark.parametrize(
    ("lost", "apart", "tone", "about"),
    [
        (0, 0, "good", "of 300 acknowledged, base"),
        (6, 0, "warn", "6 of them by faults, of 300 acknowledged, base"),
        (6, 3, "bad", "3 of them by faults, of 300 acknowledged, base"),
    ],
)
def test_lost_commits(lost: int, apart: int, tone: str, about: str) -> None:
    iteration = made.iteration("base", 4, 1, 1000.0)
    counts = tuple(CommitsMeasured(acknowledged=100, lost=lost // 3, lost_apart=apart // 3) for _ in range(3))
    found = headline(run(*made.finish("base", [BASE[0], replace(iteration, commits=counts)])))
    commits = next(one for one in found if one.label == "Lost commits")
    assert (commits.value, commits.tone, commits.about) == (str(lost), tone, about)


def test_a_run_that_measured_nothing_has_no_headline() -> None:
    assert headline(run()) == ()
    void = made.iteration("base", 4, 1, 1000.0, made.VOID)
    assert headline(run(BASE[0], void)) == ()
    assert [one.label for one in headline(run(*BASE[:-1]))] == ["Peak throughput"], "of a ladder that has not ended"


@pytest.mark.parametrize(
    ("check", "value", "limit"),
    [
        ("base.at(4).tps.mean >= 2000", "4,000/s", "≥ 2,000/s"),
        ("2000 <= base.at(4).tps", "4,000/s", "≥ 2,000/s"),
        ("base.at(4).response.avg_us.mean <= ms(50)", "1.000 ms", "≤ 50.0 ms"),
        ("ratio(fast.at(4).tps, base.at(4).tps) >= 1.2", "2.00 ×", "≥ 1.2 ×"),
        ("fast.at(4).tps > base.at(4).tps", "2.00 ×", "> 1 ×"),
        ("fast.at(4).tps.mean / base.at(4).tps.mean < 3", "2 ×", "< 3 ×"),
    ],
)
def test_a_claim_has_value_and_limit_in_one_unit(check: str, value: str, limit: str) -> None:
    history = [*BASE, *FAST]
    (claim,) = claims(made.verdict(check, history), run(*history))
    assert (claim.value, claim.limit) == (value, limit)
    assert (claim.lower is not None) == ("/ base" not in check)
    if claim.lower is not None:
        assert claim.lower < claim.mean < claim.upper  # type: ignore[operator]
        assert claim.interval.startswith("95 % CI ") and " … " in claim.interval


def test_a_check_of_several_parts_has_a_claim_each_and_prose_has_none() -> None:
    both = claims(made.verdict("base.at(1).tps.mean > 1 && base.at(4).tps.mean > 2", BASE), run(*BASE))
    assert [one.limit for one in both] == ["> 1/s", "> 2/s"]
    (missing,) = claims(made.verdict("base.at(4).response.p99_us <= ms(5)", BASE), run(*BASE))
    assert (missing.value, missing.limit, missing.mean) == ("no data", "≤ 5.00 ms", None)
    prose = replace(made.verdict("base.at(1).tps.mean > 1", BASE), check="db and cache hold the same rows")
    assert claims(prose, run(*BASE)) == ()


# ---- the answer in words -----------------------------------------------------------------------------------------

FASTER = "ratio(fast.at(4).tps, base.at(4).tps) >= 1.2"


def judged(*checks: tuple[str, str], ended_s: float = 120.0, **plan: Any) -> RunResults:
    """A run of both ladders with these (check, sentence), whose ids are v1, v2, …"""
    history = [*BASE, *FAST, *search(4000.0)]
    verdicts = [
        replace(made.verdict(check, history), id=f"v{place}", title=f"Claim {place}")
        for place, (check, _) in enumerate(checks, 1)
    ]
    written = [
        {"id": one.id, "answer": said, "check": {"text": check, "needs": ["base"]}}
        for one, (check, said) in zip(verdicts, checks, strict=True)
    ]
    found = run(*history, *verdicts, records.run_finished(seconds=ended_s))
    assert found.run is not None
    return replace(found, run=replace(found.run, plan=LADDERS | {"verdicts": written} | plan))


def test_the_answer_is_the_claim_of_each_verdict_with_its_number_then_the_rate() -> None:
    found = judged((FASTER, ""), ("base.at(4).response.avg_us.mean <= ms(0.5)", ""))
    assert answer(found) == (
        "Failed: Claim 2: 1.000 ms (0.940 to 1.065), limit 0.500 ms, point estimate. "
        "Claim 1: 2.00 × (1.90 to 2.11), limit 1.2 ×. Highest rate found by cap: 4,000/s.",
        "good",
    )


def test_sentences_of_the_plan_stand_for_verdicts_that_passed() -> None:
    said = (
        "F does ${ratio(fast.at(4).tps, base.at(4).tps)} of B, ${fast.at(4).tps * 0.5} at the ${cap.rate} it keeps up"
    )
    other = ("base.at(1).tps >= 900", "")
    assert answer(judged((FASTER, said), other)) == (
        "F does 2.00 × (1.90 to 2.11) of B, 4,000 at the 4,000/s it keeps up.", "good"
    )  # fmt: skip
    text, _ = answer(judged(("ratio(fast.at(4).tps, base.at(4).tps) >= 3", said), other)) or ("", "")
    assert text.startswith("Failed: Claim 1: 2.00 × (1.90 to 2.11), limit 3 ×."), "what did not pass is not claimed"


def test_an_undecided_verdict_has_the_command_that_decides_it_and_its_minutes() -> None:
    check = ("base.at(4).tps >= 3770", "")
    found = judged(check)
    assert "about 3 to 30 repeats would decide it" in found.verdicts[0].evidence
    text, _ = answer(found) or ("", "")
    assert text.startswith("Undecided: Claim 1: 4,000/s (3,760 to 4,260), limit 3,770/s. ")
    assert "proveout run" not in text, "no parameter sets the repeats"
    few, parameters = ([{"name": "repeats", "type": "int", "value": 3, "most": most}] for most in (20, 30))
    text, _ = answer(judged(check, parameters=few)) or ("", "")
    assert "proveout run" not in text, "the parameter allows 20 at most"
    known = judged(check, parameters=parameters)
    text, _ = answer(replace(known, overrides={"threads": "1,4"})) or ("", "")
    assert "; to decide it: `proveout run plan.yaml -p threads=1,4 -p repeats=30` (about 2 min). " in text


def test_without_verdicts_the_answer_is_the_headline_numbers_and_of_an_unfinished_run_there_is_none() -> None:
    assert answer(run(*BASE)) is None
    found = run(*BASE, records.run_finished(status="interrupted", reason="interrupted by Ctrl-C", exit_code=4))
    assert answer(found) == (
        "Interrupted by Ctrl-C. Peak throughput, base, 4 threads: 4,000/s (3,760 to 4,260).", "bad"
    )  # fmt: skip
