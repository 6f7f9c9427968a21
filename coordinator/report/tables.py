"""Numbers of ladders, tools and query sets as frozen rows, and remarks on their validity. Pure; no layout."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from proveout.coordinator.measure import steady_state
from proveout.coordinator.measure.steady_state import RUNGS_MIN, NoKnee
from proveout.coordinator.results.estimates import VERSUS, alone_ladders, value_estimates
from proveout.coordinator.results.published import has_own_data
from proveout.coordinator.results.results import (
    RungResult,
    RunResults,
    StageResult,
    following,
    not_interleaved,
    rung_tree,
)
from proveout.coordinator.verdict.provenance import WAYS_OUT
from proveout.core import statistics
from proveout.core.data_classes import dataclass, record
from proveout.core.json_data import at_path, number_at
from proveout.core.numbers import (
    column,
    counted,
    half_width,
    interval,
    level,
    number,
    percent,
    quantity,
    rate_unit,
    threads,
    together,
    with_interval,
)
from proveout.dsl.metrics import PEAK, load_paths
from proveout.dsl.plan.captures import MEASURED
from proveout.dsl.plan.loads import in_load
from proveout.dsl.plan.stages import Cell, label_text, of_stage, written
from proveout.dsl.rules.repeat_rules import NOT_DISTINGUISHED
from proveout.proto.events import IterationFinished, Metrics, SizeLine

LATENCIES = ("min_us", "avg_us", "p50_us", "p90_us", "p95_us", "p99_us", "max_us")
LATENCY_HEADS = tuple(name.removesuffix("_us") for name in LATENCIES)
TARGETS_NAMED = 3  # systems under load that a title names one by one


@record
class LoadRow:
    """A rung, or a transaction type or a load of one: its tree of estimates, over so many valid `repeats`.

    `whole` is the throughput of which it has a share. A rung without a valid repeat has the means of the invalid ones,
    without intervals.
    """

    label: str
    tree: Mapping[str, Any]
    repeats: int
    excluded: int = 0
    whole: float | None = None

    @property
    def is_invalid(self) -> bool:
        """Whether its numbers are those of invalid repeats, because no repeat was valid."""
        return self.repeats == 0 and self.excluded > 0

    @property
    def tps(self) -> Mapping[str, Any]:
        """Of transactions that succeeded and those that failed logically; {} when it is not known."""
        found: Mapping[str, Any] = self.tree.get("tps", {})
        return found

    @property
    def share(self) -> float | None:
        """Its part of the throughput of all."""
        return self.tps["mean"] / self.whole if self.tps and self.whole else None

    @property
    def failed(self) -> float:
        """The share of transactions that failed logically, 0 to 1."""
        return number_at(self.tree, "logical", "fraction") or number_at(self.tree, "logical_fraction") or 0.0

    def response_us(self, name: str) -> tuple[float | None, float | None]:
        """A response time, `min_us` and `max_us` over all repeats, and half the width of its interval."""
        return observed(self.tree, "response", name), half(self.tree, "response", name)

    def at_least_us(self, name: str) -> float | None:
        """The lower bound of a response time that is not known, where it is given."""
        return given_bound(self.tree.get("at_least"), "response", name)


@dataclass(frozen=True, slots=True)
class Number:
    """A number of results, declared once: its head in tables, and its path in a tree of estimates.

    A column of it has one unit: that of its `name`, by default the last one of the path. `spread`: a cell has the
    digits of its interval; `interval`: a second column has the ends of it.
    """

    head: str
    path: tuple[str, ...]
    name: str | None = None
    spread: bool = False
    interval: bool = False

    def columns(self, trees: Sequence[Mapping[str, Any]]) -> Iterator[NumberColumn]:
        """Its columns, a cell for each tree."""
        if self.interval:
            found = [at_path(tree, *self.path) or {} for tree in trees]
            cells, levels = [with_interval(one) for one in found], {level(one) for one in found}
            yield self.head, "r", [mean for mean, _ in cells]
            yield f"{levels.pop()} CI" if len(levels) == 1 else "CI", "r", [ends for _, ends in cells]
            return
        name = self.path[-1] if self.name is None else self.name
        halves = [half(tree, *self.path) for tree in trees] if self.spread else ()
        yield self.head, "r", column(name, [observed(tree, *self.path) for tree in trees], halves)


NumberColumn: TypeAlias = tuple[str, str, list[str]]
"""A `document.Column`."""


def columns(numbers: Iterable[Number], trees: Iterable[Mapping[str, Any]]) -> list[NumberColumn]:
    rows = list(trees)
    return [found for one in numbers for found in one.columns(rows)]


_IO_TIMES = tuple(Number(name, ("response", f"{name}_us"), spread=True) for name in ("avg", "p50", "p99", "max"))
IO_NUMBERS = (
    Number("IOPS", ("iops",), interval=True),
    Number("read MB/s", ("read", "mb_per_s"), ""),
    Number("write MB/s", ("write", "mb_per_s"), ""),
    *_IO_TIMES,
    Number("errors", ("errors", "count")),
)
NODE_NUMBERS = (IO_NUMBERS[0], Number("MB/s", ("mb_per_s",), ""), *_IO_TIMES, Number("errors", ("errors",)))
ORDER_NUMBERS = (Number("NOPM", ("nopm",)), Number("TPM", ("tpm",)), Number("ART", ("response", "avg_us")))
CPU_NUMBERS = (
    Number("busy", ("cpu", "busy_fraction")),
    Number("peak", ("cpu", PEAK, "busy_fraction")),
    Number("user", ("cpu", "user_fraction")),
    Number("system", ("cpu", "system_fraction")),
    Number("iowait", ("cpu", "iowait_fraction")),
    Number("servers", ("ours", "servers_cores")),
    Number("load", ("ours", "load_cores")),
    Number("all", ("ours", "cpu_cores")),
)
"""CPU of one machine in the measure window; in cores what proveout's servers, load and all of it used."""


