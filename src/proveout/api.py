"""The Python API for notebooks and scripts: start and follow a run, open a recorded one, read a table of all."""

from __future__ import annotations

import asyncio
import os
import queue
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from proveout.coordinator.live.event_feed import RunProcess, Tail, last_lines, started
from proveout.coordinator.report.figures.figure import Figure
from proveout.coordinator.results.results import RungResult, RunResults, StageResult, environment
from proveout.coordinator.storage import run_directory
from proveout.core import errors
from proveout.core.data_classes import dataclass, field
from proveout.core.errors import PlanError, ProveoutError
from proveout.proto.events import Event, VerdictReached

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

__all__ = [
    "SAMPLES",
    "Chart",
    "NotThere",
    "Run",
    "RunNotStarted",
    "RungResult",
    "StageResult",
    "StartedRun",
    "VerdictReached",
    "open_run",
    "run",
    "runs",
    "start",
]


# `import proveout` alone loads none of this. Arrow tables convert to other libraries: `.to_pandas()`,
# `polars.from_arrow`, `duckdb`.

_K = TypeVar("_K")
_V = TypeVar("_V")

SAMPLES: tuple[str, ...] = ("load", "captures")


class NotThere(ProveoutError):
    """A run has no such verdict, stage or number, or this environment lacks a library."""

    exit_code = 2


class Named(dict[_K, _V]):
    """A mapping of things of a run by name; a name that is not there raises NotThere, which says what there is."""

    def __init__(self, what: str, found: Mapping[_K, _V]) -> None:
        super().__init__(found)
        self._what = what

    def __missing__(self, name: _K) -> _V:
        raise NotThere(f"there is no {self._what} {name!r}", way_out=f"There is {_listed(self)}.")


def open_run(
    run: str | os.PathLike[str] = run_directory.LATEST, *, runs_dir: str | os.PathLike[str] | None = None
) -> Run:
    """A run by its name, its directory, or `latest`; among `runs_dir`, else `$PROVEOUT_RUNS_DIR`, else `./runs`.

    Raises `ProveoutError` when there is none or its journal cannot be read.
    """
    runs = run_directory.runs_directory(Path(runs_dir) if runs_dir is not None else None)
    directory = run_directory.find(runs, os.fspath(run))
    return Run(path=directory.path, results=directory.results())


