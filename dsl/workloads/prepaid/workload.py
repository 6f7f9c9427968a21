"""The prepaid workload: five transactions on customers and accounts, their tables, rows, statements and arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from functools import cached_property, lru_cache, partial
from itertools import count as counted
from itertools import repeat
from operator import attrgetter
from typing import Any

import numpy as np

from proveout.core.data_classes import dataclass
from proveout.dsl.engines import DIALECTS, Dialect
from proveout.dsl.workloads import ddl
from proveout.dsl.workloads.base import (
    Body,
    Invariant,
    Outcome,
    Population,
    Request,
    Row,
    Statement,
    Step,
    Table,
    TransactionType,
    walk,
)
from proveout.dsl.workloads.conformance import Finding, Seen, judge_expected, judge_mix
from proveout.dsl.workloads.ddl import TableShape
from proveout.dsl.workloads.prepaid import PREPAID_TRANSACTIONS, Prepaid
from proveout.dsl.workloads.random_streams import (
    Draw,
    Ints,
    RowDraw,
    Rows,
    Words,
    choice,
    digits15,
    field,
    five_digits,
    letters,
    row,
    sources,
    stripe,
    words,
)
from proveout.dsl.workloads.tptbm.workload import everywhere

# They are those of the TimesTen Scaleout sample GridSample (oracle-samples/oracle-timesten-samples, cr_schema.sql),
# whose CUSTOMERS, ACCOUNTS, ACCOUNT_TYPE, ACCOUNT_STATUS and TRANSACTIONS are the ones that the prepaid and banking
# studies name. Ours: money is whole cents; dates are whole numbers yyyymmdd; a history row is named by the session (one
# terminal in one iteration) and its count there, where the sample takes a sequence and a time stamp; texts have one
# width.

TYPES: Mapping[str, str] = {
    "I": "Individual",
    "F": "Family",
    "H": "Home",
    "B": "Business",
    "P": "Prepaid Individual",
    "Q": "Prepaid Family",
}
STATUSES: Mapping[int, str] = {10: "Active", 20: "Pending", 30: "Grace", 40: "Suspended", 50: "Disconnected"}
ACTIVE = 10
DESCRIPTION_WIDTH = 20

SHAPES: tuple[TableShape, ...] = (
    TableShape(
        name="account_type",
        columns=(("account_type", "char(1)"), ("description", f"char({DESCRIPTION_WIDTH})")),
        primary_key="account_type",
    ),
    TableShape(
        name="account_status",
        columns=(("status", "int2"), ("description", f"char({DESCRIPTION_WIDTH})")),
        primary_key="status",
    ),
    TableShape(
        name="customers",
        columns=(
            ("cust_id", "int8"),
            ("first_name", "char(8)"),
            ("last_name", "char(10)"),
            ("addr1", "char(15)"),
            ("zipcode", "char(5)"),
            ("member_since", "int4"),
        ),
        primary_key="cust_id",
    ),
    TableShape(
        name="accounts",
        columns=(
            ("account_id", "int8"),
            ("phone", "char(15)"),
            ("account_type", "char(1)"),
            ("status", "int2"),
            ("current_balance", "int8"),
            ("prev_balance", "int8"),
            ("date_created", "int4"),
            ("cust_id", "int8"),
        ),
        primary_key="account_id",
        foreign_keys=(("cust_id", "customers"), ("account_type", "account_type"), ("status", "account_status")),
    ),
    TableShape(
        name="transactions",
        columns=(
            ("account_id", "int8"),
            ("session_id", "int8"),
            ("transaction_nb", "int4"),
            ("optype", "char(1)"),
            ("amount", "int8"),
        ),
        primary_key="account_id, session_id, transaction_nb",
        foreign_keys=(("account_id", "accounts"),),
    ),
)


# Customer c (from 1) has the accounts (c - 1)·n + 1 … c·n. Balances open at 0 … 1,000.00, all alike; nine accounts in
# ten are active, the others in one of the four other states; both are ours. The two tables of codes come with customer
# 1, and the history begins empty.

OPENING_MAX = 100_000  # cents
ACTIVE_SHARE = 0.9
SLICE = 250_000
FIRST_YEAR, YEARS = 2000, 20


class Purpose(IntEnum):
    """The purpose of a stream: a part of the Philox key, so never renumbered. Other workloads have other purposes."""

    CUSTOMER = 31
    ACCOUNT = 32


def account_type(_: Prepaid, first: int, count: int) -> Rows:
    """ACCOUNT_TYPE: code and description."""
    codes = list(TYPES) if first == 1 and count else []
    texts = [TYPES[code].ljust(DESCRIPTION_WIDTH) for code in codes]
    return [np.array(codes, dtype="S1"), np.array(texts, dtype=f"S{DESCRIPTION_WIDTH}")]


def account_status(_: Prepaid, first: int, count: int) -> Rows:
    """ACCOUNT_STATUS: code and description."""
    codes = list(STATUSES) if first == 1 and count else []
    texts = [STATUSES[code].ljust(DESCRIPTION_WIDTH) for code in codes]
    return [np.array(codes, dtype=np.int64), np.array(texts, dtype=f"S{DESCRIPTION_WIDTH}")]


def customers(parameters: Prepaid, first: int, count: int) -> Rows:
    """CUSTOMERS: cust_id, two names in letters, an address in digits, a zip code, a date."""
    word = words(parameters.seed, Purpose.CUSTOMER, first, count, 4)
    return [
        np.arange(first, first + count, dtype=np.int64),
        letters(word[:, 0] % np.uint64(26**8), 8),
        letters(word[:, 1] % np.uint64(26**10), 10),
        digits15((word[:, 2] % np.uint64(10**15)).astype(np.int64)),
        five_digits()[choice(word[:, 3] >> np.uint64(32), 10**5, 32)],
        _date(word[:, 3]),
    ]


def accounts(parameters: Prepaid, first: int, count: int) -> Rows:
    """ACCOUNTS: account_id, a phone number, type, status, both balances (cents), a date, cust_id."""
    each = parameters.accounts_per_customer
    ids = np.arange((first - 1) * each + 1, (first - 1 + count) * each + 1, dtype=np.int64)
    word = words(parameters.seed, Purpose.ACCOUNT, (first - 1) * each + 1, count * each, 2)
    codes = np.array(list(TYPES), dtype="S1")
    balance = _opening(word)
    return [
        ids,
        digits15(ids),
        codes[choice(word[:, 1] >> np.uint64(48), len(codes), 16)],
        _status(field(word[:, 1], 32, 16)),
        balance,
        balance,
        _date(word[:, 1]),
        (ids - 1) // each + 1,
    ]


def transactions(_: Prepaid, first: int, count: int) -> Rows:
    """TRANSACTIONS: none yet."""
    none = np.array([], dtype=np.int64)
    return [none, none, none, np.array([], dtype="S1"), none]


ROWS = {one.__name__: one for one in (account_type, account_status, customers, accounts, transactions)}
"""The functions that make the rows, by table."""


def opening_total(parameters: Prepaid) -> int:
    """The sum of all opening balances, cents."""
    return _total(parameters.seed, parameters.accounts)


@lru_cache(maxsize=16)
def _total(seed: int, accounts_count: int) -> int:
    firsts = range(1, accounts_count + 1, SLICE)
    slices = ((first, min(SLICE, accounts_count - first + 1)) for first in firsts)
    return sum(int(_opening(words(seed, Purpose.ACCOUNT, first, count, 2)).sum()) for first, count in slices)


def _opening(word: Words) -> Ints:
    return choice(word[:, 0] >> np.uint64(32), OPENING_MAX + 1, 32)


def _status(drawn: Ints) -> Ints:
    """From 16 bits: active below the share's edge, the four other states in turn above it."""
    edge = round(ACTIVE_SHARE * 2**16)
    others = np.array([code for code in STATUSES if code != ACTIVE], dtype=np.int64)
    return np.where(drawn < edge, ACTIVE, others[(drawn - edge) % len(others)])


