"""The hooks for Lightning.

Here: one callback that saves periodically and at a drain, and reports. Not here: what a checkpoint
holds: that is Lightning's own file, ``last.ckpt``. A DataLoader that shuffles by itself starts its
epoch anew after a resume; give it state (``torchdata.StatefulDataLoader``) or a fixed order. ::

    hooks = Hooks()
    callback = CheckpointCallback(hooks, every_steps=500)
    trainer = Trainer(..., callbacks=[callback], enable_checkpointing=False)
    trainer.fit(module, data, ckpt_path=callback.resume_from())
    callback.leave(trainer)

Sharded strategies (FSDP) on several machines are saved by all of them. A periodic save that fails
is a line in the log and training goes on; the last one must succeed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from lightning.pytorch import Callback
from lightning.pytorch.plugins.io import CheckpointIO

if TYPE_CHECKING:
    from trainer.hooks import Hooks

FILE = "last.ckpt"


class CheckpointCallback(Callback):
    """Saves every ``every_steps`` optimizer steps, at the end, and when asked to leave."""

    def __init__(self, hooks: Hooks, every_steps: int = 500) -> None:
        self.hooks = hooks
        self.every_steps = every_steps
        self.draining = False
        self._saved = -1

    def resume_from(self) -> str | None:
        """For ``Trainer.fit(ckpt_path=...)``."""
        folder = self.hooks.resume()
        return str(folder / FILE) if folder else None

    def on_train_start(self, *_: Any, **__: Any) -> None:
        """Takes SIGTERM back from Lightning, whose own handler ends the process with status 0."""
        self.hooks.listen()

    def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
        """After each batch; with accumulation only where an optimizer step ended."""
        step = trainer.global_step
        if step == self._saved or step == 0:
            return
        numbers = {name: float(value) for name, value in trainer.callback_metrics.items()}
        self.hooks.progress(step, _total_steps(trainer), **numbers)
        self.draining = self.hooks.should_drain()
        if self.draining or step % self.every_steps == 0:
            self._save(trainer, step, may_fail=not self.draining)
        if self.draining:
            trainer.should_stop = True

    def leave(self, trainer: Any) -> NoReturn:
        """After ``fit()``: saves the end, ends the process (drained or finished). Never returns."""
        step = trainer.global_step
        if self.draining:
            self.hooks.leave_drained(step)
        self._save(trainer, step, final=True)
        self.hooks.finish(step)

    def _save(self, trainer: Any, step: int, final: bool = False, may_fail: bool = False) -> None:
        # Lightning's saving is a collective: every rank must call it.
        def write(folder: Path) -> None:
            _write(trainer, folder / FILE)

        if may_fail:
            self.hooks.try_save(step, write, every_rank=True)
        else:
            self.hooks.save(step, write, final=final, every_rank=True)
        self._saved = step


class _LateErrors(CheckpointIO):
    """Lightning's own writing, with its error kept until all ranks have met behind it."""

    def __init__(self, inner: CheckpointIO) -> None:
        self.inner = inner
        self.error: Exception | None = None

    def save_checkpoint(self, *args: Any, **options: Any) -> None:
        try:
            self.inner.save_checkpoint(*args, **options)
        except Exception as error:
            self.error = error

    def load_checkpoint(self, *args: Any, **options: Any) -> Any:
        return self.inner.load_checkpoint(*args, **options)

    def remove_checkpoint(self, path: Any) -> None:
        self.inner.remove_checkpoint(path)


def _write(trainer: Any, path: Path) -> None:
    """Rank 0's error is raised behind Lightning's barrier, where the others would wait for it."""
    strategy = trainer.strategy
    late = _LateErrors(strategy.checkpoint_io)
    strategy.checkpoint_io = late
    try:
        trainer.save_checkpoint(path)
    finally:
        strategy.checkpoint_io = late.inner
    if late.error is not None:
        raise late.error


def _total_steps(trainer: Any) -> int | None:
    """Optimizer steps of the whole run; None where Lightning cannot tell."""
    total = trainer.estimated_stepping_batches
    return int(total) if total not in (-1, float("inf")) else None
