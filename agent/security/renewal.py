"""Renewal of an agent's certificate, and the end of sessions whose certificate is revoked.

Flow: `run(directory, interceptor, on_revoked)` runs beside the server. If the directory names an authority, the agent
fetches the deny list every `FETCH_EVERY_S`, and a new certificate when two thirds of the validity of the old one are
over; both arrive as files, which the server reads again by itself. Every `CHECK_EVERY_S` calls with a denied
certificate are cancelled, and their session ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from proveout.agent.security.authz import AuthzInterceptor
from proveout.core.errors import ProveoutError
from proveout.proto.trust import enrolment

FETCH_EVERY_S = 10.0
CHECK_EVERY_S = 1.0

_log = logging.getLogger(__name__)


async def run(directory: Path | None, interceptor: AuthzInterceptor, on_revoked: Callable[[], None]) -> None:
    """Run until cancelled; calls `on_revoked` after calls were cancelled.

    An identity in memory lasts for one run and is not renewed.
    """
    if directory is None:
        return
    fetching = asyncio.create_task(_fetch(directory))
    try:
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            if interceptor.cancel_revoked():
                _log.warning("ended a session: the certificate of its coordinator was revoked")
                on_revoked()
    finally:
        fetching.cancel()


async def _fetch(directory: Path) -> None:
    """Poll the authority. Logs a failure when it begins and when it is over."""
    failure = ""
    while await asyncio.to_thread(enrolment.authority_of, directory) is not None:
        try:
            await enrolment.fetch_denied(directory, "agent")
            if await enrolment.renew(directory, "agent"):
                _log.info("the certificate was renewed")
            if failure:
                _log.info("the authority answers again")
            failure = ""
        except (ProveoutError, OSError, ValueError) as error:
            if not failure:
                _log.warning("cannot reach the authority, so the agent keeps its deny list and certificate: %s", error)
            failure = str(error)
        await asyncio.sleep(FETCH_EVERY_S)
