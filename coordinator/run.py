"""The run loop, which does all I/O: it executes the scheduler's commands and reports events to it.

Data flow: sessions with agents, timers, signals -> inputs -> `state_machine.advance` -> commands -> sessions,
journal.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

from proveout.coordinator.agents.connect import AgentRefused, AgentUnreachable
from proveout.coordinator.agents.endpoints import secret_variables
from proveout.coordinator.agents.local_agents import LocalFabric, passed_variables
from proveout.coordinator.agents.session import (
    CLOSE_S,
    DIAL_AGAIN_S,
    AgentSession,
    Lost,
    Received,
    SessionEvent,
    connect,
    connect_patiently,
)
from proveout.coordinator.certificates import Credentials, cluster_secrets, keep
from proveout.coordinator.live.ticks import FaultWatch, Meters
from proveout.coordinator.measure import samples
from proveout.coordinator.measure.samples import Spool
from proveout.coordinator.schedule import state_machine
from proveout.coordinator.schedule.iteration import is_wanted
from proveout.coordinator.schedule.setup_stages import needs_cluster
from proveout.coordinator.schedule.state import (
    AgentGone,
    AgentReady,
    CloseSessions,
    Command,
    CoordinatorFailed,
    Dial,
    DiscardSamples,
    Emit,
    FaultDue,
    FaultStepped,
    GatherSamples,
    Input,
    Interrupted,
    KeepOutput,
    MessageReceived,
    SendMessage,
    Setup,
    StartLoads,
    State,
    Summarise,
    Summarised,
    Tick,
    Timing,
    run_progress,
)
from proveout.coordinator.storage.journal import Journal, StorageFailed, plan_data, read
from proveout.coordinator.storage.run_directory import Record, RunDirectory, storage_failed
from proveout.coordinator.verdict.verdicts import PlanEvaluator
from proveout.core.child_process import rare_garbage_collection, release_memory
from proveout.core.data_classes import field, record
from proveout.core.errors import ProveoutError, one_line
from proveout.dsl.plan.plan import Plan
from proveout.proto.events import (
    AgentsTick,
    AgentUp,
    Event,
    IterationStarted,
    Notice,
    RunFinished,
    RunStarted,
    StageProgress,
    Stamped,
)
from proveout.proto.wire.messages import Hello, LogLine, Sample, Start, TaskProgress
from proveout.proto.wire.results import FaultStep
from proveout.proto.wire.tasks import Endpoint, Task


@record
class RunOptions:
    """The parameters of one coordinator process that runs or resumes a plan.

    `external` may hold passwords; only tasks contain it. `estimates_s`: the seconds of each stage by id. `crashed`: the
    last coordinator was killed, and its agents may still be leaving. `policy`: the permitted changes of local agents.
    `labels`: of `--label`. `preflight`: check hosts and systems before anything is changed, unless the plan does
    without it. From `gather_hosts` hosts on the samples of a host are sent together once a second, from ten times as
    many on every 2 s, for each host at a different moment.
    """

    plan: Plan
    directory: RunDirectory
    version: str
    external: Mapping[str, Endpoint] = field(default_factory=dict)
    credentials: Credentials | None = None
    estimates_s: Mapping[str, float] = field(default_factory=dict)
    timing: Timing = field(default_factory=Timing)
    lease_s: float = 10.0
    beat_s: float = 3.0
    crashed: bool = False
    policy: Path | None = None
    gather_hosts: int = 50
    labels: Mapping[str, str] = field(default_factory=dict)
    preflight: bool = False


Listener = Callable[[Stamped], None]
_HURRIED_CLOSE_S = 1.0
COMMANDS_AT_ONCE = 16
"""The number of commands between two yields to the agents' streams; making a task takes about 0.3 ms."""
NOTICES_MAX = 1000
_BACK_S = 20.0
_DIALS_AT_ONCE = 64
"""The clock is measured while dialling, and a thousand TLS handshakes at once would delay each exchange."""


async def run(
    options: RunOptions,
    journal: Journal,
    listeners: Sequence[Listener],
    *,
    interrupts: asyncio.Queue[None] | None = None,
) -> RunFinished:
    """Run the plan to its end; each item of `interrupts` is a request to end now.

    The verdict is in the journal and in the result. Expected failures are in the result too, and raise no exception.
    """
    loop = _Loop(options, journal, listeners)
    forwarding = asyncio.create_task(loop.forward(interrupts or asyncio.Queue()))
    with rare_garbage_collection():
        try:
            return await loop.run()
        finally:
            try:
                await loop.close()
            finally:
                forwarding.cancel()


