"""`proveout doctor`: check the software and settings of this machine, and with a plan its hosts and systems.

`check --connect` uses the same checks of hosts and systems.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from proveout.cli import options
from proveout.cli.options import Inventory, Overrides, PolicyFile, RunsDir, parse_overrides
from proveout.core.data_classes import dataclass
from proveout.core.errors import PlanProblem, ProveoutError, Where

if TYPE_CHECKING:
    from proveout.agent.diagnosis import Finding
    from proveout.coordinator.agents.preflight import Probed
    from proveout.coordinator.certificates import Credentials
    from proveout.coordinator.schedule.batches import Problem
    from proveout.dsl.plan.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Credentials and folders that the command line names."""

    pki: Path | None = None
    policy: Path | None = None
    runs_dir: Path | None = None


def probe(plan: Plan, access: Access) -> Probed:
    """Check all hosts and running systems; hosts whose certificates are missing are problems too."""
    from dataclasses import replace

    from proveout.cli.run_session import checked_policy
    from proveout.coordinator.agents import preflight
    from proveout.coordinator.agents.preflight import Reach
    from proveout.coordinator.schedule.batches import problems
    from proveout.coordinator.storage import run_directory
    from proveout.core import directories
    from proveout.proto.wire.results import CheckFinding

    credentials: Credentials | None = None
    policy = checked_policy(access.policy)
    found: list[tuple[str, str, CheckFinding]] = []
    try:
        credentials = _credentials(plan, access.pki)
    except ProveoutError as fault:
        remote = [one.name for one in plan.hosts if not one.is_local]
        finding = CheckFinding(code="login", subject=f"hosts.{remote[0]}", message=fault.what, way_out=fault.way_out)
        found += [(name, "", finding) for name in remote]
    root = run_directory.runs_directory(access.runs_dir, os.environ)
    with directories.make("check") as logs:
        reach = Reach(log_dir=logs, verb="check", credentials=credentials, policy=policy)
        probed = asyncio.run(preflight.probe(plan, reach, root))
    return replace(probed, problems=(*problems(plan, found), *probed.problems))


def _credentials(plan: Plan, pki: Path | None) -> Credentials | None:
    from proveout.cli.run_session import PKI_VARIABLE, remote_credentials

    return remote_credentials(plan, str(pki) if pki is not None else os.environ.get(PKI_VARIABLE))


def as_plan_problem(problem: Problem) -> PlanProblem:
    """The problem with its line of the plan, as `check` shows those of the plan itself."""
    hosts = f"host {', '.join(problem.hosts)}: "
    return PlanProblem(
        message=f"{hosts}{problem.text()}",
        where=problem.where,
        hint=problem.finding.way_out,
        source_line=_line(problem.where),
    )


def as_data(problem: Problem) -> dict[str, Any]:
    """The problem for programs."""
    return {
        "code": problem.finding.code,
        "severity": "error" if problem.is_error else "warning",
        "file": problem.where.file,
        "line": problem.where.line,
        "column": problem.where.column,
        "hosts": list(problem.hosts),
        "system": problem.system,
        "subject": problem.finding.subject,
        "message": problem.finding.message,
        "way_out": problem.finding.way_out,
    }


