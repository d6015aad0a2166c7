"""Fine-tuning an object detector (YOLOS, from transformers) in a plain loop with the hooks."""

import os
from pathlib import Path

import torch
from lowtide_hooks import Hooks
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


def batch_of(step: int, size: int = 4) -> tuple[torch.Tensor, list[dict[str, torch.Tensor]]]:
    """Images with one bright square each, and its box (centre x, y, width, height in 0..1)."""
    generator = torch.Generator().manual_seed(step)
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
    torch.manual_seed(0)
    model = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    start = 0
    if folder := hooks.resume():
        model.load_state_dict(torch.load(folder / "model.pt", weights_only=True))
        rest = torch.load(folder / "rest.pt", weights_only=True)
        optimizer.load_state_dict(rest["optimizer"])
        torch.set_rng_state(rest["random"])  # dropout goes on where it was
        start = rest["step"]
    print(f"starts after step {start}", flush=True)

    for step in range(start + 1, STEPS + 1):
        images, targets = batch_of(step)
        loss = model(pixel_values=images, labels=targets).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        hooks.progress(step, STEPS, loss=loss.item())

        draining = hooks.should_drain()
        if draining or step % SAVE_EVERY == 0 or step == STEPS:
            rest = {"optimizer": optimizer.state_dict(), "random": torch.get_rng_state()}
            rest["step"] = step

            def write(folder: Path, rest: dict = rest) -> None:
                torch.save(model.state_dict(), folder / "model.pt")
                torch.save(rest, folder / "rest.pt")

            hooks.save(step, write, final=step == STEPS)
        if draining and step < STEPS:
            hooks.leave_drained(step)
    hooks.finish(STEPS)


if __name__ == "__main__":
    main()
