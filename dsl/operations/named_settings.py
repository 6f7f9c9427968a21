"""Blocks that hold settings beside the operation's own fields: `{system: db, work_mem: 64MB}` -> `{system: db, settings: {…}}`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proveout.dsl.source.nodes import Map, Scalar


def gathered(block: Map, own: frozenset[str]) -> Map:
    """The block with all that is not the operation's own beneath `settings`; positions are kept."""
    settings = tuple(entry for entry in block.entries if entry[0].text not in own)
    rest = tuple(entry for entry in block.entries if entry[0].text in own)
    key = Scalar(value="settings", text="settings", where=block.where)
    return Map(entries=((key, Map(entries=settings, where=block.where)), *rest), where=block.where)


def as_written(pattern: str, value: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
    """For the JSON Schema: in a plan the settings stand in the block itself."""

    def rewrite(schema: dict[str, Any]) -> None:
        schema["properties"].pop("settings", None)
        schema["required"] = [name for name in schema.get("required", []) if name != "settings"]
        schema["patternProperties"] = {pattern: value}

    return rewrite
