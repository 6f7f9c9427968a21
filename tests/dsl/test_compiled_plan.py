"""The compiled form of a plan: its digest, the stages that its expressions need, the names that they may use, its
timetable; the rules on facts, loads and resets; and the notes on plans that are valid.

Tables with the same content in two places agree.
"""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest
from compiled_plans import FOLDER, with_notes
from plan_documents import Entry, compiled, document, embedded, ladder, made, populate, reset, sql

from proveout.agent.engines.postgres import roles as embedded_postgres
from proveout.agent.engines.sqlite import sql as embedded_sqlite
from proveout.coordinator.schedule.ladders import RUNS
from proveout.core.errors import PlanProblem
from proveout.dsl import metrics
from proveout.dsl.compile import result_names, stage_rules
from proveout.dsl.compile.compiler import compile_plan, compile_with_notes
from proveout.dsl.explain.outlines import terminals
from proveout.dsl.explain.timetable import timetable
from proveout.dsl.expr import checking
from proveout.dsl.plan import topology
from proveout.dsl.plan.plan import Plan, position
from proveout.dsl.plan.stages import KINDS, Ladder, Open, Reset, Search
from proveout.dsl.plan.topology import Declared, Expectation
from proveout.dsl.rules import host_rules
from proveout.dsl.rules.host_rules import differing, equal, holds, measured, unmet, wanted
from proveout.dsl.rules.repeat_rules import overlaps
from proveout.dsl.rules.resets import is_ddl, notes, since_copy
from proveout.dsl.schema import stage_models


@pytest.fixture(scope="module")
def everything() -> Plan:
    return compile_plan(FOLDER.parent / "tests" / "golden" / "good" / "everything.yaml")


def test_tables_of_the_compiler_are_those_of_the_agents_and_the_language() -> None:
    assert dict(embedded_postgres.DEFAULTS)["max_connections"] == str(stage_rules.CONNECTIONS)
    assert frozenset(embedded_sqlite.FILE_SETTINGS) == host_rules.SQLITE_SETTINGS
    assert set(KINDS) == set(stage_models.STAGES)
    assert set(KINDS.values()) == set(RUNS)


def test_the_digest_depends_on_content_and_not_on_positions(tmp_path: Path) -> None:
    plan = document(ladder("l", measure="${params.measure}"), params={"measure": {"type": "duration", "default": "1s"}})
    digest = made(tmp_path, plan).digest
    path = tmp_path / "plan.yaml"
    path.write_text(f"# moved\n\n{path.read_text()}")
    assert compile_plan(path).digest == digest
    other = compile_plan(path, overrides={"measure": "2s"})
    assert other.digest != digest
    assert compile_plan(path, overrides={"measure": "2000ms"}).digest == other.digest


def test_expressions_list_the_stages_that_they_need(everything: Plan) -> None:
    opened, searched = everything.stage("open"), everything.stage("cap")
    assert isinstance(opened, Ladder) and isinstance(opened.arrival, Open)
    assert isinstance(opened.arrival.rate, topology.Expression)
    assert opened.arrival.rate.needs == ("cap",)
    assert isinstance(searched, Search) and isinstance(searched.rate_to, topology.Expression)
    assert (searched.rate_to.text, searched.rate_to.needs) == ("closed.peak.tps.mean * 1.5", ("closed",))
    assert searched.accept.needs == ()


def test_expressions_offer_exactly_the_captured_metrics(everything: Plan) -> None:
    closed = everything.stage("closed")
    assert isinstance(closed, Ladder)
    tree = result_names.iteration(everything, closed)
    assert set(metrics.LOAD) - {"pool_wait"} < set(tree.members)  # no pool of connections
    assert "pool_wait" in tree.absent
    hosts = tree.members["hosts"]
    assert isinstance(hosts, checking.Group)
    assert (set(hosts.members), set(hosts.absent)) == ({"db-1", "db-2", "app-1"}, {"app-2"})
    assert "waits" in tree.members and "lag" in tree.absent


