"""From files to a plan: values and positions, only collected problems for all that is not a plan, the place of a mistake
in YAML, includes, bases, inventories (also Ansible's), and the parameters of a plan as a form.

The messages for all other bad input are in tests/golden/bad.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import thorough
from compiled_plans import FOLDER
from hypothesis import given, settings
from hypothesis import strategies as st

from proveout.coordinator.agents.endpoints import SecretMissing, read_secret
from proveout.core.errors import PlanError, Where
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.plan.plan import Field
from proveout.dsl.plan.topology import Secret
from proveout.dsl.schema.parameters import read_form
from proveout.dsl.source.ansible_inventory import expanded, hosts, read
from proveout.dsl.source.loader import NODES_MAX, load, loads
from proveout.dsl.source.nodes import Map, Problems, Scalar, Seq, plain

PIECES = [
    "proveout: 1\n", "name: ", "stages:\n", "  - ladder: ", "{", "}", "[", "]", "&a ", "*a", "<<: ", "!!str ", "? ",
    ": ",
    "- ", "|\n", ">-\n  ", '"', "'", "\\u202e", "${params.x}", "#", "\n", "  ", "%YAML 1.1\n", "---\n", "...\n",
    "1_000",
    "no", "22:22", "é", "\u202e", "\t", "\x00", "threads: [1, 2]\n", "params: {x: {type: int, default: 1}}\n", "@", "`",
]  # fmt: skip


def texts(problems: Problems) -> list[str]:
    found = problems.error().problems if problems.found else ()
    return [f"{one.where.line}:{one.where.column} {one.message}" for one in found]


def loaded(text: str) -> tuple[Map | None, list[str]]:
    problems = Problems()
    root = loads(text.encode(), "p.yaml", problems)
    return root, texts(problems)


def test_values_and_positions() -> None:
    root, problems = loaded('a: 20_000\nb: [1.5, true, "no", -3, x y]\non:\n  c: |\n    two\n    lines\nd:\n')
    assert problems == []
    assert root is not None
    assert plain(root) == {"a": 20_000, "b": [1.5, True, "no", -3, "x y"], "on": {"c": "two\nlines\n"}, "d": None}
    large, problems = loaded("a: 9_223_372_036_854_775_807\nb: 9223372036854775808\n")
    assert large is not None and plain(large)["a"] == 2**63 - 1
    assert problems == ["2:4 the number has more than 19 digits, or does not fit into 64 bits"]
    items = root.get("b")
    assert isinstance(items, Seq)
    quoted = items.items[2]
    assert isinstance(quoted, Scalar)
    assert (quoted.where.line, quoted.where.column, quoted.at(1).column) == (2, 16, 18)
    blank = (loaded('a: "  "\n')[0] or root).get("a")
    assert isinstance(blank, Scalar) and blank.at(1).column == 6
    root, problems = loaded("a: |\n\n    one\n      two\nb: >-\n  one\n  two\nc: one\n  two\nd: 'on''e\n  two'\n")
    assert root is not None and problems == []
    texts = [one for _, one in root.entries if isinstance(one, Scalar)]
    found = [one.at(one.text.index("wo")) for one in texts]
    assert [(where.line, where.column) for where in found] == [(4, 8), (7, 4), (9, 4), (10, 4)], "escapes have no place"
    assert loaded('a: 1\r\nb: 2\r\n"<<": 1\n"a:b":\n')[1] == [], "what is quoted is meant"
    root, problems = loaded("a: &x {b: [1]}\r\nc: *x\r\n")
    assert (root and plain(root), problems) == ({"a": {"b": [1]}, "c": {"b": [1]}}, [])


def test_a_character_that_cannot_be_seen_or_read_is_a_problem_at_its_column() -> None:
    root, _ = loaded("a: 1\u0662\n")
    assert root is not None and plain(root) == {"a": "1\u0662"}, "digits of other scripts make no number"
    assert loaded("title: äö\uffff\n")[1] == ["1:10 a hidden character: U+FFFF (control character)"]
    assert loaded("title: 1\xa0000 €\n")[1] == [], "a text may have spaces of any kind"
    seen = Problems()
    seen.add(Where(), "unknown key `re\xa0peat`")
    assert [one.message for one in seen.found] == [r"unknown key `re\u00a0peat`"], "in a message they are told apart"
    assert loaded("title: a\u00adb\nname: b\U000e0041\n")[1] == [
        "1:9 a hidden character: U+00AD (soft hyphen)",
        "2:8 a hidden character: U+E0041 (tag latin capital letter a)",
    ]
    problems = Problems()
    assert loads("title: äö".encode() + b"\xff\n", "p.yaml", problems) is None
    assert texts(problems) == ["1:10 not valid UTF-8"]


def test_a_file_that_is_too_large_is_not_parsed_and_a_pipe_does_not_block(tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(50 << 20)
    os.mkfifo(tmp_path / "pipe")
    found = {}
    for name in ("large", "pipe"):
        problems = Problems()
        assert load(tmp_path / name, name, problems) is None
        found[name] = [problem.message for problem in problems.found]
    assert found == {"large": ["the file is larger than 1 MiB"], "pipe": ["not a regular file"]}
    for path in (tmp_path / "nothing.yaml", tmp_path):
        with pytest.raises(PlanError):
            compile_plan(path)


def test_a_line_of_many_problems_is_searched_for_passwords_once() -> None:
    problems = Problems()
    loads(b"a: [01, 02, 03] # password=x", "p.yaml", problems)
    lines = [one.source_line for one in problems.error().problems]
    assert lines == ["a: [01, 02, 03] # password=*"] * 3
    assert len(set(map(id, lines))) == 1
    loads(b'a: {b: 01, db_password: x/y@z, "pwd": "x y", passwd: ${secrets.z}}', "p.yaml", (others := Problems()))
    lines = [one.source_line for one in others.error().problems]
    assert set(lines) == {'a: {b: 01, db_password: ****** "pwd": "***", passwd: ${secrets.z}}'}
    loads(b"a: [01, http://h:9100/m]\nb: [02, http://u:p/w@h:1]", "p.yaml", (urls := Problems()))
    lines = [one.source_line for one in urls.error().problems]
    assert lines == ["a: [01, http://h:9100/m]", "b: [02, http://u:*/w@h:1]"]


def test_aliases_expand_up_to_the_limit() -> None:
    half = ", ".join(["1"] * (NODES_MAX // 2 - 100))
    assert loaded(f"a: &a [{half}]\nb: *a\n")[1] == []
    root, (problem,) = loaded(f"a: &a [{half}]\nb: [*a, *a]\n")
    assert root is None
    assert "values once aliases are expanded" in problem


@settings(max_examples=300, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=200),
        st.text(max_size=200).map(str.encode),
        st.lists(st.sampled_from([*PIECES, "a: ", "b", ":", "c:d", ", ", "|", "&"]), max_size=25).map(
            lambda pieces: "".join(pieces).encode()
        ),
    )
)
def test_any_bytes_end_in_a_mapping_or_in_problems_with_places_in_the_file(content: bytes) -> None:
    problems = Problems()
    root = loads(content, "p.yaml", problems)
    assert root is not None or problems.found
    text = content.decode(errors="replace")
    for one in problems.found:
        assert 1 <= one.where.line <= len(text.splitlines()) + 1
        assert one.where.column <= max(map(len, text.split("\n"))) + 2


@pytest.mark.thorough
@settings(max_examples=thorough.count(150, 30), deadline=None)
@given(st.data())
def test_a_damaged_plan_never_raises_anything_else(data: st.DataObject) -> None:
    """Remove pieces of a plan that uses all features, insert others, and compile the result."""
    good = FOLDER.parent / "tests" / "golden" / "good"
    text = (good / "everything.yaml").read_text()
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(start + 40, len(text))))
    path = good / f"damaged-{os.getpid()}.yaml"
    try:
        path.write_text(text[:start] + data.draw(st.sampled_from(["", *PIECES])) + text[end:])
        compile_plan(path)
    except PlanError as error:
        assert error.problems
    finally:
        path.unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('a: {b: "x, c: 2}\nd: {e: "y"}\n', "1:8 a quote opens here and closes only in line 2"),
        ("a: [b, c\nd: 1\n", "1:4 `[` opens here and is not closed"),
        ("a: {b: 1 c: 2}\n", "1:10 a comma is missing before `c`"),
        ("a: {b: 1}}\n", "1:10 this `}` closes nothing"),
        ('a: "\\d"\n', '1:5 `\\d` is not an escape in "…"'),
        ("a:\n  - b\n  c: 1\n", "3:3 a key, where an item of the list should be"),
        ('a: {b: 1 < c["d"].e, f: 2}\n', '1:8 `1 < c["d"].e` inside brackets must be quoted'),
        ("a: {b: c > 1 ? d : e}\n", "1:8 `c > 1 ? d : e` inside brackets must be quoted"),
        ("a: {b: c[d, e: 1}\n", "1:8 `c[` inside brackets must be quoted"),
    ],
)
def test_the_place_of_a_mistake_in_yaml(text: str, message: str) -> None:
    assert loaded(text)[1] == [message]


def test_an_expression_with_quotes_in_it_is_put_into_the_others() -> None:
    problems = Problems()
    assert loads(b'a: {b: c["d"] > 1}\n', "p.yaml", problems) is None
    assert [one.hint for one in problems.found] == ["""quote it: 'c["d"] > 1'"""]


def test_a_long_line_is_searched_once() -> None:
    line = f"a: [{'x' * 300_000}, b: c: d]"
    assert loaded(line)[1] == [f"1:{line.index('c') + 1} a comma is missing before `c`"]


def test_the_rest_of_the_file_is_read() -> None:
    root, problems = loaded('name t\ntitle: "half\nlist: [1, 2\nkind:hlr\nno: yes\nlast\n')
    assert root is not None
    assert plain(root) == {"name": "t", "title": "half", "list": [1, 2], "kind": "hlr", "no": "yes", "last": None}
    assert problems == [
        "1:5 a `:` is missing after `name`",
        "2:8 a quote opens here and is not closed",
        "3:7 `[` opens here and is not closed",
        "4:6 a space is missing after `kind:`",
        "5:5 `yes` is a boolean in YAML 1.1 and a word elsewhere",
        "6:5 a `:` is missing after `last`",
    ]


def test_what_is_outside_of_a_plan(tmp_path: Path) -> None:
    """A link that leads out of the folder, and a secret that the environment does not have."""
    (tmp_path / "plans").mkdir()
    (tmp_path / "outside.yaml").write_text("captures: {}\n")
    (tmp_path / "plans" / "link.yaml").symlink_to(tmp_path / "outside.yaml")
    path = tmp_path / "plans" / "plan.yaml"
    path.write_text("proveout: 1\nname: p\ninclude: [link.yaml]\n")
    with pytest.raises(PlanError) as caught:
        compile_plan(path)
    assert "`link.yaml` leads out of the plan's folder" in [problem.message for problem in caught.value.problems]
    secret = Secret(name="hlr", kind="env", reference="HLR_PASSWORD")
    with pytest.raises(SecretMissing, match="the environment has no HLR_PASSWORD") as missing:
        read_secret(secret, {})
    assert "export HLR_PASSWORD" in missing.value.way_out


# ---- includes, bases and inventories

PLAN = """proveout: 1
name: p
include: [part.yaml]
topology:
  hosts: {h: {roles: [client], address: local, facts: {rack: 1}}}
  systems: {db: {engine: sqlite, host: h, provision: embedded, settings: {page_size: 8192}}}
  equipment: {tor1: {kind: switch, connects: h}}