def _date(word: Words) -> Ints:
    """yyyymmdd of twenty years' days, from the low 32 bits."""
    year = FIRST_YEAR + choice(word & np.uint64(0xFFFF), YEARS, 16)
    return year * 10_000 + (1 + field(word, 16, 8) % 12) * 100 + 1 + field(word, 24, 8) % 28


# Arguments stand in the order of their numbers, as engines with unnamed placeholders want them. In `CHANGE` the old
# balance is kept before the new one is set, because MySQL assigns from left to right; the others take all values from
# the old row.

SEARCHED = 100  # accounts that one search looks at

AUTHORIZE = Statement(
    name="authorize",
    text=everywhere(
        "SELECT c.cust_id, c.last_name, a.account_type, s.description"  # noqa: S608 - a constant of ours
        " FROM accounts a, customers c, account_status s"
        f" WHERE a.account_id = $1 AND a.status = {ACTIVE} AND c.cust_id = a.cust_id AND s.status = a.status"
    ),
    arguments=(int,),
    columns=(int, str, str, str),
    rows_max=1,
)
BALANCE = Statement(
    name="balance",
    text=everywhere("SELECT current_balance, prev_balance FROM accounts WHERE account_id = $1"),
    arguments=(int,),
    columns=(int, int),
    rows_max=1,
)
PROFILE = Statement(
    name="profile",
    text=everywhere("UPDATE customers SET addr1 = $1, zipcode = $2 WHERE cust_id = $3"),
    arguments=(str, str, int),
    reads=False,
)
CHANGE = Statement(
    name="change",
    text=everywhere(
        "UPDATE accounts SET prev_balance = current_balance, current_balance = current_balance + $1"
        " WHERE account_id = $2 AND current_balance >= $3"
    ),
    arguments=(int, int, int),
    reads=False,
)
RECORD = Statement(
    name="record",
    text=everywhere(
        "INSERT INTO transactions (account_id, session_id, transaction_nb, optype, amount) VALUES ($1, $2, $3, $4, $5)"
    ),
    arguments=(int, int, int, str, int),
    reads=False,
)
LOW = Statement(
    name="low",
    text=everywhere(
        "SELECT account_id, cust_id, phone, current_balance FROM accounts"
        " WHERE account_id BETWEEN $1 AND $2 AND current_balance < $3"
    ),
    arguments=(int, int, int),
    columns=(int, int, str, int),
    rows_max=SEARCHED,
)


