"""`proveout bench`: a database, a load of a size that fits, a ladder of threads, without a plan of one's own.

Data flow: the address -> a session (`database_address`) -> what fits -> a plan (`plan_writer`), written to a file ->
`proveout run` of it, with its screen -> the report and the plan, and the removal of what was made.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from proveout.agent.engines.statement_errors import rules_of
from proveout.agent.engines.table import TableLoader, adapter
from proveout.agent.errors import TaskFault
from proveout.cli import own_workload, plan_writer
from proveout.cli.database_address import Address, Database, opened, parse
from proveout.cli.options import RUNS, Headless, RunsDir, Unusable, refuse, typed
from proveout.cli.plan_writer import SCHEMA, Draft, Load, Timing, plan_name, write, write_schema
from proveout.core import units
from proveout.core.data_classes import record
from proveout.core.errors import INTERRUPTED, ProveoutError
from proveout.core.numbers import count_of, threads_by_rung
from proveout.core.numbers import seconds as seconds_text
from proveout.core.numbers import size as size_text
from proveout.dsl import engines
from proveout.dsl.plan.stages import Populate

if TYPE_CHECKING:
    from proveout.coordinator.storage.run_directory import RunDirectory

EPILOG = """
  proveout bench
  proveout bench postgresql://bench@localhost/shop --workload tpcb
  proveout bench mysql://bench@db1/bench --threads 1,4,16 --time 5m
  proveout bench shop.db --sql 'SELECT * FROM product WHERE id = :id'
  proveout bench postgresql://db1/shop --compare postgresql://db2/shop
  proveout bench --again
"""

PREFIX = "bench-"
TIME = "2m"

START_S = 12.0
"""Start of agents, checks, end and report."""
SERVER_S = 4.0
"""Start and end of a server of one's own."""
GAP_S = 1.3
"""Between the loads of two iterations."""
RAMPS_S = (0.5, 0.2)
MEASURE_S = (1.0, 3.0)
"""The shortest window, and the shortest that more repeats or more rungs leave."""
REPEATS = (3, 5)
ROWS_PER_S: Mapping[str, float] = {"postgres": 150_000.0, "sqlite": 150_000.0}
ROWS_PER_S_OTHERS = 40_000.0
"""Of populate, at the least."""
BYTES_PER_ROW = 300
"""Of a population with its indexes, and of its log."""
LOAD_SHARE, MEMORY_SHARE, DISK_SHARE = 0.25, 0.25, 0.2
"""The most that populate takes of the time, and the tables of memory and of free space."""
LARGER_SHARE = 0.125
"""The most that populate takes of the time for a scale above the threads of the ladder: the first number comes before
a larger population."""
SIZES: Mapping[str, tuple[str, int, int]] = {
    "tpcb": ("scale", 1, 64),
    "hlr": ("population", 1_000, 128),
    "tprocc": ("warehouses", 1, 16),
}
"""Of each workload the parameter of its size, how much of it is one of --scale, and the largest --scale by default."""
SLICES_S = 10.0
"""The shortest window in which two databases take turns in slices of a half second."""
THREADS_MAX = 64
RUNGS = ((1, 2, 4, 8, 16), (1, 4, 16), (1, 16))
RUNGS_OF_FILES, RUNGS_OF_CONFLICTS = ((1, 2, 4), (1, 4)), ((1, 2),)
"""The ladders by default, the first one that the time is long enough for. DuckDB's transactions do not wait for a row:
of more threads than half of the branches one fails at all of its retries."""


Dsn: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="DSN",
        help="postgresql://…, mysql://…, a file of SQLite or DuckDB, oracle://…; or postgres, mysql, sqlite, "
        "duckdb for one that proveout starts and removes [default: postgres].",
    ),
]
WorkloadName: TypeAlias = Annotated[
    Literal["tpcb", "hlr", "tprocc", "own"] | None,
    typer.Option(
        "--workload",
        metavar="NAME",
        help="tpcb, hlr, tprocc: tables of their own; own: reads of your tables [default: own where DSN has tables "
        "with keys, else tpcb].",
    ),
]
Scale: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--scale", help="Branches of tpcb, thousands of subscribers of hlr, warehouses of tprocc [default: what fits]."
    ),
]
Dsn2: TypeAlias = Annotated[
    str | None, typer.Option("--compare", metavar="DSN2", help="A second database under the same load, in turns.")
]
Sql: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--sql",
        metavar="[WEIGHT:]SQL",
        help="A statement of yours in place of a workload; :names are drawn from the columns that they are "
        "compared with. May be given again.",
    ),
]
Scripts: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--pgbench", metavar="FILE[@WEIGHT]", help="A script of pgbench. May be given again."),
]


