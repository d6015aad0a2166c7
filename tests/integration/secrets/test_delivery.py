"""Machines ask for their job's secrets: who is given them, until when, and what is written down."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any
from uuid import uuid4

import httpx
import pytest
from sqlalchemy import text

from app.adapters.providers.gcp.client.gcp_settings import GcpSettings
from app.adapters.providers.gcp.client.job_secret_token import JobSecretToken
from app.domain.access.roles import Role
from app.domain.audit.audit_action import AuditAction
from app.domain.deployment.check_result import CheckResult
from app.orchestration.secrets.deliver_secrets import DELIVERIES_MAX
from app.orchestration.secrets.diagnose_cloud_secrets import check_cloud_secrets
from app.ports.secret_grants import GrantIssuers
from app.storage.schema import tables
from tests.support.api.agent_api import Gang, SpeakingAgent
from tests.support.api.people_api import PeopleApi, bearer, make_key, make_own_gang
from tests.support.object_stores.scoped_gcs import DATA_ACCOUNT, SECRET_ACCOUNT, ScopedGcs
from tests.support.servers.table_rows import fetch, rows_of
from trainer.protocol.run_config import GOOGLE_SECRETS

VALUE = "hunter2-of-wandb"


@pytest.fixture(scope="module", autouse=True)
def secrets(api: PeopleApi) -> None:
    for name in ("WANDB_API_KEY", "GCP", "GONE"):
        put = api.client.put(f"/api/v1/secrets/{name}", json={"value": f"{VALUE}-{name}"})
        assert put.is_success, put.text
    few = {"value": VALUE, "for_maintainers": True}
    assert api.client.put("/api/v1/secrets/FOR_FEW", json=few).is_success


def gang_with(api: PeopleApi, name: str, *uses: Any, nodes: int = 1) -> Gang:
    return make_own_gang(api, nodes, name=name, secrets=list(uses) or ["WANDB_API_KEY"])


def ask(api: PeopleApi, agent: SpeakingAgent, fence: int = 1) -> httpx.Response:
    path = f"/agent/v1/attempts/{fence}/secrets"
    return api.client.get(path, headers=agent.headers)


def test_each_member_is_given_them_again_and_again_until_it_trains(api: PeopleApi):
    uses = ("WANDB_API_KEY", {"name": "GCP", "file": "gcp.json"})
    gang = gang_with(api, "both", *uses, nodes=2)
    agents = [SpeakingAgent(api, gang, rank) for rank in range(2)]
    replies = [agent.register(takes_secrets=True).json() for agent in agents]
    values = {"WANDB_API_KEY": f"{VALUE}-WANDB_API_KEY", "GCP": f"{VALUE}-GCP"}
    for agent in (*agents, agents[0]):
        answer = ask(api, agent)
        assert answer.json() == {"values": values, "cloud": []}
        assert answer.headers["cache-control"] == "no-store"
    agents[0].prepare()
    assert ask(api, agents[0]).status_code == 200, "another member is not prepared yet"
    agents[1].prepare()
    for agent in agents:
        refused = ask(api, agent)
        assert refused.status_code == 403
        assert "does not prepare" in refused.json()["detail"]
    assert VALUE not in str(replies)
    named = [
        {"name": "GCP", "file": "gcp.json", "source": None},
        {"name": "WANDB_API_KEY", "file": None, "source": None},
    ]
    assert replies[0]["run_config"]["secrets"] == named
    told = [row for row in rows_of(api.engine, tables.audit_entries)
            if row.action is AuditAction.SECRET_DELIVER]  # fmt: skip
    assert len(told) == 8, "two names, four times"
    assert {row.subject_name for row in told} == {"WANDB_API_KEY", "GCP"}
    assert {(row.key_id, row.person_id, row.address) for row in told} == {(None, None, "127.0.0.1")}
    [event] = [one["message"] for one in api.items("/jobs/both/events")
               if one["kind"] == "secrets_delivered"][:1]  # fmt: skip
    assert "GCP (version 1), WANDB_API_KEY (version 1)" in event


def test_a_machine_that_asks_without_end_is_refused(api: PeopleApi):
    """Each delivery is a row of the audit and one of the history."""
    agent = SpeakingAgent(api, gang_with(api, "greedy"))
    agent.register(takes_secrets=True)
    answers = [ask(api, agent) for _ in range(DELIVERIES_MAX + 2)]
    refused = answers[DELIVERIES_MAX:]
    assert [one.status_code for one in answers] == [200] * DELIVERIES_MAX + [409] * 2
    assert f"given its secrets {DELIVERIES_MAX} times in attempt 1" in refused[0].json()["detail"]
    events = [one for one in api.items("/jobs/greedy/events") if one["kind"] == "secrets_delivered"]
    assert len(events) == DELIVERIES_MAX


def test_nobody_else_is_given_them(api: PeopleApi):
    agent = SpeakingAgent(api, gang_with(api, "mine"))
    assert agent.register(takes_secrets=True).status_code == 200
    other = SpeakingAgent(api, make_own_gang(api, name="other"))
    assert other.register().status_code == 200
    assert ask(api, other).json() == {"values": {}, "cloud": []}, "its job names none"
    kinds = {one["kind"] for one in api.items("/jobs/other/events")}
    assert "secrets_delivered" not in kinds
    for fence in (0, 2, 7):
        assert ask(api, agent, fence).status_code == 403
    for key in ("nonsense", api.key):
        path = "/agent/v1/attempts/1/secrets"
        assert httpx.get(f"{api.url}{path}", headers=bearer(key)).status_code == 401
    assert api.client.get("/agent/v1/attempts/x/secrets", headers=agent.headers).status_code == 422
    assert ask(api, agent).status_code == 200
    assert api.client.post("/api/v1/jobs/mine/cancel").is_success
    assert ask(api, agent).status_code == 403


def test_what_is_missing_is_told_by_name(api: PeopleApi):
    agent = SpeakingAgent(api, gang_with(api, "gone", "WANDB_API_KEY", "GONE"))
    assert agent.register(takes_secrets=True).status_code == 200
    assert api.client.post("/api/v1/secrets/GONE/remove").is_success
    answer = ask(api, agent)
    assert answer.status_code == 409
    assert "has no secret GONE any more" in answer.json()["detail"]
    before = len(rows_of(api.engine, tables.audit_entries))
    path = api.parts.settings.state_dir / "secrets.key"
    hidden = path.rename(path.with_suffix(".away"))
    try:
        assert api.client.put("/api/v1/secrets/GONE", json={"value": "x"}).status_code == 409
        unreadable = SpeakingAgent(api, gang_with(api, "unreadable"))
        assert unreadable.register(takes_secrets=True).status_code == 200
        answer = ask(api, unreadable)
        refused = api.submit({"run": "true", "secrets": ["WANDB_API_KEY"]})
    finally:
        hidden.rename(path)
    assert "cannot read the secret WANDB_API_KEY" in answer.json()["detail"]
    assert refused.status_code == 422
    assert "its key is missing" in refused.text
    assert len(rows_of(api.engine, tables.audit_entries)) == before
    assert ask(api, unreadable).status_code == 200


def test_an_agent_of_the_release_before_is_refused_where_its_job_names_secrets(api: PeopleApi):
    former = SpeakingAgent(api, gang_with(api, "former"))
    refused = former.register()
    assert refused.status_code == 409
    assert "cannot ask for secrets" in refused.json()["detail"]
    assert former.register(takes_secrets=True).status_code == 200
    without = SpeakingAgent(api, make_own_gang(api, name="former-without"))
    assert without.register().status_code == 200


def test_a_submission_names_secrets_of_its_own_project_that_its_author_may_use(api: PeopleApi):
    submitter = bearer(make_key(api.engine, api.project_id, "sam", Role.SUBMITTER))
    stranger = api.as_stranger("foreign")

    def refused(headers: dict[str, str], *names: str) -> list[str]:
        spec = {"run": "true", "secrets": list(names)}
        for path in ("/api/v1/jobs", "/api/v1/jobs/check"):
            answer = api.client.post(path, json=spec, headers=headers)
            assert answer.status_code in (200, 201, 422), answer.text
        return [one["message"] for one in answer.json().get("errors", ())]

    assert refused(submitter, "WANDB_API_KEY") == []
    [few] = refused(submitter, "FOR_FEW")
    [none] = refused(submitter, "NOWHERE")
    assert few.replace("FOR_FEW", "NOWHERE") == none, "one that is not for it is as if not there"
    assert "no such secret that you may use" in few
    [near] = refused(submitter, "WANDB_API_KEYS")
    assert "did you mean 'WANDB_API_KEY'?" in near
    [foreign] = refused(stranger, "WANDB_API_KEY")
    assert "the project 'foreign' has no such secret" in foreign
    assert "did you mean" not in foreign
    assert api.submit({"run": "true", "secrets": ["FOR_FEW"], "name": "shown"}).status_code == 201
    assert api.get("/jobs/shown")["spec"]["secrets"] == ["FOR_FEW"]


SOURCE = {"name": "DB_URL", "from": "gcp-sm:vision-db"}
ACCOUNT = {"secret_account": SECRET_ACCOUNT}


def with_rules(api: PeopleApi, rules: dict[str, Any], role: Role = Role.ADMIN) -> httpx.Response:
    """A change of the rules of the project that the gangs are in."""
    key = make_key(api.engine, api.project_id, f"ruler-{uuid4()}", role)
    [mine] = [row for row in rows_of(api.engine, tables.projects) if row.id == api.project_id]
    path = f"/api/v1/projects/{mine.name}/rules"
    return api.client.put(path, json={"rules": rules}, headers=bearer(key))


@pytest.fixture
def google(api: PeopleApi) -> Iterator[ScopedGcs]:
    """Who issues tokens of the project's account, and whom its rules allow."""
    access = api.app.state.secret_access
    with closing(ScopedGcs()) as fake:
        settings = GcpSettings("acme-prod", ("us-central1",), endpoint=fake.url)
        access._issuers[GOOGLE_SECRETS] = JobSecretToken(DATA_ACCOUNT, settings)
        assert with_rules(api, {"secret_prefixes": ["gcp-sm:vision-"], **ACCOUNT}).is_success
        yield fake
    assert with_rules(api, {}).is_success
    access._issuers.clear()
    access._issues.clear()


