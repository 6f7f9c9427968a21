"""The engines of this release, as data: what each can do, and the part of `agent.engines` that does it.

Data flow: a plan's `engine` -> `of(name)` -> `Engine`. The compiler, an agent's rules, `doctor`, `explain` and README's
table read what it can do; an agent imports a part when it is first used (`agent.engines.adapter`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from proveout.core.data_classes import record

if TYPE_CHECKING:
    from proveout.dsl.plan.captures import CaptureDeclaration

Dialect: TypeAlias = Literal["postgres", "sqlite", "oracle", "mysql", "duckdb"]
DIALECTS: tuple[Dialect, ...] = get_args(Dialect)
"""All dialects; a workload's statement that has one text for all of them has it under each."""

Place: TypeAlias = str
"""The position of a part of an engine: `MODULE:NAME`, or `MODULE`, of `proveout.agent.engines`; "" for what the engine
cannot do."""
Embedded: TypeAlias = Literal["server", "file"]
DsnForm: TypeAlias = Literal["conninfo", "uri", "connect_string", "path", "other"]


@record
class DsnRule:
    """The pattern that a whole dsn must match (with DOTALL), the message when it does not, and a dsn that does."""

    pattern: str
    message: str
    example: str


@record
class Engine:
    """One engine. `title` is its name for people; the client packages come with the extra `extra`.

    | place | what an engine with it can do; `agent.engines.adapter` has the types |
    |---|---|
    | `driver`, `settings`, `run_sql` | drive sessions, report settings, run statements: each database of this release |
    | `provision`, `server_program` | start a system of its own; find the server's program for `doctor` |
    | `populate` | load a population |
    | `checkpoint` | write dirty pages to disk |
    | `tune` | give tuning operations a cursor |
    | `queries` | give plans rows: `query` and `wait_until` of sql stages, captures of kind sql |
    | `schema` | name its tables and indexes for the fingerprint |
    | `waits`, `sizes`, `lag` | be observed by these captures; `lag` is of standbys and of `propagates_to` |
    | `report_session`, `statement_session` | be observed by the captures `report` and `statements` |
    | `copies_file` | check a file that a dsn names, and restore it for a `reset` from a copy that the agent has taken |
    | `data_copy` | copy the data of a system that runs already, see `restore` |
    | `propagation`, `link_keys` | set propagation up to `links_to` with keys of the agent, and compare the tables |

    | field | meaning |
    |---|---|
    | `dialect` | the SQL dialect of its statements; None for an engine of another package |
    | `embedded` | whether `provision: embedded` starts a server, or makes a file for the load's own processes |
    | `clients` | the client packages and libraries that it is driven through, as in the host's facts `driver.NAME` |
    | `client` | the module of the client library, and its name for people; of engines whose parts need it installed |
    | `server`, `commands` | the server that `provision: embedded` starts, and the names of its processes |
    | `dsn` | whether a plan may give a dsn |
    | `dsn_form`, `dsn_rules` | the form of a dsn, such as libpq's conninfo or `user/password@connect-string` |
    | `schemes` | the schemes of a dsn that is a URI |
    | `in_files` | whether its databases are files of the user that opens them |
    | `one_process` | whether one process at a time can write to a database: a load then has one worker, with threads |
    | `own_process` | whether its client library needs a process which loads no other engine's client |
    | `disk_full_codes` | error codes of statements that mean that the database's disk is full |
    | `reports_effects` | whether `unreachable` from `run_sql` means that no statement took effect; else it is `lost` |
    | `waits_every_s` | seconds between two looks at waits; None for one look per sample |
    | `session` | whether `session:` of a load works |
    | `report` | the kind of the captures that keep its own report on the measure window; "" for none |
    | `statements` | the view of the server that the capture `statements` reads; "" for none |
    | `statement_rights` | the rights that this capture needs of the user of a dsn |
    | `statement_setting` | the setting of an embedded server for it; None: that server has no such view |
    | `tracks_commits` | whether loads on it can have `commits: tracked` |
    | `populate_workers_max` | how many workers can load a population at once; None for any number |
    | `instances` | whether a system may have several instances |
    | `members` | whether a load can choose among them by `access`, and share or renew its connections (`sessions`) |
    | `propagates_to` | the engines that its changes can go on to |
    | `links_to` | those of them to which proveout itself sets propagation up, and compares the tables |
    | `versions` | whether a system that proveout starts can be of another `version` than the default |
    | `standbys` | whether a system that proveout starts may have standbys, which can be promoted |
    | `followed` | the settings that a standby has from its primary |
    | `synchronous_max` | how many synchronous standbys a commit can wait for; None for any number |
    | `restore` | how the data of a system that runs already can be copied for resets, the values of `restore` |
    | `procedures` | whether TPROC-C's stored procedures are written for it |
    | `pipelines` | whether several statements can be sent to it at once |
    | `instead_of_populate`, `instead_of_waits`, `instead_of_members` | what to do where it cannot do these |
    | `no_restore`, `instead_of_restore` | why a system that runs already cannot be copied, and what to do then |
    | `least_version` | the oldest version that its client can reach; "" where that is not known |
    | `tested`, `guide` | what the tests run it on; the page for users |
    """

    name: str
    title: str
    dialect: Dialect | None = None
    extra: str = ""
    embedded: Embedded | None = None
    clients: tuple[str, ...] = ()
    client: tuple[str, str] | None = None
    driver: Place = ""
    settings: Place = ""
    run_sql: Place = ""
    provision: Place = ""
    server_program: Place = ""
    populate: Place = ""
    checkpoint: Place = ""
    tune: Place = ""
    queries: Place = ""
    schema: Place = ""
    waits: Place = ""
    sizes: Place = ""
    lag: Place = ""
    report_session: Place = ""
    statement_session: Place = ""
    copies_file: Place = ""
    data_copy: Place = ""
    propagation: Place = ""
    link_keys: Place = ""
    own_process: bool = False
    disk_full_codes: frozenset[str] = frozenset()
    reports_effects: bool = False
    waits_every_s: float | None = None
    server: str = ""
    commands: tuple[str, ...] = ()
    dsn: bool = True
    dsn_form: DsnForm = "other"
    dsn_rules: tuple[DsnRule, ...] = ()
    schemes: tuple[str, ...] = ()
    in_files: bool = False
    one_process: bool = False
    populate_workers_max: int | None = None
    instances: bool = False
    members: bool = False
    session: bool = False
    tracks_commits: bool = False
    report: str = ""
    statements: str = ""
    statement_rights: str = ""
    statement_setting: tuple[str, str] | None = None
    propagates_to: tuple[str, ...] = ()
    links_to: tuple[str, ...] = ()
    versions: bool = False
    standbys: bool = False
    followed: tuple[str, ...] = ()
    synchronous_max: int | None = None
    restore: tuple[str, ...] = ()
    procedures: bool = False
    pipelines: bool = False
    instead_of_populate: str = ""
    instead_of_waits: str = ""
    instead_of_members: str = ""
    no_restore: str = ""
    instead_of_restore: str = "populate it again"
    least_version: str = ""
    tested: str = ""
    guide: str = ""

    @property
    def requirement(self) -> str:
        """The requirement, for pip, that installs the client; "" for none."""
        return f"proveout[{self.extra}]" if self.extra else next(iter(self.clients), "")

    @property
    def has_driver(self) -> bool:
        """Whether this release has a driver for it."""
        return self.dialect is not None

    def is_captured(self, kind: CaptureDeclaration) -> bool:
        """Whether captures of this kind can observe its systems."""
        if kind.able == "report":
            return self.report == kind.name
        return not kind.able or bool(getattr(self, kind.able))

    @property
    def propagates_by_itself(self) -> bool:
        """Whether its own replication carries changes on, and proveout sets none up."""
        return bool(self.propagates_to) and not self.links_to


