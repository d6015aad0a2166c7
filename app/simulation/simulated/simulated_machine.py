"""One machine of the simulated cloud, and what the cloud would show of it at an instant.

Not here: what starts and ends it (`simulated_cloud`), what runs on it (`simulated_agent`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from app.domain.billing.machine_facts import TimeSource
from app.domain.lifecycle.instance import EndedBy
from app.domain.market.offer import Pool
from app.ports.cloud_provider import CloudMachine, MachineState
from app.simulation.engine.virtual_clock import instant

_SHOWN_AFTER_END_US = 3_600_000_000
HIDDEN_US_MAX = 9_000_000
"""Looks ten seconds apart that both miss a machine are the cloud's word that it is gone."""


@dataclass(eq=False)
class SimulatedMachine:
    """Instants are true microseconds.

    visible_us: before it, no list and no look shows the machine. stopping_us: its end was decided
    and it is shutting down. ended_us: billing ends here. hidden_looks, hidden_until_us: so many
    looks, and every one before then, are answered as if the machine were not there. hidden: no
    look at it alone has shown it since. hidden_from_us: the first look that did not.
    """

    machine_id: str
    client_token: str
    pool: Pool
    cloud: str
    launched_us: int
    visible_us: int
    running_us: int
    user_data: dict[str, str]
    tags: dict[str, str] = field(default_factory=dict)
    stopping_us: int | None = None
    ended_us: int | None = None
    ended_by: EndedBy | None = None
    notice_us: int | None = None
    hidden_looks: int = 0
    hidden_until_us: int = 0
    hidden_from_us: int | None = None
    hidden: bool = False

    @property
    def alive(self) -> bool:
        """It takes a place in its pool and costs money."""
        return self.ended_us is None

    def seen(self, now_us: int) -> CloudMachine | None:
        """What one call shows: the truth, or an absence that is none."""
        shown = self.shown(now_us)
        if shown is not None and self.hidden_looks > 0:
            if self.hidden_from_us is None:
                self.hidden_from_us = now_us
            if now_us < self.hidden_from_us + HIDDEN_US_MAX:
                self.hidden_looks -= 1
                return None
            self.hidden_looks = 0
        return None if now_us < self.hidden_until_us else shown

    def shown(self, now_us: int) -> CloudMachine | None:
        """What a look shows; None before it is visible and an hour after its end."""
        if now_us < self.visible_us:
            return None
        if self.ended_us is not None and now_us > self.ended_us + _SHOWN_AFTER_END_US:
            return None
        ec2 = self.cloud == "ec2"
        ended = self.ended_us is not None
        return CloudMachine(
            provider_instance_id=self.machine_id,
            client_token=self.client_token,
            pool=self.pool,
            state=self._state(now_us),
            launched_at=instant(self.launched_us),
            launched_source=TimeSource.LAUNCH_TIME if ec2 else TimeSource.CREATION,
            ended_by=self.ended_by if ended else None,
            ended_at=instant(self.ended_us) if self.ended_us is not None else None,
            ended_source=self._ended_source() if ended else "",
            tags=self.tags,
        )

    def _ended_source(self) -> str:
        ec2 = self.cloud == "ec2"
        return TimeSource.STATE_CHANGE_EVENT if ec2 else TimeSource.OPERATION_END

    def _state(self, now_us: int) -> MachineState:
        if self.ended_us is not None:
            return MachineState.TERMINATED
        if self.stopping_us is not None:
            return MachineState.SHUTTING_DOWN
        return MachineState.PENDING if now_us < self.running_us else MachineState.RUNNING
