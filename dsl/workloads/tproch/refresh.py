"""The refresh functions RF1 and RF2 (TPC-H 2.5 to 2.7): their sets of rows, statements and bodies.

A set has 0.1 % of the orders. Order keys are sparse: of each 32 keys the population has the first eight, so that three
more generations fit between them. Set n = 1, 2, … inserts orders in place of those that it deletes: order i of the
population has the key `order_key(i, 0)`, and set n inserts `order_key(i, 1)` and deletes `order_key(i, 0)` for its 0.1
% of all i. After 1,000 sets the population has been replaced once, and the next generation of keys follows.

The rows of a set depend on (seed, n) only. The number comes from `refresh_state`, which the transaction raises: a
rollback takes it back, and sets are inserted and deleted in order. Rows go in statements of `BATCH` orders, with their
lines in statements of `BATCH` lines, the rest one by one; keys are deleted `BATCH` at a time. Comments are words of
ours, of the lengths that the specification gives.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

import numpy as np

from proveout.core.data_classes import dataclass
from proveout.dsl.engines import DIALECTS, Dialect
from proveout.dsl.workloads.base import Body, Outcome, Request, Result, Row, Statement
from proveout.dsl.workloads.random_streams import philox
from proveout.dsl.workloads.tproch.parameters import SETS, STATE, Tproch
from proveout.dsl.workloads.tproch.query_parameters import SHIP_MODES, WORDS
from proveout.dsl.workloads.tproch.query_templates import in_dialect
from proveout.dsl.workloads.tproch.tables import COLUMNS

BATCH = 10
PURPOSE = 40_100
START, CURRENT = np.datetime64("1992-01-01"), np.datetime64("1995-06-17")
ORDER_DAYS = 2_406
"""Days on which an order may be placed: from 1992-01-01 to 151 days before 1998-12-31 (4.2.3)."""
PRIORITIES = ("1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW")
INSTRUCTIONS = ("DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN")
_WORDS = (*WORDS[0], *WORDS[1], "carefully", "quickly", "final", "ideas", "sleep", "among", "the", "regular")


def order_key(index: int, generation: int) -> int:
    """The key of the order with this index (from 1) in a generation of keys: bits 3 and 4 hold the generation."""
    return index >> 3 << 5 | generation % 4 << 3 | index & 7


@dataclass(frozen=True, slots=True)
class RefreshSet:
    """Set `number` (from 1) of a population."""

    parameters: Tproch
    number: int

    @property
    def inserted_keys(self) -> list[int]:
        """The keys of the orders that RF1 inserts."""
        return self._keys(1)

    @property
    def deleted_keys(self) -> list[int]:
        """The keys of the orders that RF2 deletes."""
        return self._keys(0)

    def _keys(self, ahead: int) -> list[int]:
        cycle, place = divmod(self.number - 1, SETS)
        first = place * self.parameters.set_orders + 1
        return [order_key(first + offset, cycle + ahead) for offset in range(self.parameters.set_orders)]

    def rows(self) -> tuple[list[Row], list[Row]]:
        """The rows of ORDERS and of LINEITEM that RF1 inserts, in the order of their columns."""
        random = np.random.Generator(philox(self.parameters.seed, PURPOSE, self.number))
        made = [self._order(random, key) for key in self.inserted_keys]
        return [order for order, _ in made], [line for _, lines in made for line in lines]

    def _order(self, random: np.random.Generator, key: int) -> tuple[Row, list[Row]]:
        placed = START + np.timedelta64(_whole(random, 0, ORDER_DAYS - 1), "D")
        lines = [self._line(random, key, number, placed) for number in range(1, _whole(random, 1, 7) + 1)]
        # 4.2.3: the price of an order is that of its lines, with tax and discount
        cents = sum(round(price * (100 + tax) * (100 - discount) / 10_000) for _, price, discount, tax in lines)
        status = {line[9] for line, *_ in lines}
        order = (
            key,
            self._customer(random),
            status.pop() if len(status) == 1 else "P",
            _money(cents),
            str(placed),
            PRIORITIES[_whole(random, 0, 4)],
            f"Clerk#{_whole(random, 1, max(1, round(1_000 * self.parameters.scale))):09d}",
            0,
            _comment(random, 19, 78),
        )
        return order, [line for line, *_ in lines]

    def _line(
        self, random: np.random.Generator, key: int, number: int, placed: np.datetime64
    ) -> tuple[Row, int, int, int]:
        """A row of LINEITEM, and its price in cents, discount and tax in hundredths."""
        part = _whole(random, 1, self.parameters.rows("part"))
        quantity, discount, tax = _whole(random, 1, 50), _whole(random, 0, 10), _whole(random, 0, 8)
        price = quantity * (90_000 + part // 10 % 20_001 + 100 * (part % 1_000))
        shipped = placed + np.timedelta64(_whole(random, 1, 121), "D")
        promised = placed + np.timedelta64(_whole(random, 30, 90), "D")
        received = shipped + np.timedelta64(_whole(random, 1, 30), "D")
        row = (
            key,
            part,
            self._supplier(random, part),
            number,
            _money(quantity * 100),
            _money(price),
            _money(discount),
            _money(tax),
            "RA"[_whole(random, 0, 1)] if received <= CURRENT else "N",
            "O" if shipped > CURRENT else "F",
            str(shipped),
            str(promised),
            str(received),
            INSTRUCTIONS[_whole(random, 0, 3)],
            SHIP_MODES[_whole(random, 0, len(SHIP_MODES) - 1)],
            _comment(random, 10, 43),
        )
        return row, price, discount, tax

    def _customer(self, random: np.random.Generator) -> int:
        """A customer; those whose number is divisible by three have no orders."""
        return 3 * _whole(random, 0, self.parameters.rows("customer") // 3 - 1) + _whole(random, 1, 2)

    def _supplier(self, random: np.random.Generator, part: int) -> int:
        """One of the four suppliers of a part."""
        suppliers = self.parameters.rows("supplier")
        return (part + _whole(random, 0, 3) * (suppliers // 4 + (part - 1) // suppliers)) % suppliers + 1


def _whole(random: np.random.Generator, low: int, high: int) -> int:
    return int(random.integers(low, high + 1))


def _money(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02d}"


def _comment(random: np.random.Generator, shortest: int, longest: int) -> str:
    words = " ".join(_WORDS[index] for index in random.integers(0, len(_WORDS), 12).tolist())
    return words[: _whole(random, shortest, longest)].strip()


# ---- statements --------------------------------------------------------------------------------------------------


def _value(kind: str, number: int) -> str:
    """The place of an argument, converted to a column's kind where that is neither a number nor a text."""
    if kind == "date":
        return f"DAY(${number})"
    return f"MONEY(${number})" if kind.startswith("numeric") else f"${number}"


