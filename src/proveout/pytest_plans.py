"""Plans as collectors of pytest and verdicts as its items; the run that they share is a child process.

Data flow: file -> `PlanFile.collect` (compiled) -> `RunItem` and `VerdictItem`s -> `PlanFile.setup` runs the plan.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pytest

from proveout.coordinator.live.event_feed import last_lines, started
from proveout.coordinator.storage.journal import JournalFault, read
from proveout.core.data_classes import record
from proveout.proto.events import RunStarted, VerdictReached

if TYPE_CHECKING:
    from proveout.dsl.plan.plan import Check, Plan


RUNS = pytest.StashKey[list[tuple[str, Path]]]()
"""The plans that were run in this session, each with its run directory."""

JUDGED = (0, 1, 3)
"""Exit codes of a run that reached its verdicts."""


class RunFailed(Exception):
    """The run reached no verdicts; the text is the reason."""


@record
class PlanRun:
    """A run that was judged: its directory, the name of its plan, and its verdicts by id, the built-in ones too."""

    directory: Path
    plan: str
    verdicts: Mapping[str, VerdictReached]


def run(arguments: Sequence[str], cwd: Path) -> PlanRun:
    """Run `proveout run ARGUMENTS`.

    RunFailed when it reaches no verdicts, KeyboardInterrupt when it was interrupted.
    """
    with tempfile.TemporaryFile() as output:
        with started("run", *arguments, output=output, cwd=cwd) as (child, signals):
            directory, exit_code = child.directory(), child.wait()
        if signals:
            raise KeyboardInterrupt
        output.seek(0)
        early = output.read().decode(errors="replace").strip()
    if directory is None:
        raise RunFailed(f"the run did not begin (exit code {exit_code})\n{early}")
    if exit_code not in JUDGED:
        raise RunFailed(f"the run failed (exit code {exit_code}): {directory}\n{last_lines(directory)}")
    try:
        events = [stamped.event for stamped in read(directory)]
    except JournalFault as fault:
        raise RunFailed(str(fault)) from fault
    plan = next(event.name for event in events if isinstance(event, RunStarted))
    verdicts = {event.id: event for event in events if isinstance(event, VerdictReached)}
    return PlanRun(directory=directory, plan=plan, verdicts=verdicts)


# | verdict | item |
# |---|---|
# | PASS | passes |
# | FAIL | fails, with the evidence |
# | INCONCLUSIVE | fails, or is skipped (`--proveout-inconclusive skip`) |
# | FAIL or INCONCLUSIVE of severity `warn` | is skipped, with the evidence |

RUN_ITEM = "run"
_WORST_FIRST = ("FAIL", "INCONCLUSIVE", "PASS")
Answer: TypeAlias = Literal["passed", "failed", "skipped"]


def is_plan(path: Path) -> bool:
    """Whether the YAML file is marked as a plan; fragments, inventories and other files are not."""
    from proveout.cli.options import has_key  # noqa: PLC0415

    try:
        return has_key(path, "proveout")
    except OSError:
        return False


class VerdictFailed(Exception):
    """The text of a failed item."""


class PlanFile(pytest.File):
    """A plan, run once for all its items that were not deselected."""

    _plan: Plan | None = None
    run: PlanRun | None = None

    def collect(self) -> Iterator[pytest.Item]:
        """The run itself, then its verdicts in the plan's order."""
        self._plan = self._compiled()
        taken = any(check.id == RUN_ITEM for check in self._plan.verdicts)
        yield RunItem.from_parent(self, name=f"({RUN_ITEM})" if taken else RUN_ITEM)
        for check in self._plan.verdicts:
            yield VerdictItem.from_parent(self, name=check.id, check=check)

    def _compiled(self) -> Plan:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what is imported: no business of those tests
            from typer import BadParameter  # noqa: PLC0415

            from proveout.cli.options import describe, parse_overrides  # noqa: PLC0415
            from proveout.core.errors import PlanError, ProveoutError  # noqa: PLC0415
            from proveout.dsl.compile.compiler import compile_plan  # noqa: PLC0415
        try:
            overrides = parse_overrides(self.config.getoption("--proveout-param"))
            return compile_plan(self.path, overrides=overrides, inventory=self._path("--proveout-inventory"))
        except PlanError as error:
            raise self.CollectError("\n\n".join(describe(problem) for problem in error.problems)) from None
        except ProveoutError as error:
            raise self.CollectError(str(error)) from None
        except BadParameter as error:
            raise self.CollectError(f"--proveout-param: {error.message}") from None

    def _path(self, option: str) -> Path | None:
        given = self.config.getoption(option)
        return self.config.invocation_params.dir / given if given else None

    def setup(self) -> None:
        """Run the plan; when it fails, every item has an error with the reason."""

        if hasattr(self.config, "workerinput"):
            pytest.fail(
                "a plan measures: run it without pytest-xdist (-n 0), whose workers would disturb it", pytrace=False
            )
        from proveout.cli.options import words  # noqa: PLC0415

        files = {"inventory": self._path("--proveout-inventory"), "runs_dir": self._path("--proveout-runs-dir")}
        arguments = [str(self.path), *words(self.config.getoption("--proveout-param"), files)]
        try:
            self.run = run(arguments, self.config.invocation_params.dir)
        except RunFailed as fault:
            pytest.fail(str(fault), pytrace=False)
        self.config.stash.setdefault(RUNS, []).append((self.run.plan, self.run.directory))


