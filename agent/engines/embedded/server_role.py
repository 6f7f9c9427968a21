"""The role of an embedded server in a replicated group, and the mark of a primary that a promoted standby has replaced.

Flow: a task names the role -> `ServerRole` -> the engine's server takes it at its start. Before a standby is promoted,
its agent calls `supersede(folder of the primary, …)`: from then on the primary is not started with its own data, which
would be a second primary. It takes the data of the promoted standby first, when that has stopped, and `clear` removes
the mark. Both folders belong to the agents' user, on the machine that the group shares.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from proveout.agent.errors import TaskFault
from proveout.core.data_classes import dataclass
from proveout.proto.wire.tasks import Endpoint

FILE = "superseded.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRole:
    """A standby has the endpoint of its `primary`, a PgBouncer that of its database. A primary has `standbys`; commits
    wait for the `synchronous` ones of them."""

    primary: Endpoint | None = None
    standbys: tuple[str, ...] = ()
    synchronous: tuple[str, ...] = ()

    @property
    def is_grouped(self) -> bool:
        """Whether the server replicates."""
        return self.primary is not None or bool(self.standbys)


ALONE = ServerRole()


@dataclass(frozen=True, slots=True, kw_only=True)
class Promotion:
    """A finished promotion. `seconds`: from the request until the server accepted writes. `staleness_s`: the age of the
    newest commit that it had, at the request; None when it has replayed none since its start."""

    seconds: float
    staleness_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Successor:
    """The promoted standby that has replaced a primary, and the folder of its `system.json`."""

    system: str
    folder: str


def supersede(folder: Path, successor: Successor) -> None:
    """Mark the primary with this folder as replaced; durable enough for a kill of the agents, not for one of the
    machine."""
    partial = folder / f"{FILE}.partial"
    partial.write_text(json.dumps(asdict(successor)))
    partial.rename(folder / FILE)


def successor_of(folder: Path) -> Successor | None:
    """The standby that has replaced the primary with this folder; None when none has. TaskFault `invalid`."""
    try:
        return Successor(**json.loads((folder / FILE).read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise TaskFault("invalid", f"{folder / FILE} cannot be read: {error}", way_out="remove that file") from None


def clear(folder: Path) -> None:
    """Remove the mark; nothing there is fine."""
    (folder / FILE).unlink(missing_ok=True)
