"""docs/studies: the compiled lab plans have the values of the studies (`docs/generate.py --check` holds the pages against the rows)."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))

import study_values  # noqa: E402

pytestmark = pytest.mark.slow
STUDIES = study_values.studies()


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_plans_have_the_values_of_a_study(study: study_values.Study) -> None:
    assert list(study_values.differences(study)) == []


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_each_value_of_a_study_that_differs_is_found(study: study_values.Study) -> None:
    for row in study.rows:
        if row.at:
            changed = replace(study, rows=(replace(row, plan=f"not {row.plan}"),))
            assert list(study_values.differences(changed)), row.what


def test_the_five_studies_are_there() -> None:
    assert [study.name for study in STUDIES] == ["appliance", "exalogic", "hlr-cache", "in-memory", "xe"]
