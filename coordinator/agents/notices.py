"""Limit the warnings and errors of each agent that are journalled, so that a flood of them does not fill the disk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from proveout.proto.events import Notice

NOTICES_MAX = 1000


class AgentNotices:
    """Counts the notices of each host."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def take(self, host: str, level: Literal["warning", "error"], text: str) -> Iterator[Notice]:
        """The notices to journal for one of an agent: itself, none, or itself and that it is the last one."""
        self._counts[host] = count = self._counts.get(host, 0) + 1
        if count <= NOTICES_MAX:
            yield Notice(level=level, host=host, text=text)
        if count == NOTICES_MAX:
            more = f"{host} has sent {NOTICES_MAX} warnings and errors; the others are only in its own log"
            yield Notice(level="warning", host=host, text=more)
