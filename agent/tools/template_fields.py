"""The fields of a program's arguments for one iteration and one client host, and its environment. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from proveout.agent.errors import TaskFault
from proveout.agent.tools.target_address import Address
from proveout.dsl.workloads.program.parameters import ENVIRONMENT, TARGET, Program, minutes_problem
from proveout.proto.wire.tasks import LoadShare, RunLoad

PASSWORD_FILE = "password"  # noqa: S105 - a file's name
KEY_PARTS = 7


def checked(spec: RunLoad, model: Program) -> None:
    """Refuse what a program cannot do, as the compiler does. TaskFault `invalid`."""
    share = spec.share
    if share.think_s is not None or spec.session or spec.pool.kind != "local":
        raise TaskFault("invalid", "a program makes its own connections: no think time, settings or pool")
    if share.levels or spec.windows.phases or spec.windows.passes:
        raise TaskFault("invalid", "a program has one rate, and windows of a fixed length")
    has_rate = bool(model.fields & {"rate", "total_rate"})
    if has_rate != (share.rate is not None):
        raise TaskFault("invalid", "a rate of the stage and the field {rate} of the program belong together")
    if problem := minutes_problem(model, spec.windows.ramp_up_s, spec.windows.measure_s):
        raise TaskFault("invalid", problem)


def load_fields(
    key: str, spec: RunLoad, model: Program, target: Address, *, folder: Path, seconds: float
) -> Mapping[str, str]:
    """The value of each field; `key` is that of the task, `seconds` the length of this run. TaskFault `invalid` for a
    field that the arguments have and that has no value."""
    share, windows = spec.share, spec.windows
    parts = key.split("/")
    stage, rung, repeat, attempt = parts[1:5] if len(parts) >= KEY_PARTS else ("", "", "", "")
    first, last = _range(model.range, share) if model.range else ("", "")
    found = {
        "threads": str(share.count),
        "total_threads": str(share.total),
        "first_thread": str(share.first),
        "rate": "" if share.rate is None else _plain(share.rate * share.count / share.total),
        "total_rate": "" if share.rate is None else _plain(share.rate),
        "range_from": first,
        "range_to": last,
        "seconds": str(math.ceil(seconds)),
        "ramp_up_s": str(math.ceil(windows.ramp_up_s)),
        "measure_s": str(math.ceil(windows.measure_s)),
        "ramp_down_s": str(math.ceil(windows.ramp_down_s)),
        "ramp_up_min": str(math.ceil(windows.ramp_up_s / 60.0)),
        "measure_min": str(math.ceil(windows.measure_s / 60.0)),
        "stage": stage,
        "rung": rung,
        "repeat": repeat,
        "attempt": attempt,
        "seed": str(spec.seed % 2**31),
        **{name: target.fields.get(name, "") for name in TARGET},
        "password_file": str(folder / PASSWORD_FILE) if target.password else "",
    }
    lacking = sorted(name for name in model.fields if not found[name])
    if lacking:
        what = f"the field {{{lacking[0]}}} has no value: the dsn of system {spec.endpoint.system!r} does not give it"
        raise TaskFault("invalid", what, way_out="leave the field away, or give the dsn of the system that part")
    return found


def variables(values: Mapping[str, str], target: Address, folder: Path) -> dict[str, str]:
    """The environment of the program: each field, the password, the folder, and the variables of database clients."""
    own = {f"{ENVIRONMENT}{name.upper()}": value for name, value in values.items() if value}
    own[f"{ENVIRONMENT}FOLDER"] = str(folder)
    if target.password:
        own[f"{ENVIRONMENT}PASSWORD"] = target.password
    return {**own, **{name: value for name, value in target.variables.items() if value}}


def _range(whole: tuple[int, int], share: LoadShare) -> tuple[str, str]:
    """The first and the last key of this host, by the share of its threads."""
    low, high = whole
    count = high - low + 1
    first = low + count * share.first // share.total
    last = low + count * (share.first + share.count) // share.total - 1
    if last < first:
        raise TaskFault("invalid", f"a range of {count} keys gives a host of {share.count} threads none")
    return str(first), str(last)


def _plain(rate: float) -> str:
    """A rate without exponent."""
    return f"{rate:.6f}".rstrip("0").rstrip(".")
