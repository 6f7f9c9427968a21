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

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeAlias, get_args

from proveout.coordinator.results.fingerprint import INDIVIDUAL, KINDS, Fingerprint, fingerprints, schemas
from proveout.coordinator.results.fingerprint import Difference as FactDifference
from proveout.coordinator.results.fingerprint import differences as fact_differences
from proveout.coordinator.results.results import RunResults
from proveout.coordinator.storage.journal import recorded_plan
from proveout.core import statistics
from proveout.core.data_classes import field, record
from proveout.core.errors import ProveoutError
from proveout.core.numbers import count_of, is_estimate
from proveout.dsl import metrics
from proveout.dsl.expr.evaluation import RUNGS
from proveout.dsl.plan.plan import to_data
from proveout.proto.events import Metrics, RunStarted

MEASURED = ("hosts", "systems", "workloads", "captures", "stages", "conditions", "on_loss")
"""The parts of a plan that numbers depend on."""

SHOWN_MAX = 12
_APART = {
    "engines": r"engine|plan\.systems\..*\.engine",
    "workloads": r"plan\.workloads\..*\.kind",
}
"""Words for runs that share too little, and the names of the differences."""
_DIGEST = re.compile(r"[, …]*sha256:[0-9a-f]+")
"""It is recorded for the end of a long text; a person cannot read it."""
Kind: TypeAlias = Literal["schema", "system", "plan", "host", "program"]
"""The subjects of differences, those first that matter most."""


class NotComparable(ProveoutError):
    """The runs differ in something that is not allowed."""

    exit_code = 2


@record
class Difference:
    """A value that differs; `before` or `after` is "" where it is missing.

    `where` is a host, a system, or "" for the whole run. `kind`: its subject. `missing_in`:
    the run that lacks the object of a schema.
    """

    name: str
    where: str
    before: str
    after: str
    allowed: bool = False
    missing_in: str = ""
    kind: Kind = "plan"

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        before, after = (_DIGEST.sub("", value) for value in (self.before, self.after))
        if self.missing_in:
            return f"{place}{self.name} is missing in {self.missing_in} ({before or after})"
        if before == after:
            return f"{place}{self.name} differs behind its first part ({before})"
        return f"{place}{self.name}: {before or 'none'} -> {after or 'none'}"

    @property
    def rank(self) -> int:
        """The place in a list that says first what matters most; other engines and workloads before all."""
        apart = any(re.fullmatch(pattern, self.name) for pattern in _APART.values())
        return -1 if apart else get_args(Kind).index(self.kind)


def differences(
    reference: RunResults, other: RunResults, allow: Sequence[str] = (), names: Sequence[str] = ()
) -> tuple[Difference, ...]:
    """All differences that may change a number, those that matter most first; `names` are those of the two
    runs in `missing_in`, their ids by default. JournalFault."""
    environment = tuple(_environment(reference, other))
    known = {(one.where, one.name) for one in environment}
    schema = (one for one in _schemas(reference, other, names) if (one.where, one.name) not in known)
    found = (*environment, *schema, *_program_and_plan(reference.run, other.run))
    return tuple(sorted((replace(one, allowed=_allowed(one, allow)) for one in found), key=lambda one: one.rank))


def refused(found: Iterable[Difference]) -> tuple[Difference, ...]:
    """The differences that are not allowed."""
    return tuple(one for one in found if not one.allowed)


def refuse(reference: RunResults, other: RunResults, found: Sequence[Difference]) -> NotComparable:
    """The error for two runs that differ in `found`."""
    runs = f"{id_of(other)} cannot be compared with {id_of(reference)}: "
    if apart := unlike(reference, other, found):
        return NotComparable(runs + apart, way_out="To compare them all the same: --despite.")
    without = [one for one in (reference, other) if not any(stage.iterations for stage in one.stages.values())]
    if len(without) == 1:
        way_out = "Name runs that have measured; `proveout runs` lists them."
        return NotComparable(f"{runs}{id_of(without[0])} has no iteration", way_out=way_out)
    more = f"; and {len(found) - SHOWN_MAX} more" if len(found) > SHOWN_MAX else ""
    names = ",".join(dict.fromkeys(one.name for one in found[:SHOWN_MAX]))
    return NotComparable(
        f"{runs}they differ in {'; '.join(map(str, found[:SHOWN_MAX]))}{more}",
        way_out=f"To compare them anyway: --allow '{names}', or --despite for all differences.",
    )


