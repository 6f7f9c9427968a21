"""Captures of kind `prometheus`: an exporter's address and the numbers that are kept of it, with all that can be wrong
about them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from proveout.core.errors import Where
from proveout.dsl.compile.symbols import Scope, where_of
from proveout.dsl.compile.topology import refuse_destinations
from proveout.dsl.plan.topology import Capture, Scrape
from proveout.dsl.rules.host_rules import exporter_problems, scrape_problems
from proveout.dsl.rules.secret_destinations import Unclear, of_url
from proveout.dsl.schema.models import CaptureEntry, ScrapeEntry
from proveout.dsl.source.nodes import Map, Scalar, did_you_mean

COUNTERS = ("_total", "_count", "_sum", "_bucket")
"""The suffixes of the names of counters in Prometheus' conventions (the parts of a histogram are counters too)."""

OF_KIND: Mapping[str, tuple[str, ...]] = {
    "prometheus": ("url", "metrics"),
    "sql": ("query", "metrics"),
    "command": ("argv", "output", "within", "exit_codes", "metrics"),
    "awr": ("licence", "container"),
}
"""The keys that only captures of some kinds have."""
_ONLY = OF_KIND["prometheus"]
_SECRET = re.compile(r"\$\{\s*secrets\.([^{}]*?)\s*\}")
_FORM = "http://127.0.0.1:9100/metrics"


def refuse_keys(scope: Scope, node: Map, entry: CaptureEntry, path: str) -> None:
    """Keys that only captures of other kinds have."""
    for name in dict.fromkeys(name for names in OF_KIND.values() for name in names):
        if name not in OF_KIND.get(entry.kind, ()) and getattr(entry, name) is not None:
            where = where_of(node, name)
            scope.problems.add(where, f"a capture of kind {entry.kind} has no `{name}`", key=f"{path}.{name}")


def exporter(scope: Scope, key: Scalar, node: Map, entry: CaptureEntry, path: str) -> Capture | None:
    """A capture of kind prometheus."""
    if entry.system is not None:
        where = where_of(node, "system")
        scope.problems.add(where, "a prometheus capture is of an exporter, not of a system", key=f"{path}.system")
    for name in _ONLY:
        if getattr(entry, name) is None:
            hint = f"url: {_FORM}" if name == "url" else "metrics: [{name: node_load1}]"
            scope.problems.add(key.where, f"a prometheus capture needs `{name}`", key=f"{path}.{name}", hint=hint)
    host = one_host(scope, node, entry, path)
    if isinstance(entry.metrics, dict):
        hint = "metrics: [{name: node_load1}]"
        scope.problems.add(
            where_of(node, "metrics"), "an exporter's `metrics` are a list", key=f"{path}.metrics", hint=hint
        )
        return None
    if entry.url is None or entry.metrics is None or not _url(scope, where_of(node, "url"), entry.url, f"{path}.url"):
        return None
    scrapes = tuple(_scrapes(scope, node, entry.metrics, path))
    if host is None or len(scrapes) < len(entry.metrics):
        return None
    return Capture(
        name=key.text,
        kind="prometheus",
        every_s=entry.every,
        hosts=(host,),
        url=entry.url,
        scrapes=scrapes,
        where=key.where,
    )


def one_host(scope: Scope, node: Map, entry: CaptureEntry, path: str) -> str | None:
    """The one host whose agent reads the exporter, or runs the command."""
    hosts = scope.select_hosts(entry.on or ["all"], where_of(node, "on"), f"{path}.on")
    if hosts is None:
        return None
    if len(hosts) > 1:
        does, what = ("run", "command") if entry.kind == "command" else ("read", "exporter")
        hint = f"name the one whose agent {does}s the {what}; each {what} has a capture of its own"
        scope.problems.add(where_of(node, "on"), f"{len(hosts)} hosts would {does} it", key=f"{path}.on", hint=hint)
        return None
    return hosts[0]


def _scrapes(scope: Scope, node: Map, entries: list[ScrapeEntry], path: str) -> Iterator[Scrape]:
    taken: set[str] = set()
    for number, entry in enumerate(entries):
        key = f"{path}.metrics.{number}"
        where = where_of(node, "metrics", number)
        alias = entry.as_ or entry.name
        wrong = next(scrape_problems(entry.name, alias, list(entry.labels)), None)
        if wrong is not None:
            scope.problems.add(where, wrong.message, key=".".join((key, *map(str, wrong.at))), hint=wrong.way_out)
            continue
        if alias in taken:
            hint = "give each a name of its own: as: name"
            scope.problems.add(where, f"two numbers are called `{alias}`", key=key, hint=hint)
            continue
        taken.add(alias)
        yield Scrape(
            alias=alias,
            metric=entry.name,
            labels=tuple(sorted(entry.labels.items())),
            kind=entry.type or ("counter" if entry.name.endswith(COUNTERS) else "gauge"),
            take=entry.take,
            optional=entry.optional,
        )


def _url(scope: Scope, where: Where, url: str, key: str) -> bool:
    """Whether an agent can read this address. Secrets are compared by name only."""
    before = len(scope.problems.found)
    for match in _SECRET.finditer(url):
        if match[1] not in scope.secrets and match[1] not in scope.declared.get("secret", set()):
            hint = did_you_mean(match[1], scope.declared.get("secret", set()))
            scope.problems.add(where, f"there is no secret `{match[1]}`", key=key, hint=hint)
    wrong = next(exporter_problems(_SECRET.sub("secret", url)), None)
    if wrong is not None:
        scope.problems.add(where, wrong.message, key=key, hint=wrong.way_out)
    elif _SECRET.search(_without_user(url)):
        hint = "https://user:${secrets.name}@host:port/path"
        scope.problems.add(where, "a secret can only be the password here", key=key, hint=hint)
    elif "@" in urlsplit(_SECRET.sub("secret", url)).netloc and not _SECRET.fullmatch(_password(url)):
        hint = "declare it under secrets: and write http://user:${secrets.name}@…"
        scope.problems.add(where, "a literal password in a url", key=key, hint=hint)
    if len(scope.problems.found) == before:
        _check_secrets(scope, where, url, key)
    return len(scope.problems.found) == before


def _check_secrets(scope: Scope, where: Where, url: str, key: str) -> None:
    try:
        uses = of_url(url)
    except Unclear as fault:
        scope.problems.add(where, f"the destination of a secret is not clear: {fault}", key=key, hint=_FORM)
        return
    refuse_destinations(scope, uses, where, key, exporter=True)


def _without_user(url: str) -> str:
    address = url.partition("://")[2]
    return address.rpartition("@")[2] if "@" in address else address


def _password(url: str) -> str:
    """The text between the user's colon and the last @ of the address."""
    user = url.partition("://")[2].rpartition("@")[0]
    return user.partition(":")[2]