def given_bound(at_least: Any, *path: str) -> float | None:
    """The lower bound at a path of a tree of bounds; None where it is not there, or not given."""
    bound = at_path(at_least, *path) or {}
    return bound.get("value") if bound.get("given") else None


def half(tree: Mapping[str, Any], *path: str) -> float | None:
    """Half the width of an estimate's confidence interval; None where there is none, or an extreme is shown."""
    node = at_path(tree, *path)
    return half_width(node) if isinstance(node, Mapping) and not _extreme(path) else None


def observed(tree: Mapping[str, Any], *path: str) -> float | None:
    """The number of a table: the mean over the repeats; of a smallest or largest value that of all repeats."""
    node, extreme = at_path(tree, *path), _extreme(path)
    values = node.get("values") if isinstance(node, Mapping) else None
    return float(extreme(values)) if extreme and values else number_at(tree, *path)


def _extreme(path: Sequence[str]) -> Callable[[Sequence[float]], float] | None:
    if path[-1].startswith("min_"):
        return min
    return max if path[-1].startswith("max_") or path[-2:-1] == (PEAK,) else None


def ladders(results: RunResults) -> list[StageResult]:
    """The ladders that have a valid iteration, in the order they ran; without those that ran one of several loads
    alone, whose numbers are beside those of the load among the others (`load_figures`)."""
    alone = {name for _, _, name in alone_ladders(results.run)}
    found = (stage for stage in results.stages.values() if stage.has_ladder and stage.id not in alone)
    return [stage for stage in found if stage.highest is not None]


def climbing(results: RunResults) -> list[StageResult]:
    """The ladders, of loads and of tools, that have a valid iteration, in the order they ran."""
    kept = {stage.id for stage in ladders(results)}
    found = (stage for stage in results.stages.values() if stage.climbs and stage.highest is not None)
    return [stage for stage in found if stage.kind != "ladder" or stage.id in kept]


def cell_of(results: RunResults, stage_id: str) -> Cell | None:
    """The cell of a matrix that the stage is; None when the stage is not a cell."""
    return of_stage(results.plan_stage(stage_id))


def on_target(results: RunResults, stage_id: str) -> str:
    """The systems that a stage loads, in few words: `one + two`, `grid1 + grid2 + 6 more`; "" where it has none."""
    names = str(results.plan_stage(stage_id).get("target", "")).split(" + ")
    if len(names) > TARGETS_NAMED:
        names = [*names[: TARGETS_NAMED - 1], f"{len(names) - TARGETS_NAMED + 1} more"]
    return " + ".join(names)


