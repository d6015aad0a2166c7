"""Commands that are run to their end, with what they printed.

Not here: lowtide's own command line (`tests.support.cli`), or programs that stay (their own files).
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def run_command(
    command: Sequence[str | Path] | str, *, timeout: float, check: bool = False, **more: Any
) -> subprocess.CompletedProcess[str]:
    """Run it; its outputs are text. check: raise CalledProcessError unless it exits with 0.

    timeout: seconds. more: as of `subprocess.run`.
    """
    return subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, check=check, **more
    )
