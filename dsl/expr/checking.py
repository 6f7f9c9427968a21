"""Expressions at compile time: types of names, every name resolved, every problem with its place in the text.

Data flow: text and a `Group` of names -> syntax tree -> `_Checker` walks all of it -> faults and the names used.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from proveout.core.data_classes import dataclass, field, record
from proveout.core.numbers import count_of
from proveout.dsl import metrics
from proveout.dsl.expr.evaluation import RUNGS, by_mean, evaluate
from proveout.dsl.expr.syntax import (
    COMPARISONS,
    Binary,
    Call,
    Choice,
    ExpressionFault,
    Flag,
    Index,
    Member,
    Name,
    Syntax,
    Text,
    Unary,
    children,
    mend,
    parse,
    quoted,
    ungroup,
)
from proveout.dsl.expr.syntax import Group as Grouping
from proveout.dsl.expr.syntax import Number as NumberLiteral
from proveout.dsl.metrics import is_counted
from proveout.dsl.plan.stages import Label, same, written
from proveout.dsl.source.nodes import did_you_mean


@dataclass(frozen=True, slots=True)
class Number:
    """A plain number."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number over repeats, with its interval."""


@dataclass(frozen=True, slots=True)
class Boolean:
    """True or false."""


@record
class Group:
    """Names and their types; `absent` are names that do not exist here, with (reason, way out); `rungs` makes it a
    ladder.

    `axes` makes it a matrix: the labels to choose by, and `cells` the (stage id, its shape) of each combination of
    labels. `other` is the type of every name that is not among the members: names that the plan does not know.
    `broken` are names that exist and whose types are not known, because what they name has a problem of its own.
    """

    what: str
    members: Mapping[str, Shape]
    absent: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    rungs: tuple[int, ...] = ()
    rung: Group | None = None
    axes: Mapping[str, tuple[Label, ...]] = field(default_factory=dict)
    cells: Mapping[tuple[tuple[str, Label], ...], tuple[str, Shape]] = field(default_factory=dict)
    other: Shape | None = None
    broken: frozenset[str] = frozenset()


Shape: TypeAlias = Number | Estimate | Boolean | Group

NUMBER, ESTIMATE, BOOLEAN = Number(), Estimate(), Boolean()

ESTIMATE_MEMBERS: Mapping[str, Shape] = dict.fromkeys(metrics.ESTIMATE, NUMBER)


def sample(shape: Shape, path: str = "") -> Any:
    """Data of that shape, made as it is read. All numbers differ a little, so that no difference of two of them is
    zero."""
    match shape:
        case Number():
            return 1.0 + zlib.crc32(path.encode()) / 2**34
        case Boolean():
            return True
        case Estimate():
            return {name: sample(NUMBER, f"{path}.{name}") for name in metrics.ESTIMATE}
        case Group():
            return _Sample(shape, path)


class _Sample(Mapping[str, Any]):
    """A group as the mapping that an expression would find."""

    def __init__(self, group: Group, path: str) -> None:
        self._members: dict[str, Shape] = dict(group.members)
        self._path = path
        self._other = group.other
        if group.rung is not None:
            rungs = dict.fromkeys((str(threads) for threads in group.rungs), group.rung)
            self._members[RUNGS] = Group(what="rungs", members=rungs)

    def __getitem__(self, name: str) -> Any:
        return sample(self._members.get(name, self._other) or self._members[name], f"{self._path}.{name}")

    def __contains__(self, name: object) -> bool:
        return name in self._members or self._other is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)


def as_label(value: Label) -> str:
    """A label as an expression has it."""
    return quoted(value) if isinstance(value, str) else written(value)


def way_to_cell(tree: Group) -> str:
    """The choice of the first cell of a matrix."""
    return "".join(f".{axis}({as_label(values[0])})" for axis, values in tree.axes.items())


