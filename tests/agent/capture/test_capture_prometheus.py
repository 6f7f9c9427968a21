"""The exporter capture: selection of series from text, and an HTTP server as a correct and a faulty exporter."""

from __future__ import annotations

import asyncio
import base64
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from eventually import PATIENCE_S, eventually_async

from proveout.agent.capture import kinds, prometheus
from proveout.agent.capture.prometheus import select
from proveout.agent.errors import TaskFault
from proveout.coordinator.measure.captures import Recording, Window, exported_metrics
from proveout.dsl.plan.topology import Capture, Scrape
from proveout.proto.wire.results import CaptureResult, CaptureSample, Reading
from proveout.proto.wire.tasks import Endpoint, RunCapture

TEXT = r"""# HELP node_load1 1m load average.
# TYPE node_load1 gauge
node_load1 0.75
node_load15 3
# TYPE node_disk_reads_completed_total counter
node_disk_reads_completed_total{device="sda"} 100
node_disk_reads_completed_total{device="sdb"} 7 1700000000000
node_cpu_seconds_total{cpu="0",mode="idle"} 10.5
node_cpu_seconds_total{cpu="1",mode="idle"} 20.5
node_cpu_seconds_total{cpu="1",mode="user"} 4
odd{path="a,b=\"c\" # {d} \\ é"} 1e3
broken{x="1"} NaN
broken{x="2"} +Inf
with_exemplar_total{a="# {"} 5 # {trace_id="x"} 0.1 1700000000.0
"""


def scrape(metric: str, **more: Any) -> Scrape:
    return Scrape(alias=more.pop("alias", metric), metric=metric, **more)


# ---- selection ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "value"),
    [
        (scrape("node_load1"), 0.75),
        (scrape("node_disk_reads_completed_total"), 107.0),
        (scrape("node_cpu_seconds_total", labels=(("cpu", "1"), ("mode", "idle"))), 20.5),
        (scrape("node_cpu_seconds_total", labels=(("mode", "idle"),), take="avg"), 15.5),
        (scrape("node_cpu_seconds_total", take="min"), 4.0),
        (scrape("node_cpu_seconds_total", take="max"), 20.5),
        (scrape("odd", labels=(("path", 'a,b="c" # {d} \\ é'),)), 1000.0),
        (scrape("with_exemplar_total"), 5.0),
        (scrape("absent_total", kind="counter", optional=True), 0.0),
    ],
)
def test_series_are_selected_by_name_and_labels(wanted: Scrape, value: float) -> None:
    assert select(TEXT, [wanted]) == {wanted.alias: pytest.approx(value)}


@pytest.mark.parametrize(
    "wanted",
    [
        scrape("node_load"),
        scrape("node_load1", labels=(("device", "sda"),)),
        scrape("node_disk_reads_completed_total", labels=(("device", "sd"),)),
        scrape("broken"),
        scrape("absent", optional=True),
    ],
)
def test_missing_series_are_not_selected(wanted: Scrape) -> None:
    assert select(TEXT, [wanted]) == {}


# ---- an exporter in the test -------------------------------------------------------------------------------------


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Exporter

    def setup(self) -> None:
        self.server.connections += 1
        super().setup()

    def do_GET(self) -> None:
        self.server.requests.append(dict(self.headers) | {"path": self.path})
        status, body = self.server.answer(len(self.server.requests))
        if status == 0:
            self.close_connection = True
            return
        self.send_response(status)
        if status in (301, 302):
            self.send_header("Location", "http://127.0.0.1:1/elsewhere")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with suppress(BrokenPipeError):  # the client closed the connection
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