def bench(
    dsn: Dsn = "",
    *,
    workload: WorkloadName = None,
    scale: Scale = None,
    threads: Annotated[
        str | None, typer.Option("--threads", help="The rungs: 1,4,16, or 1-64 for its powers of two.")
    ] = None,
    time: Annotated[
        str | None,
        typer.Option("--time", help=f"For all of it: start, load, measurement and report [default: {TIME}]."),
    ] = None,
    rate: Annotated[
        str | None, typer.Option("--rate", help="Open arrival at this rate, such as 500/s, by the most threads alone.")
    ] = None,
    compare: Dsn2 = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the tables that it makes in the database.")] = False,
    sql: Sql = None,
    pgbench: Scripts = None,
    again: Annotated[
        bool, typer.Option("--again", help="Run the last bench of this folder once more, and compare the two.")
    ] = False,
    headless: Headless = False,
    runs_dir: RunsDir = RUNS,
) -> None:
    """Measure a database without a plan: tables of its own or yours, a load, a ladder of threads, a report.

    It writes the plan that it runs, so that you can edit it and run it again, and removes everything
    else that it made in the database, also after Ctrl-C. A password is read from DB_PASSWORD (of DSN2
    from DB2_PASSWORD), or asked for on a terminal where the server requires one. Exit codes as of `run`.
    """
    if again:
        chosen_load = {"DSN": dsn, "workload": workload, "scale": scale, "compare": compare, "sql": sql}
        rest = {"pgbench": pgbench, "threads": threads, "time": time, "rate": rate, "keep": keep}
        refuse("--again runs the plan of the last bench as it is", **chosen_load, **rest)
        raise typer.Exit(_again(runs_dir, headless=headless))
    asked = Asked(
        workload=workload,
        scale=scale,
        rungs=rungs(threads) if threads else (),
        budget_s=unit("--time", units.duration_s, time or TIME),
        rate=per_second(rate) if rate else "",
        keep=keep,
        sql=tuple(sql or ()),
        pgbench=tuple(pgbench or ()),
    )
    addresses = [parse(text) for text in (dsn, compare) if text is not None]
    raise typer.Exit(measured(asked, [(address, {}) for address in addresses], runs_dir, headless=headless))


def measured(
    asked: Asked, addresses: Sequence[tuple[Address, Mapping[str, str]]], folder: Path, *, headless: bool
) -> int:
    """Write the plan for one or two databases, each with its settings, and carry it out; the exit code. Unusable."""
    with ExitStack() as stack:
        sides = [
            replace(stack.enter_context(opened(address, place)), settings=settings)
            for place, (address, settings) in enumerate(addresses)
        ]
        load, rows = chosen(asked, sides, folder)
        sides = [side.apart() for side in sides] if load.populates else sides
        draft = composed(asked, sides, load, rows)
        path = written(plan_writer.text(draft), draft.name)
        typer.echo(announcement(sides, draft, rows))
    return carried_out(path, sides, headless=headless, runs=folder, keep=asked.keep or not load.populates)


def rungs(text: str) -> tuple[int, ...]:
    """`1,4,16` as it is, `1-64` as the powers of two between, with both ends. typer.BadParameter."""
    way_out = f"{text!r} is not a list of threads: write 1,4,16, or 1-{THREADS_MAX} for its powers of two"
    if not re.fullmatch(r"\d+(?:\s*,\s*\d+)*|\d+-\d+", text.strip()):
        raise typer.BadParameter(way_out, param_hint="--threads")
    low, dash, high = text.partition("-")
    found = [int(word) for word in text.split(",")] if not dash else [int(low), int(high)]
    if min(found) < 1:
        raise typer.BadParameter(f"{text!r}: a load has at least 1 thread", param_hint="--threads")
    if sorted(set(found)) != found:
        raise typer.BadParameter(f"{text!r}: each rung once, rising", param_hint="--threads")
    if dash:
        found += [2**power for power in range(20) if found[0] < 2**power < found[1]]
    return tuple(sorted(found))


