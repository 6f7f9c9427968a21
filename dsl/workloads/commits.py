"""Commits that a load tracks, and groups of requests that a transaction sends at once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from functools import partial
from itertools import repeat
from operator import add
from typing import Any

from proveout.core.data_classes import dataclass
from proveout.dsl.engines import Dialect
from proveout.dsl.plan.plan import Workload
from proveout.dsl.workloads.base import (
    Body,
    Last,
    Outcome,
    Request,
    Result,
    Row,
    Source,
    Statement,
    Step,
    TransactionType,
    arguments,
    everywhere,
)

# The requests of a group are executed in their order, in one transaction, and the first that fails ends the group: the
# data are those of single requests. A body of groups may return `Last` requests, with which COMMIT travels.

PIPELINE = Statement(name="proveout_pipeline", text={}, arguments=(), reads=False)

PARAMETER = "pipeline"
"""The parameter of a workload kind that asks for it."""
TEXT = "independent statements of a transaction travel together, COMMIT with the last ones"
"""The effect, for people: response times have fewer round trips than one for each statement."""


def asked_for(workload: Workload) -> bool:
    """Whether a compiled workload sends its groups as pipelines."""
    return dict(workload.parameters).get(PARAMETER) is True


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one request of a group, which stays valid after the next request."""

    count: int
    found: list[Row]

    def rows(self) -> list[Row]:
        return self.found


def together(*requests: Request) -> Generator[Request, Any, list[Result]]:
    """Send these requests, at least one, as a group; returns their results, in their order."""
    results: list[Result] = yield PIPELINE, requests
    return results


def one_by_one(body: Callable[[Any], Body]) -> Callable[[Any], Body]:
    """The same transaction without groups: each request by itself, in the same order."""

    def alone(inputs: Any) -> Body:
        step: Callable[[Any], Request] = body(inputs).send
        answer: Any = None
        while True:
            try:
                request = step(answer)
            except StopIteration as stop:
                outcome = stop.value
                break
            if request[0] is PIPELINE:
                answer = []
                for each in request[1]:
                    result = yield each
                    answer.append(Answer(result.count, result.rows() if each[0].reads else []))
            else:
                answer = yield request
        if not isinstance(outcome, Last):
            return Outcome(outcome)
        for each in outcome.requests:
            yield each
        return outcome.outcome

    return alone


# A terminal runs one transaction at a time, so its row has one writer and no waits; the statement changes no indexed
# column, which PostgreSQL does in place in the page (HOT), with the free space that the fill factor leaves there.

TABLE = "proveout_commits"
_ROW = "load_id = $1 AND terminal = $2"
_LOCKED = f"SELECT commits FROM {TABLE} WHERE {_ROW} FOR UPDATE"  # noqa: S608 - constants
_IDS = (int, int)


def _changing(name: str, text: str) -> Statement:
    return Statement(name=f"proveout_{name}", text=everywhere(text), arguments=_IDS, reads=False)


COUNT_COMMIT = _changing("count_commit", f"UPDATE {TABLE} SET commits = commits + 1 WHERE {_ROW}")  # noqa: S608
READ_COMMITS = Statement(
    name="proveout_read_commits",
    # The lock waits for a COMMIT that still runs on the server for a connection that is gone. In SQLite BEGIN IMMEDIATE
    # does that.
    text={**everywhere(_LOCKED), "sqlite": _LOCKED.removesuffix(" FOR UPDATE")},
    arguments=_IDS,
    columns=(int,),
    rows_max=1,
    writes=True,
)
ADD_TERMINAL = _changing("add_terminal", f"INSERT INTO {TABLE} (load_id, terminal, commits) VALUES ($1, $2, 0)")  # noqa: S608
REMOVE_TERMINAL = _changing("remove_terminal", f"DELETE FROM {TABLE} WHERE {_ROW}")  # noqa: S608 - constants


def load_id(run: str, label: str) -> int:
    """The number of a load in the table: another one for each load of each iteration and attempt; 0 <= id < 2^63."""
    return int.from_bytes(hashlib.sha256(f"{run}/{label}".encode()).digest()[:8], "big") >> 1


def writes(kind: TransactionType) -> bool:
    """Whether a transaction may change rows."""
    return any(statement.changes for statement in kind.statements)


