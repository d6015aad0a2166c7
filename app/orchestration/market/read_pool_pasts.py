"""The past of each pool, asked once when it is first seen; and scores, seldom.

Lives here: the controller of what is only shown. It asks after the prices of now are stored, a few
pools at a time, so that neither they nor a claim wait for it. Not here: prices that bills rest on
(`refresh_prices`), or any choice: none reads what is stored here.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from app.domain.market.offer import Pool
from app.orchestration.frame.controller_frame import RuntimeController
from app.orchestration.frame.runtime import Runtime
from app.ports.cloud_provider import ProviderError
from app.ports.pool_past import PlacementScoreSource, PoolPast, PoolPastSource
from app.storage.unit_of_work import UnitOfWork

log = logging.getLogger(__name__)

PAST_CONTROLLER = "read_pool_pasts"
LOOK_BACK = timedelta(days=90)
"""As far as DescribeSpotPriceHistory goes."""

PAST_KEPT = timedelta(days=1)
SCORE_KEPT = timedelta(hours=12)
"""GetSpotPlacementScores allows few different questions in 24 hours."""

FAILED_REST = timedelta(minutes=30)
POOLS_AT_A_TIME = 20
SCORED_AT_A_TIME = 200


class PoolQuery(StrEnum):
    """What a question is about."""

    PAST = "past"
    SCORE = "score"


@dataclass(frozen=True)
class PastQuestion:
    """Pools of one provider to ask about, in one batch; a past is asked of one region at a time."""

    provider: str
    wanted: PoolQuery
    pools: tuple[Pool, ...]
    since: datetime

    @property
    def rests_with(self) -> str | None:
        """The region that rests when this fails; None: whatever is asked alike."""
        return self.pools[0].region if self.wanted is PoolQuery.PAST else None


@dataclass(frozen=True)
class PastAnswer:
    """What was told; `failed` when nobody could be asked, and the pools stay unasked."""

    pasts: tuple[PoolPast, ...] = ()
    scores: dict[Pool, int] = field(default_factory=dict)
    failed: bool = False


class ReadPoolPasts(RuntimeController):
    """The controller of recorded prices and scores."""

    name = PAST_CONTROLLER
    limit = 4

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        # Only a courtesy to a provider that fails: lost with the process, at no harm.
        self._rests: dict[tuple[str, PoolQuery, str | None], datetime] = {}

    def select(self, uow: UnitOfWork, limit: int) -> list[PastQuestion]:
        """One batch of each kind for each provider. Asking changes nothing: it takes no lease."""
        found = []
        for provider, source in sorted(self._runtime.price_sources.items()):
            if isinstance(source, PoolPastSource):
                asked_before = uow.now - PAST_KEPT if source.past_changes else None
                # A region that fails must not keep the others from being asked.
                resting = self._resting(provider, uow.now)
                pools = uow.pool_pasts.without_past(
                    provider, asked_before, POOLS_AT_A_TIME, except_regions=resting
                )
                pools = [pool for pool in pools if pool.region == pools[0].region]
                found += self._question(uow, provider, PoolQuery.PAST, pools)
            if isinstance(source, PlacementScoreSource) and not self._rest(
                provider, PoolQuery.SCORE, uow.now
            ):
                before = uow.now - SCORE_KEPT
                pools = uow.pool_pasts.without_score(provider, before, SCORED_AT_A_TIME)
                found += self._question(uow, provider, PoolQuery.SCORE, pools)
        return found[:limit]

    def effect(self, work: PastQuestion) -> PastAnswer:
        """Ask; what fails is asked again after a rest."""
        source = self._runtime.price_sources[work.provider]
        try:
            if work.wanted is PoolQuery.PAST and isinstance(source, PoolPastSource):
                return PastAnswer(pasts=source.past_of(work.pools, work.since))
            if isinstance(source, PlacementScoreSource):
                return PastAnswer(scores=dict(source.scores_of(work.pools)))
        except ProviderError as error:
            log.warning("the %s of %s is not known: %s", work.wanted, work.provider, error)
        return PastAnswer(failed=True)

    def apply(self, uow: UnitOfWork, work: PastQuestion, result: PastAnswer) -> None:
        """Remember what was told, and that it was asked."""
        if result.failed:
            self._rests[work.provider, work.wanted, work.rests_with] = uow.now + FAILED_REST
        elif work.wanted is PoolQuery.PAST:
            uow.pool_pasts.record_past(result.pasts, work.pools, uow.now)
        else:
            uow.pool_pasts.record_scores(result.scores, work.pools, uow.now)

    def next_due(self, uow: UnitOfWork) -> datetime | None:
        """Its period is enough: nobody waits for what is only shown."""
        return None

    def _resting(self, provider: str, now: datetime) -> list[str]:
        """Regions whose past could lately not be read."""
        return sorted(
            region
            for (name, wanted, region), until in self._rests.items()
            if (name, wanted) == (provider, PoolQuery.PAST) and region is not None and now < until
        )

    def _rest(self, provider: str, wanted: PoolQuery, now: datetime) -> bool:
        until = self._rests.get((provider, wanted, None))
        return until is not None and now < until

    def _question(
        self, uow: UnitOfWork, provider: str, wanted: PoolQuery, pools: list[Pool]
    ) -> list[PastQuestion]:
        if not pools:
            return []
        return [PastQuestion(provider, wanted, tuple(pools), uow.now - LOOK_BACK)]
