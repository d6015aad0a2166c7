"""`lowtide doctor` and `lowtide catalog` on real servers: what they find and say to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from psycopg.sql import SQL

from app.adapters.embedded.servers.valkey_server import EmbeddedValkey
from app.adapters.object_stores.obstore_store import open_object_store
from app.adapters.providers.machine_catalog import load_catalog, shipped_catalog
from app.adapters.server_probes import probe_public_url
from app.adapters.system_entropy import SystemEntropy
from app.bootstrap import _deployment_id
from app.domain.deployment.check_result import CheckResult, clock_check, warning
from app.domain.market.machine_catalog import MachineType
from app.orchestration.deployment.diagnose import (
    check_bucket_place,
    check_object_store,
    check_provider,
    run_checks,
)
from app.ports.cloud_provider import ProviderError, RefusalKind
from app.ports.provider_diagnosis import MachineTypeSource, ProviderDiagnosis
from app.settings import load_settings
from tests.support.cli.command_line import CommandLine, Ran
from tests.support.object_stores.object_store_fakes import GcsFake, S3Fake
from tests.support.servers.http_server import QuietHandler, http_server

NOW = datetime(2031, 1, 1, tzinfo=UTC)


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path, {"LOWTIDE_STATE_DIR": str(tmp_path / "state")})


def test_training_data_is_examined(cli: CommandLine, tmp_path: Path) -> None:
    np.zeros(3_000, np.uint16).tofile(tmp_path / "corpus.bin")
    assert "nothing to correct" in cli.ok("doctor", "--data", str(tmp_path / "corpus.bin")).out
    found = cli.ok("doctor", "--data", str(tmp_path / "corpus.bin"), "--json").json
    assert found["samples"] == {"train": 1, "validation": 0, "test": 1}
    np.full(3_000, 60_000, np.uint16).tofile(tmp_path / "corpus.bin")
    ran = cli.run("doctor", "--data", str(tmp_path / "corpus.bin"))
    assert ran.exit_code == 1
    assert "token 60000 is outside the vocabulary" in ran.out
    assert cli.run("doctor", "--data", str(tmp_path / "nowhere")).exit_code == 2


def _by_name(document: Any) -> dict[str, dict[str, Any]]:
    return {finding["name"]: finding for finding in document["findings"]}


def _wrong(cli: CommandLine, *arguments: str) -> Ran:
    """The table is the answer: it is on stdout, also when something is wrong."""
    ran = cli.run("doctor", *arguments)
    assert (ran.exit_code, ran.errors) == (1, ""), ran
    return ran


@pytest.fixture
def somebody_elses_site() -> Iterator[str]:
    """A web server that answers 200 to everything, as a wrong proxy does."""

    class Handler(QuietHandler):
        def serve(self) -> None:
            self.answer(200, b"<html>Welcome")

    with http_server(Handler) as url:
        yield url


def test_a_fresh_machine_is_in_order(cli: CommandLine, tmp_path: Path):
    found = cli.ok("doctor", "--json").json
    assert found["ok"] is True
    assert all(finding["remedy"] == "" for finding in found["findings"])
    names = set(_by_name(found))
    assert {"settings", "database", "valkey", "public URL", "local"} <= names
    assert "Everything is in order." in cli.ok("doctor").out
    # What was written to try the store is gone again.
    assert [path for path in (tmp_path / "state" / "store").rglob("*") if path.is_file()] == []


def test_servers_that_answer(
    cli: CommandLine, database_url: str, valkey_server: EmbeddedValkey, tmp_path: Path
):
    contract = tmp_path / "contract.yaml"
    contract.write_text("discounts: {gcp: 5}\n")
    cli.variables["LOWTIDE_CONTRACT_PRICES"] = str(contract)
    cli.variables["LOWTIDE_DATABASE_URL"] = database_url
    cli.variables["LOWTIDE_REDIS_URL"] = valkey_server.url
    found = _by_name(cli.ok("doctor", "--json").json)
    assert "answers; its schema is" in found["database"]["sentence"]
    assert found["valkey"]["sentence"] == "answers"
    assert found["database: clock"]["ok"]
    assert found["contract prices"]["warns"]
    assert "discounts.gcp changes nothing" in found["contract prices"]["sentence"]


def test_a_schema_of_a_newer_release_is_in_order_and_left_alone(
    cli: CommandLine, empty_database_url: str
):
    """After going back to the former release, which does not know the revision."""
    cli.variables["LOWTIDE_DATABASE_URL"] = empty_database_url
    cli.ok("migrate")
    driver_url = empty_database_url.replace("postgresql+psycopg://", "postgresql://", 1)
    with psycopg.connect(driver_url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    assert "revision 9999, which a newer release has made" in cli.ok("migrate").out
    found = _by_name(cli.ok("doctor", "--json").json)["database"]
    assert (found["ok"], found["sentence"]) == (
        True,
        "answers; its schema is 9999, of a newer release",
    )


@pytest.mark.parametrize("fingerprint", ["'0123abcd'", "NULL"])
def test_a_database_of_another_development_version_is_told_and_left_alone(
    cli: CommandLine, database_url: str, fingerprint: str
):
    """Both call their schema by one revision, and mean other tables: nothing else would tell."""
    cli.variables["LOWTIDE_DATABASE_URL"] = database_url
    cli.ok("migrate")
    driver_url = database_url.replace("postgresql+psycopg://", "postgresql://", 1)
    with psycopg.connect(driver_url) as connection:
        connection.execute(SQL("COMMENT ON TABLE alembic_version IS {}").format(SQL(fingerprint)))
    for _ in range(2):
        refused = cli.fails(2, "migrate")
        assert "made by another development version of Lowtide" in refused.errors
        assert "Nothing was changed" in refused.errors
        assert "start over" in refused.errors
        found = _by_name(_wrong(cli, "--json").json)["database"]
        assert "another development version" in found["sentence"]
    with psycopg.connect(driver_url) as connection:
        assert connection.execute("SELECT count(*) FROM deployment").fetchone() == (1,)


def test_everything_that_is_wrong_is_listed_with_what_to_do(
    cli: CommandLine, empty_database_url: str, somebody_elses_site: str
):
    cli.variables.update(
        LOWTIDE_DATABASE_URL=empty_database_url,
        LOWTIDE_REDIS_URL="redis://127.0.0.1:1/0",
        LOWTIDE_PUBLIC_URL=somebody_elses_site,
        LOWTIDE_OBJECT_STORE_URI="s3://x",
    )
    ran = _wrong(cli, "--json")
    found = _by_name(ran.json)
    wrong = {name for name, finding in found.items() if not finding["ok"]}
    assert wrong == {"database", "valkey", "public URL", "object store"}
    assert "run `lowtide migrate`" in found["database"]["remedy"]
    assert "its schema is empty" in found["database"]["sentence"]
    assert "answers 200, but not as Lowtide" in found["public URL"]["sentence"]
    assert found["object store"]["remedy"] == "correct LOWTIDE_OBJECT_STORE_URI"
    shown = _wrong(cli, "-q").out
    assert shown.count("✗") == len(wrong)
    assert "✓" not in shown
    assert "→ start Redis or Valkey" in shown


def test_a_database_that_is_not_there(cli: CommandLine):
    cli.variables["LOWTIDE_DATABASE_URL"] = "postgresql://a:secret@127.0.0.1:1/x"
    ran = _wrong(cli, "--json")
    assert "does not answer" in _by_name(ran.json)["database"]["sentence"]
    assert "secret" not in ran.out
    ran = cli.fails(3, "secret", "verify")
    assert "the secrets could not be read" in ran.errors
    assert ("a:secret" in ran.errors, "Traceback" in ran.errors) == (False, False)


def test_a_setting_that_cannot_be_read_and_a_cloud_without_an_address(cli: CommandLine):
    cli.variables["LOWTIDE_PROVIDERS"] = "aws"
    found = _by_name(_wrong(cli, "--json").json)
    assert not found["public URL"]["ok"]
    assert "LOWTIDE_PUBLIC_URL" in found["public URL"]["remedy"]
    cli.variables["LOWTIDE_PORT"] = "many"
    (only,) = _wrong(cli, "--json").json["findings"]
    assert (only["name"], only["ok"]) == ("settings", False)
    assert "LOWTIDE_PORT" in only["sentence"]


def test_a_public_address_that_nothing_answers():
    (found,) = probe_public_url("http://127.0.0.1:1")
    assert not found.ok
    assert "cannot be reached" in found.sentence
    (found,) = probe_public_url("https://127.0.0.1:1/x")
    assert not found.ok


@pytest.mark.parametrize("kind", ["s3", "gs"])
def test_the_object_stores_of_the_clouds(kind: str):
    fake = S3Fake() if kind == "s3" else GcsFake()
    try:
        store = open_object_store(fake.uri, fake.options)
        found = check_object_store(store, SystemEntropy())
        assert [finding.ok for finding in found] == [True] * 5
        assert list(store.list_keys("")) == []
        for right, what, named in (
            ("get", "read", "s3:GetObject (Google: storage.objects.get)"),
            ("list", "list", "s3:ListBucket (Google: storage.objects.list)"),
            ("delete", "delete", "s3:DeleteObject (Google: storage.objects.delete)"),
        ):
            fake.steering.withheld = {right}
            wrong = [one for one in check_object_store(store, SystemEntropy()) if not one.ok]
            assert [one.name for one in wrong] == [f"object store: {what}"]
            assert named in wrong[0].remedy
        fake.steering.withheld = set()
        (left,) = store.list_keys("")
        assert f"{left} stays there" in wrong[0].sentence
        store.delete(left)
        fake.steering.denied = True
        (denied,) = check_object_store(store, SystemEntropy())
        assert not denied.ok
        assert f"bucket {fake.bucket} is denied; allow" in denied.sentence
        fake.steering.denied = False
        absent = open_object_store(fake.uri.replace(fake.bucket, "absent"), fake.options)
        (missing,) = check_object_store(absent, SystemEntropy())
        assert "bucket absent does not exist" in missing.sentence
    finally:
        fake.close()


def test_a_store_that_ignores_conditions_is_found_out():
    """As some emulators and S3-compatible servers do."""

    class Forgetful(GcsFake):
        def _write(self, method: str, key: str, query: Any, headers: Any, body: bytes) -> Any:
            return super()._write(method, key, query, {}, body)

    fake = Forgetful()
    try:
        found = check_object_store(open_object_store(fake.uri, fake.options), SystemEntropy())
    finally:
        fake.close()
    wrong = {finding.name: finding for finding in found if not finding.ok}
    assert set(wrong) == {"object store: create only"}
    assert "a second write replaced the first" in wrong["object store: create only"].sentence


@pytest.mark.parametrize(("seconds", "ok"), [(0, True), (4, True), (-4, True), (6, False)])
def test_clocks_may_differ_by_seconds_only(seconds: int, ok: bool):
    found = clock_check("clock", NOW, NOW + timedelta(seconds=seconds))
    assert found.ok is ok
    assert bool(found.remedy) is not ok
    assert f"{abs(seconds)}s" in found.sentence


@dataclass
class Cloud:
    """A provider with the optional abilities, as far as these commands use one."""

    findings: tuple[CheckResult, ...] = ()
    types: tuple[MachineType, ...] = ()
    error: Exception | None = None
    asked: list[str] = field(default_factory=list)

    def regions(self) -> tuple[str, ...]:
        return ("r",)

    def diagnose(self) -> tuple[CheckResult, ...]:
        if self.error is not None:
            raise self.error
        return self.findings

    def machine_types(self) -> tuple[MachineType, ...]:
        if self.error is not None:
            raise self.error
        return self.types


def test_a_providers_own_findings_are_shown():
    quota = CheckResult("quota", False, "spot GPU quota is 0 vCPUs", "ask for 8 vCPUs")
    cloud: Any = Cloud((quota,))
    assert all(isinstance(cloud, ability) for ability in (ProviderDiagnosis, MachineTypeSource))
    (found,) = check_provider("aws", cloud)
    assert (found.name, found.sentence) == ("aws: quota", quota.sentence)
    cloud.error = ProviderError(RefusalKind.DENIED, "no credentials\nmore")
    (found,) = check_provider("aws", cloud)
    assert (found.ok, found.sentence) == (False, "no credentials")


@dataclass
class BucketCloud(Cloud):
    """A cloud that keeps buckets."""

    bucket_scheme = "s3"

    def locate_bucket(self, bucket: str) -> str:
        self.asked.append(bucket)
        if self.error is not None:
            raise self.error
        return "eu-west-1"


def test_the_bucket_of_checkpoints_is_asked_for_its_place():
    """GetBucketLocation has no dry run: it changes nothing, and is called."""
    cloud: Any = BucketCloud()
    (found,) = check_bucket_place("aws", cloud, "s3://acme/runs", None)
    assert (found.name, found.ok, found.warns) == ("aws: bucket of checkpoints", True, False)
    assert (found.sentence, cloud.asked) == ("acme is in eu-west-1", ["acme"])
    cloud.error = ProviderError(RefusalKind.DENIED, "AccessDenied")
    (found,) = check_bucket_place("aws", cloud, "s3://acme/runs", None)
    assert (found.ok, found.warns) == (True, True)
    assert "s3:GetBucketLocation" in found.remedy
    for uri, region in (("gs://acme", None), ("file:///x", None), ("s3://acme", "eu-west-1")):
        assert check_bucket_place("aws", cloud, uri, region) == ()
    assert check_bucket_place("aws", Cloud(), "s3://acme", None) == ()  # type: ignore[arg-type]


def test_the_doctor_asks_for_the_place_of_its_own_bucket(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
):
    cloud: Any = BucketCloud((CheckResult("image", True, "there"),))
    monkeypatch.setattr("app.bootstrap.open_providers", lambda settings: {"aws": cloud})
    cli.variables["LOWTIDE_CHECKPOINT_URI"] = "s3://acme/runs"
    assert cli.ok("doctor").row("✓ aws: bucket of checkpoints", "acme is in eu-west-1")


@pytest.mark.parametrize("url", [None, "postgresql://nobody@127.0.0.1:1/none"])
def test_a_database_that_is_away_is_an_error_that_clouds_know(url: str | None):
    """Whose machines these are only the database tells: launches and looks wait, typed."""
    read = _deployment_id(load_settings(database_url=url), None)
    with pytest.raises(ProviderError, match="whose machines") as refused:
        read()
    assert refused.value.kind is RefusalKind.UNAVAILABLE


def test_a_warning_is_shown_and_fails_nobody(cli: CommandLine, monkeypatch: pytest.MonkeyPatch):
    gangs = warning("security groups", "those of a gang cannot reach each other", "open the group")
    cloud: Any = Cloud((gangs, CheckResult("image", True, "there")))
    monkeypatch.setattr("app.bootstrap.open_providers", lambda settings: {"aws": cloud})
    ran = cli.ok("doctor", "-q")
    assert ran.row("! aws: security groups", "those of a gang cannot reach each other")
    assert "→ open the group" in ran.out
    assert "Everything is in order. 1 to know." in cli.ok("doctor").out
    found = _by_name(cli.ok("doctor", "--json").json)
    assert (found["aws: security groups"]["ok"], found["aws: security groups"]["warns"]) == (
        True,
        True,
    )
    assert not found["aws: image"]["warns"]


def test_a_check_that_breaks_hides_no_other():
    good = CheckResult("good", True, "fine")

    def breaks() -> tuple[CheckResult, ...]:
        raise RuntimeError("boom\nand more")

    found = run_checks([("broken", breaks), ("good", lambda: (good,))])
    assert found[1] == good
    assert (found[0].name, found[0].ok) == ("broken", False)
    assert found[0].sentence == "could not be checked: boom"


def test_the_catalog_is_listed(cli: CommandLine):
    every = cli.ok("catalog", "--json").json
    assert {row["provider"] for row in every["types"]} == {"aws", "gcp"}
    assert all(one["source"] and one["as_of"] for one in every["catalogs"])
    assert every["gpus"]["throughput_source"]
    h100 = next(row for row in every["types"] if row["name"] == "p5.48xlarge")
    assert h100["throughput_per_gpu"]["vit"] > 5
    assert cli.ok("catalog", "list", "--gpu", "A100:80GB:8", "-q").out.split() == [
        "p4de.24xlarge", "a2-ultragpu-8g"
    ]  # fmt: skip
    assert "n1-standard-4-t4x1" in cli.ok("catalog", "--gpu", "T4", "--provider", "gcp").out
    assert "did you mean 'L40S'?" in cli.fails(2, "catalog", "--gpu", "L40").errors
    assert "choose aws or gcp" in cli.fails(2, "catalog", "--provider", "azure").errors


def test_a_refresh_asks_the_configured_clouds(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert "no configured cloud" in cli.fails(2, "catalog", "refresh").errors
    some = shipped_catalog("gcp").types[:3]
    cloud: Any = Cloud(types=some)
    monkeypatch.setattr("app.bootstrap.open_providers", lambda settings: {"gcp": cloud})
    (done,) = cli.ok("catalog", "refresh", "--json").json
    assert (done["provider"], done["types"]) == ("gcp", 3)
    kept = load_catalog("gcp", tmp_path / "state")
    assert kept.types == some
    assert kept.source == "the API of gcp"
    assert len(cli.ok("catalog", "--provider", "gcp", "-q").out.split()) == 3
    cloud.error = ProviderError(RefusalKind.DENIED, "not allowed")
    assert "gcp: not allowed" in cli.fails(3, "catalog", "refresh").errors
    assert load_catalog("gcp", tmp_path / "state") == kept