class _Loop:
    def __init__(self, options: RunOptions, journal: Journal, listeners: Sequence[Listener]) -> None:
        self._options, self._journal, self._listeners = options, journal, listeners
        self._plan = options.plan
        self._record = Record(options.directory.path, self._break)
        self._evaluator = PlanEvaluator(options.plan)
        self._inbox: asyncio.Queue[SessionEvent | Input] = asyncio.Queue()
        self._fabric = (
            LocalFabric(
                policy=options.policy, hidden=secret_variables(options.plan), passed=passed_variables(options.plan)
            )
            if any(host.is_local for host in self._plan.hosts)
            else None
        )
        self._sessions: dict[str, AgentSession] = {}
        self._boots: dict[str, str] = {}
        self._jobs: set[asyncio.Task[None]] = set()
        self._gathering: samples.Gathering | None = None
        self._meters: Meters | None = None
        self._faults: FaultWatch | None = None
        self._dials: set[asyncio.Task[None]] = set()
        self._partings: dict[str, asyncio.Task[None]] = {}
        self._dialling = asyncio.Semaphore(_DIALS_AT_ONCE)
        self._known_hosts: set[str] = set()
        self._noticed = Counter[str]()
        self._broken: StorageFailed | None = None
        self._bug: BaseException | None = None
        self._ended: RunFinished | None = None
        self._hurried = False

    async def run(self) -> RunFinished:
        """Run until the scheduler ends the run."""
        background = [asyncio.create_task(job) for job in (self._show_agents(), self._renew_certificates())]
        try:
            state = await self._begin()
            while not state.over:
                state = await self._turn(state)
        finally:
            for job in background:
                job.cancel()
        assert self._ended is not None  # noqa: S101  # the scheduler ends with it
        return self._unless_broken(self._ended)  # also if only the last event is lost

    async def forward(self, interrupts: asyncio.Queue[None]) -> None:
        """Hand interrupts to the scheduler. From the second one on, those after the end of the run end the wait for
        agents."""
        for number in itertools.count(1):
            await interrupts.get()
            self._inbox.put_nowait(Interrupted(at_s=time.monotonic()))
            if number > 1 and self._ended is not None:
                self._stop_waiting()

    async def _show_agents(self) -> None:
        """Once per beat, send the state of the agents to listeners."""
        beat_s, lease_s = self._options.beat_s, self._options.lease_s
        while True:
            await asyncio.sleep(beat_s)
            standing = tuple(session.standing for session in self._sessions.values())
            if standing:
                self._tell(self._journal.live(AgentsTick(lease_s=lease_s, beat_s=beat_s, agents=standing)))

    async def _renew_certificates(self) -> None:
        """Renew the coordinator's certificates, or warn before they expire."""
        credentials = self._options.credentials
        if credentials is None or credentials.directory is None:
            return

        def tell(level: Literal["info", "warning"], text: str) -> None:
            self._emit(Notice(level=level, host="", text=text))

        await keep(credentials.directory, sum(self._options.estimates_s.values()), tell)

    async def _begin(self) -> State:
        earlier = [stamped.event for stamped in read(self._options.directory.path)]
        self._known_hosts |= {event.host for event in earlier if isinstance(event, AgentUp)}
        started = RunStarted(
            run_id=self._options.directory.name,
            epoch=self._journal.epoch,
            name=self._plan.name,
            title=self._plan.title,
            digest=self._plan.digest,
            plan=plan_data(self._plan),
            version=self._options.version,
            estimate_s=sum(self._options.estimates_s.values()),
            resumed=sum(isinstance(event, RunStarted) for event in earlier),
            labels=dict(self._options.labels),
        )
        opening: list[Event] = [started]
        if self._options.crashed:
            text = "the last coordinator was killed; its agents may keep the databases open for up to 20 s"
            opening.append(Notice(level="info", host="", text=text))
        for event in opening:
            self._emit(event)
        self._record.note("began", run=started.run_id, epoch=started.epoch, plan=started.digest)
        setup = Setup(
            run_id=self._options.directory.name,
            epoch=self._journal.epoch,
            data_root=str(self._options.directory.systems),
            external=self._options.external,
            estimates_s=self._options.estimates_s,
            timing=self._options.timing,
            preflight=self._options.preflight and self._plan.preflight,
            cluster=cluster_secrets() if needs_cluster(self._plan) else None,
        )
        facts = run_progress([*earlier, *opening])
        state, commands = state_machine.start(self._plan, setup, facts, self._evaluator, time.monotonic())
        await self._execute(commands)
        return state

    async def _turn(self, state: State) -> State:
        """Wait for an input or the next deadline, and advance the state."""
        for event in self._inputs(await self._next(state_machine.wake_s(state))):
            state, commands = state_machine.advance(state, event, self._evaluator)
            self._hurried = state.ending is not None and state.ending.hurried
            await self._execute(commands)
        return state

    async def _next(self, wake_s: float | None) -> SessionEvent | Input:
        if self._inbox.empty() and wake_s is not None:
            left_s = wake_s - time.monotonic()
            if left_s <= 0.0:
                return Tick(at_s=time.monotonic())
            try:
                async with asyncio.timeout(left_s):  # `wait_for` would make a task for each message
                    return await self._inbox.get()
            except TimeoutError:
                return Tick(at_s=max(wake_s, time.monotonic()))  # the loop's clock may be coarser
        return await self._inbox.get()

    # ---- messages of agents ------------------------------------------------------------------------------------------

    def _inputs(self, event: SessionEvent | Input) -> Sequence[Input]:
        now_s = time.monotonic()
        match event:
            case Received(host=host, message=Sample() as sample):
                found = self._sampled(host, sample, now_s)
                wanted = is_wanted(sample, started=self._gathering is not None and self._gathering.t0_ns > 0)
                return (*found, MessageReceived(at_s=now_s, host=host, message=sample)) if wanted else found
            case Received(host=host, message=TaskProgress() as progress):
                self._progressed(host, progress)
                return (MessageReceived(at_s=now_s, host=host, message=progress),)
            case Received(host=host, message=LogLine(level=level, text=text)):
                if level in {"warning", "error"}:
                    self._notice(host, "error" if level == "error" else "warning", text)
                return ()
            case Received(host=host, message=message):
                return (MessageReceived(at_s=now_s, host=host, message=message),)
            case Lost(host=host, reason=reason):
                known = self._sessions.pop(host, None)  # None: it was closed meanwhile, and its agent is dialled again
                return () if known is None else (AgentGone(at_s=now_s, host=host, reason=reason),)
            case _:
                return (event,)

    def _notice(self, host: str, level: Literal["warning", "error"], text: str) -> None:
        """Journal a warning or an error of an agent, of each so many at most."""
        self._noticed[host] += 1
        if self._noticed[host] <= NOTICES_MAX:
            self._emit(Notice(level=level, host=host, text=text))
        if self._noticed[host] == NOTICES_MAX:
            more = f"{host} has sent {NOTICES_MAX} warnings and errors; the others are only in its own log"
            self._emit(Notice(level="warning", host=host, text=more))

    def _sampled(self, host: str, message: Sample, now_s: float) -> Sequence[Input]:
        """Keep and show a sample; the inputs for the scheduler about faults."""
        gathering, watch = self._gathering, self._faults
        if gathering is None or watch is None or gathering.hosts.get(message.key) != host:
            return ()
        gathering.add(message)
        if isinstance(message.sample, FaultStep):
            return (FaultStepped(at_s=now_s, key=message.key, seen=watch.seen(host, message.sample)),)
        due: list[str] = []
        for tick in self._meters.take(message) if self._meters is not None else ():
            self._tell(self._journal.live(tick))
            due += watch.due(tick)
        return tuple(FaultDue(at_s=now_s, fault=name) for name in due)

    def _progressed(self, host: str, progress: TaskProgress) -> None:
        _, stage, *_, what, _ = progress.key.split("/")
        event = StageProgress(
            stage=what if stage == "-" else stage,
            host=host,
            done=progress.done,
            total=progress.total,
            unit=progress.unit,
            note=progress.note,
        )
        self._tell(self._journal.live(event))

    # ---- commands --------------------------------------------------------------------------------------------------

    async def _execute(self, commands: Sequence[Command]) -> None:
        for number, command in enumerate(commands, 1):
            if number % COMMANDS_AT_ONCE == 0:
                await asyncio.sleep(0)  # the first agents receive their tasks while those of the others are made
            match command:
                case Emit(event=event):
                    self._emit(event)
                case Dial(hosts=hosts, rebooting=rebooting):
                    self._dials = {self._spawn(self._dial(host, rebooting.get(host, 0.0))) for host in hosts}
                case SendMessage(host=host, message=message):
                    if host in self._sessions:
                        encoded = self._record.task(host, message) if isinstance(message, Task) else b""
                        self._sessions[host].send(message, encoded)
                case CloseSessions(hosts=hosts, keep_data=keep):
                    for host in hosts:
                        self._part(host, keep_data=keep)
                case KeepOutput(name=name, text=text):
                    try:
                        self._options.directory.keep_output(name, text)
                    except StorageFailed as fault:
                        self._break(fault)
                case _:
                    self._iterate(command)

    def _iterate(self, command: GatherSamples | StartLoads | Summarise | DiscardSamples) -> None:
        match command:
            case GatherSamples(id=identity, hosts=hosts, captures=names, loads=loads, faults=faults):
                self._gathering = samples.Gathering(
                    id=identity, hosts=hosts, names=names, loads=loads, faults=faults, boots=self._boots,
                    spool=Spool(self._options.directory.samples),
                )  # fmt: skip
                self._faults = FaultWatch(self._plan, self._gathering)
                self._meters = Meters(self._gathering)
            case StartLoads(loads=armed, captures=captures, in_s=in_s):
                self._start([*armed, *captures], in_s)
            case Summarise():
                gathering, self._gathering = self._gathering, None  # now, as the next command may replace it
                assert gathering is not None  # noqa: S101  # the scheduler gathers before it summarises
                self._spawn(self._summarise(command, gathering))
            case DiscardSamples():
                self._gathering = None

    def _emit(self, event: Event) -> None:
        if isinstance(event, RunFinished):
            event = self._unless_broken(event)
            self._record.note("ended", status=event.status, exit_code=event.exit_code)
            self._ended = event = self._unless_broken(event)  # also if this entry is lost
        if isinstance(event, IterationStarted) and self._meters is not None:
            self._meters.begin(event)
        try:
            stamped = self._journal.append(event)
        except StorageFailed as fault:
            stamped = self._journal.live(event)
            self._break(fault)
        self._tell(stamped)

    def _unless_broken(self, ended: RunFinished) -> RunFinished:
        """The end of the run, which has failed where an event or an entry could not be written."""
        if self._broken is None:
            return ended
        return replace(ended, status="failed", exit_code=4, reason=one_line(self._broken))

    def _tell(self, stamped: Stamped) -> None:
        for listener in self._listeners:
            listener(stamped)

    def _break(self, fault: StorageFailed) -> None:
        if self._broken is None:
            self._broken = fault
            self._inbox.put_nowait(CoordinatorFailed(at_s=time.monotonic(), reason=one_line(fault)))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        job = asyncio.create_task(work)
        self._jobs.add(job)
        job.add_done_callback(self._job_done)
        return job

    def _job_done(self, job: asyncio.Task[None]) -> None:
        """Record a bug in a job, which ends the run like a failure, with clean-up, and is raised after that."""
        self._jobs.discard(job)
        bug = None if job.cancelled() else job.exception()
        if bug is not None:
            self._bug = self._bug or bug
            reason = f"a fault in proveout itself: {type(bug).__name__}: {bug}"
            self._inbox.put_nowait(CoordinatorFailed(at_s=time.monotonic(), reason=reason))

    async def _dial(self, host: str, reboot_s: float) -> None:
        """Connect to a host's agent, from another boot within `reboot_s` if the host reboots."""
        crowd = len(self._plan.hosts) / self._options.gather_hosts
        hello = Hello(
            run_id=self._options.directory.name,
            epoch=self._journal.epoch,
            host=host,
            beat_s=self._options.beat_s,
            lease_s=self._options.lease_s,
            version=self._options.version,
            audit=self._record.head(),
            gather_s=0.0 if crowd < 1 else 1.0 if crowd < 10 else 2.0,
        )
        try:
            session = await (self._connect_rebooted(host, hello, reboot_s) if reboot_s else self._connect(host, hello))
        except (ProveoutError, OSError) as fault:
            self._inbox.put_nowait(AgentGone(at_s=time.monotonic(), host=host, reason=one_line(fault)))
            return
        self._sessions[host] = session
        self._boots[host] = str(dict(session.welcome.facts).get("boot_id", ""))
        self._known_hosts.add(host)
        welcome, clock = session.welcome, session.clock
        self._record.note("agent", host=host, address=session.address, machine=welcome.machine_id, head=welcome.audit)
        up = AgentUp(
            host=host,
            agent_version=welcome.version,
            machine_id=welcome.machine_id,
            cores=welcome.cores,
            offset_ns=clock.offset_ns,
            uncertainty_ns=clock.uncertainty_ns,
            facts=dict(welcome.facts),
        )
        self._inbox.put_nowait(AgentReady(at_s=time.monotonic(), up=up))

    async def _connect_rebooted(self, host: str, hello: Hello, within_s: float) -> AgentSession:
        """A session with the agent of a host that reboots. Until it is down, its agent answers from the boot of before,
        or refuses. AgentUnreachable after `within_s`."""
        until_s = time.monotonic() + within_s
        while True:
            try:
                session = await self._open(host, hello)
                if str(dict(session.welcome.facts).get("boot_id", "")) != self._boots.get(host):
                    return session
                await session.close(keep_data=True)
                why = "it still answers from the boot of before"
            except (AgentUnreachable, AgentRefused) as fault:
                why = fault.what
            if time.monotonic() >= until_s:
                what = f"it has not rebooted within {within_s:.0f} s: {why}"
                raise AgentUnreachable(what, where=f"host {host}", way_out="See the agent's log on that host.")
            await asyncio.sleep(DIAL_AGAIN_S)

    async def _open(self, host: str, hello: Hello) -> AgentSession:
        async with self._dialling:
            address, credentials = await self._reach(host)
            return await connect(host, address, credentials, hello, cast("asyncio.Queue[SessionEvent]", self._inbox))

    async def _connect(self, host: str, hello: Hello) -> AgentSession:
        """A session with a host's agent. An agent that this run had a session with may be restarting, and gets more
        time."""

        def tell(text: str) -> None:
            self._emit(Notice(level="warning", host=host, text=text))

        back = host in self._known_hosts and not self._plan.host(host).is_local
        return await connect_patiently(partial(self._open, host, hello), _BACK_S if back else 0.0, tell)

    async def _reach(self, host: str) -> tuple[str, Credentials]:
        """Address and credentials of a host's agent; a local one is started."""
        known = self._plan.host(host)
        if known.is_local and self._fabric is not None:
            addresses = await self._fabric.start([host], self._options.directory.logs)
            return addresses[host], self._fabric.credentials
        assert self._options.credentials is not None  # noqa: S101  # the verb has read them
        return known.address, self._options.credentials.current()

    def _part(self, host: str, *, keep_data: bool) -> None:
        session = self._sessions.pop(host, None)
        if session is not None:
            timeout_s = _HURRIED_CLOSE_S if self._hurried else CLOSE_S
            self._partings[host] = self._spawn(session.close(keep_data, timeout_s))

    def _stop_waiting(self) -> None:
        """End the wait for agents that are closing their sessions."""
        left = {host: job for host, job in self._partings.items() if not job.done()}
        for job in left.values():
            job.cancel()
        if left:
            text = f"the end of the sessions with {', '.join(left)} was not waited for: agents undo what is left there"
            self._emit(Notice(level="warning", host="", text=text))

    def _start(self, tasks: Sequence[tuple[str, str]], in_s: float) -> None:
        t0_ns = time.monotonic_ns() + int(in_s * 1e9)
        for host, key in tasks:
            session = self._sessions.get(host)
            if session is not None:
                session.send(Start(key=key, t0_ns=session.to_agent_ns(t0_ns)))
        for session in self._sessions.values():
            session.listen_anew()
        if self._gathering is not None:
            self._gathering.t0_ns = t0_ns
            self._gathering.started_unix_s = time.time() + in_s
            self._gathering.clocks = {host: each.clock_at(t0_ns).pair for host, each in self._sessions.items()}

    async def _summarise(self, command: Summarise, gathering: samples.Gathering) -> None:
        gathering.clock_ends = {host: session.clock.pair for host, session in self._sessions.items()}
        gathering.silences = {host: session.silence_longest_s for host, session in self._sessions.items()}
        folder = self._options.directory.samples
        gathering.earlier, gathering.before = command.earlier, command.before
        finished = await asyncio.to_thread(
            samples.summarise,
            gathering,
            self._plan,
            command.rate,
            command.loads,
            command.captures,
            faults=command.faults,
        )
        try:
            await asyncio.to_thread(samples.write, gathering, folder)
        except OSError as fault:
            reason = one_line(storage_failed(folder, fault))
            self._inbox.put_nowait(CoordinatorFailed(at_s=time.monotonic(), reason=reason))
            return
        del gathering
        await asyncio.to_thread(release_memory)
        self._inbox.put_nowait(Summarised(at_s=time.monotonic(), finished=finished))

    # ---- the end ---------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close the remaining sessions, end the local agents, and tidy up. Runs after every outcome."""
        keep_data = self._ended is None or self._ended.status != "finished"
        for job in self._jobs if self._ended is None else self._dials:
            job.cancel()
        await asyncio.gather(*self._jobs, return_exceptions=True)
        for host in list(self._sessions):
            self._part(host, keep_data=keep_data)
        await asyncio.gather(*self._jobs, return_exceptions=True)
        if self._fabric is not None:
            await self._fabric.close()
        if not keep_data:
            await asyncio.to_thread(self._options.directory.tidy)
        if self._bug is not None:
            raise self._bug
