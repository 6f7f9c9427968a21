"""Rules for each kind of task, checked before an agent starts anything for it.

Flow: the session gets a Task -> `objection(spec)` -> None, or why the task is refused as invalid. The bounds of
numbers, counts and texts are those that the fields of the task, and of the records in it, declare; here are the
relations between fields, and what concerns the host. Those rules are in `dsl.rules`, for the compiler too: a task need
not come from one, so an agent checks it again. A kind of task that is not in `RULES` is refused. Checks that depend on
this host (its policy, the owner of a file) are in the handlers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from types import MappingProxyType
from typing import Any

from proveout.dsl import engines
from proveout.dsl.plan.captures import CAPTURES
from proveout.dsl.plan.commands import NO_COMMAND, Command, MeasuredValue
from proveout.dsl.plan.keys import out_of_bounds
from proveout.dsl.plan.scalars import RATE_MAX, TEXT_MAX
from proveout.dsl.rules import host_rules, ladder_rules, session_settings
from proveout.dsl.rules.host_rules import Objection
from proveout.proto.wire import tasks
from proveout.proto.wire.tasks import Endpoint

SHARES_MAX = 2**31
EXPORTER = "prometheus"
TOOLS = frozenset({"fio"})


def objection(spec: tasks.TaskSpec) -> Objection | None:
    """The first rule that a task breaks; None if it breaks none. Pure."""
    rule = RULES.get(type(spec))
    if rule is None:
        return Objection(message=f"this agent has no rules for {type(spec).__name__}, so it refuses it")
    for path, wrong in out_of_bounds(spec):
        return Objection(message=f"`{'.'.join(map(str, path))}` of {type(spec).__name__} {wrong}")
    return next(chain(_common(spec), rule(spec)), None)


def is_slow_to_check(spec: tasks.TaskSpec) -> bool:
    """Whether `objection` imports models or parses long texts."""
    return isinstance(spec, (tasks.ApplyTuning, tasks.InjectFault)) or hasattr(spec, "workload")


def _common(spec: tasks.TaskSpec) -> Iterator[Objection]:
    """The rules of what many tasks have: systems that they connect to, and a workload."""
    members = isinstance(spec, tasks.RunLoad) and bool(spec.sessions.access)
    if not isinstance(spec, tasks.RunCapture):  # some of its endpoints are exporters
        for end in spec.asked:
            yield from _endpoint(end, members=members)
    workload = getattr(spec, "workload", None)
    if workload is not None:
        yield from host_rules.workload_problems(workload)


def _nothing_more(_: tasks.TaskSpec) -> Iterator[Objection]:
    return iter(())


# ---- systems ---------------------------------------------------------------------------------------------------------


def _start(spec: tasks.StartSystem) -> Iterator[Objection]:
    yield from host_rules.system_problems(spec.system)
    if len(spec.primary) > 1 or bool(spec.primary) != (spec.system.follows is not None):
        message = f"system {spec.system.name} has one primary if it is a standby or a PgBouncer, and else none"
        yield Objection(message=message)
    for end in spec.primary[:1]:
        yield from _endpoint(end)
        if end.system != spec.system.follows or end.engine != spec.system.engine or not end.provisioned:
            yield Objection(message=f"{end.system[:80]} is not the primary of {spec.system.name}, started by an agent")
    if not set(spec.synchronous) <= set(spec.standbys):
        yield Objection(message="a synchronous standby that is not among the standbys")


def _endpoint(end: Endpoint, *, members: bool = False) -> Iterator[Objection]:
    return host_rules.endpoint_problems(
        end.system, end.engine, end.dsn, instances=end.instances, provisioned=end.provisioned, members=members
    )


def _sql(spec: tasks.RunSql) -> Iterator[Objection]:
    if len(spec.wait_until.equals) > TEXT_MAX:
        yield Objection(message=f"a wait for a value that is longer than {TEXT_MAX} characters")
    yield from ladder_rules.query_problems(spec.query, spec.values)


def _check_system(spec: tasks.CheckSystem) -> Iterator[Objection]:
    if not set(spec.uses) <= set(tasks.USES):
        yield Objection(message="uses that are not known")
    for load in spec.loads:
        yield from host_rules.workload_problems(load.workload)
        yield from _session(spec.endpoint.engine, load.session)
    for capture in spec.captures:
        yield from host_rules.capture_problems(capture)
        yield from ladder_rules.query_problems(capture.query, capture.values)
        yield from host_rules.captured_problems(capture.kind, spec.endpoint.engine)


def _tools(names: tuple[str, ...]) -> Iterator[Objection]:
    if not set(names) <= TOOLS:
        yield Objection(message=f"tools other than {', '.join(TOOLS)}")


def _check_host(spec: tasks.CheckHost) -> Iterator[Objection]:
    yield from _tools(spec.tools)
    for system in spec.systems:
        yield from host_rules.system_problems(system)
    for command in spec.commands:
        yield from ladder_rules.argv_problems(command.argv)


def _populate(spec: tasks.PopulateSystem) -> Iterator[Objection]:
    if spec.steps != ("drop",) and (not spec.steps or not set(spec.steps) <= set(tasks.POPULATE_STEPS)):
        yield Objection(message=f"a populate has the steps {', '.join(tasks.POPULATE_STEPS)}, not {spec.steps!r:.80}")
    if not 0 <= spec.share_from < spec.share_to <= spec.shares <= SHARES_MAX:
        share = f"{spec.share_from} to {spec.share_to} of {spec.shares}"
        yield Objection(message=f"the share {share} of a populate is not within 0 to {SHARES_MAX}")


def _link(spec: tasks.LinkSystems | tasks.CompareSystems) -> Iterator[Objection]:
    ends = ((spec.source.system, spec.source.engine), (spec.sink.system, spec.sink.engine))
    if objection := engines.link_objection(*ends):
        yield Objection(message=objection)


def _tuning(spec: tasks.ApplyTuning) -> Iterator[Objection]:
    for tuning in spec.tunings:
        yield from host_rules.tuning_problems(tuning)


def _fault(spec: tasks.InjectFault) -> Iterator[Objection]:
    """A fault, each of its tunings as `_tuning` does; it must be healed, so none of them may be kept."""
    if list(spec.begins_s) != sorted(spec.begins_s):
        yield Objection(message=f"the instants of fault {spec.fault} are not in order")
    for tuning in spec.tunings:
        yield from ladder_rules.change_problems(tuning, spec.for_s)
    for system in spec.systems:
        yield from host_rules.system_problems(system)


# ---- load, tools, captures -------------------------------------------------------------------------------------------


def _load(spec: tasks.RunLoad) -> Iterator[Objection]:
    share = spec.share
    if share.first + share.count > share.total:
        message = f"terminals {share.first} to {share.first + share.count} of {share.total} are not valid"
        yield Objection(message=message)
    highest = RATE_MAX if spec.share.rate is not None else float(spec.share.total)
    yield from ladder_rules.load_problems(spec.share.levels, spec.windows, highest)
    pool = spec.pool
    if pool.address and not host_rules.is_cluster(pool.address):
        yield Objection(
            message=f"{pool.address[:200]!r} is not the address of a Ray cluster", way_out="`auto`, or name:port"
        )
    yield from _session(spec.endpoint.engine, spec.session)
    yield from session_settings.session_problems(spec.endpoint.engine, spec.sessions, len(spec.endpoint.instances))
    if spec.tracked:
        from proveout.dsl.rules.repeat_rules import tracking_problems  # noqa: PLC0415 - agents start faster without it

        yield from tracking_problems(spec.workload, spec.endpoint.engine, spec.sessions, checked=spec.checked)


def _session(engine: str, settings: tuple[tuple[str, str], ...]) -> Iterator[Objection]:
    for name, value in settings:
        if reason := session_settings.objection(engine, name, value):
            yield Objection(message=reason)


def _form_pool(spec: tasks.FormPool) -> Iterator[Objection]:
    for address in (spec.head, spec.towards):
        if address and not host_rules.is_host_and_port(address):
            yield Objection(message=f"{address[:200]!r} is not the address of a Ray node", way_out="name:port")
    if spec.address and not any(
        host_rules.is_host_and_port(f"{name}:1") for name in (spec.address, f"[{spec.address}]")
    ):
        yield Objection(message=f"{spec.address[:200]!r} is not the name or the address of a host")


def _capture(spec: tasks.RunCapture) -> Iterator[Objection]:
    """The wire has a closed set of kinds; each needs its own number of systems."""
    capture = spec.capture
    yield from host_rules.capture_problems(capture)
    if capture.kind == "command" or capture.command != NO_COMMAND:
        yield from _command(capture.command, capture.values)
    else:
        yield from ladder_rules.query_problems(capture.query, capture.values)
    kind = CAPTURES[capture.kind]
    if ("argv" in kind.keys) != bool(capture.command.argv) or (capture.command.argv and capture.query):
        yield Objection(message=f"capture {capture.name} of kind {capture.kind} needs a command, or must have none")
    if ("query" in kind.keys) != bool(capture.query):
        yield Objection(message=f"capture {capture.name} of kind {capture.kind} needs a query, or must have none")
    wanted, given = kind.endpoints, len(spec.endpoints)
    if given != wanted:
        yield Objection(message=f"a capture of kind {capture.kind} needs {wanted} systems, not {given}")
        return
    for end in spec.endpoints:
        yield from _exporter(end) if kind.of == "exporter" else _observed(capture.kind, end)


def _command(command: Command, values: tuple[MeasuredValue, ...]) -> Iterator[Objection]:
    yield from ladder_rules.command_problems(command)
    yield from ladder_rules.many_problems(values)
    if not values:
        yield Objection(message="a command without metrics")


def _observed(kind: str, end: Endpoint) -> Iterator[Objection]:
    yield from _endpoint(end)
    yield from host_rules.captured_problems(kind, end.engine)


def _exporter(end: Endpoint) -> Iterator[Objection]:
    if end.engine != EXPORTER or end.provisioned or end.instances:
        yield Objection(message=f"{end.engine[:80]!r} is not an exporter")
    yield from host_rules.exporter_problems(end.dsn)


# ---- the table -------------------------------------------------------------------------------------------------------

RULES: Mapping[type, Callable[[Any], Iterable[Objection]]] = MappingProxyType(
    {
        tasks.StartSystem: _start,
        tasks.StopSystem: _nothing_more,
        tasks.InspectSystem: _nothing_more,
        tasks.SnapshotSystem: lambda spec: host_rules.copied_problems(spec.system),
        tasks.PopulateSystem: _populate,
        tasks.LinkSystems: _link,
        tasks.CompareSystems: _link,
        tasks.ReadFacts: lambda spec: _tools(spec.tools),
        tasks.CheckInvariants: _nothing_more,
        tasks.CheckSystem: _check_system,
        tasks.CheckHost: _check_host,
        tasks.RunSql: _sql,
        tasks.Checkpoint: _nothing_more,
        tasks.RestoreCopy: _nothing_more,
        tasks.ApplyTuning: _tuning,
        tasks.InjectFault: _fault,
        tasks.FormPool: _form_pool,
        tasks.RunLoad: _load,
        tasks.PrepareFio: lambda spec: host_rules.fio_problems(spec.job),
        tasks.RunFio: lambda spec: host_rules.fio_problems(spec.job),
        tasks.RunCommand: lambda spec: _command(spec.command, spec.values),
        tasks.RunCapture: _capture,
        tasks.RebootHost: _nothing_more,
        tasks.VerifyTuning: _nothing_more,
        tasks.RevertTuning: _nothing_more,
    }
)
