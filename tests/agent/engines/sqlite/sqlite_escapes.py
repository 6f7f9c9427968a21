"""SQL with which a plan reaches files of the host through SQLite. Data: each case is tried on a real file.

`statements` may contain `{outside}`, a path without a file, and `{secret}`, a database file of another user that
contains the word CANARY. An escape has succeeded when the file `{outside}` exists afterwards, when a row contains
CANARY, or when `after` returns `broken`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class SqliteEscape:
    """One attempt: its name, the statements in order, and a query whose answer `broken` shows success."""

    name: str
    statements: tuple[str, ...]
    after: str = ""
    broken: object = None


ESCAPES = (
    SqliteEscape(name="attach", statements=("ATTACH '{outside}' AS other", "CREATE TABLE other.t (a)")),
    SqliteEscape(name="attach by expression", statements=("ATTACH '{outside}' || '' AS other", "CREATE TABLE other.t (a)")),
    SqliteEscape(name="attach by URI", statements=("ATTACH 'file:{outside}?mode=rwc' AS other", "CREATE TABLE other.t (a)")),
    SqliteEscape(name="attach, several at once", statements=("SELECT 1; ATTACH '{outside}' AS other; CREATE TABLE other.t (a)",)),
    SqliteEscape(name="attach to read", statements=("ATTACH '{secret}' AS other", "SELECT word FROM other.item")),
    SqliteEscape(name="vacuum into", statements=("VACUUM INTO '{outside}'",)),
    SqliteEscape(name="load_extension", statements=("SELECT load_extension('{outside}')",), after="SELECT 0"),
    SqliteEscape(name="load_extension in a trigger", statements=(
        "CREATE TRIGGER fire AFTER INSERT ON item BEGIN SELECT load_extension('{outside}'); END",
        "INSERT INTO item VALUES (9, 'x')",
    ), after="SELECT count(*) FROM item WHERE id = 9", broken=1),
    SqliteEscape(name="load_extension in a view", statements=("CREATE VIEW v AS SELECT load_extension('{outside}')", "SELECT * FROM v")),
    SqliteEscape(name="readfile", statements=("SELECT readfile('{secret}')",)),
    SqliteEscape(name="writefile", statements=("SELECT writefile('{outside}', 'x')",)),
    SqliteEscape(name="edit", statements=("SELECT edit('x', 'touch {outside}')",)),
    SqliteEscape(name="fts3_tokenizer", statements=("SELECT fts3_tokenizer('simple')",), after="SELECT 0"),
    SqliteEscape(name="csv table", statements=("CREATE VIRTUAL TABLE t USING csv(filename='{secret}')", "SELECT * FROM t")),
    SqliteEscape(name="fsdir", statements=("SELECT * FROM fsdir('/')",)),
    SqliteEscape(name="page table", statements=("UPDATE sqlite_dbpage SET data = zeroblob(4096) WHERE pgno = 1",), after="SELECT count(*) FROM item", broken="error"),
    SqliteEscape(name="writable_schema", statements=("PRAGMA writable_schema = ON", "UPDATE sqlite_master SET sql = 'CREATE TABLE item (broken)' WHERE name = 'item'"),
                 after="SELECT count(*) FROM sqlite_master WHERE sql LIKE '%broken%'", broken=1),
    SqliteEscape(name="writable_schema as a table", statements=("SELECT * FROM pragma_writable_schema(1)", "DELETE FROM sqlite_master"), after="SELECT count(*) FROM sqlite_master", broken=0),
    SqliteEscape(name="schema_version", statements=("PRAGMA schema_version = 77",), after="SELECT schema_version = 77 FROM pragma_schema_version", broken=1),
    SqliteEscape(name="trusted_schema", statements=("PRAGMA trusted_schema = ON",), after="SELECT * FROM pragma_trusted_schema", broken=1),
    SqliteEscape(name="temporary files elsewhere", statements=("PRAGMA temp_store_directory = '{folder}'",), after="SELECT * FROM pragma_temp_store_directory", broken="{folder}"),
    SqliteEscape(name="data files elsewhere", statements=("PRAGMA data_store_directory = '{folder}'",), after="SELECT * FROM pragma_data_store_directory", broken="{folder}"),
    SqliteEscape(name="shadow table", statements=("CREATE VIRTUAL TABLE f USING fts5(a)", "INSERT INTO f_config VALUES ('broken', 'x')"), after="SELECT count(*) FROM f_config WHERE k = 'broken'", broken=1),
)  # fmt: skip
