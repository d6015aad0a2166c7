"""The real boot script on roots dressed after the images' release notes.

The roots are Debian's, in a mount namespace of their own; disks are loop devices. Where the kernel
has no device-mapper, LVM's answers are recorded ones (`vg.01-lv_ephemeral`, as `lsblk` shows it on
a DLAMI).
"""

from __future__ import annotations

import hashlib
import http.server
import io
import socket
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pip
import pytest
from sqlalchemy import Engine

from app.adapters.providers.machine_images import IMAGE_PROVIDERS, shipped_images
from tests.support.api.agent_api import (
    wait_until,
)
from tests.support.boot.dressed_machine import DressedMachine, dressed_machine
from tests.support.boot.image_notes import NOTES, dress, notes_of
from tests.support.servers.http_server import http_server

DLAMI = NOTES["base-oss-nvidia-driver-gpu-ubuntu-24.04"]
DLVM = NOTES["common-cu129-ubuntu-2404-nvidia-580"]
DEFAULTS = [(cloud, one.name) for cloud in IMAGE_PROVIDERS for one in shipped_images(cloud).images]


@pytest.fixture
def machine(engine: Engine, tmp_path: Path) -> Iterator[DressedMachine]:
    with dressed_machine(engine, tmp_path) as made:
        yield made


@contextmanager
def file_server(folder: Path) -> Iterator[str]:
    """Files on loopback: the address of the folder."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given, directory=str(folder))

        def log_message(self, *given: Any) -> None:
            """Nothing."""

    with http_server(Quiet) as url:
        yield url


@pytest.fixture(scope="module")
def package_index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A package index in its simple form (PEP 503) that has pip alone."""
    folder = tmp_path_factory.mktemp("index")
    (folder / "pip").mkdir()
    content = io.BytesIO()
    source = Path(pip.__file__).parent
    with zipfile.ZipFile(content, "w") as wheel:
        for path in sorted(source.rglob("*.py")) + sorted(source.rglob("*.pem")):
            wheel.write(path, f"pip/{path.relative_to(source)}")
    links = []
    for version in ("9.0", "26.0"):
        name = f"pip-{version}-py3-none-any.whl"
        body = content.getvalue() if version == "26.0" else b"an old one"
        (folder / "pip" / name).write_bytes(body)
        digest = hashlib.sha256(body).hexdigest()
        links.append(f'<a href="{name}#sha256={digest}">{name}</a>')
    (folder / "pip/index.html").write_text("<br>".join(links))
    with file_server(folder) as url:
        yield url


@pytest.mark.parametrize(("provider", "image"), DEFAULTS, ids=[name for _, name in DEFAULTS])
def test_every_default_image_has_what_the_agent_needs(
    machine: DressedMachine, provider: str, image: str
):
    dress(machine.root, notes_of(image))
    machine.reaches_the_agent("ec2" if provider == "aws" else "gce")


@pytest.mark.full
@pytest.mark.parametrize(("provider", "image"), DEFAULTS, ids=[name for _, name in DEFAULTS])
def test_every_default_image_boots(
    machine: DressedMachine, package_index: str, provider: str, image: str
):
    dress(machine.root, notes_of(image))
    machine.boots("ec2" if provider == "aws" else "gce", PIP_INDEX_URL=package_index)
    assert machine.history("boot_failed") == machine.history("boot_warned") == []


@pytest.mark.full
def test_the_default_image_of_aws_boots_to_a_registered_agent(machine: DressedMachine):
    dress(machine.root, DLAMI)
    machine.boots()
    with machine.boot(stage="agent") as booted:
        wait_until(lambda: machine.registered or booted.process.poll() is not None, seconds=60)
        assert machine.registered, booted.output()
    assert "lowtide-trainer" in machine.root.text("/etc/passwd")


@pytest.mark.parametrize("image", [name for name, one in NOTES.items() if one.python == "3.10"])
def test_an_older_image_says_what_it_lacks(machine: DressedMachine, image: str):
    dress(machine.root, NOTES[image])
    assert "this image has no Python 3.11 or newer" in machine.fails()
    assert "LOWTIDE_MACHINE_PYTHON_URL" in machine.history("boot_failed")[0]


@pytest.mark.parametrize("cloud", ["ec2", pytest.param("gce", marks=pytest.mark.full)])
def test_an_image_with_nothing_on_it_fails_and_ends(machine: DressedMachine, cloud: str):
    """No Python, no curl, no driver: only the console can say so."""
    machine.root.hide("nvidia-smi", "ip", "useradd")
    assert "this image has no Python 3.11 or newer" in machine.fails(cloud)
    assert machine.history("boot_failed") == []


def test_without_python_curl_tells_of_the_failure(machine: DressedMachine):
    machine.root.show("curl")
    machine.fails()
    assert "has no Python 3.11" in machine.history("boot_failed")[0]


def test_gpus_without_a_driver_fail_within_their_bound(machine: DressedMachine):
    dress(machine.root, DLAMI)
    # The driver hangs the first time, and then is not there.
    machine.root.command("nvidia-smi", "exit 9")
    line = machine.fails(LOWTIDE_GPU_COUNT="2", LOWTIDE_BOOT_GPU_TRIES="2")
    assert "only 0 of 2 GPUs answer nvidia-smi" in line


