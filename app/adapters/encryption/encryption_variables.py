"""`LOWTIDE_SECRETS_KEY_FILE`: where the key of stored secrets is. Part of `Settings`."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings


class EncryptionVariables(BaseSettings):
    """The file is read at each use, so that a key that was replaced counts at once."""

    secrets_key_file: Path | None = Field(
        default=None,
        description="File with the key under which secrets of projects are encrypted, mode 0600 or "
        "in `/run/secrets` ([secrets.md](secrets.md)); made with the first secret. Keep a copy "
        "apart from backups of the database",
        json_schema_extra={"default": "STATE_DIR/secrets.key"},
    )

    @field_validator("secrets_key_file")
    @classmethod
    def _whole_path(cls, value: Path | None) -> Path | None:
        """Programs of one deployment run in several folders."""
        if value is not None and not value.is_absolute():
            raise ValueError("must be a whole path, like /etc/lowtide/secrets.key")
        return value
