"""The keys of a load about its sessions: how its connections are made, kept, shared, and replaced."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field, WithJsonSchema

from proveout.dsl.rules.bounds import CONNECT_EVERY_MAX, THREADS_MAX
from proveout.dsl.schema.scalar_types import Strict


def _every(value: object) -> object:
    """`transaction` is every single one."""
    return 1 if value == "transaction" else value


ConnectEvery: TypeAlias = Annotated[
    int,
    Field(ge=1, le=CONNECT_EVERY_MAX),
    BeforeValidator(_every),
    WithJsonSchema(
        {"anyOf": [{"const": "transaction"}, {"type": "integer", "minimum": 1, "maximum": CONNECT_EVERY_MAX}]}
    ),
]


class SessionsEntry(Strict):
    """The connections of a load; by default each thread keeps one of its own."""

    pool: int | None = Field(
        None,
        ge=1,
        le=THREADS_MAX,
        description="Connections in total, over all clients: a transaction waits for a free one, first come, first "
        "served. The wait is part of its response time, and `pool_wait` in expressions.",
    )
    connect_every: ConnectEvery | None = Field(
        None,
        description="Close a connection after so many transactions, or after each `transaction`, and make another. "
        "The connect is part of the response time, and `connect` in expressions.",
    )


USUAL_SESSIONS = SessionsEntry.model_validate({})


class SessionKeys(Strict):
    """The keys of a load, or of a stage for all of its loads."""

    on_disconnect: Literal["reconnect", "retry", "fail"] | None = Field(
        None,
        description="When a connection is lost: `reconnect` counts its transaction as an error and connects again; "
        "`retry` runs it again with the same inputs, and its response time counts from the first time it was due; "
        "`fail` ends the load. `reconnect` by default.",
    )
    access: Literal["any", "read-write", "read-only"] | None = Field(
        None,
        description="The member of the system to connect to, among the hosts of its dsn and its `instances`: the one "
        "that accepts changes, one that does not, or any; found again after each loss. By default the dsn decides.",
    )
    sessions: SessionsEntry | None = Field(None, description="Sharing and renewal of connections.")
