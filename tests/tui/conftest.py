"""The same screens in every environment."""

from __future__ import annotations

import time

import pytest


@pytest.fixture(autouse=True)
def _the_same_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    for name in ("NO_COLOR", "PROVEOUT_PKI", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    time.tzset()
