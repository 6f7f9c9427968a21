"""The queries of an operation to a host, and the facts that answer them: closed unions of frozen data.

Data flow: `Operation.changes(facts)` looks at `Facts`, which have an agent answer each `Query` at its first use
(`agent.tuning.host`), or have the answers of a test. A query is the key of its answer, so equal queries are read once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, Literal, TypeAlias, TypeVar, cast

from proveout.core.data_classes import dataclass, field, record

# ---- questions -----------------------------------------------------------------------------------------------------

Answer = TypeVar("Answer")


class Question(Generic[Answer]):
    """A query with the type of its answer."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class FileQuery(Question["FileFact"]):
    """A file with its content, mode and owner; answered by a `FileFact`. Links are reported, never followed."""

    path: str


@dataclass(frozen=True, slots=True)
class TextQuery(Question[str | None]):
    """The text of an attribute below /proc or /sys, stripped; None when there is none."""

    path: str


@dataclass(frozen=True, slots=True)
class BytesQuery(Question[bytes | None]):
    """The bytes of an attribute below /proc or /sys, as they are (a page of vital product data); None when there is
    none."""

    path: str


@dataclass(frozen=True, slots=True)
class PathsQuery(Question[tuple[str, ...]]):
    """The paths below /proc, /sys or /dev that a shell pattern matches, sorted."""

    pattern: str


@dataclass(frozen=True, slots=True)
class LinkQuery(Question[str | None]):
    """The path that a path really is, every link followed (`/dev/disk/by-id/…` -> `/dev/sdb`); None when it is not
    there."""

    path: str


@dataclass(frozen=True, slots=True)
class ClaimQuery(Question[str]):
    """Whether the kernel lets a process claim a block device, as it does for one at a time: not while it, its disk or a
    partition of it is mounted in any namespace, swap, or a part of another device or of a pool; "", or why not."""

    device: str


@dataclass(frozen=True, slots=True)
class UnitQuery(Question["UnitFact | None"]):
    """A systemd unit; answered by a `UnitFact`, None when there is no such unit."""

    unit: str


@dataclass(frozen=True, slots=True)
class PackageQuery(Question[str | None]):
    """The installed version of a package (rpm or dpkg); None when it is not installed."""

    package: str


@dataclass(frozen=True, slots=True)
class RowsQuery(Question["Rows"]):
    """The rows of a query in a system of the plan, every value as text or None."""

    system: str
    statement: str


@dataclass(frozen=True, slots=True)
class OutputQuery(Question["Output"]):
    """The output of a tool that changes nothing; answered by an `Output`. The agent's policy must allow its argv.

    `of_plan`: the argv is the plan's own text, so the policy must list it with a reason. `fault`: the operation of a
    fault that needs it, which the policy must list instead of the program."""

    argv: tuple[str, ...]
    of_plan: bool = False
    fault: str = ""
    within_s: float = field(default=60.0, compare=False)


@dataclass(frozen=True, slots=True)
class ServerQuery(Question["ServerFact | None"]):
    """The server of a system that this agent has started; answered by a `ServerFact`, None when it has started none."""

    system: str


@dataclass(frozen=True, slots=True)
class AddressQuery(Question[tuple[str, ...]]):
    """The IP addresses of the name of a host, sorted; none when it cannot be resolved."""

    name: str


@dataclass(frozen=True, slots=True)
class PlaceQuery(Question["PlaceFact"]):
    """The agent itself; answered by a `PlaceFact`."""


@dataclass(frozen=True, slots=True)
class QdiscQuery(Question[str]):
    """Whether the kernel has a kind of queueing discipline (`netem`); "yes", or what tc says."""

    name: str


@dataclass(frozen=True, slots=True)
class SpaceQuery(Question["SpaceFact | None"]):
    """The room for the file at `path`; answered by a `SpaceFact`, None when its folder is not there."""

    path: str


@dataclass(frozen=True, slots=True)
class BusyQuery(Question["BusyFact"]):
    """The CPUs that this agent keeps busy for a fault; answered by a `BusyFact`."""


@dataclass(frozen=True, slots=True)
class CopyQuery(Question["CopyFact"]):
    """Whether the data of a system that runs already can be copied; answered by a `CopyFact`."""

    system: str


