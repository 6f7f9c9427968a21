"""`proveout runs`, `proveout trend` and `proveout noise`: list runs, show metrics over runs, measure the noise of a
rung.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from proveout.cli import options
from proveout.cli import outputs as output_files
from proveout.cli.options import (
    RUNS,
    Inventory,
    Overrides,
    Pki,
    PlanFile,
    PolicyFile,
    RunsDir,
    file_option,
    parse_overrides,
)
from proveout.core.numbers import count_of, safe

if TYPE_CHECKING:
    from proveout.coordinator.history.metric_history import MetricHistory
    from proveout.coordinator.history.runs import RunFolder, Selection
    from proveout.coordinator.report.history_documents import Trend
    from proveout.coordinator.storage.run_directory import RunDirectory


EPILOG = """
  proveout runs
  proveout runs --runs-dir /var/lib/proveout/runs
  proveout runs --environment latest
  proveout runs --parquet runs.parquet && duckdb -c "SELECT run, threads, \\"tps.mean\\" FROM 'runs.parquet'"
"""
_HEAD = ("RUN", "PLAN", "WHEN", "STATE", "VERDICTS", "LABELS")


def runs(
    runs_dir: RunsDir = RUNS,
    environment: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            help="Show instead what a run (a name, a directory or `latest`) was measured in.",
            autocompletion=options.runs,
        ),
    ] = None,
    parquet: Annotated[
        Path | None, file_option("Write instead a table with a row for each rung of each stage of every run.")
    ] = None,
) -> None:
    """List the runs, newest first: plan, start, end, verdicts and labels; or write their numbers as one table."""
    from proveout.coordinator.storage import run_directory

    if parquet is not None:
        options.refuse("not together with --parquet", environment=environment)
        _write_table(runs_dir, parquet)
        return
    if environment is not None:
        for line in _environment(run_directory.find(runs_dir, environment)):
            typer.echo(line)
        return
    rows = [_row(directory) for directory in run_directory.all_runs(runs_dir)]
    if not rows:
        typer.echo(f"There is no run in {runs_dir}.")
        return
    shown = len(_HEAD) if any(row[-1] for row in rows) else len(_HEAD) - 1
    for line in options.columns([row[:shown] for row in (_HEAD, *rows)]):
        typer.echo(line)


def _write_table(folder: Path, file: Path) -> None:
    from proveout.coordinator.history.runs import to_parquet

    output_files.check_outputs({"parquet": file})
    found = _read(folder)
    output_files.write_document(file, to_parquet(found.runs))
    count = sum(len(run.rungs) for run in found.runs)
    typer.echo(f"{file}: {count} rows of {count_of(len(found.runs), 'run')} in {folder}")


def _environment(directory: RunDirectory) -> Iterator[str]:
    """All facts of every host and system, with the digest, and changes during the run."""
    from proveout.coordinator.results.fingerprint import fact_list, fingerprints, outline

    found = fingerprints(directory.results())
    if not found:
        yield f"{directory.name} has recorded no environment."
    for one in found:
        where = f"{one.system} on {one.host}" if one.system else one.name
        yield safe(f"{where}: {outline(one)}")
        yield f"  {one.digest}" + ("" if one.whole else " (looked at once only)")
        width = max(map(len, one.compared), default=0)
        for name, value in sorted(one.compared.items()):
            yield safe(f"  {name:<{width}}  {value}")
        if one.installed:
            yield safe(f"  installed, not used: {fact_list(one.installed)}")
        for change in one.drift:
            yield safe(f"  changed meanwhile: {change}")


def _row(directory: RunDirectory) -> tuple[str, ...]:
    from proveout.cli.screen_services import run_card

    card = run_card(directory.path)
    if card.state == "unreadable":
        of_journal = card.reason.startswith("the journal is ")
        reason = card.reason.removeprefix("the journal is ") if of_journal else f"unreadable: {card.reason}"
        return (safe(card.name), "-", "-", safe(reason), "-", "")
    state = "crashed (resume)" if card.state == "crashed" else card.state
    outcomes = Counter(verdict.outcome for verdict in card.verdicts)
    verdicts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items())) or "-"
    labels = safe(" ".join(f"{name}={value}" for name, value in card.labels.items()))
    began = _when(card.began_unix_s) if card.began_unix_s else "-"
    return (safe(card.name), safe(card.plan) or "-", began, state, verdicts, labels)


def _when(unix_s: float) -> str:
    from datetime import datetime

    return datetime.fromtimestamp(unix_s).astimezone().strftime("%Y-%m-%d %H:%M:%S")


TREND_EPILOG = """
  proveout trend
  proveout trend plans/smoke.yaml --by commit --html trend.html
  proveout trend smoke --fail-if change --json trend.json
  proveout trend smoke --acknowledge smoke-20260114-101500-3f2a --note 'checksums are on from here'
