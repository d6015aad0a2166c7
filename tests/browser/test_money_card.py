"""The money on the page of a job: nothing is green that was not saved, or not checked."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from app.domain.lifecycle.end_reason import EndReason
from app.domain.lifecycle.job import JobState
from tests.browser.conftest import Site
from tests.support.pages.browser import Visit
from tests.support.pages.page_story import AGE_SECONDS


def test_a_job_that_cost_more_than_on_demand_is_not_green(look: Visit, site: Site):
    site.story.interrupted_run()
    with site.api.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE instances SET on_demand_microusd_per_hour = 90000")
    look.signed_in(site.key, "/jobs/digits")
    # As in the list of jobs: a saving is a figure once the cost is final.
    so_far = look.page.locator(".figures div").filter(has_text="Saved, net")
    expect(so_far.locator(".number")).to_have_text("–")
    expect(look.page.locator(".figures dt").nth(1)).to_have_text(re.compile("^Cost so far"))
    expect(so_far).to_contain_text(
        re.compile(r"-\d+ % so far, against on-demand; final once the job has ended")
    )
    with site.api.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE jobs SET cost_final_at = now()")
    look.go("/jobs/digits")
    row = look.page.get_by_role("row", name=re.compile("more than on-demand"))
    expect(row.locator(".bad-text")).to_have_text(re.compile(r"^\$0\.\d{6}$"))
    expect(row.locator(".good-text")).to_have_count(0)
    figure = look.page.locator(".figures div").filter(has_text="Saved, net")
    expect(figure.locator(".number")).to_have_text(re.compile("^-"))
    expect(figure.locator(".note")).to_have_text("more than on-demand, same work")
    # One figure on the page: the table says by its words what the headline says by its sign.
    share = (figure.locator(".number").text_content() or "").removeprefix("-")
    expect(row.locator(".muted")).to_have_text(share)
    expect(figure.locator(".good-text")).to_have_count(0)
    expect(look.page.locator("#books")).to_have_text(
        re.compile(r"Books: not checked yet \(\$0\.\d+\)\.")
    )


def test_a_bill_whose_clock_runs_faster_is_told_beside_its_parts(look: Visit, site: Site):
    site.story.interrupted_run()
    look.signed_in(site.key, "/jobs/digits")
    expect(look.page.locator("#books")).to_be_visible()
    expect(look.page.locator("#faster-bill")).to_have_count(0)
    with site.api.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE instances SET billing_speed = 60")
    look.go("/jobs/digits")
    expect(look.page.locator("#faster-bill")).to_have_text(
        "The local cloud bills 1m for each second; every cost here counts that."
    )


def test_a_failed_job_is_not_compared_and_a_job_that_saved_nothing_claims_no_checkpoint(
    look: Visit, site: Site
):
    job_id = site.story.interrupted_run()
    ended_at = site.story.after(AGE_SECONDS)
    with site.api.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM checkpoints")
        connection.exec_driver_sql(
            "UPDATE attempts SET state = 'failed', ended_at = now(), end_reason = 'user_error' "
            "WHERE state = 'running'"
        )
    site.story.change(
        job_id, state=JobState.FAILED, ended_at=ended_at, end_reason=EndReason.USER_ERROR
    )
    look.signed_in(site.key, "/jobs/digits")
    figure = look.page.locator(".figures div").filter(has_text="Saved, net")
    expect(figure).to_contain_text("not compared: the job failed")
    expect(look.page.get_by_role("row", name=re.compile("on-demand, same work"))).to_have_count(0)
    expect(look.page.get_by_text("no checkpoint saved")).to_be_visible()
    expect(look.page.get_by_text(re.compile("checkpoint at step"))).to_have_count(0)
