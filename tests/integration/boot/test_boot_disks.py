"""What the boot makes of a machine's local disks: never a reason to give up.

Disks are loop devices, mounts and file systems are real. The kernel of the tests has neither
device-mapper nor md, so LVM's and mdadm's answers are recorded ones. Each boot ends where it asks
for the agent.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from tests.support.boot.dressed_machine import DressedMachine, dressed_machine
from tests.support.boot.image_notes import NOTES, dlami_systemctl, dress

DLAMI = NOTES["base-oss-nvidia-driver-gpu-ubuntu-24.04"]
DLVM = NOTES["common-cu129-ubuntu-2404-nvidia-580"]
FIRST, SECOND = (f"nvme-Amazon_EC2_NVMe_Instance_Storage_AWS{one}" for one in ("1A", "2B"))
GCE_FIRST, GCE_SECOND = "google-local-nvme-ssd-0", "google-local-nvme-ssd-1"
AGENT = "lowtide/agent"
# `lsblk -nrpo NAME,TYPE` on a g5.xlarge of the DLAMI, its volume not mounted.
LVM_ON_ONE_DISK = "{disk} disk\n/dev/mapper/vg.01-lv_ephemeral lvm\n"


@pytest.fixture
def machine(engine: Engine, tmp_path: Path) -> Iterator[DressedMachine]:
    with dressed_machine(engine, tmp_path) as made:
        yield made


def _fell_back(machine: DressedMachine, said: str) -> None:
    """Files lie on the root disk, and the job's history says so."""
    assert (machine.root.written / "var/lib/lowtide/agent").is_dir()
    (told,) = machine.history("boot_warned")
    assert said in told
    assert told.startswith("A machine of local starts, but ")
    assert "files lie on the root disk" in told


def _fstab(machine: DressedMachine) -> list[str]:
    path = machine.root.written / "etc/fstab"
    return [line for line in path.read_text().splitlines() if "/scratch" in line]


@pytest.mark.parametrize("seconds", ["0", "1"])
def test_the_volume_that_the_image_makes_is_used(machine: DressedMachine, seconds: str):
    """As on a DLAMI: the service may still be at it when the boot script comes."""
    dress(machine.root, DLAMI)
    loop = machine.root.disk(FIRST)
    machine.root.format(loop)
    make = f"sleep {seconds}; mkdir -p /opt/dlami/nvme; mount {loop} /opt/dlami/nvme"
    dlami_systemctl(machine.root, make)
    assert "1 local disk(s) at /scratch" in machine.reaches_the_agent()
    assert f"lowtide/{AGENT}" in machine.root.on_disk(loop)
    assert _fstab(machine) == [
        "/opt/dlami/nvme/lowtide /scratch none bind,nofail,"
        "x-systemd.requires=dlami-nvme.service 0 0"
    ]
    assert machine.history("boot_warned") == []


def test_the_volume_of_several_disks_is_used(machine: DressedMachine):
    """LVM over two disks, by recorded answers; its file system stands in for the volume."""
    dress(machine.root, DLAMI)
    loop = machine.root.disk(FIRST)
    machine.root.disk(SECOND)
    machine.root.format(loop)
    machine.root.mounted(loop, "/opt/dlami/nvme")
    machine.root.command("lsblk", "printf '\\n/opt/dlami/nvme\\n\\n/opt/dlami/nvme\\n'")
    assert "2 local disk(s) at /scratch" in machine.reaches_the_agent()
    assert f"lowtide/{AGENT}" in machine.root.on_disk(loop)


@pytest.mark.parametrize(
    "start", ["exit 0", pytest.param("exit 1", marks=pytest.mark.full), "sleep 60"]
)
def test_blank_disks_are_used_where_the_image_s_service_made_nothing(
    machine: DressedMachine, start: str
):
    """The service ends with 0 also where it failed, and may hang."""
    dress(machine.root, DLAMI)
    loop = machine.root.disk(FIRST)
    dlami_systemctl(machine.root, start)
    machine.reaches_the_agent(LOWTIDE_BOOT_DISK_SECONDS="1")
    stopped = "systemctl stop dlami-nvme.service" in machine.root.calls
    assert stopped is (start != "exit 0"), "it must not go on beside what is made now"
    assert AGENT in machine.root.on_disk(loop)
    assert machine.history("boot_warned") == []


def test_a_volume_that_the_service_left_unmounted_is_mounted(machine: DressedMachine):
    dress(machine.root, DLAMI)
    loop, volume = machine.root.disk(FIRST), machine.root.disk("volume")
    machine.root.format(volume)
    dlami_systemctl(machine.root, "exit 0")
    machine.root.command("vgchange", 'echo "vgchange $*" >> /calls')
    machine.root.command(
        "blkid", f"case $* in *{FIRST}) echo LVM2_member ;; *) exec /usr/sbin/blkid $* ;; esac"
    )
    answer = LVM_ON_ONE_DISK.format(disk=loop)
    machine.root.command(
        "lsblk",
        f"case $* in *NAME,TYPE*) printf '{answer}' ;; esac; "
        f"mkdir -p /dev/mapper; ln -sf {volume} /dev/mapper/vg.01-lv_ephemeral",
    )
    machine.reaches_the_agent()
    assert "vgchange -aay" in machine.root.calls
    assert AGENT in machine.root.on_disk(volume)
    assert _fstab(machine) == [f"UUID={machine.root.uuid(volume)} /scratch auto noatime,nofail 0 0"]


