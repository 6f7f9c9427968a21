"""The names in an entry of `stages:`, resolved: systems, workloads, hosts, captures. Problems go to the scope."""

from __future__ import annotations

from dataclasses import dataclass

from proveout.core.errors import Where
from proveout.dsl.compile.symbols import Scope, where_of
from proveout.dsl.plan.topology import Capture, System
from proveout.dsl.source.nodes import Map


@dataclass(slots=True, kw_only=True)
class StageNames:
    """Resolves the names of one entry, whose node is `body` at `path`, in the stage `id`."""

    scope: Scope
    body: Map
    path: str
    id: str

    def where(self, *path: str | int) -> Where:
        """The position of a key in its file."""
        return where_of(self.body, *path)

    def system(self, name: str, key: str, *more: str | int) -> System | None:
        """A system; None, and a problem noted, when there is none."""
        return self.scope.resolve("system", name, self.scope.systems, self.where(key, *more), f"{self.path}.{key}")

    def all_systems(self, names: list[str], key: str) -> tuple[str, ...] | None:
        """Names of systems, each once; None when one is not there."""
        found = [self.system(name, key, index) for index, name in enumerate(names)]
        for index, name in enumerate(names):
            if name in names[:index]:
                self.problem(f"`{name}` is there twice", key, index)
        return tuple(names) if all(found) else None

    def problem(self, message: str, *path: str | int, hint: str = "") -> None:
        """Note a problem at a key of the entry."""
        key = ".".join([self.path, *map(str, path)])
        self.scope.problems.add(self.where(*path), message, key=key, hint=hint)

    def has_workload(self, name: str) -> bool:
        """Whether a workload is there; its absence is noted."""
        where = self.where("workload")
        return self.scope.resolve("workload", name, self.scope.workloads, where, f"{self.path}.workload") is not None

    def clients(self, words: list[str]) -> tuple[str, ...] | None:
        """The hosts that a selector stands for; None when it stands for none."""
        where = self.where("from")
        return self.scope.select_hosts(words, where, f"{self.path}.from")

    def captures(self, names: list[str] | None) -> tuple[str, ...] | None:
        """Names of captures, each once; None when one is not there."""
        found: list[Capture | None] = []
        for index, name in enumerate(names or ()):
            where = self.where("capture", index)
            found.append(self.scope.resolve("capture", name, self.scope.captures, where, f"{self.path}.capture"))
            if name in (names or ())[:index]:
                self.problem(f"`{name}` is there twice", "capture", index)
        return tuple(names or ()) if all(found) else None

    def reachable(self, system: System, clients: tuple[str, ...], key: str) -> None:
        """An embedded system listens on its own machine only."""
        remote = [name for name in clients if not self.scope.hosts[name].is_local]
        if system.provision == "embedded" and remote:
            message = f"`{system.name}` is embedded and out of reach for {', '.join(remote)}"
            self.problem(message, key, hint="an embedded system takes its load from local hosts")