def test_threads_are_split_evenly_and_tunings_of_hosts_are_listed_before_those_of_systems(tmp_path: Path) -> None:
    assert [terminals(7, 3), terminals(1, 2)] == [(3, 2, 2), (1, 0)]
    tunings = [
        {"name": "work memory", "postgres_settings": {"system": "db", "work_mem": "64MB"}},
        {"name": "swapping", "on": "h", "keep": True, "sysctl": {"vm.swappiness": 10}},
    ]
    tuned = timetable(compiled(tmp_path, systems={"db": embedded("postgres")}, tuning=tunings)).tunings
    assert [line.name for line in tuned] == ["swapping", "work memory"]
    assert [line.words for line in tuned] == [("kept after the run",), ("of system db", "set back after the run")]


# ---- facts against what a plan declares and expects of them

FACTS = {
    "cpus": 56,
    "cpu_smt": "on",
    "memory_bytes": 768 * 2**30,
    "net.ens1.mtu": 9000,
    "net.ens2.mtu": 1500,
}


def test_a_name_stands_for_a_fact_a_pattern_or_the_last_part() -> None:
    both = ["net.ens1.mtu", "net.ens2.mtu"]
    known = {"cpus": ["cpus"], "mtu": both, "net.*.mtu": both, "net.ens2.mtu": both[1:], "tu": [], "us": []}
    assert {name: list(measured(name, FACTS)) for name in known} == known


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (2, "2", True),
        ("768 GiB", 768 * 2**30, True),
        ("36608K", 36608 * 1024, True),
        ("2  x 25 GbE", "2 x 25 gbe", True),
        (False, "on", False),
        (True, 1, False),
        ("9000", 1500, False),
    ],
)
def test_values_are_equal_as_text_numbers_or_sizes(one: Any, other: Any, same: bool) -> None:
    assert equal(one, other) is equal(other, one) is same


@pytest.mark.parametrize(
    ("condition", "value", "met", "words"),
    [
        ({"one_of": (28, 56)}, 56, True, "28 or 56"),
        ({"min": 16.0, "max": 16.0}, 16, True, "at least 16, at most 16"),
        ({"min": 16.0, "max": 32.0}, 36, False, "at least 16, at most 32"),
        ({"min": 16.0}, "many", False, "at least 16"),
        ({"min": float(2**34), "fact": "memory_bytes"}, 2**33, False, "at least 16 GiB"),
        ({"pattern": "5[.]4[.].*"}, "5.4.17", True, "text like 5[.]4[.].*"),
        ({"pattern": "4|5"}, "45", False, "text like 4|5"),
        pytest.param({"pattern": "9+GB"}, f"{'9' * 400}GB", True, "text like 9+GB", id="a size without end"),
        pytest.param({"min": 1.0}, 10**400, False, "at least 1", id="a number without end"),
    ],
)
def test_a_condition(condition: dict[str, Any], value: Any, met: bool, words: str) -> None:
    expectation = Expectation(**{"fact": "f", **condition})
    assert (holds(expectation, value), wanted(expectation)) == (met, words)


def test_settings_lie_over_others_whatever_their_case(tmp_path: Path) -> None:
    """Connections took both of `JIT` and `jit`, in the order of their names."""
    db = embedded("postgres", session={"jit": True}, settings={"WORK_MEM": "4MB"})
    load, restart = ladder("l", session={"JIT": False}), {"restart": {"system": "db", "settings": {"Work_Mem": "8MB"}}}
    plan = compiled(tmp_path, load, restart, systems={"db": db})
    assert plan.stages[1].session == (("jit", "off"),)
    assert (plan.systems[0].settings, plan.stages[2].settings) == ((("work_mem", "4MB"),), (("work_mem", "8MB"),))


