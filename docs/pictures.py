"""Take the pictures of the documentation from one run: `make pictures` (five minutes; chromium for the report).

Data flow: `proveout run` of the main plan, headless -> its run directory -> the screen of the run at a
moment of its last ladder, its end, the home screen (SVG), and the top of its report (PNG) -> `docs/images`.

    python docs/pictures.py --all --run DIR --to DIR

takes every screen and page of a run instead (`picture_gallery`), to look at before and after a change.

The machine must do nothing else meanwhile: the pictures show the run's numbers.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from picture_gallery import EARLIER_S, Until, gallery, photograph
from textual.app import App

from proveout.cli.screen_services import LocalRun, LocalServices, replay
from proveout.coordinator.storage.journal import read
from proveout.coordinator.storage.run_directory import RunDirectory
from proveout.proto.events import IterationFinished, IterationStarted, Stamped
from proveout.tui.home import HomeApp
from proveout.tui.run_app import RunApp

ROOT = Path(__file__).parent.parent
PLAN = ROOT / "plans" / "hlr-cache-embedded.yaml"
PARAMETERS = ("threads=1,2,4,8",)
_COMMAND = f"proveout run plans/{PLAN.name}"
SCREEN = (120, 40)
REPORT_PX = (1100, 1500)
SETTLE_S = 3.0


def main() -> int:
    """Run the plan, or take the run of `--run`, and write the pictures."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--run", type=Path, help="the directory of a finished run of that plan")
    arguments.add_argument("--to", type=Path, help="the folder of the pictures (docs/images; with --all it is needed)")
    arguments.add_argument("--all", action="store_true", help="every screen and page, at several sizes")
    arguments.add_argument("--against", type=Path, help="with --all: the run to compare with; else no page of both")
    given = arguments.parse_args()
    if given.all and (given.run is None or given.to is None):
        arguments.error("--all needs --run and --to")
    if given.all:
        drawn = gallery(RunDirectory(given.run), RunDirectory(given.against or given.run), PLAN.parent, given.to)
        sys.stdout.write(f"{len(drawn)} pictures: {given.to / 'index.html'}\n")
        return 0
    given.to = given.to or ROOT / "docs" / "images"
    given.to.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        path = given.run or _run(Path(folder))
        run = RunDirectory(path)
        asyncio.run(_screens(run, given.to))
        photograph(run.path / "report.html", given.to / "report.png", REPORT_PX)
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


async def _screens(run: RunDirectory, to: Path) -> None:
    events, services = read(run.path), LocalRun(run)
    await _picture(RunApp(Until(run, events, _moment(events)), services), to / "run.svg", _COMMAND)
    await _picture(RunApp(replay(run, 10.0), services), to / "result.svg", _COMMAND)
    homes = LocalServices([ROOT / "plans"], run.path.parent, "plans")
    await _picture(HomeApp(homes), to / "home.svg", "proveout tui plans")


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


if __name__ == "__main__":
    raise SystemExit(main())
