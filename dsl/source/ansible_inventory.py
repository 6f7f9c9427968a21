"""An Ansible inventory, INI or YAML -> groups, hosts and their variables, with positions.

Flow: `read(path, problems)` -> `Groups` -> `hosts(groups, problems)` -> for each host its groups, from the nearest to
the widest, and the variables that are in force for it. Source: Ansible's user guide, "How to build your inventory".
Precedence of variables: the host's own, then those of a group before those of the groups that contain it; of groups
alike deep, those of the last one by the alphabet.

Not read: `group_vars/` and `host_vars/` beside the file, programs (dynamic inventories), templates in values.
"""

from __future__ import annotations

import re
import shlex
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import product
from pathlib import Path

from proveout.core.data_classes import dataclass, field, record
from proveout.core.errors import Where
from proveout.dsl.source.loader import BYTES_MAX, Document, load
from proveout.dsl.source.nodes import Map, Node, Problems, Scalar, did_you_mean

HOSTS_MAX = 1000
ALL, UNGROUPED = "all", "ungrouped"
DOCUMENT = Document(name="Ansible inventory", opening="all:", foreign=True)
_RANGE = re.compile(r"\[(\w{1,9}):(\w{1,9})(?::(\d{1,9}))?\]")
_SECTION = re.compile(r"\[(?P<name>[^\]:]+)(?::(?P<kind>[^\]]*))?\]\s*(?:[#;].*)?")
_PORT = re.compile(r"(?P<host>[^:\[\]]*(?:\[[^\]]*\][^:\[\]]*)*):(?P<port>\d+)")
_YAML = re.compile(r"(---|\{|[^\s\[=]+:\s*(#.*)?$)")
_KINDS = ("children", "vars")

Variables = dict[str, tuple[str, Where]]


@dataclass(slots=True)
class Group:
    """A group: its hosts with the variables that it gives them, the groups in it, and its own variables."""

    hosts: dict[str, Variables] = field(default_factory=dict)
    children: dict[str, Where] = field(default_factory=dict)
    variables: Variables = field(default_factory=dict)


Groups = dict[str, Group]


@record
class Host:
    """A host: its name, its groups without `all` and `ungrouped`, the nearest first, and its variables."""

    name: str
    groups: tuple[str, ...]
    variables: Mapping[str, tuple[str, Where]]
    where: Where


def read(path: Path, problems: Problems) -> Groups:
    """The groups of a file; its errors are noted in `problems`."""
    try:
        with path.open("rb") as stream:
            content = stream.read(BYTES_MAX + 1)
    except OSError as error:
        problems.add(Where(file=str(path)), f"cannot read the file: {error.strerror}")
        return {}
    if len(content) > BYTES_MAX:
        problems.add(Where(file=str(path), line=1, column=1), f"the file is larger than {BYTES_MAX >> 20} MiB")
        return {}
    text = content.decode("utf-8", errors="replace")
    if text.startswith("#!"):
        hint = "ansible-inventory -i FILE --list --yaml > hosts.yaml writes what it gives; import that"
        problems.add(Where(file=str(path), line=1, column=1), "a program, not an inventory", hint=hint)
        return {}
    lines = text.split("\n")
    first = next((line for line in lines if line.strip() and not line.lstrip().startswith(("#", ";"))), "")
    if path.suffix in (".yml", ".yaml", ".json") or _YAML.match(first):
        root = load(path, str(path), problems, DOCUMENT)
        groups: Groups = {} if root is None else {ALL: Group(), UNGROUPED: Group()}
        for key, node in () if root is None else root.entries:
            _yaml_group(groups, key, node, problems)
        return groups
    problems.sources[str(path)] = lines
    return _Ini(str(path), problems).groups(lines)


# ---- INI -----------------------------------------------------------------------------------------------------------


