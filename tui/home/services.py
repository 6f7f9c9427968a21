"""Data of the home screen, and the `HomeServices` protocol that the command line implements.

Data flow: `HomeApp` calls the services in threads -> frozen cards -> `HomeView` -> the lists. The screen imports
neither the compiler nor the journal. It returns a `Choice`, which the command line executes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol, TypeAlias

from proveout.core.data_classes import dataclass, field

PlanState: TypeAlias = Literal["checking", "fine", "wrong"]
PastState: TypeAlias = Literal["reading", "running", "finished", "failed", "interrupted", "crashed", "unreadable"]
Tone: TypeAlias = Literal["better", "worse", "changed", "same", "none", "unknown", "offered"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A plan file or a run directory. `stamp` changes when the file may have changed."""

    path: str
    name: str
    stamp: object


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCard:
    """A plan: `lines` describe its stages, or with `state` wrong every problem with file:line:column.

    `seconds` is the estimate.
    """

    path: str
    name: str
    state: PlanState = "checking"
    title: str = ""
    lines: tuple[str, ...] = ()
    seconds: float = 0.0
    iterations: int = 0
    remote: bool = False
    tunes_here: bool = False
    """Whether it changes settings of this machine, which the host policy must allow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastVerdict:
    """A verdict that a run has reached."""

    id: str
    outcome: Literal["PASS", "FAIL", "INCONCLUSIVE"]
    title: str
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """Mean TPS of a ladder over the valid repeats by rung, fewest threads first."""

    stage: str
    rungs: tuple[int, ...]
    tps: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCard:
    """A run: its start (Unix seconds, 0 unknown), duration, end with the reason, results.

    `found` has the answers of its searches.
    """

    path: str
    name: str
    state: PastState = "reading"
    plan: str = ""
    title: str = ""
    began_unix_s: float = 0.0
    seconds: float = 0.0
    reason: str = ""
    verdicts: tuple[PastVerdict, ...] = ()
    ladders: tuple[Ladder, ...] = ()
    found: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A parameter to ask for, as the plan writes it: `default`, `low` and `high` are "" where there is none."""

    name: str
    type: str
    default: str = ""
    required: bool = False
    low: str = ""
    high: str = ""
    choices: tuple[str, ...] = ()
    help: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The parameters of a plan; `objection(name, text)` is the problem of a value, "" for a valid one."""

    fields: tuple[Field, ...]
    objection: Callable[[str, str], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRow:
    """One number of both runs as text, the last cell with the sign of its direction, which is `tone`."""

    cells: tuple[str, ...]
    tone: Tone


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedPart:
    """A rung of a stage; its rows have the columns `Comparison.heads`."""

    head: str
    rows: tuple[ComparedRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """A number of run B over that of the reference A, with its interval; `of` is its stage and rung."""

    of: str
    what: str
    ratio: float
    lower: float | None
    upper: float | None
    text: str
    interval: str
    tone: Tone


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Run `other`, B in all texts, against run `reference`, A. `refused` is the reason for a refusal, "" for none;
    `headline` is the answer in one sentence, `level` is the sentence about the level of the intervals.
    """

    reference: str
    other: str
    refused: str = ""
    differences: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    headline: str = ""
    level: str = ""
    ratios: tuple[Ratio, ...] = ()
    heads: tuple[str, ...] = ()
    parts: tuple[ComparedPart, ...] = ()


class HomeServices(Protocol):
    """The services of the home screen. Every call may block; ProveoutError where the docstring names it."""

    here: str
    runs_here: str

    def plans(self) -> Sequence[Found]:
        """The plan files, in the order to show them."""
        ...

    def plan(self, path: str, overrides: Mapping[str, str], inventory: str) -> PlanCard:
        """A plan as it compiles with these parameters and this inventory ("" for none)."""
        ...

    def form(self, path: str) -> Form:
        """The form of a plan. ProveoutError when the file cannot be read."""
        ...

    def runs(self) -> Sequence[Found]:
        """The runs, newest first."""
        ...

    def run(self, path: str) -> RunCard:
        """A run, from its journal."""
        ...

    def compare(self, reference: str, other: str, *, despite: bool) -> Comparison:
        """Two runs side by side, with their differences. ProveoutError when one cannot be read."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Run a plan."""

    plan: str
    overrides: Mapping[str, str] = field(default_factory=dict)
    inventory: str = ""
    pki: str = ""
    policy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Show a run: live while it runs, else replayed."""

    run: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """Resume a run that has not ended and has no coordinator."""

    run: str


Choice: TypeAlias = Start | Watch | Resume
