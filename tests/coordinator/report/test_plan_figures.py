"""The figures that come out of shipped plans, from the results of an invented run: no server, no run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import verdict_histories as made
from compiled_plans import compiled
from records import begun, run_started
from synthetic_run import results_of, synthetic_results, synthetic_timeline

from proveout.coordinator.report.figures import load_figures, selection, system_figures
from proveout.coordinator.report.figures.figure import CAPTION_WORDS, PALETTE, Spec, category, chart, layer
from proveout.coordinator.report.figures.grammar import named_apart
from proveout.coordinator.report.figures.stage_figures import NAME
from proveout.coordinator.report.figures.timeline import Line, Span, Timeline
from proveout.coordinator.results.results import RunResults, load_results
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.schema.models import FIGURES
from proveout.proto.events import ProbeFinished

PLANS = Path(__file__).parents[3] / "plans"
KINDS = (
    "calibrate-io-lab", "failover-embedded", "hlr-cache-embedded", "htap-embedded", "settings-sweep-embedded",
    "spike-embedded", "storage-embedded", "storage-forms-embedded",
)  # fmt: skip
ELSEWHERE = {"search", "update-time", "latency-at-peak", "versus"}
"""Figures that come out of none of these: `test_load_over_time`, `test_html_report`, `test_panels` and `test_phases` have them."""
OTHERS = sorted(path.relative_to(PLANS).with_suffix("").as_posix() for path in PLANS.glob("**/*.yaml")
                if path.parent.name in ("plans", "starters") and path.stem not in KINDS)  # fmt: skip


def drawn(name: str) -> dict[str, int]:
    """The figures of a plan's report, with the rows of their tables; all that the plan names are among them."""
    plan, results = compiled(name), results_of(name)
    found, missing = selection.figures(results, synthetic_timeline(results))
    assert not missing
    assert {*plan.figures, *([NAME] if plan.charts else [])} <= {one.name for one in found}
    assert len({one.slug for one in found}) == len(found) > 0, "a plan without a figure shows nothing"
    assert all(len(row) == len(one.heads) for one in found for row in one.rows)
    long = [one.captions[0] for one in found if len(one.captions[0].split()) > CAPTION_WORDS]
    assert long == [], "how to read a figure is behind a question mark"
    assert all(" ".join(filter(None, one.captions)) == one.caption for one in found)
    return {one.name: len(one.rows) for one in found}


def test_every_kind_of_figure_comes_out_of_a_shipped_plan() -> None:
    rows = {name: count for plan in KINDS for name, count in drawn(plan).items()}
    assert set(rows) - {NAME} == set(FIGURES) - ELSEWHERE
    assert min(rows.values()) > 0


@pytest.mark.soak
@pytest.mark.parametrize("name", OTHERS)
def test_every_figure_that_a_plan_names_comes_out(name: str) -> None:
    assert drawn(name)


def test_a_ladder_without_response_times_has_no_figure_of_them() -> None:
    """As of a program whose output has none."""
    results = synthetic_results(compiled("pgbench-embedded"))
    for rung in (rung for stage in results.stages.values() for rung in stage.rungs):
        for tree in (rung.tree, *rung.tree["transactions"].values()):
            tree.pop("response")
    found, _ = selection.figures(results, synthetic_timeline(results))
    figures = {one.name: one for one in found}
    assert "latency-by-transaction" not in figures
    assert "response" not in figures["relative-tps-latency"].caption
    assert "response" not in str(figures["relative-tps-latency"].spec)


@pytest.mark.parametrize(("name", "word", "other"), [
    ("tptbm-embedded", "processes", "threads"), ("tpcb-embedded", "threads", "processes"),
])  # fmt: skip
def test_the_axis_of_a_ladder_has_the_word_of_the_plan(name: str, word: str, other: str) -> None:
    results = results_of(name)
    found, _ = selection.figures(results, synthetic_timeline(results))
    titles = {one for figure in found for one in axis_titles(figure.spec)}
    assert word in titles
    assert other not in titles
    assert not any(other in (figure.title, *figure.heads) for figure in found)


def axis_titles(spec: Any) -> Iterator[str]:
    """The titles of the axes of a chart."""
    if isinstance(spec, Mapping):
        for name, one in spec.items():
            if name in ("x", "y") and isinstance(one, Mapping) and one.get("title"):
                yield str(one["title"])
            yield from axis_titles(one)
    elif isinstance(spec, list):
        for one in spec:
            yield from axis_titles(one)


# ---- what is drawn, in which colours, and what is folded ----------------------------------------------------------


def cache_study() -> RunResults:
    return results_of("hlr-cache-embedded")


def test_the_charts_of_the_plan_come_first_then_the_figures_that_it_names_and_the_others_by_subject() -> None:
    results = cache_study()
    found, _ = selection.figures(results, synthetic_timeline(results))
    first, folded = selection.shown(results, found)
    charts = len(results.plan["charts"])
    assert [one.name for one in first[:charts]] == [NAME] * charts
    assert list(dict.fromkeys(one.name for one in first[charts:])) == results.plan["figures"]
    assert {one.slug for one in (*first, *(one for of in folded.values() for one in of))} == {one.slug for one in found}
    assert {"Hosts, waits and replication", "Response times and rungs over time"} <= folded.keys()
    assert results.run is not None
    unnamed = replace(results, run=replace(results.run, plan={**results.plan, "figures": []}))
    first, _ = selection.shown(unnamed, selection.figures(unnamed, synthetic_timeline(unnamed))[0])
    assert len(first) == charts + selection.SHOWN_MAX


