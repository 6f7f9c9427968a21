"""Start a run from Python and follow it: `run` to its end, `start` for one that goes on beside the caller.

Data flow: a plan, compiled here first so that a wrong one raises all its problems -> `RunProcess`, a `proveout run` in
a process of its own -> its run directory -> `StartedRun`: events as they come, `stop`, `wait` -> `Run`.

The run does not depend on the caller: where a notebook's kernel dies, it goes on, and `proveout watch` shows it.
"""

from __future__ import annotations

import asyncio
import os
import queue
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from proveout.api.recorded_run import Run, open_run
from proveout.coordinator.live.follow import Tail
from proveout.coordinator.live.run_process import RunProcess, last_lines
from proveout.coordinator.storage.event_codec import JournalFault
from proveout.core.errors import PlanError, ProveoutError
from proveout.proto.events import Event

LOG_LINES = 25
_Path = str | os.PathLike[str]


class RunNotStarted(ProveoutError):
    """The run ended before it had a directory, or with an error of the command line; the text is what it printed."""

    exit_code = 2


class StartedRun:
    """A run that goes on in a process of its own. As a context manager it is stopped when the block raises, and waited
    for in any case."""

    def __init__(self, process: RunProcess, path: Path) -> None:
        self._process = process
        self.path = path

    @property
    def is_running(self) -> bool:
        """Whether its process runs."""
        return self._process.is_alive

    def recorded(self) -> Run:
        """All that has ended so far."""
        return open_run(self.path)

    def events(self) -> Iterator[Event]:
        """The run's events from its beginning to its end, each as soon as it is there: `proveout.proto.events`, such as
        `IterationFinished`, and live ones, such as `LoadTick`. JournalFault for a journal that cannot be read."""
        found: queue.SimpleQueue[Event | Exception | None] = queue.SimpleQueue()
        over = threading.Event()

        async def follow() -> None:
            async for batch in Tail(self.path).batches():
                for stamped in batch:
                    found.put(stamped.event)
                if over.is_set():
                    return

        def work() -> None:
            try:
                asyncio.run(follow())  # of this thread: a notebook has a loop of its own
                found.put(None)
            except (OSError, JournalFault) as fault:
                found.put(fault)

        threading.Thread(target=work, name="proveout-events", daemon=True).start()
        try:
            while (event := found.get()) is not None:
                if isinstance(event, Exception):
                    raise event
                yield event
        finally:
            over.set()

    def stop(self) -> None:
        """Stop it as Ctrl-C does: its loads end, its changes are taken back. `wait` waits for that."""
        self._process.stop()

    def wait(self, timeout_s: float | None = None) -> Run:
        """The run at its end; `exit_code` and `status` of it say how it ended.

        TimeoutError when it lasts longer, RunNotStarted when it was refused.
        """
        exit_code = self._process.wait(timeout_s)
        found = self.recorded()
        if found.results.run is None:
            raise RunNotStarted(f"the run has not begun (exit code {exit_code})\n{last_lines(self.path, LOG_LINES)}")
        return found

    def __enter__(self) -> StartedRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.stop()
        self._process.wait()

    def __repr__(self) -> str:
        return f"StartedRun({str(self.path)!r}, {'running' if self.is_running else 'ended'})"


def start(
    plan: _Path,
    *,
    parameters: Mapping[str, Any] | None = None,
    inventory: _Path | None = None,
    labels: Mapping[str, str] | None = None,
    runs_dir: _Path | None = None,
    pki: _Path | None = None,
    policy: _Path | None = None,
    preflight: bool = True,
) -> StartedRun:
    """Start a run of the plan in a file; the arguments are the options of `proveout run`.

    `parameters`: values by name, a list for `1,2,4`. Raises PlanError with all problems of the plan, RunNotStarted when
    the run was refused.
    """
    from proveout.cli.common.messages import describe  # noqa: PLC0415
    from proveout.dsl.compile.compiler import compile_plan  # noqa: PLC0415

    overrides = {name: _text(value) for name, value in (parameters or {}).items()}
    try:
        compile_plan(Path(plan), overrides=overrides, inventory=Path(inventory) if inventory is not None else None)
    except PlanError as fault:
        fault.add_note("\n".join(map(describe, fault.problems)))
        raise
    words = [word for name, text in overrides.items() for word in ("-p", f"{name}={text}")]
    words += [word for name, text in (labels or {}).items() for word in ("--label", f"{name}={text}")]
    files = {"--inventory": inventory, "--runs-dir": runs_dir, "--pki": pki, "--policy": policy}
    words += [word for option, path in files.items() if path is not None for word in (option, os.fspath(path))]
    words += [] if preflight else ["--no-preflight"]
    with tempfile.TemporaryFile() as output:
        process = RunProcess("run", os.fspath(plan), *words, output=output)
        try:
            path = process.directory()
        except BaseException:  # Ctrl-C
            process.stop()
            process.wait()
            raise
        if path is None:
            exit_code = process.wait()
            output.seek(0)
            printed = output.read().decode(errors="replace").strip()
            raise RunNotStarted(f"the run has not begun (exit code {exit_code})\n{printed}")
    return StartedRun(process, path)


def run(plan: _Path, *, follow: Callable[[Event], object] | None = None, **options: Any) -> Run:
    """Run the plan in a file to its end; `options` are those of `start`, `follow` is called with each event.

    The run is there whatever its verdicts: see `exit_code` and `verdicts` of it. Ctrl-C, or an exception of `follow`,
    stops the run and is raised when that has ended.
    """
    with start(plan, **options) as started:
        for event in started.events():
            if follow is not None:
                follow(event)
    return started.wait()


def _text(value: Any) -> str:
    """A parameter's value as the command line has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(map(_text, value))
    return str(value)
