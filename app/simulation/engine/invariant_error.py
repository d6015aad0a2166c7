"""The error of a simulation whose world has broken a rule.

Not here: the rules (`invariants`) or the report that people read (`failure_report`).
"""

from __future__ import annotations


class InvariantError(AssertionError):
    """`rule` as it stands in the list of rules, and what was seen instead."""

    def __init__(self, rule: str, seen: str) -> None:
        super().__init__(f"{rule}: {seen}")
        self.rule = rule
        self.seen = seen
