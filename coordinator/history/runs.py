"""The runs of a folder: the summary of each, those that can be compared with the newest one, and the table of all."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proveout.coordinator.comparability import MEASURED, Between, Difference, Place, between, differences, refused
from proveout.coordinator.results.fingerprint import fingerprints, schemas
from proveout.coordinator.results.results import RunResults, StageResult, load_results
from proveout.coordinator.storage import journal, run_directory
from proveout.coordinator.storage.journal import NOT_AS_WRITTEN, JournalFault, read, recorded_plan
from proveout.coordinator.storage.run_directory import RunDirectory
from proveout.core import errors
from proveout.core.data_classes import field, record
from proveout.core.errors import ProveoutError
from proveout.core.json_data import digest, from_plain, to_plain
from proveout.core.numbers import is_estimate
from proveout.dsl.plan.plan import Plan, to_data

if TYPE_CHECKING:
    import pyarrow as pa


# `study` and `environment` are digests that say which runs can be compared without a look at their journals: equal
# digests, equal plans and facts. `study` is taken over the parts of the plan that numbers depend on, without the number
# of repeats, which changes the width of an interval and not its centre.

REPEATS = ("repeat", "repeat_min")
"""Keys of a stage that do not change what its numbers are."""
STATISTICS = ("mean", "lower", "upper", "median", "cv", "n")


@record
class RungSummary:
    """One rung of one stage: `numbers` has its estimates by their dotted names, with their `values`; `threads` is None
    for a stage without rungs (a search, a populate …), whose numbers have a `mean` alone.

    `repeats` counts the valid ones, `excluded` those without a valid iteration.
    """

    stage: str
    kind: str
    workload: str
    target: str
    threads: int | None
    rate: float | None
    repeats: int
    excluded: int
    numbers: dict[str, dict[str, Any]]


@record
class RunSummary:
    """One run. `started_unix_s` is 0 when it has not begun; `status` is `unfinished` while it runs or was killed."""

    run: str
    started_unix_s: float
    status: str
    exit_code: int | None
    name: str
    title: str
    version: str
    digest: str
    study: str
    environment: str
    labels: dict[str, str] = field(default_factory=dict)
    rungs: tuple[RungSummary, ...] = ()


def summarise(results: RunResults, name: str) -> RunSummary:
    """The summary of the run in the directory `name`."""
    run, ended = results.run, results.ended
    return RunSummary(
        run=run.run_id if run else name,
        started_unix_s=results.started_unix_s,
        status=ended.status if ended else "unfinished",
        exit_code=ended.exit_code if ended else None,
        name=run.name if run else "",
        title=run.title if run else "",
        version=run.version if run else "",
        digest=run.digest if run else "",
        study=recorded_study(results),
        environment=environment_digest(results),
        labels=dict(run.labels) if run else {},
        rungs=tuple(rung for stage in results.stages.values() for rung in _rungs(results, stage)),
    )


def study_digest(plan: Plan) -> str:
    """`sha256:<hex>` of the parts of a plan that numbers depend on, without repeats."""
    data = to_data(plan)
    measured = {part: data[part] for part in MEASURED}
    measured["stages"] = [{key: stage[key] for key in stage if key not in REPEATS} for stage in data["stages"]]
    return digest(measured)


def recorded_study(results: RunResults) -> str:
    """The study digest of the recorded plan; "" when this version cannot read the plan."""
    if results.run is None:
        return ""
    try:
        return study_digest(recorded_plan(results.run.plan))
    except JournalFault:
        return ""


def environment_digest(results: RunResults) -> str:
    """`sha256:<hex>` of the fingerprints of all hosts and systems, and of the schemas and settings at the stages;
    "" when none was taken."""
    found: list[tuple[str, ...]] = [
        (one.host or one.equipment, one.system, one.digest) for one in fingerprints(results)
    ]
    found += [(one.stage, one.system, digest(dict(one.facts))) for one in schemas(results)]
    return digest(found) if found else ""


# ---- rungs -------------------------------------------------------------------------------------------------------


def _rungs(results: RunResults, stage: StageResult) -> Iterator[RungSummary]:
    planned = results.plan_stage(stage.id)
    workload, target = (str(planned.get(name) or "") for name in ("workload", "target"))
    made = partial(RungSummary, stage=stage.id, kind=stage.kind, workload=workload, target=target)
    for rung in stage.rungs if stage.climbs else ():
        if not rung.tree:
            continue
        yield made(
            threads=rung.threads,
            rate=next((item.rate for item in rung.iterations if item.rate is not None), None),
            repeats=len(rung.iterations),
            excluded=len(rung.excluded),
            numbers=dict(flat(rung.tree)),
        )
    if not stage.climbs and stage.finished is not None and stage.finished.metrics:
        numbers = dict(flat(stage.finished.metrics))
        rate = numbers.get("rate", {}).get("mean")
        yield made(threads=None, rate=rate, repeats=0, excluded=0, numbers=numbers)


def flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """The numbers of a tree by their dotted names: an estimate with its statistics and values, a plain number as
    `mean`."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            if is_estimate(value):
                kept = {key: value[key] for key in (*STATISTICS, "values") if key in value}
                yield prefix + name, {**kept, "values": list(kept.get("values", ()))}
            else:
                yield from flat(value, f"{prefix}{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield prefix + name, {"mean": float(value)}


FORMAT = 7
"""Of the cached summaries; changes with `RunSummary`, with what an estimate is, and with the methods of
`core.statistics`."""

Progress = Callable[[int, int], None]


@record
class RunFolder:
    """The runs of a folder, oldest first, and the directory of each, which may have another name; `unreadable` has the
    name and the fault of each journal that cannot be read."""

    path: Path
    runs: tuple[RunSummary, ...]
    unreadable: tuple[tuple[str, str], ...]
    directories: Mapping[str, Path]


def read_folder(runs: Path, progress: Progress | None = None) -> RunFolder:
    """The summaries of all runs of a folder, copies of one once; `progress` is called with the number read and the
    number of all."""
    directories = run_directory.all_runs(runs)
    found: dict[str, RunSummary] = {}
    places: dict[str, Path] = {}
    unreadable: list[tuple[str, str]] = []
    for index, directory in enumerate(directories):
        if progress is not None:
            progress(index, len(directories))
        try:
            summary = read_summary(directory)
            found.setdefault(summary.run, summary)  # a renamed copy, which may lack the end of the run, comes later
            places.setdefault(summary.run, directory.path)
        except JournalFault as fault:
            unreadable.append((directory.name, fault.what))
    if progress is not None:
        progress(len(directories), len(directories))
    ordered = sorted(found.values(), key=lambda run: (run.started_unix_s, run.run))
    return RunFolder(path=runs, runs=tuple(ordered), unreadable=tuple(unreadable), directories=places)


def read_summary(directory: RunDirectory) -> RunSummary:
    """The summary of one run. JournalFault."""
    entry = _entry(directory)
    if entry is not None:
        with contextlib.suppress(OSError, *NOT_AS_WRITTEN):
            return from_plain(RunSummary, json.loads(entry.read_text(encoding="utf-8")))
    summary = summarise(load_results(journal.read(directory.path)), directory.name)
    if entry is not None and summary.status != "unfinished":
        _keep(entry, summary)
    return summary


def _entry(directory: RunDirectory) -> Path | None:
    """The cache file of the run as it is now; None when its files cannot be read, or no cache folder can be used."""
    key: list[str] = [str(FORMAT), str(directory.path.resolve())]
    for name in (journal.FILE, journal.HEAD_FILE, f"{journal.FILE}-wal"):
        try:
            seen = (directory.path / name).stat()
        except FileNotFoundError:
            continue
        except OSError:
            return None
        if seen.st_size:  # a reader leaves an empty log
            key.append(f"{name} {seen.st_size} {seen.st_mtime_ns}")
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "proveout" / "runs"
    except RuntimeError:  # a user without an account and without HOME, as in containers
        return None
    return cache / f"{hashlib.sha256(chr(10).join(key).encode()).hexdigest()[:40]}.json"


def _keep(entry: Path, summary: RunSummary) -> None:
    """Write a cache entry, atomically and without a wait for the disk."""
    beside = entry.with_name(f".{entry.name}.{os.getpid()}")
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(to_plain(summary), separators=(",", ":"), ensure_ascii=False)
        beside.write_text(text, encoding="utf-8")
        beside.replace(entry)
    except OSError:
        return


REASONS_MAX = 3


class NoHistory(ProveoutError):
    """The folder has no finished run of the plan."""

    exit_code = 2


@record
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


@record
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


def earlier(folder: RunFolder, reference: RunSummary, compared: Set[str]) -> Between:
    """The spread of finished runs of the reference's plan, environment and version; without those whose ids are
    `compared`."""
    runs = [
        run
        for run in folder.runs
        if run.status == "finished" and run.study and _key(run) == _key(reference) and run.run not in compared
    ]
    series: dict[tuple[Place, str], list[float]] = {}
    for rung in (rung for run in runs for rung in run.rungs):
        for metric, numbers in rung.numbers.items():
            if "mean" in numbers:
                series.setdefault(((rung.stage, rung.threads), metric), []).append(numbers["mean"])
    return between(series, len(runs))


def earlier_runs(folder: Path, compared: Sequence[RunResults]) -> Between:
    """The spread of the runs of a folder that are as the first of the compared ones, without these."""
    ids = {results.run.run_id for results in compared if results.run}
    return earlier(read_folder(folder), summarise(compared[0], ""), ids)


def _key(run: RunSummary) -> tuple[str, str, str]:
    return run.study, run.environment, run.version


def _results(folder: RunFolder, run: RunSummary) -> RunResults:
    return load_results(read(folder.directories[run.run]))


COLUMNS = (
    "run", "started", "status", "exit_code", "plan", "title", "digest", "version", "environment",
    "stage", "kind", "workload", "target", "threads", "rate", "repeats", "excluded",
)  # fmt: skip
SHOWN = ("mean", "lower", "upper", "cv")
LABEL = "label."


def rows(runs: Sequence[RunSummary]) -> Iterator[dict[str, Any]]:
    """The rows, in the order of the runs. Keys are columns; numbers that are not there have no key."""
    for run in runs:
        about = {name: getattr(run, name) for name in COLUMNS if hasattr(run, name)}
        about |= {"plan": run.name, **{LABEL + name: value for name, value in run.labels.items()}}
        about["started"] = datetime.fromtimestamp(run.started_unix_s, UTC) if run.started_unix_s else None
        yield from (about | _row_rung(rung) for rung in run.rungs)


def _row_rung(rung: RungSummary) -> dict[str, Any]:
    about = {name: getattr(rung, name) for name in COLUMNS if hasattr(rung, name)}
    numbers = {
        f"{metric}.{statistic}": float(estimate[statistic])
        for metric, estimate in rung.numbers.items()
        for statistic in SHOWN
        if estimate.get(statistic) is not None
    }
    return about | numbers


def to_table(runs: Sequence[RunSummary]) -> pa.Table:
    """The rows as an Arrow table; the columns are `COLUMNS`, the labels, and the numbers that any row has."""
    pa = errors.loaded("pyarrow", "a table of Arrow")

    found = list(rows(runs))
    kinds = {name: pa.string() for name in COLUMNS} | {
        "started": pa.timestamp("us", tz="UTC"),
        "exit_code": pa.int64(),
        "threads": pa.int64(),
        "rate": pa.float64(),
        "repeats": pa.int64(),
        "excluded": pa.int64(),
    }
    known = dict.fromkeys(name for row in found for name in row)
    labels = sorted(name for name in known if name.startswith(LABEL))
    numbers = [name for name in known if name not in kinds and not name.startswith(LABEL)]
    schema = pa.schema(
        [*kinds.items(), *((name, pa.string()) for name in labels), *((name, pa.float64()) for name in numbers)]
    )
    return pa.Table.from_pylist(found, schema=schema)


def to_parquet(runs: Sequence[RunSummary]) -> bytes:
    """The same table as a parquet file."""
    pq = errors.loaded("pyarrow.parquet", "a parquet file")

    out = io.BytesIO()
    pq.write_table(to_table(runs), out, compression="zstd")
    return out.getvalue()
