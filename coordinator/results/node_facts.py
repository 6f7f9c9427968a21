"""Declared, measured and expected facts of each host, system and piece of equipment, for the report. Pure.

Data flow: the recorded plan and `FactsTaken` events -> `nodes(results)` -> the report's section "What was tested". The
measured values are those that the run was measured with; expectations are judged by the facts that were read before
anything was changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from proveout.coordinator.results.fingerprint import fingerprints
from proveout.coordinator.results.results import RunResults
from proveout.core.data_classes import dataclass
from proveout.core.json_data import from_plain
from proveout.dsl.plan.topology import Declared
from proveout.dsl.rules import fact_rules

HARDWARE = (
    "cpu_model", "cpu_sockets", "cpus", "cpu_smt", "cpu_no_turbo", "cpu_governor", "cpu_base_khz", "cpu_max_khz",
    "cpu_cache.*", "numa_nodes",
    "memory_bytes", "memory_modules", "memory_modules_bytes", "bios", "machine", "net.*", "hba.*", "disk.*",
    "distribution", "kernel", "virtualisation",
)  # fmt: skip
"""The measured facts that are shown of every host; all of them are in the environment."""


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
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
    plan = results.run.plan if results.run and isinstance(results.run.plan, Mapping) else {}
    declared = [from_plain(Declared, one) for one in plan.get("declared", ())]
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
    hosts = [("host", one["name"]) for one in plan.get("hosts", ())]
    systems = [("system", one["name"]) for one in plan.get("systems", ())]
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
    unmet = {item.fact for item in fact_rules.unmet(one, before)}
    for name in dict.fromkeys((*declared, *expected)):
        found, earlier = (fact_rules.listed(name, fact_rules.measured(name, at)) for at in (facts, before))
        changed = bool(found and earlier) and found != earlier
        yield FactRow(
            fact=name,
            declared=fact_rules.shown(declared[name]) if name in declared else "",
            measured=f"{found} (before the run: {earlier})" if changed else found or earlier,
            expected=fact_rules.wanted(expected[name]) if name in expected else "",
            differs=name in declared and bool(fact_rules.differing(name, declared[name], facts)),
            held=name not in unmet,
        )


def _hardware(facts: Mapping[str, Any], shown: set[str]) -> Iterator[FactRow]:
    names = (fact for name in HARDWARE for fact in sorted(fact_rules.measured(name, facts)))
    for name in dict.fromkeys(names):
        if name not in shown:
            yield FactRow(fact=name, measured=fact_rules.shown_as(name, facts[name]))
