"""Data of the screens, frozen and ready to print, and the protocols that the command line implements.

Data flow: the command line wires services and a `Source` -> a screen calls them in threads -> cards, events,
results.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from heapq import merge
from typing import Literal, Protocol, TypeAlias, get_args

from proveout.core.data_classes import field, record
from proveout.dsl.plan.plan import Field
from proveout.proto.events import (
    Claim,
    HeadlineNumber,
    IterationFinished,
    IterationStarted,
    IterationVoided,
    Stamped,
    VerdictReached,
)
from proveout.proto.events import Tone as ResultTone

PlanState: TypeAlias = Literal["checking", "fine", "wrong"]
PastState: TypeAlias = Literal["reading", "running", "finished", "failed", "interrupted", "crashed", "unreadable"]
Tone: TypeAlias = Literal["better", "worse", "changed", "same", "none", "unknown", "offered"]


PlanGroup: TypeAlias = Literal["yours", "runs here", "needs a lab", "starter"]
PLAN_GROUPS: tuple[PlanGroup, ...] = get_args(PlanGroup)
"""Plans of the user, plans of the package for this machine alone, plans with hosts elsewhere, plans to begin with; in
the order to list them."""


@record
class Found:
    """A plan file or a run directory. `stamp` changes when the file may have changed; `group`: of a plan, as far as its
    place tells."""

    path: str
    name: str
    stamp: object
    group: PlanGroup = "yours"


@record
class PlanCard:
    """A plan: `lines` describe its stages, or with `state` wrong every problem with file:line:column.

    `seconds` is the estimate; `plan` the name that its runs have.
    """

    path: str
    name: str
    group: PlanGroup = "yours"
    plan: str = ""
    state: PlanState = "checking"
    title: str = ""
    lines: tuple[str, ...] = ()
    seconds: float = 0.0
    iterations: int = 0
    remote: bool = False
    tunes_here: bool = False
    """Whether it changes settings of this machine, which the host policy must allow."""


@record
class Ladder:
    """Mean TPS of a ladder over the valid repeats by rung, fewest threads first."""

    stage: str
    rungs: tuple[int, ...]
    tps: tuple[float, ...]


@record
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
    labels: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    verdicts: tuple[VerdictReached, ...] = ()
    ladders: tuple[Ladder, ...] = ()
    found: tuple[str, ...] = ()


class Form(Protocol):
    """The parameters of a plan to ask for."""

    fields: tuple[Field, ...]

    def objection(self, name: str, text: str) -> str:
        """The problem of a value, "" for a valid one."""


@record
class ComparedRow:
    """One number of both runs as text, the last cell with the sign of its direction, which is `tone`."""

    cells: tuple[str, ...]
    tone: Tone


@record
class ComparedPart:
    """A rung of a stage; its rows have the columns `Comparison.heads`."""

    head: str
    rows: tuple[ComparedRow, ...]


@record
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


@record
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

    def plan(self, path: str, overrides: Mapping[str, str], inventory: str) -> PlanCard:
        """A plan as it compiles with these parameters and this inventory ("" for none)."""

    def form(self, path: str) -> Form:
        """The form of a plan. ProveoutError when the file cannot be read."""

    def runs(self) -> Sequence[Found]:
        """The runs, newest first."""

    def run(self, path: str) -> RunCard:
        """A run, from its journal."""

    def compare(self, reference: str, other: str, *, despite: bool) -> Comparison:
        """Two runs side by side, with their differences. ProveoutError when one cannot be read."""


@record
class Start:
    """Run a plan."""

    plan: str
    overrides: Mapping[str, str] = field(default_factory=dict)
    inventory: str = ""
    pki: str = ""
    policy: str = ""

    def words(self, plan: str = "") -> list[str]:
        """The words of the command line after `proveout`; `plan`: another name of the plan, to show."""
        given = [word for name, text in self.overrides.items() for word in ("-p", f"{name}={text}")]
        for option in ("inventory", "pki", "policy"):
            given += [f"--{option}", path] if (path := getattr(self, option)) else []
        return ["run", plan or self.plan, *given]


SPEEDS = (1.0, 2.0, 5.0, 10.0, 30.0, 100.0, 1000.0)


class Source(Protocol):
    """A run's events, earliest first."""

    def batches(self) -> AsyncIterator[Sequence[Stamped]]:
        """Batches of events; the first has all earlier events.

        Ends with the run, or when the run has no coordinator.
        """

    def now_unix_s(self) -> float:
        """The current time of the run for the screen; Unix seconds."""

    async def stop(self) -> bool:
        """Request the end of the run; False when the coordinator cannot be reached."""


Moving: TypeAlias = Callable[[Stamped], Sequence[Stamped]]
"""The live events of the iteration that an `IterationStarted` begins, earliest first: called in a thread, it may read
files.
"""


Place: TypeAlias = Literal["previous", "next", "begin", "end"]


class FromStart(list[Stamped]):
    """A batch that begins the run again: it has all events up to its last one, and replaces those before it."""


BEFORE_END_S = 1e-3


