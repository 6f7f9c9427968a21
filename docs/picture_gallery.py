"""Take every screen and page of one run, to look at before and after a change: `python docs/pictures.py --all`.

Data flow: a run directory -> the screens at three sizes and the table of a terminal without them (SVG, then PNG), the
report and the comparison as pages of several widths, dark and as printed -> a folder, with `index.html` over all of it.
"""

from __future__ import annotations

import asyncio
import html
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text
from textual.app import App
from textual.pilot import Pilot

from proveout.cli.headless import LiveLinePrinter
from proveout.cli.screen_services import LocalRun, LocalServices, replay
from proveout.coordinator.live.ticks import Moved
from proveout.coordinator.storage.journal import read
from proveout.coordinator.storage.run_directory import RunDirectory
from proveout.proto.events import IterationFinished, PopulateFinished, RunStarted, Stamped
from proveout.tui.home import HomeApp
from proveout.tui.run_app import PANES, RunApp

SIZES = ((80, 24), (120, 40), (200, 60))
EARLIER_S = 2.0
"""A stage is shown this long before the end of its last iteration."""
STILL_S = 0.5
"""A screen that stays the same for this long is drawn."""
LEFT_S = 60.0
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PAGES = {"1440": (), "390": (), "dark": ("--blink-settings=preferredColorScheme=0",)}
"""The pictures of a page, with the options of the browser."""
WIDE, NARROW = (1440, 3000), (390, 5000)
Shot = tuple[str, Callable[[], App[Any]], tuple[str, ...]]


class Until:
    """The events of a finished run up to a moment, as of one that runs; it does not end."""

    def __init__(self, run: RunDirectory, events: Sequence[Stamped], moment_unix_s: float) -> None:
        self._events, self._moving, self._moment_unix_s = events, Moved(events, run.samples), moment_unix_s

    async def batches(self) -> AsyncIterator[Sequence[Stamped]]:
        """All events up to the moment, with the live events of each iteration, in one batch."""
        events = [stamped for stamped in self._events if stamped.unix_s <= self._moment_unix_s]
        live = (moved for stamped in events for moved in self._moving(stamped) if moved.unix_s <= self._moment_unix_s)
        yield sorted([*events, *live], key=lambda stamped: stamped.unix_s)
        await asyncio.Event().wait()

    def now_unix_s(self) -> float:
        """The moment; Unix seconds."""
        return self._moment_unix_s

    async def stop(self) -> bool:
        """It has ended long ago."""
        return False


def browser() -> str:
    """The path of a Chromium. Ends the program when there is none."""
    found = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if found is None:
        raise SystemExit(f"no pictures of pages: none of {', '.join(BROWSERS)} is installed")
    return found


def photograph(page: Path, to: Path, size: tuple[int, int], *more: str) -> None:
    """A page in a browser without a window, as PNG, or printed where `to` is a PDF."""
    output = f"--print-to-pdf={to}" if to.suffix == ".pdf" else f"--screenshot={to}"
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run(
            [
                browser(), "--headless", "--no-sandbox", "--hide-scrollbars", f"--user-data-dir={profile}",
                f"--window-size={size[0]},{size[1]}", "--virtual-time-budget=10000", output, *more,
                page.absolute().as_uri(),
            ],
            check=True,
            capture_output=True,
        )  # fmt: skip


def gallery(run: RunDirectory, reference: RunDirectory, plans: Path, to: Path) -> list[Path]:
    """All pictures; the files that were written."""
    to.mkdir(parents=True, exist_ok=True)
    drawn: list[Path] = []
    for name, make, keys in _shots(run, reference, plans):
        for size in SIZES:
            drawn.append(to / f"{name}-{size[0]}x{size[1]}.png")
            asyncio.run(_screen(make(), size, keys, drawn[-1]))
    drawn.append(to / "terminal.png")
    _svg(_terminal(run), drawn[-1])
    for name, page in _pages(run, reference, to):
        for kind, options in PAGES.items():
            drawn.append(to / f"{name}-{kind}.png")
            _page(page, drawn[-1], options)
        drawn.append(to / f"{name}-print.pdf")
        photograph(page, drawn[-1], WIDE, "--no-pdf-header-footer")
    (to / "index.html").write_text(_index(drawn))
    return drawn


# ---- screens -----------------------------------------------------------------------------------------------------


def _shots(run: RunDirectory, reference: RunDirectory, plans: Path) -> Iterator[Shot]:
    """Name, application and keys of every screen."""
    events, services = read(run.path), LocalRun(run)
    for kind, moment_unix_s in _moments(events).items():

        def live(moment_unix_s: float = moment_unix_s) -> App[Any]:
            return RunApp(Until(run, events, moment_unix_s), services)

        yield f"live-{kind}", live, ()
    yield "live-light", live, ("t",)
    yield "quit", live, ("q",)
    yield "help", live, ("question_mark",)
    yield "palette", live, ("ctrl+p",)
    for key, name in enumerate(PANES):
        if name not in ("result", "live"):
            yield name, live, (str(key),)

    def ended() -> App[Any]:
        return RunApp(replay(run, 10.0), services)

    yield "result", ended, ()
    yield "result-light", ended, ("t",)
    yield "replay", ended, ("r", "space", "right")
    yield "compare", lambda: _Compares(run, str(reference.path)), ()

    def home() -> App[Any]:
        return HomeApp(LocalServices([plans], run.path.parent, str(plans.name)))

    yield "home", home, ()
    yield "home-runs", home, ("2",)
    yield "form", home, ("enter",)


