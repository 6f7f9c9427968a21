"""Notes on names that a plan declares and does not use: workloads, captures, systems, pools, secrets, parameters.

Data flow: the document as written (its `${params.…}`) and with everything put in (its names) -> a note for each entry
of the plan's own file whose name is in no value beside its own entry. Entries of included files, of a base plan and of
an inventory are for several plans, so they have no notes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from proveout.core.errors import PlanProblem
from proveout.dsl.source.nodes import Map, Node, Problems, Scalar, Seq

_SECTIONS = {
    "workload": (("workloads",), {"workload"}),
    "capture": (("captures",), {"capture"}),
    "system": (("topology", "systems"), {"into", "system", "systems", "target"}),
    "pool": (("pools",), {"pool"}),
}
"""Of each kind its section, and the keys of stages that name one."""
_NO_NAMES = frozenset({"engine", "env", "id", "kind", "name", "roles", "title"})
"""Keys whose values are never such a name, although they may look like one."""


def unused(document: Map, root: Map, problems: Problems) -> tuple[PlanProblem, ...]:
    """The notes; `document` has the templates, `root` the values in their place."""
    found = sorted((*_names(document, root), *_templates(document)), key=lambda entry: entry[1].where.line)
    return tuple(
        PlanProblem(
            message=f"note: nothing uses the {kind} `{key.text}`",
            where=key.where,
            key=kind,
            hint=hint,
            source_line=problems.line(key.where),
        )
        for kind, key, hint in found
        if key.where.file == document.where.file
    )


def _names(document: Map, root: Map) -> Iterator[tuple[str, Scalar, str]]:
    """(kind, key, way out) of names that no value has; of no kind whose names a parameter gives, which `-p` can change.

    A workload of a matrix is one for each of its values.
    """
    for kind, (path, keys) in _SECTIONS.items():
        if any(text.startswith("${params.") for text in _under(document, keys)):
            continue
        written = _section(document, path)
        for key, node in _section(root, path).entries:
            if written.get(key.text) is not None and key.text not in _texts(root, node):
                yield kind, key, "name it in a stage, or leave it out"


def _templates(document: Map) -> Iterator[tuple[str, Scalar, str]]:
    """(kind, key, way out) of parameters and secrets that no template and no expression reads."""
    text = "\n".join(_texts(document, None))
    for kind, section in (("parameter", "params"), ("secret", "secrets")):
        for key, _ in _section(document, (section,)).entries:
            if not re.search(rf"\b{section}\.{re.escape(key.text)}\b", text):
                yield kind, key, f"write ${{{section}.{key.text}}} where it belongs, or leave it out"


def _section(root: Map, path: tuple[str, ...]) -> Map:
    node: Node | None = root
    for step in path:
        node = node.get(step) if isinstance(node, Map) else None
    return node if isinstance(node, Map) else Map(entries=(), where=root.where)


def _under(node: Node, keys: set[str]) -> Iterator[str]:
    """The texts of the values of some keys, anywhere below a node."""
    entries = node.entries if isinstance(node, Map) else ()
    for key, value in entries:
        yield from _texts(value, None) if key.text in keys else _under(value, keys)
    for item in node.items if isinstance(node, Seq) else ():
        yield from _under(item, keys)


def _texts(node: Node, without: Node | None) -> Iterator[str]:
    """The texts of all values below a node, without those of one entry and of keys that name nothing."""
    if node is without:
        return
    if isinstance(node, Scalar):
        yield node.text
    elif isinstance(node, Seq):
        for item in node.items:
            yield from _texts(item, without)
    else:
        for key, value in node.entries:
            if key.text not in _NO_NAMES or not isinstance(value, Scalar | Seq):
                yield from _texts(value, without)
