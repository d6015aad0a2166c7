"""A packed working folder: what goes in, what is refused, and equal folders make equal bytes."""

from __future__ import annotations

import io
import os
import socket
import tarfile
import time
from pathlib import Path

import pytest

from app.adapters.input_checks.workdir_check import check_archive
from app.cli.client.failures import CommandFailed
from app.cli.jobs import workdir_archive
from app.cli.jobs.workdir_archive import packed
from app.cli.jobs.workdir_files import find_members

MIB = 1 << 20


def make(folder: Path, **files: str) -> Path:
    """Files by name, with `__` for a slash and `_dot_` for a dot in front."""
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    folder.mkdir(exist_ok=True)
    return folder


def names(folder: Path) -> list[str]:
    return [member.name for member in find_members(folder)]


def packed_bytes(folder: Path) -> bytes:
    with packed(folder, MIB) as archive:
        return b"".join(archive.pieces())


def digest_of(folder: Path) -> str:
    with packed(folder, MIB) as archive:
        return archive.digest


def test_equal_folders_make_equal_bytes(tmp_path: Path):
    one = make(tmp_path / "one", a="1", b__c="2", b__d="3")
    two = make(tmp_path / "two", b__d="3", b__c="2", a="1")
    long_ago = time.time() - 1_000_000
    os.utime(two / "a", (long_ago, long_ago))
    (two / "b" / "c").chmod(0o600)
    assert packed_bytes(one) == packed_bytes(two)
    (two / "b" / "c").write_text("changed")
    assert digest_of(one) != digest_of(two)


def test_what_is_packed_comes_out_again(tmp_path: Path):
    folder = make(tmp_path / "w", train="print(1)", pkg__x="2", _dot_env="A=1")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o700)
    (folder / "empty").mkdir()
    (folder / "link").symlink_to("pkg/x")
    content = packed_bytes(folder)
    check_archive(io.BytesIO(content))  # the api's own judgement
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as tar:
        tar.extractall(tmp_path / "out", filter="data")
        assert {(m.uid, m.gid, m.mtime, m.uname) for m in tar.getmembers()} == {(0, 0, 0, "")}
    out = tmp_path / "out"
    assert (out / ".env").read_text() == "A=1"
    assert (out / "empty").is_dir()
    assert (out / "link").readlink() == Path("pkg/x")
    assert os.access(out / "run.sh", os.X_OK)
    assert not os.access(out / "pkg" / "x", os.X_OK)


def test_the_digest_is_that_of_the_bytes_sent(tmp_path: Path):
    import hashlib

    folder = make(tmp_path / "w", a="1")
    with packed(folder, MIB) as archive:
        content = b"".join(archive.pieces())
        assert archive.digest == f"sha256:{hashlib.sha256(content).hexdigest()}"
        assert archive.size_bytes == len(content)
        assert archive.files == 1


def test_ignored_files_stay_at_home(tmp_path: Path):
    folder = make(
        tmp_path / "w",
        _dot_gitignore="*.ckpt\n/data/\n!keep.ckpt\nbuild/*\n!build/keep\n",
        a="1",
        data__big="-",
        sub__data__small="1",
        build__x="-",
        build__keep="1",
        _dot_git__config="-",
        _dot_lowtide__admin="-",
    )
    (folder / "model.ckpt").write_text("-")
    (folder / "keep.ckpt").write_text("1")
    assert [name for name in names(folder) if (folder / name).is_file()] == [
        ".gitignore",
        "a",
        "build/keep",
        "keep.ckpt",
        "sub/data/small",
    ]


def test_a_nearer_gitignore_wins_and_the_repository_above_counts(tmp_path: Path):
    repository = make(
        tmp_path / "repository",
        _dot_git__config="",
        _dot_gitignore="*.log\nsecret\n",
        job__secret="-",
        job__sub__secret="1",
        job__sub___dot_gitignore="!secret\n",
    )
    (repository / "job" / "a.log").write_text("-")
    found = set(names(repository / "job"))
    assert "a.log" not in found
    assert "secret" not in found
    assert "sub/secret" in found


def test_a_gitignore_above_without_a_repository_says_nothing(tmp_path: Path):
    make(tmp_path, _dot_gitignore="*\n")
    folder = make(tmp_path / "w", a="1")
    assert names(folder) == ["a"]


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside", "sub/../../outside"])
def test_a_link_out_of_the_folder_is_refused_by_name(tmp_path: Path, target: str):
    make(tmp_path, outside="secret")
    folder = make(tmp_path / "w", sub__x="1")
    (folder / "innocent").symlink_to(target)
    with pytest.raises(CommandFailed) as refused:
        names(folder)
    assert "innocent" in str(refused.value.details)
    assert target in str(refused.value.details)
    assert refused.value.exit_code == 2


