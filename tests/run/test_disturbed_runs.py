"""Runs on SQLite files and on servers that proveout starts, as their user sees them: loads that share a ladder, faults, a cent
too much, and resets."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest
from whole_run import Done, run

from proveout import open_run
from proveout.coordinator.schedule.state import run_progress
from proveout.coordinator.storage.journal import read
from proveout.proto import events

FILES = """proveout: 1
name: files
topology:
  hosts:
    h:
      roles: [client, server]
      address: local
      facts: {cpus: 100_000, rack: 7}
      expect:
        cpus: {min: 1}
        rack: [7, 8]
  systems:
    one: {engine: sqlite, host: h, provision: embedded, expect: {engine: sqlite}}
    two: {engine: sqlite, host: h, provision: embedded}
    bank: {engine: sqlite, host: h, provision: embedded}
  equipment: {array: {kind: storage, connects: h, facts: {volumes: 8}}}
workloads:
  hlr: {kind: hlr, population: 200, weights: {GetBasicSubscriberData: 1}}
  report: {kind: sql, transactions: {total: {statements: {n: "SELECT count(*) FROM subscriber"}}}}
  pages:
    kind: sql
    in_order: true
    transactions:
      First: {statements: {n: "SELECT count(*) FROM subscriber"}}
      Second: {statements: {n: "SELECT count(*) FROM access_info"}}
  ppm: {kind: prepaid, population: 100, weights: {ChangeBalance: 1}}
stages:
  - populate: {id: load, workload: hlr, into: [one, two]}
  - ladder:
      id: both
      loads:
        low: {workload: hlr, target: one, share: 1/2, range: [1, 100]}
        high: {workload: hlr, target: two, share: 1/2, range: [101, 200]}
        nightly: {workload: report, target: two, threads: 1, rate: 20/s}
      threads: 4
      ramp_up: 0s
      measure: 1s
      ramp_down: 0s
      repeat: 1
      limits: NEVER_VOID
  - ladder:
      id: sets
      loads:
        short: {workload: pages, target: one, share: 1/2}
        long: {workload: pages, target: two, share: 1/2}
      threads: 4
      passes: 3
      within: 1m
      repeat: 1
      limits: NEVER_VOID
  - populate: {id: fill, workload: ppm, into: bank}
  - ladder: {id: before, workload: ppm, target: bank, threads: [1], measure: 300ms, repeat: 1, ramp_up: 0s, ramp_down: 0s, limits: NEVER_VOID}
  - sql: {id: theft, system: bank, statements: ["UPDATE accounts SET current_balance = current_balance + 1 WHERE account_id = 7"]}
  - ladder: {id: after, workload: ppm, target: bank, threads: [1], measure: 300ms, repeat: 1, ramp_up: 0s, ramp_down: 0s, limits: NEVER_VOID}
report: {without: [others]}
verdicts:
  - {id: share, check: both.at(4).loads.low.tps.n == 1}
  - {id: nightly, check: both.at(4).loads.nightly.transactions.total.tps.n == 1}
