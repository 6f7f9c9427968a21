"""Facts of hosts, systems and equipment compared with what a plan declares and expects of them. Pure.

A name of a plan stands for the measured fact of that name; with `*` for every fact that it matches; otherwise for every
fact whose last part it is: `mtu` for `net.eth0.mtu` and `net.bond0.mtu`. Measured facts take precedence over
declared ones, and every fact that the name stands for has to meet an expectation.

Values are equal as text without regard to spaces and letter case, as numbers, or as sizes (`768 GiB`, 824633720832);
true and false are also on and off.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from proveout.core import units
from proveout.core.data_classes import dataclass
from proveout.core.errors import Where
from proveout.core.numbers import size
from proveout.dsl.plan.topology import Declared, Expectation, FactValue
from proveout.dsl.rules.host_rules import Objection

SHOWN_MAX = 4
_WORDS = {"true": "on", "yes": "on", "false": "off", "no": "off"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmet:
    """An expectation that does not hold: the value that was found, "" where there is none, and the wanted one."""

    name: str
    fact: str
    found: str
    wanted: str
    where: Where

    def __str__(self) -> str:
        if not self.found:
            return f"{self.name}: {self.fact} is neither measured nor declared; expected {self.wanted}"
        return f"{self.name}: {self.fact} is {self.found}; expected {self.wanted}"


def measured(name: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The measured facts that a name of a plan stands for, by their own names."""
    if name in facts:
        return {name: facts[name]}
    if "*" in name:
        return {fact: value for fact, value in facts.items() if fnmatchcase(fact, name)}
    return {fact: value for fact, value in facts.items() if "." in fact and fact.rpartition(".")[2] == name}


def differing(name: str, value: FactValue, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The measured facts that a declared fact stands for and whose value is another one."""
    return {fact: found for fact, found in measured(name, facts).items() if not equal(value, found)}


def equal(one: Any, other: Any) -> bool:
    """Whether two values are the same: as text, as a number, or as a size."""
    if _word(one) == _word(other):
        return True
    first, second = amount(one), amount(other)
    return first is not None and first == second


def amount(value: Any) -> float | None:
    """A number, or the bytes of a size; None for other values."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    try:
        return float(value)
    except (TypeError, ValueError):
        pass
    try:
        return float(units.size_bytes(value))
    except ValueError:
        return None


def _word(value: Any) -> str:
    text = " ".join(str(value).split()).casefold()
    return _WORDS.get(text, text)


def wanted(expectation: Expectation) -> str:
    """The condition in words: `2`, `8 or 16`, `at least 16`, `text like 19[.].*`."""
    parts = [" or ".join(map(shown, expectation.one_of))] if expectation.one_of else []
    bounds = (("at least", expectation.min), ("at most", expectation.max))
    parts += [f"{word} {_number(expectation.fact, bound)}" for word, bound in bounds if bound is not None]
    if expectation.pattern:
        parts.append(f"text like {expectation.pattern}")
    return ", ".join(parts)


def shown(value: Any) -> str:
    """A fact's value as a plan writes it."""
    return ("true" if value else "false") if isinstance(value, bool) else " ".join(str(value).split())


def shown_as(fact: str, value: Any) -> str:
    """A fact's value, bytes with their unit."""
    in_bytes = fact.endswith("_bytes") and isinstance(value, int) and not isinstance(value, bool)
    return size(value) if in_bytes else shown(value)


def _number(fact: str, bound: float) -> str:
    return size(bound) if fact.endswith("_bytes") else f"{bound:.15g}"


def holds(expectation: Expectation, value: Any) -> bool:
    """Whether a value of a fact meets an expectation."""
    if expectation.one_of and not any(equal(one, value) for one in expectation.one_of):
        return False
    if expectation.pattern and not _matches(expectation.pattern, shown(value)):
        return False
    if expectation.min is None and expectation.max is None:
        return True
    found = amount(value)
    if found is None:
        return False
    return (expectation.min is None or found >= expectation.min) and (
        expectation.max is None or found <= expectation.max
    )


def unmet(declared: Declared, facts: Mapping[str, Any]) -> Iterator[Unmet]:
    """The expectations of a host, system or piece of equipment that its facts do not meet."""
    own = dict(declared.facts)
    for one in declared.expect:
        found = measured(one.fact, facts) or measured(one.fact, own)
        wrong = {fact: value for fact, value in found.items() if not holds(one, value)}
        if wrong or not found:
            values = listed(one.fact, wrong)
            if wrong and not measured(one.fact, facts):
                values += " (declared)"
            yield Unmet(name=declared.name, fact=one.fact, found=values, wanted=wanted(one), where=one.where)


def listed(name: str, facts: Mapping[str, Any]) -> str:
    """The values of the facts that a name stands for: `1500`, `1500 (net.eth0.mtu), 9000 (net.eth1.mtu)`."""
    texts = [
        shown_as(fact, value) if fact == name else f"{shown_as(fact, value)} ({fact})" for fact, value in facts.items()
    ]
    more = f" and {len(texts) - SHOWN_MAX} more" if len(texts) > SHOWN_MAX else ""
    return ", ".join(texts[:SHOWN_MAX]) + more


def pattern_problems(pattern: str) -> Iterator[Objection]:
    """A pattern that RE2 refuses."""
    if not pattern:
        return
    try:
        _finds(pattern, "")
    except ValueError as error:
        yield Objection(
            message=f"not a regular expression of RE2: {error}", way_out=r"RE2 syntax, such as 19\.[0-9]+.*"
        )


def _matches(pattern: str, text: str) -> bool:
    return _finds(f"^(?:{pattern})$", text)


def _finds(pattern: str, text: str) -> bool:
    import pyarrow as pa  # noqa: PLC0415 - 100 ms that only a pattern needs
    import pyarrow.compute as pc  # noqa: PLC0415

    return bool(pc.match_substring_regex(pa.array([text]), pattern=pattern)[0].as_py())
