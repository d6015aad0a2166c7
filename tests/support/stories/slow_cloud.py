"""A cloud on paper whose launches are operations, or answers of which only a part comes true.

Not here: the cloud that answers at once (`orchestration_story`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from app.domain.market.offer import Pool
from app.ports.cloud_provider import (
    CloudMachine,
    LaunchOrder,
    LaunchOutcomeUnknown,
    LaunchResult,
    PoolRefusal,
    ProviderError,
    RefusalKind,
)
from tests.support.stories.orchestration_story import PaperCloud


@dataclass
class SlowCloud(PaperCloud):
    """operation_seconds: how long a launch's operation lasts; 0 answers at once.

    visible_seconds: how long a machine is not found by its token. forgets_operations: polls are
    refused. lose_replies: launches that are done without an answer. short_by: machines fewer than
    asked for, by pool. refusals: what pools answer instead of machines. orders: every order that
    was called, repeated ones too. asked_regions: where machines were looked for by token.
    """

    operation_seconds: float = 0.0
    visible_seconds: float = 0.0
    forgets_operations: bool = False
    lose_replies: int = 0
    short_by: dict[Pool, int] = field(default_factory=dict)
    refusals: dict[Pool, PoolRefusal] = field(default_factory=dict)
    orders: list[LaunchOrder] = field(default_factory=list)
    asked_regions: list[str | None] = field(default_factory=list)
    _begun: dict[str, datetime] = field(default_factory=dict)
    _refused: dict[str, tuple[PoolRefusal, ...]] = field(default_factory=dict)

    def launch(self, order: LaunchOrder) -> LaunchResult:
        self._begin("launch")
        self.orders.append(order)
        if order.client_token not in self._begun:
            self._carry_out(order)
        if self.lose_replies:
            self.lose_replies -= 1
            raise LaunchOutcomeUnknown("the connection broke")
        return self._state(order.client_token)

    def poll_launch(self, operation: str) -> LaunchResult:
        self._begin("poll_launch")
        if self.forgets_operations:
            raise ProviderError(RefusalKind.REJECTED, f"no operation {operation}")
        return self._state(operation)

    def find_by_token(
        self, client_token: str, region: str | None = None
    ) -> tuple[CloudMachine, ...]:
        self._begin("find_by_token")
        self.asked_regions.append(region)
        begun = self._begun.get(client_token)
        if begun is None or self.story.time < begun + timedelta(seconds=self.visible_seconds):
            return ()
        return self.find(client_token)

    def _carry_out(self, order: LaunchOrder) -> None:
        """Start what the first pool that does not refuse has."""
        refused = []
        self._begun[order.client_token] = self.story.time
        for bid in order.bids:
            if bid.pool in self.refusals:
                refused.append(self.refusals[bid.pool])
                continue
            for _ in range(order.count - self.short_by.get(bid.pool, 0)):
                self.start(bid.pool, order)
            break
        self._refused[order.client_token] = tuple(refused)

    def _state(self, token: str) -> LaunchResult:
        ready_at = self._begun[token] + timedelta(seconds=self.operation_seconds)
        if self.story.time < ready_at:
            return LaunchResult(pending_operation=token)
        accepted = tuple(machine.accepted() for machine in self.find(token))
        return LaunchResult(accepted, self._refused[token])