def runs(runs_dir: str | os.PathLike[str] | None = None) -> pa.Table:
    """A row per rung per stage of every run of a folder, oldest run first; the folder as of `open_run`.

    Columns: `run, started, status, exit_code, plan, title, digest, version, environment` (a digest of all facts),
    `label.NAME` for each label, `stage, kind, workload, target, threads, rate, repeats, excluded`, then the numbers by
    their names in docs/reference/metrics.md: `tps.mean`, `tps.lower`, `tps.upper`, `tps.cv`. Null where a run has no
    such number. A journal that cannot be read is left out with a warning.
    """
    from proveout.coordinator.history.runs import read_folder, to_table  # noqa: PLC0415

    folder = run_directory.runs_directory(Path(runs_dir) if runs_dir is not None else None)
    found = read_folder(folder)
    for name, fault in found.unreadable:
        warnings.warn(f"{name} is left out: {fault}", stacklevel=2)
    return to_table(found.runs)


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run.

    `results` has the content of its journal (`coordinator.results.results.RunResults`); everything else comes from it
    and from the samples.
    """

    path: Path
    results: RunResults = field(repr=False)

    @property
    def id(self) -> str:
        """The run's name: `smoke-20260114-101500-3f2a`."""
        return self.results.run.run_id if self.results.run else self.path.name

    @property
    def name(self) -> str:
        """The plan's name."""
        return self.results.run.name if self.results.run else ""

    @property
    def title(self) -> str:
        """The plan's title."""
        return self.results.run.title if self.results.run else ""

    @property
    def status(self) -> Literal["finished", "failed", "interrupted", "unfinished"]:
        """The status at its end; unfinished while it runs, and when its coordinator was killed."""
        return self.results.ended.status if self.results.ended else "unfinished"

    @property
    def exit_code(self) -> int | None:
        """As of `proveout run`: 0 passed, 1 failed, 3 inconclusive, 4 infrastructure; None when it has not ended."""
        return self.results.ended.exit_code if self.results.ended else None

    @property
    def plan(self) -> Any:
        """The compiled plan as plain data."""
        return self.results.run.plan if self.results.run else None

    # ---- results -----------------------------------------------------------------------------------------------------

    @property
    def verdicts(self) -> Mapping[str, VerdictReached]:
        """By id, in the plan's order: `outcome`, `evidence`, `check`, `severity`, `iterations` …"""
        return Named("verdict", {verdict.id: verdict for verdict in self.results.verdicts})

    @property
    def stages(self) -> Mapping[str, StageResult]:
        """By id, in the order in which they began: `kind`, `rungs`, `knee`, `iterations`, `search`, `populated` …"""
        return Named("stage", self.results.stages)

    def rungs(self, stage: str) -> Mapping[int, RungResult]:
        """A ladder's rungs by threads; `.tree` has the estimates over the repeats by their names.

        NotThere for another stage.
        """
        return Named(f"rung of {stage}", {rung.threads: rung for rung in self.stages[stage].rungs})

    def value(self, expression: str) -> float | bool:
        """Evaluate an expression, as in the verdicts of a plan, over the stages that have ended:
        `value("ladder.at(4).tps.mean")`.

        NotThere for one that reads what is not there, or that is none.
        """
        from proveout.coordinator.results.results import FUNCTIONS  # noqa: PLC0415
        from proveout.dsl.expr.evaluation import ExpressionFault, evaluate  # noqa: PLC0415

        try:
            found = evaluate(expression, environment(self.results), functions=FUNCTIONS)
        except ExpressionFault as fault:
            raise NotThere(f"{expression}: {fault}") from None
        if isinstance(found, str | dict):
            way_out = f"Name one of {_listed(sorted(found))}." if isinstance(found, dict) else ""
            raise NotThere(f"{expression} is not a number", way_out=way_out)
        return found

    # ---- tables ------------------------------------------------------------------------------------------------------

    def iterations(self) -> pa.Table:
        """A row per stage, rung, repeat, attempt and transaction type, `(all)` for all of them: the columns of `report
        --csv`.

        Response times in µs. Iterations that do not count are there too, with `valid` false.
        """
        from proveout.coordinator.report.csv_export import to_table  # noqa: PLC0415

        return to_table(self.results)

    def estimates(self) -> pa.Table:
        """A row per ladder, rung and metric: `stage, threads, metric, mean, lower, upper, median, cv, n`.

        `metric` is the name in docs/reference/metrics.md, its end names the unit; a confidence bound has its value as
        `mean` only.
        """
        pa = errors.loaded("pyarrow", "a table of Arrow")

        from proveout.coordinator.history.runs import STATISTICS, flat  # noqa: PLC0415

        numbers = ("mean", "lower", "upper", "median", "cv")
        kinds = {"stage": pa.string(), "threads": pa.int64(), "metric": pa.string()}
        schema = pa.schema([*kinds.items(), *((name, pa.float64()) for name in numbers), ("n", pa.int64())])
        found = [
            {"stage": stage.id, "threads": rung.threads, "metric": metric}
            | {name: numbers[name] for name in STATISTICS if name in numbers}
            for stage in self.stages.values()
            for rung in stage.rungs
            for metric, numbers in flat(rung.tree)
        ]
        return pa.Table.from_pylist(found, schema=schema)

    def samples(self, kind: Literal["load", "captures"] = "load", *, stage: str | None = None) -> pa.Table:
        """The samples of finished iterations, of all stages or one; `stage, threads, repeat, attempt, valid, at_s` and:

        load: a row per client host, second and transaction type: `window`, `duration_s`, `ok`, `logical_failures`,
        `errors`, `missed`, `tps`, `avg_us`, and the response times as a sparse histogram (`response_indices`,
        `response_counts`). captures: a row per host, sample and reading: `capture`, `metric`, `label`, `value`, as the
        capture recorded it; `…_total` are counters.

        `at_s`: s since the run began, on the coordinator's clock, ramps too. An empty table when nothing was recorded.
        NotThere for a stage that the run has not, ProveoutError for a damaged file.
        """
        from proveout.coordinator.report.csv_export import samples_table  # noqa: PLC0415

        if kind not in SAMPLES:
            raise NotThere(f"there are no samples called {kind!r}", way_out=f"use {_listed(SAMPLES)}")
        found = self.stages.values() if stage is None else [self.stages[stage]]
        chosen = [item for one in found for item in one.iterations]
        return samples_table(kind, chosen, self.path / "samples", self.results.started_unix_s)

    def sql(self, query: str) -> duckdb.DuckDBPyRelation:
        """A DuckDB relation: SQL over `iterations`, `estimates`, `load`, `captures` and `verdicts`.

        NotThere without duckdb.
        """
        try:
            import duckdb  # noqa: PLC0415
        except ModuleNotFoundError:
            way_out = f"Install it with: {errors.install_command('proveout[notebook]')}"
            raise NotThere("SQL needs duckdb", way_out=way_out) from None
        connection = duckdb.connect()
        tables: dict[str, Callable[[], pa.Table]] = {
            "iterations": self.iterations,
            "estimates": self.estimates,
            "load": self.samples,
            "captures": partial(self.samples, "captures"),
            "verdicts": self._verdict_table,
        }
        for name, table in tables.items():
            if name in query.lower():
                connection.register(name, table())
        return connection.sql(query)

    def _verdict_table(self) -> pa.Table:
        pa = errors.loaded("pyarrow", "a table of Arrow")

        names = ("id", "title", "severity", "outcome", "check", "evidence")
        rows = [{name: getattr(verdict, name) for name in names} for verdict in self.results.verdicts]
        return pa.Table.from_pylist(rows, schema=pa.schema([(name, pa.string()) for name in names]))

    # ---- figures -----------------------------------------------------------------------------------------------------

    @cached_property
    def figures(self) -> Mapping[str, Chart]:
        """The report's figures by slug, in its order: those that the plan names, or all that have numbers."""
        from proveout.coordinator.report.figures.selection import figures  # noqa: PLC0415
        from proveout.coordinator.report.figures.timeline import read_timeline  # noqa: PLC0415

        drawn, _ = figures(self.results, read_timeline(self.results, self.path / "samples"))
        return Named("figure", {figure.slug: Chart(figure) for figure in drawn})

    def _repr_html_(self) -> str:
        """Title and verdicts, for a notebook."""
        from html import escape  # noqa: PLC0415

        rows = "".join(
            f"<tr><td><b>{verdict.outcome}</b></td><td>{escape(verdict.id)}</td><td>{escape(verdict.evidence)}</td></tr>"
            for verdict in self.results.verdicts
        )
        return (
            f"<p><b>{escape(self.title or self.name)}</b> ({escape(self.id)}, {self.status})</p><table>{rows}</table>"
        )


