"""Rules over REST: set, in force at submission, shown in jobs, applied from a file; and whose."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import httpx
import pytest
from sqlalchemy import select

from app.domain.access.roles import Role
from app.domain.audit.audit_action import AuditAction
from app.storage.schema import tables
from tests.support.api.people_api import (
    SPEC,
    PeopleApi,
    bearer,
    browser_of,
    make_key,
    make_person_key,
    make_project,
)
from tests.support.api.refusals import assert_refused
from tests.support.servers.table_rows import change_rows, fetch_value, rows_of

RUN = {"run": "python train.py"}


@pytest.fixture(scope="module")
def admin(api: PeopleApi) -> dict[str, str]:
    return bearer(make_key(api.engine, api.project_id, "root", Role.ADMIN))


def project(api: PeopleApi, name: str) -> tuple[UUID, dict[str, str]]:
    """A project with the headers of its maintainer."""
    project_id = make_project(api.engine, name)
    return project_id, bearer(make_key(api.engine, project_id))


def put(
    api: PeopleApi, name: str, rules: Any, headers: dict[str, str], **more: Any
) -> httpx.Response:
    path = f"/api/v1/projects/{name}/rules"
    return api.client.put(path, json={"rules": rules, **more}, headers=headers)


def ruled(api: PeopleApi, name: str, rules: Any) -> dict[str, str]:
    """The maintainer of a new project with these rules."""
    _, maintainer = project(api, name)
    answer = put(api, name, rules, maintainer)
    assert answer.status_code == 200, answer.text
    return maintainer


def submitted(api: PeopleApi, spec: Any, headers: dict[str, str]) -> dict[str, Any]:
    answer = api.client.post("/api/v1/jobs", json=spec, headers=headers)
    assert answer.status_code == 201, answer.text
    shown = api.client.get(f"/api/v1/jobs/{answer.json()['id']}", headers=headers)
    document: dict[str, Any] = shown.json()
    return document


def applied(api: PeopleApi, projects: Any, headers: dict[str, str], how: str = "") -> Any:
    return api.client.post(
        f"/api/v1/projects/apply{how}", json={"projects": projects}, headers=headers
    )


def test_rules_are_kept_with_their_number_and_who_changed_them(api: PeopleApi):
    _, maintainer = project(api, "numbered")
    path = "/api/v1/projects/numbered/rules"
    before = api.client.get(path, headers=maintainer).json()
    assert (before["version"], before["rules"], before["changed_by"]) == (0, {}, None)
    found = put(api, "numbered", {"markets": "spot"}, maintainer).json()
    assert (found["version"], found["rules"]) == (1, {"markets": ["spot"]})
    assert found["changed_by"] == "person:ada"
    assert api.client.get(path, headers=maintainer).json() == found
    again = put(api, "numbered", {"markets": ["spot"]}, maintainer).json()
    assert again == found, "the same rules change nothing"
    assert_refused(put(api, "numbered", {}, maintainer, version=0), 409, "version 1 by now")
    assert put(api, "numbered", {}, maintainer, version=1).json()["version"] == 2


def test_wrong_rules_are_refused_with_their_fields(api: PeopleApi):
    _, maintainer = project(api, "wrong")
    wrong = {"quotas": {}, "ceilings": {"nodes": 0}, "limits": {"machine": 1}}
    answer = put(api, "wrong", wrong, maintainer)
    assert answer.status_code == 422
    problems = {one["field"]: one["message"] for one in answer.json()["errors"]}
    assert problems.keys() == {"quotas", "ceilings.nodes", "limits.machine"}
    assert "known: required_labels, infra" in problems["quotas"]
    assert "did you mean 'machines'?" in problems["limits.machine"]


def test_a_job_has_what_its_project_gives_and_says_what(api: PeopleApi):
    rules = {
        "infra": ["local"],
        "defaults": {"priority": 70, "labels": {"team": "vision"}},
        "ceilings": {"priority": 80},
    }
    maintainer = ruled(api, "giving", rules)
    job = submitted(api, {**SPEC, "name": "first"}, maintainer)
    assert (job["priority"], job["labels"], job["spec"]["infra"]) == (
        70, {"team": "vision"}, ["local"],
    )  # fmt: skip
    assert job["spec_sources"] == {
        "infra": "project_rule",
        "labels.team": "project_default",
        "priority": "project_default",
    }
    assert job["rules_version"] == 1
    own = submitted(api, {**SPEC, "priority": 50, "infra": "local", "labels": {"team": "x"}},
                    maintainer)  # fmt: skip
    assert (own["priority"], own["spec_sources"], own["rules_version"]) == (50, {}, None)
    # A later change touches new submissions only, and a copy is one.
    assert put(api, "giving", {"defaults": {"priority": 60}}, maintainer).is_success
    assert api.client.get("/api/v1/jobs/first", headers=maintainer).json()["priority"] == 70
    copy = api.client.get("/api/v1/jobs/first/copy", headers=maintainer).json()["spec"]
    assert copy.keys().isdisjoint({"priority", "infra"})
    assert "labels" not in copy
    assert submitted(api, copy, maintainer)["priority"] == 60


def test_a_spec_is_refused_in_every_place_alike(api: PeopleApi):
    rules = {"ceilings": {"nodes": 2}, "required_labels": ["team"]}
    maintainer = ruled(api, "strict", rules)
    spec = {**SPEC, "nodes": 3}
    said = []
    for path in ("/jobs", "/jobs/check", "/estimates"):
        answer = api.client.post(f"/api/v1{path}", json=spec, headers=maintainer)
        assert answer.status_code == 422, path
        said.append(answer.json()["errors"])
    assert said[0] == said[1] == said[2]
    assert [(one["field"], one["kind"]) for one in said[0]] == [
        ("labels.team", "missing"),
        ("nodes", "not_allowed"),
    ]
    assert "the project 'strict' allows at most 2 (ceilings.nodes)" in said[0][1]["message"]
    fine = {**SPEC, "labels": {"team": "a"}}
    checked = api.client.post("/api/v1/jobs/check", json=fine, headers=maintainer).json()
    assert (checked["spec"]["labels"], checked["spec_sources"]) == ({"team": "a"}, {})
    # In a project that the spec names, its rules count, not those of the caller's own.
    named = {**spec, "project": "strict"}
    admin = bearer(make_key(api.engine, api.project_id, "reaches", Role.ADMIN))
    assert_refused(api.client.post("/api/v1/jobs", json=named, headers=admin), 422, "'strict'")


def test_a_repetition_finds_its_job_after_the_rules_have_changed(api: PeopleApi):
    maintainer = ruled(api, "repeating", {"defaults": {"priority": 70}})
    headers = {**maintainer, "Idempotency-Key": "once"}
    first = api.client.post("/api/v1/jobs", json=SPEC, headers=headers)
    assert first.status_code == 201
    for rules in ({"defaults": {"priority": 60}}, {"required_labels": ["team"]}):
        assert put(api, "repeating", rules, maintainer).is_success
        again = api.client.post("/api/v1/jobs", json=SPEC, headers=headers)
        assert (again.status_code, again.json()["id"]) == (200, first.json()["id"])
    other = api.client.post("/api/v1/jobs", json={**SPEC, "priority": 3}, headers=headers)
    assert other.status_code == 409


def test_a_budget_is_not_raised_over_the_ceiling_when_a_job_is_resumed(api: PeopleApi):
    maintainer = ruled(api, "raising", {"ceilings": {"budget_usd": 100}})
    spec = {**SPEC, "name": "paused", "budget_usd": 60}
    path = "/api/v1/jobs?accept_risk=true"
    assert api.client.post(path, json=spec, headers=maintainer).status_code == 201
    command = "/api/v1/jobs/paused/{}"
    assert api.client.post(command.format("pause"), headers=maintainer).is_success

    def resumed(dollars: int) -> httpx.Response:
        added = {"add_budget_usd": dollars}
        return api.client.post(command.format("resume"), json=added, headers=maintainer)

    refused = resumed(41)
    assert_refused(refused, 422, "would be $101.00", "at most $100.00", field="add_budget_usd")
    taken = resumed(40).json()
    assert (taken["state"], taken["money"]["budget_microusd"]) == ("queued", 100_000_000)


def test_who_may_read_and_change_rules(api: PeopleApi, admin: dict[str, str]):
    project_id, maintainer = project(api, "owned")
    viewer = bearer(make_key(api.engine, project_id, "looks", Role.VIEWER))
    path = "/api/v1/projects/owned/rules"
    assert api.client.get(path, headers=viewer).status_code == 200
    assert put(api, "owned", {}, viewer).status_code == 403
    # The maintainer of another project cannot tell it from one that is not there.
    there = api.client.get(path)
    nowhere = api.client.get("/api/v1/projects/nowhere/rules")
    assert (there.status_code, nowhere.status_code) == (404, 404)
    assert there.json()["detail"].replace("owned", "nowhere") == nowhere.json()["detail"]
    assert put(api, "owned", {}, {}).status_code == 404
    changed = put(api, "owned", {"markets": "spot"}, admin).json()
    assert (changed["project"], changed["changed_by"]) == ("owned", "person:admin/root")
    assert api.client.get(path, headers=maintainer).json() == changed


def test_a_file_makes_and_changes_projects_and_says_how(api: PeopleApi, admin: dict[str, str]):
    ruled(api, "there", {"markets": ["spot"], "ceilings": {"nodes": 2}})
    wanted = {
        "made": {"rules": {"infra": ["aws"]}, "archived": False},
        "there": {"rules": {"markets": ["spot"], "ceilings": {"nodes": 4}}},
    }
    planned = applied(api, wanted, admin, "?dry_run=true").json()
    assert planned["dry_run"] is True
    assert planned["items"] == [
        {
            "name": "made",
            "outcome": "created",
            "changes": [{"field": "infra", "before": None, "after": ["aws"]}],
        },
        {
            "name": "there",
            "outcome": "changed",
            "changes": [{"field": "ceilings.nodes", "before": 2, "after": 4}],
        },
    ]
    assert "made" not in {one["name"] for one in api.client.get(
        "/api/v1/projects", headers=admin).json()["items"]}  # fmt: skip
    done = applied(api, wanted, admin).json()
    assert done == {**planned, "dry_run": False}
    again = applied(api, wanted, admin).json()
    assert {one["outcome"] for one in again["items"]} == {"unchanged"}
    archived = applied(api, {"made": {"archived": True}}, admin).json()["items"][0]
    assert archived["changes"] == [{"field": "archived", "before": False, "after": True}]
    listed = api.client.get("/api/v1/projects", headers=admin).json()["items"]
    assert {one["name"]: one["archived_at"] is None for one in listed}.items() >= {
        "made": False, "there": True,
    }.items()  # fmt: skip
    rules = api.client.get("/api/v1/projects/made/rules", headers=admin).json()["rules"]
    assert rules == {"infra": ["aws"]}, "what the file leaves out stays"


def test_projects_are_locked_by_name_whatever_the_files_order(
    api: PeopleApi, admin: dict[str, str]
):
    """Two files that name the same projects would else wait for each other."""
    names = ["order-c", "order-a", "order-b"]
    answer = applied(api, {name: {"rules": {"markets": ["spot"]}} for name in names}, admin)
    assert [one["name"] for one in answer.json()["items"]] == names
    rows = rows_of(api.engine, tables.audit_entries, action=AuditAction.PROJECT_CREATE)
    done = [row.subject_name for row in sorted(rows, key=lambda row: row.id)]
    assert [name for name in done if name in names] == sorted(names)


def test_a_file_is_applied_whole_or_not_at_all(api: PeopleApi):
    _, maintainer = project(api, "half")
    rules = {"rules": {"markets": ["spot"]}}
    mine = applied(api, {"half": rules}, maintainer)
    assert mine.json()["items"][0]["outcome"] == "changed", "a maintainer's own project"
    other = {"half": {"rules": {}}, "admin": rules}
    assert_refused(applied(api, other, maintainer), 404, "that the key 'ada' opens")
    assert_refused(applied(api, {"half": {"archived": True}}, maintainer), 403, "maintainer")
    read = api.client.get("/api/v1/projects/half/rules", headers=maintainer).json()
    assert (read["version"], read["rules"]) == (1, {"markets": ["spot"]})
    unknown = applied(api, {"half": {"people": []}}, maintainer)
    assert_refused(unknown, 422, "known: archived, rules")
    assert_refused(api.client.post("/api/v1/projects/apply", json={"project": {}}), 422, "projects")


def roles(api: PeopleApi, headers: dict[str, str]) -> dict[str, str]:
    """Who is what in the project of the headers."""
    items = api.client.get("/api/v1/members", headers=headers).json()["items"]
    return {one["name"]: one["role"] for one in items}


def test_a_file_gives_roles_and_removes_people_whom_it_does_not_name(
    api: PeopleApi, admin: dict[str, str]
):
    team, _ = project(api, "team")
    for name, role in (("Olga", Role.VIEWER), ("Pete", Role.SUBMITTER), ("Quin", Role.VIEWER)):
        make_person_key(api.engine, team, name, role)
    make_person_key(api.engine, make_project(api.engine, "elsewhere"), "Rosa", Role.VIEWER)
    people = tables.people
    change_rows(api.engine, people, people.c.name == "Rosa", email="rosa@example.com")
    wanted = {"OLGA": "maintainer", "rosa@example.com": "submitter", "Quin": "viewer"}
    file = {"team": {"members": {**wanted, "ada": "submitter"}}}
    planned = applied(api, file, admin, "?dry_run=true").json()
    [item] = planned["items"]
    assert [tuple(one.values()) for one in item["changes"]] == [
        ("members.ada", "maintainer", "submitter"),
        ("members.Olga", "viewer", "maintainer"),
        ("members.Pete", "submitter", None),
        ("members.Rosa", None, "submitter"),
    ]
    there = {**admin, "Lowtide-Project": "team"}
    assert roles(api, there)["Pete"] == "submitter", "a dry run changes nothing"
    assert applied(api, file, admin).json() == {**planned, "dry_run": False}
    assert roles(api, there) == {
        "ada": "submitter", "Olga": "maintainer", "Quin": "viewer", "Rosa": "submitter",
    }  # fmt: skip
    rows = api.client.get("/api/v1/audit?action=member&limit=4", headers=there).json()["items"]
    assert {(one["action"], one["subject_name"]) for one in rows} == {
        ("member.role", "ada"), ("member.role", "Olga"),
        ("member.remove", "Pete"), ("member.add", "Rosa"),
    }  # fmt: skip
    again = {"team": {"members": {"Olga": "maintainer", "Rosa": "submitter", "Quin": "viewer"}}}
    assert applied(api, again, admin).json()["items"][0]["outcome"] == "unchanged", "ada is a key"
    made = {"team-b": {"members": {"Rosa": "maintainer"}}}
    assert applied(api, made, admin, "?dry_run=true").json()["items"][0]["changes"] == [
        {"field": "members.Rosa", "before": None, "after": "maintainer"}
    ]
    assert applied(api, made, admin).json()["items"][0]["outcome"] == "created"
    assert roles(api, {**admin, "Lowtide-Project": "team-b"}) == {"Rosa": "maintainer"}


def test_a_file_changes_no_member_that_its_applier_may_not(api: PeopleApi, admin: dict[str, str]):
    team, maintainer = project(api, "bounded")
    make_person_key(api.engine, team, "Sven", Role.VIEWER)
    far = make_project(api.engine, "far")
    make_person_key(api.engine, far, "Tess", Role.VIEWER)
    make_key(api.engine, team, "roamer", Role.VIEWER)
    keys = tables.api_keys
    change_rows(api.engine, keys, keys.c.name == "roamer", project_ids=[team, far])

    def refused(status: int, words: str, headers: dict[str, str], **members: str) -> None:
        for how in ("?dry_run=true", ""):
            answer = applied(api, {"bounded": {"members": members}}, headers, how)
            assert_refused(answer, status, words)

    refused(403, "not admin", maintainer, Sven="admin")
    # There or not, a maintainer is told the same of people outside of its project.
    for name in ("Tess", "Nobody"):
        refused(422, f"no member '{name}'", maintainer, Sven="viewer", **{name: "viewer"})
    refused(422, "lowtide member invite", admin, Nobody="viewer")
    refused(422, "mean 'Sven'", admin, Sven="viewer", SVEN="submitter")
    refused(403, "works in several projects", maintainer, Sven="viewer", roamer="submitter")
    make_person_key(api.engine, team, "Uma", Role.ADMIN)
    refused(403, "not admin", maintainer, Sven="submitter")
    assert roles(api, maintainer)["Sven"] == "viewer"


def test_a_name_that_is_another_person_s_address_gets_no_role_by_a_file(
    api: PeopleApi, admin: dict[str, str]
):
    crew, maintainer = project(api, "crew")
    make_person_key(api.engine, crew, "vera@example.com", Role.VIEWER)
    file = {"crew": {"members": {"Vera@Example.com": "maintainer"}}}
    for headers in (maintainer, admin):
        assert_refused(applied(api, file, headers), 422, "no member 'Vera@Example.com'")
    make_person_key(api.engine, make_project(api.engine, "shore"), "Vera", Role.VIEWER)
    people = tables.people
    change_rows(api.engine, people, people.c.name == "Vera", email="vera@EXAMPLE.com")
    assert_refused(applied(api, file, maintainer), 422, "no member 'Vera@Example.com'")
    for outcome in ("changed", "unchanged"):
        assert applied(api, file, admin).json()["items"][0]["outcome"] == outcome
    assert roles(api, maintainer) == {"ada": "maintainer", "Vera": "maintainer"}
    # Who cannot be designated otherwise is by its id.
    which = select(people.c.id).where(people.c.name == "vera@example.com")
    person_id = str(fetch_value(api.engine, which))
    file["crew"]["members"][person_id] = "viewer"
    for outcome in ("changed", "unchanged"):
        assert applied(api, file, admin).json()["items"][0]["outcome"] == outcome
    assert roles(api, maintainer)["vera@example.com"] == "viewer"


def test_placement_of_a_running_job_keeps_to_the_rules_it_was_submitted_under(api: PeopleApi):
    maintainer = ruled(api, "placed", {"regions": ["us-east-1"], "gpu_models": ["V100"]})
    job = submitted(api, RUN, maintainer)
    assert job["spec"]["infra"] == ["aws/us-east-1", "local/us-east-1"]
    assert job["spec"]["resources"]["gpu"] == ["V100:16GB:1", "V100:32GB:1"]
    assert put(api, "placed", {}, maintainer).is_success
    stored = fetch_value(
        api.engine, tables.jobs.select().with_only_columns(tables.jobs.c.spec).where(
            tables.jobs.c.id == UUID(job["id"]))
    )  # fmt: skip
    assert stored["infra"] == ["aws/us-east-1", "local/us-east-1"]


def test_pages_of_projects(api: PeopleApi, admin: dict[str, str]):
    rules = {"ceilings": {"budget_usd": 200}, "required_labels": ["team"]}
    project_id, maintainer = project(api, "seen")
    assert put(api, "seen", rules, maintainer).is_success
    viewer = make_key(api.engine, project_id, "reads", Role.VIEWER)
    with browser_of(api, viewer) as browser:
        listed, own = browser.get("/projects").text, browser.get("/projects/seen").text
        assert browser.get("/projects/admin").status_code == 404
    assert 'href="/projects/seen"' in listed
    assert 'href="/projects/admin"' not in listed
    assert "ceilings.budget_usd" in own
    assert "$200.00" in own
    assert "any value" in own
    assert "Keys" not in own
    with browser_of(api, admin["Authorization"].removeprefix("Bearer ")) as browser:
        everywhere, other = browser.get("/projects").text, browser.get("/projects/seen").text
    assert 'href="/projects/seen"' in everywhere
    assert 'href="/projects/admin"' in everywhere
    assert "reads" in other
    assert "lowtide jobs --project seen" in other
    spec = {**SPEC, "name": "given", "labels": {"team": "a"}}
    assert put(api, "seen", {"defaults": {"priority": 61}}, maintainer).is_success
    submitted(api, spec, maintainer)
    with browser_of(api, viewer) as browser:
        page = browser.get("/jobs/given").text
    assert 'href="/projects/seen"' in page
    assert "the project&#39;s default" in page


def test_limits_are_told_with_their_use_and_full_queues_refuse(
    api: PeopleApi, admin: dict[str, str]
):
    limits = {"machines": 3, "gpus": {"V100": 8}, "max_hourly_spend_usd": 5, "queued_jobs": 1}
    maintainer = ruled(api, "hemmed", {"limits": limits})
    submitted(api, RUN, maintainer)
    refused = api.client.post("/api/v1/jobs", json=RUN, headers=maintainer)
    assert_refused(refused, 409, "The project 'hemmed' has 1 queued job, and its limit is 1")
    path = "/api/v1/projects/hemmed/limits"
    found = api.client.get(path, headers=maintainer).json()["items"]
    assert [(one["field"], one["most"], one["used"]) for one in found] == [
        ("machines", 3, 0),
        ("gpus.V100", 8, 0),
        ("max_hourly_spend_usd", 5_000_000, 0),
        ("queued_jobs", 1, 1),
    ]
    shared = {"limits": {"queued_jobs": 100_000}}
    answer = api.client.put("/api/v1/limits", json=shared, headers=admin).json()
    assert (answer["limits"], answer["changed_by"]) == (shared["limits"], "person:root")
    [first, *_] = api.client.get(path, headers=maintainer).json()["items"]
    assert (first["project"], first["field"]) == (None, "queued_jobs")
    wrong = api.client.put("/api/v1/limits", json={"limits": {"gpus": {"V10": 1}}}, headers=admin)
    assert_refused(wrong, 422, "is not a known GPU")
    assert api.client.put("/api/v1/limits", json={"limits": {}}, headers=admin).is_success


def test_a_freeze_is_listed_for_those_whom_it_concerns(api: PeopleApi, admin: dict[str, str]):
    _, maintainer = project(api, "cold")
    _, stranger = project(api, "warm")
    path = "/api/v1/projects/cold/freeze"
    made = api.client.post(path, json={"reason": "storm."}, headers=maintainer).json()
    assert made["sentence"].startswith("Launches of the project 'cold' are frozen since 20")
    assert (made["reason"], made["frozen_by"]) == ("storm", "person:ada")
    again = api.client.post(path, json={"reason": "other"}, headers=maintainer).json()
    assert again == made, "what is frozen stays as it is"
    assert_refused(api.client.post(path, json={}, headers=stranger), 404, "There is no project")
    refused = api.client.post("/api/v1/freezes", json={"cloud": None}, headers=maintainer)
    assert_refused(refused, 403, "has the role maintainer")
    wrong = api.client.post("/api/v1/freezes", json={"cloud": "awz"}, headers=admin)
    assert_refused(wrong, 422, "did you mean 'aws'?")
    assert api.client.post("/api/v1/freezes", json={"cloud": "gcp"}, headers=admin).is_success
    for headers, seen in ((maintainer, ["gcp", "cold"]), (stranger, ["gcp"])):
        rows = api.client.get("/api/v1/freezes", headers=headers).json()["items"]
        assert [row["cloud"] or row["project"] for row in rows] == seen
    with browser_of(api, maintainer["Authorization"].removeprefix("Bearer ")) as browser:
        page = browser.get("/projects/cold").text
    assert "Launches of the project &#39;cold&#39; are frozen" in page
    assert "<code>lowtide thaw cold</code>" in page
    ended = api.client.post("/api/v1/projects/cold/thaw", headers=maintainer).json()["thawed"]
    assert ended["project"] == "cold"
    twice = api.client.post("/api/v1/projects/cold/thaw", headers=maintainer).json()
    assert twice == {"thawed": None}
    gone = api.client.post("/api/v1/freezes/thaw", json={"cloud": "gcp"}, headers=admin)
    assert gone.json()["thawed"]["cloud"] == "gcp"


def test_a_monthly_budget_is_set_shown_and_removed(api: PeopleApi):
    _, maintainer = project(api, "thrifty")
    path = "/api/v1/projects/thrifty/budget"
    assert api.client.get(path, headers=maintainer).json() == {"budget": None}
    body = {"monthly_usd": "250", "at_100": "drain_and_pause"}
    made = api.client.put(path, json=body, headers=maintainer).json()["budget"]
    assert (made["monthly_microusd"], made["at_100"]) == (250_000_000, "drain_and_pause")
    assert (made["percent"], made["forecast_microusd"], made["thresholds"]) == (0, 0, [])
    assert made["month_at"].endswith("-01T00:00:00+00:00")
    listed = api.client.get("/api/v1/budgets", headers=maintainer).json()["items"]
    assert listed == [made]
    more = api.client.put(path, json={"monthly_usd": 300}, headers=maintainer).json()["budget"]
    assert (more["monthly_microusd"], more["at_100"]) == (300_000_000, "drain_and_pause")
    for wrong, told in (
        ({"monthly_usd": 0}, "monthly_usd: must be at least"),
        ({"monthly_usd": 5, "at_100": "stop"}, "use block_new, drain_and_pause"),
    ):
        assert_refused(api.client.put(path, json=wrong, headers=maintainer), 422, told)
    with browser_of(api, maintainer["Authorization"].removeprefix("Bearer ")) as browser:
        assert "Budget of this month" in browser.get("/projects/thrifty").text
    removed = api.client.put(path, json={"monthly_usd": None}, headers=maintainer).json()
    assert removed == {"budget": None}


def test_the_page_of_a_project_shows_the_budget_of_the_deployment(
    api: PeopleApi, admin: dict[str, str]
):
    """Figures of all projects are for those who read the deployment."""
    _, maintainer = project(api, "shared")
    assert api.client.put("/api/v1/budget", json={"monthly_usd": 4321}, headers=admin).is_success
    pages = []
    for headers in (maintainer, admin):
        with browser_of(api, headers["Authorization"].removeprefix("Bearer ")) as browser:
            pages.append(browser.get("/projects/shared").text)
    assert all("The deployment's budget of this month" in page for page in pages)
    assert ["$4,321.00" in page for page in pages] == [False, True]
    assert "0 % is spent by all projects together." in pages[0]
    assert api.client.put("/api/v1/budget", json={"monthly_usd": None}, headers=admin).is_success
