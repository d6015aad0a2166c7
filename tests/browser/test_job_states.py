"""The first screen of a job's page in each state: what is so now, and what can be done about it."""

from __future__ import annotations

import re
from uuid import UUID

from playwright.sync_api import Browser, expect

from app.domain.lifecycle.job import JobState
from app.domain.placement.placement_decision import PlacementDecision
from tests.browser.conftest import Site
from tests.support.pages import page_endings
from tests.support.pages.browser import PHONE, Visit, visit
from tests.support.pages.page_story import AGE_SECONDS
from tests.support.stories import decision_story

TRACEBACK = """Traceback (most recent call last):
  File "/work/train.py", line 97, in train
    raise ValueError("boom")
ValueError: boom <b>no tag</b>
"""


def record(site: Site, job_id: UUID, *decisions: PlacementDecision) -> None:
    decision_story.record(site.api.parts.runtime.begin, job_id, *decisions)


def test_a_failed_job_begins_with_its_error_and_the_log_beside_it(
    look: Visit, site: Site, browser: Browser
):
    job_id = site.story.interrupted_run()
    page_endings.fail(site.story, job_id, 1, TRACEBACK)
    look.signed_in(site.key, "/jobs/digits")
    headline = look.page.locator("#failure")
    expect(headline).to_have_text("ValueError: boom <b>no tag</b>")
    expect(look.page.get_by_text("Node 1 (m3), attempt 2, exit code 1")).to_be_in_viewport()
    log = look.page.locator("#failure-log")
    expect(log).to_be_in_viewport()
    expect(log).to_contain_text('raise ValueError("boom")')
    expect(look.page.get_by_text("what it wrote is in the logs")).to_have_count(0)
    head = look.page.locator("#job-live")
    whole = head.get_by_role("link", name="Whole log").get_attribute("href")
    answer = look.context.request.get(f"{look.url}{whole}")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.text().startswith("\x1b[32mresumed at step 341")
    assert answer.text().endswith("ValueError: boom <b>no tag</b>\n")
    # What the bundled trainer itself reported goes before any line of a log.
    page_endings.report_error(site.story, 1, "ConfigError", "no such model")
    with visit(browser, site.api.url, viewport=PHONE, is_mobile=True, has_touch=True) as phone:
        phone.signed_in(site.key, "/jobs/digits")
        expect(phone.page.locator("#failure")).to_have_text("ConfigError: no such model")
        expect(phone.page.locator("#failure")).to_be_in_viewport()
        expect(phone.page.get_by_text("Node 1 (m3), attempt 2")).to_be_in_viewport()
        assert phone.overflow_px() == 0
        phone.assert_content()


def test_a_paused_job_says_what_it_will_need_and_keeps_no_machine(look: Visit, site: Site):
    job_id = site.story.interrupted_run()
    at = site.story.after(703)
    kept = decision_story.kept(at)
    record(site, job_id, decision_story.placed(at, fence=2), kept)
    page_endings.pause(site.story, job_id)
    look.signed_in(site.key, "/jobs/digits")
    resume = look.page.locator("#resume")
    expect(resume).to_contain_text(
        re.compile(r"continues from step \d+; about \d+m .*to its end, start-up included")
    )
    expect(resume).to_contain_text("It will need 2 machines with 1 × V100")
    expect(resume).to_contain_text(
        re.compile(r"Cheapest now: \$2.080/h for 2 machines in us-west-2a .*")
    )
    expect(resume).to_contain_text(re.compile(r"about \$0\.\d+ to the end"))
    expect(resume).to_contain_text("of its budget is left")
    panel = look.page.locator("#why-here")
    expect(panel.get_by_role("heading", name="Where it ran")).to_be_visible()
    expect(panel).to_contain_text("It ran on 3 machines: us-west-2a · p3.2xlarge · spot.")
    expect(look.page.get_by_text("The machines were kept.")).not_to_be_visible()
    panel.get_by_text("Decisions while it ran").click()
    expect(look.page.get_by_text("The machines were kept.")).to_be_visible()
    expect(look.page.get_by_text(kept.sentence)).to_have_count(0)
    expect(look.page.locator("#time-left")).to_contain_text("no end while it is paused")


