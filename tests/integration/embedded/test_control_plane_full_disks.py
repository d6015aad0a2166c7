"""Disks that are full: what is said, what goes on, and that all goes on once there is room."""

from __future__ import annotations

import hashlib
import io
import re
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from sqlalchemy import Engine, make_url

from app.adapters.disk_space import DiskProbe, full_sentence, measure_folders
from app.adapters.embedded.processes.process_spec import ProcessSpec
from app.adapters.embedded.processes.process_supervisor import ProcessSupervisor
from app.adapters.embedded.processes.restart_policy import RestartLimits
from app.adapters.embedded.processes.run_record import describe_running
from app.adapters.embedded.processes.state_folder import kept_secret, write_atomically
from app.adapters.object_stores.obstore_store import open_object_store
from app.bootstrap import NoWakeups, deployment_folders
from app.orchestration.estimates.keep_estimates import KeepEstimates
from app.orchestration.frame.controller_frame import run_controller, select_phase
from app.orchestration.frame.failing_work import FailingWork
from app.ports.object_store import ObjectStoreFull
from app.settings import Settings
from app.storage.session.engine import make_engine
from app.storage.session.storage_errors import DatabaseFull
from app.storage.unit_of_work import PostgresUnitOfWorkFactory
from tests.support.api.people_api import PeopleApi, make_own_gang, people_api, settings_for
from tests.support.cli.command_line import CommandLine
from tests.support.disks.small_disk import SmallDisk, small_disk
from tests.support.servers.embedded import wait_until
from tests.support.servers.table_rows import execute

QUICK = RestartLimits(
    first_delay_seconds=0.02, max_delay_seconds=0.02, max_start_crashes=2,
    full_disk_delay_seconds=0.05,
)  # fmt: skip

# What the database answers when its disk is full, by its own code for it.
FULL_DATABASE = """
    CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$;
    CREATE TRIGGER no_room BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION no_room();
"""
ROOM_AGAIN = "DROP FUNCTION no_room CASCADE"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """Eight megabytes."""
    with small_disk(tmp_path / "disk", 8 << 10) as made:
        yield made


