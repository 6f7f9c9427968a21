"""Every query of the shipped Grafana dashboard, run by a real Prometheus that scrapes the exporter's own text; and its
bounds, mappings and annotations."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from eventually import eventually
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from records import begun, iteration, run_started

from proveout.coordinator.exporter import CONTENT_TYPE, Instruments
from proveout.proto import events as e

DASHBOARD = json.loads((Path(__file__).parents[3] / "docs" / "grafana" / "proveout-run.json").read_text())
ID = e.IterationId(stage="ladder", rung=4, repeat=2, attempt=1)
PLAN = {
    "stages": [{"id": "ladder", "kind": "ladder"}, {"id": "cap", "kind": "search"}],
    "verdicts": [{"id": "fast", "severity": "fail"}],
}
READINGS = {
    "cpu.busy_fraction": 0.5, "memory.used_bytes": 1e9, "memory.total_bytes": 2e9, "disk.read_bytes_per_s[vda]": 1.0,
    "disk.write_bytes_per_s[vda]": 2.0, "network.received_bytes_per_s[eth0]": 3.0, "network.sent_bytes_per_s[eth0]": 4.0,
}  # fmt: skip


def exported() -> bytes:
    """The text of a coordinator in the middle of a run in which everything happened once."""
    line = e.LoadLine(name="GET", tps=9.0, ok=9, logical_failures=0, errors=0, p50_us=1.0, p95_us=2.0, p99_us=3.0)
    rung = {"tps": 100.0, "response": {"avg_us": 700.0, "p99_us": 3_000.0}}
    happened: list[e.Event] = [
        run_started(PLAN),
        e.AgentUp(host="db1", agent_version="1", machine_id="m", cores=2, offset_ns=0, uncertainty_ns=1),
        begun("ladder"),
        iteration("ladder", 4, 2, rung),
        e.ProbeFinished(stage="cap", probe=1, phase="bracket", rate=50.0, accepted=True, evidence=""),
        e.SearchFinished(stage="cap", rate=50.0, probes=1, reason=""),
        e.VerdictForeseen(id="fast", title="", severity="fail", outcome="PASS", evidence=""),
        e.Notice(level="warning", host="", text="x"),
        e.IterationStarted(id=ID, rate=250.0, starts_in_s=1.0, ramp_up_s=1.0, measure_s=5.0, ramp_down_s=1.0),
        e.FaultSeen(id=ID, host="db1", fault="crash", number=1, step="in_place", at_s=1.0),
        e.LoadTick(id=ID, second=3, window="measure", tps=99.0, avg_us=5.0, p50_us=4.0, p99_us=9.0, errors=1),
        e.TransactionsTick(id=ID, window="measure", seconds=1.0, transactions=(line,)),
        e.HostTick(host="db1", capture="host", readings=READINGS),
        e.HostTick(host="db1", capture="lag", readings={"lag.seconds": 0.25, "lag.bytes": 8192.0}),
    ]
    instruments = Instruments()
    for number, event in enumerate(happened, 1):
        instruments(e.Stamped(sequence=number, unix_s=time.time(), event=event))
    return instruments.board.text()


class Scraped(BaseHTTPRequestHandler):
    """The exporter's answer."""

    text = b""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE)
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
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Now", (Scraped,), {"text": exported()}))
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


QUERIES = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
QUERIES += [one["expr"] for one in DASHBOARD["annotations"]["list"]]


@pytest.mark.server
@pytest.mark.soak  # Prometheus finds its targets after five seconds
def test_every_query_has_series_in_a_real_prometheus(tmp_path: Path) -> None:
    with prometheus(tmp_path) as ask:
        assert [query for query in QUERIES if not ask(query)] == []
        assert len(ask('proveout_run_info{instance="$instance"}')) == 1


def test_every_query_is_of_series_that_are_exported() -> None:
    samples = [one for family in text_string_to_metric_families(exported().decode()) for one in family.samples]
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
