"""Ansible inventories: INI and YAML of the same hosts, ranges, precedence of variables, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from proveout.core.errors import Where
from proveout.dsl.source.ansible_inventory import Host, expanded, hosts, read
from proveout.dsl.source.nodes import Problems

INI = """\
# the lab
jump ansible_connection=local

[databases]
db[01:02].lab ansible_user=admin ; a remark of the user's guide is not one here
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
ntp=time.lab
"""
YAML = """\
all:
  vars: {ansible_user: all, ntp: time.lab}
  hosts:
    jump: {ansible_connection: local}
  children:
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


def found(tmp_path: Path, text: str, name: str = "hosts") -> tuple[Host, ...]:
    problems = Problems()
    (tmp_path / name).write_text(text)
    result = hosts(read(tmp_path / name, problems), problems)
    assert not problems.found
    return result


def values(host: Host) -> dict[str, str]:
    return {name: value for name, (value, _) in host.variables.items()}


@pytest.mark.parametrize(
    ("name", "text"),
    [("hosts", INI.replace(" ; a remark of the user's guide is not one here", "")), ("hosts.yml", YAML)],
)
def test_groups_ranges_and_precedence(name: str, text: str, tmp_path: Path) -> None:
    by_name = {host.name: host for host in found(tmp_path, text, name)}
    assert by_name.keys() == {"jump", "db01.lab", "db02.lab", "db-a", "db-b", "client1"}
    assert by_name["db01.lab"].groups == ("databases", "site")
    assert by_name["jump"].groups == ()
    assert values(by_name["db02.lab"]) == {"ansible_user": "admin", "ntp": "time.lab", "rack": "7"}
    assert values(by_name["db-b"]) == {
        "ansible_user": "dba", "ntp": "time.lab", "rack": "7", "ansible_port": "2222", "note": "two words",
    }  # fmt: skip
    assert values(by_name["client1"]) == {"ansible_user": "site", "ansible_port": "2200", "ntp": "time.lab"}
    assert values(by_name["jump"])["ansible_user"] == "all"


def test_ranges() -> None:
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
        ("h[1:99999]\n", 1, "`h[1:99999]` stands for 99999 hosts"),
        ("[a:children]\nb\n[b:children]\na\n", 2, "the group `a` contains itself"),
        ("all:\n  host: {h1: {}}\n", 2, "a group cannot hold `host`"),
        ("all:\n  hosts: [h1]\n", 2, "`hosts` must be a mapping"),
        ("#!/usr/bin/env python3\n", 1, "a program, not an inventory"),
    ],
)
def test_what_is_wrong_has_its_line(text: str, line: int, message: str, tmp_path: Path) -> None:
    problems = Problems()
    (tmp_path / "hosts").write_text(text)
    hosts(read(tmp_path / "hosts", problems), problems)
    (problem, *_) = problems.error().problems
    assert problem.message == message
    assert problem.where.line == line