def test_facts_values_of_templates_and_settings_keep_the_zeros_of_a_version(tmp_path: Path) -> None:
    values = {"version": "19.10", "n": "1_000", "t": "x"}
    sql = {"verify": {"query": "SELECT 1", "equals": ["19.10", "1_000"]}, "apply": "CREATE …", "revert": "DROP …"}
    tuning = [
        {"name": "f", "on": "all", "file": {"path": "/etc/x", "template": "{{version}} {{n}} {{t}}", "values": values}},
        {"name": "p", "postgres_settings": {"system": "db", "random_page_cost": "19.10", "work_mem": "1_000"}},
        {"name": "o", "oracle_parameters": {"system": "orcl", "compatible": "19.10", "processes": "1_000"}},
        {"name": "s", "sql": {"system": "db", **sql}},
    ]
    systems = {
        "db": embedded("postgres", settings={"seq_page_cost": "19.10"}, session={"app.release": "19.10"}),
        "orcl": {"engine": "oracle", "host": "h", "dsn": "a/${secrets.p}@//127.0.0.1/O"},
    }
    loads = {"session": {"workload": "hlr", "target": "db", "share": 1, "session": {"app.n": "1_000"}}}
    both = {"ladder": {"id": "both", "loads": loads, "threads": 1, "measure": "1s", "repeat": 1}}
    stages = [both, {"restart": {"system": "db", "settings": {"seq_page_cost": "19.10"}}}]
    text = json.dumps(document(ladder("l", session={"app.own": "19.10"}), *stages, tuning=tuning, systems=systems))
    text = text.replace('"topology"', '"secrets": {"p": {"env": "P"}}, "topology"')
    text = text.replace('"local"', '"local", "facts": {"release": 19.10, "ghz": 2.5, "pages": 1_000}')
    (tmp_path / "p.yaml").write_text(text.replace('"19.10"', "19.10").replace('"1_000"', "1_000"))
    plan = compile_plan(tmp_path / "p.yaml")
    assert dict(plan.declared[0].facts) == {"release": "19.10", "ghz": 2.5, "pages": 1000}
    assert dict(plan.systems[0].settings) == {"seq_page_cost": "19.10"}
    _, alone, both, restart = plan.stages
    assert dict(alone.session) == {"app.release": "19.10", "app.own": "19.10"}
    assert dict(both.loads[0].session) == {"app.release": "19.10", "app.n": "1000"}
    assert dict(restart.settings) == {"seq_page_cost": "19.10"}
    assert [one.wanted[-2:] for one in timetable(plan).tunings] == [
        ("/etc/x: 0644 root:root", "  19.10 1000 x"),
        ("random_page_cost = 19.10", "work_mem = 1000"),
        ("compatible = 19.10", "processes = 1000"),
        ("SELECT 1 gives 19.10, 1000", "  by CREATE …"),
    ]


def test_every_fact_that_a_name_stands_for_meets_it_and_what_is_measured_comes_first() -> None:
    expected: dict[str, int | str] = {"mtu": 9000, "cpus": 28, "raid": "5", "net.ens1.mtu": 9000}
    exact = (Expectation(fact=fact, one_of=(value,)) for fact, value in expected.items())
    facts = (("cpus", 28), ("raid", "10"), ("mtu", 9000))
    declared = Declared(name="db1", kind="host", facts=facts, expect=(*exact, Expectation(fact="slots", min=4.0)))
    assert [str(one) for one in unmet(declared, FACTS)] == [
        "db1: mtu is 1500 (net.ens2.mtu); expected 9000",
        "db1: cpus is 56; expected 28",
        "db1: raid is 10 (declared); expected 5",
        "db1: slots is neither measured nor declared; expected at least 4",
    ]
    assert differing("mtu", 9000, FACTS) == {"net.ens2.mtu": 1500}
    assert differing("raid", "10", FACTS) == {}


# ---- loads of the same time that touch the same keys


def meetings(folder: Path, *loads: Entry) -> list[str]:
    """The notes on loads of the workload `hlr` on two addresses of one database, and on another database."""
    shared = [{"engine": "postgres", "host": "h", "dsn": f"host={host} dbname=rac"} for host in "ab"]
    named = {f"l{n}": {"workload": "hlr", "share": f"1/{len(loads)}", **load} for n, load in enumerate(loads)}
    text = document(
        {"ladder": {"id": "l", "loads": named, "threads": 6, "measure": "5s"}},
        systems={"one": shared[0], "two": shared[1], "own": embedded("postgres")},
        workloads={
            "hlr": {"kind": "hlr", "population": 100},
            "reads": {"kind": "hlr", "population": 100, "weights": {"GetAccessData": 1}},
        },
    )
    text["stages"][0] = populate("load", "own")
    return [found.message for found in overlaps(made(folder, text))]


def on(target: str, *keys: int, **more: Any) -> Entry:
    return {"target": target, **({"range": list(keys)} if keys else {}), **more}


