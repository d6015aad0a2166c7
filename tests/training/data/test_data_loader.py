"""The loader: the same tensors whatever the workers, ranks, parts and cuts; and what goes wrong."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.training.data import small_data
from trainer.protocol.train_options.data import DataOptions
from trainer.training.data import SampleOrder, load_data
from trainer.training.data.loading.loader import Loader, MicroBatch, zero_batch
from trainer.training.data.loading.workers import worker_count
from trainer.training.training_errors import DataError

BATCH = 12
CPU = torch.device("cpu")
PHOTOS: dict[str, Any] = {"image_size": 16, "cache": "off"}


@pytest.fixture(scope="module")
def flowers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_data.image_folders(tmp_path_factory.mktemp("flowers"), each=15)


def loader_for(
    name: str | Path, *, rank: int = 0, ranks: int = 1, parts: int = 1, **options: Any
) -> Loader:
    """A loader with a global batch of 12."""
    checked = DataOptions(**options)
    data = load_data(str(name), 3, checked)
    order = SampleOrder(3, len(data.train), BATCH)
    return Loader(
        data,
        order,
        rank=rank,
        world_size=ranks,
        device=CPU,
        seed=3,
        accumulation=parts,
        options=checked,
    )


def steps(loader: Loader, first: int, last: int) -> list[MicroBatch]:
    """All micro-batches of the steps ``first`` to ``last``."""
    loader.start(first)
    batches = [batch for _ in range(first, last) for batch in loader.next()]
    loader.close()
    return batches


def samples(batches: list[MicroBatch]) -> dict[tuple[int, int], torch.Tensor]:
    """Each sample's tensor by its number and how often it came before."""
    found: dict[tuple[int, int], torch.Tensor] = {}
    for batch in batches:
        for number, tensor in zip(batch.ids.tolist(), batch.inputs, strict=True):
            times = sum(1 for key in found if key[0] == number)
            found[number, times] = tensor
    return found


@pytest.mark.parametrize("workers", [2, 4])
def test_workers_and_cuts_do_not_change_a_single_tensor(flowers: Path, workers: int) -> None:
    whole = steps(loader_for(flowers, workers=0, **PHOTOS), 0, 6)
    for cut in (1, 4):
        rest = steps(loader_for(flowers, workers=workers, **PHOTOS), cut, 6)
        for before, after in zip(whole[cut:], rest, strict=True):
            assert np.array_equal(before.ids, after.ids)
            assert torch.equal(before.inputs, after.inputs)
            assert torch.equal(before.labels, after.labels)


def test_ranks_and_parts_share_the_batch_without_overlap(flowers: Path) -> None:
    alone = steps(loader_for(flowers, workers=0, **PHOTOS), 0, 4)
    gang = [
        steps(loader_for(flowers, rank=rank, ranks=3, parts=2, workers=0, **PHOTOS), 0, 4)
        for rank in range(3)
    ]
    assert all(len(batches) == 8 for batches in gang)
    for step in range(4):
        parts = [batch for batches in gang for batch in batches[2 * step : 2 * step + 2]]
        assert np.array_equal(np.concatenate([part.ids for part in parts]), alone[step].ids)
        assert torch.equal(torch.cat([part.inputs for part in parts]), alone[step].inputs)
        assert torch.equal(torch.cat([part.labels for part in parts]), alone[step].labels)


def test_every_epoch_crops_the_same_sample_anew(flowers: Path) -> None:
    batches = steps(loader_for(flowers, workers=0, **PHOTOS), 0, 8)
    found = samples(batches)
    twice = [number for number, times in found if times == 1]
    assert len(twice) > 20
    assert all(not torch.equal(found[number, 0], found[number, 1]) for number in twice)


def test_more_parts_after_a_restart_are_the_same_samples(flowers: Path) -> None:
    loader = loader_for(flowers, workers=2, **PHOTOS)
    loader.start(0)
    (first,) = loader.next()
    loader.start(1, accumulation=4)
    parts = loader.next()
    (second,) = steps(loader_for(flowers, workers=0, **PHOTOS), 1, 2)
    assert [len(part) for part in parts] == [3, 3, 3, 3]
    assert torch.equal(torch.cat([part.inputs for part in parts]), second.inputs)
    assert not np.array_equal(first.ids, second.ids)
    loader.start(1, accumulation=20)
    assert [len(part) for part in loader.next()] == [1] * 12 + [0] * 8
    loader.close()


def test_no_generator_of_the_process_is_touched(flowers: Path) -> None:
    def numpy_state() -> list[int]:
        numbers: list[int] = np.random.get_state(legacy=False)["state"]["key"].tolist()
        return numbers

    before = torch.get_rng_state(), numpy_state(), random.getstate()
    loader = loader_for(flowers, workers=2, **PHOTOS)
    loader.start(0)
    loader.next()
    list(loader.part("validation"))
    loader.close()
    assert torch.equal(torch.get_rng_state(), before[0])
    assert numpy_state() == before[1]
    assert random.getstate() == before[2]