def test_a_succeeded_job_is_downloaded_and_run_again(look: Visit, site: Site):
    job_id = site.story.interrupted_run()
    page_endings.succeed(site.story, job_id)
    look.signed_in(site.key, "/jobs/digits")
    saved = look.page.locator("#saved")
    rows = saved.locator("table.checkpoints tbody tr")
    expect(rows).to_have_count(5)
    expect(rows.first).to_contain_text("newest")
    expect(rows.first).to_contain_text("42.7 MiB")
    expect(saved).to_contain_text("last of attempt 1 (the cloud interrupted a machine)")
    expect(saved.locator("#download-command")).to_have_text("lowtide download digits")
    expect(look.page.locator("#why-here")).to_contain_text("It ran on 3 machines")
    expect(look.page.locator("#time-left")).to_contain_text("met")
    # Nothing of an ended job reads as if it still spent money.
    expect(look.page.locator(".figures dt").nth(1)).to_have_text(
        re.compile(r"^Cost\s+provisional$")
    )
    expect(look.page.locator(".figures")).not_to_contain_text("/h")
    expect(look.page.get_by_label("Prices", exact=True)).to_contain_text("$1.040/h at the end")
    prices = look.page.locator("table.machines td[data-label='$/h']")
    expect(prices).to_have_text(["–"] * 3)
    look.page.get_by_role("link", name="Download…").click()
    expect(saved).to_be_in_viewport()

    look.page.get_by_role("button", name="Run again…").click()
    dialog = look.page.get_by_role("dialog", name="Run digits again?")
    expect(dialog).to_contain_text("digits-2")
    dialog.get_by_role("button", name="Run it again").click()
    expect(look.page).to_have_url(re.compile("/jobs/digits-2$"))
    expect(look.page.get_by_role("status").filter(has_text="queued")).to_be_visible()
    made = site.api.client.get("/api/v1/jobs/digits-2").json()["spec"]
    assert {**made, "name": "digits"} == site.story.job_row(job_id).spec


def test_a_job_without_a_step_says_what_it_does(site: Site, browser: Browser):
    job_id = site.story.submit()
    next_look = site.story.after(AGE_SECONDS + 300)
    site.story.quote(0, ((-60, 10_000_000),))
    site.story.change(job_id, wait_reason="every pool is too dear", claimable_at=next_look)
    with visit(browser, site.api.url, viewport=PHONE, is_mobile=True, has_touch=True) as phone:
        phone.signed_in(site.key, "/jobs/digits")
        expect(phone.page.get_by_text("Waiting for machines", exact=True).first).to_be_visible()
        expect(phone.page.get_by_text("1,000 steps to do")).to_be_visible()
        expect(phone.page.get_by_text(re.compile(r"\bstep 0\b"))).to_have_count(0)
        expect(phone.page.locator("#saved")).to_contain_text("This job has no checkpoint yet")
        # The verdict on a pool is read without scrolling sideways.
        verdict = phone.page.locator(".offers td").filter(has_text="93 %").last
        verdict.scroll_into_view_if_needed()
        box = verdict.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= PHONE["width"]
        assert phone.overflow_px() == 0
        phone.assert_content()
    assert site.story.state(job_id) == JobState.QUEUED


def test_a_clone_is_changed_checked_and_submitted(look: Visit, site: Site):
    job_id = site.story.submit()
    look.signed_in(site.key, "/jobs/digits")
    look.page.get_by_role("link", name="Clone…").click()
    text = look.page.get_by_label("Job spec (YAML)")
    expect(text).to_have_value(re.compile("^name: digits-2\n"))
    written = text.input_value()
    text.fill(written.replace("steps: 1000", "steps: 0").replace("budget_usd", "budget_euro"))
    look.page.get_by_role("button", name="Check").click()
    problems = look.page.locator("#problems li")
    expect(problems).to_have_count(2)
    expect(problems.filter(has_text="trainer.steps: must be at least 1")).to_have_count(1)
    expect(problems.filter(has_text="unknown field 'budget_euro'")).to_have_count(1)
    # What was written stays, and a problem leads to its line.
    expect(text).to_have_value(re.compile("steps: 0"))
    problems.filter(has_text="trainer.steps").get_by_role("link").click()
    chosen = look.page.evaluate(
        "(() => { const t = document.getElementById('spec');"
        " return t.value.slice(t.selectionStart, t.selectionEnd) })()"
    )
    assert chosen.strip() == "steps: 0"

    text.fill(written.replace("steps: 1000", "steps: 7"))
    look.page.get_by_role("button", name="Check").click()
    expect(look.page.locator("#checked")).to_contain_text(
        "No problem found: this deployment accepts the spec now."
    )
    look.page.get_by_role("button", name="Submit the job").click()
    expect(look.page).to_have_url(re.compile("/jobs/digits-2$"))
    made = site.api.client.get("/api/v1/jobs/digits-2").json()["spec"]
    assert made["trainer"]["steps"] == 7
    assert site.story.job_row(job_id).spec["trainer"]["steps"] == 1000
