"""The verdict over a window of training: one row for each limit, and which of two wins."""

import pytest

from trainer.protocol.bottleneck import Shares, shares_of, verdict


@pytest.mark.parametrize(
    ("shares", "bound", "words"),
    [
        (Shares(0.43, 0.0, 0.0), "data", "waits for data 43 % of the time: raise the number of"),
        (Shares(0.43, 0.5, 0.2, 18.0), "data", "(GPU busy 18 %): raise the number of workers"),
        (Shares(0.20, 0.0, 0.0), "compute", "Computing takes 80 % of the time, as it should"),
        (Shares(0.1, 0.31, 0.2), "all_reduce", "gradients 31 % of the time: raise batch_size"),
        (Shares(0.1, 0.2, 0.08), "checkpoint", "Checkpoints cost 8 % of the time: save less"),
        (Shares(0.01, 0.0, 0.01, 22.0), "small_steps", "busy 22 % of the time although nothing"),
        (Shares(0.01, 0.0, 0.01, 29.9), "small_steps", "Use a larger batch, compile the model"),
        (Shares(0.01, 0.0, 0.01, 30.0), "compute", "Computing takes 98 % of the time (GPU busy"),
        (Shares(0.0, 0.0, 0.0, 97.0), "compute", "as it should"),
    ],
)
def test_the_limit_and_its_advice(shares: Shares, bound: str, words: str):
    found = verdict(shares)
    assert (found.bound, found.is_advice) == (bound, bound != "compute")
    assert words in found.sentence


def test_shares_cross_the_wire_as_numbers():
    for shares in (Shares(0.25, 0.5, 0.0625, 40.0, 4), Shares(0.0, 0.0, 0.5)):
        numbers = shares.metrics()
        assert all(isinstance(value, float) for value in numbers.values())
        assert shares_of({"loss": 1.0, **numbers}) == shares
    assert shares_of({"loss": 1.0}) is None


def test_what_is_not_lost_is_computing():
    assert Shares(0.25, 0.25, 0.25).compute == 0.25
    assert Shares(0.75, 0.5, 0.0).compute == 0.0