def test_a_machine_is_given_what_opens_a_secret_of_a_cloud_and_never_its_value(
    api: PeopleApi, google: ScopedGcs
):
    agent = SpeakingAgent(api, gang_with(api, "clouds", SOURCE, "WANDB_API_KEY"))
    assert agent.register().status_code == 409, "its agent cannot ask"
    registered = agent.register(takes_secrets=True)
    assert registered.status_code == 200
    answers = [ask(api, agent).json() for _ in range(2)]
    assert answers[0] == answers[1], "within two minutes it is given again"
    assert answers[0]["values"] == {"WANDB_API_KEY": f"{VALUE}-WANDB_API_KEY"}
    [cloud] = answers[0]["cloud"]
    token = cloud.pop("credential")["token"]
    assert cloud == {
        "service": "gcp-sm", "place": "acme-prod", "endpoint": google.url,
        "names": {"DB_URL": "vision-db"},
    }  # fmt: skip
    assert google.lifetimes == ["300s"]
    rows = rows_of(api.engine, tables.audit_entries)
    told = [(row.action, row.address) for row in rows if row.subject_id == SOURCE["from"]]
    assert told == [(AuditAction.SECRET_DELIVER, "127.0.0.1")] * 2
    [event] = [one["message"] for one in api.items("/jobs/clouds/events")
               if one["kind"] == "secrets_delivered"][:1]  # fmt: skip
    assert "WANDB_API_KEY (version 1), DB_URL (to be read as gcp-sm:vision-db)" in event
    assert token not in registered.text
    with api.engine.connect() as connection:
        for table in tables.metadata.tables.values():
            kept = connection.execute(text(f"SELECT t::text FROM {table.name} t"))
            assert not [row for (row,) in kept if token in row]


