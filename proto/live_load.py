"""The live events of a load: each second of it, and its transactions in the window so far."""

from __future__ import annotations

from typing import Literal

from proveout.core.data_classes import dataclass
from proveout.proto.iteration_id import IterationId


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadLine:
    """A second of one of several loads; response times are None when no transaction has one."""

    name: str
    tps: float
    p50_us: float | None
    p95_us: float | None
    p99_us: float | None
    errors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTick:
    """*live* A second of load, all agents merged; response times are None when no transaction has one.

    `loads`: each of several loads of the stage. Those that are beside the others are not in the total.
    """

    id: IterationId
    second: int
    window: Literal["ramp_up", "measure", "ramp_down"]
    tps: float
    avg_us: float | None
    p50_us: float | None
    p99_us: float | None
    errors: int
    p95_us: float | None = None
    loads: tuple[LoadLine, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionLine:
    """One transaction type in the window so far, all agents merged; response times in microseconds, 0 when none has
    ended."""

    name: str
    tps: float
    ok: int
    logical_failures: int
    errors: int
    p50_us: float
    p95_us: float
    p99_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionsTick:
    """*live* What the load has come to in the window that it is in, `seconds` after that began. Ramps do not count."""

    id: IterationId
    window: Literal["ramp_up", "measure", "ramp_down"]
    seconds: float
    transactions: tuple[TransactionLine, ...]
