"""What an operation is: one definition from which a plan is checked and explained, and a host is tuned, verified and reverted.

Data flow: the YAML block is the model's fields; `wanted` and `targets` need nothing else (`proveout explain`, conflicts at compile time);
`queries` and `changes` are asked on the host: facts in, a `Step` out. There is no apply, verify or revert to write: to apply is to
make the changes; to verify is to ask again with fresh facts and get none; to revert is to undo them in reverse order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from proveout.dsl.operations.change import Change, WriteFile
from proveout.dsl.operations.facts import Facts, Query
from proveout.dsl.source.nodes import Map, Scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What an operation comes to on a host.

    `refusals`: why it must not be done here; then nothing is changed. `restarts`: what is stored but not in effect, each with
    the step that is missing. No changes, no refusals, no restarts: the host is as wanted.
    """

    changes: tuple[Change, ...] = ()
    refusals: tuple[str, ...] = ()
    restarts: tuple[str, ...] = ()


class Operation(BaseModel, ABC):
    """A tuning operation. Subclasses are listed in `table.OPERATIONS`; their docstring and field descriptions are the reference."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    privileges: ClassVar[str]
    """What the agent must be able to do, for `explain`: "root: writes /proc/sys"; what it does as several, with `; ` between."""
    destructive: ClassVar[bool] = False
    """Whether it can destroy data: the tuning then needs `destructive: true`."""
    changing: ClassVar[bool] = True
    """Whether it changes anything; False for what only looks, and refuses the run where a host is not as wanted."""

    @classmethod
    def reshape(cls, block: Map) -> Map:
        """The block as the fields have it, where a plan writes it shorter; positions are kept."""
        return block

    @property
    def of_system(self) -> str | None:
        """The system of the plan that it tunes, which must run then; None for what tunes the host."""
        return None

    @property
    def lasting(self) -> str:
        """What stays on the host although all is undone: such a tuning needs `keep: true`. "" when nothing does."""
        return ""

    @abstractmethod
    def targets(self) -> Mapping[str, str]:
        """What it sets -> what to, in words: two tunings of one machine that set a target differently are in conflict."""

    @abstractmethod
    def wanted(self) -> tuple[str, ...]:
        """What a host is like afterwards, a line each, as far as it can be told without looking at the host."""

    @abstractmethod
    def queries(self, known: Facts) -> tuple[Query, ...]:
        """What must be known of the host; asked again with the answers until nothing new is asked. Pure."""

    @abstractmethod
    def changes(self, facts: Facts) -> Step:
        """What is to be changed, given all that was queried. Pure; nothing when the host is as wanted."""


def whole_file(  # noqa: PLR0917 - a file has that many attributes
    facts: Facts,
    path: str,
    content: bytes,
    mode: int = 0o644,
    owner: str = "root",
    group: str = "root",
    validator: str = "",
) -> Step:
    """The change that gives a file this content, mode, owner and group; a refusal where something other than a file is there."""
    before = facts.file(path)
    if before.kind not in ("absent", "file"):
        return Step(refusals=(f"{path} is a {before.kind}, not a file",))
    if before.exists and (before.content, before.mode, before.owner, before.group) == (content, mode, owner, group):
        return Step()
    change = WriteFile(
        path=path, content=content, mode=mode, owner=owner, group=group, validator=validator, before=before
    )
    return Step(changes=(change,))


def gathered(block: Map, is_setting: Callable[[str], bool]) -> Map:
    """The block with its settings beneath `settings`: `{system: db, work_mem: 64MB}` -> `{system: db, settings: {…}}`."""
    settings = tuple(entry for entry in block.entries if is_setting(entry[0].text))
    rest = tuple(entry for entry in block.entries if not is_setting(entry[0].text))
    key = Scalar(value="settings", text="settings", where=block.where)
    return Map(entries=((key, Map(entries=settings, where=block.where)), *rest), where=block.where)


def as_written(pattern: str, value: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
    """Rewrite the JSON Schema of an operation whose settings stand in the block itself."""

    def rewrite(schema: dict[str, Any]) -> None:
        schema["properties"].pop("settings", None)
        required = [name for name in schema.pop("required", []) if name != "settings"]
        schema |= {"required": required} if required else {}
        schema["patternProperties"] = {pattern: value}

    return rewrite
