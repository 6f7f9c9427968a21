"""The environment that numbers were measured in: facts of each host and system, a digest of each, what changed meanwhile. Pure.

Data flow: `FactsTaken` events (`surveying`) -> `fingerprints(results)` -> reports, `proveout runs --environment`, and whoever compares
runs: `differences(one, other)`.

The digest leaves out what names a machine or a boot and not its kind (`INDIVIDUAL`), so that two machines that are set alike
have the same one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from proveout.coordinator.results.results import RunResults
from proveout.core.numbers import number

INDIVIDUAL = frozenset({"boot_id", "host_name"})
GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A fact that is not the same; "" where it is not there."""

    fact: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.fact}: {self.before or 'none'} -> {self.after or 'none'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """A host, or with `system` a system on it. `facts` are those of the last sitting's start; `digest` is `sha256:<hex>` of them.

    `drift` is what changed between the run's first look and its last. `whole`: both looks are there.
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
    """One for each host and system that was looked at, hosts first."""
    looks: dict[tuple[str, str], list[tuple[str, Mapping[str, Any]]]] = {}
    for item in results.taken:
        looks.setdefault((item.host, item.system), []).append((item.when, item.facts))
    return tuple(_fingerprint(key, found) for key, found in sorted(looks.items(), key=lambda item: item[0][::-1]))


def _fingerprint(key: tuple[str, str], looks: list[tuple[str, Mapping[str, Any]]]) -> Fingerprint:
    first, last = looks[0][1], looks[-1][1]
    facts = next((facts for when, facts in reversed(looks) if when == "start"), last)
    return Fingerprint(
        host=key[0],
        system=key[1],
        facts=facts,
        digest=digest(facts),
        drift=differences(first, last),
        whole=looks[0][0] == "start" and looks[-1][0] == "end",
    )


def digest(facts: Mapping[str, Any]) -> str:
    """`sha256:<hex>` of the facts that are not individual, by name."""
    kept = {name: value for name, value in facts.items() if name not in INDIVIDUAL}
    text = json.dumps(kept, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


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