"""

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def on_files(tmp_path_factory: pytest.TempPathFactory) -> Done:
    return run(tmp_path_factory.mktemp("files"), FILES).ended(1)


def iteration(done: Done, ladder: str) -> Any:
    (found,) = done.stages[ladder]["iterations"]
    assert found["valid"]
    return found


def test_the_rung_is_the_sum_of_its_shares_and_tables_name_the_load_of_each_transaction(on_files: Done) -> None:
    item = iteration(on_files, "both")
    loads = item["metrics"]["loads"]
    assert item["metrics"]["tps"] == pytest.approx(loads["low"]["tps"] + loads["high"]["tps"])
    assert [loads[name]["threads"] for name in ("low", "high", "nightly")] == [2, 2, 1]
    assert loads["low"]["errors"]["count"] == 0
    assert loads["nightly"]["rate"] == 20.0 and item["beside"] == ["nightly"]
    assert {one["load"] for one in item["findings"] if one["check"] == "mix"} == {"low", "high", "nightly"}
    assert "By load" in on_files.out
    rows = {(row["transaction"], row["target"]) for row in on_files.table("csv") if row["stage"] == "both"}
    assert {
        ("(all)", "one + two"), ("low.(all)", "one"), ("high.(all)", "two"), ("nightly.(all)", "two"),
        ("low.GetBasicSubscriberData", "one"), ("nightly.total", "two"),
    } == rows - {("high.GetBasicSubscriberData", "two")}  # fmt: skip


def test_every_thread_of_each_load_runs_its_passes(on_files: Done) -> None:
    item = iteration(on_files, "sets")
    loads = item["metrics"]["loads"]
    for name in ("short", "long"):
        assert loads[name]["ended"]["count"] == 2 * 3 * 2
        assert 0.0 < loads[name]["pass"]["max_s"] <= loads[name]["elapsed_s"] <= item["measure_s"] + 0.001
    passes = {one["load"]: one["ok"] for one in item["findings"] if one["check"] == "passes"}
    assert passes == {"short": True, "long": True}


def test_a_cent_too_much_is_an_error_at_once_and_fails_the_run(on_files: Done) -> None:
    verdicts = {one["id"]: one for one in on_files.result["verdicts"]}
    assert {name: one["outcome"] for name, one in verdicts.items() if name in ("share", "nightly", "invariants:bank")} == {
        "share": "PASS", "nightly": "PASS", "invariants:bank": "FAIL"
    }  # fmt: skip
    assert "first after iteration after/1/1/" in verdicts["invariants:bank"]["evidence"]
    assert "error: bank after after/1/1/" in on_files.said
    before, _, broken = on_files.said.partition("stage theft")
    assert before.count("bank conserves what it must") >= 2, "after the population, and after the first iteration"
    assert "bank conserves what it must" not in broken


def test_the_report_shows_declared_facts_that_differ_from_measured_ones(on_files: Done) -> None:
    assert "h: cpus is declared as 100000 and measured as " in on_files.out
    host, *systems, array = on_files.result["tested"]
    assert all(row["held"] for row in (*host["rows"], *systems[0]["rows"]))
    assert {row["fact"]: row["declared"] for row in array["rows"]} == {"volumes": "8"}


def test_expectations_that_do_not_hold_are_all_named_and_nothing_is_started(tmp_path: Path) -> None:
    done = run(tmp_path, FILES.replace("{min: 1}", "{min: 90_000}\n        cpu_socket: 2")).ended(4)
    assert "plan.yaml:10:15: h: cpus is " in done.out
    assert "expected at least 90000 (correct the host, or the expectation)" in done.out
    assert "plan.yaml:11:21: h: cpu_socket is neither measured nor declared; expected 2" in done.out
    assert "2 expectations do not hold; no host or system was changed" in done.out
    assert "system one is up" not in done.out
    result = done.result
    assert (result["run"]["status"], result["run"]["exit_code"], result["systems"]) == ("failed", 4, {})


FAULTY = """  - ladder:
      id: %s
      workload: hlr
      target: db
      threads: 2
      rate: 100/s
      ramp_up: 0s
      measure: %s
      ramp_down: 0s
      repeat: 1
      retries: %s
      limits: NEVER_VOID
      faults:
"""
FAULTS = f"""
proveout: 1
name: disturbed
topology: {{hosts: {{h: {{roles: [client, server], address: local}}}}, systems: {{db: {{engine: postgres, host: h, provision: embedded}}}}}}
workloads: {{hlr: {{kind: hlr, population: 100}}}}
report: {{without: [others]}}
stages:
  - populate: {{workload: hlr, into: [db]}}
{FAULTY % ("killed", "2s", 10)}        - {{name: crash, at: 500ms, for: 500ms, kill: {{system: db}}, destructive: true}}
{FAULTY % ("marked", "3s", 0)}        - name: mark
          when: live.tps > 1 && live.errors_per_s == 0
          for: 300ms
          sql:
            system: db
            verify: {{query: SELECT count(*) FROM pg_tables WHERE tablename = 'mark', equals: 1}}
            apply: CREATE TABLE mark (n int)
            revert: DROP TABLE IF EXISTS mark
"""


def test_a_killed_server_is_back_and_a_condition_begins_a_fault(tmp_path: Path) -> None:
    done = run(tmp_path, FAULTS).ended(0)
    journal = [one.event for one in read(done.directory)]
    *voided, killed, marked = run_progress(journal).iterations  # on a busy machine a fault comes too late, and voids
    assert not any(one.valid for one in voided) and killed.valid
    for text in ("h: fault crash: begins ", "h: fault crash: in place after ", "h: fault crash: healed after "):
        assert text in done.out
    assert not [found.check for found in killed.findings if not found.ok and found.voids]
    (crash,) = killed.faults
    assert crash.begins_s >= 0.5 and crash.healed_s is not None
    assert crash.outage_s is not None and crash.outage_s > 0.3, "down for as long as it was killed"
    steps = [one for one in journal if isinstance(one, events.FaultSeen) and one.id == marked.id]
    assert [one.step for one in steps] == ["begins", "in_place", "healing", "healed"]
    assert all(one.at_s > 1.0 for one in steps), "after a whole second of the window"


RESETS = """
proveout: 1
name: resets
topology:
  hosts: {h: {roles: [client, server], address: local}}
  systems:
    shop: {engine: sqlite, host: h, dsn: %s}
    db: {engine: postgres, host: h, provision: embedded}
