"""The adapters of engines by name, and the mark in tables that proveout has loaded."""

from __future__ import annotations

import zlib
from functools import cache

from proveout.agent.engines.adapter import Adapter
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


@cache
def adapter(engine: str) -> Adapter:
    """Return the adapter of an engine. Loads no client library; never fails. An engine that is not in the table is one
    of another package: its entry point names a driver, and `DriverAdapter` does the rest."""
    stated = engines.ENGINES.get(engine)
    return DriverAdapter(engine) if stated is None else Adapter(stated)


def driver(engine: str) -> Driver:
    """The driver of an engine. ProveoutError when there is none, or when its client is not installed on this host."""
    found = adapter(engine)
    try:
        return found.driver()
    except ImportError as error:
        raise ProveoutError(
            f"the {engine} driver cannot be loaded: {error}",
            way_out=f"{errors.install_command(found.stated.requirement)} on this host, in the agent's environment",
        ) from None


def is_in_files(engine: str) -> bool:
    """Return whether its databases are files of the user that opens them."""
    found = engines.ENGINES.get(engine)
    return DriverAdapter(engine).in_files if found is None else found.in_files
