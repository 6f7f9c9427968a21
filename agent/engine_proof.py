"""A test of everything that proveout asks of an engine, on a server of a user: each part of its adapter, each workload.

Data flow: `Engine` names the parts -> `checks` lists what there is to ask -> `prove` runs one after the other ->
`Result`s, each `works`, `differs`, `refused` with the server's words, or `left out` -> a table and the conversation
(`engines.recording`), on which tests run the same checks without the server.

Nothing is written to the server without `writes`: then each workload makes its own tables, and removes them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from functools import partial
from itertools import chain, islice
from typing import Any, Literal, TypeAlias

from proveout.agent.engines.adapter import Loader, Tick
from proveout.agent.engines.driver_contract import FailureKind, StatementFailure
from proveout.agent.engines.recording import Conversation, RecordedDriver, recording
from proveout.agent.engines.table import adapter, driver
from proveout.agent.errors import TaskFault
from proveout.agent.load.invariants import judged
from proveout.agent.load.loop.transaction import BEGIN_READ, BEGIN_WRITE, COMMIT, ROLLBACK
from proveout.core.data_classes import record
from proveout.core.errors import ProveoutError
from proveout.core.numbers import count_of
from proveout.dsl import engines
from proveout.dsl.operations.facts import Facts, RowsQuery
from proveout.dsl.operations.operation import Operation
from proveout.dsl.operations.oracle import AsmDiskGroup, OracleParameters, OracleRedo
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.topology import Workload
from proveout.dsl.workloads.base import Body, Invariant, Outcome, TransactionType, WorkloadKind
from proveout.dsl.workloads.commits import one_by_one
from proveout.dsl.workloads.kinds import build, built_in
from proveout.proto.wire.tasks import Endpoint

Answer: TypeAlias = Literal["works", "differs", "refused", "left out"]

SCALES: dict[str, dict[str, Any]] = {
    "hlr": {"population": 300},
    "hlr-partitioned": {"population": 300, "partitions": 2},
    "prepaid": {"population": 300},
    "tptbm": {},
    "tpcb": {"scale": 1, "accounts_per_branch": 100},
    "tprocc": {"warehouses": 1},
    "tprocc-procedures": {"warehouses": 1, "procedures": True},
    "tproch": {"scale": 0.01},
}
"""The workloads, KIND or KIND-VARIANT, at the scale at which they are proven."""
TUNED: dict[str, tuple[Operation, ...]] = {
    "oracle": (
        OracleParameters.model_validate({"system": "target", "settings": {"open_cursors": "300", "sga_target": "1G"}}),
        OracleRedo.model_validate({"system": "target", "groups": 4, "size": "200M", "disk_groups": ["DATA"]}),
        AsmDiskGroup.model_validate(
            {"system": "target", "disk_group": "DATA", "redundancy": "external", "disks": ["/dev/oraudev/disks/D1"]}
        ),
    )
}
"""Operations whose queries run; nothing is changed."""
OWN_CLIENT = frozenset({"oracle", "timesten"})
"""Engines whose drivers and loaders stay within their client library, so that it is what is recorded."""
RUNS = 3
"""Transactions of each kind."""


@record
class Result:
    """The answer to one question; `words` are the server's, or what was found."""

    name: str
    answer: Answer
    words: str = ""
    way_out: str = ""
    seconds: float = 0.0


class Differs(Exception):
    """An answer that is not as the adapter expects it."""


class LeftOut(Exception):
    """A question that is not asked, and why."""


def behind(engine: str) -> str:
    """The engine that the changes of a system go on to: that of its standby, or of the database behind a cache."""
    stated = engines.of(engine)
    return engine if stated.standbys or not stated.propagates_to else stated.propagates_to[0]


Check: TypeAlias = tuple[str, Callable[[], str]]
Step: TypeAlias = Callable[[Loader, WorkloadKind], str | None]


