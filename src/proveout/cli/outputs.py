"""Result files of a run, made from its journal alone, and the problems of a plan as files for CI."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, cast

from proveout.cli.options import Annotations, Unusable, describe, typed
from proveout.core.data_classes import record
from proveout.core.errors import PlanError, PlanProblem, ProveoutError

if TYPE_CHECKING:
    from proveout.coordinator.report.ci_reports import Remark
    from proveout.coordinator.report.document import Section
    from proveout.coordinator.results.results import RunResults
    from proveout.coordinator.storage.run_directory import RunDirectory
    from proveout.dsl.plan.iteration_order import NoiseArms


OUTPUTS = ("junit", "json", "summary", "codequality", "gitlab-metrics")
"""The files that a command line can ask for, by option."""
RESULT, PAGE, RECORD, NOISE = "result", "page", "record", "noise"
"""The two files of every run; the record of a noise run in its directory, and the file that its command line names."""


def check_outputs(outputs: Mapping[str, Path | None]) -> dict[str, str]:
    """The requested files with absolute paths. Unusable for one that cannot be written."""
    wanted = {name: path.absolute() for name, path in outputs.items() if path is not None}
    for name, path in wanted.items():
        try:
            if path.is_dir():
                raise Unusable(f"--{name} {path} is a directory", way_out="Name a file.")
            if not path.parent.is_dir():
                raise Unusable(f"--{name} {path}: directory {path.parent} does not exist", way_out="Create it first.")
            writable = os.access(path if path.exists() else path.parent, os.W_OK)
        except OSError:  # a directory that may not be entered
            writable = False
        if not writable:
            raise Unusable(
                f"--{name} {path} cannot be written", way_out="Name a file in a directory that you can write."
            )
    return {name: str(path) for name, path in wanted.items()}


def wants_github(annotations: Annotations) -> bool:
    """Whether the log gets GitHub's workflow commands: on request, or automatically in a GitHub job."""
    return annotations == "github" or (annotations == "auto" and os.environ.get("GITHUB_ACTIONS") == "true")


def annotate(remarks: Iterable[Remark], annotations: Annotations, stream: TextIO | None = None) -> None:
    """Print the annotations of a GitHub job to `stream`, standard output by default, where they are wanted."""
    from proveout.coordinator.report.ci_reports import to_github

    if wants_github(annotations):
        (stream or sys.stdout).write(to_github(remarks, checkout()))


def checkout() -> Path:
    """The directory that file names of a CI job are relative to; outside a job the current one."""
    return Path(os.environ.get("GITHUB_WORKSPACE") or os.environ.get("CI_PROJECT_DIR") or Path.cwd())


def put(path: Path, content: str | bytes) -> None:
    """Write a file atomically; into what is there where that is a device, a pipe or a link, such as `/dev/stdout`,
    which a new file would replace. OSError."""
    from proveout.coordinator.storage.run_directory import write_whole

    if path.exists() and (path.is_symlink() or not path.is_file()):
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    else:
        write_whole(path, content)


def write_document(path: Path, content: str | bytes, *, parents: bool = False) -> None:
    """Write a file that a command line asks for, with `parents` also the directories above it. Unusable."""
    try:
        if parents and not path.parent.exists():
            path.parent.mkdir(parents=True)
        put(path, content)
    except OSError as fault:
        what = f"{path} cannot be written: {fault.strerror or fault}"
        raise Unusable(what, way_out="Name a file in a directory that you can write.") from fault


def write_documents(outputs: Mapping[str, str], writers: Mapping[str, Callable[[], str | bytes]]) -> None:
    """Write the files that are asked for, each by its writer. Unusable."""
    for name, path in outputs.items():
        write_document(Path(path), writers[name]())


def kept(directory: RunDirectory) -> dict[str, str]:
    record = {RECORD: str(directory.path / "noise.json")} if _noise_arms(directory) is not None else {}
    return {RESULT: str(directory.path / "result.json"), PAGE: str(directory.path / "report.html"), **record}