class _Item(pytest.Item):
    """An item of a plan."""

    def plan_run(self) -> PlanRun:
        """The run of `PlanFile.setup`."""
        assert isinstance(self.parent, PlanFile)  # noqa: S101
        assert self.parent.run is not None  # noqa: S101
        return self.parent.run

    def settle(self, verdict: VerdictReached) -> None:
        """Fail, skip or pass by the outcome of the verdict."""
        mode = self.config.getoption("--proveout-inconclusive") or self.config.getini("proveout_inconclusive")
        found = answer(verdict.outcome, verdict.severity, mode)
        self.user_properties.append((f"evidence of {verdict.id}", verdict.evidence))
        if found == "skipped":
            about = "warning only: " if verdict.severity == "warn" else ""
            reason = f"{about}{verdict.outcome} {verdict.id}: {verdict.evidence}"
            raise pytest.skip.Exception(reason, _use_item_location=True)  # the plan's line, not this one
        if found == "failed":
            raise VerdictFailed(describe(verdict, self.plan_run().directory))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The evidence; without a traceback, since no code has failed."""
        if isinstance(excinfo.value, VerdictFailed):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)


class RunItem(_Item):
    """The run has finished, and the built-in verdicts (propagation, invariants) have passed."""

    def runtest(self) -> None:
        """Judge the built-in verdicts; the worst one counts."""
        made = self.plan_run()
        self.user_properties.append(("run", str(made.directory)))
        built_in = [verdict for verdict in made.verdicts.values() if ":" in verdict.id]  # no id of a plan has one
        for verdict in sorted(built_in, key=lambda verdict: _WORST_FIRST.index(verdict.outcome)):
            self.settle(verdict)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """The plan's file."""
        return self.path, 0, self.name


class VerdictItem(_Item):
    """A verdict of the plan."""

    def __init__(self, *, check: Check, **more: Any) -> None:
        super().__init__(**more)
        self._check = check

    def runtest(self) -> None:
        """Judge it."""
        verdict = self.plan_run().verdicts.get(self.name)
        if verdict is None:
            raise VerdictFailed(f"the run has no verdict {self.name}: {self.plan_run().directory}")
        self.settle(verdict)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """The line of the verdict in the plan."""
        where = self._check.where
        file = Path(where.file) if where.file else self.path
        return file, max(where.line - 1, 0), self.name


def answer(outcome: str, severity: str, mode: str) -> Answer:
    """The result of an item with this verdict; `mode` is for INCONCLUSIVE. UsageError for an unknown mode."""
    if mode not in ("fail", "skip"):
        raise pytest.UsageError(f"proveout_inconclusive = {mode}: use fail or skip")
    if outcome == "PASS":
        return "passed"
    if severity == "warn" or (outcome == "INCONCLUSIVE" and mode == "skip"):
        return "skipped"
    return "failed"


def describe(verdict: VerdictReached, directory: Path) -> str:
    """The verdict as lines of text."""
    lines = [
        f"{verdict.outcome} {verdict.id}" + (f": {verdict.title}" if verdict.title else ""),
        f"  check:      {verdict.check}",
        f"  evidence:   {verdict.evidence}",
    ]
    if verdict.iterations:
        lines.append(f"  iterations: {', '.join(verdict.iterations)}")
    if verdict.file:
        lines.append(f"  written at: {verdict.file}:{verdict.line}")
    return "\n".join([*lines, f"  report:     {directory / 'report.html'}"])
