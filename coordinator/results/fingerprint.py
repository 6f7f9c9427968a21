"""Fingerprint of the environment: the facts of each host, system and piece of equipment, their digest, and changes
during the run. Pure.

Data flow: `FactsTaken` events (`schedule.setup_stages`) and what the plan declares -> `fingerprints(results)` ->
reports, `proveout runs --environment`, and `compare.comparability` by `differences(one, other)`.

The digest leaves out facts that identify one machine or one boot (`INDIVIDUAL`), so that two machines with the same
settings have the same digest, and the clients of engines that no system of the plan has: these are installed, and the
run did not use them (`installed`). Declared facts are part of the digest, as `declared.NAME`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proveout.coordinator.results.results import RunResults
from proveout.core import json_data
from proveout.core.data_classes import dataclass, field
from proveout.core.numbers import number
from proveout.dsl import engines
from proveout.proto.events import FactsTaken

INDIVIDUAL = frozenset({"boot_id", "host_name"})
CLIENT = "driver."
"""Before the name of a client package or library in the facts of a host."""
GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A fact that differs; `before` or `after` is "" where it is missing."""

    fact: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.fact}: {self.before or 'none'} -> {self.after or 'none'}"


@dataclass(frozen=True, slots=True, kw_only=True)
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
    plan = results.run.plan if results.run and isinstance(results.run.plan, Mapping) else {}
    unused = _unused(plan)
    declared = {(one["kind"] == "system", one["name"]): one for one in plan.get("declared", ())}
    found = [
        _fingerprint(host, system, facts, declared.get((bool(system), system or host), {}), unused)
        for (host, system), facts in sorted(taken.items(), key=lambda item: item[0][::-1])
    ]
    equipment = [one for one in declared.values() if one["kind"] not in ("host", "system")]
    return (*found, *map(_of_equipment, equipment))


def _unused(plan: Mapping[str, Any]) -> frozenset[str]:
    """The facts about clients of engines that no system of the plan has; none where the plan is not known."""
    used = {client for system in plan.get("systems", ()) for client in engines.of(system["engine"]).clients}
    known = {client for engine in engines.ENGINES.values() for client in engine.clients}
    return frozenset(f"{CLIENT}{client}" for client in (known - used if plan else ()))


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
