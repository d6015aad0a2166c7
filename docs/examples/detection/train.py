"""Fine-tuning an object detector (YOLOS, from transformers) in a plain loop with the hooks.

All random numbers are functions of step and rank: there is nothing to rewind after a resume.
"""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from lowtide_hooks import Hooks
from torch import nn
from transformers import YolosConfig, YolosForObjectDetection

STEPS = int(os.environ.get("STEPS", "100"))
SAVE_EVERY = int(os.environ.get("SAVE_EVERY", "25"))
PIXELS = 64


def build() -> YolosForObjectDetection:
    """A small detector from scratch; fine-tune a published one by ``from_pretrained(name)``."""
    config = YolosConfig(
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=128,
        image_size=[PIXELS, PIXELS],
        num_detection_tokens=5,
        num_labels=2,
    )
    return YolosForObjectDetection(config)


def batch_of(seed: int, size: int = 4) -> tuple[torch.Tensor, list[dict[str, torch.Tensor]]]:
    """Images with one bright square each, and its box (centre x, y, width, height in 0..1)."""
    generator = torch.Generator().manual_seed(seed)
    images, targets = torch.zeros(size, 3, PIXELS, PIXELS), []
    for image in images:
        side, label = 16, int(torch.randint(2, (1,), generator=generator))
        x, y = (int(v) for v in torch.randint(PIXELS - side, (2,), generator=generator))
        image[label, y : y + side, x : x + side] = 1.0
        box = torch.tensor([[x + side / 2, y + side / 2, side, side]]) / PIXELS
        targets.append({"class_labels": torch.tensor([label]), "boxes": box})
    return images, targets


def main() -> None:
    hooks = Hooks()
    device = hooks.device()  # this rank's GPU, made the current one; else the CPU
    if "RANK" in os.environ:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    rank, ranks = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    torch.manual_seed(0)
    model = build().to(device)
    trained = nn.parallel.DistributedDataParallel(model) if ranks > 1 else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    start = 0
    if folder := hooks.resume():
        weights = torch.load(folder / "model.pt", map_location=device, weights_only=True)
        model.load_state_dict(weights)
        rest = torch.load(folder / "rest.pt", map_location=device, weights_only=True)
        optimizer.load_state_dict(rest["optimizer"])
        start = rest["step"]
    print(f"starts after step {start} on {device}", flush=True)

    for step in range(start + 1, STEPS + 1):
        seed = step * ranks + rank
        torch.manual_seed(seed)  # for dropout, on CPU and GPU
        images, targets = batch_of(seed)
        targets = [{name: value.to(device) for name, value in each.items()} for each in targets]
        loss = trained(pixel_values=images.to(device), labels=targets).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        hooks.progress(step, STEPS, loss=loss.item())

        draining = hooks.should_drain()
        if draining or step % SAVE_EVERY == 0 or step == STEPS:
            rest = {"optimizer": optimizer.state_dict(), "step": step}

            def write(folder: Path, rest: dict = rest) -> None:
                torch.save(model.state_dict(), folder / "model.pt")
                torch.save(rest, folder / "rest.pt")

            hooks.save(step, write, final=step == STEPS)
        if draining and step < STEPS:
            hooks.leave_drained(step)
    hooks.finish(STEPS)


if __name__ == "__main__":
    main()