class Replay:
    """Replay of a finished run from its journal, at a `speed` that keys change; `moving` reads its live events from the
    samples.

    `step_s` is the interval between two batches, in seconds of real time. It begins with all events, and waits for a
    `seek`.
    """

    def __init__(
        self,
        events: Sequence[Stamped],
        speed: float = 10.0,
        step_s: float = 0.1,
        *,
        moving: Moving = lambda _: (),
    ) -> None:
        self._events, self._step_s, self._moving = events, step_s, moving
        self.speed, self.paused = speed, False
        self._starts_s = [one.unix_s for one in events if isinstance(one.event, IterationStarted)]
        self._ends_s = [one.unix_s for one in events if isinstance(one.event, IterationFinished | IterationVoided)]
        self._now_s = events[0].unix_s if events else 0.0
        self._next = 0
        self._moved: deque[Stamped] = deque()
        self._sought: float | None = events[-1].unix_s if events else None
        self._woken = asyncio.Event()

    @property
    def is_over(self) -> bool:
        """Whether it has come to the last event."""
        return self._next >= len(self._events) and self._sought is None

    @property
    def place(self) -> tuple[int, int]:
        """The number of the iteration under way or ended last, from 1 (0 before the first), and of all."""
        return bisect_right(self._starts_s, self._now_s), len(self._starts_s)

    def change_speed(self, by: int) -> None:
        """Go on at the next speed of `SPEEDS`: a higher one, or with -1 a lower one."""
        self.speed = next((speed for speed in SPEEDS[::by] if (speed - self.speed) * by > 0.0), self.speed)

    def seek(self, to: Place) -> None:
        """Go on from another place: the start of the previous or the next iteration, the begin or the end of the run.

        Within the first second of an iteration the previous one is the one before it. A replay that is paused shows an
        iteration as it was just before its end: at its start nothing is measured yet.
        """
        if not self._events:
            return
        first_s, last_s = self._events[0].unix_s, self._events[-1].unix_s
        here_s = self._now_s if self._sought is None else self._sought
        if to == "next":
            later = (self._shown_s(start_s) for start_s in self._starts_s if start_s > here_s)
            self._sought = next(later, last_s)
        elif to == "previous":
            grace_s = 0.0 if self.paused or self.is_over else self.speed
            places = map(self._shown_s, reversed(self._starts_s))
            self._sought = next((at_s for at_s in places if at_s < here_s - grace_s), first_s)
        else:
            self._sought = first_s if to == "begin" else last_s
        self._woken.set()

    def _shown_s(self, start_s: float) -> float:
        """The time that is sought in an iteration that began at `start_s`; Unix seconds."""
        if not self.paused:
            return start_s
        end_s = next((end_s for end_s in self._ends_s if end_s > start_s), start_s)
        return max(start_s, end_s - BEFORE_END_S)

    async def batches(self) -> AsyncIterator[Sequence[Stamped]]:
        """The events up to the time of the replay, step by step; after a `seek` a batch that begins the run again.

        It does not end: at the last event it waits for a `seek`.
        """
        while True:
            self._woken.clear()
            if self._sought is not None:
                yield await self._from_start(self._sought)
            elif batch := await self._batch():
                yield batch
            try:
                wait_s = None if self.is_over and self._sought is None else self._step_s
                async with asyncio.timeout(wait_s):
                    await self._woken.wait()
            except TimeoutError:
                if not self.paused:
                    self._now_s += self._step_s * self.speed

    async def _from_start(self, unix_s: float) -> FromStart:
        """All events up to a time, with the live ones of the newest iteration."""
        self._sought, self._now_s = None, unix_s
        self._next = bisect_right(self._events, unix_s, key=lambda one: one.unix_s)
        past = self._events[: self._next]
        starts = [at for at, one in enumerate(past) if isinstance(one.event, IterationStarted)]
        self._moved.clear()
        if not starts:
            return FromStart(past)
        before, after = past[: starts[-1] + 1], past[starts[-1] + 1 :]
        moved = await asyncio.to_thread(self._moving, past[starts[-1]])
        ended = any(isinstance(one.event, IterationFinished | IterationVoided) for one in after)
        shown = [one for one in moved if one.unix_s <= unix_s]
        self._moved = deque(() if ended else moved[len(shown) :])
        return FromStart([*before, *merge(shown, after, key=lambda one: one.unix_s)])

    async def _batch(self) -> list[Stamped]:
        batch: list[Stamped] = []
        while self._next < len(self._events) and self._events[self._next].unix_s <= self._now_s:
            stamped = self._events[self._next]
            self._next += 1
            batch += [*self._moved_by(stamped.unix_s), stamped]
            match stamped.event:
                case IterationStarted():
                    self._moved = deque(await asyncio.to_thread(self._moving, stamped))
                case IterationFinished() | IterationVoided():
                    self._moved.clear()
        return [*batch, *self._moved_by(self._now_s)]

    def _moved_by(self, unix_s: float) -> Iterator[Stamped]:
        while self._moved and self._moved[0].unix_s <= unix_s:
            yield self._moved.popleft()

    def now_unix_s(self) -> float:
        """The replay's time, never after the last event."""
        return min(self._now_s, self._events[-1].unix_s) if self._events else 0.0

    async def stop(self) -> bool:
        """Nothing to stop in a replay."""
        return False


Judged: TypeAlias = tuple[VerdictReached, tuple[Claim, ...]]
"""A verdict with its comparisons."""


@record
class Result:
    """The answer of a run in words, "" for none; `outcome` is the sentence of its end, `next_step` the command that
    continues it, "" for none.
    """

    outcome: str
    tone: ResultTone
    answer: str = ""
    headline: tuple[HeadlineNumber, ...] = ()
    verdicts: tuple[Judged, ...] = ()
    notes: tuple[str, ...] = ()
    next_step: str = ""


class RunServices(Protocol):
    """Services of the screen of a run, beside its events. Every call may block; ProveoutError when a file cannot be
    read."""

    def result(self) -> Result:
        """The result of the run as it is recorded now."""

    def replay(self) -> Replay:
        """A replay of the run from its beginning."""

    def report(self) -> str:
        """The path of the HTML report, "" while there is none."""

    def others(self) -> Sequence[tuple[str, str]]:
        """The other runs beside this one, newest first: name and path."""

    def compare(self, reference: str, other: str, *, despite: bool) -> Comparison:
        """Two runs side by side; "" is this run. ProveoutError when one cannot be read."""
