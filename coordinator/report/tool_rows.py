"""The numbers of `tool` stages as rows of text: what terminal, Markdown and the figure's table show. Pure; no layout.

Data flow: `RunResults` -> the stages that have a valid iteration -> one `IoRow` a rung, and of the best rung one a host.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from proveout.coordinator.report.tables import peak, read
from proveout.coordinator.results.results import RunResults, StageResult
from proveout.core.numbers import microseconds, number, safe

HEADS = ("I/O depth", "IOPS", "CI ±", "read MB/s", "write MB/s", "avg", "p50", "p99", "max", "errors", "repeats")
NODE_HEADS = ("host", "IOPS", "CI ±", "MB/s", "avg", "p50", "p99", "max", "errors")
_LATENCIES = ("avg_us", "p50_us", "p99_us", "max_us")


@dataclass(frozen=True, slots=True, kw_only=True)
class IoRow:
    """A rung: means over the repeats, None where there is nothing. `half_iops` is half the confidence interval's width."""

    depth: int
    iops: float | None
    half_iops: float | None
    lower: float | None
    upper: float | None
    read_mb_per_s: float | None
    write_mb_per_s: float | None
    mb_per_s: float | None
    response_us: Mapping[str, float | None]
    errors: float | None
    repeats: int
    excluded: int

    def cells(self) -> tuple[str, ...]:
        """As text, under `HEADS`."""
        return (
            str(self.depth),
            number(self.iops),
            number(self.half_iops),
            number(self.read_mb_per_s),
            number(self.write_mb_per_s),
            *(microseconds(self.response_us[name]) for name in _LATENCIES),
            number(self.errors),
            f"{self.repeats}" + (f" ({self.excluded} invalid)" if self.excluded else ""),
        )


def tools(results: RunResults) -> list[StageResult]:
    """The tool stages that have a valid iteration, in the order they ran."""
    return [stage for stage in results.stages.values() if stage.kind == "tool" and peak(stage) is not None]


def title(results: RunResults, stage: StageResult) -> str:
    """`rand4k: fio random-read-4k on store1, store2`."""
    plan = results.plan_stage(stage.id)
    hosts = ", ".join(str(host) for host in plan.get("clients", ()))
    return safe(f"{stage.id}: {plan.get('program', 'fio')} {plan.get('pattern', '')} on {hosts}")


def io_rows(stage: StageResult) -> list[IoRow]:
    """One row a rung."""
    found = []
    for rung in stage.rungs:
        bounds = rung.tree.get("iops", {})
        lower, upper = bounds.get("lower"), bounds.get("upper")
        found.append(
            IoRow(
                depth=rung.threads,
                iops=read(rung.tree, "iops"),
                half_iops=None if lower is None or upper is None else (upper - lower) / 2.0,
                lower=lower,
                upper=upper,
                read_mb_per_s=read(rung.tree, "read", "mb_per_s"),
                write_mb_per_s=read(rung.tree, "write", "mb_per_s"),
                mb_per_s=read(rung.tree, "mb_per_s"),
                response_us={name: read(rung.tree, "response", name) for name in _LATENCIES},
                errors=read(rung.tree, "errors", "count"),
                repeats=len(rung.iterations),
                excluded=len(rung.excluded),
            )
        )
    return found


def node_rows(stage: StageResult) -> Iterator[tuple[str, ...]]:
    """The hosts of the best rung as text, under `NODE_HEADS`; none where there is one host, which is the total."""
    top = peak(stage)
    nodes: Mapping[str, Mapping[str, Any]] = top.tree.get("nodes", {}) if top else {}
    for host, tree in nodes.items() if len(nodes) > 1 else ():
        bounds = tree.get("iops", {})
        half = (bounds["upper"] - bounds["lower"]) / 2.0 if "lower" in bounds else None
        latencies = (microseconds(read(tree, "response", name)) for name in _LATENCIES)
        numbers = (read(tree, "iops"), half, read(tree, "mb_per_s"))
        yield safe(host), *map(number, numbers), *latencies, number(read(tree, "errors"))
