"""The wheel that machines install: the trainer package of this very release, packed on the spot.

Here: which files, and a form that is equal to the byte wherever it is made. Not here: the route
that serves it (`app.api.agents.package_routes`), or installing it (`app.adapters.providers.boot`).
"""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib.metadata
import importlib.util
import io
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

DISTRIBUTION: Final = "lowtide-agent"
_PACKAGE: Final = "trainer"
_AGENT_NEEDS: Final = frozenset({"obstore"})
# Beside PyTorch: an image's own fits its driver, and where there is none the boot installs one.
_TRAINER_NEEDS: Final = ("numpy", "pillow", "scikit-learn")
_SUFFIXES: Final = frozenset({".py", ".json", ".toml", ".sh"})
_DATE: Final = (1980, 1, 1, 0, 0, 0)
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)==([A-Za-z0-9._+!-]+)(?:\s*;.*)?")


@dataclass(frozen=True, slots=True)
class AgentPackage:
    """One wheel. sha256: 64 hex digits of `content`."""

    filename: str
    content: bytes
    sha256: str


@functools.cache
def agent_package() -> AgentPackage:
    """The wheel of this release's agent: the same bytes on every host that runs this release."""
    version = importlib.metadata.version("lowtide")
    name = DISTRIBUTION.replace("-", "_")
    info = f"{name}-{version}.dist-info"
    files = dict(sorted(_sources().items()))
    files[f"{info}/METADATA"] = _metadata(version).encode()
    files[f"{info}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: lowtide\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    files[f"{info}/entry_points.txt"] = (
        b"[console_scripts]\nlowtide-agent = trainer.agent.main:main\n"
    )
    record = f"{info}/RECORD"
    lines = [_record_line(path, content) for path, content in files.items()]
    files[record] = "".join([*lines, f"{record},,\n"]).encode()
    content = _zipped(files)
    return AgentPackage(
        f"{name}-{version}-py3-none-any.whl", content, hashlib.sha256(content).hexdigest()
    )


def _sources() -> dict[str, bytes]:
    """Files of the package by their path in the wheel."""
    spec = importlib.util.find_spec(_PACKAGE)
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not folders:
        raise RuntimeError("the trainer package is not installed beside the api")
    root = Path(folders[0])
    return {
        f"{_PACKAGE}/{path.relative_to(root).as_posix()}": path.read_bytes()
        for path in root.rglob("*")
        if path.suffix in _SUFFIXES and "__pycache__" not in path.parts
    }


def _metadata(version: str) -> str:
    pins = {
        match[1].lower(): match[2]
        for line in importlib.metadata.requires("lowtide") or ()
        if (match := _REQUIREMENT.fullmatch(line))
    }
    needs = [f"Requires-Dist: {name}=={pins[name]}" for name in sorted(_AGENT_NEEDS)]
    extra = [f'Requires-Dist: {name}; extra == "trainer"' for name in _TRAINER_NEEDS]
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {DISTRIBUTION}",
        f"Version: {version}",
        "Summary: What Lowtide runs on a rented machine",
        "Requires-Python: >=3.11",
        "Provides-Extra: trainer",
        *needs,
        *extra,
    ]
    return "\n".join(lines) + "\n"


def _record_line(path: str, content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{path},sha256={digest},{len(content)}\n"


def _zipped(files: dict[str, bytes]) -> bytes:
    """Stored, not compressed: compressors differ between hosts, and the digest must not."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        for path, content in files.items():
            entry = zipfile.ZipInfo(path, _DATE)
            entry.external_attr = 0o644 << 16
            entry.create_system = 3
            archive.writestr(entry, content)
    return packed.getvalue()
