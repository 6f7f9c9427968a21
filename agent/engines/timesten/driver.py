"""Oracle TimesTen through python-oracledb in thick mode, in processes that do nothing else with python-oracledb.

Flow: `ready()` once a process: the environment that ttenv sets is looked at, then `init_oracle_client()` loads the
client library that it names -> `connect` with `user/password@host/db:timesten_direct` (in this host's memory) or
`…:timesten_client` -> sessions like Oracle's, without what TimesTen has not: call timeouts, end-to-end attributes,
RETURNING INTO. A process is thin or thick for ever, which is why loads of TimesTen have a pool of workers of their own.

Needs python-oracledb 2.2, TimesTen 22.1.1.25. Not run on a TimesTen in the tests: a stand-in for the client module
shows which calls are made and which are not. Source: python-oracledb documentation, "Connecting to Oracle TimesTen".
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Literal

import oracledb

from proveout.agent.engines.driver_contract import FailureKind, StatementFailure
from proveout.agent.engines.oracle.driver import STATEMENT_CACHE, CursorSession, parts
from proveout.agent.engines.oracle.errors import error_text
from proveout.dsl.engines import Dialect
from proveout.proto.wire.tasks import Endpoint

HOME, LIBRARIES = "TIMESTEN_HOME", "LD_LIBRARY_PATH"
WAY_OUT = "start the agent in an environment that TimesTen's bin/ttenv.sh has set"
NO_CLIENT = "DPI-1047"
ALREADY_THIN = "DPY-2019"
_TARGET = re.compile(r".+:timesten_(?:direct|client)(?:[;?].*)?", re.S)


class TimesTenSession(CursorSession):
    """One connection to a TimesTen. Statements are compiled when they first run, in the ramp-up.

    Whether TimesTen takes a parse without an execution through this client is not known, so none is asked for.
    """

    __slots__ = ()

    def __init__(self, connection: Any) -> None:
        super().__init__(connection, parses_ahead=False, by_position=False)


class TimesTenDriver:
    """Connects with `user/password@host/database:timesten_direct` or `…:timesten_client`. One mode a process."""

    dialect: Dialect = "oracle"
    waits: Literal["blocking"] = "blocking"

    def connect(self, dsn: str) -> TimesTenSession:
        """A new connection. StatementFailure also where the client library is absent; the password is in no message."""
        try:
            return TimesTenSession(open_timesten(dsn))
        except oracledb.Error as error:
            what = error_text(error)
            raise StatementFailure(what.code, what.text, FailureKind.LOST) from None


def open_timesten(dsn: str) -> Any:
    """A thick connection. Raises oracledb.Error, or StatementFailure for what the environment or the dsn lacks."""
    user, password, target = parts(dsn)
    if not _TARGET.fullmatch(target):
        raise StatementFailure(
            "ORA-12154", "the dsn does not end in :timesten_direct or :timesten_client", FailureKind.LOST
        )
    ready(os.environ)
    return oracledb.connect(user=user, password=password, dsn=target, stmtcachesize=STATEMENT_CACHE)


def open_thick(endpoint: Endpoint, work: str) -> Any:
    """`open_timesten` as an `oracle.sql.Opener`; TimesTen shows no name for the work."""
    del work
    return open_timesten(endpoint.dsn)


def ready(environment: Mapping[str, str]) -> None:
    """Put this process into thick mode with TimesTen's client; idempotent. StatementFailure with what is missing."""
    home = environment.get(HOME, "")
    if not home:
        raise StatementFailure(NO_CLIENT, f"{HOME} is not set: {WAY_OUT}", FailureKind.LOST)
    if home not in environment.get(LIBRARIES, ""):
        raise StatementFailure(NO_CLIENT, f"{LIBRARIES} does not lead to {home}: {WAY_OUT}", FailureKind.LOST)
    try:
        oracledb.init_oracle_client()
    except oracledb.Error as error:
        what = error_text(error)
        why = "the client library cannot be loaded"
        if what.code == ALREADY_THIN:
            why = "this process has used thin mode before, and a process has one mode"
        raise StatementFailure(what.code, f"{why}: {what.text} ({WAY_OUT})", FailureKind.LOST) from None
