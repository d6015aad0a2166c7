"""One rank of two that save together, each with compiled code of another size; there is no run."""

from __future__ import annotations

import os
from typing import Any

import torch

from tests.training.loop.one_rank import STACK
from trainer.training.config import parse_config
from trainer.training.gang import distributed
from trainer.training.gang.rank_environment import read_rank_environment
from trainer.training.reporting.progress import ProgressLog
from trainer.training.saving.saving import Saving

HEADER: dict[str, Any] = {"step": 4, "final": True, "fence": 1, "world_size": 2}


def trees(rank: int) -> dict[str, Any]:
    """Alike on all ranks but for the code, which is rank + 2 MiB, filled with the rank."""
    code = torch.full(((rank + 2) << 20,), rank, dtype=torch.uint8)
    state = {"moments": torch.arange(6 << 20, dtype=torch.float32), "compiled_code": code}
    return {"weights": {"w": torch.ones(3)}, "training_state": state}


if __name__ == "__main__":
    config = parse_config({**STACK, "compile": "on", "rendezvous_timeout_seconds": 60})
    environment = read_rank_environment(os.environ)
    gang = distributed.join(environment, config)
    saving = Saving(config, environment, gang, ProgressLog(None))
    saving.prepare(trees(gang.rank), {})
    saving.take_last(HEADER, trees(gang.rank), {})
    distributed.leave()
