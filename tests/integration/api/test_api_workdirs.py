"""Packed working folders over REST: stored once, by content, and never one that reaches outside."""

import gzip
import hashlib
import http.client
import io
import tarfile
from typing import Any

import httpx
import pytest

from app.adapters.input_checks import workdir_check
from app.domain.units.errors import SpecError
from tests.support.api.people_api import (
    SPEC,
    PeopleApi,
)
from tests.support.api.refusals import assert_refused
from tests.support.servers.table_rows import fetch_value


def member(name: str, kind: bytes = tarfile.REGTYPE, linkname: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, linkname
    return info


def packed(*members: tarfile.TarInfo, content: bytes = b"print(1)\n") -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for one in members:
            one.size = len(content) if one.isfile() else 0
            archive.addfile(one, io.BytesIO(content))
    return file.getvalue()


def put(api: PeopleApi, content: bytes, digest: str | None = None) -> httpx.Response:
    digest = digest or f"sha256:{hashlib.sha256(content).hexdigest()}"
    return api.client.put(f"/api/v1/workdirs/{digest}", content=content)


def project_of(api: PeopleApi) -> str:
    return str(fetch_value(api.engine, "SELECT id FROM projects WHERE name = 'admin'"))


def test_a_digest_is_no_key_to_another_projects_folder(api: PeopleApi):
    """Nor is HEAD an oracle for what others have, nor a folder that was kept for all projects."""
    content = packed(member("secret.py"), content=b"secret")
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    path = f"{api.url}/api/v1/workdirs/{digest}"
    earlier = f"workdirs/{digest.removeprefix('sha256:')}.tar.gz"
    api.parts.runtime.object_store.put_new(earlier, content)
    assert put(api, content).status_code == 201
    headers = api.as_stranger("stranger")
    assert httpx.head(path, headers=headers, timeout=20).status_code == 404
    spec = {**SPEC, "workdir": digest}
    answer = httpx.post(f"{api.url}/api/v1/jobs", json=spec, headers=headers, timeout=20)
    assert answer.status_code == 422
    assert "never uploaded" in answer.json()["errors"][0]["message"]
    own = httpx.put(path, content=content, headers=headers, timeout=20)
    assert (own.status_code, own.json()["created"]) == (201, True)
    assert httpx.head(path, headers=headers, timeout=20).status_code == 200


def test_a_folder_is_stored_once_and_can_be_used(api: PeopleApi):
    content = packed(
        member("train.py"),
        member("data", tarfile.DIRTYPE),
        member("data/a.txt"),
        member("data/link", tarfile.SYMTYPE, "a.txt"),
    )
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    path = f"/api/v1/workdirs/{digest}"
    assert api.client.head(path).status_code == 404
    first, second = put(api, content), put(api, content)
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json() == {"digest": digest, "size_bytes": len(content), "created": True}
    assert api.client.head(path).status_code == 200
    key = f"workdirs/{project_of(api)}/{digest.removeprefix('sha256:')}.tar.gz"
    assert api.parts.runtime.object_store.get(key) == content
    assert api.submit({**SPEC, "workdir": digest}).status_code == 201


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ([member("/etc/passwd")], "outside"),
        ([member("../up.py")], "outside"),
        ([member("a/../../up.py")], "outside"),
        ([member("link", tarfile.SYMTYPE, "/etc")], "'link' is a link"),
        ([member("link", tarfile.SYMTYPE, "../..")], "'link' is a link"),
        ([member("a"), member("hard", tarfile.LNKTYPE, "../a")], "'hard' is a link"),
        ([member("here", tarfile.SYMTYPE, "."), member("here/x")], "through a link"),
        ([member("fifo", tarfile.FIFOTYPE)], "device or pipe"),
        ([member("dev", tarfile.CHRTYPE)], "device or pipe"),
    ],
)
def test_an_archive_that_reaches_outside_is_refused(api: PeopleApi, bad: list[Any], words: str):
    content = packed(member("train.py"), *bad)
    assert_refused(put(api, content), 422, words, field="workdir")
    digest = hashlib.sha256(content).hexdigest()
    assert api.client.head(f"/api/v1/workdirs/{digest}").status_code == 404


# Named, because gzip writes the time into its header: each test process would make other names.
@pytest.mark.parametrize(
    "content",
    [b"", b"no archive", gzip.compress(b"no tar"), packed(member("a"))[:-20]],
    ids=["nothing", "text", "gzip of no tar", "cut off"],
)
def test_what_is_no_archive_is_refused(api: PeopleApi, content: bytes):
    assert_refused(put(api, content), 422, "not a readable tar.gz")


def test_an_archive_may_not_unpack_to_very_much(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(workdir_check, "UNPACKED_BYTES_MAX", 1 << 20)
    content = packed(member("zeros"), content=b"\0" * (2 << 20))
    with pytest.raises(SpecError, match="unpacks to more"):
        workdir_check.check_archive(io.BytesIO(content))


def test_the_digest_must_be_that_of_the_body(api: PeopleApi):
    assert_refused(put(api, packed(member("a")), "sha256:" + "0" * 64), 422, "SHA-256")
    for digest in ("x", "sha256:short", "A" * 64):
        assert put(api, b"x", digest).status_code == 422
        assert api.client.head(f"/api/v1/workdirs/{digest}").status_code == 422


def test_more_than_the_bound_is_refused_unread(api: PeopleApi):
    connection = http.client.HTTPConnection(api.url.removeprefix("http://"), timeout=60)
    connection.putrequest("PUT", "/api/v1/workdirs/" + "0" * 64)
    connection.putheader("Authorization", f"Bearer {api.key}")
    connection.putheader("Content-Length", str(101 << 20))
    # In one piece: bytes that come when the answer is out would reset the connection under it.
    connection.endheaders(b"the first bytes of very many")
    answer = connection.getresponse()
    assert answer.status == 413
    assert b"100 MiB" in answer.read()
    connection.close()
