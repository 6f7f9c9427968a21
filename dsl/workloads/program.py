"""The workload kind `program`: another load generator, such as pgbench or HammerDB, in place of our own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, NoReturn, TypeAlias, get_args

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from proveout.core.data_classes import dataclass
from proveout.dsl.extensions import WorkloadExtension
from proveout.dsl.plan.commands import MeasuredValue, OutputFormat, OutputRows
from proveout.dsl.plan.keys import model_of
from proveout.dsl.plan.model_values import Strict
from proveout.dsl.plan.scalars import VALUES_MAX, Id, TextOrNumber, custom
from proveout.dsl.plan.stages import WINDOWS
from proveout.dsl.rules.ladder_rules import argv_problems, output_problems, value_problems
from proveout.dsl.workloads.base import Invariant, Population, TransactionType
from proveout.dsl.workloads.mix import as_tuple

TRANSACTION = "transaction"
"""The name of the only transaction: programs do not report more."""
Parser: TypeAlias = Literal["pgbench", "sysbench", "hammerdb", "fio"]
PARSERS: tuple[Parser, ...] = get_args(Parser)

SHARE = ("threads", "total_threads", "first_thread", "rate", "total_rate", "range_from", "range_to")
LENGTHS = ("seconds", *(f"{one.name}_s" for one in WINDOWS), "ramp_up_min", "measure_min")
ITERATION = ("stage", "rung", "repeat", "attempt", "seed")
TARGET = ("host", "port", "user", "database", "socket", "connect_string", "password_file")
FIELDS = (*SHARE, *LENGTHS, *ITERATION, *TARGET)
FIELD_FORMS: Mapping[str, str] = {
    **dict.fromkeys((*SHARE, *LENGTHS, *ITERATION, "port"), "{count}"),
    **dict.fromkeys(("rate", "total_rate"), "{number}"),
    **dict.fromkeys(("stage", "user", "database"), "{word}"),
    **dict.fromkeys(("socket", "password_file"), "{path}"),
    "host": "{host}",
    "connect_string": "*",
}
"""Field -> the form of its value in a policy (`agent.security.policy.FORMS`); a glob where no form fits."""
TARGET_FIELDS: Mapping[str, tuple[str, ...]] = {
    "postgres": ("host", "port", "user", "database", "password_file"),
    "mysql": ("host", "port", "user", "database", "socket", "password_file"),
    "oracle": ("host", "port", "user", "database", "connect_string", "password_file"),
    "timesten": ("user", "connect_string", "password_file"),
    "sqlite": ("database",),
    "duckdb": ("database",),
    "none": (),
}
"""Engine -> the fields that its dsn fills."""
RESERVED = ("transactions", "tps", "errors")
"""Metrics of a summary that are the load's own numbers."""
ENVIRONMENT = "LOAD_"
"""Every field is in the environment of the program too, with this prefix, and LOAD_PASSWORD."""
_FIELD = re.compile(r"\{([^{}]*)\}")
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")

PROCEDURES = ("neword", "payment", "delivery", "ostat", "slev")
"""The stored procedures whose times HammerDB reports, in the names of its reports."""
_TIMES = ("calls", "min_ms", "avg_ms", "max_ms", "p50_ms", "p95_ms", "p99_ms")
Hosts: TypeAlias = Literal["one", "sum", "avg", "min", "max"]
BUILT_IN_VALUES: Mapping[str, Mapping[str, Hosts]] = {
    "hammerdb": {
        "nopm": "sum",
        "tpm": "sum",
        **{f"{name}_{time}": "sum" if time == "calls" else "one" for name in PROCEDURES for time in _TIMES},
    },
    "fio": {"iops": "sum", "mb_per_s": "sum", "read_iops": "sum", "write_iops": "sum"},
}
"""Parser -> the numbers that it has beside the load's, and how those of several hosts become one."""


def fields_of(argv: list[str]) -> frozenset[str]:
    """The fields of a template."""
    return frozenset(name for word in argv for name in _FIELD.findall(word))


