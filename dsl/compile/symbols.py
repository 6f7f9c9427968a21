"""The symbols of a plan while names are resolved: the things compiled so far, the names that are declared but broken,
and the stages as drafts.

A name that is declared and broken has its own problem already; a reference to it is left out without a problem
instead of being reported as unknown.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from proveout.core.data_classes import dataclass, field, record
from proveout.core.errors import Where
from proveout.dsl.plan.captures import CAPTURES
from proveout.dsl.plan.keys import names_in
from proveout.dsl.plan.plan import Workload
from proveout.dsl.plan.scalars import ID_HINT, ID_PATTERN, NAME_HINT, NAME_PATTERN, RESERVED_IDS
from proveout.dsl.plan.stages import Cell, Pool, Stage
from proveout.dsl.plan.topology import Capture, Declared, Host, Secret, System
from proveout.dsl.rules.host_rules import Objection
from proveout.dsl.schema.parameters import Parameters
from proveout.dsl.schema.stage_models import STAGES
from proveout.dsl.schema.validation import fields, salvage, validate
from proveout.dsl.source.nodes import (
    Map,
    Node,
    Problems,
    Scalar,
    Seq,
    Steps,
    did_you_mean,
    locate,
    node_at,
    rewritten,
    where_of,
)

Thing = TypeVar("Thing")
Model = TypeVar("Model", bound=BaseModel)


_NAME, _ID = re.compile(NAME_PATTERN), re.compile(ID_PATTERN)
_NAMES = dict.fromkeys(("host", "system", "equipment", "workload", "capture", "pool"), _NAME) | {"secret": _ID}


@dataclass(slots=True, kw_only=True)
class Scope:
    """Everything with a name.

    `declared` holds all names of a kind, also those that did not compile; the names of an `unknowable` kind cannot be
    read (its section is missing or is not a mapping), so that none is reported as unknown. `sessions` are the settings
    of connections, by system; `facts` what is declared of hosts, systems and equipment. A setting of an
    `unsettled` system has a problem: nothing follows from its settings.
    """

    problems: Problems
    parameters: Parameters
    hosts: dict[str, Host] = field(default_factory=dict)
    systems: dict[str, System] = field(default_factory=dict)
    sessions: dict[str, dict[str, str]] = field(default_factory=dict)
    secrets: dict[str, Secret] = field(default_factory=dict)
    workloads: dict[str, Workload] = field(default_factory=dict)
    captures: dict[str, Capture] = field(default_factory=dict)
    pools: dict[str, Pool] = field(default_factory=dict)
    equipment: dict[str, Declared] = field(default_factory=dict)
    facts: list[Declared] = field(default_factory=list)
    declared: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    unknowable: set[str] = field(default_factory=set)
    unsettled: set[str] = field(default_factory=set)
    folder: Path
    """The plan's own folder, resolved: the files that a plan names are in it."""
    inventory: str | None
    """The name of the inventory's file, None without one."""

    def entries(self, section: Node | None, kind: str, model: type[Model], path: str) -> Iterator[tuple[Entry, Model]]:
        """The valid entries of a section of names, of systems also the valid parts of others; the names of all of them
        are declared as `kind`."""
        if section is not None and not isinstance(section, Map):
            self.problems.add(section.where, f"`{path}` must be a mapping of names", key=path)
            self.unknowable.add(kind)
        entries = section.entries if isinstance(section, Map) else ()
        self.declared[kind] = {key.text for key, _ in entries}
        known = fields(model) or {"kind", "population", "seed", "tables", "transactions"}
        inside: tuple[str, ...] = ()
        for index, (key, written) in enumerate(entries):
            if key.text in inside:
                continue
            if inside := not_deeper(entries[index:], known, self.problems):
                continue
            if not _NAMES[kind].fullmatch(key.text):
                message = f"`{key.text}` is not a name that can be used here"
                self.problems.add(key.where, message, key=path, hint=ID_HINT if kind == "secret" else NAME_HINT)
                continue
            below = f"{path}.{key.text}"
            node = settings_as_text(written) if kind == "system" else written
            whole = validate(model, node, below, self.problems)
            valid = salvage(model, node) if whole is None and kind == "system" else whole
            if valid is not None and isinstance(node, Map):
                partial = whole is None
                yield Entry(scope=self, body=node, path=below, name=key.text, start=key.where, partial=partial), valid


