"""Notes on valid plans: names that are declared and not used, keys without a value, times to recover that a rate cannot
show, pauses of a workload under a schedule of arrivals, servers that are too old."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from proveout.core.errors import PlanProblem, Where
from proveout.core.numbers import percent, quantity
from proveout.dsl import engines
from proveout.dsl.compile.loads import NO_THINK
from proveout.dsl.plan.loads import parts
from proveout.dsl.plan.phases import level_at, recovers
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Ladder, Open, Phased, Search, Stage
from proveout.dsl.plan.topology import Declared
from proveout.dsl.rules.host_rules import noted
from proveout.dsl.source.loader import maps_below
from proveout.dsl.source.nodes import Map, Node, Problems, Scalar, Steps, last_key, node_at, scalars
from proveout.dsl.workloads.kinds import of_workload

_SECTIONS = {
    "workload": (("workloads",), {"workload"}),
    "capture": (("captures",), {"capture"}),
    "system": (("topology", "systems"), {"into", "system", "systems", "target"}),
    "pool": (("pools",), {"pool"}),
}
"""Of each kind its section, and the keys of stages that name one."""
_NO_NAMES = frozenset({"engine", "env", "id", "kind", "name", "roles", "title"})
"""Keys whose values are never such a name, although they may look like one."""


def unused(document: Map, root: Map, problems: Problems) -> tuple[PlanProblem, ...]:
    """The notes; `document` has the templates, `root` the values in their place."""
    found = sorted((*_names(document, root), *_templates(document)), key=lambda entry: entry[1].where.line)
    return tuple(
        PlanProblem(
            message=f"note: nothing uses the {kind} `{key.text}`",
            where=key.where,
            key=kind,
            hint=hint,
            source_line=problems.line(key.where),
        )
        for kind, key, hint in found
        if key.where.file == document.where.file
    )


def _names(document: Map, root: Map) -> Iterator[tuple[str, Scalar, str]]:
    """(kind, key, way out) of names that no value has; of no kind whose names a parameter gives, which `-p` can change.

    A workload of a matrix is one for each of its values.
    """
    texts = [(steps, one.text) for steps, one in scalars(root) if last_key(steps) not in _NO_NAMES]
    for kind, (path, keys) in _SECTIONS.items():
        if any(one.text.startswith("${params.") and not keys.isdisjoint(steps) for steps, one in scalars(document)):
            continue
        written = _section(document, path)
        for key, _ in _section(root, path):
            own = (*path, key.text)
            used = any(text == key.text and steps[: len(own)] != own for steps, text in texts)
            if not used and any(key.text == one.text for one, _ in written):
                yield kind, key, "name it in a stage, or leave it out"


def _templates(document: Map) -> Iterator[tuple[str, Scalar, str]]:
    """(kind, key, way out) of parameters and secrets that no template and no expression reads."""
    text = "\n".join(scalar.text for _, scalar in scalars(document))
    for kind, section in (("parameter", "params"), ("secret", "secrets")):
        for key, _ in _section(document, (section,)):
            if not re.search(rf"\b{section}\.{re.escape(key.text)}\b", text):
                yield kind, key, f"write ${{{section}.{key.text}}} where it belongs, or leave it out"


def _section(root: Map, path: Steps) -> tuple[tuple[Scalar, Node], ...]:
    """The entries of a section; none where it is not there."""
    node = node_at(root, *path)
    return node.entries if isinstance(node, Map) else ()


def empty(document: Map, problems: Problems) -> Iterator[PlanProblem]:
    """A note for each key without a value, which has no effect."""
    for node in maps_below(document):
        for key, value in node.entries:
            if isinstance(value, Scalar) and value.value is None and not value.text:
                yield PlanProblem(
                    message=f"note: `{key.text}` has no value, which is as if it were not there",
                    where=key.where,
                    key=key.text,
                    hint="give it a value, or leave it out",
                    source_line=problems.line(key.where),
                )


_HINT = "a higher rate, a longer time before it, or `arrival: constant`"


def unknown_recoveries(stages: Sequence[Stage], problems: Problems) -> tuple[PlanProblem, ...]:
    return tuple(
        replace(noted(text, stage, _HINT), source_line=problems.line(stage.where))
        for stage in stages
        if isinstance(stage, Ladder) and (stage.faults or stage.windows.phases) and (rate := _rate(stage)) is not None
        for text in _unknown(stage, rate)
    )


def _unknown(stage: Ladder, rate: Callable[[float], float]) -> Iterator[str]:
    from proveout.core.statistics import MARGIN_MAX, fault_margin, phase_margin  # noqa: PLC0415 - with numpy

    found: list[tuple[str, float, float, float, float]] = []
    for fault in stage.faults:
        begin_s = fault.at_s if fault.between_s is None else fault.between_s[0]
        if begin_s is not None:
            after_s, steady_s = stage.windows.measure_s - begin_s, begin_s + stage.windows.ramp_up_s / 2
            margin = fault_margin(rate(begin_s), steady_s, after_s)
            found.append((f"`{fault.name}`", rate(begin_s), begin_s, margin, MARGIN_MAX))
    lengths = [length_s for _, length_s in stage.windows.phases]
    levels = stage.arrival.levels if isinstance(stage.arrival, Phased) else ()
    for number, (name, _) in enumerate(stage.windows.phases):
        if not recovers(levels, number):
            level, before_s = levels[number - 1].first, lengths[number - 1]
            margin = phase_margin(level, int(before_s), int(lengths[number + 1]))
            found.append((f"phase `{name}`", level, before_s, margin, stage.recovered_within))
    for what, at_rate, length_s, margin, most in found:
        if margin > most:
            moved = f"by {percent(margin)}" if margin < 1.0 else "by more than all of it"
            yield (
                f"`recovery_s` will not be known: at {quantity(at_rate, 'rate')} and {quantity(length_s, 'measure_s')} "
                f"before {what} chance moves throughput {moved}, and {percent(most)} is looked for"
            )


def _rate(stage: Ladder) -> Callable[[float], float] | None:
    """The rate of independent arrivals at an instant of the window; None for any other load."""
    arrival = stage.arrival
    if stage.loads or (isinstance(arrival, Open | Phased) and arrival.distribution != "poisson"):
        return None
    if isinstance(arrival, Open) and isinstance(arrival.rate, float | int):
        fixed = float(arrival.rate)
        return lambda _: fixed
    if isinstance(arrival, Phased) and arrival.of == "rate":
        levels = arrival.levels
        return lambda at_s: level_at(levels, at_s)
    return None


def ignored_pauses(plan: Plan, problems: Problems) -> tuple[PlanProblem, ...]:
    """A note for each stage of the plan's text with a schedule of arrivals and a workload with pauses of its own."""
    notes: dict[tuple[Where, str], PlanProblem] = {}  # the cells of a matrix have one
    for stage in plan.stages:
        found = parts(stage) if isinstance(stage, Ladder | Search) else ()
        scheduled = [one for one in found if getattr(one.arrival, "rate", None) is not None]
        for name in dict.fromkeys(one.stage.workload for one in scheduled):
            model = of_workload(plan.workload(name))
            kinds = getattr(model, "transactions", {}).values()
            if any(getattr(one, key, None) for one in (model, *kinds) for key in ("keying", "think", "thinking")):
                text = f"the keying and think times of `{name}` have no effect in `{stage.id}`: {NO_THINK}"
                note = replace(
                    noted(text, stage, "leave its rate away, or them"), source_line=problems.line(stage.where)
                )
                notes.setdefault((stage.where, name), note)
    return tuple(notes.values())


def old_servers(plan: Plan) -> tuple[PlanProblem, ...]:
    """A note for each version that facts name of a system's engine, and that its client cannot reach."""
    found: dict[tuple[engines.Engine, str], list[Declared]] = {}
    for engine in map(engines.of, dict.fromkeys(system.engine for system in plan.systems)):
        version = re.compile(rf"{engine.title}\D{{0,20}}(\d+(?:\.\d+)+)")
        for declared in plan.declared if engine.least_version else ():
            for match in (match for _, value in declared.facts for match in version.finditer(str(value))):
                if _numbers(match[1]) < _numbers(engine.least_version):
                    found.setdefault((engine, match[1]), []).append(declared)
    return tuple(
        PlanProblem(
            message=f"note: {engine.title} {version} of {', '.join(one.name for one in at)} cannot be reached: "
            f"proveout drives {engine.least_version} or newer",
            where=at[0].where,
            key=f"topology.{at[0].kind}s.{at[0].name}.facts",
        )
        for (engine, version), at in found.items()
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
