"""The prepaid workload: five transactions on customers and accounts, their tables, rows, statements and arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import cached_property, lru_cache, partial

import numpy as np

from proveout.core.data_classes import record
from proveout.dsl.workloads import ddl
from proveout.dsl.workloads.base import Invariant, Population, Statement, Table
from proveout.dsl.workloads.conformance import Finding, Seen, judge_expected, judge_mix
from proveout.dsl.workloads.ddl import TableShape
from proveout.dsl.workloads.prepaid import Prepaid
from proveout.dsl.workloads.random_streams import (
    Ints,
    Rows,
    Words,
    choice,
    digits15,
    field,
    five_digits,
    letters,
    stripe,
    words,
)
from proveout.dsl.workloads.transactions import (
    WHOLE,
    Bind,
    Declared,
    Sql,
    constant,
    counting,
    derived,
    digits,
    everywhere,
    sums,
    whole,
)

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
        columns=ddl.columns(
            "cust_id int8, first_name char(8), last_name char(10), addr1 char(15), zipcode char(5), member_since int4"
        ),
        primary_key="cust_id",
    ),
    TableShape(
        name="accounts",
        columns=ddl.columns(
            "account_id int8, phone char(15), account_type char(1), status int2, current_balance int8, "
            "prev_balance int8, date_created int4, cust_id int8"
        ),
        primary_key="account_id",
        foreign_keys=(("cust_id", "customers"), ("account_type", "account_type"), ("status", "account_status")),
    ),
    TableShape(
        name="transactions",
        columns=ddl.columns("account_id int8, session_id int8, transaction_nb int4, optype char(1), amount int8"),
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


# In `change` the old balance is kept before the new one is set, because MySQL assigns from left to right; the others
# take all values from the old row.

SEARCHED = 100  # accounts that one search looks at

DECLARED: Mapping[str, Sequence[Sql]] = {
    # The user of an account, if it is active
    "Authorize": (
        Sql(
            "authorize",
            "SELECT c.cust_id, c.last_name, a.account_type, s.description"  # noqa: S608 - a constant of ours
            " FROM accounts a, customers c, account_status s"
            f" WHERE a.account_id = :account AND a.status = {ACTIVE} AND c.cust_id = a.cust_id AND s.status = a.status",
        ),
    ),
    "CheckBalance": (Sql("balance", "SELECT current_balance, prev_balance FROM accounts WHERE account_id = :account"),),
    "UpdateProfile": (Sql("profile", "UPDATE customers SET addr1 = :addr, zipcode = :zip WHERE cust_id = :customer"),),
    # Refill, credit or debit: the balance, and the history that it adds up with; neither when there is too little
    "ChangeBalance": (
        Sql(
            "change",
            "UPDATE accounts SET prev_balance = current_balance, current_balance = current_balance + :amount"
            " WHERE account_id = :account AND current_balance >= :needed",
        ),
        Sql(
            "record",
            "INSERT INTO transactions (account_id, session_id, transaction_nb, optype, amount)"
            " VALUES (:account, :session, :number, :code, :amount)",
        ),
    ),
    # The accounts of a run that have little left; there may be none
    "FindLowBalances": (
        Sql(
            "low",
            "SELECT account_id, cust_id, phone, current_balance FROM accounts"
            " WHERE account_id BETWEEN :account AND :last AND current_balance < :low",
            least=0,
            rows_max=SEARCHED,
        ),
    ),
}


_BALANCES = "(SELECT coalesce(sum(current_balance), 0) FROM accounts)"
_MOVED = "(SELECT coalesce(sum(amount), 0) FROM transactions)"

TOTALS = sums("totals", [_BALANCES], ["$1", _MOVED], int)
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

LOW_BALANCE = 1_000  # cents


@record
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


def amounts(random: np.random.Generator, count: int, kinds: Amounts) -> Ints:
    """The amounts moved, in cents: credits above 0, debits below."""
    credits_ = random.integers(kinds.credit[0], kinds.credit[1] + 1, count)
    debits = random.integers(kinds.debit[0], kinds.debit[1] + 1, count)
    return np.where(random.random(count) < kinds.credit_share, credits_, -debits)


# Money is conserved: the balances sum to the opening balances and the movements of the history. That
# is an invariant, and so is that no account is overdrawn. A debit that is more than there is fails *logically*, as does
# an authorisation of an account that is not active.
#
# The transactions are those that Oracle's white papers on TimesTen Scaleout name; statements, amounts and weights are
# ours, after the sample GridSample (see `workloads.prepaid_workload`).


class PrepaidWorkload(Declared):
    """A `base.WorkloadKind`: the prepaid workload with its parameters."""

    parameters: Prepaid
    declared = DECLARED
    purpose = 200

    def binds(self, transaction: str, stream: int) -> Mapping[str, Bind]:
        """Accounts and customers of the load's range, all alike; a search is shorter at the end of the range."""
        parameters, kinds = self.parameters, AMOUNTS[self.parameters.profile]
        last = parameters.last_account
        return {
            "account": whole(parameters.first_account, last),
            "customer": whole(parameters.first, parameters.last),
            "addr": Bind("U15", lambda random, count, _: digits(random.integers(0, 10**15, count), 15)),
            "zip": Bind("U5", lambda random, count, _: digits(random.integers(0, 10**5, count), 5)),
            "amount": Bind(WHOLE, lambda random, count, _: amounts(random, count, kinds)),
            "needed": derived(WHOLE, lambda drawn: np.maximum(0, -drawn["amount"])),
            "session": constant(WHOLE, stripe(stream)),
            "number": counting(),
            "code": derived("U1", lambda drawn: np.where(drawn["amount"] < 0, kinds.codes[1], kinds.codes[0])),
            "last": derived(WHOLE, lambda drawn: np.minimum(drawn["account"] + (SEARCHED - 1), last)),
            "low": constant(WHOLE, LOW_BALANCE),
        }

    def expected(self, transaction: str) -> tuple[float, float]:
        low, high = expected_shares(self.parameters)[transaction]
        fresh = fresh_change(self.parameters) if transaction == "ChangeBalance" else high
        return 1.0 - fresh, 1.0 - low

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
            drop=ddl.drop([shape.name for shape in SHAPES]),
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

    def findings(self, seen: Sequence[Seen], _: Sequence[Prepaid]) -> tuple[Finding, ...]:
        """Whether the mix and the success shares are the expected ones, whatever the age of the data; see
        `conformance`."""
        expected, accounts = expected_shares(self.parameters), self.parameters.last_account
        accounts -= self.parameters.first_account - 1
        return judge_mix(self.parameters.weights, seen), judge_expected(expected, seen, accounts)


def build(parameters: Prepaid) -> PrepaidWorkload:
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
