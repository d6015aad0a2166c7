"""Who may do what where: every place of a bucket, every credential, every verb; on both clouds.

A table in words stands against what the stores decide. Not here: how credentials come to machines
(`test_storage_grants`).
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import UUID

import obstore
import pytest
from obstore.exceptions import BaseError

from app.adapters.object_stores.obstore_store import (
    ObstoreStore,
    open_object_store,
    values_as_options,
)
from app.adapters.providers.aws.client.session_policy import policy_problem, session_policy
from app.adapters.providers.gcp.client.access_boundary import access_boundary, boundary_problem
from app.domain.market.storage_places import StoragePlace, StorageRight
from app.orchestration.deployment.diagnose_grants import check_storage_grants
from app.ports.storage_grants import GrantRefused, IssuedCredential, StorageGrantIssuer
from tests.support.object_stores.deciding_store import (
    BUCKET,
    JOB_A,
    PLACES,
    ROOT,
    DecidingStore,
    access_of,
    opened,
    places_of,
)
from tests.support.object_stores.scoped_s3 import ScopedS3
from trainer.agent.checkpoints.part_upload import put_shard
from trainer.agent.checkpoints.storage_root import (
    NoSuchKey,
    StoreDenied,
)

VERBS = ("get", "put", "list", "delete")
# What else is allowed is a hole.
ALLOWED = {
    "machine role": {},
    "expired": {},
    "A": {
        "A's checkpoints": {"get", "put", "list"},
        "A's input": {"get", "list"},
        "A's outputs": {"put"},
    },
    "B": {
        "B's checkpoints": {"get", "put", "list"},
        "B's input": {"get", "list"},
        "B's outputs": {"put"},
    },
    "control plane": {place: set(VERBS) for place in PLACES},
}
# To replace an object is to delete it on Google Cloud, so a job's own outputs can be deleted there.
ALLOWED_GS = {
    **ALLOWED,
    "A": {**ALLOWED["A"], "A's outputs": {"get", "put", "delete"}},
    "B": {**ALLOWED["B"], "B's outputs": {"get", "put", "delete"}},
}


def _fill(cloud: DecidingStore) -> None:
    control = cloud.client(cloud.given("control plane"))
    for folder in PLACES.values():
        obstore.put(control, f"{folder}/there".lstrip("/"), b"x")


def _try(store: Any, folder: str, verb: str) -> bool:
    """Whether the verb is allowed below the folder, with an object that is there."""
    key = f"{folder}/there".lstrip("/")
    deeds: dict[str, Callable[[], Any]] = {
        "get": lambda: obstore.get(store, key).bytes(),
        "put": lambda: obstore.put(store, f"{key}-new", b"y", mode="create"),
        "list": lambda: list(obstore.list(store, prefix=folder or None)),
        "delete": lambda: obstore.delete(store, key),
    }
    try:
        deeds[verb]()
    except (PermissionError, BaseError):
        return False
    return True


@pytest.mark.parametrize("who", ALLOWED)
def test_the_matrix_of_rights(cloud: DecidingStore, who: str) -> None:
    _fill(cloud)
    store = cloud.client(cloud.given(who))
    wanted = (ALLOWED if cloud.scheme == "s3" else ALLOWED_GS)[who]
    control = cloud.client(cloud.given("control plane"))
    found = {}
    for place, folder in PLACES.items():
        allowed = {verb for verb in VERBS if _try(store, folder, verb)}
        if allowed:
            found[place] = allowed
        obstore.put(control, f"{folder}/there".lstrip("/"), b"x")
        with suppress(FileNotFoundError):
            obstore.delete(control, f"{folder}/there-new".lstrip("/"))
    assert found == wanted


def test_an_agent_does_all_that_it_does_with_them(cloud: DecidingStore) -> None:
    """What is missing is missing, though a store may say 403 for it."""
    _fill(cloud)
    access = access_of(cloud)
    lineage = opened(cloud, PLACES["A's checkpoints"], access)
    with pytest.raises(NoSuchKey):
        lineage.get("fences/0000000001.json")
    lineage.put_new("fences/0000000001.json", b"{}")
    assert lineage.get("fences/0000000001.json") == b"{}"
    assert lineage.list_keys("fences") == ["fences/0000000001.json"]
    assert lineage.list_keys("manifests") == []
    put_shard(lineage, "data/1/shard", iter([b"x" * (1 << 20)] * 70), 70 << 20)
    assert sum(map(len, lineage.stream("data/1/shard"))) == 70 << 20
    inputs = opened(cloud, PLACES["A's input"], access)
    [one] = inputs.list_objects(10)
    assert b"".join(inputs.stream_on(one.key, 0, "")) == b"x"
    outputs = opened(cloud, PLACES["A's outputs"], access)
    for _ in range(2):  # a job that goes on replaces its outputs
        outputs.put_file("score", io.BytesIO(b"1"))
        outputs.put_file("model", io.BytesIO(b"1" * (12 << 20)), 5 << 20)
    with pytest.raises(StoreDenied):
        opened(cloud, PLACES["B's checkpoints"], access).get("there")
    with pytest.raises(StoreDenied):
        opened(cloud, PLACES["like A's input"], access).list_objects(10)


def test_no_other_credential_writes_a_fence_over_another(cloud: DecidingStore) -> None:
    _fill(cloud)
    with pytest.raises(StoreDenied):
        opened(cloud, PLACES["B's checkpoints"], access_of(cloud)).put_new("fences/9.json", b"{}")


@pytest.mark.parametrize("kind", ["fences", "manifests", "shares"])
def test_what_the_lineage_rests_on_is_never_written_over(cloud: DecidingStore, kind: str) -> None:
    """A machine that is cut off, or stolen, keeps its credential for as long as an hour."""
    folder = PLACES["A's checkpoints"]
    key = f"{folder}/{kind}/0000000001.json"
    store = cloud.client(cloud.given("A"))
    obstore.put(store, key, b"first", mode="create")
    with pytest.raises((PermissionError, BaseError)):
        obstore.put(store, key, b"second", mode="overwrite")
    with pytest.raises((PermissionError, BaseError)):
        obstore.put(store, key, b"s" * (12 << 20), mode="overwrite", chunk_size=5 << 20)
    assert bytes(obstore.get(store, key).bytes()) == b"first"


@pytest.mark.parametrize("trouble", ["403", "garbage", "empty"])
def test_an_issuer_in_trouble_says_so_without_a_secret(cloud: DecidingStore, trouble: str) -> None:
    if isinstance(cloud.fake, ScopedS3):
        kinds = {"403": ("AccessDenied", 403), "garbage": ("garbage", 200), "empty": ("X", 500)}
        cloud.fake.trouble = kinds[trouble]
    else:
        bodies = {"403": (403, b'{"error": {"message": "no"}}'), "garbage": (200, b"<html>"),
                  "empty": (200, b"{}")}  # fmt: skip
        cloud.fake.trouble = bodies[trouble]
    with pytest.raises(GrantRefused) as error:
        cloud.given("A")
    assert len(str(error.value)) > 20


@pytest.mark.parametrize("wide", [False, True])
def test_the_doctor_tries_a_credential(cloud: DecidingStore, wide: bool) -> None:
    """One that leads out of its folder is found, as of a server that ignores session policies."""
    root = f"{cloud.scheme}://{BUCKET}/{ROOT}/checkpoints"
    issuer = cloud.issuer
    values = cloud.given("control plane") if wide else None

    class Wide:
        scope_by = ""

        def issue(self, places: object, job_id: UUID) -> IssuedCredential:
            return IssuedCredential({"token": "", **(values or {})}, 3_600.0)

    def ours(uri: str) -> ObstoreStore:
        return open_object_store(uri, cloud.fake.options)

    def theirs(uri: str, given: Mapping[str, str]) -> ObstoreStore:
        endpoint = {name: value for name, value in cloud.fake.options.items()
                    if name in ("endpoint", "region", "base_url")}  # fmt: skip
        keys = values_as_options(uri, given)
        return open_object_store(uri, {**endpoint, **keys})

    issuers: dict[str, StorageGrantIssuer] = {cloud.scheme: Wide() if wide else issuer}
    [found] = check_storage_grants(issuers, root, theirs, ours, UUID(int=9))
    assert found.ok is not wide
    assert ("nowhere else" in found.sentence) is not wide
    assert list(ours(root).list_keys("")) == []
    [missing] = check_storage_grants({}, root, theirs, ours, UUID(int=9))
    assert missing.warns
    assert "not limited to their job" in missing.sentence
    if isinstance(cloud.fake, ScopedS3):
        cloud.fake.trouble = ("AccessDenied", 403)
        [refused] = check_storage_grants(issuers, root, theirs, ours, UUID(int=9))
        assert wide or not refused.ok


# --- what cannot be written down ---


def test_a_job_with_too_many_places_is_told_so() -> None:
    long = "x" * 120
    many = [StoragePlace("s3", "b", f"{long}/{n}", StorageRight.READ) for n in range(12)]
    problem = policy_problem(many)
    assert problem is not None
    assert "2,048" in problem
    assert policy_problem(many[:4]) is None
    buckets = [StoragePlace("gs", f"bucket-{n}", "x", StorageRight.READ) for n in range(11)]
    problem = boundary_problem(buckets)
    assert problem is not None
    assert "11 rules" in problem
    assert boundary_problem(buckets[:10]) is None


def test_a_policy_has_no_character_more_than_json_needs() -> None:
    """Blanks count against its limit: with them, jobs that fit would be refused."""
    told = session_policy(places_of("s3", JOB_A, "a"))
    assert told == json.dumps(json.loads(told), separators=(",", ":"))


def test_what_just_fits_is_taken_and_one_character_more_is_not() -> None:
    """STS and Google refuse what is longer, while the machine is rented already."""
    limits = ((policy_problem, _policy_length, 2_048), (boundary_problem, _longest_rule, 2_048))
    for service, (problem, length, most) in zip(("s3", "gs"), limits, strict=True):
        # What is written is named once.
        one = StoragePlace(service, "b", "x", StorageRight.WRITE)
        whole = replace(one, folder="x" * (1 + most - length([one])))
        assert (length([whole]), problem([whole])) == (most, None)
        assert problem([replace(whole, folder=f"{whole.folder}x")]) is not None


def _policy_length(places: Sequence[StoragePlace]) -> int:
    return len(session_policy(places))


def _longest_rule(places: Sequence[StoragePlace]) -> int:
    rules = access_boundary(places)["accessBoundary"]["accessBoundaryRules"]
    return max(len(one["availabilityCondition"]["expression"]) for one in rules)


def test_no_credential_is_asked_for_that_no_policy_can_hold(cloud: DecidingStore) -> None:
    """A job that was accepted before its cloud's limit was known, or by other settings."""
    count, folder = (12, "x" * 120) if cloud.scheme == "s3" else (11, "x")
    many = [
        StoragePlace(cloud.scheme, f"bucket-{n}", f"{folder}/{n}", StorageRight.READ)
        for n in range(count)
    ]
    with pytest.raises(GrantRefused, match="name fewer inputs"):
        cloud.issuer.issue(many, JOB_A)
    asked = cloud.fake.assumed if isinstance(cloud.fake, ScopedS3) else cloud.fake.exchanged
    assert asked == []


