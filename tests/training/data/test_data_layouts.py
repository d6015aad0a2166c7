"""Every layout of data is opened, split and read alike; what cannot be used gets one sentence."""

from __future__ import annotations

import json
import sys
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.training.data import small_data
from trainer.protocol.train_options.data import DataOptions
from trainer.training.data import Part, load_data
from trainer.training.data.loading.data_parts import BadSampleError, SubPart
from trainer.training.data.sources import images as image_files
from trainer.training.data.sources.arrays import TokenWindows
from trainer.training.training_errors import ConfigError, DataError


def test_class_folders_are_split_and_named(tmp_path: Path) -> None:
    root = small_data.image_folders(tmp_path / "flowers", each=10)
    (root / "rose" / "notes.txt").write_text("not an image")
    data, again = load_data(str(root), 4), load_data(str(root), 4)
    assert (data.kind, data.shape, data.classes) == ("images", (3, 224, 224), 3)
    assert data.class_names == small_data.CLASSES
    assert [len(data.part(name)) for name in ("train", "validation", "test")] == [21, 6, 3]
    assert names_of(data.train) == names_of(again.train) != names_of(load_data(str(root), 5).train)
    everything = names_of(data.train) | names_of(data.validation) | names_of(data.test)
    assert len(everything) == 30
    image, label = data.train.read(0)
    assert image.shape == (3, 32, 40)
    assert data.class_names[label] in data.train.name(0)
    grey = load_data(str(root), 4, DataOptions(channels=1, image_size=16))
    assert grey.shape == (1, 16, 16)
    assert grey.train.read(0)[0].shape == (1, 32, 40)


@pytest.mark.parametrize(
    ("parts", "sizes"),
    [
        (("train", "val", "test"), [18, 18, 18]),
        (("training", "valid"), [18, 18, 0]),
        (("train", "test"), [14, 4, 18]),  # 18 split 7 : 2
    ],
)
def test_folders_that_name_the_parts_are_obeyed(
    tmp_path: Path, parts: tuple[str, ...], sizes: list[int]
) -> None:
    data = load_data(str(small_data.image_folders(tmp_path, parts=parts)), 0)
    assert [len(data.part(name)) for name in ("train", "validation", "test")] == sizes
    assert all(f"/{parts[0]}/" in name for name in names_of(data.train))


def test_a_class_may_be_called_test(tmp_path: Path) -> None:
    for name in ("test", "dev"):
        (tmp_path / name).mkdir()
        for number in range(10):
            (tmp_path / name / f"{number}.png").write_bytes(small_data.image_bytes(number))
    assert load_data(str(tmp_path), 0).class_names == ("dev", "test")


@pytest.mark.parametrize("label", ["cls", "json"])
def test_shards_are_one_set_with_any_sample_at_once(tmp_path: Path, label: str) -> None:
    for first in (0, 12, 24):
        small_data.shard(tmp_path / f"part{first}.tar", range(first, first + 12), label)
    options = DataOptions(cache=str(tmp_path / "cache"))
    data = load_data(str(tmp_path), 0, options)
    assert [len(data.part(name)) for name in ("train", "validation", "test")] == [25, 7, 4]
    assert (data.classes, data.class_names) == (3, ("0", "1", "2"))
    again = load_data(str(tmp_path), 0, options)  # from the index in the cache
    uncached = load_data(str(tmp_path), 0, DataOptions(cache="off"))
    for index in (0, 11, 24):
        image, number = data.train.read(index)
        for other in (again, uncached):
            assert np.array_equal(other.train.read(index)[0], image)
            assert other.train.read(index)[1] == number
        assert "part" in data.train.name(index)
    small_data.shard(tmp_path / "part24.tar", range(40, 52), label)
    assert load_data(str(tmp_path), 0, options).train.read(0)[0].shape == (3, 32, 40)


def test_a_bucket_that_the_agent_has_brought_is_read_where_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = small_data.image_folders(tmp_path)
    monkeypatch.setenv("LOWTIDE_INPUT_LOWTIDE_TRAINING_DATA", str(root))
    data = load_data("s3://acme/flowers", 0)
    assert data.digest == load_data(str(root), 0).digest
    assert data.train.name(0).startswith(str(root))


