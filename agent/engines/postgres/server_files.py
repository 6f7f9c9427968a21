"""Where an embedded PostgreSQL lives for a session: the grounds (`grounds`), programs that its user can reach, data made there.

Flow: `enter` -> the grounds, the installation; then `initialise` makes a data directory.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from proveout.agent.engines import data_store, file_access
from proveout.agent.engines.postgres import installation as programs
from proveout.agent.engines.postgres.roles import ADMINISTRATOR
from proveout.agent.engines.workspace import ENVIRONMENT, PREDECESSOR_S, USER, Grounds, give, is_locked, to_its_end

__all__ = ["ENVIRONMENT", "PREDECESSOR_S", "USER", "Premises", "is_locked", "to_its_end"]

INITDB_S = 60.0
INITDB_OPTIONS = [
    "-A",
    "scram-sha-256",
    "-E",
    "UTF8",
    "--locale=C",
    "--no-sync",
    "--no-instructions",
    "-c",
    "scram_iterations=1",
    "-c",
    "dynamic_shared_memory_type=mmap",  # else a killed initdb leaves a segment in /dev/shm
]


class Premises(Grounds):
    """The premises of one PostgreSQL server. Blocking; `on_exit(text)` is told in another thread when it ends by itself."""

    def __init__(self, folder: Path, on_exit: Callable[[str], None]) -> None:
        self.installation = programs.find_installation()
        super().__init__(folder, on_exit)

    def enter(self) -> data_store.State | None:
        """See `Grounds.enter`; programs that the server's user cannot reach are copied to where it can."""
        previous = super().enter()
        if not self.reachable(self.installation.programs / "postgres"):
            self.installation = programs.private_copy(self.installation, self.session / "site")
        return previous

    def initialise(self, data: Path, password: str, finish: Callable[[Path, tuple[int, int] | None], None]) -> None:
        """`initdb` beside `data`, which it becomes when it is whole. `finish` is called before that, with the folder and its user and
        group, which have a name (None: the agent's own)."""
        partial = data.with_name("data.new")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(mode=0o700)
        secret = self.session / "password"
        secret.touch(mode=0o600)
        secret.write_text(password)
        identity: str | tuple[int, int] = "server"
        if self._account is not None:
            identity = self._account.initialise
            os.chown(partial, *identity)
            os.chown(secret, *identity)
        program = self.installation.programs / "initdb"
        self.guard.run(
            [str(program), "-D", str(partial), "-U", ADMINISTRATOR, "--pwfile", str(secret), *INITDB_OPTIONS],
            ENVIRONMENT,
            limit_s=INITDB_S,
            identity=identity,
            access=file_access.of_helper(program, read=[secret, *self._libraries()], write=[partial]),
            database=(str(partial), "postgres"),
        )
        secret.unlink()
        finish(partial, None if self._account is None else self._account.initialise)
        if self._account is not None:
            give(partial, self._account.uid)
        partial.rename(data)

    def _libraries(self) -> list[Path]:
        return self.installation.libraries
