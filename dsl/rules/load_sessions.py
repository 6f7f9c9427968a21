"""The rules on how a load makes its connections. Pure; the compiler and the agents apply them."""

from __future__ import annotations

from collections.abc import Iterator

from proveout.dsl import engines
from proveout.dsl.plan.stages import Sessions
from proveout.dsl.rules.bounds import CONNECT_EVERY_MAX, THREADS_MAX
from proveout.dsl.rules.host_rules import Objection


def problems(engine: str, sessions: Sessions, instances: int) -> Iterator[Objection]:
    """The reasons why a load on a system of that engine and of so many instances cannot have these sessions."""
    found = engines.of(engine)
    able = engines.named(one for one in engines.ENGINES.values() if one.members)
    if sessions.access and not found.members:
        message = f"`access` chooses among the members of a system of {able}, not of {engine}"
        yield Objection(message=message, way_out=found.instead_of_members or "leave it away", at=("access",))
    for key, given in (("pool", sessions.pool), ("connect_every", sessions.connect_every)):
        if given and not found.members:
            message = f"connections to {engine} are each of one thread: `{key}` is for {able}"
            yield Objection(message=message, way_out="leave it away", at=("sessions", key))
        elif given and instances > 1 and not sessions.access:
            message = f"each thread keeps to its own instance, so connections are not shared or renewed by `{key}`"
            way_out = "access: any, read-write or read-only: then every thread may use every instance"
            yield Objection(message=message, way_out=way_out, at=("sessions", key))
    if not sessions.prepared and engine != "postgres":
        message = f"statements of {engine} are prepared in this release"
        yield Objection(message=message, way_out="leave it away", at=("sessions", "prepared"))
    if not (0 <= sessions.pool <= THREADS_MAX and 0 <= sessions.connect_every <= CONNECT_EVERY_MAX):
        yield Objection(message=f"a pool of {sessions.pool}, or a connect every {sessions.connect_every}, is not valid")
    if sessions.access not in ("", "any", "read_write", "read_only"):
        yield Objection(message=f"{sessions.access[:40]!r} is not an access")
