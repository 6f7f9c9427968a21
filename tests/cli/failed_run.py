"""A run of the smoke plan whose first verdict failed, after its last event: results and reports are not written yet."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from recorded_runs import SMOKE, plan

from proveout.coordinator.storage import run_directory
from proveout.coordinator.storage.journal import Journal, plan_data
from proveout.proto import events as e


def failed_run(
    runs: Path, *, exit_code: int = 1, outputs: Mapping[str, str] | None = None
) -> run_directory.RunDirectory:
    made = plan()
    command = run_directory.Command(plan=str(SMOKE), outputs=dict(outputs or {}))
    directory = run_directory.create(runs, made, command, datetime.now(UTC))
    check = made.verdicts[0]
    events: list[e.Event] = [
        e.RunStarted(
            run_id=directory.name, epoch=1, name=made.name, title="", digest=made.digest,
            plan=json.loads(json.dumps(plan_data(made))), version="1", estimate_s=1.0,
        ),
        e.VerdictReached(
            id=check.id, title=check.title, severity="fail", outcome="FAIL", check=check.check.text,
            evidence="too slow", file=check.where.file, line=check.where.line,
        ),
        e.RunFinished(status="finished", exit_code=exit_code, reason="a verdict failed", seconds=3.0),
    ]  # fmt: skip
    with Journal(directory.path) as journal:
        for event in events:
            journal.append(event)
    return directory
