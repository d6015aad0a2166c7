"""What checkpoints mean for a job, in words: why it has none, and where an attempt went on."""

from __future__ import annotations

from app.domain.lifecycle.job import TERMINAL_JOB_STATES, JobState


def why_no_checkpoint(subject: str, state: JobState, *, removed: bool) -> str:
    """The sentence without its full stop. subject: the job, as the sentence begins with it;
    removed: whether one was there and has been removed since.
    """
    if removed:
        return f"{subject} has no checkpoint any more: all of them have been removed"
    if state in TERMINAL_JOB_STATES:
        return f"{subject} saved no checkpoint, and has ended"
    if state is JobState.PAUSED:
        return f"{subject} saved no checkpoint: when resumed, it starts again from the beginning"
    return (
        f"{subject} has no checkpoint yet: the first one is saved some time after training begins"
    )


def where_it_went_on(parent_step: int | None, saved_step: int) -> str:
    """Where an attempt after the first began: "resumed at step 341".

    parent_step: of the checkpoint that it restored, None for none. saved_step: the highest that
    attempts before it had saved, 0 for none.
    """
    if parent_step:
        return f"resumed at step {parent_step:,}"
    if parent_step is not None:
        return f"resumed {where_it_starts(parent_step, saved_step)}"
    return f"started again {where_it_starts(parent_step, saved_step)}"


def where_it_starts(parent_step: int | None, saved_step: int) -> str:
    """The same of an attempt that has not made a step yet: "from step 341"."""
    if parent_step:
        return f"from step {parent_step:,}"
    if parent_step is not None:
        return "from its last checkpoint"  # of a program that counts no steps
    because = "no checkpoint had been saved" if saved_step == 0 else "no checkpoint was restored"
    return f"from the beginning: {because}"


def where_it_continues(committed_step: int, *, saved: bool) -> tuple[str, str]:
    """Where the next attempt begins: how its sentence starts, and the reason that ends it, or "".

    saved: whether the job has a checkpoint.
    """
    if not saved:
        return "It starts again from the beginning", ": no checkpoint was saved"
    place = f"step {committed_step:,}" if committed_step else "its last checkpoint"
    return f"It continues from {place}", ""