class _Ini:
    """The lines of an INI file, one after the other."""

    def __init__(self, name: str, problems: Problems) -> None:
        self._name, self._problems = name, problems
        self._groups: Groups = {ALL: Group(), UNGROUPED: Group()}

    def groups(self, lines: Sequence[str]) -> Groups:
        group, kind = UNGROUPED, ""
        for number, line in enumerate(lines, 1):
            where = Where(file=self._name, line=number, column=len(line) - len(line.lstrip()) + 1)
            text = line.strip()
            if not text or text.startswith(("#", ";")):
                continue
            if text.startswith("["):
                group, kind = self._section(text, where) or (group, "?")
            elif kind == "children":
                self._groups[group].children[text.split("#")[0].strip()] = where
            elif kind == "vars":
                self._variable(group, text, where)
            elif kind == "":
                self._host(group, text, where)
        for owner, group_of in self._groups.items():
            for child, where in group_of.children.items():
                if child not in self._groups:
                    hint = did_you_mean(child, self._groups.keys() - {owner})
                    self._problems.add(where, f"there is no group `{child}`", hint=hint)
        return self._groups

    def _section(self, text: str, where: Where) -> tuple[str, str] | None:
        match = _SECTION.fullmatch(text)
        kind = (match["kind"] or "") if match else ""
        if match is None or (kind and kind not in _KINDS):
            hint = did_you_mean(kind, _KINDS) if kind else "[group], [group:children] or [group:vars]"
            self._problems.add(where, f"`{text}` is not a section", hint=hint)
            return None
        self._groups.setdefault(match["name"].strip(), Group())
        return match["name"].strip(), kind

    def _variable(self, group: str, text: str, where: Where) -> None:
        name, equals, value = text.partition("=")
        if not equals:
            self._problems.add(where, f"`{text}` is not a variable", hint="name=value")
            return
        value = value.strip()
        quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
        self._groups[group].variables[name.strip()] = (value[1:-1] if quoted else value, where)

    def _host(self, group: str, text: str, where: Where) -> None:
        try:
            pattern, *words = shlex.split(text, comments=True)
        except ValueError as error:
            self._problems.add(where, f"cannot be read: {str(error).lower()}", hint="close the quotation mark")
            return
        variables: Variables = {}
        for word in words:
            name, equals, value = word.partition("=")
            if not equals:
                hint = "one host a line, then name=value"
                self._problems.add(where, f"`{word}` is not a variable", hint=hint)
                continue
            variables[name] = (value, where)
        if (match := _PORT.fullmatch(pattern)) is not None:
            pattern = match["host"]
            variables.setdefault("ansible_port", (match["port"], where))
        for name in expanded(pattern, where, self._problems):
            self._groups[group].hosts.setdefault(name, {"": ("", where)}).update(variables)


# ---- YAML ----------------------------------------------------------------------------------------------------------


def _yaml_group(groups: Groups, key: Scalar, node: Node, problems: Problems) -> None:
    """A group with all that is below it."""
    group = groups.setdefault(key.text, Group())
    for part, below in _entries(node, f"the group `{key.text}`", problems):
        if part.text not in ("hosts", "children", "vars"):
            hint = did_you_mean(part.text, ("hosts", "children", "vars"))
            problems.add(part.where, f"a group cannot hold `{part.text}`", key=part.text, hint=hint)
            continue
        for name, value in _entries(below, f"`{part.text}`", problems):
            if part.text == "vars":
                group.variables[name.text] = (_text(value), name.where)
            elif part.text == "children":
                group.children[name.text] = name.where
                _yaml_group(groups, name, value, problems)
            else:
                own = {one.text: (_text(what), one.where) for one, what in _entries(value, f"`{name.text}`", problems)}
                for host in expanded(name.text, name.where, problems):
                    group.hosts.setdefault(host, {"": ("", name.where)}).update(own)


def _entries(node: Node, what: str, problems: Problems) -> tuple[tuple[Scalar, Node], ...]:
    """The entries of a mapping; none for `null`."""
    if isinstance(node, Map):
        return node.entries
    if not isinstance(node, Scalar) or node.value is not None:
        problems.add(node.where, f"{what} must be a mapping")
    return ()


