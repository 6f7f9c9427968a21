"""The built-in workloads on a real MariaDB: populated, run by the load, with the mix, the logical failures and the
invariants specified."""

from __future__ import annotations

from typing import Any

import pytest

from proveout.agent.load.invariants import check_invariants
from proveout.agent.load.population.handler import populate
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.workloads.conformance import Seen, conform
from proveout.dsl.workloads.kinds import built_in
from proveout.proto.wire.tasks import CheckInvariants, Endpoint, PopulateSystem

from .conftest import ok, run_until


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        ("hlr", {"population": 1_000, "keys": "nurand"}),
        ("tptbm", {}),
        ("prepaid", {}),
        ("tpcb", {"accounts_per_branch": 1_000}),
        pytest.param("tprocc", {}, marks=pytest.mark.slow),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_workload_runs_as_specified(
    kind: str, parameters: dict[str, Any], mysql_database: str, context: Any, spec: Any
) -> None:
    workload = Workload(
        name=kind, kind=kind, parameters=to_values(built_in(kind).parameters.model_validate(parameters))
    )
    endpoint = Endpoint(system="backend", engine="mysql", dsn=mysql_database)
    await populate(context, PopulateSystem(workload=workload, endpoint=endpoint, workers=1))
    result = await run_until(
        ok, context, spec(mysql_database, engine="mysql", workload=workload, windows=(0.1, 0.4, 0.1))
    )
    counts = [one.counts for one in result.transactions]
    assert sum(one.error_count for one in counts) == 0, result.first_errors
    seen = [Seen(name=one.name, ok=one.ok, logical_failures=one.logical_failures) for one in counts]
    assert [finding for finding in conform(workload, seen) if not finding.ok] == []
    checked = await check_invariants(context, CheckInvariants(endpoint=endpoint, workload=workload))
    assert [check for check in checked.checks if not check.holds] == []