def prove(
    prover: Prover, begins: Callable[[str], None] = lambda _: None, ends: Callable[[Result], None] = lambda _: None
) -> list[Result]:
    """Run all checks; `begins` and `ends` are called around each. Without a connection only the first one runs."""
    found: list[Result] = []
    with prover.tap(), closing(prover.checks()) as checks:
        for name, ask in checks:
            begins(name)
            prover.begun = len(prover.conversation.exchanges)
            found.append(_answered(name, ask))
            ends(found[-1])
            if len(found) == 1 and found[0].answer == "refused":
                break
    prover.conversation.results.update({one.name: one.answer for one in found})
    return found


def _answered(name: str, ask: Callable[[], str]) -> Result:
    began = time.monotonic()
    answer: Answer = "works"
    way_out = ""
    try:
        words = ask()
    except LeftOut as reason:
        answer, words = "left out", str(reason)
    except Differs as difference:
        answer, words = "differs", str(difference)
    except ProveoutError as error:
        answer, words, way_out = "refused", error.what, error.way_out
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        answer, words = "differs", f"the answer is not of the expected form: {type(error).__name__}: {error}"
    return Result(name=name, answer=answer, words=words, way_out=way_out, seconds=time.monotonic() - began)


class Prover:
    """The questions to one server. `writes`: the workloads too; `licences` as `topology.Capture` has them; `sink`:
    where its changes go on to, for `lag`."""

    def __init__(
        self,
        endpoint: Endpoint,
        conversation: Conversation,
        *,
        writes: bool = False,
        licences: Sequence[str] = (),
        sink: Endpoint | None = None,
        workloads: Sequence[str] = tuple(SCALES),
    ) -> None:
        self.conversation = conversation
        self.begun = 0  # exchanges before the check
        self._end, self._writes, self._licences, self._workloads = endpoint, writes, licences, workloads
        self._adapter, self._sink = adapter(endpoint.engine), sink

    def tap(self) -> AbstractContextManager[None]:
        """Within it connections are noted in the conversation."""
        return recording(self.conversation)

    def checks(self) -> Generator[Check, None, None]:
        """Each question by name."""
        stated = self._adapter.stated
        yield "connection", self._connection
        yield "version and settings", self._settings
        parts: tuple[tuple[str, str, Callable[[], str]], ...] = (
            ("query", stated.queries, self._query),
            ("tables and indexes", stated.schema, self._schema),
            ("waits", stated.waits, self._waits),
            ("sizes", stated.sizes, self._sizes),
            ("statements", stated.statement_session, self._statements),
            (f"report {stated.report}", stated.report_session, self._report),
        )
        for name, place, ask in parts:
            if place:
                yield name, ask
        if stated.lag:
            yield "lag", self._lag
        for operation in TUNED.get(stated.name, ()):
            yield f"tuning: questions of {type(operation).__name__}", partial(self._tuning, operation)
        if stated.checkpoint:
            yield "checkpoint", self._checkpoint
        for name in self._workloads if stated.populate else ():
            yield from self._workload(name)

    # ---- what only reads ---------------------------------------------------------------------------------------------

    def _driver(self) -> Any:
        engine = self._end.engine
        if engine in OWN_CLIENT:
            return driver(engine)
        return RecordedDriver(driver(engine), self.conversation)

    def _connection(self) -> str:
        try:
            self._driver().connect(self._end.dsn).close()
        except StatementFailure as failure:
            if failure.kind is not FailureKind.LOST:
                raise
            words = f"{failure.code}: {failure.what.removeprefix(f'{failure.code}: ')}"
            raise TaskFault("unreachable", words, way_out=_CONNECT) from None
        return ""

    def _settings(self) -> str:
        found = dict(asyncio.run(self._adapter.settings(self._end)))
        self.conversation.facts.setdefault("version", found["version"])
        self.conversation.facts.setdefault("client_version", found["version"])
        if unread := [text for text in found.values() if text.startswith("not readable")]:
            raise Differs(f"version {found['version']}; {'; '.join(unread)}")
        return f"version {found['version']}, {count_of(len(found) - 1, 'setting')}"

    def _query(self) -> str:
        with closing(self._adapter.query_session(self._end)) as session:
            dual = " FROM dual" if self._adapter.stated.dialect == "oracle" else ""
            names, rows = session.rows(f"SELECT 1 AS one{dual}", 2)
        if (len(names), len(rows)) != (1, 1):
            raise Differs(f"{len(rows)} rows of {len(names)} columns")
        return ""

    def _schema(self) -> str:
        with closing(self._adapter.query_session(self._end)) as session:
            return count_of(len(session.rows(self._adapter.schema_query, 100_000)[1]), "row")

    def _waits(self) -> str:
        with closing(self._adapter.wait_observer(self._end)) as observer:
            for number in range(2):
                found = observer.look(Tick(at_ns=time.monotonic_ns(), report=True, last=number == 1))
        if not found:
            raise Differs(self._last_error() or "no reading")
        return f"{count_of(len(found), 'reading')} of {count_of(len({one.metric for one in found}), 'metric')}"

    def _sizes(self) -> str:
        with closing(self._adapter.size_catalogue(self._end)) as catalogue:
            found = catalogue.parts()
        if found is None:
            raise TaskFault("refused", self._last_error() or "the sizes cannot be read")
        return count_of(len(list(found)), "part")

    def _last_error(self) -> str:
        """The server's words where an adapter gives none."""
        own = self.conversation.exchanges[self.begun :]
        return next((one.error[2] for one in reversed(own) if one.error), "")

    def _statements(self) -> str:
        with closing(self._adapter.statement_session(self._end)) as session:
            since, counts = session.since, session.counts()
            texts = session.texts(islice(counts, 5))
        return f"{count_of(len(counts), 'statement')} since {since}, {len(texts)} texts read"

    def _report(self) -> str:
        needed = {"awr": "diagnostics_pack"}.get(self._adapter.stated.report, "")
        if needed and needed not in self._licences:
            raise LeftOut(f"needs the licence: --licence {needed}")
        with closing(self._adapter.report_session(self._end, "own")) as session:
            marks = session.take(), session.take()
            lines = sum(1 for _ in session.report(*marks))
        return count_of(lines, "line")

    def _lag(self) -> str:
        if self._sink is None:
            raise LeftOut("needs the dsn of a standby, or of the database behind a cache: --sink DSN")
        if not self._writes:
            raise LeftOut(_WRITES)  # probes, in a cache of TimesTen
        with closing(self._adapter.lag_observer(self._end, self._sink)) as observer:
            found = observer.look(Tick(at_ns=time.monotonic_ns(), report=True, last=True))
        if not found:
            raise Differs(self._last_error() or "no reading")
        return count_of(len(found), "reading")

    def _tuning(self, operation: Operation) -> str:
        asked = 0

        def read(query: Any) -> Any:
            nonlocal asked
            if not isinstance(query, RowsQuery):
                raise LeftOut(f"{count_of(asked, 'query')} answered; the rest is read on the host")
            with self._adapter.cursor(self._end) as cursor:
                cursor.execute(query.statement)
                asked += 1
                return tuple(tuple(None if value is None else str(value) for value in row) for row in cursor.fetchall())

        try:
            step = operation.changes(Facts(read=read))
        except LeftOut as reason:
            return str(reason)
        said = (*step.refusals, *step.restarts)
        return f"{count_of(len(step.changes), 'change')} would be made" + "".join(f"; {text}" for text in said)

    def _checkpoint(self) -> str:
        if not self._writes:
            raise LeftOut(_WRITES)
        asyncio.run(self._adapter.checkpoint(self._end))
        return ""

    # ---- what writes -------------------------------------------------------------------------------------------------

    def _workload(self, name: str) -> Generator[Check, None, None]:
        of, _, variant = name.partition("-")
        parameters = built_in(of).parameters.model_validate(SCALES[name])
        kind = build(Workload(name=name, kind=of, parameters=to_values(parameters)))
        stated, dialect = self._adapter.stated, self._adapter.stated.dialect
        if dialect not in kind.population.before or (variant == "procedures" and not stated.procedures):
            yield name, partial(_leave_out, "the workload is not written for this engine")
            return
        if not self._writes:
            yield name, partial(_leave_out, _WRITES)
            return
        loaders: list[Loader] = []
        failed: list[BaseException] = []
        steps: tuple[tuple[str, Step], ...] = (
            ("tables", lambda loader, _: loader.prepare()),
            ("rows", _load),
            ("keys, indexes, statistics", self._after),
            ("number of rows", self._count),
        )

        def loading() -> AbstractContextManager[None]:
            return nullcontext() if self._end.engine in OWN_CLIENT else recording(None)

        def loaded(run: Step) -> str:
            try:
                with loading():
                    loaders.extend(() if loaders else (self._adapter.loader(self._end.dsn, kind.population),))
                    return run(loaders[0], kind) or ""
            except ProveoutError as error:
                failed.append(error)
                raise

        try:
            for step, run in steps:
                yield f"{name}: {step}", partial(loaded, run)
                if failed:
                    yield f"{name}: all else", partial(_leave_out, f"not without its {step}")
                    return
            for invariant in kind.invariants:
                yield f"{name}: {invariant.name}", partial(self._invariant, invariant)
            for transaction in kind.transactions:
                yield f"{name}: {transaction.name}", partial(self._transaction, kind, transaction)
            yield f"{name}: removal", partial(loaded, lambda loader, _: loader.undo())
        finally:  # also where it is interrupted
            for loader in loaders:
                with suppress(ProveoutError), loading():
                    loader.undo()
                loader.close()

    def _after(self, loader: Loader, kind: WorkloadKind) -> str:
        dialect = self._adapter.stated.dialect
        assert dialect is not None  # noqa: S101 - of an engine with a driver
        statements = list(chain.from_iterable(kind.population.after[dialect]))
        for statement in statements:
            loader.execute(statement)
        return count_of(len(statements), "statement")

    def _count(self, loader: Loader, kind: WorkloadKind) -> str:
        for table, (low, high) in kind.population.expected.items():
            if not low <= (found := loader.count(table)) <= high:
                raise Differs(f"{table} has {found} rows, not {low} to {high}")
        return count_of(len(kind.population.tables), "table")

    def _transaction(self, kind: WorkloadKind, transaction: TransactionType) -> str:
        body = one_by_one(transaction.body) if transaction.pipeline else transaction.body
        inputs = transaction.inputs(kind.keys(1))
        begin = BEGIN_WRITE if any(one.changes for one in transaction.statements) else BEGIN_READ
        outcomes: list[Outcome] = []
        with closing(self._driver().connect(self._end.dsn)) as session:
            prepared = {one.name: session.prepare(one) for one in (*transaction.statements, begin, COMMIT, ROLLBACK)}
            for _ in range(RUNS):
                if not transaction.single:
                    session.execute(prepared[begin.name], ())
                outcomes.append(_walked(body(inputs()), session, prepared))
                if not transaction.single:
                    end = COMMIT if outcomes[-1] is Outcome.COMMIT else ROLLBACK
                    session.execute(prepared[end.name], ())
        failed = sum(one is not Outcome.COMMIT for one in outcomes)
        return f"{RUNS - failed} committed" + (f", {count_of(failed, 'logical failure')}" if failed else "")

    def _invariant(self, invariant: Invariant) -> str:
        with closing(self._driver().connect(self._end.dsn)) as session:
            session.execute(session.prepare(invariant.statement), invariant.arguments)
            (row,) = session.rows()
        found = judged(invariant, row)
        if not found.holds:
            raise Differs(found.evidence)
        return found.evidence


_WRITES = "it writes: --write"
_CONNECT = "is the server up, the address right, and may this user log in with this password?"


def _leave_out(reason: str) -> str:
    raise LeftOut(reason)


def _load(loader: Loader, kind: WorkloadKind) -> str:
    loaded: list[int] = []
    for table in kind.population.tables:
        loader.load(table, 1, kind.population.units, loaded.append)
    loader.settle()
    return count_of(sum(loaded), "row")


def _walked(body: Body, session: Any, prepared: dict[str, Any]) -> Outcome:
    """Run the body of a transaction; a logical failure is an outcome too."""
    try:
        request = next(body)
        while True:
            statement, arguments = request
            session.execute(prepared[statement.name], arguments)
            request = body.send(session)
    except StopIteration as stop:
        outcome = stop.value
        return outcome if isinstance(outcome, Outcome) else Outcome(outcome)
    except StatementFailure as failure:
        if failure.kind is not FailureKind.LOGICAL:
            raise
        return Outcome.LOGICAL_FAILURE
