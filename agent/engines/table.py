"""The table of engines: which class adapts each, and the mark in tables that proveout has loaded."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType

from proveout.agent.engines.adapter import EngineAdapter
from proveout.agent.engines.driver_contract import Driver
from proveout.agent.engines.driver_sql import DriverAdapter
from proveout.core import errors
from proveout.core.errors import ProveoutError
from proveout.dsl import engines
from proveout.dsl.workloads.base import Population, Table

COMMENT = "Made by proveout for a load; proveout drops and makes it anew"


def intention_of(population: Population) -> str:
    """The intention's name; of 24 characters, as Oracle before 12.2 takes 30."""
    names = " ".join(sorted(table.name.lower() for table in population.tables))
    return f"proveout_making_{zlib.crc32(names.encode()):08x}"


def probe(table: Table) -> str:
    """A query that fails if a column of the population's is missing, and has no row if the table is empty."""
    names = ", ".join(name for name, _ in table.columns)
    return f"SELECT {names} FROM {table.name}"  # noqa: S608 - names that the plan's compiler has checked


# An engine that is not in the table is one of another package: its entry point names a driver, and `DriverAdapter` does
# the rest.

ADAPTERS: Mapping[str, str] = MappingProxyType(
    {
        "duckdb": "proveout.agent.engines.duckdb.adapter:DuckdbAdapter",
        "mysql": "proveout.agent.engines.mysql.adapter:MysqlAdapter",
        "none": "proveout.agent.engines.no_database:NoDatabaseAdapter",
        "oracle": "proveout.agent.engines.oracle.adapter:OracleAdapter",
        "postgres": "proveout.agent.engines.postgres.adapter:PostgresAdapter",
        "sqlite": "proveout.agent.engines.sqlite.adapter:SqliteAdapter",
        "timesten": "proveout.agent.engines.timesten.adapter:TimesTenAdapter",
    }
)


@cache
def adapter(engine: str) -> EngineAdapter:
    """Return the adapter of an engine. Loads no client library; never fails."""
    place = ADAPTERS.get(engine)
    if place is None:
        return DriverAdapter(engine)
    module, _, name = place.partition(":")
    found: EngineAdapter = getattr(import_module(module), name)()
    return found


def driver(engine: str) -> Driver:
    """The driver of an engine. ProveoutError when there is none, or when its client is not installed on this host."""
    found = adapter(engine)
    try:
        return found.driver()
    except ImportError as error:
        raise ProveoutError(
            f"the {engine} driver cannot be loaded: {error}",
            way_out=f"{errors.install_command(found.requirement)} on this host, in the agent's environment",
        ) from None


def is_in_files(engine: str) -> bool:
    """Return whether its databases are files of the user that opens them."""
    found = engines.ENGINES.get(engine)
    return DriverAdapter(engine).in_files if found is None else found.in_files
