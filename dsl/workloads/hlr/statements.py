"""The HLR statements (TATP), one text for all dialects: they are plain SQL-92. Names are unique, so they can name
prepared statements."""

from __future__ import annotations

from collections.abc import Mapping

from proveout.dsl.engines import DIALECTS, Dialect
from proveout.dsl.workloads.base import Statement
from proveout.dsl.workloads.hlr.tables import columns

# SQLSTATE 23505 unique_violation, 23503 foreign_key_violation, and what SQLite, Oracle and MySQL call them; MySQL's
# 1216
# is 1452 for a user who may not see the referenced table
_MISFITS = frozenset(
    {
        "23505", "23503", "SQLITE_CONSTRAINT_PRIMARYKEY", "SQLITE_CONSTRAINT_UNIQUE", "SQLITE_CONSTRAINT_FOREIGNKEY",
        "ORA-00001", "ORA-02291", "1062", "1452", "1216",
        "DUCKDB_PRIMARY_KEY", "DUCKDB_UNIQUE", "DUCKDB_FOREIGN_KEY",
    }
)  # fmt: skip


def _all(text: str) -> Mapping[Dialect, str]:
    return dict.fromkeys(DIALECTS, text)


_SUBSCRIBER_COLUMNS = columns(1)["subscriber"]
_SUBSCRIBER_NAMES = ", ".join(name for name, _ in _SUBSCRIBER_COLUMNS)

GET_SUBSCRIBER = Statement(
    name="get_subscriber",
    text=_all(f"SELECT {_SUBSCRIBER_NAMES} FROM subscriber WHERE s_id = $1"),  # noqa: S608 (our own column names)
    arguments=(int,),
    columns=tuple(int if kind.startswith("int") else str for _, kind in _SUBSCRIBER_COLUMNS),
    rows_max=1,
)
GET_ACCESS = Statement(
    name="get_access",
    text=_all("SELECT data1, data2, data3, data4 FROM access_info WHERE s_id = $1 AND ai_type = $2"),
    arguments=(int, int),
    columns=(int, int, str, str),
    rows_max=1,
)
GET_DESTINATION = Statement(
    name="get_destination",
    text=_all(
        "SELECT cf.numberx FROM special_facility sf, call_forwarding cf"
        " WHERE sf.s_id = $1 AND sf.sf_type = $2 AND sf.is_active = 1"
        " AND cf.s_id = sf.s_id AND cf.sf_type = sf.sf_type AND cf.start_time <= $3 AND $4 < cf.end_time"
    ),
    arguments=(int, int, int, int),
    columns=(str,),
    rows_max=3,
)
SET_BIT = Statement(
    name="set_bit",
    text=_all("UPDATE subscriber SET bit_1 = $1 WHERE s_id = $2"),
    arguments=(int, int),
    reads=False,
    rows_only=True,
)
SET_DATA_A = Statement(
    name="set_data_a",
    text=_all("UPDATE special_facility SET data_a = $1 WHERE s_id = $2 AND sf_type = $3"),
    arguments=(int, int, int),
    reads=False,
    rows_only=True,
)
FIND_NUMBER = Statement(
    name="find_number",
    text=_all("SELECT s_id FROM subscriber WHERE sub_nbr = $1"),
    arguments=(str,),
    columns=(int,),
    rows_max=1,
)
SET_LOCATION = Statement(
    name="set_location",
    text=_all("UPDATE subscriber SET vlr_location = $1 WHERE s_id = $2"),
    arguments=(int, int),
    reads=False,
    rows_only=True,
)
GET_FACILITIES = Statement(
    name="get_facilities",
    text=_all("SELECT sf_type FROM special_facility WHERE s_id = $1"),
    arguments=(int,),
    columns=(int,),
    rows_max=5,
)
INSERT_FORWARDING = Statement(
    name="insert_forwarding",
    text=_all("INSERT INTO call_forwarding (s_id, sf_type, start_time, end_time, numberx) VALUES ($1, $2, $3, $4, $5)"),
    arguments=(int, int, int, int, str),
    reads=False,
    rows_only=True,
    logical_errors=_MISFITS,
)
DELETE_FORWARDING = Statement(
    name="delete_forwarding",
    text=_all("DELETE FROM call_forwarding WHERE s_id = $1 AND sf_type = $2 AND start_time = $3"),
    arguments=(int, int, int),
    reads=False,
    rows_only=True,
)
