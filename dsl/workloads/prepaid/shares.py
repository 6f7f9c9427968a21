"""Expected share of success of each prepaid transaction, computed from the population and the amounts.

An authorisation finds the accounts that are active. A change of balance fails when a debit is more than there is; that
share depends on how far the balances have moved since the population, so it has a range. At most, those accounts
fail that are emptier than the largest debit; ageing can gather accounts there, but not more than a credit's width of
them, as any credit takes one out of that range: with opening balances all alike over 0 … M, the share of debits that
fail stays below (mean debit + largest credit) / M. A test holds that against simulated ageing.
"""

from __future__ import annotations

from collections.abc import Mapping

from proveout.dsl.workloads.prepaid.keys import AMOUNTS
from proveout.dsl.workloads.prepaid.parameters import Prepaid
from proveout.dsl.workloads.prepaid.rows import ACTIVE_SHARE, OPENING_MAX

ALWAYS = (1.0, 1.0)


def fresh_change(parameters: Prepaid) -> float:
    """The share of balance changes that succeed on a fresh load."""
    kinds = AMOUNTS[parameters.profile]
    return 1.0 - (1.0 - kinds.credit_share) * kinds.debit_mean / (OPENING_MAX + 1)


def expected(parameters: Prepaid) -> Mapping[str, tuple[float, float]]:
    """The range of each transaction's success share, at any age of the data."""
    kinds = AMOUNTS[parameters.profile]
    failing = (1.0 - kinds.credit_share) * (kinds.debit_mean + kinds.credit[1]) / OPENING_MAX
    return {
        "Authorize": (ACTIVE_SHARE, ACTIVE_SHARE),
        "CheckBalance": ALWAYS,
        "UpdateProfile": ALWAYS,
        "ChangeBalance": (1.0 - failing, 1.0),
        "FindLowBalances": ALWAYS,
    }
