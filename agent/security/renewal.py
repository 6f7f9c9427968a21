"""An agent as a member of its lab: it keeps its certificate fresh, and stops serving who is no longer believed.

Flow: `keep(directory, guard, cut)` runs beside the server. Where the directory names an authority it is asked every
`ASK_EVERY_S` who is denied, and for a new certificate when two thirds of the old one's time are over; what comes back are
files, which the server reads by itself. Every `LOOK_EVERY_S` calls of those who are denied are ended, and with the last of them the session.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from proveout.agent.security.authz import Guard
from proveout.core.errors import ProveoutError
from proveout.proto.trust import enrolment

ASK_EVERY_S = 10.0
LOOK_EVERY_S = 1.0

_log = logging.getLogger(__name__)


async def keep(directory: Path | None, guard: Guard, cut: Callable[[], None]) -> None:
    """Until it is cancelled; `cut` is called when calls had to be ended. An identity without a directory is that of one run, and not renewed."""
    if directory is None:
        return
    asking = asyncio.create_task(_ask(directory))
    try:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            if guard.cut():
                _log.warning("ended a session: the certificate of its coordinator was revoked")
                cut()
    finally:
        asking.cancel()


async def _ask(directory: Path) -> None:
    """Ask the authority again and again; a trouble is told when it begins and when it is over."""
    trouble = ""
    while await asyncio.to_thread(enrolment.authority_of, directory) is not None:
        try:
            await enrolment.fetch_denied(directory, "agent")
            if await enrolment.renew(directory, "agent"):
                _log.info("the certificate was renewed")
            if trouble:
                _log.info("the authority answers again")
            trouble = ""
        except (ProveoutError, OSError, ValueError) as error:
            if not trouble:
                _log.warning("what is known of the authority stays as it is: %s", error)
            trouble = str(error)
        await asyncio.sleep(ASK_EVERY_S)
