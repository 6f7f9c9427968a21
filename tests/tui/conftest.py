"""The same screens in every environment, without animations and without a wait for real time after a key."""

from __future__ import annotations

import asyncio
import time

import pytest

TURNS = 40
"""Turns of the event loop in which a key goes from the application to a widget, and what it does back."""


async def _turns(*_: float) -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def _the_same_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    for name in ("NO_COLOR", "PROVEOUT_PKI", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    time.tzset()
    monkeypatch.setattr("proveout.tui.home.DEBOUNCE_S", 0.0)
    monkeypatch.setattr("textual.constants.TEXTUAL_ANIMATIONS", "none")
    monkeypatch.setattr("textual.app.App.NOTIFICATION_TIMEOUT", 3600.0)  # else a slow start outlasts a message
    for module in ("textual.app", "textual.pilot"):
        monkeypatch.setattr(f"{module}.wait_for_idle", _turns)  # else 20 ms or more, twice a key, by the clock
