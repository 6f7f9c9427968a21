"""`cpu_governor`: how the kernel chooses the clock of each CPU. Source: Documentation/admin-guide/pm/cpufreq of
Linux."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from proveout.dsl.operations.change import SetText
from proveout.dsl.operations.facts import Facts, PathsQuery, Query, TextQuery
from proveout.dsl.operations.operation import Operation, Step

PATTERN = "/sys/devices/system/cpu/cpufreq/policy*/scaling_governor"


class CpuGovernor(Operation):
    """The governor of every CPU: `{governor: performance}`."""

    governor: Literal["performance", "powersave", "ondemand", "conservative", "schedutil"] = Field(
        description="One that the host's driver has."
    )

    privileges = "root: writes /sys/devices/system/cpu"

    def targets(self) -> Mapping[str, str]:
        """All CPUs."""
        return {"cpu governor": self.governor}

    def wanted(self) -> tuple[str, ...]:
        """All CPUs."""
        return (f"every CPU has the governor {self.governor}",)

    def queries(self, known: Facts) -> tuple[Query, ...]:
        """The policies, then each one's governor and those that it could have."""
        pattern = PathsQuery(PATTERN)
        if pattern not in known:
            return (pattern,)
        paths = known.paths(PATTERN)
        return (pattern, *(TextQuery(path) for path in paths), *(TextQuery(_available(path)) for path in paths))

    def changes(self, facts: Facts) -> Step:
        """The CPUs that have another one."""
        paths = facts.paths(PATTERN)
        if not paths:
            return Step(refusals=("this host does not scale the clock of its CPUs (a virtual machine seldom does)",))
        changes: list[SetText] = []
        for path in paths:
            available = (facts.text(_available(path)) or "").split()
            if self.governor not in available:
                there = ", ".join(available) or "none"
                return Step(refusals=(f"{path} cannot be {self.governor}: there are {there}",))
            now = facts.text(path) or ""
            if now != self.governor:
                changes.append(SetText(path=path, before=now, after=self.governor))
        return Step(changes=tuple(changes))


def _available(path: str) -> str:
    return path.replace("scaling_governor", "scaling_available_governors")
