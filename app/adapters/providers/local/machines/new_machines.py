"""Names and port blocks for the machines of one launch.

Not here: starting them (`local_cloud`).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable

from app.adapters.embedded.processes.process_identity import boot_id
from app.adapters.providers.local.machines.launching import CloudRefusal, LaunchRequest
from app.adapters.providers.local.machines.loopback_ports import NoFreePorts, free_port_block
from app.adapters.providers.local.machines.machine import Machine
from app.adapters.providers.local.market.market import PoolMarket
from app.adapters.providers.local.market.recordings import GCE
from app.ports.cloud_provider import RefusalKind


def new_machines(
    order: LaunchRequest,
    market: PoolMarket,
    count: int,
    taken_ports: Iterable[int],
    launched_at_us: int,
) -> list[Machine]:
    """`count` machines that nobody has seen yet. Raises CloudRefusal when ports run out."""
    taken = set(taken_ports)
    machines: list[Machine] = []
    for _ in range(count):
        try:
            port = free_port_block(taken)
        except NoFreePorts as error:
            raise CloudRefusal(RefusalKind.UNAVAILABLE, str(error)) from error
        taken.add(port)
        machines.append(
            Machine(
                machine_id=_new_name(market.cloud),
                client_token=order.client_token,
                pool=market.pool,
                cloud=market.cloud,
                launched_at_us=launched_at_us,
                metadata_port=port,
                boot_id=boot_id(),
                tags=dict(order.tags),
                user_data=dict(order.user_data),
                disk_gb=order.disk_gb,
            )
        )
    return machines


def _new_name(cloud: str) -> str:
    """Like the cloud's own: an EC2 instance id, or a Compute Engine name."""
    return f"lowtide-{secrets.token_hex(5)}" if cloud == GCE else f"i-{secrets.token_hex(9)[:17]}"
