"""Inputs and outputs: by whole agents, also for the bundled trainer, and the download by itself
against stores that fail.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import queue
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.domain.spec.job_spec import parse_spec
from tests.support.agent.agent_world import World
from tests.support.agent.fake_control_plane import wait_until
from tests.support.object_stores.object_store_fakes import S3Fake
from tests.training.data import small_data
from trainer.agent.checkpoints.checkpoint_restore import RestoreCancelled
from trainer.agent.checkpoints.storage_root import StorageRoot
from trainer.agent.folders.input_folders import InputFolders, InputsFailed
from trainer.agent.folders.output_folders import OutputsUpload
from trainer.agent.rules.observations import Observation, OutputsFailed, OutputsSaved
from trainer.protocol.agent_report import FactKind
from trainer.protocol.directive import DirectiveKind

Fetch = Callable[..., Path]


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Fake]:
    fake = S3Fake()
    for name, value in fake.environment().items():
        monkeypatch.setenv(name, value)
    yield fake
    fake.close()


def put(uri: str, **files: bytes) -> None:
    store = StorageRoot(uri)
    for name, content in files.items():
        store.put_new(name.replace("__", "/").replace("_", "."), content)


def test_inputs_and_outputs_of_a_plain_command(world: World, s3: S3Fake) -> None:
    corpus, results = f"s3://{s3.bucket}/corpus", f"s3://{s3.bucket}/results"
    put(corpus, words_txt=b"low tide", sub__more_txt=b"high tide")
    outside = world.root / "outside"
    outside.write_text("not theirs")
    plane = world.open(
        run="cat $LOWTIDE_INPUT_DATA/words.txt $LOWTIDE_INPUT_DATA/sub/more.txt\n"
        "echo 12 > out/score; mkdir $LOWTIDE_OUTPUT_SRV_MODEL/best\n"
        f"echo w > $LOWTIDE_OUTPUT_SRV_MODEL/best/weights; ln -s {outside} out/link\n"
        "touch $LOWTIDE_SCRATCH_DIR/kept",
        inputs={"/data": corpus},
        outputs={"out": results, "/srv/model": (world.root / "models").as_uri()},
    )
    world.start(environment=s3.environment())
    plane.train(1)
    assert plane.wait_for(FactKind.TRAINER_ENDED).data["outcome"] == "finished", plane.log_text()
    told = plane.facts(FactKind.OUTPUTS)[0].data
    assert (told["files"], told["size_bytes"]) == (2, 5)
    assert told["addresses"] == [f"{results}/job-1", (world.root / "models/job-1").as_uri()]
    order = [fact.kind for _, fact in plane.told]
    # The checkpoint is safe before the outputs are saved, and the end is told after them.
    assert order.index(FactKind.COMPLETION) < order.index(FactKind.OUTPUTS)
    assert order.index(FactKind.OUTPUTS) < order.index(FactKind.TRAINER_ENDED)
    assert StorageRoot(results).get("job-1/score") == b"12\n"
    assert StorageRoot(results).list_keys("") == ["job-1/score"], "a link is not followed"
    assert (world.root / "models/job-1/best/weights").read_text() == "w\n"
    wait_until(lambda: "low tidehigh tide" in plane.log_text(), plane.log_text)
    assert "input /data is here" in plane.log_text()
    assert f"LOWTIDE_INPUT_DATA is {world.root}/i-1/paths/data" in plane.log_text()
    # Another attempt on this machine downloads nothing, and begins with empty outputs.
    s3.headers_seen.clear()
    plane.direct(DirectiveKind.PREPARE, 2)
    plane.wait_for(FactKind.PREPARED, fence=2)
    assert s3.headers_seen == []
    assert list((world.root / "i-1/workdir/out").iterdir()) == []


def test_outputs_that_cannot_be_saved_are_said_and_the_job_is_done(
    world: World, s3: S3Fake
) -> None:
    s3.steering.denied = True
    address = f"s3://{s3.bucket}/results"
    plane = world.open(run="echo 1 > out/score", outputs={"out": address})
    world.start(environment=s3.environment())
    plane.train(1)
    told = plane.wait_for(FactKind.OUTPUTS).data["error"]
    assert told.startswith(f"the outputs may not be written to {address}/job-1: allow the role")
    assert plane.wait_for(FactKind.TRAINER_ENDED).data["outcome"] == "finished"
    assert plane.facts(FactKind.COMPLETION)


def test_outputs_are_tried_again_with_what_is_not_there_yet(
    tmp_path: Path, s3: S3Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.agent.folders.output_folders.RETRY_SECONDS", 0.001)
    (tmp_path / "file").write_text("")
    address, torn = f"s3://{s3.bucket}/results", (tmp_path / "file").as_uri()
    seen: queue.Queue[Observation] = queue.Queue()
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "score").write_text("1")
    upload = OutputsUpload(1, {"out": folder}, {"out": torn}, seen.put, lambda _: None)
    failed = seen.get(timeout=60)
    assert isinstance(failed, OutputsFailed)
    assert failed.message.startswith(f"the outputs could not be saved to {torn}")
    said: list[str] = []
    (tmp_path / "file").unlink()
    s3.steering.lost_answers = 1
    upload = OutputsUpload(1, {"out": folder}, {"out": address}, seen.put, said.append)
    assert seen.get(timeout=60) == OutputsSaved(1, 1, 1, (address,))
    assert StorageRoot(address).get("score") == b"1"
    upload.close()


def test_a_file_of_another_user_is_no_output(tmp_path: Path) -> None:
    folder, results = tmp_path / "out", tmp_path / "results"
    folder.mkdir()
    (folder / "planted").write_text("a secret")
    seen: queue.Queue[Observation] = queue.Queue()
    OutputsUpload(1, {"out": folder}, {"out": results.as_uri()}, seen.put, lambda _: None, 60_578)
    failed = seen.get(timeout=60)
    assert isinstance(failed, OutputsFailed)
    assert "does not belong to the trainer's user" in failed.message
    assert not results.exists() or not list(results.rglob("planted"))


def test_outputs_are_saved_only_of_finished_work(world: World) -> None:
    results = world.root / "results"
    plane = world.open(run="echo 1 > out/score; exit 3", outputs={"out": results.as_uri()})
    world.start()
    plane.train(1)
    assert plane.wait_for(FactKind.TRAINER_ENDED).data["outcome"] == "failed"
    assert not plane.facts(FactKind.OUTPUTS)
    assert not results.exists()


@pytest.mark.parametrize("link", ["folder", "file"])
def test_no_link_within_an_input_leads_out_of_it(world: World, link: str) -> None:
    corpus, others = world.root / "corpus", world.root / "others"
    put(corpus.as_uri(), a=b"a")
    put(others.as_uri(), secret=b"s")
    (corpus / "b").symlink_to(others if link == "folder" else others / "secret")
    plane = world.open(run="true", inputs={"/data": corpus.as_uri()})
    world.start()
    plane.direct(DirectiveKind.PREPARE, 1)
    failed = plane.wait_for(FactKind.PREPARATION_FAILED).data
    assert failed["stage"] == "inputs"
    assert "is a link that leads out of that folder" in failed["message"]


def test_a_folder_of_the_machines_own_is_not_covered(world: World) -> None:
    taken = world.root / "i-1/paths/data"
    taken.mkdir(parents=True)
    (taken / "theirs").write_text("")
    put((world.root / "corpus").as_uri(), a=b"a")
    plane = world.open(run="true", inputs={"/data": (world.root / "corpus").as_uri()})
    world.start()
    plane.direct(DirectiveKind.PREPARE, 1)
    failed = plane.wait_for(FactKind.PREPARATION_FAILED).data
    assert failed["stage"] == "inputs"
    assert "holds files of this machine's image; choose another path" in failed["message"]


def test_a_preparation_that_fails_in_an_unforeseen_way_says_so(world: World) -> None:
    corpus = (world.root / "corpus").as_uri()
    name = hashlib.sha256(corpus.encode()).hexdigest()[:16]
    pinned = gzip.compress(json.dumps([["a", "no size", ""]]).encode())
    StorageRoot((world.root / "store").as_uri()).put_new(f"pins/inputs/{name}.json.gz", pinned)
    plane = world.open(run="true", inputs={"/data": corpus})
    world.start()
    plane.direct(DirectiveKind.PREPARE, 1)
    failed = plane.wait_for(FactKind.PREPARATION_FAILED).data
    assert (failed["stage"], "TypeError" in failed["message"]) == ("inputs", True)


def test_a_large_output_goes_in_as_few_parts_as_a_store_takes(tmp_path: Path, s3: S3Fake) -> None:
    """In parts of a fixed size a file of 50 GB would have more than the 10,000 that S3 takes."""
    with (tmp_path / "weights").open("wb") as file:
        os.truncate(file.fileno(), 20 << 20)
    seen: queue.Queue[Observation] = queue.Queue()
    address = f"s3://{s3.bucket}/results"
    OutputsUpload(1, {"out": tmp_path}, {"out": address}, seen.put, lambda _: None)
    assert seen.get(timeout=60) == OutputsSaved(1, 1, 20 << 20, (address,))
    assert s3.steering.parts == 2


def test_outputs_that_fail_in_an_unforeseen_way_are_told(tmp_path: Path) -> None:
    (tmp_path / "score").write_text("1")
    seen: queue.Queue[Observation] = queue.Queue()
    OutputsUpload(1, {"out": tmp_path}, {}, seen.put, lambda _: None)
    assert isinstance(seen.get(timeout=60), OutputsFailed)


# --- the download by itself ---


@pytest.fixture
def fetch(tmp_path: Path) -> Fetch:
    """Bring `uri` to a machine by its name: the folder of its files."""

    def bring(uri: str, machine: str = "one", **more: Any) -> Path:
        lineage = (tmp_path / "lineage").as_uri()
        told = {"is_cancelled": lambda: False, "say": lambda _: None, **more}
        cache = tmp_path / machine
        cache.mkdir(exist_ok=True)
        folders = InputFolders(cache, lambda: StorageRoot(lineage), **told)
        return folders.fetch({"/data": uri})["/data"]

    return bring


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("s3://no-such-bucket/corpus", "is not there: no such bucket or folder"),
        ("s3://lowtide-test/empty", "holds no objects"),
        ("file:///no/such/folder", "is not there: no such bucket or folder"),
    ],
)
def test_an_address_without_anything_is_said(
    s3: S3Fake, fetch: Fetch, address: str, told: str
) -> None:
    with pytest.raises(InputsFailed, match=told) as caught:
        fetch(address)
    assert str(caught.value).startswith(address)


def test_a_bucket_that_may_not_be_read_is_said(s3: S3Fake, fetch: Fetch) -> None:
    s3.steering.denied = True
    with pytest.raises(InputsFailed, match="allow the role of jobs' data to list and read it"):
        fetch(f"s3://{s3.bucket}/corpus")


def test_too_little_disk_is_said_before_a_byte_is_read(tmp_path: Path, fetch: Fetch) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    with (corpus / "large").open("wb") as file:
        os.truncate(file.fileno(), 10**12)
    with pytest.raises(InputsFailed, match=r"1000\.00 GB more.*disk: 500GB"):
        fetch(corpus.as_uri())
    assert not list((tmp_path / "one").rglob("large"))


def test_every_machine_gets_what_the_first_one_saw(s3: S3Fake, fetch: Fetch) -> None:
    corpus = f"s3://{s3.bucket}/corpus"
    put(corpus, a=b"first", b=b"second", folder__c=b"third")
    StorageRoot(corpus).put_new("folder", b"")  # as consoles show a folder
    first = fetch(corpus)
    put(corpus, later=b"not theirs")
    second = fetch(corpus, "two")
    found = sorted(path.relative_to(second).as_posix() for path in second.rglob("*"))
    assert found == ["a", "b", "folder", "folder/c"]
    assert (second / "folder/c").read_bytes() == (first / "folder/c").read_bytes() == b"third"
    assert (second / "a").stat().st_mode & 0o222 == 0
    with (second / "a").open("rb") as other:
        StorageRoot(corpus).put_file("b", other)
    with pytest.raises(InputsFailed, match="corpus/b is not what it was when this job began"):
        fetch(corpus, "three")


def test_a_download_that_was_cut_goes_on_where_it_was(
    tmp_path: Path, s3: S3Fake, fetch: Fetch
) -> None:
    corpus = f"s3://{s3.bucket}/corpus"
    content = bytes(range(256)) * 40_000
    put(corpus, large=content, small=b"s")
    folder = fetch(corpus, "whole")
    (root,) = (tmp_path / "whole").iterdir()
    assert (folder / "large").read_bytes() == content
    # Another machine was ended in the middle of the large one.
    again = tmp_path / "cut" / root.name
    (again / "parts").mkdir(parents=True)
    (again / "files").mkdir()
    fetch(corpus, "cut")
    (again / "files/large").rename(again / "files/other")
    part = again / "parts" / hashlib.sha256(b"large").hexdigest()
    part.write_bytes(content[:6_000_000])
    s3.headers_seen.clear()
    assert (fetch(corpus, "cut") / "large").read_bytes() == content
    assert [one["range"] for one in s3.headers_seen if "range" in one] == ["bytes=6000000-"]


def test_a_cancelled_download_ends(tmp_path: Path, fetch: Fetch) -> None:
    put((tmp_path / "corpus").as_uri(), a=b"a")
    with pytest.raises(RestoreCancelled):
        fetch((tmp_path / "corpus").as_uri(), is_cancelled=lambda: True)


@pytest.mark.full
def test_the_bundled_trainer_reads_what_the_agent_has_brought(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3, world = S3Fake(), World(tmp_path)
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    try:
        address = f"s3://{s3.bucket}/flowers"
        folder = small_data.image_folders(tmp_path / "flowers", each=4)
        store = StorageRoot(address)
        for path in sorted(folder.rglob("*.*")):
            store.put_new(path.relative_to(folder).as_posix(), path.read_bytes())
        # The rights to the bucket are the agent's: the trainer gets a path.
        spec = parse_spec(
            {
                "trainer": {
                    "model": "cnn",
                    "data": address,
                    "steps": 3,
                    "batch_size": 4,
                    "image_size": 8,
                    "workers": 1,
                }
            }
        )
        plane = world.open(run=None, trainer=spec.trainer_config(), inputs=spec.brought_folders())
        world.start(environment=s3.environment())
        plane.train(1)
        ended = plane.wait_for(FactKind.TRAINER_ENDED, seconds=120).data
        assert ended["outcome"] == "finished", plane.log_text()
        assert "input /lowtide/training-data is here" in plane.log_text()
    finally:
        world.close()
        s3.close()
