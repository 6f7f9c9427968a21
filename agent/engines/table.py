"""The explicit table of drivers by engine. Each is imported when it is asked for: an agent needs only what it uses."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from proveout.agent.engines.driver_contract import Driver
from proveout.core.errors import ProveoutError
from proveout.dsl import extensions

_DRIVERS = {
    "oracle": ("proveout.agent.engines.oracle.driver", "OracleDriver", "proveout[oracle]"),
    "postgres": ("proveout.agent.engines.postgres.driver", "PostgresDriver", "proveout[postgres]"),
    "timesten": ("proveout.agent.engines.timesten.driver", "TimesTenDriver", "proveout[oracle]"),
    "mysql": ("proveout.agent.engines.mysql.driver", "MysqlDriver", "proveout[mysql]"),
    "sqlite": ("proveout.agent.engines.sqlite.driver", "SqliteDriver", "apsw"),
}


NO_ROOM: Mapping[str, frozenset[str]] = {
    "postgres": frozenset({"53100"}),
    "mysql": frozenset({"3", "28", "1021", "1114"}),
    "oracle": frozenset({"ORA-00257", "ORA-01652", "ORA-01653", "ORA-01654", "ORA-01691", "ORA-19809", "ORA-30036"}),
    "sqlite": frozenset({"SQLITE_FULL", "SQLITE_IOERR_SHMSIZE"}),
}
"""Codes of failed statements that say that the database's disk is full, by engine."""


def driver(engine: str) -> Driver:
    """The driver for an engine. Raises ProveoutError when there is none, or when its package is not installed here."""
    if engine not in _DRIVERS:
        return _announced(engine)
    module, name, requirement = _DRIVERS[engine]
    try:
        found: Driver = getattr(import_module(module), name)()
    except ImportError as error:
        raise ProveoutError(
            f"the {engine} driver cannot be loaded: {error}",
            way_out=f"pip install '{requirement}' on this host, in the agent's environment",
        ) from None
    return found


def is_built_in(engine: str) -> bool:
    """Whether the driver for an engine is this release's own."""
    return engine in _DRIVERS


def _announced(engine: str) -> Driver:
    """The driver of another package: what its entry point names, called without arguments."""
    make = extensions.load(extensions.DRIVERS, engine)
    if make is None:
        known = sorted({*_DRIVERS, *extensions.announced(extensions.DRIVERS)})
        raise ProveoutError(
            f"there is no driver for engine {engine!r}",
            way_out=f"engines with a driver: {', '.join(known)}; have the same packages on coordinator and agents",
        )
    found: Driver = make()
    return found
