"""The panel of a job's page that says why its machines are where they are."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from playwright.sync_api import Browser, expect

from app.domain.placement.placement_decision import PlacementDecision
from tests.browser.conftest import Site
from tests.support.pages.browser import PHONE, Visit, visit
from tests.support.pages.page_story import AGE_SECONDS
from tests.support.stories import decision_story
from tests.support.stories.decision_story import HOSTILE, placed, pool, waited


def record(site: Site, job_id: UUID, *decisions: PlacementDecision) -> None:
    decision_story.record(site.api.parts.runtime.begin, job_id, *decisions)


def test_the_panel_shows_every_pool_and_follows_new_decisions(look: Visit, site: Site):
    job_id = site.story.interrupted_run()
    look.signed_in(site.key, "/jobs/digits")
    panel = look.page.locator("#why-here")
    expect(panel).to_contain_text("No decision about its machines has been made yet.")

    first, second = site.story.after(0), site.story.after(703)
    record(site, job_id, waited(first), placed(second, fence=2))
    expect(panel).to_contain_text("Spot in us-west-2a: $2.95 expected")
    # The slack is told once on the page, beside the deadline.
    expect(panel).not_to_contain_text(re.compile("Slack|last safe moment"))
    safe = look.page.locator("#time-left .note").last
    expect(safe).to_have_text(re.compile(r"spot is safe for \d+m"))
    expect(safe).to_have_attribute("title", re.compile(r"Slack \d+m.*the last safe moment is"))
    ways = "with spot machines $2.95, by waiting $3.10, with on-demand machines $9.38"
    expect(panel).to_contain_text(ways)
    rows = panel.locator("table.pools tbody tr")
    expect(rows).to_have_count(4)
    expect(rows.first.get_by_role("img", name="chosen")).to_be_visible()
    for told in ("us-west-2a · p3.2xlarge · spot", "$0.918/h", "-70 %", "2m", "0.08", "$2.95",
                 "1h 35m", "the most progress for its price and expected life"):  # fmt: skip
        expect(rows.first).to_contain_text(told)
    expect(rows.nth(2)).to_contain_text("has capacity for 1 of 2")
    expect(rows.nth(3)).to_contain_text("not needed: slack 55m")
    quoted = rows.first.locator("time").first
    expect(quoted).to_have_attribute("title", re.compile("^quoted .* UTC$"))
    assert panel.get_by_role("img", name="chosen").count() == 1
    expect(rows.filter(has_text="here now")).to_have_count(1)
    expect(rows.first).to_contain_text("here now")
    # What is left where it trains is one figure: the table's is that of the ETA.
    eta = look.page.locator("#time-left .note").first
    expect(eta).to_have_text(re.compile(r"^ETA "))
    ends = rows.first.locator("td[data-label='Would take'] time")
    clock = (eta.text_content() or "").split()[1]
    expect(ends).to_have_attribute("title", re.compile(f" {clock} UTC$"))
    expect(rows.first.locator("td[data-label='Would take']")).to_contain_text("left")
    expect(rows.first.locator("td[data-label='Expected']")).to_contain_text("left")
    expect(rows.first).to_contain_text(
        re.compile(r"at the decision \d\d:\d\d:\d\d UTC: \$2\.95, 1h 35m; the most progress")
    )
    # One number of each fact: the job has two machines.
    price = rows.first.locator("td[data-label='$/h']")
    expect(price).to_have_text("$1.836/h 2 × $0.918/h")

    panel.get_by_text("Earlier decisions").click()
    expect(panel.get_by_text("Waiting costs less than on-demand")).to_be_visible()
    record(site, job_id, decision_story.kept(second + timedelta(minutes=5), fence=3))
    expect(panel).to_contain_text("Keeping the 2 current machines")
    expect(panel).to_contain_text(
        re.compile(
            "Where its machines come from, .* ago: Spot machines were requested in us-west-2a"
        )
    )
    expect(rows).to_have_count(4)
    # What was opened stays open when the page has looked again.
    expect(panel.get_by_text("Waiting costs less than on-demand")).to_be_visible()


def test_a_waiting_job_has_its_way_out_and_its_pools_in_place_of_the_chart(look: Visit, site: Site):
    job_id = site.story.submit()
    due = site.story.after(AGE_SECONDS + 300)
    site.story.change(job_id, wait_reason="no pool has room for 2", claimable_at=due)
    record(site, job_id, waited(site.story.after(AGE_SECONDS), fence=None))
    look.signed_in(site.key, "/jobs/digits")
    expect(look.page.get_by_text("No pool has room for 2")).to_be_visible()
    expect(look.page.get_by_text(re.compile(r"Next look: in (4m|5m)"))).to_be_visible()
    together = f"{decision_story.WAIT_FOR} each, $1.810/h together."
    expect(look.page.locator(".unblock li").first).to_have_text(together)
    panel = look.page.locator("#why-here")
    expect(panel.get_by_role("heading", name="Why it waits")).to_be_visible()
    rows = panel.locator("table.pools tbody tr")
    expect(rows.first).to_contain_text("waiting for better capacity costs less")
    expect(rows.nth(1)).to_contain_text("has capacity for 0 of 2")
    expect(look.page.locator("svg.tide")).to_have_count(0)
    expect(look.page.locator("table.offers")).to_have_count(0)


def test_hostile_words_stay_words_and_a_phone_has_room_for_them(site: Site, browser: Browser):
    job_id = site.story.interrupted_run()
    at = site.story.after(703)
    named = f"local/r/{HOSTILE.replace('/', '')}{'w' * 300}/p3"
    bad = pool("us-west-2a", 918_000, HOSTILE * 4, at, chosen=True)
    worse = pool("us-west-2b", 918_000, "w" * 400, at, fits=False)
    worse = replace(worse, pool=named)
    record(site, job_id, placed(at, sentence=HOSTILE, pools=(bad, worse)))
    with visit(browser, site.api.url, viewport=PHONE, is_mobile=True, has_touch=True) as phone:
        phone.signed_in(site.key, "/jobs/digits")
        panel = phone.page.locator("#why-here")
        expect(panel).to_contain_text("<script>document.title='taken'</script>")
        expect(panel.locator("script")).to_have_count(0)
        expect(phone.page).to_have_title(re.compile("digits"))
        assert phone.overflow_px() == 0
        phone.assert_content()
