"""The page of what people did, in a browser: found from the list of jobs, narrowed, on a phone."""

from __future__ import annotations

from playwright.sync_api import Browser, expect

from tests.browser.conftest import Site
from tests.support.api.people_api import SPEC, bearer
from tests.support.pages.browser import PHONE, Visit, visit
from tests.support.pages.page_contrast import too_faint


def test_what_people_did_is_found_and_narrowed(look: Visit, site: Site, browser: Browser):
    body = {**SPEC, "name": "told-of"}
    answer = site.api.client.post("/api/v1/jobs", json=body, headers=bearer(site.key))
    assert answer.status_code == 201, answer.text
    look.signed_in(site.key, "/jobs")
    look.page.get_by_role("link", name="Audit").click()
    row = look.page.get_by_role("row").filter(has_text="job.submit")
    expect(row).to_contain_text("told-of")
    expect(row).to_contain_text("127.0.0.1")
    assert too_faint(look.page) == []
    look.page.get_by_label("Action").select_option("key")
    look.page.get_by_role("button", name="Search").click()
    expect(look.page.get_by_role("heading", name="Nothing matches")).to_be_visible()
    look.page.get_by_role("link", name="Clear the filter").click()
    expect(look.page.get_by_role("row").filter(has_text="session.begin")).to_be_visible()
    with visit(browser, site.api.url, viewport=PHONE, is_mobile=True, has_touch=True) as phone:
        phone.signed_in(site.key, "/audit")
        expect(phone.page.get_by_text("told-of")).to_be_visible()
        assert phone.overflow_px() == 0
        phone.assert_content()