def test_shards_tell_their_part_by_name(tmp_path: Path) -> None:
    for name, count in (("flowers-train-000", 9), ("flowers-val-000", 3), ("test/0", 6)):
        small_data.shard(tmp_path / f"{name}.tar", range(count))
    data = load_data(str(tmp_path), 0, DataOptions(cache="off"))
    assert [len(data.part(name)) for name in ("train", "validation", "test")] == [9, 3, 6]


def test_words_as_labels_become_classes(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for number, word in enumerate(["rose", "daisy", "rose"]):
            small_data.add_member(archive, f"x/{number}.png", small_data.image_bytes(number))
            small_data.add_member(archive, f"x/{number}.cls", word.encode())
    data = load_data(str(tmp_path), 0, DataOptions(cache="off", split=(1, 0, 0)))
    assert data.class_names == ("daisy", "rose")
    assert isinstance(data.train, SubPart)
    assert [data.train.whole.read(index)[1] for index in range(3)] == [1, 0, 1]


@pytest.mark.parametrize("layout", ["channels first", "channels last", "grey", "floats"])
def test_arrays_are_mapped_and_turned_the_right_way(tmp_path: Path, layout: str) -> None:
    shapes = {"channels first": (20, 3, 6, 5), "channels last": (20, 6, 5, 3), "grey": (20, 6, 5)}
    images = np.random.RandomState(0).randint(0, 255, shapes.get(layout, (20, 3, 6, 5)))
    kept = images.astype(np.float32 if layout == "floats" else np.uint8)
    np.save(tmp_path / "images.npy", kept)
    np.save(tmp_path / "labels.npy", np.arange(20) % 4)
    data = load_data(str(tmp_path), 0)
    assert data.shape == ((1, 6, 5) if layout == "grey" else (3, 6, 5))
    assert (data.classes, len(data.train)) == (4, 14)
    image, label = data.train.read(3)
    assert isinstance(data.train, SubPart)
    place = int(data.train.ids[3])
    assert label == place % 4
    first = kept[place].transpose(2, 0, 1) if layout == "channels last" else kept[place]
    assert np.array_equal(image, first.reshape(data.shape))


def test_tokens_are_windows_that_overlap_by_one(tmp_path: Path) -> None:
    np.arange(1000, dtype=np.uint16).tofile(tmp_path / "train.bin")
    np.arange(100, dtype=np.uint16).tofile(tmp_path / "val.bin")
    (tmp_path / "meta.json").write_text('{"vocab_size": 1000}')
    data = load_data(str(tmp_path), 0, DataOptions(context_length=16))
    assert (data.kind, data.shape, data.classes) == ("tokens", (16,), 1000)
    assert [len(data.part(name)) for name in ("train", "validation", "test")] == [62, 6, 0]
    window, following = data.train.read(3)
    assert np.array_equal(window, np.arange(48, 64))
    assert np.array_equal(following, np.arange(49, 65))
    one_file = tmp_path / "corpus.npy"
    np.save(one_file, np.arange(1000, dtype=np.uint32))
    alone = load_data(str(one_file), 0, DataOptions(context_length=16, vocabulary=999))
    assert [len(alone.part(name)) for name in ("train", "validation", "test")] == [43, 12, 7]
    assert isinstance(alone.train, SubPart)
    assert isinstance(alone.train.whole, TokenWindows)
    assert alone.train.whole.read(60)[1][-1] == 976
    with pytest.raises(BadSampleError, match="token 992 is outside the vocabulary of 980"):
        replace(alone.train.whole, vocabulary=980).read(61)


def test_synthetic_samples_are_made_when_they_are_read() -> None:
    options = DataOptions(synthetic_samples=100_000, synthetic_classes=1000, image_size=256)
    data = load_data("synthetic", 0, options)  # 15 GB if it were held
    assert (data.shape, data.classes, len(data.train)) == ((3, 256, 256), 1000, 70_000)
    image, label = data.train.read(17)
    assert (image.dtype, image.shape) == (np.dtype(np.uint8), (3, 256, 256))
    assert np.array_equal(image, data.train.read(17)[0])
    assert 0 <= label < 1000
    tokens = load_data("synthetic", 0, DataOptions(synthetic_shape=(8,), synthetic_classes=50))
    window, following = tokens.train.read(5)
    assert np.array_equal(window[1:], following[:-1])
    assert tokens.shape == (8,)


@pytest.mark.parametrize(
    ("write", "options", "sentence"),
    [
        (lambda root: None, {}, "holds no class folders with images; expected CLASS/IMAGE"),
        (lambda root: (root / "a.tfrecord").touch(), {}, "convert them once: python -m trainer"),
        (lambda root: (root / "a.tar").touch(), {}, "a.tar is not a whole tar file"),
        (lambda root: cut_shard(root), {}, "cut.tar is not a whole tar file"),
        (lambda root: without_label(root), {}, "sample '0' has no label"),
        (lambda root: empty_file(root), {}, "1 of 4 files are empty, such as .*/rose/empty.png"),
        (lambda root: unknown_class(root), {}, "class 'oak' is in validation but not in train"),
        (lambda root: np.save(root / "images.npy", np.zeros((3, 4))), {}, "labels.npy cannot be"),
        (lambda root: floats(root), {}, "holds float64 of shape .*; expected uint8 or float32"),
        (lambda root: (root / "a.bin").write_bytes(b"abc"), {}, "3 bytes, which is no number of"),
        (lambda root: (root / "a.bin").write_bytes(b"ab"), {}, "has no sample to train on"),
        (lambda root: two_files(root), {}, "cannot be told to be train, val or test"),
        (lambda root: bad_meta(root), {}, "no whole number under vocab_size"),
        (lambda root: small_data.image_folders(root), {"channels": 2}, "with 1, 3 or 4 channels"),
    ],
)
def test_what_cannot_be_used_gets_one_sentence(
    tmp_path: Path, write: Any, options: dict[str, Any], sentence: str
) -> None:
    write(tmp_path)
    with pytest.raises(ConfigError, match=sentence) as caught:
        load_data(str(tmp_path), 0, DataOptions(cache="off", **options))
    assert "\n" not in str(caught.value)


def test_data_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="flowers is not there"):
        load_data(str(tmp_path / "flowers"), 0)
    with pytest.raises(ConfigError, match="did you mean 'digits'"):
        load_data("digit", 0)
    with pytest.raises(DataError, match="is a file, not a folder"):
        load_data(str(Path(__file__)), 0)


