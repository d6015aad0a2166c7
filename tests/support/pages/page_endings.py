"""How the job of `page_story` may end: paused, failed on one node, succeeded.

Here: rows as the controllers leave them. Not here: the job's past (`page_story`).
"""

from __future__ import annotations

import json
from uuid import UUID

from app.domain.lifecycle.end_reason import EndReason
from app.domain.lifecycle.job import JobState
from app.orchestration.agents.append_logs import append_log
from tests.support.pages.page_story import AGE_SECONDS, PageStory

LOST_PEER = {"error": {"type": "DistError", "message": "gone", "peer_communication": True}}
NOTHING_TOLD = {"error": {"type": None, "message": "what it wrote is in the logs"}}


def stop_attempts(story: PageStory, state: str, reason: EndReason) -> None:
    """The live attempt has ended, and every machine is gone."""
    with story.engine.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE attempts SET state = %s, ended_at = now(), end_reason = %s, "
            "committed_at = now(), (best_step, committed_step) = (SELECT max(step), max(step) "
            "FROM checkpoints WHERE checkpoints.job_id = attempts.job_id) WHERE state = 'running'",
            (state, reason.value),
        )
        connection.exec_driver_sql(
            "UPDATE instances SET state = 'terminated', ended_at = now(), ended_by = 'us' "
            "WHERE ended_at IS NULL"
        )


def pause(story: PageStory, job_id: UUID) -> None:
    """Paused by a person, at what was saved last."""
    stop_attempts(story, "stopped", EndReason.USER_PAUSED)
    story.change(
        job_id, state=JobState.PAUSED, paused_at=story.after(AGE_SECONDS),
        end_message="Paused by ada.", trained_steps=500, trained_seconds=800.0,
    )  # fmt: skip


def fail(story: PageStory, job_id: UUID, node: int, log: str) -> None:
    """The command of one node has failed; the other one died of that, and reported it first."""
    stop_attempts(story, "failed", EndReason.USER_ERROR)
    stream = f"attempt-0002/node-{node}.log"
    machine = story.writer_of(job_id, stream)
    append_log(story.runtime, machine, stream, story.log_size(job_id, stream), log.encode())
    with story.engine.begin() as connection:
        for rank in (0, 1):
            connection.exec_driver_sql(
                'UPDATE attempt_members SET outcome = %s, exit_code = 1, "end" = %s '
                "WHERE node_rank = %s AND attempt_id IN "
                "(SELECT id FROM attempts WHERE fence = 2)",
                ("failed", json.dumps(NOTHING_TOLD if rank == node else LOST_PEER), rank),
            )
    message = f"Node {node} failed with exit code 1: what it wrote is in the logs."
    with story.engine.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE attempts SET end_message = %s WHERE fence = 2", (message,)
        )
    ended_at = story.after(AGE_SECONDS)
    story.change(
        job_id, state=JobState.FAILED, ended_at=ended_at, cost_final_at=ended_at,
        end_reason=EndReason.USER_ERROR, end_message=message,
    )  # fmt: skip


def report_error(story: PageStory, node: int, kind: str, message: str) -> None:
    """The trainer of a failed node reported its exception by itself."""
    end = json.dumps({"error": {"type": kind, "message": message}})
    with story.engine.begin() as connection:
        connection.exec_driver_sql(
            'UPDATE attempt_members SET "end" = %s '
            "WHERE node_rank = %s AND attempt_id IN (SELECT id FROM attempts WHERE fence = 2)",
            (end, node),
        )


def succeed(story: PageStory, job_id: UUID) -> None:
    """Done, and its cost is final."""
    stop_attempts(story, "succeeded", EndReason.FINISHED)
    ended_at = story.after(AGE_SECONDS)
    story.change(
        job_id, state=JobState.SUCCEEDED, ended_at=ended_at, cost_final_at=ended_at,
        end_reason=EndReason.FINISHED, committed_step=1000,
    )  # fmt: skip
