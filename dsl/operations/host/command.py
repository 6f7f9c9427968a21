"""`command`: programs of the host that no other operation is there for, with a check that shows whether they are needed
and whether they worked.

Programs and arguments are the plan's own, so none of the checks of the other operations protects the host: the policy
must list each of them under `tools` with a reason. What applies and reverts may run twice (after a crash it is unknown
whether it ran), so both have to be written that way.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Annotated, Self, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from proveout.core import units
from proveout.dsl.operations.change import Command
from proveout.dsl.operations.facts import Facts, LinkQuery, OutputQuery, Query
from proveout.dsl.operations.operation import Operation, Step
from proveout.dsl.operations.types import AbsolutePath, Line
from proveout.dsl.schema.scalar_types import custom

DAY_S = 86_400.0
_PLACE = re.compile(r"/dev/[A-Za-z0-9][A-Za-z0-9._:+@/-]*")


def _argv(words: list[str]) -> list[str]:
    if words[0].rpartition("/")[0] == "" or not words[0].startswith("/"):
        raise custom(f"`{words[0]}` is not the absolute path of a program")
    if "/../" in f"{words[0]}/" or "//" in words[0] or words[0].endswith("/"):
        raise custom(f"`{words[0]}` is not a plain path: no `..`, `//` or `/` at the end")
    if any("${secrets." in word for word in words):
        raise custom("a secret cannot be an argument: every user of a host can read the arguments of its programs")
    return words


def _place(path: str) -> str:
    if not _PLACE.fullmatch(path):
        raise custom(f"`{path}` is not a path below /dev")
    return path


def _within(value: str) -> str:
    try:
        seconds = units.duration_s(value)
    except ValueError as error:
        raise custom(str(error)) from None
    if not 0.0 < seconds <= DAY_S:
        raise custom(f"{value} is out of bounds: a program runs for more than 0s and at most 1d")
    return value


Argv: TypeAlias = Annotated[list[Line], Field(min_length=1, max_length=100), AfterValidator(_argv)]
Argvs: TypeAlias = Annotated[list[Argv], Field(max_length=20)]


class Verify(BaseModel):
    """The check that shows that nothing is left to do: devices that are there, or a program that succeeds."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)

    run: Argv | None = Field(None, description="A program that changes nothing: its exit code must be 0.")
    prints: Line | None = Field(None, description="A text that its output must hold too.")
    exists: Annotated[list[Annotated[AbsolutePath, AfterValidator(_place)]], Field(max_length=200)] = Field(
        [], description="Paths below /dev that must be there."
    )

    @model_validator(mode="after")
    def _checks_something(self) -> Self:
        if self.run is None and not self.exists:
            raise custom("nothing is checked: give `run`, `exists` or both")
        if self.prints is not None and self.run is None:
            raise custom("`prints` is about the output of `run`, which is missing")
        return self


class HostCommand(Operation):
    """Programs that change the host where a check does not hold: `{verify: {exists: [/dev/mapper/fcion1p2]}, apply:
    [[/usr/sbin/partprobe, /dev/mapper/fcion1]]}`. Without `apply` it only checks."""

    verify: Verify = Field(description="The check: it runs before the programs and after them.")
    apply: Argvs = Field([], description="Programs with their arguments, in order, where the check does not hold.")
    revert: Argvs = Field(
        [], description="Programs that undo it; they may run where there is nothing to undo. Without any, `keep: true`."
    )
    within: Annotated[str, AfterValidator(_within)] = Field("60s", description="The time limit of each program.")

    privileges = "root: starts programs of the plan"

    @model_validator(mode="after")
    def _applies_what_it_reverts(self) -> Self:
        if self.revert and not self.apply:
            raise custom("`revert` undoes `apply`, which is missing")
        return self

    @property
    def changing(self) -> bool:
        """Whether it has programs to apply."""
        return bool(self.apply)

    @property
    def lasting(self) -> str:
        """The effect of its programs, where none undoes it."""
        return f"what {shlex.join(self.apply[0])} does" if self.apply and not self.revert else ""

    @property
    def longest_s(self) -> float:
        """The limits of its programs: they may all be undone too, and the check runs three times."""
        return units.duration_s(self.within) * (3 + len(self.apply) + len(self.revert))

    def targets(self) -> Mapping[str, str]:
        """The check."""
        return {f"command {self._check}": "; ".join(map(shlex.join, self.apply))}

    @property
    def _check(self) -> str:
        words = [f"{path} is there" for path in self.verify.exists]
        if self.verify.run is not None:
            prints = f" and prints {self.verify.prints!r}" if self.verify.prints is not None else ""
            words.append(f"{shlex.join(self.verify.run)} succeeds{prints}")
        return ", ".join(words)

    def wanted(self) -> tuple[str, ...]:
        """The check and the programs."""
        head = self._check if self.apply else f"must hold, or the run ends: {self._check}"
        return (head, *(f"  by {shlex.join(argv)}" for argv in self.apply))

    def queries(self, known: Facts) -> tuple[Query, ...]:
        """The paths, and the output of the check."""
        places = tuple(LinkQuery(path) for path in self.verify.exists)
        return (*places, self._query) if self.verify.run is not None else places

    @property
    def _query(self) -> OutputQuery:
        return OutputQuery(tuple(self.verify.run or ()), of_plan=True, within_s=units.duration_s(self.within))

    def changes(self, facts: Facts) -> Step:
        """All programs, where the check does not hold."""
        missing = tuple(self._missing(facts))
        if not missing:
            return Step()
        if not self.apply:
            return Step(refusals=missing)
        # The first change is undone last, so the programs that undo stand in reverse.
        undo = (self._command(undo=argv) for argv in reversed(self.revert))
        return Step(changes=(*undo, *(self._command(argv=argv) for argv in self.apply)))

    def _command(self, argv: Sequence[str] = (), undo: Sequence[str] = ()) -> Command:
        return Command(argv=tuple(argv), undo=tuple(undo), of_plan=True, within_s=units.duration_s(self.within))

    def _missing(self, facts: Facts) -> list[str]:
        found = [f"{path} is not there" for path in self.verify.exists if facts.link(path) is None]
        if self.verify.run is None:
            return found
        output, program = facts.answer(self._query), shlex.join(self.verify.run)
        if output.code != 0:
            last = (output.text.strip().splitlines() or ["no message"])[-1][:300]
            return [*found, f"{program} ends with exit code {output.code}: {last}"]
        if self.verify.prints is not None and self.verify.prints not in output.text:
            return [*found, f"{program} does not print {self.verify.prints!r}"]
        return found
