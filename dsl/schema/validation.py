"""Nodes -> models, and pydantic's errors -> problems with a position, in the words of the plan language."""

from __future__ import annotations

import dataclasses
import re
import types
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError, create_model
from pydantic_core import ErrorDetails

from proveout.core.units import plain_number
from proveout.dsl.plan.captures import MEASURED
from proveout.dsl.plan.keys import Element, model_of
from proveout.dsl.plan.scalars import BROKEN, ID_HINT, ID_PATTERN, NAME_HINT, NAME_PATTERN, Form
from proveout.dsl.source.loader import read_plain
from proveout.dsl.source.nodes import Map, Node, Problems, Scalar, Seq, did_you_mean, locate, plain, scalars

Model = TypeVar("Model", bound=BaseModel)

SPLIT = frozenset("()<>&|=?")
"""Characters of a key that is the rest of an expression, which a comma has cut in two."""
DETAILS_MAX = 100
"""Problems noted of one entry."""

_TYPE_WORDS = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "scalar_type": "text, a number, true or false",
}
_SCALARS = (["str"], ["int"], ["float"], ["bool"])

_BOUNDS = {
    "greater_than_equal": ("ge", "must be at least {0}"),
    "greater_than": ("gt", "must be over {0}"),
    "less_than_equal": ("le", "must be at most {0}"),
    "less_than": ("lt", "must be under {0}"),
    "too_short": ("min_length", "needs at least {0}"),
    "too_long": ("max_length", "has more than {0}"),
    "string_too_short": ("min_length", "must not be empty"),
    "string_too_long": ("max_length", "is longer than {0} characters"),
}

_OWN_MESSAGES = frozenset({"proveout", "value_error"})


def validate(model: type[Model], node: Node, key: str, problems: Problems) -> Model | None:
    """`node` as a `model`; None, and problems noted, when it is not one. `key` is the node's own dotted path."""
    try:
        return model.model_validate(plain(node))
    except ValidationError as error:
        for detail in error.errors(include_url=False)[:DETAILS_MAX]:
            if detail["type"] != "default_factory_not_called":  # it reads a key that has a problem of its own
                _note(model, node, key, detail, problems)
        return None


def salvage(model: type[Model], node: Node) -> Model | None:
    """The valid part of an entry that is not valid as a whole: required keys that are not valid are empty; None without
    such a part."""
    data = plain(node)
    if not isinstance(data, dict):
        return None
    names = {field.alias or name: name for name, field in model.model_fields.items()}
    try:
        return model.model_validate(data)
    except ValidationError as error:
        broken = {str(detail["loc"][0]) for detail in error.errors(include_url=False) if detail["loc"]}
    required = {names[key] for key in broken & set(names) if model.model_fields[names[key]].is_required()}
    types = {name: model.model_fields[name].annotation for name in required}
    empty: dict[str, Any] = {name: (kind, _empty(kind)) for name, kind in types.items()}
    if any(value is None for _, value in empty.values()):
        return None
    part = create_model(model.__name__, __base__=model, **empty)
    try:
        return part.model_validate({key: value for key, value in data.items() if key in names and key not in broken})
    except ValidationError:
        return None