def describe(shape: Shape) -> str:
    """The type in words."""
    match shape:
        case Group(axes=axes) if axes:
            return "a matrix of ladders"
        case Estimate():
            return "an estimate over the repeats"
        case Boolean():
            return "true or false"
        case Group():
            return "a group of numbers" if shape.rung is None else "a ladder"
        case _:
            return "a number"


def way_to_number(shape: Shape) -> str:
    """The way to a number of it; "" where it is one."""
    match shape:
        case Estimate():
            return "take its .mean, .median, .lower or .upper"
        case Group(axes=axes) if axes:
            return f"choose a cell: {way_to_cell(shape)}.at(…)"
        case Group(rung=None):
            return did_you_mean("", (f".{name}" for name in shape.members))
        case Group():
            return "name a rung: .at(4) or .peak"
        case _:
            return ""


Expected: TypeAlias = Literal["condition", "number", "when"]
"""The required type of an expression; `when` is a condition that may read nothing but parameters."""

NUMERIC_FUNCTIONS = {"us": 1, "ms": 1, "s": 1, "abs": 1, "min": 2, "max": 2}
KEYED = {
    "event": ("events", "a wait event", 'base.at(4).waits.event("WalSync").count'),
    "fault": ("faults", "a fault", 'run.at(16).fault("crash").outage_s'),
    "statement": ("statements", "a statement", 'run.at(16).statement("UPDATE subscriber").avg_us'),
    "phase": ("phases", "a phase", 'run.at(16).phase("spike").response.p99_us'),
}
"""Functions that choose by a name, `waits.event("log file sync")`: the group that has the names, what they are, and an
example."""
FUNCTIONS = (*NUMERIC_FUNCTIONS, "at", *KEYED, "ratio")
PARAMS = "params"
NO_RUNG = "has no rung of"


@record
class Fault:
    """Something wrong `offset` characters into an expression."""

    offset: int
    message: str
    hint: str = ""


@record
class Checked:
    """The result of checking: faults, root names read, and the text with `params.x` filled in."""

    faults: tuple[Fault, ...]
    roots: tuple[str, ...]
    text: str


def check_expression(
    text: str, scope: Group, expected: Expected, parameters: Mapping[str, float | bool] | None = None
) -> Checked:
    """Check `text` in `scope`; `parameters` are the values that `params.x` stands for."""
    known = parameters or {}
    mended = mend(text)
    notations = [Fault(offset=fault.offset, message=fault.what, hint=fault.way_out) for fault in mended.faults]
    tree = mended.tree
    if tree is None:
        return Checked(faults=tuple(notations), roots=(), text=text)
    inside = _with_parameters(scope, known)
    checker = _Checker(text=mended.text, scope=inside, by_mean=expected == "number")
    checker.whole(tree, expected)
    roots = tuple(sorted(checker.roots - {PARAMS}))
    if checker.faults or notations or checker.unsure:
        found = [dataclasses.replace(fault, offset=mended.written(fault.offset)) for fault in checker.faults]
        return Checked(faults=(*notations, *found), roots=roots, text=text)
    filled, data, faults = _fill(text, tree, known, checker.cells), sample(inside), list[Fault]()
    try:  # over samples, estimates by their mean where they are compared as such, or stand for a number
        evaluate(by_mean(filled, data), data, functions={"ratio": lambda _a, _b: sample(ESTIMATE)})
    except ExpressionFault as fault:
        faults.append(Fault(offset=0, message=fault.what, hint=fault.way_out))
    return Checked(faults=tuple(faults), roots=roots, text=filled)


def shape_of(
    text: str, scope: Group, parameters: Mapping[str, float | bool]
) -> tuple[Shape | None, str, tuple[Fault, ...]]:
    """(the type of `text` in `scope`, the text with its parameters and cells put in, faults): a number or a group."""
    try:
        tree = parse(text)
    except ExpressionFault as fault:
        return None, text, (Fault(offset=fault.offset, message=fault.what, hint=fault.way_out),)
    checker = _Checker(text=text, scope=_with_parameters(scope, parameters))
    shape = checker.shape(tree)
    if checker.faults or shape is None:
        return None, text, tuple(checker.faults)
    return shape, _fill(text, tree, parameters, checker.cells), ()


