"""The systems of the plan as tuning sees them: rows of a question, and statements, each committed by itself. Functions block.

Flow: a system's name -> its endpoint -> `ask` -> `sql_access`, in this process or, where the agent has privileges, in an aide's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from proveout.agent.daemon.tasks import TaskFault
from proveout.agent.tuning import sql_access
from proveout.dsl.operations.facts import Rows
from proveout.proto.wire.tasks import Endpoint


class Ask(Protocol):
    """How a function of `sql_access` is called: its answer, perhaps with lists for tuples, or its TaskFault."""

    def __call__(self, question: str, endpoint: Endpoint, statement: str) -> Any:
        """`question` is the function's name."""
        ...


def ask_here(question: str, endpoint: Endpoint, statement: str) -> Any:
    """In this process."""
    return {"rows": sql_access.rows, "run": sql_access.run}[question](endpoint, statement)


class Databases:
    """Reached by `endpoints`; a system that is not among them is a TaskFault `missing`."""

    def __init__(self, endpoints: Iterable[Endpoint] = (), ask: Ask = ask_here) -> None:
        self._endpoints = {endpoint.system: endpoint for endpoint in endpoints}
        self._ask = ask

    def of(self, run: str) -> Databases:
        """The systems by the names that they have in a run, which may be an earlier one."""
        del run
        return self

    def way_out(self, system: str) -> str:
        """What to do where a system cannot be reached; "" when its own words say it."""
        del system
        return ""

    def is_of_the_run(self, system: str) -> bool:
        """Whether the run has started it: its data, and what was set in it, are the run's own."""
        endpoint = self._endpoints.get(system)
        return endpoint is not None and endpoint.provisioned

    def rows(self, system: str, statement: str) -> Rows:
        """The rows of a query, values as text. TaskFault in the database's own words."""
        answer = self._ask("rows", self._endpoint(system), statement)
        return tuple(tuple(None if value is None else str(value) for value in row) for row in answer)

    def run(self, system: str, statement: str) -> None:
        """Run a statement. TaskFault in the database's own words."""
        self._ask("run", self._endpoint(system), statement)

    def _endpoint(self, system: str) -> Endpoint:
        endpoint = self._endpoints.get(system)
        if endpoint is None:
            raise TaskFault("missing", f"it is not known how system {system!r} is reached")
        return endpoint


class DatabasesOfRuns(Databases):
    """The same of several runs: what an undo journal is of. Two runs may call different systems by one name.

    `known` is (run, system) -> endpoint; `without_password` are those of which only the public part is known.
    """

    def __init__(
        self,
        known: Mapping[tuple[str, str], Endpoint],
        ask: Ask = ask_here,
        run: str = "",
        without_password: frozenset[tuple[str, str]] = frozenset(),
    ) -> None:
        super().__init__((endpoint for (of, _), endpoint in known.items() if of == run), ask)
        self._known = known
        self._run = run
        self._without_password = without_password

    def of(self, run: str) -> Databases:
        """Those of that run."""
        return DatabasesOfRuns(self._known, self._ask, run, self._without_password)

    def way_out(self, system: str) -> str:
        """That the password is needed again, where it is not known any more."""
        if (self._run, system) not in self._without_password:
            return ""
        return (
            f"its password is not kept on disk: resume run {self._run}, or run a plan that tunes this database by the same dsn "
            "on this machine, and it is undone first"
        )

    def _endpoint(self, system: str) -> Endpoint:
        endpoint = super()._endpoint(system)
        if not endpoint.dsn:
            raise TaskFault("missing", f"how system {system!r} is reached is not known any more")
        return endpoint
