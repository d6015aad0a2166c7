"""Whether what a machine has saved still gets into the store before the machine is taken.

From the speed of the uploads before. A prediction only chooses what is uploaded first and says
what is to be expected: whatever is left over is tried all the same, for a manifest that comes too
late changes nothing. Not here: the deadline itself (`attempt_ending`).
"""

from __future__ import annotations

from dataclasses import replace

from trainer.agent.rules.actions import Say
from trainer.agent.rules.agent_state import LocalCheckpoint, Work
from trainer.agent.rules.observations import CheckpointPublished
from trainer.agent.rules.step_context import StepContext

LEAST_BYTES = 1 << 20
"""Smaller uploads measure the requests, not the speed."""


def record_speed(context: StepContext, work: Work, seen: CheckpointPublished) -> None:
    """Learn from an upload that has just ended: half of it, half of what was known before."""
    if work.publishing != seen.checkpoint or work.publishing_since is None:
        return
    seconds = context.now - work.publishing_since
    sent = seen.size_bytes if seen.sent_bytes is None else seen.sent_bytes
    if seconds <= 0 or sent < LEAST_BYTES:
        return
    speed, before = sent / seconds, context.state.upload_bytes_per_second
    mean = speed if before is None else (speed + before) / 2
    context.state = replace(context.state, upload_bytes_per_second=mean)


def fits_only_in_part(
    context: StepContext, checkpoint: LocalCheckpoint, deadline: float | None
) -> bool:
    """Whether it will be in time without what it may do without, and not with it.

    Never the last one of a finished run: nobody trains on from there, so it must have everything.
    """
    speed, least = context.state.upload_bytes_per_second, _least_bytes(checkpoint)
    if speed is None or deadline is None or checkpoint.optional_bytes == 0 or checkpoint.final:
        return False
    left = deadline - context.now
    return least / speed <= left < checkpoint.size_bytes / speed


def is_better_finished(context: StepContext, work: Work, deadline: float | None) -> bool:
    """Whether the upload under way will be in time, and the newer one in its place would not be.

    False where anything is unknown: then the newest goes first.
    """
    speed, since = context.state.upload_bytes_per_second, work.publishing_since
    if speed is None or since is None or deadline is None:
        return False
    if work.publishing is None or work.waiting is None or work.publishing.size_bytes == 0:
        return False
    newer, older = _least_bytes(work.waiting) / speed, work.publishing.size_bytes / speed
    return newer > deadline - context.now and since + older <= deadline


def say_what_to_expect(
    context: StepContext, work: Work, checkpoint: LocalCheckpoint, deadline: float | None
) -> None:
    """One line in the logs when a last checkpoint will not fit, and what counts then."""
    speed = context.state.upload_bytes_per_second
    if speed is None or deadline is None:
        return
    needed, left = checkpoint.size_bytes / speed, deadline - context.now
    if needed <= left:
        return
    context.do(
        Say(
            work.fence,
            f"the checkpoint of step {checkpoint.step:,} ({checkpoint.size_bytes / 1e6:.0f} MB)"
            f" needs about {needed:.0f} s at {speed / 1e6:.0f} MB/s, and {max(0, left):.0f} s are"
            " left: " + _what_follows(context, work, checkpoint, deadline),
        )
    )


def _what_follows(
    context: StepContext, work: Work, checkpoint: LocalCheckpoint, deadline: float | None
) -> str:
    if fits_only_in_part(context, checkpoint, deadline):
        return f"{checkpoint.optional_bytes / 1e6:.0f} MB that it may do without are left out"
    counts = None if work.committed is None else work.committed.step
    waiting = replace(work, waiting=checkpoint)
    if work.publishing is not None and is_better_finished(context, waiting, deadline):
        counts = work.publishing.step
    then = "the attempt's start" if counts is None else f"step {counts:,}"
    return f"unless the store gets faster, {then} counts"


def _least_bytes(checkpoint: LocalCheckpoint) -> int:
    return checkpoint.size_bytes - checkpoint.optional_bytes
