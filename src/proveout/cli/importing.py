"""`proveout import`: write a plan from the settings of another load generator.

Data flow: a fio job file, a HammerDB script, or the name of a sysbench script -> settings with their lines -> the plan
as text. Settings that the plan has no place for are named, with file and line, on the terminal and in the plan.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from proveout.cli.options import STARTERS, Unusable, typed
from proveout.cli.plan_writer import SCHEMA, plan_name, quoted, write, write_schema
from proveout.core.data_classes import record
from proveout.core.numbers import safe
from proveout.dsl import engines

EPILOG = """
  proveout import nightly.fio storage.yaml
  proveout import tprocc.tcl
  proveout import oltp_read_write
"""

Settings: TypeAlias = dict[str, tuple[str, int]]
"""Name -> value, line."""
SYSBENCH = {
    "oltp_point_select": False, "oltp_read_only": False, "oltp_read_write": True, "oltp_write_only": True,
    "oltp_insert": True, "oltp_delete": True, "oltp_update_index": True, "oltp_update_non_index": True,
}  # fmt: skip
"""The scripts of sysbench -> whether they write."""


@record
class Imported:
    """A plan without its first lines, and `left`: the settings that are not in it, `file:line: setting (reason)`."""

    text: str
    left: tuple[str, ...] = ()


def import_(
    source: Annotated[
        str, typer.Argument(help="A fio job file, a HammerDB script (.tcl), or the name of a sysbench script (oltp_…).")
    ],
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="The plan to write [default: named after SOURCE, here].")
    ] = None,
) -> None:
    """Write a plan from the settings of fio, HammerDB or sysbench; never over an existing file.

    Settings that a plan has no place for are named with their lines. Scripts of pgbench: `proveout bench --pgbench
    FILE`. Exit code 0, or 2 when nothing was written.
    """
    stem = Path(source).stem
    made = imported(source, plan_name(stem) or plan_name(f"plan-{stem}"))
    path = file or Path(f"{stem}.yaml")
    lines = [f"# yaml-language-server: $schema={SCHEMA}", f"# Made of {safe(Path(source).name)}."]
    lines += ["# Not carried over:", *(f"#   {safe(one)}" for one in made.left)] if made.left else []
    write(path, "\n".join([*lines, made.text]), "Name another file: proveout import SOURCE FILE.")
    for one in made.left:
        typer.echo(f"not carried over: {safe(one)}", err=True)
    typer.echo(f"wrote {path}")
    write_schema(path.with_name(SCHEMA))
    typer.echo(f"  proveout explain {typed(path)}    shows its stages and how long they take")


def imported(source: str, name: str) -> Imported:
    """The plan `name`. Unusable."""
    path = Path(source)
    if path.stem in SYSBENCH and (path.suffix == ".lua" or not path.is_file()):
        return _sysbench(path.stem, name)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        way_out = f"Name a file, or a script of sysbench: {', '.join(SYSBENCH)}."
        raise Unusable(f"cannot read {source}: {getattr(fault, 'strerror', '') or fault}", way_out=way_out) from None
    if re.search(r"^\s*\\(set|sleep|startpipeline)\b", text, re.MULTILINE):
        raise Unusable(f"{source} is a script of pgbench", way_out=f"proveout bench --pgbench {typed(source)}")
    if re.search(r"^\s*diset\s", text, re.MULTILINE):
        return _hammerdb(text, path.name, name)
    if any(settings.keys() & _FIO_USED for _, _, settings in list(_sections(text))):
        return _fio(text, path.name, name)
    way_out = "It has no section with an option of a fio job, and no `diset` of HammerDB."
    raise Unusable(f"{source} is of no load generator that is known here", way_out=way_out)


# ---- sysbench --------------------------------------------------------------------------------------------------------


def _sysbench(script: str, name: str) -> Imported:
    plan = STARTERS.parent / "sysbench-embedded.yaml"
    text = plan.read_text(encoding="utf-8").partition("proveout: 1\n")[2]
    text = text.replace("sysbench-embedded", name).replace("oltp_point_select", script)
    writes = "true" if SYSBENCH[script] else "false"
    return Imported(
        text=f"# A run needs a policy that lists sysbench (docs/guide/programs.md).\nproveout: 1\n{text}".replace(
            "writes: false", f"writes: {writes}"
        )
    )


# ---- fio -------------------------------------------------------------------------------------------------------------

_RW = {
    "read": (False, "100%"), "write": (False, "0%"), "randread": (True, "100%"), "randwrite": (True, "0%"),
    "rw": (False, ""), "readwrite": (False, ""), "randrw": (True, ""),
}  # fmt: skip
_FIO_ALWAYS = ("time_based", "group_reporting", "name", "stonewall", "thread", "description", "wait_for")
"""Options that say what a stage does by itself, or that change no figure."""
_FIO_USED = ("rw", "readwrite", "bs", "blocksize", "rwmixread", "rwmixwrite", "iodepth", "numjobs", "size", "filesize",
             "runtime", "ramp_time", "direct", "buffered", "ioengine", "directory", "filename")  # fmt: skip


_FIO_SYNCHRONOUS = ("sync", "psync", "vsync", "pvsync", "pvsync2", "mmap")
"""I/O engines that have one I/O at a time, whatever the depth; psync is fio's default."""


