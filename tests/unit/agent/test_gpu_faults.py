"""GPU faults in the words of real kernels and of real nvidia-smi."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainer.agent.gpu.gpu_faults import (
    GpuFaultWatch,
    KernelLog,
    SmiAnswer,
    ask_smi,
    parse_failed_rows,
    parse_health,
    parse_kernel_line,
    parse_lost,
)

HEALTHY = """\
0, GPU-0b11d014-1685-04bd-26ed-5fc0bc1c44ae, 00000000:53:00.0, 0
1, GPU-67a571b1-79ee-1016-8ea3-c1fff3f1c1d2, 00000000:64:00.0, 0
"""
NO_ECC = "0, GPU-0b11d014-1685-04bd-26ed-5fc0bc1c44ae, 00000000:00:1E.0, [N/A]\n"
ROWS = "00000000:53:00.0, No\n00000000:64:00.0, No\n"


@pytest.mark.parametrize(
    ("line", "gpu", "kind"),
    [
        ("NVRM: Xid (PCI:0000:2b:00): 79, GPU has fallen off the bus.", "0000:2b:00", "xid 79"),
        (
            "NVRM: Xid (PCI:0000:9b:00): 94, pid=1234, name=python3, Contained ECC error",
            "0000:9b:00",
            "xid 94",
        ),
        (
            "[Fri Aug 30 11:43:14 2024] NVRM: Xid (PCI:0000:cb:00): 109, pid=1797828, "
            "name=pt_main_thread, Ch 00000008, errorString CTX SWITCH TIMEOUT, Info 0x58005",
            "0000:cb:00",
            "xid 109",
        ),
        ("NVRM: Xid (0000:01:00): 48, An uncorrectable double bit error", "0000:01:00", "xid 48"),
        (
            "NVRM: Xid (PCI:0000:3B:00): 64, pid=9, Row Remapper: Failed to remap",
            "0000:3b:00",
            "xid 64",
        ),
        (
            "NVRM: Xid (PCI:0019:01:00): 149, NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x0)",
            "0019:01:00",
            "xid 149",
        ),
        (
            "NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to "
            "0x1 (GPU Reset Required)",
            "0000:01:00",
            "xid 154",
        ),
    ],
)
def test_lines_that_tell_of_a_fault(line: str, gpu: str, kind: str):
    fault = parse_kernel_line(line)
    assert fault is not None
    assert (fault.gpu, fault.kind) == (gpu, kind)
    assert fault.message.startswith(f"GPU {gpu}: Xid ")


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: Xid (PCI:0000:cb:00): 13, pid='<unknown>', name=<unknown>, Graphics SM Warp "
        "Exception on (GPC 7, TPC 7, SM 0): Illegal Instruction Parameter",
        "NVRM: Xid (0000:01:00): 31, Ch 0000000b, engmask 00000120, intr 10000000",
        "NVRM: Xid (PCI:0000:10:1c): 63, pid=1896, Row Remapper: New row marked for remapping, "
        "reset gpu to activate.",
        "NVRM: Xid (PCI:0018:01:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2)",
        "NVRM: GPU 0000:2b:00.0: GPU has fallen off the bus.",
        "NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x1 (GPU Reset "
        "Required) to 0x0 (None)",
        "NVRM: Xid (PCI:0000:01:00): 999, something new",
        "usb 1-1: new high-speed USB device",
        "",
    ],
)
def test_lines_that_tell_of_none(line: str):
    assert parse_kernel_line(line) is None


@pytest.mark.parametrize(
    ("output", "gpu"),
    [
        (
            "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost. Reboot the "
            "system to recover this GPU",
            "0000:02:00.0",
        ),
        (
            "Unable to determine the device handle for GPU0000:07:00.0: Unknown Error",
            "0000:07:00.0",
        ),
        ("Unable to determine the device handle for gpu 3: GPU is lost", ""),
    ],
)
def test_a_lost_gpu(output: str, gpu: str):
    (fault,) = parse_lost(f"\n{output}\n")
    assert (fault.gpu, fault.kind) == (gpu, "lost")


def test_the_health_of_gpus_is_read():
    first, second = parse_health(HEALTHY)
    assert (first.index, first.bus_id, first.uncorrected_errors) == (0, "00000000:53:00.0", 0)
    assert second.uuid.startswith("GPU-67a5")
    assert parse_health(NO_ECC)[0].uncorrected_errors is None
    assert parse_health("No devices were found\n") == ()
    assert parse_lost(HEALTHY) == ()


def test_rows_that_cannot_be_remapped():
    assert parse_failed_rows(ROWS) == ()
    assert parse_failed_rows("00000000:00:1E.0, [N/A]\nNo devices support it\n") == ()
    (fault,) = parse_failed_rows(ROWS.replace("64:00.0, No", "64:00.0, Yes"))
    assert (fault.gpu, fault.kind) == ("00000000:64:00.0", "rows")


class Machine:
    """What a watch sees: kernel lines, and nvidia-smi's answers."""

    def __init__(self, gpus: int = 2) -> None:
        self.lines: list[str] = []
        self.health: str | None = HEALTHY
        self.rows = ROWS
        self.watch = GpuFaultWatch(gpus, self._new_lines, self._smi)

    def _new_lines(self) -> list[str]:
        told, self.lines = self.lines, []
        return told

    def _smi(self, query: str, form: str) -> SmiAnswer:
        return SmiAnswer(self.rows if "remapped" in query else self.health)

    def kinds(self) -> list[str]:
        return [fault.kind for fault in self.watch.poll()]


