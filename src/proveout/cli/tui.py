"""`proveout tui`: a screen with the plans and the runs found here; start, watch, resume and compare from there.

Data flow: `LocalServices` -> `HomeApp` -> a `Choice` -> the verb `run`, `watch` or `resume` -> the home screen again,
in the same state. The home screen is closed while a run is shown.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from proveout.cli.common import completion
from proveout.cli.common.options import RunsDir
from proveout.core.errors import ProveoutError

if TYPE_CHECKING:
    from proveout.tui.home.services import Choice, Resume, Start

EPILOG = """Examples:

  proveout tui

  proveout tui ~/studies plans/smoke.yaml --runs-dir /var/lib/proveout/runs
"""

ERROR_MAX = 4000
SPEED = 10.0
"""Initial speed of a replay, as of `watch`."""


def tui(
    places: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PLACE]...",
            help="Plan files, or folders with plans [default: here and ./plans].",
            autocompletion=completion.plan_files,
        ),
    ] = None,
    *,
    runs_dir: RunsDir = None,
) -> None:
    """Show the plans found here and the runs so far; start, watch, resume and compare them.

    Exit code 0, or 2 when there is no terminal or a place that was named does not exist.
    """
    from proveout.cli.common import with_screen
    from proveout.cli.common.home_services import LocalServices
    from proveout.coordinator.storage import run_directory
    from proveout.tui.home.app import HomeApp, Place
    from proveout.tui.home.model import HomeView

    with_screen.need_terminal()
    for place in places or ():
        if not place.exists():
            raise typer.BadParameter(f"there is no file or folder {place}", param_hint="PLACE")
    folder = run_directory.runs_directory(runs_dir, os.environ)
    chosen = places or [Path(), Path("plans")]
    services = LocalServices(chosen, folder, ", ".join(map(str, places)) if places else str(Path.cwd()))
    view, left = HomeView(), Place()
    while True:
        app = HomeApp(services, view, left)
        choice = app.run()
        if choice is None:
            return
        view, left = app.view, app.place
        left.notice = carried_out(choice, folder)
        left.pane = left.pane if left.notice else "runs"


def carried_out(choice: Choice, runs: Path) -> str:
    """Execute the choice, to its end or until its screen is left; the error, "" for none."""
    from proveout.cli.common import with_screen
    from proveout.cli.common.run_services import LocalRun
    from proveout.cli.watch import source
    from proveout.coordinator.storage.run_directory import RunDirectory
    from proveout.tui.home.services import Watch

    try:
        if isinstance(choice, Watch):
            directory = RunDirectory(Path(choice.run))
            with_screen.show(source(directory, SPEED), LocalRun(directory, SPEED))
            return ""
        return _run(words(choice, runs))
    except ProveoutError as fault:
        return str(fault)


def words(choice: Start | Resume, runs: Path) -> list[str]:
    """The command line of a choice."""
    from proveout.cli.common import with_screen
    from proveout.tui.home.services import Start

    if not isinstance(choice, Start):
        return ["resume", choice.run, "--runs-dir", str(runs)]
    files = {
        "runs_dir": runs,
        "inventory": _path(choice.inventory),
        "pki": _path(choice.pki),
        "policy": _path(choice.policy),
    }
    given = [f"{name}={text}" for name, text in choice.overrides.items()]
    return ["run", choice.plan, *with_screen.words(given, files)]


def _path(text: str) -> Path | None:
    return Path(text) if text else None


def _run(arguments: list[str]) -> str:
    """Run it with its screen; the error when it did not start, else ""."""
    from proveout.cli.common import with_screen
    from proveout.core.numbers import safe_lines

    with tempfile.TemporaryFile() as output:
        sys.stdout.write(f"proveout {safe_lines(' '.join(arguments[:2]))} …\n")
        sys.stdout.flush()
        code = with_screen.run(arguments, output)
        output.seek(0)
        return output.read(ERROR_MAX).decode(errors="replace").strip() if code else ""
