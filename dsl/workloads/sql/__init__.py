"""The `sql` workload, whose tables and transactions stand in the plan: its description for the compiler. No numpy
here."""

from __future__ import annotations

from proveout.dsl import engines
from proveout.dsl.extensions import WorkloadExtension
from proveout.dsl.workloads import sql_text
from proveout.dsl.workloads.sql.parameters import Custom, check_sql, missing_table, missing_text


def _writes(model: Custom) -> bool:
    """Whether a statement that runs changes data, by the words of its SQL."""
    entries = [entry for entry in model.transactions.values() if entry.weight > 0]
    texts = [text for entry in entries for one in entry.statements.values() for text in one.sql.values()]
    return any(sql_text.writes(sql_text.scan(text)) for text in texts)


def _engine_problem(model: Custom, engine: str) -> str | None:
    dialect = engines.of(engine).dialect
    return missing_table(model, dialect) if dialect else None


def _load_problem(model: Custom, engine: str) -> str | None:
    dialect = engines.of(engine).dialect
    return missing_text(model, dialect) if dialect else None


KIND = WorkloadExtension(
    parameters=Custom,
    transactions=lambda model: tuple(model.transactions),
    build="proveout.dsl.workloads.sql.workload:build",
    writes=_writes,
    rows=lambda model: sum(table.rows for table in model.tables.values()),
    tables=lambda model: tuple(model.tables),
    populates=lambda model: bool(model.tables),
    tables_in_plan=True,
    load_only=frozenset({"binds", "in_order", "transactions"}),
    in_order=lambda model: model.in_order,
    engine_problem=_engine_problem,
    load_problem=_load_problem,
    check=check_sql,
)
