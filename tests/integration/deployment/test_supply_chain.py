"""What is installed and built is what was locked: hashes, image digests, the list of components.

Not here: the image and the compose file themselves (tests/architecture/test_compose.py).
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from cyclonedx.model.bom import Bom

from tests.support.servers.finished_commands import run_command
from tests.support.servers.http_server import QuietHandler, http_server

ROOT = Path(__file__).parents[3]
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}\b")
CHOOSE = runpy.run_path(str(ROOT / "deploy/requirements.py"))


def tool(name: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A program of deploy/ as a module; it finds the others beside it."""
    monkeypatch.syspath_prepend(str(ROOT / "deploy"))
    return runpy.run_path(str(ROOT / "deploy" / name))


def test_every_pin_but_torchs_is_locked_with_hashes(monkeypatch: pytest.MonkeyPatch):
    pins = tool("lock.py", monkeypatch)["pins"]((ROOT / "constraints.txt").read_text())
    text = (ROOT / "requirements.lock").read_text()
    locked = {one.name: one for one in CHOOSE["read_lock"](text)}
    assert {name: one.version for name, one in locked.items()} == {
        name: version for name, version in pins.items() if name != "torch"
    }, "run `make lock`"
    for one in locked.values():
        assert HASH.search(one.text), one.name
        assert one.text.count("--hash") == len(HASH.findall(one.text)), one.name
    assert "torch" in text.partition("# for:")[0], "why it has none"


def test_the_lock_knows_what_each_extra_needs(monkeypatch: pytest.MonkeyPatch):
    lock = tool("lock.py", monkeypatch)
    pins = lock["pins"]((ROOT / "constraints.txt").read_text())
    needed = lock["groups_of"](lock["requirement_groups"](ROOT / "pyproject.toml"), pins)
    for one in CHOOSE["read_lock"]((ROOT / "requirements.lock").read_text()):
        wanted = needed[one.name] or {"nobody"}
        assert one.groups == wanted, f"{one.name}: run `make lock`"