def unit(option: str, read: Callable[[object], float], text: str) -> float:
    """The value of an option with its unit. typer.BadParameter."""
    try:
        return read(text)
    except ValueError as fault:
        raise typer.BadParameter(str(fault), param_hint=option) from None


def per_second(rate: str) -> str:
    """A rate as plans have it, all digits and no exponent: `60/m` as `1/s`. typer.BadParameter."""
    value = unit("--rate", units.rate_per_s, rate)
    if value <= 0.0:
        raise typer.BadParameter(f"{rate}: a rate is over 0/s", param_hint="--rate")
    return f"{Decimal(repr(value)).normalize():f}/s"


@record
class Asked:
    """The options of the command line; `rungs` is empty and `scale` None where it leaves the choice."""

    workload: str | None = None
    scale: int | None = None
    rungs: Sequence[int] = ()
    budget_s: float = 120.0
    rate: str = ""
    keep: bool = False
    sql: Sequence[str] = ()
    pgbench: Sequence[str] = ()
    in_slices: bool = False


# ---- the databases ---------------------------------------------------------------------------------------------------


def guard(side: Database, tables: Sequence[str]) -> str:
    """Refuse to begin where the user may not make tables, or has some of these names; remove the schema that a killed
    bench has left, and return a note about it, "" for none. Unusable."""
    if side.session is None:
        return ""
    rules, name = rules_of(side.engine), side.address.name
    if schema := side.schema(populates=True):
        return _guard_schema(side, schema)
    if (rights := rules.rights.get("populate")) is not None and not side.rows(rights.query)[0][0]:
        raise Unusable(f"{rights.what} ({name})", way_out=rights.way_out)
    there = [table for table in tables if rules.columns and side.rows(rules.columns.format(table=table))]
    if there:
        raise Unusable(
            f"database {name} has a table {there[0]} already, and the bench makes one of that name",
            way_out="Nothing was changed. Name an empty database, drop the table, or read it as it is: --workload own",
        )
    return ""


def _guard_schema(side: Database, schema: str) -> str:
    name = side.address.name
    rows = side.rows(
        "SELECT has_database_privilege(current_database(), 'CREATE'), current_user, "  # noqa: S608 - names of ours
        f"to_regnamespace('{schema}') IS NOT NULL, obj_description(to_regnamespace('{schema}'), 'pg_namespace'), "
        "(SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
        "AND application_name LIKE 'proveout%')"
    )
    may, user, there, comment, sessions = rows[0]
    if not may:
        raise Unusable(
            f"user {user} may not make a schema in database {name}, which the tables of the bench are in",
            way_out=f"GRANT CREATE ON DATABASE {name} TO {user}; or read your own tables: --workload own",
        )
    if not there:
        return ""
    if comment != plan_writer.SCHEMA_MARK:
        raise Unusable(
            f"database {name} has a schema {schema}, of yours or kept by --keep, and the bench would make one",
            way_out=f"Rename it, or DROP SCHEMA {schema} CASCADE; `proveout bench --again` runs a bench that was kept.",
        )
    if sessions:
        raise Unusable(
            f"another bench is at work in database {name}, or one that was killed comes to its end",
            way_out="Wait for it, some seconds for one that was killed.",
        )
    side.rows(f"DROP SCHEMA {schema} CASCADE")
    return f"Removed the schema {schema} of an earlier bench from {name}."


def clean_up(side: Database, path: Path) -> None:
    """Remove what an interrupted or failed run has left in a database. Unusable where that fails."""
    from proveout.agent.load.populate_jobs import LoadJournal
    from proveout.dsl.compile.compiler import compile_plan
    from proveout.dsl.workloads.kinds import build

    plan = compile_plan(path)
    populate = next((stage for stage in plan.stages if isinstance(stage, Populate)), None)
    if side.session is None or populate is None:
        return
    try:
        if schema := side.schema(populates=True):
            with opened(side.address, side.place) as again:
                again.rows(f"DROP SCHEMA IF EXISTS {schema} CASCADE", 1)
            return
        population = build(plan.workload(populate.workload)).population
        with closing(adapter(side.engine).loader(side.login, population)) as loader:
            loader.undo()
            if isinstance(loader, TableLoader):
                LoadJournal(loader, population, "").drop()
    except (TaskFault, Unusable) as fault:
        raise Unusable(
            f"the tables of the bench are still in {side.address.name}: {fault.what}", way_out=fault.way_out
        ) from None


