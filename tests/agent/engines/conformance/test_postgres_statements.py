"""PostgreSQL's driver beyond the contract: types, and groups of statements; by libpq and by the wire."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from proveout.agent.engines.driver_contract import FailureKind, Pipelines, StatementFailure
from proveout.agent.engines.postgres.driver import PostgresDriver
from proveout.dsl.workloads.base import Statement

Subject = Any  # conftest's
on_postgres = pytest.mark.parametrize("subject", ["postgres-libpq", "postgres-compiled"], indirect=True)


def rows_of(subject: Subject, text: str, *values: Any, arguments: tuple[Any, ...] = (), **more: Any) -> list[Any]:
    rows = subject.execute(subject.open(), subject.statement(text, *arguments, **more), *values).rows()
    assert isinstance(rows, list)
    return rows


@on_postgres
def test_types_of_rows_and_arguments(subject: Subject) -> None:
    """Types without a binary decoder come as text; where a statement declares no `columns`, by the server's
    RowDescription; arguments are values of another statement, None included, and text for columns of other types."""
    text = "SELECT $1::numeric + 1, $2::date"
    declared = rows_of(subject, text, 41, "2024-02-29", arguments=(int, str), columns=(int, str))
    assert declared == [(42, "2024-02-29")]
    mixed = "SELECT 7, 1.5::float8, 12.50::numeric, 'word', NULL::int, true, DATE '2024-02-29'"
    assert rows_of(subject, mixed) == [(7, 1.5, "12.50", "word", None, "t", "2024-02-29")]
    whole = "SELECT 7::int2, 8::int8, 'word'::varchar, NULL::text"
    assert rows_of(subject, whole) == [(7, 8, "word", None)]
    any_of = "SELECT $1::int, $2::numeric, $3::text, $4::timestamp, $5::float8"
    kinds = (object, object, str, str, float)
    given = (None, "12.50", "word", "2024-02-29 01:02:03", 0.25)
    assert rows_of(subject, any_of, *given, arguments=kinds) == [given]
    assert rows_of(subject, any_of, 5, None, "x", None, 1.0, arguments=kinds) == [(5, None, "x", None, 1.0)]
    for value, row in ((None, (None,)), ("17", (17,)), (18, (18,))):
        assert rows_of(subject, "SELECT $1::int", value, arguments=(object,)) == [row]


@pytest.mark.parametrize("subject", ["postgres-libpq"], indirect=True)
def test_impossible_argument_types_are_refused_by_prepare(filled: Subject) -> None:
    session = filled.open()
    filled.administer("ALTER TABLE item ALTER small TYPE smallint")
    for text, kind, bounds, code, words in (
        ("SELECT 1 FROM item WHERE id = $1", int, ((1, 2**31),), "22003", "1 to 2147483648"),
        ("SELECT 1 FROM item WHERE small = $1", int, ((-32_769, 0),), "22003", "smallint"),
        ("SELECT 1 FROM item WHERE id = $1", float, (), "22P02", "fractions"),
        ("SELECT 1 FROM item WHERE id = $2 AND big = $1", int, (), "08P01", "finds 2"),
    ):
        with pytest.raises(StatementFailure) as refused:
            session.prepare(filled.statement(text, kind, ranges=bounds))
        assert (refused.value.code, refused.value.kind) == (code, FailureKind.ERROR)
        assert words in refused.value.what
    for column, bound in (("small", 2**15 - 1), ("id", 2**31 - 1), ("big", 2**63 - 1)):
        of = filled.statement(f"SELECT 1 FROM item WHERE {column} = $1", int, ranges=((-bound - 1, bound),))
        assert filled.execute(session, of, bound).count == 0


@on_postgres
def test_a_group_has_the_answers_of_single_statements_and_its_error_commits_nothing(filled: Subject) -> None:
    session = filled.open()
    assert isinstance(session, Pipelines)

    def named(name: str, text: str, *arguments: Any, columns: tuple[Any, ...] = ()) -> Statement:
        return Statement(name=name, text={"postgres": text}, arguments=arguments, reads=bool(columns), columns=columns)

    find = named("find", "SELECT id, word FROM item WHERE id >= $1 ORDER BY id", int, columns=(int, str))
    rename = named("rename", "UPDATE item SET word = $1 WHERE id = $2", str, int)
    halve = named("halve", "SELECT 1 / $1::int", int, columns=(int,))
    begin, commit, roll_back = named("begin", "BEGIN"), named("commit", "COMMIT"), named("rollback", "ROLLBACK")
    prepared = {one.name: session.prepare(one) for one in (find, rename, halve, begin, commit, roll_back)}
    pipeline = session.pipeline(prepared)

    def group(*requests: tuple[Statement, tuple[Any, ...]]) -> list[tuple[int, list[Any]]]:
        session.send(pipeline, requests)
        filled.finish(session)
        return [(result.count, result.rows()) for result in session.results()]

    def one(statement: Statement, *arguments: Any) -> tuple[int, list[Any]]:
        filled.execute(session, prepared[statement.name], *arguments)
        return session.count, session.rows() if statement.reads else []

    requests = (
        (begin, ()),
        (find, (4,)),
        (rename, ("other", 5)),
        (find, (99,)),
        (rename, ("none", 99)),
        (find, (5,)),
        (roll_back, ()),
    )
    together = group(*requests)
    assert together == [one(statement, *arguments) for statement, arguments in requests]
    assert together[1:6] == [(2, [(4, "word 4"), (5, "word 5")]), (1, []), (0, []), (0, []), (1, [(5, "other")])]
    for _ in range(2):
        with pytest.raises(StatementFailure, match=r"by zero.*statement halve, 3 of 5 sent together") as raised:
            group((begin, ()), (rename, ("lost", 1)), (halve, (0,)), (rename, ("lost", 2)), (commit, ()))
        assert (raised.value.code, raised.value.kind) == ("22012", FailureKind.ERROR)
        with pytest.raises(StatementFailure, match="aborted"):
            group((find, (4,)))
        one(roll_back)
        assert one(find, 1)[1][:2] == [(1, "word 1"), (2, "word 2")]


@on_postgres
def test_a_group_that_fills_the_buffers_both_ways(subject: Subject) -> None:
    """While the client waits for room it reads: the server answers each statement before it reads the next one."""
    session = subject.open()
    say = subject.statement("SELECT $1::text", str, columns=(str,))
    pipeline = session.pipeline({say.name: session.prepare(say)})
    words = [letter * 900_000 for letter in "abcdefgh"]
    session.send(pipeline, [(say, (word,)) for word in words])
    subject.finish(session)
    assert [result.rows() for result in session.results()] == [[(word,)] for word in words]


@on_postgres
def test_a_statement_longer_than_the_buffers_of_a_socket(subject: Subject) -> None:
    length = subject.statement("SELECT length($1::text)", str, columns=(int,))
    assert subject.execute(subject.open(), length, "y" * 8_000_000).rows() == [(8_000_000,)]


def test_the_error_for_a_missing_database_quotes_no_password(database: str) -> None:
    with pytest.raises(StatementFailure) as raised:
        PostgresDriver().connect(f"{database} dbname=absent")
    assert "absent" in raised.value.what
    assert str(conninfo_to_dict(database)["password"]) not in raised.value.what
    with pytest.raises(StatementFailure) as raised:
        PostgresDriver().connect("this is not a conninfo")
    assert raised.value.kind is FailureKind.LOST
