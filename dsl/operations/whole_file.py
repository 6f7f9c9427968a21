"""A file that an operation owns from its first byte to its last: what it takes to make it so."""

from __future__ import annotations

from proveout.dsl.operations.change import WriteFile
from proveout.dsl.operations.facts import Facts
from proveout.dsl.operations.operation import Step


def whole_file(  # noqa: PLR0917 - a file has that many sides
    facts: Facts,
    path: str,
    content: bytes,
    mode: int = 0o644,
    owner: str = "root",
    group: str = "root",
    validator: str = "",
) -> Step:
    """The change that makes the file so, if it is not; refused where something else than a file is in its place."""
    before = facts.file(path)
    if before.kind not in ("absent", "file"):
        return Step(refusals=(f"{path} is a {before.kind}, not a file",))
    if before.exists and (before.content, before.mode, before.owner, before.group) == (content, mode, owner, group):
        return Step()
    change = WriteFile(
        path=path, content=content, mode=mode, owner=owner, group=group, validator=validator, before=before
    )
    return Step(changes=(change,))
