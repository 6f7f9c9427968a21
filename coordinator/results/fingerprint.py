"""Fingerprint of the environment: facts, schemas, their digests, and changes during the run. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from proveout.coordinator.results.results import RunResults
from proveout.core import json_data
from proveout.core.data_classes import field, record
from proveout.core.json_data import from_plain
from proveout.core.numbers import number
from proveout.dsl import engines
from proveout.dsl.plan.topology import Declared
from proveout.dsl.rules import host_rules
from proveout.proto.events import FactsTaken

# The digest leaves out facts that identify one machine or one boot (`INDIVIDUAL`), so that two machines with the same
# settings have the same digest, and the clients of engines that no system of the plan has: these are installed, and the
# run did not use them (`installed`). Declared facts are part of the digest, as `declared.NAME`.

INDIVIDUAL = frozenset({"boot_id", "host_name"})
CLIENT = "driver."
"""Before the name of a client package or library in the facts of a host."""
GIB = 2**30


@record
class Difference:
    """A fact that differs; `before` or `after` is "" where it is missing."""

    fact: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.fact}: {self.before or 'none'} -> {self.after or 'none'}"


@record
class Fingerprint:
    """A host, or with `system` a system on it, or a piece of `equipment` (without a host). `facts` are those measured
    at the last start or resume, `declared` those of the plan; `digest` is `sha256:<hex>` of both.

    `drift` has the facts that changed between the first and the last time they were taken. `whole`: both are there.
    `installed` are facts of the host about what the run did not use.
    """

    host: str
    system: str
    facts: Mapping[str, Any]
    digest: str
    drift: tuple[Difference, ...]
    whole: bool
    declared: Mapping[str, Any] = field(default_factory=dict)
    equipment: str = ""
    installed: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The system, the equipment, or the host."""
        return self.system or self.equipment or self.host

    @property
    def compared(self) -> Mapping[str, Any]:
        """Measured and declared facts by name, the latter as `declared.NAME`."""
        return {**self.facts, **_prefixed(self.declared)}


def fingerprints(results: RunResults) -> tuple[Fingerprint, ...]:
    """The fingerprint of each host and system whose facts were taken, hosts first, and of the declared equipment."""
    taken: dict[tuple[str, str], list[FactsTaken]] = {}
    for item in (one for one in results.taken if one.when != "stage"):
        taken.setdefault((item.host, item.system), []).append(item)
    # the facts about clients of engines that no system of the plan has; none where the plan is not known
    plan = results.plan
    used = {client for system in plan.get("systems", ()) for client in engines.of(system["engine"]).clients}
    known = {client for engine in engines.ENGINES.values() for client in engine.clients}
    unused = frozenset(f"{CLIENT}{client}" for client in (known - used if plan else ()))
    declared = {(one["kind"] == "system", one["name"]): one for one in results.plan.get("declared", ())}
    found = [
        _fingerprint(host, system, facts, declared.get((bool(system), system or host), {}), unused)
        for (host, system), facts in sorted(taken.items(), key=lambda item: item[0][::-1])
    ]
    rebooted = {host for one in results.plan.get("stages", ()) if one["kind"] == "reboot" for host in one["hosts"]}
    for at, one in enumerate(found):
        if one.host in rebooted:
            found[at] = replace(one, drift=tuple(part for part in one.drift if part.fact != "boot_id"))
    equipment = [one for one in declared.values() if one["kind"] not in ("host", "system")]
    return (*found, *map(_of_equipment, equipment))


def _fingerprint(
    host: str, system: str, all_taken: list[FactsTaken], plan: Mapping[str, Any], unused: frozenset[str]
) -> Fingerprint:
    taken = [one for one in all_taken if one.when != "before"] or all_taken  # changes of tunings are not drift
    first, last = taken[0], taken[-1]
    read = next((one.facts for one in reversed(taken) if one.when == "start"), last.facts)
    facts = _without(read, unused)
    declared = dict(plan.get("facts", ()))
    return Fingerprint(
        host=host,
        system=system,
        facts=facts,
        digest=digest({**facts, **_prefixed(declared)}),
        drift=differences(_without(first.facts, unused), _without(last.facts, unused)),
        whole=first.when == "start" and last.when == "end",
        declared=declared,
        installed={name: value for name, value in read.items() if name in unused},
    )


def _without(facts: Mapping[str, Any], unused: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if name not in unused}


def _of_equipment(one: Mapping[str, Any]) -> Fingerprint:
    about = {name: one[name] for name in ("kind", "description") if one.get(name)}
    declared = {**about, **dict(one["facts"])}
    return Fingerprint(
        host="",
        system="",
        equipment=one["name"],
        facts={},
        digest=digest(_prefixed(declared)),
        drift=(),
        whole=True,
        declared=declared,
    )


