"""SQL with which a plan reaches files of the host, or the process, through DuckDB. Data: each is tried on a real file.

Texts may hold `{outside}`, a path that is not there, `{secret}`, a CSV file that holds the word CANARY, `{folder}`, and
`{database}`, another DuckDB file that holds it. An escape has worked when there is a file at `{outside}` or in
`{folder}/elsewhere` afterwards, or when a row holds CANARY or the path of the secret.
"""

from __future__ import annotations

ESCAPES: dict[str, tuple[str, ...]] = {
    "COPY TO": ("COPY item TO '{outside}'",),
    "COPY a query TO": ("COPY (SELECT 1) TO '{outside}' (FORMAT csv)",),
    "COPY FROM": ("CREATE TABLE t (w VARCHAR)", "COPY t FROM '{secret}'", "SELECT * FROM t"),
    "COPY FROM DATABASE": ("ATTACH '{outside}' AS o", "COPY FROM DATABASE a TO o"),
    "read_csv": ("SELECT * FROM read_csv('{secret}', header = false)",),
    "read_csv by a list": ("SELECT * FROM read_csv(['{secret}'], header = false)",),
    "read_text": ("SELECT content FROM read_text('{secret}')",),
    "read_text by glob": ("SELECT content FROM read_text('{folder}/*')",),
    "read_blob": ("SELECT content FROM read_blob('{secret}')",),
    "read_duckdb": ("SELECT * FROM read_duckdb('{database}')",),
    "file as a table": ("SELECT * FROM '{secret}'",),
    "database as a table": ("SELECT * FROM '{database}'",),
    "by a macro": ("CREATE MACRO m(p) AS TABLE SELECT * FROM read_text(p)", "SELECT * FROM m('{secret}')"),
    "by a view": ("CREATE VIEW v AS SELECT * FROM read_text('{secret}')", "SELECT * FROM v"),
    "by query()": ("SELECT * FROM query('SELECT * FROM read_text(''{secret}'')')",),
    "by query_table": ("SELECT * FROM query_table('{secret}')",),
    "glob": ("SELECT * FROM glob('{folder}/*')",),
    "sniff_csv": ("SELECT * FROM sniff_csv('{secret}')",),
    "parquet_metadata": ("SELECT * FROM parquet_metadata('{secret}')",),
    "read_json": ("SELECT * FROM read_json('{secret}')",),
    "ATTACH": ("ATTACH '{outside}' AS other", "CREATE TABLE other.t (a INTEGER)", "CHECKPOINT other"),
    "ATTACH to read": ("ATTACH '{database}' AS other (READ_ONLY)", "SELECT * FROM other.item"),
    "ATTACH an SQLite file": ("ATTACH '{outside}' AS other (TYPE sqlite)", "CREATE TABLE other.t (a INTEGER)"),
    "USE of another file": ("ATTACH '{database}' AS other", "USE other", "SELECT * FROM item"),
    "EXPORT DATABASE": ("EXPORT DATABASE '{outside}'",),
    "IMPORT DATABASE": ("IMPORT DATABASE '{folder}'",),
    "INSTALL": ("INSTALL httpfs",),
    "INSTALL from": ("INSTALL x FROM '{folder}'",),
    "LOAD by path": ("LOAD '{secret}'",),
    "httpfs": ("SELECT * FROM read_csv('http://127.0.0.1:9/x')",),
    "temporary files elsewhere": (
        "SET temp_directory = '{folder}/elsewhere'",
        "SET memory_limit = '30MB'",
        "SELECT count(*) FROM (SELECT DISTINCT hash(range) FROM range(2000000))",
    ),
    "external access again": ("SET enable_external_access = true", "COPY item TO '{outside}'"),
    "external access, globally": ("SET GLOBAL enable_external_access = true", "COPY item TO '{outside}'"),
    "external access by a pragma": ("PRAGMA enable_external_access = true", "COPY item TO '{outside}'"),
    "external access, reset": ("RESET enable_external_access", "COPY item TO '{outside}'"),
    "more allowed folders": ("SET allowed_directories = ['{folder}']", "COPY item TO '{outside}'"),
    "more allowed files": ("SET allowed_paths = ['{outside}']", "COPY item TO '{outside}'"),
    "configuration unlocked": ("SET lock_configuration = false", "COPY item TO '{outside}'"),
    "log to a file": ("CALL enable_logging(storage = 'file', storage_config = {{'path': '{outside}'}})", "SELECT 1"),
    "log of queries": ("SET log_query_path = '{outside}'", "SELECT 1"),
    "profile to a file": ("PRAGMA enable_profiling", "SET profiling_output = '{outside}'", "SELECT 1"),
    "profile to a file by a pragma": ("PRAGMA profile_output = '{outside}'", "EXPLAIN ANALYZE SELECT 1"),
    "secret kept on disk": ("CREATE PERSISTENT SECRET s (TYPE http, BEARER_TOKEN 'x')",),
    "folder of secrets": ("SET secret_directory = '{folder}/elsewhere'", "CREATE PERSISTENT SECRET s (TYPE http)"),
    "a variable of Python": ("SELECT * FROM canary",),
    "getenv": ("SELECT getenv('CANARY_NAME')",),
}
