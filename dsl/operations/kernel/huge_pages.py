"""`huge_pages`: the pool of huge pages of a host. Source: Documentation/admin-guide/mm/hugetlbpage of Linux."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from proveout.dsl.operations.change import SetText
from proveout.dsl.operations.facts import Facts, Query, TextQuery
from proveout.dsl.operations.operation import Operation, Step

MEMINFO = "/proc/meminfo"
SHARE_MAX = 0.95
"""Of the host's memory; the rest is the kernel's, the agent's and the page tables'."""
_KIB: Mapping[str, int] = {"2MiB": 2048, "1GiB": 1024 * 1024}
_LINE = re.compile(r"^(\w+):\s+(\d+)", re.M)


class HugePages(Operation):
    """The number of huge pages that a host keeps: `{pages: 512}`."""

    pages: int = Field(ge=0, le=2**31, description="The number of pages.")
    size: Literal["2MiB", "1GiB"] | None = Field(
        None, description="Of which size; by default the host's own (vm.nr_hugepages)."
    )

    privileges = "root: sets the number of huge pages"

    @property
    def _path(self) -> str:
        if self.size is None:
            return "/proc/sys/vm/nr_hugepages"
        return f"/sys/kernel/mm/hugepages/hugepages-{_KIB[self.size]}kB/nr_hugepages"

    def targets(self) -> Mapping[str, str]:
        """The same as the kernel parameter's, where it is that."""
        name = "sysctl vm.nr_hugepages" if self.size is None else f"huge pages of {self.size}"
        return {name: str(self.pages)}

    def wanted(self) -> tuple[str, ...]:
        """The number of pages, the memory that they take, and the program that uses it."""
        gib = self.pages * _KIB[self.size or "2MiB"] / 1024**2
        size, where = (self.size, "") if self.size else ("the host's default size", " where that is 2MiB")
        taken = ("a server that runs already takes them up when it is started again",) if self.pages else ()
        return (f"{self.pages:,} huge pages of {size}: {gib:,.6g} GiB{where}", *taken)

    def queries(self, known: Facts) -> tuple[Query, ...]:
        """The current number of pages, and the memory of the host."""
        return (TextQuery(self._path), TextQuery(MEMINFO))

    def changes(self, facts: Facts) -> Step:
        """Refused where it would take nearly all of the memory. Whether the kernel found the pages shows only on
        verification."""
        now = facts.text(self._path)
        if now is None:
            return Step(refusals=(f"this kernel has no huge pages of {self.size or 'any size'} ({self._path})",))
        memory = {name: int(number) for name, number in _LINE.findall(facts.text(MEMINFO) or "")}
        size_kib = _KIB[self.size] if self.size else memory.get("Hugepagesize", 0)
        total_kib = memory.get("MemTotal", 0)
        if self.pages * size_kib > SHARE_MAX * total_kib:
            wanted, there = self.pages * size_kib / 1024**2, total_kib / 1024**2
            return Step(
                refusals=(
                    f"{self.pages} huge pages are {wanted:,.1f} GiB, but this host has {there:,.1f} GiB of memory",
                )
            )
        if now == str(self.pages):
            return Step()
        return Step(changes=(SetText(path=self._path, before=now, after=str(self.pages), adjusted=True),))
