"""The order of samples: a pure function of the seed, each sample once an epoch."""

from __future__ import annotations

import numpy as np
import pytest

from trainer.protocol.train_options.data import DIGITS_CLASSES, DIGITS_SAMPLES, DIGITS_SHAPE
from trainer.training.data import SampleOrder, load_data


def test_every_epoch_holds_each_sample_once_across_batches() -> None:
    order = SampleOrder(seed=3, samples=50, batch_size=7)
    seen = np.concatenate([order.batch(step) for step in range(100)])
    epochs = seen[:700].reshape(14, 50)
    assert (np.sort(epochs, axis=1) == np.arange(50)).all()
    assert len({tuple(epoch) for epoch in epochs}) == 14


def test_a_batch_larger_than_the_data_wraps_around() -> None:
    batch = SampleOrder(seed=0, samples=5, batch_size=12).batch(1)
    assert len(batch) == 12
    assert set(batch) == set(range(5))


def test_any_step_can_be_had_without_those_before_it() -> None:
    first, second = (SampleOrder(seed=9, samples=1257, batch_size=64) for _ in range(2))
    walked = [first.batch(step) for step in range(60)]
    assert np.array_equal(second.batch(59), walked[59])
    other = SampleOrder(seed=10, samples=1257, batch_size=64)
    assert not np.array_equal(other.batch(0), walked[0])


def test_the_order_is_the_same_on_every_machine_and_version() -> None:
    assert SampleOrder(seed=1, samples=10, batch_size=10).batch(0).tolist() == EPOCH_0_OF_SEED_1


@pytest.mark.parametrize("name", ["digits", "synthetic"])
def test_the_split_is_seven_two_one_and_follows_the_seed(name: str) -> None:
    data, same, other = (load_data(name, seed) for seed in (0, 0, 1))
    sizes = [len(part) for part in (data.train, data.validation, data.test)]
    total = sum(sizes)
    assert sizes == [total * 7 // 10, total * 9 // 10 - total * 7 // 10, total - total * 9 // 10]
    ids = range(sizes[2])
    images, again, others = (
        np.stack([each.test.read(index)[0] for index in ids]) for each in (data, same, other)
    )
    assert np.array_equal(images, again)
    assert not np.array_equal(images, others)
    assert {data.test.read(index)[1] for index in ids} == set(range(10))


def test_the_digits_are_what_the_control_plane_reckons_with() -> None:
    data = load_data("digits", 0)
    assert len(data.train) + len(data.validation) + len(data.test) == DIGITS_SAMPLES
    assert data.test.read(0)[0].shape == DIGITS_SHAPE
    assert data.classes == DIGITS_CLASSES


EPOCH_0_OF_SEED_1 = [2, 9, 8, 3, 6, 7, 1, 4, 0, 5]
