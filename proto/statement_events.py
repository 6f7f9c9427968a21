"""The statements of a system in the measure window of an iteration, as events keep them."""

from __future__ import annotations

from proveout.core.data_classes import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementLine:
    """One of the statements that took the most time in a measure window.

    `id` is the server's; `text` has placeholders for constants. `seconds` in the server, over all `calls`;
    `time_fraction` of the time of all statements. `plan`: its steps, one a line, indented by depth; "" where there is
    none, with the reason in `no_plan`. `shape`: the plan without numbers, which is compared.
    """

    system: str
    id: str
    text: str
    calls: float
    seconds: float
    rows: float
    avg_us: float
    time_fraction: float
    plan: str = ""
    shape: str = ""
    no_plan: str = ""
