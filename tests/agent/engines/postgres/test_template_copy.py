"""Copies of a running database by template: by a role with a password and CREATEDB only; the original is the same
afterwards, also after a kill at each statement; and everything that keeps a database from being copied is named."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
import thorough
from embedded_servers import ask, value
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from proveout.agent.engines import handlers
from proveout.agent.engines.postgres import copies
from proveout.agent.engines.postgres.copies import TemplateCopy
from proveout.agent.errors import TaskFault
from proveout.proto.wire.tasks import Endpoint

pytestmark = pytest.mark.server
CHANGES = ("CREATE", "ALTER", "DROP", "COMMENT", "GRANT", "REVOKE")


class Killed(BaseException):
    """In place of a kill: nothing of the code under test catches it."""


@pytest.fixture
def own(postgres_server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The conninfo of a database with rows, privileges and settings, by its owner: a role with CREATEDB only."""
    monkeypatch.setattr(copies, "POLL_S", 0.01)
    name = f"own_{secrets.token_hex(4)}"
    ask(
        postgres_server,
        f"CREATE ROLE {name} LOGIN PASSWORD 'x' CREATEDB",
        f"CREATE ROLE {name}_reader",
        f"CREATE DATABASE {name} OWNER {name} TEMPLATE template0 ENCODING 'UTF8' CONNECTION LIMIT 7",
        f"REVOKE ALL ON DATABASE {name} FROM public",
        f"GRANT CONNECT ON DATABASE {name} TO {name}_reader WITH GRANT OPTION",
        f"ALTER DATABASE {name} SET search_path = \"$user\", public, 'a b'",
        f"ALTER DATABASE {name} SET work_mem = '3MB'",
        f"ALTER DATABASE {name} SET statement_timeout = '1min'",
        f"ALTER ROLE {name} IN DATABASE {name} SET random_page_cost = 1.25",
        f"COMMENT ON DATABASE {name} IS 'ours'",
    )
    conninfo = make_conninfo(postgres_server, dbname=name, user=name, password="x")
    rows = "INSERT INTO public.account SELECT n, 0 FROM generate_series(1, 100) AS n"
    ask(conninfo, "CREATE TABLE public.account (id int PRIMARY KEY, cents int)", rows)
    yield conninfo
    left = ask(postgres_server, f"SELECT datname FROM pg_database WHERE datname ~ '^{name}'")
    ask(postgres_server, *(f"DROP DATABASE {one} WITH (FORCE)" for (one,) in left))
    ask(postgres_server, f"DROP ROLE {name}, {name}_reader")


def copy_of(conninfo: str, run: str = "r1") -> TemplateCopy:
    return TemplateCopy(Endpoint(system="db", engine="postgres", dsn=conninfo), run)


def described(server: str, conninfo: str) -> list[Any]:
    """All that the catalogues say of a database, but its identity."""
    query = """SELECT pg_get_userbyid(datdba), pg_encoding_to_char(encoding), datcollate, datctype, dattablespace,
                      datconnlimit, datallowconn,
                      (SELECT array_agg(acl::text ORDER BY acl::text) FROM unnest(datacl) AS acl),
                      (SELECT array_agg(setrole::regrole::text || ' ' || setconfig::text ORDER BY setrole::regrole::text)
                       FROM pg_db_role_setting WHERE setdatabase = pg_database.oid)
               FROM pg_database WHERE datname = """
    return ask(server, f"{query} '{named(conninfo)}'")


def databases(server: str, own: str) -> dict[str, tuple[int, str | None]]:
    """The databases that begin with a name -> their ids and comments."""
    query = "SELECT datname, oid, shobj_description(oid, 'pg_database') FROM pg_database"
    found = ask(server, f"{query} WHERE starts_with(datname, '{named(own)}')")
    return {name: (oid, text) for name, oid, text in found}


def named(conninfo: str) -> str:
    return str(conninfo_to_dict(conninfo)["dbname"])


def cents(conninfo: str) -> int:
    return int(value(conninfo, "SELECT sum(cents) FROM public.account"))


def test_a_run_works_on_a_copy_and_the_original_is_put_back(own: str, postgres_server: str) -> None:
    before, rows = databases(postgres_server, own), described(postgres_server, own)
    copy = copy_of(own)
    assert copy.state().objections == ()
    assert f"database {named(own)} (" in copy.state().text
    copy.save()
    assert copy.state().made
    assert not copy_of(own, "r2").state().made
    assert described(postgres_server, own) == rows
    assert ask(own, "SHOW search_path") == [('"$user", public, "a b"',)]
    for _ in range(2):
        ask(own, "UPDATE public.account SET cents = 1")
        ask(own, "CREATE TABLE public.made (n int)")
        copy.restore()
        assert cents(own) == 0
        assert ask(own, "SELECT to_regclass('public.made')") == [(None,)]
        assert described(postgres_server, own) == rows
    ask(own, "UPDATE public.account SET cents = 1")
    copy.release()
    copy.release()
    assert cents(own) == 0
    assert databases(postgres_server, own) == before
    assert described(postgres_server, own) == rows


