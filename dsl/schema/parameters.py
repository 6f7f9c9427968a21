"""The parameters of a plan: `params`, `-p`, `${params.…}`, values of a matrix, and the form that asks for them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from proveout.core import units
from proveout.core.data_classes import dataclass, field, record
from proveout.core.errors import Where
from proveout.dsl.plan.plan import Field, Parameter
from proveout.dsl.plan.scalars import ID_HINT, ID_PATTERN
from proveout.dsl.plan.stages import Cell, Label, ids
from proveout.dsl.plan.topology import Value
from proveout.dsl.schema.models import Param
from proveout.dsl.schema.validation import validate
from proveout.dsl.source.includes import read
from proveout.dsl.source.loader import hidden_character, read_plain
from proveout.dsl.source.nodes import (
    Map,
    Node,
    Problems,
    Scalar,
    Seq,
    Steps,
    did_you_mean,
    last_key,
    rewritten,
    scalars,
)

Reader = Callable[[object], Value]


def _of(*types: type[int | float | str], what: str, after: str = "") -> Reader:
    """A reader of values of one of these types; a boolean is not a number."""

    def read(value: object) -> Value:
        if type(value) not in types:
            raise ValueError(f"expected {what}, not {units.shown(value)}{after}")
        return float(value) if float in types else value  # type: ignore[arg-type, return-value]

    return read


_READERS: Mapping[str, Reader] = {
    "int": _of(int, what="a whole number"),
    "float": _of(int, float, what="a number"),
    "bool": _of(bool, what="true or false"),
    "text": _of(str, what="text", after="; quote it"),
    "duration": units.duration_s,
    "size": units.size_bytes,
    "rate": units.rate_per_s,
    "percentage": units.fraction,
}
FORMATS: Mapping[str, Callable[[Any], str]] = {
    "duration": units.written_duration,
    "milliseconds": lambda value: units.written_duration(value / 1e3),
    "size": units.format_size,
    "rate": units.format_rate,
    "percentage": lambda value: f"{value * 100:.6g}%",
    "float": lambda value: f"{value:.15g}",
}
"""Kind of a value -> a value as plans write it."""


@record
class Parameters:
    """The plan's parameters by name: `values` for the record, `nodes` for substitution; `broken` ones have neither."""

    values: Mapping[str, Parameter]
    nodes: Mapping[str, Node]
    broken: frozenset[str]

    def numbers(self) -> dict[str, float | bool]:
        """The values of `params.x` in an expression: durations in µs, as `us() ms() s()` give them; texts and lists are
        not there."""
        found: dict[str, float | bool] = {}
        for name, parameter in self.values.items():
            if isinstance(parameter.value, (bool, int, float)):
                scale = 1e6 if parameter.type == "duration" else 1
                found[name] = parameter.value if isinstance(parameter.value, bool) else parameter.value * scale
        return found


def read_parameters(root: Map, overrides: Mapping[str, str], problems: Problems) -> Parameters:
    """All parameters with their values, overridden by `-p`."""
    section = root.get("params")
    entries = section.entries if isinstance(section, Map) else ()
    if section is not None and not isinstance(section, Map):
        problems.add(section.where, "`params` must be a mapping of names", key="params")
    values: dict[str, Parameter] = {}
    nodes: dict[str, Node] = {}
    for key, node in entries:
        found = read_parameter(key, node, overrides.get(key.text), problems)
        if found is not None:
            values[key.text], nodes[key.text] = found
    names = {key.text for key, _ in entries}
    for name in overrides:
        if name not in names:
            problems.add(
                Where(file=f"-p {name}"), f"the plan has no parameter `{name}`", hint=did_you_mean(name, names)
            )
    return Parameters(values=values, nodes=nodes, broken=frozenset(names - set(values)))


