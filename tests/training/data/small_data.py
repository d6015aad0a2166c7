"""Small data sets in every layout, written when a test asks for them."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = ("daisy", "rose", "tulip")


def image_bytes(number: int, size: tuple[int, int] = (40, 32), kind: str = "PNG") -> bytes:
    """A file with an image of its own: noise around a colour that its class shares."""
    generator = np.random.RandomState(number)
    colour = np.array([60, 120, 180])[(np.arange(3) + number) % 3]
    pixels = generator.randint(0, 70, (size[1], size[0], 3)) + colour
    file = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(file, kind)
    return file.getvalue()


def image_folders(root: Path, each: int = 6, parts: tuple[str, ...] = ("",)) -> Path:
    """``each`` images of every class, below a folder for each part."""
    number = 0
    for part in parts:
        for name in CLASSES:
            folder = root / part / name
            folder.mkdir(parents=True)
            for _ in range(each):
                # The class decides number % 3, and with it the colour.
                member = number // each * 3 * each + number % each * 3 + CLASSES.index(name)
                kind = "JPEG" if number % 2 else "PNG"
                ending = "jpg" if number % 2 else "png"
                (folder / f"{number:03d}.{ending}").write_bytes(image_bytes(member, kind=kind))
                number += 1
    return root


def shard(path: Path, numbers: range, label: str = "cls") -> Path:
    """A tar file with one sample for each number; its class is number % 3."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for number in numbers:
            content = str(number % 3) if label == "cls" else json.dumps({"label": number % 3})
            add_member(archive, f"{number:06d}.jpg", image_bytes(number, kind="JPEG"))
            add_member(archive, f"{number:06d}.{label}", content.encode())
    return path


def add_member(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    """Appends a file to a tar file."""
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))
