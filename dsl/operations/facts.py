"""The queries of an operation to a host, and the facts that answer them: closed unions of frozen data.

Data flow: `Operation.queries(known)` -> `Query`s -> an agent reads them (`agent.tuning.host`), or a test gives them
-> `Facts`
-> `Operation.changes(facts)`. A query is the key of its answer, so equal queries are read once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from proveout.core.data_classes import dataclass, field

# ---- questions -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FileQuery:
    """A file with its content, mode and owner; answered by a `FileFact`. Links are reported, never followed."""

    path: str


@dataclass(frozen=True, slots=True)
class TextQuery:
    """The text of an attribute below /proc or /sys, stripped; None when there is none."""

    path: str


@dataclass(frozen=True, slots=True)
class BytesQuery:
    """The bytes of an attribute below /proc or /sys, as they are (a page of vital product data); None when there is
    none."""

    path: str


@dataclass(frozen=True, slots=True)
class PathsQuery:
    """The paths below /proc, /sys or /dev that a shell pattern matches, sorted."""

    pattern: str


@dataclass(frozen=True, slots=True)
class LinkQuery:
    """The path that a path really is, every link followed (`/dev/disk/by-id/…` -> `/dev/sdb`); None when it is not
    there."""

    path: str


@dataclass(frozen=True, slots=True)
class UnitQuery:
    """A systemd unit; answered by a `UnitFact`, None when there is no such unit."""

    unit: str


@dataclass(frozen=True, slots=True)
class PackageQuery:
    """The installed version of a package (rpm or dpkg); None when it is not installed."""

    package: str


@dataclass(frozen=True, slots=True)
class RowsQuery:
    """The rows of a query in a system of the plan, every value as text or None."""

    system: str
    statement: str


@dataclass(frozen=True, slots=True)
class OutputQuery:
    """The output of a tool that changes nothing; answered by an `Output`. The agent's policy must allow its argv.

    `of_plan`: the argv is the plan's own text, so the policy must list it with a reason. `fault`: the operation of a
    fault that needs it, which the policy must list instead of the program."""

    argv: tuple[str, ...]
    of_plan: bool = False
    fault: str = ""
    within_s: float = field(default=60.0, compare=False)


@dataclass(frozen=True, slots=True)
class ServerQuery:
    """The server of a system that this agent has started; answered by a `ServerFact`, None when it has started none."""

    system: str


@dataclass(frozen=True, slots=True)
class AddressQuery:
    """The IP addresses of the name of a host, sorted; none when it cannot be resolved."""

    name: str


@dataclass(frozen=True, slots=True)
class PlaceQuery:
    """The agent itself; answered by a `PlaceFact`."""


@dataclass(frozen=True, slots=True)
class QdiscQuery:
    """Whether the kernel has a kind of queueing discipline (`netem`); "yes", or what tc says."""

    name: str


@dataclass(frozen=True, slots=True)
class SpaceQuery:
    """The room for the file at `path`; answered by a `SpaceFact`, None when its folder is not there."""

    path: str


@dataclass(frozen=True, slots=True)
class BusyQuery:
    """The CPUs that this agent keeps busy for a fault; answered by a `BusyFact`."""


@dataclass(frozen=True, slots=True)
class CopyQuery:
    """Whether the data of a system that runs already can be copied; answered by a `CopyFact`."""

    system: str


Query: TypeAlias = (
    FileQuery
    | TextQuery
    | BytesQuery
    | PathsQuery
    | LinkQuery
    | UnitQuery
    | PackageQuery
    | RowsQuery
    | OutputQuery
    | ServerQuery
    | AddressQuery
    | PlaceQuery
    | QdiscQuery
    | SpaceQuery
    | BusyQuery
    | CopyQuery
)

# ---- answers -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFact:
    """The file at a path: permission bits in `mode`; `content` of a regular file only."""

    kind: Literal["absent", "file", "link", "directory", "other"]
    content: bytes = b""
    mode: int = 0
    owner: str = ""
    group: str = ""

    @property
    def exists(self) -> bool:
        """Whether anything is there."""
        return self.kind != "absent"


ABSENT = FileFact(kind="absent")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitFact:
    """A unit: does it run, and does it start with the host? `enabled` is None where it has no meaning (static,
    masked)."""

    active: bool
    enabled: bool | None
    state: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Exit code and standard output of a tool."""

    code: int
    text: str


