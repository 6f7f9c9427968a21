"""Check the hosts and systems of a plan, for `check --connect` and `doctor`: credentials, agents, findings."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proveout.core.data_classes import dataclass
from proveout.core.errors import PlanProblem, ProveoutError, Where

if TYPE_CHECKING:
    from proveout.coordinator.agents.preflight import Probed
    from proveout.coordinator.pki.certificates import Credentials
    from proveout.coordinator.schedule.preflight.findings import Problem
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

    from proveout.cli.common.run_session import checked_policy
    from proveout.coordinator.agents import preflight
    from proveout.coordinator.agents.dry_run import Reach
    from proveout.coordinator.schedule.preflight.findings import problems
    from proveout.coordinator.storage import run_directory
    from proveout.core import private_directory
    from proveout.proto.wire.check_results import CheckFinding

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
    with private_directory.make("check") as logs:
        reach = Reach(log_dir=logs, verb="check", credentials=credentials, policy=policy)
        probed = asyncio.run(preflight.probe(plan, reach, root))
    return replace(probed, problems=(*problems(plan, found), *probed.problems))


def _credentials(plan: Plan, pki: Path | None) -> Credentials | None:
    from proveout.cli.common.run_session import PKI_VARIABLE, remote_credentials

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