def read_parameter(key: Scalar, node: Node, override: str | None, problems: Problems) -> tuple[Parameter, Node] | None:
    """One parameter with the node that its value came from; None with its problems noted."""
    path = f"params.{key.text}"
    if not re.fullmatch(ID_PATTERN, key.text):  # `${params.a-b}` would be read as a difference
        problems.add(key.where, f"`{key.text}` is not a name that can be used here", key="params", hint=ID_HINT)
        return None
    model = validate(Param, node, path, problems)
    if model is None:
        return None
    limits = _limits(model.type, node, path, problems)
    default = node.get("default") if isinstance(node, Map) else None
    given = default if override is None else _from_command_line(key.text, model.type, override, problems)
    if given is None:
        hint = f"give it a default, or run with -p {key.text}=…"
        problems.add(key.where, f"the parameter `{key.text}` has no value", key=path, hint=hint)
        return None
    value = _typed(model.type, given, f"{path}.default" if override is None else path, problems)
    if value is None:
        return None
    objection, hint = limits.objection(value)
    if objection:
        problems.add(given.where, f"`{key.text}` {objection}", key=path, hint=hint)
        return None
    most = limits.high and limits.high[0]
    return Parameter(name=key.text, type=model.type, value=value, help=model.help, most=most), given


def _from_command_line(name: str, kind: str, text: str, problems: Problems) -> Node:
    """The node that `-p name=text` stands for."""
    where = Where(file=f"-p {name}")
    hidden = hidden_character(text)
    if hidden is not None:
        problems.add(where, f"a hidden character: {hidden[1]}", key=f"params.{name}", hint="remove it")

    def scalar(word: str) -> Scalar:
        value, problem, _ = read_plain(word) if kind not in ("text", "list[text]") else (word, "", "")
        return Scalar(value=word if problem else value, text=word, where=where, faulty=hidden is not None)

    if kind.startswith("list["):
        return Seq(items=tuple(scalar(word.strip()) for word in text.strip("[] ").split(",")), where=where)
    return scalar(text)


def _typed(kind: str, node: Node, path: str, problems: Problems) -> Value:
    """The value of a parameter's node; None when it is not of that kind."""
    if kind.startswith("list["):
        if not isinstance(node, Seq):
            problems.add(node.where, f"expected a list of {kind[5:-1]}", key=path)
            return None
        items = tuple(_typed(kind[5:-1], item, path, problems) for item in node.items)
        return None if any(item is None for item in items) else items
    if not isinstance(node, Scalar):
        problems.add(node.where, f"expected one value of type {kind}", key=path)
    elif "${" in node.text and not node.faulty:
        problems.add(node.where, "a parameter's value cannot hold a template", key=path)
    elif not node.faulty:
        try:
            return _READERS[kind](node.value)
        except ValueError as error:
            meant = node.quoted and kind in ("int", "float", "bool") and not isinstance(read_plain(node.text)[0], str)
            problems.add(node.where, str(error), key=path, hint="without the quotes" if meant and node.text else "")
    return None


@record
class _Limits:
    """The bounds and choices of a parameter's value, or of every value of a list; the texts are as the plan writes
    them."""

    low: tuple[float, str] | None = None
    high: tuple[float, str] | None = None
    choices: tuple[tuple[Value, str], ...] = ()

    def objection(self, value: Value) -> tuple[str, str]:
        """(message, hint) for a `value` that is not allowed; ("", "") when it is."""
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, (int, float)) and self.low is not None and item < self.low[0]:
                return f"is below its minimum of {self.low[1]}", ""
            if isinstance(item, (int, float)) and self.high is not None and item > self.high[0]:
                return f"is above its maximum of {self.high[1]}", ""
            if self.choices and item not in [choice for choice, _ in self.choices]:
                return "is not one of its choices", f"one of {', '.join(text for _, text in self.choices)}"
        return "", ""


