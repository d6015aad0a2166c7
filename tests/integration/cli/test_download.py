"""`lowtide download` and its routes: a real checkpoint of a real store, whole, cut and damaged."""

from __future__ import annotations

import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from sqlalchemy import delete, update

from app.storage.schema import tables
from tests.support.api.people_api import make_key
from tests.support.cli.cli_world import World
from tests.support.servers.table_rows import add_row, change_rows, execute
from trainer.agent.checkpoints.checkpoint_sync import PublishOrder, publish
from trainer.agent.checkpoints.storage_root import StorageRoot
from trainer.protocol.checkpoint_manifest import (
    CheckpointManifest,
    data_key,
    dump_manifest,
    manifest_key,
)

# Two whole chunks and a bit: what is cut or damaged lies in one of them.
WEIGHTS = bytes(range(256)) * 70_000
SMALL = {"manifest.json": b'{"step": 40}', "deep/er.json": b"{}"}
STEP = 40


@pytest.fixture
def uri(world: World) -> str:
    """Where the job's lineage lies."""
    root = str(world.api.parts.runtime.checkpoint_root_uri).rstrip("/")
    return f"{root}/{world.job.id}"


@pytest.fixture
def saved(world: World, uri: str, tmp_path: Path) -> CheckpointManifest:
    folder = tmp_path / "machine"
    for name, content in {"weights.safetensors": WEIGHTS, **SMALL}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    order = PublishOrder(fence=1, step=STEP, folder=folder)
    manifest = publish(StorageRoot(uri), order, lambda: True, lambda: False)
    add_row(
        world.story.engine,
        tables.checkpoints,
        job_id=world.job.id,
        fence=1,
        step=STEP,
        digest=manifest.digest,
        size_bytes=manifest.size_bytes,
        final=False,
        committed_at=datetime.now(UTC),
        instance_id=world.machine.id,
        metrics={},
    )
    return manifest