def test_a_healthy_machine_tells_nothing():
    machine = Machine()
    assert [machine.kinds() for _ in range(5)] == [[]] * 5


def test_each_fault_is_told_once():
    machine = Machine()
    line = "NVRM: Xid (PCI:0000:2b:00): 79, GPU has fallen off the bus."
    machine.lines = [line, line]
    assert machine.kinds() == ["xid 79"]
    machine.lines = [line]
    assert machine.kinds() == []
    machine.lines = [line.replace("2b", "2c")]
    assert machine.kinds() == ["xid 79"]


def test_errors_of_before_are_not_ours_but_new_ones_are():
    machine = Machine()
    machine.health = HEALTHY.replace("53:00.0, 0", "53:00.0, 3")
    assert machine.kinds() == []
    machine.health = HEALTHY.replace("53:00.0, 0", "53:00.0, 4")
    assert machine.kinds() == ["ecc"]
    assert machine.kinds() == []


def test_a_gpu_that_is_missing_twice_is_gone():
    machine = Machine()
    machine.health = HEALTHY.splitlines()[0]
    assert machine.kinds() == []
    assert machine.kinds() == ["missing"]
    machine = Machine()
    machine.health = HEALTHY.splitlines()[0]
    assert machine.kinds() == []
    machine.health = HEALTHY
    assert machine.kinds() == []
    machine.health = HEALTHY.splitlines()[0]
    assert machine.kinds() == []


def test_an_nvidia_smi_that_hangs_twice_is_a_fault():
    machine = Machine()
    machine.health = None
    assert machine.kinds() == []
    assert machine.kinds() == ["silent"]
    machine.health = HEALTHY
    assert machine.kinds() == []


def test_rows_are_asked_for_at_every_look():
    machine = Machine()
    machine.rows = ROWS.replace("No", "Yes", 1)
    assert machine.kinds() == ["rows"]


def test_a_machine_without_gpus_is_not_watched():
    machine = Machine(gpus=0)
    machine.lines = ["NVRM: Xid (PCI:0000:2b:00): 79, GPU has fallen off the bus."]
    assert machine.kinds() == []


def test_the_kernels_log_is_read_as_it_grows(tmp_path: Path):
    pipe = tmp_path / "kmsg"
    os.mkfifo(pipe)
    log = KernelLog(pipe)
    with pipe.open("wb", buffering=0) as kernel:
        kernel.write(b"4,1234,98765,-;NVRM: Xid (PCI:0000:2b:00): 79, gone\n SUBSYSTEM=pci\n")
        assert log.new_lines() == ["NVRM: Xid (PCI:0000:2b:00): 79, gone"]
        assert log.new_lines() == []
        kernel.write(b"6,1235,98766,-;hello\n")
        assert log.new_lines() == ["hello"]
    log.close()
    assert log.new_lines() == []
    assert KernelLog(tmp_path / "absent").new_lines() == []


def test_a_machine_without_the_command_answers_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ask_smi("-L") == SmiAnswer("")
    command = tmp_path / "nvidia-smi"
    command.write_text("#!/bin/sh\necho out; echo bad >&2; exit 15\n")
    command.chmod(0o700)
    assert ask_smi("-L") == SmiAnswer("out\n\nbad\n")