# ---- what fits -------------------------------------------------------------------------------------------------------


def composed(asked: Asked, sides: Sequence[Database], load: Load, rows: float) -> Draft:
    """The plan that fits the databases and the time. Unusable. `rows`: of the tables that populate makes."""
    loading_s = sum(rows / ROWS_PER_S.get(side.engine, ROWS_PER_S_OTHERS) for side in sides)
    servers_s = SERVER_S * sum(side.session is None for side in sides)
    fixed_s = START_S + servers_s + loading_s
    threads = _rungs(asked, sides, asked.budget_s - fixed_s, populates=load.populates)
    iterations = len(threads) * (1 if asked.in_slices else len(sides))
    grows_s = loading_s if asked.scale is None else 0.0
    timing = timing_of(asked, asked.budget_s - fixed_s, iterations, grows_s)
    about_s = fixed_s + iterations * timing.repeats * (timing.iteration_s + GAP_S)
    parts = dict.fromkeys(part for side in sides for part in (plan_name(side.address.name), side.engine))
    title = f"{load.title} on {' and on '.join(dict.fromkeys(engines.of(side.engine).title for side in sides))}"
    head = [
        f"Written by `proveout bench`: {load.title}, {threads_by_rung(threads)}, {timing.repeats} repeats.",
        f"Edit it and run it again: proveout run FILE. It takes about {seconds_text(about_s)}.",
    ]
    return Draft(
        name=f"{PREFIX}{'-'.join(filter(None, parts))}"[:60],
        title=title,
        head=head,
        targets=[side.target(populates=load.populates) for side in sides],
        load=load,
        threads=threads,
        timing=timing,
        rate=asked.rate,
        keep=asked.keep,
        about_s=about_s,
        in_slices=asked.in_slices,
    )


def chosen(asked: Asked, sides: Sequence[Database], room: Path) -> tuple[Load, float]:
    """The load, and the rows that populate makes for it. Unusable."""
    first = sides[0]
    if asked.sql or asked.pgbench:
        scale = None if asked.pgbench else asked.scale
        refuse("--sql and --pgbench stand in place of a workload", workload=asked.workload, scale=scale)
        return _statements(asked, sides, room)
    starts = any(side.session is None for side in sides)
    if not starts and asked.workload in (None, "own"):
        load = own_workload.of_database(first)
        if load is not None:
            refuse("your tables are read as they are; tables of its own: --workload tpcb", scale=asked.scale)
            return load, 0.0
    if asked.workload == "own":
        nothing = "a system that proveout starts has" if starts else f"{first.address.name} has"
        raise Unusable(
            f"{nothing} no tables of yours with keys to read by", way_out="--sql 'SELECT …', or --workload tpcb"
        )
    return prepared(asked, sides, room)


def plan_from(dsn: str, name: str, *, writes: bool) -> str:
    """The text of a plan whose mix is that of the database of this address. Unusable where it has no keys."""
    address = parse(dsn)
    if address.is_embedded:
        raise Unusable(f"{dsn}: proveout starts that system, so it has no tables of yours", way_out="Give a database.")
    with opened(address, 0) as side:
        load = own_workload.of_database(side, writes=writes)
        if load is None:
            raise Unusable(f"{address.name} has no statements and no keys to read by", way_out="proveout new sql")
        draft = composed(Asked(), [side], load, 0.0)
    head = [
        f"The load of {address.name}: {load.title}, as read by `proveout new own`. Nothing in it is changed"
        f"{' but by the statements below' if writes else ''}.",
        "Compare the mix with what you know, and fill in what is not known. `proveout check FILE --connect` prepares",
        "every statement; `proveout run FILE` measures.",
    ]
    return plan_writer.text(replace(draft, name=name, head=head))