@dataclass(frozen=True)
class Chart:
    """A figure of the report. A notebook shows it as a picture; nothing needs a network."""

    figure: Figure = field(repr=False)

    @property
    def title(self) -> str:
        """Its heading."""
        return self.figure.title

    @property
    def spec(self) -> dict[str, Any]:
        """Vega-Lite 6 with its data: `altair.Chart.from_dict(chart.spec)` to change it."""
        return self.figure.spec

    def svg(self) -> str:
        """The picture as an SVG document."""
        from proveout.coordinator.report.figures.figure import svg  # noqa: PLC0415

        return svg(self.figure)

    def png(self) -> bytes:
        """The picture as a PNG."""
        from proveout.coordinator.report.figures.figure import png  # noqa: PLC0415

        return png(self.figure)

    def table(self) -> pa.Table:
        """The table under the figure, as text."""
        pa = errors.loaded("pyarrow", "a table of Arrow")

        columns = [[row[position] for row in self.figure.rows] for position in range(len(self.figure.heads))]
        return pa.Table.from_arrays(
            [pa.array(column, pa.string()) for column in columns], names=list(self.figure.heads)
        )

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"image/svg+xml": self.svg(), "text/plain": f"{self.title}: {self.figure.caption}"}


def _listed(names: Any) -> str:
    return ", ".join(map(str, names)) or "none"


# The run does not depend on the caller: where a notebook's kernel dies, it goes on, and `proveout watch` shows it.

_Path = str | os.PathLike[str]


class RunNotStarted(ProveoutError):
    """The run ended before it had a directory, or with an error of the command line; the text is what it printed."""

    exit_code = 2


