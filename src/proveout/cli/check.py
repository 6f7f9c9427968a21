"""`proveout check` and `proveout schema`: every problem of a plan at once; the plan format for editors."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from proveout.cli import options
from proveout.cli import outputs as output_files
from proveout.cli.options import (
    RUNS,
    Access,
    AnnotationsOption,
    CodeQuality,
    ForPrograms,
    Inventory,
    Overrides,
    Pki,
    PolicyFile,
    Quiet,
    RunsDir,
    describe,
    file_option,
    parse_overrides,
    show_error,
    typed,
)
from proveout.cli.outputs import Checked
from proveout.core.data_classes import dataclass, field
from proveout.core.errors import PlanError, PlanProblem, Where
from proveout.core.numbers import count_of

if TYPE_CHECKING:
    from proveout.dsl.plan.plan import Plan


CHECK_EPILOG = """
  proveout check plans/hlr-cache-embedded.yaml
  proveout check plans/*.yaml
  proveout check plans/*.yaml --quiet --junit check.xml
  proveout check -p subscribers=200_000 -p measure=30s plans/hlr-cache-embedded.yaml
  proveout check -i inventories/lab.yaml plans/hlr-cache-lab.yaml
  proveout check --connect plans/smoke.yaml
  proveout check --connect --json plans/smoke.yaml | jq '.plans[].problems[].message'
"""

FORMAT = "proveout.check/1"


def check(
    plans: Annotated[list[Path], typer.Argument(metavar="PLAN", help="Plan files.", autocompletion=options.plan_files)],
    *,
    parameters: Overrides = None,
    inventory: Inventory = None,
    connect: Annotated[
        bool, typer.Option("--connect", help="Check hosts, systems, statements and rights too; nothing is changed.")
    ] = False,
    pki: Pki = None,
    policy: PolicyFile = None,
    runs_dir: RunsDir = RUNS,
    as_json: ForPrograms = False,
    junit: Annotated[Path | None, file_option("Write a case for each plan, with its problems, as JUnit XML.")] = None,
    codequality: CodeQuality = None,
    annotations: AnnotationsOption = "auto",
    quiet: Quiet = False,
) -> int:
    """Validate plans: every problem at once, with its line and what was expected.

    Where there are earlier runs of a plan, the changes that its repeats can show are printed, and how likely each
    verdict is decided. A verdict that one repeat cannot decide has a note, and so have a stage that cannot be shown to
    be steady, a reset that removes what SQL has made, and a name that nothing uses. Without --connect nothing is
    started, and nothing is written but files that are named here.
    With it every agent and every running system is checked, as by a run before it changes anything. Exit code 0 when
    all plans are fine, 2 when a plan is wrong, 4 when a host or a system is not as a plan needs it.
    """
    if not connect and (pki is not None or policy is not None):
        raise typer.BadParameter("only together with --connect", param_hint="--pki/--policy")
    outputs = output_files.check_outputs({"junit": junit, "codequality": codequality})
    checking = _Checking(
        overrides=parse_overrides(parameters or []),
        inventory=inventory,
        access=Access(pki=pki, policy=policy, runs_dir=runs_dir) if connect else None,
        runs_dir=runs_dir,
        as_json=as_json,
        quiet=quiet,
    )
    results = [checking.of(path) for path in plans]
    codes = {result["exit_code"] for result in results}
    code = next((one for one in (2, 4) if one in codes), 0)
    if as_json:
        import json

        document = {"format": FORMAT, "exit_code": code, "plans": results}
        typer.echo(json.dumps(document, indent=1, ensure_ascii=False))
    output_files.publish(checking.checked, outputs, annotations, sys.stderr if as_json else sys.stdout)
    return code


@dataclass(kw_only=True)
class _Checking:
    """Checks plans one by one, and shows each result unless it is for programs; `checked` are those so far."""

    overrides: dict[str, str]
    inventory: Path | None
    access: Access | None
    runs_dir: Path
    as_json: bool
    quiet: bool
    checked: list[Checked] = field(default_factory=list)

    def of(self, path: Path) -> dict[str, Any]:
        """Check one plan; the result for programs."""
        from proveout.dsl.compile.compiler import compile_with_notes
        from proveout.dsl.rules import resets
        from proveout.dsl.rules.repeat_rules import hints, overlaps

        try:
            plan, unused = compile_with_notes(path, overrides=self.overrides, inventory=self.inventory)
            if plan.brought_in:
                from proveout.coordinator.report import brought_in

                try:
                    brought_in.section([path.parent / name for name in plan.brought_in])
                except brought_in.NotReadable as fault:
                    where = Where(file=str(path))
                    raise PlanError(
                        (PlanProblem(message=fault.what, where=where, key="report.with", hint=fault.way_out),)
                    ) from None
        except PlanError as error:
            if not self.as_json:
                show_error(error)
            self.checked.append(Checked(file=str(path), problems=error.problems))
            found = list(map(_data, error.problems)) if self.as_json else []
            return {"plan": str(path), "digest": "", "exit_code": error.exit_code, "problems": found}
        notes = (*unused, *hints(plan), *overlaps(plan), *resets.notes(plan))
        result = {"plan": str(path), "digest": plan.digest, "exit_code": 0, "problems": []}
        self.show(notes)
        counts = f"{count_of(len(plan.stages), 'stage')}, {count_of(len(plan.verdicts), 'verdict')}"
        self.say(f"{path}: fine ({counts}, {plan.digest[:19]})")
        for line in _policy_lines(path, plan):
            self.say(line)
        if not (self.as_json or self.quiet):
            for line in _foreseen_lines(plan, self.runs_dir):
                self.say(line)
        if self.access is not None:
            return result | self.connected(path, plan, self.access, notes)
        self.checked.append(Checked(file=str(path), notes=notes))
        return result

    def connected(self, path: Path, plan: Plan, access: Access, notes: Sequence[PlanProblem]) -> dict[str, Any]:
        """Check the hosts and systems of a plan that is fine itself."""
        from proveout.cli.doctor import as_data, as_plan_problem, probe
        from proveout.coordinator.schedule.batches import exit_code

        probed = probe(plan, access)
        errors = [as_plan_problem(problem) for problem in probed.problems if problem.is_error]
        warnings = [as_plan_problem(problem) for problem in probed.problems if not problem.is_error]
        self.checked.append(Checked(file=str(path), problems=errors, notes=(*notes, *warnings)))
        self.show([as_plan_problem(problem) for problem in probed.problems], errors)
        asked = f"{count_of(probed.hosts, 'host')}, {count_of(probed.systems, 'running system')}"
        found = f"{count_of(len(errors), 'problem')}, {count_of(len(warnings), 'warning')}"
        self.say(f"{path}: connected to {asked}: {found if probed.problems else 'nothing is wrong'}")
        data = [as_data(one.where, one.finding, one.hosts, one.system) for one in probed.problems]
        return {"exit_code": exit_code(probed.problems), "problems": data}

    def show(self, found: Sequence[PlanProblem], errors: Sequence[PlanProblem] = ()) -> None:
        """Print notes and problems; when quiet, the errors among them."""
        for one in () if self.as_json else errors if self.quiet else found:
            typer.echo(f"{describe(one)}\n", err=True)

    def say(self, text: str) -> None:
        """Print a line that is no problem."""
        if not (self.as_json or self.quiet):
            typer.echo(text)


def _data(problem: PlanProblem) -> dict[str, Any]:
    from proveout.cli.doctor import as_data
    from proveout.proto.wire.results import CheckFinding

    found = CheckFinding(code="plan", subject=problem.key, message=problem.message, way_out=problem.hint)
    return as_data(problem.where, found)


def _foreseen_lines(plan: Plan, runs_dir: Path) -> Iterator[str]:
    """The power of the plan by its earlier runs; nothing is imported where there are none."""
    if not any(runs_dir.glob(f"{plan.name.strip('-')[:60]}-*")):
        return
    from proveout.coordinator.history.power import earlier_results, foresee, lines

    yield from lines(foresee(plan, earlier_results(plan, runs_dir)))


def _policy_lines(path: Path, plan: Plan) -> Iterator[str]:
    """The policy that the plan's programs need: where it is, and its lines."""
    from proveout.dsl.rules.repeat_rules import programs

    needed: dict[str, dict[str, list[str]]] = {}
    for hosts, _, (name, *arguments) in programs(plan):
        for host in hosts:
            needed.setdefault(host, {}).setdefault(name, []).extend(arguments)
    if not needed:
        return
    from proveout.agent.security.policy import command_line

    alike: dict[tuple[str, ...], list[str]] = {}
    for host, named in needed.items():
        paths = {name: name if name.startswith("/") else f"/path/of/{name}" for name in named}
        lines = (f"    - {command_line(paths[name], arguments)}" for name, arguments in named.items())
        local = plan.host(host).is_local
        where = f"proveout run {typed(path)} --policy FILE" if local else "/etc/proveout/policy.yaml of the host"
        alike.setdefault((where, *lines), []).append(host)
    for (where, *entries), hosts_of in alike.items():
        yield f"  {', '.join(hosts_of)}: needs a policy ({where}) that has under `commands`:"
        yield from entries


EPILOG = """
  proveout schema > plans/plan.schema.json
  proveout schema --result > result.schema.json
  proveout schema --compare > compare.schema.json
A plan's first line points editors at it:
  # yaml-language-server: $schema=plan.schema.json
"""


def schema(
    *,
    result: Annotated[
        bool, typer.Option("--result", help="The schema of `--json` files (proveout.result/1) instead.")
    ] = False,
    compare: Annotated[
        bool, typer.Option("--compare", help="The schema of `compare --json` files (proveout.compare/1) instead.")
    ] = False,
) -> None:
    """Print the JSON Schema of the plan format; editors use it to complete and check plans."""
    if result and compare:
        raise typer.BadParameter("one schema at a time: --result or --compare")
    if compare or result:
        import json

        from proveout.coordinator.report.json_documents import comparison_schema, result_schema

        document = comparison_schema() if compare else result_schema()
        made = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    else:
        from proveout.dsl.compile.json_schema import schema_json

        made = schema_json()
    typer.echo(made, nl=False)
