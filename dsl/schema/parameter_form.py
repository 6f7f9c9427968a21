"""A plan's parameters as a form: the fields to fill in before a run, and the checks of their values.

Data flow: plan file -> `read_form` -> `Field`s as the plan writes them, and `objection(name, text)`, which reads an
answer exactly as `-p name=text` is read. The rest of the plan is not checked: `compile_plan` does that.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from proveout.core.data_classes import dataclass
from proveout.dsl.schema.models import Param
from proveout.dsl.schema.plan_parameters import read_parameter
from proveout.dsl.schema.validation import validate
from proveout.dsl.source.includes import read
from proveout.dsl.source.nodes import Map, Node, Problems, Scalar, Seq


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One parameter. `default` "" where every run must give a value; `low`, `high` "" where there is no bound; texts as
    the plan has them."""

    name: str
    type: str
    default: str = ""
    required: bool = False
    low: str = ""
    high: str = ""
    choices: tuple[str, ...] = ()
    help: str = ""


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
    texts = {name: _written(entries.get(name)) for name in ("type", "default", "min", "max", "help")}
    choices = entries.get("choices")
    return Field(
        name=key.text,
        type=texts["type"],
        default=texts["default"],
        required="default" not in entries,
        low=texts["min"],
        high=texts["max"],
        choices=tuple(map(_written, choices.items)) if isinstance(choices, Seq) else (),
        help=texts["help"],
    )


def _written(node: Node | None) -> str:
    """A value as a command line would give it: lists with commas between."""
    if isinstance(node, Seq):
        return ", ".join(map(_written, node.items))
    return node.text if isinstance(node, Scalar) else ""