class StartedRun:
    """A run that goes on in a process of its own. As a context manager it is stopped when the block raises, and waited
    for in any case."""

    def __init__(self, process: RunProcess, path: Path) -> None:
        self._process = process
        self.path = path

    @property
    def is_running(self) -> bool:
        """Whether its process runs."""
        return self._process.is_alive

    def recorded(self) -> Run:
        """All that has ended so far."""
        return open_run(self.path)

    def events(self) -> Iterator[Event]:
        """The run's events from its beginning to its end, each as soon as it is there: `proveout.proto.events`, such as
        `IterationFinished`, and live ones, such as `LoadTick`. ProveoutError for a journal that cannot be read."""
        found: queue.SimpleQueue[Event | Exception | None] = queue.SimpleQueue()
        over = threading.Event()

        async def follow() -> None:
            async for batch in Tail(self.path).batches():
                for stamped in batch:
                    found.put(stamped.event)
                if over.is_set():
                    return

        def work() -> None:
            try:
                asyncio.run(follow())  # of this thread: a notebook has a loop of its own
                found.put(None)
            except Exception as fault:  # noqa: BLE001 - whatever it is, else the caller waits for ever
                found.put(fault)

        threading.Thread(target=work, name="proveout-events", daemon=True).start()
        try:
            while (event := found.get()) is not None:
                if isinstance(event, Exception):
                    raise event
                yield event
        finally:
            over.set()

    def stop(self) -> None:
        """Stop it as Ctrl-C does: its loads end, its changes are taken back. `wait` waits for that."""
        self._process.stop()

    def wait(self, timeout_s: float | None = None) -> Run:
        """The run at its end; `exit_code` and `status` of it say how it ended.

        TimeoutError when it lasts longer, RunNotStarted when it was refused.
        """
        exit_code = self._process.wait(timeout_s)
        found = self.recorded()
        if found.results.run is None:
            raise RunNotStarted(f"the run has not begun (exit code {exit_code})\n{last_lines(self.path)}")
        return found

    def __enter__(self) -> StartedRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.stop()
        self._process.wait()

    def __repr__(self) -> str:
        return f"StartedRun({str(self.path)!r}, {'running' if self.is_running else 'ended'})"


def start(
    plan: _Path,
    *,
    parameters: Mapping[str, Any] | None = None,
    inventory: _Path | None = None,
    labels: Mapping[str, str] | None = None,
    runs_dir: _Path | None = None,
    pki: _Path | None = None,
    policy: _Path | None = None,
    preflight: bool = True,
) -> StartedRun:
    """Start a run of the plan in a file; the arguments are the options of `proveout run`.

    `parameters`: values by name, a list for `1,2,4`. Raises PlanError with all problems of the plan, RunNotStarted when
    the run was refused.
    """
    from proveout.cli.options import describe, words  # noqa: PLC0415
    from proveout.dsl.compile.compiler import compile_plan  # noqa: PLC0415

    overrides = {name: _text(value) for name, value in (parameters or {}).items()}
    try:
        compile_plan(Path(plan), overrides=overrides, inventory=Path(inventory) if inventory is not None else None)
    except PlanError as fault:
        fault.add_note("\n".join(map(describe, fault.problems)))
        raise
    files = {"inventory": inventory, "runs_dir": runs_dir, "pki": pki, "policy": policy}
    given, named = ([f"{name}={text}" for name, text in one.items()] for one in (overrides, labels or {}))
    arguments = [*words(given, files, named), *([] if preflight else ["--no-preflight"])]
    with tempfile.TemporaryFile() as output:
        with started("run", *arguments, "--", os.fspath(plan), output=output) as (process, signals):
            path = process.directory()
            exit_code = process.wait() if signals or path is None else 0
        if signals:
            raise KeyboardInterrupt
        if path is None:
            output.seek(0)
            printed = output.read().decode(errors="replace").strip()
            raise RunNotStarted(f"the run has not begun (exit code {exit_code})\n{printed}")
    return StartedRun(process, path)


def run(plan: _Path, *, follow: Callable[[Event], object] | None = None, **options: Any) -> Run:
    """Run the plan in a file to its end; `options` are those of `start`, `follow` is called with each event.

    The run is there whatever its verdicts: see `exit_code` and `verdicts` of it. Ctrl-C, or an exception of `follow`,
    stops the run and is raised when that has ended.
    """
    with start(plan, **options) as started:
        for event in started.events():
            if follow is not None:
                follow(event)
    return started.wait()


def _text(value: Any) -> str:
    """A parameter's value as the command line has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(map(_text, value))
    return str(value)
