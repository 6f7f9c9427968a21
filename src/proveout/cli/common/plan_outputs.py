"""Problems of plans for CI: JUnit, a code quality report, and annotations in the log of a GitHub job.

Data flow: file -> its problems or notes -> the files that were requested, and workflow commands on standard output.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from proveout.cli.common import outputs as output_files
from proveout.cli.common.messages import describe
from proveout.cli.common.options import Annotations
from proveout.core.data_classes import dataclass
from proveout.core.errors import PlanError, PlanProblem, ProveoutError

OUTPUTS = ("junit", "codequality")
"""The files that problems of a plan can be written to, by option."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A plan with its problems; without one, the notes on it."""

    file: str
    problems: Sequence[PlanProblem] = ()
    notes: Sequence[PlanProblem] = ()


def publish(
    checked: Sequence[Checked], outputs: Mapping[str, str], annotations: Annotations, stream: TextIO | None = None
) -> None:
    """Write the files of `OUTPUTS` among `outputs`, and print the annotations of a GitHub job to `stream`, standard
    output by default. ProveoutError."""
    wanted = {name: path for name, path in outputs.items() if name in OUTPUTS}
    marked = output_files.wants_github(annotations, os.environ)
    if not wanted and not marked:
        return
    from proveout.coordinator.report import annotations as marks
    from proveout.coordinator.report import junit
    from proveout.coordinator.storage.run_directory import write_whole

    root = output_files.checkout(os.environ)
    remarks = [remark for one in checked for remark in marks.of_problems(one.problems)]
    remarks += [remark for one in checked for remark in marks.of_problems(one.notes, "notice")]
    plans = [
        junit.CheckedPlan(
            file=one.file, problems=tuple(map(describe, one.problems)), notes=tuple(map(describe, one.notes))
        )
        for one in checked
    ]
    writers = {"junit": lambda: junit.of_plans(plans), "codequality": lambda: marks.codequality(remarks, root)}
    for name, path in wanted.items():
        try:
            write_whole(Path(path), writers[name]())
        except OSError as fault:
            raise ProveoutError(f"{path} cannot be written: {fault.strerror}") from fault
    if marked:
        (stream or sys.stdout).write(marks.to_github(remarks, root))


@contextmanager
def of_problems(plan: Path, outputs: Mapping[str, str], annotations: Annotations) -> Iterator[None]:
    """Publish the problems of the plan that does not compile in the block; its PlanError goes on."""
    try:
        yield
    except PlanError as error:
        publish([Checked(file=str(plan), problems=error.problems)], outputs, annotations)
        raise
