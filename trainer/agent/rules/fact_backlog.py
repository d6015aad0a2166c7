"""The queue of facts that were not acknowledged yet: numbering, acknowledging, the cap.

Pure values in and out. Not here: which facts exist (`trainer.protocol.agent_report`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from trainer.protocol.agent_report import (
    FACTS_KEPT_MAX,
    FACTS_PER_REPORT_MAX,
    NEVER_DROPPED,
    Fact,
    FactKind,
)

METRICS_PER_REPORT_MAX = 30
METRICS_BYTES_MAX = 1 << 20
"""About so many in one report: one that is too large to be taken would be sent again for ever."""
_NUMBER_BYTES = 28


@dataclass(frozen=True)
class FactBacklog:
    """Facts in the order of their numbers; numbers grow by one and are never used again."""

    pending: tuple[Fact, ...] = ()
    last_fact_no: int = 0
    acked_fact_no: int = 0
    dropped: int = 0

    def add(
        self,
        kind: FactKind,
        uptime_seconds: float,
        fence: int | None = None,
        data: dict[str, Any] | None = None,
        kept_max: int = FACTS_KEPT_MAX,
    ) -> FactBacklog:
        """Append one; beyond `kept_max` the oldest fact that may be dropped goes."""
        number = self.last_fact_no + 1
        fact = Fact(number, kind, max(0, round(uptime_seconds * 1000)), fence, data or {})
        grown = replace(self, pending=(*self.pending, fact), last_fact_no=number)
        return grown._without_oldest() if len(grown.pending) > kept_max else grown

    def acknowledge(self, fact_no: int) -> FactBacklog:
        """Forget every fact up to `fact_no`; a lower or an impossible number changes nothing."""
        if not self.acked_fact_no < fact_no <= self.last_fact_no:
            return self
        left = tuple(fact for fact in self.pending if fact.fact_no > fact_no)
        return replace(self, pending=left, acked_fact_no=fact_no)

    def forget_fences(self, up_to: int) -> FactBacklog:
        """Without the facts of attempts up to this one: nobody knows those any more."""
        left = tuple(one for one in self.pending if one.fence is None or one.fence > up_to)
        return self if len(left) == len(self.pending) else replace(self, pending=left)

    def next_batch(self) -> tuple[Fact, ...]:
        """What the next report carries, oldest first; a bounded share of it is chart points."""
        batch: list[Fact] = []
        metrics = metrics_bytes = 0
        for fact in self.pending[:FACTS_PER_REPORT_MAX]:
            metrics += fact.kind is FactKind.METRICS
            metrics_bytes += _metrics_bytes(fact)
            full = metrics > METRICS_PER_REPORT_MAX or metrics_bytes > METRICS_BYTES_MAX
            if full and batch:
                break
            batch.append(fact)
        return tuple(batch)

    def _without_oldest(self) -> FactBacklog:
        for index, fact in enumerate(self.pending):
            if fact.kind not in NEVER_DROPPED:
                left = self.pending[:index] + self.pending[index + 1 :]
                return replace(self, pending=left, dropped=self.dropped + 1)
        return self


def _metrics_bytes(fact: Fact) -> int:
    """Roughly what a fact's chart points take on the wire."""
    if fact.kind is not FactKind.METRICS:
        return 0
    names = (name for point in fact.data.get("points", ()) for name in point)
    return sum(len(name.encode("utf-8", "replace")) + _NUMBER_BYTES for name in names)
