"""What is shown can be read: whole, with contrast, code as code, and no column left empty."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, expect

from app.domain.lifecycle.end_reason import EndReason
from app.domain.lifecycle.job import JobState
from tests.browser.conftest import Site
from tests.support.api.people_api import make_key
from tests.support.pages import page_endings
from tests.support.pages.browser import PHONE, WIDE, Visit, visit
from tests.support.pages.page_contrast import too_faint
from tests.support.pages.page_story import AGE_SECONDS
from tests.support.stories import decision_story

SCREEN = {"width": 1920, "height": 1080}
LONG_NAME = "grace-hopper-of-the-vision-team-and-whoever-else-submits-at-night"


def cancel(site: Site) -> None:
    """The story's job is cancelled while it trains."""
    job_id = site.story.interrupted_run()
    page_endings.stop_attempts(site.story, "stopped", EndReason.USER_CANCELLED)
    ended_at = site.story.after(AGE_SECONDS)
    site.story.change(
        job_id, state=JobState.CANCELLED, ended_at=ended_at, cost_final_at=ended_at,
        end_reason=EndReason.USER_CANCELLED, end_message="Cancelled by ada.",
    )  # fmt: skip


def pause(site: Site) -> None:
    """The story's job is paused while it trains."""
    page_endings.pause(site.story, site.story.interrupted_run())


def box(found: Locator) -> dict[str, float]:
    """Where an element is, in pixels, with its right and lower edge."""
    place = found.bounding_box()
    assert place is not None
    x, y, width, height = place["x"], place["y"], place["width"], place["height"]
    return {
        "x": x, "y": y, "width": width, "height": height, "right": x + width, "bottom": y + height,
    }  # fmt: skip


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out_from_its_ground(site: Site, browser: Browser, scheme: Any):
    job_id = site.story.interrupted_run()
    at = site.story.after(703)
    begin = site.api.parts.runtime.begin
    decision_story.record(begin, job_id, decision_story.placed(at, fence=2))
    site.story.change(site.story.submit(name="waits"), wait_reason="no pool has room for 2")
    with visit(browser, site.api.url, color_scheme=scheme) as seen:
        seen.go("/sign-in")
        assert too_faint(seen.page) == []
        seen.signed_in(site.key, "/jobs")
        assert too_faint(seen.page) == []
        seen.go("/jobs/digits")
        expect(seen.page.locator("#log-text")).to_contain_text("step")
        assert too_faint(seen.page) == []
        seen.page.get_by_role("button", name="Cancel…").click()
        assert too_faint(seen.page) == []
        page_endings.fail(site.story, job_id, 1, "ValueError: boom\n")
        seen.go("/jobs/digits")
        assert too_faint(seen.page) == []
        seen.assert_content()


@pytest.mark.parametrize("end", [pause, pytest.param(cancel, marks=pytest.mark.full)])
def test_beside_the_cost_the_curves_fill_their_column(site: Site, browser: Browser, end: Any):
    end(site)
    with visit(browser, site.api.url, viewport=SCREEN) as screen:
        screen.signed_in(site.key, "/jobs/digits")
        cost = box(screen.page.locator(".columns > .card"))
        side = screen.page.locator(".columns > .side > .card")
        expect(side).to_have_count(1)
        assert box(side)["y"] == pytest.approx(cost["y"], abs=1)
        assert box(side)["bottom"] == pytest.approx(cost["bottom"], abs=1)
        last = box(side.locator("figure").last)
        assert box(side)["bottom"] - last["bottom"] < 20
        assert box(side)["right"] - last["right"] < 20
        screen.assert_content()


