"""The settings of a plan (`session:`) on a connection of a load, before anything is prepared on it.

Data flow: `RunLoad.session`, looked at by `agent.security.task_rules` -> `Arm` -> `configure`, for each connection when it is opened or opened again. What the
server does not take is a StatementFailure like that of a statement it does not take: the load is not armed.
"""

from __future__ import annotations

import select
from collections.abc import Iterable
from typing import Any

from proveout.agent.engines.driver_contract import Driver, FailureKind, StatementFailure
from proveout.dsl.rules.session_settings import statement


def configure(session: Any, driver: Driver, settings: Iterable[tuple[str, str]]) -> None:
    """Make the settings, in order; waits for the server. Raises StatementFailure."""
    for name, value in settings:
        made, arguments = statement(driver.dialect, name, value)
        try:
            prepared = session.prepare(made)
            if driver.waits == "blocking":
                session.execute(prepared, arguments)
            elif not session.exchange(prepared, arguments):
                _wait(session)
        except StatementFailure as failure:
            kind = FailureKind.LOST if failure.kind is FailureKind.LOST else FailureKind.ERROR
            raise StatementFailure(failure.code, f"session setting {name} = {value}: {failure.what}", kind) from None


def _wait(session: Any) -> None:
    ready = select.poll()
    ready.register(session.fileno(), select.POLLIN)
    done = False
    while not done:
        ready.poll()
        done = session.receive()
