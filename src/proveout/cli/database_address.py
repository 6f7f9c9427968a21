"""The address of a database as it is typed after `proveout bench`, and a first session on it.

Data flow: text -> `parse` -> `Address` -> `log_in`, which asks for a password where the server requires one ->
`Database`, a session of the engine's adapter for questions, and the dsn of a plan, which names a secret.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

from proveout.agent.engines.statement_errors import rules_of
from proveout.agent.engines.table import adapter
from proveout.agent.errors import TaskFault
from proveout.cli.options import Unusable, not_utf_8
from proveout.cli.plan_writer import Target
from proveout.core.data_classes import field, record
from proveout.dsl import engines
from proveout.dsl.plan.topology import System
from proveout.proto.wire.tasks import Endpoint

if TYPE_CHECKING:
    from proveout.agent.engines.adapter import QuerySession

FORMS = (
    "postgresql://user@host:5432/database",
    "mysql://user@host:3306/database",
    "the path of an SQLite or DuckDB file",
    "oracle://user@host:1521/service",
    "user@host/dsn:timesten_client",
    "or postgres, postgres:16, mysql, sqlite, duckdb for a system that proveout starts and removes",
)
"""The forms of an address."""

_EMBEDDED = {"": "postgres", "postgres": "postgres", "postgresql": "postgres", "mariadb": "mysql"} | {
    name: name for name in engines.EMBEDDED
}
_FILES = {"sqlite": b"SQLite format 3\0", "duckdb": b"DUCK"}
_MAGIC_AT = {"sqlite": 0, "duckdb": 8}
_CONNECT_STRING = re.compile(r"(?P<user>[^/@:\s]+)(?:[/:](?P<password>.*))?@(?P<target>[^@\s]+)")
_PASSWORD_WANTED = re.compile(
    r"no password supplied|using password: NO|password is required|DPY-4001|ORA-01005|ORA-01017", re.IGNORECASE
)
ASKED = "the server requires a password"
VARIABLES = ("DB_PASSWORD", "DB2_PASSWORD")
NAMES = ("db", "other")
SCHEMAS = ("proveout_bench", "proveout_bench_2")
"""Of the first database and that of --compare: the variable of the password, the name in the plan, the schema."""


@record
class Address:
    """A database. `make(password, schema)` is its dsn, `password` as it was typed; both are None and "" of an
    embedded system, perhaps of a major `version`. `name`: the database, file or user, for names of files."""

    engine: str
    name: str
    make: Callable[[str | None, str], str] | None = None
    password: str | None = None
    version: int | None = None

    @property
    def is_embedded(self) -> bool:
        """Whether proveout starts it, and removes it."""
        return self.make is None

    def dsn(self, password: str | None = None, schema: str = "") -> str:
        """The dsn with this password. Not of an embedded system."""
        assert self.make is not None  # noqa: S101 - the caller has asked `is_embedded`
        return self.make(password, schema)


def parse(text: str) -> Address:
    """The address. Unusable for a form that is not known, a missing file, or a client that is not installed."""
    scheme = text.partition("://")[0].lower() if "://" in text else ""
    word, colon, version = text.lower().partition(":")
    is_file = os.path.isfile(text)  # noqa: PTH113 - it never raises
    if word in _EMBEDDED and (not colon or version.isdecimal()) and not is_file:
        engine = _EMBEDDED[word]
        return Address(engine=engine, name=engine, version=int(version) if version else None)
    if scheme in engines.of("postgres").schemes or re.match(r"(?:host|dbname|service|user)\w*\s*=", text):
        return _postgres(text)
    if scheme in engines.of("mysql").schemes:
        return _mysql(text)
    if scheme in _FILES:
        return _file(Path(unquote(text.partition("://")[2].removeprefix("/"))), scheme)
    if scheme in ("oracle", "timesten") or (not (scheme or is_file) and _CONNECT_STRING.fullmatch(text)):
        return _connect_string(text.removeprefix(f"{scheme}://"), scheme)
    if scheme:
        raise Unusable(f"there is no engine {scheme!r}", way_out=_forms())
    if Path(text).suffix or "/" in text or is_file:
        if re.fullmatch(r"(?://)?[\w.-]+:\d+/\S+", text):
            raise Unusable(f"{text} names no user", way_out=f"An Oracle Database: oracle://USER@{text.lstrip('/')}")
        return _file(Path(text), "")
    raise Unusable(f"{text!r} is not the address of a database", way_out=_forms())


def _forms() -> str:
    return f"Give one of: {'; '.join(FORMS)}."


def _user() -> str:
    """The user of this process. Unusable where it has no account, as in containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        raise Unusable("the address names no user, and that of this process has no name", way_out=_forms()) from None


