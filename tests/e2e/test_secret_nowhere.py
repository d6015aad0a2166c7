"""A job prints its secrets, on a whole deployment: they are nowhere but in its own hands.

Rows of the database, its files, Valkey, logs, the object store, machines' disks, command lines and
environments of every process. The values are made here, so that nothing else can hold them.
"""

from __future__ import annotations

import base64
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.support.deployment.control_plane import ControlPlane, Document
from tests.support.deployment.followed_job import processes, submit
from trainer.protocol.run_config import IN_MEMORY, secret_folder_name

COMMAND = """
echo "canary $CANARY, whole $WANDB_API_KEY"
printf '%s' "${WANDB_API_KEY%????????????????????}"; sleep 0.7
printf '%s\\n' "${WANDB_API_KEY#????????????????????}"
cat "$GCP_KEY" && touch printed
while [ ! -e go ]; do sleep 0.1; done
echo "ValueError: the key $WANDB_API_KEY is refused"; exit 3
"""
SETUP = 'echo "setup has $WANDB_API_KEY"; cat "$GCP_KEY"'


@pytest.mark.full
def test_a_secret_that_its_job_prints_is_in_no_row_file_log_or_process(plane: ControlPlane):
    value, line, canary = (secrets.token_hex(20) for _ in range(3))
    put(plane, "WANDB_API_KEY", value)
    put(plane, "GCP_KEY", f'{{"private_key":\n "{line}"}}\n')
    job = submit(
        plane,
        run=COMMAND,
        setup=SETUP,
        secrets=["WANDB_API_KEY", {"name": "GCP_KEY", "file": "gcp.json"}],
        env={"CANARY": canary},
        resources={"gpu": "V100"},
        infra=["local"],
        retry_on_exit_codes=[9],
    )
    job.until_state("running")
    [machine] = job.machines()
    workdir = job.folder(machine) / "workdir"
    plane.end_marks.append(workdir / "go")
    plane.wait((workdir / "printed").exists, "the command has printed")
    plane.wait(lambda: f"canary {canary}, whole ***\n" in job.logs(), "the log")

    own, hidden = own_processes(machine), (value, line)
    assert any(value.encode() in environment(pid) for pid in own), "the job has it"
    assert in_processes(hidden, besides=own) == []
    assert in_rows(plane, hidden) == []
    assert in_files(plane.state_dir, hidden) == []

    (workdir / "go").touch()
    plane.end_marks.remove(workdir / "go")  # it goes with the machine's disk
    ended = job.finish(state="failed")
    job.released()
    assert "ValueError: the key *** is refused" in str(ended)
    for text in (job.logs(), job.story(), str(ended), plane.get("/audit", limit=200)):
        assert not [one for one in hidden if one in str(text)]
    assert job.logs().count("***") >= 6
    told = plane.get("/audit", action="secret.deliver", limit=200)["items"]
    assert {"WANDB_API_KEY", "GCP_KEY"} <= {one["subject_name"] for one in told}
    assert in_processes(hidden) == []
    assert in_rows(plane, hidden) == []
    assert in_files(plane.state_dir, hidden) == []
    assert in_valkey(plane, hidden) == []
    name = secret_folder_name(str(machine["provider_instance_id"]))
    assert not Path(IN_MEMORY, name).exists()

    # What is looked through is what could hold them: a value that is no secret is there.
    assert in_rows(plane, (canary,))
    assert in_files(plane.state_dir, (canary,))


def put(plane: ControlPlane, name: str, value: str) -> None:
    answer = plane.api.put(f"/secrets/{name}", json={"value": value})
    assert answer.is_success, answer.text


def forms(values: tuple[str, ...]) -> list[bytes]:
    """As they are, and as text columns show bytes or programs encode them."""
    whole = [value.encode() for value in values]
    return [*whole, *(one.hex().encode() for one in whole), *map(base64.b64encode, whole)]


def own_processes(machine: Document) -> list[int]:
    """Of the job's command alone: the agent of the machine is not one of them."""
    found = processes(machine)
    return [pid for pid, command in found.items() if "trainer.agent" not in command]


def environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # it has ended
        return b""


def in_processes(values: tuple[str, ...], besides: list[int] | None = None) -> list[str]:
    """Processes with a value in the command line, or, but for these and theirs, the environment."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            command = Path(f"/proc/{name}/cmdline").read_bytes()
            parent = int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        is_own = besides is not None and (int(name) in besides or parent in besides)
        looked_at = command if is_own else command + environment(int(name))
        if any(one in looked_at for one in forms(values)):
            found.append(f"{name}: {command!r}")
    return found


def in_rows(plane: ControlPlane, values: tuple[str, ...]) -> list[str]:
    """Tables that hold a value."""
    named = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
    tables = [row["table_name"] for row in plane.sql(named)]
    assert {"secrets", "jobs", "audit_entries"} <= set(tables)
    found = []
    for table in tables:
        rows = plane.sql(f'SELECT t::text AS whole FROM "{table}" t')
        whole = "\n".join(row["whole"] for row in rows)
        if any(one.decode() in whole for one in forms(values)):
            found.append(table)
    return found


def in_files(root: Path, values: tuple[str, ...]) -> list[Path]:
    """Files with a value: of the databases, logs, store, and machines' disks and consoles."""

    def files() -> Iterator[Path]:
        for folder, _, names in os.walk(root):
            yield from (Path(folder, name) for name in names)

    found = []
    for path in files():
        try:
            content = path.read_bytes() if path.is_file() else b""
        except OSError:  # the databases remove files of theirs at any time
            continue
        if any(one in content for one in forms(values)):
            found.append(path)
    return found


def in_valkey(plane: ControlPlane, values: tuple[str, ...]) -> list[bytes]:
    with redis.Redis.from_url(plane.valkey_url()) as client:
        kept = {key: client.dump(key) or b"" for key in client.scan_iter()}
    return [key for key, content in kept.items() if any(one in content for one in forms(values))]
