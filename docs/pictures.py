"""Take the pictures of the documentation from one run: `make pictures` (five minutes; chromium for the report).

Data flow: `proveout run` of the main plan, headless -> its run directory -> the summary, the screen of the run at a
moment of its last ladder, its end, the home screen (SVG), and the top of its report (PNG) -> `docs/images`.

The machine must do nothing else meanwhile: the pictures show the run's numbers.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text
from textual.app import App

from proveout.cli.common.home_services import LocalServices
from proveout.coordinator.live.replay import Moved
from proveout.coordinator.report import terminal
from proveout.coordinator.report.run_document import run_document
from proveout.coordinator.results.results import load_results
from proveout.coordinator.storage.journal import read
from proveout.coordinator.storage.run_directory import RunDirectory
from proveout.proto.events import IterationFinished, IterationStarted, Stamped
from proveout.tui.home.app import HomeApp
from proveout.tui.run.app import RunApp

ROOT = Path(__file__).parent.parent
PLAN = ROOT / "plans" / "hlr-cache-embedded.yaml"
PARAMETERS = ("threads=1,2,4,8",)
_COMMAND = f"proveout run plans/{PLAN.name}"
SCREEN = (120, 40)
COLUMNS = 110
REPORT_PX = (1100, 1500)
EARLIER_S = 2.0
"""The screen is shown this long before the end of an iteration."""
SETTLE_S = 3.0
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


class Until:
    """The events of a finished run up to a moment, as of one that runs; it does not end."""

    replayed = False

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


def main() -> int:
    """Run the plan, or take the run of `--run`, and write the pictures."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--run", type=Path, help="the directory of a finished run of that plan")
    arguments.add_argument("--to", type=Path, default=ROOT / "docs" / "images", help="the folder of the pictures")
    given = arguments.parse_args()
    given.to.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        path = given.run or _run(Path(folder))
        run = RunDirectory(path)
        _summary(run, given.to / "summary.svg")
        asyncio.run(_screens(run, given.to))
        _report(run, given.to / "report.png")
    return 0


def _run(folder: Path) -> Path:
    """A new run of the plan; its directory. Ends the program when the run is not finished."""
    parameters = [word for parameter in PARAMETERS for word in ("-p", parameter)]
    command = [sys.executable, "-m", "proveout", "run", str(PLAN), *parameters, "--headless", "--runs-dir", str(folder)]
    code = subprocess.run(command, check=False).returncode
    if code not in {0, 1}:
        raise SystemExit(f"no pictures: the run ended with exit code {code}")
    (path,) = (path for path in folder.iterdir() if (path / "result.json").exists())
    return path


def _summary(run: RunDirectory, to: Path) -> None:
    printed = io.StringIO()
    document = run_document(load_results(read(run.path)), run_dir=f"runs/{run.path.name}")
    terminal.render(document, Console(file=printed, width=COLUMNS, force_terminal=True, markup=False, highlight=False))
    picture = Console(record=True, file=io.StringIO(), width=COLUMNS)
    picture.print(Text.from_ansi(printed.getvalue()))
    to.write_text(picture.export_svg(title=_COMMAND, theme=DIMMED_MONOKAI))


async def _screens(run: RunDirectory, to: Path) -> None:
    events = read(run.path)
    for name, moment_unix_s in (("run", _moment(events)), ("result", events[-1].unix_s)):
        await _picture(RunApp(Until(run, events, moment_unix_s)), to / f"{name}.svg", _COMMAND)
    services = LocalServices([ROOT / "plans"], run.path.parent, "plans")
    await _picture(HomeApp(services), to / "home.svg", "proveout tui plans")


def _moment(events: Sequence[Stamped]) -> float:
    """Shortly before the end of the last iteration of the first ladder; Unix seconds."""
    finished = [stamped for stamped in events if isinstance(stamped.event, IterationFinished)]
    started = {stamped.event.id: stamped for stamped in events if isinstance(stamped.event, IterationStarted)}
    first = finished[0].event.id.stage
    last = [stamped for stamped in finished if stamped.event.id.stage == first][-1]
    return max(last.unix_s - EARLIER_S, started[last.event.id].unix_s)


async def _picture(app: App[Any], to: Path, title: str) -> None:
    async with app.run_test(size=SCREEN) as pilot:
        await pilot.pause(SETTLE_S)
        await asyncio.to_thread(to.write_text, app.export_screenshot(title=title))


def _report(run: RunDirectory, to: Path) -> None:
    """The top of the report, in a browser without a window."""
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        raise SystemExit(f"no picture of the report: none of {', '.join(BROWSERS)} is installed")
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run(
            [
                browser, "--headless", "--no-sandbox", "--hide-scrollbars", f"--user-data-dir={profile}",
                f"--window-size={REPORT_PX[0]},{REPORT_PX[1]}", "--virtual-time-budget=10000", f"--screenshot={to}",
                (run.path / "report.html").absolute().as_uri(),
            ],
            check=True,
            capture_output=True,
        )  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
