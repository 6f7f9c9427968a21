"""Every SQL text of the workloads, as golden files that a DBA can review: PostgreSQL's and Oracle's whole, those of the
other dialects, of stored procedures and of partitioned tables as the lines that differ (`-`, `+`) from PostgreSQL's, or
from those of the workload without them. Of statements for several numbers of rows the first and the last are there.

`PROVEOUT_UPDATE_GOLDEN=1 pytest tests/dsl/workloads/test_workload_texts.py` writes them again: read the diff.
"""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path
from typing import Any

import pytest
from driven import built

from proveout.dsl.engines import Dialect
from proveout.dsl.workloads.base import Statement, WorkloadKind

GOLDEN = Path(__file__).parents[2] / "golden" / "sql"
UPDATE = bool(os.environ.get("PROVEOUT_UPDATE_GOLDEN"))
NAMES = ("tptbm", "prepaid", "tpcb")
DIALECTS: tuple[Dialect, ...] = ("postgres", "sqlite", "oracle", "mysql", "duckdb")
WHOLE: tuple[Dialect, ...] = ("postgres", "oracle")
WITHOUT_DUCKDB = DIALECTS[:-1]
MODELS: dict[str, tuple[str, dict[str, Any], tuple[Dialect, ...]]] = {
    **{kind: (kind, {}, DIALECTS) for kind in (*NAMES, "tproch")},
    "hlr": ("hlr", {"population": 100_000}, ("oracle",)),
    "hlr-partitioned": ("hlr", {"population": 2_500_000_000, "cardinality": "lab", "partitions": 2}, ("oracle",)),
    "tprocc": ("tprocc", {}, WITHOUT_DUCKDB),
    "tprocc-procedures": ("tprocc", {"procedures": True}, WHOLE),
}


def statements(workload: WorkloadKind) -> list[Statement]:
    """Each once: transactions may share one."""
    used = [statement for kind in workload.transactions for statement in kind.statements]
    every = [*used, *(invariant.statement for invariant in workload.invariants)]
    return list({id(statement): statement for statement in every}.values())


def lines(name: str, dialect: Dialect) -> list[str]:
    """The texts of a workload in a dialect, in the order in which they are sent."""
    workload = built(*MODELS[name][:2])
    population = workload.population
    found = ["-- before the load", *population.before[dialect]]
    for number, phase in enumerate(population.after[dialect], start=1):
        found += [f"-- after the load, phase {number}", *phase]
    found += ["-- removal", *population.drop[dialect]]
    every = {statement.name: statement.text[dialect] for statement in statements(workload)}
    families: dict[str, list[str]] = {}
    for statement in every:
        families.setdefault(re.sub(r"_\d+$", "", statement), []).append(statement)
    for family in families.values():
        for statement in dict.fromkeys((family[0], family[-1])):
            found += [f"-- {statement}", every[statement]]
    return [line for text in found for line in text.split("\n")]


@pytest.mark.parametrize(
    ("name", "dialect"), [(name, dialect) for name, (_, _, dialects) in MODELS.items() for dialect in dialects]
)
def test_the_texts(name: str, dialect: Dialect) -> None:
    text, plain = lines(name, dialect), name.partition("-")[0]
    if plain != name or dialect not in WHOLE:
        other = lines(plain, dialect if plain != name else "postgres")
        found = difflib.unified_diff(other, text, n=0, lineterm="")
        text = [line for line in found if not line.startswith(("---", "+++", "@@"))]
    path = GOLDEN / f"{name}-{dialect}.sql"
    if UPDATE:
        path.write_text("\n".join(text) + "\n")
    assert "\n".join(text) + "\n" == path.read_text()


@pytest.mark.parametrize("kind", NAMES)
def test_arguments_stand_in_the_order_of_their_numbers_and_once_each(kind: str) -> None:
    """Engines with unnamed placeholders bind arguments in order."""
    for statement in statements(built(kind, {})):
        for text in statement.text.values():
            assert re.findall(r"\$(\d+)", text) == [str(n) for n in range(1, len(statement.arguments) + 1)], text
