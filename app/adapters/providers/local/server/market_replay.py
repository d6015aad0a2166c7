"""Taking machines when the recording says that their pool holds fewer.

Woken by the one next instant that matters, and by every change in what runs; never by a tick.
Not here: what taking a machine means (`local_cloud`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from app.adapters.providers.local.files.cloud_settings import LocalSettings
from app.adapters.providers.local.machines.machine import Machine
from app.adapters.providers.local.market.market import RecordedMarkets
from app.domain.market.offer import Pool


class MarketReplay:
    """Interrupts by the recording. In scripted mode it never finds anything to do."""

    def __init__(
        self,
        markets: RecordedMarkets,
        settings: LocalSettings,
        now_us: Callable[[], int],
        interrupt: Callable[[Machine, float], None],
    ) -> None:
        self._markets = markets
        self._settings = settings
        self._now_us = now_us
        self._interrupt = interrupt
        self._timer: asyncio.TimerHandle | None = None

    def look(self, machines: Iterable[Machine]) -> None:
        """Take what is too much now, newest first, and wait for the next shortage."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        machines = tuple(machines)
        kept: dict[Pool, list[Machine]] = {}
        for machine in machines:
            if machine.is_running and machine.noticed_at_us is None:
                kept.setdefault(machine.pool, []).append(machine)
        now_us = self._now_us()
        next_us: list[int] = []
        for pool, running in kept.items():
            room = self._markets.offered(pool, now_us)
            running.sort(key=lambda machine: (machine.launched_at_us, machine.machine_id))
            while room is not None and len(running) > room:
                machine = running.pop()
                self._interrupt(machine, self._settings.notice_seconds(is_gce=machine.is_gce))
            below_us = self._markets.next_below(pool, len(running), now_us)
            if running and below_us is not None:
                next_us.append(below_us)
        if next_us:
            seconds = max(0, min(next_us) - now_us) / 1_000_000
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(seconds, self.look, machines)