def _fio(text: str, file: str, name: str) -> Imported:
    common: Settings = {}
    stages: dict[str, str] = {}
    left: dict[str, None] = {}
    for title, line, settings in list(_sections(text)):  # a section is whole when the next one begins
        if title == "global":
            common |= settings
            continue
        found = common | settings
        id = re.sub(r"[^a-z0-9_]+", "_", title.lower()).strip("_") or "job"
        id = f"job_{id}" if not id[0].isalpha() else id
        id = next(one for one in (id, *(f"{id}_{count}" for count in range(2, len(stages) + 3))) if one not in stages)
        if stages and not {"stonewall", "wait_for"} & {*found}:
            left[f"{file}:{line}: [{title}] beside the job before it (stages run one after the other)"] = None
        stages[id] = _fio_stage(id, found, file, left)
    if not stages:
        raise Unusable(f"{file} has no job: only [global]", way_out="Add a section with a job.")
    verdicts = "".join(
        f"  - {{id: {id}-errors, title: Every I/O of {id} succeeds, check: {id}.peak.errors.count == 0}}\n"
        for id in stages
    )
    text = f"""\
proveout: 1
name: {name}
topology:
  hosts:
    store1: {{roles: [storage], address: local}}
captures:
  host: {{kind: os, on: all, every: 1s}}
stages:
{"".join(stages.values())}verdicts:
{verdicts}"""
    return Imported(text=text, left=tuple(left))


def _sections(text: str) -> Iterator[tuple[str, int, Settings]]:
    """Title, line and settings of each section. As in fio, `;` and `#` begin a comment in the middle of a line too."""
    settings: Settings = {}
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.strip()
        if bare.startswith("[") and bare.endswith("]"):
            settings = {}
            yield bare[1:-1].strip(), number, settings
            continue
        key, _, value = re.split("[;#]", bare, maxsplit=1)[0].partition("=")
        if key:
            settings[key.strip()] = value.strip(), number


def _of(found: Settings, *keys: str, default: str = "") -> str:
    """The value of the first of these settings that is there."""
    return next((found[key][0] for key in keys if key in found), default)


def _fio_stage(id: str, found: Settings, file: str, left: dict[str, None]) -> str:
    def lack(key: str, reason: str) -> None:
        value, line = found[key]
        left[f"{file}:{line}: {key}={value} ({reason})"] = None

    of = partial(_of, found)
    rw = of("rw", "readwrite", default="read").partition(":")[0]
    if rw not in _RW:
        key = "rw" if "rw" in found else "readwrite"
        raise Unusable(
            f"{file}:{found[key][1]}: rw={rw} is not a pattern of a plan", way_out=f"One of {', '.join(_RW)}."
        )
    random, read = _RW[rw]
    values = {}
    for key, (default, read_as, *names) in _FIO_NUMBERS.items():
        values[key] = read_as(of(*names)) or default
        if of(*names) and not read_as(of(*names)):
            lack(next(name for name in names if name in found), f"not one number; {default} in its place")
    if values["iodepth"] != "1" and (engine := of("ioengine", default="psync")) in _FIO_SYNCHRONOUS:
        lack("iodepth", f"1 in its place, as fio has it with ioengine={engine}")
        values["iodepth"] = "1"
    if not read:
        read = f"{values['reads'] if 'rwmixread' in found else 100 - int(values['writes'])}%"
    target = _fio_target(found, values["size"], lack)
    for key in found:
        if key == "filename" and "devices" not in target:
            lack(key, "each job has a file of its own")
        elif key == "ioengine" and of(key) != "libaio":
            lack(key, "libaio in its place")
        elif key not in (*_FIO_USED, *_FIO_ALWAYS):
            lack(key, "a `tool` stage has no such key; a program of `kind: program` takes any option")
    stage = f"""\
  - tool:
      id: {id}
      run: fio
      from: role:storage
      pattern: random-read-4k
      random: {"true" if random else "false"}
      block: {values["block"]}
      read: {read}
      iodepth: [{values["iodepth"]}]
      jobs: {values["jobs"]}
      size: {values["size"]}
      ramp_up: {values["ramp_up"]}
      measure: {values["measure"]}
      repeat: 3
      capture: [host]
"""
    if of("direct", default="0") == "0" and of("buffered", default="1") != "0":  # fio's default
        stage += "      direct: false\n"
    return stage + "".join(f"      target: {{{key}: {value}}}\n" for key, value in target.items())


