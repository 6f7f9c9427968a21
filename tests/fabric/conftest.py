"""Fixtures of the fabric's tests; their types are in `fabric_bench`."""

from __future__ import annotations

import secrets
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from eventually import eventually
from fabric_bench import FAKE_AGENT, Bench, Line, Permanent, Proxy

from proveout.coordinator.agents.local_agents import LocalFabric

Connect = Callable[..., Awaitable[Line]]


@pytest.fixture(scope="session")
def shared_agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Permanent]:
    """One agent for all tests that are not about the life of an agent: each has a run of its own (`connect`)."""
    agent = Permanent(tmp_path_factory.mktemp("agent"))
    agent.launch()
    eventually(agent.listens, agent.log.read_text)
    yield agent
    assert agent.process is not None
    agent.process.terminate()
    assert agent.process.wait() == 0


@pytest.fixture
async def connect(shared_agent: Permanent, proxies: object) -> AsyncIterator[Connect]:
    """Return a function that opens a session of a new run with the shared agent, and sends Goodbye after the test."""

    async def opened(**changes: object) -> Line:
        return await shared_agent.connect(**{"run_id": secrets.token_hex(4), **changes})  # type: ignore[arg-type]

    yield opened
    await shared_agent.leave()


@pytest.fixture
async def line(connect: Connect) -> Line:
    """A session of a new run with the shared agent."""
    return await connect()


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[Permanent]:
    """An agent of the test's own, to be stopped, changed and restarted."""
    agent = Permanent(tmp_path)
    await agent.start()
    try:
        yield agent
    finally:
        await agent.leave(within_s=0.0)
        await agent.stop(signal.SIGKILL)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    """Local agents, which end with their session."""
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