def test_what_rules_do_not_allow_any_more_is_not_given(api: PeopleApi, google: ScopedGcs):
    agent = SpeakingAgent(api, gang_with(api, "narrowed", SOURCE))
    assert agent.register(takes_secrets=True).status_code == 200
    google.trouble = (503, b'{"error": {"message": "away"}}')
    answer = ask(api, agent)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert "No credential for gcp-sm was issued: generateAccessToken" in answer.json()["detail"]
    google.trouble = None
    assert ask(api, agent).status_code == 200, "a failure is not kept"
    asked = len(google.lifetimes)
    assert with_rules(api, {"secret_prefixes": ["gcp-sm:vision-other-"], **ACCOUNT}).is_success
    answer = ask(api, agent)
    assert answer.status_code == 409
    assert "gcp-sm:vision-db is not within the prefixes" in answer.json()["detail"]
    assert with_rules(api, {"secret_prefixes": ["gcp-sm:vision-"]}).is_success
    assert "an admin can name one by the rule `secret_account`" in ask(api, agent).json()["detail"]
    assert len(google.lifetimes) == asked
    aws = SpeakingAgent(api, gang_with(api, "without", {"name": "A", "from": "aws-sm:a"}))
    assert aws.register(takes_secrets=True).status_code == 200
    assert with_rules(api, {"secret_prefixes": ["aws-sm:a"]}).is_success
    answer = ask(api, aws)
    assert answer.status_code == 503
    assert "gives machines no credentials for aws-sm" in answer.json()["detail"]


