"""Settings come from the environment; a wrong one is told in a sentence that names the variable."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.settings import Settings, SettingsError, load_settings, unknown_variables


@pytest.fixture
def problem(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], str]:
    """The message for one wrong variable."""

    def told(name: str, value: str) -> str:
        monkeypatch.setenv(name, value)
        with pytest.raises(SettingsError) as raised:
            load_settings()
        monkeypatch.delenv(name)
        return str(raised.value)

    return told


def test_nothing_has_to_be_set():
    settings = load_settings()
    assert settings.providers == {"local"}
    assert settings.active_providers == ("local",)
    assert settings.port == 8400
    assert settings.host == "127.0.0.1"
    assert settings.database_url is None
    assert settings.report_interval_seconds == 0.5
    assert settings.state_dir == Path.cwd() / ".lowtide"


def test_an_empty_variable_is_an_unset_one(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LOWTIDE_PORT", "")
    assert load_settings().port == 8400


def test_the_store_lies_in_the_state_folder_unless_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LOWTIDE_STATE_DIR", "/data/low tide")
    settings = load_settings()
    assert settings.object_store_uri == "file:///data/low%20tide/store"
    assert settings.checkpoint_uri == "file:///data/low%20tide/store/checkpoints"
    monkeypatch.setenv("LOWTIDE_OBJECT_STORE_URI", "s3://acme/lowtide/")
    assert load_settings().checkpoint_uri == "s3://acme/lowtide/checkpoints"


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_the_database_is_always_reached_through_psycopg(
    monkeypatch: pytest.MonkeyPatch, scheme: str
):
    monkeypatch.setenv("LOWTIDE_DATABASE_URL", f"{scheme}://u:p@h:5432/d")
    assert load_settings().database_url == "postgresql+psycopg://u:p@h:5432/d"


def test_clouds_need_an_https_address(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LOWTIDE_PROVIDERS", "gcp, local,AWS")
    for address in (None, "http://lowtide.example"):
        if address is not None:
            monkeypatch.setenv("LOWTIDE_PUBLIC_URL", address)
        settings = load_settings()
        assert settings.active_providers == ("local",)
        assert set(settings.provider_problems) == {"aws", "gcp"}
        assert "LOWTIDE_PUBLIC_URL" in settings.provider_problems["gcp"]
    monkeypatch.setenv("LOWTIDE_PUBLIC_URL", "https://lowtide.example/")
    monkeypatch.setenv("LOWTIDE_GCP_PROJECT", "a-project")
    monkeypatch.setenv("LOWTIDE_AWS_REGIONS", "us-east-1")
    settings = load_settings()
    assert settings.public_url == "https://lowtide.example"
    assert settings.active_providers == ("local", "aws", "gcp")
    assert settings.provider_problems == {}
    assert settings.report_interval_seconds == 10


def test_a_word_is_told_which_words_there_are(problem: Callable[[str, str], str]):
    assert problem("LOWTIDE_PROVIDERS", "local,azure") == (
        "LOWTIDE_PROVIDERS: use one or more of local, aws, gcp, separated by commas; "
        "'azure' is not one of them"
    )
    assert "name at least one of" in problem("LOWTIDE_PROVIDERS", ",")
    assert "'scripted' or 'replay'" in problem("LOWTIDE_LOCAL_MODE", "wild")
    assert problem("LOWTIDE_PORT", "x") == "LOWTIDE_PORT=x: must be a whole number"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LOWTIDE_PORT", "eighty"),
        ("LOWTIDE_PORT", "70000"),
        ("LOWTIDE_LOCAL_SLOTS", "0"),
        ("LOWTIDE_ACCRUAL_PERIOD_SECONDS", "-1"),
        ("LOWTIDE_ACCRUAL_PERIOD_SECONDS", "nan"),
        ("LOWTIDE_LOCAL_MARKET_SPEED", "inf"),
        ("LOWTIDE_REDIS_URL", "http://h"),
        ("LOWTIDE_PUBLIC_URL", "lowtide.example"),
        ("LOWTIDE_OBJECT_STORE_URI", "/data/store"),
    ],
)
def test_a_wrong_value_is_told_in_one_line_that_names_the_variable(
    problem: Callable[[str, str], str], name: str, value: str
):
    message = problem(name, value)
    assert message.startswith(name)
    assert len(message.splitlines()) == 1


def test_every_wrong_variable_is_told_at_once(
    monkeypatch: pytest.MonkeyPatch, problem: Callable[[str, str], str]
):
    monkeypatch.setenv("LOWTIDE_LOG_LEVEL", "loud")
    monkeypatch.setenv("LOWTIDE_PROVIDERS", "moon")
    message = problem("LOWTIDE_PORT", "x")
    assert [line.split(":")[0].split("=")[0] for line in message.splitlines()] == [
        "LOWTIDE_PORT",
        "LOWTIDE_PROVIDERS",
        "LOWTIDE_LOG_LEVEL",
    ]


def test_secrets_are_neither_told_nor_shown(
    monkeypatch: pytest.MonkeyPatch, problem: Callable[[str, str], str]
):
    assert "hunter2" not in problem("LOWTIDE_DATABASE_URL", "mysql://u:hunter2@h/d")
    monkeypatch.setenv("LOWTIDE_DATABASE_URL", "postgresql://u:hunter2@h/d")
    monkeypatch.setenv("LOWTIDE_REDIS_URL", "redis://:hunter2@h/0")
    monkeypatch.setenv("LOWTIDE_API_KEY", "hunter2")
    assert "hunter2" not in repr(load_settings())


def test_settings_do_not_change():
    with pytest.raises(ValueError, match="frozen"):
        Settings().port = 1


def test_a_jobs_own_checkpoints_lie_in_the_store_unless_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LOWTIDE_STATE_DIR", "/data/low tide")
    assert load_settings().checkpoint_roots == {Path("/data/low tide/store")}
    monkeypatch.setenv("LOWTIDE_OBJECT_STORE_URI", "s3://acme/lowtide")
    assert load_settings().checkpoint_roots == frozenset()
    monkeypatch.setenv("LOWTIDE_CHECKPOINT_ROOTS", "/data/a, /data/b")
    assert load_settings().checkpoint_roots == {Path("/data/a"), Path("/data/b")}


def test_a_checkpoint_root_is_a_whole_path(problem: Callable[[str, str], str]):
    assert "LOWTIDE_CHECKPOINT_ROOTS" in problem("LOWTIDE_CHECKPOINT_ROOTS", "data/a")
    assert "whole path" in problem("LOWTIDE_CHECKPOINT_ROOTS", "data/a")


def test_an_unknown_variable_is_told_with_the_nearest_setting(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LOWTIDE_PORT", "1")
    assert unknown_variables() == []
    monkeypatch.setenv("LOWTIDE_OBJECT_STORE_URL", "x")
    assert unknown_variables() == [
        "LOWTIDE_OBJECT_STORE_URL is no setting and changes nothing; "
        "did you mean LOWTIDE_OBJECT_STORE_URI?"
    ]


@pytest.mark.parametrize(
    ("public_url", "endpoint", "active"),
    [
        ("http://127.0.0.1:8400", "http://127.0.0.1:9000", ("aws",)),
        ("http://127.0.0.1:8400", "https://ec2.us-east-1.amazonaws.com", ()),
        ("http://127.0.0.1:8400", None, ()),
        ("http://10.0.0.7:8400", "http://127.0.0.1:9000", ()),
        ("http://127.0.0.1.example.com", "http://127.0.0.1:9000", ()),
        (None, "http://127.0.0.1:9000", ()),
        ("https://lowtide.example.com", None, ("aws",)),
    ],
)
def test_machines_may_report_over_http_only_where_their_cloud_is_this_machine(
    public_url: str | None, endpoint: str | None, active: tuple[str, ...]
):
    settings = load_settings(
        providers="aws", aws_regions="us-east-1", public_url=public_url, aws_endpoint_url=endpoint
    )
    assert settings.active_providers == active
    assert ("aws" in settings.provider_problems) is not bool(active)


def test_the_region_of_the_checkpoints_is_that_of_the_bucket(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("AWS_REGION", raising=False)
    assert load_settings().checkpoint_region is None
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    assert load_settings().checkpoint_region == "eu-west-1"
    monkeypatch.setenv("LOWTIDE_CHECKPOINT_REGION", "us-east-2")
    assert load_settings().checkpoint_region == "us-east-2"


def test_the_local_cloud_beside_others_can_be_forbidden(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LOWTIDE_PROVIDERS", "local,aws")
    assert load_settings().local_beside_clouds
    monkeypatch.setenv("LOWTIDE_LOCAL_BESIDE_CLOUDS", "false")
    with pytest.raises(
        SettingsError, match=r"names local together with aws: .*LOCAL_BESIDE_CLOUDS=true"
    ):
        load_settings()
    for providers in ("local", "aws,gcp"):
        monkeypatch.setenv("LOWTIDE_PROVIDERS", providers)
        assert not load_settings().local_beside_clouds


def test_keys_to_clouds_are_known_by_their_variables(monkeypatch: pytest.MonkeyPatch):
    for name in load_settings().cloud_keys:
        monkeypatch.delenv(name)
    assert load_settings().cloud_keys == ()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    monkeypatch.setenv("LOWTIDE_GCP_CREDENTIALS_FILE", "/f")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "")
    monkeypatch.setenv("EDITOR", "vi")
    assert load_settings().cloud_keys == ("AWS_SECRET_ACCESS_KEY", "LOWTIDE_GCP_CREDENTIALS_FILE")


def test_a_lease_that_outlives_credentials_turns_the_cloud_off() -> None:
    """3,600 s of life, less 180 s to save and 900 s without an issuer, and room for renewals."""
    aws: dict[str, Any] = {
        "providers": "aws",
        "aws_regions": "us-east-1",
        "public_url": "https://lowtide.example",
        "aws_data_role": "arn:aws:iam::123456789012:role/lowtide-job-data",
    }
    assert load_settings(**aws, agent_lease_seconds=2_400).active_providers == ("aws",)
    long = load_settings(**aws, agent_lease_seconds=2_401)
    assert long.active_providers == ()
    assert "AGENT_LEASE_SECONDS is 2401" in long.provider_problems["aws"]
    nowhere = load_settings(**{**aws, "aws_regions": ""}, agent_lease_seconds=2_401)
    assert "AWS_REGIONS" in nowhere.provider_problems["aws"], "what is needed first is said first"
    assert load_settings(
        **{**aws, "aws_data_role": None}, agent_lease_seconds=7_200
    ).active_providers
    with pytest.raises(SettingsError, match="AWS_DATA_ROLE"):
        load_settings(aws_data_role="lowtide-job-data")
    with pytest.raises(SettingsError, match="GCP_DATA_ACCOUNT"):
        load_settings(gcp_data_account="someone@example.com")
