"""The tables of the prepaid workload and what their codes mean.

They are those of the TimesTen Scaleout sample GridSample (oracle-samples/oracle-timesten-samples, cr_schema.sql), whose
CUSTOMERS, ACCOUNTS, ACCOUNT_TYPE, ACCOUNT_STATUS and TRANSACTIONS are the ones that the prepaid and banking studies
name.
Ours: money is whole cents; dates are whole numbers yyyymmdd; a history row is named by the session (one terminal in one
iteration) and its count there, where the sample takes a sequence and a time stamp; texts have one width.
"""

from __future__ import annotations

from collections.abc import Mapping

from proveout.dsl.workloads.ddl import TableShape

TYPES: Mapping[str, str] = {
    "I": "Individual",
    "F": "Family",
    "H": "Home",
    "B": "Business",
    "P": "Prepaid Individual",
    "Q": "Prepaid Family",
}
STATUSES: Mapping[int, str] = {10: "Active", 20: "Pending", 30: "Grace", 40: "Suspended", 50: "Disconnected"}
ACTIVE = 10
DESCRIPTION_WIDTH = 20

SHAPES: tuple[TableShape, ...] = (
    TableShape(
        name="account_type",
        columns=(("account_type", "char(1)"), ("description", f"char({DESCRIPTION_WIDTH})")),
        primary_key="account_type",
    ),
    TableShape(
        name="account_status",
        columns=(("status", "int2"), ("description", f"char({DESCRIPTION_WIDTH})")),
        primary_key="status",
    ),
    TableShape(
        name="customers",
        columns=(
            ("cust_id", "int8"),
            ("first_name", "char(8)"),
            ("last_name", "char(10)"),
            ("addr1", "char(15)"),
            ("zipcode", "char(5)"),
            ("member_since", "int4"),
        ),
        primary_key="cust_id",
    ),
    TableShape(
        name="accounts",
        columns=(
            ("account_id", "int8"),
            ("phone", "char(15)"),
            ("account_type", "char(1)"),
            ("status", "int2"),
            ("current_balance", "int8"),
            ("prev_balance", "int8"),
            ("date_created", "int4"),
            ("cust_id", "int8"),
        ),
        primary_key="account_id",
        foreign_keys=(("cust_id", "customers"), ("account_type", "account_type"), ("status", "account_status")),
    ),
    TableShape(
        name="transactions",
        columns=(
            ("account_id", "int8"),
            ("session_id", "int8"),
            ("transaction_nb", "int4"),
            ("optype", "char(1)"),
            ("amount", "int8"),
        ),
        primary_key="account_id, session_id, transaction_nb",
        foreign_keys=(("account_id", "accounts"),),
    ),
)