def _postgres(text: str) -> Address:
    _need("postgres")
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    try:
        parts = {name: str(value) for name, value in conninfo_to_dict(text).items() if value is not None}
    except ProgrammingError:  # its message quotes the text, and with it a password
        raise Unusable("the address is not one of PostgreSQL", way_out=_forms()) from None
    password = parts.pop("password", None) or None
    parts["user"] = parts.get("user") or _user()
    parts.setdefault("dbname", parts["user"])

    def make(password: str | None, schema: str) -> str:
        own = f"{parts.get('options', '')} -csearch_path={schema}".strip() if schema else parts.get("options")
        return make_conninfo("", **{**parts, "password": password, "options": own})

    return Address(engine="postgres", name=parts["dbname"], make=make, password=password)


def _mysql(text: str) -> Address:
    _need("mysql")
    try:
        parts = urlsplit(text)
    except ValueError:  # a bracket of IPv6 that is not closed
        raise Unusable("the address is not one of MySQL", way_out=_forms()) from None
    database = parts.path.strip("/")
    user = parts.username or quote(_user())
    if not database:
        raise Unusable(
            "the address names no database",
            way_out=f"Name one, which may be empty (CREATE DATABASE bench): {parts.scheme}://{user}@HOST/bench",
        )
    place, query = parts.netloc.rpartition("@")[2], f"?{parts.query}" if parts.query else ""

    def make(password: str | None, schema: str) -> str:
        secret = "" if password is None else f":{quote(password, safe='${}.')}"
        return f"{parts.scheme}://{user}{secret}@{place}/{database}{query}"

    password = None if parts.password is None else unquote(parts.password)
    return Address(engine="mysql", name=unquote(database), make=make, password=password)


def _connect_string(text: str, scheme: str) -> Address:
    found = _CONNECT_STRING.fullmatch(text)
    engine = "timesten" if scheme == "timesten" or ":timesten_" in text else "oracle"
    if found is None:
        raise Unusable("the address names no user", way_out=_forms())
    _need("oracle")
    user, target = found["user"], found["target"]
    if engine == "oracle" and re.match(r"[\w.-]+:\d+/", target):
        target = f"//{target}"
    return Address(
        engine=engine,
        name=user,
        make=lambda password, _: f"{user}/{password or ''}@{target}",
        password=found["password"],
    )


def _file(path: Path, engine: str) -> Address:
    if not_utf_8(str(path.absolute())):
        raise Unusable(f"{path}: the path is not UTF-8", way_out="Rename the file, or the folder that it is in.")
    try:
        with path.open("rb") as stream:
            head = stream.read(16)
    except FileNotFoundError:
        way_out = "Check the path; `proveout bench sqlite` and `proveout bench duckdb` use a file of their own."
        raise Unusable(f"there is no file {path}", way_out=way_out) from None
    except OSError as fault:
        way_out = "Name the file of a database that your user may read."
        raise Unusable(f"{path} cannot be read: {fault.strerror}", way_out=way_out) from None
    found = next((name for name, magic in _FILES.items() if head[_MAGIC_AT[name] :].startswith(magic)), "")
    if not found or (engine and found != engine):
        kind = engines.of(engine).title if engine else "SQLite or DuckDB"
        raise Unusable(f"{path} is not a file of {kind}", way_out=_forms())
    _need(found)
    return Address(engine=found, name=path.stem, make=lambda _, __: str(path.absolute()))


def _need(engine: str) -> None:
    """Unusable where the client of an engine is not installed."""
    try:
        adapter(engine).part("queries")
    except TaskFault as fault:
        raise Unusable(fault.what, way_out=fault.way_out) from None


