"""The gang that machines are asked for: the one in the job's row, or one that is only considered.

"Could the budget begin on-demand?" and "would two machines fit?" are other values of it. The row
changes when an answer is acted on, never in order to ask.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.domain.market.offer import Market


@dataclass(frozen=True, slots=True)
class GangNeed:
    """market: where its machines come from. node_count: how many it has in all."""

    market: Market
    node_count: int
