"""The columns of a pool's price, where a job may rent there: one meaning of $/H in all tables.

Not here: lists of machines and of offers, where a row is one machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from app.cli.client import wording
from app.cli.client.terminal import Column


def price_columns(count: int, one_machine: Callable[[Any], int]) -> tuple[Column, ...]:
    """$/H is the price of all `count` machines; of several, EACH is that of one: "4 x 1.200".

    one_machine: micro-dollars per hour of one machine, of a row.
    """
    together = Column("$/H", lambda row: wording.hourly(count * one_machine(row)), True)
    if count == 1:
        return (together,)
    each = Column("EACH", lambda row: f"{count} x {wording.hourly(one_machine(row))}", True)
    return together, each