@record
class Database:
    """A database of the command line: one that answers, or one that proveout starts, with `settings` and no `session`.
    `place`: 0, or 1 for that of --compare; `variable`: the environment variable with its password, "" where none is
    needed; `version`: of the server or library that answers."""

    address: Address
    place: int = 0
    settings: Mapping[str, str] = field(default_factory=dict)
    login: str = field(default="", repr=False)
    version: str = ""
    variable: str = ""
    session: QuerySession | None = None

    @property
    def engine(self) -> str:
        return self.address.engine

    @property
    def title(self) -> str:
        """Its engine for people, with the version where it runs."""
        if self.session is None:
            return f"{self.target(populates=False).title}, started here"
        return f"{engines.of(self.engine).title} {self.version}"

    @property
    def free_connections(self) -> int | None:
        """The number of further connections that it accepts; None without a limit, and where it is not known."""
        query = rules_of(self.engine).connections
        if self.session is None or not query:
            return None
        return min(int(limit) - int(others) for _, limit, others, _ in self.rows(query)) - 1

    def rows(self, query: str, most: int = 10_000) -> Sequence[Sequence[Any]]:
        """The rows of a query to one that answers. Unusable where the server refuses it."""
        assert self.session is not None  # noqa: S101 - the caller has asked
        try:
            return self.session.rows(query, most)[1]
        except TaskFault as fault:
            raise Unusable(_named(fault.what, self.address), way_out=fault.way_out) from None

    def schema(self, *, populates: bool) -> str:
        """The schema of its own that the tables are made in, "" for none."""
        return SCHEMAS[self.place] if populates and self.engine == "postgres" and self.session is not None else ""

    def apart(self) -> Database:
        """For tables of its own: a file has no schemas, so the engine makes another file for the run."""
        if not engines.of(self.engine).in_files:
            return self
        return Database(address=Address(engine=self.engine, name=self.address.name), place=self.place)

    def target(self, *, populates: bool) -> Target:
        """It, as a plan has it; the password is a secret of the plan."""
        name = NAMES[self.place]
        if self.session is None:
            return Target(name=name, engine=self.engine, version=self.address.version, settings=self.settings)
        schema, secret = self.schema(populates=populates), self.variable
        dsn = self.address.dsn(f"${{secrets.{name}}}" if secret else None, schema)
        to = _receivers(self.engine, dsn) if secret else ()
        return Target(name=name, engine=self.engine, dsn=dsn, schema=schema, secret=secret, to=to)


def _receivers(engine: str, dsn: str) -> tuple[str, ...]:
    """The hosts that the password is sent to; none where it stays on this one."""
    from proveout.dsl.rules import secrets

    uses = secrets.of_system(System(name="db", engine=engine, host="here", dsn=dsn), ())
    return tuple(str(place) for place in uses.places if place.host != secrets.HERE)


@contextmanager
def opened(address: Address, place: int) -> Iterator[Database]:
    """The database with its session, which is closed at the end; one that proveout starts where it can. Unusable."""
    if address.is_embedded:
        _need_server(address)
        yield Database(address=address, place=place)
        return
    database = log_in(address, place)
    assert database.session is not None  # noqa: S101 - it answers
    with closing(database.session):
        yield database


def _need_server(address: Address) -> None:
    from proveout.dsl.rules.host_rules import system_problems

    engine, version = address.engine, address.version
    system = System(name="db", engine=engine, host="here", provision="embedded", version=version)
    for problem in system_problems(system):
        raise Unusable(problem.message, way_out=problem.way_out)
    try:
        if engines.of(engine).server_program:
            adapter(engine).server_program(version)  # first: its extra brings the client too
        adapter(engine).part("populate")
    except TaskFault as fault:
        raise Unusable(fault.what, way_out=fault.way_out) from None


def log_in(address: Address, place: int) -> Database:
    """Open a session: with the password of the address, else of the variable of the place, else without; where the
    server requires one it is asked for on a terminal. The password is then in the variable, for the agents. Unusable.
    """
    variable = VARIABLES[place]

    def answering(password: str | None) -> Database:
        dsn = address.dsn(password)
        endpoint = Endpoint(system="db", engine=address.engine, dsn=dsn)
        session = adapter(address.engine).query_session(endpoint)
        version = dict(asyncio.run(adapter(address.engine).settings(endpoint))).get("version", "")
        if password is not None:
            os.environ[variable] = password
        return Database(
            address=address,
            place=place,
            login=dsn,
            version=version,
            variable="" if password is None else variable,
            session=session,
        )

    is_file = engines.of(address.engine).in_files
    given = None if is_file else address.password if address.password is not None else os.environ.get(variable)
    try:
        return answering(given)
    except TaskFault as fault:
        if given is not None or not _PASSWORD_WANTED.search(fault.what):
            raise Unusable(_named(fault.what, address), way_out=fault.way_out or _forms()) from None
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Unusable(
            f"{ASKED}, and there is no terminal to ask on", way_out=f"Set the environment variable {variable}."
        )
    try:
        return answering(getpass.getpass(f"Password for {address.name}: ", stream=sys.stderr))
    except TaskFault as fault:
        raise Unusable(_named(fault.what, address), way_out=fault.way_out) from None


def _named(what: str, address: Address) -> str:
    """A message about `system 'db'` as one about the database that was typed."""
    return what.replace("system 'db'", f"{engines.of(address.engine).title} {address.name!r}")
