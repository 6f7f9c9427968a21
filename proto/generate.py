"""Write `agent.proto` and its stubs: `python -m proveout.proto.generate` writes them, `--check` compares them.

`--release` writes `released.json`, the numbers that the release has; a test holds later descriptors against it.

Flow: records -> `proto_text` -> protoc (grpcio-tools, mypy-protobuf) in a new directory -> compared with, or copied to,
this package. Both need the `dev` extra. The mapping `proveout/proto=<here>` makes protoc write imports of
`proveout.proto`.
"""

from __future__ import annotations

import ast
import inspect
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import tokenize
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import Field, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

from proveout.core.errors import ProveoutError
from proveout.proto.wire import agent_pb2, messages
from proveout.proto.wire.messages import PACKAGE, PROTOCOL_VERSION, AgentMessage, CoordinatorMessage, member_name
from proveout.proto.wire.results import Reading, TransactionLoad
from proveout.proto.wire.tasks import Task

# The text of `agent.proto`, written from the records that travel. For `proto.generate` alone: it reads their sources.
#
# Flow: `proto_text(committed, released)` follows the fields of the unions `CoordinatorMessage` and `AgentMessage` ->
# for each record a message, for each named `Literal` an enum, for each union a oneof -> text. A message has the
# docstring of its record as its comment; a field the comment in the line of its attribute, or in the lines just above
# it; an enum the docstring below its name.
#
# Numbers are kept by the file itself: a field that the committed file has with the same name and type keeps its number,
# any other gets one above all that its message has had. Numbers whose fields have gone, there or since the last
# release, are reserved.

WIDTH = 120
HEADER = """\
// The wire between the coordinator and an agent: one bidirectional stream per agent, over mutual TLS.
// docs/extend/client.md shows a client.
//
// Written by `python -m proveout.proto.generate` from the records in Python; change those. Times named `*_ns` are
// nanoseconds on the CLOCK_MONOTONIC of the host that the message is about, unless stated otherwise. The value 0 of an
// enum is never sent. `optional` marks what may be left out; all other fields are always meant, also at their default.
// A field number, once released, is never given to something else.
syntax = "proto3";
"""
SERVICE = """\
service Agent {
  // One session. The first message is a Hello; the answer to it is a Welcome or a Refused.
  rpc Session(stream CoordinatorEnvelope) returns (stream AgentEnvelope);
}
"""
VALUES = """\
// No value, as null in JSON.
message Nothing {}

// A list of values.
message Values {
  repeated Value items = 1;  // the values, nested at most 32 deep
}

// A parameter or a fact.
message Value {
  // exactly one of them
  oneof kind {
    string text = 1;  // a text
    int64 integer = 2;  // a whole number
    double real = 3;  // any other number
    bool flag = 4;  // a truth value
    Values items = 5;  // a list
    Nothing nothing = 6;  // no value
  }
}

// A text with a name.
message NamedText {
  string name = 1;  // the name
  string value = 2;  // the text
}

// A whole number with a name.
message NamedCount {
  string name = 1;  // the name
  int64 value = 2;  // the number
}

// A number with a name.
message NamedNumber {
  string name = 1;  // the name
  double value = 2;  // the number
}

// A value with a name.
message NamedValue {
  string name = 1;  // the name
  Value value = 2;  // the value
}
"""
"""The messages of values and pairs, which have no record in Python."""
_UNIONS = (typing.Union, types.UnionType)
_SCALARS = {str: "string", int: "int64", float: "double", bool: "bool", bytes: "bytes"}
_PAIRS = {str: "NamedText", int: "NamedCount", float: "NamedNumber"}
_IN_COLUMNS = {Reading: "ReadingColumns", TransactionLoad: "TransactionColumns"}


