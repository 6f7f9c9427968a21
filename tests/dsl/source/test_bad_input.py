"""Bad input that a plan's text alone does not show (the messages for all other bad input are in tests/golden/bad): a
link that leads out of the folder, and what depends on a host or on the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from proveout.coordinator.agents.endpoints import SecretMissing, read_secret
from proveout.core.errors import PlanError
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.operations.facts import Facts, TextQuery
from proveout.dsl.operations.kernel.huge_pages import MEMINFO, HugePages
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


def test_more_huge_pages_than_there_is_memory() -> None:
    known = {
        TextQuery("/proc/sys/vm/nr_hugepages"): "0",
        TextQuery(MEMINFO): "MemTotal: 1048576 kB\nHugepagesize: 2048 kB",
    }
    step = HugePages(pages=600).changes(Facts(known))
    assert step.refusals == ("600 huge pages are 1.2 GiB, but this host has 1.0 GiB of memory",)
    assert not step.changes


def test_a_missing_environment_reference() -> None:
    secret = Secret(name="hlr", kind="env", reference="HLR_PASSWORD")
    with pytest.raises(SecretMissing, match="the environment has no HLR_PASSWORD") as caught:
        read_secret(secret, {})
    assert "export HLR_PASSWORD" in caught.value.way_out
