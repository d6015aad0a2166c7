"""The file of key-encrypting keys, and what is encrypted under them, on a real disk."""

from __future__ import annotations

import base64
import fcntl
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from app.adapters.encryption import key_file
from app.adapters.encryption.envelope_encryption import EnvelopeEncryption, open_encryption
from app.adapters.encryption.key_file import KEY_BYTES, KeyFile
from app.domain.deployment.secret_rules import (
    SECRET_BYTES_MAX,
    require_secret_name,
    require_secret_value,
)
from app.domain.units.errors import InvalidValue
from app.ports.value_encryption import KeyUnavailable, SealedValueChanged
from app.settings import SettingsError, load_settings

HERE = ("secret", "project", "NAME", "1")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "secrets.key"


@pytest.fixture
def encryption(path: Path) -> EnvelopeEncryption:
    made = open_encryption(path, path.parent)
    made.make_key()
    return made


def test_a_value_opens_where_it_was_sealed_and_nowhere_else(encryption: EnvelopeEncryption):
    sealed = encryption.seal(b"hunter2-hunter2", HERE)
    assert b"hunter2" not in sealed.content + sealed.wrapped_key
    assert "hunter2" not in repr(sealed)
    assert encryption.open(sealed, HERE) == b"hunter2-hunter2"
    again = encryption.seal(b"hunter2-hunter2", HERE)
    assert (again.content, again.wrapped_key) != (sealed.content, sealed.wrapped_key)
    for context in ((*HERE[:3], "2"), ("secret", "project", "NAME1"), ("secret", "p", *HERE[2:])):
        with pytest.raises(SealedValueChanged):
            encryption.open(sealed, context)
    broken = (
        replace(sealed, content=again.content),
        replace(sealed, wrapped_key=again.wrapped_key),
        replace(sealed, content=sealed.content[:-1]),
        replace(sealed, content=b""),
        replace(sealed, wrapped_key=b""),
    )
    for one in broken:
        with pytest.raises(SealedValueChanged):
            encryption.open(one, HERE)


def test_the_file_is_its_owner_s_and_its_keys_are_32_random_bytes(
    encryption: EnvelopeEncryption, path: Path
):
    assert path.stat().st_mode & 0o777 == 0o600
    [line] = [one for one in path.read_text().splitlines() if not one.startswith("#")]
    assert len(base64.b64decode(line)) == KEY_BYTES
    [key] = KeyFile(path).read()
    assert encryption.key_ids() == (key.id,)
    assert key.id not in line
    assert line not in repr(key)


def test_another_key_counts_at_once_and_the_former_one_still_opens(
    encryption: EnvelopeEncryption, path: Path
):
    sealed = encryption.seal(b"value", HERE)
    current = open_encryption(path, path.parent).make_key()
    assert encryption.key_ids()[0] == current
    assert encryption.open(sealed, HERE) == b"value"
    moved = encryption.rewrap(sealed)
    assert (moved.key_id, moved.content) == (current, sealed.content)
    encryption.drop_keys([sealed.key_id])
    assert len(encryption.key_ids()) == 2
    encryption.drop_keys([current])
    assert encryption.key_ids() == (current,)
    assert encryption.open(moved, HERE) == b"value"
    with pytest.raises(KeyUnavailable, match=sealed.key_id):
        encryption.open(sealed, HERE)


@pytest.mark.parametrize(("way", "keys"), [("make_key", 8), ("make_first_key", 1)])
def test_no_key_is_lost_between_programs_that_make_one_at_once(path: Path, way: str, keys: int):
    others = [open_encryption(path, path.parent) for _ in range(8)]
    begin = threading.Barrier(len(others))

    def make(one: EnvelopeEncryption) -> None:
        begin.wait(timeout=60)
        getattr(one, way)()

    with ThreadPoolExecutor(len(others)) as pool:
        list(pool.map(make, others))
    assert len(others[0].key_ids()) == keys
    assert [one.name for one in path.parent.iterdir()] == ["secrets.key"]


def test_who_holds_the_file_for_long_is_told_of(
    encryption: EnvelopeEncryption, path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(key_file, "_LOCK_SECONDS_MAX", 0.05)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        with pytest.raises(KeyUnavailable, match="is being written by another program"):
            encryption.make_key()
    finally:
        os.close(folder)


def test_without_a_file_there_is_no_key(path: Path):
    assert open_encryption(path, path.parent).key_ids() == ()
    with pytest.raises(KeyUnavailable, match="not there"):
        open_encryption(path, path.parent).seal(b"value", HERE)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"c2hvcnQ=\n", "Line 1 of the key file"),
        (b"# remark\n\nno base64!\n", "Line 3 of the key file"),
        (b"\xff\xfe\n", "Line 1 of the key file"),
        (b"#" * (65 << 10), "larger than 64 KiB"),
    ],
)
def test_a_file_that_holds_no_keys_is_refused(tmp_path: Path, content: bytes, told: str):
    file = tmp_path / "keys"
    file.write_bytes(content)
    file.chmod(0o600)
    with pytest.raises(KeyUnavailable, match=told):
        KeyFile(file).read()


def test_a_file_that_others_can_read_is_refused(encryption: EnvelopeEncryption, path: Path):
    path.chmod(0o640)
    with pytest.raises(KeyUnavailable, match="chmod 600"):
        encryption.key_ids()


@pytest.mark.parametrize("name", ["", "1A", "A-B", "A B", "Ä", "A" * 129, "lowtide_x"])
def test_a_name_is_one_of_a_variable(name: str):
    with pytest.raises(InvalidValue, match="name"):
        require_secret_name(name)


def test_a_value_is_text_of_at_most_64_kib_and_never_repeated():
    assert require_secret_value("ä" * (SECRET_BYTES_MAX // 2)) == "ä".encode() * 32_768
    for value in ("", "hunter2\0", "hunter2" * SECRET_BYTES_MAX, "hunter2\ud800"):
        with pytest.raises(InvalidValue) as refused:
            require_secret_value(value)
        assert "hunter" not in refused.value.message


def test_the_file_is_in_the_state_folder_unless_a_whole_path_is_named(tmp_path: Path):
    open_encryption(None, tmp_path).make_key()
    assert [one.name for one in tmp_path.iterdir()] == ["secrets.key"]
    with pytest.raises(SettingsError, match=r"SECRETS_KEY_FILE.*must be a whole path"):
        load_settings(secrets_key_file=Path("secrets.key"))
