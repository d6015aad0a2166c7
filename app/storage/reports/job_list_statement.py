"""The statement behind a page of the list of jobs: keyset order, and JSON made by PostgreSQL.

Each job comes with its `standing`, which `listed_jobs` makes its reason of. Not here: how it is run
(`hot_statements`), or which filters people may write (`app.api`).
"""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from typing import Any, Final

import orjson

from app.domain.deployment.disk_full import DISK_FULL_KEY
from app.domain.lifecycle.attempt import LIVE_ATTEMPT_STATES
from app.domain.lifecycle.instance import LIVE_INSTANCE_STATES, InstanceState
from app.domain.lifecycle.job import CLAIMABLE_JOB_STATES, JobState
from app.storage.reports.job_facts import JobFilter
from app.storage.schema.tables import one_of
from app.storage.session.replacement_statement import REPLACING

# A reason may rest on how the attempt before the one under way ended.
_TRIES: Final = one_of(
    "numbered.state", (*CLAIMABLE_JOB_STATES, JobState.STARTING, JobState.RUNNING)
)
_AT_WORK: Final = one_of("numbered.state", (JobState.STARTING, JobState.RUNNING, JobState.STOPPING))
_LIVE_ATTEMPT: Final = one_of("attempts.state", LIVE_ATTEMPT_STATES)
_LIVE: Final = one_of("instances.state", LIVE_INSTANCE_STATES)
# Seconds to the end, of what `estimates.estimate_remaining` last worked out and stored.
_REMAINING: Final = """(CASE WHEN state = 'running' AND eta_at IS NOT NULL
    THEN ceil(greatest(0, extract(epoch FROM eta_at - %(now)s))) END)::bigint"""
COMPARED: Final = """(CASE WHEN cost_final_at IS NOT NULL AND state <> 'failed'
    THEN on_demand_comparison_microusd END)"""
"""What a job's work would have cost on demand; NULL while it is not final, and of a failed job."""

# Only the rows of the page meet the other tables, each by a key or an index.
_STATEMENT: Final = """
WITH page AS (
    SELECT id, name, budget_id, state, priority, node_count, next_fence, market_mode,
        submitted_at, started_at, ended_at, deadline_at, last_safe_at, claimable_at,
        wait_reason, stop_cause, stop_ordered_at, end_reason, end_message,
        committed_step, total_steps, eta_at, eta_from, cost_final_at, on_demand_comparison_microusd,
        spec->'labels' AS labels,
        coalesce(spec->'nodes', to_jsonb(node_count)) AS nodes
    FROM jobs WHERE {conditions}
    ORDER BY submitted_at DESC, id DESC LIMIT {limit} + 1
), numbered AS (
    SELECT page.*, row_number() OVER (ORDER BY submitted_at DESC, id DESC) AS place FROM page
), live AS (
    SELECT instances.job_id, count(*) AS machines,
        coalesce(sum(pools.price_microusd_per_hour) FILTER (
            WHERE instances.launched_at IS NOT NULL AND instances.ended_at IS NULL
        ), 0)::bigint AS microusd_per_hour,
        json_agg(DISTINCT instances.pool) FILTER (WHERE instances.pool IS NOT NULL) AS pools,
        max(contacts.step) FILTER (WHERE contacts.fence = page.next_fence - 1) AS reported_step,
        bool_or(jsonb_exists(contacts.metrics, '{disk_full_key}')) AS disk_full,
        count(*) FILTER (WHERE instances.state = '{interrupting}') AS interrupted,
        json_agg(instances.pool) FILTER (WHERE instances.registered_at IS NOT NULL) AS registered
    FROM page
    JOIN instances ON instances.job_id = page.id AND {live}
    LEFT JOIN pools ON pools.pool = instances.pool
    LEFT JOIN contacts ON contacts.instance_id = instances.id
    GROUP BY instances.job_id
), shown AS (
    SELECT numbered.*, budgets.cap_microusd, budgets.spent_microusd,
        coalesce(now.machines, 0) AS machines,
        coalesce(now.microusd_per_hour, 0) AS microusd_per_hour,
        coalesce(now.pools, '[]'::json) AS pools, now.disk_full, {replacing} AS replacing,
        EXISTS (
            SELECT FROM instances AS rated
            WHERE rated.job_id = numbered.id AND rated.rating->>'waived' = 'true'
        ) AS waived,
        greatest(numbered.committed_step, coalesce(now.reported_step, 0)) AS step,
        json_build_object(
            'wait_reason', numbered.wait_reason, 'end_message', numbered.end_message,
            'stop_ordered_at', numbered.stop_ordered_at,
            'committed_step', numbered.committed_step,
            'last_end', CASE WHEN last.end_reason IS NOT NULL THEN json_build_array(
                last.end_reason, last.end_message, last.committed_step) END,
            'attempt', CASE WHEN trying.state IS NOT NULL THEN json_build_array(
                trying.state, trying.node_count, trying.drain_cause, trying.drain_until_at) END,
            'registered', coalesce(now.registered, '[]'::json),
            'interrupted', coalesce(now.interrupted, 0),
            'disk_full', coalesce(now.disk_full, false),
            'has_checkpoint', numbered.state = '{recovering}' AND EXISTS (
                SELECT FROM checkpoints WHERE checkpoints.job_id = numbered.id
                AND (NOT checkpoints.final OR checkpoints.size_bytes > 0))
        ) AS standing
    FROM numbered
    JOIN budgets ON budgets.id = numbered.budget_id
    LEFT JOIN live AS now ON now.job_id = numbered.id
    LEFT JOIN LATERAL (
        SELECT attempts.* FROM attempts
        WHERE attempts.job_id = numbered.id AND attempts.end_reason IS NOT NULL
        ORDER BY attempts.fence DESC LIMIT 1
    ) AS last ON {tries}
    LEFT JOIN LATERAL (
        SELECT attempts.* FROM attempts
        WHERE attempts.job_id = numbered.id AND {live_attempt} LIMIT 1
    ) AS trying ON {at_work}
    WHERE place <= {limit}
)
SELECT json_build_object(
    'items', coalesce(json_agg(json_build_object(
        'id', id, 'name', name, 'state', state, 'priority', priority,
        'standing', standing, 'disk_full', state = 'running' AND coalesce(disk_full, false),
        'stop_cause', stop_cause,
        'end_reason', end_reason, 'next_look_at', claimable_at,
        'submitted_at', submitted_at, 'started_at', started_at, 'ended_at', ended_at,
        'deadline_at', deadline_at, 'last_safe_at', last_safe_at,
        'step', step, 'total_steps', total_steps,
        'percent', CASE WHEN state = 'succeeded' THEN 100.0
            WHEN total_steps > 0 THEN trunc(least(100.0, 100.0 * step / total_steps), 1) END,
        'remaining_seconds', {remaining},
        'eta_from', CASE WHEN {remaining} IS NOT NULL THEN eta_from END,
        'node_count', node_count, 'nodes', nodes, 'machines', machines, 'pools', pools,
        'replacing', replacing,
        'market_mode', market_mode, 'microusd_per_hour', microusd_per_hour,
        'spent_microusd', spent_microusd, 'budget_microusd', cap_microusd,
        'waived', waived,
        'net_saved_microusd', {compared} - spent_microusd,
        'net_saved_ratio', round(1 - spent_microusd::numeric / nullif({compared}, 0), 6),
        'labels', coalesce(labels, '{{}}'::jsonb)
    ) ORDER BY place), '[]'::json),
    'next', CASE WHEN (SELECT count(*) FROM page) > {limit} THEN
        (SELECT (extract(epoch FROM submitted_at) * 1000000)::bigint || '-' || id
         FROM numbered WHERE place = {limit}) END
)::text FROM shown
"""


