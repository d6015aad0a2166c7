"""The Python that machines fetch: an address and its digest, both or neither."""

from __future__ import annotations

import pytest

from app.adapters.providers.boot_script import EC2, render
from app.adapters.providers.boot_variables import boot_variables_of
from app.settings import SettingsError, load_settings

URL = "https://example.com/cpython-3.12.12-install_only.tar.gz?signature=1"
DIGEST = "0123456789abcdef" * 4


def test_machines_are_told_of_the_python_they_may_fetch():
    settings = load_settings(machine_python_url=URL, machine_python_sha256=DIGEST.upper())
    assert boot_variables_of(settings) == {
        "LOWTIDE_MACHINE_PYTHON_URL": URL,
        "LOWTIDE_MACHINE_PYTHON_SHA256": DIGEST,
        "LOWTIDE_MACHINE_TORCH": "torch==2.13.0",
    }


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (None, {"LOWTIDE_MACHINE_TORCH": "torch==2.13.0"}),
        (
            " torch==2.11.0  torchvision==0.26.0 ",
            {"LOWTIDE_MACHINE_TORCH": "torch==2.11.0 torchvision==0.26.0"},
        ),
        ("torch==2.11.0+cu128", {"LOWTIDE_MACHINE_TORCH": "torch==2.11.0+cu128"}),
        ("none", {}),
    ],
)
def test_machines_are_told_which_pytorch_the_trainer_gets(
    monkeypatch: pytest.MonkeyPatch, given: str | None, told: dict[str, str]
):
    if given is not None:
        monkeypatch.setenv("LOWTIDE_MACHINE_TORCH", given)
    assert boot_variables_of(load_settings()) == told


def test_machines_are_told_where_packages_come_from_and_how_long_they_may_take(
    monkeypatch: pytest.MonkeyPatch,
):
    index = "https://pypi.example.com/simple"
    monkeypatch.setenv("LOWTIDE_BOOT_INSTALL_SECONDS", "900")
    monkeypatch.setenv("LOWTIDE_MACHINE_PACKAGE_INDEX", index)
    told = boot_variables_of(load_settings(machine_torch="none"))
    assert told == {"LOWTIDE_BOOT_INSTALL_SECONDS": "900", "PIP_INDEX_URL": index}
    # They stand in the script as pip and its bound read them.
    needed = {"LOWTIDE_CONTROL_URL": "https://x.example", "LOWTIDE_LAUNCH_TOKEN": "t"}
    lines = render({**needed, **told}, EC2).splitlines()
    assert f"export PIP_INDEX_URL={index}" in lines
    assert "export LOWTIDE_BOOT_INSTALL_SECONDS=900" in lines
    assert any('timeout "${LOWTIDE_BOOT_INSTALL_SECONDS:=450}"' in line for line in lines)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("BOOT_INSTALL_SECONDS", "59"),
        ("BOOT_INSTALL_SECONDS", "1501"),
        ("MACHINE_PACKAGE_INDEX", "pypi.example.com/simple"),
    ],
)
def test_a_bound_or_an_index_of_no_use_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
):
    monkeypatch.setenv(f"LOWTIDE_{name}", value)
    with pytest.raises(SettingsError, match=f"LOWTIDE_{name}"):
        load_settings()


@pytest.mark.parametrize("given", ["torch", "torch>=2", "torch==*", "none torch==2.13.0", "-r x"])
def test_a_pytorch_that_is_no_pin_is_refused(monkeypatch: pytest.MonkeyPatch, given: str):
    monkeypatch.setenv("LOWTIDE_MACHINE_TORCH", given)
    with pytest.raises(SettingsError, match=r"LOWTIDE_MACHINE_TORCH.*must be NAME==VERSION"):
        load_settings()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"URL": URL}, "SHA256=None: is given together with LOWTIDE_MACHINE_PYTHON_URL"),
        ({"SHA256": DIGEST}, "is given together with LOWTIDE_MACHINE_PYTHON_URL, or neither is"),
        ({"URL": URL, "SHA256": DIGEST[1:]}, "must be a SHA-256, 64 hexadecimal digits"),
        ({"URL": URL, "SHA256": "z" * 64}, "must be a SHA-256, 64 hexadecimal digits"),
        ({"URL": "s3://bucket/python", "SHA256": DIGEST}, "must begin with https:// or http://"),
    ],
)
def test_half_a_pair_and_a_bad_digest_are_refused(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], said: str
):
    for name, value in given.items():
        monkeypatch.setenv(f"LOWTIDE_MACHINE_PYTHON_{name}", value)
    with pytest.raises(SettingsError) as refused:
        load_settings()
    assert "LOWTIDE_MACHINE_PYTHON_" in str(refused.value)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
