"""Notes on loads of the same time that touch the same keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.rules.repeat_rules import overlaps

PLAN = """
proveout: 1
name: t
topology:
  hosts: {h: {roles: [client, server], address: local}}
  systems:
    one: {engine: postgres, host: h, dsn: "host=a dbname=rac"}
    two: {engine: postgres, host: h, dsn: "host=b dbname=rac"}
    own: {engine: postgres, host: h, provision: embedded}
workloads:
  hlr: {kind: hlr, population: 100}
  reads: {kind: hlr, population: 100, weights: {GetAccessData: 1}}
stages:
  - populate: {workload: hlr, into: own}
  - ladder: {loads: {LOADS}, threads: 6, measure: 5s}
"""
MEETING = [
    ("a: {workload: hlr, target: one, share: 1/2}, b: {workload: hlr, target: one, share: 1/2}", "1 to 100"),
    (
        "a: {workload: hlr, target: one, share: 1/2, range: [1, 60]}, "
        "b: {workload: hlr, target: two, share: 1/2, range: [50, 100]}",
        "50 to 60",
    ),
]
APART = [
    "a: {workload: hlr, target: one, share: 1/2, range: [1, 50]}, "
    "b: {workload: hlr, target: two, share: 1/2, range: [51, 100]}",
    "a: {workload: hlr, target: one, share: 1/2}, b: {workload: hlr, target: own, share: 1/2}",
    "a: {workload: reads, target: one, share: 1/2}, b: {workload: reads, target: one, share: 1/2}",
]


def notes(folder: Path, loads: str) -> list[str]:
    path = folder / "plan.yaml"
    path.write_text(PLAN.replace("LOADS", loads))
    return [found.message for found in overlaps(compile_plan(path))]


@pytest.mark.parametrize(("loads", "keys"), MEETING)
def test_loads_on_the_same_keys_are_noted(tmp_path: Path, loads: str, keys: str) -> None:
    (note,) = notes(tmp_path, loads)
    assert note == f"note: loads `a` and `b` of `ladder` touch the same keys {keys}"


@pytest.mark.parametrize("loads", APART)
def test_disjoint_ranges_other_databases_and_reads_are_not(tmp_path: Path, loads: str) -> None:
    assert notes(tmp_path, loads) == []


def test_many_loads_on_the_same_keys_are_one_note(tmp_path: Path) -> None:
    loads = ", ".join(f"l{n}: {{workload: hlr, target: one, share: 1/6}}" for n in range(6))
    (note,) = notes(tmp_path, loads)
    assert note == "note: loads `l0`, `l1`, `l2` and 3 more of `ladder` touch the same keys 1 to 100"
