"""The runs of a folder that can be compared with the newest run of a plan, and the reasons for leaving out others.

Data flow: `RunFolder` -> `select` -> `Selection`. Runs with the digests of the reference (plan without repeats,
environment, program) are comparable at once. Of the others the journals are read and the differences named, as
`compare` does; `allow` takes the same names.
"""

from __future__ import annotations

from collections.abc import Sequence

from proveout.coordinator.compare.comparability import differences, refused
from proveout.coordinator.history.run_folder import RunFolder
from proveout.coordinator.history.run_summary import REPEATS, RunSummary
from proveout.coordinator.results.results import RunResults, load_results
from proveout.coordinator.storage.journal import read
from proveout.core.data_classes import dataclass
from proveout.core.errors import ProveoutError

REASONS_MAX = 3


class NoHistory(ProveoutError):
    """The folder has no finished run of the plan."""

    exit_code = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Comparable runs, oldest first; `left_out` has the run and the reason."""

    reference: RunSummary
    runs: tuple[RunSummary, ...]
    left_out: tuple[tuple[str, str], ...]


def select(folder: RunFolder, *, name: str = "", study: str = "", allow: Sequence[str] = ()) -> Selection:
    """Select the comparable runs of plan `name`, by default of the plan of the newest run.

    `study`: a digest; the newest run with it is the reference, if there is one. Raises NoHistory and JournalFault.
    """
    finished = [run for run in folder.runs if run.status == "finished" and name in ("", run.name)]
    if not finished:
        raise NoHistory(
            f"the folder has no finished run{f' of plan {name}' if name else ''}",
            where=str(folder.path),
            way_out="`proveout runs` lists the runs; --runs-dir names another folder.",
        )
    reference = next((run for run in reversed(finished) if study and run.study == study), finished[-1])
    runs: list[RunSummary] = []
    left_out: list[tuple[str, str]] = []
    for run in folder.runs:
        if run.name != reference.name:
            continue
        if reason := _reason(folder, reference, run, allow):
            left_out.append((run.run, reason))
        else:
            runs.append(run)
    return Selection(reference=reference, runs=tuple(runs), left_out=tuple(left_out))


def _reason(folder: RunFolder, reference: RunSummary, run: RunSummary, allow: Sequence[str]) -> str:
    """Return the reason for which the run cannot be compared; "" when it can."""
    if run.status != "finished":
        return f"it is {run.status}"
    if _key(run) == _key(reference) and run.study:
        return ""
    repeats = [f"plan.stages.*.{key}" for key in REPEATS]
    found = refused(differences(_results(folder, reference), _results(folder, run), [*allow, *repeats]))
    names = list(dict.fromkeys(one.name for one in found))
    more = f" and {len(names) - REASONS_MAX} more" if len(names) > REASONS_MAX else ""
    return f"it differs in {', '.join(names[:REASONS_MAX])}{more}" if names else ""


def _key(run: RunSummary) -> tuple[str, str, str]:
    return run.study, run.environment, run.version


def _results(folder: RunFolder, run: RunSummary) -> RunResults:
    return load_results(read(folder.path / run.run))
