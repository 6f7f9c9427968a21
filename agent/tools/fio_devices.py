"""Checks whether a block device may be measured or written: the policy of the host first, then the content of the
device.

Flow: the job's by-id names -> `Policy` -> facts of each disk (`dsl.operations.storage.disk`) -> refusals. Reading needs
only an entry in the policy. Writing needs `destructive: true` in the plan and in the policy, and a whole, empty disk
that nothing uses. The check runs before every rung, because a disk may have been mounted since.
"""

from __future__ import annotations

import os
import stat

from proveout.agent.errors import TaskFault
from proveout.agent.security.policy import Policy
from proveout.agent.tuning.host import ROUNDS_MAX, Host
from proveout.agent.tuning.programs import Processes
from proveout.dsl.operations.facts import Fact, Facts, OutputQuery, Query
from proveout.dsl.operations.storage.disk import disk_queries, in_use, sys_folder
from proveout.dsl.plan.fio_job import FioJob


def check_devices(job: FioJob, policy: Policy, first_slice: int = 0) -> None:
    """TaskFault `refused`, with the reasons, if a device of the job may not be used. Blocking."""
    for device in job.devices:
        policy.allows_device(device).require()
    if job.writes:
        if not job.destructive:
            raise TaskFault("refused", "writing to devices needs `destructive: true` in the plan")
        policy.allows_destructive().require()
    slices = first_slice + -(-job.jobs // len(job.devices))
    for device in job.devices:
        _check_size(device, slices * job.size_bytes)
    reasons = [reason for device in job.devices for reason in _objections(device)] if job.writes else []
    if reasons:
        way_out = "name an empty disk that nothing uses (`wipefs --all` removes signatures)"
        raise TaskFault("refused", "; ".join(dict.fromkeys(reasons)), way_out=way_out)


def _check_size(device: str, needed: int) -> None:
    try:
        descriptor = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        way_out = "name devices of this host, and run its agent as root"
        raise TaskFault("refused", f"cannot open {device}: {error.strerror}", way_out=way_out) from None
    try:
        if not stat.S_ISBLK(os.fstat(descriptor).st_mode):
            raise TaskFault("refused", f"{device} is not a block device")
        size = os.lseek(descriptor, 0, os.SEEK_END)
    finally:
        os.close(descriptor)
    if size < needed:
        message = f"{device} has {size / 1e9:.4g} GB, and the slices of its jobs end at {needed / 1e9:.4g} GB"
        raise TaskFault("refused", message, way_out="make `size` or `jobs` smaller, or name more devices")


def _objections(device: str) -> tuple[str, ...]:
    facts = Facts()
    host, tools = Host(), Processes()

    def answer(query: Query) -> Fact:
        # A fixed argv that only reads; the policy applies to programs that a plan chooses.
        return tools.run(query.argv) if isinstance(query, OutputQuery) else host.answer(query)

    for _ in range(ROUNDS_MAX):
        more = [query for query in dict.fromkeys(disk_queries(device, facts)) if query not in facts]
        if not more:
            break
        facts = facts.with_({query: answer(query) for query in more})
    if facts.link(device) is None:
        return (f"{device} does not exist",)
    if facts.text(f"{sys_folder(device, facts)}/size") is None:
        return (f"{device} is not a whole disk",)
    return tuple(in_use(device, facts))
