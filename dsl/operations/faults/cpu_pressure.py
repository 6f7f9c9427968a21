"""`cpu_pressure`: processes of the agent that take CPU time from everything else on the host.

They run at the same priority as other programs, each bound to a CPU, and end with the agent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from proveout.dsl.operations.change import BusyCpus
from proveout.dsl.operations.facts import BusyQuery, Facts, Query
from proveout.dsl.operations.operation import Operation, Step
from proveout.dsl.schema.scalar_types import custom

CPUS_MAX = 4096


def _percent(value: str) -> str:
    if not re.fullmatch(r"\d{1,3}(\.\d{1,2})?%", value) or not 0.0 < float(value[:-1]) <= 100.0:
        raise custom(f"`{value}` is not a share of the CPU time: above 0% and at most 100%, as 90%")
    return value


class CpuPressure(Operation):
    """Keep CPUs of a host busy: `{share: 100%, cpus: 4}`, with `on`. Load and servers there compete for them."""

    share: Annotated[str, AfterValidator(_percent)] = Field(
        "100%", description="The part of its time that each of the CPUs is kept busy, where nothing else wants it."
    )
    cpus: Annotated[int, Field(ge=1, le=CPUS_MAX)] | None = Field(
        None, description="The number of CPUs, of those that the agent may use; all of them when it is left out."
    )

    privileges = "processes of the agent's user"
    of_fault: ClassVar[bool] = True

    def targets(self) -> Mapping[str, str]:
        """The busy CPUs."""
        return {"CPUs kept busy": f"{self.cpus or 'all'} at {self.share}"}

    def wanted(self) -> tuple[str, ...]:
        """The busy CPUs."""
        many = "all CPUs" if self.cpus is None else f"{self.cpus} CPU{'s' if self.cpus > 1 else ''}"
        return (f"{many} of the agent busy for {self.share} of the time, by processes that end with it",)

    def queries(self, known: Facts) -> tuple[Query, ...]:
        """The CPUs."""
        return (BusyQuery(),)

    def changes(self, facts: Facts) -> Step:
        """Processes, unless they run."""
        usable, share = facts.busy.usable, float(self.share[:-1]) / 100.0
        if self.cpus is not None and self.cpus > len(usable):
            return Step(refusals=(f"the agent of this host may use {len(usable)} CPUs, fewer than {self.cpus}",))
        cpus = usable[: self.cpus or len(usable)]
        if (facts.busy.busy, facts.busy.share) == (cpus, share):
            return Step()
        if facts.busy.busy:
            return Step(refusals=("another fault keeps CPUs of this host busy",))
        return Step(changes=(BusyCpus(cpus=cpus, share=share),))