workloads: {w: {kind: tptbm, key: 10}}
captures: {os: {kind: os, on: all, every: 1s}}
stages: [{populate: {workload: w, into: db}}]
"""
PART = "topology: {equipment: {array: {kind: storage, connects: role:client}, tor1: {kind: storage}}}\n"
EXTENDING = "proveout: 1\nname: q\nextends: p.yaml\ntopology: {equipment: {tor1: {kind: appliance}}}\n"
HOSTS = 'hosts: {h: {roles: [client], address: "h.lab:7443"}}'
SYSTEMS = "systems: {db: {engine: postgres, host: h, dsn: host=h.lab dbname=d user=u}}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in (("p", PLAN), ("part", PART), ("q", EXTENDING)):
        (tmp_path / f"{name}.yaml").write_text(text)
    return tmp_path


def declared(folder: Path, plan: str, inventory: str = "") -> list[tuple[str, str, tuple[str, ...]]]:
    (folder / "i.yaml").write_text(inventory)
    found = compile_plan(folder / plan, inventory=folder / "i.yaml" if inventory else None).declared
    return [(one.name, one.kind, one.connects) for one in found]


def test_the_plan_has_precedence_over_its_includes_and_an_extending_one_replaces_by_name(folder: Path) -> None:
    assert declared(folder, "p.yaml") == [("h", "host", ()), ("array", "storage", ("h",)), ("tor1", "switch", ("h",))]
    assert ("tor1", "appliance", ()) in declared(folder, "q.yaml")
    stages = "[{populate: null}, {populate: {workload: w, into: db}}, {pause: {duration: 1s}}]"
    (folder / "q.yaml").write_text(f"proveout: 1\nname: q\nextends: p.yaml\nstages: {stages}\n")
    again = compile_plan(folder / "q.yaml").stages
    assert [stage.id for stage in again] == ["populate", "pause"], "what it drops it can state again"


@pytest.mark.parametrize(
    ("part", "found"),
    [
        ('verdicts: {v: {check: "w.rows > 1"}}', "1:11 `verdicts` must be a list"),
        ("tuning: {sysctl: {vm.swappiness: 10}}", "1:9 `tuning` must be a list"),
        ("topology: {host: {db2: {address: local}}}", "1:12 unknown key `host`"),
        ("topology: [db2]", "1:11 expected a mapping of hosts, systems and equipment"),
        ("proveout: 2", "1:11 format version 2 is not known"),
        ("include: loop.yaml", "1:10 there is no file `loop.yaml`"),
        (f"include: {'a' * 300}.yaml", f"1:10 there is no file `{'a' * 300}.yaml`"),
    ],
)
def test_nothing_in_an_include_is_left_out_without_a_problem(part: str, found: str, folder: Path) -> None:
    (folder / "part.yaml").write_text(f"{part}\n")
    (folder / "loop.yaml").symlink_to("loop.yaml")
    with pytest.raises(PlanError) as caught:
        compile_plan(folder / "p.yaml")
    assert found in [f"{one.where.line}:{one.where.column} {one.message}" for one in caught.value.problems]


def test_two_entries_of_one_id_that_extend_a_plan_are_a_problem(folder: Path) -> None:
    """The last one took the place of the base's, and the others were gone."""
    stage = "{populate: {workload: w, into: db}}"
    (folder / "q.yaml").write_text(f"proveout: 1\nname: q\nextends: p.yaml\nstages: [{stage}, {stage}]\n")
    with pytest.raises(PlanError) as caught:
        compile_plan(folder / "q.yaml")
    assert "this populate stage needs an `id`" in [one.message for one in caught.value.problems]