def test_bars_that_are_equal_because_one_rate_was_offered_are_not_drawn() -> None:
    stages = [
        {"id": name, "kind": "ladder", "workload": "hlr", "target": target, "threads": [4], "repeat": 3}
        for name, target in (("base", "backend"), ("fast", "cache"))
    ]
    history = [*made.ladder("base", {4: (899, 900, 901)}), *made.ladder("fast", {4: (900, 901, 902)})]
    (figure,) = load_figures.relative_tps_latency(load_results([run_started({"stages": stages}), *history]))
    assert figure.spec["columns"] == 1, "latency below, at the same places"
    assert {one["title"]["text"] for one in figure.spec["concat"]} == {"throughput, relative", "response avg"}
    offered = [stage | {"arrival": {"rate": 900.0}} for stage in stages]
    assert not [*load_figures.relative_tps_latency(load_results([run_started({"stages": offered}), *history]))]


def test_the_lag_of_a_search_is_one_strip_with_the_refused_marked() -> None:
    cap = {"id": "cap", "kind": "search", "workload": "hlr", "target": "cache"}
    probes = [made.iteration("cap", 4, at, 1000.0, lag={"avg_s": 0.01 * at}) for at in (1, 2, 3)]
    said = [
        ProbeFinished(stage="cap", probe=at, phase="bracket", rate=1000.0 * at, accepted=at < 3, evidence="")
        for at in (1, 2, 3)
    ]
    results = load_results([run_started({"stages": [cap]}), begun("cap", "search"), *probes, *said])
    lines = tuple(
        Line(iteration=one, name="box", times=(100.0 * at, 100.0 * at + 1), values=(0.01, 0.03))
        for at, one in enumerate(probes)
    )
    windows = tuple(Span(iteration=one, start_s=100.0 * at, end_s=100.0 * at + 2) for at, one in enumerate(probes))
    (strip,) = system_figures.lag(results, Timeline(lag=lines, windows=windows))
    assert "concat" not in strip.spec
    names = ("at", "lower", "value", "upper", "series")
    assert [tuple(value[name] for name in names) for value in strip.spec["data"]["values"]] == [
        ("1", 10.0, 20.0, 30.0, "accepted"), ("2", 10.0, 20.0, 30.0, "accepted"), ("3 ✗", 10.0, 20.0, 30.0, "refused")
    ]  # fmt: skip


def colours(spec: Any) -> Iterator[Mapping[str, str]]:
    """The colours of names, of each channel of a chart."""
    if isinstance(spec, Mapping):
        for name, one in spec.items():
            if name in ("color", "stroke") and isinstance(one, Mapping) and "range" in one.get("scale", {}):
                yield dict(zip(one["scale"]["domain"], one["scale"]["range"], strict=False))
            yield from colours(one)
    elif isinstance(spec, list):
        for one in spec:
            yield from colours(one)


def test_a_name_has_one_colour_in_all_figures_of_a_report() -> None:
    assert {"UpdateLocation", "uncached", "cached"} <= colours_of(cache_study()).keys()
    matrix = colours_of(synthetic_results(compile_plan(PLANS / "warehouse-sweep-embedded.yaml")))
    assert [matrix[f"sweep (warehouses {n})"] for n in (1, 2, 4)] == [{one} for one in PALETTE[:3]]
    single = colours_of(synthetic_results(compile_plan(PLANS / "members-embedded.yaml")))
    assert [single[f"members{n}"] for n in (1, 2, 4)] == [{one} for one in PALETTE[:3]]
    assert "2 threads" not in single


def colours_of(results: RunResults) -> dict[str, set[str]]:
    """The colours of each name in all figures."""
    found, _ = selection.figures(results, synthetic_timeline(results))
    seen: dict[str, set[str]] = {}
    for one in found:
        for names in colours(one.spec):
            if set(names.values()) <= set(PALETTE):
                assert len(set(names.values())) == len(names) or len(names) > len(PALETTE)
                for name, colour in names.items():
                    seen.setdefault(name.partition(" on ")[0], set()).add(colour)
    assert {name: of for name, of in seen.items() if len(of) > 1} == {}
    return seen


def test_colours_with_a_meaning_of_their_own_stay_and_events_keep_theirs_in_another_order() -> None:
    def bars(*events: str, **scale: Any) -> Spec:
        rows = [{"event": one} for one in events]
        return chart(rows, [layer("bar", color=category("event", scale={"domain": [*events], **scale}))])

    (base,) = {
        one.name: one for one in selection.figures(cache_study(), synthetic_timeline(cache_study()))[0][:1]
    }.values()
    specs = (bars("CPU", "WalSync"), bars("WalSync", "CPU"), bars("yes", "no", range=["#111111", "#222222"]))
    made = selection.coloured([replace(base, spec=one) for one in specs], {"event": {"CPU", "WalSync"}}, ())
    first, second, third = (next(colours(one.spec)) for one in made)
    assert first == second == {"CPU": PALETTE[0], "WalSync": PALETTE[1]}
    assert third == {"yes": "#111111", "no": "#222222"}


def test_events_that_differ_only_in_case_have_their_class() -> None:
    events = [("WALWrite", "LWLock"), ("WalWrite", "IO"), ("CPU", "CPU")]
    assert named_apart(events) == {
        ("WALWrite", "LWLock"): "WALWrite (LWLock)", ("WalWrite", "IO"): "WalWrite (IO)", ("CPU", "CPU"): "CPU"
    }  # fmt: skip
