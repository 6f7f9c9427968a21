"""The weights of a mix, checked the same way for every workload kind. Light: `proveout check` imports it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def in_order(value: object, names: Sequence[str]) -> object:
    """All transactions in the workload's order, 0 for those left out; unknown names stay, for `mix` to name them."""
    if not isinstance(value, Mapping):
        return value
    known = {name: value.get(name, 0.0) for name in names}
    return known | {name: weight for name, weight in value.items() if name not in known}


def mix(value: dict[str, float], names: Sequence[str]) -> dict[str, float]:
    """The weights themselves; ValueError when they name a stranger, are no numbers from 0 to 1e9, or sum to 0."""
    unknown = [name for name in value if name not in names]
    if unknown:
        raise ValueError(f"no transaction is called {', '.join(unknown)}; there are {', '.join(names)}")
    if any(not 0.0 <= weight <= 1e9 for weight in value.values()):
        raise ValueError("weights must be numbers from 0 to 1e9")
    if sum(value.values()) <= 0.0:
        raise ValueError("the weights sum to 0, so nothing would run; give at least one transaction a weight over 0")
    return value
