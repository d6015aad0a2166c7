"""The statement behind a page of the list of jobs: keyset order, and JSON made by PostgreSQL.

Not here: how it is run (`hot_statements`) or which filters people may write (`app.api`).
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from app.adapters.postgres.tables import one_of
from app.domain.instance import LIVE_INSTANCE_STATES
from app.ports.job_reports import JobFilter

_LIVE: Final = one_of("instances.state", LIVE_INSTANCE_STATES)

# Only the rows of the page meet the other tables, each by a key or an index.
_STATEMENT: Final = """
WITH page AS (
    SELECT id, name, budget_id, state, priority, node_count, next_fence, market_mode,
        submitted_at, started_at, ended_at, deadline_at, last_safe_at, claimable_at,
        wait_reason, stop_cause, end_reason, end_message, committed_step, total_steps,
        spec->'labels' AS labels
    FROM jobs WHERE {conditions}
    ORDER BY submitted_at DESC, id DESC LIMIT %(limit)s + 1
), numbered AS (
    SELECT page.*, row_number() OVER (ORDER BY submitted_at DESC, id DESC) AS place FROM page
), shown AS (
    SELECT numbered.*, budgets.cap_microusd, budgets.spent_microusd, now.*,
        greatest(committed_step, coalesce(now.reported_step, 0)) AS step
    FROM numbered
    JOIN budgets ON budgets.id = numbered.budget_id
    CROSS JOIN LATERAL (
        SELECT count(*) AS machines,
            coalesce(sum(pools.price_microusd_per_hour) FILTER (
                WHERE instances.launched_at IS NOT NULL AND instances.ended_at IS NULL
            ), 0)::bigint AS microusd_per_hour,
            coalesce(
                json_agg(DISTINCT instances.pool) FILTER (WHERE instances.pool IS NOT NULL),
                '[]'::json
            ) AS pools,
            max(contacts.step) FILTER (WHERE contacts.fence = numbered.next_fence - 1)
                AS reported_step
        FROM instances
        LEFT JOIN pools ON pools.pool = instances.pool
        LEFT JOIN contacts ON contacts.instance_id = instances.id
        WHERE instances.job_id = numbered.id AND {live}
    ) AS now
    WHERE place <= %(limit)s
)
SELECT json_build_object(
    'items', coalesce(json_agg(json_build_object(
        'id', id, 'name', name, 'state', state, 'priority', priority,
        'why', coalesce(end_message, wait_reason), 'stop_cause', stop_cause,
        'end_reason', end_reason, 'next_look_at', claimable_at,
        'submitted_at', submitted_at, 'started_at', started_at, 'ended_at', ended_at,
        'deadline_at', deadline_at, 'last_safe_at', last_safe_at,
        'step', step, 'total_steps', total_steps,
        'percent', CASE WHEN state = 'succeeded' THEN 100.0
            WHEN total_steps > 0 THEN round(least(100.0, 100.0 * step / total_steps), 1) END,
        'node_count', node_count, 'machines', machines, 'pools', pools,
        'market_mode', market_mode, 'microusd_per_hour', microusd_per_hour,
        'spent_microusd', spent_microusd, 'budget_microusd', cap_microusd,
        'labels', coalesce(labels, '{{}}'::jsonb)
    ) ORDER BY place), '[]'::json),
    'next', CASE WHEN (SELECT count(*) FROM page) > %(limit)s THEN
        (SELECT (extract(epoch FROM submitted_at) * 1000000)::bigint || '-' || id
         FROM numbered WHERE place = %(limit)s) END
)::text FROM shown
"""


def list_statement(wanted: JobFilter) -> tuple[str, dict[str, Any]]:
    """The statement and its parameters; it returns one row with one JSON text."""
    conditions = ["project_id = %(project_id)s"]
    parameters: dict[str, Any] = {"project_id": wanted.project_id, "limit": wanted.limit}
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
    return _STATEMENT.format(conditions=" AND ".join(conditions), live=_LIVE), parameters
