"""The HLR texts for Oracle, whole: no Oracle is here to take them, so what is sent is read by people, in
tests/golden/sql."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from proveout.dsl.workloads.hlr import workload as hlr
from proveout.dsl.workloads.hlr.parameters import Hlr

GOLDEN = Path(__file__).parents[3] / "golden" / "sql"
UPDATE = bool(os.environ.get("PROVEOUT_UPDATE_GOLDEN"))


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("hlr-oracle", Hlr(population=100_000)),
        ("hlr-oracle-partitioned", Hlr(population=2_500_000_000, cardinality="lab", partitions=2)),
    ],
)
def test_texts(name: str, parameters: Hlr) -> None:
    workload = hlr.build(parameters)
    population = workload.population
    statements = {s.name: s.text["oracle"] for kind in workload.transactions for s in kind.statements}
    phases = [("drop", population.drop["oracle"]), ("before", population.before["oracle"])]
    phases += [(f"after {number}", texts) for number, texts in enumerate(population.after["oracle"], start=1)]
    lines = [f"-- {phase}\n" + "".join(f"{text}\n" for text in texts) for phase, texts in phases]
    lines += [f"-- {statement}\n{text}\n" for statement, text in statements.items()]
    text = "\n".join(lines)
    path = GOLDEN / f"{name}.sql"
    if UPDATE:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_only_sqlite_is_left_out_of_partitions() -> None:
    assert set(hlr.build(Hlr(population=100, partitions=2)).population.before) >= {"oracle", "postgres"}
    assert "sqlite" not in hlr.build(Hlr(population=100, partitions=2)).population.before