def test_a_chain_of_links_out_of_the_folder_is_refused(tmp_path: Path):
    folder = make(tmp_path / "w", x="1")
    (tmp_path / "outside").mkdir()
    (folder / "door").symlink_to(tmp_path / "outside")
    (folder / "via").symlink_to("door/file")
    with pytest.raises(CommandFailed) as refused:
        names(folder)
    assert "door" in str(refused.value.details)
    assert "via" in str(refused.value.details)


def test_an_ignored_link_out_of_the_folder_is_no_matter(tmp_path: Path):
    folder = make(tmp_path / "w", _dot_gitignore="data\n", x="1")
    (folder / "data").symlink_to("/mnt/data")
    assert names(folder) == [".gitignore", "x"]


def test_an_absolute_link_inside_becomes_relative(tmp_path: Path):
    folder = make(tmp_path / "w", sub__x="1")
    (folder / "deep").mkdir()
    (folder / "deep" / "link").symlink_to(folder / "sub" / "x")
    (link,) = [member for member in find_members(folder) if member.target]
    assert link.target == "../sub/x"


def test_links_in_a_circle_end(tmp_path: Path):
    folder = make(tmp_path / "w", sub__x="1")
    (folder / "sub" / "again").symlink_to("..")
    assert names(folder) == ["sub", "sub/again", "sub/x"]


def test_a_socket_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = make(tmp_path / "w", x="1")
    monkeypatch.chdir(folder)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("agent.sock")
        with pytest.raises(CommandFailed) as refused:
            names(folder)
    assert "agent.sock" in str(refused.value.details)


def test_a_folder_that_is_none_is_refused(tmp_path: Path):
    make(tmp_path, file="1")
    for path in (tmp_path / "absent", tmp_path / "file"):
        with pytest.raises(CommandFailed, match="is not a folder"):
            names(path)


def test_too_large_an_archive_names_the_largest_files(tmp_path: Path):
    folder = make(tmp_path / "w", small="1")
    (folder / "weights.bin").write_bytes(os.urandom(64 << 10))
    with pytest.raises(CommandFailed) as refused, packed(folder, 32 << 10):
        pass
    told, largest, *_ = refused.value.lines()
    assert "packed so far, and the limit is 32.0 KiB." in told
    assert "List what the job does not need in .gitignore, and bring data by `inputs`." in told
    assert largest == "   64.0 KiB  weights.bin"


def test_too_large_an_archive_is_known_while_a_file_goes_into_it(tmp_path: Path):
    """Of 4 MiB that no packing makes smaller, little more than the limit is ever packed."""
    folder = make(tmp_path / "w", small="1")
    (folder / "weights.bin").write_bytes(os.urandom(4 * MIB))
    with pytest.raises(CommandFailed) as refused, packed(folder, MIB):
        pass
    assert "is too large: 1.0 MiB packed so far, and the limit is 1.0 MiB" in refused.value.message


def test_too_much_content_is_refused_before_anything_is_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = make(tmp_path / "w", a="1" * 2_000)
    monkeypatch.setattr(workdir_archive, "CONTENT_BYTES_MAX", 1_000)
    told = "it holds 2.0 KiB, and the limit is 1000 B"
    with pytest.raises(CommandFailed, match=told), packed(folder, MIB):
        pass


def test_a_folder_whose_links_go_while_it_is_read_is_refused_in_a_sentence():
    """`/proc/self/fd` holds the descriptor of the scan itself, which is gone when it is read."""
    with pytest.raises(CommandFailed, match=r"workdir: /proc/\d+/fd/\d+ cannot be read: No such"):
        find_members(Path("/proc/self/fd"))


def test_a_file_that_shrinks_while_it_is_packed_is_told(tmp_path: Path):
    folder = make(tmp_path / "w", a="12345")
    (member,) = find_members(folder)
    (folder / "a").write_text("1")
    with (
        tarfile.open(fileobj=io.BytesIO(), mode="w") as tar,
        pytest.raises(CommandFailed, match="it changed while it was packed"),
    ):
        workdir_archive._add(tar, member, workdir_archive._Limit(io.BytesIO(), MIB))
