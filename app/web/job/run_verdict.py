"""What holds a job's training up, from the newest shares that its trainer reported.

Not here: the rules and the sentence (`trainer.protocol.bottleneck`), or the curves
(`metric_charts`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from app.domain.lifecycle.entities import Contact
from trainer.protocol.bottleneck import Diagnosis, Shares, shares_of, verdict


@dataclass(frozen=True)
class RunVerdict:
    """The verdict, and the shares of the training time that it was made from."""

    verdict: Diagnosis
    shares: Shares
    step: int

    @property
    def parts(self) -> tuple[tuple[str, float], ...]:
        """(name, percent) of each share, in the order in which they are shown."""
        shares = self.shares
        parts = (
            ("compute", 100 * shares.compute),
            ("data wait", 100 * shares.data_wait),
            ("all reduce", 100 * shares.all_reduce),
            ("checkpoint", 100 * shares.checkpoint),
        )
        return (*parts, ("pause", 100 * shares.pause)) if shares.pause else parts


def run_verdict(contacts: Iterable[Contact]) -> RunVerdict | None:
    """Of the machine whose trainer came furthest; None while no trainer has told any shares."""
    told = [
        (contact.step, contact.fence or 0, shares)
        for contact in contacts
        if contact.step is not None and (shares := shares_of(contact.metrics)) is not None
    ]
    if not told:
        return None
    step, _, shares = max(told, key=lambda one: (one[1], one[0]))
    return RunVerdict(verdict(shares), shares, step)