def _held(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.usefixtures("saved")
def test_a_checkpoint_is_fetched_whole_and_a_cut_download_goes_on(world: World, tmp_path: Path):
    target = tmp_path / "here"
    ran = world.cli.ok("download", "digits", str(target))
    assert _held(target) == {"weights.safetensors": WEIGHTS, **SMALL}
    assert "Step 40 of attempt 1: 3 files, 17.1 MiB, every byte verified" in ran.out

    # Cut in its second chunk, and one bit of the first fell over on this disk.
    cut = bytearray(WEIGHTS[: 10 << 20])
    cut[77] ^= 1
    (target / "weights.safetensors").unlink()
    (target / "weights.safetensors.part").write_bytes(cut)
    assert world.cli.ok("download", "digits", str(target), "-q").out == f"{target}\n"
    assert _held(target) == {"weights.safetensors": WEIGHTS, **SMALL}
    # A longer file of the same name is not taken for ours either.
    (target / "manifest.json").write_bytes(SMALL["manifest.json"] + b" ")
    found = world.cli.ok("download", "digits", str(target), "--only", "man*", "--json").json
    assert (found["files"], found["size_bytes"]) == (["manifest.json"], 12)
    assert _held(target)["manifest.json"] == SMALL["manifest.json"]


@pytest.mark.usefixtures("saved")
def test_a_folder_of_its_own_is_made_where_none_is_named(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path / "home")
    assert world.cli.ok("download", "digits", "-q").out == "digits-step-40\n"
    assert _held(tmp_path / "home" / "digits-step-40") == {"weights.safetensors": WEIGHTS, **SMALL}


def test_a_disk_that_is_too_small_is_told_of_before_anything_comes(
    world: World, uri: str, saved: CheckpointManifest, tmp_path: Path
):
    """No disk has room for an exbibyte; what is there already needs none."""
    path = Path(uri.removeprefix("file://")) / manifest_key(1, STEP)
    huge = replace(saved.files[0], name="huge", size_bytes=1 << 60)
    path.write_bytes(dump_manifest(replace(saved, files=(*saved.files, huge))))
    target = tmp_path / "here"
    told = world.cli.fails(2, "download", "digits", str(target)).errors
    assert f"{target}: 1,048,576.0 TiB to download and " in told
    assert " are free; make room, or name a folder that has space" in told
    assert _held(target) == {}
    (target / "huge").touch()
    with (target / "huge").open("r+b") as file:
        file.truncate(1 << 40)
    told = world.cli.fails(2, "download", "digits", str(target)).errors
    assert f"{target}: 1,048,575.0 TiB to download and " in told


@pytest.mark.usefixtures("saved")
def test_a_folder_that_cannot_be_is_told_with_what_to_name_instead(world: World, tmp_path: Path):
    (tmp_path / "file").write_text("")
    (tmp_path / "here" / "weights.safetensors.part").mkdir(parents=True)
    for target, reason in (
        (tmp_path / "file", f"{tmp_path / 'file'}: is not a folder"),
        (tmp_path / "file" / "x", f"{tmp_path / 'file'}/x: Not a directory"),
        (Path("/proc/x"), "/proc/x: No such file or directory"),
        (tmp_path / "here", f"{tmp_path}/here/weights.safetensors.part: Is a directory"),
    ):
        told = world.cli.fails(2, "download", "digits", str(target)).errors
        assert f"{reason}; name a folder that has space and that you may write in: " in told
        assert "`lowtide download digits DIR`" in told


@contextmanager
def _files_of_at_most(size_bytes: int) -> Iterator[None]:
    """Files cannot grow beyond so much: the kernel's EFBIG stands for a disk that fills up."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("saved")
def test_a_disk_that_fills_up_ends_it_in_a_sentence_and_it_goes_on(world: World, tmp_path: Path):
    target = tmp_path / "here"
    with _files_of_at_most(9 << 20):
        told = world.cli.fails(2, "download", "digits", str(target)).errors
    assert f"{target}: File too large" in told
    held = _held(target)
    assert "weights.safetensors" not in held
    assert held["weights.safetensors.part"][: 8 << 20] == WEIGHTS[: 8 << 20]
    world.cli.ok("download", "digits", str(target))
    assert _held(target) == {"weights.safetensors": WEIGHTS, **SMALL}


@pytest.mark.usefixtures("saved")
def test_a_manifest_that_is_damaged_is_told_of(world: World, uri: str, tmp_path: Path):
    path = Path(uri.removeprefix("file://")) / manifest_key(1, STEP)
    whole = path.read_bytes()
    for damaged, why in (
        (whole[:-9], "manifest is not JSON"),
        (whole.replace(b'"world_size": 1', b'"world_size": 2'), "its digest does not match"),
        (b"[]", "expected an object"),
    ):
        path.write_bytes(damaged)
        told = world.cli.fails(2, "download", "digits", str(tmp_path / "here")).errors
        assert "The manifest of step 40 of attempt 1 cannot be read: " in told
        assert why in told
        assert not (tmp_path / "here").exists()


@pytest.mark.usefixtures("saved")
def test_what_the_store_has_damaged_is_not_handed_over(world: World, uri: str, tmp_path: Path):
    path = Path(uri.removeprefix("file://")) / data_key(1, STEP, "weights.safetensors")
    content = bytearray(path.read_bytes())
    content[9 << 20] ^= 4
    path.write_bytes(content)
    failed = world.cli.fails(2, "download", "digits", str(tmp_path / "here"))
    assert "weights.safetensors is damaged in the store from byte 8,388,608 on" in failed.errors
    assert not (tmp_path / "here" / "weights.safetensors").exists()


@pytest.mark.usefixtures("saved")
def test_what_is_not_there_is_told_with_what_is(world: World, tmp_path: Path):
    target = str(tmp_path / "here")
    told = world.cli.fails(2, "download", "digits", target, "--step", "41").errors
    assert "no checkpoint of step 41; there are: 40" in told
    told = world.cli.fails(2, "download", "digits", target, "--only", "*.pt").errors
    assert "there are: deep/er.json, manifest.json, weights.safetensors" in told
    (tmp_path / "file").write_text("in the way")
    told = world.cli.fails(2, "download", "digits", str(tmp_path / "file")).errors
    assert str(tmp_path / "file") in told
    told = world.cli.fails(2, "download", "older", target).errors
    assert "older saved no checkpoint, and has ended" in told
    told = world.cli.fails(2, "download", "digits", target, "--best").errors
    assert "no checkpoint of this job has a score" in told
    with world.story.engine.begin() as connection:
        scored = {"validation_accuracy": 0.75}
        connection.execute(update(tables.checkpoints).values(metrics=scored))
    assert world.cli.ok("download", "digits", target, "--best", "--json").json["step"] == STEP
    assert "best" in world.cli.ok("checkpoints", "digits").row("40", "1")
    change_rows(world.story.engine, tables.checkpoints, pruned_at=datetime.now(UTC))
    told = world.cli.fails(2, "download", "digits", target).errors
    assert "digits has no checkpoint any more: all of them have been removed" in told
    with world.story.engine.begin() as connection:
        # The end of a command that saved nothing is kept as one of no size: nothing was removed.
        connection.execute(update(tables.checkpoints).values(pruned_at=None, size_bytes=0))
    told = world.cli.fails(2, "download", "digits", target).errors
    assert "digits has no checkpoint yet" in told
    execute(world.story.engine, delete(tables.checkpoints))
    told = world.cli.fails(2, "download", "digits", target).errors
    assert "digits has no checkpoint yet: the first one is saved some time after" in told


def test_a_name_that_leads_out_of_the_folder_is_not_written(
    world: World, uri: str, saved: CheckpointManifest, tmp_path: Path
):
    path = Path(uri.removeprefix("file://")) / manifest_key(1, STEP)
    elsewhere = replace(saved.files[0], name="../out")
    path.write_bytes(dump_manifest(replace(saved, files=(elsewhere,))))
    told = world.cli.fails(2, "download", "digits", str(tmp_path / "here")).errors
    assert "the checkpoint names a file outside of its folder: '../out'" in told
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("saved")
def test_routes_hand_out_files_of_the_keys_own_jobs_and_nothing_beside(world: World):
    base = f"/api/v1/jobs/digits/checkpoints/1/{STEP}"
    client = world.api.client
    client.headers["Authorization"] = f"Bearer {world.cli.variables['LOWTIDE_API_KEY']}"
    assert client.get(f"{base}/files/deep/er.json").content == b"{}"
    tail = client.get(f"{base}/files/weights.safetensors", params={"offset": len(WEIGHTS) - 3})
    assert tail.content == WEIGHTS[-3:]
    for missing in (
        f"{base}/files/..%2F..%2F..%2Fmanifests%2F0000000001%2F000000000040.json",
        f"{base}/files/%2Fetc%2Fpasswd",
        f"{base}/files/nothing",
        "/api/v1/jobs/digits/checkpoints/1/41",
        "/api/v1/jobs/digits/checkpoints/2/40",
        "/api/v1/jobs/nothing/checkpoints/1/40",
    ):
        assert client.get(missing).status_code == 404, missing
    assert client.get(f"{base}/files/nothing", params={"limit": 9 << 20}).status_code == 422
    other_key = make_key(world.story.engine, world.story.project("beta"))
    headers = {"Authorization": f"Bearer {other_key}"}
    stranger = httpx.Client(base_url=world.api.url, headers=headers)
    with stranger:
        assert stranger.get(base).status_code == 404
        assert stranger.get(f"{base}/files/deep/er.json").status_code == 404


def test_a_browser_gets_small_files_and_is_told_the_command_for_large_ones(
    world: World, saved: CheckpointManifest
):
    with httpx.Client(base_url=world.api.url, timeout=60) as browser:
        token = re.search(r'name="form_token" value="([^"]+)"', browser.get("/sign-in").text)
        assert token is not None
        form = {
            "key": make_key(world.api.engine, world.job.project_id, "bo"),
            "form_token": token[1],
        }
        assert browser.post("/sign-in", data=form).status_code == 303
        page = browser.get(f"/jobs/{world.job.name}/checkpoints/1/{STEP}")
        assert page.status_code == 200, page.text
        links = re.findall(r'href="([^"]+/files/[^"]+)" download', page.text)
        assert [link.rpartition("/files/")[2] for link in links] == [
            "deep/er.json",
            "manifest.json",
        ]
        small = browser.get(links[0])
        assert small.content == SMALL["deep/er.json"]
        assert small.headers["content-disposition"] == "attachment; filename*=UTF-8''er.json"
        assert f"lowtide download {world.job.name} --step 40" in page.text
        large = browser.get(
            f"/jobs/{world.job.name}/checkpoints/1/{STEP}/files/weights.safetensors"
        )
        assert large.status_code == 404
        assert "<code>lowtide download</code> fetches" in large.text
        assert browser.get(f"/jobs/{world.job.name}/checkpoints/1/41").status_code == 404
        saved_panel = browser.get(f"/jobs/{world.job.name}/saved").text
        assert "step 40" in saved_panel
        assert f"lowtide download {world.job.name}" in saved_panel
