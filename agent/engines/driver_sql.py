"""The adapter of an engine of another package, which gives nothing but a driver: everything else goes through a session
of it. And the settings of a system that proveout does not connect to.

The driver may have `version(dsn)`, which is called when a run begins, `loader(dsn, population)` (see `adapter.Loader`),
and `in_files`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from proveout.agent.engines.adapter import Adapter, Loader, Settings
from proveout.agent.engines.driver_contract import Driver, FailureKind, StatementFailure
from proveout.agent.engines.statement_errors import as_faults, text_of_plan
from proveout.agent.errors import TaskFault
from proveout.core.errors import ProveoutError
from proveout.dsl import engines, extensions
from proveout.dsl.workloads.base import Population, Statement

if TYPE_CHECKING:  # populate workers import this module, and start faster without it
    from proveout.proto.wire.tasks import Endpoint


class DriverAdapter(Adapter):
    """An engine with only a driver, whose parts are below."""

    def __init__(self, engine: str) -> None:
        own = "driver_sql"
        super().__init__(engines.Engine(name=engine, title=engine, driver=own, settings=own, run_sql=own, populate=own))
        self._engine = engine

    def part(self, field: str) -> Any:
        """Return one of the parts below."""
        parts = {"driver": self._made, "settings": self._settings, "run_sql": self._run_all, "populate": self._loader}
        return parts.get(field) or super().part(field)

    @property
    def in_files(self) -> bool:
        """Return the driver's own property; False when it is not installed here."""
        with contextlib.suppress(ProveoutError):
            return bool(getattr(self.driver(), "in_files", False))
        return False

    def _made(self) -> Driver:
        """Call what the entry point names, without arguments. ProveoutError when no package has the engine."""
        make = extensions.load(extensions.DRIVERS, self._engine)
        if make is None:
            known = sorted({*engines.WITH_DRIVER, *extensions.announced(extensions.DRIVERS)})
            raise ProveoutError(
                f"there is no driver for engine {self._engine!r}",
                way_out=f"engines with a driver: {', '.join(known)}; have the same packages on coordinator and agents",
            )
        found: Driver = make()
        return found

    def _loader(self, dsn: str, population: Population) -> Loader:
        """Return the driver's own loader; TaskFault `missing` when it has none."""
        make: Any = getattr(self.driver(), "loader", None)
        if make is None:
            raise TaskFault("missing", f"the driver of engine {self._engine!r} cannot load a population")
        found: Loader = make(dsn, population)
        return found

    def _settings(self, endpoint: Endpoint) -> Settings:
        """The version, "unknown" when the driver does not tell it; a connection is made in any case. TaskFault."""
        driver = self.driver()
        with _faults(endpoint):
            driver.connect(endpoint.dsn).close()
            version = getattr(driver, "version", None)
            return (("version", str(version(endpoint.dsn)) if version else "unknown"),)

    def _run_all(self, endpoint: Endpoint, statements: Iterable[str]) -> tuple[int, ...]:
        """Run each statement by itself; rows returned or affected. TaskFault with the engine's message."""
        from proveout.agent.engines.sessions import execute  # noqa: PLC0415 - only where statements are run

        driver = self.driver()
        counts = []
        with _faults(endpoint), contextlib.closing(driver.connect(endpoint.dsn)) as session:
            for number, text in enumerate(statements):
                with text_of_plan(self._engine, f"statements.{number}"), _faults(endpoint):
                    execute(session, driver, session.prepare(_statement(driver.dialect, text)), ())
                    counts.append(int(session.count))
        return tuple(counts)


def _statement(dialect: Any, text: str) -> Statement:
    from proveout.dsl.workloads import sql_text  # noqa: PLC0415 - only where statements are run

    return Statement(name="sql", text={dialect: text}, arguments=(), reads=sql_text.reads(sql_text.scan(text, dialect)))


def _faults(endpoint: Endpoint) -> contextlib.AbstractContextManager[None]:
    """A block whose failures of statements become TaskFaults."""
    return as_faults(StatementFailure, partial(_fault, endpoint))


def _fault(endpoint: Endpoint, failure: StatementFailure) -> TaskFault:
    lost = failure.kind is FailureKind.LOST
    what = f"{endpoint.system} ({endpoint.engine}): {failure.code}: {failure.what}"
    return TaskFault(
        "unreachable" if lost else "fault",
        what,
        way_out="see that the system runs and its dsn is right",
        refusal="" if lost else failure.code,
        line=failure.line,
    )


def no_settings(_endpoint: Endpoint) -> Settings:
    """The settings of a storage, or of a service that only the load's program knows: such a system is always up."""
    return (("version", ""),)
