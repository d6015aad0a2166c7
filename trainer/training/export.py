"""``python -m trainer.training.export``: a checkpoint to a model that others can serve.

    --checkpoint FOLDER   one checkpoint, `step-...`
    --format FORMAT ...   onnx, torch_export, tensorrt
    --out DIR             made by this; nothing is there before everything is checked
    --weights average     the averaged weights (EMA, SWA) instead of the trained ones
    --sign KEY            an Ed25519 private key in PEM

In DIR: the model in each format, ``model-card.md`` and ``.json``, ``SHA256SUMS``. Exit codes: 0, 2
for what cannot be done as asked, 3 when an exported model does not compute the same, 65 for a
corrupt checkpoint.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from trainer.training.checkpoint import load_checkpoint, own_tensors
from trainer.training.extras.export_formats import (
    ExportDiffersError,
    ScoreDifferences,
    example_batch,
    to_onnx,
    to_torch_export,
)
from trainer.training.extras.export_tensorrt import to_tensorrt
from trainer.training.extras.model_card import as_markdown, model_card
from trainer.training.extras.signing import sign, write_digests
from trainer.training.gang.ending import EXIT_CHECKPOINT_CORRUPT, EXIT_CONFIG
from trainer.training.models import build_model
from trainer.training.training_errors import CheckpointCorruptError, ConfigError

FORMATS = ("onnx", "torch_export", "tensorrt")
EXIT_DIFFERS = 3


def export(
    checkpoint: Path, formats: list[str], out: Path, weights: str, key_file: Path | None
) -> list[str]:
    """Exports, checks and describes; returns a sentence for each file of a model.

    Raises ``ConfigError``, ``CheckpointCorruptError``, ``ExportDiffersError``; then ``out`` is not
    there.
    """
    if out.exists():
        raise ConfigError(f"--out: {out} is there already; name a folder to be made")
    manifest, contents = load_checkpoint(checkpoint)
    if "about" not in manifest:
        raise ConfigError(f"--checkpoint: {checkpoint} was not made by the bundled trainer")
    model, parameters = _model_of(manifest, contents, weights)
    temporary = out.with_name(f"{out.name}.tmp-{os.getpid()}")
    temporary.mkdir(parents=True)
    try:
        about = manifest["about"]
        sample = example_batch(tuple(about["input_shape"]), about["classes"])
        said = [_written(name, model, sample, temporary) for name in formats]
        card = model_card(manifest, parameters, weights)
        (temporary / "model-card.json").write_text(json.dumps(card, indent=1) + "\n")
        (temporary / "model-card.md").write_text(as_markdown(card))
        write_digests(temporary, [path.name for path in temporary.iterdir()])
        if key_file is not None:
            sign(temporary, key_file)
        temporary.rename(out)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return said


def _model_of(
    manifest: dict[str, Any], contents: dict[str, Any], weights: str
) -> tuple[nn.Module, int]:
    """The trained model on the CPU, ready to be asked, and how many parameters it has."""
    about = manifest["about"]
    config = about["config"]
    model = build_model(
        config["model"],
        tuple(about["input_shape"]),
        about["classes"],
        config.get("model_options"),
    )
    tensors: dict[str, Tensor] = own_tensors(contents["weights"])
    if weights == "average":
        averages = contents.get("averages") or contents["training_state"].get("averages")
        if averages is None:
            raise ConfigError("--weights average: this run kept no average (ema_decay, swa_from)")
        tensors.update(own_tensors(averages["tensors"]))
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        first = str(error).splitlines()[0]
        raise ConfigError(
            f"--checkpoint: {config['model']} is another model now: {first}"
        ) from error
    return model.eval(), sum(each.numel() for each in model.parameters())


def _written(name: str, model: nn.Module, sample: Tensor, folder: Path) -> str:
    if name == "onnx":
        path = folder / "model.onnx"
        found = to_onnx(model, sample, path)
    elif name == "torch_export":
        path = folder / "model.pt2"
        found = to_torch_export(model, sample, path)
    else:
        path = folder / "model.engine"
        found = to_tensorrt(model, sample, folder / "model.onnx", path)
    return _sentence(path, found)


def _sentence(path: Path, found: ScoreDifferences) -> str:
    megabytes = path.stat().st_size / 1e6
    return (
        f"{path.name}: {megabytes:,.1f} MB; against the model at most {found.absolute:.2g} apart,"
        f" {found.relative:.2g} of the largest score"
    )


def main() -> int:
    """Parses the command line and exports; returns the exit code."""
    parser = argparse.ArgumentParser(prog="trainer.training.export")
    parser.add_argument("--checkpoint", type=Path, required=True, help="folder of one checkpoint")
    parser.add_argument("--format", nargs="+", choices=FORMATS, required=True, dest="formats")
    parser.add_argument("--out", type=Path, required=True, help="folder to be made")
    parser.add_argument("--weights", choices=("trained", "average"), default="trained")
    parser.add_argument("--sign", type=Path, metavar="KEY", help="Ed25519 private key, PEM")
    options = parser.parse_args()
    try:
        said = export(
            options.checkpoint, options.formats, options.out, options.weights, options.sign
        )
    except (ConfigError, CheckpointCorruptError, ExportDiffersError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        if isinstance(error, CheckpointCorruptError):
            return EXIT_CHECKPOINT_CORRUPT
        return EXIT_DIFFERS if isinstance(error, ExportDiffersError) else EXIT_CONFIG
    for sentence in said:
        print(sentence)
    signed = "" if options.sign is None else ", signed"
    print(f"{options.out}: with model-card.md and SHA256SUMS{signed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
