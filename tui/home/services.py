"""What the home screen shows and what it asks for: plain data, and the `Desk` that the command line supplies.

Data flow: `HomeApp` calls the `Desk` in threads -> frozen cards -> `HomeView` -> the lists. The screen knows neither the compiler nor the
journal: it is handed what they said. It is left with a `Choice`, which the command line carries out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

PlanState: TypeAlias = Literal["checking", "fine", "wrong"]
PastState: TypeAlias = Literal["reading", "running", "finished", "failed", "interrupted", "crashed", "unreadable"]
Tone: TypeAlias = Literal["better", "worse", "changed", "none", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A plan file or a run directory. `stamp` is another one when there may be something else to read."""

    path: str
    name: str
    stamp: object


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCard:
    """A plan: `lines` are what it would do, or with `state` wrong every problem, each with file:line:column. `seconds` is the estimate."""

    path: str
    name: str
    state: PlanState = "checking"
    title: str = ""
    lines: tuple[str, ...] = ()
    seconds: float = 0.0
    iterations: int = 0
    remote: bool = False
    tunes_here: bool = False
    """Whether it changes settings of this machine, which its owner's policy must allow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastVerdict:
    """A verdict that a run has reached."""

    id: str
    outcome: Literal["PASS", "FAIL", "INCONCLUSIVE"]
    title: str
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """What a ladder reached: mean TPS over the valid repeats by rung, fewest threads first."""

    stage: str
    rungs: tuple[int, ...]
    tps: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCard:
    """A run: when it began (Unix seconds, 0 unknown), how long it took, how it ended and why, what it found. `found` are a search's answers."""

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
    """The parameters of a plan; `objection(name, text)` is what is wrong with an answer, "" when nothing is."""

    fields: tuple[Field, ...]
    objection: Callable[[str, str], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRow:
    """One number on both sides, in words; `tone` says which way it went."""

    cells: tuple[str, ...]
    tone: Tone


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedPart:
    """A rung of a stage; the cells of its rows stand under `Comparison.heads`."""

    head: str
    rows: tuple[ComparedRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Run `other` against run `reference`. `refused` is why there are no figures, "" when there are."""

    reference: str
    other: str
    refused: str = ""
    differences: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    heads: tuple[str, ...] = ()
    parts: tuple[ComparedPart, ...] = ()


class Desk(Protocol):
    """What the home screen works with. Every call may block; ProveoutError where one says so."""

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
        """A run as far as its journal goes."""
        ...

    def compare(self, reference: str, other: str, *, despite: bool) -> Comparison:
        """Two runs side by side, with what they differ in. ProveoutError when one cannot be read."""
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
    """Look at a run: live while it goes on, else replayed."""

    run: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """Go on with a run that nobody drives and that has not ended."""

    run: str


Choice: TypeAlias = Start | Watch | Resume