class Source:
    """The docstrings and comments of a module."""

    def __init__(self, module: types.ModuleType) -> None:
        text = inspect.getsource(module)
        self.path = module.__file__ or module.__name__
        self.name = module.__name__
        self.body = ast.parse(text).body
        self._comments: dict[int, str] = {}
        self._alone: set[int] = set()
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                self._comments[token.start[0]] = token.string.removeprefix("#").strip()
                if not token.line[: token.start[1]].strip():
                    self._alone.add(token.start[0])

    def record(self, name: str) -> ast.ClassDef:
        """The definition of a class."""
        return next(one for one in self.body if isinstance(one, ast.ClassDef) and one.name == name)

    def text_of_record(self, node: ast.ClassDef) -> str:
        """Its docstring. ProveoutError without one."""
        return ast.get_docstring(node) or self._refuse(node.name, node.lineno)

    def text_of_alias(self, name: str) -> str:
        """The docstring below `NAME: TypeAlias = …`, here or where it is imported from. ProveoutError without one."""
        for node, below in zip(self.body, [*self.body[1:], None], strict=True):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
                if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                    return inspect.cleandoc(str(below.value.value))
                return self._refuse(name, node.lineno)
            if isinstance(node, ast.ImportFrom) and any(one.name == name for one in node.names):
                return Source(sys.modules[str(node.module)]).text_of_alias(name)
        return self._refuse(name, 1)

    def text_of_field(self, record: ast.ClassDef, field: Field[Any]) -> str:
        """The comment above and beside an attribute, and the text of its key, as one line. ProveoutError without."""
        node = _attribute(record, field.name)
        first = node.lineno
        while first - 1 in self._alone:
            first -= 1
        lines = [self._comments[line] for line in range(first, node.lineno)]
        if "key" in field.metadata:  # of a part of the plan
            lines.append(field.metadata["key"].text)
        lines += [self._comments.get(line, "") for line in range(node.lineno, (node.end_lineno or 0) + 1)]
        return " ".join(filter(None, lines)) or self._refuse(f"{record.name}.{field.name}", node.lineno)

    def _refuse(self, what: str, line: int) -> typing.NoReturn:
        raise ProveoutError(
            f"{what} goes over the wire and has no comment",
            where=f"{self.path}:{line}",
            way_out="Say what it is there, with its unit, its bounds, and who sends it when.",
        )


def _attribute(record: ast.ClassDef, name: str) -> ast.AnnAssign:
    return next(
        one
        for one in record.body
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and one.target.id == name
    )


class Numbers:
    """The numbers of a message or an enum: those that it has by their meaning, and those that are reserved."""

    def __init__(self, known: Mapping[int, str], released: Iterable[int]) -> None:
        self._taken = {what: number for number, what in known.items() if what != RESERVED}
        self._all = {*known, *released}
        self._last = max(self._all, default=0)
        self._used: set[int] = set()

    def number(self, what: str) -> int:
        """The number of a meaning, as a `Contract` has it."""
        if what not in self._taken:
            self._last += 1
        number = self._taken.get(what, self._last)
        self._used.add(number)
        return number

    def reserved(self) -> list[str]:
        """A line with the numbers that nothing has any more, if there are any."""
        gone = sorted(self._all - self._used)
        return [f"  reserved {', '.join(map(str, gone))};"] if gone else []


def type_of(field: FieldDescriptorProto) -> str:
    """The type of a field as `agent.proto` has it: `repeated NamedText`."""
    repeated = field.label == FieldDescriptorProto.LABEL_REPEATED
    scalar = FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    label = "repeated " if repeated else "optional " if field.proto3_optional else ""
    return label + (field.type_name.rpartition(".")[2] or scalar)


