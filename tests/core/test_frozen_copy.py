"""Copies of records with some fields replaced."""

from __future__ import annotations

import dataclasses

import pytest

from proveout.coordinator.schedule.progress import RunProgress
from proveout.core.frozen_copy import replace


def test_a_copy_equals_that_of_dataclasses_and_the_original_stays() -> None:
    before = RunProgress(cores={"db1": 2})
    after = replace(before, without=frozenset({"db1"}))
    assert after == dataclasses.replace(before, without=frozenset({"db1"}))
    assert before == RunProgress(cores={"db1": 2})
    with pytest.raises(dataclasses.FrozenInstanceError):
        after.cores = {}  # type: ignore[misc]


def test_a_field_that_the_class_does_not_have_is_refused() -> None:
    with pytest.raises(TypeError, match="RunProgress has no field nowhere"):
        replace(RunProgress(), nowhere=1)
