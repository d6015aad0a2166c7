"""A plain PyTorch loop that survives losing its machine: one rank or many, CPU or GPU."""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from lowtide_hooks import Hooks
from torch import nn

STEPS = int(os.environ.get("STEPS", "300"))
SAVE_EVERY = int(os.environ.get("SAVE_EVERY", "100"))
BATCH = 64


def batch_of(step: int, rank: int, ranks: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Data that is a pure function of the step: nothing to rewind after a resume."""
    generator = torch.Generator().manual_seed(step)
    points = torch.randn(BATCH, 2, generator=generator)
    labels = (points.norm(dim=1) > 1.2).long()
    return points[rank::ranks], labels[rank::ranks]


def main() -> None:
    hooks = Hooks()  # first: a notice may come while the rest is starting
    device = hooks.device()  # this rank's GPU, made the current one; else the CPU
    if "RANK" in os.environ:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    rank, ranks = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 2)).to(device)
    trained = nn.parallel.DistributedDataParallel(model) if ranks > 1 else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    start = 0
    if folder := hooks.resume():
        state = torch.load(folder / "state.pt", map_location=device, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["step"]
    print(f"starts after step {start} on {device}", flush=True)

    for step in range(start + 1, STEPS + 1):
        points, labels = (each.to(device) for each in batch_of(step, rank, ranks))
        loss = nn.functional.cross_entropy(trained(points), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        # item() waits for the GPU: where steps are short, every tenth loss is enough.
        hooks.progress(step, STEPS, loss=loss.item(), samples=step * BATCH)

        draining = hooks.should_drain()
        if draining or step % SAVE_EVERY == 0 or step == STEPS:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}

            def write(folder: Path, state: dict = state) -> None:
                torch.save(state, folder / "state.pt")

            hooks.save(step, write, final=step == STEPS)
        if draining and step < STEPS:
            hooks.leave_drained(step)
    hooks.finish(STEPS)


if __name__ == "__main__":
    main()