report: {without: [others]}
workloads:
  w: {kind: tptbm, key: 4}
  calls: {kind: hlr, population: 100}
  stock:
    kind: sql
    tables: {stock: {rows: 10, create: CREATE TABLE stock (id int), columns: {id: {sequence: 1}}}}
    transactions: {Look: {statements: {a: SELECT name FROM item WHERE id = 1}}}
stages:
  - sql: {id: change, system: shop, statements: [DELETE FROM item WHERE id > 3, CREATE INDEX i ON item (name)],
          query: SELECT count(*) AS n FROM item, metrics: {n: {column: n}}}
  - reset: {id: back, systems: shop}
  - sql: {id: after, system: shop, query: SELECT count(*) AS n FROM item, metrics: {n: {column: n}}}
  - populate: {id: fill, workload: stock, into: shop}
  - sql: {id: again, system: shop, statements: [DELETE FROM stock, DELETE FROM item]}
  - reset: {id: filled, systems: shop}
  - sql: {id: rows, system: shop, query: SELECT count(*) AS n FROM stock, metrics: {n: {column: n}}}
  - drop: {workload: stock, systems: shop}
  - populate: {id: load, workload: w, into: db}
  - sql: {id: make, system: db, statements: [CREATE INDEX extra ON vpn_users (last_calling_party), DELETE FROM vpn_users]}
  - reset: {id: keeps, systems: db, keep: ddl}
  - sql: {id: kept, system: db, query: LOOK, metrics: {i: {column: i}, n: {column: n}}}
  - reset: {id: restores, systems: db}
  - sql: {id: gone, system: db, query: LOOK, metrics: {i: {column: i}, n: {column: n}}}
  - populate: {id: again_loaded, workload: calls, into: db}
  - ladder:
      id: each
      workload: calls
      target: db
      threads: [1, 2]
      ramp_up: 0s
      measure: 500ms
      ramp_down: 0s
      repeat: 2
      reload: each_repeat
      restart: each_repeat
      limits: NEVER_VOID
""".replace(
    "LOOK",
    "\"SELECT (SELECT count(*) FROM pg_indexes WHERE indexname = 'extra') AS i, count(*) AS n FROM vpn_users\"",
)


def contents(path: Path) -> list[Any]:
    with closing(apsw.Connection(str(path))) as connection:
        query = "SELECT type, name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_stat_'"
        rows = (connection.execute(text).fetchall() for text in (query, "SELECT * FROM item"))
        return [connection.pragma("journal_mode"), *rows]


def test_a_reset_removes_what_was_made_and_with_keep_has_the_ddl_again(sqlite_file: Path, tmp_path: Path) -> None:
    with closing(apsw.Connection(str(sqlite_file))) as connection:
        connection.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT)")
        connection.executemany("INSERT INTO item VALUES (?, ?)", ((i, f"n{i}") for i in range(1, 101)))
    before = contents(sqlite_file)
    done = run(tmp_path, RESETS % sqlite_file).ended(0)
    assert done.values("i") == {"kept": 1.0, "gone": 0.0}
    assert done.values("n") == {"change": 3.0, "after": 100.0, "rows": 10.0, "kept": 16.0, "gone": 16.0}
    assert "reset restores restores `db` as its last populate left it, which removes what stage `make`" in done.out
    assert "reset keeps restores" not in done.out
    assert "as it was before the run, which removes what stage `change`" in done.out
    assert before[0] == "delete" and contents(sqlite_file) == before
    assert [path.name for path in sqlite_file.parent.iterdir()] == [sqlite_file.name]
    assert not list(tmp_path.rglob("*.copy"))

    starts: dict[int, set[int]] = {1: set(), 2: set()}
    for one in open_run(done.directory).stages["each"].iterations:
        starts[one.id.repeat].add(one.server_started_ms[""])
    assert [len(found) for found in starts.values()] == [1, 1], "the rungs of a repeat share a start of the server"
    assert starts[1] != starts[2]
