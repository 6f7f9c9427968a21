"""`proveout trend`: the metrics of all comparable runs, and their change points."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from proveout.cli.common import completion
from proveout.cli.common.options import Inventory, Overrides, RunsDir, parse_overrides

if TYPE_CHECKING:
    from proveout.coordinator.history.comparable_runs import Selection
    from proveout.coordinator.history.run_folder import RunFolder
    from proveout.coordinator.report.history.trend_document import Trend

EPILOG = """Examples:

  proveout trend

  proveout trend plans/smoke.yaml --by commit --html trend.html

  proveout trend smoke --fail-if change --json trend.json

  proveout trend smoke --acknowledge smoke-20260114-101500-3f2a --note 'checksums are on from here'
"""


class FailIf(StrEnum):
    """The condition that fails a job."""

    change = "change"
    worse = "worse"


def trend(
    plan: Annotated[
        str,
        typer.Argument(
            metavar="[PLAN]",
            help="A plan's name or file [default: the plan of the newest run].",
            autocompletion=completion.plan_files,
        ),
    ] = "",
    *,
    parameters: Overrides = None,
    inventory: Inventory = None,
    by: Annotated[
        str, typer.Option(metavar="LABEL", help="Show runs by this label: commit; the order stays that of time.")
    ] = "",
    metric: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A metric, repeatable [default: tps, rate, response.avg_us, response.p99_us].",
        ),
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(metavar="NAMES", help="Take runs that differ in these too, as in `compare`: `version,kernel`."),
    ] = None,
    fail_if: Annotated[
        FailIf | None,
        typer.Option(help="Exit 1 when a change (one for the worse) is shown and not acknowledged."),
    ] = None,
    acknowledge: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Accept the change that begins at this run.", autocompletion=completion.runs),
    ] = None,
    note: Annotated[str, typer.Option(help="With --acknowledge: the reason.")] = "",
    runs_dir: RunsDir = None,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the histories as JSON.")] = None,
    markdown: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the report in Markdown.")] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write one HTML file, with a figure per metric.")
    ] = None,
    svg: Annotated[Path | None, typer.Option(metavar="DIR", help="Write each figure as an SVG file.")] = None,
) -> None:
    """Show the metrics of all comparable runs of a plan over time, and the runs at which they changed.

    Comparable runs have the plan (apart from repeats), the environment and the program of the newest run. The decision
    on a run does not change when runs are added. Exit codes: 0 success, 1 the --fail-if condition holds, 2 a wrong
    command line or no finished run of the plan, 3 too few runs to show a change.
    """
    from proveout.cli.common import outputs as output_files
    from proveout.coordinator.history import metric_history
    from proveout.coordinator.report import terminal
    from proveout.coordinator.report.history.trend_document import Trend, trend_document
    from proveout.coordinator.storage import run_directory

    outputs = output_files.check_outputs({"json": json, "markdown": markdown, "html": html})
    folder = run_directory.runs_directory(runs_dir, os.environ)
    _acknowledge(folder, acknowledge, note, metric or [""])
    selection = _selected(_read(folder), plan, parameters, inventory, allow)
    histories = metric_history.histories(
        selection, metric or metric_history.METRICS, metric_history.read_acknowledgements(folder)
    )
    shown = Trend(selection=selection, histories=histories, label=by, condition=fail_if.value if fail_if else None)
    terminal.show(trend_document(shown), sys.stdout)
    _write(shown, outputs, svg)
    raise typer.Exit(metric_history.exit_code(histories, shown.condition))


def _read(folder: Path) -> RunFolder:
    from proveout.cli.common.messages import counting
    from proveout.coordinator.history.run_folder import read_folder
    from proveout.core.numbers import safe

    with counting("runs read") as progress:
        found = read_folder(folder, progress)
    for name, fault in found.unreadable:
        typer.echo(safe(f"warning: {name} is left out: {fault}"), err=True)
    return found


def _selected(
    found: RunFolder, plan: str, parameters: list[str] | None, inventory: Path | None, allow: list[str] | None
) -> Selection:
    """The runs of a plan, given by file or by name."""
    from proveout.coordinator.history.comparable_runs import select
    from proveout.coordinator.history.run_summary import study_digest
    from proveout.dsl.compile.compiler import compile_plan

    allowed = [name.strip() for words in allow or () for name in words.split(",") if name.strip()]
    if Path(plan).suffix in completion.SUFFIXES or (plan and Path(plan).is_file()):
        compiled = compile_plan(Path(plan), overrides=parse_overrides(parameters), inventory=inventory)
        return select(found, name=compiled.name, study=study_digest(compiled), allow=allowed)
    if parameters or inventory is not None:
        raise typer.BadParameter("only together with a plan file", param_hint="-p/--inventory")
    return select(found, name=plan, allow=allowed)


def _acknowledge(folder: Path, run: str | None, note: str, metrics: list[str]) -> None:
    """Store an acknowledgement, where the command line has one."""
    from proveout.coordinator.history.metric_history import Acknowledgement, acknowledge
    from proveout.coordinator.storage import run_directory

    if bool(run) != bool(note):
        raise typer.BadParameter("--acknowledge RUN and --note TEXT belong together", param_hint="--acknowledge")
    if run is None:
        return
    name = run_directory.find(folder, run).name
    for metric in metrics:
        acknowledge(folder, Acknowledgement(run=name, note=note, metric=metric, unix_s=time.time()))


def _write(shown: Trend, outputs: dict[str, str], pictures: Path | None) -> None:
    from proveout.coordinator.report import html, markdown
    from proveout.coordinator.report.figures import vega
    from proveout.coordinator.report.figures.trend_figures import trend_figure
    from proveout.coordinator.report.history.trend_document import to_json, trend_document
    from proveout.coordinator.storage.run_directory import write_whole
    from proveout.core.errors import ProveoutError

    writers: dict[str, Callable[[], str]] = {
        "json": lambda: to_json(shown),
        "markdown": lambda: markdown.render(trend_document(shown)),
        "html": lambda: html.render(trend_document(shown, figures=True)),
    }
    files = {Path(path): writers[name] for name, path in outputs.items()}
    try:
        for path, made in files.items():
            write_whole(path, made())
        if pictures is not None:
            pictures.mkdir(parents=True, exist_ok=True)
            for history in shown.histories:
                figure = trend_figure(history, shown.label)
                write_whole(pictures / f"{figure.slug}.svg", vega.svg(figure))
    except OSError as fault:
        raise ProveoutError(f"{fault.filename or pictures} cannot be written: {fault.strerror}") from fault
