"""A simulated PostgreSQL as tuning sees it: settings that are stored, and settings that it runs with until it is started again.

Data flow: the real `postgres_settings` -> `SimDatabases` in place of `agent.tuning.databases` -> the `Settings` of its host, which outlive the server as
its data does. Nobody can ask while the server is down.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from proveout.agent.tasks import TaskFault
from proveout.agent.tuning.databases import Databases
from proveout.dsl.tuning.facts import Rows
from proveout.dsl.tuning.postgres_settings import RELOAD

DEFAULTS = {"work_mem": ("4096", "kB", "user"), "max_connections": ("100", "", "postmaster")}
"""Setting -> (value, unit, when it can be changed)."""
_SET = re.compile(r"ALTER SYSTEM SET (\w+) = '(\w+)'")
_RESET = re.compile(r"ALTER SYSTEM RESET (\w+)")


class Settings:
    """Of one server, and of its data."""

    def __init__(self) -> None:
        self.stored: dict[str, str] = {}
        self.running = {name: value for name, (value, _, _) in DEFAULTS.items()}

    def start(self) -> None:
        """The server comes up with what is stored."""
        self.running = {name: self.stored.get(name, value) for name, (value, _, _) in DEFAULTS.items()}

    def reload(self) -> None:
        """It takes up what can be changed while it runs."""
        self.running |= {
            name: self.stored.get(name, value) for name, (value, _, when) in DEFAULTS.items() if when != "postmaster"
        }


class SimDatabases(Databases):
    """The one system of the plan; `pause()` is told of each step, `wrote()` before each change."""

    def __init__(
        self, settings: Settings, is_up: Callable[[], bool], pause: Callable[[], None], wrote: Callable[[str], None]
    ) -> None:
        super().__init__(())
        self._settings, self._is_up, self._pause, self._wrote = settings, is_up, pause, wrote

    def is_of_the_run(self, system: str) -> bool:
        return bool(system)

    def rows(self, system: str, statement: str) -> Rows:
        self._reached(system)
        asked = [name for name in sorted(DEFAULTS) if f"'{name}'" in statement]
        settings = self._settings
        if "pg_file_settings" in statement:
            return tuple((name, settings.stored[name]) for name in asked if name in settings.stored)
        return tuple(
            (name, settings.running[name], DEFAULTS[name][1], "integer", DEFAULTS[name][2], "configuration file")
            for name in asked
        )

    def run(self, system: str, statement: str) -> None:
        self._pause()
        self._reached(system)
        self._wrote(system)
        settings = self._settings
        if statement == RELOAD:
            settings.reload()
        elif (found := _SET.fullmatch(statement)) is not None:
            settings.stored[found[1]] = found[2]
        elif (found := _RESET.fullmatch(statement)) is not None:
            settings.stored.pop(found[1], None)
        else:
            raise AssertionError(f"the simulated server does not know {statement!r}")

    def _reached(self, system: str) -> None:
        if not self._is_up():
            raise TaskFault("unreachable", f"system {system!r} cannot be reached")
