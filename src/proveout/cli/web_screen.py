"""Serve the screen of a run to browsers, read-only.

Data flow: a page with a terminal (of textual-serve) -> a websocket -> one child process per browser, `watch --served`,
which draws with Textual's web driver. There is no shell in between, and nothing in the screen stops or changes the run.

Every address is below a secret token, which is new for each server and printed with the address: without it the
page, the websocket and the report are refused. A websocket from a page of another origin is refused too.
"""

from __future__ import annotations

import asyncio
import hmac
import html
import ipaddress
import secrets
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

from aiohttp import WSMsgType, web
from textual_serve.app_service import AppService
from textual_serve.download_manager import DownloadManager

from proveout.cli.options import Unusable
from proveout.cli.screen_services import report_path
from proveout.coordinator.storage.run_directory import RunDirectory
from proveout.core import child_process

SESSIONS_MAX = 8
"""Browsers at the same time: each has a process."""
CELLS_MAX = 500
END_S = 5.0
"""Seconds that the process of a browser has to end."""
MESSAGE_BYTES_MAX = 64 * 1024
REPORT = "report.html"

PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<link rel="stylesheet" href="static/css/xterm.css"><script src="static/js/textual.js"></script>
<style>
@font-face {{
  font-family: "Roboto Mono"; src: url("static/fonts/RobotoMono-VariableFont_wght.ttf"); font-weight: 100 700;
}}
html, body {{ margin: 0; height: 100%; background: #121212; color: #e0e0e0; font-family: "Roboto Mono", monospace; }}
.textual-terminal {{ width: 100vw; height: 100vh; }}
.closed {{ display: none; position: absolute; inset: 0; background: #121212; padding: 3rem; z-index: 9; }}
body.-closed .closed {{ display: block; }}
a {{ color: #7cc4ff; }}
</style></head><body>
<div class="closed">The screen of {title} is closed. <a href="">Open it again</a></div>
<div id="terminal" class="textual-terminal" data-session-websocket-url="{websocket}" data-font-size="14"></div>
</body></html>
"""


class _Session(AppService):
    """The process of one browser, started without a shell."""

    def __init__(self, words: list[str], websocket: web.WebSocketResponse) -> None:
        super().__init__(
            "",
            write_bytes=websocket.send_bytes,
            write_str=websocket.send_str,
            close=websocket.close,  # type: ignore[arg-type]  # its result is not used
            download_manager=DownloadManager(),
        )
        self._words = words

    async def _open_app_process(self, width: int = 80, height: int = 24) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        environment = self._build_environment(width=width, height=height)
        self._process = await asyncio.create_subprocess_exec(
            *self._words, stdin=pipe, stdout=pipe, stderr=pipe, env=environment
        )
        self._stdin = self._process.stdin
        return self._process

    async def stop(self) -> None:
        """End the process, by force when it does not end in time."""
        await super().stop()
        if (process := self._process) is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(END_S):
                await process.communicate()
        except TimeoutError:
            process.kill()
            await process.communicate()


class WebScreen:
    """The server of one run. `token`: the secret first part of each path."""

    def __init__(self, directory: RunDirectory, speed: float) -> None:
        self.token = secrets.token_urlsafe(24)
        self._directory, self._speed, self._sessions = directory, speed, 0

    def application(self) -> web.Application:
        """The routes, all behind the token."""
        app = web.Application(middlewares=[self._guard])
        base = f"/{self.token}"
        app.add_routes(
            [
                web.get(f"{base}/", self._page),
                web.get(f"{base}/ws", self._websocket),
                web.get(f"{base}/{REPORT}", self._report),
                web.static(f"{base}/static", str(files("textual_serve") / "static")),
            ]
        )
        return app

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        given = request.path.split("/")[1]
        if not hmac.compare_digest(given.encode(), self.token.encode()):
            return web.Response(
                status=403, text="The address needs the token that `proveout watch --web` has printed.\n"
            )
        return await handler(request)

    async def _page(self, request: web.Request) -> web.Response:
        scheme = "wss" if request.scheme == "https" else "ws"
        websocket = f"{scheme}://{request.host}/{self.token}/ws"
        text = PAGE.format(title=html.escape(self._directory.name), websocket=html.escape(websocket))
        policy = (
            "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; font-src 'self'; img-src 'self'; "
            f"connect-src {scheme}://{request.host}; base-uri 'none'; frame-ancestors 'none'"
        )
        headers = {"Content-Security-Policy": policy, "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}
        return web.Response(text=text, content_type="text/html", headers=headers)

    async def _report(self, request: web.Request) -> web.StreamResponse:
        path = report_path(self._directory)
        if not path.is_file():
            return web.Response(status=404, text="The report is written when the run has ended.\n")
        return web.FileResponse(path, headers={"Referrer-Policy": "no-referrer", "Cache-Control": "no-store"})

    async def _websocket(self, request: web.Request) -> web.StreamResponse:
        origin = request.headers.get("Origin", "")
        if origin and urlsplit(origin).netloc != request.host:
            return web.Response(status=403, text="The page is of another origin.\n")
        if self._sessions >= SESSIONS_MAX:
            return web.Response(status=503, text=f"{SESSIONS_MAX} browsers watch this run already.\n")
        self._sessions += 1
        websocket = web.WebSocketResponse(heartbeat=15, max_msg_size=MESSAGE_BYTES_MAX)
        session: _Session | None = None
        try:
            await websocket.prepare(request)
            session = _Session(self._words(), websocket)
            await session.start(_cells(request.query.get("width"), 80), _cells(request.query.get("height"), 24))
            async for message in websocket:
                if message.type == WSMsgType.TEXT:
                    with suppress(ValueError):  # not JSON, or half of a character
                        await _pass_on(message.json(), session, websocket)
        finally:
            self._sessions -= 1
            if session is not None:
                await session.stop()
        return websocket

    def _words(self) -> list[str]:
        path = str(self._directory.path.absolute())
        return list(child_process.coordinator("watch", path, "--served", "--speed", f"{self._speed:g}"))


async def _pass_on(envelope: Any, session: _Session, websocket: web.WebSocketResponse) -> None:
    """A message of the browser: keys and mouse, the size, or a sign of life. Others are ignored."""
    match envelope:
        case ["stdin", str() as data]:
            await session.send_bytes(data.encode())
        case ["resize", {"width": width, "height": height}]:
            await session.set_terminal_size(_cells(width, 80), _cells(height, 24))
        case ["ping", data]:
            await websocket.send_json(["pong", data])
        case ["blur", *_]:
            await session.blur()
        case ["focus", *_]:
            await session.focus()


def _cells(value: Any, default: int) -> int:
    try:
        return min(max(int(value), 1), CELLS_MAX)
    except (TypeError, ValueError):
        return default


def serve(directory: RunDirectory, speed: float, host: str, port: int, told: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM; `told` gets the address, with the token. Unusable when the address is not free."""
    try:
        asyncio.run(_serve(WebScreen(directory, speed), host, port, told))
    except OSError as error:
        raise Unusable(
            f"{host}:{port} cannot be listened on: {error.strerror or error}", way_out="Name another --host or --port."
        ) from error


async def _serve(screen: WebScreen, host: str, port: int, told: Callable[[str], None]) -> None:
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, done.set)
    runner = web.AppRunner(screen.application(), access_log=None, handler_cancellation=True, shutdown_timeout=2.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        at = runner.addresses[0][1]
        told(f"http://{f'[{host}]' if ':' in host else host}:{at}/{screen.token}/")
        await done.wait()
    finally:
        await runner.cleanup()


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
