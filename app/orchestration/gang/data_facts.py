"""Facts of what surrounds the work: the exact image it runs in, and what became of its outputs.

They change no state; people see them in the job's history. Not here: any other fact
(`apply_facts`).
"""

from __future__ import annotations

from app.domain.lifecycle.attempt_verdict import MemberOutcome
from app.domain.lifecycle.events import JobEventKind
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.frame.fact_context import FactContext, whole_number

_SENTENCE_MAX = 1_000
_ADDRESSES_MAX = 16


def record_image(context: FactContext) -> None:
    """Rank 0 says which image the attempt runs in; the others run in the same."""
    image = context.fact.data.get("image")
    member = context.member
    if not isinstance(image, str) or not image or member is None or member.node_rank != 0:
        return
    context.aggregate.record(
        JobEventKind.IMAGE_PINNED,
        f"This attempt runs in {image[:_SENTENCE_MAX]}.",
        about=context.instance,
        fence=context.fact.fence,
        image=image[:_SENTENCE_MAX],
    )


def record_outputs(context: FactContext) -> None:
    """What a finished trainer left is in the job's buckets, or why it is not."""
    data = context.fact.data
    error = data.get("error")
    if error is not None:
        text = str(error)[:_SENTENCE_MAX]
        context.aggregate.record(
            JobEventKind.OUTPUTS_NOT_SAVED,
            f"{text[:1].upper()}{text[1:]}.",
            about=context.instance,
            fence=context.fact.fence,
        )
        return
    told = data.get("addresses")
    addresses = [str(one)[:_SENTENCE_MAX] for one in told] if isinstance(told, list) else []
    files, size = whole_number(data.get("files")) or 0, whole_number(data.get("size_bytes")) or 0
    context.aggregate.record(
        JobEventKind.OUTPUTS_SAVED,
        f"Outputs are saved: {files:,} file{'' if files == 1 else 's'}, {size:,} bytes at "
        f"{' and '.join(addresses[:_ADDRESSES_MAX])}.",
        about=context.instance,
        fence=context.fact.fence,
        files=files,
        size_bytes=size,
    )


def record_untold_outputs(aggregate: JobAggregate) -> None:
    """The work is done, but a machine that ended meanwhile never told of its outputs.

    A machine that says it has finished has told of them before.
    """
    silent = [one.node_rank for one in aggregate.members if one.outcome != MemberOutcome.FINISHED]
    if not aggregate.spec.outputs or not silent:
        return
    nodes = ", ".join(str(rank) for rank in sorted(silent))
    aggregate.record(
        JobEventKind.OUTPUTS_NOT_SAVED,
        f"The job is done, but node {nodes} ended before it could tell whether its outputs are "
        "saved. The final checkpoint is safe.",
    )