class _Writer:
    """Writes the messages and enums of the records that are visited."""

    def __init__(self, committed: FileDescriptorProto, released: Mapping[str, Iterable[int]]) -> None:
        self._released, self._known = released, contract(committed)
        self._sources: dict[str, Source] = {}
        self._records: set[type] = set()
        self._enums: set[str] = set()

    def source(self, module: str) -> Source:
        """The source of a module, read once."""
        if module not in self._sources:
            self._sources[module] = Source(sys.modules[module])
        return self._sources[module]

    def visit(self, hint: Any) -> None:
        """Note the records in a type."""
        if is_dataclass(hint) and hint not in self._records:
            cls = typing.cast(type, hint)
            self._records.add(cls)
            for inner in typing.get_type_hints(cls).values():
                self.visit(inner)
        elif typing.get_origin(hint) is not Sequence:  # those go in columns
            for argument in typing.get_args(hint):
                self.visit(argument)

    def records(self) -> Iterator[str]:
        """The messages and enums of each module, in the order of its source."""
        for module in sorted({cls.__module__ for cls in self._records}):
            yield f"// ---- {module} ".ljust(WIDTH, "-") + "\n"
            own = {cls.__name__: cls for cls in self._records if cls.__module__ == module}
            for node in self.source(module).body:
                if isinstance(node, ast.ClassDef) and node.name in own:
                    yield from self.record(own[node.name])

    def _numbers(self, name: str, first: Mapping[int, str] = types.MappingProxyType({})) -> Numbers:
        return Numbers(self._known.get(name, first), self._released.get(name, ()))

    def record(self, cls: type) -> Iterator[str]:
        """The message of a record, after the enums that its fields are the first to have."""
        source = self.source(cls.__module__)
        node, hints = source.record(cls.__name__), typing.get_type_hints(cls)
        numbers = self._numbers(cls.__name__)
        lines: list[str] = []
        for one in fields(cls):
            text, hint = source.text_of_field(node, one), hints[one.name]
            if typing.get_origin(hint) in _UNIONS and types.NoneType not in typing.get_args(hint):
                lines += self.oneof(one.name, text, hint, numbers)
                continue
            kind = self.type(hint, source, _attribute(node, one.name))
            yield from self._new_enum(kind.split()[-1], source)
            declared = f"{kind} {one.name}"
            lines += _field(declared, numbers.number(declared), text, 2)
        yield _block(source.text_of_record(node), f"message {cls.__name__}", [*numbers.reserved(), *lines])

    def oneof(self, name: str, text: str, union: Any, numbers: Numbers) -> list[str]:
        """The lines of a oneof; a member has the first sentence on its record as its comment."""
        lines = []
        for cls in typing.get_args(union):
            source = self.source(cls.__module__)
            said = " ".join(source.text_of_record(source.record(cls.__name__)).split()).partition(". ")[0].rstrip(".")
            kind, member = cls.__name__, member_name(cls.__name__)
            lines += _field(f"{kind} {member}", numbers.number(f"{kind} {member} of {name}"), said, 4)
        return [*_comment(text, 2), f"  oneof {name} {{", *lines, "  }"]

    def envelope(self, alias: str, union: Any) -> str:
        """The message that holds one of a union."""
        name = alias.replace("Message", "Envelope")
        numbers = self._numbers(name)
        lines = self.oneof("message", "exactly one of them", union, numbers)
        text = self.source(messages.__name__).text_of_alias(alias)
        return _block(text, f"message {name}", [*numbers.reserved(), *lines])

    def type(self, hint: Any, source: Source, node: ast.AnnAssign) -> str:
        """The type of a field that has this type in Python. ProveoutError for one that cannot travel."""
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if hint in _SCALARS or is_dataclass(hint):
            return _SCALARS.get(hint) or hint.__name__
        if origin is Sequence and arguments[0] in _IN_COLUMNS:
            return _IN_COLUMNS[arguments[0]]
        if origin is Literal:
            return "string" if "" in arguments else self._enum(hint, source, node)
        if origin is tuple and arguments[-1] is Ellipsis:
            pair = typing.get_args(arguments[0])
            of_pair = _PAIRS.get(pair[1], "NamedValue") if typing.get_origin(arguments[0]) is tuple else ""
            return f"repeated {of_pair or self.type(arguments[0], source, node)}"
        if types.NoneType in arguments:
            (rest,) = (one for one in arguments if one is not types.NoneType)
            return f"optional {self.type(rest, source, node)}"
        raise ProveoutError(
            f"{ast.unparse(node)}: a field of this type cannot go over the wire",
            where=f"{source.path}:{node.lineno}",
            way_out="Use a scalar, a record, a named Literal, or a tuple of one of them.",
        )

    def _enum(self, literal: Any, source: Source, node: ast.AnnAssign) -> str:
        """The name that a Literal has in the annotation of a field."""
        module = sys.modules[source.name]
        for part in ast.walk(node.annotation):
            if isinstance(part, ast.Name) and getattr(module, part.id, None) == literal:
                return part.id
        raise ProveoutError(
            f"{ast.unparse(node)}: a Literal that goes over the wire needs a name",
            where=f"{source.path}:{node.lineno}",
            way_out="Write `NAME: TypeAlias = Literal[…]` with a docstring below it.",
        )

    def _new_enum(self, name: str, source: Source) -> Iterator[str]:
        """The enum of that name, if it is one and the first field has it."""
        values = typing.get_args(getattr(sys.modules[source.name], name, None))
        if name in self._enums or not all(isinstance(value, str) for value in values or (None,)):
            return
        self._enums.add(name)
        names = [f"{member_name(name)}_{value}".upper() for value in ("unspecified", *values)]
        numbers = self._numbers(name, {0: names[0]})
        lines = [f"  {one} = {numbers.number(one)};" for one in names]
        yield _block(source.text_of_alias(name), f"enum {name}", [*numbers.reserved(), *lines])


