"""Run events as JSON and back, strictly: an event means the same to every later reader of the journal.

Data flow: event -> `encode` -> `{"type": …, …}` text -> `decode` -> the same event (see `json_data`); `recorded_plan`
likewise returns the plan that `RunStarted` holds. Text that this version would not write is a `JournalFault`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, get_args

from proveout.core.errors import ProveoutError
from proveout.core.json_data import from_plain, to_plain
from proveout.dsl.plan.plan import Plan, to_data
from proveout.proto.events import Event

VERSION = 2
"""Of the journal's format: events with hashes (`chain`)."""
UNCHECKED_VERSION = 1
"""Events without hashes, which 0.1 wrote."""
DEPTH_MAX = 100
"""The maximum nesting of lists and objects in an event; plans have about 20 levels."""
_TYPES: Mapping[str, type] = {kind.__name__: kind for kind in get_args(Event)}


class JournalFault(ProveoutError):
    """A journal that cannot be used."""


def encode(event: Event) -> str:
    """One line of JSON."""
    data = {"type": type(event).__name__, **to_plain(event)}
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False)


def decode(text: str) -> Event:
    """The event that `encode` was given. JournalFault."""
    try:
        data = load_bounded(text)
        event: Event = from_plain(_TYPES[data.pop("type")], data)
    except (ValueError, TypeError, KeyError, AttributeError, StopIteration, RecursionError) as fault:
        raise _unknown("an event", fault) from fault
    return event


def load_bounded(text: str | bytes) -> Any:
    """JSON of a file that may be damaged. ValueError also when it is nested deeper than DEPTH_MAX."""
    try:
        data = json.loads(text)
    except RecursionError:
        raise ValueError(f"nested deeper than {DEPTH_MAX}") from None
    level = [data]
    for _ in range(DEPTH_MAX):
        level = [item for holder in level for item in _members(holder) if isinstance(item, (dict, list))]
        if not level:
            return data
    raise ValueError(f"nested deeper than {DEPTH_MAX}")


def _members(holder: Any) -> Iterable[Any]:
    match holder:
        case dict():
            return holder.values()
        case list():
            return holder
        case _:
            return ()


def recorded_plan(data: Any) -> Plan:
    """The plan that `plan.to_data(plan, positions=True)` was given. JournalFault."""
    try:
        return from_plain(Plan, _with_levels(data))
    except (ValueError, TypeError, KeyError, AttributeError, StopIteration, RecursionError) as fault:
        raise _unknown("the recorded plan", fault) from fault


def _with_levels(data: Any) -> Any:
    """A recorded plan with the arrival of its ramps as levels: earlier versions recorded the two rates."""
    stages = [
        {**stage, "arrival": _level_of(stage)} if stage.get("arrival", {}).get("kind") == "ramp" else stage
        for stage in data["stages"]
    ]
    return {**data, "stages": stages}


def _level_of(stage: dict[str, Any]) -> dict[str, Any]:
    ramp, measure_s = stage["arrival"], stage["windows"]["measure_s"]
    level = {"for_s": measure_s, "at_s": [0.0, measure_s], "values": [ramp["rate_from"], ramp["rate_to"]]}
    return {"levels": [level], "of": "rate", "distribution": ramp["distribution"], "think": None, "kind": "phased"}


def plan_data(plan: Plan) -> Any:
    """The plan as `RunStarted` records it, positions and all."""
    return to_data(plan, positions=True)


def _unknown(what: str, fault: Exception) -> JournalFault:
    return JournalFault(
        f"{what} is not as this version writes it: {fault}", way_out="Use the version of proveout that made the run."
    )
