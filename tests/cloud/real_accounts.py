"""The conformance suite on real accounts, but for tests that need a hand on the cloud.

Run by `python -m tests.cloud`; its name keeps it out of every other run. Not here: what must hold
(`tests.providers.test_cloud_provider_conformance`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.cloud.accounts import Account, accounts_of
from tests.cloud.real_under_test import RealUnderTest, open_account
from tests.providers.test_cloud_provider_conformance import (
    test_a_launch_gives_its_count_in_one_pool_and_says_when,
    test_a_pool_that_is_not_offered_is_unsupported,
    test_a_price_above_the_highest_accepted_is_refused,
    test_an_unknown_token_finds_nothing,
    test_describe_tells_only_of_machines_that_exist,
    test_names_itself_and_its_regions,
    test_on_demand_is_rented_by_the_same_call,
    test_the_list_of_a_region_is_complete_and_sorted,
    test_the_same_token_and_order_never_give_more_machines,
    test_the_same_token_with_another_order_is_rejected,
    test_what_is_given_back_ends_by_us_once,
)

# Read when this file is loaded: the tests run without the variables of the shell.
_ACCOUNTS = {account.name: account for account in accounts_of(os.environ)}


@pytest.fixture(params=sorted(_ACCOUNTS))
def under_test(request: pytest.FixtureRequest) -> Iterator[RealUnderTest]:
    """Each account in turn."""
    account: Account = _ACCOUNTS[request.param]
    with open_account(account) as found:
        yield found


__all__ = [
    "test_a_launch_gives_its_count_in_one_pool_and_says_when",
    "test_a_pool_that_is_not_offered_is_unsupported",
    "test_a_price_above_the_highest_accepted_is_refused",
    "test_an_unknown_token_finds_nothing",
    "test_describe_tells_only_of_machines_that_exist",
    "test_names_itself_and_its_regions",
    "test_on_demand_is_rented_by_the_same_call",
    "test_the_list_of_a_region_is_complete_and_sorted",
    "test_the_same_token_and_order_never_give_more_machines",
    "test_the_same_token_with_another_order_is_rejected",
    "test_what_is_given_back_ends_by_us_once",
]
