"""The handler of `CheckHost`: programs, permissions and free space that a run needs on this host."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from proveout.agent.daemon.tasks import TaskContext
from proveout.agent.engines.adapter import FindsServer
from proveout.agent.engines.pgbouncer import places as pooler
from proveout.agent.engines.table import adapter
from proveout.agent.errors import TaskFault
from proveout.agent.load import ceiling_store
from proveout.agent.security import data_dirs
from proveout.agent.tools.listed import listed_program
from proveout.core import disk_space
from proveout.core.numbers import number, percent
from proveout.dsl.plan.topology import System
from proveout.proto.wire.check_results import Checked, CheckFinding
from proveout.proto.wire.tasks import CheckedCommand, CheckHost, OfferedRate

CEILING_FRACTION_MAX = 0.9
"""The part of a ceiling from which on a run has the finding `client-ceiling`."""


async def check_host(context: TaskContext, spec: CheckHost) -> Checked:
    """Check this host. Nothing is written: folders that are missing are not made."""
    began = time.monotonic()
    found = await asyncio.to_thread(lambda: tuple(_findings(context, spec)))
    return Checked(findings=found, seconds=time.monotonic() - began)


def _findings(context: TaskContext, spec: CheckHost) -> Iterator[CheckFinding]:
    for system in spec.systems:
        yield from _of_system(context, system)
    for tool in spec.tools:
        if shutil.which(tool) is None:
            way_out = f"apt install {tool}, or dnf install {tool}"
            yield CheckFinding(code="missing", subject="", message=f"{tool} is not installed", way_out=way_out)
    for command in spec.commands:
        yield from _of_command(context, command)
    if spec.systems or spec.bytes_min:
        yield from _of_space(context, spec)
    for rate in spec.rates:
        yield from rate_findings(rate)


def rate_findings(rate: OfferedRate) -> Iterator[CheckFinding]:
    """Whether the load generator of this host can offer a rate, where its ceiling was measured."""
    known = ceiling_store.known(rate.engine)
    most = known.shared_per_s if rate.beside else known.apart_per_s
    if most is None or rate.per_s <= CEILING_FRACTION_MAX * most:
        return
    beside = " beside the server" if rate.beside else ""
    yield CheckFinding(
        code="rate",
        subject=rate.subject,
        message=f"the load offers {number(rate.per_s)}/s from this host, {percent(rate.per_s / most)} of the"
        f" {number(most)}/s that its load generator can do{beside} with the {rate.engine} driver",
        way_out="use more client hosts, or a lower rate; `proveout ceiling` measures the host again",
        warns=True,
    )


def _of_system(context: TaskContext, system: System) -> Iterator[CheckFinding]:
    """Whether the agent may start a system, and has its program."""
    found = adapter(system.engine)
    try:
        context.policy.allows_provision(system.engine).require()
        if system.provision == "pgbouncer":
            if shutil.which("pgbouncer", path=pooler.PLACES) is None:
                raise TaskFault("missing", "pgbouncer is not installed", way_out="Debian: apt-get install pgbouncer")
        elif isinstance(found, FindsServer):
            found.server_program()
    except TaskFault as fault:
        code = "missing" if fault.code == "missing" else "rights"
        yield CheckFinding(code=code, subject=f"systems.{system.name}", message=fault.what, way_out=fault.way_out)


def _of_command(context: TaskContext, command: CheckedCommand) -> Iterator[CheckFinding]:
    """Whether the policy lists a program of the plan, and the program is there."""
    try:
        (path, *_), _ = listed_program(context.policy, command.argv, in_forms=True)
        if not os.access(path, os.X_OK):
            raise TaskFault("missing", f"{path} is not a program of this host", way_out="install it")
    except TaskFault as fault:
        code = "missing" if fault.code == "missing" else "rights"
        yield CheckFinding(code=code, subject=command.subject, message=fault.what, way_out=fault.way_out)


def _of_space(context: TaskContext, spec: CheckHost) -> Iterator[CheckFinding]:
    root = data_dirs.data_root(context.policy, context.work_dir, spec.data_root) if spec.data_root else context.work_dir
    place = Path(root)
    while not place.is_dir() and place != place.parent:
        place = place.parent
    if not os.access(place, os.W_OK | os.X_OK):
        yield CheckFinding(code="space", subject="", message=f"the agent cannot write into {place}")
    elif disk_space.is_used_up(place, spec.bytes_min):
        message = f"the run needs about {disk_space.size_text(spec.bytes_min)} in {root}: {disk_space.describe(place)}"
        yield CheckFinding(code="space", subject="", message=message, way_out="free disk space there")