def _template(argv: list[str]) -> list[str]:
    if unknown := sorted(fields_of(argv) - {*FIELDS}):
        raise custom(f"unknown field {{{unknown[0]}}}; the fields are {', '.join(f'{{{name}}}' for name in FIELDS)}")
    if objection := next(argv_problems(tuple(argv)), None):
        raise custom(f"{objection.message} ({objection.way_out})")
    return argv


class LogEntry(Strict):
    """The columns of a log with a row for each interval of the run, such as each second."""

    time: TextOrNumber = Field(description="The column with the end of the interval.")
    clock: Literal["run", "unix"] = Field("run", description="It counts from the start of the program, or from 1970.")
    unit: Literal["s", "ms"] = Field("s", description="The unit of `time`.")
    tps: TextOrNumber | None = Field(None, description="The column with the transactions per second of the interval.")
    transactions: TextOrNumber | None = Field(None, description="Or the column with their number in the interval.")
    errors: TextOrNumber | None = Field(None, description="The column with the failed transactions of the interval.")

    @model_validator(mode="after")
    def _one_count(self) -> LogEntry:
        if (self.tps is None) == (self.transactions is None):
            raise custom("a log needs one column of transactions: either `tps` or `transactions`")
        return self


class ProgramOutput(model_of(OutputRows)):  # type: ignore[misc]
    """The output of a program without a built-in parser: rows with named columns."""

    file: str | None = Field(
        None, description="The file with the output, in the program's folder; by default standard output."
    )
    log: LogEntry | None = Field(
        None, description="Each row is an interval: rows outside the measure window are cut. Without, a summary."
    )

    @model_validator(mode="after")
    def _readable(self) -> ProgramOutput:
        if self.file is not None and not _FILE.fullmatch(self.file):
            raise custom(f"{self.file!r} is not the name of a file: letters, digits, `.`, `_` and `-`")
        if objection := next(output_problems(self.as_rows), None):
            raise custom(f"{objection.message} ({objection.way_out})" if objection.way_out else objection.message)
        return self

    @property
    def as_rows(self) -> OutputRows:
        rows = OutputRows.of_written(self)
        by_default = self.log and not (self.format or self.pattern)
        return replace(rows, format="csv") if by_default else rows


class ProgramValue(model_of(MeasuredValue)):  # type: ignore[misc]
    """A number of the program's output."""

    hosts: Hosts = Field(
        "one", description="The number of several client hosts. `one`: there is one host; a ladder of more is refused."
    )


FORMATS: tuple[str, ...] = get_args(OutputFormat)


def _form(value: Any) -> Any:
    """An output without a built-in parser in short: its format."""
    if isinstance(value, str) and value not in (*PARSERS, *FORMATS):
        known = f"the parsers are {', '.join(PARSERS)}, the forms of rows {', '.join(FORMATS)}"
        raise custom(f"`{value[:80]}` is not a known output; {known}")
    return {"format": value} if isinstance(value, str) and value in FORMATS else value


def _parser_or_form(value: Any) -> str:
    return "[parser]" if isinstance(value, str) else "[form]"


Output: TypeAlias = Annotated[
    Annotated[Parser, Tag("[parser]")] | Annotated[ProgramOutput, Tag("[form]")],
    Discriminator(_parser_or_form),
    BeforeValidator(_form),
]


