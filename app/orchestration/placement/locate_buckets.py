"""Where the buckets of checkpoints are: asked once, as reading one from elsewhere costs egress.

Lives here: the controller that asks. A bucket is wanted once a job keeps its checkpoints in it
(`price_restores`); the deployment's own is looked at by itself. Not here: what egress costs.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import datetime, timedelta
from urllib.parse import urlsplit

from app.domain.billing.egress import bucket_of
from app.orchestration.frame.controller_frame import RuntimeController
from app.orchestration.frame.runtime import Runtime
from app.ports.bucket_places import DEFAULT_BUCKET, BucketPlace, BucketPlaceSource
from app.ports.cloud_provider import ProviderError
from app.storage.unit_of_work import UnitOfWork

log = logging.getLogger(__name__)

LOCATE_CONTROLLER = "locate_buckets"
AGAIN_AFTER = timedelta(hours=1)
_NOTE_MAX = 500


class LocateBuckets(RuntimeController):
    """The controller of bucket places."""

    name = LOCATE_CONTROLLER
    limit = 20

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self._own = bucket_of(runtime.checkpoint_root_uri or "") or ""

    def select(self, uow: UnitOfWork, limit: int) -> list[BucketPlace]:
        """Buckets to ask about; asking changes nothing, so it takes no lease."""
        known = uow.traffic.place_of(DEFAULT_BUCKET)
        if known is None or known.named != self._own:
            uow.traffic.record_place(BucketPlace(DEFAULT_BUCKET, self._own))
        return uow.traffic.unplaced(uow.now - AGAIN_AFTER, limit)

    def effect(self, work: BucketPlace) -> BucketPlace:
        """Ask the bucket's cloud for its region, unless a person has said it."""
        parts, said = urlsplit(work.named), self._runtime.checkpoint_region
        if said is not None and work.named == self._own and parts.scheme == "s3":
            return replace(work, region=said, note="as it is set")
        for _, provider in sorted(self._runtime.providers.items()):
            if isinstance(provider, BucketPlaceSource) and provider.bucket_scheme == parts.scheme:
                try:
                    return replace(work, region=provider.locate_bucket(parts.netloc), note="")
                except ProviderError as error:
                    return replace(work, note=str(error)[:_NOTE_MAX])
        return replace(work, note=f"no configured cloud can tell where {work.named} is")

    def apply(self, uow: UnitOfWork, work: BucketPlace, result: BucketPlace) -> None:
        """Remember what was said, with its time."""
        known = uow.traffic.place_of(work.bucket)
        if known is None or known.named != work.named:
            return  # the deployment's bucket was changed meanwhile
        if result.region is None:
            log.warning("restores from %s are not priced: %s", work.named, result.note)
        uow.traffic.record_place(replace(result, looked_up_at=uow.now))

    def next_due(self, uow: UnitOfWork) -> datetime | None:
        """The first bucket that nobody has looked for; one looked for in vain waits for a ring."""
        known = uow.traffic.place_of(DEFAULT_BUCKET)
        if known is None or known.named != self._own:
            return uow.now
        return uow.now if uow.traffic.unplaced(uow.now - AGAIN_AFTER, 1) else None
