"""Ladders that took turns, as the recorded plan has them. Pure.

Data flow: `RunStarted.plan` -> `block_of`, the block of a ladder by which estimates are compared in pairs, and
`alone_ladders`, those that ran one of several loads alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from proveout.proto.events import RunStarted


def block_of(run: RunStarted | None, stage: str) -> str:
    """The block of a stage, `run id/first ladder`: the same for all ladders that ran interleaved; "" outside a block.

    The run is part of it, so that estimates of two runs of one plan are never paired.
    """
    if run is None or not isinstance(run.plan, Mapping):
        return ""
    partners = {data.get("id", ""): data.get("interleaved_with") for data in run.plan.get("stages", ())}
    first = {name: name for name in partners}
    for name, partner in partners.items():  # a ladder follows the one that it takes turns with
        if partner is not None:
            first[name] = first.get(partner, partner)
    leader = first.get(stage, "")
    return f"{run.run_id}/{leader}" if sum(one == leader for one in first.values()) > 1 else ""


def alone_ladders(run: RunStarted | None) -> Iterator[tuple[str, str, str]]:
    """(ladder, load, ladder of that load alone) of the recorded plan, in its order."""
    if run is None or not isinstance(run.plan, Mapping):
        return
    for stage in run.plan.get("stages", ()):
        if stage.get("alone"):
            yield stage["interleaved_with"], stage["alone"], stage["id"]