def _with_parameters(scope: Group, known: Mapping[str, float | bool]) -> Group:
    params: dict[str, Shape] = {name: BOOLEAN if isinstance(value, bool) else NUMBER for name, value in known.items()}
    more = {PARAMS: Group(what=PARAMS, members=params)} if params else {}
    return dataclasses.replace(scope, members={**scope.members, **more})


def _fill(
    text: str, tree: Syntax, parameters: Mapping[str, float | bool], cells: Sequence[tuple[int, int, str]]
) -> str:
    """The text with the value of every `params.x` in its place, and the stage's id in that of every cell of a
    matrix."""
    cuts = list(cells)

    def visit(node: Syntax) -> None:
        if isinstance(node, Member) and isinstance(node.of, Name) and node.of.name == PARAMS:
            value = parameters[node.name]
            shown = str(value).lower() if isinstance(value, bool) else repr(value)
            cuts.append((node.start, node.end, f"({shown})" if shown.startswith("-") else shown))
        for part in children(node):
            visit(part)

    visit(tree)
    for start, end, value in sorted(cuts, reverse=True):
        text = text[:start] + value + text[end:]
    return text


@dataclass(slots=True)
class _Checker:
    """Walks a tree bottom up; `shape` gives the type of a node, None when a fault below it hides the type.

    `by_mean`: an estimate in the place of a number stands for its mean.
    """

    text: str
    scope: Group
    by_mean: bool = False
    faults: list[Fault] = field(default_factory=list)
    unsure: bool = False
    roots: set[str] = field(default_factory=set)
    cells: list[tuple[int, int, str]] = field(default_factory=list)

    def whole(self, tree: Syntax, expected: Expected) -> None:
        shape = self.shape(tree)
        if shape is not None:
            if expected != "number" and not isinstance(shape, Boolean):
                self.fault(tree, f"expected a condition, but this is {describe(shape)}", "compare it: … >= 1.5")
            if expected == "number":
                self.number(tree, shape)
        if expected != "when" and not self.faults and not self.roots - {PARAMS}:
            self.fault(tree, "this reads no result, so it decides nothing", did_you_mean("", self.scope.members))

    def fault(self, node: Syntax, message: str, hint: str = "") -> None:
        self.faults.append(Fault(offset=node.start, message=message, hint=hint))

    def source(self, node: Syntax) -> str:
        return self.text[node.start : node.end]

    def shape(self, node: Syntax) -> Shape | None:  # noqa: PLR0911 - one line per kind of node
        match node:
            case NumberLiteral():
                return NUMBER
            case Flag():
                return BOOLEAN
            case Text():
                hint = 'only the `when` of a step compares texts; names with a dash are written hosts["db-1"]'
                self.fault(node, "a text has no use here", hint)
                return None
            case Grouping(inner=inner):
                return self.shape(inner)
            case Name():
                return self.name(node)
            case Member(of=of, name=name):
                return self.member(node, of, name, node.name_start)
            case Index(of=of, key=key):
                return self.member(node, of, key.value, key.start)
            case Call():
                return self.call(node)
            case Unary(operator="!", operand=operand):
                self.condition(operand, self.shape(operand))
                return BOOLEAN
            case Unary(operand=operand):
                self.number(operand, self.shape(operand))
                return NUMBER
            case Choice():
                return self.choice(node)
            case Binary():
                return self.binary(node)

    def name(self, node: Name) -> Shape | None:
        if node.name in self.scope.broken:
            self.roots.add(node.name)
            self.unsure = True
            return None
        if node.name in self.scope.members:
            self.roots.add(node.name)
            return self.scope.members[node.name]
        self.unknown(node.name, node.start, self.scope)
        return None

    def member(self, node: Syntax, of: Syntax, name: str, name_start: int) -> Shape | None:
        tree = self.shape(of)
        if isinstance(tree, Estimate):
            tree = Group(what=f"the estimate `{self.source(of)}`", members=ESTIMATE_MEMBERS)
        if isinstance(tree, (Number, Boolean)):
            self.faults.append(
                Fault(offset=name_start, message=f"`{self.source(of)}` is {describe(tree)} and has no `.{name}`")
            )
            return None
        if tree is None:
            return None
        if name in tree.members:
            return tree.members[name]
        if tree.other is not None and name:
            return tree.other
        self.unknown(name, name_start, tree)
        return None

    def unknown(self, name: str, offset: int, tree: Group) -> None:
        if name in tree.absent:
            why, way_out = tree.absent[name]
            self.faults.append(Fault(offset=offset, message=f"`{name}` has no numbers here: {why}", hint=way_out))
            return
        message = f"{tree.what} {'have' if tree.what.endswith('s') else 'has'} no `{name}`"
        hint = did_you_mean(name, (*tree.members, *tree.broken))
        ladders = [(stage, found) for stage, found in tree.members.items() if isinstance(found, Group)]
        inner = [f"{group}.{name}" for group, found in ladders if not found.rung and name in found.members]
        near = next(((stage, found) for stage, found in ladders if found.rung and name in found.rung.members), None)
        if near is not None:
            hint = f"name the stage and the rung: {near[0]}.at({near[1].rungs[-1]}).{name}"
        elif tree.rung is not None and name in tree.rung.members:
            hint = f"name the rung: .at({tree.rungs[0]}).{name} or .peak.{name}"
        elif inner and tree.rung is None:
            hint = f"did you mean `{inner[0]}`?"
        elif tree.axes:
            hint = f"choose a cell: {way_to_cell(tree)}"
        elif tree.rung is not None:
            hint = f"a ladder has .peak and .at(n), n of {', '.join(map(str, tree.rungs))}"
        self.faults.append(Fault(offset=offset, message=message, hint=hint))

    def call(self, node: Call) -> Shape | None:
        if node.function == "at" or node.function in KEYED:
            return self.at(node) if node.function == "at" else self.keyed(node)
        if node.arguments and self.is_matrix(node.arguments[0]):
            return self.axis(node)
        if node.function == "ratio":
            return self.ratio(node)
        arity = NUMERIC_FUNCTIONS.get(node.function)
        if arity is None and node.arguments and node.arguments[0].start == node.start:  # `name.axis(value)`
            if self.shape(node.arguments[0]) is None:
                return None  # of a matrix that did not compile, or whose name is misspelt
        else:
            for argument in node.arguments:
                self.number(argument, self.shape(argument))
        if arity is None:
            self.fault(node, f"there is no function `{node.function}`", did_you_mean(node.function, FUNCTIONS))
            return None
        if len(node.arguments) != arity:
            self.fault(node, f"{node.function}() takes {count_of(arity, 'value')}, not {len(node.arguments)}")
        return NUMBER

    def at(self, node: Call) -> Shape | None:
        if len(node.arguments) != 2:
            self.fault(node, "at() takes the number of threads", "as in baseline.at(4)")
            return None
        ladder, threads = node.arguments
        tree = self.shape(ladder)
        if tree is None:
            return None
        if not isinstance(tree, Group) or tree.rung is None:
            hint = f"choose a cell: {way_to_cell(tree)}" if isinstance(tree, Group) and tree.axes else ""
            self.fault(node, f"`{self.source(ladder)}` is not a ladder and has no rungs", hint)
            return None
        rung, rungs = ungroup(threads), ", ".join(map(str, tree.rungs))
        if not isinstance(rung, NumberLiteral) or not rung.value.is_integer():
            self.fault(threads, "at() takes a plain number of threads", f"one of {rungs}")
        elif rung.value not in tree.rungs:
            message = f"{tree.what} {NO_RUNG} {count_of(int(rung.value), 'thread')}"
            self.fault(threads, message, f"its rungs are {rungs}")
        return tree.rung

    def keyed(self, node: Call) -> Shape | None:
        """`waits.event("log file sync")`, which stands for `waits.events["log file sync"]`; of a ladder of one rung
        that of the rung."""
        group, what, example = KEYED[node.function]
        of = node.arguments[0] if node.arguments else None
        label = ungroup(node.arguments[1]) if len(node.arguments) == 2 else None
        if of is None or not isinstance(label, Text) or not label.value:
            self.fault(node, f"{node.function}() takes the name of {what}", f"as in {example}")
            return None
        tree = self.shape(of)
        if tree is None:
            return None
        rung = ""
        if isinstance(tree, Group) and tree.rung is not None and len(tree.rungs) == 1:
            rung, tree = f".at({tree.rungs[0]})", tree.rung
        found = tree.members.get(group) if isinstance(tree, Group) else None
        if not isinstance(found, Group):
            self.without(node, of, tree, group)
            return None
        if label.value not in found.members and found.other is None:
            self.unknown(label.value, label.start, found)
            return None
        self.cells += [(node.start, of.start, ""), (of.end, node.end, f"{rung}.{group}[{quoted(label.value)}]")]
        return found.members.get(label.value, found.other)

    def without(self, node: Call, of: Syntax, tree: Shape, group: str) -> None:
        """Note that there are no names to choose by."""
        _, what, example = KEYED[node.function]
        if isinstance(tree, Group) and group in tree.absent:
            self.fault(node, *tree.absent[group])
        elif isinstance(tree, Group) and tree.rung is not None:
            self.fault(node, f"{tree.what} has several rungs", f"name the rung, as in {example}")
        else:
            self.fault(node, f"`{self.source(of)}` has no {what.partition(' ')[2]}s", f"as in {example}")

    # ---- matrices ----

    def is_matrix(self, node: Syntax) -> bool:
        """Whether labels are being chosen: the expression begins with the name of a matrix and has not come to a
        cell."""
        while isinstance(node := ungroup(node), Call) and node.arguments and node.function not in FUNCTIONS:
            node = node.arguments[0]
        known = self.scope.members.get(node.name) if isinstance(node, Name) else None
        return isinstance(known, Group) and bool(known.axes)

    def axis(self, node: Call) -> Shape | None:
        """`matrix.axis(value)`: the rest of the matrix, or the cell when that was its last axis."""
        tree = self.shape(node.arguments[0])
        if not isinstance(tree, Group):
            return None
        if node.function not in tree.axes:
            message = f"{tree.what} has no axis `{node.function}`" + (" to choose by" if tree.axes else " left")
            self.fault(node, message, did_you_mean(node.function, tree.axes))
            return None
        label = _label(node.arguments[1]) if len(node.arguments) == 2 else None
        values = tree.axes[node.function]
        if label is None or not any(same(label, value) for value in values):
            given = ", ".join(map(self.source, node.arguments[1:])) or "nothing"
            texts = [value for value in values if isinstance(value, str)]
            hint = did_you_mean(label, texts) if isinstance(label, str) and texts else ""
            hint = hint or f"its values are {', '.join(map(as_label, values))}"
            self.fault(
                node.arguments[1] if len(node.arguments) > 1 else node,
                f"the axis `{node.function}` has no value {given}",
                hint,
            )
            return None
        return self.chosen(node, tree, node.function, label)

    def chosen(self, node: Call, tree: Group, axis: str, label: Label) -> Shape | None:
        cells = {
            labels: cell for labels, cell in tree.cells.items() if any(a == axis and same(v, label) for a, v in labels)
        }
        rest = {
            name: tuple(value for value in values if any((name, value) in labels for labels in cells))
            for name, values in tree.axes.items()
            if name != axis
        }
        if rest:
            what = f"`{self.source(node)}`"
            return Group(what=what, members={}, axes=rest, cells=cells)
        stage, shape = next(iter(cells.values()))
        self.cells.append((node.start, node.end, stage))
        self.roots.add(stage)
        return shape

    def ratio(self, node: Call) -> Shape | None:
        if len(node.arguments) != 2:
            self.fault(node, f"ratio() takes two estimates, not {len(node.arguments)} values")
        for argument in node.arguments:
            shape = self.shape(argument)
            if shape is not None and not isinstance(shape, Estimate):
                statistic = isinstance(argument, Member) and argument.name in ESTIMATE_MEMBERS
                hint = "leave .mean away" if statistic else "take one number of a rung"
                self.fault(
                    argument, f"ratio() takes estimates, but `{self.source(argument)}` is {describe(shape)}", hint
                )
        return ESTIMATE

    def number(self, node: Syntax, shape: Shape | None) -> None:
        if shape is None or shape == NUMBER or (self.by_mean and isinstance(shape, Estimate)):
            return
        message = f"expected a number, but `{self.source(node)}` is {describe(shape)}"
        self.fault(node, message, way_to_number(shape))

    def condition(self, node: Syntax, shape: Shape | None) -> None:
        if shape is None or isinstance(shape, Boolean):
            return
        self.fault(
            node, f"expected a condition, but `{self.source(node)}` is {describe(shape)}", "compare it: … >= 1.5"
        )

    def choice(self, node: Choice) -> Shape | None:
        self.condition(node.condition, self.shape(node.condition))
        then, otherwise = self.shape(node.then), self.shape(node.otherwise)
        if then is None or otherwise is None:
            return None
        if type(then) is not type(otherwise):
            self.fault(node.otherwise, f"one branch is {describe(then)}, the other {describe(otherwise)}")
        return then

    def binary(self, node: Binary) -> Shape | None:
        left, right = self.shape(node.left), self.shape(node.right)
        if node.operator in ("&&", "||"):
            self.condition(node.left, left)
            self.condition(node.right, right)
            return BOOLEAN
        if node.operator in COMPARISONS:
            self.comparison(node, left, right)
            return BOOLEAN
        if node.operator == "/" and isinstance(left, Estimate) and isinstance(right, Estimate) and not self.by_mean:
            message = f"`{self.source(node)}` divides {describe(left)} by another"
            hint = f"ratio({self.source(node.left)}, {self.source(node.right)}) has their interval"
            self.fault(node, message, hint)
            return None
        self.number(node.left, left)
        self.number(node.right, right)
        return NUMBER

    def comparison(self, node: Binary, left: Shape | None, right: Shape | None) -> None:
        """Numbers with numbers; an estimate by its interval, so only where one side can lie beyond the other; one of
        counts in every repeat."""
        if isinstance(left, Boolean) and isinstance(right, Boolean) and node.operator in ("==", "!="):
            return
        by_interval = node.operator not in ("==", "!=")
        for side, shape in ((node.left, left), (node.right, right)):
            if not (isinstance(shape, Estimate) and (by_interval or _is_counted(side))):
                self.number(side, shape)


def _is_counted(node: Syntax) -> bool:
    """Whether an estimate is of numbers of events that were counted."""
    names: list[str] = []
    node = ungroup(node)
    while isinstance(node, Member):
        names.append(node.name)
        node = ungroup(node.of)
    if isinstance(node, Call) and node.function in KEYED:
        names += ["", KEYED[node.function][0]]
    return is_counted(names[::-1])


def _label(node: Syntax) -> Label | None:
    """The label that an argument is; None for anything but a plain value."""
    match ungroup(node):
        case Text(value=text):
            return text
        case NumberLiteral(value=number) | Flag(value=number):
            return number
        case Unary(operator="-", operand=NumberLiteral(value=number)):
            return -number
    return None
