"""`proveout watch --web`: the page, its websocket and the report need the token; a browser draws the screen, follows a
run to its result, and cannot stop it."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import recorded_runs
from aiohttp import ClientSession, ClientWebSocketResponse, WSServerHandshakeError
from aiohttp.test_utils import TestServer

from proveout.cli.common.web_screen import WebScreen, is_loopback
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


async def test_without_the_token_everything_is_refused(server: tuple[WebScreen, TestServer]) -> None:
    screen, started = server
    wrong = "x" * len(screen.token)
    async with ClientSession() as client:
        for path in ("/", "/ws", f"/{wrong}/", f"/{wrong}/ws", f"/{wrong}/report.html", "/static/js/textual.js", "/é/"):
            async with client.get(started.make_url(path)) as answer:
                assert answer.status == 403, path
                assert screen.token not in await answer.text()
        with pytest.raises(WSServerHandshakeError, match="403"):
            await client.ws_connect(started.make_url(f"/{wrong}/ws"))


async def test_a_page_of_another_origin_gets_no_websocket(server: tuple[WebScreen, TestServer]) -> None:
    screen, started = server
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


async def test_the_websocket_shows_the_run_and_q_only_closes_it(server: tuple[WebScreen, TestServer]) -> None:
    screen, started = server
    seen = b""
    async with ClientSession() as client, asyncio.timeout(60):
        url = started.make_url(f"/{screen.token}/ws").with_query(width="120", height="40")
        async with client.ws_connect(url) as websocket:
            await websocket.send_str(json.dumps(["nonsense", {"x": 1}]))
            while b"smoke" not in seen:
                message = await websocket.receive()
                seen += message.data if isinstance(message.data, bytes) else b""
            await websocket.send_str(json.dumps(["stdin", "q"]))
            async for _ in websocket:
                pass
    assert screen._sessions == 0


class Page:
    """A page in a browser without a window, by the browser's DevTools protocol. `received`: the bytes of its
    websockets, which are the screen."""

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        self._socket, self._number = socket, 0
        self.received = b""

    async def call(self, method: str, **parameters: Any) -> Any:
        """The result of a call."""
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": parameters})
        while (answer := await self._next()).get("id") != self._number:
            pass
        return answer["result"]

    async def _next(self) -> dict[str, Any]:
        message: dict[str, Any] = await self._socket.receive_json()
        if message.get("method") == "Network.webSocketFrameReceived":
            frame = message["params"]["response"]
            self.received += base64.b64decode(frame["payloadData"]) if frame["opcode"] == 2 else b""
        return message

    async def shows(self, text: str) -> None:
        """Wait until the screen has had this text, and forget what it has had."""
        while text.encode() not in self.received:
            await self._next()
        self.received = b""

    async def is_true(self, expression: str) -> None:
        """Wait until an expression of the page is true."""
        asked = f"new Promise(done => setInterval(() => {expression} && done(true), 50))"
        await self.call("Runtime.evaluate", expression=asked, awaitPromise=True)

    async def write(self, text: str) -> None:
        """Click on the page, and write."""
        for kind in ("mousePressed", "mouseReleased"):
            place = {"x": 900, "y": 600, "button": "left", "clickCount": 1}
            await self.call("Input.dispatchMouseEvent", type=kind, **place)
        await self.call("Input.insertText", text=text)

    async def picture(self) -> bytes:
        """The picture of the page, PNG."""
        return base64.b64decode((await self.call("Page.captureScreenshot"))["data"])


@asynccontextmanager
async def browser(folder: Path) -> AsyncIterator[Page]:
    """An empty page, for 90 s at most."""
    process = await asyncio.create_subprocess_exec(
        str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}",
        "--window-size=1200,800", "--remote-debugging-port=0", "about:blank", stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with (
            asyncio.timeout(90),
            ClientSession() as client,
            client.ws_connect(await _address(process, client), max_msg_size=0) as socket,
        ):
            page = Page(socket)
            await page.call("Network.enable")
            yield page
    finally:
        process.kill()
        await process.wait()


async def _address(process: asyncio.subprocess.Process, client: ClientSession) -> str:
    """The address of the DevTools of the browser's page."""
    assert process.stderr is not None
    while not (found := re.search(rb"ws://([^/]+)/", await process.stderr.readline())):
        pass
    while True:
        async with client.get(f"http://{found[1].decode()}/json") as answer:
            pages = [one for one in await answer.json(content_type=None) if one["type"] == "page"]
        if pages:
            return str(pages[0]["webSocketDebuggerUrl"])
        await asyncio.sleep(0.1)


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
@pytest.mark.slow
async def test_a_browser_draws_the_run(
    server: tuple[WebScreen, TestServer], finished: RunDirectory, tmp_path: Path
) -> None:
    screen, started = server
    async with browser(tmp_path) as page:
        await page.call("Page.navigate", url=str(started.make_url(f"/{screen.token}/")))
        await page.is_true("document.body.className.includes('-first-byte')")
        assert finished.name in (await page.call("Runtime.evaluate", expression="document.title"))["result"]["value"]
        while len(await page.picture()) < 20_000:  # a blank page has a few thousand bytes
            pass


def _tick(tps: float, second: int) -> e.LoadTick:
    going = e.IterationId(stage="ladder", rung=4, repeat=2, attempt=1)
    return e.LoadTick(id=going, second=second, window="measure", tps=tps, avg_us=310.0, p50_us=240.0, p99_us=2150.0,
                      errors=0)  # fmt: skip


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
@pytest.mark.slow
async def test_a_browser_follows_a_run_that_it_cannot_stop_to_its_result(tmp_path: Path) -> None:
    """The journal is held and the feed is served, as a coordinator does."""
    rungs = {1: (990.0, 1000.0, 1010.0), 4: (3900.0,)}
    directory = RunDirectory(tmp_path / recorded_runs.record(tmp_path, rungs, ended=False))
    interrupts: asyncio.Queue[None] = asyncio.Queue()
    screen = WebScreen(directory, 10.0)
    with Journal(directory.path, clock=time.time) as journal:
        async with (
            event_feed.serving(directory.path, interrupts) as feed,
            TestServer(screen.application(), host="127.0.0.1") as started,
            browser(tmp_path) as page,
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
            await page.call("Page.navigate", url=str(started.make_url(f"/{screen.token}/")))
            await page.shows("TPS 4,321")
            ticks(5678.0, 2)
            await page.shows("TPS 5,678")

            await page.write("q")  # in a terminal "q" opens a dialog, where "s" stops the run
            await page.write("s")
            await page.is_true("document.body.className.includes('-closed')")
            await page.call("Page.reload")
            await page.shows("TPS 5,678")
            assert interrupts.empty()

            happens(recorded_runs.iteration(4, 2, 4000.0))
            happens(e.RunFinished(status="finished", exit_code=0, reason="", seconds=1.0))
            await page.shows("finished in 1 s")
    assert interrupts.empty()


@pytest.mark.parametrize(
    ("host", "is_local"), [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False)]
)
def test_loopback(host: str, is_local: bool) -> None:
    assert is_loopback(host) is is_local
