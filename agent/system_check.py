"""The handler of `CheckSystem`: everything at once that a plan needs of a running system and that is not there.

Flow: log in (the adapter's settings, then each instance) -> the loads (`load_check`: session settings, statements,
tables, rows) -> the other texts of the plan, prepared -> captures, each opened and read once -> rights -> `Checked`.
Nothing is changed: statements are prepared, only reads are executed and rolled back; a file that is absent is not made.

A system that does not answer is a TaskFault, so that the agent can wait for it; all else is a finding. The models of
workloads, and numpy with them, are imported with the first load or text to check.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from proveout.agent.daemon.tasks import TaskContext
from proveout.agent.engines.adapter import QuerySession, Tick, row_text
from proveout.agent.engines.driver_contract import Driver, StatementFailure
from proveout.agent.engines.sessions import cancel_statements
from proveout.agent.engines.statement_errors import rules_of
from proveout.agent.engines.table import adapter, driver, is_in_files
from proveout.agent.errors import TaskFault
from proveout.agent.security import data_dirs
from proveout.dsl import engines
from proveout.dsl.plan.topology import Capture
from proveout.proto.wire.results import Checked, CheckFinding
from proveout.proto.wire.tasks import CheckedLoad, CheckSystem, Endpoint

USER = "the user of its dsn"


async def check_system(context: TaskContext, spec: CheckSystem) -> Checked:
    """Check what the plan needs of a system. TaskFault `unreachable` when it does not answer."""
    began = time.monotonic()
    end = spec.endpoint
    found = await asyncio.to_thread(lambda: list(_file_findings(spec)))
    if all(one.warns for one in found):
        try:
            await adapter(end.engine).settings(end)
        except TaskFault as fault:
            if fault.code == "unreachable":
                raise
            found.append(_of_fault(fault, f"systems.{end.system}", "missing" if fault.code == "missing" else "login"))
    if all(one.warns for one in found) and engines.of(end.engine).has_driver:
        check = _SystemCheck(spec)
        try:
            found += await asyncio.to_thread(check.run)
        except asyncio.CancelledError:
            await asyncio.to_thread(check.cancel)
            raise
    return Checked(findings=tuple(found), seconds=time.monotonic() - began)


@runtime_checkable
class _Numbered(Protocol):
    """A session that knows the number of its connection from the greeting: a pooler in front gives one of its own."""

    number: int


class _SystemCheck:
    """The checks of one system, in a thread."""

    def __init__(self, spec: CheckSystem) -> None:
        self._spec, self._end = spec, spec.endpoint
        self._rules = rules_of(self._end.engine)
        self._sessions: list[Any] = []
        self._done = False

    def run(self) -> list[CheckFinding]:
        try:
            engine = driver(self._end.engine)
        except Exception as fault:  # noqa: BLE001 - a client of another package may fail in any way
            return [CheckFinding(code="missing", subject=f"systems.{self._end.system}", message=str(fault))]
        try:
            return [
                *self._of_instances(engine),
                *self._of_loads(engine),
                *self._of_texts(engine),
                *(one for capture in self._spec.captures for one in self._of_capture(capture)),
                *self._of_rights(),
                *self._of_connections(),
            ]
        finally:
            self._done = True

    def cancel(self) -> None:
        """Called from another thread: cancel the running statement."""
        cancel_statements(lambda: [] if self._done else list(self._sessions[-1:]), time.sleep)

    def _of_instances(self, engine: Driver) -> Iterator[CheckFinding]:
        for number, dsn in enumerate(self._end.instances[1:], 2):
            try:
                engine.connect(dsn).close()
            except StatementFailure as failure:
                yield CheckFinding(
                    code="login",
                    subject=f"systems.{self._end.system}",
                    message=f"instance {number}: {failure.code}: {failure.what}",
                )

    def _of_loads(self, engine: Driver) -> Iterator[CheckFinding]:
        if not self._spec.loads:
            return
        from proveout.agent.load_check import LoadCheck  # noqa: PLC0415 - see the module's head

        for load in self._spec.loads:
            yield from LoadCheck(self._end, engine, load, self._sessions).findings()

    def _of_texts(self, engine: Driver) -> Iterator[CheckFinding]:
        if not self._spec.texts:
            return
        from proveout.agent.load_check import StatementCheck  # noqa: PLC0415 - see the module's head

        try:
            session = engine.connect(self._end.dsn)
        except StatementFailure as failure:
            yield CheckFinding(code="login", subject=f"systems.{self._end.system}", message=failure.what)
            return
        self._sessions.append(session)
        with closing(session):
            check = StatementCheck(self._end.engine, engine, session)
            for text in self._spec.texts:
                try:
                    yield from check.of_text(text)
                except StatementFailure as failure:
                    subject = f"systems.{self._end.system}"
                    yield CheckFinding(code="unreachable", subject=subject, message=failure.what)
                    return

    # ---- captures and rights -----------------------------------------------------------------------------------------

    def _of_capture(self, capture: Capture) -> Iterator[CheckFinding]:
        """Open what a capture reads, and read it once."""
        found = adapter(self._end.engine)
        subject = f"captures.{capture.name}"
        try:
            readable = True
            if capture.kind == "waits":
                observer = found.wait_observer(self._end)
                with closing(observer):
                    now_ns = time.monotonic_ns()
                    readable = observer.look(Tick(at_ns=now_ns, report=True, last=True)) is not None
            elif capture.kind == "sizes":
                with closing(found.size_catalogue(self._end)) as catalogue:
                    readable = catalogue.parts() is not None
            elif found.stated.report_session and capture.makes_report:
                found.report_session(self._end, capture.container).close()
        except TaskFault as fault:
            yield _of_fault(fault, subject, "capture")
            return
        if not readable:
            way_out = f"grant {USER} what `proveout explain` lists for it"
            message = f"{capture.kind} of system {self._end.system!r} cannot be read"
            yield CheckFinding(code="capture", subject=subject, message=message, way_out=way_out)

    def _of_rights(self) -> Iterator[CheckFinding]:
        wanted: list[tuple[str, str]] = [(use, f"systems.{self._end.system}") for use in self._spec.uses]
        wanted += [(capture.kind, f"captures.{capture.name}") for capture in self._spec.captures]
        due = [(self._rules.rights[use], subject) for use, subject in wanted if use in self._rules.rights]
        if not due:
            return
        session = queries(self._end)
        if session is None:
            return
        with closing(session):
            for check, subject in due:
                with suppress(TaskFault):
                    _, rows = session.rows(check.query, 1)
                    if not rows or not rows[0][0]:
                        message = f"system {self._end.system!r}: {check.what}"
                        yield CheckFinding(
                            code="rights", subject=subject, message=message, way_out=check.way_out, warns=check.warns
                        )

    def _of_connections(self) -> Iterator[CheckFinding]:
        """A finding for each limit below what the loads keep; a warning behind a pooler, which may need fewer."""
        if not self._spec.connections or not self._rules.connections or len(self._end.instances) > 1:
            return
        session = queries(self._end)
        if session is None:
            return
        with closing(session), suppress(TaskFault):
            _, rows = session.rows(self._rules.connections, 10)
            needed = [count for _, count in self._spec.connections]
            for who, (most, others, number) in ((row_text(row[0]), map(int, row[1:])) for row in rows):
                free = max(most - others, 0)
                if max(needed) <= free:
                    continue
                pooled = isinstance(session, _Numbered) and session.number != number
                fits = [f"{count:,}" for count in needed if count <= free]
                rungs = f", or only the rungs that fit: {', '.join(fits)}" if fits else ""
                yield CheckFinding(
                    code="connections",
                    subject=self._spec.connections[0][0],
                    message=(
                        f"the largest rung needs {max(needed):,} connections; system {self._end.system!r} has {free:,} "
                        f"free ({who} accepts {most:,}, others have {others:,})"
                    ),
                    way_out=f"raise the limit, use a `pool`{rungs}",
                    warns=pooled,
                )


def queries(end: Endpoint) -> QuerySession | None:
    """A connection for queries; None when the engine has none, or it cannot be had."""
    try:
        return adapter(end.engine).query_session(end)
    except TaskFault:
        return None


def _of_fault(fault: TaskFault, subject: str, code: str) -> CheckFinding:
    return CheckFinding(code=code, subject=subject, message=fault.what, way_out=fault.way_out)


# ---- files -----------------------------------------------------------------------------------------------------------


def _file_findings(spec: CheckSystem) -> Iterator[CheckFinding]:
    """Whether a database file can be read, and written where the run writes."""
    end = spec.endpoint
    if not is_in_files(end.engine) or end.provisioned:
        return
    path = data_dirs.path_of(end)
    subject = f"systems.{end.system}"
    populates = "populate" in spec.uses
    writing = populates or _writes(spec.loads)
    user = f"user id {os.geteuid()}"
    if not path.exists():
        if not populates:
            way_out = "check its dsn, or give the plan a populate stage"
            yield CheckFinding(code="unreachable", subject=subject, message=f"{path}: no such file", way_out=way_out)
        elif not os.access(path.parent, os.W_OK | os.X_OK):
            message = f"{path} is not there, and {user} cannot make it in {path.parent}"
            yield CheckFinding(code="rights", subject=subject, message=message, way_out=f"chown or chmod {path.parent}")
    elif not os.access(path, os.R_OK):
        message = f"{path}: {user} cannot read it"
        yield CheckFinding(code="rights", subject=subject, message=message, way_out=f"chown or chmod {path}")
    elif writing and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        message = f"{path}: the plan changes rows, and {user} cannot write the file and its folder"
        yield CheckFinding(code="rights", subject=subject, message=message, way_out=f"chown or chmod {path}")
    elif (found := adapter(end.engine)).stated.copies_file:
        for one in found.files.problems(Path(end.dsn), changes=writing):
            yield CheckFinding(
                code=one.code, subject=subject, message=one.message, way_out=one.way_out, warns=one.warns
            )


def _writes(loads: Iterable[CheckedLoad]) -> bool:
    from proveout.dsl.workloads.kinds import writes  # noqa: PLC0415 - see the module's head

    return any(writes(load.workload) for load in loads)
