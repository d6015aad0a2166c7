"""The page of a job: what it shows, that it is live, and what its buttons do."""

from __future__ import annotations

import re
from uuid import UUID

import pytest
from playwright.sync_api import Browser, FloatRect, expect

from app.domain.lifecycle.end_reason import EndReason
from app.domain.lifecycle.events import JobEventKind
from app.domain.lifecycle.job import JobState
from app.orchestration.agents.append_logs import append_log
from app.storage.jobs.kept_estimate_rows import KeptEstimate
from tests.browser.conftest import Site
from tests.support.pages.browser import PHONE, Visit, visit
from tests.support.pages.page_story import AGE_SECONDS

HEADINGS = ("#cost-heading", "#verdict-heading", "#curves-heading")


def finish(site: Site, job_id: UUID) -> None:
    """The job has ended, and its costs are final."""
    ended_at = site.story.after(AGE_SECONDS)
    site.story.change(
        job_id,
        state=JobState.SUCCEEDED,
        ended_at=ended_at,
        cost_final_at=ended_at,
        end_reason=EndReason.FINISHED,
        committed_step=1000,
    )


def end_attempts(site: Site) -> None:
    """No attempt is alive, so that the job may come to rest."""
    with site.api.engine.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE attempts SET state = 'stopped', ended_at = now(), end_reason = 'user_paused' "
            "WHERE state = 'running'"
        )


def test_it_shows_state_progress_money_machines_and_history(look: Visit, site: Site):
    site.story.interrupted_run()
    look.signed_in(site.key, "/jobs/digits")
    page = look.page
    expect(page.get_by_role("status").filter(has_text="running")).to_be_visible()
    expect(page.get_by_text("Training on 2 machines in us-west-2a.")).to_be_visible()
    expect(page.get_by_text(re.compile(r"step 6\d\d of 1,000"))).to_be_visible()
    expect(page.get_by_text(re.compile(r"ETA .*UTC, in \d+m"))).to_be_visible()
    expect(page.locator(".figures")).to_contain_text(re.compile(r"spot is safe for \d+m"))

    machines = page.get_by_role("table").filter(has_text="Machine").first
    rows = machines.get_by_role("row")
    expect(rows).to_have_count(4)
    expect(rows.nth(1)).to_contain_text("m1")
    expect(rows.nth(2)).to_contain_text("m3")
    expect(rows.nth(3)).to_contain_text("ended by cloud interruption")
    expect(rows.nth(3)).to_contain_text("$0.204 waived")
    # A machine that is gone costs nothing now.
    expect(rows.nth(3).locator("td[data-label='$/h']")).to_have_text("–")
    expect(rows.nth(1).locator("td[data-label='$/h']")).to_have_text("$1.040/h")

    events = page.get_by_label("Newest first").get_by_role("listitem")
    expect(events.first).to_contain_text("not charged m2")
    expect(events.nth(1)).to_contain_text("m2 is gone, interrupted by the cloud.")
    expect(events.last).to_contain_text("Submitted: cnn on digits on 2 machines")
    # A key's name, "control plane", "cloud" or "m1": nobody's kind, and no long id.
    expect(page.locator(".events .actor").filter(has_text=":")).to_have_count(0)
    expect(page.locator(".events .actor", has_text=re.compile(r"[0-9a-f]{8}-"))).to_have_count(0)
    expect(page.locator(".events .actor").first).to_have_text(re.compile("control plane|cloud"))
    expect(page.locator("#verdict")).to_contain_text("Training waits for data 31 % of the time")
    expect(page.get_by_role("row", name="GPU utilization")).to_contain_text("24 %")


def test_the_tables_of_cost_add_up_to_what_is_booked(look: Visit, site: Site):
    job_id = site.story.interrupted_run()
    booked = site.story.budget(site.story.job_row(job_id)).spent_microusd
    look.signed_in(site.key, "/jobs/digits")
    cells = look.page.locator(".sums tbody").first.locator("td:last-child")
    expect(cells).to_have_count(8)
    amounts = [round(float(text.replace("$", "")) * 1e6) for text in cells.all_inner_texts()]
    assert sum(amounts) == booked
    total = look.page.locator(".sums .total td:last-child")
    expect(total).to_have_text(f"${booked / 1e6:.6f}")


def test_the_estimate_stands_beside_the_cost(look: Visit, site: Site):
    job_id = site.story.interrupted_run()
    with site.api.parts.runtime.begin() as uow:
        uow.kept_estimates.keep(KeptEstimate(job_id, uow.now, 1_500_000, 2_250_000, 60.0, 90.0))
    look.signed_in(site.key, "/jobs/digits")
    estimated = look.page.get_by_text("estimated $1.50 (P50), $2.25 (P90)")
    expect(estimated).to_be_visible()
    expect(estimated).to_have_attribute("title", re.compile("^From simulated runs of this job"))