@pytest.mark.parametrize("end", [pause, pytest.param(cancel, marks=pytest.mark.full)])
def test_many_curves_leave_no_empty_place_below_the_cost(site: Site, browser: Browser, end: Any):
    """A job with scores has twice as many curves as one without."""
    end(site)
    scored = (
        """UPDATE metric_points SET metrics = metrics || '{"test_loss": 1, "test_accuracy": 0.5, """
        """"validation_loss": 1}'"""
    )
    with site.api.engine.begin() as connection:
        connection.exec_driver_sql(scored)
    with visit(browser, site.api.url, viewport=SCREEN) as screen:
        screen.signed_in(site.key, "/jobs/digits")
        expect(screen.page.locator(".curves figure")).to_have_count(6)
        card = screen.page.locator(".columns > .card")
        last = box(card.locator("p.note").last)
        assert box(card)["bottom"] - last["bottom"] < 120
        screen.assert_content()


@pytest.mark.parametrize("screen", [pytest.param(WIDE, marks=pytest.mark.full), SCREEN])
def test_a_cost_alone_in_its_row_keeps_figures_near_their_names(
    site: Site, browser: Browser, screen: Any
):
    """A command that reports no metrics has no curves."""
    pause(site)
    with site.api.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM metric_points")
        connection.exec_driver_sql("UPDATE contacts SET metrics = '{}'")
    with visit(browser, site.api.url, viewport=screen) as wide:
        wide.signed_in(site.key, "/jobs/digits")
        card = box(wide.page.locator(".columns > .card"))
        useful = box(wide.page.get_by_role("row", name="useful"))
        total = box(wide.page.get_by_role("row", name=re.compile("^Total")))
        assert total["y"] == pytest.approx(useful["y"], abs=4)
        assert useful["right"] < total["x"]
        assert useful["width"] < card["width"] / 2
        assert card["right"] - total["right"] < 20
        wide.assert_content()


def test_the_pools_of_a_decision_fit_a_laptop(look: Visit, site: Site):
    job_id = site.story.interrupted_run()
    at = site.story.after(703)
    begin = site.api.parts.runtime.begin
    decision_story.record(begin, job_id, decision_story.placed(at, fence=2))
    look.signed_in(site.key, "/jobs/digits")
    pools = look.page.locator("#why-here .scroll")
    expect(pools.get_by_role("row")).to_have_count(5)
    assert pools.evaluate("it => it.scrollWidth - it.clientWidth") == 0


@pytest.mark.parametrize("name", ["eve", LONG_NAME])
def test_a_phone_shows_the_whole_name_of_who_is_signed_in(site: Site, browser: Browser, name: str):
    key = make_key(site.api.engine, site.api.project_id, name)
    site.story.submit()
    with visit(browser, site.api.url, viewport=PHONE, is_mobile=True, has_touch=True) as phone:
        phone.signed_in(key, "/jobs")
        who = phone.page.locator(".who-name")
        expect(who).to_have_text(f"admin · {name}")
        assert who.evaluate("it => it.scrollWidth - it.clientWidth") == 0
        assert who.evaluate("it => getComputedStyle(it).textOverflow") == "clip"
        assert box(who)["right"] <= PHONE["width"]
        if name == "eve":
            assert box(who)["height"] < 24
            assert box(phone.page.locator("header"))["height"] < 84, "a row each, and no third"
        assert phone.overflow_px() == 0
        # No choice of the search is cut, either.
        for choice in phone.page.locator(".search select").all():
            needs = choice.evaluate(
                "it => { const copy = it.cloneNode(true); copy.style.cssText = "
                "'position: absolute; width: max-content; flex: none';"
                " it.after(copy); const width = copy.offsetWidth; copy.remove(); return width }"
            )
            assert box(choice)["width"] >= needs - 1
        label = phone.page.get_by_label("Label, as key=value")
        label.fill(label.get_attribute("placeholder") or "")
        assert label.evaluate("it => it.scrollWidth - it.clientWidth") == 0
        phone.assert_content()


