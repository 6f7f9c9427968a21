"""Differences between two runs in plan, program and environment, which decide whether their numbers can be compared.
Pure.

Data flow: two `RunResults` -> `differences` -> `comparison.compare`, which raises NotComparable for those that are not
allowed (`refused`).

`--allow` takes the name of a difference: a fact of the environment (`kernel`, or `db1:kernel` for that host or system
alone; a declared one is `declared.NAME`), an object of a schema (`index *`), `proveout` for the program's version,
`plan.PATH` for a value of the plan. Patterns with `*` work. Parts of a plan that change no number (title, verdicts,
figures, parameters) are left out, and so are facts that identify one machine or one boot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from proveout.coordinator.results.fingerprint import INDIVIDUAL, Fingerprint, fingerprints
from proveout.coordinator.results.fingerprint import Difference as FactDifference
from proveout.coordinator.results.fingerprint import differences as fact_differences
from proveout.coordinator.results.results import RunResults
from proveout.coordinator.results.schemas import schemas
from proveout.coordinator.storage.event_codec import recorded_plan
from proveout.core.data_classes import dataclass
from proveout.core.errors import ProveoutError
from proveout.dsl.plan.plan import to_data

MEASURED = ("hosts", "systems", "workloads", "captures", "stages", "conditions", "on_loss")
"""The parts of a plan that numbers depend on."""

SHOWN_MAX = 12


class NotComparable(ProveoutError):
    """The runs differ in something that is not allowed."""

    exit_code = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A value that differs; `before` or `after` is "" where it is missing.

    `where` is a host, a system, or "" for the whole run. `missing_in`: the run that lacks the object of a schema.
    """

    name: str
    where: str
    before: str
    after: str
    allowed: bool = False
    missing_in: str = ""

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        if self.missing_in:
            return f"{place}{self.name} is missing in {self.missing_in} ({self.before or self.after})"
        return f"{place}{self.name}: {self.before or 'none'} -> {self.after or 'none'}"


def differences(
    reference: RunResults, other: RunResults, allow: Sequence[str] = (), names: Sequence[str] = ()
) -> tuple[Difference, ...]:
    """All differences that may change a number: the environment first, then the plan; `names` are those of the two
    runs in `missing_in`, their ids by default. JournalFault."""
    environment = tuple(_environment(reference, other))
    known = {(one.where, one.name) for one in environment}
    schema = (one for one in _schemas(reference, other, names) if (one.where, one.name) not in known)
    found = (*environment, *schema, *_program(reference, other), *_plan(reference, other))
    return tuple(replace(one, allowed=_allowed(one, allow)) for one in found)


def refused(found: Iterable[Difference]) -> tuple[Difference, ...]:
    """The differences that are not allowed."""
    return tuple(one for one in found if not one.allowed)


def refuse(reference: str, other: str, found: Sequence[Difference]) -> NotComparable:
    """The error for two runs that differ in `found`."""
    more = f"; and {len(found) - SHOWN_MAX} more" if len(found) > SHOWN_MAX else ""
    names = ",".join(dict.fromkeys(one.name for one in found[:SHOWN_MAX]))
    return NotComparable(
        f"{other} cannot be compared with {reference}: they differ in " + "; ".join(map(str, found[:SHOWN_MAX])) + more,
        way_out=f"To compare them anyway: --allow '{names}', or --despite for all differences.",
    )


def _allowed(one: Difference, allow: Sequence[str]) -> bool:
    return any(_matches(one, pattern) for pattern in allow)


def _matches(one: Difference, pattern: str) -> bool:
    return fnmatchcase(one.name, pattern) or fnmatchcase(f"{one.where}:{one.name}", pattern)


# ---- environment -------------------------------------------------------------------------------------------------