def test_the_chart_marks_the_notice_the_end_and_the_resumption(look: Visit, site: Site):
    site.story.interrupted_run()
    look.signed_in(site.key, "/jobs/digits")
    chart = look.page.get_by_role("img", name=re.compile(r"Step 6\d\d of 1,000 on 3 machines"))
    expect(chart).to_be_visible()
    titles = chart.locator("title").all_text_contents()
    for told in (
        r"m1: useful, .*about \$0\.0\d+",
        r"m2: the cloud gave notice at [\d:]+, 2m ahead",
        r"m2: gone at [\d:]+, ended by cloud interruption",
        r"m3: boot, 46s",
        r"m1: idle, 1m 17s",
        r"Attempt 2 resumed at step 341",
    ):
        assert any(re.match(told, title) for title in titles), told
    assert chart.locator("polyline.water").count() == 2
    assert chart.locator("polyline.projection").count() == 1


def test_below_the_chart_lie_the_prices_with_what_each_was(look: Visit, site: Site):
    site.story.interrupted_run()
    look.signed_in(site.key, "/jobs/digits")
    # The last dot stands for a slash, at which Playwright would end the pattern of a name.
    summary = re.compile(r"Prices over time, in US dollars .*, spot \$1\.040.h now\.$")
    chart = look.page.get_by_role("img", name=summary)
    expect(chart).to_be_visible()
    strip = chart.locator("g.prices")
    expect(strip.locator("text")).to_have_text("Price US dollars per hour of one machine")
    assert strip.locator("polyline.p-spot").count() == 1
    # The price rose once, so there are two times to point at.
    told = strip.locator("title").all_text_contents()
    assert [re.sub(r"[\d:]{8}", "T", title) for title in told] == [
        "T to T · spot $0.918/h · on-demand $10.800/h",
        "T to T · spot $1.040/h · on-demand $10.800/h",
    ]


def test_changes_in_the_database_appear_without_a_reload(look: Visit, site: Site):
    job_id = site.story.interrupted_run()
    look.signed_in(site.key, "/jobs/digits")
    expect(look.page.get_by_text("Training on 2 machines")).to_be_visible()
    look.page.evaluate("window.stillTheSamePage = true")

    site.story.say(job_id, AGE_SECONDS, JobEventKind.REBALANCE_RECOMMENDED, "m1 may go.", "cloud:x")
    expect(look.page.get_by_text("m1 may go.")).to_be_visible()
    with site.api.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE contacts SET step = 777, step_at = now()")
    expect(look.page.get_by_text("step 777 of 1,000")).to_be_visible()

    end_attempts(site)
    finish(site, job_id)
    expect(look.page.get_by_role("status").filter(has_text="succeeded")).to_be_visible()
    # Nothing can change any more, so the page has stopped to ask.
    expect(look.page.locator("#job-live")).not_to_have_attribute("hx-get", re.compile("."))
    expect(look.page.get_by_role("button", name="Cancel…")).to_have_count(0)
    asked: list[str] = []
    look.page.on("request", lambda request: asked.append(request.url))
    # The log's last look follows the page's own; whoever asks on is never quiet for so long.
    for _ in range(3):
        asked.clear()
        look.page.wait_for_timeout(2_500)
        if not asked:
            break
    assert asked == []
    assert look.page.evaluate("window.stillTheSamePage")


def test_a_silent_server_is_told_and_the_page_recovers(look: Visit, site: Site):
    site.story.interrupted_run()
    look.signed_in(site.key, "/jobs/digits")
    told = look.page.get_by_text("No answer from the server")
    expect(told).to_be_hidden()
    look.page.route("**/live", lambda route: route.abort())
    expect(told).to_be_visible()
    expect(told).to_contain_text(re.compile(r"the state of \d\d:\d\d:\d\d UTC and tries again"))
    look.page.unroute("**/live")
    expect(told).to_be_hidden()
    # The browser and htmx report what this test has cut off.
    cut_off = re.compile("ERR_FAILED|htmx:(afterRequest|sendError)")
    look.complaints[:] = [one for one in look.complaints if not cut_off.search(one)]


