"""Results that a plan names for a chart -> the expressions of its numbers, each with its place. Pure.

Data flow: the text of a result (`ladder`, `ladder.at(8)`, a matrix, an sql stage) and the path of a metric in it
(`transactions.*.response.avg_us`, `waits.event("log file sync").seconds`) -> the shape of the result
(`checking.shape_of`) -> an expression for each rung, cell and name that the path covers. The expressions have the
syntax of verdicts, so that they are checked and evaluated as these are.

Places: a result by itself is a place, named by its label; a ladder has its rungs as places and its label is the series,
drawn as a line; a matrix has the label of its first axis as series and the other axes as places. The names that `*`
stands for are places where the results have none of their own, and series otherwise.

A divisor (`RelativeTo`) of several results is, for each number, that of the same rung and the same labels.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace

from proveout.core.data_classes import dataclass, record
from proveout.core.numbers import threads
from proveout.dsl.expr.checking import KEYED, NO_RUNG, PARAMS, Boolean, Estimate, Fault, Group, Shape, shape_of
from proveout.dsl.metrics import lower_is_better
from proveout.dsl.plan.plan import ChartPoint, RelativeTo
from proveout.dsl.plan.stages import Label, label_text, written
from proveout.dsl.plan.topology import Expression
from proveout.dsl.source.nodes import did_you_mean

EVERY = "*"
_STEP = re.compile(rf'(?:{"|".join(KEYED)})\("[^"]*"\)|(?<=\[")[^"]*(?="\])|[^.\["\]]+')
_KEYED = re.compile(rf'({"|".join(KEYED)})\("([^"]+)"\)')
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@record
class Result:
    """A rung, an iteration or a stage: `text` is its expression.

    `series` and `cell` are its labels in a matrix, `labels` all that are free in it; `rung` is its threads where the
    ladder has several.
    """

    text: str
    shape: Group
    series: str = ""
    cell: str = ""
    rung: str = ""
    labels: frozenset[tuple[str, Label]] = frozenset()

    @property
    def place(self) -> str:
        """Its own place on the axis, "" for a result by itself."""
        if self.cell and self.rung:
            return f"{self.cell}, {threads(int(self.rung))}"
        return self.cell or self.rung


@record
class Leaf:
    """A number of a result; `name` is what `*` stands for, "" without one."""

    text: str
    is_estimate: bool
    name: str = ""


@dataclass(slots=True, kw_only=True)
class LaidOut:
    """The points of a chart; `place` is the axis that its results suggest, `lines` whether the places are rungs.

    `faults` are (path of the key in the chart, message, hint).
    """

    points: tuple[ChartPoint, ...] = ()
    place: str = ""
    lines: bool = False
    faults: list[tuple[tuple[str, ...], str, str]] = field(default_factory=list)

    def fault(self, path: tuple[str, ...], message: str, hint: str) -> None:
        """Note a fault, once."""
        if (problem := (path, message, hint)) not in self.faults:
            self.faults.append(problem)


def lay_out(
    of: Mapping[str, str],
    metrics: Mapping[str, str],
    relative_to: RelativeTo | None,
    scope: Group,
    parameters: Mapping[str, float | bool],
) -> LaidOut:
    """The points of a chart: each metric of each result; `scope` has the results of all stages."""
    laid = LaidOut()
    shaped = {label: shape_of(text, scope, parameters) for label, text in of.items()}
    named = {label: _named(laid, ("of", label), text, shaped[label]) for label, text in of.items()}
    divisors: Sequence[Result | Leaf] = []  # results, which have a number for each, or one number for all
    if relative_to and relative_to.of:
        shape, filled, faults = shape_of(relative_to.of, scope, parameters)
        if shape is None or isinstance(shape, (Group, Boolean)):
            divisors = _named(laid, ("relative_to",), relative_to.of, (shape, filled, faults))
        else:
            divisors = [Leaf(text=filled, is_estimate=isinstance(shape, Estimate))]
    every = [one for found in named.values() for one in found]
    laid.lines = bool(every) and all(one.rung and not one.cell for one in every)
    # the axis of a matrix of one, or of two, of which the first is the series
    axes = (list(shape.axes) for shape, _, _ in shaped.values() if isinstance(shape, Group))
    laid.place = "threads" if laid.lines else next((found[-1] for found in axes if 1 <= len(found) <= 2), "")
    points: list[ChartPoint] = []
    for heading, metric in metrics.items():
        for label, found in named.items():
            for one in found:
                for leaf in _leaves(laid, one, metric, heading):
                    number, unit = leaf.text, metric.rpartition(".")[2]
                    if relative_to:
                        below = _divisor(laid, one, divisors if relative_to.of else found, relative_to)
                        if below is not None:
                            number = _relative(laid, leaf, below, relative_to, metric=metric, heading=heading)
                        unit = "fraction" if relative_to.up_is_better else ""
                    at, series, panel = _position(label, one, leaf, heading, several=len(of) > 1)
                    points.append(
                        ChartPoint(panel=panel, metric=unit, at=at, series=series, number=Expression(text=number))
                    )
    return replace(laid, points=tuple(points))


def _named(
    laid: LaidOut, path: tuple[str, ...], text: str, shaped: tuple[Shape | None, str, Sequence[Fault]]
) -> list[Result]:
    shape, filled, faults = shaped
    laid.faults += [(path, fault.message, fault.hint) for fault in faults]
    if shape is None:
        return []
    if isinstance(shape, Group) and shape.what == PARAMS:
        laid.faults.append((path, f"`{text}` is not a result", "name a stage, a cell or a rung"))
        return []
    found = results(filled, shape)
    if not found:
        laid.faults.append((path, f"`{text}` is a number, not a result with numbers", "leave its last name away"))
    return found


def _leaves(laid: LaidOut, one: Result, metric: str, heading: str) -> Iterator[Leaf]:
    for found in leaves(one, metric):
        if isinstance(found, Leaf):
            yield found
        else:
            laid.fault(("metrics", heading), *found)


def _relative(
    laid: LaidOut, leaf: Leaf, below: Result | Leaf, relative_to: RelativeTo, *, metric: str, heading: str
) -> str:
    """The ratio of a number to its divisor, or its inverse where more is better and the number is a time; of the
    divisor to itself 1."""
    path: tuple[str, ...] = ("metrics", heading)
    wanted, divided = relative_to.transaction, metric
    if wanted:
        if EVERY not in metric.split("."):
            laid.fault(path, f"`{metric}` has no `*` that `{wanted}` could stand for", "leave `transaction` away")
        divided = metric.replace(EVERY, wanted, 1)
    lower = lower_is_better(metric.split("."))
    if relative_to.up_is_better and lower is None:
        message = f"whether more of `{metric}` is better is not known"
        laid.fault(path, message, "leave `up_is_better` away")
    for found in [below] if isinstance(below, Leaf) else _leaves(laid, below, divided, heading):
        if not isinstance(below, Leaf) and found.name != ("" if wanted else leaf.name):
            continue
        if not (found.is_estimate and leaf.is_estimate):
            message = f"`{metric}` of {leaf.text} has no repeats to make a ratio of"
            laid.fault(path, message, "leave relative_to away")
        if found.text == leaf.text:
            return f"{leaf.text}.mean / {leaf.text}.mean"
        pair = (found.text, leaf.text) if relative_to.up_is_better and lower else (leaf.text, found.text)
        return f"ratio({', '.join(pair)})"
    return leaf.text


def _divisor(
    laid: LaidOut, one: Result, among: Sequence[Result | Leaf], relative_to: RelativeTo
) -> Result | Leaf | None:
    """The divisor of a number: that of the same labels and the same rung, or of the rung that the plan names."""
    rung = relative_to.threads

    def at_rung(below: Result) -> bool:
        return below.rung in ("", one.rung) if rung is None else below.text.endswith(f".at({rung})")

    found = [below for below in among if isinstance(below, Leaf) or (below.labels <= one.labels and at_rung(below))]
    if len(found) == 1:
        return found[0]
    if found or (among and rung is None and not one.rung):
        several = (found or among)[0].text
        laid.fault(("relative_to",), f"`{relative_to.words}` is more than one result", f"name one: {several}")
    elif among:
        has = ", ".join(below.text for below in among[:3])
        lacks = f"the divisor has no result for {one.text}"
        if rung is not None:
            lacks = f"the ladder `{among[0].text.partition('.at(')[0]}` {NO_RUNG} {threads(rung)}"
        laid.fault(("relative_to",), lacks, f"it has {has}")
    return None


def _position(label: str, one: Result, leaf: Leaf, heading: str, *, several: bool) -> tuple[str, str, str]:
    """(place, series, panel) of a number."""
    own = label if several else ""
    series = ", ".join(filter(None, (own, one.series)))
    if not one.place:
        return (
            (leaf.name, series, heading) if leaf.name else (", ".join(filter(None, (label, one.series))), "", heading)
        )
    if not leaf.name:
        return one.place, series, heading
    if one.cell:
        return one.place, series, f"{heading}, {leaf.name}"
    return one.place, leaf.name, ", ".join(filter(None, (heading, own)))


def results(text: str, shape: Shape) -> list[Result]:
    """The results that `text` names: the cells of a matrix, the rungs of a ladder, or itself. Empty for a number."""
    if not isinstance(shape, Group):
        return []
    if shape.axes:
        single = len(shape.axes) == 1
        found = [
            replace(
                one,
                series="" if single else written(free[0][1]),
                cell=_rest(free if single else free[1:]),
                labels=frozenset(free),
            )
            for labels, (stage, below) in shape.cells.items()
            for free in (tuple(label for label in labels if label[0] in shape.axes),)
            for one in results(stage, below)
        ]
        cells = list(dict.fromkeys(one.cell for one in found))
        return sorted(found, key=lambda one: cells.index(one.cell))
    if shape.rung is not None:
        several = len(shape.rungs) > 1
        return [
            Result(text=f"{text}.at({count})", shape=shape.rung, rung=str(count) if several else "")
            for count in shape.rungs
        ]
    return [Result(text=text, shape=shape)]


def _rest(labels: tuple[tuple[str, Label], ...]) -> str:
    return written(labels[0][1]) if len(labels) == 1 else label_text(labels)


def leaves(result: Result, metric: str) -> Iterator[Leaf | tuple[str, str]]:
    """The numbers at the path `metric`, or (message, hint) where it leads nowhere."""
    found: list[tuple[str, Shape, str]] = [(result.text, result.shape, "")]
    for step in _STEP.findall(metric):
        below: list[tuple[str, Shape, str]] = []
        for text, shape, name in found:
            members = shape.members if isinstance(shape, Group) else {}
            keyed = _keyed(step, members)
            if keyed is not None:
                below.append((f"{text}.{keyed[0]}", keyed[1], name))
            elif step == EVERY:
                below += [(_member(text, each), member, each) for each, member in members.items()]
            elif step in members:
                below.append((_member(text, step), members[step], name))
            elif isinstance(shape, Group) and step in shape.absent:
                reason, way_out = shape.absent[step]
                yield f"`{step}` has no numbers here: {reason}", way_out
            elif isinstance(shape, Group):
                verb = "have" if shape.what.endswith("s") else "has"
                yield f"{shape.what} {verb} no `{step}`", did_you_mean(step, members)
            else:
                yield f"`{metric}` goes on behind a number", f"leave `.{step}` away"
        found = below
    for text, shape, name in found:
        if isinstance(shape, Group):
            names = ", ".join(shape.members)
            yield f"`{metric}` of {result.text} is not a number", names and f"add one of {names}"
        else:
            yield Leaf(text=text, name=name, is_estimate=isinstance(shape, Estimate))


def _keyed(step: str, members: Mapping[str, Shape]) -> tuple[str, Shape] | None:
    """`event("WalSync")` as the step `events["WalSync"]`, and its type; None for another step, or an unknown name."""
    found = _KEYED.fullmatch(step)
    if found is None:
        return None
    group = KEYED[found[1]][0]
    names = members.get(group)
    shape = names.members.get(found[2], names.other) if isinstance(names, Group) else None
    return None if shape is None else (f'{group}["{found[2]}"]', shape)


def _member(text: str, name: str) -> str:
    return f"{text}.{name}" if _PLAIN.fullmatch(name) else f'{text}["{name}"]'