@pytest.mark.parametrize(
    ("loads", "words"),
    [
        ([on("one"), on("one")], "`l0` and `l1` of `l` touch the same keys 1 to 100"),
        ([on("one", 1, 60), on("two", 50, 100)], "`l0` and `l1` of `l` touch the same keys 50 to 60"),
        ([on("one")] * 6, "`l0`, `l1`, `l2` and 3 more of `l` touch the same keys 1 to 100"),
        ([on("one", 1, 50), on("two", 51, 100)], ""),
        ([on("one"), on("own")], ""),
        ([on("one", workload="reads"), on("one", workload="reads")], ""),
    ],
)
def test_loads_on_the_same_keys_have_one_note(tmp_path: Path, loads: list[Entry], words: str) -> None:
    assert meetings(tmp_path, *loads) == ([f"note: loads {words}"] if words else [])


# ---- the DDL of sql stages that a reset removes

BOTH = {"db": embedded("sqlite"), "other": embedded("sqlite")}


def make(name: str) -> Entry:
    return sql(f"CREATE TABLE {name} (n int)", f"INSERT INTO {name} VALUES (1)", id=name)


def removed(plan: Plan, name: str) -> list[tuple[str, str, tuple[str, ...]]]:
    stage = plan.stage(name)
    assert isinstance(stage, Reset)
    return [(one.system, one.stage.id, one.statements) for one in since_copy(plan, stage)]


def test_ddl_since_the_last_populate_counts(tmp_path: Path) -> None:
    def stages(**more: str) -> list[Entry]:
        rows = sql("DELETE FROM b", id="only_rows")
        return [make("a"), populate("again"), make("b"), rows, reset("db", "other", id="r", **more), make("c")]

    def plan(**more: str) -> Plan:
        text = document(*stages(**more), systems=BOTH)
        text["stages"][0] = populate("load", ["db", "other"])
        return made(tmp_path, text)

    assert removed(plan(), "r") == [("db", "b", ("CREATE TABLE b (n int)",))]
    (note,) = notes(plan())
    assert "reset `r` restores `db`" in note.message and "stage `b` has made: CREATE TABLE b (n int)" in note.message
    assert "keep: ddl" in note.hint
    assert not notes(plan(keep="ddl"))


@pytest.mark.parametrize(
    ("more", "left"),
    [({}, ["b"]), ({"keep": "ddl"}, ["a", "b"]), ({"restore": False}, ["a", "b"]), ({"needs": "a"}, ["a", "b"])],
)
def test_what_an_earlier_reset_has_removed_is_not_made_again(tmp_path: Path, more: Entry, left: list[str]) -> None:
    stages = [make("a"), reset(id="first", **more), make("b"), reset(id="last", keep="ddl")]
    assert [name for _, name, _ in removed(compiled(tmp_path, *stages), "last")] == left


def test_a_step_sees_the_stages_before_its_ladder_and_the_steps_of_its_own_list(tmp_path: Path) -> None:
    before = [sql("CREATE TABLE s (n int)", repeatable=True), reset()]
    after = [sql("DROP TABLE IF EXISTS s", repeatable=True), reset()]
    turns = ladder("m", repeat=2, order="interleaved", **{"with": "l"})
    stages = [make("a"), ladder("l", repeat=2, before=before, after=after), turns, reset(id="last")]
    plan = compiled(tmp_path, *stages)
    found = [[texts[0] for *_, texts in removed(plan, one.id)] for one in plan.stages if isinstance(one, Reset)]
    made_first = "CREATE TABLE a (n int)"
    assert found == [[made_first, "CREATE TABLE s (n int)"], [made_first, "DROP TABLE IF EXISTS s"], [made_first]]


def test_a_statement_is_ddl_by_its_first_word() -> None:
    ddl = ("/* x */ create unique index i on t (a)", "ALTER TABLE t ADD COLUMN b int", "ANALYZE t")
    others = ("INSERT INTO t VALUES ('CREATE TABLE')", "SELECT 1", "")
    assert [text for text in (*ddl, *others) if is_ddl(text)] == list(ddl)


# ---- notes: names that a plan declares and does not use, times that its rate cannot show, servers that are too old

