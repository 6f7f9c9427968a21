"""`kill`, `stop` and `restart`: faults of the server of a system that the run has provisioned.

The server keeps its data and its address, so that clients find it again once it is healed. Proveout does not start a
system with a dsn: its faults are programs of its host that a policy lists (`command`), or statements (`sql`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, Self

from pydantic import Field

from proveout.dsl import engines
from proveout.dsl.operations.change import ServerAction, ServerVerb
from proveout.dsl.operations.facts import Facts, Query, ServerQuery, ServerState
from proveout.dsl.operations.operation import Misfit, Operation, Step
from proveout.dsl.plan.topology import Host, System
from proveout.dsl.schema.scalar_types import Name

START_S = 180.0
"""The time that a server may need to recover when it is started again, for the deadline of a task."""


class ServerFault(Operation):
    """A fault of the server of a provisioned system."""

    system: Name = Field(description="The system, which the run has provisioned.")

    privileges = "signals to a server that the agent has started"
    of_fault: ClassVar[bool] = True
    verb: ClassVar[str]
    """The action, for people."""

    @property
    def of_system(self) -> str | None:
        """The system of the server."""
        return self.system

    @property
    def longest_s(self) -> float:
        """The start of the server, at its healing."""
        return START_S

    @property
    @abstractmethod
    def action(self) -> ServerVerb:
        """The action on the server."""

    @property
    def state(self) -> ServerState:
        """The state of the server while the fault is in place."""
        return "down"

    def placed(self, groups: Sequence[Sequence[Host]], systems: Mapping[str, System]) -> Self | Misfit:
        """Only servers that proveout starts; files have none."""
        system = systems.get(self.system)
        if system is None or (system.provision and engines.of(system.engine).embedded == "server"):
            return self
        if system.provision:
            return Misfit(
                message=f"system `{self.system}` ({system.engine}) is a file, without a server to {self.verb}",
                way_out="a system whose engine has a server, as postgres or mysql",
            )
        return Misfit(
            message=f"system `{self.system}` has a dsn: proveout has not started its server, and cannot {self.verb} it",
            way_out="`command` with the programs of its host (systemctl, srvctl …), which the policy lists; or `sql`",
        )

    def targets(self) -> Mapping[str, str]:
        """The server."""
        return {f"the server of {self.system}": self.verb}

    def queries(self, known: Facts) -> tuple[Query, ...]:
        """The server."""
        return (ServerQuery(self.system),)

    def changes(self, facts: Facts) -> Step:
        """The action, unless the server is so already."""
        server = facts.server(self.system)
        if server is None:
            return Step(refusals=(f"the agent has not started a server of {self.system}",))
        if server.state == self.state:
            return Step()
        if server.state not in ("runs", "promoted"):
            return Step(refusals=(f"the server of {self.system} is {server.state} already",))
        return Step(changes=(ServerAction(system=self.system, verb=self.action),))


class Kill(ServerFault):
    """Kill a server at once, all its processes, as if its host had lost power (SIGKILL): `{system: db}`. It is healed
    by starting it on its data, where it recovers."""

    verb: ClassVar[str] = "kill"
    destructive: ClassVar[bool] = True

    @property
    def action(self) -> ServerVerb:
        """SIGKILL."""
        return "kill"

    def wanted(self) -> tuple[str, ...]:
        """The fault of the server."""
        return (f"all processes of {self.system} are killed (SIGKILL); healed by its start, with recovery",)


class Stop(ServerFault):
    """Stop all processes of a server for a time, as if its host hung (SIGSTOP): `{system: db}`. Connections stay open
    without an answer; it is healed by continuing them (SIGCONT)."""

    verb: ClassVar[str] = "stop"

    @property
    def action(self) -> ServerVerb:
        """SIGSTOP."""
        return "stop"

    @property
    def state(self) -> ServerState:
        """Its processes are stopped."""
        return "stopped"

    def wanted(self) -> tuple[str, ...]:
        """The fault of the server."""
        return (f"all processes of {self.system} are stopped (SIGSTOP); healed by SIGCONT",)


class ServerRestart(ServerFault):
    """Restart a server: `{system: db}`. It ends by itself: the server is shut down and started again at once."""

    mode: Literal["fast", "immediate"] = Field(
        "fast",
        description="The kind of its shutdown: `fast` disconnects the clients and writes a checkpoint; `immediate` "
        "ends it at once, and it recovers at its start.",
    )

    verb: ClassVar[str] = "restart"

    def placed(self, groups: Sequence[Sequence[Host]], systems: Mapping[str, System]) -> Self | Misfit:
        """`immediate` only where the server has such a shutdown."""
        system = systems.get(self.system)
        if system is not None and system.engine != "postgres" and self.mode == "immediate":
            message = f"a server of {system.engine} has no immediate shutdown"
            return Misfit(message=message, way_out="`kill` with `for: 1s`, or `mode: fast`")
        return super().placed(groups, systems)

    @property
    def ends_by_itself(self) -> bool:
        """It is started as soon as it is down."""
        return True

    @property
    def action(self) -> ServerVerb:
        """The shutdown."""
        return "shut_down" if self.mode == "fast" else "abort"

    def wanted(self) -> tuple[str, ...]:
        """The fault of the server."""
        return (f"{self.system} is shut down ({self.mode}) and started again",)
