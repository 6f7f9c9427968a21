"""Schemas of systems at stages: changes within a run, differences between runs, and where people read them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from records import begun, run_started

from proveout.coordinator.comparability import differences
from proveout.coordinator.report import markdown
from proveout.coordinator.report.json_documents import result_to_json
from proveout.coordinator.report.run_document import run_document
from proveout.coordinator.results.fingerprint import changes, fingerprints, first_of_each, schemas
from proveout.coordinator.results.results import RunResults, load_results
from proveout.proto.events import Event, FactsTaken

OBJECTS = {"table t": "a integer, b text", "index by_a on t": "btree (a)", "index by_b on t": "btree (b)"}
SETTINGS = {"engine": "postgres", "version": "18", "synchronous_commit": "off"}


def taken(stage: str, objects: Mapping[str, str], **settings: str) -> FactsTaken:
    facts = {**SETTINGS, **settings, **objects}
    return FactsTaken(when="stage", host="h", system="db", stage=stage, facts=facts)


def without(*names: str) -> dict[str, str]:
    return {name: text for name, text in OBJECTS.items() if name not in names}


def run(run_id: str, *events: FactsTaken) -> RunResults:
    started = run_started({}, run_id)
    facts: list[Event] = [started, FactsTaken(when="start", host="h", system="db", facts=dict(SETTINGS))]
    for one in events:
        facts += [begun(one.stage), one]
    return load_results(facts)


def test_a_change_between_two_stages_is_named() -> None:
    altered = without("index by_b on t") | {"table t": "a integer", "table u": "n integer"}
    results = run("one", taken("first", OBJECTS), taken("same", OBJECTS), taken("second", altered))
    (change,) = changes(results)
    assert (change.since, change.stage) == ("same", "second")
    assert (change.gone, change.added, change.altered) == (("index by_b on t",), ("table u",), ("table t",))
    assert str(change) == ("db at second, against same: table u is new; index by_b on t is gone; table t is altered")
    assert [one.stage for one in first_of_each(schemas(results))] == ["first"]
    assert schemas(results)[0].outline == "1 table, 2 indexes"
    assert [one.facts for one in fingerprints(results)] == [SETTINGS]  # of the start only
    text = markdown.render(run_document(results))
    assert "index by\\_b on t is gone" in text
    assert [one["digest"] for one in json.loads(result_to_json(results))["schemas"]] == [
        one.digest for one in schemas(results)
    ]


def test_an_index_that_one_run_lacks_is_a_difference_with_its_name() -> None:
    one, two = run("A", taken("first", OBJECTS)), run("B", taken("first", without("index by_a on t")))
    assert [str(item) for item in differences(one, two)] == ["db: index by_a on t is missing in B (btree (a))"]
    assert [str(item) for item in differences(two, one)] == ["db: index by_a on t is missing in B (btree (a))"]
    assert [item.allowed for item in differences(one, two, ["index *"])] == [True]
    other = run("B", taken("first", {**OBJECTS, "index by_a on t": "hash (a)"}))
    assert [str(item) for item in differences(one, other)] == ["db: index by_a on t: btree (a) -> hash (a)"]


def test_a_difference_of_all_stages_is_named_once_and_settings_count_too() -> None:
    stages = ("first", "second")
    one = run("A", *(taken(stage, OBJECTS) for stage in stages))
    two = run("B", *(taken(stage, without("index by_a on t"), synchronous_commit="on") for stage in stages))
    assert [item.name for item in differences(one, two)] == ["index by_a on t", "synchronous_commit"]


def test_a_schema_that_one_run_has_not_recorded_is_a_difference() -> None:
    one, two = run("A", taken("first", OBJECTS)), run("B", taken("first", OBJECTS))
    unread = replace(two, taken=tuple(item for item in two.taken if item.when != "stage"))
    assert [str(item) for item in differences(one, unread)] == ["db: schema: recorded -> none"]
