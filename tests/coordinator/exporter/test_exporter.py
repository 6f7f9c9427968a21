"""The OpenMetrics endpoint: its text follows the specification, contains the values of the run, and ends with it; and
every query of the shipped Grafana dashboard, run by a real Prometheus that scrapes that text."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import re
import shutil
import socket
import stat
import subprocess
import threading
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from eventually import PATIENCE_S, eventually
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from records import begun, ended, run_started, summary
from records import iteration as iteration_ended

from proveout.coordinator import exporter
from proveout.coordinator.exporter import Instruments
from proveout.proto import events as e

ID = e.IterationId(stage="ladder", rung=4, repeat=2, attempt=1)
STAGES = {"load": "populate", "ladder": "ladder", "cap": "search"}
PLAN = {
    "stages": [{"id": name, "kind": kind} for name, kind in STAGES.items()],
    "verdicts": [{"id": "fast", "severity": "fail"}, {"id": "even", "severity": "warn"}],
}
LINE = e.LoadLine(name="GET", tps=9.0, ok=9, logical_failures=0, errors=0, p50_us=100.0, p95_us=200.0, p99_us=300.0)
TYPES = e.TransactionsTick(id=ID, window="measure", seconds=1.0, transactions=(LINE,))
STARTED = run_started(PLAN, "r-1", title='A "title", {with} \\')
ITERATION = e.IterationStarted(id=ID, rate=250.0, starts_in_s=1.0, ramp_up_s=1.0, measure_s=5.0, ramp_down_s=1.0)
UP = e.AgentUp(host="c1", agent_version="1", machine_id="m", cores=8, offset_ns=-2_000_000, uncertainty_ns=500_000)
IN_PLACE = e.FaultSeen(id=ID, host="db1", fault="crash", number=1, step="in_place", at_s=1.0)
READINGS = {
    "cpu.busy_fraction": 0.5, "memory.used_bytes": 1e9, "memory.total_bytes": 2e9, "disk.read_bytes_per_s[sda]": 7.0,
    "disk.write_bytes_per_s[sda]": 2.0, "network.received_bytes_per_s[eth0]": 3.0, "network.sent_bytes_per_s[eth0]": 4.0,
    "pressure.io_us_per_s": 250_000.0, "x": 1.0,
}  # fmt: skip
HOST = e.HostTick(host="db1", capture="host", readings=READINGS)
LAG = e.HostTick(host="db1", capture="lag", readings={"lag.seconds": 0.25, "lag.bytes": 8192.0})
SEARCHED: tuple[e.Event, ...] = (
    e.ProbeFinished(stage="cap", probe=1, phase="bracket", rate=500.0, accepted=False, evidence=""),
    e.SearchFinished(stage="cap", rate=450.0, probes=1, reason=""),
    e.Notice(level="warning", host="", text="x"),
    e.VerdictForeseen(id="even", title="", severity="warn", outcome="PASS", evidence=""),
)
WHERE = {"stage": "ladder", "rung": "4"}


def tick(tps: float, errors: int = 0) -> e.LoadTick:
    times: dict[str, Any] = {"avg_us": 500.0, "p50_us": 400.0, "p99_us": 2_000.0}
    return e.LoadTick(id=ID, second=3, window="measure", tps=tps, errors=errors, **times)


def finished(valid: bool = True, tps: float | None = 1_234.0) -> e.IterationFinished:
    metrics = {"tps": tps, "response": {"avg_us": 700.0, "p99_us": 3_000.0}}
    one = summary("GET", ok=9, logical_failures=2, errors={"deadlock": 1, "lost": 3}, tps=11.0)
    return iteration_ended("ladder", 4, 2, metrics, valid=valid, transactions=(one,))


class Found:
    """The samples that a scraper parses from the text after these events."""

    def __init__(self, *events: e.Event, text: bytes = b"") -> None:
        instruments = Instruments()
        for number, event in enumerate(events, 1):
            instruments(e.Stamped(sequence=number, unix_s=1_000.0 + number, event=event))
        self.text = text or instruments.board.text()
        families = text_string_to_metric_families(self.text.decode())  # type: ignore[no-untyped-call]
        self.samples = [sample for family in families for sample in family.samples]

    def __contains__(self, name: str) -> bool:
        return any(sample.name == f"proveout_{name}" for sample in self.samples)

    def of(self, name: str) -> dict[frozenset[tuple[str, str]], float]:
        return {frozenset(one.labels.items()): one.value for one in self.samples if one.name == f"proveout_{name}"}

    def value(self, name: str, **labels: str) -> float | None:
        return self.of(name).get(frozenset(labels.items()))


def test_a_running_iteration_has_metrics_with_units() -> None:
    found = Found(STARTED, ITERATION, tick(100.0, errors=2), tick(120.0, errors=3), TYPES, HOST, LAG)
    for name, labels, value in (
        ("load_transactions_per_second", WHERE, 120.0),
        ("load_response_seconds", WHERE | {"statistic": "p99"}, 0.002),
        ("load_errors_total", {"stage": "ladder"}, 5.0),
        ("window", {"stage": "ladder", "proveout_window": "measure"}, 1.0),
        ("window", {"stage": "ladder", "proveout_window": "ramp_up"}, 0.0),
        ("iteration_threads", {"stage": "ladder"}, 4.0),
        ("iteration_intended_transactions_per_second", {"stage": "ladder"}, 250.0),
        ("host_cpu_busy_ratio", {"host": "db1"}, 0.5),
        ("host_disk_read_bytes_per_second", {"host": "db1", "device": "sda"}, 7.0),
        ("host_pressure_io_ratio", {"host": "db1"}, 0.25),
        ("lag_seconds", {"host": "db1", "capture": "lag"}, 0.25),
        ("load_transaction_type_per_second", WHERE | {"transaction": "GET"}, 9.0),
        ("load_transaction_type_response_seconds", WHERE | {"transaction": "GET", "statistic": "p95"}, 0.0002),
    ):
        assert found.value(name, **labels) == pytest.approx(value), name


def test_a_second_without_answers_has_no_response_time() -> None:
    silent = dataclasses.replace(tick(0.0, errors=4), avg_us=None, p50_us=None, p99_us=None)
    found = Found(STARTED, ITERATION, tick(100.0), silent)
    assert found.value("load_transactions_per_second", **WHERE) == 0.0
    assert "load_response_seconds" not in found


def test_a_type_without_answers_in_a_window_has_no_response_time_of_the_one_before() -> None:
    line = dataclasses.replace(LINE, tps=0.0, ok=0, errors=3, p50_us=None, p95_us=None, p99_us=None)
    found = Found(STARTED, ITERATION, TYPES, dataclasses.replace(TYPES, transactions=(line,)))
    assert found.value("load_transaction_type_per_second", **WHERE, transaction="GET") == 0.0
    assert "load_transaction_type_response_seconds" not in found


def test_live_metrics_end_with_their_iteration_and_its_result_stays() -> None:
    found = Found(STARTED, ITERATION, tick(100.0), TYPES, LAG, finished())
    live = ("load_transactions_per_second", "load_response_seconds", "load_transaction_type_response_seconds")
    assert not [name for name in (*live, "window", "iteration_threads", "lag_seconds") if name in found]
    assert found.value("rung_transactions_per_second", **WHERE) == 1_234.0
    assert found.value("rung_response_seconds", **WHERE, statistic="p99") == pytest.approx(0.003)
    assert found.value("rung_response_seconds", **WHERE, statistic="p50") is None
    assert found.value("iterations_total", stage="ladder", outcome="valid") == 1.0
    for outcome, count in (("ok", 9.0), ("logical_failure", 2.0), ("error", 4.0)):
        assert found.value("transactions_total", stage="ladder", transaction="GET", outcome=outcome) == count


def test_only_valid_iterations_give_a_rung_its_numbers() -> None:
    void = e.IterationVoided(id=ID, reason="lost", rerun=True)
    found = Found(STARTED, finished(valid=False), void, void, finished(tps=None))
    for outcome, count in {"valid": 1.0, "invalid": 1.0, "void": 2.0}.items():
        assert found.value("iterations_total", stage="ladder", outcome=outcome) == count
    assert "rung_transactions_per_second" not in found


def test_stages_hosts_search_and_verdicts() -> None:
    agent = e.AgentLine(host="c2", offset_ns=1_000_000, uncertainty_ns=2_000, silent_s=0.5, connected=False)
    happened: list[e.Event] = [
        STARTED,
        UP,
        begun("load", "populate"),
        e.StageProgress(stage="load", host="c1", done=25.0, total=100.0, unit="rows"),
        begun("ladder", iterations=6),
        *SEARCHED,
        e.VerdictReached(id="fast", title="", severity="fail", outcome="FAIL", check="", evidence=""),
        e.AgentsTick(lease_s=10.0, beat_s=2.0, agents=(agent,)),
        IN_PLACE,
    ]
    found = Found(*happened)
    load, fast, even = {"stage": "load", "kind": "populate"}, {"verdict": "fast"}, {"verdict": "even"}
    fast, even = fast | {"severity": "fail"}, even | {"severity": "warn"}
    about = {"run": "r-1", "plan": "p", "digest": "d", "version": "1", "title": 'A "title", {with} \\'}
    fault = {"stage": "ladder", "fault": "crash", "host": "db1"}
    for name, labels, value in (
        ("run_info", about, 1.0),
        ("stage", load | {"proveout_stage": "running"}, 1.0),
        ("stage", load | {"proveout_stage": "waiting"}, 0.0),
        ("stage_progress_ratio", {"stage": "load", "host": "c1"}, 0.25),
        ("stage_iterations", {"stage": "ladder"}, 6.0),
        ("host_clock_offset_seconds", {"host": "c1"}, -0.002),
        ("host_up", {"host": "c2"}, 0.0),
        ("host_silence_seconds", {"host": "c2"}, 0.5),
        ("probe_accepted", {"stage": "cap"}, 0.0),
        ("search_transactions_per_second", {"stage": "cap"}, 450.0),
        ("notices_total", {"level": "warning"}, 1.0),
        ("verdict", fast | {"proveout_verdict": "FAIL"}, 1.0),
        ("verdict", fast | {"proveout_verdict": "PENDING"}, 0.0),
        ("verdict", even | {"proveout_verdict": "PENDING"}, 1.0),
        ("verdict_foreseen", even | {"proveout_verdict_foreseen": "PASS"}, 1.0),
        ("fault_in_place", fault, 1.0),
    ):
        assert found.value(name, **labels) == value, name
    assert Found(*happened, dataclasses.replace(IN_PLACE, step="healed")).value("fault_in_place", **fault) == 0.0


def test_a_resumed_run_keeps_its_counts() -> None:
    resumed = dataclasses.replace(STARTED, resumed=1)
    found = Found(STARTED, ended("load"), begun("ladder"), finished(), ITERATION, resumed)
    assert found.value("stage", stage="load", kind="populate", proveout_stage="ok") == 1.0
    assert found.value("stage", stage="ladder", kind="ladder", proveout_stage="waiting") == 1.0
    assert found.value("iterations_total", stage="ladder", outcome="valid") == 1.0
    assert "iteration_threads" not in found


def test_a_lost_host_has_no_readings() -> None:
    hosts = [e.HostTick(host=name, capture="host", readings={"cpu.busy_fraction": 0.5}) for name in ("c1", "b")]
    found = Found(UP, *hosts, e.AgentLost(host="c1", reason="gone"))
    assert found.value("host_up", host="c1") == 0.0
    assert found.of("host_cpu_busy_ratio") == {frozenset({("host", "b")}): 0.5}


def test_series_are_bounded_and_external_names_are_only_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "SERIES_MAX", 3)
    hostile = '"} 1\n# EOF\n\x1b[2J' + "x" * 500
    ticks = [e.HostTick(host=f"{n}{hostile}", capture="c", readings={"cpu.busy_fraction": 0.1}) for n in range(5)]
    found = Found(*ticks)
    assert found.text.endswith(b"\n# EOF\n")
    series = found.of("host_cpu_busy_ratio")
    assert len(series) == 3
    assert found.value("series_dropped_total") == 2.0
    assert all(len(label) <= exporter.LABEL_MAX for key in series for _, label in key)


# ---- requests ----------------------------------------------------------------------------------------------------


async def ask(
    place: exporter.Listening, request: bytes = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
) -> tuple[str, bytes]:
    """Send a request; return the head (lower case) and the body of the answer."""
    where = place.socket.getsockname()
    opening = asyncio.open_unix_connection(where) if isinstance(where, str) else asyncio.open_connection(*where[:2])
    reader, writer = await opening
    writer.write(request)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.decode().lower(), body


@pytest.fixture
async def place() -> AsyncIterator[exporter.Listening]:
    """A served endpoint of a run that has begun."""
    with exporter.bound("0") as found:
        assert found is not None
        async with exporter.serving(found, [e.Stamped(sequence=1, unix_s=1.0, event=STARTED)]) as instruments:
            instruments(e.Stamped(sequence=2, unix_s=2.0, event=tick(77.0)))
            yield found


async def test_a_scraper_gets_the_newest_text_over_tcp(place: exporter.Listening) -> None:
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/metrics", place.shown)
    head, body = await ask(place)
    assert head.startswith("http/1.1 200 ok\r\n")
    assert f"content-type: {exporter.CONTENT_TYPE}" in head
    assert f"content-length: {len(body)}" in head
    assert Found(text=body).value("load_transactions_per_second", **WHERE) == 77.0
    head, body = await ask(place, b"HEAD /metrics?x=1 HTTP/1.1\r\n\r\n")
    assert (head.split("\r\n")[0], body) == ("http/1.1 200 ok", b"")


@pytest.mark.parametrize(
    ("request_", "status"),
    [(b"GET / HTTP/1.1\r\n\r\n", "404"), (b"POST /metrics HTTP/1.1\r\n\r\n", "405"), (b"\x00\xff\r\n\r\n", "405")],
)
async def test_other_requests_are_refused(place: exporter.Listening, request_: bytes, status: str) -> None:
    head, _ = await ask(place, request_)
    assert head.split()[1] == status


async def test_idle_clients_and_too_long_requests_are_disconnected(
    place: exporter.Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporter, "PATIENCE_S", 0.1)
    for request in (b"GET /metr", b"x" * (exporter.REQUEST_BYTES_MAX * 3)):
        with contextlib.suppress(ConnectionError):  # a reset also disconnects
            assert await ask(place, request) == ("", b"")
    monkeypatch.setattr(exporter, "PATIENCE_S", 60.0)
    assert (await ask(place))[0].startswith("http/1.1 200")


async def test_connections_above_the_maximum_are_not_served(
    place: exporter.Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporter, "CONNECTIONS_MAX", 2)
    monkeypatch.setattr(exporter, "PATIENCE_S", 60.0)
    waiting = [await asyncio.open_connection(*place.socket.getsockname()) for _ in range(2)]
    await served(place, False)  # both have been accepted
    for _, writer in waiting:
        writer.close()
    await served(place, True)  # their end is detected


async def served(place: exporter.Listening, wanted: bool) -> None:
    """Wait until a further scraper is served, or is not."""
    found = not wanted
    async with asyncio.timeout(PATIENCE_S):
        while found is not wanted:
            found = False
            with contextlib.suppress(ConnectionError):
                found = bool((await ask(place))[1])


async def test_it_ends_with_the_run_despite_an_open_connection() -> None:
    with exporter.bound("0") as place:
        assert place is not None
        address = place.socket.getsockname()
        async with exporter.serving(place):
            _, writer = await asyncio.open_connection(*address)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(*address)
    writer.close()


async def test_requests_in_quick_succession_share_one_text(
    place: exporter.Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporter, "FRESH_S", 1_000.0)
    made: list[bytes] = []
    text = exporter.Board.text
    monkeypatch.setattr(exporter.Board, "text", lambda board: made.append(text(board)) or made[-1])  # type: ignore[func-returns-value]
    assert {(await ask(place))[1] for _ in range(5)} == set(made)
    assert len(made) == 1


async def test_a_unix_socket_has_mode_0600_and_is_removed_with_the_run(tmp_path: Path) -> None:
    path = tmp_path / "metrics.sock"
    with exporter.bound(str(path)) as place:
        assert place is not None
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        async with exporter.serving(place):
            assert (await ask(place))[1].endswith(b"# EOF\n")
        with pytest.raises(exporter.UnusableMetricsAddress, match="in use"), exporter.bound(str(path)):
            pass
        assert path.exists()
    assert not path.exists()
    with socket.socket(socket.AF_UNIX) as another, exporter.bound(str(path)):
        path.unlink()
        another.bind(str(path))
    assert path.exists(), "that of another run in its place"


def test_a_socket_of_a_dead_process_is_replaced_and_a_file_is_not(tmp_path: Path) -> None:
    dead, file = tmp_path / "dead.sock", tmp_path / "file"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(dead))
    with exporter.bound(str(dead)) as place:
        assert place is not None
    file.write_text("mine")
    with pytest.raises(exporter.UnusableMetricsAddress, match="cannot listen there"), exporter.bound(str(file)):
        pass
    assert file.read_text() == "mine"


def test_a_port_in_use_is_reported_before_the_run_begins() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        match = f"{address}.*in use"
        with pytest.raises(exporter.UnusableMetricsAddress, match=match) as refused, exporter.bound(address):
            pass
        assert refused.value.exit_code == 2


@pytest.mark.parametrize("address", ["", "1:2:3", "127.0.0.1:70000", "::1", "a..b:9464"])
def test_an_invalid_address_is_refused_with_the_valid_forms(address: str) -> None:
    with pytest.raises(exporter.UnusableMetricsAddress, match="Unix socket"), exporter.bound(address):
        pass


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [("9464", "127.0.0.1", 9464), (":9464", "127.0.0.1", 9464), ("[::1]:1", "::1", 1), ("0.0.0.0:0", "0.0.0.0", 0)],
)
def test_addresses(address: str, host: str, port: int) -> None:
    assert exporter.parse(address) == (host, port)


# ---- the dashboard of Grafana ------------------------------------------------------------------------------------

DASHBOARD = json.loads((Path(__file__).parents[3] / "docs" / "grafana" / "proveout-run.json").read_text())
QUERIES = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
QUERIES += [one["expr"] for one in DASHBOARD["annotations"]["list"]]


def everything() -> Found:
    """The text of a coordinator in the middle of a run in which everything happened once."""
    return Found(
        STARTED, UP, begun("ladder"), finished(), *SEARCHED, ITERATION, IN_PLACE, tick(9.0, 1), TYPES, HOST, LAG
    )


class Scraped(BaseHTTPRequestHandler):
    """The exporter's answer."""

    text = b""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", exporter.CONTENT_TYPE)
        self.end_headers()
        self.wfile.write(self.text)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@contextlib.contextmanager