def _prefixed(declared: Mapping[str, Any]) -> dict[str, Any]:
    return {f"declared.{name}": value for name, value in declared.items()}


def digest(facts: Mapping[str, Any]) -> str:
    """`sha256:<hex>` of the facts that are not individual, by name."""
    kept = {name: value for name, value in facts.items() if name not in INDIVIDUAL}
    return json_data.digest(kept)


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[Difference, ...]:
    """The facts that differ, by name. A boot in between counts; the machine's name does not."""
    names = sorted((one.keys() | other.keys()) - {"host_name"})
    return tuple(
        Difference(fact=name, before=str(one.get(name, "")), after=str(other.get(name, "")))
        for name in names
        if one.get(name) != other.get(name)
    )


def fact_list(facts: Mapping[str, Any]) -> str:
    """Facts in one line: `driver.apsw 3.50, driver.duckdb 1.5`."""
    return ", ".join(f"{name} {value}" for name, value in sorted(facts.items()))


def outline(fingerprint: Fingerprint) -> str:
    """A line for people: `2 × AMD EPYC, 23.5 GiB, Linux 6.18, container`; of a system its engine and version, of
    equipment its kind and description."""
    facts = fingerprint.facts
    if fingerprint.equipment:
        return ", ".join(
            str(fingerprint.declared[name]) for name in ("kind", "description") if name in fingerprint.declared
        )
    if fingerprint.system:
        return " ".join(str(facts[name]) for name in ("engine", "version") if facts.get(name))
    parts = [f"{facts.get('cpus', '?')} × {facts.get('cpu_model', facts.get('architecture', 'CPU'))}"]
    if isinstance(facts.get("memory_bytes"), int | float):
        parts.append(f"{number(facts['memory_bytes'] / GIB)} GiB")
    if facts.get("kernel"):
        parts.append(f"Linux {facts['kernel']}")
    parts += [str(facts[name]) for name in ("virtualisation",) if facts.get(name)]
    return ", ".join(parts)


HARDWARE = (
    "cpu_model", "cpu_sockets", "cpus", "cpu_smt", "cpu_no_turbo", "cpu_governor", "cpu_base_khz", "cpu_max_khz",
    "cpu_cache.*", "numa_nodes",
    "memory_bytes", "memory_modules", "memory_modules_bytes", "bios", "machine", "net.*", "hba.*", "disk.*",
    "distribution", "kernel", "virtualisation",
)  # fmt: skip
"""The measured facts that are shown of every host; all of them are in the environment."""


@record
class FactRow:
    """A fact: "" where it is not declared, measured or expected.

    `differs`: a measured value is another one than the declared. `held`: whether the expectation was met.
    """

    fact: str
    declared: str = ""
    measured: str = ""
    expected: str = ""
    differs: bool = False
    held: bool = True


@record
class TestedNode:
    """A host, a system or a piece of equipment. `rows` are declared or expected facts, `hardware` the other measured
    ones."""

    name: str
    kind: str
    description: str
    connects: tuple[str, ...]
    rows: tuple[FactRow, ...]
    hardware: tuple[FactRow, ...]

    @property
    def is_equipment(self) -> bool:
        """Whether no agent can run on it."""
        return self.kind not in ("host", "system")


def nodes(results: RunResults) -> tuple[TestedNode, ...]:
    """Hosts, systems and equipment that have facts, in the order of the plan."""
    declared = [from_plain(Declared, one) for one in results.plan.get("declared", ())]
    known: dict[tuple[str, str], Declared] = {(one.kind, one.name): one for one in declared}
    measured: dict[tuple[str, str], Mapping[str, Any]] = {
        ("host", name): up.facts for name, up in results.agents.items()
    }
    measured |= {
        ("system" if one.system else "host", one.name): one.facts for one in fingerprints(results) if not one.equipment
    }
    before = {
        ("system" if one.system else "host", one.system or one.host): one.facts
        for one in results.taken
        if one.when == "before"
    }
    hosts = [("host", one["name"]) for one in results.plan.get("hosts", ())]
    systems = [("system", one["name"]) for one in results.plan.get("systems", ())]
    equipment = [(one.kind, one.name) for one in declared if one.is_equipment]
    found = (
        _node(known.get(key), key, measured.get(key, {}), before.get(key)) for key in (*hosts, *systems, *equipment)
    )
    return tuple(one for one in found if one.rows or one.hardware or one.is_equipment)