def _limits(kind: str, node: Node, path: str, problems: Problems) -> _Limits:
    inner = kind[5:-1] if kind.startswith("list[") else kind
    bounds: dict[str, tuple[float, str] | None] = {}
    for name in ("min", "max"):
        bound = node.get(name) if isinstance(node, Map) else None
        if isinstance(bound, Scalar) and inner in ("text", "bool"):
            problems.add(bound.where, f"a parameter of type {kind} has no bounds", key=path, hint="use `choices`")
        elif bound is not None:
            value = _typed(inner, bound, f"{path}.{name}", problems)
            text = bound.text if isinstance(bound, Scalar) else ""
            bounds[name] = (float(value), text) if isinstance(value, (int, float)) else None
    choices = node.get("choices") if isinstance(node, Map) else None
    allowed: list[tuple[Value, str]] = []
    for choice in choices.items if isinstance(choices, Seq) else ():
        value = _typed(inner, choice, f"{path}.choices", problems)
        if value is not None and isinstance(choice, Scalar):
            allowed.append((value, choice.text))
    return _Limits(low=bounds.get("min"), high=bounds.get("max"), choices=tuple(allowed))


# A scalar that is nothing but `${params.x}` becomes the parameter's value with its type, lists too; inside a longer
# text the value is put in as text. Other `${…}` are left where the compiler reads them: a rate (`${cap.rate}`) and a
# dsn (`${secrets.name}`); anywhere else they are a problem, and so is a template inside a template.

TEMPLATE = re.compile(r"\$\{([^{}]*)\}")
_NESTED = re.compile(r"\$\{[^{}]*\$\{")
_NAMED = {of: re.compile(rf"\$\{{\s*{of}\.([A-Za-z_][A-Za-z0-9_]*)\s*\}}") for of in ("params", "matrix")}
_LACKING = {"params": "there is no parameter", "matrix": "the matrix has no axis"}
_SEARCHED = (("rate", "from"), ("rate", "to"), ("rate", "start"))
_DEFERRED = ("rate", "rate.from", "rate.to", "rate.start", "answer")


def substitute(root: Map, parameters: Parameters, problems: Problems) -> Map:
    """`root` without its `params` and with every `${params.x}` replaced."""
    kept = tuple(entry for entry in root.entries if entry[0].text not in ("params", "include", "extends"))
    entries = ((key, filled_in(node, (key.text,), parameters, problems)) for key, node in kept)
    return Map(entries=tuple(entries), where=root.where)


def filled_in(node: Node, path: Steps, parameters: Parameters, problems: Problems) -> Node:
    """A node at `path` with every `${params.x}` replaced."""

    def change(one: Scalar, at: Steps) -> Node:
        if not isinstance(one.value, str) or "${" not in one.value or one.faulty:
            return one
        key, message, hint = ".".join(map(str, at)), "a template inside a template", ""
        if at[0] == "secrets" and "to" in at[2:3]:  # which is written as it is
            message = "the hosts of a secret cannot be a template"
            hint = "write the host itself: a parameter can be set by other files and by -p"
        elif not _NESTED.search(one.text):
            found = _filled(one, "params", parameters.nodes, problems, key=key, broken=parameters.broken)
            if not isinstance(found, Scalar) or found.faulty:
                return found
            message, hint = _left(found.text, at)
            if not message:
                return found
        problems.add(one.where, message, key=key, hint=hint)
        return one.broken

    return rewritten(node, change, path)


def _left(text: str, path: Steps) -> tuple[str, str]:
    """(message, hint) of a `${…}` that is left in a text, where the compiler does not read it itself; ("", "")
    without."""
    if "${" in TEMPLATE.sub("", text):
        return "`${` without its `}`", ""
    secret = path[-1] in ("dsn", "admin") or "instances" in path[3:5] or (path[0] == "captures" and path[-1] == "url")
    result = path[0] == "verdicts" and path[-1] == "answer"
    result |= path[0] == "stages" and (path[-1] == "rate" or path[-2:] in _SEARCHED)
    for one in () if result and not secret else TEMPLATE.finditer(text):
        inner = one[1].strip()
        if secret and inner.startswith("secrets."):
            continue
        hint = (
            f"${{params.name}} can stand here; results of stages only in {', '.join(_DEFERRED)}, secrets only in dsn, "
            "admin and url"
        )
        if inner.startswith("matrix."):
            hint = "it stands for a value of a ladder's own `matrix`"
        elif path[-1] in ("check", "accept", "stop_when", "when"):
            hint = "this is an expression already: write it without ${ }"
        return f"`{one[0]}` cannot be used here", hint
    return "", ""


