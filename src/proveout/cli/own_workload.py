r"""The workload of a database of one's own: its top statements or its keys, statements of the command line, with binds
drawn from the ranges of its columns, or scripts of pgbench.

Data flow: the catalogue (`statement_errors.RULES`) and the server's statistics -> `Transaction`s -> `Load`, the
lines of a workload `kind: sql`. Nothing is changed: the queries read the catalogue, counts up to a limit, minima and
maxima.

A script `FILE[@WEIGHT]` -> `Script.read`, its lines -> `Script.transaction`: a `\set` of `random` or of
`random_zipfian` becomes a generator, a statement stays one, BEGIN and END are left out, as the transactions of a
plan have them. What else a script can say is not carried: every such line is named. Source: PostgreSQL
documentation, "pgbench", custom scripts.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeAlias

from proveout.agent.engines.statement_errors import rules_of
from proveout.cli.database_address import Database
from proveout.cli.options import Unusable
from proveout.cli.plan_writer import Load, quoted
from proveout.core.data_classes import dataclass, field, record
from proveout.dsl.workloads import sql_text
from proveout.dsl.workloads.sql_text import Token

TRANSACTIONS_MAX = 12
ROWS_COUNTED = 1_000_000
MANY_ROWS = 10_000
"""A table of fewer is read whole with good reason."""
LOOKUPS, LISTS = 3, 1
"""Weights of a read by primary key, and of one by foreign key, where the server has no statistics."""
LISTED = 100
"""Rows that a read by foreign key takes at most."""
Generator: TypeAlias = Mapping[str, Any]
"""A generator of values, as a plan has it; empty for none."""
UNKNOWN_RANGE: Generator = {"uniform": [1, 1000]}
ADDED: Generator = {"uniform": [1, 100]}
"""The values that a statement adds to a column."""

_WHOLE = re.compile(
    r"(?:(?:small|big|medium|tiny)?int(?:eger)?|u?(?:small|big|tiny|huge)int|serial|number|oid)(?!\d*[a-z]|.*\[)",
    re.IGNORECASE,
)
_FRACTION = re.compile(r"(?:numeric|decimal|double|real|float)(?!.*\[)", re.IGNORECASE)
_MOMENT = re.compile(r"(?:timestamp|datetime|date)(?!\w*range|.*\[)", re.IGNORECASE)
"""Types of one value, not `interval`, `int4range`, `date[]`."""
_PLAIN = re.compile(r"[A-Za-z_][\w$]*(?:\.[A-Za-z_][\w$]*)?")
_NOT_AN_ALIAS = frozenset(
    {
        "WHERE", "SET", "ON", "USING", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "JOIN", "NATURAL", "ORDER", "GROUP",
        "HAVING", "LIMIT", "UNION", "VALUES", "FOR", "OFFSET", "FETCH", "SELECT", "RETURNING", "WINDOW", "FROM", "AND",
    }
)  # fmt: skip
"""Words that follow a table and are not its alias."""
_COMPARISONS = frozenset("<>=!")
_NAMES = ("word", "quoted")


@record
class Transaction:
    """A transaction to write: its statements, and its binds with their generators. `about`: a comment; `expect_one`:
    its statement finds one row; `scan`: the table of many rows that it reads whole, "" for none."""

    name: str
    weight: float
    sql: Sequence[str]
    binds: Mapping[str, Generator]
    about: str = ""
    expect_one: bool = False
    scan: str = ""

    @property
    def statements(self) -> dict[str, Any]:
        """The statements as a plan has them."""
        rows = {"expect_rows": 1} if self.expect_one else {}
        return {f"s{number}": {"sql": text, **rows} for number, text in enumerate(self.sql, 1)}


@dataclass(slots=True)
class Tables:
    """The catalogue of a database, each part read once. `unknown`: the parts that it lacks."""

    database: Database
    unknown: list[str] = field(default_factory=list)
    _columns: dict[str, dict[str, str]] = field(default_factory=dict)
    _ranges: dict[tuple[str, str], Generator] = field(default_factory=dict)

    def columns(self, table: str) -> Mapping[str, str]:
        """Types of the columns of a table by name, in lower case; empty for one that is not there."""
        if table not in self._columns:
            query = rules_of(self.database.engine).columns
            rows = self.database.rows(query.format(table=table)) if query and _PLAIN.fullmatch(table) else ()
            self._columns[table] = {str(name).lower(): str(kind) for name, kind in rows}
        return self._columns[table]

    def count(self, table: str) -> int:
        """Its rows, at most `ROWS_COUNTED`."""
        query = rules_of(self.database.engine).some_rows.format(table=table, most=ROWS_COUNTED)
        return int(self.database.rows(query)[0][0])

    def ends(self, table: str, column: str) -> tuple[Any, Any]:
        """The least and the greatest value; None where it has no rows."""
        low, high = self.database.rows(
            f"SELECT min({column}) AS proveout_min, max({column}) AS proveout_max FROM {table}"  # noqa: S608 - of the catalogue
        )[0]
        return low, high

    def generator(self, table: str, column: str) -> Generator:
        """The generator of a column's values; empty where its type has none, or it has no values."""
        if (table, column) not in self._ranges:
            self._ranges[table, column] = self._generator(table, column, self.columns(table)[column])
        return self._ranges[table, column]

    def marked(self, one: Transaction) -> Transaction:
        """The transaction with the table of many rows that a statement of it reads whole, as the engine plans it."""
        rules = rules_of(self.database.engine)
        for text in one.sql if rules.plan else ():
            try:
                rows = self.database.rows(rules.plan + _with_values(text, one.binds))
                found = [match for row in rows if (match := re.match(rules.scan, "\t".join(map(str, row))))]
                used = _tables_of(sql_text.scan(text))
                for name in (match[1].lower() for match in found):
                    table = next(
                        (t for alias, t in used.items() if name in (alias, t.lower().rpartition(".")[2])), name
                    )
                    if (count := self.count(table)) >= MANY_ROWS:
                        more = " and more" if count == ROWS_COUNTED else ""
                        return replace(one, scan=f"{table} ({count:,} rows{more})")
            except Unusable:  # the check of the run has the reason
                continue
        return one

    def _generator(self, table: str, column: str, kind: str) -> Generator:
        if not (_WHOLE.match(kind) or _FRACTION.match(kind) or _MOMENT.match(kind)):
            return {}
        try:
            low, high = self.ends(table, column)
        except Unusable as fault:  # a value that Python has not, such as the timestamp `infinity`
            self.unknown.append(f"the range of {table}.{column}: {' '.join(fault.what.split())}")
            return {}
        if low is None:
            return {}
        try:
            if _MOMENT.match(kind):
                found: Generator = {"timestamp": [str(end)[:19].replace("T", " ") for end in (low, high)]}
            elif _WHOLE.match(kind):
                found = {"uniform": [int(low), int(high)]}
            else:
                found = {"uniform": [round(float(low), 2), round(float(high), 2)], "digits": 2}
        except (OverflowError, TypeError, ValueError):  # SQLite takes a text in a column of numbers
            found = {}
        if not _is_of_plan(found):
            self.unknown.append(f"the range of {table}.{column}: a plan has none from {low} to {high}")
            return {}
        return found


