"""The accountants, by the name that a policy gives them."""

from __future__ import annotations

from functools import cache

from dpsql.errors import PolicyError
from dpsql.privacy.accounting.accountants.base import Accountant
from dpsql.privacy.accounting.accountants.gdp import GdpAccountant
from dpsql.privacy.accounting.accountants.pure import BasicAccountant, PureAccountant
from dpsql.privacy.accounting.accountants.zcdp import ZcdpAccountant

_REGISTRY: tuple[type[Accountant], ...] = (PureAccountant, BasicAccountant, ZcdpAccountant, GdpAccountant)

ACCOUNTANTS: dict[str, type[Accountant]] = {accountant.name: accountant for accountant in _REGISTRY}


@cache
def get_accountant(name: str) -> Accountant:
    """Return the stateless accountant of that name; raise PolicyError (`accountant_unknown`) if there is none.

    >>> get_accountant("pure").name
    'pure'
    """
    if name not in ACCOUNTANTS:
        raise PolicyError(
            f"there is no accountant {name!r}",
            code="accountant_unknown",
            hint="choose one of " + ", ".join(ACCOUNTANTS),
        )
    return ACCOUNTANTS[name]()


__all__ = [
    "ACCOUNTANTS",
    "Accountant",
    "BasicAccountant",
    "GdpAccountant",
    "PureAccountant",
    "ZcdpAccountant",
    "get_accountant",
]