@pytest.mark.parametrize("workers", [0, 2])
def test_scoring_is_plain_and_shared_by_the_ranks(flowers: Path, workers: int) -> None:
    found: list[int] = []
    for rank in range(2):
        loader = loader_for(flowers, rank=rank, ranks=2, workers=workers, **PHOTOS)
        batches = list(loader.part("validation"))
        assert len(batches) == 1
        found += batches[0].ids.tolist()
        again = list(loader.part("validation"))
        assert torch.equal(batches[0].inputs, again[0].inputs)
    assert found == list(range(len(loader.data.validation)))
    (train,) = list(loader.part("train", most=1))
    assert len(train) == 15


def test_a_rank_without_samples_to_score_gets_empty_batches(tmp_path: Path) -> None:
    small_data.image_folders(tmp_path, each=5, parts=("train", "val"))
    for name in list((tmp_path / "val").rglob("*.*"))[1:]:
        name.unlink()
    loader = loader_for(tmp_path, rank=1, ranks=2, workers=0, **PHOTOS)
    (empty,) = loader.part("validation")
    assert (len(empty), tuple(empty.inputs.shape)) == (0, (0, 3, 16, 16))
    assert list(loader.part("test")) == []


def test_a_bad_sample_ends_the_run_in_one_line_that_names_it(spoiled: Path) -> None:
    for workers in (0, 2):
        loader = loader_for(spoiled, workers=workers, split=(1, 0, 0), **PHOTOS)
        with pytest.raises(DataError, match=r"rose/bad\.jpg: it cannot be decoded") as caught:
            steps(loader, 0, 4)
        assert "\n" not in str(caught.value)
        loader.close()


def test_a_bad_sample_is_replaced_by_its_neighbour_everywhere(spoiled: Path) -> None:
    found = []
    for workers in (0, 3):
        options: dict[str, Any] = {"on_bad_sample": "skip", "split": (1, 0, 0), **PHOTOS}
        loader = loader_for(spoiled, workers=workers, **options)
        found.append(steps(loader, 0, 4))
        assert loader.bad_samples >= 1
        assert "rose/bad.jpg" in loader.last_bad_sample
    for before, after in zip(*found, strict=True):
        assert torch.equal(before.inputs, after.inputs)
        assert torch.equal(before.labels, after.labels)


def test_nothing_but_bad_samples_is_not_skipped_for_ever(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for number in range(20):
            (tmp_path / name / f"{number}.jpg").write_bytes(b"no image")
    loader = loader_for(tmp_path, workers=0, on_bad_sample="skip", **PHOTOS)
    with pytest.raises(DataError, match="16 samples in a row cannot be read"):
        steps(loader, 0, 1)


def test_workers_outlive_the_signals_that_stop_a_rank(flowers: Path) -> None:
    before = set(children())
    loader = loader_for(flowers, workers=2, **PHOTOS)
    loader.start(0)
    expected = loader.next()
    workers = set(children()) - before
    assert len(workers) == 2
    for worker in workers:
        os.kill(worker, signal.SIGTERM)
        os.kill(worker, signal.SIGINT)
    later = [batch for _ in range(20) for batch in loader.next()]
    assert len(later) == 20
    assert len(expected[0]) == BATCH
    loader.close()
    assert set(children()) - before == set()


def test_waiting_is_counted(flowers: Path) -> None:
    loader = loader_for(flowers, workers=1, **PHOTOS)
    loader.start(0)
    loader.next()
    first = loader.waited_seconds
    loader.next()
    loader.close()
    assert 0 < first < loader.waited_seconds


def test_tokens_and_images_in_memory_come_without_workers(tmp_path: Path) -> None:
    np.arange(5000, dtype=np.uint16).tofile(tmp_path / "corpus.bin")
    loader = loader_for(tmp_path / "corpus.bin", context_length=8)
    assert loader.workers == 0
    (batch,) = steps(loader, 0, 1)
    assert (batch.inputs.dtype, batch.inputs.shape) == (torch.int64, (BATCH, 8))
    assert torch.equal(batch.inputs[:, 1:], batch.labels[:, :-1])
    digits = loader_for("digits")
    (images,) = steps(digits, 0, 1)
    assert (images.inputs.dtype, images.inputs.shape) == (torch.float32, (BATCH, 1, 8, 8))
    value, label = digits.data.train.read(int(images.ids[5]))
    assert torch.equal(images.inputs[5], torch.from_numpy(value))
    assert images.labels[5] == label
    assert worker_count(DataOptions(workers=7), digits.data) == 7


def test_a_fixed_batch_is_read_once(flowers: Path) -> None:
    loader = loader_for("synthetic", synthetic_fixed=True, synthetic_shape=(3, 8, 8))
    loader.start(5)
    (one,), (two,) = loader.next(), loader.next()
    assert one.inputs is two.inputs
    assert not np.array_equal(one.ids, two.ids)
    zeros = zero_batch(loader.data, 4, CPU)
    assert (zeros.inputs.shape, zeros.labels.shape) == ((4, 3, 8, 8), (4,))


@pytest.fixture
def spoiled(tmp_path: Path) -> Path:
    """Flowers with one file that is cut short."""
    root = small_data.image_folders(tmp_path / "spoiled", each=6, parts=("train",))
    whole = small_data.image_bytes(5, kind="JPEG")
    (root / "train" / "rose" / "bad.jpg").write_bytes(whole[: len(whole) // 2])
    return root


def children() -> list[int]:
    """Process ids of this process's children."""
    listed = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return [int(each) for each in listed.split()]
