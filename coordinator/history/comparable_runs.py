"""The runs of a folder that can be compared with the newest run of a plan, the reasons for leaving out others, and the
runs from which schema, settings, versions or plan were others (boundaries).

Data flow: `RunFolder` -> `select` -> `Selection`. Runs with the digests of the reference (plan without repeats,
environment with schemas, program) are comparable at once. Of the others the journals are read and the differences
named, as `compare` does; `allow` takes the same names. A boundary names the differences of two successive finished runs
in the same way, whether these are allowed or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from proveout.coordinator.compare.comparability import Difference, differences, refused
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
class Boundary:
    """From `run` on, something was another than in the finished run `after` before it."""

    run: RunSummary
    after: RunSummary
    differences: tuple[Difference, ...]

    @property
    def names(self) -> str:
        """The names of the differences, of which the first `REASONS_MAX`."""
        names = list(dict.fromkeys(one.name for one in self.differences))
        more = f" and {len(names) - REASONS_MAX} more" if len(names) > REASONS_MAX else ""
        return ", ".join(names[:REASONS_MAX]) + more


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Comparable runs, oldest first; `left_out` has the run and the reason. `boundaries` are those of all finished runs
    of the plan."""

    reference: RunSummary
    runs: tuple[RunSummary, ...]
    left_out: tuple[tuple[str, str], ...]
    boundaries: tuple[Boundary, ...] = ()


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
    same = [run for run in finished if run.name == reference.name]
    found = (_boundary(folder, before, run, allow=()) for before, run in pairwise(same))
    return Selection(
        reference=reference,
        runs=tuple(runs),
        left_out=tuple(left_out),
        boundaries=tuple(one for one in found if one is not None),
    )


def _reason(folder: RunFolder, reference: RunSummary, run: RunSummary, allow: Sequence[str]) -> str:
    """Return the reason for which the run cannot be compared; "" when it can."""
    if run.status != "finished":
        return f"it is {run.status}"
    found = _boundary(folder, reference, run, allow)
    return f"it differs in {found.names}" if found else ""


def _boundary(folder: RunFolder, before: RunSummary, run: RunSummary, allow: Sequence[str]) -> Boundary | None:
    """The differences of two finished runs that are not allowed; None when there are none."""
    if _key(run) == _key(before) and run.study:
        return None
    repeats = [f"plan.stages.*.{key}" for key in REPEATS]
    found = refused(differences(_results(folder, before), _results(folder, run), [*allow, *repeats]))
    return Boundary(run=run, after=before, differences=found) if found else None


def _key(run: RunSummary) -> tuple[str, str, str]:
    return run.study, run.environment, run.version


def _results(folder: RunFolder, run: RunSummary) -> RunResults:
    return load_results(read(folder.path / run.run))
