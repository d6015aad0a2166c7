"""The very script that rented machines boot by, run by real shells against a real api."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, select

from app.adapters.agent_package import agent_package
from app.adapters.providers.boot_script import render
from app.api.agents.package_routes import router as wheel_router
from app.orchestration.agents.record_boot_failure import REPORTS_PER_MACHINE
from app.orchestration.frame.runtime import Runtime
from app.storage.schema import tables
from tests.support.agent.agent_world import failing_agent
from tests.support.api.agent_api import (
    Gang,
    ServedApi,
    SpeakingAgent,
    make_gang,
    make_runtime,
    served,
    wait_until,
)
from tests.support.boot.booted_machine import (
    BootedMachine,
    booting,
    fake_command,
    machine_variables,
)
from tests.support.deployment.scripted_local_cloud import open_local_cloud
from tests.support.servers.table_rows import change_rows, row_of, rows_of


@pytest.fixture
def runtime(engine: Engine, tmp_path: Path) -> Runtime:
    return make_runtime(engine, tmp_path / "store")


@pytest.fixture
def api(engine: Engine, runtime: Runtime) -> Iterator[ServedApi]:
    with served(engine, runtime) as running:
        running.app.include_router(wheel_router)
        yield running


@pytest.fixture
def gang(engine: Engine, runtime: Runtime) -> Gang:
    return make_gang(engine, runtime)


def _provider_id(gang: Gang) -> str:
    return Gang.machine(gang.instance_ids[0])


def _instance(engine: Engine, gang: Gang) -> Any:
    return row_of(engine, tables.instances, id=gang.instance_ids[0])


def _boot_failures(engine: Engine, gang: Gang) -> list[str]:
    told = rows_of(engine, tables.events, job_id=gang.job_id, kind="boot_failed")
    return [event.message for event in told]


def _failed(machine: BootedMachine) -> str:
    """The one line in which the script says why it gave up."""
    assert machine.wait() == 1, machine.output()
    (line,) = [one for one in machine.output().splitlines() if "boot failed" in one]
    assert machine.powered_off
    return line


def _await_registration(engine: Engine, gang: Gang, machine: BootedMachine) -> None:
    wait_until(
        lambda: (
            _instance(engine, gang).registered_at is not None or machine.process.poll() is not None
        ),
        seconds=60,
    )
    assert _instance(engine, gang).registered_at is not None, machine.output()


@pytest.mark.parametrize(
    ("shell", "cloud"), [("dash", "ec2"), pytest.param("bash", "gce", marks=pytest.mark.full)]
)
def test_a_machine_boots_to_a_registered_agent(
    api: ServedApi, gang: Gang, tmp_path: Path, shell: str, cloud: str
):
    root = tmp_path / "machine"
    variables = machine_variables(root, api.url, gang.token)
    with booting(shell, root, variables, _provider_id(gang), cloud) as machine:
        _await_registration(api.engine, gang, machine)
        # It runs what the control plane gave it, on what the image brought.
        (agent,) = (root / "opt/lowtide/venv").glob("lib/*/site-packages/trainer/agent/main.py")
        assert agent.read_bytes()
        assert f"installed {agent_package().filename}" in machine.output()
        assert _instance(api.engine, gang).private_address == "127.0.0.1"
        assert (root / "opt/lowtide/boot.sh").stat().st_mode & 0o077 == 0
        machine.process.terminate()
        assert machine.wait() == 0, machine.output()
    assert _boot_failures(api.engine, gang) == []
    assert not machine.powered_off


def _units(root: Path) -> dict[str, dict[str, str]]:
    """The units that were written: by name, each its settings."""
    found = {}
    for path in (root / "etc/systemd/system").glob("*.service"):
        lines = [line.partition("=") for line in path.read_text().splitlines()]
        found[path.stem] = {name: value for name, found_, value in lines if found_}
    return found


@pytest.mark.full
def test_under_systemd_agent_and_timer_are_units(api: ServedApi, gang: Gang, tmp_path: Path):
    root = tmp_path / "machine"
    (root / "run/systemd/system").mkdir(parents=True)
    fake_command(root, "systemctl", f'echo "$*" >> {root}/calls')
    variables = machine_variables(root, api.url, gang.token)
    with booting("dash", root, variables, _provider_id(gang)) as machine:
        assert machine.wait() == 0, machine.output()
    calls = (root / "calls").read_text().splitlines()
    starts = [call.split()[-1] for call in calls if call.startswith("restart")]
    # The timer runs before anything that could hang.
    assert starts == ["lowtide-dead-man", "lowtide-agent"]
    units = _units(root)
    assert units["lowtide-dead-man"]["Restart"] == "always"
    agent = units["lowtide-agent"]
    assert agent["RestartPreventExitStatus"] == "77 78"
    assert agent["ExecStopPost"].endswith("boot.sh ended $EXIT_STATUS")
    deadline = int((root / "opt/lowtide/power-off-at").read_text())
    assert deadline > float(Path("/proc/uptime").read_text().split()[0]) + 1_700
    # Google runs the script at every start of the machine: nothing is done twice.
    with booting("dash", root, variables, _provider_id(gang)) as machine:
        assert machine.wait() == 0, machine.output()
    assert (root / "calls").read_text().splitlines() == calls
    # What systemd would start is an agent that registers.
    with booting("dash", root, variables, _provider_id(gang), stage="agent") as machine:
        _await_registration(api.engine, gang, machine)


def test_a_machine_of_the_local_cloud_boots_by_the_script(
    api: ServedApi, gang: Gang, tmp_path: Path
):
    """Launched by a provider, with the variables that it gives, to a registered agent."""
    root = tmp_path / "machine"
    script = tmp_path / "user-data"
    script.write_text(
        render(
            {
                "LOWTIDE_CONTROL_URL": api.url,
                "LOWTIDE_LAUNCH_TOKEN": gang.token,
                "LOWTIDE_BOOT_PREFIX": str(root),
                "LOWTIDE_PYTHON": sys.executable,
                "PIP_NO_INDEX": "1",
            },
            "ec2",
        )
    )
    with open_local_cloud(agent_command=("/bin/sh", str(script))) as cloud:
        machine_id = cloud.launch()
        own = tables.instances.c.id == gang.instance_ids[0]
        change_rows(api.engine, tables.instances, own, provider_instance_id=machine_id)
        wait_until(lambda: _instance(api.engine, gang).registered_at is not None, seconds=60)
        # Agent and packages are the machine's own: nothing comes from this checkout.
        (folder,) = (root / "opt/lowtide/venv").glob("lib/*/site-packages")
        assert (folder / "trainer/agent/main.py").is_file()
        cloud.provider.terminate((machine_id,))
        cloud.await_end(machine_id)


def test_an_agent_that_is_not_the_expected_one_is_not_installed(
    api: ServedApi, gang: Gang, tmp_path: Path
):
    root = tmp_path / "machine"
    variables = machine_variables(root, api.url, gang.token, LOWTIDE_WHEEL_SHA256="0" * 64)
    with booting("dash", root, variables, _provider_id(gang)) as machine:
        line = _failed(machine)
    assert f"has the SHA-256 {agent_package().sha256}, not {'0' * 64}" in line
    assert not (root / "opt/lowtide/venv").exists()
    (told,) = _boot_failures(api.engine, gang)
    assert "has the SHA-256" in told


def test_a_control_plane_that_cannot_be_reached(engine: Engine, gang: Gang, tmp_path: Path):
    root = tmp_path / "machine"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    variables = machine_variables(root, url, gang.token, LOWTIDE_BOOT_WAIT_SECONDS="3")
    with booting("dash", root, variables, _provider_id(gang)) as machine:
        line = _failed(machine)
    assert f"the control plane cannot be reached at {url}/agent/v1/wheel within 3 s" in line
    assert "the control plane could not be told" in machine.output()
    assert "Traceback" not in machine.output()


@pytest.mark.full
def test_a_token_used_twice(api: ServedApi, gang: Gang, tmp_path: Path):
    assert SpeakingAgent(api, gang).register().status_code == 200
    root = tmp_path / "machine"
    variables = machine_variables(root, api.url, gang.token)
    with booting("bash", root, variables, _provider_id(gang)) as machine:
        line = _failed(machine)
    assert "registration refused with 409" in line
    (told,) = _boot_failures(api.engine, gang)
    assert "registration refused with 409" in told


def test_failures_are_counted_to_a_bound_and_a_refusal_is_none(tmp_path: Path):
    root = tmp_path / "machine"
    (root / "var/log").mkdir(parents=True)
    script, started = root / "user-data", root / "run/lowtide/agent-started"
    script.write_text(render(machine_variables(root, "http://127.0.0.1:1", "token"), "ec2"))
    started.parent.mkdir(parents=True)
    started.write_text(Path("/proc/uptime").read_text().split(".")[0])

    def ended(status: str) -> tuple[int, bool]:
        (root / "is-off").unlink(missing_ok=True)
        done = subprocess.run(["dash", script, "ended", status], timeout=60, capture_output=True)
        return done.returncode, (root / "is-off").exists()

    assert [ended(status) for status in ("77", "78")] == [(1, True)] * 2
    # Python's own codes, a signal, and the agent's own: each may do better when tried again.
    failures = ["1", "2", "70", "120", "KILL", "70"]
    assert [ended(status) for status in failures] == [(0, False)] * 6
    assert ended("70") == (1, True)
    started.write_text("-1000")
    assert ended("70") == (0, False), "one that ran well for long begins to count anew"
    assert started.with_name("agent-failures").read_text() == "1\n"


@pytest.mark.full
def test_an_agent_that_fails_again_and_again_gives_the_machine_back(
    api: ServedApi, gang: Gang, tmp_path: Path
):
    root = tmp_path / "machine"
    more = {"PYTHONPATH": failing_agent(tmp_path), "LOWTIDE_BOOT_PAUSE_SECONDS": "0"}
    variables = machine_variables(root, api.url, gang.token, **more)
    with booting("dash", root, variables, _provider_id(gang)) as machine:
        assert machine.wait() == 0, machine.output()
    said = [line for line in machine.output().splitlines() if "the agent failed" in line]
    expected = [f"lowtide: the agent failed with 70, {count} in a row" for count in range(1, 7)]
    assert said == expected, machine.output()
    assert machine.powered_off
    assert _boot_failures(api.engine, gang) == [], "a failure of the agent is none of the boot"
    assert _instance(api.engine, gang).state == "terminating"


@pytest.mark.parametrize(
    ("listed", "found"), [("echo 'GPU 0: NVIDIA A10G (UUID: GPU-1)'", 1), ("exit 9", 0)]
)
def test_an_image_without_its_gpus(
    api: ServedApi, gang: Gang, tmp_path: Path, listed: str, found: int
):
    root = tmp_path / "machine"
    # Two GPUs on the bus, an NVSwitch, and a network card.
    gpu, switch, card = ("0x10de", "0x030200"), ("0x10de", "0x068000"), ("0x1d0f", "0x020000")
    for slot, (vendor, kind) in enumerate((gpu, gpu, switch, card)):
        device = root / f"sys/bus/pci/devices/0000:00:{slot:02x}.0"
        device.mkdir(parents=True)
        (device / "vendor").write_text(f"{vendor}\n")
        (device / "class").write_text(f"{kind}\n")
    fake_command(root, "nvidia-smi", listed)
    variables = machine_variables(root, api.url, gang.token, LOWTIDE_BOOT_GPU_TRIES="1")
    with booting("dash", root, variables, _provider_id(gang)) as machine:
        line = _failed(machine)
    assert f"only {found} of 2 GPUs answer nvidia-smi" in line
    (told,) = _boot_failures(api.engine, gang)
    assert "use an image with the NVIDIA driver" in told


_DISKS = {
    "ec2": (
        "nvme-Amazon_EC2_NVMe_Instance_Storage_AWS1A",
        "nvme-Amazon_EC2_NVMe_Instance_Storage_AWS1A-ns-1",
        "nvme-Amazon_EC2_NVMe_Instance_Storage_AWS2B",
        "nvme-Amazon_Elastic_Block_Store_vol1",
    ),
    "gce": (
        "google-local-nvme-ssd-0",
        "google-local-nvme-ssd-1",
        "google-local-nvme-ssd-1-part1",
        "google-persistent-disk-0",
    ),
}


@pytest.mark.parametrize("cloud", ["ec2", "gce"])
@pytest.mark.parametrize("count", [1, 2])
def test_local_disks_become_the_scratch_folder(
    api: ServedApi, gang: Gang, tmp_path: Path, cloud: str, count: int
):
    root = tmp_path / "machine"
    folder = root / "dev/disk/by-id"
    folder.mkdir(parents=True)
    names = _DISKS[cloud] if count == 2 else _DISKS[cloud][:1]
    for name in names:
        (folder / name).touch()
    for name in ("mdadm", "mkfs.ext4", "mount"):
        fake_command(root, name, f'echo "{name} $*" >> {root}/calls')
    fake_command(root, "blkid", "exit 2")
    # Ends the boot where the disks are ready.
    variables = machine_variables(root, api.url, gang.token, LOWTIDE_PYTHON="/absent/python3")
    with booting("dash", root, variables, _provider_id(gang), cloud) as machine:
        assert "no Python 3.11" in _failed(machine)
    calls = (root / "calls").read_text().replace(f"{root}/", "").splitlines()
    disks = [f"dev/disk/by-id/{name}" for name in (names[0], *names[2 if cloud == "ec2" else 1 :])]
    if count == 1:
        device = disks[0]
    else:
        device = "dev/md0"
        made = calls.pop(0)
        assert made.endswith(f"--level=0 --raid-devices=2 {disks[0]} {disks[1]}"), made
    assert calls[0].startswith("mkfs.ext4") and calls[0].endswith(device)  # noqa: PT018
    assert calls[1] == f"mount -o noatime {device} scratch"
    assert len(calls) == 2
    assert (root / "scratch/lowtide/agent").stat().st_mode & 0o077 == 0
    (told,) = _boot_failures(api.engine, gang)
    assert "no Python 3.11" in told


@pytest.mark.full
def test_a_machine_for_containers_has_docker(api: ServedApi, gang: Gang, tmp_path: Path):
    root = tmp_path / "machine"
    fake_command(root, "docker", f'echo "$*" >> {root}/docker-calls')
    variables = machine_variables(root, api.url, gang.token, LOWTIDE_CONTAINERS="1")
    with booting("dash", root, variables, _provider_id(gang)) as machine:
        _await_registration(api.engine, gang, machine)
    # The agent is the machine's own: it pulls the job's image when it is told of it.
    assert (root / "docker-calls").read_text().splitlines() == ["info"]
    assert (root / "opt/lowtide/venv").is_dir()


@pytest.mark.parametrize(
    ("docker", "gpus", "told"),
    [
        ("exit 127", "0", "docker does not answer"),
        ("echo Runtimes: runc", "1", "docker cannot hand GPUs to containers"),
    ],
)
def test_a_machine_that_cannot_run_containers(
    api: ServedApi, gang: Gang, tmp_path: Path, docker: str, gpus: str, told: str
):
    root = tmp_path / "machine"
    fake_command(root, "docker", docker)
    fake_command(root, "nvidia-smi", "echo 'GPU 0: NVIDIA A10G (UUID: GPU-1)'")
    variables = machine_variables(
        root,
        api.url,
        gang.token,
        LOWTIDE_CONTAINERS="1",
        LOWTIDE_GPU_COUNT=gpus,
        LOWTIDE_BOOT_GPU_TRIES="1",
    )
    with booting("dash", root, variables, _provider_id(gang)) as machine:
        line = _failed(machine)
    assert told in line
    (failure,) = _boot_failures(api.engine, gang)
    assert told in failure


def test_shared_memory_is_as_large_as_asked_for(api: ServedApi, gang: Gang, tmp_path: Path):
    root = tmp_path / "machine"
    fake_command(root, "mount", f'echo "mount $*" >> {root}/calls; exit 1')
    variables = machine_variables(root, api.url, gang.token, LOWTIDE_SHM_MB="16000")
    with booting("bash", root, variables, _provider_id(gang), "gce") as machine:
        assert "/dev/shm cannot be made 16000 MB large" in _failed(machine)
    assert (root / "calls").read_text().strip() == f"mount -o remount,size=16000m {root}/dev/shm"


@pytest.mark.parametrize("shell", ["dash", "bash"])
@pytest.mark.parametrize(("deadline", "off"), [("0", True), ("99999999999.5", False)])
def test_the_dead_man_timer_obeys_the_agents_file(
    tmp_path: Path, shell: str, deadline: str, off: bool
):
    home = tmp_path / "opt/lowtide"
    home.mkdir(parents=True)
    (tmp_path / "var/log").mkdir(parents=True)
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent/power-off-at").write_text(f"{deadline}\n")
    variables = machine_variables(
        tmp_path, "http://127.0.0.1:1", "token", LOWTIDE_MACHINE_DIR=str(tmp_path)
    )
    script = home / "boot.sh"
    script.write_text(render({**variables, "LOWTIDE_BOOT_LOOK_SECONDS": "1"}, "ec2"))
    timer = subprocess.Popen([shell, str(script), "dead-man"], stdout=subprocess.DEVNULL)
    try:
        if off:
            assert timer.wait(60) == 0
        else:
            with pytest.raises(subprocess.TimeoutExpired):
                timer.wait(2)
    finally:
        timer.kill()
        timer.wait(5)
    assert (tmp_path / "is-off").exists() is off


def test_only_a_known_token_may_tell_of_a_failure(api: ServedApi, gang: Gang):
    url = f"{api.url}/agent/v1/boot-failures"
    told = {"launch_token": "unknown", "message": "x"}
    assert api.client.post(url, json=told).status_code == 401
    assert api.client.post(url, json={"message": "x"}).status_code == 422
    assert api.client.post(url, content=b"x" * 20_000).status_code == 413
    assert api.client.post(url, content=b"{").status_code == 422
    known = {"launch_token": gang.token, "message": "a\x00b\n" + "c" * 2_000, "machine": "m"}
    assert api.client.post(url, json=known).status_code == 204
    assert api.client.post(url, json={**known, "warning": True}).status_code == 204
    (message,) = _boot_failures(api.engine, gang)
    assert message.startswith("A machine of local could not start its agent: a b c")
    assert len(message) < 1_100


def test_a_token_whose_time_is_over_tells_of_nothing(api: ServedApi, gang: Gang):
    """Nor is a machine's name longer in the history than the bound."""
    url = f"{api.url}/agent/v1/boot-failures"
    told = {"launch_token": gang.token, "message": "x", "machine": "m" * 150}
    assert api.client.post(url, json=told).status_code == 204
    launches, events = tables.launches, tables.events
    past = datetime.now(UTC) - timedelta(seconds=1)
    change_rows(api.engine, launches, launches.c.job_id == gang.job_id, token_expires_at=past)
    assert api.client.post(url, json=told).status_code == 401
    assert len(_boot_failures(api.engine, gang)) == 1
    [failure] = rows_of(api.engine, events, kind="boot_failed")
    assert failure.actor == f"agent:{'m' * 100}"


def test_a_launch_may_tell_of_its_boots_a_few_times_only(api: ServedApi):
    gang = api.gang(nodes=2)
    url = f"{api.url}/agent/v1/boot-failures"
    told = {"launch_token": gang.token, "message": "again", "machine": "m"}
    most = REPORTS_PER_MACHINE * len(gang.instance_ids)
    with ThreadPoolExecutor(8) as posting:
        warned = ({**told, "warning": number % 2 == 0} for number in range(most + 20))
        answers = list(posting.map(lambda body: api.client.post(url, json=body), warned))
    assert Counter(answer.status_code for answer in answers) == {204: most, 429: 20}
    with api.engine.connect() as connection:
        kinds = tables.events.c.kind.in_(("boot_failed", "boot_warned"))
        lines = connection.scalars(
            select(tables.events.c.seq).where(tables.events.c.job_id == gang.job_id, kinds)
        )
        assert len(lines.all()) == most


def test_the_wheel_is_served_with_its_digest(api: ServedApi):
    answer = api.client.get(f"{api.url}/agent/v1/wheel")
    made = agent_package()
    assert answer.content == made.content
    assert answer.headers["Lowtide-Sha256"] == made.sha256
    assert answer.headers["Lowtide-Filename"] == made.filename
