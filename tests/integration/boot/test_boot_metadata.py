"""What the trainer's user can reach of the metadata service, by the rules that the boot makes."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.adapters.providers.boot_script import render
from tests.support.boot.image_notes import NOTES, dress
from tests.support.boot.image_root import PATH, ImageRoot, image_root
from tests.support.servers.finished_commands import run_command

TRAINER, ROOT_USER = 10002, 0
EC2_DNS = "169.254.169.253"  # Amazon VPC user guide, "Amazon DNS server"; the other is VPC + 2
METADATA = "169.254.169.254"  # on Compute Engine its DNS server, too
EC2_IPV6, GCE_IPV6 = "fd00:ec2::254", "fd20:ce::254"


@dataclass(frozen=True)
class Packet:
    """One packet that leaves the machine."""

    protocol: str
    to: str
    port: int
    user: int = TRAINER


def _rejected(rules: list[str], packet: Packet) -> bool:
    """Whether one of the iptables commands rejects the packet; an unknown word is an error."""
    for rule in rules:
        words = iter(shlex.split(rule)[1:])
        matches, negated = True, False
        for word in words:
            if word == "!":
                negated = True
                continue
            if word in ("-w",):
                continue
            value = next(words)
            checks: dict[str, Callable[[str], bool]] = {
                "-I": lambda one: one == "OUTPUT",
                "-m": lambda one: one == "owner",
                "-j": lambda one: one == "REJECT",
                "-d": lambda one: one == packet.to,
                "-p": lambda one: one == packet.protocol,
                "--dport": lambda one: int(one) == packet.port,
                "--uid-owner": lambda one: int(one) == packet.user,
            }
            matches = matches and checks[word](value) is not negated
            negated = False
        if matches:
            return True
    return False


@pytest.fixture
def root(tmp_path: Path) -> Iterator[ImageRoot]:
    with image_root(tmp_path / "machine") as made:
        dress(made, NOTES["common-cu129-ubuntu-2404-nvidia-580"])
        yield made


def _block(
    root: ImageRoot, cloud: str = "gce", step: str = "block_metadata", **more: str
) -> subprocess.CompletedProcess[str]:
    """Run this one step of the script: all of it but its last line, which starts the boot."""
    given = {
        "LOWTIDE_CONTROL_URL": "http://127.0.0.1:1",
        "LOWTIDE_LAUNCH_TOKEN": "token",
        "LOWTIDE_POWEROFF_COMMAND": "touch /is-off",
        "LOWTIDE_GPU_COUNT": "0",
        "LOWTIDE_PRIVATE_ADDRESS": "127.0.0.1",
        "LOWTIDE_INTERFACE": "lo",
        "LOWTIDE_MACHINE_DIR": "/var/lib/lowtide",
        **more,
    }
    lines = render(given, cloud).splitlines()
    assert lines.pop() == 'main "$@"'
    root.file("/step", "\n".join([*lines, 'mkdir -p "$home"', step]) + "\n", 0o700)
    return run_command(root.enter(["/bin/sh", "/step"]), timeout=60, env={"PATH": PATH})


@pytest.mark.parametrize("cloud", ["ec2", "gce"])
def test_the_trainer_reaches_dns_and_no_credentials(root: ImageRoot, cloud: str):
    done = _block(root, cloud)
    assert done.returncode == 0, done.stdout + done.stderr
    for address in (METADATA, EC2_IPV6, GCE_IPV6):
        # HTTP, and the HTTPS that Compute Engine's metadata server has as well.
        for port in (80, 443):
            assert _rejected(root.calls, Packet("tcp", address, port))
            assert not _rejected(root.calls, Packet("tcp", address, port, ROOT_USER))
    for address in (METADATA, EC2_DNS, "10.0.0.2"):
        for protocol in ("udp", "tcp"):
            assert not _rejected(root.calls, Packet(protocol, address, 53))
    assert not _rejected(root.calls, Packet("tcp", "10.0.0.7", 80))


def test_after_a_restart_the_agent_makes_the_rules_anew_and_each_once(root: ImageRoot):
    """What systemd starts then is the stage `agent`; the kernel has forgotten every rule."""
    assert _block(root).returncode == 0
    made = [one for one in root.calls if "tables " in one]
    (root.written / "calls").unlink()
    for _ in range(2):
        # There is no agent on this root; all that comes before it has been done.
        assert _block(root, step="main agent").returncode == 127
    assert [one for one in root.calls if "tables " in one] == made
    assert len(made) == 3
    assert _rejected(made, Packet("tcp", METADATA, 80))


def test_a_restart_without_the_rules_starts_no_agent(root: ImageRoot):
    root.command("iptables", "exit 1")
    done = _block(root, step="main agent")
    assert done.returncode == 1
    assert "metadata access of the trainer cannot be blocked" in done.stdout
    assert (root.written / "is-off").exists()


def test_a_first_boot_without_the_rules_sets_no_agent_up(root: ImageRoot):
    """It is told once, before systemd starts an agent that could only fail again and again."""
    before = ("mount_scratch", "find_python", "check_gpus", "install_agent", "make_trainer_user")
    boot = " ".join([*(f"{name}() {{ :; }};" for name in before), "boot"])
    for program in ("systemctl", "systemd-mount"):
        root.command(program, "exit 0")
    root.file("/run/systemd/system/none", "", 0o600)
    done = _block(root, step=boot)
    assert done.returncode == 0, done.stdout + done.stderr
    assert any("tables " in one for one in root.calls)
    root.command("iptables", "exit 1")
    done = _block(root, step=f'rm -f "$home/installed"; {boot}')
    assert done.returncode == 1
    assert "metadata access of the trainer cannot be blocked" in done.stdout
    assert "the agent starts" not in done.stdout


def test_a_setting_leaves_the_metadata_open(root: ImageRoot):
    assert _block(root, LOWTIDE_TRAINER_METADATA="allow").returncode == 0
    assert root.calls == []


def test_rules_that_cannot_be_made_fail_the_boot(root: ImageRoot):
    root.command("iptables", "exit 1")
    done = _block(root)
    assert done.returncode == 1
    assert "metadata access of the trainer cannot be blocked" in done.stdout


@pytest.mark.parametrize(("way", "code"), [("exit 2", 0), ("exit 0", 1)])
def test_ipv6_counts_where_there_is_a_way_to_the_service(root: ImageRoot, way: str, code: int):
    root.command("ip6tables", "exit 1")
    root.command("ip", way)
    done = _block(root)
    assert done.returncode == code, done.stdout
    assert ("by IPv6 cannot be blocked" in done.stdout) is bool(code)