def _line(where: Where) -> str:
    try:
        lines = Path(where.file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return ""
    return lines[where.line - 1] if 0 < where.line <= len(lines) else ""


EPILOG = """Examples:

  proveout doctor

  proveout doctor plans/hlr-mysql.yaml

  proveout doctor --json | jq '.findings[] | select(.state == "note")'
"""

FORMAT = "proveout.doctor/1"
MISSING = 1
SIGNS = {"ok": "✓", "note": "!", "absent": "–", "missing": "✗"}
NAME_MAX = 28
FILES_BESIDE = 200
"""Open files of a load process other than connections: libraries, pipes, logs; with a margin."""


def doctor(
    plan: Annotated[
        Path | None,
        typer.Argument(
            metavar="[PLAN]", help="Also look at what this plan needs here.", autocompletion=options.plan_files
        ),
    ] = None,
    *,
    parameters: Overrides = None,
    inventory: Inventory = None,
    runs_dir: RunsDir = None,
    pki: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The coordinator's certificate [default: $PROVEOUT_PKI].")
    ] = None,
    policy: PolicyFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Check what is installed here, the settings of this machine, and the needs of a plan. Nothing is changed.

    With a plan its agents and running systems are checked too, as by `check --connect`.

    ✓ fine, ! worth a look (it may move figures), – missing and not needed for the plan, ✗ missing. Exit codes: 0
    nothing is missing, 1 something is, 2 the plan or command line is wrong.
    """
    from proveout.agent import diagnosis
    from proveout.coordinator.storage import run_directory

    folder = run_directory.runs_directory(runs_dir, os.environ)
    access = Access(pki=pki, policy=policy, runs_dir=runs_dir)
    of_plan = list(_of_plan(plan, parse_overrides(parameters), inventory, access)) if plan is not None else []
    found = [
        *diagnosis.program(),
        *diagnosis.equipment(),
        *diagnosis.machine(),
        diagnosis.runs_folder(folder),
        *diagnosis.measured(),
        *of_plan,
    ]
    code = MISSING if any(one.state == "missing" for one in found) else 0
    typer.echo(_json(found, code) if as_json else "\n".join(_lines(found)))
    raise typer.Exit(code)


def _of_plan(path: Path, overrides: dict[str, str], inventory: Path | None, access: Access) -> Iterator[Finding]:
    from proveout.agent.diagnosis import Finding
    from proveout.dsl.compile.compiler import compile_plan

    plan = compile_plan(path, overrides=overrides, inventory=inventory)
    yield Finding(area="plan", name=str(path), state="ok", detail=plan.title or plan.name)
    yield from _drivers(plan)
    yield from _servers(plan)
    yield from _pools(plan)
    yield from _tools(plan)
    yield from _connections(plan)
    needed = [*_secrets(plan), *_certificates(plan, access.pki)]
    yield from needed
    if any(one.state == "missing" for one in needed):
        names = ", ".join(host.name for host in plan.hosts)
        way_out = "give the run what is missing, and call `proveout doctor` again"
        yield Finding(area="plan", name="agents", state="note", detail=f"not checked: {names}", way_out=way_out)
    else:
        yield from _connected(plan, access)
    yield from _changes(plan)


def _drivers(plan: Plan) -> Iterator[Finding]:
    """The drivers of agents that are started here: load and most captures need one on the agent's host."""
    from proveout.agent import diagnosis

    if any(host.is_local for host in plan.hosts):
        yield from (diagnosis.drives(engine) for engine in sorted({system.engine for system in plan.systems}))


def _servers(plan: Plan) -> Iterator[Finding]:
    from proveout.agent import diagnosis

    local = {host.name for host in plan.hosts if host.is_local}
    engines = {one.engine for one in plan.systems if one.provision == "embedded" and one.host in local}
    yield from (found for engine in sorted(engines) if (found := diagnosis.starts(engine)) is not None)


def _pools(plan: Plan) -> Iterator[Finding]:
    from importlib.util import find_spec

    from proveout.agent.diagnosis import Finding
    from proveout.core import errors
    from proveout.dsl.plan.stages import Ladder, Search

    if any(isinstance(stage, Ladder | Search) and stage.pool.kind == "ray" for stage in plan.stages):
        if find_spec("ray") is not None:
            yield Finding(area="plan", name="Ray", state="ok", detail="installed")
        else:
            way_out = f"{errors.install_command('proveout[ray]')} on every client host"
            yield Finding(area="plan", name="Ray", state="missing", detail="a stage has a Ray pool", way_out=way_out)


def _tools(plan: Plan) -> Iterator[Finding]:
    """Outside programs that a stage runs on this machine; the first step of a run checks the other hosts."""
    from shutil import which

    from proveout.agent.diagnosis import Finding
    from proveout.dsl.plan.stages import Tool

    local = {host.name for host in plan.hosts if host.is_local}
    if any(isinstance(stage, Tool) and local & set(stage.clients) for stage in plan.stages):
        path = which("fio")
        if path is not None:
            yield Finding(area="plan", name="fio", state="ok", detail=path)
        else:
            way_out = "apt install fio, or dnf install fio"
            yield Finding(area="plan", name="fio", state="missing", detail="a stage runs it here", way_out=way_out)


def _connections(plan: Plan) -> Iterator[Finding]:
    from proveout.agent import diagnosis
    from proveout.dsl.plan.loads import threads_most
    from proveout.dsl.plan.stages import Ladder, Search

    clients = {host.name for host in plan.hosts if host.is_local}
    counts = [
        threads_most(stage).total()
        for stage in plan.stages
        if isinstance(stage, Ladder | Search) and clients & set(stage.clients)
    ]
    if not counts:
        return
    most, limit = max(counts), diagnosis.open_files()
    short = 0 <= limit < most + FILES_BESIDE
    yield diagnosis.Finding(
        area="plan",
        name="open files",
        state="missing" if short else "ok",
        detail=f"up to {most:,} connections, {limit:,} files may be open",
        way_out=f"ulimit -n {most + FILES_BESIDE}" if short else "",
    )


def _secrets(plan: Plan) -> Iterator[Finding]:
    from proveout.agent.diagnosis import Finding
    from proveout.coordinator.agents.endpoints import read_secret
    from proveout.core.errors import ProveoutError

    for secret in plan.secrets:
        try:
            read_secret(secret, os.environ)
        except ProveoutError as fault:
            name = f"secret {secret.name}"
            yield Finding(area="plan", name=name, state="missing", detail=fault.what, way_out=fault.way_out)
        else:
            yield Finding(area="plan", name=f"secret {secret.name}", state="ok", detail="can be read")


def _certificates(plan: Plan, pki: Path | None) -> Iterator[Finding]:
    """The certificate that hosts with a remote agent require."""
    from proveout.agent.diagnosis import Finding
    from proveout.cli import run_session
    from proveout.core.errors import ProveoutError

    if all(host.is_local for host in plan.hosts):
        return
    try:
        run_session.remote_credentials(plan, str(pki) if pki is not None else os.environ.get(run_session.PKI_VARIABLE))
    except ProveoutError as fault:
        yield Finding(area="plan", name="certificates", state="missing", detail=fault.what, way_out=fault.way_out)
    else:
        yield Finding(area="plan", name="certificates", state="ok", detail="can be read")


def _connected(plan: Plan, access: Access) -> Iterator[Finding]:
    """The checks of a preflight: agents, systems, statements, rights."""
    from proveout.agent.diagnosis import Finding

    probed = probe(plan, access)
    for one in probed.problems:
        yield Finding(
            area="plan",
            name=one.system or ", ".join(one.hosts),
            state="missing" if one.is_error else "note",
            detail=f"{one.where}: {one.text()}",
            way_out=one.finding.way_out,
        )
    if not probed.problems:
        detail = f"{probed.hosts} checked, and {probed.systems} running systems; see `proveout check --connect`"
        yield Finding(area="plan", name="agents", state="ok", detail=detail)


def _changes(plan: Plan) -> Iterator[Finding]:
    from proveout.agent.diagnosis import Finding
    from proveout.cli.home_services import tunes_here

    if tunes_here(plan):
        way_out = (
            "give the run --policy FILE, which the owner of this machine has written; without one nothing is changed"
        )
        detail = "the plan changes settings of this machine"
        yield Finding(area="plan", name="tuning", state="note", detail=detail, way_out=way_out)


def _lines(found: Sequence[Finding]) -> Iterator[str]:
    from proveout.core.numbers import safe_lines

    width = max(len(one.name) for one in found if len(one.name) <= NAME_MAX)
    area = ""
    for one in found:
        if one.area != area:
            yield from ([""] if area else [])
            yield one.area
            area = one.area
        yield safe_lines(f"  {SIGNS[one.state]} {one.name:<{width}}  {one.detail}")
        for line in one.way_out.splitlines():
            yield safe_lines(f"    {'':<{width}}  {line}")
    counted = {state: sum(one.state == state for one in found) for state in ("note", "missing")}
    yield ""
    yield f"{counted['missing'] or 'nothing'} missing, {counted['note'] or 'nothing'} worth a look"


def _json(found: Iterable[Finding], code: int) -> str:
    import json
    from dataclasses import asdict

    document = {"format": FORMAT, "exit_code": code, "findings": [asdict(one) for one in found]}
    return json.dumps(document, indent=1, ensure_ascii=False)