class Exporter(ThreadingHTTPServer):
    """Serves `answer(number of the request)` on loopback: (status, body). Records the requests, and counts the
    connections."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, answer: Callable[[int], tuple[int, bytes]]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer, self.connections = answer, 0
        self.requests: list[dict[str, str]] = []
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def close(self) -> None:
        if self._thread.is_alive():
            self.shutdown()
            self.server_close()
            self._thread.join()


@pytest.fixture
def exporter() -> Iterator[Callable[[Callable[[int], tuple[int, bytes]]], Exporter]]:
    made: list[Exporter] = []

    def make(answer: Callable[[int], tuple[int, bytes]]) -> Exporter:
        made.append(Exporter(answer))
        return made[-1]

    yield make
    for one in made:
        one.close()


def task(url: str, *scrapes: Scrape, every_s: float = 0.02) -> RunCapture:
    capture = Capture(name="node", kind="prometheus", every_s=every_s, hosts=("h",), url=url, scrapes=scrapes)
    return RunCapture(capture=capture, endpoints=(Endpoint(system="capture:node", engine="prometheus", dsn=url),))


async def captured(context: Any, spec: RunCapture, until: Callable[[], bool]) -> CaptureResult:
    """Run the capture until the condition holds."""
    running = asyncio.create_task(kinds.capture(context, spec))
    await eventually_async(lambda: until() or running.done(), "what the capture is to see")
    context.end()
    return await running


async def test_samples_come_over_one_connection_with_the_password(task_context: Any, exporter: Any) -> None:
    made = exporter(lambda number: (200, f"load 2.5\nhits_total {number * 10}\n".encode()))
    url = f"http://reader:p%40ss@127.0.0.1:{made.server_port}/deep/metrics?x=1"
    spec = task(url, scrape("load"), scrape("hits_total", alias="hits", kind="counter"))
    result = await captured(task_context, spec, lambda: len(task_context.samples) >= 3)
    first = task_context.samples[0]
    assert first.readings == (
        Reading(metric="prometheus.load", value=2.5),
        Reading(metric="prometheus.hits_total", value=20.0),  # the first request checks that all series exist
    )
    assert (result.samples, made.connections) == (len(task_context.samples), 1)
    assert made.requests[0]["path"] == "/deep/metrics?x=1"
    assert made.requests[0]["Authorization"] == f"Basic {base64.b64encode(b'reader:p@ss').decode()}"


async def test_a_temporary_failure_of_an_exporter_loses_samples_only(task_context: Any, exporter: Any) -> None:
    bad = {3: (500, b""), 4: (0, b""), 5: (200, b"other 1\n"), 6: (200, b"load x\n")}
    made = exporter(lambda number: bad.get(number, (200, b"load 1\n")))
    result = await captured(
        task_context, task(f"http://127.0.0.1:{made.server_port}", scrape("load")), lambda: len(made.requests) > 9
    )
    assert result.lost >= 3  # the request whose connection closed is repeated at once
    assert result.samples >= 3
    assert all(sample.readings == (Reading(metric="prometheus.load", value=1.0),) for sample in task_context.samples)


def test_an_exporter_may_hang_up_between_two_questions(exporter: Any) -> None:
    made = exporter(lambda number: (0, b"") if number == 2 else (200, b"load 1\n"))
    client = prometheus.Exporter(f"http://127.0.0.1:{made.server_port}/m", 5.0)
    with closing(client):
        assert (client.text(), client.text(), len(made.requests)) == ("load 1\n", "load 1\n", 3)


@pytest.mark.parametrize(
    ("status", "body", "code", "message"),
    [
        (404, b"", "unreachable", "answered 404"),
        (302, b"", "unreachable", "answered 302"),
        (200, b"load many\n", "unreachable", "cannot be read"),
        (200, b"x" * 2000, "unreachable", "longer than"),
        (200, b'load{cpu="0"} 1\n', "missing", r'no series load\{cpu="1"\}'),
        (None, b"", "unreachable", "refused"),
    ],
)
async def test_a_bad_answer_at_the_start_is_a_fault_without_the_password(
    task_context: Any,
    exporter: Any,
    status: int | None,
    body: bytes,
    code: str,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prometheus, "ANSWER_BYTES_MAX", 1000)
    made = exporter(lambda _: (status, body))
    if status is None:
        made.close()
    url = f"http://u:secret@127.0.0.1:{made.server_port}/m"
    with pytest.raises(TaskFault, match=message) as fault:
        await kinds.capture(task_context, task(url, scrape("load", labels=(("cpu", "1"),)), scrape("x", optional=True)))
    assert fault.value.code == code
    assert "secret" not in str(fault.value)


async def test_an_exporter_that_never_answers_does_not_delay_the_end_of_the_capture(
    task_context: Any, exporter: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kinds, "END_S", 0.05)
    held = threading.Event()

    def answer(number: int) -> tuple[int, bytes]:
        if number > 2:
            held.wait(PATIENCE_S)
        return 200, b"load 1\n"

    made = exporter(answer)
    try:
        url = f"http://127.0.0.1:{made.server_port}/m"
        result = await captured(task_context, task(url, scrape("load")), lambda: len(made.requests) > 2)
    finally:
        held.set()
    assert result.lost >= 1


DRIPS = {
    "in the status line": b"HTTP/1.1 200 OK",
    "in a body of known length": b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n",
    "in chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
}


@pytest.mark.escape
@pytest.mark.parametrize("beginning", DRIPS.values(), ids=DRIPS)
def test_a_slow_answer_ends_at_the_timeout_for_the_whole(beginning: bytes) -> None:
    """One byte every 20 ms keeps each read within its timeout; without a limit for the whole answer this would take
    hours."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.sendall(beginning)
                while not over.wait(0.02):
                    connection.sendall(b"1" if b"chunked" not in beginning else b"1\r\n1\r\n")

        thread = threading.Thread(target=drip)
        thread.start()
        client = prometheus.Exporter(f"http://127.0.0.1:{server.getsockname()[1]}/metrics", 0.2)
        try:
            with pytest.raises(prometheus.Unanswered, match=r"not complete within 0\.2 s"):
                client.text()
        finally:
            over.set()
            thread.join(PATIENCE_S)
            client.close()


