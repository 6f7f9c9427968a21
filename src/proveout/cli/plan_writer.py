"""Plans that commands write: one or two databases, a workload, a ladder of threads; and the files that they go to.

Data flow: `Draft` (`proveout bench`, `proveout new own`) -> `text` -> a YAML file that a person edits and runs again.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import typer

from proveout.core import units
from proveout.core.data_classes import field, record
from proveout.core.errors import ProveoutError
from proveout.core.numbers import threads as count_threads
from proveout.dsl import engines

KNOWN = 1.5
"""The interval of the rate of the highest rung: its upper end over its lower one."""
FALLS = 0.9
"""The highest rung is worse than the peak where its ratio to it is below this, its whole interval."""
SLICE = "500ms"
SCHEMA_MARK = "Made by proveout bench, which drops it"
"""The comment of a schema of the bench's own."""


@record
class Target:
    """A database of a draft. `dsn`: "" for one that proveout starts, with `version` and `settings`; `schema`: one of
    its own to make, "" for none; `secret`: the environment variable with its password, "" for none, and `to`, the host
    that it may be sent to where it is not this one."""

    name: str
    engine: str
    dsn: str = ""
    schema: str = ""
    secret: str = ""
    to: tuple[str, ...] = ()
    version: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The name of its engine for people, with its version and settings."""
        engine = engines.of(self.engine).title + (f" {self.version}" if self.version else "")
        return ", ".join([engine, *(f"{name}={value}" for name, value in self.settings.items())])


@record
class Timing:
    """Windows of each iteration in seconds, and how often each rung is measured."""

    ramp_up_s: float
    measure_s: float
    ramp_down_s: float
    repeats: int

    @property
    def iteration_s(self) -> float:
        """The load of one iteration."""
        return self.ramp_up_s + self.measure_s + self.ramp_down_s


@record
class Load:
    """A workload to write. `lines`: those of its mapping, without indentation; `data`: those of the workload that
    populate loads where it is another one; `populates`: whether populate makes its tables; `unknown`: what its writer
    did not know, for the head of the plan; `scans`: a sentence for each transaction that reads a table whole."""

    title: str
    lines: Sequence[str]
    data: Sequence[str] = ()
    populates: bool = False
    unknown: Sequence[str] = ()
    scans: Sequence[str] = ()


@record
class Draft:
    """A plan to write. `head`: lines of its first comment; `rate`: as in plans, "" for closed arrival; `keep`: what
    populate makes stays; `about_s`: how long it takes, all included; `in_slices`: of a half second the targets take
    turns within each window, in place of a ladder for each."""

    name: str
    title: str
    head: Sequence[str]
    targets: Sequence[Target]
    load: Load
    threads: Sequence[int]
    timing: Timing
    rate: str = ""
    keep: bool = False
    about_s: float = 0.0
    in_slices: bool = False


def plan_name(text: str) -> str:
    """The text as the name of a plan; "" where nothing is left of it."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-_")[:60]
    return name if re.match(r"[A-Za-z]", name) else ""


def text(draft: Draft) -> str:
    """The plan, ready to be written to a file."""
    return "".join(f"{line}\n" if line else "\n" for line in _lines(draft))


def _lines(draft: Draft) -> Iterator[str]:
    yield "# yaml-language-server: $schema=plan.schema.json"
    yield "#"
    yield from (f"# {line}".rstrip() for line in draft.head)
    if draft.load.unknown:
        yield "#"
        yield "# Not known:"
        yield from (f"#   - {line}" for line in draft.load.unknown)
    yield "#"
    yield "proveout: 1"
    yield f"name: {draft.name}"
    yield f"title: {quoted(draft.title)}"
    yield ""
    yield from _parameters(draft)
    yield ""
    yield from _topology(draft.targets)
    yield ""
    yield "workloads:"
    yield from _below("load", draft.load.lines)
    if draft.load.data:
        yield from _below("data", draft.load.data)
    yield ""
    yield "captures:                                   # measured during the load"
    yield "  host: {kind: os, on: all, every: 1s}"
    yield from (
        f"  {_waits(target)}: {{kind: waits, system: {target.name}, every: 500ms}}"
        for target in draft.targets
        if engines.of(target.engine).waits
    )
    yield ""
    yield "stages:"
    yield from _stages(draft)
    yield ""
    yield "verdicts:"
    yield from _verdicts(draft)


