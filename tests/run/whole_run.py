"""A whole run by the command, from its plan to its results, with limits that no load of this machine breaks.

The command runs in this process, so that it need not be imported again; its agents are processes of their own.
`live_run` has commands that are processes, to be killed.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from fabric_bench import FAKE_AGENT, Permanent
from live_run import NEVER_VOID

from proveout.cli import execute


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


def proveout(folder: Path, *words: str, environment: Mapping[str, str] = MappingProxyType({})) -> Done:
    """Run a command to its end."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(folder)
        for name, value in environment.items():
            patch.setenv(name, value)
        code = execute(words)
    return Done(folder, code, out.getvalue(), err.getvalue())


def written(folder: Path, plan: str) -> Path:
    """Write a plan; its words NEVER_VOID become limits."""
    path = folder / "plan.yaml"
    path.write_text(plan.replace("NEVER_VOID", NEVER_VOID))
    return path


def run(folder: Path, plan: str, *words: str, environment: Mapping[str, str] = MappingProxyType({})) -> Done:
    written(folder, plan)
    return proveout(folder, "run", "plan.yaml", "--headless", "--runs-dir", "runs", *words, environment=environment)


class Agent(Permanent):
    """A permanent agent, all of whose files are in one folder."""

    def command(self) -> list[str]:
        where = super().command()[len(FAKE_AGENT) :]
        return [sys.executable, "-m", "proveout.agent", *where, "--undo-dir", str(self.directory / "machine")]