def _empty(annotation: Any) -> object:
    """An empty value of a type, for a required key; None of a type that has none."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _empty(get_args(annotation)[0])
    if origin in (list, dict, tuple):
        return origin()
    return annotation() if annotation in (int, float, str) else None


def _note(model: type[BaseModel], root: Node, key: str, detail: ErrorDetails, problems: Problems) -> None:
    path = [
        step for step in detail["loc"] if not (isinstance(step, str) and step.startswith("["))
    ]  # and tags of unions
    of_union = path[-1:] in _SCALARS and detail["type"] in _TYPE_WORDS
    if of_union and not (isinstance(above := locate(root, path[:-1])[0], Map) and above.get(str(path[-1]))):
        path = path[:-1]  # pydantic's name of a type, for each of a union
        detail = {**detail, "type": "scalar_type"}
    is_key = detail["loc"][-1:] == ("[key]",) or detail["type"] == "extra_forbidden"
    node, name = locate(root, path)
    if not (is_key or isinstance(node, Map)) and any(one.faulty for _, one in scalars(node)):
        return
    where = name.where if name is not None and (is_key or detail["type"] == "missing") else node.where
    dotted = ".".join([*([key] if key else []), *map(str, path)])
    label = next((word for word in reversed(dotted.split(".")) if word and not word.isdigit()), "this")
    if dotted.startswith("secrets.") and isinstance(node, Scalar):  # it may be the secret
        kind = "a number" if type(node.value) in (int, float) else "text"
        node = dataclasses.replace(node, text=kind, quoted=False)
    message, hint = _say(model, path, label, (root, node), detail)
    problems.add(where, message, key=dotted, hint=hint)


def _say(  # noqa: PLR0911 - one per kind
    model: type[BaseModel], path: Sequence[str | int], label: str, nodes: tuple[Node, Node], detail: ErrorDetails
) -> tuple[str, str]:
    """(message, hint) for one error of pydantic's; `nodes` are the entry and what is wrong in it."""
    root, node = nodes
    kind, context = detail["type"], detail.get("ctx") or {}
    last = str(path[-1]) if path else "this"
    if kind == "extra_forbidden":
        known = fields(_model_at(model, path[:-1], without=last))
        split, (name, equals, value) = bool(SPLIT & set(last)), last.partition("=")
        hint = "a comma ends a value inside { }: quote the expression" if split else did_you_mean(last, known)
        hint = f"write {name}: {value}" if equals and name in known else hint
        return f"unknown key `{last}`", _after_comma(locate(root, path[:-1])[0], last) or hint
    if kind == "missing":
        is_item = path and isinstance(path[-1], int)
        return (f"`{label}` needs at least {int(last) + 1}" if is_item else f"`{last}` is required"), ""
    if kind == "literal_error":  # whose values are in pydantic's words for them
        expected = str(context.get("expected", "")).replace(" or ", ", ")
        choices = [word.strip("' ") for word in expected.split(",")]
        if detail["loc"][-1:] == ("[key]",):
            return f"`{last}` cannot stand here", did_you_mean(last, choices)
        given = node.text if isinstance(node, Scalar) else ""
        hint = did_you_mean(given, choices) if given else f"one of {', '.join(choices)}"
        return f"`{label}` cannot be {_shown(node)}", hint
    if kind == "string_pattern_mismatch":
        name = last if detail["loc"][-1] == "[key]" else node.text if isinstance(node, Scalar) else ""
        pattern, of_id = str(context.get("pattern")), ID_PATTERN.partition("{")[0]
        hint = NAME_HINT if pattern == NAME_PATTERN else ID_HINT if pattern.startswith(of_id) else ""
        words = "is not a name that can be used here" if hint else BROKEN["pattern"][1].format(pattern)
        return f"`{name}` {words}", hint
    if kind in _BOUNDS:
        limit, words = _BOUNDS[kind]
        return f"`{label}` {words.format(context.get(limit))}", ""
    if kind in _TYPE_WORDS:
        in_list = isinstance(path[-1] if path else None, int)
        hint = _number_meant(node, in_list=in_list) if kind in _NUMBERS else ""
        if kind == "dict_type" and isinstance(node, Seq):
            hint = f"each under its name, without `-`: {label}: {{NAME: …}}"
        if kind.startswith("model_") and isinstance(node, Scalar) and (keys := fields(_model_at(model, path))):
            hint = f"its keys are {', '.join(keys)}"
            of = root.get("kind") if isinstance(root, Map) and path[0] == "metrics" and in_list else None
            if isinstance(of, Scalar) and of.text in MEASURED:
                hint = (
                    f"a capture of kind {of.text} has them by name: metrics: {{{node.text}: {{column: {node.text}}}}}"
                )
        words = _TYPE_WORDS[kind]
        if kind == "scalar_type" and isinstance(node, Scalar) and isinstance(node.value, bool):
            words = "text or a number"
        return f"`{label}` must be {words}, not {_shown(node)}", hint
    message = detail["msg"] if kind in _OWN_MESSAGES else detail["msg"].lower()
    return message.removeprefix("Value error, "), ""


