"""Whether a block device may be measured, or written to: the host's policy first, then what is on it.

Data flow: the job's by-id names -> `Policy` -> the kernel's device behind each -> refusals. Reading needs the policy's leave alone.
Writing needs all of: `destructive: true` in the plan, the policy's, and a device that nothing holds and nothing is on.
"""

from __future__ import annotations

from proveout.agent.policy import Policy
from proveout.agent.tasks import TaskFault
from proveout.dsl.plan import FioJob


def check_devices(job: FioJob, policy: Policy) -> None:
    """TaskFault `refused`, with the reason, when one of the job's devices may not be used so. Blocking."""
    for device in job.devices:
        policy.allows_device(device).require()
    if job.writes:
        if not job.destructive:
            raise TaskFault("refused", "writing to devices needs `destructive: true` in the plan")
        policy.allows_destructive().require()
