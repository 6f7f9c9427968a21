"""The engines of this release and what each can do, as data: the one table that checks, explanations and documents read.

Data flow: a plan's `engine` -> `find(name)`, or `of(name)` for an engine that another package may have a driver for -> `Engine`. The
compiler, an agent's rules, `doctor`, `explain` and the table in README.md read it; a test compares it with the adapters in
`agent.engines`. Imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from proveout.dsl.workloads.base import Dialect

Embedded: TypeAlias = Literal["server", "file"]
Quoting: TypeAlias = Literal["libpq", "uri", "verbatim"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One engine. `title` is its name for people; the client packages come with the extra `extra`.

    | field | meaning |
    |---|---|
    | `dialect` | the SQL dialect of its statements; None where this release has no driver |
    | `embedded` | what `provision: embedded` starts: a server, or a file that the load's own processes open; None for nothing |
    | `server` | the program that `provision: embedded` starts |
    | `dsn` | whether a plan may give a dsn |
    | `schemes` | the schemes of a dsn that is a URI |
    | `quoting` | how a secret is quoted in a dsn that is not a URI |
    | `in_files` | whether its databases are files of the user that opens them |
    | `own_process` | whether its client library needs a process that loads no other engine's client |
    | `populate`, `waits`, `sizes`, `tune`, `session` | whether populate stages, the captures, database tuning, `session:` work |
    | `populate_workers_max` | how many workers can load a population at once; None for any number |
    | `instances` | whether a system may have several instances |
    | `lag_to` | the engines of the sinks to which the capture `lag` works |
    | `links_to` | the engines to which proveout sets propagation up and compares the tables |
    | `procedures` | whether TPROC-C's stored procedures are written for it |
    """

    name: str
    title: str
    dialect: Dialect | None = None
    extra: str = ""
    embedded: Embedded | None = None
    server: str = ""
    dsn: bool = True
    schemes: tuple[str, ...] = ()
    quoting: Quoting = "verbatim"
    in_files: bool = False
    own_process: bool = False
    populate: bool = False
    populate_workers_max: int | None = None
    instances: bool = False
    checkpoint: bool = False
    tune: bool = False
    session: bool = False
    waits: bool = False
    sizes: bool = False
    lag_to: tuple[str, ...] = ()
    links_to: tuple[str, ...] = ()
    procedures: bool = False

    @property
    def has_driver(self) -> bool:
        """Whether this release has a driver for it."""
        return self.dialect is not None


ENGINES: Mapping[str, Engine] = MappingProxyType(
    {
        engine.name: engine
        for engine in (
            Engine(
                name="postgres",
                title="PostgreSQL",
                dialect="postgres",
                extra="postgres",
                embedded="server",
                server="PostgreSQL",
                schemes=("postgres", "postgresql"),
                quoting="libpq",
                populate=True,
                checkpoint=True,
                tune=True,
                session=True,
                waits=True,
                sizes=True,
                lag_to=("postgres",),
                links_to=("postgres",),
                procedures=True,
            ),
            Engine(
                name="sqlite",
                title="SQLite",
                dialect="sqlite",
                embedded="file",
                dsn=False,
                in_files=True,
                populate=True,
                populate_workers_max=1,
                checkpoint=True,
                session=True,
                sizes=True,
            ),
            Engine(
                name="oracle",
                title="Oracle",
                dialect="oracle",
                extra="oracle",
                populate=True,
                instances=True,
                checkpoint=True,
                tune=True,
                session=True,
                waits=True,
                sizes=True,
                procedures=True,
            ),
            Engine(
                name="timesten",
                title="TimesTen",
                dialect="oracle",
                extra="oracle",
                own_process=True,
                checkpoint=True,
                tune=True,
                session=True,
                lag_to=("oracle",),
            ),
            Engine(
                name="mysql",
                title="MySQL, MariaDB",
                dialect="mysql",
                extra="mysql",
                embedded="server",
                server="MariaDB",
                schemes=("mysql", "mariadb"),
                quoting="libpq",
                populate=True,
                checkpoint=True,
                session=True,
                sizes=True,
            ),
            Engine(name="duckdb", title="DuckDB", in_files=True),
        )
    }
)
"""By name, in the order in which the plan's schema lists them."""

WITH_DRIVER: tuple[str, ...] = tuple(sorted(name for name, engine in ENGINES.items() if engine.has_driver))
"""The engines that this release has a driver for."""


def of(name: str) -> Engine:
    """Return the engine; one that is not in the table can do only what its driver, of another package, does."""
    return ENGINES.get(name) or Engine(name=name, title=name)


def named(engines: Iterable[Engine]) -> str:
    """Return the engines' names, joined by commas."""
    return ", ".join(engine.name for engine in engines)


def link_objection(source: tuple[str, str], sink: tuple[str, str]) -> str:
    """Return why proveout cannot set propagation up between two systems, each (name, engine); "" when it can.

    >>> link_objection(("cache", "postgres"), ("backend", "oracle"))
    "propagation is between two postgres systems; 'backend' is oracle"
    """
    if sink[1] in of(source[1]).links_to:
        return ""
    linked = [engine for engine in ENGINES.values() if engine.links_to]
    name, engine = source if not of(source[1]).links_to else sink
    return f"propagation is between two {named(linked)} systems; {name!r} is {engine}"
