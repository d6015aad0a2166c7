"""Inputs and outputs reach no other job's or project's checkpoints, logs, folders or data."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from app.api.submission.data_places import DeploymentPlaces, below_place
from app.api.submission.spec_body import check_places
from app.api.submission.spec_places import check_grants
from app.domain.access.principal import Principal
from app.domain.access.roles import Role
from app.domain.spec.job_spec import parse_spec
from app.domain.units.errors import SpecError
from app.settings import load_settings

MINE = Principal(UUID(int=1), "key", UUID(int=2), "mine", Role.MAINTAINER)
JOB = "01911111-2222-7333-8444-555555555555"
NOTHING: Any = None


def ask(caller: Principal, places: DeploymentPlaces, **folders: str) -> None:
    named = {name: {"/data" if name == "inputs" else "out": uri} for name, uri in folders.items()}
    asyncio.run(check_places(parse_spec({"run": "true", **named}), caller, NOTHING, places))


def refused(places: DeploymentPlaces, uri: str, *fields: str) -> str:
    for field in fields or ("inputs", "outputs"):
        with pytest.raises(SpecError) as error:
            ask(MINE, places, **{field: uri})
    return str(error.value)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The store of a local deployment, with something of each kind in it."""
    store = tmp_path / "state" / "store"
    for below in (f"checkpoints/{JOB}/fences", f"logs/{JOB}", "workdirs/x", "agent", "data/other"):
        (store / below).mkdir(parents=True)
    return store


def of_folder(store: Path, **more: Any) -> DeploymentPlaces:
    return DeploymentPlaces.of(load_settings(object_store_uri=store.as_uri(), **more))


def test_the_own_store_has_a_place_for_each_project(folder: Path) -> None:
    places = of_folder(folder)
    for uri in ((folder / "data/mine").as_uri(), (folder / "data/mine/a/b").as_uri()):
        ask(MINE, places, inputs=uri)
        ask(MINE, places, outputs=uri)
    for below in ("", "checkpoints", f"checkpoints/{JOB}", f"logs/{JOB}", "workdirs", "agent",
                  "data", "data/other", "data/mine2", "results"):  # fmt: skip
        assert f"{folder.as_uri()}/data/mine" in refused(places, (folder / below).as_uri())


def test_no_data_lie_where_seals_of_the_audit_are(folder: Path, tmp_path: Path) -> None:
    seals = tmp_path / "seals"
    places = of_folder(folder, data_places=tmp_path.as_uri(), audit_seals=seals.as_uri())
    for below in ("", "0191", "0191/000000000001.json"):
        assert seals.as_uri() in refused(places, (seals / below).as_uri())
    places = of_folder(folder, data_places="s3://acme", audit_seals="s3://acme/seals")
    assert "s3://acme/seals/data/mine" in refused(places, "s3://acme/seals/0191")
    ask(MINE, places, outputs="s3://acme/results")


def test_a_project_whose_name_is_no_folder_has_its_id(folder: Path) -> None:
    odd = Principal(UUID(int=1), "key", UUID(int=2), "../other", Role.MAINTAINER)
    places = of_folder(folder)
    ask(odd, places, inputs=(folder / f"data/{UUID(int=2)}").as_uri())
    with pytest.raises(SpecError):
        ask(odd, places, inputs=(folder / "data/other").as_uri())


def test_a_project_that_is_named_like_the_id_of_another_has_not_its_folder(folder: Path) -> None:
    places, id_of_odd = of_folder(folder), UUID(int=2)
    named_so = Principal(UUID(int=3), "key", UUID(int=4), str(id_of_odd), Role.MAINTAINER)
    ask(named_so, places, inputs=(folder / f"data/{UUID(int=4)}").as_uri())
    with pytest.raises(SpecError):
        ask(named_so, places, inputs=(folder / f"data/{id_of_odd}").as_uri())


