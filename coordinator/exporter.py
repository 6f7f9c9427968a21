"""`--metrics ADDR`: the OpenMetrics endpoint of a running coordinator.

Data flow: stamped events -> `Instruments` -> the series of a `Board` -> GET /metrics -> text. Metric names are in
`FAMILIES`.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from proveout.core.data_classes import dataclass
from proveout.core.errors import ProveoutError
from proveout.core.numbers import safe
from proveout.dsl.plan.stages import WINDOWS
from proveout.proto.events import (
    AgentLost,
    AgentsTick,
    AgentUp,
    FaultSeen,
    HostTick,
    IterationFinished,
    IterationStarted,
    IterationVoided,
    LoadTick,
    Notice,
    PopulateFinished,
    ProbeFinished,
    RunStarted,
    SearchFinished,
    StageFinished,
    StageProgress,
    StageStarted,
    Stamped,
    TransactionsTick,
    VerdictForeseen,
    VerdictReached,
)

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


# Names and units follow https://prometheus.io/docs/specs/om/open_metrics_spec: base units (seconds, bytes, ratio), the
# unit last in the name, counters' samples end in `_total`. A *stateset* has one series per state, 1 for the one that it
# is in; an *info* is 1 with the facts as labels.

Kind: TypeAlias = Literal["gauge", "counter", "stateset", "info"]

UNITS = ("bytes_per_second", "seconds", "ratio", "bytes")
SUFFIX: Mapping[Kind, str] = {"gauge": "", "counter": "_total", "stateset": "", "info": "_info"}


@dataclass(frozen=True, slots=True)
class Family:
    """A metric family; `states` only for a stateset."""

    name: str
    kind: Kind
    about: str
    labels: tuple[str, ...] = ()
    states: tuple[str, ...] = ()

    @property
    def unit(self) -> str:
        """The end of its name, "" for none."""
        return next((unit for unit in UNITS if self.name.endswith(f"_{unit}")), "")

    @property
    def sample(self) -> str:
        """The name of its samples, which queries use."""
        return self.name + SUFFIX[self.kind]


def _gauge(name: str, about: str, *labels: str) -> Family:
    return Family(name, "gauge", about, labels)


RUN = Family(
    "proveout_run", "info", "The run: its name, plan and version.", ("run", "plan", "title", "digest", "version")
)
RUN_START = _gauge("proveout_run_start_time_seconds", "When this coordinator began, Unix time.")
RUN_ESTIMATE = _gauge("proveout_run_estimate_seconds", "The estimated duration of the whole run.")
STAGE_STATES = ("waiting", "running", "ok", "failed", "skipped")
STAGE = Family("proveout_stage", "stateset", "The state of each stage.", ("stage", "kind"), STAGE_STATES)
STAGE_ITERATIONS = _gauge(
    "proveout_stage_iterations", "The maximum number of iterations of the stage, without reruns.", "stage"
)
STAGE_PROGRESS = _gauge(
    "proveout_stage_progress_ratio", "The finished part of the host's task (populate …).", "stage", "host"
)
ITERATION_THREADS = _gauge("proveout_iteration_threads", "The rung of the iteration under way.", "stage")
ITERATION_REPEAT = _gauge("proveout_iteration_repeat", "The repeat of the iteration under way.", "stage")
ITERATION_ATTEMPT = _gauge("proveout_iteration_attempt", "The attempt of the iteration under way.", "stage")
ITERATION_RATE = _gauge(
    "proveout_iteration_intended_transactions_per_second",
    "The intended rate of the iteration under way; none for closed arrival.",
    "stage",
)
WINDOW = Family(
    "proveout_window", "stateset", "The window that the load is in.", ("stage",), tuple(one.name for one in WINDOWS)
)
FAULT = _gauge(
    "proveout_fault_in_place",
    "Whether a fault is in place on the host, 0 or 1: from its begin until it is healed.",
    "stage",
    "fault",
    "host",
)
ITERATIONS = Family(
    "proveout_iterations", "counter", "Iterations that have ended: valid, invalid or void.", ("stage", "outcome")
)
LOAD_RATE = _gauge("proveout_load_transactions_per_second", "Throughput of the newest second of load.", "stage", "rung")
LOAD_RESPONSE = _gauge(
    "proveout_load_response_seconds",
    "Response time in the newest second of load: avg, p50, p99.",
    "stage",
    "rung",
    "statistic",
)
LOAD_ERRORS = Family("proveout_load_errors", "counter", "Technical errors, in all windows.", ("stage",))
TRANSACTIONS = Family(
    "proveout_transactions",
    "counter",
    "Transactions in the measure windows of the iterations that have ended: ok, logical_failure or error.",
    ("stage", "transaction", "outcome"),
)
LOAD_TRANSACTION_RATE = _gauge(
    "proveout_load_transaction_type_per_second",
    "Throughput of a transaction type in the window so far.",
    "stage",
    "rung",
    "transaction",
)
LOAD_TRANSACTION_RESPONSE = _gauge(
    "proveout_load_transaction_type_response_seconds",
    "Response time of a transaction type in the window so far: p50, p95, p99.",
    "stage",
    "rung",
    "transaction",
    "statistic",
)
RUNG_RATE = _gauge(
    "proveout_rung_transactions_per_second", "Throughput of the rung's newest valid iteration.", "stage", "rung"
)
STATISTICS = ("avg", "p50", "p90", "p95", "p99", "p999", "max")
RUNG_RESPONSE = _gauge(
    "proveout_rung_response_seconds",
    f"Response time of the rung's newest valid iteration: {', '.join(STATISTICS)}.",
    "stage",
    "rung",
    "statistic",
)
PROBE_RATE = _gauge("proveout_probe_transactions_per_second", "The rate of the search's newest probe.", "stage")
PROBE_ACCEPTED = _gauge("proveout_probe_accepted", "Whether that rate was accepted, 0 or 1.", "stage")
SEARCH_RATE = _gauge("proveout_search_transactions_per_second", "The rate that a search has found.", "stage")
HOST_UP = _gauge("proveout_host_up", "Whether the host's agent answers, 0 or 1.", "host")
HOST_CORES = _gauge("proveout_host_cores", "The host's cores.", "host")
CLOCK_OFFSET = _gauge("proveout_host_clock_offset_seconds", "The agent's clock less the coordinator's.", "host")
CLOCK_BOUND = _gauge("proveout_host_clock_uncertainty_seconds", "The bound of the error of that offset.", "host")
HOST_SILENCE = _gauge(
    "proveout_host_silence_seconds", "Since the agent's last answer; its lease ends after 10.", "host"
)

READINGS: Mapping[str, Family] = {
    "cpu.busy_fraction": _gauge("proveout_host_cpu_busy_ratio", "CPU in use, of all cores.", "host"),
    "memory.used_bytes": _gauge("proveout_host_memory_used_bytes", "Memory in use.", "host"),
    "memory.total_bytes": _gauge("proveout_host_memory_total_bytes", "Memory that there is.", "host"),
    "disk.read_bytes_per_s": _gauge(
        "proveout_host_disk_read_bytes_per_second", "Read from the disk.", "host", "device"
    ),
    "disk.write_bytes_per_s": _gauge(
        "proveout_host_disk_write_bytes_per_second", "Written to the disk.", "host", "device"
    ),
    "disk.busy_s_per_s": _gauge("proveout_host_disk_busy_ratio", "Time with a request under way.", "host", "device"),
    "network.received_bytes_per_s": _gauge(
        "proveout_host_network_received_bytes_per_second", "Received.", "host", "interface"
    ),
    "network.sent_bytes_per_s": _gauge("proveout_host_network_sent_bytes_per_second", "Sent.", "host", "interface"),
    "pressure.cpu_us_per_s": _gauge(
        "proveout_host_pressure_cpu_ratio", "Time in which some task waited for CPU (PSI).", "host"
    ),
    "pressure.io_us_per_s": _gauge(
        "proveout_host_pressure_io_ratio", "Time in which some task waited for I/O (PSI).", "host"
    ),
    "lag.seconds": _gauge("proveout_lag_seconds", "Replication lag.", "host", "capture"),
    "lag.bytes": _gauge("proveout_lag_bytes", "Log that is not applied yet.", "host", "capture"),
}
"""Readings of captures (as `live.ticks` names them) -> family. Whatever else is captured is not exported."""
FACTORS = {"pressure.cpu_us_per_s": 1e-6, "pressure.io_us_per_s": 1e-6}
"""Of readings in another unit than their family."""

VERDICT_STATES = ("PENDING", "PASS", "FAIL", "INCONCLUSIVE")
VERDICT = Family("proveout_verdict", "stateset", "The verdicts.", ("verdict", "severity"), VERDICT_STATES)
FORESEEN = Family(
    "proveout_verdict_foreseen",
    "stateset",
    "The provisional outcome of a verdict on the results so far.",
    ("verdict", "severity"),
    VERDICT_STATES[1:],
)
NOTICES = Family("proveout_notices", "counter", "Notices of the run: info, warning or error.", ("level",))
DROPPED = Family("proveout_series_dropped", "counter", "Updates left out because there were too many series.")

FAMILIES: tuple[Family, ...] = tuple(
    one
    for value in tuple(vars().values())
    for one in (value.values() if value is READINGS else [value])
    if isinstance(one, Family)
)
"""All of them, in the order of the text."""


SERIES_MAX = 2_000
LABEL_MAX = 200
CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class Board:
    """Series by family and label values. A value is a number, or for a stateset the name of a state."""

    def __init__(self) -> None:
        self._series: dict[str, dict[tuple[str, ...], float | str]] = {family.name: {} for family in FAMILIES}
        self._series[DROPPED.name][()] = 0.0

    def put(self, family: Family, value: float | str, *labels: object) -> None:
        """The series with these label values (in the family's order) is `value` now."""
        series = self._series[family.name]
        key = tuple(_label(label) for label in labels)
        assert len(key) == len(family.labels), family  # noqa: S101  # a slip of the caller
        if key in series or len(series) < SERIES_MAX:
            series[key] = value
        else:
            self.add(DROPPED, 1.0)

    def add(self, family: Family, amount: float, *labels: object) -> None:
        before = self._series[family.name].get(tuple(_label(label) for label in labels), 0.0)
        self.put(family, float(before) + amount, *labels)

    def clear(self, *families: Family, first: str | None = None) -> None:
        """Remove the families' series, or only those whose first label is `first`."""
        for family in families:
            kept = (
                {} if first is None else {k: v for k, v in self._series[family.name].items() if k[0] != _label(first)}
            )
            self._series[family.name] = kept

    def text(self) -> bytes:
        """All series as OpenMetrics 1.0 text."""
        from prometheus_client.openmetrics.exposition import generate_latest  # noqa: PLC0415  # only when it is scraped

        made: bytes = generate_latest(self)  # type: ignore[no-untyped-call]  # wants something with `collect`
        return made

    def collect(self) -> Iterator[Metric]:
        """As prometheus_client's collectors give them; empty families are left out."""
        from prometheus_client.metrics_core import Metric  # noqa: PLC0415

        for family in FAMILIES:
            series = self._series[family.name]
            if not series:
                continue
            metric = Metric(family.name, family.about, family.kind, family.unit)
            for key, value in series.items():
                labels = dict(zip(family.labels, key, strict=True))
                if isinstance(value, str):
                    for state in family.states:
                        metric.add_sample(family.sample, labels | {family.name: state}, float(state == value))
                else:
                    metric.add_sample(family.sample, labels, value)
            yield metric


def _label(value: object) -> str:
    return safe(str(value))[:LABEL_MAX]


_OF_ITERATION = (
    ITERATION_THREADS,
    ITERATION_REPEAT,
    ITERATION_ATTEMPT,
    ITERATION_RATE,
    WINDOW,
    FAULT,
    LOAD_RATE,
    LOAD_RESPONSE,
    LOAD_TRANSACTION_RATE,
    LOAD_TRANSACTION_RESPONSE,
    *READINGS.values(),
)


class Instruments:
    """Call it with each stamped event. Never waits; an event that says nothing to a scraper changes nothing."""

    def __init__(self) -> None:
        self.board = Board()
        self._kinds: dict[str, str] = {}
        self._ended_stages: set[str] = set()

    def __call__(self, stamped: Stamped) -> None:  # noqa: PLR0912 - one arm per kind of event
        board = self.board
        match stamped.event:
            case RunStarted() as event:
                self._started(event, stamped.unix_s)
            case AgentUp() as event:
                self._connected(event.host, True, event.offset_ns, event.uncertainty_ns)
                board.put(HOST_CORES, event.cores, event.host)
            case AgentsTick(agents=agents):
                for one in agents:
                    self._connected(one.host, one.connected, one.offset_ns, one.uncertainty_ns)
                    board.put(HOST_SILENCE, one.silent_s, one.host)
            case AgentLost(host=host):
                board.put(HOST_UP, 0.0, host)
                board.clear(*READINGS.values(), first=host)
            case HostTick() as event:
                for name, value in event.readings.items():
                    self._reading(event, name, value)
            case ProbeFinished() as event:
                if event.over == "rate":
                    board.put(PROBE_RATE, event.rate, event.stage)
                board.put(PROBE_ACCEPTED, float(event.accepted), event.stage)
            case SearchFinished(rate=rate, over="rate", stage=stage) if rate is not None:
                board.put(SEARCH_RATE, rate, stage)
            case FaultSeen() as event:
                in_place = event.step not in ("healed", "failed")
                board.put(FAULT, float(in_place), event.id.stage, event.fault, event.host)
            case VerdictForeseen() as event:
                board.put(FORESEEN, event.outcome, event.id, event.severity)
            case VerdictReached() as event:
                board.put(VERDICT, event.outcome, event.id, event.severity)
            case Notice(level=level):
                board.add(NOTICES, 1.0, level)
            case StageStarted() | StageProgress() | PopulateFinished() | StageFinished() as event:
                self._stage(event)
            case (
                IterationStarted() | LoadTick() | TransactionsTick() | IterationFinished() | IterationVoided() as event
            ):
                self._iteration(event)

    def _started(self, event: RunStarted, unix_s: float) -> None:
        about = (event.run_id, event.name, event.title, event.digest, event.version)
        self.board.put(RUN, 1.0, *about)
        self.board.put(RUN_START, unix_s)
        self.board.put(RUN_ESTIMATE, event.estimate_s)
        self.board.clear(*_OF_ITERATION)
        for stage, kind in ((str(data.get("id")), str(data.get("kind"))) for data in _entries(event.plan, "stages")):
            self._kinds[stage] = kind
            if stage not in self._ended_stages:  # a run that goes on has some behind it
                self.board.put(STAGE, "waiting", stage, kind)
        for data in _entries(event.plan, "verdicts"):
            self.board.put(VERDICT, "PENDING", data.get("id"), data.get("severity"))

    def _connected(self, host: str, connected: bool, offset_ns: int, uncertainty_ns: int) -> None:
        self.board.put(HOST_UP, float(connected), host)
        self.board.put(CLOCK_OFFSET, offset_ns / 1e9, host)
        self.board.put(CLOCK_BOUND, uncertainty_ns / 1e9, host)

    def _reading(self, tick: HostTick, name: str, value: float) -> None:
        metric, _, label = name.partition("[")
        if metric not in READINGS:
            return
        family = READINGS[metric]
        more = {"capture": tick.capture, "device": label[:-1], "interface": label[:-1]}
        self.board.put(family, value * FACTORS.get(metric, 1.0), tick.host, *(more[name] for name in family.labels[1:]))

    def _stage(self, event: StageStarted | StageProgress | PopulateFinished | StageFinished) -> None:
        board, stage = self.board, event.stage
        match event:
            case StageStarted():
                self._kinds[stage] = event.kind
                board.put(STAGE, "running", stage, event.kind)
                if event.iterations:
                    board.put(STAGE_ITERATIONS, event.iterations, stage)
            case StageProgress():
                if event.total > 0.0:
                    board.put(STAGE_PROGRESS, event.done / event.total, stage, event.host)
            case PopulateFinished():
                board.clear(STAGE_PROGRESS, first=stage)
            case StageFinished():
                self._ended_stages.add(stage)
                board.put(STAGE, event.outcome, stage, self._kinds.get(stage, ""))
                board.clear(STAGE_PROGRESS, first=stage)

    def _iteration(
        self, event: IterationStarted | LoadTick | TransactionsTick | IterationFinished | IterationVoided
    ) -> None:
        board, stage, where = self.board, event.id.stage, (event.id.stage, event.id.rung)
        if not isinstance(event, LoadTick | TransactionsTick):
            board.clear(*_OF_ITERATION)
        match event:
            case IterationStarted():
                board.put(ITERATION_THREADS, event.id.rung, stage)
                board.put(ITERATION_REPEAT, event.id.repeat, stage)
                board.put(ITERATION_ATTEMPT, event.id.attempt, stage)
                if event.rate is not None:
                    board.put(ITERATION_RATE, event.rate, stage)
            case LoadTick():
                board.put(WINDOW, event.window, stage)
                board.put(LOAD_RATE, event.tps, *where)
                board.add(LOAD_ERRORS, event.errors, stage)
                board.clear(LOAD_RESPONSE, first=stage)  # a second without answers has no response time
                times_us = {"avg": event.avg_us, "p50": event.p50_us, "p99": event.p99_us}
                self._response(LOAD_RESPONSE, times_us, *where)
            case TransactionsTick():
                board.clear(LOAD_TRANSACTION_RATE, LOAD_TRANSACTION_RESPONSE, first=stage)  # of another window perhaps
                for line in event.transactions:
                    board.put(LOAD_TRANSACTION_RATE, line.tps, *where, line.name)
                    times_us = {"p50": line.p50_us, "p95": line.p95_us, "p99": line.p99_us}
                    self._response(LOAD_TRANSACTION_RESPONSE, times_us, *where, line.name)
            case IterationVoided():
                board.add(ITERATIONS, 1.0, stage, "void")
            case IterationFinished():
                board.add(ITERATIONS, 1.0, stage, "valid" if event.valid else "invalid")
                for item in event.transactions:
                    counts = {
                        "ok": item.ok,
                        "logical_failure": item.logical_failures,
                        "error": sum(item.errors.values()),
                    }
                    for outcome, count in counts.items():
                        board.add(TRANSACTIONS, count, stage, item.label, outcome)
                if event.valid:
                    if (tps := event.metrics.get("tps")) is not None:
                        board.put(RUNG_RATE, tps, *where)
                    response = event.metrics.get("response", {})
                    self._response(RUNG_RESPONSE, {name: response.get(f"{name}_us") for name in STATISTICS}, *where)

    def _response(self, family: Family, times_us: Mapping[str, float | None], *labels: object) -> None:
        """The statistics of a response time that are known."""
        for statistic, value_us in times_us.items():
            if value_us is not None:
                self.board.put(family, value_us / 1e6, *labels, statistic)


def _entries(plan: Any, section: str) -> list[Mapping[str, Any]]:
    found = plan.get(section, ()) if isinstance(plan, Mapping) else ()
    return [data for data in found if isinstance(data, Mapping)]


LOOPBACK = "127.0.0.1"
CONNECTIONS_MAX = 16
REQUEST_BYTES_MAX = 8192
PATIENCE_S = 5.0
FRESH_S = 0.5
_FORMS = "Write PORT, HOST:PORT, [IPV6]:PORT, or the path of a Unix socket (with a / in it)."


class UnusableMetricsAddress(ProveoutError):
    """`--metrics` names no address, or one that cannot be listened on; found before the run begins."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Listening:
    """A socket that listens, and what to call it: `http://127.0.0.1:9464/metrics`, or the path."""

    socket: socket.socket
    shown: str


@contextmanager
def bound(address: str | None) -> Iterator[Listening | None]:
    """Listen at the address until the end; nothing for None. UnusableMetricsAddress."""
    if address is None:
        yield None
        return
    made = _listening(address)
    mine = Path(address).lstat() if "/" in address else None
    try:
        yield made
    finally:
        with suppress(FileNotFoundError):  # another run takes the place of a socket that was removed
            if mine is not None and os.path.samestat(mine, Path(address).lstat()):
                Path(address).unlink()
        made.socket.close()


@asynccontextmanager
async def serving(listening: Listening, earlier: Iterable[Stamped] = ()) -> AsyncIterator[Instruments]:
    """Serve scrapers; yields a listener of `run`. `earlier`: the events of a resumed run so far."""
    instruments = Instruments()
    for stamped in earlier:
        instruments(stamped)
    desk = _Desk(instruments)
    server = await asyncio.start_server(desk.serve, sock=listening.socket.dup(), limit=REQUEST_BYTES_MAX)
    try:
        yield instruments
    finally:
        server.close()
        await desk.close()
        await server.wait_closed()


# ---- addresses ---------------------------------------------------------------------------------------------------


def parse(address: str) -> tuple[str, int]:
    """Host and port; loopback when only a port is given. UnusableMetricsAddress."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    number = int(port) if port.isascii() and port.isdigit() else -1
    if not 0 <= number <= 65535 or (":" in host and not address.startswith("[")):
        raise UnusableMetricsAddress(f"--metrics {address}: not a valid address", way_out=_FORMS)
    return host or LOOPBACK, number


def _listening(address: str) -> Listening:
    made: socket.socket | None = None
    try:
        if "/" in address:
            made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            _clear_dead(address)
            made.bind(address)
            Path(address).chmod(0o600)  # before it listens, so no process can connect yet
        else:
            family, kind, protocol, _, where = socket.getaddrinfo(*parse(address), type=socket.SOCK_STREAM)[0]
            made = socket.socket(family, kind, protocol)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(where)
        made.listen(CONNECTIONS_MAX)
    except (OSError, UnicodeError) as fault:  # the latter of a host that cannot be a name
        if made is not None:
            made.close()
        taken = isinstance(fault, OSError) and fault.errno == errno.EADDRINUSE
        way_out = "Name another address, or stop what listens there." if taken else _FORMS
        what = f"--metrics {address}: cannot listen there: {getattr(fault, 'strerror', None) or fault}"
        raise UnusableMetricsAddress(what, way_out=way_out) from fault
    made.setblocking(False)
    if "/" in address:
        return Listening(made, address)
    name, number = made.getsockname()[:2]
    return Listening(made, f"http://{f'[{name}]' if ':' in name else name}:{number}/metrics")


def _clear_dead(address: str) -> None:
    """Remove the socket of a process that has ended. OSError when a process listens there, or the file is not a
    socket."""
    try:
        if not stat.S_ISSOCK(Path(address).lstat().st_mode):
            return  # `bind` says that it exists
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(1.0)
        try:
            asking.connect(address)
        except ConnectionRefusedError:
            Path(address).unlink(missing_ok=True)


# ---- requests ----------------------------------------------------------------------------------------------------


class _Desk:
    """Answers one request per connection."""

    def __init__(self, instruments: Instruments) -> None:
        self._instruments = instruments
        self._served: set[asyncio.Task[object]] = set()
        self._text, self._made_s = b"", float("-inf")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # a server's callback runs in one
        if len(self._served) >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        self._served.add(task)
        task.add_done_callback(self._served.discard)
        try:
            async with asyncio.timeout(PATIENCE_S):
                writer.write(self._answer(await reader.readuntil(b"\r\n\r\n")))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, ValueError, EOFError, asyncio.LimitOverrunError, TimeoutError):
            pass  # the client has gone, sent too much, or is too slow
        finally:
            writer.transport.abort()

    async def close(self) -> None:
        for task in list(self._served):
            task.cancel()
        await asyncio.gather(*self._served, return_exceptions=True)

    def _answer(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method not in (b"GET", b"HEAD"):
            return _response(HTTPStatus.METHOD_NOT_ALLOWED, b"only GET and HEAD\n")
        if path != b"/metrics":
            return _response(HTTPStatus.NOT_FOUND, b"the metrics are at /metrics\n")
        made = _response(HTTPStatus.OK, self._fresh(), CONTENT_TYPE)
        return made if method == b"GET" else made.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"

    def _fresh(self) -> bytes:
        now_s = time.monotonic()
        if now_s - self._made_s >= FRESH_S:
            self._text, self._made_s = self._instruments.board.text(), now_s
        return self._text


def _response(status: HTTPStatus, body: bytes, kind: str = "text/plain; charset=utf-8") -> bytes:
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *(["Allow: GET, HEAD"] if status is HTTPStatus.METHOD_NOT_ALLOWED else []),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body
