"""Capture `waits` of Oracle, without a licensed pack: cumulative foreground waits and the time model, of each instance.

Flow: each `every_s` -> gv$system_event, gv$sys_time_model, gv$osstat, gv$sysstat -> one sample of counters since the
instances started -> the coordinator takes the difference between the edges of the measure window: an AWR report's
arithmetic (`% DB time` = Δ event / Δ DB time; average active sessions = Δ DB time / elapsed). DB time is the time
model's own, so that waits and CPU may come to more than 100 % of it; nothing is rescaled. A system reached by one dsn
is the instance that the session is on; one with `instances` is all of the cluster's, added up.

Readings (label "" unless stated; all cumulative since the instances started):

| metric | unit, label |
|---|---|
| `wait.seconds_total` | s waited in the foreground; label = `Class:event` as in `Commit:log file sync`, or `DB CPU` |
| `wait.count_total` | foreground waits; label as above |
| `wait.db_time_s_total` | s of DB time |
| `os.busy_s_total`, `os.idle_s_total` | s of the hosts' CPUs, all of them: host CPU = Δ busy / (Δ busy + Δ idle) |
| `database.*_total` | commits, rollbacks, logical and physical reads, physical writes, redo bytes |

An instance that has restarted counts from 0 again: from then on samples are lost, and what would need them is not
known. Source: Oracle Database Reference, V$SYSTEM_EVENT, V$SYS_TIME_MODEL (µs), V$OSSTAT (centiseconds, CUMULATIVE =
'YES').
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import oracledb

from proveout.agent.engines.adapter import Tick
from proveout.agent.engines.oracle.capture_connection import CaptureSession, Rows, open_for_capture
from proveout.agent.engines.oracle.errors import NO_TABLE, ErrorText, error_text
from proveout.agent.engines.oracle.sql import statement_fault
from proveout.agent.errors import TaskFault
from proveout.core.data_classes import dataclass
from proveout.proto.wire.results import Reading
from proveout.proto.wire.tasks import Endpoint

DB_CPU, DB_TIME = "DB CPU", "DB time"
OWN_INSTANCE = "SELECT SYS_CONTEXT('USERENV', 'INSTANCE') FROM dual"
INSTANCES = "SELECT inst_id, TO_CHAR(startup_time, 'YYYY-MM-DD HH24:MI:SS') FROM gv$instance"
EVENTS = (
    "SELECT inst_id, wait_class, event, total_waits_fg, time_waited_micro_fg FROM gv$system_event"
    " WHERE wait_class <> 'Idle' AND total_waits_fg > 0"
)
TIMES = f"SELECT inst_id, stat_name, value FROM gv$sys_time_model WHERE stat_name IN ('{DB_TIME}', '{DB_CPU}')"  # noqa: S608 - constants
HOSTS = (
    "SELECT inst_id, stat_name, value FROM gv$osstat"
    " WHERE stat_name IN ('BUSY_TIME', 'IDLE_TIME') AND cumulative = 'YES'"
)
COUNTS: Mapping[str, str] = {
    "user commits": "commits",
    "user rollbacks": "rollbacks",
    "session logical reads": "logical_reads",
    "physical reads": "physical_reads",
    "physical writes": "physical_writes",
    "redo size": "redo_bytes",
}
NAMES = ", ".join(f"'{name}'" for name in COUNTS)
STATISTICS = f"SELECT inst_id, name, value FROM gv$sysstat WHERE name IN ({NAMES})"  # noqa: S608 - constants


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """The rows of the views at one moment: instances (id, start), events, time model, hosts, statistics."""

    instances: Rows
    events: Rows
    times: Rows
    hosts: Rows
    statistics: Rows

    def of(self, instance: int | None) -> Counters:
        """Those of one instance; of all for None."""
        if instance is None:
            return self
        parts = (self.instances, self.events, self.times, self.hosts, self.statistics)
        names = ("instances", "events", "times", "hosts", "statistics")
        kept = {name: [row for row in rows if int(row[0]) == instance] for name, rows in zip(names, parts, strict=True)}
        return Counters(**kept)

    @property
    def started(self) -> tuple[tuple[int, str], ...]:
        """(instance, when it started): counters of another value of this cannot be subtracted."""
        return tuple(sorted((int(number), str(when)) for number, when in self.instances))


def readings(counters: Counters) -> list[Reading]:
    """The readings of a sample: instances added up, units made seconds."""
    times = _added((name, float(value) / 1e6) for _, name, value in counters.times)
    waited = _added((f"{group}:{event}", float(micro) / 1e6) for _, group, event, _, micro in counters.events)
    counted = _added((f"{group}:{event}", float(waits)) for _, group, event, waits, _ in counters.events)
    if DB_CPU in times:
        waited[DB_CPU] = times[DB_CPU]
    hosts = _added((name, float(value) / 100.0) for _, name, value in counters.hosts)
    statistics = _added((COUNTS[name], float(value)) for _, name, value in counters.statistics if name in COUNTS)
    found = [Reading(metric="wait.seconds_total", value=value, label=label) for label, value in waited.items()]
    found += [Reading(metric="wait.count_total", value=value, label=label) for label, value in counted.items()]
    if DB_TIME in times:
        found.append(Reading(metric="wait.db_time_s_total", value=times[DB_TIME]))
    found += [
        Reading(metric=metric, value=hosts[name])
        for name, metric in (("BUSY_TIME", "os.busy_s_total"), ("IDLE_TIME", "os.idle_s_total"))
        if name in hosts
    ]
    found += [Reading(metric=f"database.{name}_total", value=value) for name, value in statistics.items()]
    return found


def _added(pairs: Iterable[tuple[str, float]]) -> dict[str, float]:
    """The sum of each name's values."""
    sums: dict[str, float] = {}
    for name, value in pairs:
        sums[name] = sums.get(name, 0.0) + value
    return sums


class OracleObserver:
    """Looks at the counters of one system; see `adapter.Observer`."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._session = CaptureSession(lambda: open_for_capture(endpoint, "waits"))
        try:
            own = int(self._session.rows(OWN_INSTANCE)[0][0])
            self._instance = None if endpoint.instances else own
            self._started = self._counters().started
        except oracledb.Error as error:
            self.close()
            raise _refused(endpoint.system, error_text(error)) from None

    def look(self, tick: Tick) -> Sequence[Reading] | None:
        """The counters, when a sample is due; None when they cannot be had, or no longer count from the same start."""
        if not tick.report:
            return []
        if not self._session.ready():
            return None
        try:
            counters = self._counters()
        except oracledb.Error:
            return None
        return readings(counters) if counters.started == self._started else None

    def abort(self) -> None:
        """Break off a look that does not end, and make no new connection."""
        self._session.abort()

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    def _counters(self) -> Counters:
        rows = self._session.rows
        return Counters(
            instances=rows(INSTANCES),
            events=rows(EVENTS),
            times=rows(TIMES),
            hosts=rows(HOSTS),
            statistics=rows(STATISTICS),
        ).of(self._instance)


def _refused(system: str, what: ErrorText) -> TaskFault:
    fault = statement_fault(f"system {system!r}", what)
    if what.code not in {NO_TABLE, "ORA-01031"}:
        return fault
    way_out = "GRANT SELECT_CATALOG_ROLE to the user of the dsn, or SELECT on the GV_$ views that are captured"
    return TaskFault("refused", f"{fault.what}: its user may not see the wait events", way_out=way_out)