OLD = "cannot be reached"
PLAN = """\
proveout: 1
name: t
params:
  measure: {type: duration, default: 5s}
  unread: {type: int, default: 5}
  top: {type: int, default: 4}
secrets:
  pw: {env: PW}
topology:
  hosts:
    h: {roles: [client], address: local}
  systems:
    db: {engine: postgres, host: h, provision: embedded}
    spare: {engine: sqlite, host: h, provision: embedded}
workloads:
  hlr: {kind: hlr, population: 1000}
  more: {kind: hlr, population: 1000}
captures:
  os: {kind: os}
  waits: {kind: waits, system: db}
stages:
  - populate: {workload: hlr, into: db}
  - ladder: {workload: hlr, target: db, threads: [1, 4], measure: "${params.measure}", capture: os, repeat: 3}
verdicts:
  - {id: v, check: ladder.at(4).tps.mean > params.top}
"""


def noted(folder: Path, plan: str) -> tuple[PlanProblem, ...]:
    (folder / "p.yaml").write_text(plan)
    return compile_with_notes(folder / "p.yaml")[1]


def test_each_unused_name_has_a_note_with_its_line(tmp_path: Path) -> None:
    found = noted(tmp_path, PLAN)
    assert [(note.where.line, note.message) for note in found] == [
        (5, "note: nothing uses the parameter `unread`"),
        (8, "note: nothing uses the secret `pw`"),
        (14, "note: nothing uses the system `spare`"),
        (17, "note: nothing uses the workload `more`"),
        (20, "note: nothing uses the capture `waits`"),
    ]
    assert all(note.source_line and note.hint for note in found)


def test_a_parameter_is_used_in_a_title_too(tmp_path: Path) -> None:
    found = noted(tmp_path, PLAN.replace("name: t\n", "name: t\ntitle: ${params.unread} rows\n"))
    assert "parameter" not in {note.key for note in found}


def test_a_key_without_a_value_has_a_note(tmp_path: Path) -> None:
    """`rate:` alone was closed arrival without a word."""
    notes = noted(tmp_path, PLAN.replace("repeat: 3", "repeat: 3, rate:"))
    found = [(note.where.line, note.where.column, note.message) for note in notes if "no value" in note.message]
    assert found == [(23, 112, "note: `rate` has no value, which is as if it were not there")]


def test_the_place_of_a_line_of_sql_with_a_template_or_an_anchor_is_below_the_sign_of_its_block(tmp_path: Path) -> None:
    statements = "\n".join(
        ("- |", "  SELECT", "  ${params.top}", "- &own |", "  SELECT", "  1", "- >-", "  SELECT", "  ${params.top}")
    )
    more = "  - sql:\n      id: s\n      system: db\n      statements:\n" + indent(statements, " " * 8)
    path = tmp_path / "p.yaml"
    path.write_text(PLAN.replace("verdicts:\n", f"{more}\nverdicts:\n"))
    begin = path.read_text().split("\n").index("        - |") + 1
    plan = compile_plan(path)
    found = [position(plan, f"stages.s.statements.{number}", "sqlite", 2) for number in range(3)]
    assert [(one.line - begin, one.column) for one in found] == [(2, 11), (5, 11), (7, 11)]


def test_what_an_include_declares_for_several_plans_has_none(tmp_path: Path) -> None:
    head, _, captures = PLAN.partition("captures:\n")
    capture, _, rest = captures.partition("stages:\n")
    (tmp_path / "captures.yaml").write_text(f"captures:\n{capture}")
    found = noted(tmp_path, f"{head}include: captures.yaml\nstages:\n{rest}")
    assert "capture" not in {note.key for note in found}
    assert "workload" in {note.key for note in found}


CRASH = """rate: 20/s, arrival: poisson, measure: 40s, repeat: 3,
    faults: [{name: crash, at: 4s, for: 1s, kill: {system: db}, destructive: true}]"""
PHASES = """arrival: poisson, phases: [{name: calm, rate: 10/s, for: 20s}, {name: spike, rate: 60/s, for: 5s},
    {name: after, rate: 10/s, for: 30s}]"""
IDLE = PHASES.replace(" 10/s, for: 20s", " 0/s, for: 20s") + f", {CRASH[CRASH.index('faults') :]}"