def _comment(text: str, indent: int) -> list[str]:
    """A text as lines of comments, its paragraphs apart."""
    begin = " " * indent + "// "
    paragraphs = (textwrap.wrap(" ".join(one.split()), WIDTH - len(begin)) for one in text.split("\n\n"))
    return [f"{begin}{line}".rstrip() for lines in paragraphs for line in ("", *lines)][1:]


def _field(declared: str, number: int, text: str, indent: int) -> list[str]:
    """A field with its comment, beside it where there is room."""
    line = f"{' ' * indent}{declared} = {number};"
    beside = f"{line}  // {text}"
    return [beside] if len(beside) <= WIDTH else [*_comment(text, indent), line]


def _block(text: str, head: str, lines: list[str]) -> str:
    body = ["{", *lines, "}"] if lines else ["{}"]
    return "\n".join([*_comment(text, 0), f"{head} {body[0]}", *body[1:]]) + "\n"


def proto_text(committed: FileDescriptorProto, released: Mapping[str, Iterable[int]]) -> str:
    """The whole of `agent.proto`; fields keep the numbers of the committed one, and `released`, by message or enum, are
    not given to others. ProveoutError for a record without a comment, or with a field that cannot travel."""
    writer = _Writer(committed, released)
    unions = {"CoordinatorMessage": CoordinatorMessage, "AgentMessage": AgentMessage}
    for one in (*unions.values(), Task):  # a SignedTask holds a Task as bytes
        writer.visit(one)
    envelopes = [writer.envelope(name, union) for name, union in unions.items()]
    return "\n".join(
        [HEADER, f"package {PACKAGE};\n", SERVICE, VALUES, messages.MESSAGES, *writer.records(), *envelopes]
    )


HERE = Path(__file__).resolve().parent / "wire"
FILES = ("agent.proto", "agent_pb2.py", "agent_pb2.pyi", "agent_pb2_grpc.py", "agent_pb2_grpc.pyi")
RELEASED = HERE / "released.json"
RESERVED = "reserved"
Contract: TypeAlias = dict[str, dict[int, str]]
"""By message or enum the meaning of each number."""


def committed() -> FileDescriptorProto:
    """The descriptor of the committed file, as its stubs have it."""
    return FileDescriptorProto.FromString(agent_pb2.DESCRIPTOR.serialized_pb)


