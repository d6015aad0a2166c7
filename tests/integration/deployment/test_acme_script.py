"""The script of the container `acme`, run for real with a stand-in for lego."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.deployment.scripted_local_cloud import eventually
from tests.support.servers.finished_commands import run_command
from tests.support.sources.source_tree import ROOT

# lego 4: options before the command; the certificate and its key are named after the domain.
_LEGO = """#!/bin/sh
echo "$*" >>"$FOLDER/calls"
while [ $# -gt 0 ]; do
    case $1 in
        --accept-tos | --http) shift ;;
        --path) path=$2; shift 2 ;;
        --email | --server | --http.port) shift 2 ;;
        --domains) domain=$2; shift 2 ;;
        run | renew) command=$1; break ;;
        *) echo "flag provided but not defined: $1" >&2; exit 1 ;;
    esac
done
[ -e "$FOLDER/refuse" ] && exit 1
mkdir -p "$path/certificates"
if [ "$command" = run ] || [ -e "$FOLDER/due" ]; then
    number=$(wc -l <"$FOLDER/calls")
    echo "certificate $number" >"$path/certificates/$domain.crt"
    echo "key $number" >"$path/certificates/$domain.key"
    rm -f "$FOLDER/due"
fi
"""


# A copy of the file that $FOLDER/full names stops half way, as on a full disk.
_CP = """#!/bin/sh
case $1 in
    *."$(cat "$FOLDER/full" 2>/dev/null)")
        head -c 5 "$1" >"$2"
        echo tried >>"$FOLDER/copies"
        echo "cp: error writing '$2': No space left on device" >&2
        exit 1
        ;;
esac
exec /bin/cp "$@"
"""


class Acme:
    """The script at work on a folder; pauses are short."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.certs = folder, folder / "certs"
        self.certs.mkdir()
        (self.certs / "fullchain.pem").write_text("self-signed\n", "utf-8")
        lego = folder / "lego"
        lego.write_text(_LEGO, "utf-8")
        lego.chmod(0o755)
        copy = folder / "bin/cp"
        copy.parent.mkdir()
        copy.write_text(_CP, "utf-8")
        copy.chmod(0o755)
        for name in ("calls", "copies"):
            (folder / name).write_text("", "utf-8")

    def environment(self, **more: str) -> dict[str, str]:
        return {
            **os.environ,
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "FOLDER": str(self.folder),
            "ACME_LEGO": str(self.folder / "lego"),
            "ACME_CERTS": str(self.certs),
            "ACME_DOMAIN": "lowtide.example.com",
            "ACME_EMAIL": "ops@example.com",
            "ACME_PAUSE_SECONDS": "0.1",
            "ACME_RETRY_SECONDS": "0.1",
            **more,
        }

    def while_running(self, *conditions: Callable[[], bool]) -> int:
        """Start it, wait for one condition after the other, end it as docker does."""
        script = ["sh", str(ROOT / "deploy/proxy/acme.sh")]
        with (self.folder / "said").open("w", encoding="utf-8") as said:
            process = subprocess.Popen(script, env=self.environment(), stdout=said, stderr=said)
        try:
            for one in conditions:
                eventually(one, "the script's next step")
        finally:
            process.send_signal(signal.SIGTERM)
            ended = process.wait(timeout=60)
        return ended

    @property
    def said(self) -> str:
        return (self.folder / "said").read_text("utf-8")

    @property
    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text("utf-8").splitlines()

    def content(self) -> tuple[str, str]:
        names = ("fullchain.pem", "privkey.pem")
        found = [self.certs / name for name in names]
        return tuple(one.read_text("utf-8") if one.exists() else "" for one in found)  # type: ignore[return-value]


def test_a_certificate_is_got_once_renewed_when_due_and_published(tmp_path: Path) -> None:
    acme = Acme(tmp_path)

    def renewed() -> bool:
        if len(acme.calls) == 3:
            (tmp_path / "due").touch()
        return len(acme.calls) > 5 and acme.content()[0] != "certificate 1\n"

    assert (
        acme.while_running(lambda: acme.content() == ("certificate 1\n", "key 1\n"), renewed) == 0
    )
    certificate, key = acme.content()
    assert certificate.split()[1] == key.split()[1]
    assert acme.calls[0].endswith("--http --http.port :8080 run")
    assert all(one.endswith("renew --days 30") for one in acme.calls[1:])
    assert "--domains lowtide.example.com" in acme.calls[0]
    assert (acme.certs / "privkey.pem").stat().st_mode & 0o077 == 0


def test_a_refusal_leaves_what_is_there_and_is_tried_again(tmp_path: Path) -> None:
    acme = Acme(tmp_path)
    (tmp_path / "refuse").touch()

    def allowed() -> bool:
        (tmp_path / "refuse").unlink(missing_ok=True)
        return acme.content()[0].startswith("certificate")

    tried = acme.while_running(
        lambda: len(acme.calls) > 1 and acme.content()[0] == "self-signed\n", allowed
    )
    assert tried == 0


@pytest.mark.parametrize("failing", ["key", "crt"])
def test_a_copy_that_fails_leaves_the_old_pair_and_is_tried_again(
    tmp_path: Path, failing: str
) -> None:
    acme = Acme(tmp_path)
    (acme.certs / "privkey.pem").write_text("self-signed key\n", "utf-8")
    (tmp_path / "full").write_text(failing, "utf-8")

    def tried_twice() -> bool:
        assert acme.content() == ("self-signed\n", "self-signed key\n")
        assert "has a new certificate" not in acme.said
        return (tmp_path / "copies").read_text("utf-8").count("tried") > 1

    def room() -> bool:
        (tmp_path / "full").unlink(missing_ok=True)
        return acme.content() == ("certificate 1\n", "key 1\n")

    assert acme.while_running(tried_twice, room) == 0
    assert f"cannot be copied to {acme.certs}; the proxy keeps what it has" in acme.said
    assert not list(acme.certs.glob(".*.new"))


def test_without_a_name_or_an_address_it_says_what_is_missing(tmp_path: Path) -> None:
    acme = Acme(tmp_path)
    for name in ("ACME_DOMAIN", "ACME_EMAIL"):
        done = run_command(
            ["sh", str(ROOT / "deploy/proxy/acme.sh")],
            timeout=60,
            env=acme.environment(**{name: ""}),
        )
        assert done.returncode != 0
        assert f"set {name} in .env" in done.stderr
    assert acme.calls == []