def test_disks_of_an_lvm_group_without_a_volume_are_left_alone(machine: DressedMachine):
    dress(machine.root, DLAMI)
    machine.root.disk(FIRST)
    machine.root.command("blkid", "echo LVM2_member")
    machine.reaches_the_agent()
    _fell_back(machine, "belong to an LVM group without a volume")


@pytest.mark.parametrize(
    ("cloud", "link"),
    [("ec2", FIRST), pytest.param("gce", GCE_FIRST, marks=pytest.mark.full)],
)
def test_a_blank_disk_is_formatted_and_one_with_files_is_kept(
    machine: DressedMachine, cloud: str, link: str
):
    dress(machine.root, DLVM)
    loop = machine.root.disk(link)
    machine.reaches_the_agent(cloud)
    assert AGENT in machine.root.on_disk(loop)
    assert _fstab(machine) == [f"UUID={machine.root.uuid(loop)} /scratch auto noatime,nofail 0 0"]
    machine.root.format(loop, "kept")
    machine.reaches_the_agent(cloud)
    assert {"kept", AGENT} <= machine.root.on_disk(loop)
    assert len(_fstab(machine)) == 1


def test_a_disk_that_gce_s_image_mounted_itself_is_used(machine: DressedMachine):
    dress(machine.root, DLVM)
    loop = machine.root.disk(GCE_FIRST)
    machine.root.format(loop)
    machine.root.mounted(loop, "/mnt/localssd")
    machine.reaches_the_agent("gce")
    assert f"lowtide/{AGENT}" in machine.root.on_disk(loop)
    assert _fstab(machine) == ["/mnt/localssd/lowtide /scratch none bind,nofail 0 0"]


def test_several_disks_become_one_by_mdadm(machine: DressedMachine):
    dress(machine.root, DLVM)
    first, second = machine.root.disk(GCE_FIRST), machine.root.disk(GCE_SECOND)
    machine.root.command("mdadm", f'echo "mdadm $*" >> /calls; ln -s {second} /dev/md0')
    machine.reaches_the_agent("gce")
    (made,) = [call for call in machine.root.calls if call.startswith("mdadm")]
    assert "--level=0 --raid-devices=2 /dev/disk/by-id/google-local-nvme-ssd-0" in made
    assert AGENT in machine.root.on_disk(second)
    assert first != second


def test_without_mdadm_the_first_of_several_disks_is_used_and_that_is_told(
    machine: DressedMachine,
):
    dress(machine.root, DLVM)
    loop = machine.root.disk(GCE_FIRST)
    machine.root.disk(GCE_SECOND)
    machine.reaches_the_agent("gce")
    assert AGENT in machine.root.on_disk(loop)
    (told,) = machine.history("boot_warned")
    assert told == (
        "A machine of local starts, but mdadm is missing: of 2 local disks only the first is used."
    )


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("mdadm", "the 2 local disks cannot be made one"),
        ("mkfs.ext4", "cannot be formatted"),
        ("mount", "cannot be mounted"),
    ],
)
@pytest.mark.parametrize("cloud", ["ec2", pytest.param("gce", marks=pytest.mark.full)])
def test_disks_that_cannot_be_used_fail_no_boot(
    machine: DressedMachine, cloud: str, command: str, said: str
):
    dress(machine.root, DLVM)
    for link in (FIRST, SECOND) if cloud == "ec2" else (GCE_FIRST, GCE_SECOND):
        machine.root.disk(link)
    machine.root.command(command, "exit 1")
    machine.reaches_the_agent(cloud)
    _fell_back(machine, said)


def test_a_volume_that_cannot_be_bound_fails_no_boot_and_is_not_formatted(
    machine: DressedMachine,
):
    dress(machine.root, DLAMI)
    loop = machine.root.disk(FIRST)
    machine.root.format(loop, "kept")
    machine.root.command("lsblk", "echo /opt/dlami/nvme")
    machine.root.command("mount", "exit 1")
    machine.reaches_the_agent()
    _fell_back(machine, "the local disks at /opt/dlami/nvme cannot be mounted at /scratch")
    assert "kept" in machine.root.on_disk(loop)


def test_a_control_plane_that_knows_no_warnings_stops_no_boot(machine: DressedMachine):
    """One of an earlier release answers 422 to them."""
    dress(machine.root, DLVM)
    machine.root.disk(GCE_FIRST)
    machine.root.command("mount", "exit 1")
    said = machine.reaches_the_agent("gce", LOWTIDE_LAUNCH_TOKEN="unknown")
    assert "and the control plane could not be told" in said
