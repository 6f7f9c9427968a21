"""A permanent agent starts an embedded system only where the policy of the host lists its engine; tested over the wire."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import psutil
import pytest
from fabric_bench import Permanent

from proveout.dsl.plan.topology import System
from proveout.proto.wire.messages import TaskDone, TaskFailed
from proveout.proto.wire.results import SystemStarted
from proveout.proto.wire.tasks import StartSystem, StopSystem, Task

pytestmark = pytest.mark.server


class Real(Permanent):
    """A real agent with a policy file."""

    @property
    def policy(self) -> Path:
        return self.directory / "owner" / "policy.yaml"

    def command(self) -> list[str]:
        arguments = super().command()[2:]
        return [sys.executable, "-m", "proveout.agent", *arguments, "--policy", str(self.policy)]


def start(engine: str) -> Task:
    system = System(name="db", engine=engine, host="db1", provision="embedded")
    return Task(key=f"start {engine}", spec=StartSystem(system=system, data_root="/srv/runs/x"), deadline_s=60.0)


async def test_only_engines_that_the_policy_lists_are_started(tmp_path: Path) -> None:
    agent = Real(tmp_path)
    agent.policy.parent.mkdir(mode=0o755)
    agent.policy.write_text("policy: 1\nprovision: [sqlite]\n")
    agent.policy.chmod(0o644)
    await agent.start()
    assert agent.process is not None
    try:
        line = await agent.connect()
        for engine in ("postgres", "mysql"):
            line.session.send(start(engine))
            refused = await line.outcome(f"start {engine}")
            assert isinstance(refused, TaskFailed) and refused.error.code == "refused"
            assert refused.error.message == f"starting an embedded {engine} system is not allowed on this host"
            assert f"add `- {engine}` under `provision` in {agent.policy}" in refused.error.way_out
        assert psutil.Process(agent.process.pid).children(recursive=True) == []
        assert not (agent.directory / "state" / "systems").exists()
        line.session.send(start("sqlite"))
        outcome = await line.outcome("start sqlite")
        assert isinstance(outcome, TaskDone) and isinstance(outcome.result, SystemStarted), outcome
        file = Path(outcome.result.endpoint.dsn)
        assert file.exists()
        spec = StopSystem(system="db", data_root="/srv/runs/x", remove=True)
        line.session.send(Task(key="stop", spec=spec, deadline_s=60.0))
        assert isinstance(await line.outcome("stop"), TaskDone)
        assert not file.exists()
    finally:
        await agent.leave()
        await agent.stop(signal.SIGKILL)
