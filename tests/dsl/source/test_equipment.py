"""Equipment of includes, bases and inventories; stages of a base."""

from __future__ import annotations

from pathlib import Path

import pytest

from proveout.dsl.compile.compiler import compile_plan

PLAN = """proveout: 1
name: p
include: [part.yaml]
topology:
  hosts: {h: {roles: [client], address: local, facts: {rack: 1}}}
  systems: {db: {engine: sqlite, host: h, provision: embedded}}
  equipment: {tor1: {kind: switch, connects: h}}
workloads: {w: {kind: tptbm, key: 10}}
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


def test_an_include_adds_equipment_and_the_plan_has_precedence(folder: Path) -> None:
    assert declared(folder, "p.yaml") == [("h", "host", ()), ("array", "storage", ("h",)), ("tor1", "switch", ("h",))]


def test_an_extending_plan_replaces_equipment_by_name(folder: Path) -> None:
    assert ("tor1", "appliance", ()) in declared(folder, "q.yaml")


def test_an_inventory_with_hosts_replaces_equipment_which_belongs_to_another_lab(folder: Path) -> None:
    assert declared(folder, "p.yaml", f"topology: {{{HOSTS}, {SYSTEMS}}}\n") == []
    own = "equipment: {san: {kind: storage, connects: h}}"
    assert declared(folder, "p.yaml", f"topology: {{{HOSTS}, {SYSTEMS}, {own}}}\n") == [("san", "storage", ("h",))]


def test_what_an_extending_plan_drops_can_be_stated_again(folder: Path) -> None:
    stages = "[{populate: null}, {populate: {workload: w, into: db}}, {pause: {duration: 1s}}]"
    (folder / "q.yaml").write_text(f"proveout: 1\nname: q\nextends: p.yaml\nstages: {stages}\n")
    assert [stage.id for stage in compile_plan(folder / "q.yaml").stages] == ["populate", "pause"]
