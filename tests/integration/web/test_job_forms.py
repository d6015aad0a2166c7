"""Forms of one job's page over plain http: what they refuse before the command is given.

Not here: commands to many jobs (`test_jobs_page`), or what a browser does with a form
(tests/browser).
"""

from __future__ import annotations

from contextlib import closing

from app.domain.lifecycle.job import JobState
from app.storage.schema import tables
from tests.integration.web.test_jobs_page import Pages, token, words
from tests.support.api.people_api import PeopleApi, price_pool
from tests.support.servers.table_rows import change_rows


def test_a_budget_with_which_a_job_would_only_be_paused_again_is_refused(api: PeopleApi):
    price_pool(api, 918_000)
    pages = Pages(api)
    with closing(pages.client):
        [job_id] = pages.submit("small", state=JobState.PAUSED, budget_usd=10)
        its_own = tables.budgets.c.job_id == job_id
        change_rows(api.engine, tables.budgets, its_own, spent_microusd=9_900_000)
        page = pages.client.get(f"/jobs/{job_id}")
        # $0.2295 for a quarter of an hour, and $0.10 is left.
        lacks = "it needs a budget of at least $10.13, $0.13 more, for the first 15 minutes, or it"
        assert lacks in words(page)
        form = {"form_token": token(page), "add_budget_usd": "0.12"}
        refused = pages.client.post(f"/jobs/{job_id}/resume", data=form)
        assert refused.status_code == 422
        told = "The budget must be at least $10.13 for the first 15 minutes, or the job is paused"
        assert told in words(refused)
        assert pages.states() == {"small": "paused"}
        enough = pages.client.post(
            f"/jobs/{job_id}/resume", data={**form, "add_budget_usd": "0.13"}
        )
        assert enough.status_code == 303
        assert pages.states() == {"small": "queued"}