def test_no_link_leads_there(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "free").mkdir()
    places = of_folder(folder, data_places=f"{(tmp_path / 'free').as_uri()}, {folder.as_uri()}")
    (tmp_path / "free/link").symlink_to(folder / "checkpoints" / JOB)
    (folder / "data/mine").mkdir()
    (folder / "data/mine/up").symlink_to(folder / "data/other")
    refused(places, (tmp_path / "free/link").as_uri())
    refused(places, (folder / "data/mine/up").as_uri())
    # Nor is the store reached by another name of its own.
    (tmp_path / "alias").symlink_to(folder)
    aliased = of_folder(tmp_path / "alias")
    refused(aliased, (folder / "checkpoints" / JOB).as_uri())
    ask(MINE, aliased, inputs=(folder / "data/mine").as_uri())


def test_no_other_case_leads_there(folder: Path, tmp_path: Path) -> None:
    """On a file system that knows no case both names are one folder; elsewhere nothing is lost."""
    places = of_folder(folder, data_places=tmp_path.as_uri())
    for uri in (folder.parent / "STORE/checkpoints", folder.parent / "Store/Checkpoints",
                folder / "Data/mine", folder / "data/Mine"):  # fmt: skip
        refused(places, uri.as_uri())
    ask(MINE, places, inputs=(tmp_path / "stores").as_uri())


def test_no_look_alike_leads_there(folder: Path, tmp_path: Path) -> None:
    """Some file systems compare names in a normal form: then both names are one folder."""
    places = of_folder(folder, data_places=tmp_path.as_uri())
    wide = "".join(chr(ord(letter) + 0xFEE0) for letter in "store")
    refused(places, (folder.parent / wide / "checkpoints").as_uri())
    accented = tmp_path / "caf\u00e9" / "store"
    (accented / "checkpoints").mkdir(parents=True)
    places = of_folder(accented, data_places=tmp_path.as_uri())
    refused(places, (tmp_path / "cafe\u0301" / "store" / "checkpoints").as_uri())
    ask(MINE, places, inputs=(tmp_path / "cafe" / "store").as_uri())


def test_places_that_must_not_be_reached_are_compared_in_a_normal_form(tmp_path: Path) -> None:
    """A spec's address has no such letters; a folder that the settings name may."""
    wide = "".join(chr(ord(letter) + 0xFEE0) for letter in "store")
    for here, there in (("store", wide), (wide, "STORE"), ("cafe\u0301", "caf\u00e9")):
        uri, place = (tmp_path / here / "logs").as_uri(), (tmp_path / there).as_uri()
        assert below_place(uri, place, loosely=True) == ("logs",)
        assert below_place(uri, place) is None


def test_one_name_may_begin_with_anothers(folder: Path, tmp_path: Path) -> None:
    """`a` and `a/b`, `mine` and `mine2`: whole names are compared, in folders and in buckets."""
    free = DeploymentPlaces(data=(f"{tmp_path.as_uri()}/a", "s3://acme/a"), own=(folder.as_uri(),))
    ask(MINE, free, inputs=f"{tmp_path.as_uri()}/a/b", outputs="s3://acme/a/b")
    for uri in (f"{tmp_path.as_uri()}/ab", "s3://acme/ab", "s3://acmea/a", "s3://acme"):
        with pytest.raises(SpecError):
            ask(MINE, free, inputs=uri)


def test_no_second_mount_leads_there(folder: Path, tmp_path: Path) -> None:
    """A folder is known by what it is, not only by its name."""
    import subprocess

    other = tmp_path / "mounted"
    other.mkdir()
    subprocess.run(["mount", "--bind", str(folder), str(other)], check=True)
    try:
        refused(of_folder(folder, data_places=tmp_path.as_uri()), (other / "logs").as_uri())
    finally:
        subprocess.run(["umount", str(other)], check=True)


@pytest.mark.parametrize("name", ["loop/x", "x" * 300], ids=["endless", "too long"])
def test_a_folder_that_cannot_be_looked_at_may_be_anywhere(
    folder: Path, tmp_path: Path, name: str
) -> None:
    """It counts as one that must not be reached, and not as one that may be."""
    free = tmp_path / "free"
    free.mkdir()
    (free / "loop").symlink_to(free / "loop")
    unseen, places = (free / name).as_uri(), of_folder(folder, data_places=free.as_uri())
    ask(MINE, places, inputs=(free / "seen").as_uri())
    with pytest.raises(SpecError):
        ask(MINE, places, inputs=unseen)
    assert below_place(unseen, folder.as_uri(), loosely=True) == ()
    if name.startswith("loop"):
        assert below_place(unseen, free.as_uri()) is None


