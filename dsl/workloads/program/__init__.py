"""The workload kind `program`: another load generator, such as pgbench or HammerDB, in place of our own."""

from __future__ import annotations

from collections.abc import Iterator

from proveout.dsl.extensions import WorkloadExtension
from proveout.dsl.workloads.program.parameters import TARGET, TARGET_FIELDS, TRANSACTION, Program, minutes_problem


def _load_problem(model: Program, engine: str) -> str | None:
    given = TARGET_FIELDS.get(engine)
    if given is None:
        return f"a program cannot take its target from the dsn of {engine}"
    lacking = sorted(model.fields & {*TARGET} - {*given})
    if not lacking:
        return None
    there = ", ".join(f"{{{name}}}" for name in given) or "no field"
    return f"the argument {{{lacking[0]}}} has no value, as the dsn of {engine} gives {there}"


def _stage_problems(model: Program, has_rate: bool, clients: int, ramp_up_s: float, measure_s: float) -> Iterator[str]:
    takes_rate = bool(model.fields & {"rate", "total_rate"})
    if has_rate and not takes_rate:
        yield "the stage has a rate, and no argument of its program has {rate}"
    if takes_rate and not has_rate:
        yield "an argument of its program has {rate}, and the stage no `rate`"
    if problem := minutes_problem(model, ramp_up_s, measure_s):
        yield problem
    alone = [name for name, hosts in model.values_over_hosts.items() if hosts == "one"]
    if clients > 1 and alone and model.metrics:
        yield f"`{alone[0]}` is a number of one client host, and the load has {clients}: give the metric `hosts`"


KIND = WorkloadExtension(
    parameters=Program,
    transactions=lambda _: (TRANSACTION,),
    build="proveout.dsl.workloads.program.workload:build",
    writes=lambda model: model.writes,
    populates=lambda _: False,
    load_problem=_load_problem,
    own_arrival=True,
    values=lambda model: model.values_over_hosts,
    stage_problems=_stage_problems,
)