def test_an_inventory_replaces_hosts_and_equipment_and_lays_systems_over(folder: Path) -> None:
    """Equipment belongs to another lab."""
    assert declared(folder, "p.yaml", f"topology: {{{HOSTS}, {SYSTEMS}}}\n") == []
    own = "equipment: {san: {kind: storage, connects: h}}"
    assert declared(folder, "p.yaml", f"topology: {{{HOSTS}, {SYSTEMS}, {own}}}\n") == [("san", "storage", ("h",))]
    inventory = folder / "inventory.yaml"
    inventory.write_text(
        "topology:\n  hosts: {db1: {roles: [server, client], address: local}}\n"
        "  systems: {db: {engine: postgres, host: db1, provision: embedded}}\n"
    )
    compiled = compile_plan(folder / "p.yaml", inventory=inventory)
    assert [host.name for host in compiled.hosts] == ["db1"]
    assert compiled.system("db").settings == ()
    assert {capture.hosts for capture in compiled.captures} == {("db1",)}
    inventory.write_text("stages: []\n")
    with pytest.raises(PlanError) as caught:
        compile_plan(folder / "p.yaml", inventory=inventory)
    assert [problem.message for problem in caught.value.problems] == ["an inventory cannot hold `stages`"]


INI = """\
# the lab
jump ansible_connection=local

[databases]
db[01:02].lab ansible_user=admin
db-[a:b] ansible_port=2222 note="two words"   # a remark

[clients]
client1:2200

[site:children]
databases
clients

[databases:vars]
ansible_user = dba
rack = "7"

[site:vars]
ansible_user=site
[all:vars]
ansible_user=all
ansible_become=yes
ntp=time.lab
"""
YAML = """\
all:
  vars: {ansible_user: all, ansible_become: yes, ntp: !unsafe time.lab}
  hosts:
    jump: {ansible_connection: local}
  children:
    ungrouped: null
    site:
      vars: {ansible_user: site}
      children:
        databases:
          vars: {ansible_user: dba, rack: "7"}
          hosts:
            "db[01:02].lab": {ansible_user: admin}
            "db-[a:b]": {ansible_port: 2222, note: two words}
        clients:
          hosts:
            client1: {ansible_port: 2200}
"""


