"""A simulated host: the real agent in a process that can be killed, on a machine whose power can fail.

Data flow: `SimHost.start` -> the real recovery at the start of an agent -> `agent.daemon.servicer` behind the host's
link, with the handlers of `sim_world` and the real handlers of tuning -> `sim_machine`. A killed agent is started again
on the state directory of the previous one.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim_clock import Process
from sim_machine import POLICY, Machine, SimTools, view
from sim_plan import IN_PLACE
from sim_undo import Full, Outstanding, outstanding_in
from sim_wire import AUTHORITY, ServerSide, outside
from sim_world import table

from proveout.agent.daemon import servicer as daemon
from proveout.agent.daemon.servicer import Admission
from proveout.agent.daemon.task_journal import AgentJournal
from proveout.agent.security.authz import TaskVerifier
from proveout.agent.tuning.tuner import RESOURCE, Tuner
from proveout.agent.tuning.undo_journal import FILE
from proveout.proto.audit_log import BEGIN, Head
from proveout.proto.signing import Addressee, Verifier
from proveout.proto.wire import messages

if TYPE_CHECKING:
    from sim_history import History


class _Disk:
    """A database connection that refuses writes while the disk of its host is full."""

    def __init__(self, database: sqlite3.Connection, host: SimHost) -> None:
        self._database, self._host = database, host

    def execute(self, query: str, *arguments: Any) -> sqlite3.Cursor:
        if self._host.full and query.lstrip().upper().startswith(("INSERT", "UPDATE", "DELETE")):
            raise Full
        return self._database.execute(query, *arguments)

    def close(self) -> None:
        self._database.close()


class SimHost:
    """A host with an agent that is restarted after it is killed."""

    def __init__(self, history: History, name: str, folder: Path) -> None:
        self.history, self.name, self.folder = history, name, folder
        self.link = history.links[name]
        self.offset_ns = round(history.chance.choice((0.5e9, -0.5e9, 0.0, 3.6e12)) * history.chance.random())
        self.drift_ppm = history.chance.uniform(-80.0, 80.0)
        self.wall_s = 0.0
        self.process = Process(name, alive=False)
        self.since_s = 0.0
        self.ready = False
        self.checked_s = 0.0
        self._journal: AgentJournal | None = None
        self._read_at = -1
        self._outstanding: list[Outstanding] = []
        chance = random.Random(f"{name} {history.seed}")
        world = history.world
        self.machine = Machine(
            history.threads,
            chance,
            lambda text: world.wrong(f"{name}: {text}"),
            lambda text: world.note(f"{name}: {text}"),
        )

    @property
    def full(self) -> bool:
        return self.machine.disk.full

    def outstanding(self) -> list[Outstanding]:
        """Return the entries of its undo journal; read again after each commit, empty when the file does not exist."""
        path = self.folder / "tuning" / FILE
        if not path.exists():
            return []
        if self._read_at != self.machine.undo_commits:
            self._outstanding, self._read_at = outstanding_in(path), self.machine.undo_commits
        return self._outstanding

    def tuned_by(self) -> set[str]:
        """Return the runs whose tunings of this host are not reverted. Empty once the disk was full: then the undo
        journal may lack the record of a revert."""
        return set() if self.machine.was_full else {one.run for one in self.outstanding() if not one.residue}

    def faults_in_place(self) -> set[str]:
        """Return the names of the faults that have changed something here and are not undone, by the machine's
        state."""
        state = self.machine.state()
        found = {name: {path: state.get(path) for path in values} for name, values in IN_PLACE.items()}
        return {
            name
            for name, now in found.items()
            if any(_holds(value, IN_PLACE[name][path]) for path, value in now.items())
        }

    def unnamed(self) -> str:
        """Return the subjects with a wrong state that the undo journal does not explain; "" for none."""
        # A full disk prevents the record of the reason, but the entry itself is in the journal.
        named = {one.subject for one in self.outstanding() if one.residue or self.machine.was_full}
        return "; ".join(
            f"{subject} is {now}, not {wanted}"
            for subject, (now, wanted) in self.machine.unexpected().items()
            if subject not in named
        )

    def start(self) -> None:
        """Start the agent on the state directory of the previous one."""
        if self.process.alive:
            return
        self.process = Process(self.name, offset_ns=self.offset_ns, drift_ppm=self.drift_ppm, wall_s=self.wall_s)
        self.since_s = self.history.loop.now_s
        starting = self.history.loop.spawn(self.process, self._serve(), f"agent of {self.name}")
        starting.add_done_callback(self._started, context=outside())

    def _started(self, starting: asyncio.Task[None]) -> None:
        if not starting.cancelled() and (error := starting.exception()) is not None:
            self.history.loop.raised.append(f"the agent of {self.name} could not start: {error!r}")

    async def _serve(self) -> None:
        world, loop = self.history.world, self.history.loop
        self._journal = AgentJournal(self.folder / "journal.sqlite")
        self._journal._db = _Disk(self._journal._db, self)  # type: ignore[assignment]
        undo = self.folder / "tuning"
        options = daemon.Options(listen="", pki=self.folder, state_dir=self.folder, name=self.name, undo_dir=undo)
        tuner = Tuner(options.undo, POLICY, prepare=lambda host: view(self.machine, host, lambda: loop.now_s))
        tuner._tools = SimTools(self.machine, lambda: loop.now_s)  # type: ignore[assignment]
        await daemon._recover(tuner, options)
        admission = Admission(
            name=self.name,
            state_dir=self.folder,
            table=table(world),
            trust=_Trust(self.name),  # type: ignore[arg-type]
            audit=NoAudit(),  # type: ignore[arg-type]
            journal=self._journal,
            policy=POLICY,
            permanent={RESOURCE: tuner},
        )
        servicer = daemon.Servicer(admission, self.name)

        async def serve(side: ServerSide) -> None:
            await servicer.Session(None, side)

        self.link.serve, self.link.process = serve, self.process
        self.since_s = loop.now_s
        self.ready = True

    def kill(self) -> None:
        if not self.process.alive:
            return
        self.wall_s = self.process.wall_s
        self.process.alive = self.ready = False
        self.history.threads.kill(self.process)
        self.machine.die()
        self.link.serve = self.link.process = None
        self.history.world.died(self.name)
        self.link.cut()
        if self._journal is not None:
            self._journal.close()

    def close(self) -> None:
        """Close the files of the agent at the end of the history."""
        self.machine.die()
        if self._journal is not None:
            self._journal.close()


def _holds(value: Any, of_fault: Any) -> bool:
    """Whether a subject has the value of a fault; of a set, whether it has its items."""
    if isinstance(of_fault, frozenset):
        return of_fault <= value
    return bool(getattr(value, "content", value) == of_fault)


class NoAudit:
    """Replaces audit logs, which do not affect a history and take a tenth of its time."""

    def __init__(self, _path: Path | None = None) -> None:
        pass

    def note(self, _what: str, **_fields: str | float | None) -> Head:
        return Head(log="0" * 32, number=1, hash=BEGIN)

    def head(self) -> str:
        return str(self.note(""))

    def sync(self) -> None:
        pass


class _Trust:
    """An agent's `TrustStore` in memory; the checks themselves are the real ones."""

    def __init__(self, name: str) -> None:
        self._name = name

    def objection(self, _hello: messages.Hello) -> str:
        return ""

    def verifier(self, hello: messages.Hello) -> TaskVerifier:
        to = Addressee(agent=f"agent/{self._name}", run=hello.run_id, epoch=hello.epoch)
        return partial(Verifier(hello.signer.encode(), AUTHORITY.pem, frozenset()).objection, to=to)
