"""The OpenMetrics endpoint: its text follows the specification, contains the values of the run, and ends with it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import re
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from eventually import PATIENCE_S
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from records import begun, ended, run_started, summary
from records import iteration as iteration_ended

from proveout.coordinator import exporter
from proveout.coordinator import exporter as board
from proveout.coordinator.exporter import Instruments
from proveout.proto import events as e

ID = e.IterationId(stage="ladder", rung=4, repeat=2, attempt=1)
PLAN = {
    "stages": [{"id": "load", "kind": "populate"}, {"id": "ladder", "kind": "ladder"}],
    "verdicts": [{"id": "fast", "severity": "fail"}, {"id": "even", "severity": "warn"}],
}
LINE = e.LoadLine(name="GET", tps=9.0, ok=9, logical_failures=0, errors=0, p50_us=100.0, p95_us=200.0, p99_us=300.0)
TYPES = e.TransactionsTick(id=ID, window="measure", seconds=1.0, transactions=(LINE,))
Parsed = dict[str, dict[frozenset[tuple[str, str]], float]]


def started(resumed: int = 0) -> e.RunStarted:
    return run_started(PLAN, "r-1", title='A "title", {with} \\', resumed=resumed)


def tick(tps: float, errors: int = 0) -> e.LoadTick:
    return e.LoadTick(
        id=ID, second=3, window="measure", tps=tps, avg_us=500.0, p50_us=400.0, p99_us=2_000.0, errors=errors
    )


def iteration() -> e.IterationStarted:
    return e.IterationStarted(id=ID, rate=250.0, starts_in_s=1.0, ramp_up_s=1.0, measure_s=5.0, ramp_down_s=1.0)


def finished(valid: bool = True, tps: float | None = 1_234.0) -> e.IterationFinished:
    metrics = {"tps": tps, "response": {"avg_us": 700.0, "p99_us": 3_000.0}}
    one = summary("GET", ok=9, logical_failures=2, errors={"deadlock": 1, "lost": 3}, tps=11.0)
    return iteration_ended("ladder", 4, 2, metrics, valid=valid, transactions=(one,))


def instruments_of(*events: e.Event) -> Instruments:
    made = Instruments()
    for number, event in enumerate(events, 1):
        made(e.Stamped(sequence=number, unix_s=1_000.0 + number, event=event))
    return made


def parsed(text: bytes) -> Parsed:
    found: Parsed = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
    return found


def value(found: Parsed, name: str, **labels: str) -> float | None:
    return found.get(name, {}).get(frozenset(labels.items()))


def test_a_running_iteration_has_metrics_with_units() -> None:
    host = e.HostTick(
        host="db1",
        capture="host",
        readings={
            "cpu.busy_fraction": 0.5,
            "disk.read_bytes_per_s[sda]": 7.0,
            "pressure.io_us_per_s": 250_000.0,
            "x": 1.0,
        },
    )
    lag = e.HostTick(host="db1", capture="lag", readings={"lag.seconds": 0.25, "lag.bytes": 8192.0})
    found = parsed(
        instruments_of(
            started(), iteration(), tick(100.0, errors=2), tick(120.0, errors=3), TYPES, host, lag
        ).board.text()
    )
    where = {"stage": "ladder", "rung": "4"}
    assert value(found, "proveout_load_transactions_per_second", **where) == 120.0
    assert value(found, "proveout_load_response_seconds", **where, statistic="p99") == pytest.approx(0.002)
    assert value(found, "proveout_load_errors_total", stage="ladder") == 5.0
    assert value(found, "proveout_window", stage="ladder", proveout_window="measure") == 1.0
    assert value(found, "proveout_window", stage="ladder", proveout_window="ramp_up") == 0.0
    assert value(found, "proveout_iteration_threads", stage="ladder") == 4.0
    assert value(found, "proveout_iteration_intended_transactions_per_second", stage="ladder") == 250.0
    assert value(found, "proveout_host_cpu_busy_ratio", host="db1") == 0.5
    assert value(found, "proveout_host_disk_read_bytes_per_second", host="db1", device="sda") == 7.0
    assert value(found, "proveout_host_pressure_io_ratio", host="db1") == pytest.approx(0.25)
    assert value(found, "proveout_lag_seconds", host="db1", capture="lag") == 0.25
    assert value(found, "proveout_load_transaction_type_per_second", **where, transaction="GET") == 9.0
    response = {**where, "transaction": "GET", "statistic": "p95"}
    assert value(found, "proveout_load_transaction_type_response_seconds", **response) == pytest.approx(0.0002)


def test_a_second_without_answers_has_no_response_time() -> None:
    silent = dataclasses.replace(tick(0.0, errors=4), avg_us=None, p50_us=None, p99_us=None)
    found = parsed(instruments_of(started(), iteration(), tick(100.0), silent).board.text())
    assert value(found, "proveout_load_transactions_per_second", stage="ladder", rung="4") == 0.0
    assert "proveout_load_response_seconds" not in found


def test_live_metrics_end_with_their_iteration_and_its_result_stays() -> None:
    made = instruments_of(
        started(), iteration(), tick(100.0), TYPES, e.HostTick(host="h", capture="c", readings={"lag.seconds": 1.0})
    )
    made(e.Stamped(sequence=9, unix_s=2.0, event=finished()))
    found = parsed(made.board.text())
    live = ("load_transactions_per_second", "load_response_seconds", "load_transaction_type_response_seconds")
    for gone in (*live, "window", "iteration_threads", "lag_seconds"):
        assert f"proveout_{gone}" not in found
    where = {"stage": "ladder", "rung": "4"}
    assert value(found, "proveout_rung_transactions_per_second", **where) == 1_234.0
    assert value(found, "proveout_rung_response_seconds", **where, statistic="p99") == pytest.approx(0.003)
    assert value(found, "proveout_rung_response_seconds", **where, statistic="p50") is None
    assert value(found, "proveout_iterations_total", stage="ladder", outcome="valid") == 1.0
    for outcome, count in (("ok", 9.0), ("logical_failure", 2.0), ("error", 4.0)):
        assert value(found, "proveout_transactions_total", stage="ladder", transaction="GET", outcome=outcome) == count


def test_only_valid_iterations_give_a_rung_its_numbers() -> None:
    void = e.IterationVoided(id=ID, reason="lost", rerun=True)
    found = parsed(instruments_of(started(), finished(valid=False), void, void, finished(tps=None)).board.text())
    outcomes = {"valid": 1.0, "invalid": 1.0, "void": 2.0}
    for outcome, count in outcomes.items():
        assert value(found, "proveout_iterations_total", stage="ladder", outcome=outcome) == count
    assert "proveout_rung_transactions_per_second" not in found


def test_stages_hosts_search_and_verdicts() -> None:
    up = e.AgentUp(host="c1", agent_version="1", machine_id="m", cores=8, offset_ns=-2_000_000, uncertainty_ns=500_000)
    agent = e.AgentLine(host="c2", offset_ns=1_000_000, uncertainty_ns=2_000, silent_s=0.5, connected=False)
    happened: list[e.Event] = [
        started(),
        up,
        begun("load", "populate"),
        e.StageProgress(stage="load", host="c1", done=25.0, total=100.0, unit="rows"),
        begun("ladder", iterations=6),
        e.ProbeFinished(stage="cap", probe=1, phase="bracket", rate=500.0, accepted=False, evidence=""),
        e.SearchFinished(stage="cap", rate=450.0, probes=1, reason=""),
        e.Notice(level="warning", host="", text="x"),
        e.VerdictForeseen(id="even", title="", severity="warn", outcome="PASS", evidence=""),
        e.VerdictReached(id="fast", title="", severity="fail", outcome="FAIL", check="", evidence=""),
        e.AgentsTick(lease_s=10.0, beat_s=2.0, agents=(agent,)),
        e.FaultSeen(id=ID, host="db1", fault="crash", number=1, step="in_place", at_s=1.0),
    ]
    made = instruments_of(*happened)
    found = parsed(made.board.text())
    assert value(found, "proveout_run_info", run="r-1", plan="p", digest="d", version="1", title='A "title", {with} \\')
    assert value(found, "proveout_stage", stage="load", kind="populate", proveout_stage="running") == 1.0
    assert value(found, "proveout_stage", stage="load", kind="populate", proveout_stage="waiting") == 0.0
    assert value(found, "proveout_stage_progress_ratio", stage="load", host="c1") == 0.25
    assert value(found, "proveout_stage_iterations", stage="ladder") == 6.0
    assert value(found, "proveout_host_clock_offset_seconds", host="c1") == -0.002
    assert value(found, "proveout_host_up", host="c2") == 0.0
    assert value(found, "proveout_host_silence_seconds", host="c2") == 0.5
    assert value(found, "proveout_probe_accepted", stage="cap") == 0.0
    assert value(found, "proveout_search_transactions_per_second", stage="cap") == 450.0
    assert value(found, "proveout_notices_total", level="warning") == 1.0
    assert value(found, "proveout_verdict", verdict="fast", severity="fail", proveout_verdict="FAIL") == 1.0
    assert value(found, "proveout_verdict", verdict="fast", severity="fail", proveout_verdict="PENDING") == 0.0
    even = {"verdict": "even", "severity": "warn"}
    assert value(found, "proveout_verdict", **even, proveout_verdict="PENDING") == 1.0
    assert value(found, "proveout_verdict_foreseen", **even, proveout_verdict_foreseen="PASS") == 1.0
    where = {"stage": "ladder", "fault": "crash", "host": "db1"}
    assert value(found, "proveout_fault_in_place", **where) == 1.0
    healed = e.FaultSeen(id=ID, host="db1", fault="crash", number=1, step="healed", at_s=1.0)
    made(e.Stamped(sequence=99, unix_s=2.0, event=healed))
    assert value(parsed(made.board.text()), "proveout_fault_in_place", **where) == 0.0


def test_a_resumed_run_keeps_its_counts() -> None:
    happened = (started(), ended("load"), begun("ladder"), finished(), iteration(), started(resumed=1))
    found = parsed(instruments_of(*happened).board.text())
    assert value(found, "proveout_stage", stage="load", kind="populate", proveout_stage="ok") == 1.0
    assert value(found, "proveout_stage", stage="ladder", kind="ladder", proveout_stage="waiting") == 1.0
    assert value(found, "proveout_iterations_total", stage="ladder", outcome="valid") == 1.0
    assert "proveout_iteration_threads" not in found


def test_a_lost_host_has_no_readings() -> None:
    up = e.AgentUp(host="a", agent_version="1", machine_id="m", cores=8, offset_ns=0, uncertainty_ns=1)
    reading = {"cpu.busy_fraction": 0.5}
    hosts = [e.HostTick(host=name, capture="host", readings=reading) for name in ("a", "b")]
    found = parsed(instruments_of(up, *hosts, e.AgentLost(host="a", reason="gone")).board.text())
    assert value(found, "proveout_host_up", host="a") == 0.0
    assert found["proveout_host_cpu_busy_ratio"] == {frozenset({("host", "b")}): 0.5}


def test_series_are_bounded_and_external_names_are_only_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board, "SERIES_MAX", 3)
    hostile = '"} 1\n# EOF\n\x1b[2J' + "x" * 500
    ticks = [e.HostTick(host=f"{n}{hostile}", capture="c", readings={"cpu.busy_fraction": 0.1}) for n in range(5)]
    text = instruments_of(*ticks).board.text()
    found = parsed(text)
    assert text.endswith(b"\n# EOF\n")
    assert len(found["proveout_host_cpu_busy_ratio"]) == 3
    assert value(found, "proveout_series_dropped_total") == 2.0
    assert all(len(label) <= board.LABEL_MAX for key in found["proveout_host_cpu_busy_ratio"] for _, label in key)


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
        async with exporter.serving(found, [e.Stamped(sequence=1, unix_s=1.0, event=started())]) as instruments:
            instruments(e.Stamped(sequence=2, unix_s=2.0, event=tick(77.0)))
            yield found


async def test_a_scraper_gets_the_newest_text_over_tcp(place: exporter.Listening) -> None:
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/metrics", place.shown)
    head, body = await ask(place)
    assert head.startswith("http/1.1 200 ok\r\n")
    assert f"content-type: {board.CONTENT_TYPE}" in head
    assert f"content-length: {len(body)}" in head
    assert value(parsed(body), "proveout_load_transactions_per_second", stage="ladder", rung="4") == 77.0
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
    text = board.Board.text

    def counted(self: board.Board) -> bytes:
        made.append(text(self))
        return made[-1]

    monkeypatch.setattr(board.Board, "text", counted)
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
        with (
            pytest.raises(exporter.UnusableMetricsAddress, match=f"{address}.*in use") as refused,
            exporter.bound(address),
        ):
            pass
        assert refused.value.exit_code == 2


@pytest.mark.parametrize("address", ["", "1:2:3", "127.0.0.1:70000", "::1"])
def test_an_invalid_address_is_refused_with_the_valid_forms(address: str) -> None:
    with pytest.raises(exporter.UnusableMetricsAddress, match="Unix socket"), exporter.bound(address):
        pass


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [("9464", "127.0.0.1", 9464), (":9464", "127.0.0.1", 9464), ("[::1]:1", "::1", 1), ("0.0.0.0:0", "0.0.0.0", 0)],
)
def test_addresses(address: str, host: str, port: int) -> None:
    assert exporter.parse(address) == (host, port)
