"""`proveout watch --web`: the page, its websocket and the report need the token; the screen is drawn in a browser."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import recorded_runs
from aiohttp import ClientSession, ClientWebSocketResponse, WSServerHandshakeError
from aiohttp.test_utils import TestServer

from proveout.cli.common.web_screen import WebScreen, is_loopback
from proveout.coordinator.storage.run_directory import RunDirectory

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


async def _called(page: ClientWebSocketResponse, number: int, method: str, **parameters: Any) -> Any:
    """The result of a call of the browser's DevTools protocol."""
    await page.send_json({"id": number, "method": method, "params": parameters})
    while (answer := await page.receive_json()).get("id") != number:
        pass
    return answer["result"]


async def _page(browser: asyncio.subprocess.Process, client: ClientSession) -> str:
    """The address of the DevTools of the browser's page."""
    assert browser.stderr is not None
    while not (found := re.search(rb"ws://([^/]+)/", await browser.stderr.readline())):
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
    browser = await asyncio.create_subprocess_exec(
        str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}",
        "--window-size=1200,800", "--remote-debugging-port=0", str(started.make_url(f"/{screen.token}/")),
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with (
            asyncio.timeout(90),
            ClientSession() as client,
            client.ws_connect(await _page(browser, client), max_msg_size=0) as page,
        ):
            state = "`${document.title} ${document.body.className}`"
            for number in range(1, 1000):
                found = await _called(page, number, "Runtime.evaluate", expression=state)
                if "-first-byte" in str(found["result"].get("value")):
                    break
                await asyncio.sleep(0.1)
            assert finished.name in found["result"]["value"]
            size = 0
            while size < 20_000:  # a blank page has a few thousand bytes
                shot = await _called(page, 2000, "Page.captureScreenshot")
                size = len(base64.b64decode(shot["data"]))
    finally:
        browser.kill()
        await browser.wait()


@pytest.mark.parametrize(
    ("host", "is_local"), [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False)]
)
def test_loopback(host: str, is_local: bool) -> None:
    assert is_loopback(host) is is_local
