"""The TPTBM workload (TimesTen's throughput benchmark) as data: table, statements, parameters, description. No numpy
here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from proveout.dsl.extensions import WorkloadExtension
from proveout.dsl.plan.model_values import Strict
from proveout.dsl.workloads import ddl
from proveout.dsl.workloads.base import Invariant, Sql, Statement, everywhere, numbers
from proveout.dsl.workloads.mix import mix, runs_any, writers

# A read, an update or a delete of a row that has been deleted finds nothing: a *logical failure*, counted apart. With
# `ops_per_transaction: n` a transaction is n statements of its own kind in one commit, and one that misses fails as a
# whole. (In the original, n statements drawn one by one share a commit and misses are nothing special.)
#
# Source: tptbm.c of the TimesTen quickstart samples (oracle-samples/oracle-timesten-samples), `select_stmnt` and the
# others.

WIDTH = 100
# vpn_id is of four bytes in the original: here inserted ids have room for every terminal's stripe
VPN_USERS = ddl.table(
    "vpn_users",
    f"vpn_id int8, vpn_nb int4, directory_nb char(10), last_calling_party char(10), descr char({WIDTH})",
    "vpn_id, vpn_nb",
)
DECLARED = {
    "Read": (
        Sql(
            "read", "SELECT directory_nb, last_calling_party, descr FROM vpn_users WHERE vpn_id = :id AND vpn_nb = :nb"
        ),
    ),
    "Update": (Sql("update", "UPDATE vpn_users SET last_calling_party = :caller WHERE vpn_id = :id AND vpn_nb = :nb"),),
    # A duplicate is not a logical failure: no two terminals have an id in common, so it would be a fault of ours
    "Insert": (
        Sql(
            "insert",
            "INSERT INTO vpn_users (vpn_id, vpn_nb, directory_nb, last_calling_party, descr)"
            " VALUES (:id, :nb, :directory, :caller, :descr)",
        ),
    ),
    "Delete": (Sql("delete", "DELETE FROM vpn_users WHERE vpn_id = :id AND vpn_nb = :nb"),),
}
TPTBM_TRANSACTIONS: tuple[str, ...] = tuple(DECLARED)
TPTBM_WEIGHTS: Mapping[str, float] = dict(zip(TPTBM_TRANSACTIONS, (80.0, 10.0, 5.0, 5.0), strict=True))


class Tptbm(Strict):
    """Parameters of `kind: tptbm` (TimesTen's throughput benchmark): one table of `key` × `key` rows."""

    key: int = Field(default=100, ge=2, le=100_000, description="VPN_USERS has key × key rows; 3163 makes 10 million.")
    seed: int = Field(default=1, ge=0, lt=2**63, description="Seed of the keys drawn.")
    ops_per_transaction: int = Field(
        default=1, ge=1, le=10_000, description="Statements in a transaction, all of its own kind."
    )
    weights: Annotated[dict[str, float], mix(TPTBM_TRANSACTIONS)] = Field(
        default_factory=lambda: dict(TPTBM_WEIGHTS),
        description="The mix: a weight per transaction; one that is left out does not run. By default 80-10-5-5.",
    )

    @property
    def rows(self) -> int:
        """Rows that are loaded."""
        return self.key * self.key


def counted(key: int) -> Mapping[str, Statement]:
    """The numbers that grow by one with each transaction of one statement: the rows that inserts have added, which are
    those beyond the loaded ids, which nothing deletes; and those that deletes have removed."""
    inserted = f"SELECT COUNT(*) FROM vpn_users WHERE vpn_id >= {key}"  # noqa: S608 - a whole number
    deleted = f"SELECT {key * key} - COUNT(*) FROM vpn_users WHERE vpn_id < {key}"  # noqa: S608
    return {"Insert": numbers("inserted", inserted, 1), "Delete": numbers("deleted", deleted, 1)}


_KEYS = "CAST(vpn_id AS VARCHAR(20)) || 'x' || CAST(vpn_nb AS VARCHAR(20))"
_CALLERS = (
    "SELECT COUNT(CASE WHEN RTRIM(last_calling_party) IN ('0000000000', SUBSTR({}, 1, 10)) THEN 1 END), COUNT(*) "
    "FROM vpn_users"
)
CALLERS = Invariant(
    name="callers",
    title="The last caller of a row is that of the load or of an update of this row",
    left="rows whose last caller is theirs",
    right="rows",
    statement=numbers(
        "callers",
        {
            **everywhere(_CALLERS.format(_KEYS)),
            "mysql": _CALLERS.format("CONCAT(CAST(vpn_id AS CHAR), 'x', CAST(vpn_nb AS CHAR))"),
        },
    ),
)
KIND = WorkloadExtension(
    parameters=Tptbm,
    transactions=lambda _: TPTBM_TRANSACTIONS,
    build="proveout.dsl.workloads.tptbm_workload:TptbmWorkload",
    writes=runs_any(writers(DECLARED)),
    rows=lambda model: model.rows,
    tables=lambda _: (VPN_USERS.name,),
    load_only=frozenset({"ops_per_transaction", "seed", "weights"}),
    invariants_after="stage",
    invariants_of_population=True,
)
