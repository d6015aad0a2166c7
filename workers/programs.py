"""Starts a worker or beat: `python -m workers.programs worker|beat`.

Without Celery's command line, whose own imports cost 10 MB and a quarter of a second. Each program
imports only what it needs: beat has no use for what a worker loads. Not here: what they do
(`worker_program`, `beat_program`).
"""

from __future__ import annotations

import sys

from workers.plan import USAGE_EXIT

USAGE = "usage: python -m workers.programs worker|beat"

if __name__ == "__main__":
    if sys.argv[1:] == ["worker"]:
        from workers.worker_program import run
    elif sys.argv[1:] == ["beat"]:
        from workers.beat_program import run
    else:
        print(USAGE, file=sys.stderr)
        sys.exit(USAGE_EXIT)
    sys.exit(run())
