"""`proveout doctor`: check the software and settings of this machine, and with a plan its hosts and systems.

`check --connect` uses the same checks of hosts and systems.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from proveout.cli import options
from proveout.cli.options import (
    RUNS,
    Access,
    ForPrograms,
    Inventory,
    Overrides,
    Pki,
    PolicyFile,
    RunsDir,
    parse_overrides,
)
from proveout.core.errors import PlanProblem, ProveoutError, Where

if TYPE_CHECKING:
    from proveout.agent.diagnosis import Finding, State
    from proveout.coordinator.agents.preflight import Probed
    from proveout.coordinator.certificates import Credentials
    from proveout.coordinator.schedule.batches import Problem
    from proveout.dsl.plan.plan import Plan
    from proveout.proto.wire.results import CheckFinding


def probe(plan: Plan, access: Access) -> Probed:
    """Check all hosts and running systems; hosts whose certificates are missing are problems too."""
    from dataclasses import replace

    from proveout.cli.run_session import checked_policy, remote_credentials
    from proveout.coordinator.agents import preflight
    from proveout.coordinator.agents.preflight import Reach
    from proveout.coordinator.schedule.batches import problems
    from proveout.core import directories
    from proveout.proto.wire.results import CheckFinding

    credentials: Credentials | None = None
    policy = checked_policy(access.policy)
    found: list[tuple[str, str, CheckFinding]] = []
    try:
        credentials = remote_credentials(plan, access.pki)
    except ProveoutError as fault:
        remote = [one.name for one in plan.hosts if not one.is_local]
        finding = CheckFinding(code="login", subject=f"hosts.{remote[0]}", message=fault.what, way_out=fault.way_out)
        found += [(name, "", finding) for name in remote]
    with directories.make("check") as logs:
        reach = Reach(log_dir=logs, verb="check", credentials=credentials, policy=policy)
        probed = asyncio.run(preflight.probe(plan, reach, access.runs_dir))
    return replace(probed, problems=(*problems(plan, found), *probed.problems))


def as_plan_problem(problem: Problem) -> PlanProblem:
    """The problem with its line of the plan, as `check` shows those of the plan itself."""
    hosts = f"host {', '.join(problem.hosts)}: "
    return PlanProblem(
        message=f"{hosts}{problem.text()}",
        where=problem.where,
        hint=problem.finding.way_out,
        source_line=_line(problem.where),
    )


def as_data(where: Where, finding: CheckFinding, hosts: Sequence[str] = (), system: str = "") -> dict[str, Any]:
    """A problem of a plan, or one of `hosts` or a system, for programs."""
    return {
        "code": finding.code,
        "severity": "warning" if finding.warns else "error",
        "file": where.file,
        "line": where.line,
        "column": where.column,
        "hosts": list(hosts),
        "system": system,
        "subject": finding.subject,
        "message": finding.message,
        "way_out": finding.way_out,
    }


def _line(where: Where) -> str:
    try:
        lines = Path(where.file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return ""
    return lines[where.line - 1] if 0 < where.line <= len(lines) else ""


EPILOG = """
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
            metavar="PLAN", help="Also look at what this plan needs here.", autocompletion=options.plan_files
        ),
    ] = None,
    *,
    parameters: Overrides = None,
    inventory: Inventory = None,
    runs_dir: RunsDir = RUNS,
    pki: Pki = None,
    policy: PolicyFile = None,
    as_json: ForPrograms = False,
) -> None:
    """Check what is installed here, the settings of this machine, and the needs of a plan. Nothing is changed.

    With a plan its agents and running systems are checked too, as by `check --connect`.

    ✓ fine, ! worth a look (it may move figures), – missing and not needed for the plan, ✗ missing. Exit codes: 0
    nothing is missing, 1 something is, 2 the plan or command line is wrong.
    """
    from proveout.agent import diagnosis

    if plan is None:
        options.refuse("only together with a plan", p=parameters, inventory=inventory, pki=pki, policy=policy)
    access = Access(pki=pki, policy=policy, runs_dir=runs_dir)
    of_plan = list(_of_plan(plan, parse_overrides(parameters), inventory, access)) if plan is not None else []
    found = [
        *diagnosis.machine(),
        diagnosis.runs_folder(runs_dir),
        *diagnosis.measured(),
        *diagnosis.program(),
        *of_plan,
        *diagnosis.equipment(),
    ]
    code = MISSING if any(one.state == "missing" for one in found) else 0
    typer.echo(_json(found, code) if as_json else "\n".join(_lines(found)))
    raise typer.Exit(code)


