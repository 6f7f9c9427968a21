"""Capture `prometheus`: numbers of an exporter (node_exporter, postgres_exporter …), read over HTTP each `every_s`.

Flow: GET the url of `endpoints[0]` -> the text's lines of the metrics that are wanted -> those series whose labels have
the wanted values -> one reading per scrape, `tasks.exported_name` (label ""), in the exporter's own unit; several
series are taken together by `take`. Selection is by name and equal labels only; rates and windows are the
coordinator's. One connection is kept open.

Errors: at the start, an exporter that cannot be read, or that has no series for a scrape which is not `optional`, is a
TaskFault. Later such a sample is counted as lost, and the next one tries again. Redirects are not followed, and nothing
but numbers goes on to the coordinator. A hostile exporter is bounded: an answer must be complete within `PATIENCE_S`
however slowly it comes, and have at most `ANSWER_BYTES_MAX`; a wanted line has at most `LINE_CHARACTERS_MAX`, all of
them together `WANTED_CHARACTERS_MAX`. https checks certificates against the host's own authorities; `user:password@` of
the url is sent as basic authentication and is not shown.

Source: https://prometheus.io/docs/instrumenting/exposition_formats; parsed with prometheus_client.
"""

from __future__ import annotations

import base64
import http.client
import math
import socket
import ssl
import threading
from collections.abc import Sequence
from contextlib import suppress
from urllib.parse import unquote, urlsplit

from prometheus_client.parser import text_string_to_metric_families

from proveout.agent.capture.kinds import observe
from proveout.agent.capture.query_values import TAKE
from proveout.agent.daemon.tasks import TaskContext
from proveout.agent.engines.adapter import Tick
from proveout.agent.errors import TaskFault
from proveout.dsl.plan.topology import Scrape
from proveout.proto.wire.results import CaptureResult, Reading
from proveout.proto.wire.tasks import Endpoint, RunCapture, exported_name

ANSWER_BYTES_MAX = 16 << 20
LINE_CHARACTERS_MAX = 16 << 10
WANTED_CHARACTERS_MAX = 1 << 20
PATIENCE_S = 5.0
ACCEPT = "text/plain;version=0.0.4;q=1, application/openmetrics-text;version=1.0.0;q=0.5"


class Unanswered(Exception):
    """The exporter gave no text; why."""


class Exporter:
    """The connection to one exporter: made when it is needed, kept while it works."""

    def __init__(self, url: str, patience_s: float) -> None:
        parts = urlsplit(url)
        self._patience_s = patience_s
        self._late = threading.Event()
        self._socket: socket.socket | None = None
        self.shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        host = parts.hostname or ""
        self._connection: http.client.HTTPConnection = (
            http.client.HTTPSConnection(host, parts.port, timeout=patience_s, context=ssl.create_default_context())
            if parts.scheme == "https"
            else http.client.HTTPConnection(host, parts.port, timeout=patience_s)
        )
        self._path = (parts.path or "/metrics") + (f"?{parts.query}" if parts.query else "")
        self._headers = {"Accept": ACCEPT, "User-Agent": "proveout"}
        if parts.username is not None:
            word = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(word.encode()).decode()}"

    def text(self) -> str:
        """Its text now; Unanswered when it is not complete within the patience, counted from here and not from one byte
        to the next."""
        self._late.clear()
        timer = threading.Timer(self._patience_s, self._give_up)
        timer.daemon = True
        timer.start()
        try:
            text = self._ask()
            if self._late.is_set():  # a body without a length looks complete once the connection is shut down
                raise TimeoutError
        except (OSError, http.client.HTTPException) as fault:
            self.close()
            late = f"its answer was not complete within {self._patience_s:g} s" if self._late.is_set() else ""
            raise Unanswered(late or str(fault) or type(fault).__name__) from fault
        finally:
            timer.cancel()
        return text

    def _give_up(self) -> None:
        self._late.set()
        self.abort()

    def _ask(self) -> str:
        fresh = self._connection.sock is None
        try:
            answer = self._answer()
        except (ConnectionError, http.client.BadStatusLine):
            if fresh or self._late.is_set():
                raise
            self.close()  # an exporter may hang up between two questions
            answer = self._answer()
        body = answer.read(ANSWER_BYTES_MAX + 1)
        if answer.status != http.client.OK:
            self.close()
            raise Unanswered(f"it answered {answer.status} {answer.reason}")
        if len(body) > ANSWER_BYTES_MAX:
            self.close()
            raise Unanswered(f"its answer is longer than {ANSWER_BYTES_MAX >> 20} MiB")
        return body.decode("utf-8", "replace")

    def _answer(self) -> http.client.HTTPResponse:
        self._connection.request("GET", self._path, headers=self._headers)
        self._socket = self._connection.sock  # http.client drops it when the exporter does not keep the connection
        if self._late.is_set():  # while connecting, when there was no socket to shut down
            raise TimeoutError
        return self._connection.getresponse()

    def abort(self) -> None:
        """Called from another thread: make a question fail that does not end."""
        held = self._connection.sock or self._socket
        if held is not None:
            with suppress(OSError):
                held.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._connection.close()