_NUMBERS = frozenset({"int_type", "int_from_float", "float_type"})


def _after_comma(mapping: Node, key: str) -> str:
    """The way out where a key is what follows the comma in `population: 1,000` or `threads: 1, 4`; else ""."""
    keys = mapping.keys() if isinstance(mapping, Map) else ()
    if not isinstance(mapping, Map) or not key.isdecimal() or key not in keys or keys.index(key) == 0:
        return ""
    first = next((at for at in range(keys.index(key) - 1, -1, -1) if not keys[at].isdecimal()), 0)
    name, value = mapping.entries[first]
    if not isinstance(value, Scalar) or not value.text.replace("_", "").isdecimal():
        return ""
    numbers = [value.text]
    for number in keys[first + 1 :]:
        if not number.isdecimal():
            break
        numbers.append(number)
    written = "_".join(numbers) if all(len(part) == 3 for part in numbers[1:]) else f"[{', '.join(numbers)}]"
    return f"a comma ends a value inside {{ }}: write {name.text}: {written}"


def _number_meant(node: Node, *, in_list: bool) -> str:
    """The likely number behind a text; "" when none is likely."""
    if not isinstance(node, Scalar) or not isinstance(node.value, str):
        return ""
    text = node.text.strip()
    many = [part.strip() for part in text.strip("[]").split(",")]
    number = plain_number(text)
    if in_list and len(many) > 1 and "_" not in number and all(part.isdecimal() for part in many):
        return f"a list is written [{', '.join(many)}]"
    large = re.fullmatch(r"(\d{1,15}(?:\.\d{1,15})?) ?([kKmM])", text)
    if large is not None:
        return f"did you mean {round(float(large[1]) * (1_000 if large[2] in 'kK' else 1_000_000)):_}?"
    if read_plain(number)[0] != number:
        return f"did you mean {number}?"
    return ""


def _shown(node: Node) -> str:
    if isinstance(node, Scalar):
        return f'"{node.text}"' if node.quoted else node.text or "empty"
    return "a list" if hasattr(node, "items") else "a mapping"


def fields(model: type[BaseModel] | None) -> list[str]:
    """The keys of a model, as plans write them."""
    return [] if model is None else [field.alias or name for name, field in model.model_fields.items()]


def _model_at(model: type[BaseModel], path: Sequence[str | int], *, without: str = "") -> type[BaseModel] | None:
    """The model that the mapping at `path` is read as; of several one that does not have the key `without`."""
    found: list[Any] = [model]
    for step in path:
        found = [below for one in found for below in _types(_step(one, step))]
    models = [one for one in found if isinstance(one, type) and issubclass(one, BaseModel)]
    return next((one for one in models if without not in fields(one)), next(iter(models), None))


def _step(of: Any, step: str | int) -> Any:
    """The annotation of a value below one of a type."""
    if isinstance(of, type) and issubclass(of, BaseModel):
        return next((one.annotation for name, one in of.model_fields.items() if step in (name, one.alias)), None)
    arguments = [one for one in get_args(of) if one is not ...]
    fits = get_origin(of) is not (dict if isinstance(step, int) else list)  # a tuple is written as one of both
    return arguments[-1] if arguments and fits else None


def _types(annotation: Any) -> Iterator[Any]:
    """The types of an annotation as it is written, through Annotated and unions; for a record its model."""
    if get_origin(annotation) is Annotated:
        of, *forms = get_args(annotation)
        yield from _types(next((one.record for one in forms if isinstance(one, Form) and one.record), of))
    elif get_origin(annotation) in (Union, types.UnionType):
        for argument in get_args(annotation):
            yield from _types(argument)
    else:
        yield model_of(annotation) if isinstance(annotation, type) and issubclass(annotation, Element) else annotation
