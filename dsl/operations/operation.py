"""The contract of a tuning operation: one definition by which a plan is checked and explained, and a host is tuned and
reverted.

Data flow: the YAML block is the model's fields; `wanted` and `targets` need nothing else (`proveout explain`, conflicts
at compile time); `queries` and `changes` run on the host: facts in, a `Step` out. An operation has no code to apply,
verify or
revert: to apply is to make the changes; to verify is to compute them again from fresh facts and get none; to revert is
to undo them in reverse order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict

from proveout.core.data_classes import dataclass
from proveout.dsl.operations.change import Change, WriteFile
from proveout.dsl.operations.facts import Facts, Query
from proveout.dsl.plan.topology import Host, System
from proveout.dsl.source.nodes import Map, Scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The result of an operation on the facts of a host.

    `refusals`: why it must not be done here; then nothing is changed. `restarts`: settings that are stored but not in
    effect, each with the missing step. No changes, no refusals, no restarts: the host is as wanted.
    """

    changes: tuple[Change, ...] = ()
    refusals: tuple[str, ...] = ()
    restarts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """The reason that an operation cannot be used in a plan, and the way out."""

    message: str
    way_out: str = ""


class Operation(BaseModel, ABC):
    """A tuning operation. Subclasses are listed in `table.OPERATIONS`; their docstring and field descriptions are the
    reference."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)

    privileges: ClassVar[str]
    """The privileges that the agent needs, for `explain`: "root: writes /proc/sys"; several are separated by `; `."""
    destructive: ClassVar[bool] = False
    """Whether it can destroy data: the tuning then needs `destructive: true`."""
    of_fault: ClassVar[bool] = False
    """Whether it is only for `faults:`."""

    implied: ClassVar[bool] = False
    """Whether only the compiler adds it, for another key of a plan."""

    @classmethod
    def reshape(cls, block: Map) -> Map:
        """The block as the fields have it, where a plan writes it shorter; positions are kept."""
        return block

    @property
    def changing(self) -> bool:
        """Whether it changes anything; False for an operation that only checks, and refuses the run where a host is not
        as wanted."""
        return True

    @property
    def ends_by_itself(self) -> bool:
        """Whether, as a fault, it is over as soon as it is done (a restart): such a fault has no `for`."""
        return False

    @property
    def outlasts(self) -> bool:
        """Whether, as a fault, it stays in place until the load has ended, and the run then restores the roles."""
        return False

    @property
    def longest_s(self) -> float:
        """The time limit of its own programs together where they may take long, seconds, for the deadline of a task."""
        return 0.0

    @property
    def of_system(self) -> str | None:
        """The system of the plan that it tunes, which must run then; None when it tunes the host."""
        return None

    @property
    def selectors(self) -> Sequence[Sequence[str]]:
        """Selectors of hosts among its own keys, where these choose the hosts that it changes, and not `on`."""
        return ()

    def placed(self, groups: Sequence[Sequence[Host]], systems: Mapping[str, System]) -> Self | Misfit:
        """The operation with what it needs of the plan: the hosts of each of its `selectors`, and the systems by
        name."""
        del groups, systems
        return self

    @property
    def lasting(self) -> str:
        """Effects that stay on the host after undo: such a tuning needs `keep: true`. "" when there are none."""
        return ""

    def subject_of(self, statement: str) -> str:
        """The path of a statement below the tuning, `sql.apply.0`, where it is the plan's own text; else ""."""
        del statement
        return ""

    @abstractmethod
    def targets(self) -> Mapping[str, str]:
        """Target -> value, in words: two tunings of one machine that set a target differently are in conflict."""

    @abstractmethod
    def wanted(self) -> tuple[str, ...]:
        """The state of a host afterwards, in lines, as far as it can be predicted without looking at the host."""

    @abstractmethod
    def queries(self, known: Facts) -> tuple[Query, ...]:
        """The facts that it needs of the host; called again with the answers until it queries nothing new. Pure."""

    @abstractmethod
    def changes(self, facts: Facts) -> Step:
        """The changes to make, by the facts that were queried. Pure; none when the host is as wanted."""


def whole_file(  # noqa: PLR0917 - a file has that many attributes
    facts: Facts,
    path: str,
    content: bytes,
    mode: int = 0o644,
    owner: str = "root",
    group: str = "root",
    validator: str = "",
) -> Step:
    """The change that gives a file this content, mode, owner and group; a refusal where something other than a file is
    there."""
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
    """The block with its settings beneath `settings`: `{system: db, work_mem: 64MB}` -> `{system: db, settings:
    {…}}`."""
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
