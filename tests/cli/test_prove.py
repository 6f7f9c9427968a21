"""`proveout prove` on real servers (Oracle is the TNS server of tests/wire): its table, its exit codes, and the file, which
is replayed; every file of tests/replay without its server.

With PROVEOUT_UPDATE_GOLDEN=1 the files of tests/replay are recorded again.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import oracledb
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from replayed import NOT_RECORDED, UnknownStatement, from_text, replay

from proveout.agent.engine_proof import Prover, Result, prove
from proveout.agent.engines.recording import Conversation
from proveout.cli import execute
from proveout.proto.wire.tasks import Endpoint

FILES = Path(__file__).parents[1] / "replay"
server = pytest.mark.server
Table = dict[str, tuple[str, str]]
ROW = re.compile(r"(\S.*?)\s{2,}(works|differs|refused|left out)(?:\s{2,}(.*))?")


def table(text: str) -> Table:
    """Question -> (answer, words), of the table that is printed."""
    rows = map(ROW.fullmatch, text.partition("\nquestion ")[2].splitlines())
    return {row[1]: (row[2], row[3] or "") for row in rows if row}


def proven(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Table, str]:
    """Exit code, table and output of a command."""
    code = execute(["prove", *words])
    text = capsys.readouterr().out
    return code, table(text), text


@pytest.fixture(params=["postgres", "mysql", "oracle", "sqlite"])
def target(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """An engine and the dsn of a database of it."""
    name = {"postgres": "database", "mysql": "mysql_database", "oracle": "oracle", "sqlite": "sqlite_file"}[
        request.param
    ]
    yield request.param, str(request.getfixturevalue(name))


@server
def test_the_file_of_a_server_replays_with_the_same_answers(
    target: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine, dsn = target
    file = tmp_path / "recorded.json"
    more = ("--licence", "diagnostics_pack") if engine == "oracle" else ()
    _, answers, text = proven(
        capsys, engine, dsn, "--write", "--workload", "hlr", "--to", str(file), "--yes", *more
    )  # fmt: skip
    wrong = {name for name, (answer, _) in answers.items() if answer not in ("works", "left out")}
    # what the servers of the tests do not have
    lacking = {"postgres": {"statements"}, "mysql": {"statements"}, "sqlite": set()}
    if engine == "oracle":
        assert {"waits", "tables and indexes", "sizes"} <= wrong
        assert not {name for name in wrong if name.startswith("hlr")}, text
    else:
        assert wrong <= lacking[engine], text
    assert answers["hlr: GetBasicSubscriberData"][0] == "works"
    recorded = file.read_text()
    for secret in ("hlr/hlr", "127.0.0.1", str(conninfo_to_dict(dsn).get("password")) if engine == "postgres" else dsn):
        assert secret not in recorded
    assert_replays(file)
    if os.environ.get("PROVEOUT_UPDATE_GOLDEN"):
        FILES.mkdir(exist_ok=True)
        shutil.copy(file, FILES / f"{engine}.json")


def assert_replays(file: Path) -> None:
    """Every question that the file answers has the same answer without the server."""
    conversation = from_text(file.read_text())
    answers = dict(conversation.results)
    again = {one.name: one.answer for one in replay(conversation) if one.words != NOT_RECORDED}
    assert again == {name: answers[name] for name in again}
    assert "works" in again.values()


@pytest.mark.parametrize("file", sorted(FILES.glob("*.json")), ids=lambda file: file.stem)
def test_recorded_conversations(file: Path) -> None:
    assert_replays(file)


def test_a_statement_that_was_not_recorded_is_refused() -> None:
    conversation = from_text((FILES / "oracle.json").read_text())
    conversation.exchanges = [one for one in conversation.exchanges if "v$parameter" not in one.statement]
    with pytest.raises(UnknownStatement, match="v\\$parameter"):
        replay(conversation)


@server
def test_missing_privileges_are_reported_in_the_servers_words(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS prove_reader")
        connection.execute("CREATE ROLE prove_reader LOGIN PASSWORD 'se-cret-7'")
    dsn = make_conninfo(database, user="prove_reader", password="se-cret-7")
    try:
        file = tmp_path / "file.json"
        code, answers, text = proven(
            capsys, "postgres", dsn, "--write", "--workload", "hlr", "--to", str(file), "--yes"
        )
        assert (code, answers["hlr: tables"][0], answers["query"][0]) == (1, "refused", "works")
        assert "permission denied for schema public" in answers["hlr: tables"][1]
        assert answers["hlr: all else"] == ("left out", "not without its tables")
        assert_replays(file)
        assert "se-cret-7" not in file.read_text()
        assert "prove_reader" not in file.read_text()
        assert "  checkpoint: GRANT pg_checkpoint to that user" in text
    finally:
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("DROP OWNED BY prove_reader")
            connection.execute("DROP ROLE prove_reader")


@server
@pytest.mark.parametrize(("fixture", "wrong", "closed", "words"), [
    ("oracle", ("hlr/hlr", "hlr/se-cret-7"), "hlr/hlr@//127.0.0.1:1/HLR", ("ORA-01017: invalid", "ORA-12541: no lis")),
    ("database", (r"password=\S+", "password=se-cret-7"), "host=127.0.0.1 port=1 user=u dbname=d",
     ("08001: connection to server .*password authentication failed", "08001: .*Connection refused")),
    ("mysql_database", (r"(//\w+):[^@]*@", r"\1:se-cret-7@"), "mysql://u:p@127.0.0.1:1/test",
     ("1045: Access denied for user", "2003: .*Connection refused")),
])  # fmt: skip
def test_a_wrong_password_and_a_closed_port_end_it(
    fixture: str, wrong: tuple[str, str], closed: str, words: tuple[str, str],
    request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    engine = {"database": "postgres", "mysql_database": "mysql"}.get(fixture, fixture)
    for dsn, said in zip((re.sub(*wrong, request.getfixturevalue(fixture)), closed), words, strict=True):
        code, answers, text = proven(capsys, engine, dsn)
        assert (code, list(answers), answers["connection"][0]) == (4, ["connection"], "refused")
        assert re.match(said, answers["connection"][1])
        assert "connection: is the server up" in text
        assert "recorded conversation" not in text
        assert "se-cret-7" not in text


def test_a_server_that_is_too_old_names_the_way_to_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(**_: Any) -> None:
        raise oracledb.NotSupportedError("DPY-3010: connections to this database server version are not supported")

    monkeypatch.setattr(oracledb, "connect", refused)
    code, answers, _ = proven(capsys, "oracle", "hlr/hlr@//db1/HLR")
    assert code == 4
    assert "PROVEOUT_ORACLE_CLIENT" in answers["connection"][1]


@server
def test_an_interruption_leaves_no_tables(database: str) -> None:
    def interrupt(result: Result) -> None:
        if result.name == "hlr: rows":
            raise KeyboardInterrupt

    end = Endpoint(system="target", engine="postgres", dsn=database)
    prover = Prover(end, Conversation(engine="postgres"), writes=True, workloads=("hlr",))
    with pytest.raises(KeyboardInterrupt):
        prove(prover, ends=interrupt)
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone() == (0,)


@server
def test_without_yes_and_a_terminal_the_file_is_shown_and_not_written(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    _, answers, text = proven(capsys, "postgres", database)
    assert answers["hlr"] == ("left out", "it writes: --write")
    assert answers["lag"][0] == "left out"
    assert '"statement": "SELECT 1 AS one"' in text
    assert "not written" in text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nothing", "x"), "'nothing' is none of"),
        (("oracle", "host=db1"), "not of the form user/password@connect-string"),
        (("oracle", "hlr/${NOT_SET_HERE}@db1"), "the environment has no NOT_SET_HERE"),
        (("postgres", "host=db1", "--workload", "tpcx"), "'tpcx' is none of"),
    ],
)
def test_a_wrong_command_line(words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["prove", *words]) == 2
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())
