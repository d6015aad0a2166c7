"""Shares of a window of training, measured from the goodput ledger, for the verdict about them.

Lives here: the window. Not here: how the wait for other ranks is measured (``waiting.py``), and
what the shares mean (``trainer/protocol/bottleneck.py``).
"""

from __future__ import annotations

from trainer.protocol.bottleneck import Shares
from trainer.training.reporting.goodput import Bucket, Ledger

_STEPPING = (Bucket.USEFUL_STEP, Bucket.RECOMPUTED_STEP)
_SAVING = (Bucket.CHECKPOINT_STALL, Bucket.CHECKPOINT_INFLATION)
_COUNTED = (*_STEPPING, *_SAVING, Bucket.DATA_WAIT, Bucket.PAUSE)


class BottleneckMeter:
    """What the ledger counted since the window began; start-up, scoring and the end are left out
    of the shares.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.restart()

    def restart(self) -> None:
        """The next window begins now."""
        self._before = self._ledger.seconds()
        self._waited_before = self._ledger.all_reduce_seconds

    def seconds(self) -> float:
        """What the shares are of, so far."""
        spent = self._spent()
        return sum(spent[bucket] for bucket in _COUNTED)

    def _spent(self) -> dict[Bucket, float]:
        now = self._ledger.seconds()
        return {bucket: now[bucket.value] - self._before[bucket.value] for bucket in Bucket}

    def shares(self, gpu_utilization: float | None, ranks: int) -> Shares | None:
        """The shares of the window so far; None when nothing was trained in it."""
        spent = self._spent()
        stepping = sum(spent[bucket] for bucket in _STEPPING)
        saving = sum(spent[bucket] for bucket in _SAVING)
        waited = self._ledger.all_reduce_seconds - self._waited_before
        total = sum(spent[bucket] for bucket in _COUNTED)
        if stepping <= 0:
            return None
        return Shares(
            data_wait=spent[Bucket.DATA_WAIT] / total,
            all_reduce=min(waited, stepping) / total,
            checkpoint=saving / total,
            pause=spent[Bucket.PAUSE] / total,
            gpu_utilization=gpu_utilization,
            ranks=ranks,
        )
