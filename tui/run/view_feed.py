"""From a source of events to a view: what the app's worker posts, and what it makes of it.

Data flow: `Source.batches` -> `Arrived` (a batch) or `Ended` -> the app folds `reduce` over its frozen `RunView`. The worker only
posts messages; the app alone keeps state.
"""

from __future__ import annotations

from collections.abc import Sequence

from textual.message import Message
from textual.message_pump import MessagePump

from proveout.core.errors import ProveoutError
from proveout.proto.events import Stamped
from proveout.tui.run.event_source import Source


class Arrived(Message):
    """Events, earliest first."""

    def __init__(self, batch: Sequence[Stamped]) -> None:
        super().__init__()
        self.batch = batch


class Ended(Message):
    """The source gives no more; `fault` is why, when it should have."""

    def __init__(self, fault: ProveoutError | None = None) -> None:
        super().__init__()
        self.fault = fault


async def pump(source: Source, target: MessagePump) -> None:
    """Post all of a source's batches, then that it has ended."""
    try:
        async for batch in source.batches():
            target.post_message(Arrived(batch))
    except ProveoutError as fault:
        target.post_message(Ended(fault))
    else:
        target.post_message(Ended())
