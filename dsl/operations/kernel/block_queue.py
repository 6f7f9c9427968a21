"""`block_queue`: how the kernel queues requests to disks, below /sys/block/*/queue. Source:
Documentation/block/queue-sysfs of Linux."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from proveout.dsl.operations.change import SetText
from proveout.dsl.operations.facts import Facts, PathsQuery, Query, TextQuery
from proveout.dsl.operations.operation import Operation, Step
from proveout.dsl.schema.scalar_types import OrOne, custom, one_or_many

_PATTERN = re.compile(r"[A-Za-z0-9!_*?.\[\]-]{1,64}")
_NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")
SCHEDULER, REQUESTS, READ_AHEAD = "scheduler", "nr_requests", "read_ahead_kb"
NUMBERS = ("rotational", "rq_affinity", "nomerges", "nr_requests", "read_ahead_kb")


def _pattern(value: str) -> str:
    name = value.removeprefix("/dev/")
    if not _PATTERN.fullmatch(name) or name in (".", "..") or name.startswith("-"):
        raise custom(f"`{value}` is not the name of a disk in /sys/block, nor a pattern: sdb, sd[b-e], dm-*, nvme*n1")
    return name


def _scheduler(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise custom(f"`{value}` is not the name of an I/O scheduler: none, mq-deadline, kyber, bfq")
    return value


Devices: TypeAlias = Annotated[
    list[Annotated[str, AfterValidator(_pattern)]],
    Field(min_length=1, max_length=200),
    BeforeValidator(one_or_many),
    OrOne(),
]
Schedulers: TypeAlias = Annotated[
    list[Annotated[str, AfterValidator(_scheduler)]], Field(max_length=8), BeforeValidator(one_or_many), OrOne()
]


class BlockQueue(Operation):
    """The request queues of disks: `{devices: "sd[b-e]", scheduler: none, nr_requests: 128}`."""

    devices: Devices = Field(description="Names in /sys/block, or patterns of them.")
    scheduler: Schedulers = Field(
        [],
        description="The I/O scheduler; of several, the first that the kernel offers: `[none, noop]` means no "
        "scheduler on new and on old kernels.",
    )
    rotational: Annotated[int, Field(ge=0, le=1)] | None = Field(None, description="Whether it turns: 0 or 1.")
    rq_affinity: Annotated[int, Field(ge=0, le=2)] | None = Field(
        None, description="CPU on which a request is completed: 0 any, 1 on the CPU group that asked, 2 on that CPU."
    )
    nomerges: Annotated[int, Field(ge=0, le=2)] | None = Field(
        None, description="Merging of requests: 0 all, 1 the cheap ones, 2 none."
    )
    nr_requests: Annotated[int, Field(ge=4, le=100_000)] | None = Field(None, description="Requests in the queue.")
    read_ahead_kb: Annotated[int, Field(ge=0, le=1_048_576, multiple_of=4)] | None = Field(
        None, description="Read-ahead, KiB: whole pages."
    )

    privileges = "root: writes /sys/block"

    @model_validator(mode="after")
    def _sets_something(self) -> BlockQueue:
        if not any(True for _ in self._settings()):
            raise custom(f"nothing is to be set: give {SCHEDULER}, {', '.join(NUMBERS)}")
        return self

    def targets(self) -> Mapping[str, str]:
        """Each attribute of each pattern."""
        return {f"{name} of {device}": value for device in self.devices for name, value in self._settings()}

    def wanted(self) -> tuple[str, ...]:
        """The attributes."""
        settings = ", ".join(f"{name} {value}" for name, value in self._settings()) or "nothing is set"
        return (f"{', '.join(self.devices)}: {settings}",)

    def _settings(self) -> Iterator[tuple[str, str]]:
        if self.scheduler:
            yield SCHEDULER, ", else ".join(self.scheduler)
        for name in NUMBERS:
            value = getattr(self, name)
            if value is not None:
                yield name, str(value)

    def queries(self, known: Facts) -> tuple[Query, ...]:
        """The disks that match, the attributes of each, and what another scheduler would change."""
        patterns = tuple(PathsQuery(_queue(device)) for device in self.devices)
        if any(query not in known for query in patterns):
            return patterns
        texts = tuple(TextQuery(f"{queue}/{name}") for queue in self._queues(known) for name, _ in self._settings())
        if any(query not in known for query in texts):
            return (*patterns, *texts)
        lengths = (TextQuery(f"{queue}/{REQUESTS}") for queue in self._queues(known) if self._switches(queue, known))
        listings = tuple(PathsQuery(along[0]) for queue in self._queues(known) if (along := self._along(queue, known)))
        tunables = (TextQuery(path) for one in listings if one in known for path in known.paths(one.pattern))
        return (*patterns, *texts, *lengths, *listings, *tunables)

    def _switches(self, queue: str, facts: Facts) -> bool:
        """Whether the disk is given another scheduler."""
        text = facts.text(f"{queue}/{SCHEDULER}") if self.scheduler else None
        return text is not None and self._offered(text) not in (None, _current(text))

    def _along(self, queue: str, facts: Facts) -> tuple[str, tuple[str, str]] | None:
        """(pattern of the scheduler's own attributes that the kernel resets, the attribute and text that come back
        before them)."""
        if self._switches(queue, facts):
            path = f"{queue}/{SCHEDULER}"
            return f"{queue}/iosched/*", (path, _current(facts.text(path) or ""))
        path = f"{queue}/{REQUESTS}"
        length = facts.text(path) if self.nr_requests is not None else None
        return (f"{queue}/iosched/async_depth", (path, length)) if length not in (None, str(self.nr_requests)) else None

    def _own_of_scheduler(self, queue: str, facts: Facts) -> Iterator[SetText]:
        """The changes on undo, which run last, because the length of the queue depends on the scheduler."""
        along = self._along(queue, facts)
        for path in facts.paths(along[0]) if along else ():
            if along and (text := facts.text(path)):
                yield SetText(path=path, before=text, after="", part="undo", only_if=along[1])

    def _queues(self, facts: Facts) -> tuple[str, ...]:
        found = (path for device in self.devices for path in facts.paths(_queue(device)))
        return tuple(dict.fromkeys(found))

    def changes(self, facts: Facts) -> Step:
        """The attributes that differ, disk by disk; a pattern that matches nothing is refused."""
        missing = [device for device in self.devices if not facts.paths(_queue(device))]
        refusals = [f"this host has no disk {device} (/sys/block)" for device in missing]
        changes: list[SetText] = []
        for queue in self._queues(facts):
            try:
                changes += self._of(queue, facts)
            except _Refused as refused:
                refusals.append(str(refused))
        return Step(changes=tuple(changes), refusals=tuple(refusals))

    def _of(self, queue: str, facts: Facts) -> Iterator[SetText]:
        """The scheduler first: with another scheduler the kernel resets the length of the queue, also on undo, and the
        scheduler's own attributes."""
        yield from self._own_of_scheduler(queue, facts)
        anew = self._switches(queue, facts)
        if anew and (length := facts.text(f"{queue}/{REQUESTS}")) is not None:
            was = (f"{queue}/{SCHEDULER}", _current(facts.text(f"{queue}/{SCHEDULER}") or ""))
            yield SetText(path=f"{queue}/{REQUESTS}", before=length, after="", part="undo", only_if=was)
        for name, wanted in self._settings():
            path = f"{queue}/{name}"
            text = facts.text(path)
            if text is None:
                raise _Refused(f"this disk has no {name} ({path})")
            now, value = _current(text), wanted
            if name == SCHEDULER:
                value = self._offered(text) or ""
            if not value:
                offered = ", ".join(_choices(text))
                raise _Refused(
                    f"the kernel offers no scheduler {' or '.join(self.scheduler)} there, but {offered} ({path})"
                )
            if anew and name == REQUESTS:
                yield SetText(path=path, before=now, after=value, part="make")
            elif now != value:
                yield SetText(path=path, before=now, after=value, adjusted=name == READ_AHEAD)

    def _offered(self, text: str) -> str | None:
        return next((name for name in self.scheduler if name in _choices(text)), None)


class _Refused(Exception):
    """The reason why a disk cannot have these settings."""


def _queue(device: str) -> str:
    return f"/sys/block/{device}/queue"


def _choices(text: str) -> list[str]:
    return text.replace("[", "").replace("]", "").split()


def _current(text: str) -> str:
    """The value, or of several choices the one in brackets."""
    chosen = re.search(r"\[([^\]]*)\]", text)
    return chosen[1] if chosen else text
