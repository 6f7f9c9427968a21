"""`proveout compare`: the changes between runs."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from proveout.cli import options
from proveout.cli import outputs as output_files
from proveout.cli.options import RUNS, AnnotationsOption, Quiet, RunsDir, file_option

if TYPE_CHECKING:
    from proveout.coordinator.comparison import ComparedRuns, Condition, Judgement
    from proveout.coordinator.results.results import RunResults

EPILOG = """
  proveout compare smoke-20260114-101500-3f2a latest
  proveout compare baseline/smoke-20260114-101500-3f2a latest --fail-if 'tps.ratio.upper < 0.95'
  proveout compare a1 a2 a3 -- b1 b2 b3
  proveout compare --label branch=main -- --label branch=fix
  proveout compare before after --allow 'kernel,sysctl.*' --markdown compare.md --html compare.html
"""


def compare(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN... [--] RUN...",
            help="Runs: names, directories or `latest`; the first is the reference A, the others are B, C, … With `--` "
            "between them, each side is all of its runs, also `--label NAME=VALUE`, its finished runs with that label.",
            autocompletion=options.runs,
        ),
    ],
    *,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAMES",
            help="Differences to allow, by the names in a refusal, separated by commas: `kernel`, `db1:kernel`, "
            "`sysctl.*`, `plan.*`.",
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
    runs_dir: RunsDir = RUNS,
    json: Annotated[Path | None, file_option("Write the comparison as JSON.")] = None,
    markdown: Annotated[Path | None, file_option("Write the comparison in Markdown.")] = None,
    html: Annotated[Path | None, file_option("Write one HTML file with the figures.")] = None,
    annotations: AnnotationsOption = "auto",
    quiet: Quiet = False,
) -> None:
    """Show the ratio of each run to the first one, with confidence intervals.

    With several runs a side, `A1 A2 A3 -- B1 B2 B3`, the run is the unit of the intervals. From five earlier runs of
    the plan in the folder on, their spread is in the intervals of single runs too.

    Exit codes: 0 compared, 1 a --fail-if holds, 2 the runs are not comparable or the command line is wrong, 3 a
    --fail-if is undecidable.
    """
    from proveout.coordinator import comparison as comparing
    from proveout.coordinator.history.runs import earlier_runs
    from proveout.coordinator.report import ci_reports

    if quiet:
        options.refuse("not together with --quiet", full=full)
    outputs = output_files.check_outputs({"json": json, "markdown": markdown, "html": html})
    named, allowed = _sides(runs, runs_dir), options.names(allow)
    sides = [[_results(runs_dir, name) for name in side] for side in named]
    conditions = _conditions(fail_if or [], sides[0][0])
    known = earlier_runs(runs_dir, [run for side in sides for run in side])
    compared = comparing.compare_all(sides, known=known, allow=allowed, despite=despite, band=_band(band))
    judged = [comparing.judge(condition, one) for one in compared for condition in conditions]
    folder = None if runs_dir == RUNS.absolute() else runs_dir
    given = {"--allow": ",".join(allowed), "--despite": despite, "--band": band, "--runs-dir": folder}
    _print(compared, judged, quiet=quiet, whole="" if full else _whole(named, given))
    output_files.annotate(ci_reports.of_conditions(judged, comparing.legend(compared)), annotations)
    _write(outputs, [side[0] for side in sides], compared, judged)
    raise typer.Exit(comparing.exit_code(judged))


def _print(compared: Sequence[ComparedRuns], judged: Sequence[Judgement], *, quiet: bool, whole: str) -> None:
    """Print the conditions alone, the short form, where `whole` is the command that prints everything, or all."""
    from proveout.coordinator.comparison import legend
    from proveout.coordinator.report import terminal
    from proveout.coordinator.report.comparison_document import comparison_document
    from proveout.coordinator.report.comparison_tables import sentence

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


class Command(TyperCommand):
    """A command that keeps `--`, and the places of `--label`, among its runs."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As of click, with what begins a side or names its runs as further runs."""
        kept, rest = [], iter(args)
        for word in rest:
            name, equals, value = word.partition("=")
            if word == "--":
                kept.append(NEXT)
            elif name == "--label":
                kept.append(LABEL + (value if equals else next(rest, "")))
            else:
                kept.append(word)
        return super().parse_args(ctx, kept)


NEXT, LABEL = "\0--", "\0label="


def _sides(words: Sequence[str], folder: Path) -> list[list[str]]:
    runs, missing = list(words), "name at least two runs"
    if NEXT not in runs and not any(word.startswith(LABEL) for word in runs):
        sides = [[run] for run in runs]
    else:
        missing = "name the runs of the other side behind `--`"
        sides = [list(group) for is_next, group in groupby(runs, NEXT.__eq__) if not is_next]
        sides = [[run for word in side for run in _labelled(word, folder)] for side in sides]
    if len(sides) < 2:
        raise typer.BadParameter(missing, param_hint="RUN... [--] RUN...")
    return sides


def _labelled(word: str, folder: Path) -> list[str]:
    """The run itself, or the finished runs with a label, of the plan of the newest one."""
    if not word.startswith(LABEL):
        return [word]
    from proveout.coordinator.history import runs as history

    name, _, value = word.removeprefix(LABEL).partition("=")
    read = history.read_folder(folder)
    labelled = [run for run in read.runs if run.status == "finished" and run.labels.get(name) == value]
    found = [read.directories[run.run].name for run in labelled if run.name == labelled[-1].name]
    if not found:
        raise typer.BadParameter(f"no finished run in {folder} has the label {name}={value}", param_hint="--label")
    return found


def _whole(sides: Sequence[Sequence[str]], given: Mapping[str, Any]) -> str:
    """The command that prints all, with the options that were given; True is an option without a value."""
    single = all(len(side) == 1 for side in sides)
    words = [run for side in sides for run in ([] if single else ["--"]) + list(side)][0 if single else 1 :]
    for option, value in given.items():
        words += [] if not value else [option] if value is True else [option, str(value)]
    return f"proveout compare {shlex.join(words)} --full"


def _results(folder: Path, name: str) -> RunResults:
    from proveout.coordinator.storage import run_directory

    directory = run_directory.find(folder, name)
    results = directory.results(begun=True)
    options.note_unchecked(directory.path)
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
    from proveout.coordinator.report import html, markdown
    from proveout.coordinator.report.comparison_document import comparison_document
    from proveout.coordinator.report.json_documents import comparison_to_json

    writers: dict[str, Callable[[], str | bytes]] = {
        "json": lambda: comparison_to_json(compared, judged),
        "markdown": lambda: markdown.render(comparison_document(compared, judged)),
        "html": lambda: html.render(comparison_document(compared, judged, runs)),
    }
    output_files.write_documents(outputs, writers)
