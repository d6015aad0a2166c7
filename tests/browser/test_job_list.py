"""The list of jobs, as people see it."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, FloatRect, Locator, expect
from sqlalchemy import update

from app.domain.lifecycle.end_reason import EndReason
from app.domain.lifecycle.job import JobState
from app.storage.schema import tables
from tests.browser.conftest import Site
from tests.support.api.people_api import make_key, make_project
from tests.support.pages.browser import PHONE, Visit, visit
from tests.support.pages.page_story import STEPS

REASON = (
    "No pool has 64 V100s free. The closest, us-west-2a spot, has 4 of them; on-demand has 16 in "
    "us-east-1c at $3.06/h each, which the budget of $5.00 would not carry to the end."
)


def test_an_empty_list_says_how_to_submit_and_fills_by_itself(look: Visit, site: Site):
    look.signed_in(site.key, "/jobs")
    expect(look.page.get_by_role("heading", name="No jobs yet")).to_be_visible()
    expect(look.page.get_by_role("search")).to_be_hidden()
    look.context.grant_permissions(["clipboard-read", "clipboard-write"])
    look.page.get_by_role("button", name="Copy").last.click()
    expect(look.page.get_by_role("button", name="Copied")).to_be_visible()
    copied = look.page.evaluate("navigator.clipboard.readText()")
    assert copied == "lowtide submit job.yaml"

    shown = look.page.get_by_label("A complete job").inner_text()
    look.page.evaluate("window.stillTheSamePage = true")
    answer = site.api.client.post(
        "/api/v1/jobs", content=shown, headers={"content-type": "application/yaml"}
    )
    assert answer.status_code == 201, answer.text
    expect(look.page.get_by_role("link", name="digits")).to_be_visible()
    expect(look.page.get_by_role("search")).to_be_visible()
    assert look.page.evaluate("window.stillTheSamePage")


def test_a_row_tells_state_progress_place_price_cost_and_saving(look: Visit, site: Site):
    site.story.interrupted_run()
    waiting = site.story.submit(name="waits", deadline=None)
    site.story.change(waiting, wait_reason=REASON)
    look.signed_in(site.key, "/jobs")
    links = look.page.locator(".job-name a:first-child")
    expect(links).to_have_text(["digits", "waits"])
    row = look.page.get_by_role("row").filter(has=look.page.get_by_role("link", name="digits"))
    expect(row).to_contain_text("running")
    expect(row.get_by_role("progressbar")).to_have_attribute("value", re.compile(r"6\d\.\d"))
    expect(row).to_contain_text("us-west-2a ×2")
    expect(row).to_contain_text("$2.08")
    expect(row).to_contain_text("of $5.00")
    expect(row).to_contain_text(re.compile(r"in \d+m.* / in 1h"))
    totals = look.page.get_by_label("The whole project now")
    expect(totals).to_have_text(
        re.compile(r"Now\$2\.08/h\s*Spent today\$\S+\s*Running1\s*Queued1\s*Failed today0")
    )
    reason = look.page.locator(".reason")
    expect(reason).to_have_text(REASON)
    expect(reason).to_have_attribute("title", REASON)
    # The whole of it, in at most two lines of the whole row.
    assert reason.evaluate("it => it.scrollHeight <= it.clientHeight && it.clientHeight < 40")
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


def test_a_search_is_in_the_address_and_a_sweep_is_one_row_that_opens(look: Visit, site: Site):
    for number in range(1, 4):
        site.story.submit(name=f"sweep-{number:03}", labels={"team": "nlp"})
    site.story.submit(name="alone-001", labels={"team": "vision"})
    look.signed_in(site.key, "/jobs")
    links = look.page.locator(".job-name a:first-child")
    expect(links).to_have_text(["alone-001", re.compile(r"sweep-… 3 jobs")])
    look.page.get_by_role("link", name="sweep-…").click()
    expect(links).to_have_text(["sweep-001", "sweep-002", "sweep-003"])
    expect(look.page).to_have_url(re.compile(r"\?prefix=sweep$"))
    look.page.get_by_title("Show the other jobs, too").click()
    look.page.get_by_label("Group").select_option("none")
    expect(links).to_have_count(4)
    expect(look.page).to_have_url(re.compile(r"group=none"))
    look.page.get_by_label("Part of a name").fill("00")
    look.page.get_by_label("Label, as key=value").fill("team=vision")
    look.page.get_by_role("button", name="Search").click()
    expect(links).to_have_text(["alone-001"])
    expect(look.page).to_have_url(re.compile(r"name=00&label=team%3Dvision&.*group=none$"))


def test_an_arrow_key_on_a_choice_waits_for_the_button(look: Visit, site: Site):
    site.story.submit()
    look.signed_in(site.key, "/jobs")
    look.page.evaluate("window.stillTheSamePage = true")
    sort = look.page.get_by_label("Sort")
    orders = sort.locator("option").evaluate_all("all => all.map(it => it.value)")
    sort.focus()
    look.page.keyboard.press("ArrowDown")
    look.page.keyboard.press("ArrowDown")
    expect(sort).to_have_value(orders[2])
    expect(sort).to_be_focused()
    assert look.page.evaluate("window.stillTheSamePage")
    look.page.keyboard.press("Tab")
    look.page.keyboard.press("Tab")
    look.page.keyboard.press("Enter")
    expect(look.page).to_have_url(re.compile(f"sort={orders[2]}"))


def test_ticked_jobs_stay_ticked_and_are_cancelled_together(look: Visit, site: Site):
    site.story.interrupted_run()
    for number in range(1, 4):
        site.story.submit(name=f"sweep-{number:03}")
    site.story.submit(name="other")
    look.signed_in(site.key, "/jobs")
    bar = look.page.get_by_role("form", name="Commands for the selected jobs")
    expect(bar).to_be_hidden()
    look.page.get_by_label("Select the 3 jobs sweep-…").check()
    look.page.get_by_label("Select digits").check()
    expect(bar.get_by_role("status")).to_have_text("4 selected")
    with look.page.expect_response(lambda answer: "/jobs/-/table" in answer.url):
        pass
    expect(look.page.get_by_label("Select digits")).to_be_checked()
    expect(bar.get_by_role("status")).to_have_text("4 selected")

    bar.get_by_role("button", name="Cancel…").click()
    question = look.page.get_by_role("dialog")
    expect(question.get_by_role("heading")).to_have_text("Cancel 4 jobs?")
    expect(question).to_contain_text(
        "1 job is running: a program that can save a checkpoint does so first"
    )
    expect(question).to_contain_text("3 jobs wait for machines: they leave the queue.")
    question.get_by_role("link", name="Go back").click()
    expect(question).to_be_hidden()
    assert site.story.states() == {JobState.RUNNING: 1, JobState.QUEUED: 4}

    posts: list[str] = []
    look.page.on("request", lambda one: posts.append(one.url) if one.method == "POST" else None)
    look.page.get_by_label("Select every job on this page").check()
    expect(bar.get_by_role("status")).to_have_text("5 selected")
    look.page.get_by_label("Select other").uncheck()
    bar.get_by_role("button", name="Cancel…").click()
    question.get_by_role("button", name="Cancel 4 jobs").click()
    expect(look.page.get_by_role("heading", name="4 jobs cancelled")).to_be_visible()
    assert [url.rpartition("/")[2] for url in posts] == ["question", "command"]
    assert site.story.states() == {
        JobState.STOPPING: 1,
        JobState.CANCELLED: 3,
        JobState.QUEUED: 1,
    }


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


def test_it_fits_a_phone(site: Site, browser: Browser):
    # A job that trains has a reason while it has saved no more than its last attempt, which failed.
    failed = {"end_reason": EndReason.USER_ERROR, "end_message": REASON, "committed_step": STEPS}
    running = site.story.interrupted_run()
    with site.api.engine.begin() as connection:
        own = (tables.attempts.c.job_id == running) & (tables.attempts.c.fence == 1)
        connection.execute(update(tables.attempts).where(own).values(failed))
    long = site.story.submit(name="a-job-with-quite-a-long-name-that-nobody-would-want-to-type-twi")
    site.story.change(long, wait_reason=REASON)
    for number in range(1, 4):
        site.story.submit(name=f"sweep-{number:03}")
    with visit(browser, site.api.url, viewport=PHONE, is_mobile=True, has_touch=True) as phone:
        phone.go("/sign-in")
        assert phone.overflow_px() == 0
        phone.signed_in(site.key, "/jobs")
        assert phone.overflow_px() == 0
        expect(phone.page.locator("td", has_text="$2.08")).to_be_in_viewport()
        expect(phone.page.locator(".jobs time.deadline").first).to_be_in_viewport()
        # What is cut off by the card is no overflow of the page: each part must end inside.
        boxes = phone.page.locator(".jobs tbody, .jobs td:visible, .job-name, .jobs .state")
        right = max(box["x"] + box["width"] for box in map(_box, boxes.all()))
        assert right <= PHONE["width"]
        rows = [_box(row)["height"] for row in phone.page.locator(".jobs tbody").all()]
        assert len(rows) == 3
        assert phone.page.locator(".reason", has_text=REASON).count() == 2
        assert max(rows) <= 120
        assert "–" not in phone.page.locator(".jobs").inner_text()
        phone.assert_content()


# The narrowest and the widest stand for those between.
@pytest.mark.parametrize(
    "width", [390, *(pytest.param(width, marks=pytest.mark.full) for width in (870, 1280)), 1920]
)
def test_a_replacement_is_told_where_the_machines_are(site: Site, browser: Browser, width: int):
    site.story.put_back(site.story.interrupted_run())
    long = site.story.submit(name="waits")
    site.story.change(long, wait_reason=REASON)
    with visit(browser, site.api.url, viewport={"width": width, "height": 900}) as look:
        look.signed_in(site.key, "/jobs")
        told = look.page.get_by_text("replacing 1 of 2 in local us-west-2a")
        expect(told).to_be_visible()
        card = _box(look.page.locator("table.jobs").locator(".."))
        boxes = [_box(cell) for cell in look.page.locator(".jobs td:visible").all()]
        assert max(cell["x"] + cell["width"] for cell in boxes) <= card["x"] + card["width"] + 1
        if width == 1920:
            assert _box(told)["height"] < 50, "on one line, where there is room"
            assert card["width"] > 0.85 * width
            row = _box(look.page.locator(".why-cell"))
            assert _box(look.page.locator(".reason"))["width"] > 0.9 * row["width"]


def _box(found: Locator) -> FloatRect:
    box = found.bounding_box()
    return box if box is not None else FloatRect(x=0, y=0, width=0, height=0)
