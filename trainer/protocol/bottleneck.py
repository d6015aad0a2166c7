"""What holds a run up, and what to do about it: a pure function of measured shares of the time.

Lives here: the rules and the sentences, which the trainer writes into its progress and the page of
a job shows. Not here: the measuring (``trainer.training.observer``). The numbers cross the process
as metrics named ``share_…`` and ``gpu_…``; the sentence is made anew from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Bound = Literal["data", "checkpoint", "all_reduce", "pause", "small_steps", "compute"]

DATA_WAIT_MOST: Final = 0.20
CHECKPOINT_MOST: Final = 0.05
ALL_REDUCE_MOST: Final = 0.25
PAUSE_MOST: Final = 0.05
GPU_BUSY_LEAST: Final = 30.0
"""Percent: below it somebody pays for a GPU that mostly waits."""


@dataclass(frozen=True)
class Shares:
    """One window of training. The shares are of its wall time, each 0 to 1.

    data_wait: the step could not begin. all_reduce: a rank waited, in the mean of all, for the
    others and the network while it had nothing to compute. checkpoint: training stood still or
    went slower for it. pause: the job asked for one after each step. gpu_utilization: percent of
    the time in which any kernel ran, None without a GPU. ranks: processes that train together.
    """

    data_wait: float
    all_reduce: float
    checkpoint: float
    gpu_utilization: float | None = None
    ranks: int = 1
    pause: float = 0.0

    @property
    def compute(self) -> float:
        """What is left for computing."""
        return max(0.0, 1.0 - self.data_wait - self.all_reduce - self.checkpoint - self.pause)

    def metrics(self) -> dict[str, float]:
        """As numbers of a progress line."""
        numbers = {
            "share_data_wait": self.data_wait,
            "share_all_reduce": self.all_reduce,
            "share_checkpoint": self.checkpoint,
            "share_compute": self.compute,
            "ranks": float(self.ranks),
        }
        if self.pause:
            numbers["share_pause"] = self.pause
        if self.gpu_utilization is not None:
            numbers["gpu_utilization"] = self.gpu_utilization
        return numbers


@dataclass(frozen=True)
class Diagnosis:
    """What is the limit, and one sentence for a person. ``is_advice``: something is to be done."""

    bound: Bound
    sentence: str

    @property
    def is_advice(self) -> bool:
        """False when the machine does what it was rented for, or pauses as the job asks."""
        return self.bound not in ("compute", "pause")


def verdict(shares: Shares) -> Diagnosis:
    """The first of the limits that is passed, in the order in which mending them pays."""
    busy = shares.gpu_utilization
    idle = busy is not None and busy < GPU_BUSY_LEAST
    gpu = "" if busy is None else f" (GPU busy {busy:.0f} %)"
    if shares.data_wait > DATA_WAIT_MOST:
        return Diagnosis(
            "data",
            f"Training waits for data {_percent(shares.data_wait)} of the time{gpu}: raise the"
            " number of workers, put the shards on local NVMe, or decode on the GPU.",
        )
    if shares.all_reduce > ALL_REDUCE_MOST:
        return Diagnosis(
            "all_reduce",
            f"The ranks wait for each other's gradients {_percent(shares.all_reduce)} of the"
            f" time{gpu}: raise batch_size with the samples of a micro-batch or the accumulation,"
            " name the fast network (network_interface, infiniband: true), or use fewer nodes with"
            " more GPUs each.",
        )
    if shares.checkpoint > CHECKPOINT_MOST:
        return Diagnosis(
            "checkpoint",
            f"Checkpoints cost {_percent(shares.checkpoint)} of the time{gpu}: save less often,"
            " or to a faster disk.",
        )
    if shares.pause > PAUSE_MOST:
        return Diagnosis(
            "pause",
            f"The pause after each step (step_delay_seconds) takes {_percent(shares.pause)} of the"
            f" time{gpu}, as the job asks; computing takes {_percent(shares.compute)}.",
        )
    if idle:
        return Diagnosis(
            "small_steps",
            f"The GPU is busy {busy:.0f} % of the time although nothing keeps it waiting: its"
            " steps are too small. Use a larger batch, compile the model, or rent a smaller GPU.",
        )
    return Diagnosis(
        "compute", f"Computing takes {_percent(shares.compute)} of the time{gpu}, as it should."
    )


def shares_of(metrics: Mapping[str, float]) -> Shares | None:
    """The shares among the metrics of a progress line; None when it carries none."""
    if "share_data_wait" not in metrics:
        return None
    return Shares(
        data_wait=metrics["share_data_wait"],
        all_reduce=metrics.get("share_all_reduce", 0.0),
        checkpoint=metrics.get("share_checkpoint", 0.0),
        gpu_utilization=metrics.get("gpu_utilization"),
        ranks=int(metrics.get("ranks", 1)),
        pause=metrics.get("share_pause", 0.0),  # a trainer without a pause tells none
    )


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
