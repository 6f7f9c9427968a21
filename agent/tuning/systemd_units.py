"""Systemd units: what they are, and actions on them. A protocol, as a host of tests has no systemd; `Systemd` asks systemctl.

Source: systemctl(1), `show`: LoadState, ActiveState, UnitFileState.
"""

from __future__ import annotations

from typing import Protocol

from proveout.agent.daemon.tasks import TaskFault
from proveout.agent.tuning.programs import Tools, must
from proveout.dsl.operations.facts import UnitFact

SYSTEMCTL = "systemctl"
_ENABLED = {"enabled": True, "enabled-runtime": True, "disabled": False}


class Units(Protocol):
    """Whoever knows the units of a host."""

    def fact(self, unit: str) -> UnitFact | None:
        """What it is; None when there is no such unit."""
        ...

    def act(self, unit: str, verb: str) -> None:
        """start, stop, restart, reload, enable, disable. TaskFault when it fails."""
        ...


class Systemd:
    """The units of a host that systemd runs."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    def fact(self, unit: str) -> UnitFact | None:
        """As systemd tells it."""
        said = must(self._tools, (SYSTEMCTL, "show", "--property=LoadState,ActiveState,UnitFileState", "--", unit))
        values = dict(line.partition("=")[::2] for line in said.splitlines())
        if values.get("LoadState") == "not-found":
            return None
        if "ActiveState" not in values:
            raise TaskFault("fault", f"systemctl said nothing of {unit}")
        active = values["ActiveState"] in ("active", "activating", "reloading")
        enabled = values.get("UnitFileState", "")
        return UnitFact(active=active, enabled=_ENABLED.get(enabled), state=enabled)

    def act(self, unit: str, verb: str) -> None:
        """Let systemctl do it, and wait for it."""
        must(self._tools, (SYSTEMCTL, verb, "--", unit))
