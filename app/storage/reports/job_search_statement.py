"""The statements behind the jobs page: a bounded search, its rows, groups, counts and totals.

However many jobs a project has, a search looks at its newest ones, by the index of the list, and at
its live ones. Not here: the facts of the jobs on the page (`job_list_statement`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

import orjson

from app.domain.lifecycle.instance import LIVE_INSTANCE_STATES
from app.domain.lifecycle.job import TERMINAL_JOB_STATES, JobState
from app.domain.spec.names import default_prefixes
from app.storage.reports.job_list_statement import COMPARED
from app.storage.reports.job_search import CONSIDERED_MAX, GROUP_JOBS_MIN, JobOrder, JobSearch
from app.storage.schema.tables import one_of

_TERMINAL: Final = one_of("state", TERMINAL_JOB_STATES)
_LIVE: Final = one_of("instances.state", LIVE_INSTANCE_STATES)
_RANK: Final = f"""CASE WHEN state = '{JobState.RUNNING}' THEN 0
    WHEN state = '{JobState.QUEUED}' THEN 2 WHEN state = '{JobState.PAUSED}' THEN 3
    WHEN {_TERMINAL} THEN 4 ELSE 1 END"""
# "sweep-007" → "sweep"; no regular expression: those took half of the time.
_PREFIX: Final = """CASE WHEN right(name, 1) BETWEEN '0' AND '9'
    AND right(rtrim(name, '0123456789'), 1) = '-'
    THEN left(rtrim(name, '0123456789'), -1) END"""
_COLUMNS: Final = """id, name, state, submitted_at, ended_at, budget_id, cost_final_at,
    on_demand_comparison_microusd"""

_ORDERS: Final = {
    JobOrder.STATE: "rank, recent_at DESC",
    JobOrder.NEWEST: "newest_at DESC",
    JobOrder.OLDEST: "oldest_at",
    JobOrder.NAME: 'title COLLATE "C"',
    JobOrder.COST: "spent DESC, newest_at DESC",
    JobOrder.RATE: "rate DESC, rank, newest_at DESC",
}

_FOUND: Final = """
WITH newest AS MATERIALIZED (
    SELECT {columns}, {labelled} AS labelled FROM jobs WHERE project_id = %(project_id)s
    ORDER BY submitted_at DESC, id DESC LIMIT {considered}
), oldest AS (
    SELECT submitted_at, id FROM newest
    ORDER BY submitted_at DESC, id DESC OFFSET {considered} - 1 LIMIT 1
), older AS (
    SELECT {columns}, {labelled} AS labelled FROM jobs
    WHERE project_id = %(project_id)s AND NOT ({terminal})
        AND (submitted_at, id) < (SELECT submitted_at, id FROM oldest)
    ORDER BY submitted_at DESC, id DESC LIMIT {considered}
), named AS (
    SELECT {columns}, {labelled} AS labelled FROM jobs
    WHERE project_id = %(project_id)s AND name = %(name)s AND {terminal}
        AND (submitted_at, id) < (SELECT submitted_at, id FROM oldest)
), considered AS (
    SELECT * FROM newest UNION ALL SELECT * FROM older UNION ALL SELECT * FROM named
), matching AS MATERIALIZED (
    SELECT *, {rank} AS rank, {prefix} AS prefix FROM considered WHERE {conditions}
), rates AS (
    SELECT instances.job_id, sum(pools.price_microusd_per_hour)::bigint AS rate
    FROM instances JOIN jobs ON jobs.id = instances.job_id
    JOIN pools ON pools.pool = instances.pool
    WHERE {live} AND jobs.project_id = %(project_id)s
        AND instances.launched_at IS NOT NULL AND instances.ended_at IS NULL
    GROUP BY instances.job_id
)
"""
# Jobs that share a prefix become one unit, others a unit each.
_GROUPED: Final = """, prefixes AS MATERIALIZED (
    SELECT prefix FROM matching WHERE {in_states} AND prefix IS NOT NULL
    GROUP BY prefix HAVING count(*) >= {group_min}
), sweeps AS (
    SELECT prefix FROM prefixes WHERE prefix <> ALL(%(made_up)s)
), keyed AS MATERIALIZED (
    SELECT matching.*, sweeps.prefix AS sweep FROM matching
    LEFT JOIN sweeps ON sweeps.prefix = matching.prefix WHERE {in_states}
), units AS (
    SELECT sweep, CASE WHEN sweep IS NULL THEN keyed.id END AS job_id, min(rank) AS rank,
        max(coalesce(ended_at, submitted_at)) AS recent_at,
        max(submitted_at) AS newest_at, min(submitted_at) AS oldest_at,
        min(coalesce(sweep, name)) AS title,
        coalesce(sum({spent}), 0) AS spent, coalesce(sum({rate}), 0) AS rate
    FROM keyed {joins} GROUP BY 1, 2
"""
_SINGLE: Final = """, keyed AS MATERIALIZED (
    SELECT *, NULL::text AS sweep FROM matching WHERE {in_states}
), units AS (
    SELECT sweep, keyed.id AS job_id, rank, coalesce(ended_at, submitted_at) AS recent_at,
        submitted_at AS newest_at, submitted_at AS oldest_at, name AS title,
        {spent} AS spent, coalesce({rate}, 0) AS rate
    FROM keyed {joins}
"""
_PAGE: Final = """), page AS (
    SELECT units.*, row_number() OVER (ORDER BY {order}, title) AS place FROM units
    ORDER BY place LIMIT {limit} OFFSET %(offset)s
), grouped AS (
    SELECT page.place, keyed.state, count(*) AS jobs, sum(budgets.spent_microusd)::bigint AS spent,
        coalesce(sum(rates.rate), 0)::bigint AS rate,
        sum({compared})::bigint AS compared,
        count(*) FILTER (WHERE budgets.spent_microusd <> 0 AND {compared} IS NULL) AS open
    FROM page JOIN keyed ON keyed.sweep = page.sweep
    JOIN budgets ON budgets.id = keyed.budget_id
    LEFT JOIN rates ON rates.job_id = keyed.id
    GROUP BY page.place, keyed.state
)
SELECT json_build_object(
    'rows', (SELECT coalesce(json_agg(json_build_object(
        'prefix', page.sweep, 'job_id', page.job_id, 'newest_at', page.newest_at,
        'by_state', (SELECT json_object_agg(state, jobs) FROM grouped WHERE place = page.place),
        'spent', (SELECT sum(spent)::bigint FROM grouped WHERE place = page.place),
        'rate', (SELECT sum(rate)::bigint FROM grouped WHERE place = page.place),
        'compared', (SELECT CASE WHEN sum(open) = 0 THEN sum(compared)::bigint END
            FROM grouped WHERE place = page.place)
    ) ORDER BY page.place), '[]'::json) FROM page),
    'rows_total', (SELECT count(*) FROM units),
    'jobs_total', (SELECT count(*) FROM keyed),
    'by_state', (SELECT coalesce(json_object_agg(state, jobs), '{{}}'::json) FROM (
        SELECT state, count(*) AS jobs FROM matching GROUP BY state) AS counted),
    'considered', (SELECT count(*) FROM considered),
    'is_cut', EXISTS (SELECT FROM oldest) AND EXISTS (SELECT FROM jobs
        WHERE project_id = %(project_id)s
            AND (submitted_at, id) < (SELECT submitted_at, id FROM oldest)),
    'microusd_per_hour', (SELECT coalesce(sum(rate), 0)::bigint FROM rates),
    'spent_today', (SELECT coalesce(sum(amount_microusd), 0)::bigint FROM cost_rollups
        WHERE project_id = %(project_id)s AND day = %(today)s),
    'running', (SELECT count(*) FROM considered WHERE state = '{running}'),
    'queued', (SELECT count(*) FROM considered WHERE state = '{queued}'),
    'failed_today', (SELECT count(*) FROM considered
        WHERE state = '{failed}' AND ended_at >= %(today_at)s)
)::text
"""
_LABELLED: Final = """coalesce(spec->'labels' @> %(labels)s::jsonb
    AND jsonb_exists_all(spec->'labels', %(label_keys)s::text[]), false)"""
_CHOSEN: Final = """
SELECT matching.id, matching.name, matching.state, budgets.spent_microusd
FROM matching JOIN budgets ON budgets.id = matching.budget_id
WHERE {in_states} AND prefix = ANY(%(prefixes)s) OR {in_states} AND %(everything)s
ORDER BY rank, submitted_at DESC, matching.id DESC LIMIT %(limit)s
"""
CHOSEN_BY_ID: Final = """
SELECT jobs.id, jobs.name, jobs.state, budgets.spent_microusd
FROM jobs JOIN budgets ON budgets.id = jobs.budget_id
WHERE jobs.project_id = %(project_id)s AND jobs.id = ANY(%(ids)s)
ORDER BY jobs.submitted_at DESC, jobs.id DESC
"""


def search_statement(search: JobSearch) -> tuple[str, dict[str, Any]]:
    """The statement and its parameters; it returns one row with one JSON text."""
    conditions, labelled, parameters = _conditions(search)
    statement = _page_statement(
        conditions, labelled, bool(search.states), search.grouped, search.order, int(search.limit)
    )
    return statement, parameters | {
        "offset": search.offset,
        "today": search.today_at.date(),
        "today_at": search.today_at,
        "made_up": _made_up(),
    }


def chosen_statement(
    search: JobSearch, prefixes: Collection[str], everything: bool, limit: int
) -> tuple[str, dict[str, Any]]:
    """(id, name, state, spent_microusd) of what a search finds: all, or what has a prefix."""
    conditions, labelled, parameters = _conditions(search)
    statement = _found(conditions, labelled) + _CHOSEN.format(in_states=_in(bool(search.states)))
    chosen = {"prefixes": list(prefixes), "everything": everything, "limit": limit}
    return statement, parameters | chosen


def _conditions(search: JobSearch) -> tuple[str, bool, dict[str, Any]]:
    conditions = ["labelled"]
    parameters: dict[str, Any] = {"project_id": search.project_id, "name": search.name}
    if search.states:
        parameters["states"] = sorted(search.states)
    if search.name:
        conditions.append("position(%(name)s IN name) > 0")
    if search.prefix:
        conditions.append(f"{_PREFIX} = %(prefix)s")
        parameters["prefix"] = search.prefix
    if search.labels:
        valued = {name: value for name, value in search.labels.items() if value is not None}
        parameters["labels"] = orjson.dumps(valued).decode()
        parameters["label_keys"] = list(search.labels)
    return " AND ".join(conditions), bool(search.labels), parameters


def _in(states: bool) -> str:
    return "matching.state = ANY(%(states)s)" if states else "true"


@lru_cache(maxsize=64)
def _found(conditions: str, labelled: bool) -> str:
    return _FOUND.format(
        columns=_COLUMNS,
        labelled=_LABELLED if labelled else "true",
        considered=CONSIDERED_MAX,
        terminal=_TERMINAL,
        conditions=conditions,
        rank=_RANK,
        prefix=_PREFIX,
        live=_LIVE,
    )


@lru_cache(maxsize=256)
def _page_statement(
    conditions: str, labelled: bool, states: bool, grouped: bool, order: JobOrder, limit: int
) -> str:
    """Sums over every row are taken only where the order needs them."""
    spent, rate, joins = "0", "0", ""
    if order is JobOrder.COST:
        spent, joins = "budgets.spent_microusd", "JOIN budgets ON budgets.id = keyed.budget_id"
    elif order is JobOrder.RATE:
        rate, joins = "rates.rate", "LEFT JOIN rates ON rates.job_id = keyed.id"
    units = (_GROUPED if grouped else _SINGLE).format(
        in_states=_in(states),
        group_min=GROUP_JOBS_MIN,
        spent=spent,
        rate=rate,
        joins=joins,
    )
    page = _PAGE.format(
        order=_ORDERS[order],
        limit=limit,
        running=JobState.RUNNING,
        queued=JobState.QUEUED,
        failed=JobState.FAILED,
        compared=COMPARED,
    )
    return _found(conditions, labelled) + units + page


@lru_cache(maxsize=1)
def _made_up() -> Sequence[str]:
    """Two words that names made for jobs begin with: such jobs have nothing in common."""
    return list(default_prefixes())


def chosen_by_id(project_id: UUID, ids: Collection[UUID]) -> tuple[str, dict[str, Any]]:
    """The same columns for jobs by their ids."""
    return CHOSEN_BY_ID, {"project_id": project_id, "ids": list(ids)}
