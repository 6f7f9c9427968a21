"""Rules for the SQL of a `kind: sql` workload, with each problem at its position: binds, results, one statement, DDL.

Flow: the validated model and its node -> every text scanned once (`sql_text`) -> problems. Runs after the
models have found no problem, so names and shapes are valid here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from proveout.core.data_classes import dataclass, field
from proveout.core.errors import Where
from proveout.dsl.source.nodes import Map, Node, Problems, Scalar, did_you_mean, locate, where_of
from proveout.dsl.workloads.sql import sql_text
from proveout.dsl.workloads.sql.parameters import Custom, Generator, StatementEntry, TableEntry, TransactionEntry
from proveout.dsl.workloads.sql.sql_text import Fault, Token

_WHOLE_TYPES = frozenset({"SMALLINT", "INTEGER", "INT", "BIGINT", "INT2", "INT4", "INT8", "TINYINT", "MEDIUMINT"})
_CHAR_TYPES = frozenset({"CHAR", "VARCHAR", "VARCHAR2", "CHARACTER", "NCHAR", "NVARCHAR2"})


def check_sql(model: Custom, node: Map, path: str, problems: Problems) -> None:
    """Add the problems of a workload's SQL texts; `node` is its mapping, `path` the place of that in the plan."""
    check = _Check(model=model, node=node, path=path, problems=problems)
    for name, table in model.tables.items():
        check.table(name, table)
    for name, entry in model.transactions.items():
        check.transaction(name, entry)
    check.shared()


@dataclass(slots=True)
class _Check:
    """`used`: the workload's own generators that some transaction uses."""

    model: Custom
    node: Map
    path: str
    problems: Problems
    used: set[str] = field(default_factory=set)

    def add(self, where: Where, message: str, at: Sequence[str], hint: str = "") -> None:
        self.problems.add(where, message, key=".".join((self.path, *at)), hint=hint)

    def at_key(self, *at: str) -> Where:
        """The position of the key that `at` ends with."""
        _, key = locate(self.node, at)
        return key.where if key is not None else where_of(self.node, *at)

    def text_at(self, at: Sequence[str], text: str, offset: int) -> Where:
        """The position of a character of a text below `at`: to the column where the text stands as it is, else its
        start."""
        node = _scalar(self.node, at, text)
        return node.at(offset) if node is not None else where_of(self.node, *at)

    def fault(self, at: Sequence[str], text: str, fault: Fault) -> None:
        self.add(self.text_at(at, text, fault.offset), fault.message, at)

    # ---- tables -----------------------------------------------------------------------------------------------------

    def table(self, name: str, entry: TableEntry) -> None:
        at = ("tables", name)
        for column, generator in entry.columns.items():
            if generator.from_ is not None:
                message = "a population has no results to take values from"
                self.add(where_of(self.node, *at, "columns", column), message, (*at, "columns", column))
        for key, scripts in (("create", entry.create), ("after", entry.after)):
            for engine, texts in scripts.items():
                for text in texts:
                    tokens = sql_text.scan(text)
                    fault = sql_text.script_fault(tokens)
                    if fault is not None:
                        self.fault((*at, key, engine), text, fault)
        for engine, texts in entry.create.items():
            made = [made for text in texts if (made := sql_text.table(sql_text.scan(text))) is not None]
            if len(made) == 1:
                self.columns(name, entry, engine, *made[0])

    def columns(self, name: str, entry: TableEntry, engine: str, made: str, columns: Sequence[sql_text.Column]) -> None:
        """Check the generators against the columns of CREATE TABLE."""
        if made.lower() != name.lower():
            message = f"it creates `{made}`, but the table is called `{name}`"
            self.add(where_of(self.node, "tables", name, "create", engine), message, ("tables", name, "create"))
            return
        known = {column.name.lower(): column for column in columns}
        for column, generator in entry.columns.items():
            at = ("tables", name, "columns", column)
            if column.lower() not in known:
                message = f"CREATE TABLE {name} has no column `{column}`"
                self.add(self.at_key(*at), message, at, did_you_mean(column, [c.name for c in columns]))
            elif generator.from_ is None and (mismatch := _mismatch(known[column.lower()], generator)):
                self.add(where_of(self.node, *at), mismatch, at)

    # ---- transactions -----------------------------------------------------------------------------------------------

    def transaction(self, name: str, entry: TransactionEntry) -> None:
        own, shared = entry.binds, self.model.binds
        needed: set[str] = set()
        for statement, one in entry.statements.items():
            at = ("transactions", name, "statements", statement)
            needed |= self.statement(at, one, {**shared, **own})
        for bind, generator in own.items():
            at = ("transactions", name, "binds", bind)
            if bind not in needed:
                unused = f"no statement of {name} has a bind `:{bind}`"
                self.add(self.at_key(*at), unused, at, did_you_mean(bind, needed - set(own)))
            elif generator.from_ is not None:
                self.origin(name, entry, bind, generator.from_)
        self.used |= needed - set(own)

    def statement(self, at: tuple[str, ...], one: StatementEntry, generators: dict[str, Generator]) -> set[str]:
        """Its texts one by one, and with each other; the binds they have."""
        binds: dict[str, set[str]] = {}
        reads: dict[str, bool] = {}
        for engine, text in one.sql.items():
            tokens = sql_text.scan(text)
            fault = sql_text.fault(tokens)
            if fault is not None:
                self.fault((*at, "sql", engine), text, fault)
                continue
            reads[engine] = sql_text.reads(tokens)
            binds[engine] = {token.text[1:] for token in sql_text.binds(tokens)}
            self.unknown((*at, "sql", engine), text, sql_text.binds(tokens), generators)
        engines = list(binds)
        for other in engines[1:]:
            differ = sorted(binds[other] ^ binds[engines[0]])
            where = where_of(self.node, *at, "sql", other)
            if differ:
                message = f"`:{differ[0]}` is in the text for {engines[0]} or in that for {other}, but not in both"
                self.add(where, message, (*at, "sql", other), "all texts of a statement have the same binds")
            if reads[other] != reads[engines[0]]:
                message = f"for {other} and for {engines[0]} one gives rows and the other does not"
                self.add(where, message, (*at, "sql", other))
        return set().union(*binds.values()) if binds else set(generators)

    def unknown(self, at: tuple[str, ...], text: str, binds: Sequence[Token], generators: dict[str, Generator]) -> None:
        for name in dict.fromkeys(token.text[1:] for token in binds if token.text[1:] not in generators):
            first = next(token for token in binds if token.text[1:] == name)
            hint = did_you_mean(name, generators) if generators else f"binds: {{{name}: {{uniform: [1, 100]}}}}"
            self.add(self.text_at(at, text, first.start), f"the bind `:{name}` has no generator", at, hint)

    def origin(self, transaction: str, entry: TransactionEntry, bind: str, source: str) -> None:
        """A `from:`: the statement must give rows, and stand before the statement that uses the bind; its column must
        be known."""
        at = ("transactions", transaction, "binds", bind)
        where = where_of(self.node, *at, "from")
        names = list(entry.statements)
        name, _, column = source.partition(".")
        if name not in names:
            self.add(where, f"{transaction} has no statement `{name}`", at, did_you_mean(name, names))
            return
        early = next((user for user in names[: names.index(name) + 1] if bind in _binds(entry.statements[user])), None)
        if early is not None:
            late = "gives it itself" if early == name else f"runs before `{name}`, which gives it"
            self.add(where, f"`{early}` uses `:{bind}`, but {late}", at)
        for text in entry.statements[name].sql.values():
            if (problem := _no_column(text, name, column)) is not None:
                self.add(where, problem[0], at, problem[1])
                return

    def shared(self) -> None:
        """The workload's own generators: used by some transaction, and not taken from a result."""
        for bind, generator in self.model.binds.items():
            at = ("binds", bind)
            if generator.from_ is not None:
                hint = "put it into the transaction"
                message = "a bind of all transactions cannot come from a statement"
                self.add(where_of(self.node, *at), message, at, hint)
            elif bind not in self.used:
                self.add(self.at_key(*at), f"no statement has a bind `:{bind}`", at)


