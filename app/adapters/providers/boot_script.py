"""The boot script of a rented machine, as user data: a POSIX shell script that starts the agent.

Here: putting a launch's values into the shipped script, safely. Not here: what the script does
(`boot/*.sh`), or handing it to a cloud (each provider's own folder).
"""

from __future__ import annotations

import functools
import gzip
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final

EC2: Final = "ec2"
GCE: Final = "gce"
USER_DATA_BYTES_MAX: Final = 16_384
"""What EC2 takes as user data, before base64 (EC2 user guide, "Run commands at launch")."""
GCE_SCRIPT_BYTES_MAX: Final = 262_144
"""What Compute Engine takes as one metadata value (Compute Engine, "Set custom metadata")."""

_SHARED: Final = ("disks", "python", "machine")

_NEEDED: Final = ("LOWTIDE_CONTROL_URL", "LOWTIDE_LAUNCH_TOKEN")
_NAME = re.compile(r"[A-Z][A-Z0-9_]{0,63}", re.ASCII)
# Values are single lines of printable text: anything else has no business in a boot script.
_UNFIT = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_FOLDER = Path(__file__).with_name("boot")


class BootScriptError(ValueError):
    """A value that cannot stand in a boot script; the message names it, never its content."""


def render(user_data: Mapping[str, str], cloud: str | None = None) -> str:
    """The boot script that starts an agent with these environment variables.

    `cloud` is `ec2` or `gce`; without it `LOWTIDE_CLOUD` of the user data says which. Needed are
    LOWTIDE_CONTROL_URL and LOWTIDE_LAUNCH_TOKEN; docs/machines.md lists what else is obeyed.

    Raises BootScriptError for a missing or unfit value, or a script larger than a cloud takes.
    """
    chosen = cloud or user_data.get("LOWTIDE_CLOUD")
    if chosen not in (EC2, GCE):
        raise BootScriptError(f"LOWTIDE_CLOUD must be {EC2} or {GCE}, not {chosen!r}")
    for name in _NEEDED:
        if not user_data.get(name):
            raise BootScriptError(f"{name} is missing in the user data of a machine")
    lines = [_assignment(name, user_data[name]) for name in sorted(user_data)]
    script = "\n".join(
        ["#!/bin/sh", "# Starts the Lowtide agent on this machine.", *lines, _part(chosen)]
    )
    script += "".join(map(_part, _SHARED))
    content = script.encode()
    # EC2's adapter packs what is larger, and cloud-init unpacks it.
    size = len(gzip.compress(content, mtime=0)) if chosen == EC2 else len(content)
    most = USER_DATA_BYTES_MAX if chosen == EC2 else GCE_SCRIPT_BYTES_MAX
    if size > most:
        raise BootScriptError(
            f"the boot script has {size:,} bytes, {chosen} takes {most:,}; "
            "give the machine fewer or shorter variables"
        )
    return script


def _assignment(name: str, value: object) -> str:
    if _NAME.fullmatch(name) is None:
        raise BootScriptError(f"{name[:64]!r} is no name of an environment variable")
    if not isinstance(value, str) or _UNFIT.search(value) is not None:
        raise BootScriptError(f"{name} must be one line of text without control characters")
    return f"export {name}={shlex.quote(value)}"


@functools.cache
def _part(name: str) -> str:
    """A shipped part; whole-line comments are left out, for user data is small."""
    kept = [
        line
        for line in (_FOLDER / f"{name}.sh").read_text("utf-8").splitlines()
        if line.strip() and not line.lstrip().startswith("# ")
    ]
    return "\n".join(kept) + "\n"
