"""Machines that are on the way in place of lost ones, as the words that people read.

One expression for the list of jobs and for one job. Not here: why machines were lost.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import text

from app.domain.lifecycle.attempt import AttemptState
from app.domain.lifecycle.instance import LIVE_INSTANCE_STATES, InstanceState
from app.domain.lifecycle.job import JobState
from app.storage.schema.tables import one_of

_GOING_ON: Final = (JobState.RUNNING, JobState.STARTING, JobState.RECOVERING)
_COMING: Final = (InstanceState.REQUESTED, InstanceState.LAUNCHING, InstanceState.LAUNCHED)
_LOST: Final = (AttemptState.INTERRUPTED, AttemptState.LOST)

# Machines that are asked for beside survivors say so; a gang that lost all of them is asked for as
# a whole, after an attempt that lost machines. Those that stay tell the place: a gang has one zone.
# Without them there is none until the cloud has accepted the request in one of the pools bid on.
REPLACING: Final = """(CASE WHEN {{job}}.started_at IS NOT NULL AND {going_on} THEN (
    SELECT CASE WHEN count(*) FILTER (WHERE machine.comes) > 0 THEN
        'replacing ' || least(count(*) FILTER (WHERE machine.comes), {{job}}.node_count)
        || ' of ' || {{job}}.node_count
        || coalesce(' in ' || coalesce(min(machine.place) FILTER (WHERE machine.stays),
            min(machine.place) FILTER (WHERE machine.comes)), ': choosing a pool') END
    FROM (
        SELECT instances.state = '{registered}' AS stays,
            split_part(instances.pool, '/', 1) || ' ' || split_part(instances.pool, '/', 3)
                AS place,
            {coming} AND (launches.purpose = 'replacement' OR (launches.purpose = 'gang' AND (
                SELECT {lost} FROM attempts
                WHERE attempts.job_id = {{job}}.id AND attempts.end_reason IS NOT NULL
                ORDER BY attempts.fence DESC LIMIT 1
            ))) AS comes
        FROM instances LEFT JOIN launches ON launches.id = instances.launch_id
        WHERE instances.job_id = {{job}}.id AND {live}
    ) AS machine
) END)""".format(
    going_on=one_of("{job}.state", _GOING_ON),
    registered=InstanceState.REGISTERED,
    coming=one_of("instances.state", _COMING),
    lost=one_of("attempts.state", _LOST),
    live=one_of("instances.state", LIVE_INSTANCE_STATES),
)
"""An expression over the row `job`: "replacing 1 of 2 in aws us-east-1a", or "replacing 2 of 2:
choosing a pool", else NULL."""

REPLACING_IN_JOB: Final = text(
    f"SELECT {REPLACING.format(job='jobs')} FROM jobs WHERE jobs.id = :job_id"
)
