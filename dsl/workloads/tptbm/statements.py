"""The TPTBM statements, one text for all dialects: they are plain SQL-92.

Source: tptbm.c of the TimesTen quickstart samples (oracle-samples/oracle-timesten-samples), `select_stmnt` and the
others.
"""

from __future__ import annotations

from collections.abc import Mapping

from proveout.dsl.engines import DIALECTS, Dialect
from proveout.dsl.workloads.base import Statement


def everywhere(text: str) -> Mapping[Dialect, str]:
    """One text that every dialect takes."""
    return dict.fromkeys(DIALECTS, text)


READ = Statement(
    name="read",
    text=everywhere("SELECT directory_nb, last_calling_party, descr FROM vpn_users WHERE vpn_id = $1 AND vpn_nb = $2"),
    arguments=(int, int),
    columns=(str, str, str),
    rows_max=1,
)
UPDATE = Statement(
    name="update",
    text=everywhere("UPDATE vpn_users SET last_calling_party = $1 WHERE vpn_id = $2 AND vpn_nb = $3"),
    arguments=(str, int, int),
    reads=False,
)
# A duplicate is not a logical failure: no two terminals have an id in common, so it would be a fault of ours.
INSERT = Statement(
    name="insert",
    text=everywhere(
        "INSERT INTO vpn_users (vpn_id, vpn_nb, directory_nb, last_calling_party, descr) VALUES ($1, $2, $3, $4, $5)"
    ),
    arguments=(int, int, str, str, str),
    reads=False,
)
DELETE = Statement(
    name="delete",
    text=everywhere("DELETE FROM vpn_users WHERE vpn_id = $1 AND vpn_nb = $2"),
    arguments=(int, int),
    reads=False,
)


def inserted(key: int) -> Statement:
    """The rows that inserts have added: those beyond the loaded ids, which nothing deletes."""
    text = everywhere(f"SELECT COUNT(*) FROM vpn_users WHERE vpn_id >= {key}")  # noqa: S608 - a whole number
    return Statement(name="inserted", text=text, arguments=(), columns=(int,))


def deleted(key: int) -> Statement:
    """The loaded rows that are not there."""
    text = everywhere(f"SELECT {key * key} - COUNT(*) FROM vpn_users WHERE vpn_id < {key}")  # noqa: S608
    return Statement(name="deleted", text=text, arguments=(), columns=(int,))


_KEYS = "CAST(vpn_id AS VARCHAR(20)) || 'x' || CAST(vpn_nb AS VARCHAR(20))"
_CALLERS = (
    "SELECT SUM(CASE WHEN RTRIM(last_calling_party) IN ('0000000000', SUBSTR({}, 1, 10)) THEN 1 ELSE 0 END), COUNT(*) "
    "FROM vpn_users"
)
CALLERS = Statement(
    name="callers",
    text={
        **everywhere(_CALLERS.format(_KEYS)),
        "mysql": _CALLERS.format("CONCAT(CAST(vpn_id AS CHAR), 'x', CAST(vpn_nb AS CHAR))"),
    },
    arguments=(),
    columns=(int, int),
)
