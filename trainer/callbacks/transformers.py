"""The hooks for the Hugging Face Trainer.

Here: one callback that publishes what the Trainer saves, drains, and reports. Not here: deciding
what a checkpoint holds; the Trainer's own has model, optimizer, schedule, generator states and the
place in the data. ::

    hooks = Hooks()
    callback = DrainCallback(hooks)
    trainer = Trainer(..., callbacks=[callback])
    trainer.train(resume_from_checkpoint=callback.resume_from())
    callback.leave(trainer)

On several machines each publishes what the Trainer has written there: random states, and of sharded
models (FSDP, DeepSpeed) that machine's shards. A periodic checkpoint that cannot be published is a
line in the log and training goes on; the last one must succeed.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from transformers import TrainerCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

if TYPE_CHECKING:
    from trainer.hooks import Hooks


class DrainCallback(TrainerCallback):  # type: ignore[misc]
    """Saves and stops when the machine is about to be taken; each save is published.

    ``save_steps`` stays yours: it is the interval between periodic checkpoints.
    """

    def __init__(self, hooks: Hooks) -> None:
        self.hooks = hooks
        self.draining = False
        self._published: list[Path] = []

    def resume_from(self) -> str | None:
        """For ``Trainer.train(resume_from_checkpoint=...)``."""
        folder = self.hooks.resume()
        return str(folder) if folder else None

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        """After each optimizer step: leave if some rank was asked to."""
        if state.global_step < state.max_steps and self.hooks.should_drain():
            self.draining = True
            control.should_save = True
            control.should_training_stop = True
        return control

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Whatever the Trainer logs, every ``logging_steps``; not its summary at the end."""
        if "train_runtime" in (logs or {}):
            return
        numbers = {name: value for name, value in (logs or {}).items() if _is_number(value)}
        self.hooks.progress(state.global_step, state.max_steps, **numbers)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Publishes the folder that the Trainer has just written, by links: no byte is copied."""
        step = state.global_step
        saved = Path(args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{step}"

        def link(folder: Path) -> None:  # all ranks have written theirs when one begins
            if args.local_process_index == 0 and saved.is_dir():
                shutil.copytree(saved, folder, copy_function=_link_or_copy, dirs_exist_ok=True)

        if self.draining or step >= state.max_steps:
            self.hooks.save(step, link, final=step >= state.max_steps, every_rank=True)
        else:
            self.hooks.try_save(step, link, every_rank=True)
        if not args.should_save and args.local_process_index == 0 and args.save_total_limit:
            self._prune(saved, state.best_model_checkpoint, args.save_total_limit)

    def _prune(self, newest: Path, best: str | None, kept: int) -> None:
        """On machines other than the first, whose own folder alone the Trainer prunes."""
        self._published.append(newest)
        for old in self._published[:-kept]:
            if best is None or old.name != Path(best).name:
                shutil.rmtree(old, ignore_errors=True)
        self._published = self._published[-kept:]

    def leave(self, trainer: Any) -> NoReturn:
        """After ``train()``: ends the process as drained or finished. Never returns."""
        step = trainer.state.global_step
        if self.draining:
            self.hooks.leave_drained(step)
        self.hooks.finish(step)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _link_or_copy(source: str, target: str) -> None:
    """A hard link where both lie on one file system, else a copy."""
    try:
        Path(target).hardlink_to(source)
    except OSError:
        shutil.copy2(source, target)
