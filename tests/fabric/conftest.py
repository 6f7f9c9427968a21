"""Fixtures of the fabric's tests; their types are in `fabric_bench`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from fabric_bench import FAKE_AGENT, Bench, Proxy

from proveout.coordinator.agents.local_agents import LocalFabric


@pytest.fixture
async def bench(tmp_path: Path, proxies: object) -> AsyncIterator[Bench]:
    """A bench that is closed before the proxies, so that sessions can send Goodbye through them."""
    bench = Bench(LocalFabric(FAKE_AGENT), tmp_path / "logs")
    try:
        yield bench
    finally:
        await bench.close()


@pytest.fixture
async def proxies() -> AsyncIterator[Callable[[str], Proxy]]:
    made: list[Proxy] = []

    def make(target: str) -> Proxy:
        made.append(Proxy(target))
        return made[-1]

    try:
        yield make
    finally:
        for proxy in made:
            await proxy.close()
