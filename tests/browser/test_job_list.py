"""The list of jobs, as people see it."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from app.domain.end_reason import EndReason
from app.domain.job import JobState
from tests.browser.conftest import Site
from tests.support.browser import PHONE, Visit, visit
from tests.support.people_api import make_key, make_project


def test_an_empty_list_says_how_to_submit_and_fills_by_itself(look: Visit, site: Site):
    look.signed_in(site.key, "/jobs")
    expect(look.page.get_by_role("heading", name="No jobs yet")).to_be_visible()
    expect(look.page.get_by_text("lowtide submit job.yaml")).to_be_visible()

    look.page.evaluate("window.stillTheSamePage = true")
    site.api.submitted(name="first-light")
    expect(look.page.get_by_role("link", name="first-light")).to_be_visible()
    assert look.page.evaluate("window.stillTheSamePage")


def test_the_spec_that_the_empty_list_shows_is_accepted(look: Visit, site: Site):
    look.signed_in(site.key, "/jobs")
    shown = look.page.get_by_label("A complete job").inner_text()
    answer = site.api.client.post(
        "/api/v1/jobs", content=shown, headers={"content-type": "application/yaml"}
    )
    assert answer.status_code == 201, answer.text


def test_a_row_tells_state_progress_place_price_cost_and_saving(look: Visit, site: Site):
    site.story.interrupted_run()
    look.signed_in(site.key, "/jobs")
    row = look.page.get_by_role("row").filter(has=look.page.get_by_role("link", name="digits"))
    expect(row).to_contain_text("running")
    expect(row.get_by_role("progressbar")).to_have_attribute("value", re.compile(r"6\d\.\d"))
    expect(row).to_contain_text("us-west-2a ×2")
    expect(row).to_contain_text("$2.08")
    expect(row).to_contain_text("of $5.00")
    expect(row).to_contain_text(re.compile(r"in \d+ m.* / in 1 h"))
    # What was saved is known once the cost is final.
    expect(row.get_by_role("cell").last).to_have_text("–")
    row.get_by_role("link", name="digits").click()
    expect(look.page).to_have_url(re.compile("/jobs/digits$"))


def test_a_final_cost_shows_what_was_saved(look: Visit, site: Site):
    job_id = site.story.interrupted_run()
    ended_at = site.story.after(1300)
    spent = site.story.budget(site.story.job_row(job_id)).spent_microusd
    with site.api.engine.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE attempts SET state = 'succeeded', ended_at = now(), end_reason = 'finished' "
            "WHERE state = 'running'"
        )
    site.story.change(
        job_id,
        state=JobState.SUCCEEDED,
        ended_at=ended_at,
        end_reason=EndReason.FINISHED,
        cost_final_at=ended_at,
        on_demand_comparison_microusd=5 * spent,
    )
    look.signed_in(site.key, "/jobs")
    row = look.page.get_by_role("row").filter(has=look.page.get_by_role("link", name="digits"))
    expect(row).to_contain_text("ended")
    expect(row.get_by_role("cell").last).to_have_text("80 %")


def test_filters_show_what_they_count(look: Visit, site: Site):
    for name in ("alpha", "beta"):
        site.story.submit(name=name)
    failed = site.story.submit(name="gamma")
    site.story.change(
        failed,
        state=JobState.FAILED,
        ended_at=site.story.after(60),
        end_reason=EndReason.OUT_OF_MEMORY,
        end_message="Rank 1 ran out of memory.",
    )
    look.signed_in(site.key, "/jobs")
    filters = look.page.get_by_role("navigation", name="Filter by state")
    expect(filters).to_have_text(re.compile(r"all\s+3\s+live\s+2\s+ended\s+1\s+queued\s+2"))
    filters.get_by_role("link", name="failed").click()
    links = look.page.locator("td.name a")
    expect(links).to_have_text(["gamma"])
    expect(look.page.get_by_text("Rank 1 ran out of memory.")).to_be_visible()
    filters.get_by_role("link", name="live").click()
    expect(links).to_have_text(["beta", "alpha"])
    look.go("/jobs?state=succeeded")
    expect(look.page.get_by_text("No job is succeeded.")).to_be_visible()


def test_older_jobs_are_one_link_away(look: Visit, site: Site):
    for number in range(53):
        site.story.go_to(number)
        site.story.submit(name=f"job-{number}")
    look.signed_in(site.key, "/jobs")
    links = look.page.locator("td.name a")
    expect(links).to_have_count(50)
    look.page.get_by_role("link", name="Older").click()
    expect(links).to_have_text(["job-2", "job-1", "job-0"])
    look.page.get_by_role("link", name="Newest").click()
    expect(links.first).to_have_text("job-52")


def test_another_project_sees_nothing_of_it(look: Visit, site: Site):
    job_id = site.story.submit()
    stranger = make_key(site.api.engine, make_project(site.api.engine, "other"), "eve")
    look.signed_in(stranger, "/jobs")
    expect(look.page.get_by_role("heading", name="No jobs yet")).to_be_visible()
    for path in ("/jobs/digits", f"/jobs/{job_id}", f"/jobs/{job_id}/log-tail"):
        look.go(path)
        expect(look.page.get_by_role("heading", name="Not found")).to_be_visible()


def test_names_and_reasons_are_text_and_never_markup(look: Visit, site: Site):
    job_id = site.story.submit()
    site.story.change(job_id, wait_reason="<img src=x onerror=alert(1)> & more")
    look.signed_in(site.key, "/jobs")
    expect(look.page.get_by_text("<img src=x onerror=alert(1)> & more")).to_be_visible()
    look.go("/jobs/digits")
    expect(look.page.locator(".why")).to_contain_text("<img src=x onerror=alert(1)> & more")


def test_it_fits_a_phone(site: Site, browser):
    site.story.interrupted_run()
    site.story.submit(name="a-job-with-quite-a-long-name-that-nobody-would-want-to-type-twi")
    with visit(browser, site.api.url, viewport=PHONE, is_mobile=True, has_touch=True) as phone:
        phone.go("/sign-in")
        assert phone.overflow_px() == 0
        phone.signed_in(site.key, "/jobs")
        assert phone.overflow_px() == 0
        expect(phone.page.get_by_text("$2.08")).to_be_in_viewport()
        phone.assert_content()