def _noise_arms(directory: RunDirectory) -> NoiseArms | None:
    """The rung of a noise run; None for all other runs."""
    try:
        return directory.command().noise
    except ProveoutError:
        return None


def write(results: RunResults, directory: RunDirectory, files: Mapping[str, str]) -> ProveoutError | None:
    """Write all files that can be made and written; return the error of the first that cannot."""
    from proveout.coordinator.noise import TooFewPairs
    from proveout.coordinator.storage.journal import storage_failed
    from proveout.core.directories import is_full

    made = renderers(directory)
    failed: ProveoutError | None = None
    for name, path in files.items():
        try:
            content = made[name](results)
        except TooFewPairs:
            continue  # `show_results` reports it
        except ProveoutError as fault:  # damaged samples, which other files do not need
            failed = failed or fault
            continue
        try:
            put(Path(path), content)
        except OSError as fault:
            then = f"`proveout resume {directory.name}` makes the missing files"
            what = f"{Path(path).name} cannot be written"
            failed = failed or storage_failed(Path(path), fault, what, full=is_full(fault), then=then)
    return failed


def brought_in_by(results: RunResults, directory: RunDirectory, more: tuple[Section, ...] = ()) -> tuple[Section, ...]:
    """The reports of others that the plan names, of which the run has a copy, before `more`."""
    from proveout.coordinator.report import brought_in

    names = results.plan.get("brought_in", ())
    return (*((brought_in.section([directory.path / "plan" / name for name in names]),) if names else ()), *more)


def renderers(
    directory: RunDirectory, more: tuple[Section, ...] = ()
) -> Mapping[str, Callable[[RunResults], str | bytes]]:
    """The documents of a run, by the names of options and of the files of every run; `more`: sections at the end."""
    from proveout.coordinator import noise
    from proveout.coordinator.report import ci_reports, csv_export, html, json_documents, markdown
    from proveout.coordinator.report.run_document import page_document, run_document

    def page(results: RunResults) -> str:
        return html.render(page_document(results, directory).extended(brought_in_by(results, directory, more)))

    def record(results: RunResults) -> str:
        return noise.to_json(noise.measure(results, cast("NoiseArms", _noise_arms(directory))))

    def summary(results: RunResults) -> str:
        return markdown.render(run_document(results).extended(brought_in_by(results, directory, more)))

    return {
        RESULT: json_documents.result_to_json,
        PAGE: page,
        "html": page,
        "junit": ci_reports.to_xml,
        "json": json_documents.result_to_json,
        "summary": summary,
        "markdown": summary,
        "codequality": lambda results: ci_reports.to_codequality(results, checkout()),
        "gitlab-metrics": ci_reports.to_metrics,
        "benchstat": ci_reports.to_benchstat,
        "bencher": ci_reports.to_bencher,
        **dict.fromkeys((RECORD, NOISE), record),
        "parquet": csv_export.to_parquet,
        **{name: partial(csv_export.to_csv, kind=name) for name in csv_export.EXPORTS},
    }


def report(directory: RunDirectory, outputs: Mapping[str, str], notes: Annotations, *, quiet: bool = False) -> None:
    """Write result.json, report.html and the requested files, then print the summary unless `quiet`. The last
    lines of a run that ended before it began have its problems, so it has no summary."""
    from proveout.coordinator.report.summary import began_nothing

    results = directory.results()
    fault = write(results, directory, {**kept(directory), **outputs})
    told = began_nothing(results)
    if told and not quiet:
        plan = typed(_shown(directory.command().plan))
        sys.stdout.write(f"Check it again: proveout check --connect {plan}\n")
    show_results(results, directory, notes, quiet=quiet or told)
    if fault is not None:
        raise fault


def _shown(path: str) -> str:
    """A path as it is typed here: relative to the working directory where it lies below."""
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path


