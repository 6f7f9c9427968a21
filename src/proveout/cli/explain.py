"""`proveout explain`: show the effects of a plan without running it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from proveout.cli.options import (
    RUNS,
    ForPrograms,
    Inventory,
    Overrides,
    Pki,
    PlanFile,
    PolicyFile,
    RunsDir,
    parse_overrides,
)
from proveout.core.numbers import number, safe_lines

if TYPE_CHECKING:
    from proveout.coordinator.agents.preflight import HostAnswer
    from proveout.dsl.plan.plan import Plan

EPILOG = """
  proveout explain plans/hlr-cache-embedded.yaml
  proveout explain -p threads=1,2,4,8,16,32 plans/hlr-cache-embedded.yaml
  proveout explain --json plans/smoke.yaml | jq .seconds
  proveout explain --facts --pki ~/pki plans/hlr-cache-lab.yaml
"""


def explain(
    plan: PlanFile,
    *,
    parameters: Overrides = None,
    inventory: Inventory = None,
    as_json: ForPrograms = False,
    facts: Annotated[
        bool, typer.Option("--facts", help="Ask the hosts' agents what tunings would change, and whether faults could.")
    ] = False,
    pki: Pki = None,
    policy: PolicyFile = None,
    runs_dir: RunsDir = RUNS,
) -> None:
    """Show what would run: stages, rungs, repeats and hosts, tasks and privileges, settings, estimated time, digest.

    Where there are earlier runs of the plan, it shows which changes the plan's repeats can show, and how likely each
    verdict is decided; where `proveout noise` has measured a ladder, what more repeats would show.

    Nothing is changed. Without --facts nothing is started or connected to either; with it the agents of the hosts that
    are tuned read what is there and tell the difference.
    """
    import json

    from proveout.coordinator import noise as coordinator_noise
    from proveout.coordinator.history import power
    from proveout.coordinator.report import history_documents
    from proveout.dsl.compile.compiler import compile_plan
    from proveout.dsl.explain.text import render
    from proveout.dsl.explain.timetable import timetable
    from proveout.dsl.plan.plan import to_data

    compiled = compile_plan(plan, overrides=parse_overrides(parameters or []), inventory=inventory)
    if not facts and (pki is not None or policy is not None):
        raise typer.BadParameter("only together with --facts, which queries agents", param_hint="--pki/--policy")
    answers = _asked(compiled, pki, policy) if facts else ()
    table = timetable(compiled)
    records = tuple(coordinator_noise.records(runs_dir))
    foreseen = power.foresee(compiled, power.earlier_results(compiled, runs_dir))
    if as_json:
        document = to_data(table) | ({"facts": to_data(answers)} if facts else {})
        document |= {"foreseen": to_data(foreseen)} if foreseen.runs else {}
        document |= {"noise": noise} if (noise := history_documents.explain_data(compiled, records)) else {}
        typer.echo(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        shown = ["", "changes that the repeats can show (in 80 of 100 runs)"]
        shown += [f"  {line}" for line in history_documents.explain_lines(compiled, records)]
        parts = [
            render(table),
            *_client_lines(compiled),
            *(line if place else f"\n{line}" for place, line in enumerate(power.lines(foreseen))),
            *(shown if shown[2:] else ()),
            *_lines(answers),
        ]
        typer.echo(safe_lines("\n".join(parts)))
    if any(one.problem or any(state.outcome == "refused" for state in one.states) for one in answers):
        raise typer.Exit(4)


def _asked(plan: Plan, pki: Path | None, policy: Path | None) -> tuple[HostAnswer, ...]:
    import asyncio
    import os

    from proveout.cli.run_session import checked_policy, remote_credentials
    from proveout.coordinator.agents.endpoints import external_endpoints
    from proveout.coordinator.agents.preflight import Reach, ask
    from proveout.core import directories
    from proveout.dsl.plan.stages import Ladder

    where = checked_policy(policy)
    credentials = remote_credentials(plan, pki)
    faults = (fault for stage in plan.stages if isinstance(stage, Ladder) for fault in stage.faults)
    tunings = (*plan.tunings, *(tuning for fault in faults for tuning in fault.tunings))
    external = external_endpoints(plan, os.environ) if any(tuning.system for tuning in tunings) else {}
    with directories.make("explain") as logs:
        return asyncio.run(ask(plan, Reach(log_dir=logs, credentials=credentials, policy=where, external=external)))


def _client_lines(plan: Plan) -> Iterator[str]:
    """The ceilings of this machine's load generator, where they were measured, beside the rates that the plan offers
    from it."""
    from proveout.agent.diagnosis import rate_findings
    from proveout.agent.load import ceiling_store
    from proveout.coordinator.schedule.preflight import offered_rates

    title = "\nload generator of this machine, by `proveout ceiling`\n"
    for engine in dict.fromkeys(system.engine for system in plan.systems):
        if figures := ceiling_store.known(engine).text(number):
            yield f"{title}  {engine}: at most {figures}"
            title = ""
    for host in (one.name for one in plan.hosts if one.is_local):
        for rate in offered_rates(plan, host):
            yield from (f"  warning: {rate.subject}: {found.message}" for found in rate_findings(rate))


def _lines(answers: Sequence[HostAnswer]) -> Iterator[str]:
    """The difference, host by host."""
    if answers:
        yield "\ntuning and faults, as the hosts are now"
    for answer in answers:
        yield f"  {answer.host}"
        if answer.problem:
            yield f"    not available: {answer.problem}"
        for state in answer.states:
            yield f"    {state.name} ({state.operation}): {state.outcome.replace('_', ' ')}"
            yield from (f"      {line}" for line in state.lines)