def unlike(reference: RunResults, other: RunResults, found: Sequence[Difference]) -> str:
    """The sentence about two runs whose engines or workloads differ, "" for others."""
    apart: dict[str, tuple[list[str], list[str]]] = {}
    for words, pattern in _APART.items():
        matching = [one for one in found if re.fullmatch(pattern, one.name)]
        before, after = sorted({one.before for one in matching} - {""}), sorted({one.after for one in matching} - {""})
        if before != after:
            apart[words] = (before, after)
    if not apart:
        return ""
    plans = [[results.run.name if results.run else "?"] for results in (reference, other)]
    every = {"plans": (plans[0], plans[1]), **apart} if plans[0] != plans[1] else apart
    parts = [f"{words} ({' and '.join(a) or 'none'}, {' and '.join(b) or 'none'})" for words, (a, b) in every.items()]
    return f"they have different {' and '.join(parts)}, so that their ratio says nothing about a change"


def refuse_a_copy(reference: RunResults, other: RunResults) -> None:
    """NotComparable where both are one run, or one has the measured data of the other: a run does not differ from its
    copy, whatever has changed."""
    if reference.run is None or other.run is None:
        return
    way_out = "Name two runs; `proveout runs` lists them."
    if id_of(reference) == id_of(other):
        raise NotComparable(f"both runs are {id_of(reference)}, or copies of it: nothing can differ", way_out=way_out)
    before, after = (
        [one.iterations for one in results.stages.values() if one.iterations] for results in (reference, other)
    )
    if before and before == after:
        raise NotComparable(
            f"{id_of(other)} has the measured data of {id_of(reference)}, iteration for iteration: one is a copy of "
            "the other, and nothing can differ",
            way_out=way_out,
        )


def id_of(results: RunResults) -> str:
    """The id of a run; "?" before it has begun."""
    return results.run.run_id if results.run else "?"


def _allowed(one: Difference, allow: Sequence[str]) -> bool:
    return any(fnmatchcase(one.name, pattern) or fnmatchcase(f"{one.where}:{one.name}", pattern) for pattern in allow)


# ---- environment -------------------------------------------------------------------------------------------------


def _environment(reference: RunResults, other: RunResults) -> Iterator[Difference]:
    """Facts by host and by system; one that was recorded in one run only differs as a whole, as `environment`."""
    before, after = (
        {(one.host, one.system, one.equipment): one for one in fingerprints(results)} for results in (reference, other)
    )
    for key in dict.fromkeys((*before, *after)):
        where = key[2] or key[1] or key[0]
        kind: Kind = "system" if key[1] else "host"
        if key not in before or key not in after:
            yield _recorded_in_one("environment", where, kind, first=key in before)
            continue
        for fact in fact_differences(*_used(before[key], after[key])):
            if fact.fact not in INDIVIDUAL:
                yield Difference(name=fact.fact, where=where, before=fact.before, after=fact.after, kind=kind)


def _recorded_in_one(name: str, where: str, kind: Kind, *, first: bool) -> Difference:
    before, after = ("recorded", "") if first else ("", "recorded")
    return Difference(name=name, where=where, before=before, after=after, kind=kind)