class Program(Strict):
    """Parameters of `kind: program`: another load generator, which the host's policy lists under `commands`."""

    argv: Annotated[list[str], Field(min_length=1, max_length=200), AfterValidator(_template)] = Field(
        description="The program and its arguments, without a shell. Fields: {threads} of this host's share, "
        "{total_threads} of all hosts, {first_thread} counted from 0; {rate}, {total_rate}; {range_from}, {range_to} "
        "of this host; {seconds}, or {ramp_up_s} and {measure_s} (also {ramp_up_min}, {measure_min}) and "
        "{ramp_down_s} of a program with windows of its own; {stage}, {rung}, {repeat}, {attempt}, {seed}; {host}, "
        "{port}, {user}, {database}, {socket}, {connect_string}, {password_file} of the target."
    )
    output: Output = Field(
        description="The parser of its output: pgbench (with --log), sysbench (with --report-interval=1 and "
        "--histogram=on), hammerdb (TPROC-C, timed driver), fio (with "
        "--output-format=json+ and --lat_percentiles=1). Or the form of its rows, "
        "of which `metrics` names the numbers: json, csv, pairs, or a mapping."
    )
    metrics: dict[Id, ProgramValue] = Field(
        default_factory=dict,
        max_length=VALUES_MAX,
        description="Numbers of the output by name, `ladder.at(4).program.name`. Without a log, `tps` or "
        "`transactions`, and `errors`, are those of the load. With a log, `take` is over its rows in the window.",
    )
    range: Annotated[tuple[int, int] | None, BeforeValidator(as_tuple)] = Field(
        None, description="A range of keys, [from, to], of which each client host gets the share of its threads."
    )
    exit_codes: list[int] = Field(
        default_factory=lambda: [0], min_length=1, max_length=20, description="The exit codes of success."
    )
    writes: bool = Field(True, description="Whether it changes data.")

    @model_validator(mode="after")
    def _consistent(self) -> Program:
        if objection := next(self._objections(), None):
            raise custom(objection)
        return self

    def _objections(self) -> Any:
        fields = self.fields
        if self.output != "hammerdb":  # its scripts read the environment
            if not fields & {"threads", "total_threads"}:
                yield "no argument has {threads}, so the program does not follow the rungs of a stage"
            if not fields & {"seconds", "measure_s", "measure_min"}:
                yield "no argument has {seconds} or {measure_s}, so the program does not follow the windows of a stage"
        if self.output == "pgbench" and any(word.startswith("--sampling-rate") for word in self.argv):
            yield "`--sampling-rate` leaves transactions out of the log of pgbench, which is counted: leave it out"
        if "seconds" in fields and fields & {"measure_s", "measure_min"}:
            yield "{seconds} and {measure_s} exclude each other: the windows are proveout's, or the program's own"
        if bool(self.range) != bool(fields & {"range_from", "range_to"}):
            yield "`range` and the fields {range_from} and {range_to} belong together"
        if self.range and not self.range[0] <= self.range[1]:
            yield f"the range {self.range[0]} to {self.range[1]} is empty"
        if not all(0 <= code <= 255 for code in self.exit_codes):
            yield "exit codes are numbers from 0 to 255"
        yield from self._metric_objections()

    def _metric_objections(self) -> Any:
        if not isinstance(self.output, ProgramOutput):
            if self.metrics:
                yield f"`metrics` are read from rows, and output: {self.output} has numbers of its own"
            return
        own = [name for name in RESERVED[:2] if name in self.metrics]
        if self.output.log is None and len(own) != 1:
            yield "a summary needs the metric `tps` or `transactions`, and not both: the throughput of the load"
        if self.output.log is not None and (taken := [name for name in RESERVED if name in self.metrics]):
            yield f"`{taken[0]}` is a column of the `log`, not a metric"
        for name, entry in self.metrics.items():
            if entry.kind != "level":
                yield f"metric `{name}`: `as: rate` is of captures"
            if name in RESERVED and entry.hosts not in ("one", "sum"):
                yield f"metric `{name}` of several hosts is their sum, as it is the load's own; leave `hosts` out"
        for value in self.values:
            for objection in value_problems(value, ()):
                yield f"metric `{value.name}`: {objection.message}"

    @property
    def first(self) -> int | None:
        """The lowest key of the range."""
        return self.range[0] if self.range else None

    @property
    def last(self) -> int | None:
        """The highest key of the range."""
        return self.range[1] if self.range else None

    @property
    def fields(self) -> frozenset[str]:
        return fields_of(self.argv)

    @property
    def has_own_windows(self) -> bool:
        """Whether it makes ramp-up, measure and ramp-down by itself."""
        return self.output in ("hammerdb", "fio") or bool(self.fields & {"measure_s", "measure_min"})

    @property
    def runs_whole(self) -> bool:
        """Whether one run covers the ramp-up and the measure window; otherwise the ramp-up is a run of its own."""
        has_log = isinstance(self.output, ProgramOutput) and self.output.log is not None
        return self.output == "pgbench" or has_log or self.has_own_windows

    @property
    def values(self) -> tuple[MeasuredValue, ...]:
        """The numbers that the plan names."""
        return tuple(
            MeasuredValue(name=name, column=entry.column or name, where=tuple(sorted(entry.where)), take=entry.take)
            for name, entry in self.metrics.items()
        )

    @property
    def values_over_hosts(self) -> Mapping[str, Hosts]:
        """The numbers beside the load's own by name, and how those of several hosts become one."""
        if not isinstance(self.output, ProgramOutput):
            return BUILT_IN_VALUES.get(self.output, {})
        return {name: entry.hosts for name, entry in self.metrics.items() if name not in RESERVED}