def archive(size: int) -> tuple[str, bytes]:
    """A working folder with that many bytes of chance in it: its name, and its content."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as file:
        entry = tarfile.TarInfo("data")
        entry.size, entry.mode = size, 0o644
        noise = b"".join(hashlib.sha256(b"%d" % n).digest() for n in range(size // 32 + 1))
        file.addfile(entry, io.BytesIO(noise[:size]))
    return f"sha256:{hashlib.sha256(packed.getvalue()).hexdigest()}", packed.getvalue()


def test_the_room_of_each_folder_is_known(disk: SmallDisk):
    folders = {"logs": disk.folder, "object store": disk.folder / "not/yet", "database": Path("/")}
    assert full_sentence({"logs": disk.folder, "object store": disk.folder / "not/yet"}) is None
    disk.fill(1 << 20)
    logs, store, database = measure_folders(folders)
    assert (logs.is_full, store.is_full, database.is_full) == (True, True, False)
    assert (logs.free_bytes, store.free_bytes) == (1 << 20, 1 << 20)
    assert full_sentence(folders) == (
        f"disk full: logs ({disk.folder}): 1.0 MiB free of 8.0 MiB; "
        f"object store ({disk.folder}/not/yet): 1.0 MiB free of 8.0 MiB"
    )
    disk.empty()
    assert full_sentence({"database": disk.folder}) is not None, "PostgreSQL needs 32 MiB"


def test_a_store_on_a_full_disk_is_full_and_keeps_no_half_object(disk: SmallDisk):
    store = open_object_store((disk.folder / "store").as_uri())
    store.put_new("a/b", b"whole")
    disk.fill(8192)
    with pytest.raises(ObjectStoreFull, match="is full"):
        store.put_new("a/c", bytes(100_000))
    disk.fill()
    with pytest.raises(ObjectStoreFull):
        store.put_new("new/folder/c", b"x")
    assert store.get("a/b") == b"whole"
    assert list(store.list_keys("")) == ["a/b"]
    assert [path.name for path in (disk.folder / "store").rglob("*") if path.is_file()] == ["b"]
    disk.empty()
    store.put_new("a/c", bytes(100_000))


def test_a_disk_that_can_hold_no_further_file_is_full_whatever_room_it_has(disk: SmallDisk):
    remount = ["mount", "-o", "remount,nr_inodes=2", str(disk.folder)]
    subprocess.run(remount, check=True, timeout=60)
    (disk.folder / "the last one").touch()
    assert "and no room for another file" in (full_sentence({"logs": disk.folder}) or "")
    with pytest.raises(ObjectStoreFull, match="cannot be opened"):
        open_object_store((disk.folder / "store").as_uri()).put_new("a/b", b"x")


def test_small_files_are_replaced_whole_or_not_at_all(disk: SmallDisk):
    path = disk.folder / "secret"
    secret = kept_secret(path)
    disk.fill()
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, "x" * 100_000)
    assert kept_secret(path) == secret
    assert sorted(one.name for one in disk.folder.iterdir()) == [".fill", "secret"]
    with pytest.raises(OSError, match="No space left"):
        kept_secret(disk.folder / "another")
    disk.empty()
    (disk.folder / "torn").touch()
    assert len(kept_secret(disk.folder / "torn")) > 20, "an empty one is none"


def test_the_api_says_that_its_store_is_full_and_answers_on(
    database_url: str, valkey_url: str, disk: SmallDisk
):
    settings = settings_for(database_url, valkey_url, disk.folder, providers=frozenset({"local"}))
    with people_api(settings) as api:
        make_own_gang(api, name="before")  # and with it the deployment's row
        name, content = archive(2 << 20)
        assert "full" not in signed_in_page(api)
        disk.fill(1 << 20)
        refused = api.client.put(f"/api/v1/workdirs/{name}", content=content)
        assert (refused.status_code, refused.headers["retry-after"]) == (507, "30")
        assert refused.headers["content-type"] == "application/problem+json"
        assert refused.json()["title"] == "Disk full"
        assert "object store" in refused.json()["detail"]
        assert api.submitted()["state"] == "queued", "the database has room"
        ready = httpx.get(f"{api.url}/readyz")
        assert (ready.status_code, ready.json()["disks"]["object store"]["full"]) == (200, True)
        assert "Disk full: state folder (" in signed_in_page(api)
        disk.empty()
        assert api.client.put(f"/api/v1/workdirs/{name}", content=content).is_success
        assert "full" not in signed_in_page(api)


def signed_in_page(api: PeopleApi) -> str:
    """The text of the notices on the page of all jobs."""
    with httpx.Client(base_url=api.url, follow_redirects=True) as client:
        form = client.get("/sign-in")
        assert form.status_code == 200, form.text
        token = form.text.split('name="form_token" value="')[1].split('"')[0]
        page = client.post("/sign-in", data={"key": api.key, "form_token": token})
        assert page.status_code == 200, page.text
        return " ".join(re.findall(r'role="alert">([^<]*)<', page.text))


def test_a_full_database_is_told_and_everything_goes_on(
    database_url: str, valkey_url: str, engine: Engine, tmp_path: Path
):
    with people_api(settings_for(database_url, valkey_url, tmp_path)) as api:
        known = api.submitted()["id"]
        sql(engine, FULL_DATABASE.format(table="jobs"))
        refused = api.client.post("/api/v1/jobs", json={"run": "true"})
        assert (refused.status_code, refused.headers["retry-after"]) == (507, "30")
        assert "of the database is full, and nothing was changed" in refused.json()["detail"]
        assert api.client.get(f"/api/v1/jobs/{known}").status_code == 200
        sql(engine, ROOM_AGAIN)
        assert api.client.post("/api/v1/jobs", json={"run": "true"}).status_code == 201


def test_only_reads_go_through_before_the_disk_is_quite_full(database_url: str, disk: SmallDisk):
    """PostgreSQL stops when it cannot write its log; the disk stands for that of the database."""
    probe = DiskProbe({"logs": disk.folder})
    engine = make_engine(database_url, only_reads=probe.is_full)
    begin = PostgresUnitOfWorkFactory(engine, NoWakeups())

    def writes() -> bool:
        try:
            with begin() as uow:
                uow.operations.close_stale_results("local", uow.now)
        except DatabaseFull:
            return False
        return True

    try:
        assert writes()
        disk.fill()
        wait_until(lambda: not writes(), "nothing is written")
        with begin() as uow:
            assert uow.kept_estimates.missing(1, uow.now) == []
        disk.empty()
        wait_until(writes, "it is written again")
    finally:
        engine.dispose()


def test_jobs_are_refused_and_read_before_the_disk_of_our_database_is_quite_full(
    database_url: str, valkey_url: str, disk: SmallDisk
):
    """Also by the quick route of a submission, which has connections of its own."""
    port = make_url(database_url).port
    (disk.folder / "postgres_port").write_text(f"{port}\n", "ascii")
    with people_api(settings_for(database_url, valkey_url, disk.folder)) as api:
        refused = api.submit()
        assert (refused.status_code, refused.json()["title"]) == (507, "Disk full")
        assert api.client.get("/api/v1/jobs").json()["items"] == []


def test_our_own_database_is_known_by_its_port(tmp_path: Path):
    (tmp_path / "postgres_port").write_text("20123\n", "ascii")
    for url, ours in (
        (None, True),
        ("postgresql+psycopg://lowtide:p@127.0.0.1:20123/lowtide", True),
        ("postgresql+psycopg://lowtide:p@127.0.0.1:20124/lowtide", False),
        ("postgresql+psycopg://lowtide:p@db.example:20123/lowtide", False),
    ):
        settings = Settings(state_dir=tmp_path, database_url=url)
        assert ("database" in deployment_folders(settings)) == ours, url


def test_controllers_try_again_soon_after_a_full_disk(
    database_url: str,
    valkey_url: str,
    engine: Engine,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
):
    with people_api(settings_for(database_url, valkey_url, tmp_path)) as api:
        api.submitted()
        runtime = replace(api.parts.runtime, failing=FailingWork())
        sql(engine, FULL_DATABASE.format(table="job_estimates"))
        tired = replace(runtime, failing=FailingWork())
        [piece] = select_phase(tired, KeepEstimates(tired))
        for _ in range(12):
            tired.failing.failed(KeepEstimates.name, piece, datetime(2026, 1, 1, tzinfo=UTC))
        assert run_controller(tired, KeepEstimates(tired)) == 1
        assert "(13 in a row, next try in 15s)" in caplog.records.pop().getMessage()
        assert run_controller(runtime, KeepEstimates(runtime)) == 1
        [record] = caplog.records
        assert "DatabaseFull: could not extend file" in record.getMessage()
        assert record.exc_info is None, "its sentence says it all"
        sql(engine, ROOM_AGAIN)
        assert runtime.failing.waiting(KeepEstimates.name, datetime.now(UTC)) == 1
        wait_until(lambda: run_controller(runtime, KeepEstimates(runtime)) == 1, "done")


def sql(engine: Engine, statements: str) -> None:
    execute(engine, statements)


# Appends a page to argv[1] and lives on; ends with 1 when there is no room for it.
NEEDS_ROOM = """
import sys, time
with open(sys.argv[1], "ab", buffering=0) as file:
    file.write(bytes(4096))
