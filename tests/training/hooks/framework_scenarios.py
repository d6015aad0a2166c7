"""Lightning and the Hugging Face Trainer with the hooks' callbacks, one rank a machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from trainer.hooks import Hooks

STEPS = 6


def lightning_shards(hooks: Hooks, _: Path) -> list[str]:
    """With a strategy that saves as FSDP's does, which runs on GPUs alone: each rank its part."""
    from lightning.pytorch.strategies import DDPStrategy

    class Sharded(DDPStrategy):
        def save_checkpoint(self, checkpoint: Any, filepath: Any, storage_options: Any = None):
            folder = Path(filepath)
            folder.mkdir(exist_ok=True)
            (folder / f"__{self.global_rank}_0.distcp").write_bytes(b"part")
            if self.is_global_zero:
                torch.save({}, folder / "meta.pt")

    return _fit(hooks, Sharded(process_group_backend="gloo"))


def lightning_full_disk(hooks: Hooks, _: Path) -> list[str]:
    """Rank 0, which alone writes, cannot at its first save; the others wait in Lightning's barrier.

    They must hear of it: training goes on, and the last save is there.
    """
    from lightning.pytorch.plugins.io import TorchCheckpointIO
    from lightning.pytorch.strategies import DDPStrategy

    class Full(TorchCheckpointIO):
        saves = 0

        def save_checkpoint(self, *args: Any, **options: Any) -> None:
            self.saves += 1
            if self.saves == 1:
                raise OSError(28, "No space left on device")
            super().save_checkpoint(*args, **options)

    return _fit(hooks, DDPStrategy(process_group_backend="gloo", checkpoint_io=Full()))


def _fit(hooks: Hooks, strategy: Any) -> list[str]:
    from lightning.pytorch import LightningModule, Trainer

    from trainer.callbacks.lightning import CheckpointCallback

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Linear(2, 1)

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            loss: torch.Tensor = self.net(torch.stack(list(batch))).mean()
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    os.environ.update({"TORCHELASTIC_RUN_ID": "x", "LOCAL_WORLD_SIZE": "1"})
    os.environ["GROUP_RANK"] = os.environ["LOWTIDE_NODE_RANK"]
    callback = CheckpointCallback(hooks, every_steps=2)
    trainer = Trainer(
        accelerator="cpu",
        devices=1,
        num_nodes=2,
        strategy=strategy,
        max_steps=STEPS,
        max_epochs=-1,
        callbacks=[callback],
        enable_checkpointing=False,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(), [torch.ones(4, 2) for _ in range(STEPS)])
    hooks.finish = lambda step: None  # type: ignore[assignment,method-assign,return-value]
    callback.leave(trainer)
    return _names(hooks.folder)


def transformers_shares(hooks: Hooks, _: Path) -> list[str]:
    """Random states are each rank's own; all else is the first one's. It keeps one folder."""
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    from trainer.callbacks.transformers import DrainCallback

    tokens = torch.arange(8)
    output = hooks.folder.with_name(f"output-{hooks.rank}")
    trainer = Trainer(
        model=GPT2LMHeadModel(
            GPT2Config(vocab_size=11, n_positions=8, n_embd=8, n_layer=1, n_head=1)
        ),
        args=TrainingArguments(
            output_dir=str(output),
            use_cpu=True,
            max_steps=STEPS,
            save_steps=2,
            save_total_limit=1,
            per_device_train_batch_size=1,
            report_to=[],
            disable_tqdm=True,
        ),
        train_dataset=[{"input_ids": tokens, "labels": tokens}] * 64,
        callbacks=[DrainCallback(hooks)],
    )
    trainer.train()
    return [*_names(hooks.folder), *sorted(path.name for path in output.iterdir())]


def _names(folder: Path) -> list[str]:
    """Below the newest checkpoint, after how many there are."""
    saved = sorted(folder.iterdir())
    newest = saved[-1] if saved else folder
    files = sorted(path.relative_to(newest).as_posix() for path in newest.rglob("*"))
    return [f"{len(saved)} folders", *files]
