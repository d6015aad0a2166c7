"""The text that names an unfinished launch: all that a restarted worker needs to go on.

Not here: asking about it (`launching`).
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode

from app.adapters.providers.gcp.client.gcp_settings import PROVIDER, region_of
from app.domain.market.offer import Market, Pool
from app.ports.cloud_provider import ProviderError, RefusalKind


@dataclass(frozen=True)
class PendingLaunch:
    """One insert under way. scope: `zones/z` or `regions/r`; names: the VMs it makes.

    note: what they were asked for and go without. token: that of the launch, "" where an earlier
    release wrote the text.
    """

    scope: str
    operation: str
    names: tuple[str, ...]
    min_count: int
    instance_type: str
    market: Market
    zones: tuple[str, ...]
    note: str = ""
    token: str = ""

    @property
    def pools(self) -> tuple[Pool, ...]:
        """The pools that were asked for."""
        return tuple(
            Pool(PROVIDER, region_of(zone), zone, self.instance_type, self.market)
            for zone in self.zones
        )

    def to_text(self) -> str:
        """`zones/us-central1-a/operations/operation-1?min=1&…`."""
        query = {
            "names": ",".join(self.names),
            "min": str(self.min_count),
            "type": self.instance_type,
            "market": self.market.value,
            "zones": ",".join(self.zones),
        }
        query |= {"note": self.note} if self.note else {}
        query |= {"token": self.token} if self.token else {}
        return f"{self.scope}/operations/{self.operation}?{urlencode(query)}"

    @staticmethod
    def parse(text: str) -> PendingLaunch:
        """What `to_text` wrote. Raises ProviderError for anything else."""
        path, _, query = text.partition("?")
        fields = dict(parse_qsl(query))
        parts = path.split("/")
        try:
            kind, place, noun, operation = parts
            if kind not in ("zones", "regions") or noun != "operations":
                raise ValueError(path)
            return PendingLaunch(
                scope=f"{kind}/{place}",
                operation=operation,
                names=tuple(fields["names"].split(",")),
                min_count=int(fields["min"]),
                instance_type=fields["type"],
                market=Market(fields["market"]),
                zones=tuple(fields["zones"].split(",")),
                note=fields.get("note", ""),
                token=fields.get("token", ""),
            )
        except (KeyError, ValueError):
            raise ProviderError(
                RefusalKind.REJECTED, f"no launch is pending under {text[:200]!r}"
            ) from None