@pytest.mark.parametrize(
    "odd", ["a*", "a?b", "${aws:username}", "a'b", "a\\b", "caf\u00e9", "a//b"]
)
def test_no_folder_is_a_pattern(odd: str) -> None:
    """A policy of AWS has wildcards and variables, an expression of Google's has quotes."""
    for service, problem in (("s3", policy_problem), ("gs", boundary_problem)):
        told = problem([StoragePlace(service, "bucket", odd, StorageRight.READ)])
        assert told is not None
        assert "cannot name" in told


def test_a_session_names_no_more_than_it_needs() -> None:
    """Whatever its role may do besides: somebody's own role may delete."""
    told = json.loads(session_policy(places_of("s3", JOB_A, "a")))["Statement"]
    actions = [one["Action"] for one in told]
    assert {name for one in actions for name in ([one] if isinstance(one, str) else one)} == {
        "kms:Decrypt", "kms:GenerateDataKey", "s3:AbortMultipartUpload", "s3:GetObject",
        "s3:ListBucket", "s3:PutObject",
    }  # fmt: skip


def test_whole_names_are_compared() -> None:
    places = places_of("s3", JOB_A, "a")
    assert f'"arn:aws:s3:::{BUCKET}/corpus/a/*"' in session_policy(places)
    told = access_boundary(places_of("gs", JOB_A, "a"))
    assert "objects/corpus/a/')" in str(told)
    # What lies in another place is named with it; what only begins alike is not.
    inputs = [StoragePlace("s3", BUCKET, name, StorageRight.READ) for name in ("a", "ab", "a/b")]
    [gets, lists, _] = json.loads(session_policy(inputs))["Statement"]
    assert gets["Resource"] == [f"arn:aws:s3:::{BUCKET}/{name}/*" for name in ("a", "ab")]
    assert lists["Condition"] == {"StringLike": {"s3:prefix": ["a/*", "ab/*"]}}
