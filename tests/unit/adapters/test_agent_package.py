"""The wheel that machines install: whole, pure, and the same wherever it is made."""

from __future__ import annotations

import base64
import csv
import hashlib
import importlib.metadata
import io
import re
import tomllib
import zipfile

from app.adapters.agent_package import agent_package
from tests.support.sources.source_tree import ROOT


def _archive() -> zipfile.ZipFile:
    return zipfile.ZipFile(io.BytesIO(agent_package().content))


def test_it_holds_the_trainer_and_nothing_else():
    names = _archive().namelist()
    code = {name for name in names if ".dist-info/" not in name}
    sources = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "trainer").rglob("*.py")
        if "__pycache__" not in path.parts
    }
    assert code >= sources
    assert all(name.startswith("trainer/") for name in code)
    assert not any("__pycache__" in name or name.endswith(".pyc") for name in names)


def test_its_record_is_true():
    archive = _archive()
    (record,) = [name for name in archive.namelist() if name.endswith("/RECORD")]
    rows = list(csv.reader(io.StringIO(archive.read(record).decode())))
    assert {row[0] for row in rows} == set(archive.namelist())
    for name, digest, size in rows:
        if name != record:
            content = archive.read(name)
            found = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
            assert digest == f"sha256={found.decode()}"
            assert int(size) == len(content)


def test_it_has_this_releases_version_and_pins():
    archive = _archive()
    version = importlib.metadata.version("lowtide")
    assert agent_package().filename == f"lowtide_agent-{version}-py3-none-any.whl"
    text = archive.read(f"lowtide_agent-{version}.dist-info/METADATA").decode()
    assert f"\nVersion: {version}\n" in text
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (pin,) = [one for one in project["dependencies"] if one.startswith("obstore==")]
    assert f"Requires-Dist: {pin}\n" in text
    # PyTorch is the image's own, or the boot's.
    assert not re.search(r"^Requires-Dist: torch", text, re.MULTILINE)
    entry = archive.read(f"lowtide_agent-{version}.dist-info/entry_points.txt").decode()
    assert "lowtide-agent = trainer.agent.main:main" in entry


def test_it_is_the_same_to_the_byte_every_time():
    first = agent_package()
    agent_package.cache_clear()
    assert agent_package() == first
    assert first.sha256 == hashlib.sha256(first.content).hexdigest()
    assert {entry.date_time for entry in _archive().infolist()} == {(1980, 1, 1, 0, 0, 0)}
    assert {entry.compress_type for entry in _archive().infolist()} == {zipfile.ZIP_STORED}