HOSTILE_LINES = {
    "escaped quotes": 'load{a="' + '\\"' * 100_000 + '"} 1',
    "many labels": "load{" + ",".join(f'l{n}="v"' for n in range(20_000)) + "} 1",
    "exemplars": "load 1 " + "# " * 100_000,
}


@pytest.mark.escape
@pytest.mark.parametrize("line", HOSTILE_LINES.values(), ids=HOSTILE_LINES)
def test_a_hostile_line_is_refused_without_parsing(line: str) -> None:
    with pytest.raises(ValueError, match="characters"):
        select(f"{line}\n", [scrape("load")])
    with pytest.raises(ValueError, match="MiB of lines"):
        select('load{a="b"} 1\n' * 100_000, [scrape("load")])


# ---- summary of a window -----------------------------------------------------------------------------------------


def test_gauges_and_counters_are_cut_at_the_measure_window() -> None:
    values = [(0, 9.0, 0.0), (1, 1.0, 100.0), (2, 3.0, 110.0), (3, 2.0, 130.0), (4, 7.0, 500.0)]
    samples = [
        CaptureSample(
            capture="node",
            at_ns=int(second * 1e9),
            readings=(
                Reading(metric="prometheus.load", value=load),
                Reading(metric="prometheus.hits_total", value=hits),
            ),
        )
        for second, load, hits in values
    ]
    scrapes = (scrape("load"), scrape("hits_total", alias="hits", kind="counter"), scrape("absent", optional=True))
    tree = exported_metrics(Recording(samples), Window(start_ns=1_000_000_000, end_ns=3_000_000_000), scrapes)
    assert tree == {
        "load": {"avg": pytest.approx(2.25), "min": 1.0, "max": 3.0, "end": 2.0},
        "hits": {"per_s": pytest.approx(15.0), "delta": pytest.approx(30.0)},
    }
