"""What the release notes of machine images say, and roots that are dressed after them.

Lives here: facts with their document. Not here: which image is the default
(`app.adapters.providers.machine_images`), or how a root is made (`image_root`).
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.support.boot.image_root import ImageRoot

DLAMI = "https://docs.aws.amazon.com/dlami/latest/devguide"
DLVM = "https://docs.cloud.google.com/deep-learning-vm/docs/images"


@dataclass(frozen=True)
class ImageNotes:
    """One image, all of them without PyTorch: DLAMI's notes list CUDA, driver and tools alone.

    pip: false also where no document says that its Python has one.
    """

    python: str
    pip: bool
    document: str
    dlami_nvme: bool = False


NOTES = {
    # python_location /usr/bin/python3.12, nvme_location /opt/dlami/nvme.
    "base-oss-nvidia-driver-gpu-ubuntu-24.04": ImageNotes(
        "3.12", True, f"{DLAMI}/aws-deep-learning-ami-gpubaseossarm64-ul2404-2026-10-08", True
    ),
    # python_location /usr/bin/python3.10.
    "base-oss-nvidia-driver-gpu-ubuntu-22.04": ImageNotes(
        "3.10", True, f"{DLAMI}/aws-deep-learning-ami-gpubaseossarm64-ul2204-2026-10-08", True
    ),
    # "Base-cu129 (Python 3.12 / Ubuntu 24.04)".
    "common-cu129-ubuntu-2404-nvidia-580": ImageNotes("3.12", False, DLVM),
    # "Base-cu128 (Python 3.10 / Ubuntu 22.04)".
    "common-cu128-ubuntu-2204-nvidia-570": ImageNotes("3.10", False, DLVM),
    # Ubuntu's cloud image of 24.04: python3 is 3.12, python3-pip is not in its manifest.
    "ubuntu-accelerator-2404-amd64-with-nvidia-580": ImageNotes(
        "3.12", False, "https://cloud-images.ubuntu.com/releases/noble/release/"
    ),
}


def notes_of(image: str) -> ImageNotes:
    """The notes of an image by the name that the provider asks its cloud for."""
    (name,) = [one for one in NOTES if one in image]
    return NOTES[name]


def dress(root: ImageRoot, notes: ImageNotes) -> None:
    """Give a root what the notes name: its Python, a systemd, the service for disks."""
    root.python(notes.python, pip=notes.pip, torch=False)
    root.file("/run/systemd/system/.here", "")
    if notes.dlami_nvme:
        dlami_systemctl(root, "exit 0")


def dlami_systemctl(root: ImageRoot, start: str) -> None:
    """A systemctl whose `start dlami-nvme.service` does what the real service did, in shell code.

    Source: /opt/aws/dlami/bin/nvme_ephemeral_drives.sh, which makes the volume `vg.01/lv_ephemeral`
    of all disks, formats it, mounts it at /opt/dlami/nvme, and ends with 0 also where it failed.
    """
    root.command(
        "systemctl",
        f"""echo "systemctl $*" >> /calls
case "$*" in
    'is-enabled -q dlami-nvme.service') exit 0 ;;
    'start dlami-nvme.service') {start} ;;
esac""",
    )