@pytest.mark.parametrize(("name", "text"), [("hosts", INI), ("hosts.yml", YAML)])
def test_groups_ranges_and_precedence_of_an_ansible_inventory(name: str, text: str, tmp_path: Path) -> None:
    problems = Problems()
    (tmp_path / name).write_text(text)
    by_name = {host.name: host for host in hosts(read(tmp_path / name, problems), problems)}
    assert not problems.found
    assert by_name["db01.lab"].groups == ("databases", "site")
    assert by_name["jump"].groups == ()
    found = {name: {key: value for key, (value, _) in host.variables.items()} for name, host in by_name.items()}
    every = {"ansible_become": "yes", "ntp": "time.lab"}
    lab = {**every, "rack": "7"}
    own = {"ansible_user": "dba", "ansible_port": "2222", "note": "two words"}
    assert found == {
        "jump": {"ansible_user": "all", "ansible_connection": "local", **every},
        **{name: {**lab, "ansible_user": "admin"} for name in ("db01.lab", "db02.lab")},
        **{name: {**lab, **own} for name in ("db-a", "db-b")},
        "client1": {"ansible_user": "site", "ansible_port": "2200", **every},
    }


def test_groups_that_meet_again_at_each_level_are_counted_once(tmp_path: Path) -> None:
    """Two groups a level, each in both of the level before: 2^40 ways from the host's group to the last one."""
    levels = [
        f"[{n}{one}:children]\n" + "".join(f"{n - 1}{two}\n" for two in "ab") for n in range(1, 41) for one in "ab"
    ]
    (tmp_path / "hosts").write_text("[0a]\nh1\n[0b]\n" + "".join(levels))
    problems = Problems()
    assert [host.name for host in hosts(read(tmp_path / "hosts", problems), problems)] == ["h1"]


