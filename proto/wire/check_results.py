"""The results of preflight checks, as agents send them."""

from __future__ import annotations

from proveout.core.data_classes import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFinding:
    """Something that a preflight check found: `subject` is its path in the plan, `line` that of a text, from 1, or 0.

    `code` is one of `FINDINGS`. With `warns` a run goes on.
    """

    code: str
    subject: str
    message: str
    way_out: str = ""
    line: int = 0
    warns: bool = False


PLAN_FINDINGS = frozenset({"statement", "setting", "connections"})
"""Findings of which the plan is the cause: a database refuses a part of it."""
FINDINGS = PLAN_FINDINGS | {
    "unreachable",
    "login",
    "rights",
    "table",
    "rows",
    "rate",
    "space",
    "capture",
    "missing",
    "tuning",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The result of a preflight check: everything that is wrong."""

    findings: tuple[CheckFinding, ...]
    seconds: float = 0.0