def contract(file: FileDescriptorProto) -> Contract:
    """The numbers of all messages and enums, and what each stands for: type, name and oneof, or `reserved`."""
    found: Contract = {}
    for message in file.message_type:
        numbers = {one.number: f"{type_of(one)} {one.name}{_within(one, message)}" for one in message.field}
        gone = (number for span in message.reserved_range for number in range(span.start, span.end))
        found[message.name] = numbers | dict.fromkeys(gone, RESERVED)
    for enum in file.enum_type:
        gone = (number for span in enum.reserved_range for number in range(span.start, span.end + 1))
        found[enum.name] = {one.number: one.name for one in enum.value} | dict.fromkeys(gone, RESERVED)
    return found


def _within(field: FieldDescriptorProto, message: DescriptorProto) -> str:
    inside = field.HasField("oneof_index") and not field.proto3_optional
    return f" of {message.oneof_decl[field.oneof_index].name}" if inside else ""


def breaks(released: Contract, now: Contract) -> list[str]:
    """The numbers that have another meaning than in a release, or none without being reserved. A message that nothing
    refers to any more may go."""
    return [
        f"{name}.{number} was `{was}` in the last release, and is "
        + (f"`{now[name][number]}`" if number in now[name] else "neither there nor reserved")
        for name, numbers in released.items()
        for number, was in numbers.items()
        if name in now and now[name].get(number) not in (was, RESERVED)
    ]


def released() -> tuple[int, Contract]:
    """The protocol of the last release, and its numbers."""
    data = json.loads(RELEASED.read_text())
    numbers = {name: {int(one): what for one, what in known.items()} for name, known in data["numbers"].items()}
    return data["protocol"], numbers


def release() -> None:
    """Write `released.json`. ProveoutError when the last release's numbers have changed their meaning."""
    protocol, before = released()
    now = contract(committed())
    wrong = breaks(before, now)
    if now != before and protocol == PROTOCOL_VERSION:
        wrong.append(f"the messages are not those of protocol {protocol} any more: raise PROTOCOL_VERSION")
    if wrong:
        raise ProveoutError("; ".join(wrong), where="proto/wire/agent.proto", way_out="Give changed fields new names.")
    text = json.dumps({"protocol": PROTOCOL_VERSION, "numbers": now}, indent=1)
    RELEASED.write_text(text + "\n")


def generate(into: Path) -> Path:
    """Write all files to a folder below `into`, and return it; ProveoutError with protoc's own words when it fails."""
    folder = into / "proveout" / "proto" / "wire"
    folder.mkdir(parents=True)
    (folder / "agent.proto").write_text(proto_text(committed(), released()[1]))
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", str(into)]
    command += [f"--{kind}_out={into}" for kind in ("python", "grpc_python", "mypy", "mypy_grpc")]
    scripts = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": scripts + os.pathsep + os.environ.get("PATH", "")}
    done = subprocess.run(
        [*command, "proveout/proto/wire/agent.proto"], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise ProveoutError(
            f"protoc failed: {done.stderr.strip()}", where="proto/wire/agent.proto", way_out="Install the `dev` extra."
        )
    return folder


def outdated() -> list[str]:
    """Names of the committed files that differ from what the records give."""
    with tempfile.TemporaryDirectory() as scratch:
        fresh = generate(Path(scratch))
        return [name for name in FILES if _text(fresh / name) != _text(HERE / name)]


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _write() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        fresh = generate(Path(scratch))
        for name in FILES:
            shutil.copyfile(fresh / name, HERE / name)


def main(arguments: list[str]) -> int:
    """Write the files, or with `--check` only compare them: 0 when they are as they should be."""
    if arguments == ["--release"]:
        release()
    elif arguments != ["--check"]:
        _write()
    elif stale := outdated():
        sys.stderr.write(f"out of date: {', '.join(stale)}; run `python -m proveout.proto.generate`\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