def _is_of_plan(generator: Generator) -> bool:
    """Whether a plan may have it: not one with NaN, 20 digits, or the date 0000-00-00 of MySQL."""
    from pydantic import ValidationError

    from proveout.dsl.source.loader import read_plain
    from proveout.dsl.workloads.sql import Generator as OfPlan

    try:
        OfPlan.model_validate(generator)
    except ValidationError:
        return False
    return not any(read_plain(quoted(end))[1] for end in generator.get("uniform", ()))


def _with_values(text: str, binds: Mapping[str, Generator]) -> str:
    """A statement with a value in the place of each bind, from the middle of its range; NULL where that is not known.

    >>> _with_values("SELECT a FROM t WHERE b = :b AND c > :c", {"b": {"uniform": [1, 9]}, "c": {}})
    'SELECT a FROM t WHERE b = 5 AND c > NULL'
    """
    parts, at = [], 0
    for token in sql_text.binds(sql_text.scan(text)):
        generator, value = binds.get(token.text[1:], {}), "NULL"
        if ends := generator.get("uniform") or generator.get("zipf"):
            value = str((ends[0] + ends[1]) / 2 if isinstance(ends[0], float) else (ends[0] + ends[1]) // 2)
        elif moments := generator.get("timestamp"):
            value = f"'{moments[0]}'"
        parts += [text[at : token.start], value]
        at = token.start + len(token.text)
    return "".join((*parts, text[at:]))


# ---- keys ------------------------------------------------------------------------------------------------------------


def by_keys(tables: Tables) -> list[Transaction]:
    """Reads by each key of one column that is a whole number: primary keys, and foreign keys."""
    query = rules_of(tables.database.engine).keys
    found = []
    for table, column, kind, role in tables.database.rows(query) if query else ():
        name = str(table)
        if not _PLAIN.fullmatch(name) or not _PLAIN.fullmatch(str(column)):
            tables.unknown.append(f"{name}.{column}: its name needs quotes; write the statement yourself")
        elif not _WHOLE.match(str(kind)):
            tables.unknown.append(f"{name}.{column} is {kind}: no values are drawn; give its bind a `pick` or `text`")
        elif generator := tables.generator(name, str(column).lower()):
            found.append(_by_key(tables, name, str(column).lower(), generator, lookup=role == "primary"))
    found.sort(key=lambda one: -one.weight)
    return found[:TRANSACTIONS_MAX]


def _by_key(tables: Tables, table: str, column: str, generator: Generator, *, lookup: bool) -> Transaction:
    short = table.rpartition(".")[2]
    sql = f"SELECT * FROM {table} WHERE {column} = :{column}"  # noqa: S608 - of the catalogue
    dense = False
    if lookup:
        low, high = tables.ends(table, column)
        dense = tables.count(table) == int(high) - int(low) + 1
    else:
        sql += f" FETCH FIRST {LISTED} ROWS ONLY" if tables.database.engine == "oracle" else f" LIMIT {LISTED}"
    return Transaction(
        name=f"{short}_by_{column}"[:60],
        weight=LOOKUPS if lookup else LISTS,
        sql=(sql,),
        binds={column: generator},
        about="by primary key" if lookup else "by foreign key",
        expect_one=lookup and dense,
    )


# ---- statements ------------------------------------------------------------------------------------------------------


class NotCarried(Exception):
    """A statement that does not become one of a plan; the text says why."""


def top_statements(tables: Tables, *, writes: bool) -> list[Transaction]:
    """The statements that the server has counted most often, weights by calls; none where it keeps no statistics."""
    query = rules_of(tables.database.engine).statements
    if not query:
        return []
    try:
        rows = tables.database.rows(query)
    except Unusable as fault:
        what = " ".join(fault.what.split()).partition(" LINE 1")[0]
        tables.unknown.append(
            f"the statistics of the server on its statements: {what}{fault.way_out and f'; {fault.way_out}'}"
        )
        return []
    if not rows:
        tables.unknown.append("the statements that run: the server has counted none in this database")
    found: list[Transaction] = []
    for calls, text in rows:
        if len(found) == TRANSACTIONS_MAX:
            break
        one = " ".join(str(text).split()).rstrip(";")
        if "proveout" in one.lower():
            continue
        lists = 0
        if tables.database.engine == "mysql":
            one, lists = _of_digest(tables, one)
        elif tables.database.engine == "oracle":
            one = _NUMBERED.sub(lambda found: f":p{found[1]}" if found[1] else found[0], one)
        try:
            carried = _carried(tables, one, float(calls), len(found) + 1, writes=writes)
            found += [carried] if carried else []
            if lists and carried:
                tables.unknown.append(f"the number of values in the list of {carried.name}: 1")
        except NotCarried as fault:
            tables.unknown.append(f"{_calls(float(calls))} of {one[:120]}: {fault}")
    return found


def _calls(count: float) -> str:
    return f"{count:,.0f} call{'s' * (count != 1)}"


_LOCKS = re.compile(r"\bFOR (?:(?:NO KEY )?UPDATE|(?:KEY )?SHARE)\b|\bLOCK IN SHARE MODE\b", re.IGNORECASE)
_VERBS = frozenset({"SELECT", "WITH", "INSERT", "UPDATE", "DELETE", "MERGE", "REPLACE"})


def _carried(tables: Tables, text: str, calls: float, number: int, *, writes: bool) -> Transaction | None:
    """The transaction; None for a statement that is not of the application, such as one of the catalogue."""
    tokens = sql_text.scan(text)
    used = _tables_of(tokens)
    if not used or any(_is_of_system(name) or not tables.columns(name) for name in used.values()):
        return None
    if tokens[0].upper not in _VERBS:
        return None
    if not writes and (sql_text.writes(tokens) or _LOCKS.search(text)):
        raise NotCarried("it changes rows or locks them (--write)")
    sql, binds = with_binds(tables, text, used)
    if (fault := sql_text.fault(sql_text.scan(sql))) is not None:
        raise NotCarried(fault.message)
    verb, table = tokens[0].text.lower(), next(iter(used.values())).rpartition(".")[2]
    return Transaction(name=f"{verb}_{table}_{number}"[:60], weight=calls, sql=(sql,), binds=binds, about=_calls(calls))


_NUMBERED = re.compile(r"'[^']*'|:(\d+)")
"""A literal, or a bind of Oracle that has a number for a name."""
_BEFORE_PARENTHESES = _NOT_AN_ALIAS | {"IN", "EXISTS", "NOT", "OR", "AS", "BY"}
_CALLED = re.compile(r"(INTO )?(`?)(\w+)\2 \(")
_ROW = re.compile(r"(INTO `?(\w+)`?)(?: \(([^()]*)\))? VALUES \(\.\.\.\)(?: (?:, )?(?:/\*.*?\*/|\(?\.\.\.\)?))*")


def _of_digest(tables: Tables, text: str) -> tuple[str, int]:
    """The text of a digest of performance_schema as a statement, and its number of lists: a function is followed by its
    parenthesis, a list of values is one value, the rows of an INSERT are one."""

    def row(found: re.Match[str]) -> str:
        columns = found[3].split(",") if found[3] else list(tables.columns(found[2]))
        return f"{found[1]} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"

    def called(found: re.Match[str]) -> str:
        return found[0] if found[1] or found[3].upper() in _BEFORE_PARENTHESES else f"{found[3]}("

    text, lists = re.subn(r"\bIN \(\.\.\.\)", "IN (?)", _ROW.sub(row, text))
    return _CALLED.sub(called, text), lists


def _is_of_system(table: str) -> bool:
    schema, _, name = table.lower().rpartition(".")
    return schema in ("pg_catalog", "information_schema", "performance_schema", "mysql", "sys") or name.startswith(
        ("pg_", "sqlite_", "duckdb_", "v$", "proveout_")
    )


def weighted(text: str) -> tuple[float, str]:
    """`3:SELECT …` as (3.0, `SELECT …`); the weight is 1 where there is none.

    >>> weighted("2.5: SELECT 1")
    (2.5, 'SELECT 1')
    """
    found = re.match(r"\s*(\d+(?:\.\d+)?)\s*:(?!:)\s*(.*)", text, re.DOTALL)
    return (float(found[1]), found[2]) if found else (1.0, text)


def of_statement(tables: Tables, text: str, weight: float, number: int) -> Transaction:
    """A statement of the command line, its binds drawn from the columns that they are compared with. Unusable."""
    tokens = sql_text.scan(text)
    if (fault := sql_text.fault(tokens)) is not None:
        raise Unusable(f"--sql {text!r}: {fault.message}", way_out="Give one statement each.")
    used = _tables_of(tokens)
    if missing := [name for name in used.values() if not tables.columns(name)]:
        way_out = "Check the name, and the user's rights on it."
        raise Unusable(f"--sql {text!r}: {tables.database.address.name} has no table {missing[0]}", way_out=way_out)
    try:
        sql, binds = with_binds(tables, text, used)
    except NotCarried as refusal:
        raise Unusable(f"--sql {text!r}: {refusal}", way_out="Write values as :name.") from None
    return Transaction(name=f"statement_{number}", weight=weight, sql=(sql,), binds=binds)


def with_binds(tables: Tables, text: str, used: Mapping[str, str]) -> tuple[str, dict[str, Generator]]:
    """The text with a bind at each place of a value, and their generators. `used`: tables by the names that the text
    has for them. NotCarried."""
    tokens = sql_text.scan(text)
    parts: list[str] = []
    binds: dict[str, Generator] = {}
    at = 0
    names: dict[str, str] = {}
    for index, token in enumerate(tokens):
        if token.kind not in ("positional", "bind") and not (token.kind == "mark" and token.text == "?"):
            continue
        own = token.kind == "bind"
        if token.text in names and token.text != "?":
            name = names[token.text]
        else:
            column, generator = _source(tables, tokens, index, used)
            if not generator and not own:
                raise NotCarried(f"the values of {column or token.text} are not known")
            if not generator:
                tables.unknown.append(f"the values of `{token.text}`: drawn from {flow(UNKNOWN_RANGE)}")
                generator = UNKNOWN_RANGE
            name = token.text[1:] if own else _fresh(column, binds)
            names[token.text] = name
            binds[name] = generator
        parts += [text[at : token.start], f":{name}"]
        at = token.start + len(token.text)
    sql = "".join((*parts, text[at:]))
    if "..." in sql:
        raise NotCarried("the server has shortened its text")
    return sql, binds


def _fresh(column: str, taken: Mapping[str, Generator]) -> str:
    name, number = column or "value", 2
    while name in taken:
        name, number = f"{column}_{number}", number + 1
    return name


def _source(tables: Tables, tokens: Sequence[Token], index: int, used: Mapping[str, str]) -> tuple[str, Generator]:
    """(column, generator) of the value at a place; empty where it is not known."""
    before = tokens[index - 1].upper if index else ""
    if before in ("LIMIT", "OFFSET", "FIRST", "NEXT"):
        tables.unknown.append(f"the value after {before}: {'10' if before != 'OFFSET' else '0'}")
        return before.lower(), {"uniform": [0, 0]} if before == "OFFSET" else {"uniform": [10, 10]}
    added = index > 1 and tokens[index - 1].text in ("+", "-") and tokens[index - 2].kind in _NAMES
    end = index - 2 if added else _compared(tokens, index)
    if end is None:
        return _inserted(tables, tokens, index, used)
    column = tokens[end].name.lower()
    qualifier = tokens[end - 2].name.lower() if end >= 2 and tokens[end - 1].text == "." else ""
    for alias, table in used.items():
        if qualifier in ("", alias, table.lower()) and column in tables.columns(table):
            if added:
                tables.unknown.append(f"what is added to {table}.{column}: {flow(ADDED)}")
            return column, ADDED if added else tables.generator(table, column)
    return column, {}


def _compared(tokens: Sequence[Token], index: int) -> int | None:
    """The index of the name of the column that the value at `index` is compared with; None where there is none."""
    at = index - 1
    if at >= 0 and tokens[at].text in _COMPARISONS:
        while at >= 0 and tokens[at].text in _COMPARISONS:
            at -= 1
    elif at >= 0 and tokens[at].upper == "BETWEEN":
        at -= 1
    elif at >= 2 and tokens[at].upper == "AND" and tokens[at - 2].upper == "BETWEEN":
        at -= 3
    elif at >= 0 and tokens[at].text in ("(", ","):
        depth = tokens[index].depth
        while at >= 0 and tokens[at].depth >= depth:
            at -= 1
        if at < 1 or tokens[at].text != "(" or tokens[at - 1].upper != "IN":
            return None
        at -= 2
    else:
        return None
    return at if at >= 0 and tokens[at].kind in _NAMES else None


def _inserted(tables: Tables, tokens: Sequence[Token], index: int, used: Mapping[str, str]) -> tuple[str, Generator]:
    """The column of a value in INSERT INTO table (columns) VALUES (values)."""
    words = [token.upper for token in tokens]
    if "INSERT" not in words[:1] or "VALUES" not in words or words.index("VALUES") > index or len(used) != 1:
        return "", {}
    start = words.index("VALUES")
    columns = [token.name.lower() for token in tokens[:start] if token.depth == 1 and token.kind in _NAMES]
    place = sum(token.text == "," and token.depth == 1 for token in tokens[start:index])
    (table,) = used.values()
    if place >= len(columns) or columns[place] not in tables.columns(table):
        return "", {}
    return columns[place], tables.generator(table, columns[place])


def _tables_of(tokens: Sequence[Token]) -> dict[str, str]:
    """The tables of a statement by alias, in lower case, or by their own name."""
    found: dict[str, str] = {}
    for index, token in enumerate(tokens):
        if token.upper not in ("FROM", "JOIN", "UPDATE", "INTO"):
            continue
        at = index + 1
        while (named := _table_at(tokens, at)) is not None:
            alias, table, at = named
            found[alias] = table
            if at >= len(tokens) or tokens[at].text != ",":
                break
            at += 1
    return found


def _table_at(tokens: Sequence[Token], at: int) -> tuple[str, str, int] | None:
    """(alias, table, index after it) of the table that begins at an index."""

    def is_name(place: int) -> bool:
        return place < len(tokens) and tokens[place].kind in _NAMES and tokens[place].upper not in _NOT_AN_ALIAS

    if not is_name(at):
        return None
    table, at = tokens[at].name, at + 1
    if at + 1 < len(tokens) and tokens[at].text == "." and is_name(at + 1):
        table, at = f"{table}.{tokens[at + 1].name}", at + 2
    if at < len(tokens) and tokens[at].upper == "AS":
        at += 1
    if is_name(at) and tokens[at].upper not in ("AND", "OR"):
        return tokens[at].name.lower(), table, at + 1
    return table.rpartition(".")[2].lower(), table, at


# ---- the workload ----------------------------------------------------------------------------------------------------


def load_of(transactions: Sequence[Transaction], title: str, unknown: Iterable[str] = ()) -> Load:
    """The workload of these transactions."""
    return Load(
        title=title,
        lines=tuple(_lines(transactions)),
        unknown=tuple(dict.fromkeys(unknown)),
        scans=tuple(f"{one.name} reads all of {one.scan}: no index is used" for one in transactions if one.scan),
    )


def _lines(transactions: Sequence[Transaction]) -> Iterator[str]:
    yield "kind: sql"
    yield "transactions:"
    total = sum(one.weight for one in transactions)
    for one in transactions:
        share = f"{100 * one.weight / total:.3g} %"
        scan = f", ! no index: reads all of {one.scan}" if one.scan else ""
        yield f"  {one.name}:".ljust(42) + f"# {share}{one.about and f', {one.about}'}{scan}"
        yield f"    weight: {one.weight:g}" if one.weight < 1e6 else f"    weight: {one.weight:.0f}"
        if one.binds:
            yield "    binds:"
            yield from (f"      {name}: {flow(generator)}" for name, generator in one.binds.items())
        yield "    statements:"
        yield from (f"      {name}: {flow(statement)}" for name, statement in one.statements.items())


def flow(values: Mapping[str, Any]) -> str:
    """A mapping on one line of a plan.

    >>> flow({"uniform": [1, 9]})
    '{uniform: [1, 9]}'
    """
    return f"{{{', '.join(f'{name}: {quoted(value)}' for name, value in values.items())}}}"


def of_database(database: Database, *, writes: bool = False) -> Load | None:
    """The workload of the database as it is used, else by its keys; None where it has neither. Reads only, unless
    `writes`."""
    tables = Tables(database)
    found = top_statements(tables, writes=writes)
    refused = _refused(database, found) if found else {}
    tables.unknown += [
        f"{one.about} of {one.sql[0][:120]}: {refused[one.name]}" for one in found if one.name in refused
    ]
    found = [one for one in found if one.name not in refused]
    title = "the top statements of the server"
    if not found:
        found, title = by_keys(tables), "reads by key"
        tables.unknown.insert(
            0, f"how often the statements run: weights are {LOOKUPS} for a primary key, {LISTS} for a foreign key"
        )
    return load_of(list(map(tables.marked, found)), title, tables.unknown) if found else None


def _refused(database: Database, transactions: Sequence[Transaction]) -> dict[str, str]:
    """The message of each transaction that the database refuses to prepare, by name: the check of every run."""
    from proveout.agent.engines.driver_contract import StatementFailure
    from proveout.agent.engines.table import driver
    from proveout.agent.load_check import StatementCheck
    from proveout.dsl.workloads.sql import Custom
    from proveout.dsl.workloads.sql_workload import SqlWorkload

    engine = driver(database.engine)
    refused: dict[str, str] = {}
    try:
        with closing(engine.connect(database.login)) as session:
            check = StatementCheck(database.engine, engine, session)
            for one in transactions:
                entry = {"weight": one.weight, "binds": dict(one.binds), "statements": one.statements}
                workload = SqlWorkload(Custom.model_validate({"transactions": {one.name: entry}}))
                for statement in workload.transactions[0].statements:
                    for finding in check.of_statement(statement, one.name, settled=True):
                        refused[one.name] = finding.message
    except StatementFailure as failure:
        raise Unusable(failure.what, way_out="Is the server up?") from None
    return refused


# Source: PostgreSQL documentation, "pgbench", custom scripts.

_SET = re.compile(r"\\set\s+(?P<name>\w+)\s+(?P<value>.+)", re.DOTALL)
_RANDOM = re.compile(r"(?P<function>random|random_zipfian)\s*\((?P<arguments>.*)\)", re.DOTALL)
_ARITHMETIC = re.compile(r"[\d\s+*/().,-]+")
_OPERATORS: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}  # fmt: skip
_VARIABLE = re.compile(r":(\w+)")
_BRACKETS = re.compile(r"(?:BEGIN|END|COMMIT|START\s+TRANSACTION)(?:\s+(?:WORK|TRANSACTION))?", re.IGNORECASE)
_TABLES = re.compile(r"(?:FROM|JOIN|INTO|UPDATE)\s+(\w+)", re.IGNORECASE)
THETA_MAX = 5.0
"""Of `zipf`."""


