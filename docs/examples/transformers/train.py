"""A causal language model trained by the Hugging Face Trainer, through interruptions."""

import os

import torch
from lowtide_callbacks.transformers import DrainCallback
from lowtide_hooks import Hooks
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

STEPS = int(os.environ.get("STEPS", "200"))
SAVE_EVERY = int(os.environ.get("SAVE_EVERY", "50"))


class Counting(Dataset):
    """Sequences that count upwards: replace it by your tokenised corpus."""

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = (torch.arange(32) + index) % 97
        return {"input_ids": tokens, "labels": tokens}


def main() -> None:
    hooks = Hooks()
    set_seed(0)
    config = GPT2Config(vocab_size=97, n_positions=32, n_embd=64, n_layer=2, n_head=2)
    callback = DrainCallback(hooks)
    trainer = Trainer(
        model=GPT2LMHeadModel(config),
        args=TrainingArguments(
            output_dir="output",  # what is published is linked from here
            max_steps=STEPS,
            save_steps=SAVE_EVERY,
            save_total_limit=2,
            logging_steps=1,
            per_device_train_batch_size=16,
            report_to=[],
            disable_tqdm=True,
        ),
        train_dataset=Counting(),
        callbacks=[callback],
    )
    print(f"trains on {trainer.args.device}", flush=True)
    trainer.train(resume_from_checkpoint=callback.resume_from())
    callback.leave(trainer)


if __name__ == "__main__":
    main()
