"""The few lines of evidence in the short form of a report."""

from __future__ import annotations

from proveout.coordinator.report.summary.brief_evidence import brief_evidence, without_notes

LONG = "ratio(uncached.at(4).transactions.UpdateLocation.response.avg_us, cached.at(4).response.avg_us).lower"
NOTES = "note: schedule flagged in 6 of 6 iterations (p99 7.85 ms; limit 5 ms); note: baseline at 2 threads: not steady"


def test_a_comparison_has_its_value_and_its_limit() -> None:
    assert brief_evidence("run.at(4).errors.fraction = 0 %, limit < 0.1 %: holds", "PASS") == (
        "run.at(4).errors.fraction 0 %, limit < 0.1 %",
    )
    (line,) = brief_evidence("run.peak.tps.mean = 900, limit >= 1,000: does not hold", "FAIL")
    assert line == "run.peak.tps.mean 900, limit ≥ 1,000: does not hold"


def test_an_undecided_one_has_what_would_decide_it_and_flags_in_one_line() -> None:
    evidence = (
        f"{LONG} = 0.20, limit > 1: undecided, the interval lies across the limit; about 9 repeats would decide it; "
        f"reads ratio(…) 3.4 (95 % CI 0.20 … 58, n = 3); {NOTES}; what to do: 3 to 20 repeats, or 3 to 20 repeats of b"
    )
    assert brief_evidence(evidence, "INCONCLUSIVE") == (
        "ratio(…).lower 0.20, limit > 1: undecided, the interval lies across the limit",
        "reads ratio(…) 3.4 (95 % CI 0.20 … 58, n = 3); about 9 repeats would decide it",
        "2 notes: schedule, 1 more",
    )


def test_the_texts_of_notes_are_left_to_the_section_on_validity() -> None:
    assert without_notes(f"a.tps = 5/s, limit > 1/s: holds; reads a.tps 5/s; {NOTES}") == (
        "a.tps = 5/s, limit > 1/s: holds",
        "reads a.tps 5/s",
        "2 notes: schedule, 1 more (below, Validity)",
    )


def test_other_evidence_stays_as_it_is_and_many_comparisons_are_counted() -> None:
    text = "4 tables, 195,507 rows: same counts and checksums, drained in 20.3 ms"
    assert brief_evidence(text, "PASS") == (text,)
    many = "; ".join(f"a{n} = {n}, limit < 9: holds" for n in range(5))
    assert brief_evidence(many, "PASS")[-1] == "a2 2, limit < 9 (and 2 more)"