def _whole(dialect: Dialect, value: str) -> str:
    """A sum as a whole number of 64 bits."""
    return f"CAST({value} AS {'SIGNED' if dialect == 'mysql' else 'NUMBER(38)' if dialect == 'oracle' else 'BIGINT'})"


def _two(of: Mapping[Dialect, tuple[str, str]]) -> Mapping[Dialect, str]:
    """Two numbers in one row of one statement, which reads both in one snapshot."""
    return {
        dialect: f"SELECT {left}, {right}"  # noqa: S608 - expressions of ours
        + (" FROM dual" if dialect == "oracle" else "")
        for dialect, (left, right) in of.items()
    }


_BALANCES = "(SELECT coalesce(sum(current_balance), 0) FROM accounts)"
_MOVED = "(SELECT coalesce(sum(amount), 0) FROM transactions)"

TOTALS = Statement(
    name="totals",
    rows_max=1,
    text=_two({d: (_whole(d, _BALANCES), f"{_whole(d, '$1')} + {_whole(d, _MOVED)}") for d in DIALECTS}),
    arguments=(int,),
    columns=(int, int),
)
OVERDRAWN = Statement(
    name="overdrawn",
    text=everywhere("SELECT count(CASE WHEN current_balance >= 0 THEN 1 END), count(*) FROM accounts"),
    arguments=(),
    columns=(int, int),
    rows_max=1,
)


# The amounts depend on the profile, in cents (ours): *prepaid* charges 0.10 … 0.95 nineteen times in twenty and refills
# 10.00 once, so that an account is used up about as fast as it is filled; *banking* credits and debits 1.00 … 100.00
# equally often. A history row is named by the terminal's stripe (see `random_streams.stripe`: no two terminals of a
# load, and no two iterations of a run, share one) and a count.

PURPOSE = 200  # of the first transaction; other workloads' keys have others
LOW_BALANCE = 1_000  # cents


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """The amounts of a profile: credits with that probability, from … to (cents, both included); likewise debits."""

    credit_share: float
    credit: tuple[int, int]
    debit: tuple[int, int]
    codes: str

    @property
    def debit_mean(self) -> float:
        """Mean of a debit, cents."""
        return sum(self.debit) / 2


AMOUNTS: Mapping[str, Amounts] = {
    "prepaid": Amounts(credit_share=0.05, credit=(1_000, 1_000), debit=(10, 95), codes="TC"),
    "banking": Amounts(credit_share=0.5, credit=(100, 10_000), debit=(100, 10_000), codes="CD"),
}


