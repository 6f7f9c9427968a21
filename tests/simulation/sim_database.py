"""A simulated PostgreSQL for tuning: stored settings, and the settings in effect until the server is restarted.

Data flow: the real `postgres_settings` -> `SimDatabases` in place of `agent.tuning.sql_access` -> the `Settings` of its
host, which outlive the server as its data does. Statements fail while the server is down.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from sim_threads import is_dead

from proveout.agent.errors import TaskFault
from proveout.agent.tuning.sql_access import Databases
from proveout.dsl.operations.facts import Rows
from proveout.dsl.operations.sql import RELOAD

DEFAULTS = {"work_mem": ("4096", "kB", "user"), "max_connections": ("100", "", "postmaster")}
"""Setting -> (value, unit, when it can be changed)."""
_SET = re.compile(r"ALTER SYSTEM SET (\w+) = '(\w+)'")
_RESET = re.compile(r"ALTER SYSTEM RESET (\w+)")


class Settings:
    """The settings of one server and of its data directory."""

    def __init__(self) -> None:
        self.stored: dict[str, str] = {}
        self.running = {name: value for name, (value, _, _) in DEFAULTS.items()}

    def start(self) -> None:
        """Start the server with the stored settings."""
        self.running = {name: self.stored.get(name, value) for name, (value, _, _) in DEFAULTS.items()}

    def reload(self) -> None:
        """Apply the stored settings that can be changed while the server runs."""
        self.running |= {
            name: self.stored.get(name, value) for name, (value, _, when) in DEFAULTS.items() if when != "postmaster"
        }

    def remove(self) -> None:
        """Remove the run's data, with its stored settings."""
        self.stored.clear()

    def run(self, statement: str) -> None:
        if statement == RELOAD:
            self.reload()
        elif (found := _SET.fullmatch(statement)) is not None:
            self.stored[found[1]] = found[2]
        elif (found := _RESET.fullmatch(statement)) is not None:
            self.stored.pop(found[1], None)
        else:
            raise AssertionError(f"the simulated server does not implement {statement!r}")


class SimDatabases(Databases):
    """The system `db` of the plan, which the run starts.

    `answers(act)` executes a statement and takes the time of one; `wrote()` is called before each change.
    """

    def __init__(
        self,
        settings: Settings,
        is_up: Callable[[], bool],
        answers: Callable[[Callable[[], None]], None],
        wrote: Callable[[str], None],
    ) -> None:
        super().__init__()
        self._settings, self._is_up, self._answers, self._wrote = settings, is_up, answers, wrote

    def is_of_the_run(self, system: str) -> bool:
        return True

    def rows(self, system: str, statement: str) -> Rows:
        self._reached()
        settings = self._settings
        queried = [name for name in sorted(DEFAULTS) if f"'{name}'" in statement]
        if "pg_file_settings" in statement:
            return tuple((name, settings.stored[name]) for name in queried if name in settings.stored)
        return tuple(
            (name, settings.running[name], DEFAULTS[name][1], "integer", DEFAULTS[name][2], "configuration file")
            for name in queried
        )

    def run(self, system: str, statement: str) -> None:
        def act() -> None:
            self._reached()
            if not is_dead():
                self._wrote(system)
            self._settings.run(statement)

        self._answers(act)

    def _reached(self) -> None:
        if not self._is_up():
            raise TaskFault("unreachable", "system 'db' cannot be reached")