def _parameters(draft: Draft) -> Iterator[str]:
    rungs = ", ".join(map(str, draft.threads))
    yield "params:                                     # override each with -p NAME=VALUE"
    yield f'  threads: {{type: "list[int]", default: [{rungs}], min: 1, help: the rungs}}'
    yield (
        f"  measure: {{type: duration, default: {units.length(draft.timing.measure_s)}, min: 1s, "
        "help: the window of each iteration that counts}"
    )
    yield (
        f"  repeats: {{type: int, default: {draft.timing.repeats}, min: 2, max: 100, "
        "help: how often each rung is measured}"
    )


def _topology(targets: Sequence[Target]) -> Iterator[str]:
    yield "topology:"
    yield "  hosts:"
    yield "    here: {roles: [server, client], address: local}"
    yield "  systems:"
    for target in targets:
        settings = ", ".join(f"{name}: {quoted(value)}" for name, value in target.settings.items())
        version = f", version: {target.version}" if target.version else ""
        embedded = f"provision: embedded{version}{f', settings: {{{settings}}}' if settings else ''}"
        place = f"dsn: {quoted(target.dsn)}" if target.dsn else embedded
        yield f"    {target.name}: {{engine: {target.engine}, host: here, {place}}}"
    secret = [target for target in targets if target.secret]
    if secret:
        yield ""
        yield "secrets:                                    # read when a run begins, never written"
    for target in secret:
        to = f", to: [{', '.join(map(quoted, target.to))}]" if target.to else ""
        yield f"  {target.name}: {{env: {target.secret}{to}}}"


def _stages(draft: Draft) -> Iterator[str]:
    names = ", ".join(target.name for target in draft.targets)
    loaded = "data" if draft.load.data else "load"
    schemas = [target for target in draft.targets if target.schema]
    for target in schemas:
        yield "  - sql:                                    # tables of its own, apart from yours"
        yield f"      id: schema_of_{target.name}"
        yield f"      system: {target.name}"
        yield "      statements:"
        yield f"        - CREATE SCHEMA IF NOT EXISTS {target.schema}"
        yield f"        - COMMENT ON SCHEMA {target.schema} IS '{SCHEMA_MARK}'"
    if draft.load.populates:
        yield f"  - populate: {{id: tables, workload: {loaded}, into: [{names}]}}"
    for place, target in enumerate(draft.targets[:1] if draft.in_slices else draft.targets):
        yield "  - ladder:"
        yield f"      id: {_ladder(draft, place)}"
        if place:
            yield "      order: interleaved                    # in turns with the ladder before"
            yield f"      with: {_ladder(draft, 0)}"
        if draft.in_slices:
            yield f"      versus: {SLICE}                         # they take turns in slices of each window"
            yield "      loads:"
            yield from (f"        {one.name}: {{workload: load, target: {one.name}}}" for one in draft.targets)
        else:
            yield "      workload: load"
            yield f"      target: {target.name}"
        yield "      threads: ${params.threads}"
        if draft.rate:
            yield f"      rate: {draft.rate}"
        yield f"      ramp_up: {units.length(draft.timing.ramp_up_s)}"
        yield "      measure: ${params.measure}"
        yield f"      ramp_down: {units.length(draft.timing.ramp_down_s)}"
        yield "      repeat: ${params.repeats}"
        waits = [
            _waits(one) for one in (draft.targets if draft.in_slices else [target]) if engines.of(one.engine).waits
        ]
        yield f"      capture: [{', '.join(['host', *waits])}]"
    if draft.keep or not draft.load.populates:
        return
    for target in draft.targets:
        if target.schema:
            drop = f"DROP SCHEMA {target.schema} CASCADE"
            yield f"  - sql: {{id: removal_from_{target.name}, system: {target.name}, statements: [{drop}]}}"
        elif target.dsn:
            yield f"  - drop: {{id: removal_from_{target.name}, workload: {loaded}, systems: [{target.name}]}}"


def _waits(target: Target) -> str:
    return f"waits-of-{target.name}"


def _ladder(draft: Draft, place: int) -> str:
    return "ladder" if draft.in_slices or len(draft.targets) == 1 else f"on_{draft.targets[place].name}"


