"""Renewal of the coordinator's certificates during a run, or a warning before they expire.

Flow: `keep(directory, run_s, tell)` runs in the background. When the directory names an authority, the coordinator
fetches the revoked serial numbers every `ASK_EVERY_S`, and new certificates when two thirds of the validity of the old
ones are over; both are files, which every new connection reads (`Credentials.current`). Keys stay the same, so earlier
signatures stay valid. Certificates that were issued by hand cannot be renewed: a warning appears at the start of a run
that they may not outlast, and when they are due.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from proveout.core.errors import ProveoutError
from proveout.proto.trust import enrolment
from proveout.proto.trust.identities import Shown

ASK_EVERY_S = 30.0
ROLE = "coordinator"

Tell = Callable[[Literal["info", "warning"], str], None]
"""Told a level and a text."""


async def keep(directory: Path, run_s: float, tell: Tell) -> None:
    """Until it is cancelled. `run_s`: how long the run is thought to take."""
    if enrolment.authority_of(directory) is None:
        return await _warn(directory, run_s, tell)
    trouble = ""
    while True:
        try:
            await enrolment.fetch_denied(directory, ROLE)
            if await enrolment.renew(directory, ROLE):
                tell("info", f"the coordinator's certificates were renewed; they count until {_end(directory)}")
            trouble = ""
        except (ProveoutError, OSError, ValueError, KeyError) as fault:
            if not trouble and _is_due(directory):
                trouble = str(fault)
                tell("warning", f"{_ends(directory)}, and cannot be renewed: {fault}")
        await asyncio.sleep(ASK_EVERY_S)


async def _warn(directory: Path, run_s: float, tell: Tell) -> None:
    """Certificates without an authority to ask: say it at the beginning when they may not last, and when they are
    due."""
    by_hand = "issue new ones with `proveout pki issue`, or enrol this coordinator, which then renews them by itself"
    shown = _shown(directory)
    if shown is None:
        return
    expected_end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=run_s)
    if not _is_due(directory) and expected_end >= shown.ends:
        tell("warning", f"{_ends(directory)}, before this run may be over: {by_hand}")
        return
    while not _is_due(directory):  # noqa: ASYNC110 -- a certificate expires without a signal
        await asyncio.sleep(ASK_EVERY_S)
    tell("warning", f"{_ends(directory)}: {by_hand}")


def _shown(directory: Path) -> Shown | None:
    try:
        return Shown.read((directory / f"{ROLE}.pem").read_bytes())
    except (OSError, ValueError):  # the next connection reports the error
        return None


def _is_due(directory: Path) -> bool:
    shown = _shown(directory)
    return shown is not None and shown.due(datetime.datetime.now(datetime.UTC))


def _end(directory: Path) -> str:
    shown = _shown(directory)
    return f"{shown.ends:%Y-%m-%d %H:%M} UTC" if shown is not None else "an end that cannot be read"


def _ends(directory: Path) -> str:
    return f"the coordinator's certificates ({directory}) count until {_end(directory)}"