def _text(node: Node) -> str:
    """A value as text; that of a list or a mapping is not needed."""
    return node.text if isinstance(node, Scalar) else "…"


# ---- hosts ---------------------------------------------------------------------------------------------------------


def expanded(pattern: str, where: Where, problems: Problems) -> tuple[str, ...]:
    """The names of a pattern with ranges: db[01:03].lab, db-[a:c], db[0:10:5]."""
    parts: list[Iterable[str]] = []
    count, last = 1, 0
    for match in _RANGE.finditer(pattern):
        span, written = _range(match[1], match[2], int(match[3] or 1))
        if not span:
            hint = "numbers or single letters, the smaller one first: [01:20]"
            problems.add(where, f"`{match[0]}` is not a range", hint=hint)
            return ()
        parts += [(pattern[last : match.start()],), map(written, span)]
        count, last = count * len(span), match.end()
    if count > HOSTS_MAX:
        problems.add(where, f"`{pattern}` stands for {count} hosts", hint=f"at most {HOSTS_MAX}")
        return ()
    if "[" in pattern[last:] or "]" in pattern[last:]:
        problems.add(where, f"`{pattern}` is not the name of a host", hint="a range is [01:20] or [a:d]")
        return ()
    return tuple("".join(words) for words in product(*parts, (pattern[last:],)))


def _range(first: str, last: str, step: int) -> tuple[range, Callable[[int], str]]:
    """The numbers of a range, and how one is written; none where it is not a range."""
    if first.isdecimal() and last.isdecimal() and step:
        width = len(first) if first.startswith("0") else 0
        return range(int(first), int(last) + 1, step), lambda number: str(number).zfill(width)
    if len(first) == len(last) == 1 and first in string.ascii_letters and last in string.ascii_letters and step:
        return range(ord(first), ord(last) + 1, step), chr
    return range(0), str


def hosts(groups: Groups, problems: Problems) -> tuple[Host, ...]:
    """All hosts in the order of their first mention. A group that contains itself is a problem."""
    parents: dict[str, list[str]] = {}
    for name, group in groups.items():
        for child in group.children:
            parents.setdefault(child, []).append(name)
    depths: dict[str, int] = {}  # of each group that is in others, or has some, the most that it is in
    try:
        for name in TopologicalSorter(parents).static_order():  # a group comes after those that it is in
            depths[name] = max((1 + depths[one] for one in parents.get(name, ())), default=0)
    except CycleError as error:
        *_, name, child = error.args[1]
        problems.add(groups[name].children[child], f"the group `{name}` contains itself")
        return ()
    found: dict[str, list[str]] = {}
    for name, group in groups.items():
        for host in group.hosts:
            found.setdefault(host, []).append(name)
    return tuple(_host(name, own, groups, parents, depths) for name, own in found.items())


def _above(name: str, parents: Mapping[str, list[str]]) -> list[str]:
    """The groups that contain a group, the nearest first."""
    found: list[str] = []
    waiting = [name]
    while waiting:
        fresh = [other for other in parents.get(waiting.pop(0), ()) if other not in found]
        found += fresh
        waiting += fresh
    return found


def _host(
    name: str, own: Sequence[str], groups: Groups, parents: Mapping[str, list[str]], depths: Mapping[str, int]
) -> Host:
    above = [group for one in own for group in _above(one, parents)]
    nearest = list(dict.fromkeys([*own, *above]))
    variables: Variables = {}
    within = sorted((one for one in nearest if one != ALL), key=lambda one: (depths.get(one, 0), one))
    for group in (ALL, *within):
        variables |= groups[group].variables
    for group in own:
        variables |= groups[group].hosts[name]
    where = variables.pop("", ("", Where()))[1]
    named = tuple(one for one in nearest if one not in (ALL, UNGROUPED))
    return Host(name=name, groups=named, variables=variables, where=where)