def tracked(kind: TransactionType, row: tuple[int, int]) -> TransactionType:
    """The transaction with the statement that counts its commit in the terminal's `row`, (load id, terminal); one that
    only reads as it is.

    A single statement becomes a transaction with BEGIN and COMMIT around two.
    """
    if not writes(kind):
        return kind
    step = Step(COUNT_COMMIT, most=1)
    steps, inputs = kind.steps, kind.inputs
    if kind.bare:  # its inputs are its request
        one = Step(kind.statements[0], least=kind.least, most=kind.most)
        steps, inputs = (one,), lambda keys: arguments(kind.inputs(keys))
    if steps:
        inputs = partial(_with_row, inputs, (row,))
        request = kind.statements[0] if kind.bare else None
        body: Callable[[Any], Body] = partial(_walked, kind.body, row, request)
    else:
        body = partial(_counted, kind.body, row)
    return replace(
        kind,
        body=body,
        statements=(*kind.statements, COUNT_COMMIT),
        inputs=inputs,
        single=False,
        bare=False,
        steps=(*steps, step) if steps else (),
    )


def _with_row(source: Callable[[Any], Source], row: tuple[Any, ...], keys: Any) -> Source:
    """The drawn values of each step, and after them the row; without a call of Python code."""
    return map(add, iter(source(keys), None), repeat(row)).__next__


def _walked(body: Callable[[Any], Body], row: tuple[int, int], single: Statement | None, inputs: Any) -> Body:
    """The body of a transaction with steps, or of one with a `single` statement, whose inputs are its request."""
    own = inputs[:-1]
    return _counted(body, row, own if single is None else (single, own[0]))


def _counted(body: Callable[[Any], Body], row: tuple[int, int], inputs: Any) -> Body:
    outcome = yield from body(inputs)
    if isinstance(outcome, Last):
        if outcome.outcome is not Outcome.COMMIT:
            return outcome
        *_, counted = yield from together(*outcome.requests, (COUNT_COMMIT, row))
    elif outcome is not Outcome.COMMIT:
        return outcome
    else:
        counted = yield COUNT_COMMIT, row
    return Outcome.COMMIT if counted.count == 1 else Outcome.LOGICAL_FAILURE


# ---- the table -----------------------------------------------------------------------------------------------------

_COLUMNS = "load_id {big} NOT NULL, terminal {big} NOT NULL, commits {big} NOT NULL, PRIMARY KEY (load_id, terminal)"
_CREATE: Mapping[Dialect, str] = {
    "postgres": "DO $$ BEGIN SET LOCAL synchronous_commit = on; "
    f"CREATE TABLE IF NOT EXISTS {TABLE} ({_COLUMNS.format(big='bigint')}) WITH (fillfactor = 10); END $$",
    "mysql": f"CREATE TABLE IF NOT EXISTS {TABLE} ({_COLUMNS.format(big='bigint')}) ENGINE = InnoDB",
    "sqlite": f"CREATE TABLE IF NOT EXISTS {TABLE} ({_COLUMNS.format(big='INTEGER')}) WITHOUT ROWID",
    "oracle": "BEGIN EXECUTE IMMEDIATE 'CREATE TABLE "
    f"{TABLE} ({_COLUMNS.format(big='NUMBER(19)')}) PCTFREE 90 INITRANS 16'; "
    "EXCEPTION WHEN OTHERS THEN IF SQLCODE <> -955 THEN RAISE; END IF; END;",
}
"""Room in the pages: for new versions of rows in PostgreSQL, for entries of transactions in Oracle. A crash that loses
late commits must not lose the table (`synchronous_commit`)."""
_DROP: Mapping[Dialect, str] = {
    **dict.fromkeys(("postgres", "mysql", "sqlite"), f"DROP TABLE IF EXISTS {TABLE}"),
    "oracle": f"BEGIN EXECUTE IMMEDIATE 'DROP TABLE {TABLE} PURGE'; "
    "EXCEPTION WHEN OTHERS THEN IF SQLCODE <> -942 THEN RAISE; END IF; END;",
}
_EXISTS: Mapping[Dialect, str] = {
    "postgres": f"SELECT to_regclass('{TABLE}') IS NOT NULL",
    "mysql": "SELECT COUNT(*) FROM information_schema.tables"  # noqa: S608 - constants
    f" WHERE table_schema = DATABASE() AND table_name = '{TABLE}'",
    "sqlite": f"SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = '{TABLE}'",  # noqa: S608 - constants
    "oracle": f"SELECT COUNT(*) FROM user_tables WHERE table_name = '{TABLE.upper()}'",  # noqa: S608 - constants
}


def table_operation(system: str, dialect: Dialect) -> dict[str, Any]:
    """The settings of the tuning operation `sql` that makes the table in a system, and removes it."""
    there = "true" if dialect == "postgres" else "1"
    return {
        "system": system,
        "verify": {"query": _EXISTS[dialect], "equals": [there]},
        "apply": [_CREATE[dialect]],
        "revert": [_DROP[dialect]],
    }
