"""The contract of an engine whose running systems can be copied: an optional protocol of its adapter, beside those of
`adapter`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from proveout.core.data_classes import dataclass

if TYPE_CHECKING:  # populate workers import this module, and start faster without it
    from proveout.proto.wire.tasks import Endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyState:
    """Whether the run works on a copy (`made`); why none can be made (`objections`); and what is copied, with its size,
    in words."""

    made: bool
    objections: tuple[str, ...] = ()
    text: str = ""


class DataCopy(Protocol):
    """The data of a system that runs already, of which a run has a copy. Methods block, may take long, and connect by
    themselves; every failure is a TaskFault.

    The data that was there before `save` must outlive a kill at any moment: `release` then restores it.
    """

    def state(self) -> CopyState:
        """Look, and change nothing."""
        ...

    def save(self) -> None:
        """Keep the data as it is now. Called where `state` has no objections."""
        ...

    def restore(self) -> None:
        """Replace the data by the copy that `save` has made. TaskFault `missing` without a copy of this run."""
        ...

    def release(self) -> None:
        """Put the original data back, and remove what `save` and `restore` have made. Idempotent; also after a kill at
        any moment of the three."""
        ...


@runtime_checkable
class CopiesData(Protocol):
    """An engine that can copy the data of a system that runs already, for a plan with `restore`."""

    def data_copy(self, endpoint: Endpoint, run: str) -> DataCopy:
        """Return the copy of a run's own; nothing is connected yet."""
        ...
