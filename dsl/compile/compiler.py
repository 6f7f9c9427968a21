"""A plan file -> a frozen `Plan`, or one `PlanError` with every problem in it.

Data flow: `includes.read` (files -> nodes) -> `parameters` -> section by section, each entry by its model:
`topology`, `sections`, `stages` -> the expressions, checked against the results of the stages -> `stage_rules` between
stages -> `Plan`. Deterministic: the same files and parameters give the same plan and digest. Touches nothing but the
files it reads.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import BaseModel

from proveout.core.data_classes import dataclass
from proveout.core.errors import NOWHERE, PlanProblem, Where
from proveout.core.numbers import percent
from proveout.dsl.compile.matrix import expand, interleave, whole_ladder
from proveout.dsl.compile.notes import empty, ignored_pauses, old_servers, unknown_recoveries, unused
from proveout.dsl.compile.result_names import iteration, live_scope, run_scope, stop_scope
from proveout.dsl.compile.sections import add_captures, add_pools, add_workloads
from proveout.dsl.compile.stage_rules import check_conditions, check_stages, condition, in_order, left_out, needs_of
from proveout.dsl.compile.stages import compile_stages
from proveout.dsl.compile.symbols import Draft, Scope, declared
from proveout.dsl.compile.topology import add_topology
from proveout.dsl.compile.tuning import check_tunings, compile_tunings, one_agent_per_machine
from proveout.dsl.expr.checking import NO_RUNG, Expected, Group, check_expression
from proveout.dsl.expr.result_paths import lay_out
from proveout.dsl.expr.syntax import Binary, Call, ExpressionFault, Member, Name, Number, parse
from proveout.dsl.operations.sql import commit_tables, database_copies
from proveout.dsl.plan.keys import made
from proveout.dsl.plan.loads import alone_ladders
from proveout.dsl.plan.model_values import Strict
from proveout.dsl.plan.plan import Chart, ChartNumbers, Check, OnLoss, Plan, Published, all_tunings
from proveout.dsl.plan.scalars import Name as PlanName
from proveout.dsl.plan.scalars import Title
from proveout.dsl.plan.stages import Condition, Ladder, Open, Search, Stage, Tune
from proveout.dsl.plan.topology import Expression, TextPosition
from proveout.dsl.rules.repeat_rules import check_repeats, check_slopes
from proveout.dsl.schema import models
from proveout.dsl.schema.parameters import TEMPLATE, Parameters, read_parameters, substitute
from proveout.dsl.schema.validation import SPLIT, salvage, validate
from proveout.dsl.source.includes import read
from proveout.dsl.source.loader import maps_below, text_positions
from proveout.dsl.source.nodes import Map, Node, Problems, Scalar, Seq, did_you_mean, locate, node_at, scalars, where_of


def compile_plan(path: Path, *, overrides: Mapping[str, str] | None = None, inventory: Path | None = None) -> Plan:
    """The plan in the file at `path`; `overrides` are `-p name=value`, `inventory` supplies or replaces the topology.

    Raises PlanError with all problems of the plan, its includes, its inventory and the overrides.
    """
    return compile_with_notes(path, overrides=overrides, inventory=inventory)[0]


def compile_with_notes(
    path: Path, *, overrides: Mapping[str, str] | None = None, inventory: Path | None = None
) -> tuple[Plan, tuple[PlanProblem, ...]]:
    """Like `compile_plan`, with a note for each name that the plan declares and does not use."""
    problems = Problems()
    compiled = _compile(path, overrides or {}, inventory, problems)
    if compiled is None or problems.found:
        raise problems.error()
    return compiled


def _compile(
    path: Path, overrides: Mapping[str, str], inventory: Path | None, problems: Problems
) -> tuple[Plan, tuple[PlanProblem, ...]] | None:
    document = read(path, inventory, problems)
    if document is None or _is_another_kind(document, problems):
        return None
    document = _check_head(document, problems)
    parameters = read_parameters(document, overrides, problems)
    original = document
    named = declared(document.get("stages"))
    document, places = expand(document, parameters, problems)
    root = substitute(document, parameters, problems)
    named_inventory = None if inventory is None else str(inventory)
    scope = Scope(problems=problems, parameters=parameters, folder=path.parent.resolve(), inventory=named_inventory)
    add_topology(scope, root)
    add_workloads(scope, root.get("workloads"))
    add_captures(scope, root.get("captures"))
    add_pools(scope, root.get("pools"))
    tunings = compile_tunings(scope, root.get("tuning"), "tuning")
    drafts = interleave(scope, in_order(compile_stages(scope, root.get("stages"), root, places), named, problems))
    node = root.get("report")
    given = None if node is None else validate(models.ReportEntry, node, "report", problems)
    report = given or models.ReportEntry.model_validate({})
    draft = dataclasses.replace(_plan(root, scope, drafts, report), tunings=tunings)
    turning = {item.id: _turning(item) for item in drafts if isinstance(item.stage, Ladder)}
    steps = {item.id: (turning[item.step_of], item.step_of) for item in drafts if item.step_of in turning}
    check_tunings(scope, tunings, [stage for stage in draft.stages if isinstance(stage, Tune)], steps)
    checker = _Expressions(
        problems=problems, parameters=parameters, plan=draft, drafts=drafts, root=root, declared=named
    )
    stages = checker.stages()
    verdicts = checker.verdicts()
    published, compared = checker.published(verdicts)
    verdicts = (*verdicts, *compared)
    conditions = checker.conditions()
    never = left_out(conditions)
    done = {stage.id: stage for stage in stages}
    check_stages(scope, [done.get(item.id) for item in drafts if item.stage is None or item.id not in never])
    check_conditions(stages, conditions, scope.systems, problems)
    if all(item.stage is not None for item in drafts):
        lists = [section for name in ("verdicts", "published") if (section := root.get(name)) is not None]
        written = sum(len(section.items) if isinstance(section, Seq) else 1 for section in lists)
        check_repeats(problems, stages, verdicts, whole=len(verdicts) + len(published) - len(compared) == written)
    check_slopes(problems, stages, verdicts, draft.captures)
    implied = (*commit_tables(draft), *database_copies(draft)) if not problems.found else ()
    whole = dataclasses.replace(
        draft,
        tunings=(*tunings, *implied),
        stages=stages,
        verdicts=verdicts,
        published=published,
        conditions=conditions,
    )
    whole = dataclasses.replace(
        whole, charts=checker.charts(report.charts), positions=tuple(_positions(root, drafts, whole, problems))
    )
    _tell_left_out(problems, draft, parameters, overrides)
    of_text = (*unused(original, root, problems), *empty(original, problems))
    notes = (
        *of_text,
        *unknown_recoveries(whole.stages, problems),
        *ignored_pauses(whole, problems),
        *old_servers(whole),
    )
    return one_agent_per_machine(whole), notes


def _tell_left_out(problems: Problems, plan: Plan, parameters: Parameters, overrides: Mapping[str, str]) -> None:
    """One problem for all rungs that an override leaves out and expressions read, at the override."""
    for name, value in ((one, parameters.values[one].value) for one in overrides if one in parameters.values):
        ladders = [f"the ladder `{one.id}` {NO_RUNG} " for one in plan.stages if getattr(one, "threads", ()) == value]
        mine = [one for one in problems.found if one.message.startswith(tuple(ladders))]
        if not mine or not isinstance(value, tuple):
            continue
        lines: dict[int, list[str]] = {}
        for one in mine:
            del problems.found[one]
            lines.setdefault(int(one.message.partition(f"{NO_RUNG} ")[2].split()[0]), []).append(str(one.where.line))
        read = ", ".join(f"{rung} (line {', '.join(lines[rung])})" for rung in sorted(lines))
        whole = ",".join(str(rung) for rung in sorted({*lines, *(one for one in value if isinstance(one, int))}))
        what = f"{overrides[name]} leaves out rungs that the plan reads: "
        problems.add(Where(file=f"-p {name}"), f"{what}{read}", hint=f"add them: -p {name}={whole}")


def _positions(root: Map, drafts: Sequence[Draft], plan: Plan, problems: Problems) -> Iterator[TextPosition]:
    for path in (("topology", "systems"), ("workloads",), ("captures",)):
        if (section := node_at(root, *path)) is not None:
            yield from text_positions(path[-1], section, problems)
    for draft in drafts:
        yield from text_positions(f"stages.{draft.id}", draft.body, problems)
    names = {one.where: one.name for one in all_tunings(plan)}
    for section in (root.get("tuning"), *(draft.body for draft in drafts)):
        for node in maps_below(section):
            if node.where in names:
                yield from text_positions(f"tuning.{names[node.where]}", node, problems)


def _is_another_kind(document: Map, problems: Problems) -> bool:
    """Whether the file is not a plan at all; one problem then, not one for each of its keys."""
    unknown = [key.text for key, _ in document.entries if key.text not in models.Document.model_fields]
    if not unknown or document.get("proveout") or document.get("stages"):
        return False
    what = f"this is not a plan of proveout: it has `{unknown[0]}`, and no `proveout` and no `stages`"
    problems.add(document.where, what, hint="a plan begins with `proveout: 1`; `proveout new` writes one")
    return True


def _check_head(document: Map, problems: Problems) -> Map:
    """Check the top-level keys, and the version and name of the plan; the document with the keys that were meant."""
    known, given = models.Document.model_fields, document.keys()
    entries = []
    for key, value in document.entries:
        meant = key.text
        if meant not in known:
            problems.add(key.where, f"unknown key `{meant}`", key=meant, hint=did_you_mean(meant, known))
            close = get_close_matches(meant.lower(), known, n=1)
            meant = next((name for name in close if name not in given), meant)
        entries.append((dataclasses.replace(key, value=meant, text=meant), value))
    document = dataclasses.replace(document, entries=tuple(entries))
    head = [entry for entry in document.entries if entry[0].text in _Head.model_fields]
    validate(_Head, dataclasses.replace(document, entries=tuple(head)), "", problems)
    return document


class _Head(Strict):
    proveout: models.Version
    name: PlanName
    title: Title = ""
    on_loss: models.OnLoss = "rerun"
    preflight: models.Preflight = True


def _plan(root: Map, scope: Scope, drafts: Sequence[Draft], report: models.ReportEntry) -> Plan:
    """Everything but the expressions."""
    return Plan(
        name=_text(root, "name"),
        title=_text(root, "title"),
        parameters=tuple(scope.parameters.values.values()),
        hosts=tuple(scope.hosts.values()),
        systems=tuple(scope.systems.values()),
        secrets=tuple(scope.secrets.values()),
        workloads=tuple(scope.workloads.values()),
        captures=tuple(scope.captures.values()),
        stages=tuple(draft.stage for draft in drafts if draft.stage is not None),
        verdicts=(),
        figures=tuple(report.figures),
        without_figures=tuple(report.without),
        brought_in=tuple(report.with_),
        on_loss=cast("OnLoss", _text(root, "on_loss") or "rerun"),
        declared=tuple(scope.facts),
        preflight=_text(root, "preflight") != "false",
    )


def _text(root: Map, key: str) -> str:
    node = root.get(key)
    return node.text if isinstance(node, Scalar) else ""


_Entry = TypeVar("_Entry", Check, Published)
_Model = TypeVar("_Model", bound=BaseModel)


@dataclass(slots=True, kw_only=True)
class _Expressions:
    """Checks and completes every expression of the plan; `drafts` tell which stages exist but did not compile, and
    `declared` has the names of all stages."""

    problems: Problems
    parameters: Parameters
    plan: Plan
    drafts: Sequence[Draft]
    root: Map
    declared: frozenset[str]

    def stages(self) -> tuple[Stage, ...]:
        return tuple(self.stage(draft, draft.stage) for draft in self.drafts if draft.stage is not None)

    def stage(self, draft: Draft, stage: Stage) -> Stage:
        checked: dict[str, Any] = {}
        if isinstance(stage, Ladder):
            if stage.stop_when is not None:
                scope = stop_scope(self.plan, stage)
                checked["stop_when"] = self.check(stage.stop_when, draft.body, ("stop_when",), scope, "condition")
            if isinstance(stage.arrival, Open):
                rate = self.number(stage.arrival.rate, draft, "rate")
                checked["arrival"] = dataclasses.replace(stage.arrival, rate=rate)
            faults = list(stage.faults)
            for number, fault in enumerate(faults):
                if fault.when is not None:
                    path, scope = ("faults", number, "when"), live_scope(self.plan, stage)
                    when = self.check(fault.when, draft.body, path, scope, "condition")
                    faults[number] = dataclasses.replace(fault, when=when)
            checked["faults"] = tuple(faults)
        elif isinstance(stage, Search):
            for end in ("from", "to", "start"):
                checked[f"rate_{end}"] = self.number(getattr(stage, f"rate_{end}"), draft, "rate", end)
            scope = iteration(self.plan, stage)
            checked["accept"] = self.check(stage.accept, draft.body, ("accept",), scope, "condition")
        return dataclasses.replace(stage, **checked) if checked else stage

    def number(self, value: Any, draft: Draft, *path: str) -> Any:
        if not isinstance(value, Expression):
            return value
        return self.check(value, draft.body, path, self.before(draft), "number")

    def conditions(self) -> tuple[Condition, ...]:
        """The conditions of the stages, in the order in which they run."""
        found: list[Condition] = []
        for draft in self.drafts:
            when = draft.body.get("when") if draft.stage is not None else None
            checked: Expression | None = None
            if isinstance(when, Scalar) and not when.faulty:
                raw = Expression(text=when.text, where=when.where)
                faults = len(self.problems.found)
                checked = self.check(raw, draft.body, ("when",), self.before(draft), "when")
                if len(self.problems.found) > faults or self.hopeless(raw, when):
                    continue
            one = condition(draft.id, tuple(item.text for item in needs_of(draft)), checked)
            found += [] if one is None else [one]
        return tuple(found)

    def before(self, draft: Draft) -> Group:
        position = self.drafts.index(draft)
        earlier = [item.stage for item in self.drafts[:position] if item.stage is not None]
        scope = self.results(earlier)
        absent = {
            name: (f"stage `{name}` runs later", "") for item in self.drafts[position + 1 :] for name in _names(item)
        }
        absent |= {draft.id: ("it is this stage's own result", ""), "propagation": ("it is compared at the end", "")}
        members = {name: shape for name, shape in scope.members.items() if name != "propagation"}
        return dataclasses.replace(scope, members=members, absent=absent, broken=scope.broken - set(absent))

    def results(self, stages: Sequence[Stage]) -> Group:
        """The results of stages, with the names of those that did not compile."""
        scope = run_scope(self.plan, stages)
        sound = {name for draft in self.drafts if draft.stage is not None for name in _names(draft)}
        broken = {name for draft in self.drafts if draft.stage is None and draft.id for name in _names(draft)}
        return dataclasses.replace(scope, broken=frozenset(broken | (self.declared - sound)))

    def check(
        self, expression: Expression, node: Node, path: tuple[str | int, ...], scope: Group, expected: Expected
    ) -> Expression:
        """The expression with its parameters filled in and its needs known; its problems are noted."""
        scalar, _ = locate(node, path)
        if self.hopeless(expression, scalar):
            return expression
        if not self.drafts:  # which is a problem by itself: each name may be that of a stage
            scope = dataclasses.replace(scope, broken=frozenset(re.findall(r"\w+", expression.text)))
        checked = check_expression(expression.text, scope, expected, self.parameters.numbers())
        for fault in checked.faults:
            where = expression.where
            if isinstance(scalar, Scalar):
                where = scalar.at(max(scalar.text.find(expression.text), 0) + fault.offset)
            self.problems.add(where, fault.message, key=".".join(map(str, path)), hint=fault.hint)
        ids = {draft.id for draft in self.drafts}
        needs = tuple(name for name in checked.roots if name in ids) if scope.what == "the results" else ()
        if "interference" in checked.text:
            needs += tuple(
                ladder.id
                for stage in self.plan.stages
                if stage.id in needs and isinstance(stage, Ladder)
                for ladder in alone_ladders(self.plan.stages, stage).values()
            )
        return Expression(text=checked.text, needs=needs, where=expression.where)

    def hopeless(self, expression: Expression, scalar: Node) -> bool:
        """Whether the expression, or a parameter that it reads, has a problem already."""
        faulty = not expression.text or (isinstance(scalar, Scalar) and scalar.faulty)
        return faulty or any(_reads(expression.text, f"params.{name}") for name in self.parameters.broken)

    def verdicts(self) -> tuple[Check, ...]:
        scope = self.results(self.plan.stages)
        found: list[Check] = []
        for node, entry, _ in self.listed("verdicts", Check, models.VerdictEntry, "- {id: …, check: …}"):
            raw = dataclasses.replace(entry.check, where=where_of(node, "check"))
            check = self.check(raw, node, ("check",), scope, "condition")
            answer = self.filled(entry.answer, node, scope)
            found.append(dataclasses.replace(entry, check=check, answer=answer, where=node.where))
        return tuple(found)

    def filled(self, answer: str, node: Node, scope: Group) -> str:
        """The sentence of a verdict with its expressions checked and completed."""
        place = where_of(node, "answer") if answer else NOWHERE

        def checked(match: re.Match[str]) -> str:
            raw = Expression(text=match[1].strip(), where=place)
            return f"${{{self.check(raw, node, ('answer',), scope, 'number').text}}}"

        return TEMPLATE.sub(checked, answer)

    def published(self, verdicts: Sequence[Check]) -> tuple[tuple[Published, ...], tuple[Check, ...]]:
        """The published numbers, and the checks of those that have a `within`: the whole interval of the measured
        number is at most that far from the published one."""
        scope = self.results(self.plan.stages)
        taken = {check.id for check in verdicts}
        found: list[Published] = []
        checks: list[Check] = []
        for node, entry, written in self.listed(
            "published", Published, models.PublishedEntry, "- {id: …, measured: …, value: …}"
        ):
            if entry.id in taken:
                self.problems.add(where_of(node, "id"), f"a verdict has the id `{entry.id}`", key="published")
            value, place = f"{entry.value:.15g}", where_of(node, "measured")
            raw = Expression(text=f"{_grouped(entry.measured.text)} >= {value}", where=place)
            compared = self.check(raw, node, ("measured",), scope, "condition")
            measured = dataclasses.replace(compared, text=compared.text.removesuffix(f" >= {value}"))
            found.append(dataclasses.replace(entry, measured=measured, where=node.where))
            if entry.within is None:
                continue
            least, most = (f"{value} * {share:.6g}" for share in (1.0 - entry.within, 1.0 + entry.within))
            both = f"{measured.text} >= {least} && {measured.text} <= {most}"
            title = f"{entry.title or entry.id} is reproduced within {percent(entry.within)}"
            check = dataclasses.replace(measured, text=both)
            checks.append(Check(id=entry.id, check=check, severity=written.severity, title=title, where=node.where))
        return tuple(found), tuple(checks)

    def charts(self, entries: Sequence[BaseModel]) -> tuple[Chart, ...]:
        scope = self.results(self.plan.stages)
        found: list[Chart] = []
        for index, entry in enumerate(entries):
            node, _ = locate(self.root, ("report", "charts", index))
            chart, written = made(Chart, entry, points=(), where=node.where), made(ChartNumbers, entry)
            if any(chart.id == other.id for other in found):
                message = f"another chart has the id `{chart.id}`"
                self.problems.add(where_of(node, "id"), message, key=f"report.charts.{index}.id")
            relative = written.relative_to
            texts = (*written.of.values(), relative.of if relative else "")
            flawed = any(one.faulty for _, one in scalars(node))  # its problem is noted
            if flawed or any(_reads(text, name) for text in texts for name in scope.broken):
                continue
            laid = lay_out(written.of, written.metrics, relative, scope, self.parameters.numbers())
            for path, message, hint in laid.faults:
                key = ".".join(("report.charts", str(index), *path))
                self.problems.add(where_of(node, *path), message, key=key, hint=hint)
            found.append(
                dataclasses.replace(
                    chart,
                    points=laid.points,
                    place=chart.place or laid.place,
                    lines=laid.lines,
                    relative_to=relative.words if relative else "",
                    up_is_better=relative is not None and relative.up_is_better,
                )
            )
        return tuple(found)

    def listed(
        self, name: str, record: type[_Entry], model: type[_Model], example: str
    ) -> Iterator[tuple[Node, _Entry, _Model]]:
        """The entries of the list `name` of the plan that are valid; their ids differ."""
        section = self.root.get(name)
        if section is not None and not isinstance(section, Seq):
            self.problems.add(section.where, f"`{name}` must be a list", key=name, hint=example)
        seen: set[str] = set()
        for index, node in enumerate(section.items if isinstance(section, Seq) else ()):
            valid = validate(model, node, f"{name}.{index}", self.problems)
            if valid is None and isinstance(node, Map) and not any(SPLIT & set(key.text) for key, _ in node.entries):
                valid = salvage(model, node)  # its expression is checked; unless a comma has cut it in two
            if valid is None:
                continue
            entry = made(record, valid)
            if entry.id and entry.id in seen:
                what = f"another entry of `{name}` has the id `{entry.id}`"
                self.problems.add(where_of(node, "id"), what, key=f"{name}.{index}.id")
            seen.add(entry.id)
            yield node, entry, valid


def _reads(text: str, name: str) -> bool:
    return re.search(rf"\b{re.escape(name)}\b", text) is not None


def _grouped(text: str) -> str:
    """The expression, in parentheses where an operator after it would not take it whole."""
    try:
        node = parse(text)
    except ExpressionFault:  # reported by the check of the expression
        return text
    whole = isinstance(node, Member | Call | Name | Number) or (isinstance(node, Binary) and node.operator in "+-*/")
    return text if whole else f"({text})"


def _turning(draft: Draft) -> str:
    return draft.cell.of if draft.cell is not None else draft.id if draft.stage is None else whole_ladder(draft.stage)


def _names(draft: Draft) -> tuple[str, ...]:
    return (draft.id,) if draft.cell is None else (draft.id, draft.cell.of)
