"""The rows of a TPROC-C population, slice by slice: arithmetic on Philox counters, the same however the slices are cut.

Flow: a slice of units (customers, `tprocc.parameters`) -> the rows of each table that lie in the same share of that
table
-> `Source`, the random words of those rows -> numpy arrays, one a column. Their contents follow clause 4.3.3 of TPC-C.
Money comes in cents and rates in ten-thousandths, as the kind `numeric(p,s)` requires; NULLs are masked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import cache

import numpy as np
import numpy.typing as npt

from proveout.dsl.workloads.random_streams import words
from proveout.dsl.workloads.tprocc.parameters import (
    CUSTOMERS,
    DISTRICTS,
    ITEMS,
    NEW_ORDERS,
    UNITS_PER_WAREHOUSE,
    Tprocc,
)
from proveout.dsl.workloads.tprocc.tables import LINES_MAX, LINES_MIN

Ints = npt.NDArray[np.int64]
Texts = npt.NDArray[np.bytes_]
Rows = Sequence[npt.NDArray[np.generic]]

DELIVERED = CUSTOMERS - NEW_ORDERS
LOADED_AT = np.datetime64("2021-07-01T00:00:00", "us")
LAST_NAMES = 1_000
# 2.1.6.1: the constants of the load and of the run differ by 65 to 119, but not by 96 or 112
C_LAST_LOAD, C_LAST_RUN = 157, 223
SYLLABLES = (b"BAR", b"OUGHT", b"ABLE", b"PRI", b"PRES", b"ESE", b"ANTI", b"CALLY", b"ATION", b"EING")
_LETTERS = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
# A random byte -> a letter; as 62 does not divide 256, the first eight come five times and not four
_ALPHABET = (_LETTERS * 5)[:256]
_DIGITS = (b"0123456789" * 26)[:256]


class Purpose(IntEnum):
    """The purposes of random streams."""

    ITEM = 101
    WAREHOUSE = 102
    STOCK = 103
    DISTRICT = 104
    CUSTOMER = 105
    HISTORY = 106
    ORDER = 107
    LINE = 108
    PERMUTATION = 109


class Source:
    """The random words of rows `low` … `low + count - 1` (from 0): so many numbers, then so many letters, for each
    row."""

    def __init__(self, seed: int, purpose: Purpose, low: int, count: int, *, numbers: int, letters: int = 0) -> None:
        number_words = -(-numbers // 2)
        raw = words(seed, purpose, low + 1, count, number_words + -(-letters // 8)).astype("<u8", copy=False)
        self._numbers = np.ascontiguousarray(raw[:, :number_words]).view("<u4")
        self._octets = np.ascontiguousarray(raw[:, number_words:]).view(np.uint8) if letters else raw.view(np.uint8)
        self._letters: npt.NDArray[np.uint8] | None = None
        self._number = self._letter = 0

    def only(self, rows: Ints) -> None:
        """From now on, only these rows."""
        self._numbers, self._octets = self._numbers.take(rows, axis=0), self._octets.take(rows, axis=0)

    def number(self, low: int, high: int) -> Ints:
        """A number of low … high for each row."""
        drawn = self._numbers[:, self._number].astype(np.uint64)
        self._number += 1
        return low + (drawn * np.uint64(high - low + 1) >> np.uint64(32)).astype(np.int64)

    def text(self, low: int, high: int) -> Texts:
        """Letters and digits, low … high of them (4.3.2.2)."""
        if self._letters is None:  # all at once
            self._letters = _translated(self._octets, _ALPHABET)
        out = self._next(self._letters, high)
        if low < high:
            out = out * (np.arange(high) < self.number(low, high)[:, None])
        return _joined(out)

    def digits(self, count: int) -> npt.NDArray[np.uint8]:
        """Shape (rows, count): digits as ASCII."""
        return _translated(self._next(self._octets, count), _DIGITS)

    def data(self) -> Texts:
        """26 … 50 letters, with ORIGINAL somewhere in a tenth of the rows (4.3.3.1)."""
        text = self.text(26, 50)
        out = text.view(np.uint8).reshape(len(text), 50)
        places, original = self.number(0, 18), np.flatnonzero(self.number(1, 10) == 1)
        for offset, letter in enumerate(b"ORIGINAL"):
            out[original, places[original] + offset] = letter
        return text

    def address(self) -> list[Texts]:
        """Two streets, city, state, zip."""
        streets = [self.text(10, 20) for _ in range(3)]
        zips = np.full((len(self._numbers), 9), ord("1"), dtype=np.uint8)
        zips[:, :4] = self.digits(4)
        return [*streets, self.text(2, 2), _joined(zips)]

    def _next(self, octets: npt.NDArray[np.uint8], count: int) -> npt.NDArray[np.uint8]:
        self._letter += count
        return octets[:, self._letter - count : self._letter]


def item(parameters: Tprocc, first: int, count: int) -> Rows:
    """ITEM: 100,000 rows whatever the warehouses."""
    low, high = share(parameters, first, count, ITEMS)
    source = Source(parameters.seed, Purpose.ITEM, low, high - low, numbers=6, letters=74)
    ids = np.arange(low + 1, high + 1)
    return [ids, source.number(1, 10_000), source.text(14, 24), source.number(100, 10_000), source.data()]


def warehouse(parameters: Tprocc, first: int, count: int) -> Rows:
    """WAREHOUSE: tax 0 … 0.2, 300,000.00 paid so far."""
    low, high = share(parameters, first, count, parameters.warehouses)
    source = Source(parameters.seed, Purpose.WAREHOUSE, low, high - low, numbers=6, letters=76)
    ids = np.arange(low + 1, high + 1)
    return [ids, source.text(6, 10), *source.address(), source.number(0, 2_000), np.full(len(ids), 30_000_000)]


def stock(parameters: Tprocc, first: int, count: int) -> Rows:
    """STOCK: every item in every warehouse."""
    low, high = share(parameters, first, count, parameters.warehouses * ITEMS)
    source = Source(parameters.seed, Purpose.STOCK, low, high - low, numbers=4, letters=24 * DISTRICTS + 50)
    rows = np.arange(low, high)
    zeros = np.zeros(len(rows), dtype=np.int64)
    quantity = source.number(10, 100)
    districts = [source.text(24, 24) for _ in range(DISTRICTS)]
    return [1 + rows % ITEMS, 1 + rows // ITEMS, quantity, *districts, zeros, zeros, zeros, source.data()]


def district(parameters: Tprocc, first: int, count: int) -> Rows:
    """DISTRICT: ten in each warehouse, 30,000.00 paid so far, the next order is 3001."""
    low, high = share(parameters, first, count, parameters.warehouses * DISTRICTS)
    source = Source(parameters.seed, Purpose.DISTRICT, low, high - low, numbers=6, letters=76)
    rows = np.arange(low, high)
    paid, following = np.full(len(rows), 3_000_000), np.full(len(rows), CUSTOMERS + 1)
    place = [1 + rows % DISTRICTS, 1 + rows // DISTRICTS]
    return [*place, source.text(6, 10), *source.address(), source.number(0, 2_000), paid, following]


def customer(parameters: Tprocc, first: int, count: int) -> Rows:
    """CUSTOMER: the first thousand of a district have each last name once, the others by NURand(255, 0, 999)."""
    source = Source(parameters.seed, Purpose.CUSTOMER, first - 1, count, numbers=10, letters=600)
    c_id, d_id, w_id = _places(first, count)
    drawn = nurand(source.number(0, 255), source.number(0, 999), C_LAST_LOAD, 0, 999)
    last = _last_names().take(np.where(c_id <= LAST_NAMES, c_id - 1, drawn))
    first_name = source.text(8, 16)
    address = source.address()
    phone = _joined(source.digits(16))
    credit = np.where(source.number(1, 10) == 1, np.array(b"BC"), np.array(b"GC"))
    discount = source.number(0, 5_000)
    middle, since = np.full(count, b"OE"), np.full(count, LOADED_AT)
    money = [np.full(count, cents) for cents in (5_000_000, -1_000, 1_000)]
    counts = [np.ones(count, dtype=np.int64), np.zeros(count, dtype=np.int64)]
    name = [first_name, middle, last]
    data = source.text(300, 500)
    return [c_id, d_id, w_id, *name, *address, phone, since, credit, money[0], discount, *money[1:], *counts, data]


def history(parameters: Tprocc, first: int, count: int) -> Rows:
    """HISTORY: one payment of 10.00 by each customer."""
    source = Source(parameters.seed, Purpose.HISTORY, first - 1, count, numbers=1, letters=24)
    c_id, d_id, w_id = _places(first, count)
    return [c_id, d_id, w_id, d_id, w_id, np.full(count, LOADED_AT), np.full(count, 1_000), source.text(12, 24)]


def orders(parameters: Tprocc, first: int, count: int) -> Rows:
    """ORDERS: one by each customer of a district in a random order; the last 900 of it have no carrier yet."""
    o_id, d_id, w_id = _places(first, count)
    lines, carriers = _order_draws(parameters, first, count)
    carrier = np.ma.masked_array(carriers, mask=o_id > DELIVERED)
    local = np.ones(count, dtype=np.int64)
    return [o_id, d_id, w_id, _customers(parameters, first, count), np.full(count, LOADED_AT), carrier, lines, local]


def new_order(_parameters: Tprocc, first: int, count: int) -> Rows:
    """NEW_ORDER: the orders that are not delivered."""
    o_id, d_id, w_id = _places(first, count)
    waiting = np.flatnonzero(o_id > DELIVERED)
    return [o_id[waiting], d_id[waiting], w_id[waiting]]


def order_line(parameters: Tprocc, first: int, count: int) -> Rows:
    """ORDER_LINE: 5 … 15 of each order; delivered ones cost nothing, the others 0.01 … 9,999.99."""
    lines, _ = _order_draws(parameters, first, count)
    slots = np.arange(LINES_MAX) < lines[:, None]
    kept = np.flatnonzero(slots)
    order, line = kept // LINES_MAX, kept % LINES_MAX
    source = Source(parameters.seed, Purpose.LINE, (first - 1) * LINES_MAX, count * LINES_MAX, numbers=2, letters=24)
    source.only(kept)
    o_id, d_id, w_id = (column[order] for column in _places(first, count))
    waiting = o_id > DELIVERED
    delivered = np.ma.masked_array(np.full(len(kept), LOADED_AT), mask=waiting)
    items, amount = source.number(1, ITEMS), np.where(waiting, source.number(1, 999_999), 0)
    return [o_id, d_id, w_id, 1 + line, items, w_id, delivered, np.full(len(kept), 5), amount, source.text(24, 24)]


TABLES: Mapping[str, Callable[[Tprocc, int, int], Rows]] = {
    "item": item,
    "warehouse": warehouse,
    "stock": stock,
    "district": district,
    "customer": customer,
    "history": history,
    "orders": orders,
    "new_order": new_order,
    "order_line": order_line,
}


def share(parameters: Tprocc, first: int, count: int, rows: int) -> tuple[int, int]:
    """Rows low … high - 1 (from 0) of a table of `rows` rows that go with units `first` … `first + count - 1`."""
    units = parameters.warehouses * UNITS_PER_WAREHOUSE
    return (first - 1) * rows // units, (first - 1 + count) * rows // units


def nurand(hot: Ints, any_one: Ints, constant: int, low: int, high: int) -> Ints:
    """NURand(A, low, high) of 2.1.6, from draws of U(0, A) and U(low, high)."""
    return ((hot | any_one) + constant) % (high - low + 1) + low


def last_name(number: int) -> str:
    """The last name of 0 … 999 (4.3.2.3)."""
    return b"".join(SYLLABLES[int(digit)] for digit in f"{number:03d}").decode()


@cache
def _last_names() -> Texts:
    return np.array([last_name(number).encode() for number in range(LAST_NAMES)], dtype="S16")


def _places(first: int, count: int) -> tuple[Ints, Ints, Ints]:
    """Number within its district, district and warehouse of customers (or orders) `first` … (from 1)."""
    rows = np.arange(first - 1, first - 1 + count)
    return 1 + rows % CUSTOMERS, 1 + rows // CUSTOMERS % DISTRICTS, 1 + rows // UNITS_PER_WAREHOUSE


def _order_draws(parameters: Tprocc, first: int, count: int) -> tuple[Ints, Ints]:
    """Lines and carrier of each order."""
    source = Source(parameters.seed, Purpose.ORDER, first - 1, count, numbers=2)
    return source.number(LINES_MIN, LINES_MAX), source.number(1, 10)


def _customers(parameters: Tprocc, first: int, count: int) -> Ints:
    """The customer of each order: a random permutation of the district's customers."""
    low, high = (first - 1) // CUSTOMERS, (first - 2 + count) // CUSTOMERS
    drawn = words(parameters.seed, Purpose.PERMUTATION, low * CUSTOMERS + 1, (high - low + 1) * CUSTOMERS, 1)
    permuted = 1 + drawn.reshape(-1, CUSTOMERS).argsort(axis=1, kind="stable")
    start = first - 1 - low * CUSTOMERS
    return permuted.ravel()[start : start + count].astype(np.int64)


def _translated(octets: npt.NDArray[np.uint8], letters: bytes) -> npt.NDArray[np.uint8]:
    """Each octet as its letter; of the table's 256. Several times quicker than an index into an array."""
    return np.frombuffer(octets.tobytes().translate(letters), dtype=np.uint8).reshape(octets.shape)


def _joined(letters: npt.NDArray[np.uint8]) -> Texts:
    """Rows of ASCII letters, zeros at the end, as texts."""
    return np.ascontiguousarray(letters).view(f"S{letters.shape[1]}")[:, 0]
