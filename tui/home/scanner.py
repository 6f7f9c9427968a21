"""Scan the folders of plans and runs periodically and post what was found, for the home screen.

Data flow: `HomeServices` in threads -> `PlansFound`, `PlanRead`, `RunsFound`, `RunRead` -> the app's `HomeView`. A file
is read again only when its stamp has changed; a file that cannot be read does not delay others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from textual.message import Message
from textual.message_pump import MessagePump

from proveout.tui.home.services import Found, HomeServices, PlanCard, RunCard

AGAIN_S = 2.0


class PlansFound(Message):
    """All present plan files."""

    def __init__(self, found: Sequence[Found]) -> None:
        super().__init__()
        self.found = found


class PlanRead(Message):
    """A plan has been compiled."""

    def __init__(self, card: PlanCard, stamp: object) -> None:
        super().__init__()
        self.card, self.stamp = card, stamp


class RunsFound(Message):
    """All present runs."""

    def __init__(self, found: Sequence[Found]) -> None:
        super().__init__()
        self.found = found


class RunRead(Message):
    """A run's journal has been read."""

    def __init__(self, card: RunCard, stamp: object) -> None:
        super().__init__()
        self.card, self.stamp = card, stamp


async def plans(
    services: HomeServices, target: MessagePump, known: Mapping[str, object], again_s: float = AGAIN_S
) -> None:
    """Find and compile plans until cancelled; `known` are stamps by path."""
    stamps = dict(known)
    while True:
        found = await asyncio.to_thread(services.plans)
        target.post_message(PlansFound(found))
        for one in found:
            if stamps.get(one.path) != one.stamp:
                card = await asyncio.to_thread(services.plan, one.path, {}, "")
                stamps[one.path] = one.stamp
                target.post_message(PlanRead(card, one.stamp))
        await asyncio.sleep(again_s)


async def runs(
    services: HomeServices, target: MessagePump, known: Mapping[str, object], again_s: float = AGAIN_S
) -> None:
    """Find and read runs until cancelled."""
    stamps = dict(known)
    while True:
        found = await asyncio.to_thread(services.runs)
        target.post_message(RunsFound(found))
        for one in found:
            if stamps.get(one.path) != one.stamp:
                card = await asyncio.to_thread(services.run, one.path)
                stamps[one.path] = one.stamp
                target.post_message(RunRead(card, one.stamp))
        await asyncio.sleep(again_s)
