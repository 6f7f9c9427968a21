"""The run directory: the files of a run, the search for a run by name, and its audit log."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import secrets
import shutil
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from proveout.coordinator.results.results import RunResults, load_results
from proveout.coordinator.schedule.state import run_progress
from proveout.coordinator.storage import journal
from proveout.coordinator.storage.journal import (
    FILE,
    NOT_AS_WRITTEN,
    StorageFailed,
    load_bounded,
    plan_data,
    read,
    recorded_plan,
)
from proveout.core.data_classes import dataclass, record
from proveout.core.directories import is_full
from proveout.core.errors import PlanError, ProveoutError
from proveout.core.json_data import from_plain
from proveout.dsl.plan.iteration_order import NoiseArms, noise_plan
from proveout.dsl.plan.plan import Plan, canonical_json
from proveout.proto.audit_log import FILE as AUDIT_FILE
from proveout.proto.audit_log import AuditLog
from proveout.proto.events import RunStarted, Stamped
from proveout.proto.wire.codec import WireFault, task_bytes, task_digest
from proveout.proto.wire.tasks import Task

# <runs>/<plan>-<YYYYmmdd-HHMMSS>-<4 hex>/
#   journal.sqlite  the events; authoritative (`journal`)
#   journal.head    number and hash of the newest event (`journal`)
#   command.json    the command, so that a resume can detect a changed plan
#   plan/           copies of the plan's files; plan.json its canonical form
#   samples/        per finished iteration: STAGE-THREADS-REPEAT-ATTEMPT.{load,captures,bins}.parquet (`samples`)
#   outputs/        the raw outputs of outside programs and the reports of databases
#   logs/           the logs of local agents
#   systems/        data of provisioned systems; removed when the run has finished
#   result.json     the results, written when the run ends
#   report.html     the report, written with the results
#
# Files are complete: each is written beside its name and then renamed.

RUNS_VARIABLE = "PROVEOUT_RUNS_DIR"
LATEST = "latest"


class RunNotFound(ProveoutError):
    """No run of that name; nothing was done."""

    exit_code = 2


@record
class Command:
    """The arguments of `proveout run`, or with `noise` of `proveout noise`. Paths are absolute. `removes`: of `proveout
    bench`, which removes what a run that was broken off has made."""

    plan: str
    overrides: dict[str, str] = field(default_factory=dict)
    inventory: str | None = None
    pki: str | None = None
    policy: str | None = None
    outputs: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    noise: NoiseArms | None = None
    preflight: bool = True
    removes: bool = False

    @property
    def files(self) -> dict[str, str]:
        """The files that it names, by the name of their option."""
        named = {"plan": self.plan, "inventory": self.inventory, "pki": self.pki, "policy": self.policy}
        return {name: path for name, path in named.items() if path}

    def place(self, file: Path) -> Path:
        """The place of the copy of a file of the plan in the folder `plan`: as beside the plan; of another in a folder
        with the name of its own and a number of its path: one beside the plan, or elsewhere, may have both names."""
        plan, path = Path(os.path.normpath(self.plan)), Path(os.path.normpath(file))
        if path.is_relative_to(plan.parent):
            return path.relative_to(plan.parent)
        return Path(f"{path.parent.name}-{zlib.crc32(os.fsencode(path.parent)):08x}", path.name)


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """A run directory; `name` is the run's id."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def logs(self) -> Path:
        """The folder of the local agents' logs."""
        return self.path / "logs"

    @property
    def samples(self) -> Path:
        """The folder of the samples of finished iterations."""
        return self.path / "samples"

    @property
    def outputs(self) -> Path:
        """The folder of the raw outputs of outside programs."""
        return self.path / "outputs"

    def keep_output(self, name: str, text: str) -> None:
        """Keep a raw output as the file `name` in `outputs`. StorageFailed."""
        try:
            self.outputs.mkdir(exist_ok=True)
            write_whole(self.outputs / name, text)
        except OSError as fault:
            raise storage_failed(self.outputs, fault) from fault

    @property
    def systems(self) -> Path:
        """Under which provisioned systems keep their data."""
        return self.path / "systems"

    def results(self, *, begun: bool = False) -> RunResults:
        """The results by its journal. JournalFault; with `begun` also ProveoutError when the run has not started."""
        results = load_results(journal.read(self.path))
        with contextlib.suppress(ProveoutError):  # a journal outside its run directory has no command
            command = self.command()
            results = replace(results, overrides=command.overrides, files=command.files, removes=command.removes)
        if begun and results.run is None:
            raise ProveoutError(f"{self.name} has not started", where=str(self.path), way_out="Name another run.")
        return results

    def command(self) -> Command:
        """The recorded command. ProveoutError when `create` did not write the file."""
        try:
            return from_plain(Command, load_bounded((self.path / "command.json").read_bytes()))
        except (OSError, *NOT_AS_WRITTEN) as fault:
            raise ProveoutError(
                f"command.json cannot be read: {fault}", where=str(self.path), way_out=journal.RESTORE
            ) from fault

    def write_command(self, command: Command) -> None:
        """Record the command, in place of one that is there. OSError."""
        write_whole(self.path / "command.json", json.dumps(asdict(command), indent=2) + "\n")

    def tidy(self) -> None:
        """Remove the systems' data: the run has finished."""
        shutil.rmtree(self.systems, ignore_errors=True)


