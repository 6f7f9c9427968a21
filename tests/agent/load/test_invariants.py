"""Invariants that cannot be checked. Those of the built-in workloads, held and broken, are in `test_workloads_on_engines`
and `test_tprocc_load`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import apsw
import pytest

from proveout.agent.daemon.tasks import TaskContext
from proveout.agent.errors import TaskFault
from proveout.agent.load import invariants
from proveout.dsl.workloads.kinds import build
from proveout.proto.wire.tasks import CheckInvariants, Endpoint

from .conftest import workload_of

PREPAID = workload_of("prepaid", population=100)


@pytest.mark.parametrize(
    ("file", "code", "why"),
    [
        ("data.db", "invalid", r"cannot check the invariants.*no such table"),
        ("none.db", "unreachable", r"cannot check the invariants of db .sqlite."),
    ],
)
async def test_a_database_without_tables_and_one_that_is_not_there(
    task_context: TaskContext, tmp_path: Path, file: str, code: str, why: str
) -> None:
    apsw.Connection(str(tmp_path / "data.db")).close()
    endpoint = Endpoint(system="db", engine="sqlite", dsn=str(tmp_path / file))
    with pytest.raises(TaskFault, match=why) as fault:
        await invariants.check_invariants(task_context, CheckInvariants(workload=PREPAID, endpoint=endpoint))
    assert fault.value.code == code


def test_both_numbers_are_the_evidence() -> None:
    (one, *_) = build(PREPAID).invariants
    named = replace(one, left="sum of balances", right="initial")
    assert invariants.judged(named, (30, 30)).evidence == "sum of balances 30 = initial 30"
    broken = invariants.judged(named, (30, 1_031))
    assert (broken.holds, broken.evidence) == (False, "sum of balances 30 is not initial 1,031")