def list_statement(wanted: JobFilter, now: datetime) -> tuple[str, dict[str, Any]]:
    """The statement and its parameters; it returns one row with one JSON text.

    now: the instant from which the time to each end is told.
    """
    conditions, parameters = _conditions(wanted)
    return _statement(conditions, int(wanted.limit)), {**parameters, "now": now}


def matching_statement(wanted: JobFilter) -> tuple[str, dict[str, Any]]:
    """The statement and its parameters for (id, name, submitted_at) alone, in the list's order."""
    conditions, parameters = _conditions(wanted)
    return (
        f"SELECT id, name, submitted_at FROM jobs WHERE {conditions} "
        f"ORDER BY submitted_at DESC, id DESC LIMIT {int(wanted.limit)}"
    ), parameters


def _conditions(wanted: JobFilter) -> tuple[str, dict[str, Any]]:
    conditions = ["project_id = %(project_id)s"]
    parameters: dict[str, Any] = {"project_id": wanted.project_id}
    if wanted.states:
        conditions.append("state = ANY(%(states)s)")
        parameters["states"] = list(wanted.states)
    if wanted.name is not None:
        conditions.append("position(%(name)s IN name) > 0")
        parameters["name"] = wanted.name
    if wanted.labels:
        conditions.append("spec->'labels' @> %(labels)s::jsonb")
        parameters["labels"] = orjson.dumps(dict(wanted.labels)).decode()
    if wanted.since is not None:
        conditions.append("submitted_at >= %(since)s")
        parameters["since"] = wanted.since
    if wanted.ids is not None:
        conditions.append("id = ANY(%(ids)s)")
        parameters["ids"] = list(wanted.ids)
    if wanted.before is not None:
        conditions.append("(submitted_at, id) < (%(before_at)s, %(before_id)s)")
        parameters["before_at"], parameters["before_id"] = wanted.before
    return " AND ".join(conditions), parameters


@lru_cache(maxsize=256)
def _statement(conditions: str, limit: int) -> str:
    """The limit stands in the text: a plan that is kept for any limit would be one for all rows."""
    return _STATEMENT.format(
        conditions=conditions,
        limit=limit,
        live=_LIVE,
        replacing=REPLACING.format(job="numbered"),
        tries=_TRIES,
        at_work=_AT_WORK,
        live_attempt=_LIVE_ATTEMPT,
        interrupting=InstanceState.INTERRUPTING,
        recovering=JobState.RECOVERING,
        remaining=_REMAINING,
        compared=COMPARED,
        disk_full_key=DISK_FULL_KEY,
    )