def _verdicts(draft: Draft) -> Iterator[str]:
    last = draft.threads[-1]
    if draft.in_slices:
        yield from _of_slices(draft)
        return
    ladders = [(_ladder(draft, place), target) for place, target in enumerate(draft.targets)]
    for ladder, target in ladders:
        of = f"-{target.name}" if len(ladders) > 1 else ""
        top = f"{ladder}.at({last})"
        yield f"  - id: no-errors{of}"
        yield "    title: No technical error"
        yield f"    check: {ladder}.peak.errors.count == 0 && {top}.errors.count == 0"
        yield f"  - id: known{of}"
        yield f"    title: The rate at {count_threads(last)} is known within a factor of {KNOWN:g}"
        yield "    severity: warn                          # reported, but does not fail the run"
        yield f"    check: {top}.tps.upper <= {KNOWN:g} * {top}.tps.lower"
        if draft.rate:
            yield f"  - id: rate-held{of}"
            yield "    title: The rate is held"
            yield f"    check: {top}.tps.lower >= 0.99 * {draft.rate.removesuffix('/s')}"
        elif len(draft.threads) > 1:
            yield f"  - id: holds{of}"
            yield f"    title: The rate at {count_threads(last)} is not shown to be below nine tenths of the highest"
            yield "    severity: warn"
            yield f"    check: ratio({top}.tps, {ladder}.peak.tps).upper >= {FALLS}"
    if len(ladders) == 2:
        (first, reference), (second, target) = ladders
        for rung in draft.threads:
            ratio = f"ratio({second}.at({rung}).tps, {first}.at({rung}).tps)"
            yield from _no_slower(reference, target, rung, ratio)


def _of_slices(draft: Draft) -> Iterator[str]:
    """A verdict on errors, and one for each rung on the throughput of the second target over that of the first."""
    reference, target = draft.targets
    yield "  - id: no-errors"
    yield "    title: No technical error"
    yield f"    check: ladder.at({draft.threads[-1]}).errors.count == 0"
    for rung in draft.threads:
        yield from _no_slower(reference, target, rung, f"ladder.at({rung}).loads.{target.name}.versus.tps_ratio")


def _no_slower(reference: Target, target: Target, rung: int, ratio: str) -> Iterator[str]:
    """A verdict on the throughput of a rung over that of the reference, with the sentence of its answer."""
    one, other = f"{target.name} ({target.title})", f"{reference.name} ({reference.title})"
    at = count_threads(rung)
    yield f"  - id: {target.name}-at-{rung}"
    yield f"    title: {quoted(f'{one} is at least as fast as {other}, {at}')}"
    yield "    severity: warn"
    yield f"    check: {ratio}.lower >= 1"
    yield f"    answer: {quoted(f'With {at} the throughput of {one} is ${{{ratio}}} that of {other}')}"


def _below(name: str, lines: Sequence[str]) -> Iterator[str]:
    yield f"  {name}:"
    yield from (f"    {line}" if line else "" for line in lines)


def quoted(value: object) -> str:
    """A text, number or list as YAML has it, texts in quotes."""
    return json.dumps(value, ensure_ascii=False)


# ---- files ----------------------------------------------------------------------------------------------------------

SCHEMA = "plan.schema.json"
"""The file beside a new plan that its first line points editors at."""


class NotWritten(ProveoutError):
    """Nothing was written."""

    exit_code = 2


def write_schema(path: Path) -> None:
    """Write the schema for editors where there is none. A plan does not need it, so that a failure is a message."""
    from proveout.dsl.compile.json_schema import schema_json

    if path.exists():
        if path.read_bytes() != schema_json().encode():
            typer.echo(f"kept {path}, the schema of another version; `proveout schema > {path}` renews it")
        return
    try:
        write(path, schema_json())
    except NotWritten as fault:
        typer.echo(f"warning: {fault.what}: editors cannot check the plan", err=True)


def write(path: Path, text: str) -> None:
    """Write a new file, and make its folder. NotWritten when it exists."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except OSError as fault:
        if path.exists():
            raise NotWritten(f"{path} exists already", way_out="Name another file: proveout new KIND FILE.") from fault
        raise NotWritten(f"{path} cannot be written: {fault.strerror}") from fault
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)
