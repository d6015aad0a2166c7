"""A job's history over REST: events, attempts, checkpoints, metrics and logs, in parts."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from app.domain.wording.event_words import actor_words
from app.storage.reports.page_read_models import PageReports
from app.storage.schema import tables
from tests.support.api.agent_api import Gang, SpeakingAgent
from tests.support.api.people_api import PeopleApi, make_own_gang
from tests.support.api.refusals import assert_refused
from tests.support.servers.table_rows import add_rows

NOW = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def gang(api: PeopleApi) -> Gang:
    return make_own_gang(api, 2, name="told")


def items(api: PeopleApi, path: str, **query: object) -> list[dict[str, Any]]:
    return api.items(f"/jobs/{path}", **query)


def test_events_come_in_order_and_in_parts(api: PeopleApi):
    name = api.submitted()["name"]
    for verb in ("pause", "resume", "cancel"):
        assert api.client.post(f"/api/v1/jobs/{name}/{verb}").status_code == 200
    whole = items(api, f"{name}/events")
    assert [event["seq"] for event in whole] == [1, 2, 3, 4]
    assert [event["to_state"] for event in whole] == ["queued", "paused", "queued", "cancelled"]
    first = api.get(f"/jobs/{name}/events", limit=3)
    assert first["next"] == "3"
    assert items(api, f"{name}/events", after=first["next"], limit=3) == whole[3:]


def test_a_machine_has_one_name_everywhere(api: PeopleApi):
    gang = make_own_gang(api, 2, name="named")
    with api.parts.runtime.begin() as uow:
        for place, instance_id in enumerate(gang.instance_ids):
            instance = uow.instances.get(instance_id)
            assert instance is not None
            # Asked for in the other order than the ranks are in.
            instance.requested_at -= timedelta(seconds=60 + place)
    first, second = map(str, gang.instance_ids)
    names = {second: "m1", first: "m2"}
    assert SpeakingAgent(api, gang).register().status_code == 200

    [attempt] = items(api, "named/attempts")
    assert {one["instance_id"]: one["machine"] for one in attempt["members"]} == names
    found = api.get("/jobs/named")
    assert {one["id"]: one["name"] for one in found["machines"]} == names
    listed = api.items("/instances", job="named")
    assert {one["id"]: one["name"] for one in listed} == names
    reports = PageReports(api.engine)
    lanes = reports.timeline(gang.job_id, datetime.now(UTC)).lanes
    assert {str(lane.instance.id): lane.label for lane in lanes} == names
    [ready] = [one for one in items(api, "named/events") if one["kind"] == "agent_registered"]
    assert (ready["noun_id"], ready["machine"]) == (first, "m2")
    # The attempt's own entry: an agent registers under what the cloud calls its machine.
    assert SpeakingAgent(api, gang, rank=1).register().status_code == 200
    [told] = [one for one in items(api, "named/events") if one["kind"] == "members_registered"]
    assert (told["noun"], told["machine"]) == ("attempt", "m1")
    assert actor_words(told["actor"], told["machine"]) == "m1"
    newest = [one for one in reports.recent_events(gang.job_id, 10) if one["machine"]]
    assert {(one["kind"], one["machine"]) for one in newest} == {
        ("agent_registered", "m1"),
        ("agent_registered", "m2"),
        ("members_registered", "m1"),
    }


def test_attempts_have_their_members(api: PeopleApi, gang: Gang):
    [attempt] = items(api, "told/attempts")
    assert (attempt["fence"], attempt["state"], attempt["node_count"]) == (1, "provisioning", 2)
    assert [member["node_rank"] for member in attempt["members"]] == [0, 1]
    assert [member["instance_id"] for member in attempt["members"]] == [
        str(one) for one in gang.instance_ids
    ]
    assert attempt["members"][0]["pool"] == "local/us-west-2/us-west-2a/p3.2xlarge/spot"


def test_checkpoints_come_newest_first(api: PeopleApi, gang: Gang):
    rows = [
        {
            "job_id": gang.job_id, "fence": fence, "step": step, "digest": "d", "size_bytes": 10,
            "final": False, "committed_at": NOW, "instance_id": gang.instance_ids[0],
            "metrics": {"loss": 0.5},
        }
        for fence, step in ((1, 10), (1, 20), (2, 15))
    ]  # fmt: skip
    add_rows(api.engine, tables.checkpoints, rows)
    found = items(api, "told/checkpoints")
    assert [(one["fence"], one["step"]) for one in found] == [(2, 15), (1, 20), (1, 10)]
    assert found[0]["metrics"] == {"loss": 0.5}


def test_metrics_come_in_parts(api: PeopleApi, gang: Gang):
    rows = [
        {"job_id": gang.job_id, "fence": fence, "step": step, "at": NOW, "metrics": {"loss": step}}
        for fence in (1, 2)
        for step in (0, 5, 10)
    ]
    add_rows(api.engine, tables.metric_points, rows)
    seen, after = [], None
    for _ in range(3):
        query = {"limit": 2, **({"after": after} if after else {})}
        part = api.get("/jobs/told/metrics", **query)
        seen += [(point["fence"], point["step"]) for point in part["items"]]
        after = part["next"]
    assert seen == [(1, 0), (1, 5), (1, 10), (2, 0), (2, 5), (2, 10)]
    assert api.get("/jobs/told/metrics")["next"] is None


@pytest.mark.parametrize(
    "query",
    [{"after": "x"}, {"after": "1"}, {"after": "-1.5"}, {"after": "1." + "9" * 30}, {"limit": 0}],
)
def test_a_bad_place_in_the_metrics_is_refused(api: PeopleApi, gang: Gang, query: dict[str, Any]):
    assert api.client.get("/api/v1/jobs/told/metrics", params=query).status_code == 422


@pytest.fixture(scope="module")
def written(api: PeopleApi) -> bytes:
    """A log that an agent has sent in pieces."""
    agent = SpeakingAgent(api, make_own_gang(api, name="logged"))
    assert agent.register().status_code == 200
    whole = b""
    for number in range(5):
        piece = f"line {number} \u00fc\n".encode() * (number + 1)
        assert agent.append("attempt-1/node-0.log", len(whole), piece).status_code == 200
        whole += piece
    return whole


def read_log(api: PeopleApi, job: str = "logged", **query: Any) -> tuple[bytes, int]:
    answer = api.client.get(
        f"/api/v1/jobs/{job}/logs", params={"stream": "attempt-1/node-0.log", **query}
    )
    assert answer.status_code == 200, answer.text
    return answer.content, int(answer.headers["lowtide-next-offset"])


def test_streams_are_listed_with_their_sizes(api: PeopleApi, written: bytes):
    [stream] = items(api, "logged/logs")
    assert (stream["stream"], stream["size_bytes"]) == ("attempt-1/node-0.log", len(written))
    UUID(stream["instance_id"])


@pytest.mark.parametrize(
    ("offset", "limit"), [(0, 1 << 20), (0, 7), (3, 20), (13, 40), (30, 1), (10**15, 5), (60, 999)]
)
def test_any_range_of_a_log_can_be_read(api: PeopleApi, written: bytes, offset: int, limit: int):
    content, next_offset = read_log(api, offset=offset, limit=limit)
    assert content == written[offset : offset + limit]
    assert next_offset == min(len(written), offset) + len(content)


def test_a_log_can_be_read_from_its_end(api: PeopleApi, written: bytes):
    assert read_log(api, offset=-15) == (written[-15:], len(written))
    assert read_log(api, offset=-(10**6))[0] == written


def test_a_reader_of_a_log_is_led_over_what_is_missing(api: PeopleApi):
    agent = SpeakingAgent(api, make_own_gang(api, name="gapped"))
    assert agent.register().status_code == 200
    assert agent.append("attempt-1/node-0.log", 0, b"begin\n").status_code == 200
    answer = agent.append("attempt-1/node-0.log", 6, b"the error\n", gap_bytes=1_000_000)
    end = answer.json()["next_offset"]
    assert read_log(api, "gapped", offset=0, limit=6) == (b"begin\n", 6)
    note, following = read_log(api, "gapped", offset=6)
    assert b"[lowtide] 1000000 bytes of log are missing here" in note
    assert following == 1_000_006
    assert read_log(api, "gapped", offset=following) == (b"the error\n", end)
    # Who counts the bytes themselves, as an older command line does, gets there too.
    inside, following = read_log(api, "gapped", offset=6 + len(note))
    assert inside.strip(b"\0") == b""
    assert following == 6 + len(note) + len(inside)
    assert read_log(api, "gapped", offset=-12) == (b"\0\0the error\n", end)


def test_a_log_is_followed_to_its_end(api: PeopleApi, written: bytes):
    seen, offset = b"", 0
    while True:
        content, offset = read_log(api, offset=offset, limit=16)
        if not content:
            break
        seen += content
    assert seen == written


def test_an_unknown_stream_is_named_with_those_there_are(api: PeopleApi, written: bytes):
    answer = api.client.get("/api/v1/jobs/logged/logs", params={"stream": "../../etc/passwd"})
    assert_refused(answer, 404, "attempt-1/node-0.log")
