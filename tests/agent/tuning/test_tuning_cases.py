"""Operations as data: block + facts -> changes. Every file of cases/<operation>/ holds cases by name:

    name of the case:
      block: {vm.swappiness: 10}            # as in a plan
      facts:                                # answers of the host, by kind of query; a fact that is left out is not there
        text:    {/proc/sys/vm/swappiness: "60"}
        file:    {/etc/x.conf: {content: "a", mode: "0644", owner: root, group: root}}   # or {kind: link}
        bytes:   {/sys/block/sda/device/vpd_pg83: "0083 0004"}                           # hexadecimal
        paths:   {"/sys/block/*": [/sys/block/sda]}
        link:    {/dev/disk/by-id/x: /dev/sda}
        unit:    {tuned.service: {active: true, enabled: true}}
        package: {tuned: "2.21"}
        rows:    {"backend: SELECT 1": [["1"]]}                                          # of a system; always given
        output:  {"blkid -p /dev/sda": {code: 2, text: ""}}                              # of a program; always given
        plan_output: {"/opt/lab/check": {code: 0, text: ""}}                             # of a program of the plan
      changes: ["/proc/sys/vm/swappiness: 60 -> 10"]     # the diff, line by line; [] or left out: nothing to do
      refusals: […]   restarts: […]                      # likewise
      lasting: text                                      # what stays after undo
      after: {…}                                         # facts that commands and statements will have changed

or `error: text` in place of facts: the block is refused when the plan is compiled, with this in the message.

`host`, before the cases, states the facts of all of them; a case adds its own and replaces some. `queries` gives names to
long ones: `stored: "db: SELECT … IN (%)"` makes `stored a b` the query with 'a', 'b' (of an output: with the word itself).

In every case the harness also checks the contract of an operation: after its changes nothing is left to do, and the
compiled plan contains the same operation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from proveout.dsl.operations.change import Change, SetText, UnitAction, WriteFile, diff
from proveout.dsl.operations.facts import (
    ABSENT,
    BytesQuery,
    Fact,
    Facts,
    FileFact,
    FileQuery,
    LinkQuery,
    Output,
    OutputQuery,
    PackageQuery,
    PathsQuery,
    Query,
    RowsQuery,
    TextQuery,
    UnitFact,
    UnitQuery,
)
from proveout.dsl.operations.host import rendered
from proveout.dsl.operations.operation import Operation
from proveout.dsl.operations.table import OPERATIONS, operation_of
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.stages import Tuning
from proveout.dsl.schema.validation import validate
from proveout.dsl.source.loader import load
from proveout.dsl.source.nodes import Map, Problems

CASES = Path(__file__).parent / "cases"
KEYS = {"block", "lasting", "facts", "changes", "refusals", "restarts", "after", "error", "host"}
NOT_THERE: Mapping[type, Fact] = {TextQuery: None, BytesQuery: None, PathsQuery: (), LinkQuery: None, UnitQuery: None, PackageQuery: None, FileQuery: ABSENT}  # fmt: skip
Known = Mapping[Query, Fact]


def _cases() -> Iterator[Any]:
    for file in sorted(CASES.glob("*/*.yaml")):
        problems = Problems()
        root = load(file, file.name, problems)
        assert isinstance(root, Map), problems.error()
        given = yaml.safe_load(file.read_text(encoding="utf-8"))  # a fact may be null, a plan's value not
        host, queries = given.get("host", {}), given.get("queries", {})
        for key, case in root.entries:
            if key.text in ("host", "queries"):
                continue
            block = case.get("block") if isinstance(case, Map) else None
            assert isinstance(block, Map), key.where
            own = {name: _named(given[key.text].get(name, {}), queries) for name in ("facts", "after")}
            case_id = f"{file.parent.name}/{file.stem}: {key.text}"
            yield pytest.param(
                file.parent.name, block, {**given[key.text], **own, "host": _named(host, queries)}, id=case_id
            )


def _named(facts: Mapping[str, Any], queries: Mapping[str, str]) -> dict[str, Any]:
    """The facts with their queries in full."""

    def full(kind: str, name: str) -> str:
        query, *words = name.split(" ")
        if query not in queries:
            return name
        filled = words[0] if kind == "output" else ", ".join(f"'{word}'" for word in words)
        return f"{filled}".join(queries[query].rsplit("%", 1)) if words else queries[query]

    return {kind: {full(kind, name): fact for name, fact in answers.items()} for kind, answers in facts.items()}


ALL = list(_cases())


@cache
def _looked_at(kind: str) -> set[Query]:
    """The queries of an operation in any of its cases."""
    found: set[Query] = set()
    for of, block, given in (case.values for case in ALL):
        if of == kind and "error" not in given:
            looked = _looked({**_facts(given["host"]), **_facts(given["facts"])})
            _operation(kind, block, Problems()).changes(looked)
            found |= set(looked.known)
    return found


def _operation(kind: str, block: Map, problems: Problems) -> Any:
    return validate(OPERATIONS[kind], OPERATIONS[kind].reshape(block), kind, problems)


@pytest.mark.parametrize(("kind", "block", "given"), ALL)
def test_case(kind: str, block: Map, given: dict[str, Any]) -> None:
    assert set(given) <= KEYS
    problems = Problems()
    operation = _operation(kind, block, problems)
    if "error" in given:
        assert operation is None
        assert given["error"] in " ".join(problem.message for problem in problems.found)
        return
    assert operation is not None, problems.error()
    own = _facts(given["facts"])
    facts = {**_facts(given["host"]), **own}
    step = operation.changes(_looked(facts))
    assert set(own) <= _looked_at(kind), "facts that no case looks at"
    changes = () if step.refusals else step.changes
    assert [line for change in changes for line in diff(change)] == given.get("changes", [])
    assert list(step.refusals) == given.get("refusals", [])
    assert list(step.restarts) == given.get("restarts", [])
    assert operation.lasting == given.get("lasting", operation.lasting)
    _holds_to_its_contract(kind, operation, changes, facts, _facts(given["after"]))


def _holds_to_its_contract(
    kind: str, operation: Operation, changes: tuple[Change, ...], facts: Known, after: Known
) -> None:
    tuning = Tuning(name="case", operation=kind, hosts=("h",), parameters=to_values(operation))
    assert operation_of(tuning) == operation
    assert operation.wanted()
    assert operation.targets()
    done = facts
    for change in changes:
        done = _made(done, change)
    left = operation.changes(_looked({**done, **after}))
    assert left.changes == () or left.refusals, "made once, there is something left to do"


def _looked(facts: Known) -> Facts:
    """The host of a case; KeyError for an output or rows that the case lacks."""
    return Facts(read=lambda query: facts[query] if query in facts else NOT_THERE[type(query)])


def _made(facts: Known, change: Change) -> Known:
    """The facts after a change, for changes whose effect follows from the change."""
    match change:
        case WriteFile():
            return {**facts, FileQuery(change.path): change.made}
        case SetText():
            now = str(facts[TextQuery(change.path)] or "")
            shown = now.replace("[", "").replace("]", "").replace(change.after, f"[{change.after}]")
            return {**facts, TextQuery(change.path): shown if "[" in now else change.after}
        case UnitAction():
            unit = facts.get(UnitQuery(change.unit))
            if not isinstance(unit, UnitFact):
                return facts
            active = {"start": True, "restart": True, "stop": False}.get(change.verb, unit.active)
            enabled = {"enable": True, "disable": False}.get(change.verb, unit.enabled)
            return {**facts, UnitQuery(change.unit): UnitFact(active=active, enabled=enabled, state=unit.state)}
        case _:
            return facts


# ---- facts of a case -------------------------------------------------------------------------------------------------


def _facts(given: Mapping[str, Any]) -> Known:
    known: dict[Query, Fact] = {}
    for kind, answers in given.items():
        for name, answer in answers.items():
            query, fact = _FACTS[kind](name, answer)
            known[query] = fact
    return known


def _file(path: str, given: Mapping[str, Any] | None) -> tuple[Query, Fact]:
    if given is None:
        return FileQuery(path), ABSENT
    fact = FileFact(
        kind=given.get("kind", "file"),
        content=given.get("content", "").encode(),
        mode=int(given.get("mode", "0644"), 8),
        owner=given.get("owner", "root"),
        group=given.get("group", "root"),
    )
    return FileQuery(path), fact


def _unit(unit: str, given: Mapping[str, Any] | None) -> tuple[Query, Fact]:
    return UnitQuery(unit), None if given is None else UnitFact(**given)


def _rows(name: str, given: list[list[str | None]]) -> tuple[Query, Fact]:
    system, _, statement = name.partition(": ")
    return RowsQuery(system, statement), tuple(tuple(row) for row in given)


_FACTS: Mapping[str, Any] = {
    "file": _file,
    "text": lambda path, given: (TextQuery(path), given),
    "bytes": lambda path, given: (BytesQuery(path), None if given is None else bytes.fromhex(given)),
    "paths": lambda pattern, given: (PathsQuery(pattern), tuple(given)),
    "link": lambda path, given: (LinkQuery(path), given),
    "unit": _unit,
    "package": lambda name, given: (PackageQuery(name), given),
    "rows": _rows,
    "plan_output": lambda argv, given: (OutputQuery(tuple(argv.split()), of_plan=True), Output(**given)),
    "output": lambda argv, given: (OutputQuery(tuple(argv.split())), Output(**given)),
}


@pytest.mark.parametrize(
    "template", ["{{" + "(" * 3000 + "a" + ")" * 3000 + "}}", "{% if a %}" * 3000, "{{" + "-" * 20_000 + "a}}"]
)
def test_a_template_that_is_too_deep_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        rendered(template, {"a": "1"})
