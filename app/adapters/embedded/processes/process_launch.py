"""Starting one process from its spec, in a session of its own, as the account it names.

Not here: waiting for it, restarting it, stopping it.
"""

from __future__ import annotations

import subprocess
from typing import IO, Any

from app.adapters.embedded.processes.process_spec import ProcessSpec


def launch(spec: ProcessSpec, output: int | IO[Any]) -> subprocess.Popen[bytes]:
    """Start the process with stdout and stderr going to `output` and nothing on stdin.

    Its own session keeps a Ctrl-C at the terminal from reaching it before its turn to stop.
    Raises OSError when it cannot be started, and whatever preparing its command raises.
    """
    return subprocess.Popen(
        spec.command(),
        env=None if spec.env is None else dict(spec.env),
        cwd=spec.cwd,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        user=None if spec.account is None else spec.account.uid,
        group=None if spec.account is None else spec.account.gid,
        extra_groups=None if spec.account is None else [],
    )