def show_results(results: RunResults, directory: RunDirectory, notes: Annotations, *, quiet: bool = False) -> None:
    """Print the summary on standard output unless `quiet`, and the annotations of a CI job where requested."""
    from proveout.coordinator.report import ci_reports, terminal
    from proveout.coordinator.report.run_document import run_summary

    if not quiet:
        terminal.show(run_summary(results, str(directory.path)), sys.stdout)
        _show_noise(results, directory)
    annotate(ci_reports.remarks(results), notes)


def _show_noise(results: RunResults, directory: RunDirectory) -> None:
    """Print the noise of a noise run that has finished. TooFewPairs."""
    from proveout.coordinator.noise import measure
    from proveout.coordinator.report import terminal
    from proveout.coordinator.report.history_documents import noise_document

    arms = _noise_arms(directory)
    if arms is not None and results.ended is not None and results.ended.exit_code == 0:
        terminal.show(noise_document(measure(results, arms)), sys.stdout)


def is_due(path: Path, results: RunResults) -> bool:
    """Whether a file is missing, or older than the run's end: from an earlier end, or from another run."""
    try:
        return path.stat().st_mtime < results.ended_unix_s
    except OSError:
        return True


def complete(directory: RunDirectory, chosen: Mapping[str, str], notes: Annotations, *, quiet: bool = False) -> int:
    """Make the missing files of a run that has finished, and the files that are requested now; return its exit code.

    The two files of every run are always written again. A file that `run` was given is written too, unless one that is
    newer than the run's end exists.
    """
    results = directory.results()
    due = {name: path for name, path in _asked(directory).items() if is_due(Path(path), results)}
    files = {**kept(directory), **due, **chosen}
    fault = write(results, directory, files)
    if not quiet:
        sys.stdout.write(f"{directory.name} has finished; made from its journal: {', '.join(files.values())}\n")
    show_results(results, directory, notes, quiet=quiet)
    if fault is not None:
        raise fault
    assert results.ended is not None  # noqa: S101 - the caller has checked
    return results.ended.exit_code


def _asked(directory: RunDirectory) -> dict[str, str]:
    """The files that `run` was given; none, with a warning, when the command cannot be read."""
    try:
        asked = directory.command().outputs
    except ProveoutError as fault:
        sys.stderr.write(f"warning: {fault}\n")
        return {}
    return {name: path for name, path in asked.items() if name in OUTPUTS}


PLAN_OUTPUTS = ("junit", "codequality")
"""The files that problems of a plan can be written to, by option."""


@record
class Checked:
    """A plan with its problems; without one, the notes on it."""

    file: str
    problems: Sequence[PlanProblem] = ()
    notes: Sequence[PlanProblem] = ()


def publish(
    checked: Sequence[Checked], outputs: Mapping[str, str], annotations: Annotations, stream: TextIO | None = None
) -> None:
    """Write the files of `PLAN_OUTPUTS` among `outputs`, and print the annotations of a GitHub job to `stream`,
    standard output by default. ProveoutError."""
    wanted = {name: path for name, path in outputs.items() if name in PLAN_OUTPUTS}
    if not wanted and not wants_github(annotations):
        return
    from proveout.coordinator.report import ci_reports as ci

    remarks = [remark for one in checked for remark in ci.of_problems(one.problems)]
    remarks += [remark for one in checked for remark in ci.of_problems(one.notes, "notice")]
    plans = [
        (one.file, "\n\n".join(map(describe, one.problems)), "\n\n".join(map(describe, one.notes))) for one in checked
    ]
    writers = {
        "junit": lambda: ci.of_plans(plans),
        "codequality": lambda: ci.codequality(remarks, checkout()),
    }
    write_documents(wanted, writers)
    annotate(remarks, annotations, stream)


@contextmanager
def of_problems(plan: Path, outputs: Mapping[str, str], annotations: Annotations) -> Iterator[None]:
    """Publish the problems of the plan that does not compile in the block; its PlanError goes on."""
    try:
        yield
    except PlanError as error:
        publish([Checked(file=str(plan), problems=error.problems)], outputs, annotations)
        raise
