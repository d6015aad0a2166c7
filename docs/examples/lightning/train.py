"""A Lightning module trained through interruptions."""

import os
from collections.abc import Iterator

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lowtide_callbacks.lightning import CheckpointCallback
from lowtide_hooks import Hooks
from torch import nn

STEPS = int(os.environ.get("STEPS", "200"))
SAVE_EVERY = int(os.environ.get("SAVE_EVERY", "50"))


class Rings(LightningModule):
    """Inside or outside of a ring."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 2))

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        points, labels = batch
        loss = nn.functional.cross_entropy(self.net(points), labels)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


class Batches:
    """Batches with a place, which Lightning saves and restores: the epoch goes on where it was.

    A plain DataLoader would begin the epoch anew; torchdata's StatefulDataLoader does as this. Each
    rank has batches of its own.
    """

    def __init__(self, batches: int, size: int = 64) -> None:
        self.batches, self.size, self.place = batches, size, 0
        self.rank = int(os.environ.get("RANK", "0"))
        self.ranks = int(os.environ.get("WORLD_SIZE", "1"))

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[list[torch.Tensor]]:
        while self.place < self.batches:
            generator = torch.Generator().manual_seed(self.place * self.ranks + self.rank)
            points = torch.randn(self.size, 2, generator=generator)
            self.place += 1
            yield [points, (points.norm(dim=1) > 1.2).long()]
        self.place = 0

    def state_dict(self) -> dict[str, int]:
        return {"place": self.place}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.place = state["place"]


def main() -> None:
    hooks = Hooks()
    seed_everything(0)
    callback = CheckpointCallback(hooks, every_steps=SAVE_EVERY)
    trainer = Trainer(
        accelerator="auto",  # GPUs where there are any
        devices=int(
            os.environ.get("LOCAL_WORLD_SIZE", "1")
        ),  # as many ranks as torchrun has started
        num_nodes=int(os.environ.get("LOWTIDE_NUM_NODES", "1")),
        max_steps=STEPS,
        max_epochs=-1,
        callbacks=[callback],
        enable_checkpointing=False,  # the callback saves
        logger=False,
        enable_progress_bar=False,
    )
    print(f"trains on {trainer.strategy.root_device}", flush=True)
    trainer.fit(Rings(), Batches(40), ckpt_path=callback.resume_from())
    callback.leave(trainer)


if __name__ == "__main__":
    main()
