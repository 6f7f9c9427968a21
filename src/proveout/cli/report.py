"""`proveout report`: write a run as HTML, Markdown, tables of numbers, and pictures."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from proveout.cli import options, outputs
from proveout.cli.options import RUNS, RunName, RunsDir, file_option

if TYPE_CHECKING:
    from proveout.coordinator.report.document import Section
    from proveout.coordinator.results.results import RunResults
    from proveout.coordinator.storage.run_directory import RunDirectory

EPILOG = """
  proveout report latest
  proveout report latest --html report.html --csv rows.csv --figures figures --format png
  proveout report latest --text -
  proveout report runs/smoke-20260102-030405-abcd --markdown report.md
"""


Format: TypeAlias = Literal["svg", "png"]
Say: TypeAlias = Callable[[str], None]


def report(
    run: RunName,
    *,
    runs_dir: RunsDir = RUNS,
    html: Annotated[Path | None, file_option("Write one HTML file that needs no network.")] = None,
    text: Annotated[Path | None, file_option("Write all evidence and tables as text.")] = None,
    markdown: Annotated[Path | None, file_option("Write a summary in Markdown.")] = None,
    csv: Annotated[Path | None, file_option("Write a row for each rung, repeat and transaction as CSV.")] = None,
    parquet: Annotated[Path | None, file_option("Write the same rows as parquet.")] = None,
    sizes: Annotated[Path | None, file_option("Write the sizes of tables and indexes, by iteration, as CSV.")] = None,
    values: Annotated[Path | None, file_option("Write the metrics of queries and commands as CSV.")] = None,
    faults: Annotated[Path | None, file_option("Write every occurrence of a fault, by load and host, as CSV.")] = None,
    with_: Annotated[
        list[Path] | None,
        typer.Option(
            "--with",
            metavar="FILE",
            help="Show a report of others in it: AWR (HTML), Statspack, ttStats, sar. Repeatable.",
        ),
    ] = None,
    benchstat: Annotated[
        Path | None, file_option("Write every valid repeat in Go's benchmark format, for `benchstat`.")
    ] = None,
    bencher: Annotated[
        Path | None, file_option("Write rungs with their intervals in Bencher Metric Format (JSON).")
    ] = None,
    figures: Annotated[Path | None, file_option("Write every figure into this directory.", "DIR")] = None,
    form: Annotated[Format | None, typer.Option("--format", help="Of the figures [default: svg].")] = None,
) -> None:
    """Report a run, finished or not. Without an option, write report.html into the run's directory. `-` in place of a
    FILE prints what it would hold.

    A missing result.json is written as well when the run has ended.
    """
    from proveout.coordinator.report import brought_in
    from proveout.coordinator.storage import run_directory

    tables = {"csv": csv, "parquet": parquet, "sizes": sizes, "values": values, "faults": faults}
    tables |= {"benchstat": benchstat, "bencher": bencher}
    wanted = {"html": html, "markdown": markdown, **tables}
    if figures is None:
        options.refuse("only together with --figures", format=form)
    if not (html or markdown or text) and (figures or any(wanted.values())):
        options.refuse("it is shown by --html, --markdown and --text", **{"with": with_})
    directory = run_directory.find(runs_dir, run)
    results = directory.results()
    options.note_unchecked(directory.path)
    more = (brought_in.section(with_),) if with_ else ()
    say = partial(typer.echo, err="-" in map(str, (text, *wanted.values())))  # no path is in what is printed
    if text is not None:
        _show_text(text, results, directory, more, say)
    if figures is None and text is None and not any(wanted.values()):
        wanted["html"] = directory.path / "report.html"
        result = outputs.kept(directory)[outputs.RESULT]
        if results.ended is not None and outputs.is_due(Path(result), results):
            fault = outputs.write(results, directory, {outputs.RESULT: result})
            if fault is not None:
                raise fault
            typer.echo(result)
    for kind, path in wanted.items():
        if path is not None:
            content = outputs.renderers(directory, more)[kind](results)
            if str(path) == "-":
                typer.echo(content, nl=False)
                continue
            outputs.write_document(path, content)
            say(str(path))
    if figures is not None:
        _export(results, directory, figures, form or "svg", say)


def _show_text(path: Path, results: RunResults, directory: RunDirectory, more: tuple[Section, ...], say: Say) -> None:
    from proveout.coordinator.report import terminal
    from proveout.coordinator.report.run_document import run_document

    others = outputs.brought_in_by(results, directory, more)
    document = run_document(results, run_dir=str(directory.path)).extended(others)
    printed = io.StringIO()
    terminal.show(document, sys.stdout if str(path) == "-" else printed)
    if str(path) != "-":
        outputs.write_document(path, printed.getvalue())
        say(str(path))


def _export(results: RunResults, directory: RunDirectory, folder: Path, form: Format, say: Say) -> None:
    from proveout.coordinator.report.figures.figure import picture
    from proveout.coordinator.report.figures.selection import figures as draw
    from proveout.coordinator.report.figures.timeline import read_timeline

    drawn, missing = draw(results, read_timeline(results, directory.samples))
    for figure in drawn:
        path = folder / f"{figure.slug}.{form}"
        outputs.write_document(path, picture(figure, form), parents=True)
        say(str(path))
    for name, why in missing.items():
        typer.echo(f"no {name}: {why}", err=True)
    if not drawn and not missing:
        typer.echo("no figures: the run has no numbers to draw", err=True)
