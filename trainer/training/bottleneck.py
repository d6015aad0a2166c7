"""Shares of a window of training, measured from the goodput ledger, for the verdict about them.

Lives here: the window and what DistributedDataParallel knows of its all-reduce. Not here: what the
shares mean (``trainer/protocol/bottleneck.py``).
"""

from __future__ import annotations

from trainer.protocol.bottleneck import Shares
from trainer.training.goodput import Bucket, Ledger

_STEPPING = (Bucket.USEFUL_STEP, Bucket.RECOMPUTED_STEP)
_SAVING = (Bucket.CHECKPOINT_STALL, Bucket.CHECKPOINT_INFLATION)


class Window:
    """What the ledger counted since the window began; start-up, scoring and the end are left out
    of the shares."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._before = ledger.seconds()

    def restart(self) -> None:
        """The next window begins now."""
        self._before = self._ledger.seconds()

    def shares(
        self, exposed_all_reduce: float, gpu_utilization: float | None, ranks: int
    ) -> Shares | None:
        """The shares of the window so far; None when nothing was trained in it.

        ``exposed_all_reduce``: of the time of the steps, 0 to 1.
        """
        now = self._ledger.seconds()
        spent = {bucket: now[bucket.value] - self._before[bucket.value] for bucket in Bucket}
        stepping = sum(spent[bucket] for bucket in _STEPPING)
        saving = sum(spent[bucket] for bucket in _SAVING)
        total = stepping + saving + spent[Bucket.DATA_WAIT]
        if stepping <= 0:
            return None
        return Shares(
            data_wait=spent[Bucket.DATA_WAIT] / total,
            all_reduce=exposed_all_reduce * stepping / total,
            checkpoint=saving / total,
            gpu_utilization=gpu_utilization,
            ranks=ranks,
        )


def exposed_all_reduce(model: object) -> float:
    """How much of the passes' time went to gradients that travelled while nothing was computed.

    ``model`` is wrapped in DistributedDataParallel, which measures every hundredth step (and the
    first ten) by itself; 0 for any other, and before it has measured.
    """
    read = getattr(model, "_get_ddp_logging_data", None)
    if read is None:
        return 0.0
    told = read()
    travelling = float(told.get("avg_backward_comm_time", 0))
    exposed = travelling - float(told.get("avg_backward_compute_comm_overlap_time", 0))
    passes = float(told.get("avg_forward_compute_time", 0))
    passes += float(told.get("avg_backward_compute_time", 0))
    return exposed / (passes + exposed) if exposed > 0 else 0.0