def _fio_target(found: Settings, size: str, lack: Callable[[str, str], None]) -> dict[str, str]:
    """The devices of a job, or its first folder."""
    of = partial(_of, found)
    if devices := [one for one in of("filename").split(":") if one.startswith("/dev/")]:
        if not of("size", "filesize"):
            lack("filename", f"{size} for each job; it has no size")
        return {"devices": quoted(devices)}
    folder, *others = re.split(r"(?<!\\):", of("directory"))  # a colon of a name has a backslash in fio
    if others:
        lack("directory", f"{folder} in its place: a stage has one folder")
    return {"directory": quoted(folder.replace("\\:", ":"))} if folder else {}


def _size(text: str) -> str:
    """fio's 4k, 4KB, 4Ki, 4096 as a plan's, and its 4KiB, of 4,000 bytes, as 4kB: by default its units of three letters
    are the decimal ones; "" for others."""
    found = re.fullmatch(r"(\d+)\s*([kmgt]?)(i?b?)", text.strip(), re.IGNORECASE)
    if found is None:
        return ""
    unit = found[2].upper()
    if found[3].lower() == "ib":
        return f"{found[1]}{unit.replace('K', 'k')}B"
    return f"{found[1]}{unit}iB" if unit else f"{found[1]}B"


def _duration(text: str) -> str:
    """fio's times, seconds without a unit; "" for others."""
    found = re.fullmatch(r"(\d+)\s*(ms|s|m|h)?", text.strip())
    return f"{found[1]}{found[2] or 's'}" if found else ""


def _whole(text: str) -> str:
    return text if text.isdecimal() else ""


def _block(text: str) -> str:
    """The size of an I/O, which reads and writes have in common; "" for others."""
    sizes = {_size(one) for one in text.split(",")}
    return sizes.pop() if len(sizes) == 1 else ""


_FIO_NUMBERS: Mapping[str, tuple[Any, ...]] = {
    "block": ("4KiB", _block, "bs", "blocksize"), "iodepth": ("1", _whole, "iodepth"), "jobs": ("1", _whole, "numjobs"),
    "reads": ("50", _whole, "rwmixread"), "writes": ("50", _whole, "rwmixwrite"),
    "size": ("1GiB", _size, "size", "filesize"), "ramp_up": ("2s", _duration, "ramp_time"),
    "measure": ("30s", _duration, "runtime"),
}  # fmt: skip
"""Key of a stage -> its value where the job has none or another form, how it is read, its names in fio."""


# ---- HammerDB --------------------------------------------------------------------------------------------------------

_SET = re.compile(
    r"^\s*(?:diset\s+(?P<group>\w+)\s+(?P<key>\w+)|(?P<one>dbset|vuset|foreach)\s+(?P<name>\w+))\s+(?P<value>\{[^}]*\}|\S+)"
)
_PREFIXES = {"pg": "postgres", "mysql": "mysql", "maria": "mysql", "ora": "oracle"}
_ADDRESSES = {
    "postgres": ("postgresql://{}:{}@{}/{}", "5432", "tpcc"), "mysql": ("mysql://{}:{}@{}/{}", "3306", "tpcc"),
    "oracle": ("{}/{}@//{}/{}", "1521", "FREEPDB1"),
}  # fmt: skip
"""Engine -> its dsn of user, password, address and database; port, database."""
_HAMMER_USED = (
    "count_ware", "num_vu", "rampup", "duration", "allwarehouse", "keyandthink", "storedprocs", "driver", "host",
    "port", "user", "dbase", "total_iterations", "raiseerror", "superuser", "defaultdbase", "oradba", "tpcc_user",
)  # fmt: skip
_HAMMER_NUMBERS = {"count_ware": "1", "num_vu": "1", "rampup": "2", "duration": "5"}
"""Settings that are numbers -> the one in place of a variable of the script, or of none."""


