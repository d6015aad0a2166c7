"""From TFRecord files and folders to shards: sample for sample, and every damage is noticed."""

from __future__ import annotations

import gzip
import struct
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

from tests.support.servers.finished_commands import run_command
from tests.training.data import small_data
from tests.training.gang.torchrun_gang import REPOSITORY
from trainer.protocol.train_options.data import DataOptions
from trainer.training.data import load_data
from trainer.training.data.convert import ShardWriter, from_folders, from_tfrecords
from trainer.training.data.loading.data_parts import SubPart
from trainer.training.data.sources.tfrecord import masked, parse_example, records, require_crc32c
from trainer.training.training_errors import ConfigError, DataError


def test_the_checksum_is_that_of_the_standard() -> None:
    crc32c = require_crc32c()
    # RFC 3720, appendix B.4.
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E
    assert crc32c(b"") == 0
    data = np.random.RandomState(0).bytes(5_000)
    for length in (1, 3, 4, 127, 128, 129, 1_000, 5_000):
        assert crc32c(data[:length]) == one_by_one(data[:length])


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_records(tmp_path / "train.tfrecord", range(1))
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    with pytest.raises(ConfigError, match=r"pip install google-crc32c"):
        next(records(path))


def test_tfrecords_become_shards_with_the_same_samples(tmp_path: Path) -> None:
    source, target = tmp_path / "records", tmp_path / "shards"
    source.mkdir()
    write_records(source / "train-00000-of-00002.tfrecord", range(5))
    write_records(source / "train-00001-of-00002.tfrecord", range(5, 9))
    packed = write_records(tmp_path / "val", range(9, 12)).read_bytes()
    (source / "validation.tfrecord.gz").write_bytes(gzip.compress(packed))
    done = convert("tfrecord", source, target, "--label-offset", "-1", "--shard-mb", "0.008")
    assert (done.returncode, done.stdout.strip()) == (0, f"12 samples written to {target}")
    names = sorted(path.name for path in target.iterdir())
    assert names[0] == "train-000000.tar"
    assert names[-1].startswith("validation-")
    assert len(names) > 3
    data = load_data(str(target), 0, DataOptions(cache="off"))
    assert [len(data.part(name)) for name in ("train", "validation", "test")] == [9, 3, 0]
    assert isinstance(data.train, SubPart)
    labels = [data.train.whole.read(index)[1] for index in range(12)]
    assert labels == [number % 3 for number in range(12)]
    with tarfile.open(target / "train-000000.tar") as archive:
        first = archive.extractfile("000000000.jpg")
        assert first is not None
        assert first.read() == small_data.image_bytes(0, kind="JPEG")


def test_folders_become_shards_that_are_the_same_every_time(tmp_path: Path) -> None:
    root = small_data.image_folders(tmp_path / "flowers", parts=("train", "val"))
    for target in ("one", "two"):
        (tmp_path / target).mkdir()
        with ShardWriter(tmp_path / target, 10**6) as writer:
            for sample in from_folders(str(root)):
                writer.write(sample)
    made = [(tmp_path / target / "train-000000.tar").read_bytes() for target in ("one", "two")]
    assert made[0] == made[1]
    data = load_data(str(tmp_path / "one"), 0, DataOptions(cache="off"))
    folders = load_data(str(root), 0)
    assert data.class_names == folders.class_names
    assert (len(data.train), len(data.validation)) == (18, 18)
    for index in range(18):
        (image, label), (other, number) = data.train.read(index), folders.train.read(index)
        assert np.array_equal(image, other)
        assert label == number


@pytest.mark.parametrize("place", [3, 9, 40, -2])
def test_every_damaged_byte_is_noticed(tmp_path: Path, place: int) -> None:
    path = write_records(tmp_path / "a.tfrecord", range(2))
    damaged = bytearray(path.read_bytes())
    damaged[place] ^= 4
    path.write_bytes(damaged)
    with pytest.raises(DataError, match=r"record \d is damaged"):
        list(records(path))
    path.write_bytes(damaged[:-30])
    with pytest.raises(DataError, match=r"is damaged|ends in the middle of record 1"):
        list(records(path))


def test_what_is_no_image_record_says_which_keys_there_are(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(record(example({"picture": b"x", "label": 3})))
    with pytest.raises(DataError, match=r"record 0 has no image/encoded or .*, but label, picture"):
        list(from_tfrecords(path, None, None, 0))
    path.write_bytes(record(example({"image": b"raw pixels", "label": 3})))
    with pytest.raises(DataError, match="the image is no JPEG, PNG"):
        list(from_tfrecords(path, None, None, 0))
    path.write_bytes(record(b"\xff\xff\xff"))
    with pytest.raises(DataError, match=r"record 0 is no tf\.train\.Example"):
        list(from_tfrecords(path, None, None, 0))


def test_features_of_every_kind_are_read() -> None:
    features = parse_example(example({"a": b"bytes", "b": -7, "c": 300, "d": 0.5}))
    assert features == {"a": [b"bytes"], "b": [-7], "c": [300], "d": [0.5]}


def test_a_conversion_that_fails_leaves_no_shard_that_looks_whole(tmp_path: Path) -> None:
    source, target = tmp_path / "records", tmp_path / "shards"
    source.mkdir()
    whole = write_records(source / "a.tfrecord", range(3)).read_bytes()
    (source / "a.tfrecord").write_bytes(whole[:-5])
    done = convert("tfrecord", source, target)
    assert done.returncode == 2
    assert done.stderr.strip().endswith("a.tfrecord ends in the middle of record 2")
    assert list(target.iterdir()) == []
    again = convert("tfrecord", tmp_path / "nothing", target)
    assert "nothing is not there" in again.stderr


def convert(kind: str, source: Path, target: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trainer.training.data.convert", kind]
    return run_command([*command, str(source), str(target), *more], timeout=300, cwd=REPOSITORY)


def write_records(path: Path, numbers: range) -> Path:
    """Images with labels that count from 1, as ImageNet's."""
    path.write_bytes(
        b"".join(
            record(
                example(
                    {
                        "image/encoded": small_data.image_bytes(number, kind="JPEG"),
                        "image/class/label": number % 3 + 1,
                    }
                )
            )
            for number in numbers
        )
    )
    return path


def record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    crc32c = require_crc32c()
    checks = [struct.pack("<I", masked(crc32c(each))) for each in (length, data)]
    return length + checks[0] + data + checks[1]


def example(features: dict[str, bytes | int | float]) -> bytes:
    """A tf.train.Example, written out by hand."""
    entries = b""
    for name, value in features.items():
        if isinstance(value, bytes):
            feature = field(1, field(1, value))
        elif isinstance(value, int):
            feature = field(3, field(1, varint(value & (2**64 - 1))))
        else:
            feature = field(2, field(1, struct.pack("<f", value)))
        entries += field(1, field(1, name.encode()) + field(2, feature))
    return field(1, entries)


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(value: int) -> bytes:
    written = b""
    while value >= 0x80:
        written += bytes([value & 0x7F | 0x80])
        value >>= 7
    return written + bytes([value])


def one_by_one(data: bytes) -> int:
    """CRC-32C bit by bit, as its definition has it."""
    state = 0xFFFFFFFF
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = state >> 1 ^ (0x82F63B78 if state & 1 else 0)
    return state ^ 0xFFFFFFFF
