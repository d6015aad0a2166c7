"""Why a transaction was undone, for those who open one."""

from __future__ import annotations


class DatabaseFull(Exception):
    """The database's disk has no room: the transaction is undone, and reads go on."""


class RowsLocked(Exception):
    """Another transaction held the rows for too long: this one is undone, and may be tried again.

    To be expected where many change one job at once; no sign that anything is wrong.
    """