def _environment(reference: RunResults, other: RunResults) -> Iterator[Difference]:
    """Facts by host and by system; one that was recorded in one run only differs as a whole, as `environment`."""
    before, after = (
        {(one.host, one.system, one.equipment): one for one in fingerprints(results)} for results in (reference, other)
    )
    for key in dict.fromkeys((*before, *after)):
        where = key[2] or key[1] or key[0]
        if key not in before or key not in after:
            seen = ("recorded" if key in before else "", "recorded" if key in after else "")
            yield Difference(name="environment", where=where, before=seen[0], after=seen[1])
            continue
        for fact in fact_differences(*_used(before[key], after[key])):
            if fact.fact not in INDIVIDUAL:
                yield Difference(name=fact.fact, where=where, before=fact.before, after=fact.after)


def _schemas(reference: RunResults, other: RunResults, names: Sequence[str]) -> Iterator[Difference]:
    """Tables, indexes and settings of the loaded systems, at the stages that both runs measured; each difference once,
    at its first stage."""
    ids = names or [results.run.run_id if results.run else "?" for results in (reference, other)]
    left, right = ({(one.stage, one.system): one for one in schemas(results)} for results in (reference, other))
    seen: set[Difference] = set()
    shared = reference.stages.keys() & other.stages.keys()
    for key in dict.fromkeys((*left, *right)):
        stage, system = key
        if stage not in shared or (not left and not right):
            continue
        if key not in left or key not in right:
            recorded = ("recorded" if key in left else "", "recorded" if key in right else "")
            found = [Difference(name="schema", where=system, before=recorded[0], after=recorded[1])]
        else:
            found = [
                Difference(
                    name=one.fact,
                    where=system,
                    before=one.before,
                    after=one.after,
                    missing_in=_lacking(one, left[key].objects.keys() | right[key].objects.keys(), ids),
                )
                for one in fact_differences(left[key].facts, right[key].facts)
            ]
        yield from (one for one in found if one not in seen)
        seen |= set(found)


def _lacking(one: FactDifference, objects: Set[str], ids: Sequence[str]) -> str:
    if one.fact not in objects or (one.before and one.after):
        return ""
    return ids[0] if not one.before else ids[1]


def _used(before: Fingerprint, after: Fingerprint) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The facts of both about what one of the runs used; what merely was installed in both is left out."""
    names = {*before.compared, *after.compared}
    left, right = (
        {name: value for name, value in {**one.installed, **one.compared}.items() if name in names}
        for one in (before, after)
    )
    return left, right


def _program(reference: RunResults, other: RunResults) -> Iterator[Difference]:
    before, after = (results.run.version if results.run else "" for results in (reference, other))
    if before != after:
        yield Difference(name="proveout", where="", before=before, after=after)


# ---- plan --------------------------------------------------------------------------------------------------------


def _plan(reference: RunResults, other: RunResults) -> Iterator[Difference]:
    if reference.run is None or other.run is None:
        raise NotComparable("a run that has not begun cannot be compared", way_out="Name a run that has a result.")
    if reference.run.digest == other.run.digest:
        return
    before, after = (
        dict(_flat({part: _data(results)[part] for part in MEASURED}, "plan")) for results in (reference, other)
    )
    for path in dict.fromkeys((*before, *after)):
        if before.get(path) != after.get(path):
            yield Difference(name=path, where="", before=before.get(path, ""), after=after.get(path, ""))


def _data(results: RunResults) -> dict[str, Any]:
    assert results.run is not None  # noqa: S101 - the caller has looked
    data: dict[str, Any] = to_data(recorded_plan(results.run.plan))
    return data


def _flat(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Leaves with their paths; members of a list by their id or name, lists of plain values as one."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _flat(item, f"{path}.{name}")
    elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        for index, item in enumerate(value):
            yield from _flat(item, f"{path}.{_named(item, index)}")
    elif isinstance(value, list) and value and all(isinstance(item, list) and len(item) == 2 for item in value):
        for name, item in value:
            yield from _flat(item, f"{path}.{name}")
    else:
        yield path, str(value)


def _named(item: Any, index: int) -> str:
    found = (
        next((item[key] for key in ("id", "name", "stage") if key in item), None) if isinstance(item, Mapping) else None
    )
    return str(found if found is not None else index)