def _node(
    one: Declared | None, key: tuple[str, str], facts: Mapping[str, Any], before: Mapping[str, Any] | None
) -> TestedNode:
    rows = tuple(_rows(one, facts, facts if before is None else before)) if one is not None else ()
    shown = {row.fact for row in rows}
    return TestedNode(
        kind=key[0],
        name=key[1],
        description=one.description if one is not None else "",
        connects=one.connects if one is not None else (),
        rows=rows,
        hardware=tuple(_hardware(facts, shown)) if key[0] == "host" else (),
    )


def _rows(one: Declared, facts: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[FactRow]:
    declared = dict(one.facts)
    expected = {item.fact: item for item in one.expect}
    unmet = {item.fact for item in host_rules.unmet(one, before)}
    for name in dict.fromkeys((*declared, *expected)):
        found, earlier = (host_rules.listed(name, host_rules.measured(name, at)) for at in (facts, before))
        changed = bool(found and earlier) and found != earlier
        yield FactRow(
            fact=name,
            declared=host_rules.shown(declared[name]) if name in declared else "",
            measured=f"{found} (before the run: {earlier})" if changed else found or earlier,
            expected=host_rules.wanted(expected[name]) if name in expected else "",
            differs=name in declared and bool(host_rules.differing(name, declared[name], facts)),
            held=name not in unmet,
        )


def _hardware(facts: Mapping[str, Any], shown: set[str]) -> Iterator[FactRow]:
    names = (fact for name in HARDWARE for fact in sorted(host_rules.measured(name, facts)))
    for name in dict.fromkeys(names):
        if name not in shown:
            yield FactRow(fact=name, measured=host_rules.shown_as(name, facts[name]))


# The facts of a system at a stage are its settings (`synchronous_commit`) and its objects (`index by_name on t`), which
# the agent reads (`agent/engines/handlers.py`).

KINDS = ("table", "index", "constraint", "trigger", "statistics", "further")
"""The first words of the names of objects."""


@record
class Schema:
    """A system before the first iteration of a stage. `facts`: settings, and objects with their definitions."""

    system: str
    stage: str
    facts: Mapping[str, Any]

    @property
    def objects(self) -> dict[str, str]:
        """The definitions of objects by name."""
        return {name: str(text) for name, text in self.facts.items() if name.split(" ")[0] in KINDS and " " in name}

    @property
    def digest(self) -> str:
        """`sha256:<hex>` of the objects."""
        return json_data.digest(self.objects)

    @property
    def outline(self) -> str:
        """`9 tables, 12 indexes`."""
        counts = {kind: sum(name.startswith(f"{kind} ") for name in self.objects) for kind in ("table", "index")}
        plural = {"table": "tables", "index": "indexes"}
        return ", ".join(f"{n} {kind if n == 1 else plural[kind]}" for kind, n in counts.items())


@record
class SchemaChange:
    """The objects that are `added`, `gone` and `altered` at a stage, since the stage `since`."""

    system: str
    since: str
    stage: str
    added: tuple[str, ...]
    gone: tuple[str, ...]
    altered: tuple[str, ...]

    def __str__(self) -> str:
        """`db at b, against a: index i on t is gone`."""
        parts = [("is new", "are new", self.added), ("is gone", "are gone", self.gone)]
        parts += [("is altered", "are altered", self.altered)]
        words = [f"{_listed(names)} {one if len(names) == 1 else many}" for one, many, names in parts if names]
        return f"{self.system} at {self.stage}, against {self.since}: {'; '.join(words)}"


def schemas(results: RunResults) -> tuple[Schema, ...]:
    """The schemas in the order in which they were read."""
    newest = {(one.stage, one.system): one for one in results.taken if one.when == "stage"}
    return tuple(Schema(system=one.system, stage=one.stage, facts=one.facts) for one in newest.values())


def changes(results: RunResults) -> tuple[SchemaChange, ...]:
    """The changes of each system's schema from one stage that measured it to the next."""
    last: dict[str, Schema] = {}
    found: list[SchemaChange] = []
    for now in schemas(results):
        before = last.get(now.system)
        last[now.system] = now
        old, new = before.objects if before else {}, now.objects
        if before is not None and old != new:
            found.append(
                SchemaChange(
                    system=now.system,
                    since=before.stage,
                    stage=now.stage,
                    added=tuple(name for name in new if name not in old),
                    gone=tuple(name for name in old if name not in new),
                    altered=tuple(name for name in new if name in old and new[name] != old[name]),
                )
            )
    return tuple(found)


def first_of_each(read: Sequence[Schema]) -> tuple[Schema, ...]:
    """The first schema of each system."""
    return tuple({one.system: one for one in reversed(read)}.values())[::-1]


SHOWN_MAX = 6


def _listed(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - SHOWN_MAX} more" if len(names) > SHOWN_MAX else ""
    return ", ".join(names[:SHOWN_MAX]) + more
