"""Read the summaries of all runs in a folder. Runs that have ended are cached, so that a folder of hundreds is quick.

Data flow: the run directories -> for each its journal (checked, as for a report) or the cached summary -> `RunSummary`,
oldest first. A cache entry is a JSON file in the user's cache directory; its key holds the path of the run, and the
size and time of change of its journal, so that a changed journal is read again. Without a writable cache everything
works and takes longer.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

from proveout.coordinator.history.run_summary import RunSummary, summarise
from proveout.coordinator.results.results import load_results
from proveout.coordinator.storage import event_chain, journal, run_directory
from proveout.coordinator.storage.event_codec import JournalFault
from proveout.coordinator.storage.run_directory import RunDirectory
from proveout.core.data_classes import dataclass
from proveout.core.json_data import from_plain, to_plain

FORMAT = 4
"""Of the cached summaries; changes with `RunSummary`, with what an estimate is, and with the methods of
`core.statistics`."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFolder:
    """The runs of a folder, oldest first; `unreadable` has the name and the fault of each journal that cannot be
    read."""

    path: Path
    runs: tuple[RunSummary, ...]
    unreadable: tuple[tuple[str, str], ...]


def read_folder(runs: Path, progress: Progress | None = None) -> RunFolder:
    """The summaries of all runs of a folder; `progress` is called with the number read and the number of all."""
    directories = run_directory.all_runs(runs)
    found: list[RunSummary] = []
    unreadable: list[tuple[str, str]] = []
    for index, directory in enumerate(directories):
        if progress is not None:
            progress(index, len(directories))
        try:
            found.append(read_summary(directory))
        except JournalFault as fault:
            unreadable.append((directory.name, fault.what))
    if progress is not None:
        progress(len(directories), len(directories))
    found.sort(key=lambda run: (run.started_unix_s, run.run))
    return RunFolder(path=runs, runs=tuple(found), unreadable=tuple(unreadable))


def read_summary(directory: RunDirectory) -> RunSummary:
    """The summary of one run. JournalFault."""
    entry = _entry(directory)
    if entry is not None and (kept := _kept(entry)) is not None:
        return kept
    summary = summarise(load_results(journal.read(directory.path)), directory.name)
    if entry is not None and summary.status != "unfinished":
        _keep(entry, summary)
    return summary


def _entry(directory: RunDirectory) -> Path | None:
    """The cache file of the run as it is now; None when its files cannot be read, or no cache folder can be used."""
    key: list[str] = [str(FORMAT), str(directory.path.resolve())]
    for name in (journal.FILE, event_chain.HEAD_FILE, f"{journal.FILE}-wal"):
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


def _kept(entry: Path) -> RunSummary | None:
    try:
        return from_plain(RunSummary, json.loads(entry.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, StopIteration, RecursionError):
        return None


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