class Kills:
    """Ends the code under test before its n-th changing statement."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.left = -1
        execute = psycopg.Connection.execute

        def counted(db: Any, query: Any, *rest: Any, **more: Any) -> Any:
            text = query if isinstance(query, str) else query.as_string(db)
            if not text.startswith(CHANGES):
                return execute(db, query, *rest, **more)
            if self.left == 0:
                raise Killed
            self.left -= 1
            return execute(db, query, *rest, **more)

        patch.setattr(psycopg.Connection, "execute", counted)

    def at(self, step: int, work: Any) -> bool:
        """Whether `work` was ended at this step; False when it has fewer."""
        self.left = step
        try:
            work()
        except Killed:
            return True
        finally:
            self.left = -1
        return False


@pytest.mark.thorough
@pytest.mark.parametrize("what", ["save", "restore", "release"])
def test_a_kill_at_any_statement_loses_nothing(
    own: str, postgres_server: str, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """At every second one by default; `make soak` tries each."""
    before, rows = databases(postgres_server, own), described(postgres_server, own)
    kills, step = Kills(monkeypatch), 0
    while True:
        copy = copy_of(own)
        if what != "save" and not copy.state().made:
            copy.save()
        if what != "save":
            ask(own, "UPDATE public.account SET cents = 1")
        killed = kills.at(step, getattr(copy, what))
        if killed and what == "restore" and step % 4:  # another attempt makes it whole
            copy.restore()
            assert cents(own) == 0
        else:
            copy_of(own).release()
            assert databases(postgres_server, own) == before
            assert described(postgres_server, own) == rows
            assert cents(own) == 0
        if not killed:
            break
        step += thorough.count(1, 2)
    assert step >= {"save": 10, "restore": 8, "release": 4}[what]


def test_what_keeps_a_database_from_being_copied_is_named_at_once(own: str, postgres_server: str) -> None:
    name = named(own)
    admin, own = make_conninfo(postgres_server, dbname=name), make_conninfo(own, user=f"{name}-app")
    ask(
        postgres_server,
        f'ALTER ROLE {name} RENAME TO "{name}-app"',
        f'ALTER ROLE "{name}-app" NOCREATEDB',
        f"ALTER DATABASE {name} OWNER TO CURRENT_USER",
        f'GRANT CONNECT ON DATABASE {name} TO "{name}-app"',
        f"ALTER DATABASE {name} SET log_min_duration_statement = 5",
    )
    with psycopg.connect(admin, autocommit=True) as db, psycopg.connect(own, application_name="proveout waits"):
        db.execute("SELECT pg_create_logical_replication_slot('held', 'pgoutput')")
        db.execute("CREATE SUBSCRIPTION from_elsewhere CONNECTION 'host=x' PUBLICATION p WITH (connect = false)")
        try:
            found = "\n".join(copy_of(own).state().objections)
        finally:
            db.execute("SELECT pg_drop_replication_slot('held')")
            db.execute("ALTER SUBSCRIPTION from_elsewhere SET (slot_name = NONE)")
            db.execute("DROP SUBSCRIPTION from_elsewhere")
            db.execute(f'ALTER ROLE "{name}-app" RENAME TO {name}')
        assert f'user "{name}-app" may not create databases (ALTER ROLE "{name}-app" CREATEDB)' in found
        assert f'user "{name}-app" does not own database {name}' in found
        assert f"database {name} is in use by 1 session: pid {db.info.backend_pid} (user " in found
        assert "logical replication slot held" in found
        assert "the subscription from_elsewhere" in found
        assert "setting log_min_duration_statement" in found


def test_databases_of_others_are_left_alone(own: str, postgres_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "IN_USE_S", 0.3)
    name, first, second = named(own), copy_of(own, "r1"), copy_of(own, "r2")
    first.save()
    (left,) = second.state().objections
    assert left.startswith(f"there is a database {name}_proveout: another run works on a copy, or has left it")
    assert f'DROP DATABASE "{name}"; ALTER DATABASE "{name}_proveout" ALLOW_CONNECTIONS true' in left
    with pytest.raises(TaskFault, match="is not the copy that run r2 has made, so it is left"):
        second.release()
    with pytest.raises(TaskFault, match="this run has no copy"):
        second.restore()
    with psycopg.connect(own, application_name="psql"):
        for work in (first.restore, first.release):
            with pytest.raises(TaskFault, match=rf"database {name} is in use by 1 session: pid .*'psql'"):
                work()
    with psycopg.connect(own, application_name="proveout") as db:
        first.release()  # ends the sessions of the run's own loads
        with pytest.raises(psycopg.OperationalError):
            db.execute("SELECT 1")
    assert list(databases(postgres_server, own)) == [name]


def test_a_long_name_and_a_dsn_without_a_name_are_refused(own: str) -> None:
    (found,) = copy_of(make_conninfo(own, dbname="d" * 60)).state().objections
    assert "names have at most 63 bytes" in found
    with pytest.raises(TaskFault, match="names no database"):
        copy_of("host=x user=y").state()
    with pytest.raises(TaskFault, match=r"cannot do that with systems of engine .timesten. \(`data_copy`\)"):
        handlers.save(Endpoint(system="db", engine="timesten", dsn="x"), "r1")
