"""What is done to images: the same from the same draws, in bounds, and alike on CPU and GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.training.data import small_data
from trainer.protocol.train_options.data import DataOptions
from trainer.training.data import load_data
from trainer.training.data.loading.batches import BatchReader, SampleRequest
from trainer.training.data.loading.draws import uniforms
from trainer.training.data.loading.transforms import (
    ImageTransform,
    centre_box,
    image_transforms,
    random_box,
)


def test_draws_are_a_function_of_the_key_and_uniform() -> None:
    ids, epochs = np.arange(20_000), np.zeros(20_000, np.int64)
    drawn = uniforms(1, epochs, ids, 5)
    assert drawn.shape == (20_000, 5)
    assert np.array_equal(drawn[70:90], uniforms(1, epochs[70:90], ids[70:90], 5))
    for other in (uniforms(2, epochs, ids, 5), uniforms(1, epochs + 1, ids, 5)):
        assert not (drawn == other).any()
    assert 0 <= drawn.min() < 0.001 < 0.999 < drawn.max() < 1
    assert abs(np.corrcoef(drawn.T) - np.eye(5)).max() < 0.03
    counts = np.histogram(drawn, bins=50, range=(0, 1))[0]
    assert counts.min() > 1_800  # 2,000 expected in each


def test_draws_never_change() -> None:
    """A run that is continued with a newer version must crop as before."""
    drawn = uniforms(7, np.array([0, 3]), np.array([5, 1_000_000]), 2)
    assert drawn.tolist() == DRAWN


def test_random_boxes_stay_inside_and_cover_what_was_asked() -> None:
    draws = uniforms(0, np.zeros(2_000, np.int64), np.arange(2_000), 5)
    shares = []
    for draw in draws:
        box = random_box(300, 400, (0.2, 0.8), draw)
        assert 0 <= box.top <= 300 - box.height
        assert 0 <= box.left <= 400 - box.width
        shares.append(box.height * box.width / (300 * 400))
    assert 0.17 < min(shares) < 0.25
    assert 0.7 < max(shares) < 0.83
    assert random_box(1, 1, (0.08, 1.0), draws[0]) == centre_box(1, 1, 0.875)


def test_photos_are_scored_on_their_middle() -> None:
    image = np.zeros((3, 256, 384), np.uint8)
    image[:, 16:240, 80:304] = 255  # the middle 224 of the middle square
    scoring = transform(crop=False, flip=False)
    prepared = scoring.prepare(image, np.zeros(5))
    assert prepared.shape == (3, 224, 224)
    assert prepared.min() == 255


def test_bytes_are_scaled_and_numbers_are_not() -> None:
    scoring = transform(crop=False, flip=False)
    images = torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1).expand(2, 3, 1, 1)
    scaled = scoring.finish(images, torch.zeros(2, 5))
    expected = [[-2.1179, -2.0357, -1.8044], [2.2489, 2.4286, 2.6400]]  # torchvision's
    assert torch.allclose(scaled.flatten(1), torch.tensor(expected), atol=1e-4)
    floats = torch.rand(2, 3, 1, 1)
    assert scoring.finish(floats, torch.zeros(2, 5)) is floats


@pytest.mark.parametrize("crop", [False, True])
def test_a_batch_is_cropped_by_the_device_as_by_the_workers(crop: bool) -> None:
    rows, columns = np.mgrid[0:64, 0:64]
    image = np.stack([rows * 3, columns * 3, rows + columns]).astype(np.uint8)
    draws = uniforms(0, np.zeros(16, np.int64), np.arange(16), 5)
    here = replace(transform(crop=crop), shape=(3, 32, 32), centre=1.0, area=(0.3, 1.0))
    there = replace(here, on_gpu=True, centre=0.5)
    if not crop:
        here = replace(here, centre=0.5)
    one_by_one = torch.stack([here.prepare(image, draw) for draw in draws])
    prepared = torch.stack([there.prepare(image, draw) for draw in draws])
    assert prepared.shape == (16, 3, 64, 64)
    drawn = torch.from_numpy(draws)
    difference = there.finish(prepared, drawn) - here.finish(one_by_one, drawn)
    # A gradient is the same whether it is anti-aliased or not, up to half a pixel.
    assert difference.abs().mean() < (0.02 if crop else 0.04)


def test_what_is_random_by_itself_depends_on_the_data(tmp_path: Path) -> None:
    photos = load_data(str(small_data.image_folders(tmp_path)), 0, DataOptions(cache="off"))
    training, scoring = image_transforms(photos, DataOptions())
    assert (training.crop, training.flip, scoring.crop, scoring.flip) == (True, True, False, False)
    plain, _ = image_transforms(photos, DataOptions(random_crop=False, flip=False))
    assert not plain.is_random
    digits, _ = image_transforms(load_data("digits", 0), DataOptions())
    assert not digits.is_random
    assert digits.keeps((1, 8, 8))


def test_bytes_travel_to_a_device_and_become_numbers_there() -> None:
    """The meta device stands for one that is not the CPU: nothing is computed on it here."""
    options = DataOptions(flip=True)
    data = load_data("synthetic", 0, options)
    ids = np.arange(6)
    wanted = SampleRequest("train", np.zeros_like(ids), ids, scoring=False)
    here = BatchReader(data, options, 0)[wanted]
    reader = BatchReader(data, options, 0, torch.device("meta"))
    travels = reader[wanted]
    assert (here["inputs"].dtype, travels["inputs"].dtype) == (torch.float32, torch.uint8)
    assert torch.equal(reader.finish(travels, scoring=False), here["inputs"])


def test_images_in_memory_can_be_augmented_and_resized() -> None:
    options = DataOptions(flip=True, image_size=12)
    data = load_data("digits", 0, options)
    assert data.shape == (1, 12, 12)
    reader = BatchReader(data, options, 0)
    ids = np.arange(40)
    answer = reader[SampleRequest("train", np.zeros_like(ids), ids, scoring=False)]
    plain = reader[SampleRequest("train", np.zeros_like(ids), ids)]
    assert answer["inputs"].shape == (40, 1, 12, 12)
    same = [torch.equal(*pair) for pair in zip(answer["inputs"], plain["inputs"], strict=True)]
    assert 8 < sum(same) < 32
    mirrored = answer["inputs"].flip(3)
    assert all(
        torch.equal(mirrored[place], plain["inputs"][place])
        for place in range(40)
        if not same[place]
    )


def transform(*, crop: bool, flip: bool = True) -> ImageTransform:
    """As for photos."""
    options = DataOptions(synthetic_shape=(3, 224, 224), random_crop=crop, flip=flip)
    data = replace(load_data("synthetic", 0, options), photos=True)
    return image_transforms(data, options)[0]


DRAWN = [[0.8565261627382702, 0.5149559869186029], [0.4359768550791101, 0.4983618075575328]]
