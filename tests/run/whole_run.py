"""A whole run by the command, from its plan to its results, with limits that no load of this machine breaks."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from live_run import NEVER_VOID

PROVEOUT = (sys.executable, "-m", "proveout")


@dataclass(frozen=True)
class Done:
    """A command that has ended in `folder`."""

    folder: Path
    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        return self.out + self.err

    @property
    def words(self) -> str:
        """The text of both outputs, without line breaks."""
        return " ".join(self.said.split())

    @property
    def directory(self) -> Path:
        """The newest run."""
        return max((self.folder / "runs").iterdir())

    @property
    def result(self) -> Any:
        return json.loads((self.directory / "result.json").read_text())

    @property
    def stages(self) -> dict[str, Any]:
        return {stage["id"]: stage for stage in self.result["stages"]}

    def values(self, metric: str) -> dict[str, float]:
        """Return the first value of a metric of each stage that has it."""
        taken = {name: one["values"][0]["values"] for name, one in self.stages.items() if one["values"]}
        return {name: found[metric] for name, found in taken.items() if metric in found}

    def table(self, kind: str) -> list[dict[str, str]]:
        """Return the rows of `report --KIND FILE`."""
        proveout(self.folder, "report", str(self.directory), f"--{kind}", "rows.csv").ended(0)
        with (self.folder / "rows.csv").open(newline="") as stream:
            return list(csv.DictReader(stream))

    def ended(self, *codes: int) -> Done:
        """Check the exit code."""
        assert self.code in codes, self.said
        return self


def proveout(folder: Path, *words: str, environment: Mapping[str, str] | None = None) -> Done:
    """Run a command to its end."""
    done = subprocess.run(
        [*PROVEOUT, *words], cwd=folder, env=os.environ | (environment or {}), capture_output=True, text=True, timeout=600, check=False
    )  # fmt: skip
    return Done(folder, done.returncode, done.stdout, done.stderr)


def written(folder: Path, plan: str) -> Path:
    """Write a plan; its words NEVER_VOID become limits."""
    path = folder / "plan.yaml"
    path.write_text(plan.replace("NEVER_VOID", NEVER_VOID))
    return path


def run(folder: Path, plan: str, *words: str, environment: Mapping[str, str] | None = None) -> Done:
    """Run a plan."""
    written(folder, plan)
    return proveout(folder, "run", "plan.yaml", "--headless", "--runs-dir", "runs", *words, environment=environment)
