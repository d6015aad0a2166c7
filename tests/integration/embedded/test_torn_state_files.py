"""Files of the state folder that were cut short: read as what they were, or refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from app.adapters.embedded.embedded_errors import EmbeddedServerError
from app.adapters.embedded.processes.run_record import (
    describe_running,
    record_supervisor,
    stop_left_overs,
    write_record,
)
from app.adapters.embedded.processes.server_account import recorded_home, server_home
from app.adapters.embedded.processes.state_folder import kept_port, kept_secret
from app.adapters.providers.local.files.cloud_settings import (
    LocalSettings,
    TermsUnreadable,
    read_terms,
    settle_terms,
)


def cuts(path: Path) -> list[bytes]:
    """Every beginning of the file that is not all of it, the longest first."""
    whole = path.read_bytes()
    return [whole[:length] for length in reversed(range(len(whole)))]


def test_a_record_of_a_run_cut_at_any_byte_names_nobody(tmp_path: Path):
    write_record(tmp_path, [record_supervisor()])
    path = tmp_path / "run.json"
    assert [one.name for one in describe_running(tmp_path)] == ["lowtide"]
    for cut in cuts(path)[1:]:  # without its last line end it is whole
        path.write_bytes(cut)
        assert describe_running(tmp_path) == []
        assert stop_left_overs(tmp_path) == []


@pytest.mark.parametrize("read", [kept_secret, lambda path: str(server_home(path.parent, None))])
def test_a_line_cut_at_any_byte_is_no_other_line(tmp_path: Path, read: Callable[[Path], str]):
    path = tmp_path / "server_home"
    known = read(path)
    *short, empty = cuts(path)
    for cut in short:
        path.write_bytes(cut)
        with pytest.raises(EmbeddedServerError, match="was cut short"):
            read(path)
        assert path.read_bytes() == cut
        assert recorded_home(tmp_path) is None
    path.write_bytes(empty)
    assert len(read(path)) == len(known)


def test_a_port_cut_at_any_byte_is_another_free_port(tmp_path: Path):
    path = tmp_path / "postgres_port"
    kept_port(path)
    for cut in cuts(path):
        path.write_bytes(cut)
        assert 0 < kept_port(path) < 65_536


def test_terms_of_the_local_cloud_cut_at_any_byte_are_refused(tmp_path: Path):
    terms = settle_terms(tmp_path, LocalSettings(), 1_000_000)
    path = tmp_path / "terms.json"
    for cut in cuts(path)[1:]:
        path.write_bytes(cut)
        with pytest.raises(TermsUnreadable, match=r"terms\.json is damaged"):
            read_terms(tmp_path)
    path.unlink()
    assert settle_terms(tmp_path, LocalSettings(), 1_000_000) == terms
