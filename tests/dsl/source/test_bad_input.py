"""The errors for bad input in a plan, in the order of the list in the specification (reliability, "Bad input", the plan).

Data flow: a good plan with one of its sections replaced, or raw bytes -> `compile_plan` -> one of its problems contains
the text beside the item, with file, line and column. Items that do not depend on the plan alone (a host's memory, the
environment) call the function that checks them; a disk that is not empty is in tests/agent/tuning/cases/partition, and a
plan that is edited during its run in tests/coordinator/storage/test_resume.py. Complete messages are in
tests/golden/bad.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from proveout.coordinator.agents.endpoints import SecretMissing, read_secret
from proveout.core.errors import PlanError
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.operations.facts import Facts, TextQuery
from proveout.dsl.operations.kernel.huge_pages import MEMINFO, HugePages
from proveout.dsl.plan.topology import Secret
from proveout.dsl.source.loader import BYTES_MAX

GOOD: Mapping[str, str] = {
    "head": "proveout: 1",
    "name": "name: good",
    "more": "",
    "hosts": "    h: {roles: [client], address: local}",
    "systems": "    db: {engine: postgres, host: h, provision: embedded}",
    "workload": "{kind: hlr, population: 100}",
    "stages": "  - populate: {workload: hlr, into: db}",
    "ladder": "threads: [1, 4], ramp_up: 1s, measure: 5s",
    "check": "ladder.at(4).tps.mean > 1",
}


def plan(**changes: str) -> bytes:
    """The good plan with some of its sections replaced."""
    of = {**GOOD, **changes}
    return "\n".join(
        [
            of["head"],
            of["name"],
            *([of["more"]] if of["more"] else []),
            "topology:\n  hosts:",
            of["hosts"],
            "  systems:",
            of["systems"],
            f"workloads:\n  hlr: {of['workload']}",
            "stages:",
            of["stages"],
            f"  - ladder: {{workload: hlr, target: db, {of['ladder']}}}",
            f"verdicts:\n  - {{id: v, check: '{of['check']}'}}\n",
        ]
    ).encode()


def ladder(text: str) -> bytes:
    return plan(ladder=text)


def tuning(text: str) -> bytes:
    return plan(more=f"tuning:\n  - {text}")


WORD = "is not a name that can be used here"
MATRIX = ", ".join(f"a{number}: [{', '.join(map(str, range(1, 101)))}]" for number in range(3))
MANY_HOSTS = "\n".join(["    h: {roles: [client], address: local}"] * 2)
NEEDS = (
    "  - populate: {workload: hlr, into: db}\n"
    "  - pause: {id: a, duration: 1s, needs: b}\n"
    "  - pause: {id: b, duration: 1s, needs: a}"
)

ITEMS: tuple[tuple[str, bytes, str], ...] = (
    (
        "python tags",
        plan(workload="!!python/object/apply:os.system [id]"),
        "the tag tag:yaml.org,2002:python/object/apply:os.system is not part",
    ),
    (
        "alias bomb",
        plan(
            more="params:\n  a: &a [1,1,1,1,1,1,1,1,1]\n"
            + "\n".join(f"  {y}: &{y} [{', '.join([f'*{x}'] * 9)}]" for x, y in zip("abcdef", "bcdefg", strict=True))
        ),
        "more than 20000 values once aliases are expanded",
    ),
    ("recursive alias", plan(more="params: &a {p: *a}"), "stands inside the node that it refers to"),
    ("duplicate key", plan(name="name: t\nname: u"), "the key `name` is there twice"),
    ("<< surprises", plan(workload="{<<: {kind: hlr}, population: 100}"), "`<<` is not part of the plan language"),
    ("no/on/off", ladder("threads: [1, 4], measure: 5s, capture: no"), "`no` is a boolean in YAML 1.1"),
    ("22:22", ladder("threads: [1], measure: 22:22"), "`22:22` is a number to the base 60"),
    ("0644", plan(workload="{kind: hlr, population: 0644}"), "`0644` has a leading zero"),
    ("1e3", plan(workload="{kind: hlr, population: 1e3}"), "`1e3` is a number in some YAML readers"),
    ("1_000 gone wrong", plan(workload="{kind: hlr, population: 1__000_}"), "`1__000_` has stray underscores"),
    ("bare date", plan(more="title: 2026-01-01"), "`2026-01-01` is a date in YAML 1.1"),
    (".nan", ladder("threads: [.nan], measure: 5s"), "`.nan` is not a number that a plan can use"),
    (".inf", ladder("threads: [.inf], measure: 5s"), "`.inf` is not a number that a plan can use"),
    ("10k nesting", b"[" * 10_000, "nested deeper than 32 levels"),
    ("50 MiB file", b"#" * (BYTES_MAX + 1), "larger than 1 MiB"),
    ("second document", plan() + b"---\nproveout: 1\n", "a second document"),
    ("NUL", plan(name="name: a\0b"), "a hidden character: U+0000"),
    ("BOM", b"\xef\xbb\xbf" + plan(), "the file begins with a byte order mark"),
    ("UTF-16", plan().decode().encode("utf-16"), "the file is UTF-16"),
    (
        "bidi host",
        plan(hosts="    h\u202e: {roles: [client], address: local}"),
        "a hidden character: U+202E (right-to-left override)",
    ),
    ("homoglyph host", plan(hosts="    h\u043est: {roles: [client], address: local}"), WORD),
    ("tabs", plan(hosts="\th: {roles: [client], address: local}"), "a tab"),
    ("empty file", b"", "the file is empty"),
    ("misspelled key", plan(name="nam: x"), "unknown key `nam`"),
    ("10 for 10s", ladder("threads: [1], measure: 10"), "not 10; did you mean 10s?"),
    (
        "negative duration",
        ladder("threads: [1], measure: -5s"),
        "expected a duration such as 10s, 500ms or 1h30m, not -5s",
    ),
    ("zero duration", ladder("threads: [1], measure: 0s"), "0s is out of bounds: a duration is longer than 0"),
    ("10-year duration", ladder("threads: [1], measure: 87600h"), "87600h is out of bounds"),
    ("repeats 10^9", ladder("threads: [1], measure: 5s, repeat: 1_000_000_000"), "a rung is run 1 to 100 times"),
    ("matrix of 10^6 cells", ladder(f"id: l, threads: [1], measure: 5s, matrix: {{{MATRIX}}}"), "cells"),
    ("cyclic needs", plan(stages=NEEDS), "stages need each other: a needs b needs a"),
    ("self-include", plan(more="include: [plan.yaml]"), "includes itself"),
    ("remote include", plan(more='include: ["https://example.com/x.yaml"]'), "never fetched from elsewhere"),
    ("template in template", plan(more='title: "${params.${params.a}}"'), "a template inside a template"),
    ("../ path", plan(more="include: [../x.yaml]"), "`../x.yaml` leads out of the plan's folder"),
    ("absolute path", plan(more="include: [/etc/passwd]"), "a path relative to the file that names it"),
    ("~ path", plan(more="include: [~/x.yaml]"), "a path relative to the file that names it"),
    ("symlink swapped", plan(more="include: [link.yaml]"), "`link.yaml` leads out of the plan's folder"),
    (
        "sysctl core_pattern",
        tuning('{name: t, on: all, sysctl: {kernel.core_pattern: "|/bin/sh"}}'),
        "`kernel.core_pattern` names a program that the kernel runs as root",
    ),
    ("unit sshd", tuning("{name: t, on: all, service: {unit: sshd, state: stopped}}"), "`sshd.service` is left alone"),
    (
        "unit of the agent",
        tuning("{name: t, on: all, service: {unit: proveout-agent, state: stopped}}"),
        "is left alone",
    ),
    (
        "root disk",
        tuning("{name: t, on: all, destructive: true, partition: {device: /dev/sda, partitions: [{name: a}]}}"),
        "`/dev/sda` does not name a whole disk for good",
    ),
    ("; rm", plan(hosts='    "h; rm": {roles: [client], address: local}'), WORD),
    ("$(…)", plan(hosts='    "$(reboot)": {roles: [client], address: local}'), WORD),
    ("backticks", plan(hosts='    "`id`": {roles: [client], address: local}'), WORD),
    (
        "; rm in a unit",
        tuning('{name: t, on: all, service: {unit: "tuned; rm", state: stopped}}'),
        "is not the name of a systemd unit",
    ),
    (
        "; rm in an address",
        plan(hosts='    h: {roles: [client], address: "a;rm -rf /:7443"}'),
        "`a;rm -rf /:7443` is not an address",
    ),
    ("--option injection", plan(name="name: --help"), f"`--help` {WORD}"),
    (
        "--option as a host's address",
        plan(hosts="    h: {roles: [client], address: --proxy:1}"),
        "`--proxy:1` is not an address",
    ),
    (
        "quoted DB identifiers",
        plan(
            workload='{kind: sql, tables: {"a\\"; DROP TABLE x": {columns: {a: int}, rows: 1}}, transactions: {t: '
            "{weight: 1, statements: [{sql: SELECT 1}]}}}"
        ),
        '`a"; DROP TABLE x` is not a name that can be used here',
    ),
    (
        "two tunings in conflict on one host",
        plan(
            more="tuning:\n  - {name: a, on: all, sysctl: {vm.swappiness: 1}}\n  - {name: b, on: h, sysctl: "
            "{vm.swappiness: 2}}"
        ),
        "`b` and `a` are in conflict over sysctl vm.swappiness on h",
    ),
    (
        "two tunings of which one sets the other back",
        plan(
            more="tuning:\n  - {name: a, on: all, sysctl: {vm.dirty_ratio: 10}}\n  - {name: b, on: h, sysctl: "
            "{vm.dirty_bytes: 1000000}}"
        ),
        "`b` and `a` are in conflict over vm.dirty_bytes or vm.dirty_ratio (the kernel sets one to 0 when the other is "
        "set) on h",
    ),
    ("zero hosts", plan(hosts="    {}"), "the topology has no hosts"),
    ("duplicate hosts", plan(hosts=MANY_HOSTS), "the key `h` is there twice"),
    (
        "duplicate addresses",
        plan(hosts='    h: {address: "x:7443"}\n    i: {address: "x:7443"}'),
        "host `h` has the same address",
    ),
    ("literal secret", plan(more="secrets: {s: hunter2}"), "`s` must be a mapping"),
    ("verdict on a metric that does not exist", plan(check="ladder.at(4).respnse.p99_us.mean < 1"), "has no `respnse`"),
    ("threads 0", ladder("threads: [0], measure: 5s"), "`threads` must be at least 1"),
    ("threads -1", ladder("threads: [-1], measure: 5s"), "`threads` must be at least 1"),
    ("threads 10^6", ladder("threads: [1_000_000], measure: 5s"), "`threads` must be at most 10000"),
    (
        "weights that sum to 0",
        plan(workload="{kind: sql, transactions: {Read: {weight: 0, statements: {find: SELECT 1}}}}"),
        "the weights sum to 0",
    ),
)


@pytest.mark.parametrize(("content", "says"), [item[1:] for item in ITEMS], ids=[item[0] for item in ITEMS])
def test_bad_input_is_refused_with_position_and_message(content: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "plans").mkdir()
    (tmp_path / "elsewhere" / "x.yaml").write_text("captures: {}\n")
    (tmp_path / "plans" / "link.yaml").symlink_to(tmp_path / "elsewhere" / "x.yaml")
    path = tmp_path / "plans" / "plan.yaml"
    path.write_bytes(content)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(PlanError) as caught:
        compile_plan(path)
    problems = caught.value.problems
    assert any(says in problem.message for problem in problems), [problem.message for problem in problems]
    assert all(problem.where.file and problem.where.line >= 1 and problem.where.column >= 1 for problem in problems)
    assert sorted(tmp_path.rglob("*")) == before, "nothing is changed"


def test_the_base_plan_of_the_items_is_valid(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_bytes(plan())
    assert compile_plan(tmp_path / "plan.yaml").name == "good"


def test_more_huge_pages_than_there_is_memory() -> None:
    known = {
        TextQuery("/proc/sys/vm/nr_hugepages"): "0",
        TextQuery(MEMINFO): "MemTotal: 1048576 kB\nHugepagesize: 2048 kB",
    }
    step = HugePages(pages=600).changes(Facts(known))
    assert step.refusals == ("600 huge pages are 1.2 GiB, but this host has 1.0 GiB of memory",)
    assert not step.changes


def test_a_missing_environment_reference() -> None:
    secret = Secret(name="hlr", kind="env", reference="HLR_PASSWORD")
    with pytest.raises(SecretMissing, match="the environment has no HLR_PASSWORD") as caught:
        read_secret(secret, {})
    assert "export HLR_PASSWORD" in caught.value.way_out
