"""The parameters of one coordinator process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from proveout.coordinator.pki.certificates import Credentials
from proveout.coordinator.schedule.state import Timing
from proveout.coordinator.storage.run_directory import RunDirectory
from proveout.core.data_classes import dataclass, field
from proveout.dsl.plan.plan import Plan
from proveout.proto.wire.tasks import Endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The parameters of one coordinator process that runs or resumes a plan.

    `external` may hold passwords; only tasks contain it. `estimates_s`: the seconds of each stage by id. `crashed`: the
    last coordinator was killed, and its agents may still be leaving. `policy`: the permitted changes of local agents.
    `labels`: of `--label`. `preflight`: check hosts and systems before anything is changed, unless the plan does
    without it. From `gather_hosts` hosts on the samples of a host are sent together once a second, for each
    host at a different moment.
    """

    plan: Plan
    directory: RunDirectory
    version: str
    external: Mapping[str, Endpoint] = field(default_factory=dict)
    credentials: Credentials | None = None
    estimates_s: Mapping[str, float] = field(default_factory=dict)
    timing: Timing = field(default_factory=Timing)
    lease_s: float = 10.0
    beat_s: float = 2.0
    crashed: bool = False
    policy: Path | None = None
    gather_hosts: int = 50
    labels: Mapping[str, str] = field(default_factory=dict)
    preflight: bool = False