def test_a_small_phone_shows_every_page_in_the_navigation(site: Site, browser: Browser):
    small = {"width": 360, "height": 740}
    with visit(browser, site.api.url, viewport=small, is_mobile=True, has_touch=True) as phone:
        phone.signed_in(site.key, "/jobs")
        links = phone.page.get_by_role("navigation", name="Main").get_by_role("link")
        expect(links).to_have_text(["Jobs", "Estimates", "Projects", "Audit"])
        for link in links.all():
            expect(link).to_be_in_viewport(ratio=1)
            assert link.evaluate(
                "it => { const at = it.getBoundingClientRect(); return document.elementFromPoint("
                "at.left + at.width / 2, at.top + at.height / 2) === it }"
            ), "nothing hides it"
        links.nth(3).tap()
        expect(phone.page.get_by_role("heading", name="Audit")).to_be_visible()
        assert phone.overflow_px() == 0
        phone.assert_content()


def test_the_button_that_copies_covers_no_word(site: Site, browser: Browser):
    with visit(browser, site.api.url, viewport=PHONE, is_mobile=True, has_touch=True) as phone:
        phone.signed_in(site.key, "/jobs")
        button = phone.page.get_by_role("button", name="Copy").first
        covered = button.evaluate(
            "it => { const range = document.createRange(); const edge = it.getBoundingClientRect();"
            " range.selectNodeContents(it.parentElement.querySelector('pre'));"
            " return [...range.getClientRects()].filter(text => text.right > edge.left"
            " && text.top < edge.bottom).length }"
        )
        assert covered == 0
        code = phone.page.get_by_label("A complete job")
        assert code.evaluate("it => it.scrollWidth - it.clientWidth") == 0


def test_code_in_a_sentence_is_code(look: Visit, site: Site):
    site.story.quote(0, ((-60, 10_000_000),))
    job_id = site.story.submit()
    site.story.change(job_id, wait_reason="`max_price_ratio` rules out <b>every</b> pool")
    look.signed_in(site.key, "/jobs/digits")
    expect(look.page.locator(".unblock code")).to_have_text(["market: on_demand"])
    expect(look.page.locator(".why code")).to_have_text("max_price_ratio")
    expect(look.page.locator(".why")).to_contain_text("rules out <b>every</b> pool")
    assert "`" not in look.page.locator("main").inner_text()
    look.go("/jobs")
    reason = look.page.locator(".reason")
    expect(reason.locator("code")).to_have_text("max_price_ratio")
    expect(reason).to_have_attribute("title", "max_price_ratio rules out <b>every</b> pool.")


def test_without_a_pool_the_page_says_what_to_do(look: Visit, site: Site):
    job_id = site.story.submit()
    look.signed_in(site.key, "/jobs/digits")
    waits = look.page.get_by_role("region", name="What it waits for")
    expect(waits.locator(".unblock")).to_contain_text("Waiting will not help")
    expect(waits).to_contain_text("lowtide offers lists the pools that are known")
    expect(look.page.locator(".figures")).to_contain_text("nothing was paid yet")
    expect(look.page.locator("#logs")).to_contain_text("Logs appear here while machines run")

    paused_at = site.story.after(AGE_SECONDS)
    site.story.change(job_id, state=JobState.PAUSED, paused_at=paused_at)
    look.page.reload()
    resume = look.page.locator("#resume")
    expect(resume).to_contain_text("No machine is free for it now: it would wait.")
    expect(resume.locator(".unblock")).to_contain_text("Waiting will not help")
    resume.get_by_role("link", name="clone the job").click()
    expect(look.page.get_by_role("heading", name="A new job from digits")).to_be_visible()


def test_a_figure_that_is_alone_in_its_row_has_the_whole_row(site: Site, browser: Browser):
    cancel(site)
    with visit(browser, site.api.url, viewport=PHONE, is_mobile=True, has_touch=True) as phone:
        phone.signed_in(site.key, "/jobs/digits")
        last = box(phone.page.locator(".figures > :last-child"))
        assert last["width"] == pytest.approx(box(phone.page.locator(".figures"))["width"], abs=3)
        # Headings of folded and of open cards begin at one line.
        starts = phone.page.locator(".card > h2, .fold > summary:has(h2)").evaluate_all(
            "all => all.map(it => it.getBoundingClientRect().left"
            " + parseFloat(getComputedStyle(it).paddingLeft))"
        )
        assert len(set(starts)) == 1
        phone.assert_content()
