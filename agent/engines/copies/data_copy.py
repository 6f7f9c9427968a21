"""The copy of the data of a system that runs already (`restore`), by the engine's adapter.

Flow: the tuning `database_copy` -> `state`, `save` and, from the undo journal, `release`; the task of a reset ->
`restore_copy`. All of them run where the database's client does. A copy belongs to a run; another run's is left alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from proveout.agent.daemon.tasks import TaskContext
from proveout.agent.engines.copies.copy_contract import CopiesData, DataCopy
from proveout.agent.engines.table import adapter
from proveout.agent.errors import TaskFault
from proveout.proto.wire.results import Done
from proveout.proto.wire.tasks import Endpoint, RestoreCopy


def state(endpoint: Endpoint, statement: str) -> tuple[bool, Sequence[str], str]:
    """`CopyState` as JSON data; `statement` is the run, as in the functions below."""
    found = _copy(endpoint, statement).state()
    return found.made, found.objections, found.text


def save(endpoint: Endpoint, statement: str) -> None:
    """See `copy_contract.DataCopy`."""
    _copy(endpoint, statement).save()


def release(endpoint: Endpoint, statement: str) -> None:
    """See `copy_contract.DataCopy`."""
    _copy(endpoint, statement).release()


async def restore_copy(context: TaskContext, spec: RestoreCopy) -> Done:
    """Make the data of a system again from the copy of this run."""
    began = time.monotonic()
    run = context.key.partition("/")[0]
    await asyncio.to_thread(_copy(spec.endpoint, run).restore)
    return Done(seconds=time.monotonic() - began)


def _copy(endpoint: Endpoint, run: str) -> DataCopy:
    found = adapter(endpoint.engine)
    if not isinstance(found, CopiesData):
        raise TaskFault("missing", f"systems of engine {endpoint.engine!r} cannot be copied by this release")
    return found.data_copy(endpoint, run)
