"""The kinds of captures, each declared once, for the plan language, its rules, agents and the coordinator.

To add one: its name and its record here, the function of the agent, and, where it has numbers of its own, its line in
`NUMBERS` of `coordinator.measure.captures`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from proveout.core.data_classes import field, record

CaptureKind: TypeAlias = Literal[
    "os", "waits", "lag", "prometheus", "sizes", "sql", "command", "awr", "ttstats", "statements"
]
"""The kinds of captures: `os` observes hosts; `waits`, `lag` and `sizes` a system; `sql` the values of a query in a
system; `command` the values of the output of a program on a host; `prometheus` an exporter, which one host reads; `awr`
and `ttstats` take two snapshots of a system's statistics, and its report on them; `statements` has the statements of a
system that took the most time, and their plans."""


@record
class CaptureDeclaration:
    """One kind of capture.

    | field | meaning |
    |---|---|
    | `run` | the agent's function, `module:name`, imported when it is first used |
    | `of` | its subject: hosts, a system, or an exporter that one host reads |
    | `endpoints` | how many systems or exporters its task connects to; two are a source and its sink |
    | `keys` | its keys in a plan beside `kind`, `every`, `on` and `system`; captures of other kinds are refused them |
    | `able` | the field of an engine (`dsl.engines`) that says whether its systems can be observed; "" for any engine |
    | `refused`, `instead` | the message for another engine, and what to do; `{engine}`, `{able}` are filled in |
    | `rare` | whether it samples at its start and its end only, where the plan gives no `every` |
    | `at_edges` | whether it samples at the edges of the measure window too |
    | `report` | the suffix of the file, of a kind that gives no samples but a report on the measure window |
    | `numbers` | the numbers of its system in results, a `dsl.metrics.Tree` |
    | `heading` | the heading of `numbers` in the reference |
    """

    name: CaptureKind
    run: str
    of: Literal["hosts", "system", "exporter"]
    endpoints: int = 1
    keys: tuple[str, ...] = ()
    able: str = ""
    refused: str = ""
    instead: str = ""
    rare: bool = False
    at_edges: bool = False
    report: str = ""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    heading: str = ""

    @property
    def article(self) -> str:
        """The kind with its article: `an awr`, `a lag`."""
        return f"{'an' if self.name[0] in 'aeio' or self.name == 'sql' else 'a'} {self.name}"

    def declaration(self, system: str) -> str:
        """The declaration of one in a plan, of a system; `…` stands for keys that only the plan's author knows."""
        subject = {"hosts": "on: all", "exporter": "on: …", "system": f"system: {system}"}[self.of]
        return f"{{kind: {self.name}, {subject}{', …' if self.keys else ''}}}"

    @property
    def is_measured(self) -> bool:
        """Whether the plan names its numbers, with their units."""
        return self.of != "exporter" and "metrics" in self.keys


CAPTURES: Mapping[str, CaptureDeclaration] = {
    kind.name: kind
    for kind in (
        CaptureDeclaration(name="os", run="proveout.agent.capture.os:run", of="hosts", endpoints=0, at_edges=True),
        CaptureDeclaration(
            name="waits",
            run="proveout.agent.capture.databases:waits",
            of="system",
            able="waits",
            refused="wait events of {engine.name} are not captured in this release",
            instead="{engine.instead_of_waits}",
            numbers={
                "db_time_s": "time sessions spent in calls (on CPU or waiting), s",
                "cpu_fraction": "share of DB time with no wait event",
                "active_sessions": "DB time over elapsed time (AAS)",
            },
            heading="Waits: `waits.…`",
        ),
        CaptureDeclaration(
            name="lag",
            run="proveout.agent.capture.databases:lag",
            of="system",
            endpoints=2,
            numbers={
                "avg_s": "mean replication lag, s",
                "p99_s": "99th percentile, s",
                "max_s": "largest, s",
                "end_s": "at the end of the window, s",
                "slope": "least-squares slope over the window, seconds of lag per second",
                "slope_lower": "lower end of its 95 % confidence interval; needs 6 readings in the window",
                "slope_upper": "upper end of its 95 % confidence interval; needs 6 readings in the window",
                "avg_bytes": "mean log volume not yet applied, bytes",
                "max_bytes": "largest, bytes",
            },
            heading="Replication lag: `lag.…`",
        ),
        CaptureDeclaration(
            name="prometheus",
            run="proveout.agent.capture.prometheus:run",
            of="exporter",
            keys=("url", "metrics"),
        ),
        CaptureDeclaration(
            name="sizes",
            run="proveout.agent.capture.databases:sizes",
            of="system",
            able="sizes",
            refused="the sizes of tables of {engine.name} are not captured in this release",
            rare=True,
            numbers={
                "total_bytes": "table, TOAST or LOBs, and indexes, when the iteration ended",
                "table_bytes": "without the indexes",
                "index_bytes": "the indexes alone",
                "start_bytes": "total when the iteration began",
                "grown_bytes": "total at the end less that at the start; negative when it shrank",
            },
            heading="Sizes: `sizes.…` and `sizes.tables.<name>.…`",
        ),
        CaptureDeclaration(
            name="sql",
            run="proveout.agent.capture.query_values:capture",
            of="system",
            keys=("query", "metrics"),
            able="queries",
            refused="queries of {engine.name} are not captured in this release",
            instead="systems of {able}",
        ),
        CaptureDeclaration(
            name="command",
            run="proveout.agent.capture.command_values:capture",
            of="hosts",
            endpoints=0,
            keys=("argv", "output", "within", "exit_codes", "metrics"),
        ),
        CaptureDeclaration(
            name="awr",
            run="proveout.agent.capture.databases:capture_report",
            of="system",
            keys=("licence", "container"),
            able="report",
            refused="{engine.name} has no report of kind awr",
            instead="a system of {able}",
            at_edges=True,
            report=".html",
        ),
        CaptureDeclaration(
            name="ttstats",
            run="proveout.agent.capture.databases:capture_report",
            of="system",
            able="report",
            refused="{engine.name} has no report of kind ttstats",
            instead="a system of {able}",
            at_edges=True,
            report=".txt",
        ),
        CaptureDeclaration(
            name="statements",
            run="proveout.agent.capture.databases:capture_statements",
            of="system",
            able="statements",
            refused="statements of {engine.name} are not captured in this release",
            instead="systems of {able}",
            at_edges=True,
            report=".json",
            numbers={
                "count": "different statements that ran",
                "calls": "their executions",
                "seconds": "time of all statements in the server, s",
                "rows": "rows that they returned or changed",
            },
            heading="Statements: `statements.total.…`",
        ),
    )
}
"""By name, in the order in which the schema of plans lists them."""

MEASURED: tuple[str, ...] = tuple(kind.name for kind in CAPTURES.values() if kind.is_measured)
"""The kinds of captures whose numbers the plan names with their units."""