def test_a_waiting_job_shows_its_reason_the_next_look_and_the_nearest_pools(
    look: Visit, site: Site
):
    site.story.quote(0, ((-60, 10_000_000),))
    job_id = site.story.submit()
    reason = "every pool with a V100 costs more than 90 % of on-demand"
    next_look = site.story.after(AGE_SECONDS + 300)
    site.story.change(job_id, wait_reason=reason, claimable_at=next_look)
    look.signed_in(site.key, "/jobs/digits")
    expect(look.page.get_by_role("heading", name="What it waits for")).to_be_visible()
    expect(look.page.get_by_text("Every pool with a V100 costs more")).to_be_visible()
    expect(look.page.get_by_text(re.compile(r"Next look: in (4m|5m)"))).to_be_visible()
    expect(look.page.get_by_text("It needs 2 machines with 1 × V100")).to_be_visible()
    ways = look.page.locator(".unblock li")
    expect(ways).to_have_text(
        [
            "A price of at most $9.720/h in us-west-2a (p3.2xlarge), 90 % of on-demand; "
            "now it is $10.000/h.",
            "market: on_demand in its spec, which starts it in us-west-2a (p3.2xlarge) now: "
            "$10.800/h each, $21.600/h together.",
        ]
    )
    row = look.page.get_by_role("row").filter(has_text="$10.000/h")
    expect(row).to_contain_text(re.compile("costs 93 ?% of on-demand, above the limit of 90 ?%"))
    expect(look.page.locator("svg.tide")).to_have_count(0)


def test_cancelling_asks_first_and_then_stops_the_job(look: Visit, site: Site):
    job_id = site.story.interrupted_run()
    look.signed_in(site.key, "/jobs/digits")
    cancel = look.page.get_by_role("button", name="Cancel…")
    cancel.click()
    dialog = look.page.get_by_role("dialog", name="Cancel digits?")
    expect(dialog).to_be_visible()
    # It stays open while the page behind it looks again.
    look.page.wait_for_timeout(1_500)
    dialog.get_by_role("button", name="Keep it").click()
    expect(dialog).to_be_hidden()
    assert site.story.state(job_id) == JobState.RUNNING

    cancel.click()
    dialog.get_by_role("button", name="Cancel the job").click()
    expect(look.page).to_have_url(re.compile("/jobs/digits$"))
    expect(look.page.get_by_role("status").filter(has_text="stopping")).to_be_visible()
    expect(look.page.get_by_text("Cancelled by ada, after saving.").first).to_be_visible()
    assert site.story.state(job_id) == JobState.STOPPING


def test_pausing_and_resuming_with_more_budget(look: Visit, site: Site):
    job_id = site.story.submit()
    look.signed_in(site.key, "/jobs/digits")
    look.page.get_by_role("button", name="Pause…").click()
    look.page.get_by_role("button", name="Pause the job").click()
    expect(look.page.get_by_role("status").filter(has_text="paused")).to_be_visible()
    assert site.story.state(job_id) == JobState.PAUSED

    look.page.get_by_role("button", name="Resume…").click()
    look.page.get_by_label("Add to the budget of $5.00").fill("+2.50")
    look.page.get_by_role("button", name="Resume the job").click()
    expect(look.page.get_by_role("status").filter(has_text="queued")).to_be_visible()
    expect(look.page.locator(".figures")).to_contain_text("of $7.50")
    assert site.story.state(job_id) == JobState.QUEUED


def test_an_order_that_comes_too_late_is_refused_in_a_sentence(look: Visit, site: Site):
    job_id = site.story.submit()
    look.signed_in(site.key, "/jobs/digits")
    look.page.get_by_role("button", name="Pause…").click()
    finish(site, job_id)
    look.page.get_by_role("button", name="Pause the job").click()
    expect(look.page.get_by_role("heading", name="Not possible now")).to_be_visible()
    expect(look.page.get_by_text("succeeded")).to_be_visible()


def test_logs_are_text_by_stream_and_grow_by_themselves(look: Visit, site: Site):
    job_id = site.story.interrupted_run()
    look.signed_in(site.key, "/jobs/digits")
    log = look.page.locator("#log-text")
    look.page.get_by_role("button", name="m1 attempt-0002/node-0.log").click()
    expect(log).to_contain_text("resumed at step 341 on rank 0 <of 2>")
    assert "\x1b" not in log.inner_text()

    machine = site.story.writer_of(job_id, "attempt-0002/node-0.log")
    size = site.story.log_size(job_id, "attempt-0002/node-0.log")
    append_log(site.story.runtime, machine, "attempt-0002/node-0.log", size, b"here is more\n")
    expect(log).to_contain_text("here is more")
    look.page.get_by_role("button", name="m3 attempt-0002/node-1.log").click()
    expect(log).to_contain_text("on rank 1 <of 2>")
    look.page.wait_for_timeout(2_500)
    expect(log).to_contain_text("on rank 1 <of 2>")


