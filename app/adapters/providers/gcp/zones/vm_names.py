"""Names, labels and request ids: all follow from the launch's token, so that a repeat finds them.

A VM's name carries its launch, its number, its market and its type: with the DELETE action a VM
that ended leaves nothing but operations, and those only tell its name and zone.
Not here: what is asked for (`machine_request`).
"""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from typing import Final
from uuid import NAMESPACE_URL, uuid5

from app.adapters.providers.gcp.client.gcp_settings import PROVIDER, region_of
from app.domain.market.offer import Market, Pool
from app.ports.cloud_provider import LaunchOrder, ProviderError, RefusalKind

DEPLOYMENT_LABEL: Final = "lowtide_deployment"
TOKEN_LABEL: Final = "lowtide_token"
ORDER_LABEL: Final = "lowtide_order"
NOTICE_LABEL: Final = "lowtide_notice"

_LABEL_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_LABEL_VALUE = re.compile(r"[a-z0-9_-]{0,63}")
_NAME = re.compile(r"(lt-[a-z2-7]{20})-(\d{1,4})-([sd])-([a-z0-9-]+)")
_MARKETS = {Market.SPOT: "s", Market.ON_DEMAND: "d"}
_NAME_LENGTH_MAX = 63


@dataclass(frozen=True)
class NamedMachine:
    """What a VM's name tells."""

    launch_prefix: str
    number: int
    market: Market
    instance_type: str

    def pool(self, zone: str) -> Pool:
        """The pool of a machine of this name in `zone`."""
        return Pool(PROVIDER, region_of(zone), zone, self.instance_type, self.market)


def launch_prefix(client_token: str) -> str:
    """How the names of a launch's VMs begin; also the name of its placement policy."""
    digest = hashlib.sha256(client_token.encode()).digest()[:15]
    return "lt-" + base64.b32encode(digest).decode().lower()[:20]


def machine_names(order: LaunchOrder, instance_type: str) -> tuple[str, ...]:
    """The names of the machines of one type in an order, by number."""
    kind = re.sub(r"[^a-z0-9-]", "-", instance_type)
    prefix, market = launch_prefix(order.client_token), _MARKETS[order.market]
    return tuple(
        f"{prefix}-{number}-{market}-{kind}"[:_NAME_LENGTH_MAX].rstrip("-")
        for number in range(order.count)
    )


def read_name(name: str) -> NamedMachine | None:
    """What a name tells; None for one that is not ours."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    market = Market.SPOT if match[3] == "s" else Market.ON_DEMAND
    return NamedMachine(match[1], int(match[2]), market, match[4])


def request_id(order: LaunchOrder, *parts: str) -> str:
    """A UUID that is the same for the same call of the same launch, in every process.

    Compute Engine ignores a request whose id it has seen (InsertInstanceRequest.requestId).
    """
    return str(uuid5(NAMESPACE_URL, "/".join((order.client_token, order_digest(order), *parts))))


def order_digest(order: LaunchOrder) -> str:
    """Tells one order from another under the same token."""
    bids = [(bid.pool.key, bid.max_price_microusd_per_hour) for bid in order.bids]
    text = repr((order.count, order.min_count, order.market.value, bids, order.disk_gb))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def to_label_key(tag: str) -> str:
    """Labels know no colon: `lowtide:job` becomes `lowtide_job`. Raises ProviderError."""
    key = f"lowtide_{tag[8:]}" if tag.startswith("lowtide:") else tag
    ambiguous = tag.startswith("lowtide_")
    if ambiguous or _LABEL_KEY.fullmatch(key) is None:
        raise ProviderError(RefusalKind.REJECTED, f"Google Cloud takes no label {tag!r}")
    return key


def to_tag(label_key: str) -> str:
    """The tag of a label's key."""
    return f"lowtide:{label_key[8:]}" if label_key.startswith("lowtide_") else label_key


def label_value(value: str) -> str:
    """The value, if a label can have it. Raises ProviderError."""
    if _LABEL_VALUE.fullmatch(value) is None:
        raise ProviderError(
            RefusalKind.REJECTED,
            f"Google Cloud takes no label value {value[:80]!r}: it needs at most 63 lower-case "
            "letters, digits, dashes and underscores",
        )
    return value
