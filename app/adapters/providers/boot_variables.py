"""The settings of what every cloud's machines boot with: part of `app.settings.Settings`.

Not here: the script that obeys them (`boot_script`), or a cloud's own settings (its own folder).
"""

from __future__ import annotations

import re
from typing import Final

from pydantic import Field, ValidationInfo, field_validator
from pydantic_settings import BaseSettings

_SHA256: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_PIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9][A-Za-z0-9._+!-]*", re.ASCII)
_NO_TORCH: Final = "none"


class BootVariables(BaseSettings):
    """`LOWTIDE_MACHINE_…`."""

    machine_python_url: str | None = Field(
        default=None,
        description="Archive with a Python 3.11 or newer (`tar.gz`, as python-build-standalone's "
        "`install_only`), which machines fetch when their image has none; https or http",
    )
    machine_python_sha256: str | None = Field(
        default=None,
        validate_default=True,
        description="SHA-256 of that archive, in hexadecimal",
    )

    machine_torch: str = Field(
        default="torch==2.13.0",
        description="What machines install for jobs with `trainer` when their image has no "
        "PyTorch: `NAME==VERSION`, several separated by spaces; `none`: nothing, such jobs need "
        "an image that has it",
    )

    boot_install_seconds: int | None = Field(
        default=None,
        ge=60,
        le=1_500,
        description="How long pip may take on a machine for PyTorch, and for the agent, each; more "
        "needs more in `LOWTIDE_REGISTRATION_TIMEOUT_SECONDS`, and a boot ends after 30 minutes",
        json_schema_extra={"default": 450},
    )
    machine_package_index: str | None = Field(
        default=None,
        description="Package index of the machines' pip, as `https://pypi.example.com/simple`; if "
        "not set, the image's. It is in the user data, so it must not contain a password",
    )

    @field_validator("machine_package_index")
    @classmethod
    def _index(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("https://", "http://")):
            raise ValueError("must begin with https:// or http://")
        return value

    @field_validator("machine_torch")
    @classmethod
    def _torch(cls, value: str) -> str:
        words = value.split()
        if words != [_NO_TORCH] and not (words and all(map(_PIN.fullmatch, words))):
            raise ValueError("must be NAME==VERSION, several between spaces, or none")
        return " ".join(words)

    @field_validator("machine_python_url")
    @classmethod
    def _python_url(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("https://", "http://")):
            raise ValueError(
                "must begin with https:// or http://; of a bucket's file give the https address"
            )
        return value

    @field_validator("machine_python_sha256")
    @classmethod
    def _python_digest(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None:
            value = value.strip().lower()
            if _SHA256.fullmatch(value) is None:
                raise ValueError("must be a SHA-256, 64 hexadecimal digits")
        # A wrong address is reported by itself, and is missing here.
        if "machine_python_url" in info.data and (value is None) != (
            info.data["machine_python_url"] is None
        ):
            raise ValueError("is given together with LOWTIDE_MACHINE_PYTHON_URL, or neither is")
        return value


def boot_variables_of(variables: BootVariables) -> dict[str, str]:
    """What machines are told of it in their user data."""
    told = {}
    if variables.machine_torch != _NO_TORCH:
        told["LOWTIDE_MACHINE_TORCH"] = variables.machine_torch
    if variables.boot_install_seconds is not None:
        told["LOWTIDE_BOOT_INSTALL_SECONDS"] = str(variables.boot_install_seconds)
    if variables.machine_package_index is not None:
        told["PIP_INDEX_URL"] = variables.machine_package_index
    if variables.machine_python_url is not None and variables.machine_python_sha256 is not None:
        told["LOWTIDE_MACHINE_PYTHON_URL"] = variables.machine_python_url
        told["LOWTIDE_MACHINE_PYTHON_SHA256"] = variables.machine_python_sha256
    return told
