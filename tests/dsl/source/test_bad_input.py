"""Bad input that a plan's text alone does not show (the messages for all other bad input are in tests/golden/bad): a
link that leads out of the folder, and what depends on the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from proveout.coordinator.agents.endpoints import SecretMissing, read_secret
from proveout.core.errors import PlanError
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.plan.topology import Secret


def test_an_include_cannot_leave_by_a_symlink(tmp_path: Path) -> None:
    (tmp_path / "plans").mkdir()
    (tmp_path / "outside.yaml").write_text("captures: {}\n")
    (tmp_path / "plans" / "link.yaml").symlink_to(tmp_path / "outside.yaml")
    path = tmp_path / "plans" / "plan.yaml"
    path.write_text("proveout: 1\nname: p\ninclude: [link.yaml]\n")
    with pytest.raises(PlanError) as caught:
        compile_plan(path)
    assert "`link.yaml` leads out of the plan's folder" in [problem.message for problem in caught.value.problems]


def test_a_missing_environment_reference() -> None:
    secret = Secret(name="hlr", kind="env", reference="HLR_PASSWORD")
    with pytest.raises(SecretMissing, match="the environment has no HLR_PASSWORD") as caught:
        read_secret(secret, {})
    assert "export HLR_PASSWORD" in caught.value.way_out