def _hammerdb(text: str, file: str, name: str) -> Imported:
    engine, settings, left, users = "postgres", Settings(), list[str](), ""
    for number, line in enumerate(text.splitlines(), 1):
        found = _SET.match(line.partition("#")[0])
        if found is None:
            continue
        value = found["value"].strip("{} ")
        if found["one"] == "dbset" and found["name"] == "db":
            if value not in _PREFIXES:
                raise Unusable(
                    f"{file}:{number}: there is no engine for {value}", way_out=f"One of {', '.join(_PREFIXES)}."
                )
            engine = _PREFIXES[value]
        elif found["one"] == "dbset" and value.upper() not in ("TPC-C", "TPROC-C"):
            raise Unusable(
                f"{file}:{number}: {value} is not imported",
                way_out="TPROC-C is; for TPROC-H see docs/guide/workloads.md.",
            )
        elif found["one"] in ("vuset", "foreach") and found["name"] in ("vu", "z", "vu_count"):
            numbers = sorted({*map(int, re.findall(r"\d+", value))})
            users = ", ".join(map(str, numbers)) or users
            if not numbers and "$" not in value:
                left.append(f"{file}:{number}: {found['one']} {found['name']} {value} (no number of users)")
        elif found["key"]:
            prefix, _, key = found["key"].partition("_")
            engine = _PREFIXES.get(prefix, engine)
            settings[key if prefix in _PREFIXES else found["key"]] = value, number
            if re.search("pass", found["key"]):
                left.append(f"{file}:{number}: {found['key']} (passwords stay out of plans: set DB_PASSWORD)")
            elif key not in _HAMMER_USED and found["key"] not in _HAMMER_USED:
                left.append(f"{file}:{number}: {found['key']} {value} (a plan has no such key)")
    if "count_ware" not in settings:
        raise Unusable(f"{file} sets no number of warehouses", way_out="diset tpcc pg_count_ware 10")
    left += [
        f"{file}:{settings[key][1]}: {key} {settings[key][0]} (not a number; {instead} in its place)"
        for key, instead in _HAMMER_NUMBERS.items()
        if key in settings and not re.search(r"\d", settings[key][0])
    ]
    if not engines.of(engine).procedures:
        left.append(f"{file}: HammerDB calls stored procedures of {engine} (the plan sends SQL from the client)")
    return Imported(text=_tprocc(engine, settings, users, name), left=tuple(left))


_SWITCHES = {"allwarehouse": ", home: all", "keyandthink": ", keying: true, thinking: true"}
"""Settings of HammerDB that are true or false -> keys of the workload."""


def _tprocc(engine: str, settings: Settings, users: str, name: str) -> str:
    of = partial(_of, settings)

    def number(key: str) -> str:
        found = re.search(r"\d+", of(key))
        return found[0] if found else _HAMMER_NUMBERS[key]

    more = "".join(keys for name, keys in _SWITCHES.items() if of(name).lower() in ("true", "1"))
    if engines.of(engine).procedures:  # HammerDB always calls the server's code, of `storedprocs` another kind of it
        more += ", procedures: true"
    secret, server = "", f"{{engine: {engine}, host: db1, provision: embedded}}"
    if "host" in settings or engine == "oracle":
        form, port, database = _ADDRESSES[engine]
        address = f"{of('host', default='127.0.0.1')}:{of('port', default=port)}"
        secret = f"secrets: {{db: {{env: DB_PASSWORD, to: {quoted([address])}}}}}\n"
        user, database = of("user", "tpcc_user", default="tpcc"), of("dbase", default=database)
        dsn = quoted(form.format(user, "${secrets.db}", address, database))
        server = f"{{engine: {engine}, host: db1, dsn: {dsn}}}"
    return f"""\
proveout: 1
name: {name}
title: TPROC-C with the settings of a HammerDB script
{secret}topology:
  hosts:
    db1: {{roles: [server], address: local}}
    client1: {{roles: [client], address: local}}
  systems:
    db: {server}
workloads:
  orders: {{kind: tprocc, warehouses: {number("count_ware")}{more}}}
captures:
  host: {{kind: os, on: all, every: 1s}}
stages:
  - populate: {{id: load, workload: orders, into: db}}
  - ladder:
      workload: orders
      target: db
      threads: [{users or number("num_vu")}]
      ramp_up: {number("rampup")}m
      measure: {number("duration")}m
      ramp_down: 0s
      repeat: 3
      capture: [host]
verdicts:
  - {{id: no-errors, title: No technical error, check: ladder.peak.errors.count == 0}}
"""
