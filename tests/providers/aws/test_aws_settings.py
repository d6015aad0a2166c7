"""From environment variables to a provider, as the worker makes it; off with a sentence if not."""

from __future__ import annotations

import sys

import pytest
from sqlalchemy import Engine

from app.bootstrap import NoWakeups, build_runtime, require_usable_providers
from app.ports.interruption_feed import InterruptionFeed
from app.settings import SettingsError, load_settings
from app.storage.session.engine import make_engine
from tests.support.aws.aws_fake import IMAGE_PARAMETER, AwsFake
from tests.support.servers.finished_commands import run_command

URLS = {"LOWTIDE_PROVIDERS": "aws", "LOWTIDE_PUBLIC_URL": "https://lowtide.example"}


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name, value in URLS.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def test_without_an_https_address_aws_is_off_and_says_so(
    environment: pytest.MonkeyPatch,
) -> None:
    environment.setenv("LOWTIDE_AWS_REGIONS", "us-east-1")
    environment.setenv("LOWTIDE_PUBLIC_URL", "http://lowtide.example")
    settings = load_settings()
    assert settings.active_providers == ()
    with pytest.raises(SettingsError, match="LOWTIDE_PUBLIC_URL"):
        require_usable_providers(settings)


def test_without_regions_aws_is_off_and_says_so(environment: pytest.MonkeyPatch) -> None:
    settings = load_settings()
    assert settings.active_providers == ()
    with pytest.raises(SettingsError, match="LOWTIDE_AWS_REGIONS"):
        require_usable_providers(settings)


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("LOWTIDE_AWS_REGIONS", "us-east-1, moon", "'moon' is not a region"),
        ("LOWTIDE_AWS_NETWORK_TAG", "lowtide", "KEY=VALUE"),
        ("LOWTIDE_AWS_QUEUE_URL", "my-queue", "https://"),
        ("LOWTIDE_AWS_QUEUE_URL", "https://one.example, us-east-1=two", "REGION=https://"),
        ("LOWTIDE_AWS_ROOT_VOLUME_GB", "8", "30"),
    ],
)
def test_a_wrong_value_names_its_variable(
    environment: pytest.MonkeyPatch, variable: str, value: str, said: str
) -> None:
    environment.setenv(variable, value)
    with pytest.raises(SettingsError) as refused:
        load_settings()
    assert variable in str(refused.value)
    assert said in str(refused.value)


def test_the_worker_gets_a_provider_as_it_is_set(
    environment: pytest.MonkeyPatch, fake: AwsFake, engine: Engine, database_url: str
) -> None:
    for name, value in {
        "LOWTIDE_AWS_REGIONS": "us-east-1, us-west-2",
        "LOWTIDE_AWS_IMAGE": IMAGE_PARAMETER,
        "LOWTIDE_AWS_ENDPOINT_URL": fake.url,
        "LOWTIDE_AWS_QUEUE_URL": fake.queue_url,
        "LOWTIDE_DATABASE_URL": database_url,
        "LOWTIDE_REDIS_URL": "redis://127.0.0.1:1/0",
    }.items():
        environment.setenv(name, value)
    own = make_engine(database_url, pool_size=1, max_overflow=1, application_name="test")
    try:
        runtime = build_runtime(load_settings(), role="worker", engine=own, wakeups=NoWakeups())
        provider = runtime.providers["aws"]
        assert provider.regions() == ("us-east-1", "us-west-2")
        assert isinstance(provider, InterruptionFeed)
        assert provider.announces
        assert {offer.pool.region for offer in runtime.price_sources["aws"].offers()} == {
            "us-east-1",
            "us-west-2",
        }
    finally:
        own.dispose()


def test_a_control_plane_without_aws_loads_nothing_of_it() -> None:
    code = (
        "import sys; from app.settings import load_settings; import app.bootstrap;"
        "load_settings(); print(*sorted(sys.modules))"
    )
    done = run_command(
        [sys.executable, "-c", code],
        timeout=60,
        check=True,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": "."},
    )
    loaded = set(done.stdout.split())
    assert "app.settings" in loaded
    assert not loaded & {"boto3", "botocore", "app.adapters.providers.aws.provider"}
