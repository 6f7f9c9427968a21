"""A view that is limited to a part of the plan: a stage, a rung, an iteration, or one of several loads. Pure.

Data flow: the path of a node of the plan's tree -> `scoped` -> a `RunView` that has that part alone, which every pane
shows as it shows the whole run. The header stays that of the run.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from proveout.core.data_classes import dataclass
from proveout.core.numbers import safe
from proveout.dsl.plan.loads import in_load
from proveout.proto.events import IterationFinished, IterationId, TransactionsTick
from proveout.tui.host_view import HostView, history_of
from proveout.tui.run_view import RunView
from proveout.tui.stage_view import StageView

Path: TypeAlias = tuple[str, ...]
"""(stage,), (stage, rung), (stage, rung, iteration) or (stage, rung, `LOAD` + its name); () is the whole run."""
LOAD = "@"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A part of the plan; "" and None stand for all."""

    stage: str
    rung: int | None = None
    iteration: str = ""
    load: str = ""

    def has(self, identity: IterationId) -> bool:
        """Whether an iteration is in it."""
        return (
            identity.stage == self.stage
            and self.rung in (None, identity.rung)
            and self.iteration in ("", str(identity))
        )


def _part(path: Path) -> _Part:
    last = path[2] if len(path) > 2 else ""
    return _Part(
        stage=path[0],
        rung=int(path[1]) if len(path) > 1 else None,
        iteration="" if last.startswith(LOAD) else last,
        load=last.removeprefix(LOAD) if last.startswith(LOAD) else "",
    )


def title(stage: StageView, path: Path) -> str:
    """The name of a part: `base 4 thr #2`."""
    part = _part(path)
    words = [safe(stage.cell or stage.id)]
    if part.rung is not None:
        words.append(f"depth {part.rung}" if stage.kind == "tool" else f"{part.rung} thr")
    if part.iteration:
        words.append(f"#{part.iteration.split('/')[-2]}")
    return " ".join([*words, safe(part.load)] if part.load else words)


def scoped(view: RunView, path: Path) -> RunView:
    """The view with that part of the plan alone; the whole view for () and for a stage that is not known."""
    stage = view.stage(path[0]) if path else None
    if stage is None:
        return view
    part = _part(path)
    going = view.iteration if view.iteration is not None and part.has(view.iteration.id) else None
    details = {key: one for key, one in view.details.items() if part.has(one.id)}
    newest = next(reversed(details.values()), None)
    begun = tuple(one for one in view.begun if part.has(one.started.id))
    transactions = view.transactions if going is not None else None
    of_stage = {key for key, needs in view.verdict_needs.items() if part.stage in needs}
    return replace(
        view,
        shown=title(stage, path),
        current=stage.id,
        stages=(_limited(stage, part),),
        iteration=going,
        seconds=tuple(one for one in view.seconds if part.has(one.tick.id)),
        begun=begun,
        fault_marks=tuple(mark for mark in view.fault_marks if part.has(mark.seen.id)),
        transactions=None if transactions is None else _of_load(transactions, part.load),
        waits=view.waits if going is not None else {},
        lags=view.lags if going is not None else {},
        last=None if newest is None else _ended_of_load(newest, part.load),
        details=details,
        hosts=view.hosts if going is not None or not details else _hosts_in(view.hosts, details.values()),
        log=tuple(line for line in view.log if _is_in(view, stage, part, line.unix_s, line.iteration)),
        verdicts=tuple(one for one in view.verdicts if one.id in of_stage),
        foreseen=tuple(one for one in view.foreseen if one.id in of_stage),
        planned_verdicts=tuple(one for one in view.planned_verdicts if one in of_stage),
    )


def _limited(stage: StageView, part: _Part) -> StageView:
    finished = tuple(item for item in stage.finished if part.has(item.id))
    repeats = {item.id.repeat for item in finished}
    return replace(
        stage,
        finished=finished,
        reported={} if part.iteration else stage.reported,
        planned=stage.planned if part.rung is None else tuple(rung for rung in stage.planned if rung == part.rung),
        probes=tuple(one for one in stage.probes if one.probe in repeats) if part.iteration else stage.probes,
        loads=tuple(load for load in stage.loads if part.load in ("", load.name)),
    )


def _of_load(now: TransactionsTick, load: str) -> TransactionsTick:
    """The transactions of one load; of all for ""."""
    if not load:
        return now
    before = in_load(load, "")
    return replace(now, transactions=tuple(line for line in now.transactions if line.name.startswith(before)))


def _ended_of_load(ended: IterationFinished, load: str) -> IterationFinished:
    if not load:
        return ended
    return replace(ended, transactions=tuple(one for one in ended.transactions if one.load == load))


def _is_in(view: RunView, stage: StageView, part: _Part, unix_s: float, iteration: str) -> bool:
    """Whether an event belongs to the part: by its iteration, else by its time."""
    if part.rung is None:
        return bool(stage.began_unix_s) and stage.began_unix_s <= unix_s <= (stage.ended_unix_s or view.now_unix_s)
    if iteration:
        return any(iteration == str(one.started.id) for one in view.begun if part.has(one.started.id))
    starts = [*((one.started.id, one.unix_s - one.started.starts_in_s) for one in view.begun)]
    ends = [*(begins for _, begins in starts[1:]), view.now_unix_s + 1.0]
    return any(
        begins <= unix_s < ends_s for (identity, begins), ends_s in zip(starts, ends, strict=True) if part.has(identity)
    )


def _hosts_in(hosts: Mapping[str, HostView], ended: Iterable[IterationFinished]) -> dict[str, HostView]:
    """The hosts with the means of these iterations as their readings, and one point of each in their history."""
    found = {}
    taken = [one.metrics.get("hosts", {}) for one in ended]
    for name, host in hosts.items():
        each = [dict(_flat(of_hosts[name])) for of_hosts in taken if name in of_hosts]
        if not each:
            found[name] = host
            continue
        keys = dict.fromkeys(itertools.chain.from_iterable(each))
        means = {key: _mean([one[key] for one in each if key in one]) for key in keys}
        totals = {
            name: value
            for readings in host.readings.values()
            for name, value in readings.items()
            if name.endswith("total_bytes")
        }
        found[name] = replace(host, readings={"means": {**totals, **means}}, history=history_of(each))
    return found


def _flat(numbers: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, float]]:
    """`cpu.busy_fraction` and the like of a tree of numbers."""
    for name, value in numbers.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}{name}.")
        elif isinstance(value, (int, float)):
            yield f"{path}{name}", float(value)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
