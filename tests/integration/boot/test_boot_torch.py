"""Where the bundled trainer's PyTorch comes from: the image's own, or what the boot installs."""

from __future__ import annotations

import hashlib
import io
import os
import shlex
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pip as pip_package
import pytest
from sqlalchemy import Engine

from app.adapters.providers.boot_script import render
from tests.support.boot.dressed_machine import DressedMachine, dressed_machine
from tests.support.boot.image_notes import NOTES, dress
from tests.support.boot.image_root import PATH, ImageRoot, image_root
from tests.support.servers.finished_commands import run_command
from tests.support.servers.http_server import HttpServer, QuietHandler

DLAMI = NOTES["base-oss-nvidia-driver-gpu-ubuntu-24.04"]
PIN = "torch==9.9.9"
TRAINER = {"LOWTIDE_AGENT_EXTRAS": "trainer", "LOWTIDE_MACHINE_TORCH": PIN}


def _wheel(package: str, version: str) -> tuple[bytes, str]:
    """A wheel with one module that says its version: content and file name."""
    content, about = io.BytesIO(), f"{package}-{version}.dist-info"
    with zipfile.ZipFile(content, "w") as wheel:
        wheel.writestr(f"{package}/__init__.py", f'__version__ = "{version}"\n')
        told = f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}"
        wheel.writestr(f"{about}/METADATA", told)
        tag = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any"
        wheel.writestr(f"{about}/WHEEL", tag)
        wheel.writestr(f"{about}/RECORD", "")
    return content.getvalue(), f"{package}-{version}-py3-none-any.whl"


class Index:
    """A package index (PEP 503) with a small torch 9.9.9; `asked` names what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        body, name = _wheel("torch", "9.9.9")
        digest = hashlib.sha256(body).hexdigest()
        self.pages = {
            "/torch/": f'<a href="{name}#sha256={digest}">{name}</a>'.encode(),
            f"/torch/{name}": body,
        }
        index = self

        class Answer(QuietHandler):
            def serve(self) -> None:
                index.asked.append(self.path)
                page = index.pages.get(self.path)
                kind = {"Content-Type": "text/html" if self.path[-1] == "/" else "x/wheel"}
                self.answer(200 if page is not None else 404, page or b"", kind)

        self.server = HttpServer(Answer)

    @property
    def variables(self) -> dict[str, str]:
        # Nothing of this host's own pip: its files may hold a constraint on torch.
        own = {"PIP_CONFIG_FILE": os.devnull, "PIP_CONSTRAINT": ""}
        return {**own, "PIP_INDEX_URL": f"{self.server.url}/", "PIP_NO_INDEX": "0"}


@pytest.fixture
def index() -> Iterator[Index]:
    made = Index()
    yield made
    made.server.close()


@pytest.fixture
def machine(engine: Engine, tmp_path: Path) -> Iterator[DressedMachine]:
    with dressed_machine(engine, tmp_path) as made:
        yield made


@pytest.fixture
def root(tmp_path: Path) -> Iterator[ImageRoot]:
    with image_root(tmp_path / "machine") as made:
        yield made


def _install(root: ImageRoot, has_torch: bool, pip: str = ":", **more: str) -> tuple[int, str]:
    """Run this one step of the script on a Python whose pip is `pip` in shell code."""
    given = {
        "LOWTIDE_CONTROL_URL": "http://127.0.0.1:1",
        "LOWTIDE_LAUNCH_TOKEN": "token",
        "LOWTIDE_POWEROFF_COMMAND": "touch /is-off",
        **more,
    }
    root.command(
        "python-of-the-image",
        f"""case "$1 $2" in
    *'find_spec("torch")'*) exit {0 if has_torch else 1} ;;
    '-m pip') echo "$*" >> /calls; {pip} ;;