def _statements(asked: Asked, sides: Sequence[Database], room: Path) -> tuple[Load, float]:
    """The load of statements or scripts of the command line. Scripts on pgbench's own tables get these. Unusable."""
    data, rows, scale = None, 0.0, asked.scale or 1
    scripts = [own_workload.Script.read(text) for text in asked.pgbench]
    for number, script in enumerate(scripts, 1):
        script.transaction(number, scale)  # a script that is not carried is the first thing to say
    if scripts and not asked.sql and all(script.is_on_tables_of_pgbench for script in scripts):
        data, rows = prepared(replace(asked, workload="tpcb"), sides, room)
        scale = int(data.lines[1].partition(": ")[2])
    first = sides[0]
    if data is None and any(side.session is None for side in sides):
        what = "--sql" if asked.sql else "--pgbench"
        raise Unusable(f"{what} names tables of a database: name its DSN", way_out=f"proveout bench DSN {what} …")
    found = [script.transaction(number, scale) for number, script in enumerate(scripts, 1)]
    unknown: list[str] = []
    if data is None and first.session is not None:
        tables = own_workload.Tables(first)
        weighted = map(own_workload.weighted, asked.sql)
        found += [
            own_workload.of_statement(tables, text, weight, number) for number, (weight, text) in enumerate(weighted, 1)
        ]
        found, unknown = list(map(tables.marked, found)), tables.unknown
    if idle := next((one for one in found if one.weight <= 0.0), None):
        raise Unusable(f"{idle.name} never runs: its weight is 0", way_out="Leave it out, or give a weight above 0.")
    counts = {"statement": len(asked.sql), "script": len(scripts)}
    title = " and ".join(count_of(count, noun) for noun, count in counts.items() if count)
    load = own_workload.load_of(found, f"{title} of yours", unknown)
    return (load if data is None else replace(load, data=data.lines, populates=True)), rows


def announcement(sides: Sequence[Database], draft: Draft, rows: float) -> str:
    """The lines that announce the load, its removal and the time it takes."""
    free = [f"{one} connections free" for side in sides if (one := side.free_connections) is not None]
    cores = count_of(os.cpu_count() or 1, "core")
    where = [one.schema for one in draft.targets if one.schema]
    tables = f" ({rows:,.0f} rows{', in the schema ' + ' and '.join(where) if where else ''})" if rows else ""
    gone = "" if not rows else ", which stay" if draft.keep else ", removed at the end"
    systems = " and ".join(side.title for side in sides)
    windows = f"{draft.timing.repeats} × {units.length(draft.timing.measure_s)} each"
    return (
        f"{'; '.join([systems, f'{cores} here', *free])}.\n"
        f"Load: {draft.load.title}{tables}{gone}.\n"
        f"{''.join(f'! {one}.{chr(10)}' for one in draft.load.scans)}"
        f"{threads_by_rung(draft.threads)}, {windows}: about {seconds_text(draft.about_s)}, start and report included. "
        "Ctrl-C cleans up."
    )


def _rungs(asked: Asked, sides: Sequence[Database], left_s: float, *, populates: bool) -> tuple[int, ...]:
    """The rungs: those asked for, else a ladder that the connections and `left_s` seconds are enough for. Unusable."""
    known = [one for side in sides if (one := side.free_connections) is not None]
    free = min(known, default=THREADS_MAX)
    if asked.rungs and known and asked.rungs[-1] > free:
        fitting = ",".join(str(count) for count in asked.rungs if count <= free) or str(max(free, 1))
        raise Unusable(
            f"{asked.rungs[-1]} threads need {asked.rungs[-1]} connections, and the server has {free} free",
            way_out=f"--threads {fitting}, or raise its limit.",
        )
    if asked.rungs:
        return tuple(asked.rungs)[-1:] if asked.rate else tuple(asked.rungs)
    files = [side.engine for side in sides if engines.of(side.engine).in_files]
    of_files = RUNGS_OF_CONFLICTS if populates and "duckdb" in files else RUNGS_OF_FILES
    ladders: Sequence[tuple[int, ...]] = of_files if files else RUNGS
    fitting_ladders = [tuple(count for count in one if count <= free) or one[:1] for one in ladders]
    if asked.rate:
        return fitting_ladders[0][-1:]
    each_s = REPEATS[0] * (MEASURE_S[1] + sum(RAMPS_S) + GAP_S)
    return next((one for one in fitting_ladders if len(one) * len(sides) * each_s <= left_s), fitting_ladders[-1])