@record
class Script:
    """A script: its commands with the number of their first line."""

    path: Path
    weight: float
    commands: Sequence[tuple[int, str]]

    @classmethod
    def read(cls, text: str) -> Script:
        """`FILE` or `FILE@WEIGHT`. Unusable for one that cannot be read."""
        name, at, weight = text.rpartition("@")
        if not at or not re.fullmatch(r"\d+", weight):
            name, weight = text, "1"
        try:
            commands = tuple(_commands(Path(name).read_text(encoding="utf-8")))
        except (OSError, UnicodeDecodeError) as fault:
            raise Unusable(f"--pgbench {name}: {fault}", way_out="Name a script: FILE, or FILE@WEIGHT.") from None
        return cls(path=Path(name), weight=float(weight), commands=commands)

    @property
    def is_on_tables_of_pgbench(self) -> bool:
        """Whether all of its tables are those that `pgbench -i` makes."""
        tables = {name.lower() for _, text in self.commands for name in _TABLES.findall(text)}
        return bool(tables) and all(name.startswith("pgbench_") for name in tables)

    def transaction(self, number: int, scale: int) -> Transaction:
        """The transaction, with `:scale` as pgbench has it. Unusable, with every line that is not carried."""
        values: dict[str, str] = {"scale": str(scale)}
        binds: dict[str, Generator] = {}
        statements: list[str] = []
        refused: list[str] = []
        for line, text in self.commands:
            try:
                if text.startswith("\\"):
                    self._set(text, values, binds)
                elif not _BRACKETS.fullmatch(text):
                    statements.append(_with_constants(text, values, binds))
            except ValueError as fault:
                refused.append(f"{self.path}:{line}: {fault}: {' '.join(text.split())[:80]}")
        if refused:
            raise Unusable(
                "\n".join(("this script is not carried as it is", *refused)),
                way_out="Leave these lines out, or run pgbench.",
            )
        if not statements:
            raise Unusable(f"{self.path} has no statement")
        used = {token.text[1:] for one in statements for token in sql_text.binds(sql_text.scan(one))}
        name = re.sub(r"\W", "_", self.path.stem)
        return Transaction(
            name=f"{name if name[:1].isalpha() else 'script'}_{number}"[:60],
            weight=self.weight,
            sql=statements,
            binds={name: generator for name, generator in binds.items() if name in used},
            about=str(self.path),
        )

    @staticmethod
    def _set(text: str, values: dict[str, str], binds: dict[str, Generator]) -> None:
        """Take a `\\set` into constants or generators. ValueError for another command, or what it cannot be."""
        found = _SET.fullmatch(text)
        if found is None:
            raise ValueError("plans have no such command")
        name, value = found["name"], found["value"].strip()
        drawn = _RANDOM.fullmatch(value)
        match drawn and drawn["function"], _constants(drawn["arguments"] if drawn else value, values):
            case None, [constant]:
                values[name] = str(constant) if constant >= 0 else f"({constant})"  # `a -:x` begins no comment
                return
            case "random", [low, high]:
                generator: Generator = {"uniform": [round(low), round(high)]}
            case "random_zipfian", [low, high, theta] if 0.0 < theta <= THETA_MAX:
                generator = {"zipf": [round(low), round(high)], "theta": float(theta)}
            case _:
                raise ValueError("these arguments are not carried")
        own = _fresh(name, binds)  # a variable that is drawn again is another bind
        binds[own], values[name] = generator, f":{own}"