_CONNECT_STRING = DsnRule(
    pattern=r"\s*[^/@\s]+(?: as sys(?:dba|asm|oper))?/.+@\S.*",
    message="not of the form user/password@connect-string",
    example="hlr/${secrets.name}@//db1:1521/HLR, or @ a TNS alias",
)

ENGINES: Mapping[str, Engine] = MappingProxyType(
    {
        engine.name: engine
        for engine in (
            Engine(
                name="postgres",
                title="PostgreSQL",
                dialect="postgres",
                clients=("libpq", "psycopg", "psycopg-binary"),
                client=("psycopg", "PostgreSQL client psycopg"),
                driver="postgres.driver:PostgresDriver",
                settings="postgres.sql:server_settings",
                run_sql="postgres.sql:run_all",
                provision="postgres.provision:embedded",
                server_program="postgres.installation:server_program",
                populate="postgres.populate:PostgresLoader",
                checkpoint="postgres.sql:write_out",
                tune="postgres.sql:cursor",
                queries="postgres.sql:PostgresQueries",
                schema="postgres.sql:SCHEMA",
                waits="postgres.captures:WaitObserver",
                waits_every_s=0.1,
                sizes="postgres.sql:SizeCatalogue",
                lag="postgres.captures:LagObserver",
                statement_session="postgres.captures:PostgresStatements",
                data_copy="postgres.copies:TemplateCopy",
                propagation="postgres.propagation",
                link_keys="postgres.roles:with_keys",
                disk_full_codes=frozenset({"53100"}),
                reports_effects=True,
                extra="postgres",
                embedded="server",
                server="PostgreSQL",
                commands=("postgres", "pgbouncer"),
                dsn_form="conninfo",
                dsn_rules=(
                    DsnRule(
                        pattern=r".*(?:=|://).*",
                        message="not a PostgreSQL connection string",
                        example="host=db1 port=5432 dbname=hlr user=proveout, or postgresql://…",
                    ),
                ),
                schemes=("postgres", "postgresql"),
                instances=True,
                members=True,
                session=True,
                tracks_commits=True,
                statements="pg_stat_statements",
                statement_rights="pg_read_all_stats, and the rights of the statements for EXPLAIN",
                propagates_to=("postgres",),
                links_to=("postgres",),
                versions=True,
                standbys=True,
                followed=(
                    "max_connections",
                    "max_locks_per_transaction",
                    "max_prepared_transactions",
                    "max_wal_senders",
                    "max_worker_processes",
                ),
                restore=("template",),
                procedures=True,
                pipelines=True,
                tested="PostgreSQL 18",
            ),
            Engine(
                name="sqlite",
                title="SQLite",
                dialect="sqlite",
                clients=("apsw",),
                driver="sqlite.driver:SqliteDriver",
                settings="sqlite.sql:file_settings",
                run_sql="sqlite.sql:run_statements",
                provision="sqlite.sql:EmbeddedSqlite",
                populate="sqlite.populate:SqliteLoader",
                checkpoint="sqlite.sql:checkpoint_file",
                tune="sqlite.sql:cursor",
                queries="sqlite.sql:SqliteQueries",
                schema="sqlite.sql:SCHEMA",
                sizes="sqlite.sql:SizeCatalogue",
                copies_file="sqlite.sql",
                disk_full_codes=frozenset({"SQLITE_FULL", "SQLITE_IOERR_SHMSIZE"}),
                embedded="file",
                dsn_form="path",
                dsn_rules=(
                    DsnRule(
                        pattern=r"/(?!.*[?#$]).*[^/]",
                        message="not the absolute path of an SQLite file",
                        example="/data/shop.db, without `file:` and options",
                    ),
                ),
                in_files=True,
                populate_workers_max=1,
                session=True,
                tracks_commits=True,
                tested="the SQLite of apsw",
                guide="docs/guide/sqlite.md",
            ),
            Engine(
                name="oracle",
                title="Oracle",
                dialect="oracle",
                clients=("oracledb",),
                client=("oracledb", "Oracle client python-oracledb"),
                driver="oracle.driver:OracleDriver",
                settings="oracle.sql:settings",
                run_sql="oracle.sql:run_statements",
                populate="oracle.populate:OracleLoader",
                checkpoint="oracle.sql:checkpoint",
                tune="oracle.sql:cursor",
                queries="oracle.sql:OracleQueries",
                schema="oracle.sql:SCHEMA",
                waits="oracle.captures:OracleObserver",
                sizes="oracle.captures:SizeCatalogue",
                report_session="oracle.captures:AwrSession",
                statement_session="oracle.captures:OracleStatements",
                disk_full_codes=frozenset(
                    {"ORA-00257", "ORA-01652", "ORA-01653", "ORA-01654", "ORA-01691", "ORA-19809", "ORA-30036"}
                ),
                extra="oracle",
                dsn_form="connect_string",
                dsn_rules=(_CONNECT_STRING,),
                instances=True,
                session=True,
                tracks_commits=True,
                report="awr",
                statements="v$sql",
                statement_rights="SELECT on v$sql, v$sql_plan and v$instance",
                procedures=True,
                instead_of_members="name the members in the connect descriptor of the dsn (FAILOVER, TAF)",
                no_restore="a user of an Oracle cannot copy or flash back its whole database: that needs SYSDBA",
                instead_of_restore="a command stage with the DBA's script (FLASHBACK DATABASE TO RESTORE POINT), or "
                "populate it again",
                tested="its protocol, on a stand-in for the server; not on an Oracle yet",
                guide="docs/guide/oracle.md",
            ),
            Engine(
                name="timesten",
                title="TimesTen",
                dialect="oracle",
                clients=("oracledb",),
                driver="timesten.driver:TimesTenDriver",
                settings="timesten.driver:settings",
                run_sql="timesten.driver:run_statements",
                populate="timesten.driver:TimesTenLoader",
                checkpoint="timesten.driver:checkpoint",
                tune="timesten.driver:cursor",
                queries="timesten.driver:queries",
                lag="timesten.captures:observer",
                report_session="timesten.captures:StatsSession",
                own_process=True,
                extra="oracle",
                dsn_form="connect_string",
                dsn_rules=(
                    _CONNECT_STRING,
                    DsnRule(
                        pattern=r".*:timesten_(?:direct|client)\b.*",
                        message="does not name the way to reach TimesTen",
                        example="hlr/${secrets.name}@cache1/hlrcache:timesten_direct, or …:timesten_client",
                    ),
                ),
                instances=True,
                session=True,
                report="ttstats",
                propagates_to=("oracle",),
                least_version="22.1.1.25",
                instead_of_members="name the members in the connect descriptor of the dsn (FAILOVER, TAF)",
                tested="a stand-in for the client library; not on a TimesTen yet",
                guide="docs/guide/oracle.md",
            ),
            Engine(
                name="mysql",
                title="MySQL, MariaDB",
                dialect="mysql",
                clients=("PyMySQL", "mysqlclient"),
                client=("pymysql", "MySQL client PyMySQL"),
                driver="mysql.driver:MysqlDriver",
                settings="mysql.sql:server_settings",
                run_sql="mysql.sql:run_all",
                provision="mysql.provision:embedded",
                server_program="mysql.provision:server_program",
                populate="mysql.populate:MysqlLoader",
                checkpoint="mysql.sql:write_out",
                tune="mysql.sql:cursor",
                queries="mysql.sql:MysqlQueries",
                schema="mysql.sql:SCHEMA",
                sizes="mysql.sql:SizeCatalogue",
                lag="mysql.captures:LagObserver",
                statement_session="mysql.captures:MysqlStatements",
                disk_full_codes=frozenset({"3", "28", "1021", "1114"}),
                extra="mysql",
                embedded="server",
                server="MariaDB",
                commands=("mariadbd", "mysqld"),
                dsn_form="uri",
                dsn_rules=(
                    DsnRule(
                        pattern=r"(?:mysql|mariadb)://.*",
                        message="not a MySQL dsn",
                        example="mysql://proveout:${secrets.name}@db1:3306/hlr",
                    ),
                ),
                schemes=("mysql", "mariadb"),
                instances=True,
                members=True,
                session=True,
                tracks_commits=True,
                statements="performance_schema",
                statement_rights="SELECT on performance_schema, and the rights of the statements for EXPLAIN",
                statement_setting=("performance_schema", "ON"),
                standbys=True,
                synchronous_max=1,
                instead_of_waits="capture its host with kind: os, and look into performance_schema on the server",
                no_restore="a schema of MySQL or MariaDB that runs already is not copied: copies of its tables "
                "would lose foreign keys, triggers and views",
                tested="MariaDB 10.11",
                guide="docs/guide/mysql.md",
            ),
            Engine(
                name="duckdb",
                title="DuckDB",
                dialect="duckdb",
                clients=("duckdb",),
                client=("duckdb", "DuckDB library"),
                driver="duckdb.driver:DuckdbDriver",
                settings="duckdb.sql:file_settings",
                run_sql="duckdb.sql:run_statements",
                provision="duckdb.sql:EmbeddedDuckdb",
                populate="duckdb.populate:DuckdbLoader",
                checkpoint="duckdb.sql:checkpoint_file",
                queries="duckdb.sql:DuckdbQueries",
                schema="duckdb.sql:SCHEMA",
                sizes="duckdb.sql:SizeCatalogue",
                disk_full_codes=frozenset({"DUCKDB_FULL"}),
                extra="olap",
                embedded="file",
                dsn_form="path",
                dsn_rules=(
                    DsnRule(
                        pattern=r"/(?!.*[#$]).*[^/]",
                        message="not the absolute path of a DuckDB file",
                        example="/data/shop.duckdb",
                    ),
                ),
                in_files=True,
                one_process=True,
                populate_workers_max=1,
                session=True,
                instead_of_waits="capture its host with kind: os; DuckDB runs in the processes of the load",
                tested="DuckDB 1.5",
                guide="docs/guide/duckdb.md",
            ),
            Engine(
                name="none",
                title="no database",
                settings="driver_sql:no_settings",
                dsn=False,
                instead_of_populate="the program of the load makes its own data",
                instead_of_waits="capture its host with kind: os, or its exporter with kind: prometheus",
            ),
        )
    }
)
"""By name, in the order in which the plan's schema lists them."""