def timing_of(asked: Asked, left_s: float, rungs: int, loading_s: float = 0.0) -> Timing:
    """Windows and repeats that take `left_s` seconds over so many rungs. Unusable where these are too few, with a time
    that is enough. `loading_s`: of populate, at a scale that grows with the time.

    >>> timing_of(Asked(), 90.0, 5)
    Timing(ramp_up_s=0.5, measure_s=4.0, ramp_down_s=0.2, repeats=3)
    """
    up_s, down_s = RAMPS_S
    least_s = (SLICES_S, SLICES_S) if asked.in_slices else MEASURE_S
    for repeats in range(REPEATS[1], REPEATS[0] - 1, -1):
        measure_s = left_s / (rungs * repeats) - up_s - down_s - GAP_S
        if measure_s >= least_s[repeats > REPEATS[0]]:
            break
    else:
        missing_s = REPEATS[0] * rungs * (least_s[0] + up_s + down_s + GAP_S) - left_s
        needed_s = asked.budget_s + missing_s + 5
        needed_s = (needed_s - loading_s) / (1.0 - LOAD_SHARE) if loading_s else needed_s
        needed = units.written_duration(round(needed_s))
        budget, of = units.format_duration(asked.budget_s), count_of(rungs, "rung")
        raise Unusable(
            f"--time {budget} is too short for {of}, start and report",
            way_out=f"--time {needed} and more, fewer --threads, or a smaller --scale.",
        )
    return Timing(ramp_up_s=up_s, measure_s=_rounded(measure_s), ramp_down_s=down_s, repeats=repeats)


def _rounded(seconds: float) -> float:
    """Down to a half second, from ten seconds on to a whole one."""
    return float(int(seconds)) if seconds >= 10 else int(seconds * 2) / 2


def prepared(asked: Asked, sides: Sequence[Database], room: Path) -> tuple[Load, float]:
    """One of the workloads with tables of its own at a size that fits, and its rows. Unusable."""
    from pydantic import ValidationError

    from proveout.dsl.workloads import kinds

    kind = asked.workload or "tpcb"
    for side in sides:
        if side.apart() is not side and side.session is not None:
            typer.echo(f"{kind} makes tables: in a file of its own, which is removed, not in {side.address.name}.")
    parameter, factor, most = SIZES[kind]
    extension = kinds.built_in(kind)

    def rows_of(scale: int) -> float:
        try:
            return float(extension.rows(extension.parameters(**{parameter: scale * factor})))
        except ValidationError as fault:
            what = fault.errors()[0]["msg"].replace("Input", f"{parameter} {scale * factor}")
            raise typer.BadParameter(what, param_hint="--scale") from None

    room = next(folder for folder in (room, *room.parents) if folder.exists())
    disk = shutil.disk_usage(room).free
    scale = 1 if asked.scale is None else asked.scale
    if asked.scale is None:
        per_s = min(ROWS_PER_S.get(side.engine, ROWS_PER_S_OTHERS) for side in sides)
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        room_rows = min(MEMORY_SHARE * memory, DISK_SHARE * disk) / BYTES_PER_ROW
        time_rows = asked.budget_s * per_s / len(sides)
        while scale * 2 <= most:
            share = LOAD_SHARE if scale < RUNGS[0][-1] else LARGER_SHARE
            if rows_of(scale * 2) > min(room_rows, share * time_rows):
                break
            scale *= 2
    rows = rows_of(scale)
    if rows * BYTES_PER_ROW * len(sides) > disk and any(side.apart().session is None for side in sides):
        raise Unusable(
            f"the tables need about {size_text(rows * BYTES_PER_ROW)} ({rows:,.0f} rows), and the disk of {room} has "
            f"{size_text(disk)} free",
            way_out="Give a smaller --scale." if scale > 1 else "Free some space there, or name another --runs-dir.",
        )
    for side in (side.apart() for side in sides):
        if note := guard(side, extension.tables(extension.parameters(**{parameter: scale * factor}))):
            typer.echo(note)
    title = f"{kind}, {parameter} {scale * factor:,}"
    return Load(title=title, lines=(f"kind: {kind}", f"{parameter}: {scale * factor}"), populates=True), rows


# ---- the run ---------------------------------------------------------------------------------------------------------


def written(text: str, stem: str | Path) -> Path:
    """The file of a plan: a new one, or one that has this very text. Unusable."""
    for number in range(1, 1_000):
        path = Path(f"{stem}{f'-{number}' if number > 1 else ''}.yaml")
        if not path.exists():
            break
        if path.is_file() and path.read_text(encoding="utf-8", errors="replace") == text:
            return path
    write(path, text)
    if not path.with_name(SCHEMA).exists():
        write_schema(path.with_name(SCHEMA))
    return path