def test_it_fits_a_phone(site: Site, browser: Browser):
    site.story.interrupted_run()
    with visit(browser, site.api.url, viewport=PHONE, is_mobile=True, has_touch=True) as phone:
        phone.signed_in(site.key, "/jobs/digits")
        expect(phone.page.locator("#log-text")).to_contain_text("step")
        assert phone.overflow_px() == 0
        # What few people read is folded, and opens.
        assert phone.page.evaluate("document.documentElement.scrollHeight") < 2_600
        phone.page.locator("summary", has_text="part by part").tap()
        expect(phone.page.get_by_role("row", name="gang wait")).to_be_visible()
        expect(phone.page.locator(".events")).to_be_hidden()
        phone.page.locator("summary", has_text="Events").tap()
        expect(phone.page.locator(".events")).to_be_visible()
        phone.page.evaluate("scrollTo(0, 0)")
        expect(phone.page.get_by_role("button", name="Cancel…")).to_be_in_viewport()
        phone.page.get_by_role("button", name="Cancel…").tap()
        expect(phone.page.get_by_role("button", name="Cancel the job")).to_be_in_viewport()
        assert phone.overflow_px() == 0
        phone.assert_content()


def test_a_wide_screen_is_used(site: Site, browser: Browser):
    site.story.interrupted_run()
    with visit(browser, site.api.url, viewport={"width": 1920, "height": 1080}) as wide:
        wide.signed_in(site.key, "/jobs/digits")
        expect(wide.page.locator("#log-text")).to_contain_text("step")
        assert box(wide, ".figures")["width"] > 0.85 * 1920
        curves, last = box(wide, ".curves"), box(wide, ".curves figure:last-child")
        assert last["x"] + last["width"] == pytest.approx(curves["x"] + curves["width"], abs=2)
        cards = [box(wide, f".columns section:has({name})") for name in HEADINGS]
        assert len({card["y"] for card in cards}) == 1, "side by side"
        assert len({round(card["y"] + card["height"]) for card in cards}) == 1, "with one end"
        wide.assert_content()


def box(look: Visit, selector: str) -> FloatRect:
    """Where an element is, in pixels."""
    found = look.page.locator(selector).bounding_box()
    assert found is not None
    return found


def test_a_replacement_is_told_below_the_state(look: Visit, site: Site):
    site.story.put_back(site.story.interrupted_run())
    look.signed_in(site.key, "/jobs/digits")
    expect(look.page.locator("#replacing")).to_have_text("Replacing 1 of 2 in local us-west-2a.")


def test_everything_is_reached_with_the_keyboard(look: Visit, site: Site):
    job_id = site.story.interrupted_run()
    look.signed_in(site.key, "/jobs/digits")
    look.page.keyboard.press("Tab")
    expect(look.page.get_by_role("link", name="Skip to the content")).to_be_focused()
    look.page.keyboard.press("Enter")
    look.page.keyboard.press("Tab")
    expect(look.page.get_by_role("button", name="Pause…")).to_be_focused()
    look.page.keyboard.press("Tab")
    cancel = look.page.get_by_role("button", name="Cancel…")
    expect(cancel).to_be_focused()
    # All is open on a wide screen, and nothing there is a stop that does nothing.
    expect(look.page.locator(".events")).to_be_visible()
    expect(look.page.locator("summary:visible", has_text="Events")).to_have_count(0)
    # The page looks again below, and the focus stays.
    look.page.wait_for_timeout(1_500)
    expect(cancel).to_be_focused()
    look.page.keyboard.press("Enter")
    dialog = look.page.get_by_role("dialog", name="Cancel digits?")
    expect(dialog).to_be_visible()
    look.page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    look.page.keyboard.press("Enter")
    expect(dialog).to_be_visible()
    look.page.keyboard.press("Tab")
    look.page.keyboard.press("Space")
    expect(dialog.get_by_label("At once, without saving")).to_be_checked()
    look.page.keyboard.press("Tab")
    look.page.keyboard.press("Tab")
    look.page.keyboard.press("Enter")
    expect(look.page.get_by_text("Cancelled by ada, at once.").first).to_be_visible()
    assert site.story.state(job_id) == JobState.STOPPING


def test_a_job_without_a_program_is_not_asked_to_cancel_without_saving(look: Visit, site: Site):
    job_id = site.story.interrupted_run()
    look.signed_in(site.key, "/jobs/digits")
    expect(look.page.locator("#verdict-heading")).to_have_text("What limits it")
    look.page.get_by_role("button", name="Cancel…").click()
    dialog = look.page.get_by_role("dialog", name="Cancel digits?")
    choice = dialog.get_by_label("At once, without saving")
    expect(choice).to_be_visible()
    # The page is live: the choice goes as soon as the job waits.
    end_attempts(site)
    site.story.change(job_id, state=JobState.QUEUED)
    expect(choice).to_be_hidden(timeout=15_000)
    expect(look.page.locator("#verdict-heading")).to_have_text("What limited it")
