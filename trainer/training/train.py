"""The training program of one rank: ``torchrun ... -m trainer.training.train --config FILE``.

Its last lines say in which order a rank starts: it listens for signals, reads the command line and
the configuration, and only then imports PyTorch (``rank_loop``). ``--validate`` only checks the
configuration and its data (``check_config``).

Exit codes: 0 finished, 75 drained (stopped on request with everything saved), 65 the checkpoint to
resume from is corrupt, 2 the configuration cannot be used, 1 anything else. torchrun hides them:
``ended-rank<R>.json`` (see ``ending.py``) is what counts.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from pathlib import Path
from typing import NoReturn

from trainer.training import drain
from trainer.training.config import load_config
from trainer.training.gang import ending
from trainer.training.gang.rank_environment import read_rank_environment
from trainer.training.started_rank import StartedRank, start_rank
from trainer.training.training_errors import ConfigError


def parse_arguments() -> argparse.Namespace:
    """The command line. Where files go is said by LOWTIDE_* first."""
    parser = argparse.ArgumentParser(prog="trainer.training.train")
    parser.add_argument("--config", type=Path, required=True, help="JSON file of the run")
    parser.add_argument("--validate", action="store_true", help="check it and do nothing else")
    parser.add_argument(
        "--folder", type=Path, help="for checkpoints and progress; default: runs/NAME of the file"
    )
    parser.add_argument(
        "--fresh", action="store_true", help="start anew instead of from the newest checkpoint"
    )
    return parser.parse_args()


def begin(options: argparse.Namespace, stop: drain.StopRequest) -> StartedRank:
    """The rank of this process. Ends the process where its environment cannot be used."""
    folder = options.folder or Path("runs") / options.config.stem
    try:
        environment = read_rank_environment(os.environ, folder, fresh=options.fresh)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        leave(ending.EXIT_CONFIG)
    return start_rank(options.config, environment, stop, fresh=options.fresh)


def leave(code: int) -> NoReturn:
    """End at once. Not sys.exit: tearing down gloo's threads can abort a good run."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    stop = drain.StopRequest()
    stop.listen()
    drain.dump_stacks_on_signal()
    options = parse_arguments()
    if options.validate:
        from trainer.training.check_config import check_config

        leave(check_config(options.config))
    rank = begin(options, stop)
    try:
        config = load_config(rank.config_path)
        # Only now: importing PyTorch takes seconds, and the signal handlers must stand before. A
        # tenth of that time would go into collections that find nothing.
        gc.disable()
        from trainer.training.rank_loop import run_rank

        gc.enable()
    except Exception as error:  # whatever it is, the marker must say so
        result = rank.ended(rank.failed(error))
        rank.progress.write_goodput(result.step, final=True)
        leave(result.exit_code)
    leave(run_rank(rank, config).exit_code)
