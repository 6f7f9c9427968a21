"""Operations on files, programs and services: `file`, `command`, `ini_section`, `limits`, `package_present`,
`service`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    WithJsonSchema,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from proveout.core import units
from proveout.dsl.operations.change import Command, UnitAction, UnitVerb
from proveout.dsl.operations.facts import Facts, OutputQuery, PackageQuery, UnitFact, UnitQuery
from proveout.dsl.operations.operation import (
    ACCOUNT,
    CONF_NAME,
    AbsolutePath,
    Account,
    Found,
    Line,
    Mode,
    Operation,
    OwnPath,
    UnitName,
    edited_file,
    in_folder,
    matching,
    no_control,
    numbers_as_text,
    whole_file,
)
from proveout.dsl.plan.model_values import Strict
from proveout.dsl.plan.scalars import ID_PATTERN, Form, custom
from proveout.dsl.source.nodes import Map

# A template is Jinja's syntax with names alone: `{{ name }}`, rendered when the plan is compiled, with values that
# stand on one line. Only its program can judge the file: `validator` names a check of the host's policy that must
# accept it first.

SIZE_MAX = 256 * 1024


def _file_value(value: object) -> object:
    if not isinstance(value, str):
        raise custom("the value of a template is a text on one line, or a number")
    return no_control(value)


NUMBER_OR_TEXT = WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "number"}]})
Word: TypeAlias = Annotated[str, BeforeValidator(_file_value), NUMBER_OR_TEXT]


def rendered(template: str, values: Mapping[str, str]) -> str:
    """The text with each `{{ name }}` in its place. Raises ValueError for any other Jinja syntax, and for names without
    a value."""
    import jinja2  # noqa: PLC0415 - most plans have no template
    from jinja2 import nodes  # noqa: PLC0415

    try:
        tree = jinja2.Environment(autoescape=False, keep_trailing_newline=True).parse(template)  # noqa: S701 - no HTML
    except jinja2.TemplateSyntaxError as error:
        raise ValueError(f"the template is not well-formed at its line {error.lineno}: {error.message}") from None
    except RecursionError:
        raise ValueError("the template is nested too deeply: it holds names only, {{ name }}") from None
    parts: list[str] = []
    for output in tree.body:
        for node in output.nodes if isinstance(output, nodes.Output) else [output]:
            match node:
                case nodes.TemplateData(data=data):
                    parts.append(data)
                case nodes.Name(name=name) if name in values:
                    parts.append(values[name])
                case nodes.Name(name=name):
                    raise ValueError(f"the template's `{name}` has no value: give it in `values`")
                case _:
                    raise ValueError("a template holds names only, {{ name }}")
    return "".join(parts)


class File(Operation):
    """A file with its content, mode and owner: `{path: /etc/app/app.conf, content: "…"}`."""

    path: OwnPath = Field(description="Its path; its folder must exist.")
    content: Annotated[str, Field(max_length=SIZE_MAX)] | None = Field(None, description="All that is in it.")
    template: Annotated[str, Field(max_length=SIZE_MAX)] | None = Field(
        None, description="Or a template of it, with {{ name }} for each of `values`."
    )
    values: dict[Annotated[str, Field(pattern=ID_PATTERN)], Word] = Field(
        default_factory=dict, max_length=200, description="Values of a template's names, each on one line."
    )
    mode: Mode = Field(0o644, description='Permissions, as "0644".')
    owner: Account = "root"
    group: Account = "root"
    validator: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{0,64}$")] = Field(
        "", description="A validator of the host's policy that has to accept the new content before it is in place."
    )

    privileges = "root: writes files that the host's policy lists"

    @classmethod
    def reshape(cls, block: Map) -> Map:
        """The block with the numbers of its `values` as the plan writes them."""
        return numbers_as_text(block, "values")

    @model_validator(mode="after")
    def _one_text(self) -> Self:
        if (self.content is None) == (self.template is None):
            raise ValueError("a file has either `content` or a `template`")
        if self.content is not None and self.values:
            raise ValueError("`values` are for a `template`")
        if "\x00" in self._text():
            raise ValueError("a NUL cannot stand in a text file")
        if self.template is not None:
            unused = [name for name in self.values if name not in self.template]
            if unused:
                raise ValueError(f"the template has no `{unused[0]}`")
        return self

    def _text(self) -> str:
        return self.content if self.content is not None else rendered(self.template or "", self.values)

    def targets(self) -> Mapping[str, str]:
        return {f"file {self.path}": f"{self.mode:04o} {self.owner}:{self.group} {self._text()}"}

    def wanted(self) -> tuple[str, ...]:
        checked = f", checked by {self.validator}" if self.validator else ""
        head = f"{self.path}: {self.mode:04o} {self.owner}:{self.group}{checked}"
        return (head, *(f"  {line}" for line in self._text().splitlines()))

    def steps(self, facts: Facts) -> Iterable[Found]:
        access = {"mode": self.mode, "owner": self.owner, "group": self.group}
        return whole_file(facts, self.path, self._text().encode(), validator=self.validator, **access)


# Programs and arguments are the plan's own, so none of the checks of the other operations protects the host: the policy
# must list each of them under `tools` with a reason. What applies and reverts may run twice (after a crash it is
# unknown whether it ran), so both have to be written that way.


def _argv(words: list[str]) -> list[str]:
    if words[0].rpartition("/")[0] == "" or not words[0].startswith("/"):
        raise custom(f"`{words[0]}` is not the absolute path of a program")
    if "/../" in f"{words[0]}/" or "//" in words[0] or words[0].endswith("/"):
        raise custom(f"`{words[0]}` is not a plain path: no `..`, `//` or `/` at the end")
    if any("${secrets." in word for word in words):
        raise custom("a secret cannot be an argument: every user of a host can read the arguments of its programs")
    return words


def _within(value: str) -> str:
    if not 0.0 < units.duration_s(value) <= units.DAY_S:
        raise custom(f"{value} is out of bounds: a program runs for more than 0s and at most 1d")
    return value


Argv: TypeAlias = Annotated[list[Line], Field(min_length=1, max_length=100), AfterValidator(_argv)]
Place: TypeAlias = Annotated[
    AbsolutePath, matching(r"/dev/[A-Za-z0-9][A-Za-z0-9._:+@/-]*", "`{value}` is not a path below /dev")
]
Argvs: TypeAlias = Annotated[list[Argv], Field(max_length=20)]


class CommandVerify(Strict):
    """The check that shows that nothing is left to do: devices that are there, or a program that succeeds."""

    run: Argv | None = Field(None, description="A program that changes nothing: its exit code must be 0.")
    prints: Line | None = Field(None, description="A text that its output must hold too.")
    exists: list[Place] = Field([], max_length=200, description="Paths below /dev that must be there.")

    @model_validator(mode="after")
    def _checks_something(self) -> Self:
        if self.run is None and not self.exists:
            raise custom("nothing is checked: give `run`, `exists` or both")
        if self.prints is not None and self.run is None:
            raise custom("`prints` is about the output of `run`, which is missing")
        return self


class HostCommand(Operation):
    """Programs that change the host where a check does not hold: `{verify: {exists: [/dev/mapper/fcion1p2]}, apply:
    [[/usr/sbin/partprobe, /dev/mapper/fcion1]]}`. Without `apply` it only checks."""

    verify: CommandVerify = Field(description="The check: it runs before the programs and after them.")
    apply: Argvs = Field([], description="Programs with their arguments, in order, where the check does not hold.")
    revert: Argvs = Field(
        [], description="Programs that undo it; they may run where there is nothing to undo. Without any, `keep: true`."
    )
    within: Annotated[str, AfterValidator(_within)] = Field("60s", description="The time limit of each program.")

    privileges = "root: starts programs of the plan"

    @model_validator(mode="after")
    def _applies_what_it_reverts(self) -> Self:
        if self.revert and not self.apply:
            raise custom("`revert` undoes `apply`, which is missing")
        return self

    @property
    def changing(self) -> bool:
        return bool(self.apply)

    @property
    def lasting(self) -> str:
        """The effect of its programs, where none undoes it."""
        return f"what {shlex.join(self.apply[0])} does" if self.apply and not self.revert else ""

    @property
    def longest_s(self) -> float:
        """The limits of its programs: they may all be undone too, and the check runs three times."""
        return units.duration_s(self.within) * (3 + len(self.apply) + len(self.revert))

    def targets(self) -> Mapping[str, str]:
        return {f"command {self._check}": "; ".join(map(shlex.join, self.apply))}

    @property
    def _check(self) -> str:
        words = [f"{path} is there" for path in self.verify.exists]
        if self.verify.run is not None:
            prints = f" and prints {self.verify.prints!r}" if self.verify.prints is not None else ""
            words.append(f"{shlex.join(self.verify.run)} succeeds{prints}")
        return ", ".join(words)

    def wanted(self) -> tuple[str, ...]:
        head = self._check if self.apply else f"must hold, or the run ends: {self._check}"
        return (head, *(f"  by {shlex.join(argv)}" for argv in self.apply))

    def steps(self, facts: Facts) -> Iterable[Found]:
        missing = self._missing(facts)
        if not missing or not self.apply:
            return missing
        # The first change is undone last, so the programs that undo stand in reverse.
        undo = (self._command(undo=argv) for argv in reversed(self.revert))
        return (*undo, *(self._command(argv=argv) for argv in self.apply))

    def _command(self, argv: Sequence[str] = (), undo: Sequence[str] = ()) -> Command:
        within_s, lasting = units.duration_s(self.within), not self.revert
        return Command(argv=tuple(argv), undo=tuple(undo), of_plan=True, lasting=lasting, within_s=within_s)

    def _missing(self, facts: Facts) -> list[str]:
        found = [f"{path} is not there" for path in self.verify.exists if facts.link(path) is None]
        if self.verify.run is None:
            return found
        program, within_s = shlex.join(self.verify.run), units.duration_s(self.within)
        output = facts.ask(OutputQuery(tuple(self.verify.run), of_plan=True, within_s=within_s))
        if output.code != 0:
            last = (output.text.strip().splitlines() or ["no message"])[-1][:300]
            return [*found, f"{program} ends with exit code {output.code}: {last}"]
        if self.verify.prints is not None and self.verify.prints not in output.text:
            return [*found, f"{program} does not print {self.verify.prints!r}"]
        return found


# The file is edited, not replaced: every byte that is not the value of an attribute of that section stays, comments,
# order, blanks and line ends too. Names of sections and attributes are compared without regard to case, as ODBC does.

_LINE = re.compile(rb"[^\n]*\n|[^\n]+")


def _value(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise custom(f"{units.shown(value)} is not a value of an attribute: a number or text")
    text = no_control(str(value))
    if text != text.strip() or len(text) > 500:
        raise custom(f"{text!r} is not a value of an attribute: no blanks around it, 500 characters at most")
    return text


def _once_each(given: dict[str, str]) -> dict[str, str]:
    names: dict[str, str] = {}
    for key in given:
        if (first := names.setdefault(key.lower(), key)) != key:
            raise custom(f"`{first}` and `{key}` are one attribute: their case does not count")
    return given


Name: TypeAlias = Annotated[
    str, matching(r"[A-Za-z_][A-Za-z0-9_.-]{0,79}", "`{value}` is not the name of an attribute, as PermSize")
]
Section: TypeAlias = Annotated[
    str, matching(r"[A-Za-z0-9]([A-Za-z0-9 _.:-]{0,78}[A-Za-z0-9_.:-])?", "`{value}` is not the name of a section")
]
Text: TypeAlias = Annotated[str, BeforeValidator(_value), NUMBER_OR_TEXT]


class IniSection(Operation):
    """Attributes of a section of an INI file: `{file: /opt/TimesTen/conf/sys.odbc.ini, section: hlrcache, set:
    {PermSize: 620000}}`."""

    file: OwnPath = Field(description="The file; it has to be there.")
    section: Section = Field(description="The section, without its brackets.")
    set: Annotated[
        dict[Name, Text],
        Field(min_length=1, max_length=200, description="Attribute to value; other attributes stay."),
        AfterValidator(_once_each),
    ]
    create: bool = Field(False, description="Add the section at the end of the file where there is none.")

    privileges = "may write the ini file"

    @classmethod
    def reshape(cls, block: Map) -> Map:
        """The block with the numbers of `set` as the plan writes them."""
        return numbers_as_text(block, "set")

    def targets(self) -> Mapping[str, str]:
        return {f"{self.file} [{self.section.lower()}] {key.lower()}": value for key, value in self.set.items()}

    def wanted(self) -> tuple[str, ...]:
        return (f"{self.file} [{self.section}]:", *(f"  {key}={value}" for key, value in self.set.items()))

    def steps(self, facts: Facts) -> Iterator[Found]:
        """The file with the attributes; mode and owner stay."""
        before = facts.file(self.file)
        if before.kind != "file":
            yield f"{self.file} {'is not there' if before.kind == 'absent' else f'is a {before.kind}, not a file'}"
            return
        edited = edit(before.content, self.section, self.set, create=self.create)
        if isinstance(edited, str):
            yield f"{self.file} {edited}"
        else:
            yield from edited_file(self.file, before, edited)


def edit(content: bytes, section: str, wanted: Mapping[str, str], *, create: bool) -> bytes | str:
    """`content` with the attributes of the section as wanted; or, as text, why that cannot be."""
    lines = _LINE.findall(content)
    heads = [(number, name) for number, line in enumerate(lines) if (name := _head(line)) is not None]
    found = [number for number, name in heads if name == section.lower()]
    if len(found) > 1:
        return f"has the section [{section}] {len(found)} times"
    if not found:
        return _with_section(content, section, wanted) if create else f"has no section [{section}]"
    last = start = found[0]
    pairs: dict[str, list[int]] = {}
    for number in range(start + 1, next((number for number, _ in heads if number > start), len(lines))):
        if (pair := _pair(lines[number])) is not None:
            last = number
            pairs.setdefault(_lower(pair[0].partition(b"=")[0]).strip(), []).append(number)
    missing: list[tuple[str, str]] = []
    for key, value in wanted.items():
        same = pairs.get(key.lower(), [])
        if len(same) > 1:
            return f"has {key} twice, in lines {same[0] + 1} and {same[1] + 1}"
        if (pair := _pair(lines[same[0]]) if same else None) is not None:
            lines[same[0]] = value.encode().join(pair)
        else:
            missing.append((key, value))
    return b"".join(_appended(lines, last, missing))


def _appended(lines: list[bytes], after: int, missing: Sequence[tuple[str, str]]) -> list[bytes]:
    """The lines with new attributes after the last one of the section."""
    if not missing:
        return lines
    ended = lines[after] if lines[after].endswith(b"\n") else lines[0]
    ending = b"\r\n" if ended.endswith(b"\r\n") else b"\n"
    last = lines[after] if lines[after].endswith(b"\n") else lines[after] + ending
    new = [f"{key}={value}".encode() + ending for key, value in missing]
    return [*lines[:after], last, *new, *lines[after + 1 :]]


def _with_section(content: bytes, section: str, wanted: Mapping[str, str]) -> bytes:
    ending = b"\r\n" if b"\r\n" in content else b"\n"
    gap = b"" if not content else ending if content.endswith(b"\n") else ending * 2
    lines = [f"[{section}]", *(f"{key}={value}" for key, value in wanted.items())]
    return content + gap + b"".join(line.encode() + ending for line in lines)


def _head(line: bytes) -> str | None:
    """The name of the section that a line begins; like `_pair` without a pattern, whose time for a long line of blanks
    grows with the square of its length."""
    text, ends, _ = line.lstrip().partition(b"]")
    name = text[1:].strip()
    return _lower(name) if ends and text[:1] == b"[" and not {*b"\r\n"} & {*name} else None


def _pair(line: bytes) -> tuple[bytes, bytes] | None:
    """The parts of `key = value` before and after the value; None for a comment and any other line."""
    key, equals, rest = line.partition(b"=")
    text = rest.removesuffix(b"\n").removesuffix(b"\r")
    if not equals or not key or key[0] in b";#[" or b"\r" in key + text:
        return None
    value = text.strip(b" \t")
    begin = len(key) + 1 + len(text) - len(text.lstrip(b" \t"))
    return line[:begin], line[begin + len(value) :]


def _lower(name: bytes) -> str:
    return name.decode("utf-8", errors="replace").lower()


Item: TypeAlias = Literal[
    "as", "core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nice", "nofile", "nproc", "rss", "rtprio",
    "sigpending", "stack",
]  # fmt: skip


def _limit(value: object) -> object:
    if value == "unlimited" or (isinstance(value, int) and not isinstance(value, bool) and -20 <= value < 2**63):
        return str(value)
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,19}", value):
        return value  # from the compiled plan
    raise custom(f"{value} is not a limit: a whole number, or unlimited")


Domain: TypeAlias = Annotated[str, matching(rf"\*|@?{ACCOUNT}", "`{value}` is not a user, an @group or *")]
LIMITS: tuple[JsonSchemaValue, ...] = ({"type": "integer"}, {"const": "unlimited"})
Limit: TypeAlias = Annotated[str, BeforeValidator(_limit), WithJsonSchema({"anyOf": [*LIMITS]})]


class Pair(Strict):
    """A soft and a hard limit."""

    soft: Limit
    hard: Limit


def _limits_pair(value: object) -> object:
    """One limit for both."""
    return value if isinstance(value, (dict, Pair)) else {"soft": value, "hard": value}


class OrLimit:
    """In the JSON Schema: also one limit."""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [handler(core), *LIMITS]}


Both: TypeAlias = Annotated[Pair, BeforeValidator(_limits_pair), OrLimit()]


class Limits(Operation):
    """Limits of users and groups, in force for logins from then on: `{file: …, users: {oracle: {memlock:
    unlimited}}}`."""

    file: Annotated[AbsolutePath, in_folder("/etc/security/limits.d", CONF_NAME)] = Field(
        description="The file of /etc/security/limits.d that holds them, whole and alone."
    )
    users: dict[Domain, Annotated[dict[Item, Both], Field(min_length=1)]] = Field(
        min_length=1, max_length=100, description="User, @group or *, to item, to a limit or {soft: …, hard: …}."
    )

    privileges = "root: writes /etc/security/limits.d"

    def _pairs(self) -> Iterator[tuple[str, str, Pair]]:
        return ((user, item, pair) for user, items in self.users.items() for item, pair in items.items())

    def _lines(self) -> Iterator[str]:
        for user, item, pair in self._pairs():
            limits = {"-": pair.soft} if pair.soft == pair.hard else {"soft": pair.soft, "hard": pair.hard}
            yield from (f"{user} {kind} {item} {limit}" for kind, limit in limits.items())

    def targets(self) -> Mapping[str, str]:
        each = {f"limit {item} of {user}": f"{pair.soft} {pair.hard}" for user, item, pair in self._pairs()}
        return {f"file {self.file}": "\n".join(self._lines()), **each}

    def wanted(self) -> tuple[str, ...]:
        return (f"{self.file}, for logins from then on:", *(f"  {line}" for line in self._lines()))

    def steps(self, facts: Facts) -> Iterable[Found]:
        return whole_file(facts, self.file, "".join(f"{line}\n" for line in self._lines()).encode())


Package: TypeAlias = Annotated[
    str, matching(r"[A-Za-z0-9][A-Za-z0-9+._:-]{0,127}", "`{value}` is not the name of a package")
]


class PackagePresent(Operation):
    """Packages (rpm or dpkg) that the host must have: `{packages: [tuned]}`. Nothing is installed; the run ends where
    one is missing."""

    packages: Annotated[list[Package], Form(or_one=True)] = Field(
        min_length=1, max_length=200, description="Their names."
    )

    privileges = "runs rpm or dpkg"

    @property
    def changing(self) -> bool:
        return False

    def targets(self) -> Mapping[str, str]:
        return {f"package {name}": "present" for name in self.packages}

    def wanted(self) -> tuple[str, ...]:
        return (f"must be installed, or the run ends: {', '.join(self.packages)}",)

    def steps(self, facts: Facts) -> Iterable[Found]:
        missing = (name for name in self.packages if facts.ask(PackageQuery(name)) is None)
        return (f"package {name} is not installed" for name in missing)


class Service(Operation):
    """A systemd unit stopped, running, enabled or disabled: `{unit: tuned, state: stopped, enabled: false}`."""

    unit: UnitName = Field(description="Its name; without a kind it is a service.")
    state: Literal["running", "stopped"] | None = Field(None, description="Whether it runs now.")
    enabled: bool | None = Field(None, description="Whether it starts with the host.")

    privileges = "root: starts, stops, enables and disables units"

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.state is None and self.enabled is None:
            raise ValueError("this does nothing: give `state`, `enabled` or both")
        return self

    def targets(self) -> Mapping[str, str]:
        found = {} if self.state is None else {f"unit {self.unit}": self.state}
        return found if self.enabled is None else found | {f"start of {self.unit} with the host": str(self.enabled)}

    def wanted(self) -> tuple[str, ...]:
        words: list[str] = [] if self.state is None else [self.state]
        words += [] if self.enabled is None else ["enabled" if self.enabled else "disabled"]
        return (f"{self.unit} is {' and '.join(words)}",)

    def steps(self, facts: Facts) -> Iterator[Found]:
        """Stopped before it is disabled, enabled before it is started; a unit that is not there neither runs nor is
        enabled."""
        unit = facts.ask(UnitQuery(self.unit))
        if unit is None:
            if self.state == "running" or self.enabled:
                yield f"this host has no unit {self.unit}"
        elif self.enabled is not None and unit.enabled is None:
            word = "enabled" if self.enabled else "disabled"
            yield f"{self.unit} cannot be {word}: it is {unit.state or 'of no kind that is'}"
        elif self.enabled is False and unit.state == "enabled-runtime":
            why = "enabled until the next boot only, which `systemctl disable` leaves and nothing would bring back"
            yield f"{self.unit} cannot be disabled: it is {why}"
        elif self.state == "stopped" and unit.active and unit.state.startswith("masked"):
            yield f"{self.unit} cannot be stopped: it runs and is masked, so nothing could start it again"
        else:
            actions = list(self._actions(unit))
            yield from reversed(actions) if self.enabled else actions

    def _actions(self, unit: UnitFact) -> Iterator[UnitAction]:
        running = None if self.state is None else self.state == "running"
        switches: tuple[tuple[bool | None, bool | None, UnitVerb, UnitVerb], ...] = (
            (running, unit.active, "start", "stop"),
            (self.enabled, unit.enabled, "enable", "disable"),
        )
        for wanted, now, on, off in switches:
            if wanted is not None and wanted != now:
                yield UnitAction(unit=self.unit, verb=on if wanted else off, undo=off if wanted else on)