def test_what_contains_the_store_is_not_read(folder: Path, tmp_path: Path) -> None:
    places = of_folder(folder, data_places=tmp_path.as_uri())
    refused(places, tmp_path.as_uri(), "inputs")
    refused(places, folder.parent.as_uri(), "inputs")
    ask(MINE, places, outputs=tmp_path.as_uri())  # goes to a folder of the job's own


def of_bucket(data: str = "", **more: Any) -> DeploymentPlaces:
    return DeploymentPlaces.of(
        load_settings(object_store_uri="s3://acme/lowtide", data_places=data, **more)
    )


def test_a_bucket_that_also_holds_data() -> None:
    places = of_bucket("s3://acme")
    ask(MINE, places, inputs="s3://acme/corpus", outputs="s3://acme/results")
    ask(MINE, places, inputs="s3://acme/lowtide2/checkpoints")
    ask(MINE, places, inputs="s3://acme/lowtide/data/mine")
    # Keys are bytes: what looks alike is another key, and holds nothing of ours.
    ask(MINE, places, inputs="s3://acme/lowtid\N{CYRILLIC SMALL LETTER IE}/checkpoints")
    ask(MINE, places, inputs="s3://acme/LOWTIDE/checkpoints")
    for uri in ("s3://acme/lowtide", f"s3://acme/lowtide/checkpoints/{JOB}",
                "s3://acme/lowtide/data/other", "s3://acme//lowtide/checkpoints",
                "s3://acme/lowtide//checkpoints", "s3://acme/lowtide/data/mine//../x",
                "s3://acme/corpus/%2e%2e/lowtide/logs", "s3://acme/corpus%2F..%2Flowtide",
                "s3://acme/%6cowtide/checkpoints"):  # fmt: skip
        refused(places, uri)
    refused(places, "s3://acme", "inputs")
    # Where to lay it is said of that bucket, not of a shorter place elsewhere.
    several = of_bucket("s3://acme", checkpoint_buckets="gs://b")
    assert "are in s3://acme/lowtide/data/mine" in refused(several, "s3://acme", "inputs")


def test_a_place_of_checkpoints_that_is_for_data_too() -> None:
    places = of_bucket("s3://team", checkpoint_buckets="s3://team")
    ask(MINE, places, inputs="s3://team/data/mine")
    assert "s3://team/data/mine" in refused(places, f"s3://team/runs/{JOB}")
    refused(places, "s3://team/data/other")


def test_a_deeper_place_counts() -> None:
    places = of_bucket("s3://team/corpus", checkpoint_buckets="s3://team")
    ask(MINE, places, inputs="s3://team/corpus/v2")
    refused(places, "s3://team/corpus2")
    nested = of_bucket("s3://team", checkpoint_buckets="s3://team/corpus/kept")
    refused(nested, "s3://team/corpus/kept/x")
    refused(nested, "s3://team/corpus", "inputs")
    ask(MINE, nested, inputs="s3://team/corpus/v2")


def test_a_job_whose_places_no_policy_can_name_is_refused_with_the_figure() -> None:
    root = "s3://acme/lowtide/checkpoints"
    many = {f"/data/{n}": f"s3://acme/{'x' * 150}/{n}" for n in range(10)}
    with pytest.raises(SpecError, match="2,048") as error:
        check_grants(parse_spec({"run": "true", "inputs": many}), {"s3"}, root)
    assert error.value.problems[0].field == "inputs"
    check_grants(parse_spec({"run": "true", "inputs": many}), set(), root)
    check_grants(parse_spec({"run": "true", "inputs": many}), {"gs"}, root)
    with pytest.raises(SpecError, match="cannot name"):
        check_grants(parse_spec({"run": "true", "outputs": {"o": "s3://acme/a*"}}), {"s3"}, root)
    check_grants(parse_spec({"run": "true"}), {"s3", "gs"}, root)
    check_grants(parse_spec({"run": "true"}), {"s3", "gs"}, "file:///store")
