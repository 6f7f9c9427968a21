"""`promote`: make a standby a primary, as an operator or a cluster manager does after the primary has failed.

It is not undone by the fault: the old primary takes the data of the promoted standby, and roles are as declared again,
between the end of the iteration and the next load.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

from proveout.dsl.operations.change import ServerVerb
from proveout.dsl.operations.facts import Facts, ServerState
from proveout.dsl.operations.faults.server_faults import ServerFault
from proveout.dsl.operations.operation import Misfit, Step
from proveout.dsl.plan.topology import Host, System

PROMOTE_S = 120.0
"""The time in which a standby applies what it has received and accepts writes."""


class Promote(ServerFault):
    """Promote a standby of a provisioned system: `{system: standby}`. It is in place when the standby accepts writes;
    it stays so until the load has ended, and then the roles are as declared again, with the promoted standby's data."""

    verb: ClassVar[str] = "promote"
    destructive: ClassVar[bool] = True

    @property
    def outlasts(self) -> bool:
        """Roles are restored after the load."""
        return True

    @property
    def longest_s(self) -> float:
        """The end of its recovery."""
        return PROMOTE_S

    @property
    def action(self) -> ServerVerb:
        """The promotion."""
        return "promote"

    @property
    def state(self) -> ServerState:
        """It is a primary."""
        return "promoted"

    def placed(self, groups: Sequence[Sequence[Host]], systems: Mapping[str, System]) -> Self | Misfit:
        """Only standbys."""
        system = systems.get(self.system)
        if system is None or system.standby_of is not None:
            return self
        if system.provision is None:
            return super().placed(groups, systems)
        standbys = [one.name for one in systems.values() if one.standby_of == self.system]
        hint = f"promote: {{system: {standbys[0]}}}" if standbys else "a system with `standby_of`"
        return Misfit(message=f"`{self.system}` is not a standby", way_out=hint)

    def changes(self, facts: Facts) -> Step:
        """The promotion, of a standby that runs."""
        server = facts.server(self.system)
        if server is not None and server.state == "runs" and not server.is_standby:
            return Step(refusals=(f"{self.system} is not a standby",))
        return super().changes(facts)

    def wanted(self) -> tuple[str, ...]:
        """The change of roles."""
        line = f"{self.system} is promoted to primary; after the load its primary takes its data, and it follows again"
        return (line,)
