"""Fixtures for all tests: a real PostgreSQL server for the session, a separate database for a test, a task context."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import json
import os
import re
import secrets
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import psycopg
import pytest
import shared_servers
import thorough
from hypothesis import HealthCheck, settings
from psycopg.conninfo import make_conninfo

from proveout.agent.daemon.tasks import Resource
from proveout.agent.engines.embedded import data_store
from proveout.agent.engines.embedded.workspace import SupervisorClient
from proveout.agent.engines.mysql import provision as embedded_mysql
from proveout.agent.engines.postgres import roles as postgres_roles
from proveout.agent.sandbox import privileges
from proveout.agent.security.policy import Policy
from proveout.coordinator.report import json_documents
from proveout.proto.wire.results import TaskSample

# Without a deadline, because a busy machine makes examples slow. A failing example is printed so that it can be
# replayed.
settings.register_profile("any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("any-machine")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell ignores SIGINT in background jobs, and programs that tests interrupt would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, object, object]:
    """When the workers have ended: the shared servers end, and data that runs of these tests have kept for a resume
    goes with their folders, also where it lies in /var/tmp."""
    ended = yield
    if hasattr(session.config, "workerinput"):
        return ended
    folder = session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    shared_servers.await_ends(folder)
    for store in data_store.ELSEWHERE.glob(f"{data_store.STORE_PREFIX}*"):
        with contextlib.suppress(OSError):  # another session's, about to be made or removed
            if (store / "owner").read_text().startswith(f"{folder.resolve()}/"):
                shutil.rmtree(store, ignore_errors=True)
    return ended


@pytest.fixture(scope="session")
def session_folder(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """The folder of this session of tests, the same for all of its workers."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if hasattr(request.config, "workerinput") else own


@pytest.fixture(scope="session")
def postgres_server(session_folder: Path) -> Iterator[str]:
    """The libpq conninfo of a fresh PostgreSQL (superuser, database `postgres`), as of a lab's own; shared by all
    workers, so change no settings, and look at no session and no role but your own."""
    with shared_servers.used("postgres", session_folder) as conninfo:
        yield conninfo


@pytest.fixture(scope="session")
def postgres(postgres_server: str) -> str:
    """The same under a shorter name."""
    return postgres_server


@pytest.fixture
def database(postgres_server: str) -> Iterator[str]:
    """The libpq conninfo of an empty database of one's own, dropped after the test (connections and all)."""
    name = f"test_{secrets.token_hex(6)}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    yield make_conninfo(postgres_server, dbname=name)
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


@pytest.fixture(autouse=True, scope="session")
def _data_of_servers_is_copied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Of the servers that a worker starts in its own process only the first one of each version makes its data
    (`initdb` takes a second of CPU time); the others begin with a copy of that, and their own passwords."""
    base, making = tmp_path_factory.getbasetemp(), threading.Lock()
    run, statements = SupervisorClient.run, postgres_roles.statements

    def copied(client: SupervisorClient, argv: list[str], *rest: Any, **more: Any) -> str:
        program = Path(argv[0])
        if program.name not in ("initdb", "mariadb-install-db"):
            return run(client, argv, *rest, **more)
        made = base / f"{program.name}-{program.parent.parent.name}"
        given = (word.removeprefix("--datadir=") for word in argv if word.startswith("--datadir="))
        folder = argv[argv.index("-D") + 1] if program.name == "initdb" else next(given)
        with making:
            if made.exists():
                subprocess.run(["cp", "-a", f"{made}/.", folder], check=True)
            else:
                run(client, argv, *rest, **more)
                subprocess.run(["cp", "-a", folder, str(made)], check=True)
        return ""

    def with_own_password(state: data_store.State) -> tuple[str, ...]:
        own = f"ALTER ROLE {postgres_roles.ADMINISTRATOR} PASSWORD '{state.administrator}'"
        return (own, *statements(state))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SupervisorClient, "run", copied)
        patch.setattr(postgres_roles, "statements", with_own_password)
        yield


def closed(schema: Any) -> Any:
    """The schema with every record closed to further fields, so that a test finds a field that is not in the schema."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    inside = {name: closed(item) for name, item in schema.items()}
    return inside | ({"additionalProperties": False} if "required" in schema else {})


@pytest.fixture(autouse=True, scope="session")
def _documents_follow_their_schemas() -> Iterator[None]:
    """Every result and every comparison that a test has made in this process has all fields of its published schema,
    and no other."""
    with pytest.MonkeyPatch.context() as patch:
        for kind, schema in (
            ("result", json_documents.result_schema()),
            ("comparison", json_documents.comparison_schema()),
        ):
            name = f"{kind}_to_json"
            patch.setattr(json_documents, name, _validated(getattr(json_documents, name), schema))
        yield


def _validated(make: Callable[..., bytes], schema: json_documents.JsonSchema) -> Callable[..., bytes]:
    validator = jsonschema.Draft202012Validator(closed(schema))

    def checked(*arguments: Any) -> bytes:
        document = make(*arguments)
        validator.validate(json.loads(document))
        return document

    return checked