class Keys:
    """One terminal's arguments: each attribute gives the next ones of a transaction."""

    __slots__ = ("authorize", "balance", "change", "low", "profile")

    def __init__(self, parameters: Prepaid, stream: int) -> None:
        account = partial(_between, parameters.first_account, parameters.last_account)
        customer = partial(_between, parameters.first, parameters.last)
        history = zip(repeat(stripe(stream)), counted())
        draws: tuple[Draw | RowDraw, ...] = (
            RowDraw(row("i8"), lambda random, n: ((account(random, n),),), AUTHORIZE),
            RowDraw(row("i8"), lambda random, n: ((account(random, n),),), BALANCE),
            lambda random, n: _profiles(random, n, customer(random, n)),
            lambda random, n: _changes(random, n, account(random, n), AMOUNTS[parameters.profile], history),
            RowDraw(
                row("i8", "i8", "i8"), lambda random, n: (_searches(account(random, n), parameters.last_account),), LOW
            ),
        )
        weights = parameters.weights
        chosen = [weights[name] for name in PREPAID_TRANSACTIONS]
        drawn = sources(draws, chosen, sum(weights.values()), seed=parameters.seed, purpose=PURPOSE, stream=stream)
        self.authorize: Callable[[], Request] = drawn[0]
        self.balance: Callable[[], Request] = drawn[1]
        self.profile: Callable[[], Request] = drawn[2]
        self.change: Callable[[], tuple[Row, Row]] = drawn[3]
        self.low: Callable[[], Request] = drawn[4]


def amounts(random: np.random.Generator, count: int, kinds: Amounts) -> Ints:
    """The amounts moved, in cents: credits above 0, debits below."""
    credits_ = random.integers(kinds.credit[0], kinds.credit[1] + 1, count)
    debits = random.integers(kinds.debit[0], kinds.debit[1] + 1, count)
    return np.where(random.random(count) < kinds.credit_share, credits_, -debits)


def _between(low: int, high: int, random: np.random.Generator, count: int) -> Ints:
    return random.integers(low, high + 1, count)


def _profiles(random: np.random.Generator, count: int, customers: Ints) -> Iterable[Request]:
    addresses = random.integers(0, 10**15, count).tolist()
    zips = random.integers(0, 10**5, count).tolist()
    return [
        (PROFILE, (f"{address:015d}", f"{code:05d}", customer))
        for address, code, customer in zip(addresses, zips, customers.tolist(), strict=True)
    ]


def _changes(
    random: np.random.Generator, count: int, accounts: Ints, kinds: Amounts, history: Iterator[tuple[int, int]]
) -> Iterable[tuple[Row, Row]]:
    """The change, which needs a balance of at least the amount debited, and its history row."""
    for account, amount in zip(accounts.tolist(), amounts(random, count, kinds).tolist(), strict=True):
        code = kinds.codes[amount < 0]
        yield (amount, account, max(0, -amount)), (account, *next(history), code, amount)


def _searches(accounts: Ints, last: int) -> Rows:
    """A run of accounts; at the end of those that the load touches it is shorter."""
    ends = np.minimum(accounts + (SEARCHED - 1), last)
    return accounts, ends, np.full(len(accounts), LOW_BALANCE)


# Money is conserved: the balances sum to the opening balances and the movements of the history. That
# is an invariant, and so is that no account is overdrawn. A debit that is more than there is fails *logically*, as does
# an authorisation of an account that is not active.
#
# The transactions are those that Oracle's white papers on TimesTen Scaleout name; statements, amounts and weights are
# ours, after the sample GridSample (see `prepaid.workload`).

COMMIT, LOGICAL_FAILURE = Outcome.COMMIT, Outcome.LOGICAL_FAILURE


def one_row(request: Request) -> Body:
    """One statement: the user of an account, if it is active; both balances of an account; a customer's new address."""
    result = yield request
    return COMMIT if result.count else LOGICAL_FAILURE


# Refill, credit or debit: the balance, and the history that it adds up with; neither when there is too little.
CHANGE_BALANCE = (Step(CHANGE), Step(RECORD))


def find_low_balances(request: Request) -> Body:
    """The accounts of a run that have little left; there may be none."""
    yield request
    return COMMIT


# Of each transaction: which of the keys its inputs are, its body, its statements
_BODIES: Mapping[str, tuple[str, Callable[[Any], Body], tuple[Statement, ...]]] = {
    "Authorize": ("authorize", one_row, (AUTHORIZE,)),
    "CheckBalance": ("balance", one_row, (BALANCE,)),
    "UpdateProfile": ("profile", one_row, (PROFILE,)),
    "ChangeBalance": ("change", partial(walk, CHANGE_BALANCE), (CHANGE, RECORD)),
    "FindLowBalances": ("low", find_low_balances, (LOW,)),
}


