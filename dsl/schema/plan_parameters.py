"""`params:` and `-p name=value` -> typed values.

Data flow: root mapping + overrides -> `Parameters` (typed, bounded; with the node each value came from) ->
`substitution`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from proveout.core import units
from proveout.core.data_classes import dataclass
from proveout.core.errors import Where
from proveout.dsl.plan.plan import Parameter
from proveout.dsl.plan.values import Value
from proveout.dsl.schema.models import Param
from proveout.dsl.schema.validation import validate
from proveout.dsl.source.nodes import Map, Node, Problems, Scalar, Seq, did_you_mean
from proveout.dsl.source.scalars import read_plain

Reader = Callable[[object], Value]


def _whole(value: object) -> Value:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"expected a whole number, not {value}")
    return value


def _number(value: object) -> Value:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"expected a number, not {value}")
    return float(value)


def _flag(value: object) -> Value:
    if not isinstance(value, bool):
        raise ValueError(f"expected true or false, not {value}")
    return value


def _text(value: object) -> Value:
    if not isinstance(value, str):
        raise ValueError(f"expected text, not {value}; quote it")
    return value


_READERS: Mapping[str, Reader] = {
    "int": _whole,
    "float": _number,
    "bool": _flag,
    "text": _text,
    "duration": units.duration_s,
    "size": units.size_bytes,
    "rate": units.rate_per_s,
    "percentage": units.fraction,
}


@dataclass(frozen=True, slots=True, kw_only=True)
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
    model = validate(Param, node, path, problems)
    if model is None:
        return None
    limits = _limits(model.type, node, path, problems)
    default = node.get("default") if isinstance(node, Map) else None
    given = default if override is None else _from_command_line(key.text, model.type, override)
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
    return Parameter(name=key.text, type=model.type, value=value, help=model.help), given


def _from_command_line(name: str, kind: str, text: str) -> Node:
    """The node that `-p name=text` stands for."""
    where = Where(file=f"-p {name}")

    def scalar(word: str) -> Scalar:
        value, problem, _ = read_plain(word) if kind not in ("text", "list[text]") else (word, "", "")
        return Scalar(value=word if problem else value, text=word, where=where)

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
    if isinstance(node, Scalar):
        return _typed_scalar(kind, node, path, problems)
    problems.add(node.where, f"expected one value of type {kind}", key=path)
    return None


def _typed_scalar(kind: str, node: Scalar, path: str, problems: Problems) -> Value:
    if node.faulty:
        return None
    if "${" in node.text:
        problems.add(node.where, "a parameter's value cannot hold a template", key=path)
        return None
    try:
        return _READERS[kind](node.value)
    except ValueError as error:
        problems.add(node.where, str(error), key=path)
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
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
