"""SQL of a plan that tries to leave its database: to run programs, to reach files of the host, to become another role, to
load code, to connect elsewhere. Data only.

A case of PostgreSQL or MySQL runs against an embedded server in which the plan's role has the tables `loot (line text)`
and `reached (name varchar)`; one of SQLite or DuckDB on a file with the table `item (id, word)`. Words in braces are
replaced: `{outside}` is a world-writable folder of the host, for a file a path without a file; `{secret}` a readable
file that contains the canary; `{folder}` the folder of that; `{database}` another database file that contains it;
`{socket}` the folder of the server's socket; `{name}` the case.

The sign of success on a server (`sign`): `file` - any file in the folder outside is new or changed; `read` - the canary
is in `loot`; `done` - every statement was accepted, recorded in `reached` by a statement added at the end. The first
two are checked after every case. On a file it is: there is something at `{outside}` or in `{folder}/elsewhere`, or a row
or an error contains the canary, or a row the path of the secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

CANARY = "CANARY-7f3a91c2"


@dataclass(frozen=True, slots=True)
class Escape:
    """One attempt, written for `engine`."""

    name: str
    engine: str
    sign: Literal["file", "read", "done"]
    statements: tuple[str, ...]

    def filled(self, words: Mapping[str, object]) -> tuple[str, ...]:
        """The statements with these words."""
        return tuple(_filled(text, {**words, "name": self.name, "canary": CANARY}) for text in self.statements)


def _filled(text: str, words: Mapping[str, object]) -> str:
    for word, value in words.items():
        text = text.replace(f"{{{word}}}", str(value))
    return text


def _of(engine: str, cases: Mapping[Any, tuple[str, ...]]) -> tuple[Escape, ...]:
    """The cases of an engine, by (name, sign) or by name."""
    named = ((key if isinstance(key, tuple) else (key, "read"), statements) for key, statements in cases.items())
    return tuple(Escape(f"{engine}_{name}", engine, sign, statements) for (name, sign), statements in named)


PROGRAM = "touch {outside}/{name}"

POSTGRES = _of("postgres", {
    # programs
    ("copy_to_program", "file"): (f"COPY (SELECT 1) TO PROGRAM '{PROGRAM}'",),
    ("copy_from_program", "read"): ("COPY loot FROM PROGRAM 'cat {secret}'",),
    ("copy_program_in_definer", "file"): (
        "CREATE FUNCTION {name}() RETURNS int LANGUAGE plpgsql SECURITY DEFINER AS "
        f"$f$ BEGIN EXECUTE 'COPY (SELECT 1) TO PROGRAM ''{PROGRAM}'''; RETURN 1; END $f$",
        "SELECT {name}()"),
    ("event_trigger", "done"): (
        "CREATE FUNCTION {name}() RETURNS event_trigger LANGUAGE plpgsql AS $f$ BEGIN END $f$",
        "CREATE EVENT TRIGGER {name} ON ddl_command_end EXECUTE FUNCTION {name}()"),
    # files
    ("copy_to_file", "file"): ("COPY (SELECT 1) TO '{outside}/{name}'",),
    ("copy_from_file", "read"): ("COPY loot FROM '{secret}'",),
    ("read_file", "read"): ("INSERT INTO loot SELECT pg_read_file('{secret}')",),
    ("read_password_of_system", "done"): ("SELECT pg_read_file('postgresql.conf')",),
    ("list_folder", "done"): ("SELECT pg_ls_dir('/etc')",),
    ("file_status", "done"): ("SELECT pg_stat_file('/etc/passwd')",),
    ("large_object_import", "read"): (
        "SELECT lo_import('{secret}', 4711)", "INSERT INTO loot SELECT convert_from(lo_get(4711), 'UTF8')",),
    ("large_object_export", "file"): ("SELECT lo_from_bytea(4712, 'x')", "SELECT lo_export(4712, '{outside}/{name}')",),
    ("tablespace", "done"): ("CREATE TABLESPACE {name} LOCATION '{outside}'",),
    ("line_in_a_value", "done"): ("ALTER SYSTEM SET search_path = E'a\\narchive_command = ''x'''",),
    ("rules_of_access", "done"): ("SELECT * FROM pg_hba_file_rules",),
    ("dictionary_of_a_file", "done"): (
        "CREATE TEXT SEARCH DICTIONARY {name} (TEMPLATE = simple, StopWords = '../../../../../../../etc/passwd')",),
    ("external_entity", "read"): (
        "INSERT INTO loot SELECT xmlparse(document '<!DOCTYPE d [<!ENTITY e SYSTEM \"file://{secret}\">]><d>&e;</d>')::text",),
    ("backup_start", "done"): ("SELECT pg_backup_start('x')",),
    ("file_fdw", "read"): (
        "CREATE EXTENSION file_fdw",
        "CREATE SERVER {name} FOREIGN DATA WRAPPER file_fdw",
        "CREATE FOREIGN TABLE {name}_t (line text) SERVER {name} OPTIONS (filename '{secret}')",
        "INSERT INTO loot SELECT line FROM {name}_t"),
    ("adminpack", "file"): ("CREATE EXTENSION adminpack", "SELECT pg_file_write('{outside}/{name}', 'x', false)"),
    # roles
    ("superuser", "done"): ("ALTER ROLE proveout SUPERUSER",),
    ("set_role", "done"): ("SET ROLE proveout_administrator",),
    ("session_authorization", "done"): ("SET SESSION AUTHORIZATION proveout_administrator",),
    ("grant_programs", "done"): ("GRANT pg_execute_server_program TO proveout",),
    ("grant_administrator", "done"): ("GRANT proveout_administrator TO proveout",),
    ("grant_parameter", "done"): ("GRANT ALTER SYSTEM ON PARAMETER archive_command TO proveout",),
    ("create_plain_role", "done"): ("CREATE ROLE {name}",),
    ("password_of_administrator", "done"): ("ALTER ROLE proveout_administrator PASSWORD 'x'",),
    ("own_replication", "done"): ("ALTER ROLE proveout REPLICATION",),
    ("defaults_of_administrator", "done"): ("ALTER ROLE proveout_administrator SET search_path = public",),
    ("verifiers", "done"): ("SELECT rolpassword FROM pg_authid",),
    ("conninfo_of_subscription", "done"): ("SELECT subconninfo FROM pg_subscription",),
    ("catalogue_update", "done"): ("UPDATE pg_authid SET rolsuper = true WHERE rolname = 'proveout'",),
    ("catalogue_mods", "done"): ("SET allow_system_table_mods = on",),
    ("function_in_catalogue", "done"): (
        "CREATE FUNCTION pg_catalog.{name}() RETURNS int LANGUAGE sql AS 'SELECT 1'",),
    ("security_label", "done"): ("ALTER FUNCTION pg_reload_conf() SECURITY INVOKER",),
    ("owner_is_administrator", "done"): (
        "CREATE FUNCTION {name}() RETURNS int LANGUAGE sql SECURITY DEFINER AS 'SELECT 1'",
        "ALTER FUNCTION {name}() OWNER TO proveout_administrator"),
    # code
    ("c_function", "done"): ("CREATE FUNCTION {name}(cstring) RETURNS int AS '/lib/x86_64-linux-gnu/libc.so.6', 'system' LANGUAGE c STRICT",),
    ("internal_function", "done"): ("CREATE FUNCTION {name}(text) RETURNS text AS 'pg_read_file_all' LANGUAGE internal",),
    ("load", "done"): ("LOAD '{outside}/x.so'",),
    ("untrusted_perl", "done"): ("CREATE EXTENSION plperlu",),
    ("language", "done"): ("CREATE LANGUAGE {name} HANDLER plpgsql_call_handler",),
    ("vector", "done"): ("CREATE EXTENSION vector",),
    ("session_preload", "done"): ("ALTER ROLE proveout SET session_preload_libraries = '{outside}/x'",),
    ("slot_with_library", "done"): ("SELECT pg_create_logical_replication_slot('{name}', '{outside}/x')",),
    ("base_type", "done"): (
        "CREATE TYPE {name}",
        "CREATE FUNCTION {name}_in(cstring) RETURNS {name} AS 'int4in' LANGUAGE internal IMMUTABLE STRICT"),
    ("cast_without_function", "done"): (
        "CREATE TYPE {name} AS (a int)", "CREATE CAST (int AS {name}) WITHOUT FUNCTION"),
    ("access_method", "done"): ("CREATE ACCESS METHOD {name} TYPE INDEX HANDLER bthandler",),
    ("text_search_template", "done"): ("CREATE TEXT SEARCH TEMPLATE {name} (LEXIZE = dsimple_lexize)",),
    # other servers
    ("subscription", "done"): (
        "CREATE SUBSCRIPTION {name} CONNECTION 'host={socket} user=proveout_administrator dbname=postgres' PUBLICATION p WITH (connect = false)",),
    ("subscription_with_files", "done"): (
        "CREATE SUBSCRIPTION {name} CONNECTION 'host=127.0.0.1 passfile={secret} sslkey={secret}' PUBLICATION p WITH (connect = false)",),
    ("dblink", "done"): (
        "CREATE EXTENSION dblink", "SELECT dblink_connect('host={socket} user=proveout_administrator dbname=postgres')"),
    ("postgres_fdw", "done"): (
        "CREATE EXTENSION postgres_fdw", "CREATE SERVER {name} FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '{socket}')"),
    ("foreign_data_wrapper", "done"): ("CREATE FOREIGN DATA WRAPPER {name}",),
    ("foreign_server", "done"): ("CREATE SERVER {name} FOREIGN DATA WRAPPER postgresql",),
    ("end_the_administrator", "done"): (
        "SELECT 1 / count(*) FROM pg_stat_activity WHERE usename = 'proveout_administrator' AND pg_terminate_backend(pid)",),
    ("new_database", "done"): ("CREATE DATABASE {name}",),
})  # fmt: skip

MYSQL = _of("mysql", {
    # files
    ("into_outfile", "file"): ("SELECT 1 INTO OUTFILE '{outside}/{name}'",),
    ("into_dumpfile", "file"): ("SELECT 'x' INTO DUMPFILE '{outside}/{name}'",),
    ("load_file", "read"): ("INSERT INTO loot SELECT LOAD_FILE('{secret}')",),
    ("load_data", "read"): ("LOAD DATA INFILE '{secret}' INTO TABLE loot",),
    ("load_data_local", "read"): ("LOAD DATA LOCAL INFILE '{secret}' INTO TABLE loot",),
    ("load_in_procedure", "read"): (
        "CREATE PROCEDURE {name}() SQL SECURITY DEFINER INSERT INTO loot SELECT LOAD_FILE('{secret}')", "CALL {name}()"),
    ("outfile_prepared", "file"): ("EXECUTE IMMEDIATE \"SELECT 1 INTO OUTFILE '{outside}/{name}'\"",),
    ("data_directory_of_innodb", "file"): ("CREATE TABLE {name} (a int) ENGINE=InnoDB DATA DIRECTORY='{outside}'",),
    ("data_directory_of_myisam", "file"): (
        "CREATE TABLE {name} (a int) ENGINE=MyISAM DATA DIRECTORY='{outside}' INDEX DIRECTORY='{outside}'",),
    ("data_directory_of_a_partition", "file"): (
        "CREATE TABLE {name} (a int) ENGINE=InnoDB PARTITION BY RANGE (a) (PARTITION p VALUES LESS THAN (5) DATA DIRECTORY='{outside}')",),
    ("temporary_folder", "done"): ("SET SESSION innodb_tmpdir = '{outside}'",),
    ("general_log", "done"): ("SET GLOBAL general_log_file = '{outside}/{name}'",),
    ("connect_engine", "read"): (
        "CREATE TABLE {name} (line varchar(200)) ENGINE=CONNECT TABLE_TYPE=DOS FILE_NAME='{secret}'", "INSERT INTO loot SELECT line FROM {name}"),
    ("csv_by_path", "read"): ("CREATE TABLE `../../../../..{secret}` (line varchar(200) NOT NULL) ENGINE=CSV",),
    # code
    ("install_soname", "done"): ("INSTALL SONAME 'ha_archive'",),
    ("udf", "done"): ("CREATE FUNCTION {name} RETURNS STRING SONAME 'lib_mysqludf_sys.so'",),
    ("udf_by_table", "done"): ("INSERT INTO mysql.func VALUES ('{name}', 0, 'libc.so.6', 'function')",),
    ("init_connect", "done"): ("SET GLOBAL init_connect = 'SELECT 1'",),
    ("debug_output", "done"): ("SET SESSION debug_dbug = 'd:o,{outside}/{name}'",),
    # accounts
    ("grant_file", "done"): ("GRANT FILE ON *.* TO proveout@localhost",),
    ("create_account", "done"): ("CREATE USER {name}@localhost",),
    ("unlock_root", "done"): ("ALTER USER root@localhost ACCOUNT UNLOCK",),
    ("verifiers", "done"): ("SELECT * FROM mysql.global_priv",),
    ("definer_is_root", "done"): ("CREATE DEFINER=root@localhost PROCEDURE {name}() SELECT LOAD_FILE('{secret}')",),
    ("procedure_of_ours", "done"): ("DROP PROCEDURE proveout_administration.dirty_pages",),
    ("table_beside_ours", "done"): ("CREATE TABLE proveout_administration.{name} (a int)",),
    ("rename_into_mysql", "done"): ("CREATE TABLE {name} (a int)", "RENAME TABLE {name} TO mysql.{name}"),
    ("set_role", "done"): ("SET ROLE root",),
    ("new_database", "done"): ("CREATE DATABASE {name}",),
    # other servers, and this one
    ("federated_server", "done"): ("CREATE SERVER {name} FOREIGN DATA WRAPPER mysql OPTIONS (HOST '127.0.0.1')",),
    ("replica", "done"): ("CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_SSL_KEY='{secret}'",),
    ("binlog_statement", "done"): ("BINLOG 'AAAA'",),
    ("shutdown", "done"): ("SHUTDOWN",),
    ("global_variable", "done"): ("SET GLOBAL max_connections = 5",),
})  # fmt: skip

SQLITE = _of("sqlite", {
    "attach": ("ATTACH '{outside}' AS other", "CREATE TABLE other.t (a)"),
    "attach_by_expression": ("ATTACH '{outside}' || '' AS other", "CREATE TABLE other.t (a)"),
    "attach_by_uri": ("ATTACH 'file:{outside}?mode=rwc' AS other", "CREATE TABLE other.t (a)"),
    "attach_in_several": ("SELECT 1; ATTACH '{outside}' AS other; CREATE TABLE other.t (a)",),
    "attach_to_read": ("ATTACH '{database}' AS other", "SELECT word FROM other.item"),
    "vacuum_into": ("VACUUM INTO '{outside}'",),
    # an error with the name of the library is the loader's
    "load_extension": ("SELECT load_extension('{folder}/{canary}')",),
    "load_extension_in_a_trigger": (
        "CREATE TRIGGER fire AFTER INSERT ON item BEGIN SELECT load_extension('{folder}/{canary}'); END", "INSERT INTO item VALUES (9, 'x')"),
    "load_extension_in_a_view": ("CREATE VIEW v AS SELECT load_extension('{folder}/{canary}')", "SELECT * FROM v"),
    "readfile": ("SELECT readfile('{secret}')",),
    "writefile": ("SELECT writefile('{outside}', 'x')",),
    "edit": ("SELECT edit('x', 'touch {outside}')",),
    "fts3_tokenizer": ("SELECT '{canary}' WHERE fts3_tokenizer('simple') IS NOT NULL",),
    "csv_table": ("CREATE VIRTUAL TABLE t USING csv(filename='{secret}')", "SELECT * FROM t"),
    "fsdir": ("SELECT * FROM fsdir('{folder}')",),
    "page_table": (
        "UPDATE sqlite_dbpage SET data = zeroblob(4096) WHERE pgno = 1",
        "SELECT '{canary}' FROM sqlite_dbpage WHERE pgno = 1 AND data = zeroblob(4096)"),
    "writable_schema": (
        "PRAGMA writable_schema = ON", "UPDATE sqlite_master SET sql = 'CREATE TABLE item (broken)' WHERE name = 'item'",
        "SELECT '{canary}' FROM sqlite_master WHERE sql LIKE '%broken%'"),
    "writable_schema_as_a_table": (
        "SELECT * FROM pragma_writable_schema(1)", "DELETE FROM sqlite_master",
        "SELECT '{canary}' WHERE NOT EXISTS (SELECT 1 FROM sqlite_master)"),
    "schema_version": ("PRAGMA schema_version = 77", "SELECT '{canary}' FROM pragma_schema_version WHERE schema_version = 77"),
    "trusted_schema": ("PRAGMA trusted_schema = ON", "SELECT '{canary}' FROM pragma_trusted_schema WHERE trusted_schema"),
    "temporary_files_elsewhere": (
        "PRAGMA temp_store_directory = '{folder}'",
        "SELECT '{canary}' FROM pragma_temp_store_directory WHERE temp_store_directory = '{folder}'"),
    "data_files_elsewhere": (
        "PRAGMA data_store_directory = '{folder}'",
        "SELECT '{canary}' FROM pragma_data_store_directory WHERE data_store_directory = '{folder}'"),
    "shadow_table": (
        "CREATE VIRTUAL TABLE f USING fts5(a)", "INSERT INTO f_config VALUES ('broken', 'x')",
        "SELECT '{canary}' FROM f_config WHERE k = 'broken'"),
})  # fmt: skip

DUCKDB = _of("duckdb", {
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
    "log to a file": ("CALL enable_logging(storage = 'file', storage_config = {'path': '{outside}'})", "SELECT 1"),
    "log of queries": ("SET log_query_path = '{outside}'", "SELECT 1"),
    "profile to a file": ("PRAGMA enable_profiling", "SET profiling_output = '{outside}'", "SELECT 1"),
    "profile to a file by a pragma": ("PRAGMA profile_output = '{outside}'", "EXPLAIN ANALYZE SELECT 1"),
    "secret kept on disk": ("CREATE PERSISTENT SECRET s (TYPE http, BEARER_TOKEN 'x')",),
    "folder of secrets": ("SET secret_directory = '{folder}/elsewhere'", "CREATE PERSISTENT SECRET s (TYPE http)"),
    "a variable of Python": ("SELECT * FROM canary",),
    "getenv": ("SELECT getenv('THE_WORD')",),
})  # fmt: skip
