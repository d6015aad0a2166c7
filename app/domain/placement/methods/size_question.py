"""The question that an elastic gang's size is the answer to, from what is known of its job.

Not here: the answer (`gang_size`), or reading rows (`market_and_size`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.domain.market.offer import Offer
from app.domain.placement.gang_size import SizeChoice, SizeQuestion, choose_size, size_options
from app.domain.placement.methods.offer_book import GangWork
from app.domain.placement.placement import RankedOffer
from app.domain.spec.node_range import NodeRange
from app.domain.throughput.gang_scaling import GangScaling
from app.domain.throughput.gpu_throughput import GpuThroughput, gpu_shape_of


@dataclass(frozen=True)
class SizeTerms:
    """What a size depends on beside the offers.

    running: machines of the live attempt; None between two, where the work is known for the gang
    that is asked about. The others are as in `SizeQuestion`.
    """

    nodes: NodeRange
    work: GangWork
    speeds: GpuThroughput
    scaling: GangScaling
    running: int | None
    restart_seconds: float
    deadline_seconds: float | None
    reserve_seconds: float
    money_left_microusd: int | None

    def question(self, gang: int, counted_in: Offer | None) -> SizeQuestion:
        """For a gang of so many machines. counted_in: whose machines speeds are told in."""
        seconds: float | None = self.work.seconds_for(gang)
        if seconds is not None and counted_in is not None and self.work.told_for is not None:
            here = gpu_shape_of(counted_in.hardware)
            seconds = self.speeds.seconds_on(here, seconds, self.work.told_for)
        machines = gang if self.running is None else self.running
        return SizeQuestion(
            nodes=self.nodes,
            work_seconds=None if seconds is None else seconds * self.scaling.speed_up(machines),
            restart_seconds=self.restart_seconds,
            deadline_seconds=self.deadline_seconds,
            reserve_seconds=self.reserve_seconds,
            money_left_microusd=self.money_left_microusd,
            scaling=self.scaling,
        )


def size_of_offers(
    considered: Sequence[RankedOffer], sizes: Sequence[int], terms: SizeTerms, gang: int
) -> SizeChoice | None:
    """The size among these for a gang without machines; None where no offer has room.

    considered: offers judged for the least size.
    """
    first = next((item.offer for item in considered if item.fits), None)
    options = size_options(considered, sizes, terms.speeds)
    return choose_size(options, terms.question(gang, first))
