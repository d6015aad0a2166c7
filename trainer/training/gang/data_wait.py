"""Waiting for samples, so that a notice can end it on all ranks at the same place.

A bucket that falls silent holds one rank up, and that rank all others, which then stand in an
exchange of gradients that nothing ends. So no rank begins a step, or scores a batch, before all of
them have their samples. Where all have them, which is nearly always, it costs no exchange of its
own: the ranks tell it in the one that ends each step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from trainer.training.data.loading.batches import MicroBatch
from trainer.training.data.loading.loader import Loader
from trainer.training.gang.distributed import Gang
from trainer.training.reporting.goodput import Bucket, Ledger

StopAsked = Callable[[], bool]


class StopAgreed(Exception):
    """A rank was asked to stop while one waited; raised on all ranks."""


class DataWait:
    """Of one rank; the ranks call its methods alike. ``loader`` may be one that never waits."""

    def __init__(self, loader: Loader, gang: Gang, ledger: Ledger) -> None:
        self._loader = loader
        self._gang = gang
        self._ledger = ledger
        # Where there is one rank it finds out when it needs them.
        self._tells = gang.world_size > 1 and loader.may_wait
        self._all_have = False

    def lacks(self) -> bool:
        """At the end of a step: whether this rank's samples of the next one have yet to come. To
        be summed over the ranks and handed to ``told``.
        """
        if not self._tells:
            return False
        with self._ledger.spending(Bucket.DATA_WAIT):
            return not self._loader.ready()

    def told(self, lacking: float) -> None:
        """So many ranks lack samples for the next step."""
        self._all_have = self._tells and lacking == 0

    def forget(self) -> None:
        """What was told is of no worth any more: the loader was started anew."""
        self._all_have = False

    def next(self, stop_asked: StopAsked) -> list[MicroBatch] | None:
        """This rank's micro-batches of the next step; None on all ranks when a stop was agreed."""
        before = self._ledger.enter(Bucket.DATA_WAIT)
        if self._loader.may_wait and not self._wait(stop_asked):
            return None
        micro_batches = self._loader.next()
        self._ledger.enter(before)
        return micro_batches

    def part(self, name: str, stop_asked: StopAsked) -> Iterator[MicroBatch]:
        """This rank's share of a part, for scoring. Raises ``StopAgreed``, on all ranks: a stop is
        agreed on before each batch, and whenever one is late.
        """
        mine: MicroBatch | None = None
        ended = False
        tries = self._loader.tries(name)
        while True:
            if mine is None and not ended:
                try:
                    mine = next(tries)
                except StopIteration:
                    ended = True
            lacking, stops = self._gang.sum(mine is None and not ended, stop_asked())
            if stops > 0:
                raise StopAgreed
            if lacking > 0:
                continue
            if ended:  # on all ranks: their shares have equally many batches
                return
            assert mine is not None
            yield mine
            mine = None

    def _wait(self, stop_asked: StopAsked) -> bool:
        while not self._all_have:
            lacking, stops = self._gang.sum(not self._loader.ready(), stop_asked())
            if lacking > 0 and stops > 0:
                return False
            self._all_have = lacking == 0
        self._all_have = False
        return True
