"""A client agent's part of a Ray cluster, as a process that a test can put into a network namespace.

    ray_member.py OWN-ADDRESS <one JSON line on stdin>

The head (no `head` in the line) forms the cluster, prints its address, runs a load on SQLite for each further line, and
prints its result; a member joins and stays. Every printed line is JSON. Exits at the end of stdin and removes its files.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from conftest import LoadContext, load_task, workload_of

from proveout.agent.errors import TaskFault
from proveout.agent.load.ray_task import form_pool
from proveout.agent.load.run_load import run_load
from proveout.proto.wire.tasks import ClusterSecrets, FormPool, LoadPool, RunLoad


def report(**what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


class Context(LoadContext):
    """Reports what the load does."""

    lead_ns = 300_000_000

    def sample(self, sample: Any) -> None:
        report(second=sample.second)


def load(request: dict[str, Any]) -> RunLoad:
    return load_task(
        request["dsn"],
        engine="sqlite",
        rate=request["rate"],
        windows=(0.5, request["measure_s"], 2.7),
        workers=4,
        workload=workload_of("hlr", population=request["population"]),
        pool=LoadPool(kind="ray"),
    )


async def main() -> None:
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    first = json.loads(await lines.readline())
    with tempfile.TemporaryDirectory() as folder:
        context = Context(Path(folder))
        secrets = ClusterSecrets(**first["secrets"])
        spec = FormPool(head=first.get("head", ""), address=sys.argv[1], cpus=2, secrets=secrets)
        try:
            report(address=(await form_pool(context, spec)).address)
            while line := await lines.readline():
                try:
                    result = await run_load(context, load(json.loads(line)))
                    report(due=sum(t.counts.ok + t.counts.logical_failures for t in result.transactions))
                except TaskFault as fault:
                    report(fault=fault.what)
        finally:
            await context.close()
            report(left=True)


asyncio.run(main())