def _insert(table: str, rows: int) -> Statement:
    columns = COLUMNS[table]
    names = ", ".join(name for name, _ in columns)
    tuples = [
        "(" + ", ".join(_value(kind, row * len(columns) + at) for at, (_, kind) in enumerate(columns, 1)) + ")"
        for row in range(rows)
    ]
    text = f"INSERT INTO {table} ({names}) VALUES {', '.join(tuples)}"  # noqa: S608 - names of ours
    texts = {dialect: in_dialect(text, dialect) for dialect in DIALECTS}
    if rows > 1:  # Oracle has no VALUES of several rows before release 23
        into = " ".join(f"INTO {table} ({names}) VALUES {one}" for one in tuples)
        texts["oracle"] = in_dialect(f"INSERT ALL {into} SELECT 1 FROM dual", "oracle")  # noqa: S608 - names of ours
    types = tuple(int if kind.startswith("int") else str for _, kind in columns)
    return Statement(name=f"insert-{table}-{rows}", text=texts, arguments=types * rows, reads=False)


def _delete(table: str, key: str) -> Statement:
    places = ", ".join(f"${number}" for number in range(1, BATCH + 1))
    text = f"DELETE FROM {table} WHERE {key} IN ({places})"  # noqa: S608 - names of ours
    return Statement(name=f"delete-{table}", text=_for_all(text), arguments=(int,) * BATCH, reads=False)


def _for_all(text: str) -> dict[Dialect, str]:
    return dict.fromkeys(DIALECTS, text)


def _state(name: str, text: str, *, reads: bool) -> Statement:
    return Statement(
        name=name,
        text=_for_all(text.format(table=STATE)),
        arguments=(),
        columns=(int,) if reads else (),
        reads=reads,
        rows_max=1 if reads else None,
    )


INSERTS = {(table, rows): _insert(table, rows) for table in ("orders", "lineitem") for rows in (BATCH, 1)}
DELETES = (_delete("lineitem", "l_orderkey"), _delete("orders", "o_orderkey"))
TAKE = {
    column: _state(f"take-{column}", f"UPDATE {{table}} SET {column} = {column} + 1 WHERE id = 1", reads=False)  # noqa: S608
    for column in ("inserted", "deleted")
}
NUMBER = {
    column: _state(f"number-{column}", f"SELECT {column} FROM {{table}} WHERE id = 1", reads=True)  # noqa: S608
    for column in ("inserted", "deleted")
}
INSERT_STATEMENTS = (TAKE["inserted"], NUMBER["inserted"], *INSERTS.values())
DELETE_STATEMENTS = (TAKE["deleted"], NUMBER["deleted"], *DELETES)


# ---- bodies ------------------------------------------------------------------------------------------------------


def insert_set(parameters: Tproch) -> Body:
    """RF1: insert the next set."""
    number = yield from _next_set("inserted")
    orders, lines = RefreshSet(parameters, number).rows()
    for table, rows in (("orders", orders), ("lineitem", lines)):
        yield from _inserts(table, rows)
    return Outcome.COMMIT


def delete_set(parameters: Tproch) -> Body:
    """RF2: delete the orders, with their lines, that the next set replaces."""
    number = yield from _next_set("deleted")
    keys = RefreshSet(parameters, number).deleted_keys
    for first in range(0, len(keys), BATCH):
        part = keys[first : first + BATCH]
        part += part[-1:] * (BATCH - len(part))
        for statement in DELETES:
            yield statement, tuple(part)
    return Outcome.COMMIT


def _next_set(column: str) -> Generator[Request, Result, int]:
    yield TAKE[column], ()
    result = yield NUMBER[column], ()
    return int(result.rows()[0][0])


def _inserts(table: str, rows: Sequence[Row]) -> Generator[Request, Result, None]:
    whole = len(rows) // BATCH * BATCH
    for first in range(0, whole, BATCH):
        yield INSERTS[table, BATCH], tuple(value for row in rows[first : first + BATCH] for value in row)
    for row in rows[whole:]:
        yield INSERTS[table, 1], row
