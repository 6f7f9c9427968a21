"""Session settings: accepted and refused ones, and their SQL."""

from __future__ import annotations

import pytest

from proveout.dsl.rules.session_settings import expanded, objection, statement


@pytest.mark.parametrize(
    ("engine", "name", "value"),
    [
        ("postgres", "work_mem; DROP TABLE x", "1"),
        ("postgres", "role", "postgres"),
        ("postgres", "ROLE", "postgres"),
        ("postgres", "session_preload_libraries", "evil"),
        ("postgres", "dynamic_library_path", "x"),
        ("postgres", "work_mem", "1\n2"),
        ("mysql", "sort_buffer_size", "1'; DROP TABLE x; --"),
        ("mysql", "sql_mode", "a\\"),
        ("mysql", "@@global.x", "1"),
        ("mysql", "autocommit", "0"),
        ("sqlite", "journal_mode", "OFF"),
        ("sqlite", "cache_size", "1; DROP TABLE x"),
        ("sqlite", "writable_schema", "1"),
        ("oracle", "optimizer_mode", "'x' events '10046'"),
        ("oracle", "container", "CDB$ROOT"),
        ("oracle", "force_parallel_query", "all"),
        ("duckdb", "threads", "all"),
        ("duckdb", "temp_directory", "/etc"),
        ("duckdb", "force_compression", "zstd"),
        ("duckdb", "memory_limit", "1GB&enable_external_access=true"),
    ],
)
def test_refused_settings(engine: str, name: str, value: str) -> None:
    assert objection(engine, name, value)


@pytest.mark.parametrize(
    ("engine", "name", "value", "text"),
    [
        ("postgres", "max_parallel_workers_per_gather", "2", "SELECT set_config($1, $2, false)"),
        ("mysql", "join_buffer_size", "262144", "SET SESSION join_buffer_size = 262144"),
        ("mysql", "optimizer_switch", "mrr=on,mrr_cost_based=off", "SET SESSION optimizer_switch = "
        "'mrr=on,mrr_cost_based=off'"),
        ("sqlite", "mmap_size", "268435456", "PRAGMA mmap_size = 268435456"),
        ("oracle", "optimizer_mode", "ALL_ROWS", "ALTER SESSION SET optimizer_mode = ALL_ROWS"),
        ("oracle", "nls_date_format", "YYYY-MM-DD", "ALTER SESSION SET nls_date_format = 'YYYY-MM-DD'"),
        ("oracle", "force_parallel_query", "32", "ALTER SESSION FORCE PARALLEL QUERY PARALLEL 32"),
        ("oracle", "force_parallel_query", "0", "ALTER SESSION DISABLE PARALLEL QUERY"),
        ("timesten", "isolation", "1", "ALTER SESSION SET isolation = 1"),
    ],
)  # fmt: skip
def test_statements_of_a_setting(engine: str, name: str, value: str, text: str) -> None:
    assert objection(engine, name, value) == ""
    dialect = "oracle" if engine == "timesten" else engine
    made, arguments = statement(dialect, name, value)  # type: ignore[arg-type]
    assert made.text[dialect] == text  # type: ignore[index]
    assert arguments == ((name, value) if engine == "postgres" else ())


@pytest.mark.parametrize(
    ("engine", "own"),
    [
        ("postgres", {"max_parallel_workers_per_gather": "3"}),
        ("duckdb", {"threads": "4"}),
        ("oracle", {"force_parallel_query": "4"}),
    ],
)
def test_a_degree_of_parallelism_is_the_engines_own_setting(engine: str, own: dict[str, str]) -> None:
    assert objection(engine, "degree", "4") == ""
    assert expanded(engine, {"degree": "4"}) == own
    assert all(objection(engine, name, value) == "" for name, value in own.items())


@pytest.mark.parametrize(("engine", "value"), [("sqlite", "2"), ("mysql", "2"), ("postgres", "0"), ("duckdb", "all")])
def test_an_impossible_degree_is_refused_and_left_as_it_is(engine: str, value: str) -> None:
    assert "degree" in objection(engine, "degree", value)
    assert expanded(engine, {"degree": value}) == {"degree": value}
