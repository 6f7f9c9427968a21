"""Nodes -> models, and pydantic's errors -> problems with a position, in the words of the plan language."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from proveout.dsl.source.nodes import Node, Problems, Scalar, did_you_mean, locate, plain

Model = TypeVar("Model", bound=BaseModel)

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
}

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
            _note(model, node, key, detail, problems)
        return None


def _note(model: type[BaseModel], root: Node, key: str, detail: ErrorDetails, problems: Problems) -> None:
    path = [
        step for step in detail["loc"] if not (isinstance(step, str) and step.startswith("["))
    ]  # and tags of unions
    is_key = detail["loc"][-1:] == ("[key]",) or detail["type"] == "extra_forbidden"
    node, name = locate(root, path)
    if isinstance(node, Scalar) and node.faulty and not is_key:
        return
    where = name.where if name is not None and (is_key or detail["type"] == "missing") else node.where
    dotted = ".".join([*([key] if key else []), *map(str, path)])
    label = next((word for word in reversed(dotted.split(".")) if word and not word.isdigit()), "this")
    message, hint = _say(model, path, label, node, detail)
    problems.add(where, message, key=dotted, hint=hint)


def _say(  # noqa: PLR0911 - one per kind
    model: type[BaseModel], path: Sequence[str | int], label: str, node: Node, detail: ErrorDetails
) -> tuple[str, str]:
    """(message, hint) for one error of pydantic's."""
    kind, context = detail["type"], detail.get("ctx") or {}
    last = str(path[-1]) if path else "this"
    if kind == "extra_forbidden":
        known = _fields(_model_at(model, path[:-1]))
        split = any(character in last for character in "()<>&|=?")
        hint = "a comma ends a value inside { }: quote the expression" if split else did_you_mean(last, known)
        return f"unknown key `{last}`", hint
    if kind == "missing":
        return f"`{last}` is required", ""
    if kind == "literal_error" and detail["loc"][-1:] == ("[key]",):
        return f"`{last}` cannot stand here", did_you_mean(last, _choices(detail))
    if kind == "literal_error":
        return _literal(label, node, str(context.get("expected", "")))
    if kind == "string_pattern_mismatch":
        return (
            f"`{last if detail['loc'][-1] == '[key]' else detail['input']}` is not a name that can be used here",
            _NAMES,
        )
    if kind in _BOUNDS:
        limit, words = _BOUNDS[kind]
        return f"`{label}` {words.format(context.get(limit))}", ""
    if kind in _TYPE_WORDS:
        return f"`{label}` must be {_TYPE_WORDS[kind]}, not {_shown(node)}", ""
    message = detail["msg"] if kind in _OWN_MESSAGES else detail["msg"].lower()
    return message.removeprefix("Value error, "), ""


_NAMES = "names are made of ASCII letters, digits, _ and -, and begin with a letter; stage ids have no -"


def _literal(label: str, node: Node, expected: str) -> tuple[str, str]:
    choices = _words(expected)
    given = node.text if isinstance(node, Scalar) else ""
    return f"`{label}` cannot be {_shown(node)}", did_you_mean(
        given, choices
    ) if given else f"one of {', '.join(choices)}"


def _choices(detail: ErrorDetails) -> list[str]:
    return _words(str((detail.get("ctx") or {}).get("expected", "")))


def _words(expected: str) -> list[str]:
    """The values of a Literal, from pydantic's words for them."""
    return [word.strip("' ") for word in expected.replace(" or ", ", ").split(",")]


def _shown(node: Node) -> str:
    if isinstance(node, Scalar):
        return f'"{node.text}"' if node.quoted else node.text or "empty"
    return "a list" if hasattr(node, "items") else "a mapping"


def _fields(model: type[BaseModel] | None) -> list[str]:
    if model is None:
        return []
    return [field.alias or name for name, field in model.model_fields.items()]


def _model_at(model: type[BaseModel], path: Sequence[str | int]) -> type[BaseModel] | None:
    """The model that the mapping at `path` is read as."""
    annotation: Any = model
    for step in path:
        annotation = _step(_model_in(annotation) or annotation, step)
    return _model_in(annotation)


def _step(annotation: Any, step: str | int) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        for name, field in annotation.model_fields.items():
            if step in (name, field.alias):
                return field.annotation
        return None
    if get_origin(annotation) is Annotated:
        return _step(get_args(annotation)[0], step)
    arguments = get_args(annotation)
    return arguments[-1] if arguments else None


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model that an annotation stands for, through Annotated and unions."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (Annotated, Union, types.UnionType):
        found = (_model_in(argument) for argument in get_args(annotation))
        return next((model for model in found if model is not None), None)
    return None
