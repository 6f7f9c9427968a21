"""`proveout watch --web`: the page, its websocket and the report need the token; a browser draws the screen, follows a
run to its result, and cannot stop it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import recorded_runs
from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType, WSServerHandshakeError
from aiohttp.test_utils import TestServer
from eventually import PATIENCE_S, eventually, eventually_async

from proveout.cli.web_screen import WebScreen, is_loopback
from proveout.coordinator.live import event_feed
from proveout.coordinator.storage.journal import Journal
from proveout.coordinator.storage.run_directory import RunDirectory
from proveout.proto import events as e

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture
def finished(tmp_path: Path) -> RunDirectory:
    name = recorded_runs.record(tmp_path, {1: (990.0, 1000.0, 1010.0), 4: (3900.0, 4000.0, 4100.0)})
    return RunDirectory(tmp_path / name)


@pytest.fixture
async def server(finished: RunDirectory) -> AsyncIterator[tuple[WebScreen, TestServer]]:
    screen = WebScreen(finished, 10.0)
    async with TestServer(screen.application(), host="127.0.0.1") as started:
        yield screen, started


async def test_without_the_token_and_from_another_origin_everything_is_refused(
    server: tuple[WebScreen, TestServer],
) -> None:
    screen, started = server
    wrong = "x" * len(screen.token)
    async with ClientSession() as client:
        for path in ("/", "/ws", f"/{wrong}/", f"/{wrong}/ws", f"/{wrong}/report.html", "/static/js/textual.js", "/é/"):
            async with client.get(started.make_url(path)) as answer:
                assert answer.status == 403, path
                assert screen.token not in await answer.text()
        with pytest.raises(WSServerHandshakeError, match="403"):
            await client.ws_connect(started.make_url(f"/{wrong}/ws"))
    async with ClientSession(headers={"Origin": "http://elsewhere.example"}) as client:
        with pytest.raises(WSServerHandshakeError, match="403"):
            await client.ws_connect(started.make_url(f"/{screen.token}/ws"))


async def test_the_page_loads_nothing_from_elsewhere(server: tuple[WebScreen, TestServer]) -> None:
    screen, started = server
    async with ClientSession() as client:
        async with client.get(started.make_url(f"/{screen.token}/")) as answer:
            text = await answer.text()
            assert answer.headers["Referrer-Policy"] == "no-referrer"
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert not re.findall(r"https?://(?!127)", text)
        for path in re.findall(r"(?:src|href)=\"(static[^\"]+)\"", text):
            async with client.get(started.make_url(f"/{screen.token}/{path}")) as answer:
                assert answer.status == 200
        async with client.get(started.make_url(f"/{screen.token}/report.html")) as answer:
            assert answer.status == 404  # the recorded run has none


def _tick(tps: float, second: int) -> e.LoadTick:
    going = e.IterationId(stage="ladder", rung=4, repeat=2, attempt=1)
    return e.LoadTick(id=going, second=second, window="measure", tps=tps, avg_us=310.0, p50_us=240.0, p99_us=2150.0,
                      errors=0)  # fmt: skip


@pytest.mark.server
async def test_a_page_follows_a_run_that_it_cannot_stop_to_its_result(tmp_path: Path) -> None:
    """The journal is held and the feed is served, as a coordinator does."""
    rungs = {1: (990.0, 1000.0, 1010.0), 4: (3900.0,)}
    directory = RunDirectory(tmp_path / recorded_runs.record(tmp_path, rungs, ended=False))
    interrupts: asyncio.Queue[None] = asyncio.Queue()
    screen = WebScreen(directory, 10.0)
    with Journal(directory.path, clock=time.time) as journal:
        async with (
            event_feed.serving(directory.path, interrupts) as feed,
            TestServer(screen.application(), host="127.0.0.1") as started,
        ):

            def happens(event: e.Event) -> None:
                feed(journal.append(event))

            def ticks(tps: float, second: int) -> None:
                stamped = journal.append(e.Notice(level="info", host="", text=f"second {second}"))
                feed(stamped)
                feed(replace(stamped, event=_tick(tps, second)))

            happens(
                e.IterationStarted(
                    id=_tick(0.0, 0).id, rate=None, starts_in_s=0.0, ramp_up_s=0.0, measure_s=600.0, ramp_down_s=0.0
                )
            )
            ticks(4321.0, 1)
            async with page(screen, started) as websocket:
                for nonsense in ('["nonsense", {"x": 1}]', "{", r'["stdin", "\ud800"]'):
                    await websocket.send_str(nonsense)
                await shows(websocket, "TPS 4,321")
                ticks(5678.0, 2)
                await shows(websocket, "TPS 5,678")
                await websocket.send_str(json.dumps(["stdin", "qs"]))  # in a terminal: the dialog, and stop the run
                async for _ in websocket:
                    pass
            await eventually_async(lambda: screen._sessions == 0, "the session ends")
            async with page(screen, started) as websocket:
                await shows(websocket, "TPS 5,678")
                assert interrupts.empty()
                happens(recorded_runs.iteration(4, 2, 4000.0))
                happens(e.RunFinished(status="finished", exit_code=0, reason="", seconds=1.0))
                await shows(websocket, "finished in 1 s")
    assert interrupts.empty()


@pytest.mark.server
def test_the_process_of_a_browser_ends_with_a_server_that_is_killed(finished: RunDirectory) -> None:
    words = [sys.executable, "-m", "proveout", "watch", str(finished.path), "--served"]
    code = f"import subprocess; subprocess.Popen({words}, stdin=subprocess.PIPE).wait()"
    environment = {**os.environ, "TEXTUAL_DRIVER": "textual.drivers.web_driver:WebDriver"}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment) as server:
        assert server.stdout is not None
        assert server.stdout.read(12) == b"__GANGLION__", "it draws"
        (child,) = psutil.Process(server.pid).children()
        server.kill()
        eventually(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, "the process ends")


@asynccontextmanager
async def page(screen: WebScreen, started: TestServer) -> AsyncIterator[ClientWebSocketResponse]:
    url = started.make_url(f"/{screen.token}/ws").with_query(width="120", height="40")
    async with ClientSession() as client, asyncio.timeout(PATIENCE_S), client.ws_connect(url) as websocket:
        yield websocket


async def shows(websocket: ClientWebSocketResponse, text: str) -> None:
    """Wait until the screen has had this text."""
    seen = b""
    while text.encode() not in seen:
        message = await websocket.receive()
        assert message.type not in (WSMsgType.CLOSE, WSMsgType.CLOSED), seen[-2000:]
        seen += message.data if isinstance(message.data, bytes) else b""


async def called(socket: ClientWebSocketResponse, method: str, **parameters: Any) -> Any:
    """The result of a call to the browser."""
    await socket.send_json({"id": 1, "method": method, "params": parameters})
    while (answer := await socket.receive_json()).get("id") != 1:
        pass
    return answer["result"]


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
@pytest.mark.soak
async def test_a_browser_draws_the_run(server: tuple[WebScreen, TestServer], tmp_path: Path) -> None:
    """The page's own scripts, under its security policy: by the browser's DevTools protocol."""
    screen, started = server
    argv = (
        str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
        "--remote-debugging-port=0", "about:blank",
    )  # fmt: skip
    process = await asyncio.create_subprocess_exec(*argv, stderr=asyncio.subprocess.PIPE)
    try:
        async with asyncio.timeout(PATIENCE_S), ClientSession() as client:
            assert process.stderr is not None
            while not (found := re.search(rb"ws://([^/]+)/", await process.stderr.readline())):
                pass
            pages: list[str] = []
            while not pages:  # it comes a little after the protocol
                async with client.get(f"http://{found[1].decode()}/json") as answer:
                    listed = await answer.json(content_type=None)
                pages = [one["webSocketDebuggerUrl"] for one in listed if one["type"] == "page"]
            async with client.ws_connect(pages[0]) as socket:
                address = str(started.make_url(f"/{screen.token}/"))
                await called(socket, "Page.navigate", url=address)
                has_drawn = "document.body.className.includes('-first-byte')"
                waited = f"new Promise(done => setInterval(() => {has_drawn} && done(true), 50))"
                result = await called(socket, "Runtime.evaluate", expression=waited, awaitPromise=True)
                assert result["result"] == {"type": "boolean", "value": True}
    finally:
        process.kill()
        await process.wait()


@pytest.mark.parametrize(
    ("host", "is_local"), [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False)]
)
def test_loopback(host: str, is_local: bool) -> None:
    assert is_loopback(host) is is_local
