"""Changes and originals as JSON in the undo journal. Reading gives exactly the objects that were written."""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Mapping
from typing import Any, get_args

from proveout.agent.errors import TaskFault
from proveout.agent.tuning.file_changes import Original
from proveout.dsl.operations.change import Change, RemoveFile, WriteFile
from proveout.dsl.operations.facts import ABSENT

_KINDS: Mapping[str, Any] = {kind.__dataclass_fields__["kind"].default: kind for kind in get_args(Change)}


def change_text(change: Change) -> str:
    """Encode a change, without the facts before it: the original contains them."""
    if isinstance(change, (WriteFile, RemoveFile)):
        change = dataclasses.replace(change, before=ABSENT)
    data = {field.name: getattr(change, field.name) for field in dataclasses.fields(change) if field.name != "before"}
    if not isinstance(change, (WriteFile, RemoveFile)) and hasattr(change, "before"):
        data["before"] = change.before
    return json.dumps(data, default=_bytes)


def change_of(text: str) -> Change:
    """Decode `change_text`. TaskFault `refused` for a kind of change that this version does not have."""
    data = json.loads(text, object_hook=_unbytes)
    kind = _KINDS.get(data["kind"])
    if kind is None:
        raise TaskFault(
            "refused",
            f"the undo journal has a change of kind {data['kind']!r}, which this version of proveout cannot undo",
            way_out="start an agent of the version that has made the change: it undoes it",
        )
    if kind in (WriteFile, RemoveFile):
        data["before"] = ABSENT
    change: Change = kind(**{name: _tuples(value) for name, value in data.items()})
    return change


def _tuples(value: object) -> object:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def original_text(original: Original | None) -> str:
    """Encode the original of a file; None for a change without an original."""
    return json.dumps(None if original is None else dataclasses.asdict(original), default=_bytes)


def original_of(text: str) -> Original | None:
    """Decode `original_text`."""
    data = json.loads(text, object_hook=_unbytes)
    return None if data is None else Original(**data)


def _bytes(value: object) -> object:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode("ascii")}
    raise TypeError(f"the undo journal cannot store a {type(value).__name__}")


def _unbytes(value: dict[str, Any]) -> Any:
    return base64.b64decode(value["base64"]) if set(value) == {"base64"} else value
