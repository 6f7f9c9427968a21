"""Data of the pane "Result", and the `RunServices` protocol that the command line implements. Frozen, ready to print.

Data flow: the journal of a finished run -> `RunServices.result` in a thread -> `Result` -> `pane.ResultPane`. The
screen reads no journal itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias

from proveout.core.data_classes import dataclass
from proveout.proto.claim import Claim
from proveout.tui.home.services import Comparison
from proveout.tui.run.event_source import Replay

Tone: TypeAlias = Literal["", "good", "bad", "warn"]
Outcome: TypeAlias = Literal["PASS", "FAIL", "INCONCLUSIVE"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadlineNumber:
    """One of the few numbers that answer what the run was for."""

    label: str
    value: str
    interval: str = ""
    about: str = ""
    tone: Tone = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A verdict with its comparisons and its evidence, one sentence a line. `counts`: not of severity `warn`."""

    id: str
    title: str
    outcome: Outcome
    counts: bool = True
    claims: tuple[Claim, ...] = ()
    evidence: tuple[str, ...] = ()
    check: str = ""
    where: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The answer of a run: `outcome` is the sentence of its end, `next_step` the command that continues it, "" for
    none.
    """

    outcome: str
    tone: Tone
    headline: tuple[HeadlineNumber, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    notes: tuple[str, ...] = ()
    next_step: str = ""


class RunServices(Protocol):
    """Services of the screen of a run, beside its events. Every call may block; ProveoutError when a file cannot be
    read."""

    def result(self) -> Result:
        """The result of the run as it is recorded now."""
        ...

    def replay(self) -> Replay:
        """A replay of the run from its beginning."""
        ...

    def report(self) -> str:
        """The path of the HTML report, "" while there is none."""
        ...

    def others(self) -> Sequence[tuple[str, str]]:
        """The other runs beside this one, newest first: name and path."""
        ...

    def compare(self, reference: str, other: str, *, despite: bool) -> Comparison:
        """Two runs side by side; "" is this run. ProveoutError when one cannot be read."""
        ...