def prometheus(folder: Path) -> Iterator[Callable[[str], list[Any]]]:
    """Yield a function that returns the series of a query of the dashboard, after two scrapes of the exporter."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("this host has no Prometheus (Debian: apt-get install prometheus)")
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Now", (Scraped,), {"text": everything().text}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    instance = f"127.0.0.1:{server.server_address[1]}"
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = int(listening.getsockname()[1])
    job = {"job_name": "proveout", "scrape_interval": "200ms", "static_configs": [{"targets": [instance]}]}
    (folder / "p.yml").write_text(json.dumps({"scrape_configs": [job]}))
    argv = [program, f"--config.file={folder / 'p.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
    running = subprocess.Popen(
        [*argv, f"--web.listen-address=127.0.0.1:{port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )

    def ask(query: str) -> list[Any]:
        filled = query.replace("$instance", instance).replace("$__rate_interval", "1m")
        url = f"http://127.0.0.1:{port}/api/v1/query?{urllib.parse.urlencode({'query': filled})}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return list(json.load(answer)["data"]["result"])

    def is_scraped() -> bool:
        assert running.poll() is None, "Prometheus has ended"
        with contextlib.suppress(OSError):
            return bool(ask('rate(proveout_load_errors_total{instance="$instance"}[1m])'))
        return False

    try:
        eventually(is_scraped, "two scrapes by Prometheus")
        yield ask
    finally:
        running.terminate()
        running.wait(timeout=30)
        server.shutdown()
        server.server_close()


@pytest.mark.server
@pytest.mark.soak  # Prometheus finds its targets after five seconds
def test_every_query_has_series_in_a_real_prometheus(tmp_path: Path) -> None:
    with prometheus(tmp_path) as ask:
        assert [query for query in QUERIES if not ask(query)] == []
        assert len(ask('proveout_run_info{instance="$instance"}')) == 1


def test_every_query_is_of_series_that_are_exported() -> None:
    samples = everything().samples
    assert len(QUERIES) > 25
    for query in QUERIES:
        selectors = re.findall(r"(proveout_\w+)\{(.*?)\}", query)
        assert selectors, query
        for name, matchers in selectors:
            wanted = set(re.findall(r'(\w+)="(.*?)"', matchers)) - {("instance", "$instance")}
            assert [one for one in samples if one.name == name and wanted <= set(one.labels.items())], query
    variable = next(one for one in DASHBOARD["templating"]["list"] if one["type"] == "query")
    assert variable["definition"] == "label_values(proveout_run_info, instance)"


def test_numbers_that_cannot_be_negative_have_axes_from_zero() -> None:
    for panel in DASHBOARD["panels"]:
        defaults = panel["fieldConfig"]["defaults"]
        if panel["type"] in ("timeseries", "bargauge"):
            is_log = defaults.get("custom", {}).get("scaleDistribution", {}).get("type") == "log"
            assert defaults.get("min") == (None if is_log else 0), panel["title"]
        if defaults.get("unit") == "percentunit":
            assert defaults["max"] == 1, panel["title"]