"""


def trend(
    plan: Annotated[
        str,
        typer.Argument(
            metavar="PLAN",
            help="A plan's name or file [default: the plan of the newest run].",
            autocompletion=options.plan_files,
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
            metavar="NAME", help="A metric, repeatable [default: tps, rate, threads, response.avg_us, response.p99_us]."
        ),
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(metavar="NAMES", help="Take runs that differ in these too, as in `compare`: `version,kernel`."),
    ] = None,
    fail_if: Annotated[
        Literal["change", "worse"] | None,
        typer.Option(help="Exit 1 when a change (one for the worse) is shown and not acknowledged."),
    ] = None,
    acknowledge: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Accept the change that begins at this run.", autocompletion=options.runs),
    ] = None,
    note: Annotated[str, typer.Option(help="With --acknowledge: the reason.")] = "",
    runs_dir: RunsDir = RUNS,
    json: Annotated[Path | None, file_option("Write the histories as JSON.")] = None,
    markdown: Annotated[Path | None, file_option("Write the report in Markdown.")] = None,
    html: Annotated[Path | None, file_option("Write one HTML file, with a figure per metric.")] = None,
) -> None:
    """Show the metrics of all comparable runs of a plan over time, and the runs at which they changed.

    Comparable runs have the plan (apart from repeats), the environment and the program of the newest run. The decision
    on a run does not change when runs are added. Exit codes: 0 success, 2 a wrong command line or no finished run of
    the plan; with --fail-if 1 when it holds, 3 with too few runs to show a change, or without a number of the newest.
    """
    from proveout.coordinator.history import metric_history
    from proveout.coordinator.report import terminal
    from proveout.coordinator.report.history_documents import Trend, trend_document

    outputs = output_files.check_outputs({"json": json, "markdown": markdown, "html": html})
    selection = _selected(_read(runs_dir), plan, parameters, inventory, allow)
    known = {name for run in selection.runs for rung in run.rungs for name in rung.numbers}
    if known and (unknown := next((name for name in metric or () if name not in known), None)):
        raise typer.BadParameter(f"no run has {unknown!r}", param_hint="--metric")
    find = partial(metric_history.histories, selection, metric or metric_history.METRICS)
    _acknowledge(runs_dir, acknowledge, note, metric or [""], find)
    histories = find(metric_history.read_acknowledgements(runs_dir))
    shown = Trend(selection=selection, histories=histories, label=by, condition=fail_if)
    terminal.show(trend_document(shown), sys.stdout)
    _write(shown, outputs)
    raise typer.Exit(metric_history.exit_code(selection, histories, shown.condition))


def _read(folder: Path) -> RunFolder:
    from proveout.coordinator.history.runs import read_folder

    with options.counting("runs read") as progress:
        found = read_folder(folder, progress)
    for name, fault in found.unreadable:
        typer.echo(safe(f"warning: {name} is left out: {fault}"), err=True)
    return found


def _selected(
    found: RunFolder, plan: str, parameters: list[str] | None, inventory: Path | None, allow: list[str] | None
) -> Selection:
    from proveout.coordinator.history.runs import select, study_digest
    from proveout.dsl.compile.compiler import compile_plan

    allowed = options.names(allow)
    if options.is_plan_file(plan):
        compiled = compile_plan(Path(plan), overrides=parse_overrides(parameters), inventory=inventory)
        return select(found, name=compiled.name, study=study_digest(compiled), allow=allowed)
    if parameters or inventory is not None:
        raise typer.BadParameter("only together with a plan file", param_hint="-p/--inventory")
    return select(found, name=plan, allow=allowed)


def _acknowledge(
    folder: Path, run: str | None, note: str, metrics: list[str], find: Callable[[], Sequence[MetricHistory]]
) -> None:
    from proveout.coordinator.history.metric_history import Acknowledgement, acknowledge
    from proveout.coordinator.history.runs import read_summary
    from proveout.coordinator.storage import run_directory

    if bool(run) != bool(note):
        raise typer.BadParameter("--acknowledge RUN and --note TEXT belong together", param_hint="--acknowledge")
    if run is None:
        return
    name = read_summary(run_directory.find(folder, run)).run  # not that of its directory, which may have another one
    if not any(change.run.run == name for history in find() for change in history.changes):
        raise typer.BadParameter(f"no change is shown that begins at {name}", param_hint="--acknowledge")
    for metric in metrics:
        acknowledge(folder, Acknowledgement(run=name, note=note, metric=metric, unix_s=time.time()))


def _write(shown: Trend, outputs: dict[str, str]) -> None:
    from proveout.coordinator.report import html, markdown
    from proveout.coordinator.report.history_documents import to_json, trend_document

    writers: dict[str, Callable[[], str]] = {
        "json": lambda: to_json(shown),
        "markdown": lambda: markdown.render(trend_document(shown)),
        "html": lambda: html.render(trend_document(shown, figures=True)),
    }
    output_files.write_documents(outputs, writers)


NOISE_EPILOG = """
  proveout noise plans/smoke.yaml
  proveout noise plans/hlr-cache-embedded.yaml --stage baseline --threads 4 --repeats 20
  proveout noise plans/smoke.yaml -p measure=10s --json noise.json
