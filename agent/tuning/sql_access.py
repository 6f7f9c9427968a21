"""SQL access of tuning to the systems of a plan, in this process or in a helper process. Functions block."""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, TypeAlias

from proveout.agent.engines import handlers
from proveout.agent.engines.statement_errors import text_of_plan
from proveout.agent.engines.table import adapter
from proveout.agent.errors import TaskFault
from proveout.agent.sandbox.helper import Helper
from proveout.agent.sandbox.privileges import Privileges
from proveout.agent.security.policy import NOTHING, Policy
from proveout.dsl import engines
from proveout.dsl.operations.facts import CopyFact, Rows
from proveout.dsl.operations.oracle import OPEN
from proveout.dsl.operations.sql import RELOAD
from proveout.proto.wire.tasks import Endpoint

RELOAD_S = 15.0
OPEN_S, OPEN_POLL_S = 300.0, 1.0
"""An instance registers with its listener some time after its start."""
LOADED = "SELECT pg_conf_load_time()::text"


Call: TypeAlias = "Callable[[str, Endpoint, str], Any]"
"""Calls one of `FUNCTIONS` by name, with a statement, or for a copy with the run that it belongs to.

The result may have lists in place of tuples. TaskFault as the function raises it."""


def call_here(name: str, endpoint: Endpoint, statement: str) -> Any:
    """Call the function in this process."""
    return FUNCTIONS[name](endpoint, statement)


class Databases:
    """The systems of several runs, as an undo journal has them. Two runs may use one name for different systems.

    `known` maps (run, system) to the endpoint; of those in `without_password` only the public part of the dsn is known.
    TaskFault `missing` for a system that `run` does not have.
    """

    def __init__(
        self,
        known: Mapping[tuple[str, str], Endpoint] = MappingProxyType({}),
        call: Call = call_here,
        run: str = "",
        without_password: frozenset[tuple[str, str]] = frozenset(),
    ) -> None:
        self._known, self._call, self._run, self._without_password = known, call, run, without_password

    def of(self, run: str) -> Databases:
        """The systems under the names of a run, which may be an earlier one."""
        found = copy.copy(self)
        found._run = run
        return found

    def way_out(self, system: str) -> str:
        """How to supply the password, if it is missing; "" if the error itself says what to do."""
        if (self._run, system) not in self._without_password:
            return ""
        return (
            f"its password is not kept on disk: resume run {self._run}, or run a plan that tunes "
            "this database with the same dsn on this machine; the agent then undoes the old change first"
        )

    def is_of_the_run(self, system: str) -> bool:
        """Whether the run has started the system; its data and settings then belong to the run."""
        endpoint = self._known.get((self._run, system))
        return endpoint is not None and endpoint.provisioned

    def rows(self, system: str, statement: str) -> Rows:
        """Rows of a query, values as text. TaskFault with the error of the database."""
        return tuple(map(tuple, self._called("rows", system, statement)))

    def run(self, system: str, statement: str) -> None:
        """Run a statement. TaskFault with the error of the database."""
        self._called("run", system, statement)

    def _called(self, name: str, system: str, statement: str) -> Any:
        """Where the statement is the cause of a TaskFault, the fault has it as its subject."""
        endpoint = self._endpoint(system)
        with text_of_plan(endpoint.engine, statement):
            return self._call(name, endpoint, statement)

    def copy_state(self, system: str) -> CopyFact:
        """Whether the data of a system can be copied, or the run works on a copy already. TaskFault."""
        made, objections, text = self._call("copy_state", self._endpoint(system), self._run)
        return CopyFact(made=made, objections=tuple(objections), text=text)

    def save_copy(self, system: str) -> None:
        """Copy the data of a system; from now on the run works on the copy. TaskFault; may take long."""
        self._call("save_copy", self._endpoint(system), self._run)

    def release_copy(self, system: str) -> None:
        """Put the original data back, and drop the copy, as far as either is to be done. TaskFault."""
        self._call("release_copy", self._endpoint(system), self._run)

    def _endpoint(self, system: str) -> Endpoint:
        endpoint = self._known.get((self._run, system))
        if endpoint is None:
            raise TaskFault("missing", f"system {system!r} has no connection string in this run")
        if not endpoint.dsn:
            raise TaskFault("missing", f"the connection string of system {system!r} is not in the undo journal")
        return endpoint


