"""The Python API for notebooks and scripts: start and follow a run, open a recorded one, read a table of all."""

from proveout.api.recorded_run import (
    SAMPLES,
    Chart,
    NotThere,
    Run,
    RungResult,
    StageResult,
    VerdictReached,
    open_run,
    runs,
)
from proveout.api.started_run import RunNotStarted, StartedRun, run, start

__all__ = [
    "SAMPLES",
    "Chart",
    "NotThere",
    "Run",
    "RunNotStarted",
    "RungResult",
    "StageResult",
    "StartedRun",
    "VerdictReached",
    "open_run",
    "run",
    "runs",
    "start",
]