def chosen(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_command([sys.executable, "deploy/requirements.py", *arguments], timeout=60, cwd=ROOT)


def test_a_choice_from_the_lock_is_complete_and_no_larger():
    plain, trainer = chosen().stdout, chosen("trainer").stdout
    assert "\nsqlalchemy==" in plain
    assert "\nscikit-learn==" in trainer
    assert "scikit-learn" not in plain
    assert "pytest" not in trainer
    assert chosen("--unhashed", "trainer").stdout.startswith("torch==")
    assert chosen("--unhashed").stdout.strip() == ""
    wrong = chosen("trainer,nonsense")
    assert (wrong.returncode, "no such extra: nonsense" in wrong.stderr) == (2, True)


def test_pip_refuses_a_file_with_another_hash(tmp_path: Path):
    wheel = tmp_path / "lowtide_tried-1.0-py3-none-any.whl"
    wheel.write_bytes(b"changed on the way")
    honest = hashlib.sha256(b"as it was locked").hexdigest()
    locked = tmp_path / "requirements.txt"
    locked.write_text(f"lowtide-tried==1.0 --hash=sha256:{honest}\n")
    ran = run_command(
        [
            *(sys.executable, "-m", "pip", "download", "--no-index", "--no-deps"),
            *("--require-hashes", "--find-links", str(tmp_path)),
            *("-d", str(tmp_path / "got"), "-r", str(locked)),
        ],
        timeout=120,
    )
    assert ran.returncode != 0
    assert "DO NOT MATCH THE HASHES" in ran.stderr


def test_the_runtime_is_listed_as_cyclonedx(tmp_path: Path):
    target = tmp_path / "sbom.json"
    subprocess.run(
        [sys.executable, "-W", "error", "deploy/sbom.py", str(target)],
        cwd=ROOT,
        timeout=120,
        check=True,
    )
    document = json.loads(target.read_text())
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    read_back = Bom.from_json(document)  # type: ignore[attr-defined]
    assert read_back.metadata.component.name == "lowtide"
    assert read_back.validate()
    purls = {one["purl"] for one in document["components"]}
    here = {CHOOSE["name_of"](one.metadata["Name"]) for one in importlib.metadata.distributions()}
    for line in chosen("trainer").stdout.splitlines():
        name, found, rest = line.partition("==")
        if found and name in here:
            assert f"pkg:pypi/{name}@{rest.split()[0]}" in purls
    names = {one["name"] for one in document["components"]}
    assert "torch" in names
    assert not names & {"pytest", "mypy", "ruff", "uv"}
    [root] = [one for one in document["dependencies"] if one["ref"] == "lowtide"]
    assert set(root["dependsOn"]) == purls


class Registry(QuietHandler):
    """As the Distribution specification has it: a token first, then HEAD of a manifest.

    Source: https://distribution.github.io/distribution/spec/api/ and …/spec/auth/token/.
    """

    missing = ""

    def serve(self) -> None:
        if self.command == "GET":
            asked = parse_qs(urlsplit(self.path).query)
            right = asked["scope"][0].endswith(":pull") and asked["service"] == ["registry"]
            token = "let-me-in" if right else "no"
            self.answer(200, json.dumps({"token": token, "expires_in": 300}).encode())
        elif self.headers.get("Authorization") != "Bearer let-me-in":
            assert isinstance(self.server, HTTPServer)
            here = f"http://127.0.0.1:{self.server.server_port}/token"
            challenge = f'Bearer realm="{here}",service="registry",scope="x"'
            self.answer(401, b"", {"WWW-Authenticate": challenge})
        elif "index" not in self.headers["Accept"] or (self.missing and self.missing in self.path):
            self.answer(404, b"")
        else:
            self.answer(200, b"", {"Docker-Content-Digest": digest_for(self.path)})


def digest_for(path: str) -> str:
    return f"sha256:{hashlib.sha256(path.encode()).hexdigest()}"


@contextmanager
def registry(missing: str = "") -> Iterator[str]:
    with http_server(type("Handler", (Registry,), {"missing": missing})) as url:
        yield url


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "deploy").mkdir()
    for name in ("docker-compose.yml", "Dockerfile", "deploy/pin-images.sh"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def pinned(checkout: Path, address: str) -> subprocess.CompletedProcess[str]:
    return run_command(
        ["sh", str(checkout / "deploy/pin-images.sh")],
        timeout=120,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "REGISTRY": address},
    )


def test_images_are_named_by_the_digests_of_their_registry(checkout: Path):
    with registry() as address:
        for _ in range(2):  # once more changes nothing
            ran = pinned(checkout, address)
            assert ran.returncode == 0, ran.stderr
    compose = (checkout / "docker-compose.yml").read_text()
    valkey = digest_for("/v2/valkey/valkey/manifests/9.0.1")
    assert f"${{VALKEY_IMAGE:-valkey/valkey:9.0.1@{valkey}}}" in compose
    images = [line for line in compose.splitlines() if "IMAGE:-" in line and "lowtide:" not in line]
    assert len(images) == 5
    assert all(re.search(r"@sha256:[0-9a-f]{64}}", line) for line in images)
    assert "${LOWTIDE_IMAGE:-lowtide:0.1.0}" in compose
    [base] = re.findall(r"^ARG BASE_IMAGE=(.*)$", (checkout / "Dockerfile").read_text(), re.M)
    name = base.partition("@")[0]
    path = f"/v2/library/{name.replace(':', '/manifests/')}"
    assert base == f"{name}@{digest_for(path)}"


def test_an_image_that_is_not_there_changes_nothing(checkout: Path):
    before = (checkout / "docker-compose.yml").read_text()
    with registry(missing="nginx") as address:
        ran = pinned(checkout, address)
    assert ran.returncode != 0
    assert "nginx:1.28.0-bookworm: the registry answers 404" in ran.stderr
    assert (checkout / "docker-compose.yml").read_text() == before