def test_without_pillow_image_files_say_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = small_data.image_folders(tmp_path)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ConfigError, match="image files need Pillow"):
        load_data(str(root), 0)


def test_the_digest_tells_other_files_apart(tmp_path: Path) -> None:
    root = small_data.image_folders(tmp_path)
    before = load_data(str(root), 0).digest
    assert load_data(str(root), 1).digest == before
    (root / "rose" / "new.png").write_bytes(small_data.image_bytes(1))
    assert load_data(str(root), 0).digest != before


def test_large_photos_are_decoded_at_a_fraction_of_their_size() -> None:
    photo = small_data.image_bytes(1, (1600, 1200), "JPEG")
    assert image_files.decode(photo, 3).shape == (3, 1200, 1600)
    assert image_files.decode(photo, 3, at_least=224).shape == (3, 600, 800)
    with pytest.raises(BadSampleError, match="cannot be decoded"):
        image_files.decode(photo[:2000], 3)


def names_of(part: Part) -> set[str]:
    return {part.name(index) for index in range(len(part))}


def cut_shard(root: Path) -> None:
    whole = small_data.shard(root / "cut.tar", range(6))
    whole.write_bytes(whole.read_bytes()[:3000])


def without_label(root: Path) -> None:
    with tarfile.open(root / "a.tar", "w") as archive:
        small_data.add_member(archive, "0.png", small_data.image_bytes(0))
        small_data.add_member(archive, "1.png", small_data.image_bytes(1))


def empty_file(root: Path) -> None:
    small_data.image_folders(root, each=1)
    (root / "rose" / "empty.png").touch()


def unknown_class(root: Path) -> None:
    small_data.image_folders(root, each=1, parts=("train", "val"))
    (root / "val" / "rose").rename(root / "val" / "oak")


def floats(root: Path) -> None:
    np.save(root / "images.npy", np.zeros((3, 3, 4, 4)))
    np.save(root / "labels.npy", np.zeros(3, np.int64))


def two_files(root: Path) -> None:
    for name in ("one.bin", "two.bin"):
        (root / name).write_bytes(bytes(8))


def bad_meta(root: Path) -> None:
    (root / "train.bin").write_bytes(bytes(80))
    (root / "meta.json").write_text(json.dumps({"vocab_size": "many"}))