# --- a Python from elsewhere ---------------------------------------------------------------------


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """A stub in the form of python-build-standalone's `install_only` archives: address, digest."""
    folder = tmp_path / "archive"
    binary = folder / "python/bin/python3"
    binary.parent.mkdir(parents=True)
    binary.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    binary.chmod(0o755)
    with tarfile.open(tmp_path / "served.tar.gz", "w:gz") as packed:
        packed.add(folder / "python", "python")
    content = (tmp_path / "served.tar.gz").read_bytes()
    (folder / "python.tar.gz").write_bytes(content)
    (folder / "no.tar.gz").write_bytes(b"no archive")
    with file_server(folder) as url:
        yield f"{url}/python.tar.gz?signature=secret", hashlib.sha256(content).hexdigest()


def _archive(archive: tuple[str, str], **more: str) -> dict[str, str]:
    url, digest = archive
    return {
        "LOWTIDE_MACHINE_PYTHON_URL": url,
        "LOWTIDE_MACHINE_PYTHON_SHA256": digest,
        **more,
    }


# The other tools are a line of the script each, which only the long run takes.
@pytest.mark.parametrize(
    "tool",
    ["curl", *(pytest.param(one, marks=pytest.mark.full) for one in ("wget", "python 3.10"))],
)
def test_a_python_is_fetched_where_the_image_has_none(
    machine: DressedMachine, archive: tuple[str, str], tool: str
):
    if tool.startswith("python"):
        dress(machine.root, NOTES["base-oss-nvidia-driver-gpu-ubuntu-22.04"])
    else:
        machine.root.show(tool)
    said = machine.reaches_the_agent(**_archive(archive))
    assert "fetching a Python from http://127.0.0.1" in said
    assert "secret" not in said
    assert machine.root.text("/opt/lowtide/python/python/bin/python3").startswith("#!/bin/sh")


@pytest.mark.full
def test_a_machine_with_a_fetched_python_runs_its_agent_on_it(
    machine: DressedMachine, archive: tuple[str, str]
):
    dress(machine.root, NOTES["common-cu128-ubuntu-2204-nvidia-570"])
    machine.boots("gce", **_archive(archive))
    with machine.boot("gce", stage="agent") as booted:
        wait_until(lambda: machine.registered or booted.process.poll() is not None, seconds=60)
        assert machine.registered, booted.output()
        assert "fetching" not in booted.output().partition("--- log")[0]


def test_an_image_with_a_python_fetches_none(machine: DressedMachine, archive: tuple[str, str]):
    dress(machine.root, DLAMI)
    assert "fetching" not in machine.reaches_the_agent(**_archive(archive))


def test_a_python_with_another_digest_is_not_unpacked(
    machine: DressedMachine, archive: tuple[str, str]
):
    machine.root.show("curl")
    line = machine.fails(**_archive(archive, LOWTIDE_MACHINE_PYTHON_SHA256="0" * 64))
    assert f"has the SHA-256 {archive[1]}, not {'0' * 64}" in line
    assert not (machine.root.written / "opt/lowtide/python").exists()
    assert "secret" not in machine.history("boot_failed")[0]


@pytest.mark.parametrize(
    ("name", "said"), [("absent.tar.gz", "within 3 s: "), ("no.tar.gz", "cannot be unpacked")]
)
def test_a_python_that_cannot_be_had(
    machine: DressedMachine, archive: tuple[str, str], name: str, said: str
):
    machine.root.show("curl")
    url = archive[0].replace("python.tar.gz", name)
    digest = hashlib.sha256(b"no archive").hexdigest()
    line = machine.fails(
        LOWTIDE_MACHINE_PYTHON_URL=url,
        LOWTIDE_MACHINE_PYTHON_SHA256=digest,
        LOWTIDE_BOOT_WAIT_SECONDS="3",
    )
    assert said in line


def test_a_server_that_never_answers_ends_the_boot(machine: DressedMachine):
    machine.root.show("curl")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        line = machine.fails(
            LOWTIDE_MACHINE_PYTHON_URL=f"http://127.0.0.1:{silent.getsockname()[1]}/x",
            LOWTIDE_MACHINE_PYTHON_SHA256="0" * 64,
            LOWTIDE_BOOT_WAIT_SECONDS="2",
        )
    assert "no Python came from http://127.0.0.1" in line
    assert "within 2 s" in line


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("<p>nothing</p>", "it lists none"),
        (f'<a href="pip-26.0-py3-none-any.whl#sha256={"0" * 64}">', "another SHA-256"),
    ],
)
def test_a_python_without_pip_needs_an_index_that_has_it(
    machine: DressedMachine, tmp_path: Path, page: str, said: str
):
    dress(machine.root, DLVM)
    folder = tmp_path / "index/pip"
    folder.mkdir(parents=True)
    (folder / "index.html").write_text(page)
    (folder / "pip-26.0-py3-none-any.whl").write_bytes(b"x")
    with file_server(folder.parent) as url:
        line = machine.fails("gce", PIP_INDEX_URL=url)
    assert f"this image's Python has no pip, and {url}/pip/ gave none" in line
    assert said in line