@dataclass(slots=True, kw_only=True)
class Entry:
    """An entry of the plan, whose node is `body` at `path`: its problems are noted at its keys, and its names resolved.

    `start`: the position of a problem with a key that is not there. `partial`: some of its keys are not valid, so that
    rules between its keys are left out.
    """

    scope: Scope
    body: Map
    path: str
    name: str
    start: Where
    partial: bool = False

    def where(self, *at: str | int) -> Where:
        """The position of a key in its file."""
        return where_of(self.body, *at) if at and self.body.get(str(at[0])) is not None else self.start

    def note(self, message: str, *at: str | int, hint: str = "", where: Where | None = None) -> None:
        """Note a problem at a key of the entry, whose value has none yet."""
        value, _ = locate(self.body, at)
        if isinstance(value, Scalar) and value.faulty:
            return
        key = ".".join((self.path, *map(str, at)))
        self.scope.problems.add(where or self.where(*at), message, key=key, hint=hint)

    def problem(self, message: str, *at: str | int, hint: str = "", where: Where | None = None) -> None:
        """Note a broken rule, of an entry whose keys are valid."""
        if not self.partial:
            self.note(message, *at, hint=hint, where=where)

    def object_to(self, found: Iterable[Objection], *at: str | int) -> bool:
        """Note objections, each below the key `at`; whether there were any."""
        listed = list(found)
        for one in listed:
            self.problem(one.message, *at, *one.at, hint=one.way_out)
        return bool(listed)

    def resolve(
        self, kind: str, name: str | None, table: Mapping[str, Thing], *at: str | int, declare: str = ""
    ) -> Thing | None:
        """The thing called `name`; a problem, with how to `declare` it, when it is not declared. No name stands for one
        that is not valid."""
        if not name:
            return None
        found, declared = table.get(name), self.scope.declared[kind]
        unknown = found is None and name not in declared and kind not in self.scope.unknowable
        if unknown and not self.scope.problems.at(self.where(*at)):
            hint = "\n  ".join(filter(None, (did_you_mean(name, declared), declare)))
            self.note(f"there is no {kind} `{name}`", *at, hint=hint)
        return found

    def system(self, name: str | None, *at: str | int) -> System | None:
        """A system; None, and a problem noted, when there is none."""
        return self.resolve("system", name, self.scope.systems, *at)

    def select_hosts(self, words: Sequence[str], *at: str | int) -> tuple[str, ...] | None:
        """Host names, in the topology's order, for `all`, `role:client` and plain names; None when a word fits none."""
        hosts = self.scope.hosts
        chosen: set[str] = set()
        fine = True
        for word in words:
            if word == "all":
                chosen |= set(hosts)
            elif word.startswith("role:"):
                found = self._with_role(word.removeprefix("role:"), *at)
                fine &= bool(found)
                chosen |= found
            elif word in self.scope.equipment:
                self.note(f"`{word}` is equipment, on which no agent can run", *at, hint="a host of the topology")
                fine = False
            else:
                fine &= self.resolve("host", word, hosts, *at) is not None
                chosen.add(word)
        return tuple(name for name in hosts if name in chosen) if fine and hosts else None

    def _with_role(self, role: str, *at: str | int) -> set[str]:
        hosts = self.scope.hosts
        found = {host.name for host in hosts.values() if role in host.roles}
        broken = self.scope.declared["host"] - set(hosts) or "host" in self.scope.unknowable
        if not found and not broken:  # a broken host might have had the role
            roles = {role for host in hosts.values() for role in host.roles}
            self.note(f"no host has the role `{role}`", *at, hint=did_you_mean(role, roles))
        return found


