"""The rows of TPTBM's one table, made by arithmetic from their number: nothing is random, so any slice can be made
anywhere.

Row u (from 1) has vpn_id = (u - 1) div key and vpn_nb = (u - 1) mod key. directory_nb is 55 and the last four digits of
each, descr names both, as the original does (there the numbers in descr have no leading zeros; here five digits make
every row equally long). Texts fill their CHAR columns with spaces to the last character, so that they are as long in an
engine that does not pad.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from proveout.dsl.workloads.random_streams import Ints, Rows, five_digits
from proveout.dsl.workloads.tptbm.parameters import Tptbm

DESCRIPTION = "<place holder for description of VPN {:05d} extension {:05d}>"
NO_CALLER = "0" * 10
WIDTH = 100
_VPN = DESCRIPTION.index("{")
_EXTENSION = DESCRIPTION.format(0, 0).rindex("0") - 4


def directory_nb(vpn_id: int, vpn_nb: int) -> str:
    """Ten characters."""
    return f"55{vpn_id % 10_000:04d}{vpn_nb % 10_000:04d}"


def descr(vpn_id: int, vpn_nb: int) -> str:
    """A hundred characters; of an inserted row too, whose vpn_id may have more digits."""
    return DESCRIPTION.format(vpn_id, vpn_nb).ljust(WIDTH)


def vpn_users(parameters: Tptbm, first: int, count: int) -> Rows:
    """VPN_USERS: rows `first` … `first + count - 1` (from 1), one array per column."""
    number = np.arange(first - 1, first - 1 + count, dtype=np.int64)
    vpn_id, vpn_nb = np.divmod(number, parameters.key)
    left, right = _digits(vpn_id), _digits(vpn_nb)
    directory = _filled(count, b"55" + bytes(8))
    directory[:, 2:6], directory[:, 6:10] = left[:, 1:], right[:, 1:]
    described = _filled(count, DESCRIPTION.format(0, 0).ljust(WIDTH).encode())
    described[:, _VPN : _VPN + 5], described[:, _EXTENSION : _EXTENSION + 5] = left, right
    no_caller = np.full(count, NO_CALLER.encode(), dtype="S10")
    return [vpn_id, vpn_nb, directory.view("S10")[:, 0], no_caller, described.view(f"S{WIDTH}")[:, 0]]


def _digits(numbers: Ints) -> npt.NDArray[np.uint8]:
    """Shape (count, 5): the five digits of each number below 100,000."""
    five = five_digits()[numbers]
    return five.view(np.uint8).reshape(len(numbers), 5)


def _filled(count: int, text: bytes) -> npt.NDArray[np.uint8]:
    return np.tile(np.frombuffer(text, dtype=np.uint8), (count, 1))
