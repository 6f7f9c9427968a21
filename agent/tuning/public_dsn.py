"""Removes secrets from a data source name, so that the undo journal can store it.

Flow: `Endpoint` -> `public`, by the engine's adapter -> the parts for the location of a system and its user; everything
else is left out. A dsn that cannot be parsed is left out as a whole. Pure, and without a database client: a root agent
loads none.
"""

from __future__ import annotations

from dataclasses import replace

from proveout.agent.engines.adapter import RedactsDsn
from proveout.agent.engines.table import adapter
from proveout.proto.wire.tasks import Endpoint


def public(endpoint: Endpoint) -> str:
    """Return the dsn without what may be secret; "" when it cannot be taken apart."""
    engine = adapter(endpoint.engine)
    return engine.public_dsn(endpoint.dsn) if isinstance(engine, RedactsDsn) else ""


def identity(endpoint: Endpoint) -> str:
    """Return a text that differs between systems, without secrets."""
    return f"{endpoint.engine} {public(endpoint) or endpoint.system}"


def without_secrets(endpoint: Endpoint) -> Endpoint:
    """Return the endpoint as it may be written to disk."""
    return replace(endpoint, dsn=public(endpoint), instances=())
