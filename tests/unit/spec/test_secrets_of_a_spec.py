"""How a spec names secrets, and that what may be a value is never repeated."""

from __future__ import annotations

import pytest

from app.domain.deployment.cloud_secrets import is_allowed, read_cloud_name
from app.domain.projects.resolve_spec import as_written
from app.domain.projects.spec_defaults import read_defaults
from app.domain.spec.job_spec import parse_spec
from app.domain.units.errors import SpecError
from trainer.protocol.run_config import SecretUse

RUN = {"run": "python train.py"}
VALUE = "hunter-2"


def test_secrets_are_named_as_variables_or_files_and_stored_by_name_alone():
    spec = parse_spec({**RUN, "secrets": ["WANDB_API_KEY", {"name": "GCP", "file": "gcp.json"}]})
    assert spec.secrets == (SecretUse("GCP", "gcp.json"), SecretUse("WANDB_API_KEY"))
    stored = [{"name": "GCP", "file": "gcp.json"}, "WANDB_API_KEY"]
    assert spec.to_json()["secrets"] == stored
    assert parse_spec(spec.to_json()) == spec
    assert parse_spec({**RUN, "secrets": [{"name": "A"}]}) == parse_spec({**RUN, "secrets": ["A"]})


def test_secrets_of_clouds_are_named_by_their_service_and_have_a_variable():
    named = [
        "aws-sm:vision/WANDB_API_KEY",
        {"name": "DB", "from": "aws-sm:eu-west-1:vision/db-url"},
        {"name": "gcp-sm:acme-prod:KEY_FILE", "file": "key.json"},
        "OWN",
    ]
    spec = parse_spec({**RUN, "secrets": named})
    assert spec.cloud_secrets == (
        SecretUse("DB", None, "aws-sm:eu-west-1:vision/db-url"),
        SecretUse("KEY_FILE", "key.json", "gcp-sm:acme-prod:KEY_FILE"),
        SecretUse("WANDB_API_KEY", None, "aws-sm:vision/WANDB_API_KEY"),
    )
    assert spec.secret_names == ("OWN",), "the project need not have the others"
    assert spec.names_secrets
    assert parse_spec({**RUN, "secrets": named[:1]}).names_secrets
    assert not parse_spec(RUN).names_secrets
    assert parse_spec(spec.to_json()) == spec
    [stored] = parse_spec({**RUN, "secrets": named[:1]}).to_json()["secrets"]
    assert stored == {"name": "WANDB_API_KEY", "from": "aws-sm:vision/WANDB_API_KEY"}
    image = {"image": "acme/a", "image_secret": "DB"}
    assert parse_spec({**RUN, **image, "secrets": named[1:2]}).secret_names == ()


def test_prefixes_allow_names_of_their_own_place_alone():
    prefixes = [read_cloud_name(one) for one in ("aws-sm:eu-", "aws-sm:one", "gcp-sm:acme-prod:v_")]
    allowed = {"aws-sm:eu-x": True, "aws-sm:one": True, "gcp-sm:acme-prod:v_a": True}
    others = ("aws-sm:eu-west-1:prod", "aws-sm:one-2", "aws-sm:eu", "gcp-sm:v_a", "gcp-sm:eu-x")
    for text, expected in {**allowed, **dict.fromkeys(others, False)}.items():
        assert is_allowed(prefixes, read_cloud_name(text)) is expected, text


def test_a_spec_without_secrets_is_stored_as_before():
    assert "secrets" not in parse_spec(RUN).to_json()
    assert parse_spec({**RUN, "secrets": []}) == parse_spec(RUN)


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ({"WANDB_API_KEY": VALUE}, "secrets: names secrets of the project, never their values"),
        (VALUE, "secrets: must be a list of names"),
        ([VALUE], "secrets: has a text that cannot name a secret"),
        ([{"name": "A", "value": VALUE}], "secrets: cannot hold a mapping with other keys"),
        ([{"file": VALUE}], "secrets: cannot hold a mapping with other keys"),
        ([{"name": "A", "file": "../key"}], "secrets.A: file must be a name such as key.json"),
        ([{"name": "A", "file": ".profile"}], "secrets.A: file must be a name such as key.json"),
        (["A", {"name": "A", "file": "a"}], "secrets: has the name 'A' twice"),
        ([{"name": "A", "file": "a"}, {"name": "B", "file": "a"}], "secrets: has the file 'a' tw"),
        (["lowtide_x"], "secrets: names starting with LOWTIDE_ are set by Lowtide"),
        ([1], "secrets: cannot hold the number 1"),
        ([f"aws-sm:a/{VALUE}"], "secrets: has the name of a cloud's secret whose last part cannot"),
        ([f"gcp-sm:a/{VALUE}"], "secrets: has a name of a cloud's secret that must be gcp-sm:NAME"),
        ([f"aws-sm:{VALUE}:a"], "secrets: has a name of a cloud's secret that must be aws-sm:NAME"),
        (["aws-sm:"], "secrets: has a name of a cloud's secret that must be aws-sm:NAME, whose"),
        ([{"name": "A", "from": VALUE}], "secrets.A: from must begin with aws-sm: or gcp-sm:"),
        ([{"name": "A", "from": ["a"]}], "secrets.A: from must be text such as aws-sm:NAME"),
        ([{"name": "aws-sm:A", "from": "aws-sm:A"}], "secrets: has a cloud's name as `name` besi"),
        (["A", "aws-sm:A"], "secrets: has the name 'A' twice"),
        ([f"A{number}" for number in range(65)], "secrets: must name at most 64 secrets"),
    ],
)
def test_what_cannot_be_is_told_without_the_value(written: object, told: str):
    with pytest.raises(SpecError) as refused:
        parse_spec({**RUN, "secrets": written})
    assert refused.value.message.startswith(told)
    assert VALUE not in refused.value.message


def test_a_secret_is_no_variable_of_env_too():
    with pytest.raises(SpecError, match="a variable in `env` and a secret") as refused:
        parse_spec({**RUN, "secrets": ["A"], "env": {"A": VALUE}})
    assert VALUE not in refused.value.message


def test_the_credentials_of_an_image_are_a_secret_of_an_image():
    spec = parse_spec({**RUN, "image": "acme/a", "image_secret": "REGISTRY", "secrets": ["A"]})
    assert spec.secret_names == ("A", "REGISTRY")
    assert parse_spec(spec.to_json()) == spec
    with pytest.raises(SpecError, match="image_secret: has the credentials for an `image`"):
        as_written(parse_spec({**RUN, "image_secret": "REGISTRY"}))
    with pytest.raises(SpecError, match="image_secret: has a text that cannot name") as refused:
        parse_spec({**RUN, "image": "acme/a", "image_secret": f"robot:{VALUE}"})
    assert VALUE not in refused.value.message


def test_a_project_gives_no_secrets():
    """Each job says itself what it can print."""
    with pytest.raises(SpecError, match="each job says itself"):
        read_defaults({"secrets": ["A"]})
