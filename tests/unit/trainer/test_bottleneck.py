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
        (Shares(0.01, 0.0, 0.0, 3.0, pause=0.91), "pause", "(step_delay_seconds) takes 91 % of"),
        (Shares(0.01, 0.0, 0.0, pause=0.91), "pause", "as the job asks; computing takes 8 %."),
        (Shares(0.01, 0.0, 0.0, pause=0.04), "compute", "Computing takes 95 % of the time"),
        (Shares(0.30, 0.0, 0.0, pause=0.60), "data", "waits for data 30 % of the time"),
    ],
)
def test_the_limit_and_its_advice(shares: Shares, bound: str, words: str):
    found = verdict(shares)
    assert (found.bound, found.is_advice) == (bound, bound not in ("compute", "pause"))
    assert words in found.sentence


def test_shares_cross_the_wire_as_numbers():
    paused = Shares(0.0, 0.0, 0.25, pause=0.5)
    for shares in (Shares(0.25, 0.5, 0.0625, 40.0, 4), Shares(0.0, 0.0, 0.5), paused):
        numbers = shares.metrics()
        assert all(isinstance(value, float) for value in numbers.values())
        assert shares_of({"loss": 1.0, **numbers}) == shares
    assert shares_of({"loss": 1.0}) is None


def test_what_is_not_lost_is_computing():
    assert Shares(0.25, 0.25, 0.25).compute == 0.25
    assert Shares(0.75, 0.5, 0.0).compute == 0.0
    assert Shares(0.25, 0.0, 0.0, pause=0.5).compute == 0.25


def test_a_run_without_a_pause_sends_what_the_release_before_did():
    assert "share_pause" not in Shares(0.25, 0.0, 0.0).metrics()
