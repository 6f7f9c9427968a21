"""`proveout compare`: the changes between runs."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from proveout.cli import options
from proveout.cli.options import Annotations, AnnotationsOption, Quiet, RunsDir, file_option

if TYPE_CHECKING:
    from proveout.coordinator.comparison import ComparedRuns, Condition, Judgement
    from proveout.coordinator.results.results import RunResults

EPILOG = """Examples:

  proveout compare smoke-20260114-101500-3f2a latest

  proveout compare baseline/smoke-20260114-101500-3f2a latest --fail-if 'tps.ratio.upper < 0.95'

  proveout compare before after --allow 'kernel,sysctl.*' --markdown compare.md --html compare.html
"""


def compare(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN RUN...",
            help="Runs: names, directories or `latest`; the first is the reference A, the others are B, C, …",
            autocompletion=options.runs,
        ),
    ],
    *,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAMES",
            help="Differences to allow, by the names in a refusal, separated by commas: `kernel`, `db1:kernel`, "
            "`sysctl.*`, "
            "`plan.*`.",
        ),
    ] = None,
    despite: Annotated[
        bool, typer.Option("--despite", help="Compare despite all differences; they are listed.")
    ] = False,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(metavar="CONDITION", help="Exit 1 when this holds: 'tps.ratio.upper < 0.95'. May be given again."),
    ] = None,
    band: Annotated[
        str | None,
        typer.Option(
            metavar="PERCENT",
            help="Differences within this band do not matter: `5%` calls them equal when the whole interval is in it.",
        ),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Print every number of every rung, not the main numbers alone.")
    ] = False,
    runs_dir: RunsDir = None,
    json: Annotated[Path | None, file_option("Write the comparison as JSON.")] = None,
    markdown: Annotated[Path | None, file_option("Write the comparison in Markdown.")] = None,
    html: Annotated[Path | None, file_option("Write one HTML file with the figures.")] = None,
    annotations: AnnotationsOption = Annotations.auto,
    quiet: Quiet = False,
) -> None:
    """Show the ratio of each run to the first one, with confidence intervals.

    Exit codes: 0 compared, 1 a --fail-if holds, 2 the runs are not comparable or the command line is wrong, 3 a
    --fail-if is undecidable.
    """
    from proveout.cli import outputs as output_files
    from proveout.coordinator import comparison as comparing
    from proveout.coordinator.report import ci_reports as marks

    if len(runs) < 2:
        raise typer.BadParameter("name at least two runs", param_hint="RUN RUN...")
    outputs = output_files.check_outputs({"json": json, "markdown": markdown, "html": html})
    results = [_results(runs_dir, name) for name in runs]
    conditions = _conditions(fail_if or [], results[0])
    allowed = options.names(allow)
    compared = comparing.compare_all(results, allow=allowed, despite=despite, band=_band(band))
    judged = [comparing.judge(condition, one) for one in compared for condition in conditions]
    again = [*runs, *(["--allow", ",".join(allowed)] if allowed else []), *(["--despite"] if despite else [])]
    again += [*(["--band", band] if band else []), *(["--runs-dir", str(runs_dir)] if runs_dir else [])]
    _print(compared, judged, quiet=quiet, whole="" if full else f"proveout compare {shlex.join(again)} --full")
    if output_files.wants_github(annotations, os.environ):
        remarks = marks.of_conditions(judged, comparing.legend(compared))
        sys.stdout.write(marks.to_github(remarks, output_files.checkout(os.environ)))
    _write(outputs, results, compared, judged)
    raise typer.Exit(comparing.exit_code(judged))


def _print(compared: Sequence[ComparedRuns], judged: Sequence[Judgement], *, quiet: bool, whole: str) -> None:
    """Print the conditions alone, the short form, where `whole` is the command that prints everything, or all."""
    from proveout.coordinator.comparison import legend, sentence
    from proveout.coordinator.report import terminal
    from proveout.coordinator.report.comparison_document import comparison_document

    if not quiet:
        document = comparison_document(compared, judged)
        terminal.show(document.brief(whole) if whole else document, sys.stdout)
    elif judged:
        sys.stdout.write("".join(f"{line}\n" for line in (legend(compared), *map(sentence, judged))))


def _band(text: str | None) -> float:
    """`5%` and `0.05` as 0.05; 0 for none."""
    if text is None:
        return 0.0
    digits = text.strip()
    try:
        value = float(digits.removesuffix("%").strip()) / (100.0 if digits.endswith("%") else 1.0)
    except ValueError:
        value = -1.0
    if not 0.0 < value < 1.0:
        raise typer.BadParameter(f"{text!r} is not between 0 % and 100 %; write 5% or 0.05", param_hint="--band")
    return value


def _results(runs_dir: Path | None, name: str) -> RunResults:
    from proveout.cli import messages
    from proveout.coordinator.storage import run_directory

    directory = run_directory.find(run_directory.runs_directory(runs_dir), name)
    results = directory.results(begun=True)
    messages.note_unchecked(directory.path)
    return results


def _conditions(texts: list[str], reference: RunResults) -> list[Condition]:
    from proveout.coordinator import comparison as comparing
    from proveout.coordinator.storage.journal import recorded_plan

    assert reference.run is not None  # noqa: S101 - `_results` has checked
    plan = recorded_plan(reference.run.plan) if texts else None
    return [comparing.check(text, plan) for text in texts if plan is not None]


def _write(
    outputs: dict[str, str], runs: list[RunResults], compared: Sequence[ComparedRuns], judged: list[Judgement]
) -> None:
    from proveout.cli.outputs import write_document
    from proveout.coordinator.report import html, markdown
    from proveout.coordinator.report.comparison_document import comparison_document
    from proveout.coordinator.report.json_documents import comparison_to_json

    writers = {
        "json": lambda: comparison_to_json(compared, judged),
        "markdown": lambda: markdown.render(comparison_document(compared, judged)),
        "html": lambda: html.render(comparison_document(compared, judged, runs)),
    }
    for name, path in outputs.items():
        write_document(Path(path), writers[name]())
