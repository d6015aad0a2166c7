"""Runs that are cut at random steps and gone on from; what is kept of their checkpoints.

In this process, so that many cuts cost little; with real processes and signals:
``test_vanishing_machines.py``.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.loop.one_rank import Result, train_here
from trainer.training.checkpoint import load_checkpoint, read_manifest

CONFIG: dict[str, Any] = {
    "model": "cnn",  # with dropout
    "data": "digits",
    "steps": 120,
    "batch_size": 48,
    "seed": 11,
    "ema_decay": 0.99,
    "random_crop": True,
    "flip": True,
    "eval_every_epochs": 2,
    "checkpoint_interval_steps": 9,
}


LINEAR = {"model": "tests.training.models.own_models:Stack"}


@pytest.mark.parametrize(
    ("workers", "changes", "cut_count"),
    [
        (0, {"accumulation": 3, "steps": 60}, 3),
        pytest.param(0, {"accumulation": 3}, 7, marks=pytest.mark.full),
        # Linear layers, with norms and dropout: convolutions take half a second in fp16 on a CPU.
        pytest.param(
            2,
            {**LINEAR, "accumulation": 2, "precision": "fp16", "optimizer": "sgd"},
            7,
            marks=pytest.mark.full,
        ),
        pytest.param(
            0,
            {"on_oom": "adapt", "clip_norm": 0.5, "label_smoothing": 0.1},
            7,
            marks=pytest.mark.full,
        ),
    ],
)
def test_every_loss_after_any_cut_is_that_of_the_whole_run(
    tmp_path: Path, workers: int, changes: dict[str, Any], cut_count: int
) -> None:
    config = {**CONFIG, **changes}
    whole = train_here(tmp_path / "whole", config)
    dice = random.Random(str(sorted(changes)))
    cuts = sorted(dice.sample(range(1, config["steps"] - 2), cut_count))
    losses: dict[int, float] = {}
    resume = None
    for number, cut in enumerate([*cuts, 1 << 60]):
        folder = tmp_path / f"part-{number}"
        part = train_here(folder, {**config, "workers": workers}, resume=resume, stop_after=cut)
        assert losses.keys().isdisjoint(part.losses)
        losses |= part.losses
        if part.ending.outcome == "finished":
            break
        resume = part.checkpoint(part.ending.step)
    assert losses == whole.losses
    ends = [load_checkpoint(each.checkpoint(config["steps"]))[1] for each in (whole, part)]
    for name, tensor in ends[0]["weights"].items():
        assert torch.equal(tensor, ends[1]["weights"][name])
    averages = [end["training_state"]["averages"]["tensors"] for end in ends]
    assert all(torch.equal(each, averages[1][name]) for name, each in averages[0].items())


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """A whole run that keeps more of its checkpoints than the newest two."""
    config = {**CONFIG, "checkpoint_keep_best": True, "checkpoint_keep_every": 4}
    return train_here(tmp_path_factory.mktemp("done"), config)


def test_the_best_and_each_nth_checkpoint_stay(done: Result) -> None:
    accuracies = {line["step"]: line["validation_accuracy"] for line in done.lines("eval")}
    accuracies.pop(120)  # the end: the final checkpoint
    best = max(accuracies, key=lambda step: accuracies[step])
    saved = [line["step"] for line in done.lines("checkpoint")]
    kept = sorted(
        read_manifest(path)["step"] for path in (done.folder / "checkpoints").glob("step-*")
    )
    assert best in kept
    assert set(kept) == {best, *saved[3::4], *saved[-2:]}
    place = load_checkpoint(done.checkpoint(120))[1]["training_state"]["place"]
    assert place["best_score"] == max(line["validation_accuracy"] for line in done.lines("eval"))


def test_the_ledger_counts_what_checkpoints_cost(done: Result) -> None:
    lines = done.lines("checkpoint")
    assert all(0 <= line["stall_seconds"] <= line["seconds"] for line in lines)
    stalls = done.run.progress.ledger.seconds()["checkpoint_stall"]
    assert stalls >= sum(line["stall_seconds"] for line in lines[:-1])


def test_averages_that_stayed_behind_begin_anew_and_nothing_else_changes(tmp_path: Path) -> None:
    """As after a notice that was too short for them, where the job allows it."""
    config = {**CONFIG, "steps": 40, "checkpoint_may_drop_averages": True}
    whole = train_here(tmp_path / "whole", config)
    first = train_here(tmp_path / "first", config, stop_after=20)
    saved = first.checkpoint(first.ending.step)
    kept = train_here(tmp_path / "kept", config, resume=saved)
    averages = [
        load_checkpoint(each.checkpoint(40))[1]["averages"]["tensors"] for each in (whole, kept)
    ]
    assert all(torch.equal(each, averages[1][name]) for name, each in averages[0].items())
    (saved / "averages.safetensors").unlink()
    without = train_here(tmp_path / "without", config, resume=saved)
    assert {**first.losses, **without.losses} == {**first.losses, **kept.losses} == whole.losses
    anew = load_checkpoint(without.checkpoint(40))[1]["averages"]["tensors"]
    assert any(not torch.equal(each, anew[name]) for name, each in averages[0].items())
