"""Every SQL text of the workloads, per dialect, as golden files that a DBA can review.

`PROVEOUT_UPDATE_GOLDEN=1 pytest tests/dsl/workloads/test_workload_texts.py` writes them again: read the diff.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from proveout.dsl.engines import Dialect
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.workloads.base import Statement, WorkloadKind
from proveout.dsl.workloads.kinds import build, built_in

GOLDEN = Path(__file__).parents[2] / "golden" / "sql"
UPDATE = bool(os.environ.get("PROVEOUT_UPDATE_GOLDEN"))
DIALECTS: tuple[Dialect, ...] = ("postgres", "sqlite", "oracle", "mysql", "duckdb")
NAMES = ("tptbm", "prepaid", "tpcb")
POSITIONED = ("tproch",)
"""Kinds whose templates use an argument several times."""


def workload(kind: str) -> WorkloadKind:
    return build(Workload(name=kind, kind=kind, parameters=to_values(built_in(kind).parameters())))


def statements(built: WorkloadKind) -> list[Statement]:
    """Each once: transactions may share one."""
    used = [statement for kind in built.transactions for statement in kind.statements]
    every = [*used, *(invariant.statement for invariant in built.invariants)]
    return list({id(statement): statement for statement in every}.values())


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("kind", (*NAMES, *POSITIONED))
def test_the_texts(kind: str, dialect: Dialect) -> None:
    built = workload(kind)
    population = built.population
    lines = ["-- before the load", *population.before[dialect]]
    for number, phase in enumerate(population.after[dialect], start=1):
        lines += [f"-- after the load, phase {number}", *phase]
    lines += ["-- removal", *population.drop[dialect]]
    for statement in statements(built):
        lines += [f"-- {statement.name}", statement.text[dialect]]
    path = GOLDEN / f"{kind}-{dialect}.sql"
    text = "\n".join(lines) + "\n"
    if UPDATE:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("kind", NAMES)
def test_arguments_stand_in_the_order_of_their_numbers_and_once_each(kind: str) -> None:
    """Engines with unnamed placeholders bind arguments in order."""
    for statement in statements(workload(kind)):
        for text in statement.text.values():
            assert re.findall(r"\$(\d+)", text) == [str(n) for n in range(1, len(statement.arguments) + 1)], text


@pytest.mark.parametrize("kind", (*NAMES, *POSITIONED))
def test_names_are_unique(kind: str) -> None:
    names = [statement.name for statement in statements(workload(kind))]
    assert len(set(names)) == len(names)