def runs_directory(chosen: Path | None, environment: Mapping[str, str] = os.environ) -> Path:
    """`--runs-dir`, else `$PROVEOUT_RUNS_DIR`, else `./runs`."""
    return (chosen or Path(environment.get(RUNS_VARIABLE) or "runs")).absolute()


def stem(plan: Plan) -> str:
    """The beginning of the names of the run directories of a plan."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", plan.name).strip("-.")[:60] or "run"


def create(runs: Path, plan: Plan, command: Command, now: datetime) -> RunDirectory:
    """A new run directory with copies of the plan. StorageFailed."""
    directory = RunDirectory(runs / f"{stem(plan)}-{now:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}")
    try:
        runs.mkdir(parents=True, exist_ok=True)
        directory.path.mkdir()
        for part in (directory.logs, directory.samples, directory.systems, directory.path / "plan"):
            part.mkdir()
        directory.write_command(command)
        write_whole(directory.path / "plan" / "plan.json", canonical_json(plan) + "\n")
        into = directory.path / "plan"  # copies of every file that the plan was made of
        home = Path(command.plan).parent
        named = {
            Path(command.plan),
            *(home / name for name in plan.brought_in),
            *(Path(name) for name in _files(plan_data(plan))),
        }
        if command.inventory is not None:
            named.add(Path(command.inventory))
        for source in sorted(path.absolute() for path in named if path.is_file()):
            copy = into / command.place(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, copy)
    except OSError as fault:
        raise storage_failed(directory.path, fault, then="run the plan again") from fault
    return directory


def find(runs: Path, name: str) -> RunDirectory:
    """The run that `name` means: a directory, a run's name, or `latest`. RunNotFound."""
    if name == LATEST:
        newest = all_runs(runs)[:1]
        if newest:
            return newest[0]
        raise RunNotFound("there is no run yet", where=str(runs), way_out="Name the folder with --runs-dir.")
    for path in (runs / name, Path(name)):
        try:
            if (path / FILE).is_file():
                return RunDirectory(path.absolute())
        except OSError as fault:
            raise RunNotFound(f"run {name} cannot be read: {fault.strerror}", where=str(path)) from fault
    raise RunNotFound(
        f"there is no run {name}",
        where=str(runs),
        way_out="`proveout runs` lists them; --runs-dir names another folder.",
    )


def all_runs(runs: Path) -> list[RunDirectory]:
    """Every run in a folder, newest first, but for those of other users that cannot be read. RunNotFound."""
    found = []
    try:
        for path in runs.iterdir() if runs.is_dir() else ():
            with contextlib.suppress(PermissionError):
                found += [path] if (path / FILE).is_file() else []
    except OSError as fault:
        raise RunNotFound(f"the folder cannot be read: {fault.strerror}", where=str(runs)) from fault
    return [RunDirectory(path) for path in sorted(found, key=_begun, reverse=True)]