@pytest.mark.parametrize(
    ("load", "rates", "words"),
    [
        (CRASH, ("20/s", "2000/s"), "20/s and 4 s before `crash` chance moves throughput by more than all of it, and 50 %"),
        (PHASES, ("10/s", "400/s"), "10/s and 20 s before phase `spike` chance moves throughput by 25 %, and 20 %"),
        (
            PHASES.replace("10/s", "400/s").replace("20s", "500ms"), ("500ms", "20s"),
            "400/s and 500 ms before phase `spike` chance moves throughput by more than all of it, and 20 %",
        ),
        (IDLE, (" 0/s", " 2000/s"), "0/s and 4 s before `crash` chance moves throughput by more than all of it, and 50 %"),
        (PHASES.replace(" 10/s", " 0/s"), (" 0/s", " 400/s"), "0/s and 20 s before phase `spike` chance moves"),
    ],
)  # fmt: skip
def test_a_recovery_that_the_rate_cannot_show_has_a_note(
    tmp_path: Path, load: str, rates: tuple[str, str], words: str
) -> None:
    plan = PLAN.replace('measure: "${params.measure}", capture: os, repeat: 3', load)
    found = [
        [note.message for note in noted(tmp_path, plan.replace(rates[0], rate)) if "recovery_s" in note.message]
        for rate in rates
    ]
    assert [words in text for text in found[0]] == [True], found[0]
    assert found[1] == []


@pytest.mark.parametrize("load", ["{kind: tprocc, warehouses: 1, thinking: true}", """{kind: sql,
    tables: {t: {rows: 1, create: CREATE TABLE t (id int), columns: {id: {sequence: 1}}}},
    transactions: {One: {keying: 1s, statements: {one: SELECT 1}}}}"""])  # fmt: skip
def test_pauses_of_a_workload_have_a_note_where_a_schedule_ignores_them(tmp_path: Path, load: str) -> None:
    plan = PLAN.replace("{kind: hlr, population: 1000}", load, 1)
    messages = [note.message for note in noted(tmp_path, plan.replace("repeat: 3", "repeat: 3, rate: 5/s"))]
    words = "note: the keying and think times of `hlr` have no effect in `ladder`: a schedule of arrivals has no think"
    assert sum(words in message for message in messages) == 1, messages
    assert not any(words in note.message for note in noted(tmp_path, plan))


def test_no_starter_declares_what_it_does_not_use_and_a_timesten_that_cannot_be_driven_has_a_note() -> None:
    """Of the plans: `test_golden`, which compiles them."""
    found = {path.stem: compile_with_notes(path)[1] for path in (FOLDER / "starters").glob("*.yaml")}
    assert {name: some for name, some in found.items() if any(OLD not in one.message for one in some)} == {}
    nodes = ", ".join(f"node{number}" for number in range(1, 9))
    assert [note.message for note in with_notes("tptbm-exalogic-lab")[1]] == [
        f"note: TimesTen 11.2.1.8.3 of {nodes} {OLD}: proveout drives 22.1.1.25 or newer"
    ]


def test_a_partition_from_a_remote_host_is_made_by_the_local_one_that_it_names(tmp_path: Path) -> None:
    """No address leads from the remote host to this machine, where the tuning is by the agent of another host."""
    hosts = {name: {"roles": [name], "address": "local"} for name in ("observer", "client")}
    hosts["server"] = {"roles": ["server"], "address": "db1.lab:7443"}
    system = {"engine": "postgres", "host": "server", "dsn": "host=db1.lab dbname=x user=y"}
    cut = {"name": "cut", "at": "1s", "for": "1s", "partition": {"between": ["role:client", "role:server"]}}
    tuned = {"name": "s", "on": ["observer", "client"], "sysctl": {"vm.swappiness": 10}}
    one = document(ladder("l", measure="9s", faults=[cut]), tuning=[tuned])
    plan = made(tmp_path, {**one, "topology": {"hosts": hosts, "systems": {"db": system}}})
    (stage,) = (found for found in plan.stages if isinstance(found, Ladder))
    assert [tuning.hosts for tuning in (*plan.tunings, *stage.faults[0].tunings)] == [("observer",), ("client",)]
