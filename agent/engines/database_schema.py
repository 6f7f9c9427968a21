"""The schema of a database for the fingerprint: its tables with their columns, indexes, constraints, triggers.

Flow: `InspectSystem` with `schema` -> the engine's `schema_query` -> rows (kind, name, text) -> objects `index i on t`
-> `btree (a)`, sorted -> `SystemStarted.schema`. Several rows of one object, such as the columns of a table, are joined
in the order of the query. The query of each engine is in its `sql.py`. Blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proveout.agent.engines.adapter import DescribesSchema, OpensQueries
from proveout.agent.engines.table import adapter
from proveout.core import json_data
from proveout.proto.wire.tasks import Endpoint

ROWS_MAX = 100_000
OBJECTS_MAX = 1_000
"""More objects are not listed; their digest stands for them."""
TEXT_MAX = 2_000
MORE = "further objects"

Schema = tuple[tuple[str, str], ...]


def read_schema(endpoint: Endpoint) -> Schema:
    """The objects of a database with their definitions, sorted by name; () for an engine without such a query.
    TaskFault."""
    engine = adapter(endpoint.engine)
    if not isinstance(engine, DescribesSchema) or not isinstance(engine, OpensQueries):
        return ()
    session = engine.query_session(endpoint)
    try:
        return objects(session.rows(engine.schema_query(), ROWS_MAX)[1])
    finally:
        session.close()


def objects(rows: Sequence[Sequence[Any]]) -> Schema:
    """The objects of the rows of a `schema_query`.

    >>> objects([("table", "t", "a integer"), ("table", "t", "b text"), ("index", "i on t", "btree (a)")])
    (('index i on t', 'btree (a)'), ('table t', 'a integer, b text'))
    """
    found: dict[str, list[str]] = {}
    for kind, name, text, *_ in rows:
        found.setdefault(f"{_text(kind)} {_text(name)}", []).append(" ".join(_text(text).split()))
    listed = sorted((name, _bounded(", ".join(filter(None, parts)))) for name, parts in found.items())
    if len(listed) <= OBJECTS_MAX:
        return tuple(listed)
    left = listed[OBJECTS_MAX:]
    return (*listed[:OBJECTS_MAX], (MORE, f"{len(left)}, {json_data.digest(left)}"))


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value if value is not None else "")


def _bounded(text: str) -> str:
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}… {json_data.digest(text)}"
