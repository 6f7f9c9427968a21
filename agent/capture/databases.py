"""The captures of databases, `waits`, `lag` and `sizes`: which observer an engine's adapter gives, and how often it
looks."""

from __future__ import annotations

from proveout.agent.capture.schedule import observe
from proveout.agent.capture.sizes import SizeObserver
from proveout.agent.daemon.tasks import TaskContext
from proveout.agent.engines.adapter import LOOK_EVERY_S, CapturesLag, CapturesSizes, CapturesWaits
from proveout.agent.engines.table import adapter
from proveout.agent.errors import TaskFault
from proveout.dsl import engines
from proveout.proto.wire.results import CaptureResult
from proveout.proto.wire.tasks import RunCapture


async def waits(context: TaskContext, spec: RunCapture) -> CaptureResult:
    """Sample wait events until finished. TaskFault when the system cannot be reached at the start; a later loss is only
    counted."""
    endpoint = spec.endpoints[0]
    engine = adapter(endpoint.engine)
    if not isinstance(engine, CapturesWaits):
        able = " and ".join(found.name for found in engines.ENGINES.values() if found.waits)
        what = f"capture {spec.capture.name!r}: waits are captured from {able}, not from {endpoint.engine}"
        raise TaskFault("invalid", what)
    return await observe(context, spec, lambda: engine.wait_observer(endpoint), poll_s=engine.wait_look_every_s)


async def sizes(context: TaskContext, spec: RunCapture) -> CaptureResult:
    """Read the sizes of tables until finished. TaskFault as `waits`."""
    endpoint = spec.endpoints[0]
    engine = adapter(endpoint.engine)
    if not isinstance(engine, CapturesSizes):
        able = engines.named(found for found in engines.ENGINES.values() if found.sizes)
        what = f"capture {spec.capture.name!r}: sizes are captured from {able}, not from {endpoint.engine}"
        raise TaskFault("invalid", what)
    return await observe(context, spec, lambda: SizeObserver(engine.size_catalogue(endpoint)))


async def lag(context: TaskContext, spec: RunCapture) -> CaptureResult:
    """Measure how far a sink is behind its source until finished: `endpoints` are both, in that order. TaskFault as
    `waits`."""
    source, sink = spec.endpoints if len(spec.endpoints) == 2 else (spec.endpoints[0],) * 2
    engine = adapter(source.engine)
    able = source is not sink and engines.has_lag(source.engine, sink.engine)
    if not (able and isinstance(engine, CapturesLag)):
        ends = "a source and its sink, or a primary and its standby"
        what = f"capture {spec.capture.name!r}: lag is captured between two systems, {ends}"
        raise TaskFault("invalid", what)
    return await observe(context, spec, lambda: engine.lag_observer(source, sink), poll_s=LOOK_EVERY_S)
