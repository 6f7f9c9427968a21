"""Protocol between an agent and its load workers: frozen data in frames over stdin and stdout of the worker.

Flow: agent -> `Arm`, `Start`, `Settle`, `Stop` -> worker -> `Ready`, `Chunk` …, `Finished`, or `TaskError` for an
expected failure, after which the worker continues. A message is two frames: a record as `core.json_data.to_message`
writes it, and raw bytes (the times of a chunk). No pickle: a compromised worker can send wrong data, but cannot run
code in its agent. The dsn goes through the pipe, never through argv.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias

from proveout.agent.load.loop.recorder import Incident
from proveout.core.data_classes import record
from proveout.core.json_data import frame as framed
from proveout.core.json_data import from_plain, read_frame, read_frame_blocking, to_message
from proveout.proto.wire.results import TaskError
from proveout.proto.wire.tasks import RunLoad

if TYPE_CHECKING:
    import asyncio

HANDLING, CONNECTS, WAITS, RERUNS = -1, -2, -3, -4
"""Codes of a chunk that are not transactions."""
_PART_BYTES_MAX = 1 << 30

Ages: TypeAlias = tuple[tuple[int, tuple[int, ...], tuple[int, ...], int, int, int], ...]
"""Histograms of ns by transaction number: number, then the fields of `results.Histogram`."""
Unfinished: TypeAlias = tuple[int, int, int]
"""A transaction without an answer: number, intended, started. `UNCONNECTED`: a terminal without a connection since."""
UNCONNECTED = -1


@record
class Arm:
    """Connect and prepare the terminals `numbers` of a load of the run `run`; answer `Ready`. `connections`: of the
    load's pool of connections, if it has one."""

    spec: RunLoad
    numbers: tuple[int, ...]
    run: str = ""
    connections: int = 0


@record
class Start:
    """Run from T0 on (monotonic ns of this host)."""

    t0_ns: int


@record
class Stop:
    """Stop the load; answer `Finished` with the results so far."""


@record
class Settle:
    """Read the tracked commits back, as soon as the load has ended (`RunLoad.awaits_finish`)."""


@record
class Ready:
    """The worker is up, with everything imported; or after `Arm` connected and prepared."""


@record
class Chunk:
    """New records before `until_ns`: `codes`, and byte lengths of the triples in `times`, in order.

    The code `HANDLING` has the samples of `loop.client_delays`, also triples; the other codes below 0 have records of
    `loop.recorder` on sessions.
    """

    until_ns: int
    codes: tuple[tuple[int, int], ...]
    incidents: tuple[Incident, ...]
    times: bytes = b""


@record
class Finished:
    """The end of a load: over the whole load `committed` and `unknown` (see `LoadResult`), by transaction number.

    `missed`: the ages of the transactions due in the measure window and never begun, `missed_in_phases` in each of its
    phases, and `unfinished`: all transactions begun and not ended, all at `seen_ns`, after the wait at the end of the
    load.

    Also CPU of this process in the measure window, lost records, and the longest pause of the process in that window.
    `answers`, `stamped`, `runqueue_s`, `runqueue_fraction`: as in `results.Handling`, over the window; None if unknown.
    `waiting`: the oldest transactions without an answer at the end of the load, as (number, start in monotonic ns).
    `completed_ns`: when the last terminal had ended its passes, 0 when it had not, or without passes; `passes_s`: the
    time of each pass of each terminal. `acknowledged`: commits of tracked transactions, None where none are tracked;
    `readings`: what reading them back has found, the fields of `CommitReading` in monotonic ns.
    `server_starts_ms`: as in `LoadResult`. `pauses`: start and end, ns after the start of the measure window.
    """

    missed: Ages
    committed: tuple[tuple[int, int], ...]
    unknown: tuple[tuple[int, int], ...]
    cpu_s: float = 0.0
    cpu_window_s: float = 0.0
    start_skew_ns: int
    samples_lost: int
    first_errors: tuple[str, ...]
    pause_longest_ns: int = 0
    pauses: tuple[tuple[int, int], ...] = ()
    waiting: tuple[tuple[int, int], ...] = ()
    unfinished: tuple[Unfinished, ...] = ()
    seen_ns: int = 0
    answers: int = 0
    stamped: int = 0
    runqueue_s: float | None = None
    runqueue_fraction: float | None = None
    completed_ns: int = 0
    passes_s: tuple[float, ...] = ()
    missed_in_phases: tuple[Ages, ...] = ()
    acknowledged: int | None = None
    readings: tuple[tuple[int, ...], ...] = ()
    server_starts_ms: tuple[int, ...] = ()


ToWorker: TypeAlias = Arm | Start | Settle | Stop
FromWorker: TypeAlias = Ready | Chunk | Finished | TaskError
_FLAT: dict[str, Any] = {t.__name__: t for t in (Chunk, Finished)}
_TYPES = {t.__name__: t for t in (Arm, Start, Settle, Stop, Ready, TaskError)}


def encode(frame: ToWorker | FromWorker) -> bytes:
    """A frame as bytes."""
    return framed(to_message(frame, without="times")) + framed(getattr(frame, "times", b""))


def decode(head: bytes, blob: bytes) -> Any:
    """Decode a frame from its two parts. ValueError, KeyError or TypeError if it is not valid.

    Those that come often or are long are not looked through: their tuples become lists.
    """
    name, fields = json.loads(head)
    if name == "Chunk":
        fields["times"] = blob
        fields["incidents"] = tuple(Incident(*incident) for incident in fields["incidents"])
    return _FLAT[name](**fields) if name in _FLAT else from_plain(_TYPES[name], fields)


async def read(stream: asyncio.StreamReader) -> Any:
    """The next message; None at the end of the stream, also within a message."""
    head = await read_frame(stream, _PART_BYTES_MAX)
    blob = None if head is None else await read_frame(stream, _PART_BYTES_MAX)
    return None if head is None or blob is None else decode(head, blob)


def read_blocking(fd: int) -> Any:
    """The next message from a blocking descriptor; None at its end."""
    head = read_frame_blocking(fd)
    blob = None if head is None else read_frame_blocking(fd)
    return None if head is None or blob is None else decode(head, blob)
