"""Rules for each kind of task, checked before an agent starts anything for it.

Flow: the session gets a Task -> `objection(spec)` -> None, or why the task is refused as invalid. The rules are those
of `dsl.rules.host_rules`, which the compiler uses too: a task need not come from a compiler, so an agent checks it
again. A kind of task is in `RULES` or in `NOTHING_TO_CHECK`; a kind in neither is refused. Checks that depend on this
host (its policy, the owner of a file) are in the handlers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from proveout.dsl import engines
from proveout.dsl.plan.bounds import RATE_MAX, STANDBYS_MAX, STATEMENTS_MAX, THREADS_MAX, WEEK_S
from proveout.dsl.plan.captures import CAPTURES
from proveout.dsl.plan.commands import NO_COMMAND, NO_WAIT, Command, MeasuredValue
from proveout.dsl.plan.stages import TIMES_MAX
from proveout.dsl.rules import host_rules, ladder_rules, session_settings, value_rules
from proveout.dsl.rules.host_rules import Objection
from proveout.proto.wire import tasks
from proveout.proto.wire.tasks import Endpoint, LoadPool, LoadShare

WORKERS_MAX = 4096
SESSION_MAX = 100
DIRECTORIES_MAX = 1000
TUNINGS_MAX = 500
FAULT_TUNINGS_MAX = 20
CHECKS_MAX = 1000
CHECKED_TEXTS_MAX = 20_000
SLICES_MAX = 1_000_000
SEED_MAX = 2**63
SHARES_MAX = 2**31
LOAD_ID = re.compile("([0-9a-f]{32})?")
PEM_MAX = 65_536
EXPORTER = "prometheus"
TOOLS = frozenset({"fio"})


def objection(spec: tasks.TaskSpec) -> Objection | None:
    """The first rule that a task breaks; None if it breaks none. Pure."""
    if type(spec) in NOTHING_TO_CHECK:
        return None
    rule = RULES.get(type(spec))
    if rule is None:
        return Objection(message=f"this agent has no rules for {type(spec).__name__}, so it refuses it")
    return next(iter(rule(spec)), None)


def is_slow_to_check(spec: tasks.TaskSpec) -> bool:
    """Whether `objection` imports models or parses long texts."""
    return isinstance(spec, (tasks.ApplyTuning, tasks.InjectFault)) or hasattr(spec, "workload")


# ---- systems ---------------------------------------------------------------------------------------------------------


def _start(spec: tasks.StartSystem) -> Iterator[Objection]:
    yield from host_rules.system_problems(spec.system)
    yield from host_rules.text_problems("the folder of a run", spec.data_root)
    if len(spec.primary) > 1 or bool(spec.primary) != (spec.system.follows is not None):
        message = f"system {spec.system.name} has one primary if it is a standby or a PgBouncer, and else none"
        yield Objection(message=message)
    for end in spec.primary[:1]:
        yield from _endpoint(end)
        if end.system != spec.system.follows or end.engine != spec.system.engine or not end.provisioned:
            yield Objection(message=f"{end.system[:80]} is not the primary of {spec.system.name}, started by an agent")
    if len(spec.standbys) > STANDBYS_MAX or not set(spec.synchronous) <= set(spec.standbys):
        yield Objection(message=f"more than {STANDBYS_MAX} standbys, or a synchronous one that is not among them")
    for name in spec.standbys[:STANDBYS_MAX]:
        yield from host_rules.name_problems("system", name)


def _snapshot(spec: tasks.SnapshotSystem) -> Iterator[Objection]:
    yield from host_rules.copied_problems(spec.system)
    yield from host_rules.text_problems("the folder of a run", spec.data_root)


def _stop(spec: tasks.StopSystem) -> Iterator[Objection]:
    yield from host_rules.name_problems("system", spec.system)
    yield from host_rules.text_problems("the folder of a run", spec.data_root)


def _endpoint(end: Endpoint, *, members: bool = False) -> Iterator[Objection]:
    return host_rules.endpoint_problems(
        end.system, end.engine, end.dsn, instances=end.instances, provisioned=end.provisioned, members=members
    )


def _endpoint_only(spec: tasks.InspectSystem | tasks.Checkpoint | tasks.RestoreCopy) -> Iterator[Objection]:
    return _endpoint(spec.endpoint)


def _sql(spec: tasks.RunSql) -> Iterator[Objection]:
    yield from _endpoint(spec.endpoint)
    yield from host_rules.statement_problems(spec.statements, STATEMENTS_MAX)
    if spec.wait_until != NO_WAIT:
        yield from value_rules.wait_problems(spec.wait_until)
    yield from value_rules.query_problems(spec.query, spec.values)


def _invariants(spec: tasks.CheckInvariants) -> Iterator[Objection]:
    yield from _endpoint(spec.endpoint)
    yield from host_rules.workload_problems(spec.workload)


def _check_system(spec: tasks.CheckSystem) -> Iterator[Objection]:
    yield from _endpoint(spec.endpoint)
    if max(len(spec.loads), len(spec.captures)) > CHECKS_MAX or not set(spec.uses) <= set(tasks.USES):
        yield Objection(message=f"more than {CHECKS_MAX} loads or captures to check, or uses that are not known")
    for load in spec.loads[:CHECKS_MAX]:
        yield from host_rules.workload_problems(load.workload)
        yield from _session(spec.endpoint.engine, load.session)
        yield from host_rules.text_problems("the subject of a check", load.subject)
    texts = spec.texts[: CHECKED_TEXTS_MAX + 1]
    if len(texts) > CHECKED_TEXTS_MAX:
        yield Objection(message=f"more than {CHECKED_TEXTS_MAX} statements to check")
    yield from host_rules.statement_problems(tuple(text.text for text in texts), CHECKED_TEXTS_MAX)
    for text in texts:
        yield from host_rules.text_problems("the subject of a check", text.subject)
    for capture in spec.captures[:CHECKS_MAX]:
        yield from host_rules.capture_problems(capture)
        yield from value_rules.query_problems(capture.query, capture.values)
        yield from host_rules.captured_problems(capture.kind, spec.endpoint.engine)


def _check_host(spec: tasks.CheckHost) -> Iterator[Objection]:
    if len(spec.systems) > CHECKS_MAX or not set(spec.tools) <= TOOLS or spec.bytes_min < 0:
        yield Objection(message=f"a check of {len(spec.systems)} systems, or of tools other than {', '.join(TOOLS)}")
    for system in spec.systems[:CHECKS_MAX]:
        yield from host_rules.system_problems(system)
    yield from host_rules.text_problems("the folder of a run", spec.data_root)
    if len(spec.rates) > CHECKS_MAX or not all(0.0 < rate.per_s <= RATE_MAX for rate in spec.rates):
        yield Objection(
            message=f"a check of {len(spec.rates)} rates, or of one that is not above 0 and at most {RATE_MAX:g}/s"
        )
    if len(spec.commands) > CHECKS_MAX:
        yield Objection(message=f"more than {CHECKS_MAX} commands to check")
    for command in spec.commands[:CHECKS_MAX]:
        yield from host_rules.text_problems("the subject of a check", command.subject)
        yield from value_rules.argv_problems(command.argv)
    for rate in spec.rates[:CHECKS_MAX]:
        yield from host_rules.text_problems("the path of a stage", rate.subject)
        yield from host_rules.text_problems("the engine of a load", rate.engine)


def _populate(spec: tasks.PopulateSystem) -> Iterator[Objection]:
    yield from _endpoint(spec.endpoint)
    yield from _workers(spec.workers)
    yield from host_rules.workload_problems(spec.workload)
    if spec.steps != ("drop",) and (not spec.steps or not set(spec.steps) <= set(tasks.POPULATE_STEPS)):
        yield Objection(message=f"a populate has the steps {', '.join(tasks.POPULATE_STEPS)}, not {spec.steps!r:.80}")
    if not 0 <= spec.share_from < spec.share_to <= spec.shares <= SHARES_MAX:
        share = f"{spec.share_from} to {spec.share_to} of {spec.shares}"
        yield Objection(message=f"the share {share} of a populate is not within 0 to {SHARES_MAX}")
    if not LOAD_ID.fullmatch(spec.load):
        yield Objection(message="the id of a load has 32 hexadecimal digits, or is empty")


def _link(spec: tasks.LinkSystems | tasks.CompareSystems) -> Iterator[Objection]:
    for end in (spec.source, spec.sink):
        yield from _endpoint(end)
    ends = ((spec.source.system, spec.source.engine), (spec.sink.system, spec.sink.engine))
    if objection := engines.link_objection(*ends):
        yield Objection(message=objection)
    yield from host_rules.workload_problems(spec.workload)


def _compare(spec: tasks.CompareSystems) -> Iterator[Objection]:
    if not 0.0 <= spec.drain_timeout_s <= WEEK_S:
        yield Objection(message=f"a drain timeout of {spec.drain_timeout_s} s is not valid")
    yield from _link(spec)


def _facts(spec: tasks.ReadFacts) -> Iterator[Objection]:
    if len(spec.directories) > DIRECTORIES_MAX or not set(spec.tools) <= TOOLS:
        yield Objection(
            message=f"facts of {len(spec.directories)} systems (at most {DIRECTORIES_MAX}), or of tools "
            f"other than {', '.join(TOOLS)}"
        )
    for system, directory in spec.directories[:DIRECTORIES_MAX]:
        yield from host_rules.name_problems("system", system)
        yield from host_rules.text_problems("the folder of a run", directory)


def _tuning(spec: tasks.ApplyTuning) -> Iterator[Objection]:
    if len(spec.tunings) > TUNINGS_MAX or len(spec.endpoints) > TUNINGS_MAX:
        yield Objection(message=f"more than {TUNINGS_MAX} tunings or systems")
    for tuning in spec.tunings[:TUNINGS_MAX]:
        yield from host_rules.tuning_problems(tuning)
    for end in spec.endpoints[:TUNINGS_MAX]:
        yield from _endpoint(end)


def _fault(spec: tasks.InjectFault) -> Iterator[Objection]:
    """A fault, each of its tunings as `_tuning` does; it must be healed, so none of them may be kept."""
    yield from host_rules.name_problems("fault", spec.fault)
    yield from host_rules.text_problems("the label of a fault", spec.label)
    yield from host_rules.text_problems("the folder of a run", spec.data_root)
    yield from host_rules.window_problems(spec.windows)
    instants = spec.begins_s[: TIMES_MAX + 1]
    if len(instants) > TIMES_MAX or not all(0.0 <= begins_s <= 2 * WEEK_S for begins_s in instants):
        yield Objection(
            message=f"fault {spec.fault} has instants that are not possible", way_out=f"at most {TIMES_MAX}"
        )
    if not 0.0 <= spec.for_s <= WEEK_S or list(instants) != sorted(instants):
        yield Objection(message=f"fault {spec.fault} lasts {spec.for_s} s, or its instants are not in order")
    if not 0 < len(spec.tunings) <= FAULT_TUNINGS_MAX or max(len(spec.endpoints), len(spec.systems)) > TUNINGS_MAX:
        yield Objection(message=f"a fault has 1 to {FAULT_TUNINGS_MAX} tunings, and at most {TUNINGS_MAX} systems")
    for tuning in spec.tunings[:FAULT_TUNINGS_MAX]:
        yield from ladder_rules.change_problems(tuning, spec.for_s)
    for end in spec.endpoints[:TUNINGS_MAX]:
        yield from _endpoint(end)
    for system in spec.systems[:TUNINGS_MAX]:
        yield from host_rules.system_problems(system)


# ---- load, tools, captures -------------------------------------------------------------------------------------------


def _load(spec: tasks.RunLoad) -> Iterator[Objection]:
    yield from host_rules.window_problems(spec.windows)
    yield from _share(spec.share)
    highest = RATE_MAX if spec.share.rate is not None else float(spec.share.total)
    yield from ladder_rules.load_problems(spec.share.levels, spec.windows, highest)
    yield from _workers(spec.workers)
    yield from _pool(spec.pool)
    yield from host_rules.text_problems("the label of a load", spec.label)
    if not 0 <= spec.seed < SEED_MAX:
        yield Objection(message=f"{spec.seed} is not a valid seed")
    yield from _endpoint(spec.endpoint, members=bool(spec.sessions.access))
    yield from _session(spec.endpoint.engine, spec.session)
    yield from session_settings.session_problems(spec.endpoint.engine, spec.sessions, len(spec.endpoint.instances))
    yield from host_rules.workload_problems(spec.workload)
    if spec.tracked:
        from proveout.dsl.rules.repeat_rules import tracking_problems  # noqa: PLC0415 - agents start faster without it

        yield from tracking_problems(spec.workload, spec.endpoint.engine, spec.sessions, checked=spec.checked)


def _share(share: LoadShare) -> Iterator[Objection]:
    if not (share.first >= 0 and share.count >= 1 and share.first + share.count <= share.total <= THREADS_MAX):
        message = f"terminals {share.first} to {share.first + share.count} of {share.total} are not valid"
        yield Objection(message=message, way_out=f"a load has at most {THREADS_MAX} threads")
    if share.rate is not None and not (math.isfinite(share.rate) and 0.0 <= share.rate <= RATE_MAX):
        yield Objection(message=f"a rate of {share.rate} per second is not valid")
    if share.think_s is not None and not 0.0 <= share.think_s <= WEEK_S:
        yield Objection(message=f"a think time of {share.think_s} s is not valid")


def _workers(workers: int) -> Iterator[Objection]:
    if not 0 <= workers <= WORKERS_MAX:
        yield Objection(message=f"{workers} worker processes are not valid", way_out=f"at most {WORKERS_MAX}")


def _pool(pool: LoadPool) -> Iterator[Objection]:
    if pool.address and not host_rules.is_cluster(pool.address):
        yield Objection(
            message=f"{pool.address[:200]!r} is not the address of a Ray cluster", way_out="`auto`, or name:port"
        )


def _session(engine: str, settings: tuple[tuple[str, str], ...]) -> Iterator[Objection]:
    if len(settings) > SESSION_MAX:
        yield Objection(message=f"more than {SESSION_MAX} settings of a connection")
    for name, value in settings[:SESSION_MAX]:
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
    if not 0 <= spec.cpus <= THREADS_MAX:
        yield Objection(message=f"a Ray node for {spec.cpus} workers is not valid")
    secrets = spec.secrets
    if max(map(len, (secrets.token, secrets.authority, secrets.authority_key))) > PEM_MAX:
        yield Objection(message=f"a secret of the Ray cluster is longer than {PEM_MAX} characters")
    yield from host_rules.text_problems("the token of the Ray cluster", secrets.token)


def _fio(spec: tasks.PrepareFio | tasks.RunFio) -> Iterator[Objection]:
    yield from host_rules.fio_problems(spec.job)
    yield from host_rules.text_problems("the folder of a run", spec.data_root)


def _run_fio(spec: tasks.RunFio) -> Iterator[Objection]:
    yield from _fio(spec)
    yield from host_rules.window_problems(spec.windows)
    yield from host_rules.text_problems("the label of a load", spec.label)
    if not (1 <= spec.iodepth <= THREADS_MAX and 0 <= spec.first_slice <= SLICES_MAX):
        yield Objection(message=f"an I/O depth of {spec.iodepth} from slice {spec.first_slice} on is not valid")


EDGES_MAX = 2
"""A measure window has a start and an end."""


def _capture(spec: tasks.RunCapture) -> Iterator[Objection]:
    """The wire has a closed set of kinds; each needs its own number of systems."""
    capture = spec.capture
    yield from host_rules.capture_problems(capture)
    if capture.kind == "command" or capture.command != NO_COMMAND:
        yield from _command(capture.command, capture.values)
    else:
        yield from value_rules.query_problems(capture.query, capture.values)
    kind = CAPTURES[capture.kind]
    if ("argv" in kind.keys) != bool(capture.command.argv) or (capture.command.argv and capture.query):
        yield Objection(message=f"capture {capture.name} of kind {capture.kind} needs a command, or must have none")
    if ("query" in kind.keys) != bool(capture.query):
        yield Objection(message=f"capture {capture.name} of kind {capture.kind} needs a query, or must have none")
    if len(spec.edges_s) > EDGES_MAX or not all(0.0 <= edge_s <= 2 * WEEK_S for edge_s in spec.edges_s):
        yield Objection(message=f"capture {capture.name} has edges of a window that are not possible")
    wanted, given = kind.endpoints, len(spec.endpoints)
    if given != wanted:
        yield Objection(message=f"a capture of kind {capture.kind} needs {wanted} systems, not {given}")
        return
    for end in spec.endpoints:
        yield from _exporter(end) if kind.of == "exporter" else _observed(capture.kind, end)


def _command(command: Command, values: tuple[MeasuredValue, ...]) -> Iterator[Objection]:
    yield from value_rules.command_problems(command)
    yield from value_rules.many_problems(values)
    if not values:
        yield Objection(message="a command without metrics")


def _run_command(spec: tasks.RunCommand) -> Iterator[Objection]:
    return _command(spec.command, spec.values)


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
        tasks.StopSystem: _stop,
        tasks.InspectSystem: _endpoint_only,
        tasks.SnapshotSystem: _snapshot,
        tasks.PopulateSystem: _populate,
        tasks.LinkSystems: _link,
        tasks.CompareSystems: _compare,
        tasks.ReadFacts: _facts,
        tasks.CheckInvariants: _invariants,
        tasks.CheckSystem: _check_system,
        tasks.CheckHost: _check_host,
        tasks.RunSql: _sql,
        tasks.Checkpoint: _endpoint_only,
        tasks.RestoreCopy: _endpoint_only,
        tasks.ApplyTuning: _tuning,
        tasks.InjectFault: _fault,
        tasks.FormPool: _form_pool,
        tasks.RunLoad: _load,
        tasks.PrepareFio: _fio,
        tasks.RunFio: _run_fio,
        tasks.RunCommand: _run_command,
        tasks.RunCapture: _capture,
    }
)
NOTHING_TO_CHECK: frozenset[type] = frozenset({tasks.VerifyTuning, tasks.RevertTuning})
"""Tasks without values that could harm a host."""