_UNCUT = r"'[^']*'|/\*[\s\S]*?\*/"
"""A literal, and a comment that may be a hint: neither of them ends a statement."""
_COMMAND = re.compile(rf"^[ \t]*\\.*|(?:{_UNCUT}|[^;\s])(?:{_UNCUT}|[^;])*", re.MULTILINE)
_COMMENT = re.compile(rf"({_UNCUT})|(?:(?<=\s)|^)--.*$", re.MULTILINE)


def _commands(text: str) -> Iterator[tuple[int, str]]:
    """(line, command): a backslash command of one line, or a statement up to its semicolon; without comments."""
    text = _COMMENT.sub(r"\1", text)
    for found in _COMMAND.finditer(text):
        command = " ".join(filter(None, map(str.strip, found[0].splitlines())))
        yield text.count("\n", 0, found.start()) + 1, command


def _constants(text: str, values: dict[str, str]) -> list[float]:
    """The values of expressions of numbers and of variables with constant values, between commas. ValueError."""
    plain = _VARIABLE.sub(lambda found: values.get(found[1], found[0]), text.strip())
    if not _ARITHMETIC.fullmatch(plain):
        raise ValueError("this value is not known before the run")
    plain = re.sub(r"(?<![\d.])0+(?=\d)", "", plain)  # pgbench reads 010 as 10, Python not at all
    try:
        return [_arithmetic(ast.parse(one.strip(), mode="eval").body) for one in plain.split(",")]
    except (SyntaxError, ZeroDivisionError):
        raise ValueError("this expression is not arithmetic") from None


def _arithmetic(node: ast.expr) -> float:
    """The value of numbers with `+ - * /`; whole numbers are divided toward 0. ValueError."""
    match node:
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_arithmetic(operand)
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _OPERATORS:
            one, other = _arithmetic(left), _arithmetic(right)
            if isinstance(sign, ast.Div) and isinstance(one, int) and isinstance(other, int):
                return int(Fraction(one, other))
            return _OPERATORS[type(sign)](one, other)
    raise ValueError("this expression is not arithmetic")


def _with_constants(text: str, values: dict[str, str], binds: dict[str, Generator]) -> str:
    """The statement with constants in the place of their variables. ValueError for a variable without a value."""
    for token in reversed(sql_text.binds(sql_text.scan(text))):
        name = token.text[1:]
        if name in values:
            text = f"{text[: token.start]}{values[name]}{text[token.start + len(token.text) :]}"
        elif name not in binds:
            raise ValueError(f":{name} has no value here")
    return text