SCREENS = Path(__file__).with_name("tui")
SERVER_FIXTURES = frozenset(
    (
        # databases
        "postgres_server", "mysql_server", "oracle", "own_postgres", "own_mysql", "distribution", "subject", "pair", "world",
        "bench", "target",  # agents
        "disk", "lab", "namespace", "namespaces", "small_disk",  # devices, network namespaces, mounts
    )
)  # fmt: skip
"""Fixtures that start servers, agents or runs, or that change the host: a test that uses one of them has the marker
`server`.

Modules whose tests start them by other means set the marker themselves, with `pytestmark`.
"""


MODULE_MARKS = re.compile(r"^pytestmark = .*(\n    .*)*", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no module whose tests all have a marker that the expression of `make` leaves out."""
    words = config.getoption("markexpr").split(" and ")
    left_out = {word.removeprefix("not ") for word in words if word.startswith("not ")}
    if collection_path == SCREENS:
        return True if "screen" in left_out else None
    if not left_out or not collection_path.match("test_*.py"):
        return None
    marks = MODULE_MARKS.search(collection_path.read_text())
    return True if marks and not left_out.isdisjoint(re.findall(r"mark\.(\w+)", marks[0])) else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the garbage collector, whose passes take half of that time and free nothing."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests by what they start, leave out those for nights, and put the longest files first."""
    gc.freeze()  # what the collection has made lives as long as the process: passes of the collector need not visit it
    gc.set_threshold(1_000, 10, 100)  # full passes are rarer: they took a fifth of the CPU time of tests of screens
    for item in items:
        if not SERVER_FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker("server")
        if any("root" in mark.kwargs.get("reason", "") for mark in item.iter_markers("skipif")):
            item.add_marker("root")
        if SCREENS in item.path.parents:
            item.add_marker("screen")
    _leave_out_nights(config, items)
    _longest_first(items)


def _leave_out_nights(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests marked `soak`, unless this is `make soak`, or the command line names that marker or the test."""
    if thorough.THOROUGH or "soak" in config.getoption("markexpr"):
        return
    chosen = [argument.split("::", 1) for argument in config.args if "::" in argument]
    named = [((config.invocation_params.dir / path).resolve(), name) for path, name in chosen]

    def runs(item: pytest.Item) -> bool:
        name = item.nodeid.partition("::")[2]
        return item.get_closest_marker("soak") is None or any(
            item.path == path and re.match(f"{re.escape(part)}($|\\[|::)", name) for path, part in named
        )

    if left_out := [item for item in items if not runs(item)]:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if runs(item)]


def _longest_first(items: list[pytest.Item]) -> None:
    """Files with servers first, then those with the most tests: begun last, a long file would go on alone.

    `--dist loadfile` with `--no-loadscope-reorder` (Makefile) gives files to workers in the order of the tests.
    """
    sizes = Counter(item.path for item in items)
    waiting = {item.path for item in items if any(item.iter_markers("server"))}
    items.sort(key=lambda item: (item.path not in waiting, -sizes[item.path], str(item.path)))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Real servers that tests may use; without the option their tests are skipped."""
    parser.addoption(
        "--live-oracle", metavar="DSN", help="user/password@connect-string of a schema that may be emptied"
    )


@pytest.fixture
def live_oracle(request: pytest.FixtureRequest) -> str:
    """The dsn of a real Oracle Database."""
    dsn = request.config.getoption("--live-oracle")
    if not dsn:
        pytest.skip("no --live-oracle DSN")
    return str(dsn)


TNS_SERVER = Path(__file__).parent / "wire" / "tns_server.py"


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory, mysql_server: object) -> Iterator[str]:
    """The dsn of a MariaDB with performance_schema; skips where the host has none."""
    from proveout.agent.engines.mysql import provision
    from proveout.dsl.plan.topology import System

    del mysql_server
    settings = (("performance_schema", "true"),)  # as the plan's `performance_schema: true`
    system = System(name="db", engine="mysql", host="local", provision="embedded", settings=settings)
    server = provision.Server(system, tmp_path_factory.mktemp("mysql"))
    try:
        server.start()
        yield server.dsn
    finally:
        server.close(keep_data=False)


@pytest.fixture(scope="session")
def tns_database(postgres_server: str) -> str:
    """The libpq conninfo of the database that is behind this worker's `oracle`: to look at what the driver has done."""
    name = f"behind_tns_{os.getpid()}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return make_conninfo(postgres_server, dbname=name)


@pytest.fixture(scope="session")
def tns_views() -> str:
    """The SQL of the dictionary views that a database behind the TNS server needs."""
    return TNS_SERVER.with_name("dictionary.sql").read_text()


@pytest.fixture(scope="session")
def oracle(tns_database: str) -> Iterator[str]:
    """The dsn of a TNS server (see tests/wire): Oracle's protocol, PostgreSQL behind it; shared, so drop what you
    make. Each worker has one, as the schema is one."""
    argv = [sys.executable, str(TNS_SERVER), "--postgres", tns_database]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        word, dsn = server.stdout.readline().split()
        assert word == "dsn"
        yield dsn
        server.stdin.close()
        server.wait(90)


@dataclasses.dataclass(frozen=True)
class SharedServer:
    """A server that all workers share."""

    dsn: str


@pytest.fixture(scope="session")
def mariadb() -> None:
    """Skips where this host has no MariaDB server."""
    path = os.pathsep.join((os.environ.get("PATH", ""), *embedded_mysql.FOLDERS))
    if shutil.which("mariadbd", path=path) is None or shutil.which("mariadb-install-db", path=path) is None:
        pytest.skip("this host has no MariaDB server (Debian: apt-get install mariadb-server)")


@pytest.fixture(scope="session")
def mysql_server(mariadb: None, session_folder: Path) -> Iterator[SharedServer]:
    """A fresh MariaDB as of a lab's own, commits not waiting for the disk; shared by all workers."""
    with shared_servers.used("mysql", session_folder) as dsn:
        yield SharedServer(dsn)


@pytest.fixture
def mysql_database(mysql_server: SharedServer) -> Iterator[str]:
    """The dsn of an empty MySQL database of one's own, dropped after the test."""
    with shared_servers.mysql_database(mysql_server.dsn) as dsn:
        yield dsn


@pytest.fixture(scope="session")
def own_mysql(mariadb: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[shared_servers.LabMysql]:
    """A MariaDB of this worker alone, which tests may stop and start, and look at as a whole."""
    system = shared_servers.system("mysql")
    server = shared_servers.LabMysql(system, tmp_path_factory.mktemp("own-mysql"))
    try:
        server.start()
        yield server
    finally:
        server.close(keep_data=False)


def _hand_over(folder: Path) -> None:
    account = privileges.account()
    for path in (folder, *folder.iterdir()) if account is not None else ():
        os.chown(path, account.uid, account.uid)


@pytest.fixture
def hand_over() -> Callable[[Path], None]:
    """Return a function that gives a folder and its files to the user that runs load, when the tests run as root;
    database work never runs as root."""
    return _hand_over


@contextlib.contextmanager
def _readable_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="proveout-test-", dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@pytest.fixture
def package_folder() -> Iterator[Path]:
    """A folder for Python packages, which every user can read: workers of a root agent are not root, and pytest's own
    folders are closed to them."""
    with _readable_folder() as folder:
        yield folder


@pytest.fixture
def database_folder() -> Iterator[Path]:
    """A folder for databases in files that every user can read and that root does not own."""
    with _readable_folder() as folder:
        _hand_over(folder)
        yield folder


@pytest.fixture
def sqlite_file(database_folder: Path) -> Path:
    """An empty SQLite file in such a folder."""
    path = database_folder / "x.db"
    path.touch()
    owner = database_folder.stat()
    os.chown(path, owner.st_uid, owner.st_gid)
    return path


@pytest.fixture
def wal_file(sqlite_file: Path) -> Path:
    """The same in WAL mode, as the file of an embedded system is."""
    connection = sqlite3.connect(sqlite_file)
    connection.execute("PRAGMA journal_mode = wal")
    connection.close()
    return sqlite_file


class RecordingContext:
    """A `TaskContext` for tests: it records the calls of a handler, and finishes when `end()` is called."""

    def __init__(self, work_dir: Path) -> None:
        self.key, self.host, self.work_dir = "test", "local", work_dir
        self.policy = Policy(own=True)
        self.resources: dict[str, Resource] = {}
        self.samples: list[TaskSample] = []
        self.logs: list[tuple[str, str]] = []
        self.progressed: list[tuple[float, float, str, str]] = []
        self.t0_ns: int | None = None
        self.arms = False
        self.triggers: asyncio.Queue[int] = asyncio.Queue()
        self._finished = asyncio.Event()

    def progress(self, done: float, total: float, unit: str, note: str = "") -> None:
        self.progressed.append((done, total, unit, note))

    def sample(self, sample: TaskSample) -> None:
        self.samples.append(sample)

    def sample_all(self, samples: Sequence[TaskSample]) -> None:
        for sample in samples:
            self.sample(sample)

    def log(self, level: str, text: str) -> None:
        self.logs.append((level, text))

    def armed(self) -> None:
        assert self.arms, "this handler arms nothing"

    async def started(self) -> int:
        assert self.t0_ns is not None, "this handler starts nothing"
        return self.t0_ns

    async def triggered(self) -> int:
        return await self.triggers.get()

    async def finished(self) -> None:
        await self._finished.wait()

    def end(self) -> None:
        """Say `Finish`."""
        self._finished.set()

    def restart(self) -> None:
        """Await another `Finish`, for the next handler."""
        self._finished = asyncio.Event()

    async def close(self, *, keep_data: bool = False) -> None:
        """End the resources as a session does."""
        for name, resource in reversed(list(self.resources.items())):
            await resource.close(keep_data=keep_data)
            del self.resources[name]


@pytest.fixture
async def task_context(tmp_path: Path) -> AsyncIterator[RecordingContext]:
    """A context whose resources are closed after the test."""
    context = RecordingContext(tmp_path)
    yield context
    await context.close()