def _filled(
    node: Scalar, of: str, values: Mapping[str, Node], problems: Problems, *, key: str, broken: Collection[str] = ()
) -> Node:
    """A scalar with `values` in the place of each `${of.name}`, as text; one that consists only of that becomes the
    value, with its type, lists too. Those in `broken` have a problem already."""
    names, alone = _NAMED[of].findall(node.text), _NAMED[of].fullmatch(node.text)
    if alone is not None and alone[1] in values:
        return _moved(values[alone[1]], node.where)
    texts = {name: value.in_text for name in names if isinstance(value := values.get(name), Scalar)}
    for name in names:
        if name in values and name not in texts:
            problems.add(node.where, f"the list `{name}` cannot be part of a text", key=key)
        elif name not in texts and name not in broken:
            problems.add(node.where, f"{_LACKING[of]} `{name}`", key=key, hint=did_you_mean(name, values))
    if len(texts) < len(set(names)):
        return node.broken
    text = _NAMED[of].sub(lambda found: texts[found[1]], node.text)
    return node if text == node.text else node.written(text)


def _moved(node: Node, where: Where) -> Node:
    """The parameter's node with the position `where`, so that messages name the place of use."""
    if isinstance(node, Scalar):
        return dataclasses.replace(node, where=where, places=())
    if isinstance(node, Seq):
        return Seq(items=tuple(_moved(item, where) for item in node.items), where=where)
    return node


class Form:
    """The parameters of one plan, in its order."""

    def __init__(self, entries: Mapping[str, tuple[Scalar, Node]]) -> None:
        self._entries = entries
        self.fields = tuple(_field(key, node) for key, node in entries.values())

    def objection(self, name: str, text: str) -> str:
        """The objection to `text` as a value of the parameter `name`; "" for none. KeyError: an unknown parameter."""
        key, node = self._entries[name]
        problems = Problems()
        read_parameter(key, node, text, problems)
        return "; ".join(f"{one.message} ({one.hint})" if one.hint else one.message for one in problems.found)


def read_form(path: Path) -> Form:
    """The form of the plan in the file at `path`. PlanError when the file or one it includes cannot be read, or
    `params` are not parameters."""
    problems = Problems()
    document = read(path, None, problems)
    section = document.get("params") if document is not None else None
    entries: dict[str, tuple[Scalar, Node]] = {}
    for key, node in section.entries if isinstance(section, Map) else ():
        if validate(Param, node, f"params.{key.text}", problems) is not None:
            entries[key.text] = (key, node)
    if document is None or (problems.found and not entries):
        raise problems.error()
    return Form(entries)


def _field(key: Scalar, node: Node) -> Field:
    entries = {name.text: value for name, value in node.entries} if isinstance(node, Map) else {}
    texts = {name: written_out(entries.get(name)) for name in ("type", "default", "min", "max", "help")}
    choices = entries.get("choices")
    return Field(
        name=key.text,
        type=texts["type"],
        default=texts["default"],
        required="default" not in entries,
        low=texts["min"],
        high=texts["max"],
        choices=tuple(map(written_out, choices.items)) if isinstance(choices, Seq) else (),
        help=texts["help"],
    )


def written_out(node: Node | None) -> str:
    """A value as a command line would give it: lists with commas between."""
    if isinstance(node, Seq):
        return ", ".join(map(written_out, node.items))
    return node.text if isinstance(node, Scalar) else ""


@record
class CellValues:
    """Puts the values of a cell in the place of `${matrix.axis}`."""

    values: Mapping[str, Scalar]
    problems: Problems
    path: str

    def node(self, node: Node) -> Node:
        """A node with the values put in."""
        return rewritten(node, self.scalar)

    def scalar(self, node: Scalar, _: Steps) -> Node:
        """A scalar with the values put in; a problem for an unknown axis."""
        if not isinstance(node.value, str) or node.faulty:
            return node
        return _filled(node, "matrix", self.values, self.problems, key=self.path)


