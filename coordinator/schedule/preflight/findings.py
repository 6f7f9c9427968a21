"""Answers to preflight checks -> problems with their places in the plan, and the exit code. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from proveout.core.data_classes import dataclass
from proveout.core.errors import NOWHERE, Where
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.positions import position
from proveout.proto.wire.check_results import PLAN_FINDINGS, Checked, CheckFinding
from proveout.proto.wire.results import TaskError, TuningDone
from proveout.proto.wire.tasks import ApplyTuning, CheckSystem, TaskSpec

PLAN_WRONG, INFRASTRUCTURE_FAILED = 2, 4
_REFUSED = frozenset({"refused", "failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A finding with its place: `hosts` are those of which the agents have it, `system` is "" for one of a host."""

    where: Where
    hosts: tuple[str, ...]
    system: str
    finding: CheckFinding

    @property
    def is_error(self) -> bool:
        """Whether the run does not begin."""
        return not self.finding.warns

    def line(self) -> str:
        """All of it on one line, but for the hosts: `file:line:col: system db: what (way out)`."""
        place = f"{self.where}: " if self.where != NOWHERE else ""
        way_out = f" ({self.finding.way_out})" if self.finding.way_out else ""
        return f"{place}{self.text()}{way_out}"

    def text(self) -> str:
        """The message, with the system."""
        named = not self.system or self.system in self.finding.message
        return self.finding.message if named else f"system {self.system}: {self.finding.message}"


def of_result(spec: TaskSpec, result: Checked | TuningDone) -> tuple[CheckFinding, ...]:
    """The findings of an answer."""
    if isinstance(result, Checked):
        return result.findings
    return tuple(
        CheckFinding(
            code="tuning", subject=f"tuning.{state.name}", message=f"tuning {state.name}: {'; '.join(state.lines)}"
        )
        for state in result.states
        if state.outcome in _REFUSED and isinstance(spec, ApplyTuning)
    )


def of_failure(spec: TaskSpec, error: TaskError) -> CheckFinding:
    """The finding of a check that has failed: its system does not answer, or its agent cannot do it."""
    subject = f"systems.{spec.endpoint.system}" if isinstance(spec, CheckSystem) else ""
    code = "unreachable" if error.code == "unreachable" else "missing"
    if isinstance(spec, ApplyTuning):
        code, subject = "tuning", f"tuning.{spec.tunings[0].name}" if spec.tunings else ""
    return CheckFinding(code=code, subject=subject, message=error.message, way_out=error.way_out)


def system_of(spec: TaskSpec) -> str:
    """The system of a check; "" for a host."""
    return spec.endpoint.system if isinstance(spec, CheckSystem) else ""


def problems(plan: Plan, found: Iterable[tuple[str, str, CheckFinding]]) -> tuple[Problem, ...]:
    """The findings of (host, system) in the order of the plan, each once for all hosts that have it."""
    together: dict[tuple[str, CheckFinding], list[str]] = {}
    for host, system, answer in found:
        finding = _in_words_of(plan, system, answer)
        hosts = together.setdefault((system, finding), [])
        if host not in hosts:
            hosts.append(host)
    places = [
        Problem(where=_where(plan, system, finding, hosts[0]), hosts=tuple(hosts), system=system, finding=finding)
        for (system, finding), hosts in together.items()
    ]
    return tuple(sorted(_not_doubled(places), key=lambda one: (one.where.file, one.where.line, one.where.column)))


def _in_words_of(plan: Plan, system: str, finding: CheckFinding) -> CheckFinding:
    """A finding with what its agent does not know: the places of the secrets of a failed login, and the parameter that
    gives a ladder its rungs."""
    names: list[str] = []
    if finding.code == "login" and system:
        dsn = plan.system(system).dsn or ""
        names = [f"its secret is from {one.reference}" for one in plan.secrets if f"${{secrets.{one.name}}}" in dsn]
    if finding.code == "connections":
        rungs = next((getattr(one, "threads", ()) for one in plan.stages if finding.subject == f"stages.{one.id}"), ())
        names = [f"the rungs are -p {one.name}=…" for one in plan.parameters if rungs and one.value == rungs]
    if not names or not finding.way_out or finding.way_out.endswith("."):
        return finding
    return replace(finding, way_out="; ".join((finding.way_out, *names)))


def _where(plan: Plan, system: str, finding: CheckFinding, host: str) -> Where:
    engine = plan.system(system).engine if system else ""
    where = position(plan, finding.subject, engine, finding.line)
    if where == NOWHERE and ".session." in finding.subject and system:
        where = position(plan, f"systems.{system}", engine)
    return where if where != NOWHERE else position(plan, f"hosts.{host}")


def _not_doubled(found: Sequence[Problem]) -> Iterator[Problem]:
    """Without findings at the same place with the same words of several loads."""
    seen: set[tuple[Where, str, tuple[str, ...]]] = set()
    for one in found:
        key = (one.where, one.text(), one.hosts)
        if key not in seen:
            seen.add(key)
            yield one


def exit_code(found: Iterable[Problem]) -> int:
    """2 where the plan is the cause of an error, so that another attempt cannot help; else 4; 0 without errors."""
    codes = {one.finding.code for one in found if one.is_error}
    if not codes:
        return 0
    return PLAN_WRONG if codes & PLAN_FINDINGS else INFRASTRUCTURE_FAILED
