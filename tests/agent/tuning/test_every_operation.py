"""Every operation: its cases, which are data; any arguments that the schema permits x any initial state of the host: the
second application changes nothing, and a revert restores every byte, mode, owner, attribute, setting and row, also when
the operation is stopped or killed before any step.

Every file of cases/<operation>/ holds cases by name:

    name of the case:
      block: {vm.swappiness: 10}            # as in a plan
      facts:                                # answers of the host, by kind of query; a fact that is left out is not there
        text:    {/proc/sys/vm/swappiness: "60"}
        file:    {/etc/x.conf: {content: "a", mode: "0644", owner: root, group: root}}   # or {kind: link}
        bytes:   {/sys/block/sda/device/vpd_pg83: "0083 0004"}                           # hexadecimal
        paths:   {"/sys/block/*": [/sys/block/sda]}
        link:    {/dev/disk/by-id/x: /dev/sda}
        claim:   {/dev/disk/by-id/x: Device or resource busy}                            # of a device that cannot be claimed
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

An operation in `STRATEGIES` has generated hosts, each on a real thing or a model (see the modules `any_…`); the hosts of
the others are those of their cases; one with `any` before it has both. Six examples of each run by default and twenty in
`make soak`, the same ones each time as long as the same modules are loaded (hypothesis also draws constants from them);
`PROVEOUT_EXAMPLES=300` runs that many new ones.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, cast

import any_disk
import any_host
import any_postgres
import any_units
import pytest
import thorough
import yaml
from any_host import Case, Found, React, World, world
from hypothesis import HealthCheck, Phase, assume, given, note, settings
from hypothesis import strategies as st
from tuning_bench import StubTools, StubUnits, acted, put

from proveout.agent.tuning import transaction as tuning_transaction
from proveout.agent.tuning.sql_access import Databases
from proveout.agent.tuning.transaction import Stopped, Transaction
from proveout.agent.tuning.undo_journal import UndoJournal
from proveout.dsl.operations.change import Change, Command, SetText, Statement, UnitAction, WriteFile, diff
from proveout.dsl.operations.facts import (
    ABSENT,
    BytesQuery,
    ClaimQuery,
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
    Rows,
    RowsQuery,
    TextQuery,
    UnitFact,
    UnitQuery,
)
from proveout.dsl.operations.host import rendered
from proveout.dsl.operations.operation import Operation
from proveout.dsl.operations.table import OPERATIONS, TUNING_KEYS, operation_of
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.stages import Tuning
from proveout.dsl.schema.validation import validate
from proveout.dsl.source.loader import load
from proveout.dsl.source.nodes import Map, Problems
from proveout.proto.wire.results import TuningState

CASES = Path(__file__).parent / "cases"
KEYS = {"block", "lasting", "facts", "changes", "refusals", "restarts", "after", "error", "host"}
NOT_THERE: Mapping[type, Fact] = {TextQuery: None, BytesQuery: None, PathsQuery: (), LinkQuery: None, ClaimQuery: "", UnitQuery: None, PackageQuery: None, FileQuery: ABSENT}  # fmt: skip
Known = Mapping[Query, Fact]


# ---- the cases -------------------------------------------------------------------------------------------------------


def _cases() -> Iterator[Any]:
    for file in sorted(CASES.glob("*/*.yaml")):
        problems = Problems()
        root = load(file, file.name, problems)
        assert isinstance(root, Map), problems.error()
        data = yaml.safe_load(file.read_text(encoding="utf-8"))  # a fact may be null, a plan's value not
        host, queries = data.get("host", {}), data.get("queries", {})
        for key, case in root.entries:
            if key.text in ("host", "queries"):
                continue
            block = case.get("block") if isinstance(case, Map) else None
            assert isinstance(block, Map), key.where
            own = {name: _facts(data[key.text].get(name, {}), queries) for name in ("facts", "after")}
            case_id = f"{file.parent.name}/{file.stem}: {key.text}"
            found = {**data[key.text], **own, "host": _facts(host, queries)}
            yield pytest.param(file.parent.name, block, found, id=case_id)


def _facts(answers: Mapping[str, Any], queries: Mapping[str, str]) -> Known:
    return dict(
        FACTS[kind](_in_full(kind, name, queries), fact)
        for kind, found in answers.items()
        for name, fact in found.items()
    )


def _in_full(kind: str, name: str, queries: Mapping[str, str]) -> str:
    query, *words = name.split(" ")
    if query not in queries:
        return name
    filled = words[0] if kind == "output" else ", ".join(f"'{word}'" for word in words)
    return f"{filled}".join(queries[query].rsplit("%", 1)) if words else queries[query]


def _file(path: str, found: Mapping[str, Any] | None) -> tuple[Query, Fact]:
    if found is None:
        return FileQuery(path), ABSENT
    usual = {"kind": "file", "content": "", "mode": "0644", "owner": "root", "group": "root", **found}
    return FileQuery(path), FileFact(**{**usual, "content": usual["content"].encode(), "mode": int(usual["mode"], 8)})


def _rows(name: str, found: list[list[str | None]]) -> tuple[Query, Fact]:
    system, _, statement = name.partition(": ")
    return RowsQuery(system, statement), tuple(tuple(row) for row in found)


FACTS: Mapping[str, Callable[[str, Any], tuple[Query, Fact]]] = {
    "file": _file,
    "text": lambda path, found: (TextQuery(path), found),
    "bytes": lambda path, found: (BytesQuery(path), None if found is None else bytes.fromhex(found)),
    "paths": lambda pattern, found: (PathsQuery(pattern), tuple(found)),
    "link": lambda path, found: (LinkQuery(path), found),
    "claim": lambda device, found: (ClaimQuery(device), found),
    "unit": lambda unit, found: (UnitQuery(unit), None if found is None else UnitFact(**found)),
    "package": lambda name, found: (PackageQuery(name), found),
    "rows": _rows,
    "plan_output": lambda argv, found: (OutputQuery(tuple(argv.split()), of_plan=True), Output(**found)),
    "output": lambda argv, found: (OutputQuery(tuple(argv.split())), Output(**found)),
}
ALL = list(_cases())


@cache
def _looked_at(kind: str) -> set[Query]:
    """The queries of an operation in any of its cases."""
    found: set[Query] = set()
    for of, block, case in (one.values for one in ALL):
        if of == kind and "error" not in case:
            looked = _looked({**case["host"], **case["facts"]})
            _operation(kind, block, Problems()).changes(looked)
            found |= set(looked.known)
    return found


def _operation(kind: str, block: Map, problems: Problems) -> Any:
    return validate(OPERATIONS[kind], OPERATIONS[kind].reshape(block), kind, problems)


@pytest.mark.parametrize(("kind", "block", "case"), ALL)
def test_case(kind: str, block: Map, case: dict[str, Any]) -> None:
    assert set(case) <= KEYS
    problems = Problems()
    operation = _operation(kind, block, problems)
    if "error" in case:
        assert operation is None
        assert case["error"] in " ".join(problem.message for problem in problems.found)
        return
    assert operation is not None, problems.error()
    facts = {**case["host"], **case["facts"]}
    step = operation.changes(_looked(facts))
    assert set(case["facts"]) <= _looked_at(kind), "facts that no case looks at"
    changes = () if step.refusals else step.changes
    assert [line for change in changes for line in diff(change)] == case.get("changes", [])
    assert list(step.refusals) == case.get("refusals", [])
    assert list(step.restarts) == case.get("restarts", [])
    assert operation.lasting == case.get("lasting", operation.lasting)
    assert operation_of(_tuning_of(kind, operation)) == operation
    assert operation.wanted()
    assert operation.targets()
    for change in changes:
        facts = _made(facts, change)
    left = operation.changes(_looked({**facts, **case["after"]}))
    assert left.changes == () or left.refusals, "made once, there is something left to do"


def _tuning_of(kind: str, operation: Operation) -> Tuning:
    return Tuning(name="case", operation=kind, hosts=("h",), parameters=to_values(operation))


def _looked(facts: Known) -> Facts:
    """The host of a case; KeyError for an output or rows that the case lacks."""
    return Facts(read=lambda query: facts[query] if query in facts else NOT_THERE[type(query)])


def _made(facts: dict[Query, Fact], change: Change) -> dict[Query, Fact]:
    """The facts after a change, for changes whose effect follows from the change."""
    match change:
        case WriteFile():
            return {**facts, FileQuery(change.path): change.made}
        case SetText():
            now = str(facts[TextQuery(change.path)] or "")
            return {**facts, TextQuery(change.path): any_host.chosen(now, change.after)}
        case UnitAction():
            unit = facts.get(UnitQuery(change.unit))
            return {**facts, UnitQuery(change.unit): acted(unit, change.verb)} if isinstance(unit, UnitFact) else facts
        case _:
            return facts


@pytest.mark.parametrize(
    "template", ["{{" + "(" * 3000 + "a" + ")" * 3000 + "}}", "{% if a %}" * 3000, "{{" + "-" * 20_000 + "a}}"]
)
def test_a_template_that_is_too_deep_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        rendered(template, {"a": "1"})


# ---- hosts -----------------------------------------------------------------------------------------------------------

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="tuning takes root")
EXAMPLES = int(os.environ.get("PROVEOUT_EXAMPLES", "0"))
QUICK, QUICK_ON_A_DISK, QUICK_ON_A_SERVER = thorough.count(20, 6), thorough.count(20, 4), thorough.count(5, 2)
HOSTS_MAX = 20
"""The hosts of the cases of an operation, each of which is an example."""
STEPS_MIN = 2
"""The steps beside the changes: keep the originals, and verify."""
STRATEGIES: Mapping[str, Callable[[], st.SearchStrategy[Case]]] = {
    "file": any_host.a_file,
    "ini_section": any_host.ini_section,
    "partition": any_disk.partition,
    "zero_blocks": any_disk.zero_blocks,
    "filesystem": any_disk.filesystem,
    "any limits": any_host.limits,
    "any udev_rules": any_host.udev_rules,
    "any multipath": any_host.multipath,
    "any sysctl": any_host.sysctl,
    "any service": any_units.service,
    "any mount": any_units.mount,
}
ON_A_SERVER = "postgres_settings"
NEEDS = {"partition": any_disk.PROGRAMS, "filesystem": any_disk.MAKING, "zero_blocks": any_disk.MAKING}
KINDS = [
    *(kind for kind in TUNING_KEYS if kind not in ("package_present", "bond_present")),
    *(kind for kind in STRATEGIES if kind not in TUNING_KEYS),
]
"""All operations but those that only check."""
STOPPED = ("file", "mount")
"""Operations that are stopped as well: all are reverted in the same way after a stop."""


def cases(kind: str, request: pytest.FixtureRequest) -> st.SearchStrategy[Case]:
    """The hosts of an operation, with a server for those that need one; skips when a program that they need is not
    installed."""
    missing = [program for program in NEEDS.get(kind, ()) if shutil.which(program) is None]
    if missing:
        pytest.skip(f"not on this host: {', '.join(missing)}")
    if kind == ON_A_SERVER:
        return any_postgres.postgres_settings(request.getfixturevalue("dsn"))
    if kind in STRATEGIES:
        return STRATEGIES[kind]()
    hosts = [*_of_the_data(kind)]
    assert len(hosts) <= HOSTS_MAX, "not all of them would be examples"
    return st.sampled_from(hosts)


def _of_the_data(kind: str) -> Iterator[Case]:
    """The hosts of the cases of an operation; not of those that nothing undoes, or that are undone as they are made."""
    for of, block, case in (one.values for one in ALL):
        if of != kind or "error" in case:
            continue
        operation, facts = _operation(kind, block, Problems()), {**case["host"], **case["facts"]}
        step = operation.changes(_looked(facts))
        made_by, undone_by = _acts(step.changes)
        if made_by and (not undone_by or (case["after"] and {*made_by} <= {*undone_by})):
            continue
        expected = {"refusals": "refused", "changes": "applied", "restarts": "needs_restart"}
        outcome = next((outcome for key, outcome in expected.items() if case.get(key)), "unchanged")
        make = partial(_world, any_host.REACTIONS.get(kind, any_host.plain_kernel), facts, case["after"], step.changes)
        tuning = replace(_tuning_of(kind, operation), destructive=True)
        outcomes = frozenset({outcome, "needs_restart"} if case.get("restarts") else {outcome})
        yield Case(tuning=tuning, state=facts, make=make, outcomes=outcomes)


Act = tuple[str, ...]


def _acts(changes: Sequence[Change]) -> tuple[list[Act], list[Act]]:
    """The calls of programs, units and databases that make the changes, and those that undo them."""
    made_by, undone_by = list[Act](), list[Act]()
    for change in changes:
        match change:
            case Command():
                made, undone = change.argv, change.undo
            case UnitAction():
                made, undone = (change.verb, change.unit), (change.undo, change.unit)
            case Statement():
                made, undone = (change.text,), (change.undo,)
            case _:
                continue
        made_by += [made] if made and made[0] else []
        undone_by += [undone] if undone and undone[0] else []
    return made_by, undone_by


class CaseUnits(StubUnits):
    """Units of a case; one that systemd generates is there while it is active."""

    def __init__(self, did: Callable[[Act], None]) -> None:
        super().__init__()
        self.generated, self.did = set[str](), did

    def act(self, unit: str, verb: str) -> None:
        if unit not in self.units:
            self.generated.add(unit)
            self.units[unit] = UnitFact(active=False, enabled=None)
        super().act(unit, verb)
        if unit in self.generated and not self.units[unit].active:
            del self.units[unit]
        self.did((verb, unit))


SRVCTL_AGAIN = {"stop": "PRCC-1016 : HLR was already stopped", "start": "PRCC-1014 : HLR was already running"}


class CaseTools(StubTools):
    """Programs with the outputs of a case; srvctl fails where the database is stopped or runs already."""

    def __init__(self, known: Known, did: Callable[[Act], None]) -> None:
        super().__init__()
        self.known, self.did, self.database = known, did, "start"

    def run(self, argv: Sequence[str], within_s: float = 60.0) -> Output:
        for of_plan in (False, True):
            if isinstance(found := self.known.get(OutputQuery(tuple(argv), of_plan=of_plan)), Output):
                return found
        if argv[0].endswith("/srvctl"):
            assert within_s > 60.0, "a database is not up within a minute"
            before, self.database = self.database, argv[1]
            if before == argv[1]:
                return Output(code=2, text=SRVCTL_AGAIN[argv[1]])
        self.did(tuple(argv))
        return super().run(argv, within_s)


class CaseDatabases(Databases):
    """Databases with the rows of a case."""

    def __init__(self, known: Known, did: Callable[[Act], None]) -> None:
        super().__init__()
        self.known, self.did = known, did

    def rows(self, system: str, statement: str) -> Rows:
        found = self.known[RowsQuery(system, statement)]
        assert isinstance(found, tuple)
        return cast(Rows, found)

    def run(self, system: str, statement: str) -> None:
        self.did((statement,))


def _world(react: React, facts: Known, after: Known, changes: Sequence[Change], folder: Path) -> World:
    """The host of a case: `after` holds from the last of its programs, units and statements until one of them is
    undone."""
    made_by, undone_by = _acts(changes)
    known, made = dict(facts), list[Act]()

    def did(what: Act) -> None:
        if made_by[len(made) :][:1] == [what]:
            made.append(what)
        elif what in undone_by:
            made.clear()
        known.update({**facts, **after} if made == made_by else facts)
        _put({query: fact for query, fact in known.items() if query in after}, host.host.root, units)

    units, tools = CaseUnits(did), CaseTools(known, did)
    host = world(
        folder, react=react, units=units, tools=tools, databases=CaseDatabases(known, did),
        seen=lambda: (dict(units.units), dict(known), tools.database),
    )  # fmt: skip
    _put(facts, host.host.root, units)
    return host


def _put(facts: Known, root: Path, units: StubUnits) -> None:
    for query, fact in sorted(facts.items(), key=lambda item: isinstance(item[0], PathsQuery)):
        match query, fact:
            case TextQuery(path=path), str():
                put(root, path, f"{fact}\n")
            case BytesQuery(path=path), bytes():
                put(root, path, "").write_bytes(fact)
            case FileQuery(path=path), FileFact():
                uid = 0 if fact.owner == "root" else 54321
                Found(kind=fact.kind, content=fact.content, mode=fact.mode, uid=uid).put(root / path[1:])
            case LinkQuery(path=path), str():
                target = put(root, fact, "")
                if path != fact:
                    (root / path[1:]).parent.mkdir(parents=True, exist_ok=True)
                    (root / path[1:]).symlink_to(target)
            case ClaimQuery(device=device), str() if fact:
                real = (root / device[1:]).resolve()
                real.unlink()
                os.mknod(real, stat.S_IFSOCK)  # which cannot be opened
            case UnitQuery(unit=unit), UnitFact():
                units.units[unit] = fact
            case PathsQuery(), tuple():
                for path in map(str, fact):
                    if not (root / path[1:]).exists():
                        put(root, path, "")


def profile(quick: int) -> settings:
    """Settings with the number of examples of the environment; by default a few, the same ones each time."""
    return settings(
        max_examples=EXAMPLES or quick,
        derandomize=not EXAMPLES,
        database=None,
        report_multiple_bugs=False,
        deadline=None,
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )


def outcomes(states: tuple[TuningState, ...]) -> set[str]:
    return {state.outcome for state in states}


def run(world: World, journal: UndoJournal, watch: Callable[[str], None] = lambda _step: None) -> Transaction:
    return Transaction(host=world.host, journal=journal, run="r", watch=watch)


def new_folder(tmp_path: Path) -> Path:
    return tmp_path / secrets.token_hex(8)


# ---- applied, again, reverted ----------------------------------------------------------------------------------------


@as_root
@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_a_second_application_changes_nothing_and_a_revert_restores_all(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    seen: Counter[str] = Counter()
    few = QUICK_ON_A_SERVER if kind == ON_A_SERVER else QUICK_ON_A_DISK if kind in NEEDS else QUICK
    drawn = cases(kind, request)

    def any_case(case: Case) -> None:
        seen[_twice_and_back(case, new_folder(tmp_path))] += 1

    for examples in (few if kind in STRATEGIES or kind == ON_A_SERVER else HOSTS_MAX, HOSTS_MAX):
        if not seen["applied"]:
            profile(examples)(given(case=drawn)(any_case))()
    assert seen["applied"], f"nothing was applied in any example: {seen}"


def _twice_and_back(case: Case, folder: Path) -> str:
    """Apply twice and revert, with checks; return the outcome of the first application."""
    world, journal = case.make(folder), UndoJournal(folder / "undo")
    before = world.picture()
    (planned,) = run(world, journal).plan([case.tuning])
    assert world.picture() == before, "looking ahead has changed something"
    assert not journal.directory.exists()
    state, *undone = run(world, journal).apply([case.tuning])
    note(f"{state.outcome}: {state.lines}")
    assert state.outcome in case.outcomes
    assert outcomes(tuple(undone)) <= case.undone
    assert (planned.outcome == "refused") == (state.outcome == "refused")
    if state.outcome in ("applied", "needs_restart"):
        _again_and_back(case, world, journal, state.outcome)
    assert world.picture() == before
    assert journal.outstanding() == ()
    journal.close()
    return state.outcome


def _again_and_back(case: Case, world: World, journal: UndoJournal, outcome: str) -> None:
    once, mark = world.picture(), journal.mark()
    assert outcomes(tuning_transaction.look(world.host, journal)) <= {"in_place"}
    (again,) = run(world, journal).apply([case.tuning])
    assert again.outcome == ("unchanged" if outcome == "applied" else outcome), again.lines
    assert world.picture() == once, "applied again, something has changed"
    assert journal.mark() == mark, "applied again, there is more to undo"
    undone = tuning_transaction.revert(world.host, journal)
    assert outcomes(undone) <= case.undone, undone
    assert tuning_transaction.revert(world.host, journal) == ()


# ---- a fault before every step ---------------------------------------------------------------------------------------


class Killed(BaseException):
    """The agent is killed: this process undoes nothing, the next one does, from the journal."""


def broken_off(fault: type[BaseException], k: int, case: Case, folder: Path) -> bool:
    """Stop or kill before step `k` and check that the host is restored; False when there is no such step."""
    world, journal = case.make(folder), UndoJournal(folder / "undo")
    before, steps, is_over = world.picture(), iter(range(k + 1)), False

    def watch(step: str) -> None:
        if next(steps) == k:
            raise fault(step)

    with pytest.MonkeyPatch.context() as patch:
        if fault is Killed:
            patch.setattr(tuning_transaction, "revert", lambda *_args, **_named: ())
        try:
            run(world, journal, watch).apply([case.tuning])
            is_over = True
        except fault:
            pass
    if fault is Killed or is_over:
        journal.close()
        journal = UndoJournal(folder / "undo")
        undone = tuning_transaction.revert(world.host, journal)
        assert outcomes(undone) <= case.undone, undone
    assert world.picture() == before
    assert journal.outstanding() == ()
    journal.close()
    assert not journal.directory.exists()
    return not is_over


@as_root
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kind", "fault"), [*((kind, Killed) for kind in KINDS), *((kind, Stopped) for kind in STOPPED)]
)
def test_a_kill_or_a_stop_before_any_step_restores_all(
    kind: str, fault: type[BaseException], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Each step; by default every third one on a server. The hosts of cases: all of them."""
    steps: Counter[int] = Counter()
    stride = thorough.count(1, 3) if kind == ON_A_SERVER else 1

    @profile(1 if kind in STRATEGIES or kind == ON_A_SERVER else HOSTS_MAX)
    @given(case=cases(kind, request))
    def any_case(case: Case) -> None:
        assume(_changes(case, new_folder(tmp_path)))
        k = 0
        while broken_off(fault, k, case, new_folder(tmp_path)):
            k += stride
        steps[k] += 1

    any_case()
    assert min(steps) >= STEPS_MIN, steps


def _changes(case: Case, folder: Path) -> bool:
    """Whether the case has a permitted change."""
    world = case.make(folder)
    (state,) = run(world, UndoJournal(folder / "undo")).plan([case.tuning])
    return state.outcome == "would_change"
