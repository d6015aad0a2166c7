"""What torchrun prints when ranks stop as they were asked: it is no failure, and is not shown."""

from __future__ import annotations

import pytest

from trainer.agent.attempt.launcher_report import HELD_BYTES_MAX, LauncherReports

WARNED = (
    "W1123 07:11:12.000000 41 torch/distributed/elastic/agent/server/api.py:739] Received 15 "
    "death signal, shutting down workers\n"
    "W1123 07:11:12.000000 41 torch/distributed/elastic/multiprocessing/api.py:1029] Sending "
    "process 42 closing signal SIGTERM\n"
)
STACK = (
    "Traceback (most recent call last):\n"
    '  File "<frozen runpy>", line 198, in _run_module_as_main\n'
    '  File ".../torch/distributed/run.py", line 950, in <module>\n'
    "    main()\n"
    "    ^^^^^^\n"
)


def left(code: int) -> str:
    return (
        "E1123 07:11:12.000000 41 torch/distributed/elastic/multiprocessing/api.py:1003] failed "
        f"(exitcode: {code}) local_rank: 0 (pid: 42) of binary: /usr/bin/python3\n"
    )


def failure(index: int, code: int) -> str:
    return (
        f"[{index}]:\n  time      : 2026-11-23_07:11:12\n  host      : m1\n"
        f"  rank      : {index} (local_rank: {index})\n  exitcode  : {code} (pid: 4{index}) \n"
        "  error_file: <N/A>\n  traceback : To enable traceback see: https://pytorch.org/\n"
    )


def report(*codes: int, name: str = "trainer.training.train") -> str:
    """As `ChildFailedError.format_msg` writes it."""
    frame, line = "=" * 60, "-" * 60
    others = "".join(failure(number, code) for number, code in enumerate(codes[1:], 1))
    return (
        f"{STACK}torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n{frame}\n"
        f"{name} FAILED\n{line}\nFailures:\n{others or '  <NO_OTHER_FAILURES>'}\n{line}\n"
        f"Root Cause (first observed failure):\n{failure(0, codes[0])}{frame}\n"
    )


def shown(text: str, *, draining: bool = False, piece: int = 7) -> str:
    """What the log holds, however the output is cut."""
    reports = LauncherReports(lambda: draining)
    content = text.encode()
    pieces = [content[start : start + piece] for start in range(0, len(content), piece)]
    return b"".join([*map(reports.feed, pieces), reports.end()]).decode()


@pytest.mark.parametrize("piece", [1, 64, 1 << 20])
@pytest.mark.parametrize("codes", [(75,), (75, 75, 75), (75, -15)])
def test_the_report_of_a_drain_is_left_out(codes: tuple[int, ...], piece: int):
    """On every rank: also where another machine got the notice, and this one was not asked."""
    text = f"step 41\n{left(75)}{report(*codes)}step 42\n"
    assert shown(text, piece=piece) == "step 41\nstep 42\n"


def test_a_script_whose_launcher_was_told_to_stop_shows_no_stack():
    signalled = (
        f"{STACK}torch.distributed.elastic.multiprocessing.api.SignalException: Process 41 got "
        "signal: 15\n"
    )
    text = f"saved\n{WARNED}{signalled}"
    assert shown(text, draining=True) == "saved\n"
    # Nobody asked for it: then it is news.
    assert shown(text) == text


@pytest.mark.parametrize(
    "text",
    [
        left(1) + report(1),
        report(75, 1),
        report(-9),
        f"{STACK}ValueError: boom\n",
        f"{STACK}ValueError: exitcode  : 75\n{report(1)}",
        f"{STACK}torch.cuda.OutOfMemoryError: no room\nstep 3\n",
        "Traceback (most recent call last):\n",
        f"{STACK}torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n=====\ncut",
        "Epoch 1: 12 %\rEpoch 1: 13 %\r\nW\nE\nWorking…",
    ],
)
def test_what_really_failed_is_shown_byte_for_byte(text: str):
    for piece in (1, 7, 1 << 20):
        assert shown(text, piece=piece) == text
        assert shown(text, draining=True, piece=piece) == text


def test_a_line_that_is_still_being_written_is_shown_at_once():
    reports = LauncherReports(lambda: False)
    assert reports.feed(b"step 1\n 12 %|###") == b"step 1\n 12 %|###"
    assert reports.feed(b"#|\n") == b"#|\n"
    assert reports.feed(b"Trace") == b""
    assert reports.feed(b"r\n") == b"Tracer\n"


def test_what_is_too_long_for_a_report_is_let_go():
    reports = LauncherReports(lambda: True)
    line = b"  " + b"x" * 1_000 + b"\n"
    out = reports.feed(b"Traceback (most recent call last):\n")
    for _ in range(HELD_BYTES_MAX // len(line) + 2):
        out += reports.feed(line)
    assert len(out) > HELD_BYTES_MAX