class _Compares(RunApp):
    """A run that has ended, compared with another one."""

    def __init__(self, run: RunDirectory, reference: str) -> None:
        super().__init__(replay(run, 10.0), LocalRun(run))
        self._reference = reference

    def on_mount(self) -> None:
        """Compare at once."""
        self.call_after_refresh(self.compare, self._reference)


def _moments(events: Sequence[Stamped]) -> dict[str, float]:
    """A moment in the first stage of each kind that has iterations or a population, by kind; Unix seconds."""
    plan = next(stamped.event.plan for stamped in events if isinstance(stamped.event, RunStarted))
    kinds = {stage["id"]: stage["kind"] for stage in plan["stages"]}  # type: ignore[index,call-overload]
    first: dict[str, str] = {}
    found: dict[str, float] = {}
    for stamped in events:
        if isinstance(stamped.event, PopulateFinished):
            found.setdefault("populate", stamped.unix_s)
        elif isinstance(stamped.event, IterationFinished):
            stage = stamped.event.id.stage
            if first.setdefault(kinds[stage], stage) == stage:
                found[kinds[stage]] = stamped.unix_s - EARLIER_S
    return found


async def _screen(app: App[Any], size: tuple[int, int], keys: Sequence[str], to: Path) -> None:
    async with app.run_test(size=size) as pilot:
        await _settled(pilot)
        for key in keys:
            await pilot.press(key)
            await _settled(pilot)
        picture = app.export_screenshot(title=to.stem)
    await asyncio.to_thread(_svg, picture, to)


def _svg(picture: str, to: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        svg = Path(folder) / "screen.svg"
        svg.write_text(picture)
        box = picture.partition('viewBox="0 0 ')[2].partition('"')[0].split()
        photograph(svg, to, (round(float(box[0])), round(float(box[1]))))


def _terminal(run: RunDirectory) -> str:
    """The table that `run` and `bench` show on a terminal without the screen, in the first ladder; SVG."""
    events, output = read(run.path), io.StringIO()
    moments = _moments(events)
    until_s = moments.get("ladder", max(moments.values()))
    printer, moving = LiveLinePrinter(output, size=SIZES[1], colour=True), Moved(events, run.samples)
    for stamped in events:
        for one in (stamped, *moving(stamped)):
            if one.unix_s <= until_s:
                printer(one)
    first, *later = re.split(r"\r(?:\x1b\[(\d+)A)?\x1b\[J", output.getvalue())
    lines = first.split("\n")
    for up, text in zip(later[::2], later[1::2], strict=True):
        lines = [*lines[: len(lines) - 1 - int(up or 0)], *text.split("\n")]
    console = Console(record=True, width=SIZES[1][0], file=io.StringIO(), color_system="truecolor", force_terminal=True)
    console.print(Text.from_ansi("\n".join(lines)))
    return console.export_svg(title="proveout run --headless")


async def _settled(pilot: Pilot[Any]) -> None:
    """Wait until the picture stays as it is and nothing is being read, or for a minute."""
    before, until_s = "", time.monotonic() + LEFT_S
    while time.monotonic() < until_s:
        await pilot.pause(STILL_S)
        now = pilot.app.export_screenshot()
        if now == before and not _is_reading(pilot.app):
            return
        before = now


def _is_reading(app: App[Any]) -> bool:
    if any(worker.is_running and worker.group in ("result", "compare") for worker in app.workers):
        return True
    if not isinstance(app, HomeApp):
        return False
    cards = (*app.view.plans.values(), *app.view.runs.values())
    return not app.view.plans_scanned or any(card.state in ("checking", "reading") for card in cards)


# ---- pages -------------------------------------------------------------------------------------------------------


def _pages(run: RunDirectory, reference: RunDirectory, to: Path) -> Iterator[tuple[str, Path]]:
    """The report and the comparison, as they are made now."""
    for name, words in (
        ("report", ["report", str(run.path), "--html"]),
        ("compared", ["compare", str(reference.path), str(run.path), "--despite", "--html"]),
    ):
        page = to / f"{name}.html"
        command = [sys.executable, "-m", "proveout", *words, str(page)]
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=os.environ)
        if not page.is_file():
            raise SystemExit(f"no picture of {name}: {done.stderr.strip()}")
        yield name, page


def _page(page: Path, to: Path, options: Sequence[str]) -> None:
    """A narrow page is in a frame, because the windows of a browser have a minimum width."""
    if not to.stem.endswith("-390"):
        photograph(page, to, WIDE, *options)
        return
    with tempfile.TemporaryDirectory() as folder:
        width, height = NARROW
        frame = Path(folder) / "frame.html"
        frame.write_text(
            f"<body style='margin: 0'><iframe src='{page.absolute().as_uri()}' width={width} height={height} "
            "style='border: 0'></iframe>"
        )
        photograph(frame, to, (500, height), *options)


def _index(drawn: Sequence[Path]) -> str:
    """A page with all pictures."""
    parts = [
        "<!DOCTYPE html><meta charset=utf-8><title>Screens and pages</title><body style='font-family: sans-serif'>"
    ]
    for path in drawn:
        name = html.escape(path.name)
        parts.append(f"<h2><a href='{name}'>{name}</a></h2>")
        parts.append("" if path.suffix == ".pdf" else f"<img src='{name}' style='max-width: 100%' loading=lazy>")
    return "\n".join(parts)
