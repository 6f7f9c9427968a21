"""The behaviour that the contract `Driver` requires, for every driver on a real server of its engine (the table of
drivers is in conftest.py); then PostgreSQL's beyond the contract: types, groups of statements, certificates.

Tests of a capability that an engine does not have are skipped, with the reason.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from eventually import PATIENCE_S, eventually
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from proveout.agent.engines.driver_contract import FailureKind, Pipelines, PreparesTogether, StatementFailure
from proveout.agent.engines.postgres.driver import PostgresDriver
from proveout.agent.engines.sessions import execute
from proveout.agent.errors import TaskFault
from proveout.agent.load import ceiling
from proveout.agent.load.loop.transaction import COMMIT, ROLLBACK
from proveout.agent.load.populate import populate
from proveout.agent.load.run_load import run_load
from proveout.coordinator.certificates import Authority
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.plan.stages import Windows
from proveout.dsl.workloads.base import Statement
from proveout.dsl.workloads.conformance import Seen, conform
from proveout.dsl.workloads.hlr import Hlr
from proveout.proto.wire.tasks import Endpoint, LoadShare, PopulateSystem, RunLoad

Subject = Any  # conftest's
on_postgres = pytest.mark.parametrize("subject", ["postgres-libpq", "postgres-compiled", "postgres-tls"], indirect=True)


# ---- values ---------------------------------------------------------------------------------------------------------


def test_values_in_and_out(filled: Subject) -> None:
    """Integers of all widths, text beyond ASCII, NULL; arguments twice, out of order and of two digits, and `$` in a
    literal."""
    session = filled.open()
    find = filled.statement(
        "SELECT id, small, big, word, fixed FROM item WHERE id >= $1 AND word <> $2 ORDER BY id",
        int,
        str,
        columns=(int, int, int, str, str),
    )
    filled.execute(session, find, 4, "none")
    assert session.count == 2
    assert session.rows() == [(4, -4, 40_000_000_000, "word 4", "abc"), (5, -5, 50_000_000_000, "word 5", "abc")]
    twice = "SELECT id FROM item WHERE small = $2 AND id = $1 AND id >= $1 AND small <= $2"
    assert filled.execute(session, filled.statement(twice, int, int, columns=(int,)), 3, -3).rows() == [(3,)]
    twelve = f"SELECT id FROM item WHERE id IN ({', '.join(f'${number}' for number in range(1, 13))})"
    twelfth = filled.statement(twelve, *[int] * 12, columns=(int,))
    assert filled.execute(session, twelfth, *[99] * 11, 2).rows() == [(2,)]
    dollar = filled.statement("SELECT id FROM item WHERE id = $1 AND word <> 'costs $2'", int, columns=(int,))
    assert filled.execute(session, dollar, 1).rows() == [(1,)]
    insert = filled.statement("INSERT INTO item (id, big, word) VALUES ($1, $2, $3)", int, int, str, reads=False)
    assert filled.execute(session, insert, 77, 2**62, "naïve ☃").count == 1
    nulls = filled.statement("SELECT small, big, word FROM item WHERE id = $1", int, columns=(int, int, str))
    assert filled.execute(session, nulls, 77).rows() == [(None, 2**62, "naïve ☃")]


@pytest.mark.parametrize("subject", ["mysql", "mysql-compiled"], indirect=True)
@pytest.mark.parametrize(
    "values",
    [
        (41,),
        (None, "né☃", -5),
        *(tuple(range(count)) for count in (7, 8, 15, 16)),
        (*range(8), None),
        *(("x" * size, 2**63 - 1) for size in (0, 250, 251, 65_535, 65_536)),
    ],
    ids=lambda values: f"{len(values)} of {len(str(values))}",
)
def test_arguments_of_mysql_come_back(subject: Subject, values: tuple[Any, ...]) -> None:
    """The last first, and the first a second time. The second message of a statement is made by another path."""
    order = [*reversed(range(len(values))), 0]
    text = "SELECT " + ", ".join(f"${place + 1}" for place in order)
    kinds = (str if isinstance(value, str) else int for value in values)
    session = subject.open()
    prepared = session.prepare(subject.statement(text, *kinds))
    for _ in range(2):
        assert subject.execute(session, prepared, *values).rows() == [tuple(values[place] for place in order)]


@pytest.mark.parametrize("subject", ["mysql", "mysql-compiled"], indirect=True)
def test_a_statement_of_mysql_longer_than_a_packet_is_refused_and_the_session_goes_on(subject: Subject) -> None:
    """As with a value from a row that had just fitted into one itself."""
    session = subject.open()
    prepared = session.prepare(subject.statement("SELECT length($1)", str))
    with pytest.raises(StatementFailure, match="more than 16 MB") as raised:
        subject.execute(session, prepared, "x" * (1 << 24))
    assert (raised.value.code, raised.value.kind) == ("1153", FailureKind.ERROR)
    assert subject.execute(session, prepared, "xyz").rows() == [(3,)]


@on_postgres
def test_a_command_of_postgres_without_a_count_counts_its_rows(filled: Subject) -> None:
    session = filled.open()
    for text in ("EXPLAIN SELECT 1", "SHOW server_version"):
        assert filled.execute(session, filled.statement(text, reads=False)).count == 1


@pytest.mark.parametrize("subject", ["sqlite", "duckdb", "mysql", "mysql-compiled", "postgres-libpq"], indirect=True)
@pytest.mark.parametrize("text", ["EXPLAIN SELECT word FROM item WHERE id = $1", "/* its plan */ explain SELECT $1"])
def test_a_statement_that_explains_another_is_executed(filled: Subject, text: str) -> None:
    assert filled.execute(filled.open(), filled.statement(text, int, reads=False), 1).count > 0


@pytest.mark.parametrize("subject", ["duckdb"], indirect=True)
def test_rows_that_begin_with_a_number_are_not_taken_for_a_count(filled: Subject) -> None:
    text = "CALL pragma_table_info('item')"  # the first column is the number of each
    assert filled.execute(filled.open(), filled.statement(text, reads=False)).count > 1


@on_postgres
@pytest.mark.parametrize(
    ("types", "values"),
    [
        *((["int8"] * count, tuple(range(-1, count - 1))) for count in range(1, 7)),
        *((["text"], (text,)) for text in ("", "one", "x" * 70_000, "☃", None)),
        (["text", "int2"], ("né", -5)),
        (["text", "int2"], (None, 7)),
        (["int2", "text"], (7, None)),
        (["int2", "int2", "int4", "int4"], (-(2**15), 2**15 - 1, -(2**31), 2**31 - 1)),
        (["oid", "oid::int8", "int8", "int8"], (2**32 - 1, 0, -(2**63), 2**63 - 1)),
    ],
    ids=str,
)
def test_arguments_of_postgres_come_back(subject: Subject, types: list[str], values: tuple[Any, ...]) -> None:
    """The second message of a statement is made by another path."""
    text = "SELECT " + ", ".join(f"${place}::{kind}" for place, kind in enumerate(types, 1))
    session = subject.open()
    prepared = session.prepare(subject.statement(text, *(str if kind == "text" else int for kind in types)))
    for _ in range(2):
        assert subject.execute(session, prepared, *values).rows() == [values]


def test_prepared_statements_and_their_counts(filled: Subject) -> None:
    """Executed in turn and repeatedly; an UPDATE that sets the present value counts the row that it found, and what
    changes no rows counts none."""
    session = filled.open()
    one = session.prepare(filled.statement("SELECT word FROM item WHERE id = $1", int, columns=(str,)))
    many = session.prepare(filled.statement("SELECT id FROM item WHERE id > $1 ORDER BY id", int, columns=(int,)))
    change = session.prepare(filled.statement("UPDATE item SET small = $1 WHERE id > $2", int, int, reads=False))
    for _ in range(3):
        for key, rows in ((1, [("word 1",)]), (99, []), (2, [("word 2",)])):
            filled.execute(session, one, key)
            assert (session.count, session.rows()) == (len(rows), rows)
        filled.execute(session, many, 3)
        assert (session.count, session.rows()) == (2, [(4,), (5,)])
        for threshold, count in ((0, 5), (3, 2), (9, 0), (3, 2)):
            assert filled.execute(session, change, 7, threshold).count == count
    for control in (filled.statement(filled.begin, reads=False), COMMIT):
        assert filled.execute(session, control).count == 0


def test_an_answer_longer_than_one_read_of_the_socket(filled: Subject) -> None:
    """75 kB; sessions read 8 kB at most."""
    session = filled.open()
    product = ", ".join(f"item {letter}" for letter in "abcde")
    wide = filled.statement(f"SELECT a.word, b.id FROM {product} ORDER BY a.id, b.id", columns=(str, int))
    rows = filled.execute(session, wide).rows()
    assert session.count == 5**5
    assert rows == [(f"word {a}", b) for a in range(1, 6) for b in range(1, 6) for _ in range(5**3)]


def test_begin_commit_and_rollback_of_the_load(filled: Subject) -> None:
    """BEGIN, COMMIT and ROLLBACK of the load: rolled back rows are gone, committed rows stay; a statement alone is
    committed, also after a transaction."""
    one, other = filled.open(), filled.open()
    insert = filled.statement("INSERT INTO item (id) VALUES ($1)", int, reads=False)
    find = filled.statement("SELECT id FROM item WHERE id > $1 ORDER BY id", int, columns=(int,))
    for number, end in ((10, ROLLBACK), (11, COMMIT)):
        filled.execute(one, filled.statement(filled.begin, reads=False))
        filled.execute(one, insert, number)
        filled.execute(one, end)
        filled.execute(one, insert, number + 10)
    assert filled.execute(other, find, 5).rows() == [(11,), (20,), (21,)]


# ---- failures -------------------------------------------------------------------------------------------------------


def test_a_failure_is_logical_where_the_statement_expects_it(filled: Subject) -> None:
    """Both kinds leave the session usable."""
    session = filled.open()
    codes = frozenset({filled.duplicate, filled.foreign})
    insert = filled.statement("INSERT INTO part VALUES ($1, $2)", int, int, reads=False, logical_errors=codes)
    prepared = session.prepare(insert)
    filled.execute(session, prepared, 1, 1)
    for arguments, code in (((1, 2), filled.duplicate), ((2, 99), filled.foreign), ((1, 3), filled.duplicate)):
        with pytest.raises(StatementFailure) as raised:
            filled.execute(session, prepared, *arguments)
        assert (raised.value.code, raised.value.kind) == (code, FailureKind.LOGICAL)
    with pytest.raises(StatementFailure) as raised:
        other = replace(filled.statement("INSERT INTO item (id) VALUES ($1)", int, reads=False), name="other")
        filled.execute(session, other, 1)
    assert (raised.value.code, raised.value.kind) == (filled.duplicate, FailureKind.ERROR)
    assert raised.value.what
    assert "\n" not in raised.value.what
    filled.execute(session, prepared, 3, 3)
    assert session.count == 1


def test_a_statement_that_the_server_refuses(filled: Subject) -> None:
    session = filled.open()
    with pytest.raises(StatementFailure, match=r"(?i)tried.*nowhere") as raised:
        session.prepare(filled.statement("SELECT x FROM nowhere", columns=(int,)))
    assert raised.value.kind is FailureKind.ERROR
    assert filled.execute(session, filled.statement("SELECT id FROM item WHERE id = 1", columns=(int,))).count == 1


def test_statements_that_are_prepared_together(filled: Subject) -> None:
    session = filled.open()
    if not isinstance(session, PreparesTogether):
        pytest.skip("the engine prepares one statement at a time")
    texts = ("SELECT word FROM item WHERE id = $1", "SELECT * FROM nowhere WHERE id = $1", "SELECT small FROM item")
    word, nowhere, _ = (
        replace(filled.statement(text, int, columns=(str,)), name=f"s{at}") for at, text in enumerate(texts)
    )
    good, refused, *_ = session.prepare_all([word, nowhere, word])
    assert isinstance(refused, StatementFailure)
    assert refused.what.startswith("statement s1: ")
    execute(session, filled.driver, good, (4,))
    assert session.rows() == [("word 4",)]
    first, second = session.prepare_all([word, word])
    for prepared, id in ((second, 5), (first, 4), (session.prepare(word), 5)):
        execute(session, filled.driver, prepared, (id,))
        assert session.rows() == [(f"word {id}",)]


def test_conflicting_transactions_fail_as_retryable(filled: Subject) -> None:
    """One of two deadlocked transactions, or the one that waits for a lock, fails as retryable; a retry succeeds."""
    one, two = filled.open(), filled.open()
    change = filled.statement("UPDATE item SET small = 0 WHERE id = $1", int, reads=False)
    begin = filled.statement(filled.begin, reads=False)
    filled.execute(one, begin)
    filled.execute(one, change, 1)
    failures: list[StatementFailure] = []

    def attempt(session: Any, *steps: tuple[Any, ...]) -> None:
        try:
            for step in steps:
                filled.execute(session, *step)
        except StatementFailure as failure:
            failures.append(failure)
            if filled.conflict == "deadlock":
                filled.execute(session, ROLLBACK)  # the locks of the loser

    if filled.conflict == "lock":
        attempt(two, (begin,), (change, 1))
    else:
        filled.execute(two, begin)
        filled.execute(two, change, 2)
        thread = threading.Thread(target=attempt, args=(two, (change, 1)))
        thread.start()
        attempt(one, (change, 2))
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert [failure.kind for failure in failures] == [FailureKind.RETRYABLE]
    for session in (one, two):
        try_to_end(filled, session)
    filled.execute(two, begin)
    assert filled.execute(two, change, 1).count == 1
    filled.execute(two, COMMIT)


def try_to_end(subject: Subject, session: Any) -> None:
    """Run ROLLBACK; some engines raise an error outside a transaction."""
    try:
        subject.execute(session, ROLLBACK)
    except StatementFailure as failure:
        assert failure.kind is FailureKind.ERROR


def test_cancelling_from_another_thread(filled: Subject) -> None:
    """A cancel that comes before the statement has no effect, so it is sent until the statement has ended."""
    if filled.cancel_ignored:
        pytest.skip(filled.cancel_ignored)
    session = filled.open()
    prepared = session.prepare(filled.statement(filled.endless, columns=(int,)))
    failures: list[StatementFailure] = []

    def wait() -> None:
        try:
            filled.execute(session, prepared)
        except StatementFailure as failure:
            failures.append(failure)

    thread = threading.Thread(target=wait)
    thread.start()

    def cancelled() -> bool:
        session.cancel()
        thread.join(0.5)
        return not thread.is_alive()

    eventually(cancelled, "the end of the statement")
    assert [failure.kind for failure in failures] == [FailureKind.ERROR]
    assert filled.execute(session, filled.statement("SELECT id FROM item WHERE id = 1", columns=(int,))).count == 1


# ---- losing the server ----------------------------------------------------------------------------------------------


def test_connecting_to_an_unreachable_server_is_a_lost_connection(subject: Subject) -> None:
    with pytest.raises(StatementFailure) as raised:
        subject.driver.connect(subject.unreachable_dsn)
    assert raised.value.kind is FailureKind.LOST
    assert raised.value.what


def test_a_session_that_the_server_ends(filled: Subject) -> None:
    """The loss is noticed while the session is idle, or with the next statement at the latest."""
    if filled.end_session is None:
        pytest.skip(f"{filled.engine} has no server that could end a session")
    session = filled.open()
    find = session.prepare(filled.statement("SELECT id FROM item WHERE id = $1", int, columns=(int,)))
    filled.execute(session, find, 1)
    filled.end_session(session)
    with pytest.raises(StatementFailure) as raised:
        if filled.driver.waits == "polled":
            filled.finish(session)
        else:
            filled.execute(session, find, 1)
    assert raised.value.kind is FailureKind.LOST
    session.close()
    session.close()
    assert filled.execute(filled.open(), filled.statement("SELECT id FROM item", columns=(int,))).count == 5


def test_a_server_that_restarts(filled: Subject) -> None:
    """The session is lost, connecting fails during the restart, and a new session reads the committed rows."""
    if filled.restart is None:
        pytest.skip(f"{filled.engine} has no server that could restart")
    session = filled.open()
    change = session.prepare(filled.statement("UPDATE item SET small = $1 WHERE id = $2", int, int, reads=False))
    filled.execute(session, change, 42, 1)

    def meanwhile() -> None:
        with pytest.raises(StatementFailure) as raised:
            filled.execute(session, change, 43, 1)
        assert raised.value.kind is FailureKind.LOST
        with pytest.raises(StatementFailure) as raised:
            filled.open()
        assert raised.value.kind is FailureKind.LOST

    filled.restart(meanwhile)
    session.close()
    find = filled.statement("SELECT small FROM item WHERE id = 1", columns=(int,))
    assert filled.execute(filled.open(), find).rows() == [(42,)]


# ---- a whole workload, by one driver of each engine -----------------------------------------------------------------


@pytest.mark.parametrize("subject", ["postgres-libpq", "sqlite", "duckdb", "mysql", "oracle-wire"], indirect=True)
async def test_hlr_can_be_populated_twice_and_matches_its_specification(subject: Subject, task_context: Any) -> None:
    """The second population replaces the first; mix and logical failures of a load match the specification."""
    hlr = Workload(name="hlr", kind="hlr", parameters=to_values(Hlr(population=300)))
    endpoint = Endpoint(system="backend", engine=subject.engine, dsn=subject.dsn)
    for _ in range(2):
        loaded = await populate(task_context, PopulateSystem(workload=hlr, endpoint=endpoint, workers=1))
        assert {table.table: table.rows for table in loaded.tables}["subscriber"] == 300
        for table in loaded.tables:
            assert subject.administer(f"SELECT count(*) FROM {table.table}") == [(table.rows,)]
    share = LoadShare(first=0, count=4, total=4, rate=None)
    for measure_s in (0.8, 2.0, 8.0, 30.0):  # on a busy machine the short ones can be too short
        windows = Windows(ramp_up_s=0.1, measure_s=measure_s, ramp_down_s=0.2)
        spec = RunLoad(workload=hlr, endpoint=endpoint, share=share, windows=windows, workers=1, seed=1, label="c")
        task_context.arms, task_context.t0_ns = True, time.monotonic_ns() + 50_000_000
        result = await run_load(task_context, spec)
        counts = [one.counts for one in result.transactions]
        if all(one.ok for one in counts):
            break
    assert all(one.ok and not one.error_count for one in counts), result
    seen = [Seen(name=one.name, ok=one.ok, logical_failures=one.logical_failures, others=0) for one in counts]
    assert [finding for finding in conform(hlr, seen) if not finding.ok] == []


# ---- PostgreSQL ------------------------------------------------------------------------------------------------------


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
    most = tuple(range(400))  # as many as a transaction and its workload may have binds
    places = ", ".join(f"${number + 1}::int" for number in most)
    assert rows_of(subject, f"SELECT {places}", *most, arguments=(int,) * 400) == [most]
    with pytest.raises(StatementFailure, match="invalid byte sequence") as raised:
        rows_of(subject, "SELECT $1::text", "a\0b", arguments=(str,))
    assert (raised.value.code, raised.value.kind) == ("22021", FailureKind.ERROR)


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


@pytest.mark.parametrize("subject", ["postgres-libpq"], indirect=True)
@pytest.mark.parametrize("text", ["COPY item TO STDOUT", "COPY item FROM STDIN"])
def test_copy_with_the_client_is_an_error_and_the_session_goes_on(filled: Subject, text: str) -> None:
    session = filled.open()
    copied = session.prepare(filled.statement(text))
    for _ in range(2):
        with pytest.raises(StatementFailure, match=r"^statement .* rows of COPY: use SELECT or INSERT") as raised:
            filled.execute(session, copied)
        assert (raised.value.code, raised.value.kind) == ("0A000", FailureKind.ERROR)
        assert filled.execute(session, filled.statement("SELECT id FROM item WHERE id < 3")).rows() == [(1,), (2,)]


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
    for size in (10, 900_000):
        words = [letter * size for letter in "abcdefgh"]
        session.send(pipeline, [(say, (word,)) for word in words])
        subject.finish(session)
        assert [result.rows() for result in session.results()] == [[(word,)] for word in words]


@on_postgres
def test_a_statement_and_a_description_longer_than_the_buffers_of_a_socket(subject: Subject) -> None:
    session = subject.open()
    length = session.prepare(subject.statement("SELECT length($1::text)", str, columns=(int,)))
    for size in (1, 8_000_000, 20_000):
        assert subject.execute(session, length, "y" * size).rows() == [(size,)]
    columns = ", ".join(f'{n} AS "{"c" * 50}{n}"' for n in range(600))
    wide = subject.statement(f"SELECT {columns}", columns=(int,) * 600)
    assert subject.execute(session, wide).rows() == [tuple(range(600))]


@on_postgres
def test_a_server_that_ends_a_session_during_its_statement_says_why(subject: Subject) -> None:
    session = subject.open()
    end = session.prepare(subject.statement("SELECT pg_terminate_backend(pg_backend_pid())::int", columns=(int,)))
    with pytest.raises(StatementFailure) as raised:
        subject.execute(session, end)
    assert (raised.value.code, raised.value.kind) == ("57P01", FailureKind.LOST)
    with pytest.raises(StatementFailure) as raised:
        subject.execute(session, end)
    assert raised.value.kind is FailureKind.LOST


def test_the_error_for_a_missing_database_quotes_no_password(database: str) -> None:
    with pytest.raises(StatementFailure) as raised:
        PostgresDriver().connect(f"{database} dbname=absent")
    assert "absent" in raised.value.what
    assert str(conninfo_to_dict(database)["password"]) not in raised.value.what
    for wrong in ("this is not a conninfo", "connect_timeout=2s"):
        with pytest.raises(StatementFailure) as raised:
            PostgresDriver().connect(wrong)
        assert raised.value.kind is FailureKind.LOST
    PostgresDriver().connect(f"{database} connect_timeout=-1").close()  # the default


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"sslmode": "verify-full", "sslrootcert": "other.pem"}, "certificate verify failed|signature failure"),
        ({"sslmode": "verify-full", "host": "db.lab", "hostaddr": "127.0.0.1"}, "does not match host name"),
        ({"sslmode": "disable"}, "no encryption"),
    ],
    ids=["of another authority", "another host", "no TLS"],
)
@pytest.mark.server
def test_a_session_with_a_wrong_certificate_is_refused(
    tls_server: str, tmp_path: Path, how: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("other.pem").write_bytes(Authority.create().pem)
    with pytest.raises(StatementFailure, match=message):
        PostgresDriver().connect(make_conninfo(tls_server, **how))


@pytest.mark.skipif(os.geteuid() != 0, reason="only a root agent's load runs as somebody else")
@pytest.mark.server
async def test_a_file_that_the_loads_user_cannot_read_is_explained(tls_server: str, tmp_path: Path) -> None:
    mine = tmp_path / "ca.pem"
    mine.write_bytes(Path(str(conninfo_to_dict(tls_server)["sslrootcert"])).read_bytes())
    tmp_path.chmod(0o700)
    endpoint = Endpoint(system="tls", engine="postgres", dsn=make_conninfo(tls_server, sslrootcert=str(mine)))
    with pytest.raises(TaskFault, match=r"ca\.pem") as caught:
        await ceiling.measure(endpoint, [2], seconds=1.0, workers=1, on_step=lambda _: None)
    assert "load runs as user id" in caught.value.way_out
