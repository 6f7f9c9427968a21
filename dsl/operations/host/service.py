"""`service`: whether a systemd unit runs, and whether it starts with the host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Self

from pydantic import Field, model_validator

from proveout.dsl.operations.change import UnitAction
from proveout.dsl.operations.facts import Facts, Query, UnitQuery
from proveout.dsl.operations.operation import Operation, Step
from proveout.dsl.operations.types import UnitName


class Service(Operation):
    """A systemd unit stopped, running, enabled or disabled: `{unit: tuned, state: stopped, enabled: false}`."""

    unit: UnitName = Field(description="Its name; without a kind it is a service.")
    state: Literal["running", "stopped"] | None = Field(None, description="Whether it runs now.")
    enabled: bool | None = Field(None, description="Whether it starts with the host.")

    privileges = "root: starts, stops, enables and disables units"

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.state is None and self.enabled is None:
            raise ValueError("this does nothing: give `state`, `enabled` or both")
        return self

    def targets(self) -> Mapping[str, str]:
        """Its state, and whether it is enabled."""
        found = {} if self.state is None else {f"unit {self.unit}": self.state}
        return found if self.enabled is None else found | {f"start of {self.unit} with the host": str(self.enabled)}

    def wanted(self) -> tuple[str, ...]:
        """Its state, and whether it is enabled."""
        words: list[str] = [] if self.state is None else [self.state]
        words += [] if self.enabled is None else ["enabled" if self.enabled else "disabled"]
        return (f"{self.unit} is {' and '.join(words)}",)

    def queries(self, known: Facts) -> tuple[Query, ...]:
        """The unit."""
        return (UnitQuery(self.unit),)

    def changes(self, facts: Facts) -> Step:
        """Stopped before it is disabled, enabled before it is started; a unit that is not there neither runs nor is
        enabled."""
        unit = facts.unit(self.unit)
        if unit is None:
            if self.state == "running" or self.enabled:
                return Step(refusals=(f"this host has no unit {self.unit}",))
            return Step()
        if self.enabled is not None and unit.enabled is None:
            word = "enabled" if self.enabled else "disabled"
            return Step(refusals=(f"{self.unit} cannot be {word}: it is {unit.state or 'of no kind that is'}",))
        if self.enabled is False and unit.state == "enabled-runtime":
            why = (
                "it is enabled until the next boot only, which `systemctl disable` leaves and nothing would bring back"
            )
            return Step(refusals=(f"{self.unit} cannot be disabled: {why}",))
        if self.state == "stopped" and unit.active and unit.state.startswith("masked"):
            return Step(
                refusals=(f"{self.unit} cannot be stopped: it runs and is masked, so nothing could start it again",)
            )
        state: list[UnitAction] = []
        if self.state is not None and unit.active != (self.state == "running"):
            start = self.state == "running"
            verbs = ("start", "stop") if start else ("stop", "start")
            state.append(UnitAction(unit=self.unit, verb=verbs[0], undo=verbs[1]))  # type: ignore[arg-type]
        start_with: list[UnitAction] = []
        if self.enabled is not None and unit.enabled != self.enabled:
            verbs = ("enable", "disable") if self.enabled else ("disable", "enable")
            start_with.append(UnitAction(unit=self.unit, verb=verbs[0], undo=verbs[1]))  # type: ignore[arg-type]
        return Step(changes=tuple((*start_with, *state) if self.enabled else (*state, *start_with)))
