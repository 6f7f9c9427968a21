"""Plans that commands write: one or two databases, a workload, a ladder of threads; and the files that they go to.

Data flow: `Draft` (`proveout bench`, `proveout new own`) -> `text` -> a YAML file that a person edits and runs again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import typer

from proveout.cli.options import Unusable, typed
from proveout.core import units
from proveout.core.data_classes import field, record
from proveout.core.numbers import safe
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

    @property
    def described(self) -> str:
        """Its name and title."""
        return f"{self.name} ({self.title})"

    @property
    def place(self) -> str:
        """Where it is, as the keys of a system have it."""
        if self.dsn:
            return f"dsn: {quoted(self.dsn)}"
        settings = ", ".join(f"{name}: {quoted(value)}" for name, value in self.settings.items())
        version = f", version: {self.version}" if self.version else ""
        return f"provision: embedded{version}{f', settings: {{{settings}}}' if settings else ''}"

    @property
    def waits(self) -> str:
        """The name of the capture of its waits, "" where its engine has none."""
        return f"waits-of-{self.name}" if engines.of(self.engine).waits else ""


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
    """The plan, ready to be written to a file: by the template `bench_plan.yaml.j2`, in which `{{ "" }}` is an empty
    line, as one after a line of `%` is lost."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=select_autoescape(), undefined=StrictUndefined,
        line_statement_prefix="%", keep_trailing_newline=True,
    )  # fmt: skip
    environment.filters |= {
        "quoted": quoted,
        "length_of": units.written_duration,
        "threads": count_threads,
        "shown": safe,
    }
    apart = [(f"on_{target.name}", [target]) for target in draft.targets]
    return environment.get_template("bench_plan.yaml.j2").render(
        draft=draft,
        ladders=[("ladder", draft.targets)] if draft.in_slices or len(apart) == 1 else apart,
        loaded="data" if draft.load.data else "load",
        schema_mark=SCHEMA_MARK,
        slice=SLICE,
        known=f"{KNOWN:g}",
        falls=FALLS,
    )


def quoted(value: object) -> str:
    """A text, number or list as YAML has it, texts in quotes."""
    return json.dumps(value, ensure_ascii=False)


# ---- files ----------------------------------------------------------------------------------------------------------

SCHEMA = "plan.schema.json"
"""The file beside a new plan that its first line points editors at."""


def write_schema(path: Path) -> None:
    """Write the schema for editors where there is none. A plan does not need it, so that a failure is a message."""
    from proveout.dsl.compile.json_schema import schema_json

    try:
        if not path.exists():
            write(path, schema_json())
        elif path.read_bytes() != schema_json().encode():
            typer.echo(f"kept {path}, the schema of another version; `proveout schema > {typed(path)}` renews it")
    except (Unusable, OSError) as fault:
        typer.echo(f"warning: {getattr(fault, 'what', fault)}: editors cannot check the plan", err=True)


def write(path: Path, text: str, way_out: str = "Name another file: proveout new KIND FILE.") -> None:
    """Write a new file, and make its folder. Unusable when it exists, with the `way_out`; a part of it is removed."""
    made = False
    try:
        if not path.parent.exists():
            path.parent.mkdir(parents=True)
        with path.open("x", encoding="utf-8") as stream:
            made = True
            stream.write(text)
    except OSError as fault:
        if made:
            path.unlink(missing_ok=True)
        if isinstance(fault, FileExistsError) and path.exists():
            raise Unusable(f"{path} exists already", way_out=way_out) from fault
        way_out = "It needs a directory that you can write, with room."
        raise Unusable(f"{path} cannot be written: {fault.strerror}", way_out=way_out) from fault