def test_a_group_has_precedence_over_the_one_that_it_is_in_wherever_it_stands(tmp_path: Path) -> None:
    text = "[lab]\ndb\n[lab:vars]\nuser=lab\nport=1\n[b]\ndb\n[b:vars]\nuser=b\nport=2\n[a]\ndb\n[a:vars]\nport=3\n"
    (tmp_path / "hosts").write_text(f"{text}[lab:children]\nb\na\n")
    problems = Problems()
    (db,) = hosts(read(tmp_path / "hosts", problems), problems)
    assert {name: value for name, (value, _) in db.variables.items()} == {"user": "b", "port": "2"}
    (tmp_path / "hosts").write_text("h" * (1 << 20) + "\nlost\n")
    assert read(tmp_path / "hosts", problems) == {}
    assert texts(problems) == ["1:1 the file is larger than 1 MiB"]


def test_ranges_of_an_ansible_inventory() -> None:
    known = {
        "db[01:03]": ("db01", "db02", "db03"),
        "db[8:10].lab": ("db8.lab", "db9.lab", "db10.lab"),
        "n[0:6:3]": ("n0", "n3", "n6"),
        "r[1:2]-[a:b]": ("r1-a", "r1-b", "r2-a", "r2-b"),
        "plain": ("plain",),
    }
    assert {pattern: expanded(pattern, Where(), Problems()) for pattern in known} == known


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("[a]\nh1\n[b:children]\nc\n", 4, "there is no group `c`"),
        ("[a:kids]\n", 1, "`[a:kids]` is not a section"),
        ("[a:vars]\nuser\n", 2, "`user` is not a variable"),
        ("h1 a='b\n", 1, "cannot be read: no closing quotation"),
        ("h[9:1]\n", 1, "`[9:1]` is not a range"),
        ("h[1:999999999]\n", 1, "`h[1:999999999]` stands for 999999999 hosts"),
        ("h[²:9]\n", 1, "`[²:9]` is not a range"),
        ("h[1:9999999999]\n", 1, "`h[1:9999999999]` is not the name of a host"),
        ("[a:children]\nb\n[b:children]\na\n", 2, "the group `a` contains itself"),
        ("all:\n  host: {h1: {}}\n", 2, "a group cannot hold `host`"),
        ("all:\n  hosts: [h1]\n", 2, "`hosts` must be a mapping"),
        ("#!/usr/bin/env python3\n", 1, "a program, not an inventory"),
    ],
)
def test_what_is_wrong_with_an_ansible_inventory_has_its_line(
    text: str, line: int, message: str, tmp_path: Path
) -> None:
    problems = Problems()
    (tmp_path / "hosts").write_text(text)
    hosts(read(tmp_path / "hosts", problems), problems)
    first = problems.error().problems[0]
    assert (first.message, first.where.line) == (message, line)


