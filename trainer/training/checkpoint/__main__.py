"""``python -m trainer.training.checkpoint FOLDER``: show, verify and export one checkpoint.

FOLDER                      list the tensors, without reading them
FOLDER --verify             hash every byte; exit code 65 when one is not as it was written
FOLDER --export FILE.pt     verify, then write the weights for torch.load
FOLDER --export FILE.safetensors   the same as one safetensors file
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainer.training.checkpoint.files import write_bytes
from trainer.training.checkpoint.reader import CheckpointReader, own_tensors
from trainer.training.checkpoint.tensor_slices import TensorSlice, file_image
from trainer.training.gang.ending import EXIT_CHECKPOINT_CORRUPT
from trainer.training.training_errors import CheckpointCorruptError


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m trainer.training.checkpoint", description="Show, verify or export one."
    )
    parser.add_argument("folder", type=Path, help="a folder step-...")
    parser.add_argument("--verify", action="store_true", help="hash every byte")
    parser.add_argument("--export", type=Path, help="weights to FILE.pt or FILE.safetensors")
    chosen = parser.parse_args(arguments)
    if chosen.export is not None and chosen.export.suffix not in (".pt", ".safetensors"):
        parser.error(f"{chosen.export}: write a name that ends in .pt or .safetensors")
    try:
        reader = CheckpointReader(chosen.folder)
        if chosen.verify or chosen.export is not None:
            reader.verify()
        _show(reader, chosen.verify or chosen.export is not None)
        if chosen.export is not None:
            _export(reader.read()["weights"], chosen.export)
    except CheckpointCorruptError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_CHECKPOINT_CORRUPT
    except OSError as error:
        print(f"error: {chosen.export}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


def _show(reader: CheckpointReader, verified: bool) -> None:
    manifest = reader.manifest
    for group in ("weights", "training_state"):
        for key, tensor in sorted(reader.tensors(group).items()):
            kind = str(tensor.dtype).removeprefix("torch.")
            print(f"{group:15}{key:60}{kind:10}{list(tensor.shape)}")
    size = sum(entry["size"] for entry in manifest["files"])
    print(
        f"step {manifest['step']:,} of {manifest['total_steps']:,}, {size:,} bytes,"
        f" {'final, ' if manifest['final'] else ''}PyTorch {manifest['torch']}"
        f"{', every byte verified' if verified else ''}"
    )


def _export(weights: dict[str, Any], path: Path) -> None:
    """The state dict. safetensors files hold tensors alone: other extra states are left out."""
    if path.suffix == ".pt":
        torch.save(own_tensors(weights), path)
        return
    tensors = {key: each for key, each in weights.items() if isinstance(each, Tensor)}
    for key in weights.keys() - tensors.keys():
        print(f"note: {key} is no tensor and not in {path}; a .pt file holds it", file=sys.stderr)
    image = file_image(TensorSlice(key, tensor) for key, tensor in tensors.items())
    body = b"".join(_bytes_of(piece.source) for piece in image.pieces)
    write_bytes(path, image.header + body)


def _bytes_of(tensor: Tensor) -> bytes:
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).numpy())


if __name__ == "__main__":
    sys.exit(main())
