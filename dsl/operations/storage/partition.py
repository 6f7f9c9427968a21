"""`partition`: a new GPT on an empty disk, each partition beginning at a whole MiB. Source: parted(8), wipefs(8),
blkid(8).

It destroys data, so a disk that holds anything is refused: a signature of any kind, a partition, something mounted or
swapped on it, a holder (LVM, md, device mapper). It is named by /dev/disk/by-id, as sdb is another disk after the next
boot. To undo it takes away the table's signatures and then, if no other program has written to the disk, writes back
what the table has taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from proveout.core.data_classes import dataclass
from proveout.dsl.operations.change import Command, KeepSpans, around
from proveout.dsl.operations.facts import Facts, Output, OutputQuery, Query
from proveout.dsl.operations.operation import Operation, Step
from proveout.dsl.operations.storage.disk import SECTOR, disk_queries, in_use, probe_argv, refusal, sys_folder
from proveout.dsl.schema.scalar_types import custom

PARTED, WIPEFS, PARTPROBE = "/usr/sbin/parted", "/usr/sbin/wipefs", "/usr/sbin/partprobe"
ALIGN = 1024 * 1024
ENTRIES = 128 * 128
"""Bytes: as many entries as every GPT has room for. Source: UEFI Specification, 5.3."""
_DEVICE = re.compile(r"/dev/disk/by-id/[A-Za-z0-9][A-Za-z0-9._:+-]*")
_PART = re.compile(r"-part\d+$")
_SIZE = re.compile(r"([1-9][0-9]{0,8})(MiB|GiB|TiB)")
_MIB = {"MiB": 1, "GiB": 1024, "TiB": 1024 * 1024}
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,35}")


def _device(value: str) -> str:
    if not _DEVICE.fullmatch(value) or _PART.search(value):
        raise custom(f"`{value}` does not name a whole disk for good: /dev/disk/by-id/NAME")
    return value


def _size(value: str) -> str:
    if not _SIZE.fullmatch(value):
        raise custom(f"`{value}` is not a size of a partition, as 15GiB or 512MiB")
    return value


def _name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise custom(f"`{value}` is not a name of a partition: a letter, then letters, digits and _, 36 at most")
    return value


class Part(BaseModel):
    """A partition."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)

    name: Annotated[str, AfterValidator(_name)] = Field(description="Its name in the table.")
    size: Annotated[str, AfterValidator(_size)] | None = Field(
        None, description="15GiB; the last one's may be left out: the rest."
    )

    @property
    def mib(self) -> int | None:
        """Its size; None is the rest."""
        found = _SIZE.fullmatch(self.size or "")
        return int(found[1]) * _MIB[found[2]] if found else None


@dataclass(frozen=True, slots=True)
class _Span:
    """Sectors of the disk's own size; the end is within."""

    name: str
    start: int
    end: int


Parts: TypeAlias = Annotated[list[Part], Field(min_length=1, max_length=64)]


class Partition(Operation):
    """Partitions of an empty disk: `{device: /dev/disk/by-id/…, partitions: [{name: redo, size: 15GiB}, {name:
    data}]}`."""

    device: Annotated[str, AfterValidator(_device)] = Field(description="The whole disk, by /dev/disk/by-id.")
    partitions: Parts = Field(description="From the beginning of the disk to its end, at whole MiB.")

    privileges = "root: writes partition tables"
    destructive = True

    @model_validator(mode="after")
    def _only_the_last_is_the_rest(self) -> Partition:
        if any(part.size is None for part in self.partitions[:-1]):
            raise custom("only the last partition may do without a size")
        return self

    def targets(self) -> Mapping[str, str]:
        """The table of the disk."""
        return {f"partitions of {self.device}": ", ".join(self._words())}

    def wanted(self) -> tuple[str, ...]:
        """The partitions, and when they are not made."""
        return (f"{self.device}: GPT with {', '.join(self._words())}", refusal("disk"))

    def _words(self) -> Iterator[str]:
        return (f"{part.name} {part.size or 'the rest'}" for part in self.partitions)

    # ---- facts -----------------------------------------------------------------------------------------------------

    def queries(self, known: Facts) -> tuple[Query, ...]:
        """The target of the name; then all that could be in use or on it."""
        found = disk_queries(self.device, known)
        if any(query not in known for query in found) or known.link(self.device) is None:
            return found
        return (*found, OutputQuery(self._print))

    @property
    def _print(self) -> tuple[str, ...]:
        return (PARTED, "--script", "--machine", self.device, "unit", "s", "print")

    # ---- changes ---------------------------------------------------------------------------------------------------

    def changes(self, facts: Facts) -> Step:
        """The table in one go; refused unless the disk is empty or is so already."""
        if facts.link(self.device) is None:
            return Step(refusals=(f"{self.device} is not there",))
        disk = sys_folder(self.device, facts)
        if facts.text(f"{disk}/size") is None:
            return Step(refusals=(f"{self.device} is not a whole disk",))
        spans = self._spans(facts, disk)
        if isinstance(spans, str):
            return Step(refusals=(spans,))
        if _table(facts.output(*self._print)) == spans:
            return Step()
        if refusals := tuple(in_use(self.device, facts)):
            return Step(refusals=refusals)
        made = Command(
            argv=self._argv(spans), undo=(WIPEFS, "--all", "--types", "gpt,PMBR", self.device), device=self.device
        )
        ends = KeepSpans(device=self.device, spans=_ends(facts, disk), probe=probe_argv(self.device))
        return Step(changes=around((ends, made), (PARTPROBE, self.device)))

    def _spans(self, facts: Facts, disk: str) -> list[_Span] | str:
        """The spans of the partitions; or, as text, the reason why they do not fit."""
        block = _block(facts, disk)
        mib = ALIGN // block
        whole = int(facts.text(f"{disk}/size") or 0) * SECTOR // ALIGN
        at, last = 1, whole - 1  # MiB; the second copy of the table lies at the end
        spans: list[_Span] = []
        for part in self.partitions:
            end = last if part.mib is None else at + part.mib
            if end > last or end <= at:
                return f"{self.device} has {whole} MiB, too little for {', '.join(self._words())}"
            spans.append(_Span(part.name, at * mib, end * mib - 1))
            at = end
        return spans

    def _argv(self, spans: list[_Span]) -> tuple[str, ...]:
        made = (word for span in spans for word in ("mkpart", span.name, f"{span.start}s", f"{span.end}s"))
        return (PARTED, "--script", self.device, "mklabel", "gpt", *made)


def _block(facts: Facts, disk: str) -> int:
    return int(facts.text(f"{disk}/queue/logical_block_size") or SECTOR)


def _ends(facts: Facts, disk: str) -> tuple[tuple[int, int], ...]:
    """The space of a GPT: a protective MBR and the header, a block each, with the entries; and at the end the entries
    and the header again."""
    block, size = _block(facts, disk), int(facts.text(f"{disk}/size") or 0) * SECTOR
    return (0, 2 * block + ENTRIES), (size - ENTRIES - block, ENTRIES + block)


def _table(output: Output) -> list[_Span]:
    """The partitions of a GPT in parted's output (`1:2048s:40959s:38912s::redo:;`); none of any other table."""
    lines = [line.strip().rstrip(";").split(":") for line in output.text.splitlines()]
    if output.code != 0 or not any(len(words) > 5 and words[5] == "gpt" for words in lines[1:2]):
        return []
    return [_Span(words[5], int(words[1][:-1]), int(words[2][:-1])) for words in lines[2:] if len(words) > 5]
