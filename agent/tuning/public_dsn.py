"""Endpoints without their secrets, as the undo journal may keep them on a disk.

Data flow: `Endpoint` -> `public`, by the engine's adapter -> the parts that say where a system is and which user
connects. A dsn that cannot be taken apart is left out. Pure, and without any client library: a root agent loads none.
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