while True:
    print("line" * 250, flush=True)
    time.sleep(0.01)
"""


def test_a_program_that_fails_on_a_full_disk_is_never_given_up(disk: SmallDisk):
    """At its start, too; its log goes on by itself, and its writing never ends it."""
    state, page = disk.folder / "state", disk.folder / "page"
    screen = io.StringIO()
    supervisor = ProcessSupervisor(
        state,
        stream=screen,
        limits=QUICK,
        disk_problem=lambda: full_sentence({"state folder": state}),
    )

    def make_room() -> None:
        refused = "needy exited with 1; disk full: state folder"
        wait_until(lambda: screen.getvalue().count(refused) > QUICK.max_start_crashes + 2, refused)
        disk.empty()

    command = [sys.executable, "-c", NEEDS_ROOM, str(page)]
    disk.fill()
    owner = threading.Thread(target=make_room)
    owner.start()
    with supervisor:
        spec = ProcessSpec(
            "needy", command, ready=lambda: page.exists() and page.stat().st_size > 0, echo=False
        )
        assert supervisor.start([spec])
        owner.join()
        pids = {one.name: one.pid for one in describe_running(state)}
        assert set(pids) == {"lowtide", "needy"}, "the record of the run is up to date again"
        log = state / "logs" / "needy.log"
        look_after(supervisor, lambda: b"line" in log.read_bytes())
        assert "the disk has space again; everything continues" in screen.getvalue()
        disk.fill()
        time.sleep(0.5)  # some dozens of lines without room
        disk.empty()
        look_after(supervisor, lambda: b"lines were lost: the disk was full" in log.read_bytes())
        assert {one.name: one.pid for one in describe_running(state)} == pids


def test_what_was_started_on_a_full_disk_is_written_down_once_there_is_room(disk: SmallDisk):
    """`lowtide down` must find it, and the next `lowtide up` when this one is killed."""
    state = disk.folder / "state"
    supervisor = ProcessSupervisor(state, stream=io.StringIO(), limits=QUICK)
    with supervisor:
        disk.fill()
        command = [sys.executable, "-c", "import time; time.sleep(600)"]
        assert supervisor.start([ProcessSpec("calm", command)])
        assert "calm" not in {one.name for one in describe_running(state)}
        disk.empty()
        look_after(supervisor, lambda: "calm" in {one.name for one in describe_running(state)})


def look_after(supervisor: ProcessSupervisor, met: Callable[[], bool]) -> None:
    """Supervise until it is so."""

    def looked() -> bool:
        supervisor.look_after_all()
        return met()

    wait_until(looked, "it goes on")


def test_status_and_doctor_name_the_full_disk(disk: SmallDisk, tmp_path: Path):
    cli = CommandLine(tmp_path, {"LOWTIDE_STATE_DIR": str(disk.folder / "state")})
    disk.fill()
    status = cli.run("status")
    assert f"Disk full: state folder ({disk.folder}/state): 0 B free of 8.0 MiB." in status.errors
    disks = {one["name"]: one for one in cli.run("status", "--json").json["disks"]}
    assert disks["object store"]["full"] is True
    assert disks["object store"]["free_bytes"] == 0
    found = cli.run("doctor", "--json").json["findings"]
    [about] = [one for one in found if one["name"] == "disk: object store"]
    assert (about["ok"], about["remedy"]) == (False, "make room: 4.0 MiB at least")