# ---- the parameters of a plan as a form

ASKED = """
proveout: 1
name: asked
include: [more.yaml]
params:
  rows: {type: int, default: 1_000, min: 100, max: 100_000, help: how many}
  threads: {type: "list[int]", default: [1, 4], min: 1}
  mode: {type: text, default: sync, choices: [sync, async]}
  on: {type: bool, default: false}
  dsn: {type: text}
"""
MORE = "proveout: 1\nparams:\n  window: {type: duration, default: 10s, max: 1m}\n"


@pytest.fixture
def asked(tmp_path: Path) -> Path:
    (tmp_path / "more.yaml").write_text(MORE)
    (tmp_path / "asked.yaml").write_text(ASKED)
    return tmp_path / "asked.yaml"


def test_fields_are_those_of_the_plan_and_its_includes_without_invalid_ones(asked: Path) -> None:
    fields = {field.name: field for field in read_form(asked).fields}
    assert fields["rows"] == Field(name="rows", type="int", default="1_000", low="100", high="100_000", help="how many")
    assert (fields["threads"].default, fields["mode"].choices) == ("1, 4", ("sync", "async"))
    assert (fields["on"].default, fields["window"].high) == ("false", "1m")
    assert (fields["dsn"].required, fields["rows"].required) == (True, False)
    asked.write_text(ASKED.replace("type: bool", "type: boolean"))
    assert "on" not in {field.name for field in read_form(asked).fields}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("rows", "500", ""),
        ("rows", "5", "`rows` is below its minimum of 100"),
        ("rows", "many", "expected a whole number, not many"),
        ("threads", "1, 2, 8", ""),
        ("threads", "1, 0", "`threads` is below its minimum of 1"),
        ("mode", "async", ""),
        ("mode", "later", "`mode` is not one of its choices (one of sync, async)"),
        ("on", "true", ""),
        ("on", "3", "expected true or false, not 3"),
        ("window", "2m", "`window` is above its maximum of 1m"),
        ("dsn", "host=db1", ""),
        ("dsn", "host=\udcff", "a hidden character: U+DCFF (control character) (remove it)"),
    ],
)
def test_an_answer_is_validated_like_an_option_of_the_command_line(
    asked: Path, name: str, text: str, message: str
) -> None:
    assert read_form(asked).objection(name, text) == message
    with pytest.raises(PlanError) as caught:  # the plan lacks its topology with any answer
        compile_plan(asked, overrides={"dsn": "x", name: text})
    of_answer = [problem for problem in caught.value.problems if problem.where.file == f"-p {name}"]
    assert bool(of_answer) == bool(message)


def test_the_defaults_of_every_shipped_plan_are_valid_answers() -> None:
    for path in sorted(FOLDER.glob("*.yaml")):
        form = read_form(path)
        for field in form.fields:
            assert field.required or form.objection(field.name, field.default) == "", (path.name, field)