def rows(endpoint: Endpoint, statement: str) -> Rows:
    """Rows of a query, values as text. TaskFault with the error of the database."""
    with _cursor(endpoint) as cursor:
        cursor.execute(statement)
        return tuple(tuple(None if value is None else str(value) for value in row) for row in cursor.fetchall())


def run(endpoint: Endpoint, statement: str) -> None:
    """Run a statement. TaskFault with the error of the database."""
    if statement == OPEN:
        _await_open(endpoint)
        return
    before = rows(endpoint, LOADED) if statement == RELOAD else ()
    with _cursor(endpoint) as cursor:
        cursor.execute(statement)
    if statement == RELOAD:
        # wait until new connections use the reloaded settings: pg_reload_conf only requests the reload
        deadline = time.monotonic() + RELOAD_S
        while rows(endpoint, LOADED) == before:
            if time.monotonic() > deadline:
                raise TaskFault(
                    "timeout", f"system {endpoint.system!r} did not reload its settings within {RELOAD_S:g} s"
                )
            time.sleep(0.01)


def _await_open(endpoint: Endpoint, within_s: float = OPEN_S) -> None:
    """Wait until an instance that was started answers. TaskFault `timeout` with its last error."""
    deadline = time.monotonic() + within_s
    why = "it is not open"
    while True:
        try:
            if rows(endpoint, OPEN) != (("0",),):
                return
        except TaskFault as fault:
            if fault.code != "unreachable":
                raise
            why = fault.what
        if time.monotonic() > deadline:
            text = f"system {endpoint.system!r} was not open {within_s:g} s after its restart: {why}"
            raise TaskFault("timeout", text)
        time.sleep(OPEN_POLL_S)


@contextmanager
def _cursor(endpoint: Endpoint) -> Iterator[Any]:
    engine = adapter(endpoint.engine)
    if not engine.stated.tune:
        raise TaskFault("missing", f"systems of engine {endpoint.engine!r} cannot be tuned by this release")
    with engine.cursor(endpoint) as cursor:
        yield cursor


FUNCTIONS: Mapping[str, Callable[[Endpoint, str], Any]] = MappingProxyType(
    {
        "rows": rows,
        "run": run,
        "copy_state": handlers.state,
        "save_copy": handlers.save,
        "release_copy": handlers.release,
    }
)
"""Functions of an endpoint and a text; their results are JSON data."""


class SyncClient:
    """Calls of one thread at a time. Create and close it in the event loop."""

    def __init__(self, policy: Policy = NOTHING) -> None:
        self._policy = policy
        self._loop = asyncio.get_running_loop()
        self._helpers: dict[str, Helper] = {}

    def call(self, name: str, endpoint: Endpoint, statement: str) -> Any:
        """Call the function `name` of `sql_access`, from a thread. TaskFault as the function raises it."""
        privileges = Privileges.for_endpoint(endpoint, self._policy)
        if privileges.inherited and not engines.of(endpoint.engine).own_process:
            return call_here(name, endpoint, statement)
        result = asyncio.run_coroutine_threadsafe(self._call(privileges, name, endpoint, statement), self._loop)
        return result.result()

    async def close(self) -> None:
        """End the helper processes."""
        helpers, self._helpers = self._helpers, {}
        for helper in helpers.values():
            await helper.close(keep_data=True)

    async def _call(self, privileges: Privileges, name: str, endpoint: Endpoint, statement: str) -> Any:
        kind = f"{privileges.to_argument()}:{endpoint.engine if engines.of(endpoint.engine).own_process else ''}"
        helper = self._helpers.get(kind)
        if helper is None:
            helper = self._helpers[kind] = Helper(privileges, endpoint.engine)
        return await helper.call(name, endpoint, statement)