@dataclass(frozen=True)
class PrepaidWorkload:
    """A `base.WorkloadKind`: the prepaid workload with its parameters."""

    parameters: Prepaid

    @cached_property
    def transactions(self) -> tuple[TransactionType, ...]:
        """All five; those the plan leaves out have weight 0."""
        expected = expected_shares(self.parameters)
        fresh = {name: high for name, (_, high) in expected.items()}
        fresh["ChangeBalance"] = fresh_change(self.parameters)
        return tuple(
            TransactionType(
                name=name,
                weight=self.parameters.weights[name],
                inputs=attrgetter(source),
                body=body,
                statements=statements,
                single=len(statements) == 1,
                bare=body is one_row,
                steps=CHANGE_BALANCE if name == "ChangeBalance" else (),
                logical_failure=(1.0 - fresh[name], 1.0 - expected[name][0]),
            )
            for name, (source, body, statements) in _BODIES.items()
        )

    @cached_property
    def population(self) -> Population:
        """The five tables; `rows` makes their contents."""
        parameters = self.parameters
        tables = (Table(name=one.name, columns=one.columns, rows=partial(ROWS[one.name], parameters)) for one in SHAPES)
        rows = {
            "account_type": len(TYPES),
            "account_status": len(STATUSES),
            "customers": parameters.population,
            "accounts": parameters.accounts,
            "transactions": 0,
        }
        return Population(
            units=parameters.population,
            tables=tuple(tables),
            before=ddl.before(SHAPES),
            after=ddl.after(SHAPES),
            drop=ddl.drop(SHAPES),
            expected={name: (count, count) for name, count in rows.items()},
        )

    @cached_property
    def invariants(self) -> tuple[Invariant, ...]:
        """Money is conserved, to the cent; and no account is overdrawn."""
        conserved = Invariant(
            name="balance",
            title="The balances sum to what they opened with and what the history has moved",
            left="balances",
            right="opening balances and history",
            statement=TOTALS,
            arguments=(opening_total(self.parameters),),
        )
        covered = Invariant(
            name="overdrawn",
            title="No account is overdrawn",
            left="accounts not overdrawn",
            right="accounts",
            statement=OVERDRAWN,
        )
        return (conserved, covered)

    def keys(self, stream: int) -> Keys:
        """Arguments for one terminal; `stream` sets terminals (and repeats) apart."""
        return Keys(self.parameters, stream)

    def findings(self, seen: Sequence[Seen], _: Sequence[Prepaid]) -> tuple[Finding, ...]:
        """Whether the mix and the success shares are the expected ones, whatever the age of the data; see
        `conformance`."""
        expected, accounts = expected_shares(self.parameters), self.parameters.last_account
        accounts -= self.parameters.first_account - 1
        return judge_mix(self.parameters.weights, seen), judge_expected(expected, seen, accounts)


def build(parameters: Prepaid) -> PrepaidWorkload:
    """The workload of these parameters."""
    return PrepaidWorkload(parameters)


ALWAYS = (1.0, 1.0)


def fresh_change(parameters: Prepaid) -> float:
    """The share of balance changes that succeed on a fresh load."""
    kinds = AMOUNTS[parameters.profile]
    return 1.0 - (1.0 - kinds.credit_share) * kinds.debit_mean / (OPENING_MAX + 1)


def expected_shares(parameters: Prepaid) -> Mapping[str, tuple[float, float]]:
    """The range of each transaction's success share, at any age of the data.

    An authorisation finds the accounts that are active. A change of balance fails when a debit is more than the
    balance: at most for the accounts that are emptier than the largest debit. With opening balances all alike over
    0 … M, the share of debits that fail stays below (mean debit + largest credit) / M, because any credit takes an
    account out of that range. A test holds that against simulated ageing.
    """
    kinds = AMOUNTS[parameters.profile]
    failing = (1.0 - kinds.credit_share) * (kinds.debit_mean + kinds.credit[1]) / OPENING_MAX
    return {
        "Authorize": (ACTIVE_SHARE, ACTIVE_SHARE),
        "CheckBalance": ALWAYS,
        "UpdateProfile": ALWAYS,
        "ChangeBalance": (1.0 - failing, 1.0),
        "FindLowBalances": ALWAYS,
    }
