"""docs/studies: the compiled lab plans have the values of the studies (`docs/generate.py --check` holds the pages
against the rows)."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from compiled_plans import compiled

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))

import study_values


def test_plans_have_the_values_of_the_studies_and_each_other_value_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study_values, "compile_plan", lambda path: compiled(path.stem))
    studies = study_values.studies()
    assert [study.name for study in studies] == ["appliance", "exalogic", "hlr-cache", "in-memory", "xe"]
    assert [f"{one.name}: {found}" for one in studies for found in study_values.differences(one)] == []
    assert [found for one in studies for found in study_values.absent_charts(one)] == []
    invented = replace(studies[0], figures=({"figure": "1", "lab": "storage-lab: random, nothing", "axes": "same"},))
    assert [*study_values.absent_charts(invented)] == ["storage-lab: nothing"]
    for study in studies:
        for row in study.rows:
            changed = replace(study, rows=(replace(row, plan=f"not {row.plan}"),))
            assert not row.at or list(study_values.differences(changed)), row.what
