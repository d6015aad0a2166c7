"""The statement behind a page of the list of jobs: keyset order, and JSON made by PostgreSQL.

Not here: how it is run (`hot_statements`) or which filters people may write (`app.api`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import orjson

from app.adapters.postgres.tables import one_of
from app.domain.disk_full import DISK_FULL_KEY, DISK_FULL_SENTENCE
from app.domain.gang_scaling import SERIAL_SHARE
from app.domain.instance import LIVE_INSTANCE_STATES
from app.ports.job_reports import JobFilter

_LIVE: Final = one_of("instances.state", LIVE_INSTANCE_STATES)
# As `app.orchestration.estimate_remaining` says it of one job; a test holds the two together. Only
# what data sheets make of an estimate for another kind of GPU is left to the job's own page.
_SECONDS_MAX: Final = 100 * 365 * 86_400
_STEPS_MIN: Final = 10
_SECONDS_ENOUGH: Final = 300
_ESTIMATE_LEFT_MIN: Final = 0.1
_REMAINING: Final = f"""(CASE WHEN state <> 'running' THEN NULL
            WHEN total_steps IS NULL AND estimate_seconds IS NULL THEN NULL
            WHEN total_steps IS NULL THEN least({_SECONDS_MAX}, ceil(greatest(1,
                estimate_seconds - done_seconds, estimate_seconds * {_ESTIMATE_LEFT_MIN}::float8)))
            WHEN steps_per_second IS NOT NULL THEN
                least({_SECONDS_MAX}, ceil(greatest(0, total_steps - step) / steps_per_second))
            ELSE ceil(estimate_seconds * greatest(0, total_steps - step)
                / greatest(1, total_steps)) END)::bigint"""
_COMPARED: Final = "(CASE WHEN cost_final_at IS NOT NULL THEN on_demand_comparison_microusd END)"


def _pace(count: str) -> str:
    """As `app.domain.gang_scaling.GangScaling.speed_up` has it."""
    share = f"coalesce(serial_share, {SERIAL_SHARE})::float8"
    return f"({count} / (1 + {share} * ({count} - 1)))"


# An elastic gang's seconds count as those of one of full size.
_OF_FULL_SIZE: Final = (
    f"CASE WHEN nodes_most = '' THEN 1.0 ELSE {_pace('coalesce(attempts.node_count, 1)')}"
    f" / {_pace('nodes_most::int')} END::float8"
)
_OF_ESTIMATE: Final = (
    f"({_pace('coalesce(attempts.node_count, 1)')} / {_pace('estimate_nodes')})::float8"
)

# Only the rows of the page meet the other tables, each by a key or an index.
_STATEMENT: Final = """
WITH page AS (
    SELECT id, name, budget_id, state, priority, node_count, next_fence, market_mode,
        submitted_at, started_at, ended_at, deadline_at, last_safe_at, claimable_at,
        wait_reason, stop_cause, end_reason, end_message, committed_step, total_steps,
        trained_steps, trained_seconds, serial_share,
        cost_final_at, on_demand_comparison_microusd,
        spec->'labels' AS labels,
        CASE WHEN jsonb_typeof(spec->'estimate') = 'object' THEN
            greatest(1, round((spec->'estimate'->>'hours')::float8 * 3600)) END
            AS estimate_whole_seconds,
        coalesce((spec->'estimate'->>'nodes')::int, 1) AS estimate_nodes,
        coalesce(split_part(spec->>'nodes', '..', 2), '') AS nodes_most,
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
        (array_agg(contacts.step_at ORDER BY contacts.step DESC NULLS LAST) FILTER (
            WHERE contacts.fence = page.next_fence - 1
        ))[1] AS reported_at,
        bool_or(jsonb_exists(contacts.metrics, '{disk_full_key}')) AS disk_full
    FROM page
    JOIN instances ON instances.job_id = page.id AND {live}
    LEFT JOIN pools ON pools.pool = instances.pool
    LEFT JOIN contacts ON contacts.instance_id = instances.id
    GROUP BY instances.job_id
), shown AS (
    SELECT numbered.*, budgets.cap_microusd, budgets.spent_microusd,
        coalesce(now.machines, 0) AS machines,
        coalesce(now.microusd_per_hour, 0) AS microusd_per_hour,
        coalesce(now.pools, '[]'::json) AS pools, now.disk_full,
        greatest(numbered.committed_step, coalesce(now.reported_step, 0)) AS step,
        CASE WHEN pace.steps > 0 AND pace.seconds > 0
                AND (pace.steps >= {steps_min} OR pace.seconds >= {seconds_enough})
            THEN pace.steps / pace.seconds * size.pace END AS steps_per_second,
        estimate_whole_seconds / size.of_estimate AS estimate_seconds,
        CASE WHEN now.reported_step IS NULL
            THEN coalesce(greatest(0,
                extract(epoch FROM attempts.committed_at - attempts.trained_at)::float8), 0)
            ELSE 0 END AS unstepped_seconds
    FROM numbered
    JOIN budgets ON budgets.id = numbered.budget_id
    LEFT JOIN live AS now ON now.job_id = numbered.id
    LEFT JOIN attempts ON numbered.state = 'running'
        AND attempts.job_id = numbered.id AND attempts.fence = numbered.next_fence - 1
    CROSS JOIN LATERAL (
        SELECT now.reported_step > coalesce(attempts.parent_step, 0)
            AND now.reported_at > attempts.trained_at AS moves
    ) AS attempt
    CROSS JOIN LATERAL (
        SELECT {of_full_size} AS pace, {of_estimate} AS of_estimate
    ) AS size
    CROSS JOIN LATERAL (
        SELECT coalesce(numbered.trained_steps, 0) + CASE WHEN attempt.moves
                THEN now.reported_step - coalesce(attempts.parent_step, 0) ELSE 0 END AS steps,
            coalesce(numbered.trained_seconds, 0) + CASE WHEN attempt.moves
                THEN extract(epoch FROM now.reported_at - attempts.trained_at)::float8 * size.pace
                ELSE 0 END AS seconds
    ) AS pace
    WHERE place <= {limit}
), told AS (
    SELECT shown.*, coalesce(step / steps_per_second, unstepped_seconds) AS done_seconds FROM shown
)
SELECT json_build_object(
    'items', coalesce(json_agg(json_build_object(
        'id', id, 'name', name, 'state', state, 'priority', priority,
        'why', coalesce(end_message, wait_reason,
            CASE WHEN state = 'running' AND disk_full THEN '{disk_full}' END),
        'disk_full', state = 'running' AND coalesce(disk_full, false),
        'stop_cause', stop_cause,
        'end_reason', end_reason, 'next_look_at', claimable_at,
        'submitted_at', submitted_at, 'started_at', started_at, 'ended_at', ended_at,
        'deadline_at', deadline_at, 'last_safe_at', last_safe_at,
        'step', step, 'total_steps', total_steps,
        'percent', CASE WHEN state = 'succeeded' THEN 100.0
            WHEN total_steps > 0 THEN round(least(100.0, 100.0 * step / total_steps), 1) END,
        'remaining_seconds', {remaining},
        'eta_from', CASE WHEN {remaining} IS NULL THEN NULL
            WHEN steps_per_second IS NULL THEN 'estimate' ELSE 'measured' END,
        'node_count', node_count, 'nodes', nodes, 'machines', machines, 'pools', pools,
        'market_mode', market_mode, 'microusd_per_hour', microusd_per_hour,
        'spent_microusd', spent_microusd, 'budget_microusd', cap_microusd,
        'net_saved_microusd', {compared} - spent_microusd,
        'net_saved_ratio', round(1 - spent_microusd::numeric / nullif({compared}, 0), 6),
        'labels', coalesce(labels, '{{}}'::jsonb)
    ) ORDER BY place), '[]'::json),
    'next', CASE WHEN (SELECT count(*) FROM page) > {limit} THEN
        (SELECT (extract(epoch FROM submitted_at) * 1000000)::bigint || '-' || id
         FROM numbered WHERE place = {limit}) END
)::text FROM told
"""


def list_statement(wanted: JobFilter) -> tuple[str, dict[str, Any]]:
    """The statement and its parameters; it returns one row with one JSON text."""
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
    if wanted.before is not None:
        conditions.append("(submitted_at, id) < (%(before_at)s, %(before_id)s)")
        parameters["before_at"], parameters["before_id"] = wanted.before
    return _statement(" AND ".join(conditions), int(wanted.limit)), parameters


@lru_cache(maxsize=256)
def _statement(conditions: str, limit: int) -> str:
    """The limit stands in the text: a plan that is kept for any limit would be one for all rows."""
    return _STATEMENT.format(
        conditions=conditions,
        limit=limit,
        live=_LIVE,
        remaining=_REMAINING,
        compared=_COMPARED,
        steps_min=_STEPS_MIN,
        seconds_enough=_SECONDS_ENOUGH,
        of_full_size=_OF_FULL_SIZE,
        of_estimate=_OF_ESTIMATE,
        disk_full_key=DISK_FULL_KEY,
        disk_full=DISK_FULL_SENTENCE,
    )
