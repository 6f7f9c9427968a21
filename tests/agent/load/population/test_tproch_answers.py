"""TPROC-H on real engines: the population is loaded by the engine's own loader, and the 22 queries with the validation
parameters give the answers that DuckDB's extension has for the scale factor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw
import pytest

from proveout.agent.engines.table import adapter, driver
from proveout.agent.load.populate_jobs import slices
from proveout.dsl.workloads.tproch import QUERIES, Tproch
from proveout.dsl.workloads.tproch import workload as tables
from proveout.dsl.workloads.tproch.queries import STATEMENTS, validation
from proveout.dsl.workloads.tproch.workload import build
from tests.agent.load.conftest import answered

pytest.importorskip(tables.PACKAGE)
pytestmark = pytest.mark.server


def load(engine: str, dsn: str, parameters: Tproch) -> None:
    population = build(parameters).population
    loader = adapter(engine).loader(dsn, population)
    loader.prepare()
    for first, count in slices(population.units, population.slice_units):
        for table in population.tables:
            loader.load(table, first, count, lambda _: None)
    for phase in population.after[driver(engine).dialect]:
        for statement in phase:
            loader.execute(statement)
    for table in population.tables:
        low, high = population.expected[table.name]
        assert low <= loader.count(table.name) <= high
    loader.settle()
    loader.close()


def expected(scale: float) -> dict[int, list[list[str]]]:
    query = "SELECT query_nr, answer FROM tpch_answers() WHERE scale_factor = ?"
    answers = tables.generator_database().execute(query, [scale]).fetchall()
    return {number: [line.split("|") for line in text.removesuffix("\n").split("\n")[1:]] for number, text in answers}


def same(found: object, wanted: str) -> bool:
    """Whether a value is that of the answer; engines round fractions differently."""
    text = "" if found is None else str(found)
    if text == wanted:
        return True
    try:
        return abs(float(text) - float(wanted)) <= max(0.01, 1e-4 * abs(float(wanted)))
    except ValueError:
        return False


@pytest.mark.parametrize(
    ("engine", "scale"),
    [
        ("postgres", 0.01),
        *(
            pytest.param(engine, scale, marks=pytest.mark.soak)
            for engine, scale in (
                ("duckdb", 0.01),
                ("sqlite", 0.01),
                ("mysql", 0.01),
                ("duckdb", 1.0),
                ("postgres", 1.0),
            )
        ),
    ],
)
def test_the_answers_are_those_of_the_scale_factor(
    engine: str, scale: float, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    fixtures = {"postgres": "database", "mysql": "mysql_database"}
    dsn = str(request.getfixturevalue(fixtures[engine]) if engine in fixtures else tmp_path / "data.db")
    if engine == "sqlite":
        apsw.Connection(dsn).close()
    load(engine, dsn, Tproch(scale=scale))
    # the answers to query 11 are for the fraction of scale factor 1
    parameters = {**validation(scale), 11: validation(1.0)[11]}
    answers = expected(scale)
    made: Any = driver(engine)
    session = made.connect(dsn)
    for number in QUERIES:
        prepared = session.prepare(STATEMENTS[number])
        found, wanted = answered(made, session, prepared, parameters[number]).rows(), answers[number]
        assert len(found) == len(wanted), f"query {number} on {engine}"
        for row, line in zip(found, wanted, strict=True):
            assert all(same(*pair) for pair in zip(row, line, strict=True)), (engine, number, row, line)
    session.close()