def carried_out(path: Path, sides: Sequence[Database], *, headless: bool, runs: Path, keep: bool) -> int:
    """Run the plan, say where it is, and remove what the run has left; the exit code."""
    from proveout.cli import run
    from proveout.coordinator.storage.journal import is_driven

    code, killed = INTERRUPTED, None
    removes = not keep and any(side.session is not None for side in sides)
    try:
        try:
            run.run(path, headless=headless, runs_dir=runs, removes=removes)
        except typer.Exit as end:
            code = end.exit_code
        except run.RunKilled as fault:
            killed = fault
    finally:
        of_plan = list(runs_of(runs, path))  # also of another bench that has this plan, in the same tables
        found = next((one for one in of_plan if is_driven(one.path)), None)
        with ExitStack() as each:  # where one cannot be cleaned up, the other one is
            for side in () if keep or found else sides:
                each.callback(clean_up, side, path)
    if killed is not None:
        if removes:
            _end(killed)
            killed.way_out = f"Its tables are removed: run it again from the start, proveout run {typed(path)}."
        raise killed
    if removes and found is not None:
        if found == of_plan[0]:  # else it is that of another bench, which removes them itself
            found.write_command(replace(found.command(), removes=False))
        typer.echo("Its last stages remove the tables that it made.")
    elif removes and code == INTERRUPTED:
        typer.echo("The tables that it made are removed: run it again from the start, it cannot be resumed.")
    typer.echo(f"Plan: {path}; edit it and run it again: proveout run {typed(path)}")
    return code


def _end(killed: ProveoutError) -> None:
    """Record the end of a run whose process was killed, so that it is not resumed without its tables."""
    from proveout.coordinator.storage.journal import Journal, read
    from proveout.proto.events import RunFinished

    directory = Path(killed.where)
    events = read(directory)
    seconds = events[-1].unix_s - events[0].unix_s if events else 0.0
    with Journal(directory) as journal:
        end = RunFinished(status="failed", exit_code=killed.exit_code, reason=killed.what, seconds=seconds)
        journal.append(end)


def runs_of(runs: Path, path: Path | None = None) -> Iterator[RunDirectory]:
    """The runs of plans that a bench has written, or of this one, newest first. Others may be damaged, or begin just
    now."""
    from proveout.coordinator.storage import run_directory

    for found in run_directory.all_runs(runs):
        try:
            plan = Path(found.command().plan)
        except ProveoutError:
            continue
        if plan == path.absolute() if path else plan.name.startswith(PREFIX):
            yield found


def _again(runs: Path, *, headless: bool) -> int:
    """Run the plan of the last bench once more, and compare that with its last run that has finished, if any; the exit
    code of the run. Unusable."""
    from proveout.cli.compare import compare
    from proveout.coordinator.history.runs import read_folder
    from proveout.dsl.compile.compiler import compile_plan
    from proveout.dsl.workloads.kinds import table_names

    last = next(runs_of(runs), None)
    if last is None:
        raise Unusable(f"{runs} has no run of a bench yet", way_out="proveout bench DSN")
    path = Path(last.command().plan)
    if not path.exists():
        raise Unusable(f"the plan of the last bench is gone: {path}", way_out="proveout bench DSN")
    plan = compile_plan(path)
    populates = next((stage.workload for stage in plan.stages if isinstance(stage, Populate)), None)
    keep = not any(stage.id.startswith("removal_from_") for stage in plan.stages)
    with ExitStack() as stack:
        found = (replace(parse(system.dsn or system.engine), password=None) for system in plan.systems)
        sides = [stack.enter_context(opened(address, place)) for place, address in enumerate(found)]
        for side in sides if populates is not None and not keep else ():  # populate makes kept tables again
            if note := guard(side, table_names(plan.workload(str(populates)))):
                typer.echo(note)
    folder = read_folder(runs)
    whole = {folder.directories[run.run] for run in folder.runs if run.status == "finished"}
    before = next((one for one in runs_of(runs, path) if one.path in whole), last)
    code = carried_out(path, sides, headless=headless, runs=runs, keep=keep)
    after = next(runs_of(runs, path), None)
    if after is not None and after.path != last.path and code != INTERRUPTED:
        with suppress(typer.Exit):  # of the comparison
            compare([before.name, after.name], despite=True, runs_dir=runs)
    return code