def words(argv: list[str], values: Mapping[str, str]) -> tuple[str, ...]:
    """The arguments with the fields filled in."""
    return tuple(_FIELD.sub(lambda match: values[match[1]], word) for word in argv)


def in_forms(argv: list[str], engine: str) -> tuple[str, ...]:
    """The arguments with the form of each field's value, as a policy lists them."""
    in_file = {"database": "{path}"} if engine in ("sqlite", "duckdb") else {}
    return words(argv, {**FIELD_FORMS, **in_file})


def minutes_problem(model: Program, ramp_up_s: float, measure_s: float) -> str | None:
    """The reason why windows cannot be given to a program in minutes; None when they can, or need not."""
    in_minutes = model.output == "hammerdb" or model.fields & {"ramp_up_min", "measure_min"}
    if not in_minutes or not (ramp_up_s % 60.0 or measure_s % 60.0):
        return None
    return "the program takes its windows in whole minutes"


def _body(_: Any) -> NoReturn:
    raise AssertionError  # the program runs its own transactions


@dataclass(frozen=True)
class ProgramWorkload:
    """A `base.WorkloadKind` whose load an outside program makes."""

    parameters: Program
    transactions: tuple[TransactionType, ...] = (
        TransactionType(name=TRANSACTION, weight=1.0, body=_body, statements=()),
    )
    population: Population = Population()
    invariants: tuple[Invariant, ...] = ()

    def keys(self, stream: int) -> None:
        """The program draws its own keys."""


def _load_problem(model: Program, engine: str) -> str | None:
    given = TARGET_FIELDS.get(engine)
    if given is None:
        return f"a program cannot take its target from the dsn of {engine}"
    lacking = sorted(model.fields & {*TARGET} - {*given})
    if not lacking:
        return None
    there = ", ".join(f"{{{name}}}" for name in given) or "no field"
    return f"the argument {{{lacking[0]}}} has no value, as the dsn of {engine} gives {there}"


def _stage_problems(model: Program, has_rate: bool, clients: int, ramp_up_s: float, measure_s: float) -> Iterator[str]:
    takes_rate = bool(model.fields & {"rate", "total_rate"})
    if has_rate and not takes_rate:
        yield "the stage has a rate, and no argument of its program has {rate}"
    if takes_rate and not has_rate:
        yield "an argument of its program has {rate}, and the stage no `rate`"
    if problem := minutes_problem(model, ramp_up_s, measure_s):
        yield problem
    if model.range and (keys := model.range[1] - model.range[0] + 1) < clients:
        yield f"its range has fewer keys, {keys}, than the load has client hosts, {clients}"
    alone = [name for name, hosts in model.values_over_hosts.items() if hosts == "one"]
    if clients > 1 and alone and model.metrics:
        yield f"`{alone[0]}` is a number of one client host, and the load has {clients}: give the metric `hosts`"


KIND = WorkloadExtension(
    parameters=Program,
    transactions=lambda _: (TRANSACTION,),
    build="proveout.dsl.workloads.program:ProgramWorkload",
    writes=lambda model: model.writes,
    populates=lambda _: False,
    load_problem=_load_problem,
    own_arrival=True,
    values=lambda model: model.values_over_hosts,
    stage_problems=_stage_problems,
)
