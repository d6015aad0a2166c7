"""Data in buckets: shards and image folders of S3 and GCS, with and without the cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.object_stores.object_store_fakes import GcsFake, S3Fake
from tests.support.servers.finished_commands import run_command
from tests.training.data import small_data
from tests.training.gang.torchrun_gang import REPOSITORY
from trainer.training.data.sources import cache as data_cache
from trainer.training.data.sources.cache import DataCache, open_cache

Fake = S3Fake | GcsFake
LIMIT_SECONDS = 60.0


@pytest.fixture(scope="module", params=["s3", pytest.param("gs", marks=pytest.mark.full)])
def bucket(request: pytest.FixtureRequest) -> Iterator[Fake]:
    """An empty bucket on loopback."""
    fake: Fake = S3Fake() if request.param == "s3" else GcsFake()
    yield fake
    fake.close()


@pytest.mark.parametrize("layout", [pytest.param("shards", marks=pytest.mark.full), "folders"])
def test_a_bucket_is_read_as_a_folder_is(bucket: Fake, tmp_path: Path, layout: str) -> None:
    here, cache = tmp_path / "here", tmp_path / "cache"
    if layout == "shards":
        small_data.shard(here / "train-0.tar", range(12))
        small_data.shard(here / "train-1.tar", range(12, 20))
    else:
        small_data.image_folders(here, each=7, parts=("train",))
    address = f"{bucket.uri}/{layout}"
    run(bucket, "upload", str(here), address)
    options = {"image_size": 16, "workers": 2}
    found = read(
        bucket,
        {**options, "data": str(here), "cache": "off"},
        {**options, "data": address, "cache": "off"},
        {**options, "data": address, "cache": str(cache)},
        {**options, "data": address, "cache": str(cache)},
    )
    assert found[0]["sizes"] == ([15, 5, 0] if layout == "shards" else [16, 5, 0])
    assert found[1:] == [found[0]] * 3
    if layout == "folders":
        # The copying goes on beside the training, and ended with it; now all of it.
        fill(bucket, address, cache, 10**9)
    copies = [path for path in cache.rglob("files/**/*") if path.is_file()]
    assert len(copies) == (2 if layout == "shards" else 21)
    assert all(copy.read_bytes() == next(here.rglob(copy.name)).read_bytes() for copy in copies)


@pytest.mark.full
def test_the_cache_holds_no_more_than_its_bound(bucket: Fake, tmp_path: Path) -> None:
    here, cache = tmp_path / "here", tmp_path / "cache"
    for number in range(4):
        small_data.shard(here / f"{number}.tar", range(6 * number, 6 * number + 6))
    address = f"{bucket.uri}/bounded"
    run(bucket, "upload", str(here), address)
    size = (here / "0.tar").stat().st_size
    options = {"image_size": 16, "workers": 2, "cache": str(cache), "cache_gb": 2.5 * size / 1e9}
    both = read(
        bucket, {**options, "data": address}, {**options, "data": str(here), "cache": "off"}
    )
    assert both[0] == both[1]
    assert len(list(cache.rglob("files/*.tar"))) == 2


def test_a_bucket_that_is_not_there_or_refuses_gets_one_line(bucket: Fake) -> None:
    (nowhere,) = read(bucket, {"data": f"{bucket.uri}/nothing", "cache": "off"})
    assert nowhere["kind"] == "DataError"
    assert "has no files, or no such bucket exists" in nowhere["error"]
    bucket.steering.denied = True
    (refused,) = read(bucket, {"data": f"{bucket.uri}/nothing", "cache": "off"})
    bucket.steering.denied = False
    assert refused["kind"] == "DataUnavailableError"
    assert "nothing cannot be read" in refused["error"]
    assert "\n" not in refused["error"]


def test_the_cache_lies_on_scratch_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LOWTIDE_SCRATCH_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(data_cache, "SCRATCH", tmp_path / "scratch")
    cache = open_cache("auto", None)
    assert cache is not None
    assert cache.root == tmp_path / "scratch" / "lowtide-data"
    assert cache.limit_bytes > 0
    monkeypatch.setenv("LOWTIDE_SCRATCH_DIR", str(tmp_path / "fastest"))
    named = open_cache("auto", None)
    assert named is not None
    assert named.root == tmp_path / "fastest" / "lowtide-data"
    monkeypatch.delenv("LOWTIDE_SCRATCH_DIR")
    monkeypatch.setattr(data_cache, "SCRATCH", Path("/proc/none"))
    at_home = open_cache("auto", 3)
    assert at_home == DataCache(tmp_path / "home" / "lowtide-data", 3_000_000_000)
    assert open_cache("off", None) is None


def fill(bucket: Fake, address: str, cache: Path, limit: int) -> None:
    """Waits for a process that copies the bucket into the cache."""
    command = ["-m", "trainer.training.data.sources.bucket", "fill", address]
    done = subprocess.run(
        [sys.executable, *command, "--cache", str(cache), "--limit", str(limit)],
        env={**os.environ, **bucket.environment()},
        cwd=REPOSITORY,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0


def read(bucket: Fake, *wanted: dict[str, Any]) -> list[dict[str, Any]]:
    """What a process that reads three steps of each of ``wanted`` finds."""
    found: list[dict[str, Any]] = json.loads(
        run(bucket, "read", *(json.dumps(each) for each in wanted))
    )
    return found


def run(bucket: Fake, *arguments: str) -> str:
    done = run_command(
        [sys.executable, "-m", "tests.training.data.bucket_program", *arguments],
        timeout=LIMIT_SECONDS,
        env={**os.environ, **bucket.environment()},
        cwd=REPOSITORY,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