"""


def noise(
    plan: PlanFile,
    *,
    parameters: Overrides = None,
    inventory: Inventory = None,
    stage: Annotated[str | None, typer.Option(metavar="ID", help="The ladder [default: the plan's first].")] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, max=100_000, help="The rung [default: the ladder's most threads].")
    ] = None,
    repeats: Annotated[
        int, typer.Option(min=3, max=1000, help="Repeats; each has one iteration of each of the two arms.")
    ] = 10,
    headless: Annotated[bool, typer.Option("--headless", help="Plain lines, none that is rewritten.")] = False,
    runs_dir: RunsDir = RUNS,
    json: Annotated[Path | None, file_option("Write the record as JSON too.")] = None,
    pki: Pki = None,
    policy: PolicyFile = None,
) -> None:
    """Run one rung of a plan against itself (A/A), and show which changes repeats on this rig can show.

    Two equal ladders take turns. The variance of their numbers is split into that between repeats, between iterations
    and between seconds. The record is stored in the run's directory as noise.json; from then on `explain` shows what
    the plan's repeats can show. Stages before the ladder that measure nothing run as in the plan;
    verdicts and all other stages are left out. Exit codes: 0 measured, 2 the plan or the command line is wrong, 3 too
    few valid pairs, 4 the infrastructure failed, 130 interrupted.
    """
    from proveout.dsl.compile.compiler import compile_plan
    from proveout.dsl.plan.iteration_order import choose, noise_plan

    overrides = parse_overrides(parameters)
    compiled = compile_plan(plan, overrides=overrides, inventory=inventory)
    arms = choose(compiled, stage, threads, repeats)
    derived = noise_plan(compiled, arms)
    from proveout.cli import run_session
    from proveout.coordinator.storage.journal import Journal

    asked = output_files.check_outputs({"json": json})
    checked = {output_files.NOISE: asked["json"]} if asked else {}
    named = options.Access(pki=pki, policy=policy, runs_dir=runs_dir)
    begun = run_session.begin(derived, plan, inventory, named, overrides=overrides, outputs=checked, noise=arms)
    with Journal(begun.directory.path) as journal:
        show = run_session.printer(headless=headless)
        exit_code = run_session.execute(begun, journal, show, checked)
    raise typer.Exit(exit_code)
