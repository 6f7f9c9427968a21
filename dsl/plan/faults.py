"""Faults of a load: changes to hosts or systems that are in place for a time of the measure window, and the instants at
which they begin."""

from __future__ import annotations

import random

from proveout.core.data_classes import dataclass, field
from proveout.core.errors import NOWHERE, Where
from proveout.dsl.plan.measured_values import OMITTED
from proveout.dsl.plan.tuning_step import Tuning
from proveout.dsl.plan.values import Expression

FAULTS_MAX = 20
"""The most faults of one stage."""
TIMES_MAX = 100
"""The most times that one fault begins in one iteration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A disturbance: `tunings` are applied, all together, and undone (healed) `for_s` seconds later; 0 for one that
    ends by itself (a restart, a promotion).

    It begins `times` times in each iteration: at `at_s` after the start of the measure window; or at instants drawn by
    `seed` within `between_s`, at least `apart_s` from the healing to the next; or, with `when`, each time that the
    condition on the numbers of the last second holds, at least `apart_s` after the last healing.
    """

    name: str
    tunings: tuple[Tuning, ...]
    for_s: float
    at_s: float | None = None
    between_s: tuple[float, float] | None = None
    when: Expression | None = field(default=None, metadata=OMITTED)
    times: int = 1
    seed: int = 1
    apart_s: float = 0.0
    where: Where = NOWHERE

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts that it changes, in the order of its tunings."""
        return tuple(dict.fromkeys(host for tuning in self.tunings for host in tuning.hosts))

    def begins_s(self, slot: str) -> tuple[float, ...]:
        """The instants at which it begins, ascending, seconds after the start of the measure window; `slot` names the
        rung and repeat, so that repeats draw other instants. () with `when`.

        n instants with a least distance d between them are uniform: n sorted uniform draws in the interval without
        (n - 1) d, each shifted by the distances before it.
        """
        if self.when is not None:
            return ()
        if self.between_s is None:
            return (self.at_s or 0.0,)
        first_s, last_s = self.between_s
        apart_s = self.for_s + self.apart_s
        free_s = max(last_s - first_s - (self.times - 1) * apart_s, 0.0)
        drawn = random.Random(f"{self.seed}/{self.name}/{slot}")  # noqa: S311 - reproducible, not secret
        starts = sorted(drawn.uniform(0.0, free_s) for _ in range(self.times))
        return tuple(first_s + start + number * apart_s for number, start in enumerate(starts))
