"""Substitution of `${params.name}` by its value, wherever a plan writes it.

A scalar that is nothing but `${params.x}` becomes the parameter's value with its type, lists too; inside a longer text
the value is put in as text. Other `${…}` are left where the compiler reads them: a rate (`${cap.rate}`) and a dsn
(`${secrets.name}`); anywhere else they are a problem, and so is a template inside a template.
"""

from __future__ import annotations

import dataclasses
import re

from proveout.core.data_classes import dataclass
from proveout.core.errors import Where
from proveout.dsl.schema.plan_parameters import Parameters
from proveout.dsl.source.nodes import Map, Node, Problems, Scalar, Seq, did_you_mean

_TEMPLATE = re.compile(r"\$\{([^{}]*)\}")
_NESTED = re.compile(r"\$\{[^{}]*\$\{")
_PARAM = re.compile(r"\s*params\.([A-Za-z_][A-Za-z0-9_]*)\s*")
_SEARCHED = (("rate", "from"), ("rate", "to"), ("rate", "start"))
_DEFERRED = ("rate", "rate.from", "rate.to", "rate.start")


def substitute(root: Map, parameters: Parameters, problems: Problems) -> Map:
    """`root` without its `params` and with every `${params.x}` replaced."""
    entries = tuple(
        (key, _Substitution(parameters=parameters, problems=problems).node(node, (key.text,)))
        for key, node in root.entries
        if key.text not in ("params", "include", "extends")
    )
    return Map(entries=entries, where=root.where)


@dataclass(slots=True)
class _Substitution:
    parameters: Parameters
    problems: Problems

    def node(self, node: Node, path: tuple[str, ...]) -> Node:
        if isinstance(node, Map):
            entries = tuple((key, self.node(item, (*path, key.text))) for key, item in node.entries)
            return dataclasses.replace(node, entries=entries)
        if isinstance(node, Seq):
            items = tuple(self.node(item, (*path, str(index))) for index, item in enumerate(node.items))
            return dataclasses.replace(node, items=items)
        if isinstance(node.value, str) and "${" in node.value and not node.faulty:
            return self.bound(node, path) if path[0] == "secrets" and "to" in path[2:3] else self.scalar(node, path)
        return node

    def bound(self, node: Scalar, path: tuple[str, ...]) -> Node:
        """A host that a secret may go to, which is written as it is."""
        hint = "write the host itself: a parameter can be set by other files and by -p"
        self.problems.add(node.where, "the hosts of a secret cannot be a template", key=".".join(path), hint=hint)
        return dataclasses.replace(node, faulty=True)

    def scalar(self, node: Scalar, path: tuple[str, ...]) -> Node:
        key = ".".join(path)
        if _NESTED.search(node.text):
            self.problems.add(node.where, "a template inside a template", key=key)
            return dataclasses.replace(node, faulty=True)
        alone = _TEMPLATE.fullmatch(node.text)
        param = _PARAM.fullmatch(alone[1]) if alone else None
        if param is not None:
            found = self.lookup(param[1], node, key)
            return dataclasses.replace(node, faulty=True) if found is None else _moved(found, node.where)
        text = _TEMPLATE.sub(lambda match: self.embedded(match, node, key), node.text)
        rest = _TEMPLATE.sub("", text)
        if "${" in rest:
            self.problems.add(node.where, "`${` without its `}`", key=key)
            return dataclasses.replace(node, faulty=True)
        left = _TEMPLATE.search(text)
        if left is not None and not self.may_wait(path, left[1]):
            self.refuse(node, key, left[0])
            return dataclasses.replace(node, faulty=True)
        if text == node.text:
            return node
        return dataclasses.replace(node, value=text, text=text, text_column=0)

    def may_wait(self, path: tuple[str, ...], inner: str) -> bool:
        """Whether the compiler reads a `${…}` at this place itself."""
        if path[-1] == "dsn" or "instances" in path[3:5] or (path[0] == "captures" and path[-1] == "url"):
            return inner.strip().startswith("secrets.")
        return path[0] == "stages" and (path[-1] == "rate" or path[-2:] in _SEARCHED)

    def refuse(self, node: Scalar, key: str, template: str) -> None:
        hint = (
            f"${{params.name}} can stand here; results of stages only in {', '.join(_DEFERRED)}, secrets only in dsn "
            "and url"
        )
        if template.removeprefix("${").strip().startswith("matrix."):
            hint = "it stands for a value of a stage's own `matrix`"
        elif key.rpartition(".")[2] in ("check", "accept", "stop_when", "when"):
            hint = "this is an expression already: write it without ${ }"
        self.problems.add(node.where, f"`{template}` cannot be used here", key=key, hint=hint)

    def lookup(self, name: str, node: Scalar, key: str) -> Node | None:
        found = self.parameters.nodes.get(name)
        if found is None and name not in self.parameters.broken:
            hint = did_you_mean(name, self.parameters.nodes)
            self.problems.add(node.where, f"there is no parameter `{name}`", key=key, hint=hint)
        return found

    def embedded(self, match: re.Match[str], node: Scalar, key: str) -> str:
        param = _PARAM.fullmatch(match[1])
        if param is None:
            return match[0]
        found = self.lookup(param[1], node, key)
        if isinstance(found, Scalar):
            return found.text if isinstance(found.value, str) else str(found.value).lower()
        if found is not None:
            self.problems.add(node.where, f"the list `{param[1]}` cannot be part of a text", key=key)
        return ""


def _moved(node: Node, where: Where) -> Node:
    """The parameter's node with the position `where`, so that messages name the place of use."""
    if isinstance(node, Scalar):
        return dataclasses.replace(node, where=where, text_column=0)
    if isinstance(node, Seq):
        return Seq(items=tuple(_moved(item, where) for item in node.items), where=where)
    return node