ServerState: TypeAlias = Literal["runs", "stopped", "down", "promoted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFact:
    """A server: it runs, as a standby or after its promotion too, its processes are stopped, or it is down. `data`: its
    data directory."""

    state: ServerState
    data: str
    is_standby: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceFact:
    """The agent's host by its name in the plan, the TCP port that it listens on (0: none), and the IP addresses of its
    network namespace."""

    host: str
    port: int
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceFact:
    """A file system: free for users other than root, bytes; and the size of the file, 0 when it is not there."""

    free_bytes: int
    taken_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BusyFact:
    """The CPUs that the agent may use, and those of them that it keeps busy, to `share` of their time."""

    usable: tuple[int, ...]
    busy: tuple[int, ...] = ()
    share: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts by query. Reading a fact that was not queried raises KeyError: an operation must query every fact that it
    uses."""

    known: Mapping[Query, Fact] = field(default_factory=dict)

    def __contains__(self, query: object) -> bool:
        return query in self.known

    def with_(self, more: Mapping[Query, Fact]) -> Facts:
        """These facts and more."""
        return Facts({**self.known, **more})

    def file(self, path: str) -> FileFact:
        """The file at a path."""
        found = self.known[FileQuery(path)]
        assert isinstance(found, FileFact)  # noqa: S101  # the reader answers each query with its kind of fact
        return found

    def text(self, path: str) -> str | None:
        """The text of an attribute; None when there is none."""
        found = self.known[TextQuery(path)]
        assert found is None or isinstance(found, str)  # noqa: S101
        return found

    def octets(self, path: str) -> bytes | None:
        """The bytes of an attribute; None when there is none."""
        found = self.known[BytesQuery(path)]
        assert found is None or isinstance(found, bytes)  # noqa: S101
        return found

    def paths(self, pattern: str) -> tuple[str, ...]:
        """The paths that match."""
        found = self.known[PathsQuery(pattern)]
        assert isinstance(found, tuple)  # noqa: S101
        return tuple(str(path) for path in found)

    def link(self, path: str) -> str | None:
        """The path with every link followed."""
        found = self.known[LinkQuery(path)]
        assert found is None or isinstance(found, str)  # noqa: S101
        return found

    def unit(self, unit: str) -> UnitFact | None:
        """A unit; None when there is no such one."""
        found = self.known[UnitQuery(unit)]
        assert found is None or isinstance(found, UnitFact)  # noqa: S101
        return found

    def package(self, package: str) -> str | None:
        """The installed version."""
        found = self.known[PackageQuery(package)]
        assert found is None or isinstance(found, str)  # noqa: S101
        return found

    def rows(self, system: str, statement: str) -> Rows:
        """The rows of a query."""
        found = self.known[RowsQuery(system, statement)]
        assert isinstance(found, tuple)  # noqa: S101
        return tuple(tuple(row) for row in found)

    def output(self, *argv: str) -> Output:
        """The output of a tool."""
        return self.answer(OutputQuery(argv))

    def answer(self, query: OutputQuery) -> Output:
        """The output of a tool, by its query."""
        found = self.known[query]
        assert isinstance(found, Output)  # noqa: S101
        return found

    def copy(self, system: str) -> CopyFact:
        """The copy of a system's data."""
        found = self.known[CopyQuery(system)]
        assert isinstance(found, CopyFact)  # noqa: S101
        return found

    def server(self, system: str) -> ServerFact | None:
        """The server of a system; None when this agent has started none."""
        found = self.known[ServerQuery(system)]
        assert found is None or isinstance(found, ServerFact)  # noqa: S101
        return found

    def addresses(self, name: str) -> tuple[str, ...]:
        """The IP addresses of a host."""
        found = self.known[AddressQuery(name)]
        assert isinstance(found, tuple)  # noqa: S101
        return tuple(str(address) for address in found)

    @property
    def place(self) -> PlaceFact:
        """The agent itself."""
        found = self.known[PlaceQuery()]
        assert isinstance(found, PlaceFact)  # noqa: S101
        return found

    def qdisc(self, name: str) -> str:
        """Whether the kernel has a queueing discipline: "yes", or the reason that it cannot be used."""
        found = self.known[QdiscQuery(name)]
        assert isinstance(found, str)  # noqa: S101
        return found

    def space(self, path: str) -> SpaceFact | None:
        """The room for a file; None when its folder is not there."""
        found = self.known[SpaceQuery(path)]
        assert found is None or isinstance(found, SpaceFact)  # noqa: S101
        return found

    @property
    def busy(self) -> BusyFact:
        """The CPUs that the agent keeps busy."""
        found = self.known[BusyQuery()]
        assert isinstance(found, BusyFact)  # noqa: S101
        return found