def _begun(path: Path) -> tuple[float, str]:
    """When a run began, Unix time, from its name, which has the local time; runs that were renamed come last. In an
    hour that a change of the clock repeats, it is the later one where the file of its command is as late."""
    match = re.search(r"(\d{8}-\d{6})-[0-9a-f]{4}$", path.name)
    try:
        local = datetime.strptime(match[1] if match else "", "%Y%m%d-%H%M%S")
        first_s, second_s = (local.replace(fold=fold).timestamp() for fold in (0, 1))
    except (ValueError, OverflowError):
        return 0.0, path.name
    command = path / "command.json"
    again = first_s < second_s and command.exists() and command.stat().st_mtime >= second_s
    return second_s if again else first_s, path.name


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file atomically, a text as UTF-8. OSError. Removes the temporary file of a killed process."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    for left in path.parent.glob(f".{glob.escape(path.name)}.*"):
        writer = left.name.rpartition(".")[2]
        if writer.isdigit() and not Path("/proc", writer).exists():
            left.unlink(missing_ok=True)
    try:
        with beside.open("wb") as stream:
            stream.write(content.encode() if isinstance(content, str) else content)
            stream.flush()
            os.fsync(stream.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def storage_failed(path: Path, fault: OSError, **then: str) -> StorageFailed:
    """The error for a run directory that cannot be written; `then` as of `journal.storage_failed`."""
    return journal.storage_failed(path, fault, "the run directory cannot be written", full=is_full(fault), **then)


def _files(data: Any) -> Iterable[str]:
    if isinstance(data, Mapping):
        if isinstance(data.get("file"), str) and {"line", "column"} <= set(data):
            yield data["file"]
        for item in data.values():
            yield from _files(item)
    elif isinstance(data, list):
        for item in data:
            yield from _files(item)


class Record:
    """The audit log of one run."""

    def __init__(self, directory: Path, broke: Callable[[StorageFailed], None]) -> None:
        self._log = AuditLog(directory / AUDIT_FILE)
        self._path = directory / AUDIT_FILE
        self._broke = broke

    def head(self) -> str:
        """The hash of the newest entry, which the coordinator sends to agents."""
        try:
            return self._log.head()
        except OSError as fault:
            self._broke(storage_failed(self._path, fault))
            return ""

    def task(self, host: str, task: Task) -> bytes:
        """A task goes to an agent in these bytes; b"" for one that cannot be sent, which its session answers."""
        try:
            encoded = task_bytes(task)
        except WireFault:
            return b""
        digest = task_digest(encoded)
        self.note("task", host=host, key=task.key, kind=type(task.spec).__name__, digest=digest)
        return encoded

    def note(self, what: str, **fields: str | int) -> None:
        """Add an entry."""
        try:
            self._log.note(what, **fields)
        except OSError as fault:
            self._broke(storage_failed(self._path, fault))


# Find out whether a run can be resumed, and with which plan. Changes nothing.
#
# Data flow: run directory -> journal, command -> the plan that the run recorded, compared with the plan's file ->
# `Resumable`. A run that has finished, whose plan has changed, or whose journal does not verify is refused.


class NotResumable(ProveoutError):
    """There is nothing to go on with, or not with this plan."""

    exit_code = 2


class Finished(NotResumable):
    """The run has finished; its last coordinator may have been killed before it had written the results and tidied
    up."""


@record
class Resumable:
    """A run that can go on. `crashed`: its last coordinator did not say goodbye, so its agents may still be leaving."""

    plan: Plan
    command: Command
    events: Sequence[Stamped]
    crashed: bool


def examine(directory: RunDirectory) -> Resumable:
    """The data of a run to resume. NotResumable, JournalFault."""
    events = read(directory.path)
    facts = run_progress(stamped.event for stamped in events)
    if facts.started is None:
        raise NotResumable("the run never began", where=str(directory.path), way_out="Start it with `proveout run`.")
    if facts.ended is not None and facts.ended.status == "finished":
        raise Finished(
            f"the run has finished: {facts.ended.reason}",
            where=directory.name,
            way_out="Start another one with `proveout run`.",
        )
    command = directory.command()
    if command.removes and facts.ended is not None:
        what = "the tables of this bench were removed when it was broken off"
        raise NotResumable(what, where=directory.name, way_out=f"Start again with `proveout run {command.plan}`.")
    started = facts.started
    plan = recorded_plan(started.plan)
    if plan.digest != started.digest:
        raise NotResumable(
            f"the recorded plan does not have the recorded digest {started.digest}",
            where=str(directory.path),
            way_out=f"Resume it with proveout {started.version}, which began it. Where this is that release, the run's "
            "directory was changed: start another run.",
        )
    _same_as_now(directory, facts.started, command)
    return Resumable(plan=plan, command=command, events=events, crashed=facts.ended is None)


def _same_as_now(directory: RunDirectory, started: RunStarted, command: Command) -> None:
    """Refuse when the plan's file, with the parameters and inventory of the run, is another plan by now.

    A file that is gone says nothing: the run goes on with what it recorded.
    """
    path = Path(command.plan)
    inventory = Path(command.inventory) if command.inventory else None
    if not path.is_file() or (inventory is not None and not inventory.is_file()):
        return
    try:
        from proveout.dsl.compile.compiler import compile_plan  # noqa: PLC0415 - only `resume` and checks compile

        plan = compile_plan(path, overrides=command.overrides, inventory=inventory)
        digest = (plan if command.noise is None else noise_plan(plan, command.noise)).digest
    except PlanError as fault:
        digest = f"no plan: {fault.problems[0].message}"
    if digest != started.digest:
        raise NotResumable(
            "the plan has changed since the run began",
            where=str(path),
            way_out=f"Put it back (the run's copy is in {directory.path / 'plan'}), or start another run.\n"
            f"  then: {started.digest}\n  now:  {digest}",
        )
