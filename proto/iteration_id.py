"""The identity of an iteration, for all events about it."""

from __future__ import annotations

from proveout.core.data_classes import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationId:
    """The identity of an iteration: stage, rung (threads), repeat and attempt from 1. Probes count in `repeat`."""

    stage: str
    rung: int
    repeat: int
    attempt: int

    def __str__(self) -> str:
        return f"{self.stage}/{self.rung}/{self.repeat}/{self.attempt}"