@dataclass(slots=True, kw_only=True)
class StageNames(Entry):
    """A stage, whose id is `name`, or one of its loads."""

    def resolved(self, stage: Stage) -> Stage | None:
        """The stage with its hosts selected; None when a name in it is not there."""
        found: dict[str, Any] = {}
        for field_name, key, of in names_in(stage):
            value = getattr(stage, field_name)
            if of == "workload":
                found[field_name] = value if self.has_workload(value) else None
            elif of == "system":
                found[field_name] = None if self.system(value, key) is None else value
            else:
                found[field_name] = self.all_systems(value, key) if of == "systems" else self.clients(value)
        return None if None in found.values() else replace(stage, **found)

    def all_systems(self, names: Sequence[str], key: str) -> tuple[str, ...] | None:
        """Names of systems, each once; None when one is not there."""
        found = [self.system(name, key, index) for index, name in enumerate(names)]
        self._each_once(names, key)
        return tuple(names) if all(found) else None

    def _each_once(self, names: Sequence[str], key: str) -> None:
        for index, name in enumerate(names):
            if name in names[:index]:
                self.problem(f"`{name}` is there twice", key, index)

    def has_workload(self, name: str) -> bool:
        """Whether a workload is there; its absence is noted."""
        return self.resolve("workload", name, self.scope.workloads, "workload") is not None

    def clients(self, words: Sequence[str]) -> tuple[str, ...] | None:
        """The hosts that a selector stands for; None when it stands for none."""
        return self.select_hosts(words, "from")

    def captures(self, names: Sequence[str] | None) -> tuple[str, ...] | None:
        """Names of captures, each once; None when one is not there."""
        known = self.scope.captures
        found = {
            name: self.resolve("capture", name, known, "capture", index, declare=self._declaration(name))
            for index, name in enumerate(names or ())
        }
        self._each_once(names or (), "capture")
        return tuple(found) if all(found.values()) else None

    def _declaration(self, name: str) -> str:
        """The lines of a plan that declare a capture, by its name; "" where others are declared and no kind is called
        so."""
        before, kind = f"declare it:\n  captures:\n    {name}: ", CAPTURES.get(name)
        if kind is None:
            others = self.scope.declared["capture"]
            return "" if others else f"{before}{{kind: …}}  # {did_you_mean(name, CAPTURES)}"
        fit = [one for one in self.scope.systems.values() if kind.endpoints < 2 or one.propagates_to or one.standby_of]
        return before + kind.declaration(fit[0].name if fit else "…")

    def reachable(self, system: System, clients: tuple[str, ...], key: str) -> None:
        """An embedded system listens on its own machine only; a file is opened on its own host only."""
        if system.is_named_file:
            beyond, what = [name for name in clients if name != system.host], f"a file of {system.host}"
            hint = f"from: {system.host}"
        elif system.provision is not None:
            beyond, what = [name for name in clients if not self.scope.hosts[name].is_local], "embedded"
            hint = "an embedded system takes its load from local hosts"
        else:
            return
        if beyond:
            self.problem(f"`{system.name}` is {what} and out of reach for {', '.join(beyond)}", key, hint=hint)


@record
class Draft:
    """A stage entry of the document: body and the id it has or gets; `stage` is None when it did not compile.

    `index`, `step_of` and `side` as in `matrix.Place`.
    """

    id: str
    body: Map
    stage: Stage | None
    index: int
    cell: Cell | None = None
    step_of: str = ""
    side: str = ""


def declared(section: Node | None) -> frozenset[str]:
    """The names that stages have in expressions, as the document gives them: also of entries that do not compile."""
    found: set[str] = set()
    for item in section.items if isinstance(section, Seq) else ():
        for key, body in item.entries if isinstance(item, Map) else ():
            named = node_at(body, "id") or node_at(item, "id")
            text = named.text if isinstance(named, Scalar) else ""
            found |= {text} - {""}
            if not re.fullmatch(ID_PATTERN, text) or text in RESERVED_IDS:
                found |= {key.text, *get_close_matches(key.text.lower(), STAGES, n=1)}
    return frozenset(found)


def not_deeper(entries: Sequence[tuple[Scalar, Node]], known: Collection[str], problems: Problems) -> tuple[str, ...]:
    """The keys after an empty name that are its settings and not indented deeper, with a problem for them: YAML reads
    `ladder` and `workload` as two keys of one mapping.

        - ladder:              workloads:
          workload: hlr          hlr:
          target: db             kind: hlr
    """
    (name, value), *rest = entries
    if not isinstance(value, Scalar) or value.value is not None or value.text:
        return ()
    inside = [key for key, _ in takewhile(lambda entry: entry[0].text in known, rest)]
    for first in inside[:1]:
        message = f"`{first.text}` is not deeper than `{name.text}:`, so it is not one of its settings"
        hint = f"begin the settings of `{name.text}` in column {name.where.column + 2}, under its name"
        problems.add(first.where, message, key=name.text, hint=hint)
    return tuple(key.text for key in inside)


def settings_as_text(entry: Node) -> Node:
    """A system or a stage with the numbers of its settings as the plan writes them: 19.10 is not 19.1."""

    def as_text(one: Scalar, path: Steps) -> Scalar:
        is_setting = path[0] in ("settings", "session") or (path[0] == "loads" and path[2:3] == ("session",))
        return one.written(one.in_text) if is_setting and type(one.value) in (int, float) else one

    return rewritten(entry, as_text) if isinstance(entry, Map) else entry


def put(node: Map, name: str, value: Node) -> Map:
    """The mapping with another value of a key that it has."""
    entries = tuple((key, value if key.text == name else old) for key, old in node.entries)
    return Map(entries=entries, where=node.where)
