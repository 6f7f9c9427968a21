"""`proveout new`: every starter compiles under any file name, and nothing is overwritten.

`benchmarks/plans/starters.py` runs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from proveout.cli import execute
from proveout.cli.new import KINDS, STARTERS, starter
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.compile.json_schema import schema_json
from proveout.dsl.plan.stages import Ladder, Populate, Tool

EXTERNAL = {"oracle", "lab", "database"}
FIRST: Mapping[str, type[Tool | Ladder]] = {"storage": Tool, "database": Ladder}


def test_the_list_has_every_starter() -> None:
    assert {path.stem for path in STARTERS.glob("*.yaml")} == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_starter_compiles_where_it_is_written(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"My {kind}, 2nd.yaml"
    assert execute(["new", kind, str(path)]) == 0
    assert f"proveout run {path}" in capsys.readouterr().out
    plan = compile_plan(path)  # by itself: a starter includes nothing
    assert plan.name == f"My-{kind}-2nd"
    assert plan.title
    assert isinstance(plan.stages[0], FIRST.get(kind, Populate))
    assert len(plan.verdicts) >= 2
    assert all(parameter.help for parameter in plan.parameters)
    assert path.read_text().startswith("# ")
    first, second, *_ = path.read_text().splitlines()
    assert (first, second) == ("# yaml-language-server: $schema=plan.schema.json", "#")
    assert (tmp_path / "plan.schema.json").read_text() == schema_json()
    assert all(system.provision == "embedded" for system in plan.systems) == (kind not in EXTERNAL)


def test_a_name_that_no_plan_may_have_leaves_the_starters_own() -> None:
    assert "\nname: ladder\n" in starter("ladder", "2024")
    assert "\nname: ladder\n" in starter("ladder", "…")


def test_a_schema_that_is_there_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plan.schema.json").write_text("{}")
    assert execute(["new", "sql", str(tmp_path / "mine.yaml")]) == 0
    assert (tmp_path / "plan.schema.json").read_text() == "{}"
    assert "the schema of another version" in capsys.readouterr().out


def test_existing_files_are_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert execute(["new", "sql"]) == 0
    Path("sql.yaml").write_text("mine")
    assert execute(["new", "sql"]) == 2
    assert "sql.yaml exists already" in capsys.readouterr().err
    assert Path("sql.yaml").read_text() == "mine"
    Path("link.yaml").symlink_to("elsewhere.yaml")
    assert execute(["new", "sql", "link.yaml"]) == 2
    assert not Path("elsewhere.yaml").exists()
    assert execute(["new", "sql", "nowhere/x.yaml"]) == 2
    assert "No such file or directory" in capsys.readouterr().err


def test_kinds_are_listed_and_an_unknown_one_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["new"]) == 0
    assert all(
        f"\n{kind} " in f"\n{capsys_line}"
        for kind, capsys_line in zip(KINDS, capsys.readouterr().out.splitlines()[::2], strict=True)
    )
    assert execute(["new", "hrl"]) == 2
    assert "there is no starter 'hrl'" in capsys.readouterr().err
