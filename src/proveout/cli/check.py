"""`proveout check`: every problem of a plan at once, with `--connect` those of its hosts and systems too."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from proveout.cli.common import completion
from proveout.cli.common.options import Inventory, Overrides, Pki, PolicyFile, RunsDir, parse_overrides

if TYPE_CHECKING:
    from proveout.cli.common.connected import Access
    from proveout.core.errors import PlanProblem
    from proveout.dsl.plan.plan import Plan

EPILOG = """Examples:

  proveout check plans/hlr-cache-embedded.yaml

  proveout check plans/*.yaml

  proveout check -p subscribers=200_000 -p measure=30s plans/hlr-cache-embedded.yaml

  proveout check -i inventories/lab.yaml plans/hlr-cache-lab.yaml

  proveout check --connect plans/smoke.yaml

  proveout check --connect --json plans/smoke.yaml | jq '.plans[].problems[].message'
"""

FORMAT = "proveout.check/1"


def check(
    plans: Annotated[
        list[Path], typer.Argument(metavar="PLAN...", help="Plan files.", autocompletion=completion.plan_files)
    ],
    *,
    parameters: Overrides = None,
    inventory: Inventory = None,
    connect: Annotated[
        bool, typer.Option("--connect", help="Check hosts, systems, statements and rights too; nothing is changed.")
    ] = False,
    pki: Pki = None,
    policy: PolicyFile = None,
    runs_dir: RunsDir = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> int:
    """Validate plans: every problem at once, with its line and what was expected.

    A verdict that one repeat cannot decide has a note, and so have a stage that cannot be shown to be
    steady and a reset that removes what SQL has made. Without --connect nothing is started and nothing is written.
    With it every agent and every running system is checked, as by a run before it changes anything. Exit code 0 when
    all plans are fine, 2 when a plan is wrong, 4 when a host or a system is not as a plan needs it.
    """
    from proveout.cli.common.connected import Access

    if not connect and (pki is not None or policy is not None or runs_dir is not None):
        raise typer.BadParameter("only together with --connect", param_hint="--pki/--policy/--runs-dir")
    access = Access(pki=pki, policy=policy, runs_dir=runs_dir) if connect else None
    results = [_check(path, parse_overrides(parameters or []), inventory, access, as_json=as_json) for path in plans]
    codes = {result["exit_code"] for result in results}
    code = next((one for one in (2, 4) if one in codes), 0)
    if as_json:
        import json

        document = {"format": FORMAT, "exit_code": code, "plans": results}
        typer.echo(json.dumps(document, indent=1, ensure_ascii=False))
    return code


def _check(
    path: Path, overrides: dict[str, str], inventory: Path | None, access: Access | None, *, as_json: bool
) -> dict[str, Any]:
    """Check one plan, and show the result; the same for programs."""
    from proveout.cli.common.messages import describe, show_error
    from proveout.core.errors import PlanError
    from proveout.dsl.compile.compiler import compile_with_notes
    from proveout.dsl.rules.load_rules import overlaps
    from proveout.dsl.rules.repeat_rules import hints
    from proveout.dsl.rules.resets import removed_ddl

    try:
        plan, found_notes = compile_with_notes(path, overrides=overrides, inventory=inventory)
    except PlanError as error:
        if not as_json:
            show_error(error)
        found = [_data(problem) for problem in error.problems]
        return {"plan": str(path), "digest": "", "exit_code": error.exit_code, "problems": found}
    notes = (*found_notes, *hints(plan), *overlaps(plan), *removed_ddl.notes(plan))
    result = {"plan": str(path), "digest": plan.digest, "exit_code": 0, "problems": []}
    if not as_json:
        for note in notes:
            typer.echo(f"{describe(note)}\n", err=True)
        counts = f"{_count(len(plan.stages), 'stage')}, {_count(len(plan.verdicts), 'verdict')}"
        typer.echo(f"{path}: fine ({counts}, {plan.digest[:19]})")
    return result if access is None else result | _connected(path, plan, access, as_json=as_json)


def _connected(path: Path, plan: Plan, access: Access, *, as_json: bool) -> dict[str, Any]:
    from proveout.cli.common.connected import as_data, as_plan_problem, probe
    from proveout.cli.common.messages import describe
    from proveout.coordinator.schedule.preflight.findings import exit_code

    probed = probe(plan, access)
    if not as_json:
        for problem in probed.problems:
            typer.echo(f"{describe(as_plan_problem(problem))}\n", err=True)
        asked = f"{_count(probed.hosts, 'host')}, {_count(probed.systems, 'running system')}"
        errors = sum(problem.is_error for problem in probed.problems)
        warnings = len(probed.problems) - errors
        found = f"{_count(errors, 'problem')}, {_count(warnings, 'warning')}" if probed.problems else "nothing is wrong"
        typer.echo(f"{path}: connected to {asked}: {found}")
    return {"exit_code": exit_code(probed.problems), "problems": [as_data(one) for one in probed.problems]}


def _data(problem: PlanProblem) -> dict[str, Any]:
    return {
        "code": "plan",
        "severity": "error",
        "file": problem.where.file,
        "line": problem.where.line,
        "column": problem.where.column,
        "hosts": [],
        "system": "",
        "subject": problem.key,
        "message": problem.message,
        "way_out": problem.hint,
    }


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