def _of_plan(path: Path, overrides: dict[str, str], inventory: Path | None, access: Access) -> Iterator[Finding]:
    from proveout.cli.screen_services import tunes_here
    from proveout.dsl.compile.compiler import compile_plan

    plan = compile_plan(path, overrides=overrides, inventory=inventory)
    yield _finding(str(path), "ok", plan.title or plan.name)
    yield from _programs(plan)
    yield from _connections(plan)
    needed = list(_credentials(plan, access.pki))
    yield from needed
    if any(one.state == "missing" for one in needed):
        names = ", ".join(host.name for host in plan.hosts)
        way_out = "give the run what is missing, and call `proveout doctor` again"
        yield _finding("agents", "note", f"not checked: {names}", way_out)
    else:
        yield from _connected(plan, access)
    if tunes_here(plan):
        way_out = (
            "give the run --policy FILE, which the owner of this machine has written; without one nothing is changed"
        )
        yield _finding("tuning", "note", "the plan changes settings of this machine", way_out)


def _finding(name: str, state: State, detail: str, way_out: str = "") -> Finding:
    from proveout.agent.diagnosis import Finding

    return Finding(area="plan", name=name, state=state, detail=detail, way_out=way_out)


def _programs(plan: Plan) -> Iterator[Finding]:
    """Drivers, servers and programs that agents of this machine need, and Ray; the first step of a run checks the other
    hosts. Load and most captures need a driver on the agent's host."""
    from importlib.util import find_spec
    from shutil import which

    from proveout.agent import diagnosis
    from proveout.core import errors
    from proveout.dsl.plan.stages import Ladder, Search, Tool

    local = {host.name for host in plan.hosts if host.is_local}
    if local:
        yield from (diagnosis.drives(engine) for engine in sorted({system.engine for system in plan.systems}))
    started = {
        (one.engine, one.version or 0) for one in plan.systems if one.provision == "embedded" and one.host in local
    }
    yield from (found for engine, one in sorted(started) if (found := diagnosis.starts(engine, one or None)))
    if any(isinstance(stage, Ladder | Search) and stage.pool.kind == "ray" for stage in plan.stages):
        if find_spec("ray") is not None:
            yield _finding("Ray", "ok", "installed")
        else:
            way_out = f"{errors.install_command('proveout[ray]')} on every client host"
            yield _finding("Ray", "missing", "a stage has a Ray pool", way_out)
    if any(isinstance(stage, Tool) and local & set(stage.clients) for stage in plan.stages):
        if (path := which("fio")) is not None:
            yield _finding("fio", "ok", path)
        else:
            yield _finding("fio", "missing", "a stage runs it here", "apt install fio, or dnf install fio")


def _connections(plan: Plan) -> Iterator[Finding]:
    from proveout.agent import diagnosis
    from proveout.dsl.plan.loads import connections, targets
    from proveout.dsl.plan.stages import Ladder, Search

    clients = {host.name for host in plan.hosts if host.is_local}
    counts = [
        sum(max(connections(stage, name)) for name in targets(stage))
        for stage in plan.stages
        if isinstance(stage, Ladder | Search) and clients & set(stage.clients)
    ]
    if not counts:
        return
    most, limit = max(counts), diagnosis.open_files()
    short = 0 <= limit < most + FILES_BESIDE
    detail = f"up to {most:,} connections, {limit:,} files may be open"
    way_out = f"ulimit -n {most + FILES_BESIDE}" if short else ""
    yield _finding("open files", "missing" if short else "ok", detail, way_out)


def _credentials(plan: Plan, pki: Path | None) -> Iterator[Finding]:
    """The secrets of the plan, and the certificate that hosts with a remote agent require."""
    from proveout.agent.diagnosis import tried
    from proveout.cli.run_session import remote_credentials
    from proveout.coordinator.agents.endpoints import read_secret

    needed: dict[str, Callable[[], object]] = {
        f"secret {secret.name}": partial(read_secret, secret, os.environ) for secret in plan.secrets
    }
    if not all(host.is_local for host in plan.hosts):
        needed["certificates"] = partial(remote_credentials, plan, pki)
    for name, read in needed.items():
        yield tried(name, read, "can be read")


def _connected(plan: Plan, access: Access) -> Iterator[Finding]:
    probed = probe(plan, access)
    for one in probed.problems:
        state: State = "missing" if one.is_error else "note"
        name = one.system or ", ".join(one.hosts)
        yield _finding(name, state, f"{one.where}: {one.text()}", one.finding.way_out)
    if not probed.problems:
        detail = f"{probed.hosts} checked, and {probed.systems} running systems; see `proveout check --connect`"
        yield _finding("agents", "ok", detail)


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