def _no_column(text: str, statement: str, column: str) -> tuple[str, str] | None:
    """(message, hint) when a statement's result has no column of that name at a known place."""
    tokens = sql_text.scan(text)
    if sql_text.fault(tokens) is not None:
        return None
    if not sql_text.reads(tokens):
        return f"`{statement}` gives no rows", "a query, or RETURNING"
    known, starred = sql_text.columns(tokens)
    names = [name for name in known if name is not None]
    if column.lower() in [name.lower() for name in names]:
        return None
    if starred:
        return f"the position of `{column}` in a `*` is not known", "name the columns"
    hint = did_you_mean(column, names) or "name the column: count(*) AS n"
    return f"the result of `{statement}` has no column `{column}`", hint


def _binds(one: StatementEntry) -> set[str]:
    return {token.text[1:] for text in one.sql.values() for token in sql_text.binds(sql_text.scan(text))}


def _mismatch(column: sql_text.Column, generator: Generator) -> str | None:
    """The reason why the values of a generator do not fit into a column, where its type is one of the plain ones."""
    if column.type in _WHOLE_TYPES and generator.type is not int:
        gives = "fractions" if generator.type is float else "text"
        return f"`{column.name}` is {column.type.lower()}, but {generator.source} gives {gives}"
    longest = _longest(generator)
    if column.type in _CHAR_TYPES and column.length is not None and longest > column.length:
        return f"`{column.name}` holds {column.length} characters, but {generator.source} gives up to {longest}"
    return None


def _longest(generator: Generator) -> int:
    """Characters of the longest text that a generator gives; 0 when it gives none."""
    if generator.text is not None:
        return generator.text[1]
    if generator.pick is not None:
        return max(len(value) if isinstance(value, str) else 0 for value, _ in generator.pick)
    return 36 if generator.uuid is not None else 0


def _scalar(root: Node, at: Sequence[str], text: str) -> Scalar | None:
    """The scalar below `at` that holds the text; shorthand has steps that lead nowhere."""
    found, _ = locate(root, at)
    return next((node for node in _scalars(found) if node.text == text), None)


def _scalars(node: Node) -> Iterator[Scalar]:
    if isinstance(node, Scalar):
        yield node
    elif isinstance(node, Map):
        for _, below in node.entries:
            yield from _scalars(below)
    else:
        for below in node.items:
            yield from _scalars(below)