def select(text: str, scrapes: Sequence[Scrape]) -> dict[str, float]:
    """The number of each scrape that has one, by alias. ValueError for text that is not what an exporter writes.

    Only lines that begin with a wanted name are parsed; NaN and infinite values are dropped.
    """
    names = {scrape.metric for scrape in scrapes}
    beginnings = tuple(names)
    lines = [line for line in text.split("\n") if line.startswith(beginnings)]
    longest = max(map(len, lines), default=0)
    if longest > LINE_CHARACTERS_MAX:
        raise ValueError(f"a line of {longest} characters (at most {LINE_CHARACTERS_MAX} are read)")
    if sum(map(len, lines)) > WANTED_CHARACTERS_MAX:
        raise ValueError(f"more than {WANTED_CHARACTERS_MAX >> 20} MiB of lines of the wanted metrics")
    series = [
        (sample.name, sample.labels, sample.value)
        for family in text_string_to_metric_families("\n".join(lines) + "\n")
        for sample in family.samples
        if math.isfinite(sample.value)
    ]
    found: dict[str, float] = {}
    for scrape in scrapes:
        wanted = dict(scrape.labels).items()
        values = [value for name, labels, value in series if name == scrape.metric and wanted <= labels.items()]
        if values:
            found[scrape.alias] = TAKE[scrape.take](values)
        elif scrape.optional and scrape.kind == "counter":
            found[scrape.alias] = 0.0
    return found


class ExporterObserver:
    """Asks one exporter; see `adapter.Observer`."""

    def __init__(self, name: str, endpoint: Endpoint, scrapes: Sequence[Scrape], patience_s: float) -> None:
        self._scrapes = scrapes
        self._exporter = Exporter(endpoint.dsn, patience_s)
        self.abort, self.close = self._exporter.abort, self._exporter.close
        try:
            found = select(self._exporter.text(), scrapes)
        except (Unanswered, ValueError) as fault:
            self._exporter.close()
            raise TaskFault(
                "unreachable",
                f"capture {name!r}: the exporter at {self._exporter.shown} cannot be read: {fault}",
                way_out="check that it runs and that this host may read it",
            ) from None
        missing = [scrape for scrape in scrapes if scrape.alias not in found and not scrape.optional]
        if missing:
            self._exporter.close()
            shown = ", ".join(_shown(scrape) for scrape in missing[:5])
            raise TaskFault(
                "missing",
                f"capture {name!r}: the exporter at {self._exporter.shown} has no series {shown}",
                way_out="compare names and labels with its text, or write `optional: true`",
            )

    def look(self, tick: Tick) -> Sequence[Reading] | None:
        """One reading per scrape; None when it cannot be read, or a number is missing."""
        try:
            found = select(self._exporter.text(), self._scrapes)
        except (Unanswered, ValueError):
            return None
        if any(scrape.alias not in found and not scrape.optional for scrape in self._scrapes):
            return None
        return [
            Reading(metric=exported_name(scrape), value=found[scrape.alias])
            for scrape in self._scrapes
            if scrape.alias in found
        ]


def _shown(scrape: Scrape) -> str:
    labels = ",".join(f'{name}="{value}"' for name, value in scrape.labels)
    return f"{scrape.metric}{{{labels}}}" if labels else scrape.metric


async def run(context: TaskContext, spec: RunCapture) -> CaptureResult:
    """Ask until finished. TaskFault when the exporter does not answer as it should at the start."""
    (endpoint,) = spec.endpoints
    capture = spec.capture
    return await observe(context, spec, lambda: ExporterObserver(capture.name, endpoint, capture.scrapes, PATIENCE_S))
