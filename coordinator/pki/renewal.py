"""A coordinator as a member of its lab: its certificates are renewed while a run goes on, or their end is told in time.

Flow: `keep(directory, run_s, tell)` runs beside the run. Where the directory names an authority it is asked every `ASK_EVERY_S` who is
denied, and for new certificates when two thirds of the old ones' time are over; what comes back are files, which every connection that
is made anew reads (`Credentials.current`). Keys stay as they are, so tasks that were signed before stay signed. Certificates that were
issued by hand cannot be renewed so: whoever reads is warned when the run begins if they end before it may, and when they are due.
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
    """Certificates without an authority to ask: say it at the beginning when they may not last, and when they are due."""
    by_hand = (
        "have them issued anew, by `proveout pki issue`, or enrol this coordinator, which then renews them by itself"
    )
    shown = _shown(directory)
    if shown is None:
        return
    expected_end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=run_s)
    if not _is_due(directory) and expected_end >= shown.ends:
        tell("warning", f"{_ends(directory)}, before this run may be over: {by_hand}")
        return
    while not _is_due(directory):  # noqa: ASYNC110 -- the clock ends a certificate, nobody signals it
        await asyncio.sleep(ASK_EVERY_S)
    tell("warning", f"{_ends(directory)}: {by_hand}")


def _shown(directory: Path) -> Shown | None:
    try:
        return Shown.read((directory / f"{ROLE}.pem").read_bytes())
    except (OSError, ValueError):  # who connects will say so
        return None


def _is_due(directory: Path) -> bool:
    shown = _shown(directory)
    return shown is not None and shown.due(datetime.datetime.now(datetime.UTC))


def _end(directory: Path) -> str:
    shown = _shown(directory)
    return f"{shown.ends:%Y-%m-%d %H:%M} UTC" if shown is not None else "an end that cannot be read"


def _ends(directory: Path) -> str:
    return f"the coordinator's certificates ({directory}) count until {_end(directory)}"
