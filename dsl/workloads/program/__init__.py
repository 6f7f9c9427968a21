"""The workload kind `program`: another load generator, such as pgbench or sysbench, in place of our own."""

from __future__ import annotations

from proveout.dsl.extensions import WorkloadExtension
from proveout.dsl.workloads.program.parameters import ENGINES, TRANSACTION, Program


def _load_problem(model: Program, engine: str) -> str | None:
    if engine in ENGINES:
        return None
    return f"a program runs on systems of {' and '.join(ENGINES)} in this release, not on {engine}"


KIND = WorkloadExtension(
    parameters=Program,
    transactions=lambda _: (TRANSACTION,),
    build="proveout.dsl.workloads.program.workload:build",
    writes=lambda model: model.writes,
    populates=lambda _: False,
    load_problem=_load_problem,
    own_arrival=True,
)
