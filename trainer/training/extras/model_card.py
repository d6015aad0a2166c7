"""The model card: what a trained model is, what it was trained on, how far, and what it cost.

Lives here: what a run writes about itself into every checkpoint (``about_run``), and the card that
is made from a checkpoint alone, as JSON and as Markdown. Not here: exporting (``export.py``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from trainer.training.config import TrainConfig
from trainer.training.data import DataSet
from trainer.training.observer import usd_per_hour
from trainer.training.reporting.goodput import Ledger
from trainer.training.reporting.place import Place

Document = dict[str, Any]

# A manifest is written with every checkpoint: more names than ImageNet's are left out.
CLASS_NAMES_MOST = 1_000


def about_run(
    config: TrainConfig,
    data: DataSet,
    place: Place,
    ledger: Ledger,
    earlier_seconds: Mapping[str, float],
) -> Document:
    """What only the run knows, for the manifest of a checkpoint: plain values, cheap to make.

    ``seconds`` are the goodput buckets of this attempt and, ``earlier_seconds``, of those whose
    checkpoints it goes on from; what an attempt did after its last checkpoint is lost to it.
    """
    samples = len(data.train)
    seen = place.step * config.batch_size
    seconds = ledger.seconds()
    for name, earlier in earlier_seconds.items():
        seconds[name] = seconds.get(name, 0.0) + earlier
    return {
        "config": dict(vars(config)),
        "input_shape": list(data.shape),
        "classes": data.classes,
        "class_names": list(data.class_names[:CLASS_NAMES_MOST]),
        "train_samples": samples,
        "position": {"seed": config.seed, "epoch": seen // samples, "sample": seen % samples},
        "seconds": seconds,
        "usd_per_hour": usd_per_hour(),
    }


def seconds_in(manifest: Mapping[str, Any]) -> dict[str, float]:
    """The goodput buckets that a checkpoint carries; {} of one that has none."""
    return dict(manifest.get("about", {}).get("seconds", {}))


def model_card(manifest: Mapping[str, Any], parameters: int, weights: str) -> Document:
    """The card of one checkpoint. ``weights``: which of its weights are meant."""
    about, identity = manifest["about"], manifest["identity"]
    config = about["config"]
    seconds = sum(about["seconds"].values())
    price = about["usd_per_hour"]
    return {
        "architecture": {
            "model": identity["model"],
            "options": config.get("model_options", {}),
            "parameters": parameters,
            "input_shape": about["input_shape"],
            "classes": about["classes"],
            "class_names": about["class_names"],
            "weights": weights,
        },
        "metrics": manifest["metrics"],
        "data": {
            "data": identity["data"],
            "train_samples": about["train_samples"],
            **about["position"],
        },
        "training": {
            "steps": manifest["step"],
            "total_steps": manifest["total_steps"],
            "finished": manifest["final"],
            "batch_size": config["batch_size"],
            "precision": config["precision"],
            "optimizer": config["optimizer"],
            "world_size": manifest["world_size"],
            "attempt": manifest["fence"],
            "torch": manifest.get("torch"),
        },
        "time": {
            "seconds": seconds,
            "goodput": about["seconds"]["useful_step"] / seconds if seconds > 0 else 0.0,
            "buckets": {name: each for name, each in about["seconds"].items() if each > 0},
        },
        "cost_usd": None if price is None else price * seconds / 3_600,
        "checkpoint": {"step": manifest["step"], "digest": manifest["digest"]},
        "config": config,
    }


def as_markdown(card: Mapping[str, Any]) -> str:
    """The card for a person, in the order in which one asks."""
    architecture, training = card["architecture"], card["training"]
    data, time = card["data"], card["time"]
    shape = " x ".join(map(str, architecture["input_shape"]))
    cost = (
        "not known: no price was told" if card["cost_usd"] is None else f"${card['cost_usd']:.4f}"
    )
    state = "finished" if training["finished"] else "not finished"
    lines = [
        f"# {architecture['model']} on {data['data']}",
        "",
        f"Step {training['steps']:,} of {training['total_steps']:,}, {state}.",
        "",
        *_table("Model", {
            "Architecture": f"{architecture['model']} {_options(architecture['options'])}".strip(),
            "Parameters": f"{architecture['parameters']:,}",
            "Input": f"{shape}; {architecture['classes']:,} classes",
            "Weights": architecture["weights"],
        }),
        *_table("Metrics", {name: f"{value:.6g}" for name, value in card["metrics"].items()}),
        *_table("Data", {
            "Data set": data["data"],
            "Training samples": f"{data['train_samples']:,}",
            "Read up to": f"epoch {data['epoch']:,}, sample {data['sample']:,}"
            f" of the order of seed {data['seed']}",
        }),
        *_table("Training", {
            "Batch": f"{training['batch_size']:,} samples over {training['world_size']} ranks",
            "Precision": training["precision"],
            "Optimizer": training["optimizer"],
            "Attempt": str(training["attempt"]),
            "PyTorch": str(training["torch"]),
        }),
        *_table("Time and cost", {
            "Seconds": f"{time['seconds']:,.1f}",
            "Goodput": f"{100 * time['goodput']:.1f} %",
            **{name.replace("_", " "): f"{each:,.1f} s" for name, each in time["buckets"].items()},
            "Cost so far": cost,
        }),
        f"Checkpoint digest: `{card['checkpoint']['digest']}`",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _table(title: str, rows: Mapping[str, str]) -> list[str]:
    if not rows:
        return []
    body = [
        f"| {name} | {str(value).replace('|', chr(92) + '|')} |" for name, value in rows.items()
    ]
    return [f"## {title}", "", "| | |", "|---|---|", *body, ""]


def _options(options: Mapping[str, Any]) -> str:
    return json.dumps(dict(options)) if options else ""
