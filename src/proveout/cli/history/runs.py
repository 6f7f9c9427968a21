"""`proveout runs`: list the runs."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from proveout.cli.common import completion
from proveout.cli.common.options import RunsDir

if TYPE_CHECKING:
    from proveout.coordinator.storage.run_directory import RunDirectory

EPILOG = """Examples:

  proveout runs

  proveout runs --runs-dir /var/lib/proveout/runs

  proveout runs --environment latest

  proveout runs --parquet runs.parquet && duckdb -c "SELECT run, threads, \"tps.mean\" FROM 'runs.parquet'"
"""
_HEAD = ("RUN", "PLAN", "WHEN", "STATE", "VERDICTS", "LABELS")


def runs(
    runs_dir: RunsDir = None,
    environment: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            help="Show instead what a run (a name, a directory or `latest`) was measured in.",
            autocompletion=completion.runs,
        ),
    ] = None,
    parquet: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write instead a table with a row for each rung of each stage of every run."),
    ] = None,
) -> None:
    """List the runs, newest first: plan, start, end, verdicts and labels; or write their numbers as one table."""
    from proveout.coordinator.storage import run_directory

    folder = run_directory.runs_directory(runs_dir, os.environ)
    if parquet is not None:
        _write_table(folder, parquet)
        return
    if environment is not None:
        for line in _environment(run_directory.find(folder, environment)):
            typer.echo(line)
        return
    rows = [_row(directory) for directory in run_directory.all_runs(folder)]
    if not rows:
        typer.echo(f"There is no run in {folder}.")
        return
    shown = len(_HEAD) if any(row[-1] for row in rows) else len(_HEAD) - 1
    lines = [row[:shown] for row in (_HEAD, *rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(shown)]
    for row in lines:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _write_table(folder: Path, file: Path) -> None:
    """Write the table of all runs; messages go to stderr."""
    from proveout.cli.common import outputs
    from proveout.cli.common.messages import counting
    from proveout.coordinator.history.run_folder import read_folder
    from proveout.coordinator.history.run_table import to_parquet
    from proveout.coordinator.report.csv_export import write_bytes
    from proveout.core.errors import ProveoutError
    from proveout.core.numbers import safe

    outputs.check_outputs({"parquet": file})
    with counting("runs read") as progress:
        found = read_folder(folder, progress)
    for name, fault in found.unreadable:
        typer.echo(safe(f"warning: {name} is left out: {fault}"), err=True)
    try:
        write_bytes(file, to_parquet(found.runs))
    except OSError as fault:
        raise ProveoutError(f"{file} cannot be written: {fault.strerror}") from fault
    count = sum(len(run.rungs) for run in found.runs)
    typer.echo(f"{file}: {count} rows of {len(found.runs)} run{'' if len(found.runs) == 1 else 's'} in {folder}")


def _environment(directory: RunDirectory) -> Iterator[str]:
    """All facts of every host and system, with the digest, and changes during the run."""
    from proveout.coordinator.results.fingerprint import fact_list, fingerprints, outline
    from proveout.coordinator.results.results import load_results
    from proveout.coordinator.storage.journal import read
    from proveout.core.numbers import safe

    found = fingerprints(load_results(read(directory.path)))
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
    from proveout.coordinator.schedule.progress import run_progress
    from proveout.coordinator.storage.event_chain import JournalDamaged
    from proveout.coordinator.storage.event_codec import JournalFault
    from proveout.coordinator.storage.journal import is_driven, read
    from proveout.core.numbers import safe

    try:
        events = read(directory.path)
    except JournalDamaged as fault:
        return (directory.name, "-", "-", safe(fault.what.removeprefix("the journal is ")), "-", "")
    except JournalFault as fault:
        return (directory.name, "-", "-", safe(f"unreadable: {fault.what}"), "-", "")
    facts = run_progress(stamped.event for stamped in events)
    plan = safe(facts.started.name) if facts.started else "-"
    state = facts.ended.status if facts.ended else "running" if is_driven(directory.path) else "crashed (resume)"
    outcomes = Counter(verdict.outcome for verdict in facts.verdicts)
    verdicts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items())) or "-"
    labels = facts.started.labels if facts.started else {}
    shown = safe(" ".join(f"{name}={value}" for name, value in labels.items()))
    return (directory.name, plan, _when(events[0].unix_s) if events else "-", state, verdicts, shown)


def _when(unix_s: float) -> str:
    from datetime import datetime

    return datetime.fromtimestamp(unix_s).astimezone().strftime("%Y-%m-%d %H:%M:%S")
