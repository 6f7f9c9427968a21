"""Fingerprint of the environment: the facts of each host and system, their digest, and changes during the run. Pure.

Data flow: `FactsTaken` events (`schedule.setup_stages`) -> `fingerprints(results)` -> reports, `proveout runs
--environment`, and `compare.comparability` by `differences(one, other)`.

The digest leaves out facts that identify one machine or one boot (`INDIVIDUAL`), so that two machines with the same
settings have the same digest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from proveout.coordinator.results.results import RunResults
from proveout.core import json_data
from proveout.core.numbers import number

INDIVIDUAL = frozenset({"boot_id", "host_name"})
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
    """A host, or with `system` a system on it. `facts` are those at the last start or resume; `digest` is
    `sha256:<hex>` of them.

    `drift` has the facts that changed between the first and the last time they were taken. `whole`: both are there.
    """

    host: str
    system: str
    facts: Mapping[str, Any]
    digest: str
    drift: tuple[Difference, ...]
    whole: bool

    @property
    def name(self) -> str:
        """The system, or the host."""
        return self.system or self.host


def fingerprints(results: RunResults) -> tuple[Fingerprint, ...]:
    """The fingerprint of each host and system whose facts were taken, hosts first."""
    taken: dict[tuple[str, str], list[tuple[str, Mapping[str, Any]]]] = {}
    for item in results.taken:
        taken.setdefault((item.host, item.system), []).append((item.when, item.facts))
    return tuple(_fingerprint(key, found) for key, found in sorted(taken.items(), key=lambda item: item[0][::-1]))


def _fingerprint(key: tuple[str, str], taken: list[tuple[str, Mapping[str, Any]]]) -> Fingerprint:
    first, last = taken[0][1], taken[-1][1]
    facts = next((facts for when, facts in reversed(taken) if when == "start"), last)
    return Fingerprint(
        host=key[0],
        system=key[1],
        facts=facts,
        digest=digest(facts),
        drift=differences(first, last),
        whole=taken[0][0] == "start" and taken[-1][0] == "end",
    )


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


def outline(fingerprint: Fingerprint) -> str:
    """A line for people: `2 × AMD EPYC, 23.5 GiB, Linux 6.18, container`; of a system its engine and version."""
    facts = fingerprint.facts
    if fingerprint.system:
        return " ".join(str(facts[name]) for name in ("engine", "version") if facts.get(name))
    parts = [f"{facts.get('cpus', '?')} × {facts.get('cpu_model', facts.get('architecture', 'CPU'))}"]
    if isinstance(facts.get("memory_bytes"), int | float):
        parts.append(f"{number(facts['memory_bytes'] / GIB)} GiB")
    if facts.get("kernel"):
        parts.append(f"Linux {facts['kernel']}")
    parts += [str(facts[name]) for name in ("virtualisation",) if facts.get(name)]
    return ", ".join(parts)