esac""",
    )
    lines = render(given, "ec2").splitlines()
    assert lines.pop() == 'main "$@"'
    step = ['mkdir -p "$home"', "python=python-of-the-image", "install_torch /venv"]
    root.file("/step", "\n".join([*lines, *step]) + "\n", 0o700)
    done = run_command(root.enter(["/bin/sh", "/step"]), timeout=60, env={"PATH": PATH})
    return done.returncode, done.stdout


def _asked_of_pip(root: ImageRoot) -> list[list[str]]:
    """The requirements of each call of pip."""
    return [one.split("--disable-pip-version-check ")[1].split() for one in root.calls]


def test_the_trainer_gets_exactly_the_pinned_pytorch(root: ImageRoot):
    code, said = _install(root, False, **TRAINER)
    assert code == 0, said
    assert _asked_of_pip(root) == [[PIN]]
    assert "--python /venv/bin/python install" in root.calls[0]
    assert f"this image has no PyTorch: installing {PIN}" in said


def test_what_fits_the_pytorch_may_come_with_it(root: ImageRoot):
    both = "torch==2.11.0 torchvision==0.26.0"
    assert _install(root, False, **{**TRAINER, "LOWTIDE_MACHINE_TORCH": both})[0] == 0
    assert _asked_of_pip(root) == [both.split()]


@pytest.mark.parametrize(
    ("has_torch", "given"),
    [
        pytest.param(True, TRAINER, id="the image has one"),
        pytest.param(False, {"LOWTIDE_MACHINE_TORCH": PIN}, id="the job has its own command"),
        pytest.param(False, {"LOWTIDE_AGENT_EXTRAS": "trainer"}, id="none is wanted"),
    ],
)
def test_nothing_is_installed_where(root: ImageRoot, has_torch: bool, given: dict[str, str]):
    assert _install(root, has_torch, **given) == (0, "")
    assert root.calls == []


@pytest.mark.parametrize(
    ("pip", "said"),
    [
        ("echo 'ERROR: No space left on device'; exit 1", "ERROR: No space left on device"),
        ("sleep 30", "pip took longer than 1 s"),
    ],
)
def test_a_pytorch_that_cannot_be_had_fails_the_boot(root: ImageRoot, pip: str, said: str):
    code, told = _install(root, False, pip, LOWTIDE_BOOT_INSTALL_SECONDS="1", **TRAINER)
    assert code == 1
    assert f"boot failed: {PIN} cannot be installed: {said}" in told
    assert (root.written / "is-off").exists()


def _set_up(root: ImageRoot, pip: bool, command: str) -> subprocess.CompletedProcess[str]:
    """Run a job's `setup` as the trainer's user, with the image's Python managed by the system."""
    dress(root, replace(DLAMI, pip=pip))
    # Ubuntu's pip ends so for everybody who is in no environment (PEP 668).
    root.command("pip", "echo 'error: externally-managed-environment'; exit 1")
    (root.written / "home-of-trainer").mkdir()
    os.chown(root.written / "home-of-trainer", 10002, 10002)
    given = {"LOWTIDE_CONTROL_URL": "http://127.0.0.1:1", "LOWTIDE_LAUNCH_TOKEN": "token"}
    lines = render(given, "ec2").splitlines()[:-1]
    user = "setpriv --reuid=10002 --regid=10002 --clear-groups"
    parents = [str(one) for one in Path(sys.base_prefix).parents]
    fetched = f'mkdir "$home/pip"; cp -r {Path(pip_package.__file__).parent} "$home/pip"'
    step = [
        # The Python of the tests, which stands for the image's, may lie in somebody's home.
        f"chmod a+x {shlex.join(parents)}",
        'umask 022; mkdir -p "$home" "$root/var/log"; python=/usr/bin/python3',
        "" if pip else fetched,
        'make_venv "$home/venv"; PATH=$home/venv/bin:$PATH; export PATH',
        f"HOME=/home-of-trainer {user} sh -c {shlex.quote(command)}",
    ]
    root.file("/step", "\n".join([*lines, *step]) + "\n", 0o700)
    return run_command(root.enter(["/bin/sh", "/step"]), timeout=120, env={"PATH": PATH})


def test_the_pip_of_a_setup_is_the_environment_s(root: ImageRoot):
    done = _set_up(root, True, "command -v pip; command -v pip3")
    assert done.stdout.split() == ["/opt/lowtide/venv/bin/pip", "/opt/lowtide/venv/bin/pip3"]


@pytest.mark.full
@pytest.mark.parametrize("pip", [True, False], ids=["pip of the image", "pip of the boot"])
def test_the_trainer_s_user_installs_what_its_setup_names(root: ImageRoot, pip: bool):
    body, name = _wheel("small", "1.0")
    root.file(f"/{name}", "")
    (root.written / name).write_bytes(body)
    show = "import small; print(small.__file__)"
    done = _set_up(root, pip, f'pip install -q --no-index /{name} && python3 -c "{show}"')
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("/home-of-trainer/.local/lib/python3")


@pytest.mark.full
def test_a_machine_without_pytorch_boots_with_the_pinned_one(machine: DressedMachine, index: Index):
    dress(machine.root, DLAMI)
    machine.boots(**TRAINER, **index.variables)
    assert "/torch/torch-9.9.9-py3-none-any.whl" in index.asked
    (found,) = machine.root.written.glob("opt/lowtide/venv/lib/python3*/site-packages/torch")
    assert "9.9.9" in (found / "__init__.py").read_text()


@pytest.mark.full
@pytest.mark.parametrize("wanted", [True, False], ids=["image with PyTorch", "own command"])
def test_a_machine_that_needs_no_pytorch_asks_for_none(
    machine: DressedMachine, index: Index, wanted: bool
):
    dress(machine.root, DLAMI)
    given = dict(TRAINER)
    if wanted:
        machine.root.python("3.12", torch=True)
    else:
        del given["LOWTIDE_AGENT_EXTRAS"]
    machine.boots(**given, **index.variables)
    assert not [one for one in index.asked if one.startswith("/torch")]


@pytest.mark.full
def test_an_index_without_the_pytorch_fails_the_boot(machine: DressedMachine, index: Index):
    dress(machine.root, DLAMI)
    index.pages.clear()
    line = machine.fails(**TRAINER, **index.variables)
    assert f"{PIN} cannot be installed: ERROR: No matching distribution found for {PIN}" in line