DisturbanceQuery: TypeAlias = ServerQuery | AddressQuery | PlaceQuery | QdiscQuery | SpaceQuery | BusyQuery
Query: TypeAlias = (
    FileQuery
    | TextQuery
    | BytesQuery
    | PathsQuery
    | LinkQuery
    | ClaimQuery
    | UnitQuery
    | PackageQuery
    | RowsQuery
    | OutputQuery
    | CopyQuery
    | DisturbanceQuery
)

# ---- answers -------------------------------------------------------------------------------------------------------


@record
class FileFact:
    """The file at a path: permission bits in `mode`; `content` of a regular file only."""

    kind: Literal["absent", "file", "link", "directory", "other"]
    content: bytes = b""
    mode: int = 0
    owner: str = ""
    group: str = ""

    @property
    def exists(self) -> bool:
        return self.kind != "absent"


ABSENT = FileFact(kind="absent")


@record
class Original:
    """A file as it was, to the byte. `exists` is False if there was none."""

    exists: bool
    content: bytes = b""
    mode: int = 0
    uid: int = 0
    gid: int = 0
    xattrs: Mapping[str, bytes] = field(default_factory=dict)
    mtime_ns: int = 0


NONE = Original(exists=False)


@record
class UnitFact:
    """A unit: does it run, and does it start with the host? `enabled` is None where it has no meaning (static,
    masked)."""

    active: bool
    enabled: bool | None
    state: str = ""


@record
class Output:
    """Exit code and standard output of a tool."""

    code: int
    text: str


ServerState: TypeAlias = Literal["runs", "stopped", "down", "promoted"]


@record
class ServerFact:
    """A server: it runs, as a standby or after its promotion too, its processes are stopped, or it is down. `data`: its
    data directory."""

    state: ServerState
    data: str
    is_standby: bool = False


@record
class PlaceFact:
    """The agent's host by its name in the plan, the TCP port that it listens on (0: none), and the IP addresses of its
    network namespace."""

    host: str
    port: int
    addresses: tuple[str, ...]


@record
class SpaceFact:
    """A file system: free for users other than root, bytes; and the size of the file, 0 when it is not there."""

    free_bytes: int
    taken_bytes: int


@record
class BusyFact:
    """The CPUs that the agent may use, and those of them that it keeps busy, to `share` of their time."""

    usable: tuple[int, ...]
    busy: tuple[int, ...] = ()
    share: float = 0.0


@record
class CopyFact:
    """The copy of a system's data. `made`: this run works on one already; `objections`: why none can be made; `text`:
    the database with its size, and where the original stays."""

    made: bool
    objections: tuple[str, ...] = ()
    text: str = ""


Rows: TypeAlias = tuple[tuple[str | None, ...], ...]
Fact: TypeAlias = (
    "FileFact | UnitFact | Output | ServerFact | PlaceFact | SpaceFact | BusyFact | CopyFact | Rows | tuple[str, ...]"
    " | str | bytes | None"
)


class Facts:
    """The answers of a host: each is read when it is first asked for, and kept.

    `read` answers a query; where there is none (in tests), one that is not among the `known` raises KeyError.
    """

    def __init__(self, known: Mapping[Query, Fact] | None = None, read: Callable[[Any], Fact] | None = None) -> None:
        self.known = dict(known or {})
        self._read = read

    def ask(self, query: Question[Answer]) -> Answer:
        key = cast("Query", query)
        if key not in self.known and self._read is not None:
            self.known[key] = self._read(key)
        return cast("Answer", self.known[key])

    def file(self, path: str) -> FileFact:
        return self.ask(FileQuery(path))

    def text(self, path: str) -> str | None:
        """The text of an attribute; None when there is none."""
        return self.ask(TextQuery(path))

    def paths(self, pattern: str) -> tuple[str, ...]:
        return self.ask(PathsQuery(pattern))

    def link(self, path: str) -> str | None:
        """The path with every link followed."""
        return self.ask(LinkQuery(path))

    def rows(self, system: str, statement: str) -> Rows:
        return self.ask(RowsQuery(system, statement))
