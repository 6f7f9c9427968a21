"""The reboot of this host between stages of a run.

Flow: `tuner.reboot_host` checks the policy and that the agent is a service -> `Tuner.reboot_at_end` -> the coordinator
ends the session, `Tuner.close` stores the hold (`machine.Hold`) and starts the reboot -> the agent of the next boot
finds the hold and undoes nothing before its end -> `ApplyTuning` of the same run takes the journal over
(`transaction.adopt`).
"""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

from proveout.agent.daemon.tasks import TaskContext
from proveout.agent.errors import TaskFault
from proveout.agent.tuning.host import Processes, must

SYSTEMCTL = "/usr/bin/systemctl"
CGROUP = Path("/proc/self/cgroup")

_log = logging.getLogger(__name__)


def require_permission(context: TaskContext) -> None:
    """TaskFault `refused` by the policy, `missing` where nothing would start the agent again."""
    context.policy.allows_reboot().require()
    if not (unit := service()):
        what = "the agent of this host is not a service, so that nothing would start it after a reboot"
        raise TaskFault("missing", what, way_out="`proveout agent --unit` prints its unit")
    if Processes().run((SYSTEMCTL, "is-enabled", unit)).code:
        what = f"{unit} is not enabled, so that nothing would start this agent after a reboot"
        raise TaskFault("missing", what, way_out=f"systemctl enable {unit}")


def service() -> str:
    """The unit that this process is a service of, by its control group (cgroups(7)); "" outside of one."""
    with suppress(OSError):
        last = CGROUP.read_text(encoding="utf-8").strip().rpartition("/")[2]
        return last if last.endswith(".service") and not last.startswith("user@") else ""
    return ""


def begin() -> bool:
    """Reboot the machine; False, with the reason in the log, when that is refused."""
    try:
        must(Processes(), (SYSTEMCTL, "reboot"))
    except TaskFault as fault:
        _log.error("the host is not rebooted: %s", fault.what)
        return False
    return True