def titled(results: RunResults, stage_id: str) -> str:
    """The stage's name for people: its id, or of a cell the matrix with the labels."""
    cell = cell_of(results, stage_id)
    return stage_id if cell is None else f"{cell.of} ({cell})"


def load_rows(stage: StageResult) -> list[LoadRow]:
    """A ladder, one row a rung."""
    return [
        LoadRow(
            label=str(rung.threads),
            tree=rung.tree if rung.iterations else _means(rung_tree(rung.excluded)),
            repeats=len(rung.iterations),
            excluded=len(rung.excluded),
        )
        for rung in stage.rungs
    ]


def _means(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The tree without intervals."""
    kept = ((name, found) for name, found in tree.items() if name not in ("lower", "upper"))
    return {name: _means(found) if isinstance(found, Mapping) else found for name, found in kept}


def order_trees(stage: StageResult) -> dict[str, Metrics]:
    """The trees of a TPROC-C ladder with HammerDB's numbers, by rung and load of it; empty for another workload."""
    trees = [(rung, load, tree) for rung in stage.rungs for load, tree in {"": rung.tree, **_loads(rung)}.items()]
    return {f"{rung.threads} {load}".strip(): tree for rung, load, tree in trees if "nopm" in tree}


def knee_line(stage: StageResult) -> Iterator[str]:
    """The knee of a ladder of three or more rungs as a sentence."""
    knee = stage.knee
    if len(stage.rungs) < RUNGS_MIN:
        return
    if isinstance(knee, NoKnee):
        yield f"No knee: {knee.reason}."
        return
    is_known = knee.lower is not None and knee.upper is not None
    between = f" ({percent(knee.confidence)} CI {knee.lower} … {knee.upper})" if is_known else ""
    yield f"Knee at {threads(knee.threads)}{between}: beyond it, more threads add little."


def transaction_rows(rung: RungResult) -> list[LoadRow]:
    """The transaction types of a rung, most frequent first; throughput relative to all of them together."""
    rows: list[LoadRow] = []
    for load, tree in {"": rung.tree, **_loads(rung)}.items():
        whole = number_at(tree, "tps")
        bounds = tree.get("at_least", {}).get("transactions", {})
        rows += [
            LoadRow(label=in_load(load, name), tree={"at_least": bounds.get(name)} | one, repeats=len(rung.iterations),
                    whole=whole)
            for name, one in tree.get("transactions", {}).items()
        ]  # fmt: skip
    return sorted(rows, key=lambda row: -float(row.tps.get("mean", 0.0)))


def by_load_rows(rung: RungResult) -> list[LoadRow]:
    """The loads of a rung that has several; throughput of those with shares relative to all of them together, if they
    run at the same time."""
    in_turns = any(VERSUS in one for one in rung.tree.get("loads", {}).values())
    whole = None if in_turns else number_at(rung.tree, "tps")
    beside = {load for item in rung.iterations for load in item.beside}
    return [
        LoadRow(label=load, tree=tree, repeats=len(rung.iterations), whole=None if load in beside else whole)
        for load, tree in _loads(rung).items()
    ]


def _loads(rung: RungResult) -> dict[str, Metrics]:
    """The tree of each of several loads, with its bounds."""
    bounds = rung.tree.get("at_least", {}).get("loads", {})
    return {name: {"at_least": bounds.get(name, {})} | tree for name, tree in rung.tree.get("loads", {}).items()}


def host_trees(results: RunResults, rung: RungResult) -> dict[str, Metrics]:
    """The tree of each machine, by the names of its hosts: each host reports the CPU of the machine, and that of the
    servers and the load of its own agent, which are added up."""
    found = {}
    for hosts in machines(results, rung.tree.get("hosts", {})):
        trees = [rung.tree["hosts"][host] for host in hosts]
        ours = dict(trees[0].get("ours", {}))
        for name in ("servers_cores", "load_cores"):
            known = [cores for tree in trees if (cores := number_at(tree, "ours", name)) is not None]
            ours[name] = sum(known) if len(known) == len(trees) else None
        found[", ".join(hosts)] = trees[0] | {"ours": ours}
    return found


def machines(results: RunResults, hosts: Iterable[str]) -> list[list[str]]:
    """The hosts grouped by machine: hosts whose agents run on one machine report the same CPU."""
    found: dict[str, list[str]] = {}
    for host in hosts:
        agent = results.agents.get(host)
        found.setdefault(agent.machine_id if agent and agent.machine_id else host, []).append(host)
    return list(found.values())


def program_values(tree: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """(`program` or `LOAD.program`, name, number) of the numbers that outside programs gave, of each load."""
    for name, value in tree.get("program", {}).items():
        yield "program", name, value
    for load, one in tree.get("loads", {}).items():
        yield from ((f"{load}.{label}", name, value) for label, name, value in program_values(one))


def captured(tree: Mapping[str, Any], kinds: Sequence[str]) -> Iterator[tuple[str, str, str, Mapping[str, Any]]]:
    """(kind, capture, name, parts) of the numbers of these kinds of captures: a level has the part `avg`, a counter its
    growth `per_s`."""
    for kind in kinds:
        for capture, numbers in tree.get(kind, {}).items():
            for name, parts in numbers.items():
                yield kind, capture, name, parts


def exported_rows(rung: RungResult, kinds: Sequence[str] = ("prometheus",)) -> Iterator[tuple[str, str, str]]:
    """(number, part, estimate as text) of exporters, or of other kinds of captures and of programs."""
    for kind, capture, name, parts in captured(rung.tree, kinds):
        part = "per_s" if "per_s" in parts else "avg"
        if part in parts:
            yield f"{capture}.{name}", part, interval(parts[part], name if part == "avg" and kind in MEASURED else part)
    if kinds is MEASURED:
        for label, name, value in program_values(rung.tree):
            yield f"{label}.{name}", "avg", interval(value, name)


def validity_notes(results: RunResults) -> list[str]:
    """Findings of the validity checks: iterations that do not count, and warnings with how often and the first
    evidence.
    """
    notes: list[str] = []
    for stage in results.stages.values():
        for rung in stage.rungs:
            notes += [_excluded(item) for item in rung.excluded]
        notes += [*_unsteady(results, stage), *_flagged(stage)]
        notes += [f"{item.id} was void: {item.reason}" for item in stage.voided]
    return [*notes, *dict.fromkeys(text for stage in results.stages if (text := following(results, stage)))]


def notices(results: RunResults) -> Iterator[str]:
    """The warnings and errors of the run, with their hosts."""
    serious = (item for item in results.notices if item.level != "info")
    yield from (f"{item.host}: {item.text}" if item.host else item.text for item in serious)


def _excluded(item: IterationFinished) -> str:
    why = "; ".join(
        f"{finding.label}: {finding.evidence}" for finding in item.findings if not finding.ok and finding.voids
    )
    tps, p99 = number(number_at(item.metrics, "tps")), quantity(number_at(item.metrics, "response", "p99_us"), "p99_us")
    return f"{item.id} does not count ({tps} per second, p99 {p99}): {why}"


def _unsteady(results: RunResults, stage: StageResult) -> Iterator[str]:
    """One note for all rungs of a ladder that are not shown to be steady by all their repeats together."""
    if not stage.climbs:
        return
    limits = results.plan_stage(stage.id).get("limits", {})
    bound = float(limits.get("tps_slope_fraction_max", steady_state.DRIFT_MAX))
    unit = rate_unit(stage.kind)
    found = {rung.threads: steady_state.remark(rung.iterations, bound, unit) for rung in stage.rungs}
    unsteady = {count: text for count, text in found.items() if text}
    if unsteady:
        first = next(iter(unsteady))
        rungs = ", ".join(map(str, unsteady))
        heading = "I/O depth" if stage.kind == "tool" else "threads"
        yield f"{stage.id}: not shown to be steady at {heading} {rungs}; first, at {first}: {unsteady[first]}"


def _flagged(stage: StageResult) -> list[str]:
    flagged: dict[str, list[str]] = {}
    for item in stage.iterations:
        for finding in item.findings:
            if stage.climbs and steady_state.is_on_steadiness(finding.check):
                continue  # judged by the repeats together
            if not finding.ok and not finding.voids:
                flagged.setdefault(finding.label, []).append(f"{item.id}: {finding.evidence}")
    count = len(stage.iterations)
    ways = {check: WAYS_OUT.get(check.partition(":")[0]) for check in flagged}
    return [
        f"{stage.id}: {check} flagged in {len(texts)} of {count} iterations, first in {texts[0]}"
        f"{f'; what to do: {ways[check]}' if ways[check] else ''}"
        for check, texts in flagged.items()
    ]


def client_ceiling(rung: RungResult) -> Iterator[str]:
    """The throughput of a rung beside the client's own limit, where that was measured."""
    most, reached = number_at(rung.tree, "client", "ceiling_per_s"), number_at(rung.tree, "client", "ceiling_fraction")
    if most is not None and reached is not None:
        yield f"The client can make {number(most)}/s with this driver; the run reached {percent(reached)} of it."


def client_handling(rung: RungResult) -> Iterator[str]:
    """The waits of answers in the client at a rung, where they were measured."""
    fraction = number_at(rung.tree, "client", "handling_fraction")
    if fraction is None:
        return
    text = f"Waits in the client make up {percent(fraction)} of the service time"
    if times := p50_and_p99(rung.tree, "client", "handling"):
        text += f": an answer waited {times}"
    queued = number_at(rung.tree, "client", "runqueue_fraction")
    yield text + ("." if queued is None else f"; a load thread waited for a CPU for {percent(queued)} of the window.")


def p50_and_p99(tree: Metrics, *path: str) -> str:
    """`1.2 ms (p50), 3.4 ms (p99)`; "" where one of them is not known."""
    times = [number_at(tree, *path, name) for name in ("p50_us", "p99_us")]
    if None in times:
        return ""
    typical, tail = together("p50_us", *times)
    return f"{typical} (p50), {tail} (p99)"


# ---- tool stages --------------------------------------------------------------------------------------------------


def tools(results: RunResults) -> list[StageResult]:
    """The tool stages that have a valid iteration, in the order they ran."""
    return [stage for stage in results.stages.values() if stage.kind == "tool" and stage.highest is not None]


def tool_title(results: RunResults, stage: StageResult) -> str:
    """`rand4k: fio random-read-4k on store1, store2`."""
    plan = results.plan_stage(stage.id)
    hosts = ", ".join(str(host) for host in plan.get("clients", ()))
    return f"{stage.id}: {plan.get('program', 'fio')} {plan.get('pattern', '')} on {hosts}"


def io_columns(stage: StageResult) -> list[NumberColumn]:
    repeats = [counted(len(rung.iterations), len(rung.excluded)) for rung in stage.rungs]
    numbers = columns(IO_NUMBERS, (rung.tree for rung in stage.rungs))
    return [("I/O depth", "l", [str(rung.threads) for rung in stage.rungs]), *numbers, ("repeats", "r", repeats)]


def node_trees(stage: StageResult) -> Mapping[str, Metrics]:
    """The tree of each host at the best rung; empty for one host, which is the total."""
    top = stage.highest
    nodes: Mapping[str, Metrics] = top.tree.get("nodes", {}) if top else {}
    return nodes if len(nodes) > 1 else {}


SETS = ("solve_s", "geomean_s")
TOTAL = "total"
STEP = re.compile(r"(?P<ladder>.+)__(?P<side>before|after)_(?P<number>\d+)")
"""The id of a step of a ladder."""
_Sizes: TypeAlias = Mapping[str, tuple[float, float]]
"""(bytes without indexes, bytes of indexes) by table, and of all tables under ""."""


@record
class SolveRow:
    """One rung of a set of queries: `solve` and `geomean` are estimates, s.

    `relative` is the speed: `solve` of the first mode over this one (2: half its time); {} when that has no such row.
    """

    mode: str
    at: str
    solve: Mapping[str, Any]
    geomean: Mapping[str, Any]
    relative: Mapping[str, Any]


@record
class SizeRow:
    """The size of a table, or of all tables (`table` ""), in one mode, bytes.

    `factor` is the total of the first mode divided by this total, `table_factor` the same without the indexes; None
    when one of the two is 0.
    """

    mode: str
    table: str
    table_bytes: float
    index_bytes: float
    factor: float | None
    table_factor: float | None

    @property
    def total_bytes(self) -> float:
        """Bytes of the table with its indexes."""
        return self.table_bytes + self.index_bytes


def families(results: RunResults) -> dict[str, list[StageResult]]:
    """Return the ladders with results by the id of their matrix; those without a matrix under ""."""
    found: dict[str, list[StageResult]] = {}
    for stage in ladders(results):
        cell = cell_of(results, stage.id)
        found.setdefault(cell.of if cell else "", []).append(stage)
    return found


def mode_of(results: RunResults, stage: StageResult) -> tuple[str, str]:
    """Return (mode, case) of a ladder: the first label of its cell and the others, or its id and ""."""
    cell = cell_of(results, stage.id)
    return (stage.id, "") if cell is None else (written(cell.labels[0][1]), label_text(cell.labels[1:]))


def apart(results: RunResults, of: str) -> str:
    """Return a note that the cells of a matrix were not interleaved; "" when they were, or without a matrix."""
    cells = [stage.id for stage in families(results).get(of, ())] if of else []
    return f"The cells of {of} were not interleaved: {NOT_DISTINGUISHED}." if not_interleaved(results, cells) else ""


# ---- time to solve -----------------------------------------------------------------------------------------------


def solve_rows(results: RunResults) -> dict[str, list[SolveRow]]:
    """Return a row for every rung that ran a set of queries, by matrix, and of a rung of several loads for each of
    them that did; the modes of one case are adjacent.

    Matrices without such a rung are left out.
    """
    found: dict[str, list[SolveRow]] = {}
    for of, stages in families(results).items():
        measured = [
            (stage, rung, path)
            for stage in stages
            for rung in stage.rungs
            for path in load_paths(rung.tree)
            if "solve_s" in at_path(rung.tree, *path)
        ]
        several = len({rung.threads for _, rung, _ in measured}) > 1
        rows = [_solved(results, stage, rung, path, several=several) for stage, rung, path in measured]
        if rows:
            found[of] = _relative_to_first_mode(rows)
    return found


def _solved(
    results: RunResults, stage: StageResult, rung: RungResult, path: tuple[str, ...], *, several: bool
) -> SolveRow:
    mode, rest = mode_of(results, stage)
    at = ", ".join(filter(None, (rest, *path[1:], threads(rung.threads) if several else "")))
    solve, geomean = (at_path(rung.tree, *path, name) for name in SETS)
    return SolveRow(mode=mode, at=at, solve=solve, geomean=geomean, relative={})


def _relative_to_first_mode(rows: Sequence[SolveRow]) -> list[SolveRow]:
    """Sort rows by case, and relate each to the row of the first mode in its case."""
    first = rows[0].mode
    cases = list(dict.fromkeys(row.at for row in rows))
    base = {row.at: row for row in rows if row.mode == first}
    return [replace(row, relative=_relative(row, base.get(row.at))) for case in cases for row in rows if row.at == case]


def _relative(row: SolveRow, base: SolveRow | None) -> Mapping[str, Any]:
    if base is None:
        return {}
    if row is base:
        return {"mean": 1.0}
    return statistics.ratio(dict(base.solve), dict(row.solve))


# ---- sizes -------------------------------------------------------------------------------------------------------


def size_rows(results: RunResults) -> dict[str, list[SizeRow]]:
    """Return the sizes of tables in every mode by matrix, sorted by size in the first mode, with the sum of all tables
    last.

    Matrices without captured sizes have those that the steps of their cells took. Stages that took the same sizes are
    the modes where no ladder without a matrix has captured any. Matrices without sizes are left out.
    """
    found = {
        of: _sizes_by_mode(results, stages) or _sizes_of_steps(results, stages)
        for of, stages in families(results).items()
    }
    found[""] = found.get("") or _sizes_of_stages(results)
    return {of: list(_sized(modes)) for of, modes in found.items() if modes}


def _sizes_by_mode(results: RunResults, stages: Iterable[StageResult]) -> dict[str, _Sizes]:
    """Return the last captured sizes of each mode. Without a matrix a mode is the system of the capture, and in a
    matrix where cells of several modes were measured on the same data."""
    last: list[tuple[StageResult, IterationFinished]] = []
    for stage in stages:
        seen = [item for rung in stage.rungs for item in rung.iterations if item.sizes]
        if seen:
            last.append((stage, max(seen, key=lambda item: item.started_unix_s)))
    modes: dict[str, set[str]] = {}
    for stage, item in last:
        modes.setdefault(item.sizes[0].system, set()).add(mode_of(results, stage)[0])
    latest: dict[str, IterationFinished] = {}
    for stage, item in last:
        system = item.sizes[0].system
        shared = len(modes[system]) > 1 and not has_own_data(results, stage)
        mode = system if cell_of(results, stage.id) is None or shared else mode_of(results, stage)[0]
        if mode not in latest or not shared or item.started_unix_s > latest[mode].started_unix_s:
            latest[mode] = item
    return {mode: _by_table(item.sizes) for mode, item in latest.items()}


def _sizes_of_steps(results: RunResults, stages: Iterable[StageResult]) -> dict[str, _Sizes]:
    """Return the sizes that the steps of a matrix took in the first cell of each mode."""
    found: dict[str, _Sizes] = {}
    for stage in stages:
        steps = (step for name, step in results.stages.items() if step_ladder(name) == stage.id)
        sizes = next(filter(None, map(_taken_sizes, steps)), None)
        if sizes and cell_of(results, stage.id) is not None:
            found.setdefault(mode_of(results, stage)[0], sizes)
    return found


def _sizes_of_stages(results: RunResults) -> dict[str, _Sizes]:
    """Return the sizes by stage of the first stages, two at least, that took sizes of the same names."""
    alike: dict[tuple[str, ...], dict[str, _Sizes]] = {}
    for stage in results.stages.values():
        if (sizes := _taken_sizes(stage)) and not step_ladder(stage.id):
            alike.setdefault(tuple(sorted(sizes)), {})[stage.id] = sizes
    return next((modes for modes in alike.values() if len(modes) > 1), {})


def _taken_sizes(stage: StageResult) -> _Sizes:
    """Return the means of the metrics of a stage whose names end in `_bytes`, by the name before it; `total_bytes` is
    all of them, and without it their sum."""
    ending = "_bytes"
    found = {
        name.removesuffix(ending): (float(estimate["mean"]), 0.0)
        for name, estimate in value_estimates(stage.values).items()
        if name.endswith(ending)
    }
    total = found.pop(TOTAL, (sum(size for size, _ in found.values()), 0.0))
    return found | {"": total} if found else {}


def step_ladder(stage: str) -> str:
    """Return the ladder of which a stage is a step, "" for another stage."""
    found = STEP.fullmatch(stage)
    return found["ladder"] if found else ""


def _sized(totals: Mapping[str, _Sizes]) -> Iterator[SizeRow]:
    first = next(iter(totals.values()))
    names = dict.fromkeys(table for tables in totals.values() for table in tables if table)
    ranked = sorted(names, key=lambda table: -sum(first.get(table, (0.0, 0.0))))
    for table in (*ranked, ""):
        for mode, tables in totals.items():
            (heap, indexes), base = tables.get(table, (0.0, 0.0)), first.get(table, (0.0, 0.0))
            factor, table_factor = (
                one / other if one and other else None for one, other in ((sum(base), heap + indexes), (base[0], heap))
            )
            yield SizeRow(mode=mode, table=table, table_bytes=heap, index_bytes=indexes, factor=factor,
                          table_factor=table_factor)  # fmt: skip


def _by_table(lines: Iterable[SizeLine]) -> _Sizes:
    sums: dict[str, tuple[float, float]] = {}
    for line in lines:
        for table in (line.table, ""):
            heap, indexes = sums.get(table, (0.0, 0.0))
            more = (0.0, line.end_bytes) if line.part == "index" else (line.end_bytes, 0.0)
            sums[table] = heap + more[0], indexes + more[1]
    return sums


# ---- cost of a transaction ----------------------------------------------------------------------------------------

COST_LABELS: Mapping[str, str] = {
    "server_cpu_us": "server CPU",
    "client_cpu_us": "client CPU",
    "reads": "reads",
    "read_bytes": "bytes read",
    "written_bytes": "bytes written",
    "wal_bytes": "write-ahead log",
    "network_bytes": "network",
    "context_switches": "context switches",
    "price_per_million": "price per million",
}


def has_cost(rung: RungResult) -> bool:
    return bool(rung.tree.get("cost", {}).keys() - {"client_cpu_us"})


def cost_label(name: str, currency: str = "") -> str:
    """The words for a number of the cost."""
    return f"{COST_LABELS[name]}, {currency}" if name == "price_per_million" and currency else COST_LABELS[name]


def currency_of(results: RunResults) -> str:
    """The currency of the plan's hosts; "" without one."""
    return next((str(host["currency"]) for host in results.plan.get("hosts", ()) if host.get("currency")), "")