def _schemas(reference: RunResults, other: RunResults, names: Sequence[str]) -> Iterator[Difference]:
    """Tables, indexes and settings of the loaded systems, at the stages that both runs measured; each difference once,
    at its first stage."""
    ids = names or [id_of(results) for results in (reference, other)]
    left, right = ({(one.stage, one.system): one for one in schemas(results)} for results in (reference, other))
    seen: set[Difference] = set()
    shared = reference.stages.keys() & other.stages.keys()
    for key in dict.fromkeys((*left, *right)):
        stage, system = key
        if stage not in shared or (not left and not right):
            continue
        if key not in left or key not in right:
            found = [_recorded_in_one("schema", system, "schema", first=key in left)]
        else:
            found = [
                Difference(
                    name=one.fact,
                    where=system,
                    before=one.before,
                    after=one.after,
                    kind="schema" if one.fact.partition(" ")[0] in KINDS else "system",
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


# ---- program and plan --------------------------------------------------------------------------------------------


def _program_and_plan(one: RunStarted | None, two: RunStarted | None) -> Iterator[Difference]:
    if one is None or two is None:
        raise NotComparable("a run that has not begun cannot be compared", way_out="Name a run that has a result.")
    if one.version != two.version:
        yield Difference(name="proveout", where="", before=one.version, after=two.version, kind="program")
    if one.digest == two.digest:
        return
    plans = (to_data(recorded_plan(run.plan)) for run in (one, two))
    before, after = (dict(_flat({part: plan[part] for part in MEASURED}, "plan")) for plan in plans)
    for path in dict.fromkeys((*before, *after)):
        if before.get(path) != after.get(path):
            yield Difference(name=path, where="", before=before.get(path, ""), after=after.get(path, ""))


def _flat(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Leaves with their paths; members of a list by their id or name, lists of plain values as one."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _flat(item, f"{path}.{name}")
    elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        for index, item in enumerate(value):
            names = (item.get(key) for key in ("id", "name", "stage")) if isinstance(item, Mapping) else ()
            yield from _flat(item, f"{path}.{next((name for name in names if name is not None), index)}")
    elif isinstance(value, list) and value and all(isinstance(item, list) and len(item) == 2 for item in value):
        for name, item in value:
            yield from _flat(item, f"{path}.{name}")
    else:
        yield path, str(value)


# The sides of a comparison, of one or several runs each: their numbers with the run as the unit. Pure.
#
# Data flow: the metrics of each run of a side -> `together`, one tree whose estimates are over runs -> `comparison`.
# The variance between runs comes from earlier runs of the plan (`history.runs.earlier`).

EARLIER_MIN = 5
"""The fewest earlier runs from which the variance between runs is taken."""

Place: TypeAlias = tuple[str, int | None]
"""A stage and one of its rungs; None for a stage without rungs."""


@record
class Between:
    """The spread of runs of one plan: of each number at each place the variance of the logarithm of a run's mean, and
    its degrees of freedom. `runs`: how many earlier runs there are, also where they are too few."""

    runs: int = 0
    known: Mapping[tuple[Place, str], tuple[float, float]] = field(default_factory=dict)

    def of(self, place: Place, path: Sequence[str]) -> tuple[float, float] | None:
        """Of a number by its path in the tree of its rung or stage; None where it is not known."""
        return self.known.get((place, ".".join(path)))


NOT_KNOWN = Between()


def between(series: Mapping[tuple[Place, str], Sequence[float]], runs: int) -> Between:
    """From the means of each number over earlier runs, in the order of time."""
    usable = {key: means for key, means in series.items() if len(means) >= EARLIER_MIN and min(means) > 0.0}
    return Between(
        runs=runs, known={key: statistics.successive_variance([*map(math.log, of)]) for key, of in usable.items()}
    )


def together(trees: Sequence[Mapping[str, Any]], known: Between = NOT_KNOWN) -> Metrics:
    """The numbers that the trees of all runs of a side have, as estimates over the runs. The tree of a single run stays
    as it is where the variance between runs is not known."""
    if len(trees) == 1 and not known.known:
        return dict(trees[0])
    names = [stage for stage in trees[0] if all(stage in tree for tree in trees)]
    return {stage: _together([tree[stage] for tree in trees], known, (stage, None), ()) for stage in names}


def _together(trees: Sequence[Mapping[str, Any]], known: Between, place: Place, path: tuple[str, ...]) -> Metrics:
    found: Metrics = {}
    for name in trees[0]:
        parts = [tree[name] for tree in trees if name in tree]
        if len(parts) < len(trees):
            continue
        if name == RUNGS and not path:
            found[name] = {
                rung: _together([part[rung] for part in parts], known, (place[0], int(rung)), ())
                for rung in parts[0]
                if all(rung in part for part in parts)
            }
        elif all(isinstance(part, Mapping) for part in parts):
            if all(map(is_estimate, parts)):
                variance, kind = known.of(place, (*path, name)), metrics.kind((*path, name))
                alone = len(parts) == 1 and variance is None
                found[name] = parts[0] if alone else statistics.of_runs(parts, variance, kind)
            elif not any(map(is_estimate, parts)):
                below = () if not path and name in ("peak", "knee") else (*path, name)  # which are rungs
                found[name] = _together(parts, known, place, below)
        elif len(parts) == 1 or all(part == parts[0] for part in parts):
            found[name] = parts[0]
    return found


def notes(names: tuple[str, str], counts: tuple[int, int], known: Between, shown: Sequence[float]) -> Iterator[str]:
    """Sentences on what the intervals hold for; `shown` are the variances between runs of the main numbers."""
    if max(counts) > 1:
        sides = " and ".join(f"{name} {count_of(n, 'run')}" for name, n in zip(names, counts, strict=True))
        yield f"{sides}: intervals are over runs, each with its mean over its repeats"
    if shown:
        apart = " to ".join(
            dict.fromkeys(f"{math.sqrt(one):.1%}".replace("%", " %") for one in (min(shown), max(shown)))
        )
        yield (
            f"runs of this plan differ by {apart} here (standard deviation, {known.runs} earlier "
            "runs), which is in the intervals"
        )
    elif max(counts) == 1:
        few = f"{count_of(known.runs, 'earlier run')} here, {EARLIER_MIN} would show it"
        yield f"intervals are over the repeats within each run: how much runs differ is not in them ({few})"
