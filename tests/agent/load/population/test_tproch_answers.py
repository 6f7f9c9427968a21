"""TPROC-H on real engines: the population is loaded by the engine's own loader, and the 22 queries with the validation
parameters give the answers that DuckDB's extension has for the scale factor."""

from __future__ import annotations

import select
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw
import pytest

from proveout.agent.engines.adapter import Populates
from proveout.agent.engines.table import adapter, driver
from proveout.agent.load.population.slices import slices
from proveout.dsl.workloads.base import Statement
from proveout.dsl.workloads.tproch import rows
from proveout.dsl.workloads.tproch.parameters import QUERIES, Tproch
from proveout.dsl.workloads.tproch.query_parameters import validation
from proveout.dsl.workloads.tproch.query_templates import STATEMENTS
from proveout.dsl.workloads.tproch.workload import build
from tests.thorough import THOROUGH

pytest.importorskip(rows.PACKAGE)


def load(engine: str, dsn: str, parameters: Tproch) -> None:
    population = build(parameters).population
    populates = adapter(engine)
    assert isinstance(populates, Populates)
    loader = populates.loader(dsn, population)
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


def execute(engine: str, session: Any, statement: Statement, arguments: Sequence[Any]) -> list[tuple[Any, ...]]:
    prepared = session.prepare(statement)
    if driver(engine).waits == "blocking":
        session.execute(prepared, arguments)
    elif not session.exchange(prepared, arguments):
        ready = select.poll()
        ready.register(session.fileno(), select.POLLIN)
        ready.poll()
        while not session.receive():
            ready.poll()
    found: list[tuple[Any, ...]] = session.rows()
    return found


def expected(scale: float) -> dict[int, list[list[str]]]:
    query = "SELECT query_nr, answer FROM tpch_answers() WHERE scale_factor = ?"
    answers = rows.generator_database().execute(query, [scale]).fetchall()
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


def check(engine: str, dsn: str, scale: float, leave_out: Sequence[int] = ()) -> None:
    load(engine, dsn, Tproch(scale=scale))
    # the answers to query 11 are for the fraction of scale factor 1
    parameters = {**validation(scale), 11: validation(1.0)[11]}
    answers = expected(scale)
    session = driver(engine).connect(dsn)
    for number in QUERIES:
        if number in leave_out:
            continue
        found = execute(engine, session, STATEMENTS[number], parameters[number])
        wanted = answers[number]
        assert len(found) == len(wanted), f"query {number} on {engine}"
        for row, line in zip(found, wanted, strict=True):
            assert all(same(*pair) for pair in zip(row, line, strict=True)), (engine, number, row, line)
    session.close()


def test_duckdb(tmp_path: Path) -> None:
    check("duckdb", str(tmp_path / "data.duckdb"), 0.01)


def test_postgres(database: str) -> None:
    check("postgres", database, 0.01)


@pytest.mark.slow
def test_sqlite(tmp_path: Path) -> None:
    file = tmp_path / "data.sqlite"
    apsw.Connection(str(file)).close()
    check("sqlite", str(file), 0.01)


@pytest.mark.slow
def test_mysql(mysql_database: str) -> None:
    check("mysql", mysql_database, 0.01)


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.skipif(not THOROUGH, reason="takes minutes: make soak")
def test_duckdb_at_scale_1(tmp_path: Path) -> None:
    check("duckdb", str(tmp_path / "data.duckdb"), 1.0)


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.skipif(not THOROUGH, reason="takes minutes: make soak")
def test_postgres_at_scale_1(database: str) -> None:
    check("postgres", database, 1.0)