def test_doctor_tries_what_opens_them_and_asks_for_no_secret(api: PeopleApi, google: ScopedGcs):
    issuers = api.app.state.secret_access._issuers

    def results(known: dict[str, Any]) -> list[CheckResult]:
        runtime, made = api.parts.runtime, GrantIssuers({}, known)
        return list(check_cloud_secrets(runtime.begin, lambda: made, runtime.entropy))

    def told(known: dict[str, Any]) -> tuple[bool, str, str]:
        [found] = results(known)
        assert found.name == "secrets of clouds"
        return found.ok, found.sentence, found.remedy

    good = f"gcp-sm for {SECRET_ACCOUNT}: a credential was issued; no secret was asked for"
    assert told(issuers) == (True, good, "")
    ok, sentence, remedy = told({})
    assert not ok
    assert (sentence.partition(": ")[2], remedy.partition(";")[0]) == (
        "machines are given no credentials", "set LOWTIDE_GCP_DATA_ACCOUNT",
    )  # fmt: skip
    google.trouble = (403, b'{"error": {"message": "denied"}}')
    ok, sentence, _ = told(issuers)
    assert not ok
    assert "was refused with 403: denied" in sentence
    google.trouble = None
    both = {"secret_prefixes": ["aws-sm:a", "gcp-sm:a", "gcp-sm:b"], **ACCOUNT}
    assert with_rules(api, both).is_success
    assert [one.ok for one in results(issuers)] == [False, True]
    assert with_rules(api, {}).is_success
    assert results(issuers) == []


def test_a_submission_names_secrets_of_clouds_that_its_project_allows(
    api: PeopleApi, google: ScopedGcs
):
    def refused(source: str) -> str:
        spec = {"run": "true", "secrets": [{"name": "A", "from": source}]}
        answer = api.submit(spec)
        assert answer.status_code == 422, answer.text
        [one] = answer.json()["errors"]
        return str(one["message"])

    assert "secrets.A: gcp-sm:speech-a is not within the prefixes" in refused("gcp-sm:speech-a")
    assert "it allows gcp-sm:vision-: an admin can add" in refused("aws-sm:vision/a")
    assert "can set LOWTIDE_GCP_DATA_ACCOUNT" in refused("gcp-sm:vision-a")


def test_only_an_admin_lends_secrets_of_clouds(api: PeopleApi, google: ScopedGcs):
    def by_maintainer(*prefixes: str, **more: str) -> httpx.Response:
        rules = {"secret_prefixes": list(prefixes), **more}
        return with_rules(api, rules, Role.MAINTAINER)

    for refused in (
        by_maintainer("gcp-sm:vision-", "aws-sm:vision/", **ACCOUNT),
        by_maintainer("gcp-sm:vis-", **ACCOUNT),
        by_maintainer("gcp-sm:other-project:vision-", **ACCOUNT),
        by_maintainer("gcp-sm:vision-", secret_account="x@other.iam.gserviceaccount.com"),
    ):
        assert refused.status_code == 403
        assert "Only an admin may allow a project" in refused.json()["detail"]
    for allowed in (
        by_maintainer("gcp-sm:vision-", **ACCOUNT),
        by_maintainer("gcp-sm:vision-one-", "gcp-sm:vision-two", **ACCOUNT),
        by_maintainer("gcp-sm:vision-two"),
    ):
        assert allowed.is_success, allowed.text
    assert by_maintainer("gcp-sm:vision-", **ACCOUNT).status_code == 403, "what is gone is gone"


def test_no_row_of_any_table_has_a_value(api: PeopleApi):
    """What a delivery, a submission and a refusal leave behind."""
    with api.engine.connect() as connection:
        for table in tables.metadata.tables.values():
            rows = connection.execute(text(f"SELECT t::text FROM {table.name} t"))
            assert not [row for (row,) in rows if VALUE in row or VALUE.encode().hex() in row]
    assert fetch(api.engine, "SELECT 1 FROM secrets WHERE content IS NOT NULL")
