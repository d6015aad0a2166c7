"""The page of estimates against what jobs took."""

from __future__ import annotations

from datetime import timedelta

from playwright.sync_api import Browser, expect
from sqlalchemy import update

from app.domain.lifecycle.job import JobState
from app.storage.jobs.kept_estimate_rows import KeptEstimate
from app.storage.schema import tables
from tests.browser.conftest import Site
from tests.support.pages.browser import PHONE, Visit, visit

P50_MICROUSD, P90_MICROUSD = 2_000_000, 3_000_000
P50_SECONDS, P90_SECONDS = 3_600.0, 5_400.0


def succeeded(site: Site, name: str, microusd: int, seconds: int) -> None:
    """A job that was expected to cost $2.00, at most $3.00, in an hour to an hour and a half."""
    story = site.story
    job_id = story.submit(name=name, deadline=None)
    job = story.job_row(job_id)
    ended_at = job.submitted_at + timedelta(seconds=seconds)
    story.change(job_id, state=JobState.SUCCEEDED, ended_at=ended_at, cost_final_at=ended_at)
    with site.api.engine.begin() as connection:
        spent = update(tables.budgets).where(tables.budgets.c.id == job.budget_id)
        connection.execute(spent.values(spent_microusd=microusd))
    with site.api.parts.runtime.begin() as uow:
        uow.kept_estimates.keep(
            KeptEstimate(
                job_id, job.submitted_at, P50_MICROUSD, P90_MICROUSD, P50_SECONDS, P90_SECONDS
            )
        )


def test_the_calibration_is_a_figure_on_a_page(look: Visit, site: Site, browser: Browser):
    look.signed_in(site.key, "/jobs")
    look.page.get_by_role("link", name="Estimates").click()
    expect(look.page.get_by_role("heading", name="Nothing to compare yet")).to_be_visible()

    for number, microusd in enumerate((1_800_000, 2_200_000, 2_400_000, 9_000_000)):
        succeeded(site, f"told-{number}", microusd, 3_000 + number)
    look.page.reload()
    cost = look.page.get_by_role("region", name="Cost")
    expect(cost).to_contain_text("75 %")
    expect(cost).to_contain_text("+15 %")
    expect(cost.locator("circle")).to_have_count(4)
    expect(cost.locator("circle.over")).to_have_count(1)
    assert "told-3: $9.00, P90 $3.00" in cost.locator("title").all_text_contents()
    finish = look.page.get_by_role("region", name="Finish")
    expect(finish).to_contain_text("100 %")
    expect(finish).to_contain_text("-17 %")
    row = look.page.get_by_role("row").filter(has_text="told-3")
    expect(row).to_contain_text("$9.00")
    expect(row).to_contain_text("1h 30m")
    row.get_by_role("link", name="told-3").click()
    expect(look.page.get_by_role("heading", name="told-3")).to_be_visible()

    with visit(browser, site.api.url, viewport=PHONE, is_mobile=True, has_touch=True) as phone:
        phone.signed_in(site.key, "/estimates")
        expect(phone.page.get_by_role("region", name="Finish")).to_be_visible()
        assert phone.overflow_px() == 0
        phone.assert_content()
