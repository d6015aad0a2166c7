"""Running a job again from its page and over the api: the name, the folder, what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from app.orchestration.agents.read_workdir import workdir_key
from app.storage.schema import tables
from tests.support.api.people_api import (
    PeopleApi,
    browser_of,
    hidden_field,
    make_key,
    make_project,
)
from tests.support.servers.table_rows import rows_of

DIGEST = f"sha256:{'ab' * 32}"


@pytest.fixture
def browser(api: PeopleApi) -> Iterator[httpx.Client]:
    """A client that has signed in as a browser does."""
    with browser_of(api, api.key) as client:
        yield client


def form_of(page: str, **fields: str) -> dict[str, str]:
    return {
        "form_token": hidden_field(page, "form_token"),
        "once": hidden_field(page, "once"),
        **fields,
    }


def spec_of(api: PeopleApi, name: str) -> dict[str, Any]:
    spec: dict[str, Any] = api.client.get(f"/api/v1/jobs/{name}").json()["spec"]
    return spec


def test_the_copy_of_a_job_is_its_spec_under_the_next_free_name(api: PeopleApi):
    api.submitted(name="one", labels={"team": "nlp"})
    api.submitted(name="one-2")
    copy = api.client.get("/api/v1/jobs/one/copy").json()
    assert (copy["name"], copy["copied_from"]) == ("one-3", "one")
    assert {**copy["spec"], "name": "one"} == spec_of(api, "one")
    assert api.client.get("/api/v1/jobs/one-3").status_code == 404
    key = make_key(api.engine, make_project(api.engine, "others"))
    hers = {"Authorization": f"Bearer {key}"}
    assert httpx.get(f"{api.url}/api/v1/jobs/one/copy", headers=hers).status_code == 404


def test_run_again_makes_one_job_however_often_the_form_is_sent(
    api: PeopleApi, browser: httpx.Client
):
    store, body = api.parts.runtime.object_store, b"packed"
    store.put_new(workdir_key(api.project_id, DIGEST), body)
    work = {"trainer": None, "run": "python train.py", "workdir": DIGEST}
    answer = api.submit({key: value for key, value in {**work, "name": "two"}.items() if value})
    assert answer.status_code == 201, answer.text
    text = browser.get("/jobs/two").text
    assert '<span class="actor" title="ada">ada</span>' in text
    form = form_of(text)
    for _ in range(2):
        assert browser.post("/jobs/two/run-again", data=form).headers["location"] == "/jobs/two-2"
    names = [one["name"] for one in api.client.get("/api/v1/jobs?name=two").json()["items"]]
    assert sorted(names) == ["two", "two-2"]
    assert spec_of(api, "two-2")["workdir"] == DIGEST
    other = form_of(browser.get("/jobs/two").text)
    assert browser.post("/jobs/two/run-again", data=other).headers["location"] == "/jobs/two-3"


def test_a_form_from_elsewhere_or_of_another_project_submits_nothing(
    api: PeopleApi, browser: httpx.Client
):
    api.submitted(name="three")
    form = form_of(browser.get("/jobs/three").text)
    assert (
        browser.post("/jobs/three/run-again", data={**form, "form_token": "x"}).status_code == 403
    )
    key = make_key(api.engine, make_project(api.engine, "strangers"))
    with browser_of(api, key) as stranger:
        for path in ("/jobs/three", "/jobs/three/clone", "/jobs/three/log?stream=a.log"):
            assert stranger.get(path).status_code == 404
        token = hidden_field(stranger.get("/jobs").text, "form_token")
        sent = {"form_token": token, "once": "x"}
        assert stranger.post("/jobs/three/run-again", data=sent).status_code == 404
    assert api.client.get("/api/v1/jobs?name=three-2").json()["items"] == []


def test_what_cannot_be_run_again_as_it_was_comes_back_as_a_form(
    api: PeopleApi, browser: httpx.Client
):
    estimate = {"hours": 5.0, "gpu": "V100:1"}
    answer = api.client.post(
        "/api/v1/jobs?accept_risk=true",
        json={"name": "four", "run": "python t.py", "estimate": estimate, "deadline": "10h"},
    )
    assert answer.status_code == 201, answer.text
    spec = "name: four\nrun: python t.py\nestimate: {hours: 5, gpu: V100}\ndeadline: tomorrow\n"
    form = form_of(browser.get("/jobs/four/clone").text, spec=spec.replace("\n", "\r\n"))
    page = browser.post("/jobs/four/clone", data={**form, "action": "submit"})
    assert page.status_code == 422
    assert 'data-line="4">line 4</a> deadline: ' in page.text
    # The text is as it was written, and a taken name is told with the next free one.
    assert "deadline: tomorrow" in page.text
    taken = {**form, "spec": "name: four\nrun: python t.py\n"}
    page = browser.post("/jobs/four/clone", data=taken)
    assert "&#39;four-2&#39; is free" in page.text
    assert 'data-line="1">' in page.text
    broken = browser.post("/jobs/four/clone", data={**form, "spec": "run: [\n"})
    assert broken.status_code == 422
    assert "line 1" in broken.text or "line 2" in broken.text


def test_what_will_never_run_is_submitted_only_by_the_box_that_accepts_it(
    api: PeopleApi, browser: httpx.Client
):
    api.submitted(name="never")
    spec = "name: never-2\nrun: python t.py\nestimate: {hours: 5, gpu: V100}\ndeadline: 1h\n"
    form = form_of(browser.get("/jobs/never/clone").text, spec=spec)
    for action in ("check", "submit"):
        page = browser.post("/jobs/never/clone", data={**form, "action": action})
        assert page.status_code == 422
        assert 'name="accept_risk"' in page.text
    assert api.client.get("/api/v1/jobs/never-2").status_code == 404
    accepted = browser.post("/jobs/never/clone", data={**form, "accept_risk": "true"})
    assert accepted.headers["location"] == "/jobs/never-2"


def test_a_job_that_saved_nothing_says_so_and_a_missing_log_is_a_page(
    api: PeopleApi, browser: httpx.Client
):
    api.submitted(name="five")
    assert "This job has no checkpoint yet" in browser.get("/jobs/five").text
    api.client.post("/api/v1/jobs/five/cancel")
    page = browser.get("/jobs/five").text
    assert "This job saved no checkpoint, and has ended." in page
    assert "lowtide download" not in page
    assert "step 0" not in page
    missing = browser.get("/jobs/five/log?stream=attempt-0001/node-0.log")
    assert missing.status_code == 404
    assert "This job has no log stream" in missing.text


def test_values_of_env_are_hidden_and_a_copy_has_them_all_the_same(
    api: PeopleApi, browser: httpx.Client
):
    value = "hunter2-of-env"
    spec = {"run": "python t.py", "env": {"TOKEN": value, "LR": "0.1"}, "name": "hidden"}
    job = api.submit(spec).json()
    hidden = {"TOKEN": f"*** of {job['id']}", "LR": f"*** of {job['id']}"}
    copy = api.get("/jobs/hidden/copy")["spec"]
    assert (spec_of(api, "hidden")["env"], copy["env"]) == (hidden, hidden)
    pages = ("/jobs/hidden", "/jobs/hidden/clone")
    assert all(value not in browser.get(path).text for path in pages)
    changed = {**copy, "name": "hidden-2", "env": {**copy["env"], "LR": "0.2"}}
    checked = api.client.post("/api/v1/jobs/check", json={**changed, "name": "hidden-9"})
    assert checked.status_code == 200, checked.text
    assert value not in checked.text
    assert api.submit(changed).status_code == 201
    form = form_of(browser.get("/jobs/hidden").text)
    assert browser.post("/jobs/hidden/run-again", data=form).headers["location"] == "/jobs/hidden-3"
    assert stored_env(api, "hidden-2") == {"TOKEN": value, "LR": "0.2"}
    assert stored_env(api, "hidden-3") == {"TOKEN": value, "LR": "0.1"}
    shown = api.submit({**spec, "name": "shown", "env_visible": True})
    assert shown.status_code == 201, shown.text
    assert spec_of(api, "shown")["env"] == spec["env"]
    assert value in browser.get("/jobs/shown").text


def test_a_hidden_value_is_of_a_job_of_the_same_project(api: PeopleApi):
    job = api.submit({"run": "t.py", "env": {"TOKEN": "hunter2-of-env"}, "name": "whose"}).json()
    hidden, theirs = f"*** of {job['id']}", api.as_stranger("thieves")
    for env, headers in (({"TOKEN": hidden}, theirs), ({"OTHER": hidden}, {})):
        answer = api.client.post("/api/v1/jobs", json={"run": "t.py", "env": env}, headers=headers)
        assert answer.status_code == 422
        assert "no such job of this project has the variable" in answer.text
        assert "hunter2" not in answer.text


def stored_env(api: PeopleApi, name: str) -> Any:
    [row] = rows_of(api.engine, tables.jobs, name=name)
    return row.spec["env"]
