"""Which word on a machine's times corrects which. Not here: the bill (`test_billing_ledger`)."""

from __future__ import annotations

import pytest

from app.domain.billing.machine_facts import TimeSource, is_better_end, is_better_start


@pytest.mark.parametrize(
    ("source", "known", "better"),
    [
        (TimeSource.LAST_START, TimeSource.CREATION, True),
        (TimeSource.LAST_START, TimeSource.INSERT_OPERATION, True),
        (TimeSource.LAUNCH_TIME, TimeSource.FIRST_SEEN, True),
        (TimeSource.CREATION, TimeSource.FIRST_SEEN, True),
        (TimeSource.CREATION, TimeSource.INSERT_OPERATION, False),
        (TimeSource.CREATION, TimeSource.LAST_START, False),
        (TimeSource.LAST_START, TimeSource.LAST_START, False),
        # A machine that runs again: what came before is in another row's bill.
        (TimeSource.LAST_START, "end_of_earlier_row", False),
        (TimeSource.LAST_START, None, False),
        ("", TimeSource.CREATION, False),
    ],
)
def test_which_start_corrects_which(source: str, known: str | None, better: bool) -> None:
    assert is_better_start(source, known) is better


@pytest.mark.parametrize(
    ("source", "known", "better"),
    [
        (TimeSource.OPERATION_END, TimeSource.FIRST_SEEN_GONE, True),
        (TimeSource.STATE_CHANGE_EVENT, TimeSource.STATE_TRANSITION_REASON, True),
        (TimeSource.NOTICE, TimeSource.STATE_TRANSITION_REASON, False),
        (TimeSource.STATE_CHANGE_EVENT, TimeSource.OPERATION_END, False),
    ],
)
def test_which_end_corrects_which(source: str, known: str, better: bool) -> None:
    assert is_better_end(source, known) is better
