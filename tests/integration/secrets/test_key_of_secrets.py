"""The key that secrets are encrypted under: lost, wrong, replaced; and rows that were swapped."""

from __future__ import annotations

import base64
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine

from app.adapters.encryption.envelope_encryption import EnvelopeEncryption, open_encryption
from app.adapters.encryption.key_file import KEY_BYTES, KeyFile
from app.domain.access.principal import Principal
from app.domain.access.roles import Role
from app.orchestration.secrets.check_stored_values import rewrap_secrets, verify_secrets
from app.orchestration.secrets.diagnose_secrets import check_stored_secrets
from app.orchestration.secrets.manage_secrets import secret_context, set_secret
from app.ports.value_encryption import KeyUnavailable
from app.storage.schema import tables
from tests.support.api.agent_api import make_runtime
from tests.support.api.people_api import make_project
from tests.support.servers.table_rows import change_rows, rows_of

SECRETS = tables.secrets
NAMES = ("FIRST", "SECOND")


class Scene:
    """A project with two secrets, and the key file of a deployment."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.engine, self.path = engine, folder / "secrets.key"
        self.encryption = open_encryption(None, folder)
        self.runtime = replace(make_runtime(engine, folder / "store"), encryption=self.encryption)
        self.project_id = make_project(engine, "vision")
        for name in NAMES:
            self.set(name)

    def set(self, name: str, value: str | None = None) -> None:
        ada = Principal(None, "ada", self.project_id, "vision", Role.MAINTAINER)
        with self.runtime.begin() as uow:
            set_secret(uow, self.runtime, ada, name, value or f"value of {name}")

    def values(self) -> dict[str, str]:
        """Those that can be read; fails for one that cannot."""
        with self.runtime.begin() as uow:
            found = uow.secrets.stored(len(NAMES) + 1)
        return {
            one.row.name: self.encryption.open(
                one.sealed, secret_context(self.project_id, one.row.name, one.row.version)
            ).decode()
            for one in found
        }

    def unreadable(self, encryption: EnvelopeEncryption | None = None) -> dict[str, str | None]:
        found = verify_secrets(self.runtime.begin, encryption or self.encryption)
        assert found.readable + len(found.unreadable) == len(NAMES)
        assert {one.project for one in found.unreadable} <= {"vision"}
        return {one.name: one.key_id for one in found.unreadable}


@pytest.fixture
def scene(engine: Engine, tmp_path: Path) -> Scene:
    return Scene(engine, tmp_path)


BOTH = {name: f"value of {name}" for name in NAMES}


def test_a_lost_key_is_told_by_the_secrets_that_need_it_and_loses_none(scene: Scene):
    [key_id] = scene.encryption.key_ids()
    copy = scene.path.rename(scene.path.with_name("copy"))
    assert scene.unreadable() == dict.fromkeys(NAMES, key_id)
    with pytest.raises(KeyUnavailable, match="key file of the secrets is lost"):
        scene.set("FIRST", "another")
    assert not scene.path.exists(), "another key would hide that the first one is lost"
    copy.rename(scene.path)
    assert scene.unreadable() == {}
    assert scene.values() == BOTH


def test_the_doctor_says_which_values_cannot_be_read_and_why(scene: Scene):
    [key_id] = scene.encryption.key_ids()
    right = scene.path.read_text()

    def told() -> list[str]:
        found = check_stored_secrets(scene.runtime.begin, scene.encryption, scene.path)
        return [f"{one.ok}: {one.sentence} → {one.remedy}" for one in found]

    assert told() == ["True: 2 stored, and all can be read → "]
    scene.path.chmod(0o640)
    [wrong_mode] = told()
    assert wrong_mode.startswith("False: ")
    assert all(f"{name} of vision" in wrong_mode for name in NAMES)
    assert f"chmod 600 {scene.path}" in wrong_mode
    scene.path.chmod(0o600)
    scene.path.write_text(base64.b64encode(b"w" * KEY_BYTES).decode() + "\n")
    [wrong_key] = told()
    assert (
        f"cannot be read: the key {key_id} is not in {scene.path} → put the key back" in wrong_key
    )
    scene.path.unlink()
    [lost] = told()
    assert f"cannot be read: the key file {scene.path} is missing" in lost
    assert not scene.path.exists()
    scene.path.touch(0o600)
    scene.path.write_text(right)
    change_rows(scene.engine, SECRETS, SECRETS.c.name == "FIRST", content=b"changed")
    [changed] = told()
    assert "False: FIRST of vision cannot be read: changed in the database" in changed


def test_two_programs_that_store_the_first_secret_share_one_key(engine: Engine, tmp_path: Path):
    class Beside(EnvelopeEncryption):
        """Right after it has found no key another program makes one."""

        def key_ids(self) -> tuple[str, ...]:
            found = super().key_ids()
            if not found:
                super().make_first_key()
            return found

    scene = Scene.__new__(Scene)
    beside = Beside(KeyFile(tmp_path / "secrets.key"))
    scene.encryption = beside
    scene.runtime = replace(make_runtime(engine, tmp_path / "store"), encryption=beside)
    scene.project_id = make_project(engine, "first")
    scene.set("FIRST")
    assert len(KeyFile(tmp_path / "secrets.key").read()) == 1


def test_under_a_wrong_key_others_are_stored_and_the_first_ones_come_back_with_theirs(scene: Scene):
    [key_id] = scene.encryption.key_ids()
    right = scene.path.read_text()
    scene.path.write_text(base64.b64encode(b"w" * KEY_BYTES).decode() + "\n")
    assert scene.unreadable() == dict.fromkeys(NAMES, key_id)
    scene.set("SECOND")
    assert scene.unreadable() == {"FIRST": key_id}
    scene.path.write_text(scene.path.read_text() + right)
    assert scene.unreadable() == {}
    assert scene.values() == BOTH


def test_a_row_that_was_swapped_or_rolled_back_is_found(scene: Scene):
    columns = ("key_id", "wrapped_key", "content")
    first, second = (rows_of(scene.engine, SECRETS, name=name)[0] for name in NAMES)
    for row, other in ((first, second), (second, first)):
        sealed = {name: getattr(other, name) for name in columns}
        change_rows(scene.engine, SECRETS, SECRETS.c.id == row.id, **sealed)
    assert scene.unreadable() == dict.fromkeys(NAMES)
    for row in (first, second):
        sealed = {name: getattr(row, name) for name in columns}
        change_rows(scene.engine, SECRETS, SECRETS.c.id == row.id, **sealed)
    assert scene.unreadable() == {}
    scene.set("FIRST", "another")
    sealed = {name: getattr(first, name) for name in columns}
    change_rows(scene.engine, SECRETS, SECRETS.c.id == first.id, **sealed)
    assert scene.unreadable() == {"FIRST": None}, "the value of before is another version's"


def test_another_key_takes_every_value_and_the_former_one_goes(scene: Scene):
    [former] = scene.encryption.key_ids()
    before = {row.name: row.content for row in rows_of(scene.engine, SECRETS)}
    current = scene.encryption.make_key()
    found = rewrap_secrets(scene.runtime.begin, scene.encryption)
    assert (found.readable, found.rewrapped, found.unreadable) == (2, 2, [])
    assert scene.encryption.key_ids() == (current,)
    assert former not in scene.path.read_text()
    assert scene.values() == BOTH
    rows = rows_of(scene.engine, SECRETS)
    assert {row.name: row.content for row in rows} == before, "values are not encrypted anew"
    assert {row.key_id for row in rows} == {current}
    again = rewrap_secrets(scene.runtime.begin, scene.encryption)
    assert (again.rewrapped, scene.encryption.key_ids()) == (0, (current,))


def test_a_key_that_something_is_still_under_stays_in_the_file(scene: Scene):
    [former] = scene.encryption.key_ids()
    first = rows_of(scene.engine, SECRETS, name="FIRST")[0]
    change_rows(scene.engine, SECRETS, SECRETS.c.id == first.id, content=b"changed")
    current = scene.encryption.make_key()
    found = rewrap_secrets(scene.runtime.begin, scene.encryption)
    assert (found.rewrapped, [one.name for one in found.unreadable]) == (1, ["FIRST"])
    assert scene.encryption.key_ids() == (current, former)


def test_no_value_is_stored_under_a_key_that_is_dropped_meanwhile(scene: Scene):
    """A value is encrypted while the key is replaced: the key goes only after its commit."""
    ada = Principal(None, "ada", scene.project_id, "vision", Role.MAINTAINER)
    rekeyed = threading.Thread(
        target=rewrap_secrets, args=(scene.runtime.begin, scene.encryption), daemon=True
    )
    with scene.runtime.begin() as uow:
        set_secret(uow, scene.runtime, ada, "THIRD", "value of THIRD")
        scene.encryption.make_key()
        rekeyed.start()
        rekeyed.join(timeout=1.0)
        assert rekeyed.is_alive(), "it waits for the value that is being stored"
    rekeyed.join(timeout=30)
    assert not rekeyed.is_alive()
    assert verify_secrets(scene.runtime.begin, scene.encryption).unreadable == []
