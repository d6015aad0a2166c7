"""Which line of a log names the error."""

from __future__ import annotations

import pytest

from trainer.protocol.error_line import error_line

TRACEBACK = """step 611 loss 0.4
Traceback (most recent call last):
  File "/work/train.py", line 97, in train
    raise ValueError("boom")
ValueError: boom
"""
TORCHRUN = """[rank1]: Traceback (most recent call last):
[rank1]:   File "/work/train.py", line 3, in <module>
[rank1]: torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB
E1123 10:00:00.000000 failed (exitcode: 1) local_rank: 1 (pid: 7)
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
============================================================
[lowtide] the machine is given back
"""
SILENT = """now it ends
E1124 16:12:08.045000 torch/elastic/api.py:1002] failed (exitcode: {code}) local_rank: 0
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-24_16:12:08
  host      : localhost
  rank      : 0 (local_rank: 0)
  exitcode  : {code} (pid: 22931)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""
CHAINED = """KeyError: 'x'

During handling of the above exception, another exception occurred:

mypackage.DataError: no such column
"""


@pytest.mark.parametrize(
    ("log", "line"),
    [
        (TRACEBACK, "ValueError: boom"),
        (TORCHRUN, "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"),
        (CHAINED, "mypackage.DataError: no such column"),
        ("loading\nbash: line 1: trian: command not found\n[lowtide] ended\n\n",
         "bash: line 1: trian: command not found"),
        ("KeyboardInterrupt\n", "KeyboardInterrupt"),
        ("an Error: in the middle of a sentence\nlast words", "last words"),
        ("[lowtide] one\n =====\n", None),
        ("", None),
    ],
)  # fmt: skip
def test_the_last_exception_counts_else_the_last_words(log: str, line: str | None):
    assert error_line(log) == line


@pytest.mark.parametrize(
    ("code", "line"),
    [
        (42, "a rank of torchrun ended with exit code 42 and named no error"),
        (-9, "a rank of torchrun was killed by SIGKILL"),
        (-99, "a rank of torchrun was killed by signal 99"),
    ],
)
def test_of_a_rank_that_named_no_error_torchrun_says_how_it_ended(code: int, line: str):
    assert error_line(SILENT.format(code=code)) == line


def test_a_long_line_is_cut():
    found = error_line(f"ValueError: {'x' * 5_000}\n")
    assert found is not None
    assert len(found) == 300
    assert found.endswith("…")