WITH_DRIVER: tuple[str, ...] = tuple(sorted(name for name, engine in ENGINES.items() if engine.has_driver))
"""The engines that this release has a driver for."""
NO_DATABASE = "none"
"""The engine of a system that proveout does not connect to, such as a storage: programs make the load."""

EMBEDDED: tuple[str, ...] = tuple(sorted(name for name, engine in ENGINES.items() if engine.embedded))
"""The engines that `provision: embedded` starts."""


def of(name: str) -> Engine:
    """Return the engine; one that is not in the table can do only what its driver, of another package, does."""
    return ENGINES.get(name) or Engine(name=name, title=name)


def able(can: Callable[[Engine], object]) -> str:
    """Return the names of the engines that can do something, joined by commas."""
    return ", ".join(engine.name for engine in ENGINES.values() if can(engine))


def has_lag(source: str, sink: str) -> bool:
    """Return whether the capture `lag` measures how far a sink is behind its source: by propagation, or as its
    standby."""
    return sink in of(source).propagates_to or (sink == source and of(source).standbys)


def link_objection(source: tuple[str, str], sink: tuple[str, str]) -> str:
    """Return why proveout cannot set propagation up between two systems, each (name, engine); "" when it can.

    >>> link_objection(("cache", "postgres"), ("backend", "oracle"))
    "propagation is between two postgres systems; 'backend' is oracle"
    """
    if sink[1] in of(source[1]).links_to:
        return ""
    name, engine = source if not of(source[1]).links_to else sink
    return f"propagation is between two {able(lambda one: one.links_to)} systems; {name!r} is {engine}"