@dataclass(slots=True)
class Variants:
    """The workloads of a plan with `${matrix.axis}` in them: node, axes, the variants made so far by labels, and the
    place of the first that is named where the matrix has no such axis."""

    section: Node | None
    axes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    made: dict[tuple[str, tuple[tuple[str, Label], ...]], tuple[str, Node]] = field(default_factory=dict)
    refused: dict[str, Where] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key, node in self.section.entries if isinstance(self.section, Map) else ():
            texts = [one.text for _, one in scalars(node) if isinstance(one.value, str)]
            if found := tuple(dict.fromkeys(axis for text in texts for axis in _NAMED["matrix"].findall(text))):
                self.axes[key.text] = found

    def named(self, node: Node, cell: Cell, values: CellValues) -> Node:
        """A node of a cell, in which each `workload` with variants is the one of the cell."""

        def change(one: Scalar, path: Steps) -> Node:
            if last_key(path) != "workload" or one.text not in self.axes:
                return one
            if missing := next((axis for axis in self.axes[one.text] if axis not in values.values), ""):
                message = f"workload `{one.text}` has ${{matrix.{missing}}}, and the matrix has no axis `{missing}`"
                if self.refused.setdefault(one.text, one.where) == one.where:  # once for each workload
                    values.problems.add(one.where, message, key=values.path, hint=did_you_mean(missing, values.values))
                return one.broken
            return one.written(self.variant(one.text, cell, values))

        return rewritten(node, change)

    def variant(self, workload: str, cell: Cell, values: CellValues) -> str:
        """The name of the variant of a workload for a cell."""
        assert isinstance(self.section, Map)  # noqa: S101 - the workload is in it
        labels = tuple((axis, label) for axis, label in cell.labels if axis in self.axes[workload])
        if (workload, labels) not in self.made:
            taken = {key.text for key, _ in self.section.entries} | {name for name, _ in self.made.values()}
            name = ids(workload, [labels])[0]
            free = (f"{workload}__c{number}" for number in range(1, len(taken) + 2))
            name = next(one for one in (name, *free) if one not in taken)
            body = self.section.get(workload)
            assert body is not None  # noqa: S101
            self.made[workload, labels] = name, dataclasses.replace(values, path=f"workloads.{workload}").node(body)
        return self.made[workload, labels][0]

    def put_into(self, root: Map, problems: Problems) -> Map:
        """The document with the variants; a problem for a workload that no cell uses, or that another stage names."""
        if not self.axes or not isinstance(self.section, Map):
            return root
        stages = root.get("stages")
        for path, one in scalars(stages) if stages is not None else ():
            if last_key(path) == "workload" and one.text in self.axes and not one.faulty:
                message = (
                    f"workload `{one.text}` has ${{matrix.{self.axes[one.text][0]}}}, and this stage has no matrix"
                )
                problems.add(one.where, message, key="stages", hint="a step `before` a ladder with that matrix")
                self.refused.setdefault(one.text, one.where)
        entries: list[tuple[Scalar, Node]] = []
        for key, node in self.section.entries:
            mine = [found for (workload, _), found in self.made.items() if workload == key.text]
            entries += [(dataclasses.replace(key, value=name, text=name), one) for name, one in mine]
            if key.text not in self.axes:
                entries.append((key, node))
            elif not mine and key.text not in self.refused:
                axis = self.axes[key.text][0]
                message = f"workload `{key.text}` has ${{matrix.{axis}}}, but no ladder with such a matrix uses it"
                problems.add(key.where, message, key=f"workloads.{key.text}", hint=f"matrix: {{{axis}: […]}}")
        section = dataclasses.replace(self.section, entries=tuple(entries))
        pairs = tuple((key, section if key.text == "workloads" else node) for key, node in root.entries)
        return dataclasses.replace(root, entries=pairs)


def label_of(node: Scalar) -> Label:
    """The value of an axis as a label."""
    assert node.value is not None  # noqa: S101 - looked at when the axis was read
    return node.value
