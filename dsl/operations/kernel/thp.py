"""`thp`: transparent huge pages. Source: Documentation/admin-guide/mm/transhuge of Linux."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, Self

from pydantic import Field, model_validator

from proveout.dsl.operations.change import SetText
from proveout.dsl.operations.facts import Facts, Query, TextQuery
from proveout.dsl.operations.operation import Operation, Step

FOLDER = "/sys/kernel/mm/transparent_hugepage"


def chosen(text: str) -> str:
    """The choice in brackets; the whole text where there are none."""
    match = re.search(r"\[([^\]]+)\]", text)
    return match[1] if match else text.strip()


def choices(text: str) -> tuple[str, ...]:
    """All choices."""
    return tuple(text.replace("[", " ").replace("]", " ").split())


class Thp(Operation):
    """When the kernel backs memory with huge pages by itself: `{enabled: never}`."""

    enabled: Literal["always", "madvise", "never"] | None = Field(None, description="For whose memory.")
    defrag: Literal["always", "defer", "defer+madvise", "madvise", "never"] | None = Field(
        None, description="When it stops a process to find one."
    )

    privileges = "root: writes /sys/kernel/mm"

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.enabled is None and self.defrag is None:
            raise ValueError("this does nothing: give `enabled`, `defrag` or both")
        return self

    def targets(self) -> Mapping[str, str]:
        """Each of the two that is given."""
        given = {"enabled": self.enabled, "defrag": self.defrag}
        return {f"thp {name}": value for name, value in given.items() if value is not None}

    def wanted(self) -> tuple[str, ...]:
        """Each of the two that is given."""
        return tuple(f"transparent huge pages: {name[4:]} = {value}" for name, value in self.targets().items())

    def queries(self, known: Facts) -> tuple[Query, ...]:
        """Each of the two that is given."""
        return tuple(TextQuery(f"{FOLDER}/{name[4:]}") for name in self.targets())

    def changes(self, facts: Facts) -> Step:
        """The changes; a refusal where the kernel does not offer the choice."""
        changes: list[SetText] = []
        refusals: list[str] = []
        for name, value in self.targets().items():
            path = f"{FOLDER}/{name[4:]}"
            now = facts.text(path)
            if now is None or value not in choices(now):
                known = f"it has {', '.join(choices(now))}" if now else "it has no transparent huge pages"
                refusals.append(f"this kernel cannot set {path} to {value}: {known}")
            elif chosen(now) != value:
                changes.append(SetText(path=path, before=chosen(now), after=value))
        return Step(changes=tuple(changes), refusals=tuple(refusals))
