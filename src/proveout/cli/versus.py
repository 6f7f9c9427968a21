"""`proveout versus`: two databases, versions or settings, side by side in slices of one window, without a plan.

Data flow: two variants in words -> the plan of `proveout bench` for both, or a plan of the user's whose ladder becomes
one of two loads in turns -> a file -> `proveout run` of it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer
import yaml

from proveout.cli import bench, plan_writer
from proveout.cli.database_address import Address, opened, parse
from proveout.cli.options import RUNS, Headless, RunsDir, Unusable, refuse
from proveout.core import units
from proveout.core.numbers import threads as count_threads

EPILOG = """
  proveout versus postgres shared_buffers=16MB
  proveout versus postgres:16 postgres:18
  proveout versus postgresql://db1/shop postgresql://db2/shop --threads 8
  proveout versus synchronous_commit=on synchronous_commit=off --plan shop.yaml
"""

SETTINGS = re.compile(
    r"(?:(?P<system>[a-z]+(?::\d+)?):)?(?P<settings>[A-Za-z_][\w.]*=[^=,]*(?:,[A-Za-z_][\w.]*=[^=,]*)*)"
)
CONNECTION = re.compile(r"(?:host|dbname|service|user|port|password)\w*\s*=|.*://")
THREADS = (4,)
MEASURE, REPEATS = "30s", 3
"""Of the ladder of a plan."""
KEPT = ("from", "threads", "processes", "ramp_up", "ramp_down", "think", "capture", "workers", "limits", "retries")
"""The keys of its ladder that stay."""
SECTIONS = ("proveout", "params", "topology", "secrets", "workloads", "captures", "pools", "tuning")
GROUPED = ("propagates_to", "standby_of", "in_front_of", "restore", "instances")
"""Keys of a system that is not one by itself."""

Variant: TypeAlias = Annotated[
    str,
    typer.Argument(
        help="A database as of `bench`: postgresql://…, a file, postgres, postgres:16; or settings of one that "
        "proveout starts, with --plan of its system: work_mem=64MB,jit=off, postgres:16:jit=off."
    ),
]


def versus(
    a: Variant,
    b: Variant,
    *,
    plan: Annotated[
        Path | None, typer.Option("--plan", help="Take data, load and threads from the first ladder of this plan.")
    ] = None,
    workload: bench.WorkloadName = None,
    scale: bench.Scale = None,
    threads: Annotated[
        str | None, typer.Option("--threads", help="The rungs: 1,4,16 [default: 4, or those of the plan].")
    ] = None,
    time: Annotated[
        str | None, typer.Option("--time", help=f"For all of it, without a plan [default: {bench.TIME}].")
    ] = None,
    sql: bench.Sql = None,
    headless: Headless = False,
    runs_dir: RunsDir = RUNS,
) -> None:
    """Compare two databases, versions or settings, under one load that they take in turns, in slices of a half second.

    A is the reference. A neighbour or a drift of the machine hits both, so that the interval of B over A is known in a
    fraction of the time of two runs. It writes the plan that it runs, and removes what it made, as
    `bench` does; with --plan, tables stay as the plan leaves them. Exit codes as of `run`.
    """
    rungs = bench.rungs(threads) if threads else ()
    if plan is None:
        asked = bench.Asked(
            workload=workload,
            scale=scale,
            rungs=rungs or THREADS,
            budget_s=bench.unit("--time", units.duration_s, time or bench.TIME),
            sql=tuple(sql or ()),
            in_slices=True,
        )
        raise typer.Exit(bench.measured(asked, [variant(a), variant(b)], runs_dir, headless=headless))
    refuse("that of the plan counts", workload=workload, scale=scale, time=time, sql=sql)
    path = bench.written(derived(plan, (a, b), rungs), plan.with_name(f"{plan.stem}-versus"))
    raise typer.Exit(bench.carried_out(path, (), headless=headless, runs=runs_dir, keep=True))


def settings_of(text: str) -> tuple[str, dict[str, str]] | None:
    """The system (`postgres:16`), "" where it is left out, and the settings; None for an address."""
    is_file = os.path.isfile(text)  # noqa: PTH113 - it never raises
    found = None if CONNECTION.match(text) or is_file else SETTINGS.fullmatch(text)
    if found is None:
        return None
    return found["system"] or "", dict(pair.split("=") for pair in found["settings"].split(","))


def variant(text: str) -> tuple[Address, Mapping[str, str]]:
    """A database, or one that proveout starts with settings. Unusable."""
    found = settings_of(text)
    if found is None:
        return parse(text), {}
    address = parse(found[0] or "postgres")
    if not address.is_embedded:
        raise Unusable(f"{text}: settings are of a system that proveout starts", way_out="postgres:work_mem=64MB")
    return address, found[1]


# ---- a plan of the user's --------------------------------------------------------------------------------------------


def derived(path: Path, variants: tuple[str, str], rungs: tuple[int, ...]) -> str:
    """The text of the plan whose first ladder has two loads in turns, one for each variant. PlanError; Unusable."""
    from proveout.dsl.compile.compiler import compile_plan
    from proveout.dsl.source.includes import read
    from proveout.dsl.source.nodes import Problems, plain

    compile_plan(path)
    document = read(path, None, Problems())
    assert document is not None  # noqa: S101 - it has compiled
    whole: dict[str, Any] = plain(document)  # type: ignore[assignment]
    stages: list[dict[str, Any]] = whole["stages"]
    place = next((number for number, one in enumerate(stages) if "target" in one.get("ladder", {})), None)
    if place is None:
        raise Unusable(f"{path} has no ladder of one load", way_out="Write `versus: 500ms` into a ladder with `loads`.")
    ladder = stages[place]["ladder"]
    sides = _Sides(whole, ladder["target"])
    loads = {name: sides.load(name, text, ladder) for name, text in zip("ab", variants, strict=True)}
    listed = rungs or ladder.get("threads", ladder.get("processes"))
    written = listed if isinstance(listed, Sequence) else [listed]
    last = [*written] if all(isinstance(one, int) for one in written) else []  # a parameter has its rungs when compiled
    own = {key: ladder[key] for key in KEPT if key in ladder} | ({"threads": list(rungs)} if rungs else {})
    measured = {"id": "duet", "versus": plan_writer.SLICE, "loads": loads, **own, "measure": MEASURE, "repeat": REPEATS}
    kept = [one for stage in stages[:place] for one in sides.stages(stage)]
    check = "duet.{}.loads.b.versus.tps_ratio.lower >= 1"
    name = plan_writer.plan_name(f"{whole['name']}-versus")
    title = " over ".join(map(_shown, reversed(variants)))
    plan = {key: whole[key] for key in SECTIONS if key in whole} | {
        "name": name,
        "title": title,
        "stages": [*kept, {"ladder": measured}],
        "verdicts": [
            {"id": f"b-at-{rung}", "title": f"{title}: no slower, {count_threads(rung)}", "severity": "warn",
             "check": check.format(f"at({rung})")}
            for rung in last
        ] or [{"id": "b", "title": f"{title}: no slower", "severity": "warn", "check": check.format("peak")}],
    }  # fmt: skip
    return yaml.safe_dump(plan, sort_keys=False, allow_unicode=True, width=120)


def _shown(text: str) -> str:
    """A variant as it was typed, an address without its password."""
    address = None if settings_of(text) else parse(text)
    return text if address is None or address.is_embedded else address.dsn()


class _Sides:
    """The two systems of a plan, of which the plan has the one called `name`."""

    def __init__(self, whole: dict[str, Any], name: str) -> None:
        self._whole, self._systems, self._name = whole, whole["topology"]["systems"], name
        self._plain = deepcopy(self._systems.get(name))
        if self._plain is None or any(key in self._plain for key in GROUPED):
            what = "is a parameter" if self._plain is None else "is part of a group of systems"
            raise Unusable(
                f"system {name} of the plan {what}", way_out="Write `versus: 500ms` into a ladder with `loads`."
            )
        self._names: list[str] = []

    def load(self, name: str, text: str, ladder: Mapping[str, Any]) -> dict[str, Any]:
        """The load of a variant, whose system is added to the plan where it has one of its own. Unusable."""
        found, session, engine = settings_of(text), dict(ladder.get("session", {})), self._plain["engine"]
        load = {"workload": ladder["workload"]}
        if found is not None and found[0] not in ("", engine) and parse(found[0]).engine != engine:
            raise Unusable(f"{text}: the system of the plan is {engine}", way_out="Leave it out.")
        if found is not None and "provision" not in self._plain:
            if ":" in found[0]:
                raise Unusable(f"{text}: the system of the plan runs already", way_out="Leave the version out.")
            return load | {"target": self._system(self._plain, shared=True), "session": session | found[1]}
        name, settings = found or (text, {})
        address = parse(name or engine)
        if "provision" in self._plain and address.is_embedded and address.engine == engine:
            system = self._plain | {"settings": self._plain.get("settings", {}) | settings}
        else:
            system = self._of_address(address, len(self._names))
        if address.version is not None:
            system = system | {"version": address.version}
        return load | {"target": self._system(system)} | ({"session": session} if session else {})

    def _of_address(self, address: Address, place: int) -> dict[str, Any]:
        with opened(address, place) as side:
            target = side.target(populates=False)
        system = {"engine": target.engine, "host": self._plain["host"]}
        if target.secret:
            to = {"to": list(target.to)} if target.to else {}
            self._whole.setdefault("secrets", {})[target.name] = {"env": target.secret, **to}
        return system | ({"dsn": target.dsn} if target.dsn else {"provision": "embedded"})

    def _system(self, system: Mapping[str, Any], *, shared: bool = False) -> str:
        """The name of a system: the first has that of the plan's."""
        name = f"{self._name}-b" if self._names and not shared else self._name
        self._names.append(name)
        self._systems[name] = dict(system)
        return name

    def stages(self, stage: Mapping[str, Any]) -> list[dict[str, Any]]:
        """A stage before the ladder, for both systems; none for one that measures."""
        ((kind, body),) = stage.items()
        if kind in ("ladder", "search", "tool"):
            return []
        first, *others = dict.fromkeys(self._names)
        for key in ("into", "systems"):
            given = [body[key]] if isinstance(body.get(key), str) else body.get(key)
            if given and first in given:
                return [{kind: body | {key: [*given, *others]}}]
        if body.get("system") != first:
            return [dict(stage)]
        return [dict(stage), *({kind: body | {"id": f"{body.get('id', kind)}_b", "system": one}} for one in others)]
