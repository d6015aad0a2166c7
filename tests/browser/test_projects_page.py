"""The pages of projects: what each runs and spends, its rules, and what a job has from them."""

from __future__ import annotations

import httpx
from playwright.sync_api import Browser, expect

from tests.browser.conftest import Site
from tests.support.api.people_api import SPEC, bearer
from tests.support.pages.browser import PHONE, Visit, visit

RULES = {
    "required_labels": {"team": ["detection", "tracking"], "owner": []},
    "infra": ["aws/us-east-1", "gcp", "local"],
    "gpu_models": ["A100:80GB", "V100"],
    "defaults": {"priority": 60},
    "ceilings": {"budget_usd": 500, "nodes": 4},
}


def test_a_project_shows_its_rules_and_a_job_what_it_has_from_them(
    look: Visit, site: Site, browser: Browser
):
    with httpx.Client(base_url=f"{site.api.url}/api/v1", headers=bearer(site.key)) as client:
        assert client.put("/projects/admin/rules", json={"rules": RULES}).is_success
        spec = {**SPEC, "name": "ruled", "labels": {"team": "detection", "owner": "lea"}}
        assert client.post("/jobs", json={**spec, "budget_usd": 20, "estimate": {"hours": 1}},
                           params={"accept_risk": "true"}).is_success  # fmt: skip
    look.signed_in(site.key, "/jobs")
    look.page.get_by_role("link", name="Projects").click()
    row = look.page.get_by_role("row").filter(has_text="admin")
    expect(row).to_contain_text("version 1")
    row.get_by_role("link", name="admin").click()
    rules = look.page.get_by_role("region", name="Rules of new jobs")
    expect(rules).to_contain_text("aws/us-east-1, gcp, local")
    expect(rules).to_contain_text("any value")
    expect(rules).to_contain_text("$500.00")
    expect(look.page.get_by_role("region", name="Keys")).to_contain_text("maintainer")
    look.page.goto(f"{site.api.url}/jobs/ruled")
    look.page.get_by_role("heading", name="Spec").click()
    given = look.page.get_by_role("heading", name="From the project")
    expect(given).to_be_visible()
    expect(look.page.get_by_text("what the project allows").first).to_be_visible()

    for scheme in ("light", "dark"):
        small = {"viewport": PHONE, "is_mobile": True, "has_touch": True, "color_scheme": scheme}
        with visit(browser, site.api.url, **small) as phone:
            phone.signed_in(site.key, "/projects")
            for path in ("/projects", "/jobs/ruled", "/projects/admin"):
                phone.go(path)
                assert phone.overflow_px() == 0, path
            phone.assert_content()
