"""A permanent agent starts an embedded system only where the policy of the host lists its engine; tested over the wire."""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
from test_permanent_agents import Permanent

from proveout.dsl.plan.topology import System
from proveout.proto.wire.messages import TaskDone, TaskFailed
from proveout.proto.wire.results import SystemStarted
from proveout.proto.wire.tasks import StartSystem, StopSystem, Task

pytestmark = pytest.mark.server

ENGINES = ("postgres", "mysql", "sqlite")


class Real(Permanent):
    """A real agent with a policy file."""

    @property
    def policy(self) -> Path:
        return self.directory / "owner" / "policy.yaml"

    def command(self) -> list[str]:
        where = ["--pki", str(self.directory / "pki"), "--state-dir", str(self.directory / "state")]
        argv = [sys.executable, "-m", "proveout.agent", "--listen", self.address, "--name", "db1", *where]
        return [*argv, "--policy", str(self.policy)]


@pytest.fixture
async def real(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Real]:
    agent = Real(tmp_path)
    agent.policy.parent.mkdir(mode=0o755)
    agent.policy.write_text(f"policy: 1\n{request.param}")
    agent.policy.chmod(0o644)
    await agent.start()
    try:
        yield agent
    finally:
        for line in agent.sessions:
            await line.session.close(timeout_s=5.0)
        await agent.stop(signal.SIGKILL)


def start(engine: str) -> Task:
    system = System(name="db", engine=engine, host="db1", provision="embedded")
    return Task(key=f"start {engine}", spec=StartSystem(system=system, data_root="/srv/runs/x"), deadline_s=60.0)


@pytest.mark.parametrize("real", ["paths: [/srv/runs]\n"], indirect=True)
async def test_engines_that_the_policy_does_not_list_are_refused(real: Real) -> None:
    line = await real.connect()
    assert real.process is not None
    for engine in ENGINES:
        line.session.send(start(engine))
        outcome = await line.outcome(f"start {engine}")
        assert isinstance(outcome, TaskFailed)
        assert outcome.error.code == "refused"
        assert outcome.error.message == f"starting an embedded {engine} system is not allowed on this host"
        assert f"add `- {engine}` under `provision` in {real.policy}" in outcome.error.way_out
    assert psutil.Process(real.process.pid).children(recursive=True) == []
    assert not (real.directory / "state" / "systems").exists()


@pytest.mark.parametrize("real", ["provision: [sqlite]\n"], indirect=True)
async def test_an_engine_that_the_policy_lists_is_started(real: Real) -> None:
    line = await real.connect()
    line.session.send(start("sqlite"))
    outcome = await line.outcome("start sqlite")
    assert isinstance(outcome, TaskDone) and isinstance(outcome.result, SystemStarted), outcome
    file = Path(outcome.result.endpoint.dsn)
    assert file.exists()
    line.session.send(start("postgres"))
    refused = await line.outcome("start postgres")
    assert isinstance(refused, TaskFailed) and refused.error.code == "refused"
    spec = StopSystem(system="db", data_root="/srv/runs/x", remove=True)
    line.session.send(Task(key="stop", spec=spec, deadline_s=60.0))
    assert isinstance(await line.outcome("stop"), TaskDone)
    assert not file.exists()
