"""A fake AWS account for each test, and an environment without real credentials."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.aws.aws_fake import AwsFake, open_aws_fake
from tests.support.aws.aws_parts import ENVIRONMENT


@pytest.fixture(autouse=True)
def _no_real_account(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def fake() -> Iterator[AwsFake]:
    """A new account that shows everything at once."""
    with open_aws_fake() as account:
        yield account
